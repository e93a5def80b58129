/* What a snapshot knows of one key by signature: shapes.h's figures, each with the filled buckets of its histogram.
 *
 * For snapshot.c, snapshot_key.c and snapshot_format.c only. An allocation of its own, owned by the key; it does not change
 * once it is made.
 */
#ifndef CPROF_SNAPSHOT_SHAPES_H
#define CPROF_SNAPSHOT_SHAPES_H

#include "cprofiling/nodes/accum.h"
#include "cprofiling/files/snapshot_layout.h"

typedef struct cprof_snapshot_shapes {
    cprof_shapes_view view;   /* of the items */
    cprof_shape_copy items[]; /* ascending by signature, at least one; all that they point to is behind them */
} cprof_snapshot_shapes;

/* A copy of a key's. NULL without memory. */
cprof_snapshot_shapes *cprof_snapshot_shapes_of(const cprof_shapes_view *view);

/* Makes *merged of those of `count` keys, some of which may be NULL, but not all. `counts` is a dense histogram of zeros,
 * before and after. CPROF_OUT_OF_RANGE: a count would reach 2^63. CPROF_NO_MEMORY. */
cprof_status cprof_snapshot_shapes_merge(const cprof_snapshot_shapes *const *parts, size_t count, uint64_t *counts,
                                         cprof_snapshot_shapes **merged);

/* The length of their encoding in bytes. */
size_t cprof_snapshot_shapes_size(const cprof_snapshot_shapes *shapes);

/* Writes the encoding. */
void cprof_snapshot_shapes_write(cprof_snapshot_stream *s, const cprof_snapshot_shapes *shapes);

/* Makes *shapes of what is read where the stream stands, for a key of these figures. CPROF_BAD_FORMAT, with why it is no
 * encoding in *reason, a static string. CPROF_NO_MEMORY. */
cprof_status cprof_snapshot_shapes_read(cprof_snapshot_stream *s, const cprof_figures *figures, cprof_snapshot_shapes **shapes,
                                        const char **reason);

#endif
