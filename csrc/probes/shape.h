/* The signature of a call: shapes and dtypes of its tensor arguments, as a text such as "float32[8,3,224,224], int64[8]".
 *
 * A tensor is what has `shape`, a sequence of ints, and `dtype`: no framework is asked for. It is an argument, or an item of a
 * list, tuple, dict (a value) or dataclass that is one; these show as parentheses around their tensors. What a type's instances
 * are is found out at the first of them, and remembered. A dimension that is no int is "?".
 *
 * To read an attribute may run code of the user's: an Exception from it is forgotten, any other exception is
 * raised anew later; while it runs, calls of this thread have the empty signature.
 */
#ifndef EXT_SHAPE_H
#define EXT_SHAPE_H

#include "csrc/state.h"

enum {
    EXT_SHAPE_TEXT = 1024, /* bytes of a signature; a longer one ends with "..." */
    EXT_SHAPE_VALUES = 64, /* that are looked at; more tensors show as "...", too */
};

/* Sets the signature of a call that was not begun yet. `args` are all values, positional or not, without self. */
void ext_shape_look(ext_state *state, cprof_probe *probe, PyObject *const *args, size_t count);

/* Forgets all types and dtypes. */
void ext_shape_forget(ext_state *state);

/* For module_traverse(). */
int ext_shape_traverse(ext_state *state, visitproc visit, void *arg);

#endif
