/* Everything that differs between CPython 3.10 and 3.13, and nothing else. */
#ifndef EXT_COMPAT_H
#define EXT_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030a0000 || PY_VERSION_HEX >= 0x030e0000
#error "cprofiling supports CPython 3.10 to 3.13"
#endif

/* The identity of the current context: changes with each switch of task or greenlet, and only then. These fields of the public
 * thread state are the only way to see a switch without calling Python. NULL: no context was made yet. */
static inline PyObject *ext_compat_context(PyThreadState *tstate)
{
    return tstate->context;
}

static inline uint64_t ext_compat_context_version(PyThreadState *tstate)
{
    return tstate->context_ver;
}

/* The pending exception as one object, taken out of the thread state; NULL when there is none. */
static inline PyObject *ext_compat_take_exception(void)
{
#if PY_VERSION_HEX >= 0x030c0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (type == NULL) {
        return NULL;
    }
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    Py_DECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

#endif
