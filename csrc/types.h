/* What the module adds of the rooms: the specifications of types, and functions of its own. */
#ifndef EXT_TYPES_H
#define EXT_TYPES_H

#include "csrc/state.h"

#define EXT_TYPES_SPEC(name, base) extern PyType_Spec ext_##name##_spec;
EXT_STATE_TYPES(EXT_TYPES_SPEC)
#undef EXT_TYPES_SPEC

/* Make a type of ours quick to call. */
void ext_idle_prepare(PyTypeObject *type);
void ext_record_prepare(PyTypeObject *type);

/* Takes the methods out of the types that Python's own kinds do not have: collections.abc tells by them what an object is.
 * False with an exception. */
bool ext_generator_prepare(PyTypeObject *generator, PyTypeObject *coroutine);

/* An awaitable that gives `value`, which it takes over, at once; NULL, with the exception that is pending, for NULL. */
PyObject *ext_ready_new(ext_state *state, PyObject *value);

/* What the class inherited when this was made; borrowed. */
PyObject *ext_inherited_found(PyObject *inherited);

/* open_node(): the stage and the name of the innermost open call of a node in the current thread and task, as a new tuple; None
 * where there is none, or none that is measured. NULL with an exception. */
PyObject *ext_open_node(PyObject *module, PyObject *unused);

/* note_node(key): notes that a node begins in this thread, if a recording runs. `key`, an int of 64 bits, tells it from others
 * of the thread; with any other object nothing is noted. */
PyObject *ext_noted_node_begin(PyObject *module, PyObject *key);

/* has_noted_nodes(): whether there are any in this thread. */
PyObject *ext_noted_node_is_any(PyObject *module, PyObject *unused);

/* end_noted_node(profiler, key, stage, name): records the node noted last under `key`, which ends now, with a name and stage of
 * that Profiler; nothing where they are no legal ones. TypeError for other than four arguments, or no Profiler. */
PyObject *ext_noted_node_end(PyObject *module, PyObject *args);

/* checksum(bytes): the checksum of this package's files, an int. NULL with an exception. */
PyObject *ext_live_checksum(PyObject *module, PyObject *bytes);

/* take_snapshot(type, profiler, taken_ns, notes): the present statistics of a Profiler as an instance of `type`. The time of
 * day is in ns since 1970, the notes are a tuple of UTF-8 bytes. NULL with an exception. */
PyObject *ext_snapshot_take(PyObject *module, PyObject *args);

/* The class cprofiling.FormatError, a new reference. NULL with an exception. */
PyObject *ext_snapshot_format_error(void);

/* arrow_stream(columns): a capsule with one batch of columns, each a tuple (name, format, list of values): "u" str, "l" int,
 * "g" float; None: none. All lists have the same length. NULL with an exception. */
PyObject *ext_arrow_stream(PyObject *module, PyObject *columns);

/* run_program(prepare, finish, *ignored): goes, with its first two arguments bound, into sys.excepthook, which the interpreter
 * calls when all Python frames are gone. Three steps:
 *
 * prepare() tells what to run: the path of a file, as bytes, which is run as `python path` does; a code object, which is run
 * in __main__; or a callable, which is called. An exception of the program is shown as the interpreter shows it; SystemExit
 * ends the process. Then finish(failed) is called, whose result or exception is passed on. TypeError for fewer than two
 * arguments. */
PyObject *ext_program_run(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

/* Add functions to the module: about clocks, devices, tools and counters, and about CUPTI. False with an exception. */
bool ext_instruments_add(PyObject *module);
bool ext_device_activity_add(PyObject *module);

#endif
