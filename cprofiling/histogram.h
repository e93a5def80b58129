/* A log-linear histogram of durations: 64 linear buckets to each power of two, as in Gil Tene's HdrHistogram.
 *
 * Durations are counted in 1/64 ns, so that each bucket is at most 1/64 of its value wide from 1 ns up to 2^47 ns (39 hours):
 * its middle is within 0.8 % of every value in it. Beyond that the last bucket counts. Buckets are 32 bits wide; when one
 * fills, what it held is carried to a table of high halves that is made at that moment.
 *
 * Sixteen histograms share one slab of zero pages, interleaved by power of two: row r of all sixteen lies in one page. So a
 * program's nodes, whose times mostly span a decade or two, touch a page per power of two together and not one each.
 * No function here locks, except against other slabs' owners there is nothing to lock: one owner per histogram.
 */
#ifndef CPROF_HISTOGRAM_H
#define CPROF_HISTOGRAM_H

#include "cprofiling/clock.h"

#include <stddef.h>
#include <stdint.h>

enum {
    CPROF_HISTOGRAM_ROW = 64,     /* buckets in a row; row 0 is below 1 ns, row r from 2^(r-1) ns to 2^r ns */
    CPROF_HISTOGRAM_ROWS = 48,
    CPROF_HISTOGRAM_BUCKETS = CPROF_HISTOGRAM_ROW * CPROF_HISTOGRAM_ROWS,
    CPROF_HISTOGRAM_SHARE = 16,   /* histograms in a slab */
    CPROF_HISTOGRAM_STRIDE = CPROF_HISTOGRAM_ROW * CPROF_HISTOGRAM_SHARE, /* buckets from a row to the next */
    CPROF_HISTOGRAM_SLAB_BYTES = CPROF_HISTOGRAM_STRIDE * CPROF_HISTOGRAM_ROWS * 4,
};

/* Values from here on, in 1/64 ns, go to the last bucket. */
#define CPROF_HISTOGRAM_LIMIT (UINT64_C(1) << (CPROF_HISTOGRAM_ROWS + 5))

typedef struct {
    uint32_t *low;   /* bucket (row, column) at low[row * STRIDE + column]; in a slab */
    uint32_t *high;  /* high halves at high[row * ROW + column]; NULL until one is needed; owned */
} cprof_histogram;

/* The bucket number (row * ROW + column) of a value in 1/64 ns. */
static inline unsigned cprof_histogram_index(uint64_t value)
{
    if (__builtin_expect(value >= CPROF_HISTOGRAM_LIMIT, 0)) {
        return CPROF_HISTOGRAM_BUCKETS - 1;
    }
    unsigned row = value < CPROF_HISTOGRAM_ROW ? 0 : 58 - (unsigned)__builtin_clzll(value);
    unsigned shift = row == 0 ? 0 : row - 1;
    return row * CPROF_HISTOGRAM_ROW + ((unsigned)(value >> shift) & (CPROF_HISTOGRAM_ROW - 1));
}

/* Carries a full bucket over to the high halves. Without memory the bucket stays at its largest value, and *lost is raised. */
void cprof_histogram_carry(cprof_histogram *histogram, unsigned index, uint64_t *lost);

/* Counts one value in 1/64 ns. `lost` is raised when a count could not be kept. */
static inline void cprof_histogram_add(cprof_histogram *histogram, uint64_t value, uint64_t *lost)
{
    unsigned index = cprof_histogram_index(value);
    uint32_t *bucket = &histogram->low[index / CPROF_HISTOGRAM_ROW * CPROF_HISTOGRAM_STRIDE + index % CPROF_HISTOGRAM_ROW];
    if (__builtin_expect(++*bucket == 0, 0)) {
        cprof_histogram_carry(histogram, index, lost);
    }
}

/* Zeroes the rows from `first` to `last`, both included, and gives back the high halves. */
void cprof_histogram_clear(cprof_histogram *histogram, unsigned first, unsigned last);

/* Copies the rows from `first` to `last` into a dense table of BUCKETS 64-bit counts; the other rows are not written. */
void cprof_histogram_copy(const cprof_histogram *histogram, unsigned first, unsigned last, uint64_t *counts);

/* The value in ns that at least `fraction` (0 to 1) of the `total` counted values do not exceed: the middle of the bucket of
 * the nearest rank. Only rows `first` to `last` of the dense table are read. 0.0 when total is 0. */
double cprof_histogram_quantile(const uint64_t *counts, unsigned first, unsigned last, uint64_t total, double fraction);

/* The lower edge of a bucket, and of the one after it, in ns. */
double cprof_histogram_edge_ns(unsigned index);

#endif
