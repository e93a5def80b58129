/* Counters of the calling thread: CPU time and what the kernel counts for it (getrusage), and hardware events
 * (perf_event_open).
 *
 * Hardware events are opened for each thread at its first reading, as one group, so that they are counted at the same times;
 * they are read in user space where the kernel allows that (rdpmc), and scaled where it had to share the counters among
 * groups. They count what the thread does in user space, not in the kernel for it. What the machine refuses has no value, and a
 * reason that is found once. perf.c works with readings, perf_linux.c takes them; perf_none.c, for platforms without a
 * perf_*.c, knows nothing.
 *
 * Thread rule: a reading is of the calling thread; any number of threads may read at once. What a thread has open is closed
 * when it ends.
 */
#ifndef CPROF_PERF_H
#define CPROF_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(constant, name, unit) */
#define CPROF_PERF_MAP(X)                            \
    X(CPU_TIME, "cpu_time", "ns")                    \
    X(CONTEXT_SWITCHES, "context_switches", "times") \
    X(PAGE_FAULTS, "page_faults", "times")           \
    X(CYCLES, "cycles", "times")                     \
    X(INSTRUCTIONS, "instructions", "times")         \
    X(BRANCH_MISSES, "branch_misses", "times")       \
    X(CACHE_MISSES, "cache_misses", "times")

typedef enum {
#define CPROF_PERF_ENUM(constant, name, unit) CPROF_PERF_##constant,
    CPROF_PERF_MAP(CPROF_PERF_ENUM)
#undef CPROF_PERF_ENUM
        CPROF_PERF_COUNT
} cprof_perf_counter;

#define CPROF_PERF_BIT(counter) (1U << (counter))
#define CPROF_PERF_ALL (CPROF_PERF_BIT(CPROF_PERF_COUNT) - 1)

/* The bits of all counters, and of the hardware events among them: from CYCLES on. */
#define CPROF_PERF_HARDWARE (CPROF_PERF_ALL & ~(CPROF_PERF_BIT(CPROF_PERF_CYCLES) - 1))

/* The counters at one moment, or the difference of two. */
typedef struct {
    uint64_t values[CPROF_PERF_COUNT];
    uint64_t enabled_ns; /* of the hardware events: that they were to count, */
    uint64_t running_ns; /* and that they did */
    unsigned known;      /* CPROF_PERF_BITs of the values that mean something */
    bool estimated;      /* of a difference: the hardware's values are scaled, as others used the counters, too */
} cprof_perf_reading;

/* Reads the counters named in `wanted` (CPROF_PERF_BITs) for the calling thread. errno is kept. */
void cprof_perf_read(unsigned wanted, cprof_perf_reading *reading);

/* What was counted between two readings of one thread: in *difference only what both know. */
void cprof_perf_between(const cprof_perf_reading *before, const cprof_perf_reading *after, cprof_perf_reading *difference);

/* Adds a difference to a sum of such (all zero: none yet, with known set to all bits); known is what all of them knew. */
void cprof_perf_add(cprof_perf_reading *sum, const cprof_perf_reading *difference);

/* The name of a counter, and its unit. */
const char *cprof_perf_name(cprof_perf_counter counter);
const char *cprof_perf_unit(cprof_perf_counter counter);

/* Why a counter has no value here: refused by the kernel, the container or the virtual machine. Tries it in the calling thread
 * if nobody did. Writes at most `size` bytes with the NUL. False, and an empty text, when it has values. */
bool cprof_perf_reason(cprof_perf_counter counter, char *buffer, size_t size);

/* Whether hardware events are read in user space by the calling thread (tried as above). */
bool cprof_perf_in_user_space(void);

/* In the child of a fork: what the parent's threads had open counts for them, and is let go of. */
void cprof_perf_after_fork_in_child(void);

#endif
