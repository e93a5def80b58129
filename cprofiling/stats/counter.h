/* Counters of a thread: what they are called, and arithmetic on their readings, which devices/counters.h takes. Nothing here
 * locks. */
#ifndef CPROF_COUNTER_H
#define CPROF_COUNTER_H

#include <stdbool.h>
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
} cprof_counter_reading;

/* The counts between two readings of one thread: *difference has only counters that both know. */
void cprof_counter_between(const cprof_counter_reading *before, const cprof_counter_reading *after,
                           cprof_counter_reading *difference);

/* Adds a difference to a sum of such (all zero: none yet, with known set to all bits); known is what all of them knew. */
void cprof_counter_add(cprof_counter_reading *sum, const cprof_counter_reading *difference);

/* The name of a counter, and its unit. */
const char *cprof_counter_name(cprof_counter counter);
const char *cprof_counter_unit(cprof_counter counter);

#endif
