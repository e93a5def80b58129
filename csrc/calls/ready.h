/* An awaitable that is ready at once: what __aenter__ and __aexit__ of a block return. */
#ifndef EXT_READY_H
#define EXT_READY_H

#include "csrc/state.h"

/* Awaiting it gives `value`, whose reference is taken over. NULL when `value` is NULL, or with MemoryError. */
PyObject *ext_ready_new(ext_state *state, PyObject *value);

extern PyType_Spec ext_ready_spec;

#endif
