/* The Python type around a live file. */
#ifndef EXT_LIVE_H
#define EXT_LIVE_H

#include "csrc/state.h"

extern PyType_Spec ext_live_spec;

/* checksum(bytes): the checksum of this package's files, an int. NULL with an exception. */
PyObject *ext_live_checksum(PyObject *module, PyObject *bytes);

#endif
