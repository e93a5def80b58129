#include "cprofiling/stats/buckets.h"

/* The first bucket of the rows, and the one behind the last; none: an empty range. */
static unsigned first_of(uint64_t rows)
{
    return rows != 0 ? (unsigned)__builtin_ctzll(rows) * CPROF_HISTOGRAM_ROW : 0;
}

static unsigned end_of(uint64_t rows)
{
    return rows != 0 ? (64u - (unsigned)__builtin_clzll(rows)) * CPROF_HISTOGRAM_ROW : 0;
}

size_t cprof_buckets_count(cprof_snapshot_dense dense)
{
    size_t filled = 0;
    for (unsigned i = first_of(dense.rows); i < end_of(dense.rows); i++) {
        filled += dense.counts[i] != 0;
    }
    return filled;
}

void cprof_buckets_take(cprof_buckets *buckets, cprof_snapshot_dense dense)
{
    size_t at = 0;
    for (unsigned i = first_of(dense.rows); i < end_of(dense.rows); i++) {
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
