/* Running a program as the interpreter runs its own: no Python frame lies below the program's. */
#ifndef EXT_PROGRAM_H
#define EXT_PROGRAM_H

#include "csrc/compat.h"

/* run_program(prepare, finish, *ignored): goes, with its first two arguments bound, into sys.excepthook, which the interpreter
 * calls when all Python frames are gone. Three steps:
 *
 * prepare() tells what to run: the path of a file, as bytes, which is run as `python path` does; a code object, which is run
 * in __main__; or a callable, which is called. An exception of the program is shown as the interpreter shows it; SystemExit
 * ends the process. Then finish(failed) is called, whose result or exception is passed on. TypeError for fewer than two
 * arguments. */
PyObject *ext_program_run(PyObject *module, PyObject *const *args, Py_ssize_t nargs);

#endif
