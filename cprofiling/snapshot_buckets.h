/* The filled buckets of a histogram: what a snapshot keeps of one.
 *
 * For snapshot_key.c, snapshot_extra.c and their callers. What owns the memory of the buckets is said there.
 */
#ifndef CPROF_SNAPSHOT_BUCKETS_H
#define CPROF_SNAPSHOT_BUCKETS_H

#include "cprofiling/histogram.h"

typedef struct {
    uint64_t *counts;  /* of the filled buckets, */
    uint16_t *indices; /* whose numbers ascend */
    size_t filled;
} cprof_snapshot_buckets;

/* A histogram as a table of CPROF_HISTOGRAM_BUCKETS counts. Only the rows named in `rows`, and those between them, are set. */
typedef struct {
    const uint64_t *counts; /* borrowed; NULL without a row */
    uint64_t rows;          /* bit r: row r holds something */
} cprof_snapshot_dense;

/* How many buckets are filled. */
size_t cprof_snapshot_buckets_count(cprof_snapshot_dense dense);

/* Copies the filled buckets of `dense`, which are as many as `buckets` has room for. */
void cprof_snapshot_buckets_take(cprof_snapshot_buckets *buckets, cprof_snapshot_dense dense);

/* The rows that hold something. */
uint64_t cprof_snapshot_buckets_rows(const cprof_snapshot_buckets *buckets);

/* Adds the buckets to a table of CPROF_HISTOGRAM_BUCKETS counts; zeroes them in it. */
void cprof_snapshot_buckets_spread(const cprof_snapshot_buckets *buckets, uint64_t *counts);
void cprof_snapshot_buckets_unspread(const cprof_snapshot_buckets *buckets, uint64_t *counts);

/* Why these cannot be the buckets of `total` values; a static string, or NULL when they can. */
const char *cprof_snapshot_buckets_fault(const cprof_snapshot_buckets *buckets, uint64_t total);

#endif
