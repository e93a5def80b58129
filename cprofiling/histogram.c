#include "cprofiling/histogram.h"

#include "cprofiling/alloc.h"

#include <string.h>

enum { ROW = CPROF_HISTOGRAM_ROW };

void cprof_histogram_carry(cprof_histogram *histogram, unsigned index, uint64_t *lost)
{
    if (histogram->high == NULL) {
        histogram->high = cprof_alloc_zeroed(CPROF_HISTOGRAM_BUCKETS * sizeof *histogram->high);
    }
    if (histogram->high == NULL) {
        histogram->low[index / ROW * CPROF_HISTOGRAM_STRIDE + index % ROW] = UINT32_MAX;
        ++*lost;
        return;
    }
    histogram->high[index]++;
}

void cprof_histogram_clear(cprof_histogram *histogram, unsigned first, unsigned last)
{
    for (unsigned row = first; row <= last; row++) {
        memset(histogram->low + row * CPROF_HISTOGRAM_STRIDE, 0, ROW * sizeof *histogram->low);
    }
    cprof_alloc_release(histogram->high);
    histogram->high = NULL;
}

void cprof_histogram_copy(const cprof_histogram *histogram, unsigned first, unsigned last, uint64_t *counts)
{
    for (unsigned row = first; row <= last; row++) {
        const uint32_t *low = histogram->low + row * CPROF_HISTOGRAM_STRIDE;
        uint64_t *out = counts + row * ROW;
        for (unsigned column = 0; column < ROW; column++) {
            out[column] = low[column];
        }
        if (histogram->high != NULL) {
            const uint32_t *high = histogram->high + row * ROW;
            for (unsigned column = 0; column < ROW; column++) {
                out[column] += (uint64_t)high[column] << 32;
            }
        }
    }
}

double cprof_histogram_edge_ns(unsigned index)
{
    unsigned row = index / ROW;
    unsigned column = index % ROW;
    if (row == 0) {
        return column / (double)ROW;
    }
    return (double)((uint64_t)(ROW + column) << (row - 1)) / ROW;
}

double cprof_histogram_quantile(const uint64_t *counts, unsigned first, unsigned last, uint64_t total, double fraction)
{
    if (total == 0) {
        return 0.0;
    }
    double position = fraction * (double)total;
    uint64_t rank = (uint64_t)position;
    if ((double)rank < position || rank == 0) {
        rank++;
    }
    uint64_t seen = 0;
    unsigned index = first * ROW;
    for (unsigned end = (last + 1) * ROW; index < end; index++) {
        seen += counts[index];
        if (seen >= rank) {
            break;
        }
    }
    return (cprof_histogram_edge_ns(index) + cprof_histogram_edge_ns(index + 1)) / 2.0;
}
