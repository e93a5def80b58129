#include "cprofiling/stats/plain.h"

#include <math.h>

#define NS_PER_MS 1e6
#define EXACT_NS (INT64_C(1) << 53)

bool cprof_plain_add(cprof_plain *sums, double sample_ms)
{
    if (sums->skips_left > 0) {
        sums->skips_left--;
        return false;
    }
    if (sums->count == 0) {
        sums->min_ms = INFINITY;
        sums->max_ms = -INFINITY;
    }
    sums->last_ms = sample_ms;
    sums->count++;
    sums->total_ms += sample_ms;
    double before = sample_ms - sums->mean_ms;
    sums->mean_ms += before / (double)sums->count;
    sums->squares += before * (sample_ms - sums->mean_ms);
    if (sample_ms < sums->min_ms) {
        sums->min_ms = sample_ms;
    }
    if (sample_ms > sums->max_ms) {
        sums->max_ms = sample_ms;
    }
    cprof_p2_add(&sums->median, sample_ms);
    return true;
}

double cprof_plain_std_ms(const cprof_plain *sums)
{
    return sums->count > 0 ? sqrt(sums->squares / (double)sums->count) : 0.0;
}

cprof_ns cprof_plain_start(void)
{
    return cprof_clock_monotonic_ns();
}

bool cprof_plain_stop(cprof_ns start_ns, cprof_ns *elapsed_ns, double *elapsed_ms)
{
    if (__builtin_sub_overflow(cprof_clock_monotonic_ns(), start_ns, elapsed_ns)) {
        return false;
    }
    *elapsed_ms = (double)*elapsed_ns / NS_PER_MS;
    return *elapsed_ns <= EXACT_NS && *elapsed_ns >= -EXACT_NS;
}
