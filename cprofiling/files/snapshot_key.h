/* One key of a snapshot: its figures, its filled buckets, the exact sums of its fractional samples, and what is known of it
 * beyond times.
 *
 * For snapshot.c and snapshot_format.c only. What is said in snapshot.h of merging is done here. A key does not change once it
 * is complete.
 */
#ifndef CPROF_SNAPSHOT_KEY_H
#define CPROF_SNAPSHOT_KEY_H

#include "cprofiling/base/alloc.h"
#include "cprofiling/nodes/registry.h"
#include "cprofiling/files/snapshot_resources.h"

enum {
    CPROF_SNAPSHOT_KEY_WORDS = 20, /* of a fixed-point sum */
};

#define CPROF_SNAPSHOT_KEY_MEDIAN_UNKNOWN (-1.0)
#define CPROF_SNAPSHOT_KEY_COUNT_LIMIT (UINT64_C(1) << 63) /* what counts and times of day are below */

/* The exact sums of fractional samples, in ms and ms²; least significant word first. */
typedef struct {
    uint64_t total[CPROF_SNAPSHOT_KEY_WORDS];
    uint64_t squares[CPROF_SNAPSHOT_KEY_WORDS];
} cprof_snapshot_sums;

/* One allocation, with everything that it points to behind it, but for `shapes`. Times that mean nothing without a sample are 0
 * then. */
typedef struct cprof_snapshot_key {
    cprof_figures figures; /* the sums of fractional samples follow from `sums`; `extra` and `shapes` are NULL: see below */
    cprof_names names;
    uint64_t place;
    uint64_t last_taken_ns;          /* when the snapshot was taken that last_ms comes from */
    cprof_snapshot_sums *sums;       /* NULL: there is no fractional sample */
    cprof_snapshot_resources *extra; /* NULL: nothing is known beyond times */
    cprof_buckets buckets;
    struct cprof_snapshot_shapes *shapes; /* NULL: nothing is known by signature. Owned */
} cprof_snapshot_key;

/* What a key needs room for. */
typedef struct {
    size_t filled;     /* buckets */
    size_t gpu_filled; /* buckets of GPU times; 0 without extra */
    bool is_fractional;
    bool has_extra;
} cprof_snapshot_room;

/* A table of `count` items of `width` bytes, zeroed; for none, one that must not be used. NULL without memory. */
static inline void *cprof_snapshot_key_table(size_t count, size_t width)
{
    return count <= SIZE_MAX / width - 1 ? cprof_alloc_zeroed((count + 1) * width) : NULL;
}

/* Whether a stage, node name or note is at most 4,096 bytes of UTF-8 (surrogates are) without NUL. */
bool cprof_snapshot_key_name_is_legal(cprof_name name);

/* As memcmp(); a name that begins another is less. */
int cprof_snapshot_key_compare_name(cprof_name a, cprof_name b);

/* By stage, then by node. */
int cprof_snapshot_key_compare_names(cprof_names a, cprof_names b);

/* A key with copies of the names and room for the rest, which is zero or, beyond times, nothing known. NULL without memory.
 */
cprof_snapshot_key *cprof_snapshot_key_new(cprof_names names, const cprof_snapshot_room *room);

/* Gives everything back. NULL is ignored. */
void cprof_snapshot_key_destroy(cprof_snapshot_key *key);

/* A complete key of what a visitor of a registry is given, read at `taken_ns`. NULL without memory. */
cprof_snapshot_key *cprof_snapshot_key_of_figures(cprof_names names, const cprof_figures *figures, const uint64_t *counts,
                                                  uint64_t taken_ns);

/* Makes *merged of `count` keys of the same names. `counts` is two dense histograms of zeros, before and after.
 * CPROF_OUT_OF_RANGE: a count would reach 2^63. CPROF_NO_MEMORY. */
cprof_status cprof_snapshot_key_merge(cprof_snapshot_key *const *parts, size_t count, uint64_t *counts,
                                      cprof_snapshot_key **merged);

/* Sets what follows from the rest of a key, and is left out of its encoding. */
void cprof_snapshot_key_complete(cprof_snapshot_key *key);

/* Why no key of a snapshot can be like this, what is known beyond times apart; a static string, or NULL when one can. What it
 * and cprof_snapshot_resources_fault() let pass can be merged and visited. */
const char *cprof_snapshot_key_fault(cprof_snapshot_key *key, bool is_merged);

#endif
