/* Values nested in a context variable: what `with cp.stage(...)` and `with profiler:` put in force.
 *
 * The variable holds a tuple (item, owner, the tuple below or None), so that each context has its own stack, and one object may
 * be entered in many threads and tasks at once. */
#ifndef EXT_CONTEXT_STACK_H
#define EXT_CONTEXT_STACK_H

#include "csrc/compat.h"

#include <stdbool.h>

/* Puts `item` in force in the current context, entered by `owner`. False with an exception. */
bool ext_context_stack_push(PyObject *variable, PyObject *item, PyObject *owner);

/* Takes the innermost entry of `owner`, and those above it, off. False with an exception: RuntimeError saying that `what` was
 * not entered in this context when there is none. */
bool ext_context_stack_pop(PyObject *variable, PyObject *owner, PyObject *what);

/* The item in force, borrowed from the context, or NULL. False with an exception. */
bool ext_context_stack_top(PyObject *variable, PyObject **item);

#endif
