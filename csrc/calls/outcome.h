/* How a call ended that an exception left: by an error, or cancelled, as asyncio and trio say. */
#ifndef EXT_OUTCOME_H
#define EXT_OUTCOME_H

#include "csrc/state.h"

#include "cprofiling/nodes/accum.h"

/* The outcome of a call that an exception of this type left; `error` is the exception itself, or NULL where it is not known. */
cprof_outcome ext_outcome_of(const ext_state *state, PyObject *type, PyObject *error);

/* The same of the pending exception, which is kept. */
cprof_outcome ext_outcome(const ext_state *state);

#endif
