/* The median of a stream in constant memory: the P-square algorithm.
 *
 * R. Jain and I. Chlamtac, "The P² algorithm for dynamic calculation of quantiles and histograms without storing
 * observations", Communications of the ACM 28(10), 1985. Exact up to five samples, an estimate afterwards.
 * No function here locks; the owner of the estimator does.
 */
#ifndef CPROF_P2_H
#define CPROF_P2_H

#include <stdint.h>

/* All zero: an estimator that has seen nothing. */
typedef struct cprof_p2 {
    double height[5];    /* marker heights, in the unit of the samples; the first `count` samples, unsorted, before the fifth */
    int64_t position[5]; /* marker positions, 1-based ranks; meaningful from the fifth sample on */
    int64_t count;       /* samples seen */
} cprof_p2;

/* Adds one finite sample. */
void cprof_p2_add(cprof_p2 *estimator, double sample);

/* The median so far, in the unit of the samples; 0 when nothing was seen. */
double cprof_p2_median(const cprof_p2 *estimator);

#endif
