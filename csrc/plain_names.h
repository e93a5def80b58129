/* The names of a peer's nodes, where `name` is a property that reads two attributes and nothing else: it gives the same for the
 * same attributes, and so is asked once for each pair of them. */
#ifndef EXT_PLAIN_NAMES_H
#define EXT_PLAIN_NAMES_H

#include "csrc/plain_known.h"
#include "csrc/plain_profiler.h"

enum { EXT_PLAIN_KINDS = 16, EXT_PLAIN_NAMES = 128 };

/* Zeroed memory plus the attributes is a memory of nothing. */
typedef struct {
    PyObject *attributes; /* tuple of two strs: what the property reads; owned. NULL: not known, it is asked at each call */
    PyObject *property;   /* of which names are remembered; owned. NULL: none was met yet */
    ext_plain_kind kinds[EXT_PLAIN_KINDS]; /* fine: its `name` is such a property */
    struct {
        ext_plain_known node;
        PyObject *name; /* of it; owned */
    } nodes[EXT_PLAIN_NAMES];
    struct {
        PyObject *first; /* the attributes, a str, and a str, an int or None; owned, as is: */
        PyObject *second;
        PyObject *name;
    } names[EXT_PLAIN_NAMES];
} ext_plain_names;

/* The `name` of a node: a new reference, or NULL with the exception that it raised. */
PyObject *ext_plain_names_get(ext_plain_names *memory, const ext_state *state, PyObject *node);

/* The memory's part of its owner's tp_dealloc. The owner's tp_traverse visits the property; nothing else has a part in a cycle.
 */
void ext_plain_names_clear(ext_plain_names *memory);

#endif
