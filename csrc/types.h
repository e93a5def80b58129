/* What the module adds of the rooms: the specifications of types, and functions of its own. */
#ifndef EXT_TYPES_H
#define EXT_TYPES_H

#include "csrc/state.h"

#define EXT_TYPES_DECLARE(name, base) extern PyType_Spec ext_##name##_spec;
EXT_STATE_TYPES(EXT_TYPES_DECLARE)
#undef EXT_TYPES_DECLARE

/* The specification of a type: its name in the module, the struct of its objects, its slots, and its flags but the default. */
#define EXT_TYPES_SPEC(text, object, slots_, flags_) \
    {                                                \
        .name = "cprofiling._core." text,            \
        .basicsize = sizeof(object),                 \
        .flags = Py_TPFLAGS_DEFAULT | (flags_),      \
        .slots = (slots_),                           \
    }

/* Make a type of ours quick to call. */
void ext_idle_prepare(PyTypeObject *type);
void ext_record_prepare(PyTypeObject *type);

/* Takes the methods out of the types that Python's own kinds do not have: collections.abc tells by them what an object is.
 * False with an exception. */
bool ext_generator_prepare(PyTypeObject *generator, PyTypeObject *coroutine);

/* An awaitable that gives `value`, which it takes over, at once; NULL, with the exception that is pending, for NULL. */
PyObject *ext_generator_ready(ext_state *state, PyObject *value);

/* Defines `name`_aenter and `name`_aexit, which do at once what `name`_enter and `name`_exit do; `state` is that of `object`.
 */
#define EXT_READY_METHODS(name, state)                                                       \
    static PyObject *name##_aenter(PyObject *object, PyObject *unused)                       \
    {                                                                                        \
        return ext_generator_ready(state, name##_enter(object, unused));                     \
    }                                                                                        \
    static PyObject *name##_aexit(PyObject *object, PyObject *const *args, Py_ssize_t nargs) \
    {                                                                                        \
        return ext_generator_ready(state, name##_exit(object, args, nargs));                 \
    }

/* What the class inherited when this was made; borrowed. */
PyObject *ext_inherited_found(PyObject *inherited);

/* Functions of the module, as its table of methods and _core.pyi describe them. NULL with an exception. */
PyObject *ext_open_node(PyObject *module, PyObject *unused);
PyObject *ext_open_node_note(PyObject *module, PyObject *key);
PyObject *ext_open_node_has_noted(PyObject *module, PyObject *unused);
PyObject *ext_open_node_end_noted(PyObject *module, PyObject *args);
PyObject *ext_live_checksum(PyObject *module, PyObject *bytes);
PyObject *ext_snapshot_take(PyObject *module, PyObject *args);
PyObject *ext_arrow_stream(PyObject *module, PyObject *columns);
PyObject *ext_program_run(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

/* The class cprofiling.FormatError, a new reference. NULL with an exception. */
PyObject *ext_snapshot_format_error(void);

/* Add functions to the module: about clocks, devices, tools and counters, and about CUPTI. False with an exception. */
bool ext_instruments_add(PyObject *module);
bool ext_device_activity_add(PyObject *module);

#endif
