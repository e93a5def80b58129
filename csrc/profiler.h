/* The Python object around a registry. */
#ifndef EXT_PROFILER_H
#define EXT_PROFILER_H

#include "csrc/state.h"

typedef struct ext_profiler {
    PyObject_HEAD
    cprof_registry *registry; /* owned */
    uint64_t uid;             /* unique among the Profilers of the process, and never used again */
    ext_state *state;         /* held */
    uint64_t internal_errors; /* faults inside the profiler, none of which reached the user */
    PyObject *weakrefs;
    bool is_on; /* counted in state->profilers_on */
    bool overflow_warned;
} ext_profiler;

extern PyType_Spec ext_profiler_spec;

#endif
