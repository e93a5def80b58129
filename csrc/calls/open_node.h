/* Which node the calling thread is in: for what counts by node from Python. */
#ifndef EXT_OPEN_NODE_H
#define EXT_OPEN_NODE_H

#include "csrc/state.h"

/* The stage and the name of the innermost open call of a node in the current thread and task, as a new tuple; None where there
 * is none, or none that is measured. NULL with an exception. */
PyObject *ext_open_node(PyObject *module, PyObject *unused);

#endif
