/* record(): a labelled block of a recording, as a context manager and, by way of a node that is no Profiler's, as a decorator.
 */
#ifndef EXT_RECORD_H
#define EXT_RECORD_H

#include "csrc/state.h"

/* A label, as a number of the recording of a serial; label 0: none. */
typedef struct {
    uint32_t serial;
    uint32_t label;
} ext_record_number;

/* The number of a label in the recording that runs, remembered for names used lately. */
ext_record_number ext_record_label(ext_state *state, PyObject *stage, PyObject *name);

/* What a record() may read from the word of its Profiler: nobody counts it. */
#define EXT_RECORD_FLAGS ((uint64_t)(CPROF_FLAG_TRACE | CPROF_FLAG_DETAIL))

/* Forgets what is remembered. */
void ext_record_forget_labels(ext_state *state);

/* Makes `type`, of the specification below, quick to call. */
void ext_record_prepare(PyTypeObject *type);

extern PyType_Spec ext_record_spec;

#endif
