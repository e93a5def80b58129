/* What the numbers of one key say. Pure arithmetic; no function here locks. */
#ifndef CPROF_FIGURES_H
#define CPROF_FIGURES_H

#include "cprofiling/stats/moments.h"
#include "cprofiling/stats/resources.h"
#include "cprofiling/stats/shapes.h"

enum { CPROF_FIGURES_EXACT = 5 }; /* samples up to which the median is exact */
#define CPROF_FIGURES_NO_MEDIAN (-1.0)

/* The figures of one key, as they were at one moment; also what a snapshot stores of it. */
typedef struct {
    const cprof_resources_copy *extra; /* figures beyond times, borrowed; NULL: none requested, or not copied */
    uint64_t count;                    /* samples */
    uint64_t error_count;
    uint64_t cancelled_count;
    uint64_t skipped_count;
    uint64_t dropped_count;
    uint64_t self_unknown;   /* samples without known self time */
    uint64_t active_unknown; /* samples without known active time */
    uint64_t histogram_lost; /* counts that the histogram could not keep */
    double min_ms;           /* meaningful for count > 0, as are max and last */
    double max_ms;
    double last_ms;
    double first_ms;  /* the first successful call, skipped or not; negative: none yet */
    double median_ms; /* exact of up to CPROF_FIGURES_EXACT samples, else of P²; or ..._NO_MEDIAN: take the histogram's */
    double exact_ms[CPROF_FIGURES_EXACT]; /* all samples while there are no more; 0 behind them */
    cprof_moments moments;
    cprof_u128 nested_ns; /* spent in child nodes, all samples */
    cprof_u128 suspended_ns;
    uint64_t rows;                   /* bit r: row r of the histogram holds something */
    const cprof_shapes_view *shapes; /* by signature, borrowed as `extra`; NULL: calls were not told apart, or not copied */
} cprof_figures;

/* Of copied figures: the quantiles for `count` ascending fractions (0 to 1), in ms, within the range of the samples. `counts`
 * is the dense histogram that was copied with them. 0 without a sample. */
void cprof_figures_quantiles_ms(const cprof_figures *figures, const uint64_t *counts, const double *fractions, size_t count,
                                double *quantiles_ms);

/* Sorts the samples in `exact_ms` and sets their median, 0 of none. Where there are more than it has room for, it is zeroed,
 * and the median CPROF_FIGURES_NO_MEDIAN. */
void cprof_figures_set_exact(cprof_figures *figures);

/* Of copied figures: the population standard deviation in ms; exactly 0 where all samples are equal. */
double cprof_figures_std_ms(const cprof_figures *figures);

/* Of copied figures: the time not spent in child nodes, and the time not spent suspended, in ms; negative where it is not
 * known. */
double cprof_figures_self_ms(const cprof_figures *figures);
double cprof_figures_active_ms(const cprof_figures *figures);

#endif
