/* The contexts of a thread, and what `with cp.stage(...)` and `with profiler:` put in force in them.
 *
 * A context variable holds a tuple (item, entries, cell, the tuple below or None), so that each context has its own stack, and
 * one object may be entered in many threads and tasks at once. `entries` is its owner's dict from numbers to the cells of
 * entries that are not left yet; a cell is a list of that number. An owner that is left in another context than it was entered
 * in empties the cell: the tuple means nothing any more. Other values, which anybody may set, count as none.
 */
#ifndef EXT_CONTEXT_H
#define EXT_CONTEXT_H

#include "csrc/state.h"

/* The current context, made when there is none yet: each thread and each greenlet then has one of its own. Borrowed; NULL with
 * an exception. To be asked for before any context variable is. */
PyObject *ext_context_current(PyThreadState *tstate);

/* Whether a context is entered at this moment, on whatever level. */
bool ext_context_is_entered(PyObject *context);

/* The thread's outermost context, a new reference: found by leaving all contexts that were entered, and entering them again.
 * NULL, without an exception, when it cannot be told. No Python runs in between. */
PyObject *ext_context_outermost(const ext_state *state, PyThreadState *tstate);

/* Puts `item` in force in the current context, entered by the owner of `*entries`, which is made when it is NULL. Returns an
 * object that holds what was in force before: it goes last, as finalisers may run with it. NULL with an exception. */
PyObject *ext_context_push(ext_state *state, PyObject *variable, PyObject *item, PyObject **entries);

/* Takes the innermost entry of an owner, and those above it, off, and returns what was in force, as above. Where it has none in
 * this context, takes off the one that it made last, in whichever context, and returns None. NULL with an exception:
 * RuntimeError saying that `what` was not entered when there is none. */
PyObject *ext_context_pop(PyObject *variable, PyObject *entries, PyObject *what);

/* The item in force, a new reference, or NULL. False with an exception. */
bool ext_context_top(PyObject *variable, PyObject **item);

#endif
