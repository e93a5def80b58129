/* What a summary's row says beyond times: a tuple for python/cprofiling/extras.py, or None. */
#ifndef EXT_SUMMARY_EXTRA_H
#define EXT_SUMMARY_EXTRA_H

#include "csrc/state.h"

typedef struct {
    cprof_resources_figures figures;
    double gpu_ms[2]; /* 50th and 99th percentile; negative: not known */
} ext_summary_extra;

/* A copy of what a visitor of keys was given, to be released by cprof_alloc_release(). Called without the GIL. False without
 * memory. */
bool ext_summary_extra_copy(const cprof_resources_copy *extra, ext_summary_extra **copy);

/* The tuple; None for NULL. NULL with an exception. */
PyObject *ext_summary_extra_tuple(const ext_summary_extra *extra);

#endif
