/* The part of a summary that tells a key's calls apart by the signature of their arguments. */
#ifndef EXT_SUMMARY_SHAPES_H
#define EXT_SUMMARY_SHAPES_H

#include "csrc/state.h"

/* What is kept of a key until its tuples are made: one allocation, given back by cprof_alloc_release(). */
typedef struct ext_summary_shapes ext_summary_shapes;

/* A copy, with quantiles. False without memory. Needs no GIL. */
bool ext_summary_shapes_copy(const cprof_shapes_view *view, ext_summary_shapes **copy);

/* Appends a tuple for each signature (none: NULL) to a list: (node, stage, signature, count, errors, cancelled, mean, p50, p99,
 * least, most and sum in ms, slowest calls that it has, slowest calls of the key). False with an exception. */
bool ext_summary_shapes_append(PyObject *list, cprof_names names, const ext_summary_shapes *shapes);

#endif
