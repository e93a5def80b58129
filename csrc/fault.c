#include "csrc/fault.h"

#include "csrc/compat.h"

#include <pythread.h>
#include <unistd.h>

/* Called by the interpreter between two instructions of the main thread. */
static int raise_anew(void *exception)
{
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF((PyObject *)exception);
    return -1;
}

/* The only one in which handlers of signals run. */
static bool in_main_thread(void)
{
    return PyInterpreterState_Get() == PyInterpreterState_Main() && PyThread_get_thread_native_id() == (unsigned long)getpid();
}

/* Other threads can be given a class only. */
static void put_off(PyObject *exception)
{
    if (!in_main_thread()) {
        (void)PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), (PyObject *)Py_TYPE(exception));
    } else if (Py_AddPendingCall(raise_anew, Py_NewRef(exception)) < 0) {
        Py_DECREF(exception); /* too many wait already */
    }
}

void ext_fault_forget(void)
{
    ext_compat_error error = ext_compat_take_error();
    if (error.type != NULL && !PyErr_GivenExceptionMatches(error.type, PyExc_Exception)) {
        PyErr_NormalizeException(&error.type, &error.value, &error.traceback);
        put_off(error.value);
    }
    Py_XDECREF(error.type);
    Py_XDECREF(error.value);
    Py_XDECREF(error.traceback);
}
