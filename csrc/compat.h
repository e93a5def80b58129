/* Everything that differs between CPython 3.10 and later ones, and nothing else. */
#ifndef EXT_COMPAT_H
#define EXT_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <structmember.h>

#include <stdbool.h>

#if PY_VERSION_HEX < 0x030a0000
#error "cprofiling needs CPython 3.10 or later"
#endif

/* The identity of the current context: changes with each switch of task or greenlet, and only then. These fields of the public
 * thread state are the only way to see a switch without calling Python. NULL: no context was made yet. */
static inline PyObject *ext_compat_context(PyThreadState *tstate)
{
    return tstate->context;
}

/* How often the current context was switched in this thread. */
static inline uint64_t ext_compat_context_version(PyThreadState *tstate)
{
    return tstate->context_ver;
}

/* The Python frame that runs, to be compared only: the same for as long as it does. */
static inline const void *ext_compat_frame(PyThreadState *tstate)
{
#if PY_VERSION_HEX >= 0x030d0000
    return tstate->current_frame;
#elif PY_VERSION_HEX >= 0x030b0000
    return tstate->cframe->current_frame;
#else
    return tstate->frame;
#endif
}

/* Whether the frame that runs is one that can be suspended. The others lie on the interpreter's own stack. */
static inline bool ext_compat_frame_suspends(PyThreadState *tstate)
{
#if PY_VERSION_HEX >= 0x030b0000
    uintptr_t chunk = (uintptr_t)tstate->datastack_chunk;
    return (uintptr_t)ext_compat_frame(tstate) - chunk >= (uintptr_t)tstate->datastack_limit - chunk;
#else
    return tstate->frame != NULL && tstate->frame->f_gen != NULL;
#endif
}

/* The generator or coroutine that a frame is of, a new reference; or NULL. */
static inline PyObject *ext_compat_frame_generator(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030b0000
    PyObject *generator = PyFrame_GetGenerator(frame);
    if (generator == Py_None) { /* CPython 3.14 has it in the place of NULL */
        Py_CLEAR(generator);
    }
    return generator;
#else
    return Py_XNewRef(frame->f_gen);
#endif
}

/* What finds the generator of a frame as long as it lives, a new reference; or NULL with an exception. The frame does, as it
 * forgets a generator that ends or goes: weak references that are made while one is freed are never cleared. CPython 3.10 would
 * not collect cycles through a frame that is held. */
static inline PyObject *ext_compat_generator_finder(PyFrameObject *frame, PyObject *generator)
{
#if PY_VERSION_HEX >= 0x030b0000
    (void)generator;
    return Py_NewRef((PyObject *)frame);
#else
    (void)frame;
    return PyWeakref_NewRef(generator, NULL);
#endif
}

/* The generator, a new reference; or NULL. */
static inline PyObject *ext_compat_find_generator(PyObject *finder)
{
#if PY_VERSION_HEX >= 0x030b0000
    return ext_compat_frame_generator((PyFrameObject *)finder);
#else
    PyObject *object = PyWeakref_GetObject(finder);
    return object != Py_None ? Py_NewRef(object) : NULL;
#endif
}

/* A number of a type and of what it is at present: no other type has it, nor this one after any change. 0: it has none. */
static inline unsigned ext_compat_type_version(const PyTypeObject *type)
{
    return type->tp_version_tag;
}

/* Whether weak references to `object` can be made. */
static inline bool ext_compat_can_be_referenced(PyObject *object)
{
#if PY_VERSION_HEX >= 0x030c0000
    return PyType_SUPPORTS_WEAKREFS(Py_TYPE(object));
#else
    return Py_TYPE(object)->tp_weaklistoffset > 0;
#endif
}

/* Interns a new reference to a str, but where interned strings are never freed, as names may be without end: in CPython 3.12,
 * and in builds without the GIL. What is remembered by the identity of a name is then only looked up more often. */
static inline void ext_compat_intern(PyObject **string)
{
#if (PY_VERSION_HEX >= 0x030c0000 && PY_VERSION_HEX < 0x030d0000) || defined(Py_GIL_DISABLED)
    (void)string;
#else
    PyUnicode_InternInPlace(string);
#endif
}

/* The value of a key of a dict that any thread may change, a new reference; NULL, maybe with an exception, when it has none. */
static inline PyObject *ext_compat_dict_get(PyObject *dict, PyObject *key)
{
#ifdef Py_GIL_DISABLED
    PyObject *value;
    (void)PyDict_GetItemRef(dict, key, &value);
    return value;
#else
    return Py_XNewRef(PyDict_GetItemWithError(dict, key));
#endif
}

/* An exception that is kept while other code runs; all NULL: there was none. */
typedef struct {
    PyObject *type;
    PyObject *value;
    PyObject *traceback;
} ext_compat_error;

/* Takes the pending exception. It is the caller's, who gives it back by the next. */
static inline ext_compat_error ext_compat_take_error(void)
{
    ext_compat_error error;
    PyErr_Fetch(&error.type, &error.value, &error.traceback);
    return error;
}

/* Makes it the pending one again, in the place of any other. */
static inline void ext_compat_restore_error(ext_compat_error error)
{
    PyErr_Restore(error.type, error.value, error.traceback);
}

/* Executes a statement, which uses no objects, with the GIL released. */
#define EXT_WITHOUT_GIL(...)   \
    do {                       \
        Py_BEGIN_ALLOW_THREADS \
        __VA_ARGS__;           \
        Py_END_ALLOW_THREADS   \
    } while (0)

/* Builds of CPython without the GIL: threads run at the same time.
 *
 * What several threads use is then a field that is EXT_SHARED (an atomic: its readers see all of a value, and what was written
 * before it), or used in EXT_ALONE() only. That executes statements while no other thread is in one of the same object: other
 * threads may come in between wherever they might if there was a GIL, and it may be entered again. When the interpreter ends,
 * one thread is left and takes no lock: daemon threads that have stopped for ever may have it. In other builds both are
 * nothing, as the GIL does that. */
#ifdef Py_GIL_DISABLED
#define EXT_FREE_THREADED 1
#define EXT_SHARED _Atomic
#define EXT_ALONE(object, ...)                                           \
    do {                                                                 \
        PyCriticalSection ext_section;                                   \
        bool ext_is_locked = !Py_IsFinalizing();                         \
        if (ext_is_locked) {                                             \
            PyCriticalSection_Begin(&ext_section, (PyObject *)(object)); \
        }                                                                \
        __VA_ARGS__;                                                     \
        if (ext_is_locked) {                                             \
            PyCriticalSection_End(&ext_section);                         \
        }                                                                \
    } while (0)
#else
#define EXT_FREE_THREADED 0
#define EXT_SHARED
#define EXT_ALONE(object, ...) \
    do {                       \
        (void)(object);        \
        __VA_ARGS__;           \
    } while (0)
#endif

/* In a forked child, in the thread that forked: nobody else is in EXT_ALONE() of the object. CPython hands locks to threads
 * that stand still for a fork, and those are no more. Where this thread itself may be in one, nothing is done. */
static inline void ext_compat_leave_to_child(PyObject *object)
{
#if EXT_FREE_THREADED
    const PyThreadState *tstate = PyThreadState_GetUnchecked();
    if (tstate == NULL || tstate->critical_section == 0) {
        object->ob_mutex = (PyMutex){0};
    }
#else
    (void)object;
#endif
}

/* Defines `name`_alone, which does in EXT_ALONE() of its object what `name` does: a method or a getter, or one that has
 * keywords. */
#define EXT_ALONE_FUNCTION(name, type)                             \
    static PyObject *name##_alone(PyObject *object, type argument) \
    {                                                              \
        PyObject *result;                                          \
        EXT_ALONE(object, result = name(object, argument));        \
        return result;                                             \
    }
#define EXT_ALONE_KEYWORDS(name)                                                      \
    static PyObject *name##_alone(PyObject *object, PyObject *args, PyObject *kwargs) \
    {                                                                                 \
        PyObject *result;                                                             \
        EXT_ALONE(object, result = name(object, args, kwargs));                       \
        return result;                                                                \
    }

/* A function of other than two arguments, for a PyMethodDef whose flags say so. */
#define EXT_METHOD(function) ((PyCFunction)(void (*)(void))(function))

/* What a module with state of its own for each interpreter may declare. */
#if EXT_FREE_THREADED
#define EXT_COMPAT_MODULE_SLOTS \
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED}, {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#elif PY_VERSION_HEX >= 0x030c0000
#define EXT_COMPAT_MODULE_SLOTS {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#else
#define EXT_COMPAT_MODULE_SLOTS
#endif

#endif
