#include "cprofiling/stats/figures.h"

#define NS_PER_MS 1e6

void cprof_figures_quantiles_ms(const cprof_figures *figures, const uint64_t *counts, const double *fractions, size_t count,
                                double *quantiles_ms)
{
    cprof_histogram_dense dense = {counts, figures->rows};
    double without_counts_ms = figures->count > 0 ? figures->min_ms : 0.0;
    cprof_histogram_quantiles_ms(dense, figures->count - figures->histogram_lost, figures->min_ms, figures->max_ms,
                                 without_counts_ms, fractions, count, quantiles_ms);
}

void cprof_figures_set_exact(cprof_figures *figures)
{
    double *samples = figures->exact_ms;
    size_t count = figures->count <= CPROF_FIGURES_EXACT ? (size_t)figures->count : 0;
    for (size_t i = 1; i < count; i++) {
        double sample = samples[i];
        size_t k = i;
        for (; k > 0 && samples[k - 1] > sample; k--) {
            samples[k] = samples[k - 1];
        }
        samples[k] = sample;
    }
    for (size_t i = count; i < CPROF_FIGURES_EXACT; i++) {
        samples[i] = 0.0;
    }
    if (count != 0) {
        figures->median_ms = (samples[(count - 1) / 2] + samples[count / 2]) / 2.0;
    } else {
        figures->median_ms = figures->count == 0 ? 0.0 : CPROF_FIGURES_NO_MEDIAN;
    }
}

double cprof_figures_std_ms(const cprof_figures *figures)
{
    /* Beyond 2^53 ns, spans that differ may be the same double. */
    bool is_rounded = figures->moments.total_ns != 0 && figures->max_ms >= 0x1p53 / NS_PER_MS;
    bool may_differ = figures->min_ms < figures->max_ms || is_rounded;
    return may_differ ? cprof_moments_std_ms(&figures->moments, figures->count) : 0.0;
}

/* The total of spans without a part of it; unknown as soon as one sample's part is. */
static double rest_ms(const cprof_figures *figures, uint64_t unknown, cprof_u128 part_ns)
{
    if (figures->count == 0 || unknown != 0) {
        return -1.0;
    }
    return cprof_moments_ns_to_ms(figures->moments.total_ns - part_ns);
}

double cprof_figures_self_ms(const cprof_figures *figures)
{
    return rest_ms(figures, figures->self_unknown, figures->nested_ns);
}

double cprof_figures_active_ms(const cprof_figures *figures)
{
    return rest_ms(figures, figures->active_unknown, figures->suspended_ns);
}
