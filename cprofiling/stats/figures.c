#include "cprofiling/stats/figures.h"

#define NS_PER_MS 1e6

void cprof_figures_quantiles_ms(const cprof_figures *figures, const uint64_t *counts, const double *fractions, size_t count,
                                double *quantiles_ms)
{
    cprof_histogram_dense dense = {counts, figures->rows};
    cprof_histogram_quantiles_ms(dense, figures->count - figures->histogram_lost, figures->min_ms, figures->max_ms, 0.0,
                                 fractions, count, quantiles_ms);
}

double cprof_figures_exact_median_ms(const cprof_figures *figures)
{
    double sorted[CPROF_FIGURES_EXACT];
    if (figures->count == 0 || figures->count > CPROF_FIGURES_EXACT) {
        return -1.0;
    }
    size_t count = (size_t)figures->count;
    for (size_t i = 0; i < count; i++) {
        size_t k = i;
        for (; k > 0 && sorted[k - 1] > figures->exact_ms[i]; k--) {
            sorted[k] = sorted[k - 1];
        }
        sorted[k] = figures->exact_ms[i];
    }
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
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
