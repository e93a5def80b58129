#include "csrc/program.h"

#include <errno.h>
#include <stdio.h>

/* The interpreter does so when a file's code has ended, before it shows an exception. */
static void flush(const char *name)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *stream = PySys_GetObject(name);
    if (stream != NULL) {
        Py_INCREF(stream);
        Py_XDECREF(PyObject_CallMethod(stream, "flush", NULL));
        Py_DECREF(stream);
    }
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

static bool run_code(PyObject *code)
{
    PyObject *main = PyImport_AddModule("__main__");
    PyObject *globals = Py_XNewRef(main != NULL ? PyModule_GetDict(main) : NULL);
    PyObject *result = globals != NULL ? PyEval_EvalCode(code, globals, globals) : NULL;
    Py_XDECREF(globals);
    flush("stderr");
    flush("stdout");
    Py_XDECREF(result);
    return result != NULL;
}

static bool run_callable(PyObject *callable)
{
    PyObject *result = PyObject_CallNoArgs(callable);
    Py_XDECREF(result);
    return result != NULL;
}

/* Shows what has gone wrong: an exception of the program, or of ours. Does not return from SystemExit. */
static bool show_exception(void)
{
    bool interrupted = PyErr_Occurred() == PyExc_KeyboardInterrupt;
    PyErr_Print();
    return interrupted;
}

/* PyRun_AnyFileEx() shows exceptions itself, and notes KeyboardInterrupt where the end of the process looks for it. */
static bool run_file(PyObject *path)
{
    const char *name = PyBytes_AS_STRING(path);
    FILE *file = fopen(name, "rbe");
    if (file == NULL) {
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, name);
        show_exception();
        return false;
    }
    return PyRun_AnyFileEx(file, name, 1) == 0;
}

PyObject *ext_program_run(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    bool failed, interrupted = false;
    if (nargs < 2) {
        return PyErr_Format(PyExc_TypeError, "run_program needs 2 arguments, got %zd", nargs);
    }
    PyObject *program = PyObject_CallNoArgs(args[0]);
    if (program != NULL && PyBytes_Check(program)) {
        failed = !run_file(program);
    } else {
        failed = program == NULL || !(PyCode_Check(program) ? run_code(program) : run_callable(program));
        interrupted = failed && show_exception();
    }
    Py_XDECREF(program);
    return PyObject_CallFunction(args[1], "OO", failed ? Py_True : Py_False, interrupted ? Py_True : Py_False);
}
