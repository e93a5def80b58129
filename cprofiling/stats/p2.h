/* The median of a stream in constant memory: the P-square algorithm.
 *
 * R. Jain and I. Chlamtac, "The P² algorithm for dynamic calculation of quantiles and histograms without storing
 * observations", Communications of the ACM 28(10), 1985. Exact up to five samples, an estimate afterwards.
 * No function here locks; the owner of the estimator does.
 */
#ifndef CPROF_P2_H
#define CPROF_P2_H

#include <stdbool.h>
#include <stdint.h>

enum { CPROF_P2_WAITING = 16 };

/* All zero: an estimator that has seen nothing. */
typedef struct cprof_p2 {
    double height[5];    /* marker heights, ms; the first `count` samples, unsorted, before the fifth */
    int64_t position[5]; /* marker positions, 1-based ranks; meaningful from the fifth sample on */
    int64_t count;       /* samples seen, but for those */
    int64_t waiting_ns[CPROF_P2_WAITING];
    uint32_t waiting; /* samples that are added together, in their order: that takes half as long */
} cprof_p2;

/* Puts a sample to those that wait. True: cprof_p2_settle() has to follow. */
static inline bool cprof_p2_put(cprof_p2 *estimator, int64_t sample_ns)
{
    estimator->waiting_ns[estimator->waiting++] = sample_ns;
    return estimator->waiting == CPROF_P2_WAITING;
}

/* Adds the samples that wait. */
void cprof_p2_settle(cprof_p2 *estimator);

/* Adds one finite sample, after those that wait. */
void cprof_p2_add(cprof_p2 *estimator, double sample_ms);

/* The median so far, in ms; 0 when nothing was seen. */
double cprof_p2_median(cprof_p2 *estimator);

#endif
