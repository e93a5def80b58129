#include "cprofiling/stats/histogram.h"

#include "cprofiling/base/alloc.h"

#include <string.h>

enum { ROW = CPROF_HISTOGRAM_ROW };

/* Makes rows from `first` to `last`, filled from the old ones, which lie between them. NULL without memory. */
static cprof_histogram_rows *wider_rows(const cprof_histogram_rows *old, unsigned first, unsigned last)
{
    unsigned count = last - first + 1;
    cprof_histogram_rows *rows = cprof_alloc_zeroed(sizeof *rows + (size_t)count * ROW * sizeof rows->buckets[0]);
    if (rows == NULL) {
        return NULL;
    }
    rows->first = first;
    rows->count = count;
    if (old != NULL) {
        rows->high = old->high;
        memcpy(rows->buckets + (size_t)(old->first - first) * ROW, old->buckets,
               (size_t)old->count * ROW * sizeof old->buckets[0]);
    }
    return rows;
}

static bool has_row(const cprof_histogram_rows *rows, unsigned row)
{
    return rows != NULL && row >= rows->first && row - rows->first < rows->count;
}

static void set_rows(cprof_histogram *histogram, cprof_histogram_rows *rows)
{
    histogram->rows = rows;
    histogram->lowest = rows->first * ROW;
    histogram->width = rows->count * ROW;
}

static bool add_row(cprof_histogram *histogram, unsigned row)
{
    cprof_histogram_rows *old = histogram->rows;
    unsigned first = old == NULL || row < old->first ? row : old->first;
    unsigned last = old == NULL || row >= old->first + old->count ? row : old->first + old->count - 1;
    cprof_histogram_rows *rows = wider_rows(old, first, last);
    if (rows == NULL) {
        return false;
    }
    set_rows(histogram, rows);
    cprof_alloc_release(old);
    return true;
}

/* The bucket starts again at zero, 2^32 higher. */
static bool carry(cprof_histogram_rows *rows, unsigned index, uint32_t *bucket)
{
    if (rows->high == NULL) {
        rows->high = cprof_alloc_zeroed(CPROF_HISTOGRAM_BUCKETS * sizeof *rows->high);
    }
    if (rows->high == NULL) {
        return false;
    }
    rows->high[index]++;
    *bucket = 0;
    return true;
}

void cprof_histogram_add_slow(cprof_histogram *histogram, unsigned index, uint64_t *lost)
{
    if (!has_row(histogram->rows, index / ROW) && !add_row(histogram, index / ROW)) {
        ++*lost;
        return;
    }
    uint32_t *bucket = &histogram->rows->buckets[index - histogram->lowest];
    if (*bucket != UINT32_MAX) {
        ++*bucket;
    } else if (!carry(histogram->rows, index, bucket)) {
        ++*lost;
    }
}

void cprof_histogram_clear(cprof_histogram *histogram)
{
    cprof_histogram_rows *rows = histogram->rows;
    if (rows != NULL) {
        set_rows(histogram, rows);
        memset(rows->buckets, 0, (size_t)rows->count * ROW * sizeof rows->buckets[0]);
        uint32_t *high = rows->high;
        rows->high = NULL; /* first: a child forked meanwhile must not see freed memory */
        cprof_alloc_release(high);
    }
}

/* The count of a bucket of a row that exists. */
static uint64_t count_at(const cprof_histogram *histogram, unsigned index)
{
    uint64_t high = histogram->rows->high != NULL ? histogram->rows->high[index] : 0;
    return high << 32 | histogram->rows->buckets[index - histogram->lowest];
}

uint64_t cprof_histogram_copy(const cprof_histogram *histogram, uint64_t *counts)
{
    uint64_t rows = 0;
    for (unsigned first = histogram->lowest; first < histogram->lowest + histogram->width; first += ROW) {
        uint64_t any = 0;
        for (unsigned index = first; index < first + ROW; index++) {
            any |= counts[index] = count_at(histogram, index);
        }
        rows |= (uint64_t)(any != 0) << (first / ROW);
    }
    return rows;
}

uint64_t cprof_histogram_add_copy(const cprof_histogram *histogram, uint64_t *counts, uint64_t rows)
{
    uint64_t more = 0;
    for (unsigned index = histogram->lowest; index < histogram->lowest + histogram->width; index++) {
        more |= (uint64_t)(count_at(histogram, index) != 0) << (index / ROW);
    }
    unsigned begin = cprof_histogram_begin_of(rows | more), end = cprof_histogram_end_of(rows | more);
    unsigned set_from = rows != 0 ? cprof_histogram_begin_of(rows) : end;
    unsigned set_to = rows != 0 ? cprof_histogram_end_of(rows) : end;
    memset(&counts[begin], 0, (set_from - begin) * sizeof *counts);
    memset(&counts[set_to], 0, (end - set_to) * sizeof *counts);
    for (unsigned index = cprof_histogram_begin_of(more); index < cprof_histogram_end_of(more); index++) {
        counts[index] += count_at(histogram, index);
    }
    return rows | more;
}

size_t cprof_histogram_fill(const cprof_histogram *histogram, uint16_t *indices, uint64_t *counts)
{
    size_t filled = 0;
    for (unsigned index = histogram->lowest; index < histogram->lowest + histogram->width; index++) {
        uint64_t count = count_at(histogram, index);
        if (count != 0) {
            indices[filled] = (uint16_t)index;
            counts[filled++] = count;
        }
    }
    return filled;
}

void cprof_histogram_dispose(cprof_histogram *histogram)
{
    if (histogram->rows != NULL) {
        cprof_alloc_release(histogram->rows->high);
    }
    cprof_alloc_release(histogram->rows);
    *histogram = (cprof_histogram){0};
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

void cprof_histogram_quantiles_ms(cprof_histogram_dense dense, uint64_t total, double least_ms, double most_ms, double none,
                                  const double *fractions, size_t count, double *quantiles_ms)
{
    uint64_t before = 0; /* counts of the buckets before `index` */
    unsigned index = cprof_histogram_begin_of(dense.rows);
    unsigned end = cprof_histogram_end_of(dense.rows);
    for (size_t i = 0; i < count; i++) {
        double position = fractions[i] * (double)total;
        uint64_t rank = (uint64_t)position;
        if ((double)rank < position || rank == 0) {
            rank++;
        }
        while (index < end && before + dense.counts[index] < rank) {
            before += dense.counts[index++];
        }
        double ms = (cprof_histogram_edge_ns(index) + cprof_histogram_edge_ns(index + 1)) / 2.0 / 1e6;
        ms = ms < least_ms ? least_ms : ms > most_ms ? most_ms : ms;
        quantiles_ms[i] = total != 0 && dense.rows != 0 ? ms : none;
    }
}

size_t cprof_buckets_count(cprof_histogram_dense dense)
{
    size_t filled = 0;
    for (unsigned i = cprof_histogram_begin_of(dense.rows); i < cprof_histogram_end_of(dense.rows); i++) {
        filled += dense.counts[i] != 0;
    }
    return filled;
}

void cprof_buckets_take(cprof_buckets *buckets, cprof_histogram_dense dense)
{
    size_t at = 0;
    for (unsigned i = cprof_histogram_begin_of(dense.rows); i < cprof_histogram_end_of(dense.rows); i++) {
        if (dense.counts[i] != 0) {
            buckets->indices[at] = (uint16_t)i;
            buckets->counts[at++] = dense.counts[i];
        }
    }
}

uint64_t cprof_buckets_rows(const cprof_buckets *buckets)
{
    uint64_t rows = 0;
    for (size_t i = 0; i < buckets->filled; i++) {
        rows |= UINT64_C(1) << (buckets->indices[i] / CPROF_HISTOGRAM_ROW);
    }
    return rows;
}

void cprof_buckets_spread(const cprof_buckets *buckets, uint64_t *counts)
{
    for (size_t i = 0; i < buckets->filled; i++) {
        counts[buckets->indices[i]] += buckets->counts[i];
    }
}

void cprof_buckets_unspread(const cprof_buckets *buckets, uint64_t *counts)
{
    for (size_t i = 0; i < buckets->filled; i++) {
        counts[buckets->indices[i]] = 0;
    }
}

void cprof_buckets_group(const cprof_buckets *buckets, const uint16_t *bounds, size_t count, cprof_buckets *groups)
{
    size_t group = 0;
    groups->filled = 0;
    for (size_t i = 0; i < buckets->filled; i++) {
        while (group < count && buckets->indices[i] >= bounds[group]) {
            group++;
        }
        if (groups->filled == 0 || groups->indices[groups->filled - 1] != group) {
            groups->indices[groups->filled] = (uint16_t)group;
            groups->counts[groups->filled++] = 0;
        }
        groups->counts[groups->filled - 1] += buckets->counts[i];
    }
}

const char *cprof_buckets_fault(const cprof_buckets *buckets, uint64_t total)
{
    uint64_t left = total;
    for (size_t i = 0; i < buckets->filled; i++) {
        if (buckets->indices[i] >= CPROF_HISTOGRAM_BUCKETS || (i > 0 && buckets->indices[i - 1] >= buckets->indices[i])) {
            return "an impossible bucket";
        }
        if (buckets->counts[i] == 0 || buckets->counts[i] > left) {
            return "a histogram of another number of samples";
        }
        left -= buckets->counts[i];
    }
    return left != 0 ? "a histogram of another number of samples" : NULL;
}

bool cprof_buckets_sum_is_of(cprof_u128 sum, uint64_t count, uint64_t least, uint64_t most)
{
    if (count == 0) {
        return sum == 0 && least == UINT64_MAX && most == 0;
    }
    cprof_u128 rest = count - 1;
    return least <= most && most <= (uint64_t)INT64_MAX && rest * least + most <= sum && sum <= rest * most + least;
}

/* The values are integers, so their buckets are known to be those of the smallest and the largest, unless some are lost. */
bool cprof_buckets_are_of(const cprof_buckets *buckets, uint64_t least, uint64_t most, uint64_t lost)
{
    if (buckets->filled == 0) {
        return true;
    }
    unsigned lowest = cprof_histogram_index_ns((cprof_ns)least);
    unsigned highest = cprof_histogram_index_ns((cprof_ns)most);
    unsigned first = buckets->indices[0];
    unsigned last = buckets->indices[buckets->filled - 1];
    return lost == 0 ? first == lowest && last == highest : first >= lowest && last <= highest;
}
