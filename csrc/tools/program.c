#include "csrc/types.h"

#include <stdio.h>

static void flush(const char *name)
{
    PyObject *stream = PySys_GetObject(name);
    if (stream != NULL) {
        Py_INCREF(stream);
        Py_XDECREF(PyObject_CallMethod(stream, "flush", NULL));
        Py_DECREF(stream);
    }
    PyErr_Clear();
}

static PyObject *run_code(PyObject *code)
{
    PyObject *main = PyImport_AddModule("__main__"); /* borrowed */
    PyObject *globals = Py_XNewRef(main != NULL ? PyModule_GetDict(main) : NULL);
    PyObject *result = globals != NULL ? PyEval_EvalCode(code, globals, globals) : NULL;
    Py_XDECREF(globals);
    /* As the interpreter does when the code of a file has ended, before it shows an exception. */
    ext_compat_error error = ext_compat_take_error();
    flush("stderr");
    flush("stdout");
    ext_compat_restore_error(error);
    return result;
}

/* Shows the exception of the program. Does not return from SystemExit. */
static void show_exception(void)
{
    bool interrupted = PyErr_Occurred() == PyExc_KeyboardInterrupt;
    PyErr_Print();
    if (interrupted) { /* the process dies of SIGINT where code that is compiled and run in one go leaves this */
        PyObject *globals = PyDict_New();
        PyObject *result = globals != NULL ? PyRun_String("raise KeyboardInterrupt", Py_file_input, globals, globals) : NULL;
        PyErr_Clear();
        Py_XDECREF(result);
        Py_XDECREF(globals);
    }
}

/* Shows exceptions itself. */
static bool run_file(const char *path)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
        show_exception();
        return false;
    }
    return PyRun_AnyFileEx(file, path, 1) == 0; /* which closes it. NOLINT(clang-analyzer-unix.Stream) */
}

static bool run(PyObject *program)
{
    if (program != NULL && PyBytes_Check(program)) {
        return run_file(PyBytes_AS_STRING(program));
    }
    PyObject *result = NULL;
    if (program != NULL) {
        result = PyCode_Check(program) ? run_code(program) : PyObject_CallNoArgs(program);
    }
    if (result == NULL) {
        show_exception();
        return false;
    }
    Py_DECREF(result);
    return true;
}

/* run_program(prepare, finish, *ignored) goes, with its first two arguments bound, into sys.excepthook, which the interpreter
 * calls when all Python frames are gone. prepare() tells what to run: the path of a file, as bytes, which is run as `python
 * path` does; a code object, which is run in __main__; or a callable. An exception of the program is shown as the interpreter
 * shows it; SystemExit ends the process. Then finish(failed) is called, whose result or exception is passed on. */
PyObject *ext_program_run(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 2) {
        return PyErr_Format(PyExc_TypeError, "run_program needs at least 2 arguments, got %zd", nargs);
    }
    /* The hook that holds them may go when the program sets another one. */
    PyObject *prepare = Py_NewRef(args[0]), *finish = Py_NewRef(args[1]), *result = NULL;
    Py_LeaveRecursiveCall(); /* the call of this function, so that the program has as many calls as it would */
    /* When the code of a file has ended, the interpreter takes __file__ from the dict of __main__, which only its module holds:
     * where the program's module takes its place, the dict has to live to the end of the process. */
    PyObject *main = PyImport_AddModule("__main__"); /* borrowed */
    Py_XINCREF(main != NULL ? PyModule_GetDict(main) : NULL);
    PyErr_Clear(); /* of the want of memory */
    PyObject *program = PyObject_CallNoArgs(prepare);
    bool succeeded = run(program);
    Py_XDECREF(program);
    if (!Py_EnterRecursiveCall(" while running a program")) {
        result = PyObject_CallOneArg(finish, succeeded ? Py_False : Py_True);
    }
    Py_DECREF(prepare);
    Py_DECREF(finish);
    return result;
}
