/* One key of a snapshot: its figures, its filled buckets, the exact sums of its fractional samples, its figures beyond times
 * and those by signature; how it is made, merged and checked, by the rules in snapshot.h.
 *
 * For snapshot.c and snapshot_format.c only. A key does not change once it is complete.
 */
#ifndef CPROF_SNAPSHOT_MERGE_H
#define CPROF_SNAPSHOT_MERGE_H

#include "cprofiling/base/alloc.h"
#include "cprofiling/nodes/accum.h"
#include "cprofiling/nodes/registry.h"
#include "cprofiling/stats/histogram.h"
#include "cprofiling/stats/resources.h"

typedef __int128 cprof_i128;

/* What merging needs of one kind of memory beside its figures. Zero without a call. */
typedef struct {
    uint64_t taken_ns; /* when the snapshot was taken that the bytes at entry and exit come from */
    cprof_i128 change; /* of all calls. In 64 bits the order of merging would show where a sum stays at its end */
} cprof_snapshot_memory;

/* Figures beyond times, of resources.h, and the filled buckets of the GPU times. In the key's allocation. */
typedef struct cprof_snapshot_resources {
    cprof_resources_figures figures; /* gpu_rows and both changes of memory follow from the rest */
    cprof_snapshot_memory device_memory;
    cprof_snapshot_memory host_memory;
    cprof_buckets gpu_buckets;
} cprof_snapshot_resources;

/* Why no key can have these figures; a static string, or NULL when one can. */
const char *cprof_snapshot_resources_fault(const cprof_snapshot_resources *extra, bool is_merged);

enum {
    CPROF_SNAPSHOT_KEY_WORDS = 20, /* of a fixed-point sum */
};

#define CPROF_SNAPSHOT_KEY_COUNT_LIMIT (UINT64_C(1) << 63) /* what counts and times of day are below */

/* The exact sums of fractional samples, in ms and ms²; least significant word first. */
typedef struct {
    uint64_t total[CPROF_SNAPSHOT_KEY_WORDS];
    uint64_t squares[CPROF_SNAPSHOT_KEY_WORDS];
} cprof_snapshot_sums;

/* One allocation, or piece of its snapshot's pool, with everything that it points to behind it, but for figures.shapes. Without
 * a sample all times are 0. */
typedef struct cprof_snapshot_key {
    cprof_figures figures; /* the sums of fractional samples follow from `sums`; `extra` is NULL: see below; `shapes` is owned,
                            * NULL or another such piece, its items ascending by signature, at least one */
    cprof_names names;
    uint64_t place;
    uint64_t order;                  /* that of the registry that it was copied from */
    uint64_t last_taken_ns;          /* when the snapshot was taken that last_ms comes from */
    cprof_snapshot_sums *sums;       /* NULL: no fractional sample */
    cprof_snapshot_resources *extra; /* NULL: no figures beyond times */
    cprof_buckets buckets;
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

/* A key with copies of the names and room for the rest, which is zero. NULL without memory. */
cprof_snapshot_key *cprof_snapshot_key_new(cprof_alloc_pool *pool, cprof_names names, const cprof_snapshot_room *room);

/* Gives back everything of a key without a pool. NULL is ignored. */
void cprof_snapshot_key_destroy(cprof_snapshot_key *key);

/* A complete key of what a visitor of a registry is given, read at `taken_ns`. NULL without memory. */
cprof_snapshot_key *cprof_snapshot_key_of_figures(cprof_alloc_pool *pool, cprof_names names, const cprof_figures *figures,
                                                  const uint64_t *counts, uint64_t taken_ns);

/* Makes *merged of `count` keys of the same names. `counts` is two dense histograms of zeros, before and after.
 * CPROF_OUT_OF_RANGE: a count would reach 2^63. CPROF_NO_MEMORY. */
cprof_status cprof_snapshot_key_merge(cprof_snapshot_key *const *parts, size_t count, uint64_t *counts,
                                      cprof_snapshot_key **merged);

/* Sets what follows from the rest of a key, and is left out of its encoding. */
void cprof_snapshot_key_complete(cprof_snapshot_key *key);

/* Why no key of a snapshot can be like this, but for the figures of the two other functions of this name; a static string, or
 * NULL when one can. A key without any fault can be merged and visited. */
const char *cprof_snapshot_key_fault(cprof_snapshot_key *key, bool is_merged, bool has_p2);

/* Figures by signature that are being made, and the free room behind them. */
typedef struct {
    cprof_shapes_view *view; /* one allocation with all that it points to; for figures.shapes of a key */
    cprof_shape_copy *items;
    cprof_buckets free;
    char *text;
} cprof_snapshot_shapes;

/* Begins with room for at most `count` items with together `filled` buckets and `text` bytes of signatures. False without
 * memory. */
bool cprof_snapshot_shapes_begin(cprof_alloc_pool *pool, cprof_snapshot_shapes *builder, size_t count, size_t filled,
                                 size_t text);

/* Adds an item with a copy of the signature, and room for its buckets. Signatures ascend. */
cprof_shape_copy *cprof_snapshot_shapes_add(cprof_snapshot_shapes *builder, cprof_name signature, size_t filled);

/* Why no key of these figures can have that by signature; a static string, or NULL when one can. */
const char *cprof_snapshot_shapes_fault(const cprof_shapes_view *view, const cprof_figures *figures);

#endif
