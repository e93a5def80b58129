/* The arguments of set_profiling(). */
#ifndef EXT_SETTINGS_H
#define EXT_SETTINGS_H

#include "csrc/profiler.h"

typedef struct {
    unsigned flags; /* of the registry's word; 0: off */
    bool resets;
    uint64_t skips;
    uint32_t probing;     /* bits of counters, CPROF_REGISTRY_RESETS_PEAK */
    PyObject *gpu_stream; /* owned, or NULL, in any case */
    PyObject *live;       /* borrowed from the arguments */
} ext_settings;

/* Checks the arguments. False with TypeError or ValueError naming the parameter. */
bool ext_settings_parse(ext_state *state, PyObject *args, PyObject *kwargs, ext_settings *asked);

/* Warns where statistics will be discarded that nobody asked to discard. False with an exception: the warning is one. */
bool ext_settings_warn(const ext_profiler *self, const ext_settings *asked);

#endif
