/* The Python type around a snapshot. */
#ifndef EXT_SNAPSHOT_H
#define EXT_SNAPSHOT_H

#include "csrc/state.h"

#include "cprofiling/base/names.h"

extern PyType_Spec ext_snapshot_spec;

/* take_snapshot(type, profiler, taken_ns, notes): the present statistics of a Profiler as an instance of `type`. The time of
 * day is in ns since 1970, the notes are a tuple of UTF-8 bytes. NULL with an exception. */
PyObject *ext_snapshot_take(PyObject *module, PyObject *args);

/* The notes, a tuple of bytes, as names that borrow them; given back by PyMem_Free(). NULL with an exception. */
cprof_name *ext_snapshot_notes(PyObject *notes);

/* The class cprofiling.FormatError, a new reference. NULL with an exception. */
PyObject *ext_snapshot_format_error(void);

#endif
