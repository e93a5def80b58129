/* Counters of the calling thread: CPU time and what the kernel counts for it (getrusage), and hardware events
 * (perf_event_open).
 *
 * Hardware events are opened for each thread at its first reading that wants one, as one group, so that they are counted at the
 * same times, and scaled where the kernel had to share the counters among groups. They count what the thread does in user
 * space. What the kernel refuses for good has no value, is never asked for again, and has a reason; where a thread lacks
 * descriptors or memory, it tries again later.
 *
 * Thread rule: a reading is of the calling thread; any number of threads may read at once. What a thread has open is closed
 * when it ends.
 */
#ifndef CPROF_COUNTERS_H
#define CPROF_COUNTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(constant, name, unit) */
#define CPROF_COUNTER_MAP(X)                         \
    X(CPU_TIME, "cpu_time", "ns")                    \
    X(CONTEXT_SWITCHES, "context_switches", "times") \
    X(PAGE_FAULTS, "page_faults", "times")           \
    X(CYCLES, "cycles", "times")                     \
    X(INSTRUCTIONS, "instructions", "times")         \
    X(BRANCH_MISSES, "branch_misses", "times")       \
    X(CACHE_MISSES, "cache_misses", "times")

typedef enum {
#define CPROF_COUNTER_ENUM(constant, name, unit) CPROF_COUNTER_##constant,
    CPROF_COUNTER_MAP(CPROF_COUNTER_ENUM)
#undef CPROF_COUNTER_ENUM
        CPROF_COUNTER_COUNT
} cprof_counter;

#define CPROF_COUNTER_BIT(counter) (1U << (counter))
#define CPROF_COUNTER_ALL (CPROF_COUNTER_BIT(CPROF_COUNTER_COUNT) - 1)

/* The bits of all counters, and of the hardware events among them: from CYCLES on. */
#define CPROF_COUNTER_HARDWARE (CPROF_COUNTER_ALL & ~(CPROF_COUNTER_BIT(CPROF_COUNTER_CYCLES) - 1))

/* The counters at one moment, or the difference of two. */
typedef struct {
    uint64_t values[CPROF_COUNTER_COUNT];
    uint64_t enabled_ns; /* of the hardware events: that they were to count, */
    uint64_t running_ns; /* and that they did */
    unsigned known;      /* CPROF_COUNTER_BITs of the values that mean something */
    bool estimated;      /* of a difference: the hardware's values are scaled, as others used the counters, too */
} cprof_counters_reading;

/* Reads the counters named in `wanted` (CPROF_COUNTER_BITs) for the calling thread. errno is kept. */
void cprof_counters_read(unsigned wanted, cprof_counters_reading *reading);

/* What was counted between two readings of one thread: in *difference only what both know. */
void cprof_counters_between(const cprof_counters_reading *before, const cprof_counters_reading *after,
                            cprof_counters_reading *difference);

/* Adds a difference to a sum of such (all zero: none yet, with known set to all bits); known is what all of them knew. */
void cprof_counters_add(cprof_counters_reading *sum, const cprof_counters_reading *difference);

/* The name of a counter, and its unit. */
const char *cprof_counters_name(cprof_counter counter);
const char *cprof_counters_unit(cprof_counter counter);

/* Why a counter has no value here: refused by the kernel, the container or the virtual machine. Tries it in the calling thread
 * if nobody did. Writes at most `size` bytes with the NUL. False, and an empty text, when it has values. */
bool cprof_counters_reason(cprof_counter counter, char *buffer, size_t size);

/* In the child of a fork: what the parent's threads had open counts for them, and is closed. Calls nothing but what a signal
 * handler may. */
void cprof_counters_after_fork_in_child(void);

#endif
