/* Being told when an object dies. */
#ifndef EXT_WEAK_H
#define EXT_WEAK_H

#include "csrc/compat.h"

#include <stdbool.h>

/* Makes a weak reference to `object` that calls `died(data)` when it dies, for as long as *reference (owned by the caller)
 * lives. An object that cannot be referenced weakly is no error: *reference is NULL then. False with an exception. */
bool ext_weak_watch(PyObject *object, void (*died)(void *data), void *data, PyObject **reference);

#endif
