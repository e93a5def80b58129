/* A key's calls apart by the signature of their arguments: the first sixteen signatures, and one for all the rest.
 *
 * A signature is a text that the layer above makes of shapes and dtypes; nothing here looks into it. What is known belongs to
 * an accumulator, is guarded by its lock and is of a generation of its own. A call counts here when it counts in the key: as a
 * sample, as an error or as cancelled; skipped and dropped calls, and durations without a call, have no signature.
 */
#ifndef CPROF_SHAPES_H
#define CPROF_SHAPES_H

#include "cprofiling/stats/histogram.h"
#include "cprofiling/stats/moments.h"
#include "cprofiling/base/text.h"

#define CPROF_SHAPES_REST "__overflow__" /* the signature that stands for all further ones */

enum {
    CPROF_SHAPES_KEPT = 16,
    CPROF_SHAPES_MOST = CPROF_SHAPES_KEPT + 1,
};

typedef struct {
    uint64_t count; /* samples */
    uint64_t error_count;
    uint64_t cancelled_count;
    uint64_t lost;     /* samples that the histogram could not keep */
    uint64_t least_ns; /* 2^64-1 without a sample, as is most 0 */
    uint64_t most_ns;
    cprof_u128 total_ns;
} cprof_shape_figures;

/* The calls of one signature. */
typedef struct {
    cprof_shape_figures figures;
    cprof_histogram histogram;
    cprof_name signature; /* lies behind it; of the rest, static */
} cprof_shape;

/* All zero: of no generation. */
typedef struct cprof_shapes {
    uint64_t generation;
    unsigned count; /* kept signatures */
    unsigned last;  /* the one that was met last */
    cprof_shape *kept[CPROF_SHAPES_KEPT];
    cprof_shape rest;
} cprof_shapes;

/* A copy of one, as it was at one moment. What it points to belongs to whoever made the copy. */
typedef struct {
    cprof_name signature;
    cprof_shape_figures figures;
    cprof_buckets buckets;
} cprof_shape_copy;

/* Copies of all of a key's signatures, borrowed. In a snapshot they may be more than CPROF_SHAPES_MOST: merging keeps all. */
typedef struct cprof_shapes_view {
    size_t count;
    const cprof_shape_copy *items;
} cprof_shapes_view;

/* What a copy needs room for; mostly untouched pages. */
typedef struct cprof_shapes_room {
    cprof_shapes_view view;
    cprof_shape_copy items[CPROF_SHAPES_MOST];
    uint64_t counts[CPROF_SHAPES_MOST * CPROF_HISTOGRAM_BUCKETS];
    uint16_t indices[CPROF_SHAPES_MOST * CPROF_HISTOGRAM_BUCKETS];
} cprof_shapes_room;

/* Empties them, for another generation. */
void cprof_shapes_begin(cprof_shapes *shapes, uint64_t generation);

/* That of a signature, which is copied where it is new: the rest's once sixteen are kept, and without memory. */
cprof_shape *cprof_shapes_find(cprof_shapes *shapes, cprof_name signature);

/* Adds a sample of 0 to 2^63-1 ns. */
void cprof_shape_add(cprof_shape *shape, cprof_ns elapsed_ns);

/* Copies all that have counted anything. The signatures stay where they are: they may be read until the generation ends. */
void cprof_shapes_copy(const cprof_shapes *shapes, cprof_shapes_room *room);

/* Of a copy: quantiles in ms, as cprof_figures_quantiles_ms(); negative: none. `scratch` is a dense histogram of
 * zeros, before and after, here as below. */
void cprof_shape_quantiles_ms(const cprof_shape_copy *shape, uint64_t *scratch, const double *fractions, size_t count,
                              double *quantiles_ms);

/* How many of the key's slowest samples each signature has: the most buckets at the end of all samples' histogram that hold
 * no more than a hundredth of them, or ten; where the last bucket holds more, that one. `tails` has a place for
 * each. Returns how many these are in all. */
uint64_t cprof_shapes_tails(const cprof_shapes_view *view, uint64_t *scratch, uint64_t *tails);

/* Gives back what they own, and themselves. NULL is ignored. */
void cprof_shapes_destroy(cprof_shapes *shapes);

#endif
