/* The histograms of a snapshot, as coarse as a reader wants them. */
#ifndef EXT_BUCKETS_H
#define EXT_BUCKETS_H

#include "csrc/state.h"

#include "cprofiling/files/snapshot.h"

/* A list with a pair for each key, in the summary's order: of its times, and of its GPU times, the groups of buckets that hold
 * something, as a flat tuple (group, count, group, count, ...), ascending. `bounds` is a tuple of numbers of buckets that rise,
 * at most as many as there are buckets; group i ends before bucket bounds[i]. None: each bucket is a group. Other threads may
 * run meanwhile. NULL with an exception: TypeError, ValueError. */
PyObject *ext_buckets_of_snapshot(const cprof_snapshot *snapshot, PyObject *bounds);

#endif
