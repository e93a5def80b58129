/* The Python type around a snapshot. */
#ifndef EXT_SNAPSHOT_H
#define EXT_SNAPSHOT_H

#include "csrc/state.h"

#include "cprofiling/base/names.h"

/* The notes, a tuple of bytes, as names that borrow them; given back by PyMem_Free(). NULL with an exception. */
cprof_name *ext_snapshot_notes(PyObject *notes);

#endif
