/* The filled buckets of a histogram: what a snapshot keeps of one.
 *
 * For snapshot.h, snapshot_key.c, snapshot_resources.c, snapshot_shapes.c, shapes.c and their callers. What owns the memory of
 * the buckets is said there.
 */
#ifndef CPROF_BUCKETS_H
#define CPROF_BUCKETS_H

#include "cprofiling/stats/histogram.h"
#include "cprofiling/stats/moments.h"

typedef struct {
    uint64_t *counts;  /* of the filled buckets, */
    uint16_t *indices; /* whose numbers ascend */
    size_t filled;
} cprof_buckets;

/* A histogram as a table of CPROF_HISTOGRAM_BUCKETS counts. Only the rows named in `rows`, and those between them, are set. */
typedef struct {
    const uint64_t *counts; /* borrowed; NULL without a row */
    uint64_t rows;          /* bit r: row r holds something */
} cprof_snapshot_dense;

/* How many buckets are filled. */
size_t cprof_buckets_count(cprof_snapshot_dense dense);

/* Copies the filled buckets of `dense`, which are as many as `buckets` has room for. */
void cprof_buckets_take(cprof_buckets *buckets, cprof_snapshot_dense dense);

/* The rows that hold something. */
uint64_t cprof_buckets_rows(const cprof_buckets *buckets);

/* Adds the buckets to a table of CPROF_HISTOGRAM_BUCKETS counts; zeroes them in it. */
void cprof_buckets_spread(const cprof_buckets *buckets, uint64_t *counts);
void cprof_buckets_unspread(const cprof_buckets *buckets, uint64_t *counts);

/* Adds up the buckets between bounds: group i has those with numbers from bounds[i - 1], or 0, to bounds[i] - 1, group `count`
 * the rest. The bounds ascend. Writes the groups that hold something to *groups, with their numbers; there is room in it for
 * as many as there are filled buckets. */
void cprof_buckets_group(const cprof_buckets *buckets, const uint16_t *bounds, size_t count, cprof_buckets *groups);

/* Why these cannot be the buckets of `total` values; a static string, or NULL when they can. */
const char *cprof_buckets_fault(const cprof_buckets *buckets, uint64_t total);

/* Whether `count` durations in ns of `least` to `most`, both among them, can have the sum; of none, these are 2^64-1 and 0.
 * What holds for two such sums then holds for both together. */
bool cprof_buckets_sum_is_of(cprof_u128 sum, uint64_t count, uint64_t least, uint64_t most);

/* Whether the buckets can be those of durations in ns of `least` to `most`, of which `lost` are not counted. */
bool cprof_buckets_are_of(const cprof_buckets *buckets, uint64_t least, uint64_t most, uint64_t lost);

#endif
