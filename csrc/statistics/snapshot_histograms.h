/* The histograms of a snapshot's keys, as plain tuples. */
#ifndef EXT_SNAPSHOT_HISTOGRAMS_H
#define EXT_SNAPSHOT_HISTOGRAMS_H

#include "csrc/state.h"

#include "cprofiling/files/snapshot.h"

/* A list with a tuple (node name, stage, times, GPU times) for each key, in the summary's order; the latter two are tuples of
 * (number of the bucket, count) for those that hold something, ascending. NULL with an exception. */
PyObject *ext_snapshot_histograms(const cprof_snapshot *snapshot);

#endif
