/* The clock of the core: a monotonic count of ticks, and how many nanoseconds they are.
 *
 * It is not the time of day, not comparable between machines or boots, and does not run while the machine is suspended, but
 * where a counter is used that goes on then: a call that is open meanwhile is longer by that time.
 * CLOCK_MONOTONIC is the reference. Where the processor has an invariant counter (x86-64: the TSC, when the kernel itself
 * keeps time by it; aarch64: CNTVCT_EL0) ticks are that counter, read without a fence, because it costs less than half.
 * The TSC's rate is measured against the reference: at the start over some milliseconds, and again, over the whole time
 * since then, by cprof_clock_refine(), which also looks whether the kernel still keeps time by it. Nothing is subtracted
 * from what was measured.
 */
#ifndef CPROF_CLOCK_H
#define CPROF_CLOCK_H

#include "cprofiling/base/lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef int64_t cprof_ns;     /* nanoseconds */
typedef uint64_t cprof_ticks; /* ticks of the clock in use; only differences mean something */

typedef enum {
    CPROF_CLOCK_MONOTONIC, /* clock_gettime(CLOCK_MONOTONIC): a tick is a nanosecond */
    CPROF_CLOCK_COUNTER,   /* the processor's invariant counter */
    CPROF_CLOCK_TEST,      /* a function given by a test */
    CPROF_CLOCK_FOLLOWER,  /* CLOCK_MONOTONIC in ticks of the counter, which the kernel has given up meanwhile */
} cprof_clock_source;

/* One moment on both clocks. */
typedef struct {
    cprof_ns ns;
    cprof_ticks ticks;
} cprof_clock_pair;

/* Worked by clock.c, read by the inline functions below. */
typedef struct {
    _Atomic int source;          /* a cprof_clock_source */
    _Atomic uint64_t multiplier; /* nanoseconds per tick, times 2^32 */
    _Atomic uint64_t backward;   /* how often a span ended before it began */
    _Atomic(cprof_ticks (*)(void)) test_read;
    cprof_lock calibration; /* guards: */
    bool started;
    cprof_clock_pair first_pair; /* where the measurement of the counter's rate begins; of a follower: where it took over */
    cprof_ns suspended_ns;       /* how long the machine had been suspended then */
    cprof_ns looked_ns;          /* when the kernel's choice was looked at last */
    uint64_t first_multiplier;   /* the counter's rate as it was measured first */
    const char *refusal;         /* why the counter is not used */
} cprof_clock_state;

#define CPROF_CLOCK_UNIT (UINT64_C(1) << 32) /* the multiplier of a clock with ticks of 1 ns */

extern cprof_clock_state cprof_clock;

/* Chooses and calibrates the clock. Takes some milliseconds at the first call, nothing afterwards. Any thread. */
void cprof_clock_start(void);

/* Measures the counter's rate anew, over all the time since cprof_clock_start() in which the machine was not suspended, and
 * once a second looks whether the kernel still keeps time by it. Any thread; cheap (some microseconds). */
void cprof_clock_refine(void);

/* "TSC", "CNTVCT", "CLOCK_MONOTONIC" or "test": a static string. */
const char *cprof_clock_name(void);

/* Why the counter is not used, as a static string; NULL when it is used (or no choice was made yet). */
const char *cprof_clock_reason(void);

/* By which steps the clock in use was seen to go, and what reading it costs here, in picoseconds, each at best: a counter need
 * not take each of its ticks. Takes about a tenth of a millisecond. */
void cprof_clock_measure(uint64_t *step_ps, uint64_t *read_ps);

/* CLOCK_MONOTONIC in ns, whatever the clock in use is. */
cprof_ns cprof_clock_monotonic_ns(void);

/* The present moment on the reference and on the clock in use, read together. */
cprof_clock_pair cprof_clock_pair_now(void);

/* The time of day: CLOCK_REALTIME, in ns since 1970 UTC. */
cprof_ns cprof_clock_time_of_day(void);

/* How far the time of day is ahead of CLOCK_MONOTONIC at present. */
cprof_ns cprof_clock_since_epoch(void);

/* Makes `read` the clock (a tick is one ns); NULL goes back to CLOCK_MONOTONIC. For tests, while nothing is measured. */
void cprof_clock_set_test(cprof_ticks (*read)(void));

/* The read for all sources but the counter. */
cprof_ticks cprof_clock_read_other(int source);

#if defined(__x86_64__)
/* The processor's counter, unfenced. */
static inline cprof_ticks cprof_clock_counter(void)
{
    return __builtin_ia32_rdtsc();
}
#elif defined(__aarch64__)
/* The processor's counter, unfenced. */
static inline cprof_ticks cprof_clock_counter(void)
{
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}
#else
/* Never chosen: clock.c knows no counter of this architecture. */
static inline cprof_ticks cprof_clock_counter(void)
{
    return 0;
}
#endif

/* The present tick. Any thread, any time; before cprof_clock_start() it counts CLOCK_MONOTONIC. */
static inline cprof_ticks cprof_clock_read(void)
{
    int source = atomic_load_explicit(&cprof_clock.source, memory_order_relaxed);
    if (__builtin_expect(source == CPROF_CLOCK_COUNTER, 1)) {
        return cprof_clock_counter();
    }
    return cprof_clock_read_other(source);
}

/* Nanoseconds from `start` to `stop`, rounded down; 0, and counted in `backward`, when the clock went backwards. */
static inline cprof_ns cprof_clock_between(cprof_ticks start, cprof_ticks stop)
{
    if (__builtin_expect((int64_t)(stop - start) < 0, 0)) {
        atomic_fetch_add_explicit(&cprof_clock.backward, 1, memory_order_relaxed);
        return 0;
    }
    uint64_t multiplier = atomic_load_explicit(&cprof_clock.multiplier, memory_order_relaxed);
    return (cprof_ns)(((unsigned __int128)(stop - start) * multiplier) >> 32);
}

#endif
