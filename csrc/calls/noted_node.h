/* Nodes of a recording that a peer's pipeline announces by one call and ends by another. They are no open spans, as nobody
 * tells when an exception leaves them. */
#ifndef EXT_NOTED_NODE_H
#define EXT_NOTED_NODE_H

#include "csrc/state.h"

/* note_node(key): notes that a node begins in this thread, if a recording runs. `key`, an int of 64 bits, tells it from others
 * of the thread; with any other object nothing is noted. */
PyObject *ext_noted_node_begin(PyObject *module, PyObject *key);

/* has_noted_nodes(): whether there are any in this thread. */
PyObject *ext_noted_node_is_any(PyObject *module, PyObject *unused);

/* end_noted_node(profiler, key, stage, name): records the node noted last under `key`, which ends now, with a name and stage of
 * that Profiler; nothing where they are no legal ones. TypeError for other than four arguments, or no Profiler. */
PyObject *ext_noted_node_end(PyObject *module, PyObject *args);

#endif
