/* The statistics of one key in plain float64 sums, as profilers that are written in Python keep them.
 *
 * What accum.h keeps is exact to rounding; these are rounded after each sample, in the order in which such a profiler does it:
 * a table made of them equals its table to the last digit. For drop-ins, beside an accumulator. No function here locks; the
 * owner of the sums does.
 */
#ifndef CPROF_PLAIN_H
#define CPROF_PLAIN_H

#include "cprofiling/base/clock.h"
#include "cprofiling/stats/p2.h"

/* All zero but `skips_left`: sums that have seen nothing. Times in ms, meaningful for count > 0. */
typedef struct {
    uint64_t skips_left; /* samples that are still left out */
    uint64_t count;
    double mean_ms;
    double squares; /* of the distances to the mean, in ms², after B. P. Welford (1962) */
    double min_ms;
    double max_ms;
    double total_ms;
    double last_ms;
    cprof_p2 median;
} cprof_plain;

/* Adds one sample of any value, or leaves it out; whether it was added. */
bool cprof_plain_add(cprof_plain *sums, double sample_ms);

/* The population standard deviation in ms; 0 without samples. */
double cprof_plain_std_ms(const cprof_plain *sums);

/* The moment at which a sample begins: CLOCK_MONOTONIC in ns, which time.perf_counter_ns() of Python reads too. */
cprof_ns cprof_plain_start(void);

/* The ns since then, negative where it is still to come, also as ms. False where a float64 cannot hold them exactly. */
bool cprof_plain_stop(cprof_ns start_ns, cprof_ns *elapsed_ns, double *elapsed_ms);

#endif
