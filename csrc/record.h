/* record(): a labelled block of a recording, as a context manager and, by way of a node that is no Profiler's, as a decorator.
 */
#ifndef EXT_RECORD_H
#define EXT_RECORD_H

#include "csrc/state.h"

/* The number of a label in the recording that runs, remembered for names used lately; 0: there is none. Both are interned. */
uint32_t ext_record_label(ext_state *state, PyObject *stage, PyObject *name);

/* Forgets what is remembered. */
void ext_record_forget_labels(ext_state *state);

/* Makes `type`, of the specification below, quick to call. */
void ext_record_prepare(PyTypeObject *type);

extern PyType_Spec ext_record_spec;

#endif
