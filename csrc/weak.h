/* Being told when an object dies. */
#ifndef EXT_WEAK_H
#define EXT_WEAK_H

#include "csrc/compat.h"

#include <stdbool.h>

/* Calls `died(data)` when `object` dies, until the watch, which is the caller's, is ended. An object that cannot be referenced
 * weakly is no error: *watch is NULL then. False with an exception. */
bool ext_weak_watch(PyObject *object, void (*died)(void *data), void *data, PyObject **watch);

/* Ends a watch (NULL: none); `died` is not called any more. */
void ext_weak_forget(PyObject **watch);

#endif
