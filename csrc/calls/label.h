/* The labels of record(): numbers of the recording that runs, remembered for names used lately. */
#ifndef EXT_LABEL_H
#define EXT_LABEL_H

#include "csrc/state.h"

/* A label, as a number of the recording of a serial; label 0: none. */
typedef struct {
    uint32_t serial;
    uint32_t label;
} ext_label_number;

/* What a record() may read from the word of its Profiler: nobody counts it. */
#define EXT_LABEL_FLAGS ((uint64_t)(CPROF_FLAG_TRACE | CPROF_FLAG_DETAIL))

/* The number of a label in the recording that runs. Both strs are interned. Never leaves an exception. */
ext_label_number ext_label_find(ext_state *state, PyObject *stage, PyObject *name);

#endif
