/* Values nested in a context variable: what `with cp.stage(...)` and `with profiler:` put in force.
 *
 * The variable holds a tuple (item, entries, cell, the tuple below or None), so that each context has its own stack, and one
 * object may be entered in many threads and tasks at once. `entries` is its owner's dict from numbers to the cells of what is
 * not left yet; a cell is a list of that number. An owner that is left in another context than it was entered in empties the
 * cell: the tuple means nothing any more. */
#ifndef EXT_CONTEXT_STACK_H
#define EXT_CONTEXT_STACK_H

#include "csrc/state.h"

/* Puts `item` in force in the current context, entered by the owner of `*entries`, which is made when it is NULL. False with an
 * exception. */
bool ext_context_stack_push(ext_state *state, PyObject *variable, PyObject *item, PyObject **entries);

/* Takes the innermost entry of an owner, and those above it, off; where it has none in this context, the one that it made last.
 * False with an exception: RuntimeError saying that `what` was not entered when there is none. */
bool ext_context_stack_pop(ext_state *state, PyObject *variable, PyObject *entries, PyObject *what);

/* The item in force, borrowed from the context, or NULL. False with an exception. */
bool ext_context_stack_top(PyObject *variable, PyObject **item);

#endif
