/* A log-linear histogram of durations: 64 linear buckets to each power of two, as in Gil Tene's HdrHistogram.
 *
 * Durations are counted in 1/64 ns: from 1 ns to 2^47 ns (39 hours) a bucket's middle is within 0.8 % of every value in it;
 * beyond, the last bucket counts. Buckets have 32 bits; full ones are carried to a table of high halves. Only rows from the
 * smallest to the largest value exist, 256 bytes each: four or five for a decade. No function locks; one user at a time.
 */
#ifndef CPROF_HISTOGRAM_H
#define CPROF_HISTOGRAM_H

#include "cprofiling/base/clock.h"
#include "cprofiling/stats/moments.h"

#include <stddef.h>
#include <stdint.h>

enum {
    CPROF_HISTOGRAM_ROW = 64, /* buckets in a row; row 0 is below 1 ns, row r from 2^(r-1) ns to 2^r ns */
    CPROF_HISTOGRAM_ROWS = 48,
    CPROF_HISTOGRAM_BUCKETS = CPROF_HISTOGRAM_ROW * CPROF_HISTOGRAM_ROWS,
};

/* Values from here on, in 1/64 ns, go to the last bucket. */
#define CPROF_HISTOGRAM_LIMIT (UINT64_C(1) << (CPROF_HISTOGRAM_ROWS + 5))

/* Some consecutive rows. Replaced as a whole when more are needed, so that a forked child never sees half of a change. */
typedef struct {
    uint32_t *high; /* BUCKETS high halves; NULL until one is needed; owned */
    uint32_t first;
    uint32_t count;
    uint32_t buckets[]; /* count * ROW */
} cprof_histogram_rows;

/* All zero: an empty histogram. A child that was forked while it changed must clear it first. */
typedef struct {
    cprof_histogram_rows *rows; /* NULL until the first value; owned */
    uint32_t lowest;            /* the number of its first bucket, */
    uint32_t width;             /* and how many it has: here, too, as each cache line counts */
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

/* The same of a duration in ns, 0 to 2^63-1. */
static inline unsigned cprof_histogram_index_ns(cprof_ns elapsed_ns)
{
    uint64_t ns = (uint64_t)elapsed_ns;
    if (__builtin_expect(ns - 1 >= CPROF_HISTOGRAM_LIMIT / CPROF_HISTOGRAM_ROW - 1, 0)) {
        return ns == 0 ? 0 : CPROF_HISTOGRAM_BUCKETS - 1;
    }
    unsigned shift = 63 - (unsigned)__builtin_clzll(ns);
    return shift * CPROF_HISTOGRAM_ROW + (unsigned)(ns * CPROF_HISTOGRAM_ROW >> shift);
}

/* The same of fractional milliseconds, 0 or more. */
static inline unsigned cprof_histogram_index_ms(double elapsed_ms)
{
    double units = elapsed_ms * 1e6 * CPROF_HISTOGRAM_ROW;
    return cprof_histogram_index(units < (double)CPROF_HISTOGRAM_LIMIT ? (uint64_t)units : CPROF_HISTOGRAM_LIMIT);
}

/* The slow cases of cprof_histogram_add: a row that does not exist yet, and a bucket that is full. Without memory the value is
 * not counted, or the bucket stays at its largest value; and *lost is raised. */
void cprof_histogram_add_slow(cprof_histogram *histogram, unsigned index, uint64_t *lost);

/* Counts one value in bucket `index`. *lost is raised when it could not be counted. */
static inline void cprof_histogram_add(cprof_histogram *histogram, unsigned index, uint64_t *lost)
{
    unsigned place = index - histogram->lowest;
    if (__builtin_expect(place < histogram->width && histogram->rows->buckets[place] != UINT32_MAX, 1)) {
        histogram->rows->buckets[place]++;
    } else {
        cprof_histogram_add_slow(histogram, index, lost);
    }
}

/* Sets all counts to zero. The rows stay, the high halves go. */
void cprof_histogram_clear(cprof_histogram *histogram);

/* A histogram as a table of CPROF_HISTOGRAM_BUCKETS counts. Only the rows named in `rows`, and those between them, are set. */
typedef struct {
    const uint64_t *counts; /* borrowed; NULL without a row */
    uint64_t rows;          /* bit r: row r holds something */
} cprof_histogram_dense;

/* The first bucket of rows; 0 without any. */
static inline unsigned cprof_histogram_begin_of(uint64_t rows)
{
    return rows != 0 ? (unsigned)__builtin_ctzll(rows) * CPROF_HISTOGRAM_ROW : 0;
}

/* The bucket behind the last of the rows; 0 without any. */
static inline unsigned cprof_histogram_end_of(uint64_t rows)
{
    return rows != 0 ? (64U - (unsigned)__builtin_clzll(rows)) * CPROF_HISTOGRAM_ROW : 0;
}

/* Copies the rows that exist into a dense table; the others are not written. Returns those that hold something, as a
 * cprof_histogram_dense has them. */
uint64_t cprof_histogram_copy(const cprof_histogram *histogram, uint64_t *counts);

/* Adds the counts to a dense table, of which `rows` hold something. Returns the rows that hold something then. */
uint64_t cprof_histogram_add_copy(const cprof_histogram *histogram, uint64_t *counts, uint64_t rows);

/* Writes the numbers of the buckets that hold something, ascending, and their counts; both tables have room for BUCKETS.
 * Returns how many these are. */
size_t cprof_histogram_fill(const cprof_histogram *histogram, uint16_t *indices, uint64_t *counts);

/* Gives back what the histogram owns; it is empty afterwards. */
void cprof_histogram_dispose(cprof_histogram *histogram);

/* For each of `count` ascending fractions (0 to 1), the value in ms that at least so many of the `total` counted ones do not
 * exceed: the middle of the bucket of the nearest rank, within `least_ms` and `most_ms`. Without any value counted, `none`. */
void cprof_histogram_quantiles_ms(cprof_histogram_dense dense, uint64_t total, double least_ms, double most_ms, double none,
                                  const double *fractions, size_t count, double *quantiles_ms);

/* The lower edge of a bucket in ns; that of the number after the last bucket is the upper edge of the last. */
double cprof_histogram_edge_ns(unsigned index);

/* The filled buckets of a histogram: what a snapshot keeps of one. Whoever has them says what owns their memory. */
typedef struct {
    uint64_t *counts;  /* of the filled buckets, */
    uint16_t *indices; /* ascending */
    size_t filled;
} cprof_buckets;

/* How many buckets are filled. */
size_t cprof_buckets_count(cprof_histogram_dense dense);

/* Copies the filled buckets of `dense`, which are as many as `buckets` has room for. */
void cprof_buckets_take(cprof_buckets *buckets, cprof_histogram_dense dense);

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

/* Whether the buckets fit durations in ns of `least` to `most`, with `lost` of them not counted. */
bool cprof_buckets_are_of(const cprof_buckets *buckets, uint64_t least, uint64_t most, uint64_t lost);

#endif
