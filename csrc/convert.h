/* Arguments from Python, checked; and what becomes of statuses of the core. */
#ifndef EXT_CONVERT_H
#define EXT_CONVERT_H

#include "csrc/state.h"

#include <string.h>

enum { EXT_NAME_LIMIT = 4096 };

#define EXT_MAX_MS 1e12

/* A node name: any str of at most 4,096 bytes of UTF-8 (surrogates passed) without NUL, as a new exact str, interned but on
 * CPython 3.12. NULL with TypeError or ValueError naming `parameter`, the value and the limit. */
PyObject *ext_convert_name(PyObject *value, const char *parameter);

/* Whether a name is legal as it is, as most are: short, ASCII, and without NUL. */
static inline bool ext_convert_is_plain_name(PyObject *name)
{
    return PyUnicode_CheckExact(name) && PyUnicode_IS_COMPACT_ASCII(name) && PyUnicode_GET_LENGTH(name) <= EXT_NAME_LIMIT &&
           memchr(PyUnicode_1BYTE_DATA(name), 0, (size_t)PyUnicode_GET_LENGTH(name)) == NULL;
}

/* A stage: as a name, or an enum whose value is one; an enum and its value give the same object. */
PyObject *ext_convert_stage(ext_state *state, PyObject *value, const char *parameter);

/* The UTF-8 of a name. The bytes belong to *owner, a new reference, which is `name` itself where it has the bytes.
 * False with MemoryError. */
bool ext_convert_utf8(PyObject *name, cprof_name *utf8, PyObject **owner);

/* The same of a stage and a node's name. The bytes belong to both owners, new references or NULL, in any case. */
bool ext_convert_names(PyObject *stage, PyObject *node, cprof_names *names, PyObject *owners[2]);

/* A flag: bool, numpy's bool or a number. False with TypeError naming `parameter`, also for str and None, whose truth would
 * surprise. */
bool ext_convert_flag(PyObject *value, const char *parameter, bool *flag);

/* A count of 0 to 2^63-1: anything with __index__ but bool. False with TypeError or ValueError naming `parameter`. */
bool ext_convert_count(PyObject *value, const char *parameter, uint64_t *count);

/* A duration in ms: int, float, or anything with __float__ or __index__ but bool; finite, 0 to 1e12. False as above. */
bool ext_convert_ms(PyObject *value, const char *parameter, double *milliseconds);

/* Whether the value is a Profiler. False with TypeError, which says that it must be `expected`. */
bool ext_convert_is_profiler(const ext_state *state, PyObject *value, const char *expected);

/* Sets ValueError; `format` has a %s for the parameter and a %U for the value. */
void ext_convert_refuse_value(const char *format, const char *parameter, PyObject *value);

/* Sets TypeError: `parameter` must be `expected`, got the value. */
void ext_convert_refuse_type(const char *parameter, const char *expected, PyObject *value);

/* The values of all arguments of a call, positional first, as a tuple. NULL with an exception. */
PyObject *ext_convert_arguments(PyObject *const *args, size_t nargs, PyObject *kwnames);

/* Calls a tp_new with what a vectorcall was given. */
PyObject *ext_convert_call(PyTypeObject *type, newfunc make, PyObject *const *args, size_t nargs, PyObject *kwnames);

/* A str from bytes that ext_convert_utf8 made. NULL with an exception, which may be one that is pending already. */
PyObject *ext_convert_to_str(cprof_name utf8);

/* None for CPROF_OK; NULL with an exception for another status of the core. */
PyObject *ext_convert_status(cprof_status status, const char *operation);

/* What __reduce__ returns for an object that is made of these arguments (a tuple and a dict, both taken over; NULL with an
 * exception), and then given what a subclass' object holds. */
PyObject *ext_convert_reduce(PyObject *object, PyObject *args, PyObject *kwargs);

/* A tuple, and a list, of `count` new references that `nth` gives. NULL with an exception, as soon as it gives NULL. */
PyObject *ext_convert_tuple(size_t count, PyObject *(*nth)(const void *context, size_t place), const void *context);
PyObject *ext_convert_list(size_t count, PyObject *(*nth)(const void *context, size_t place), const void *context);

/* The notes of statistics, a tuple of bytes, as names that borrow them; given back by PyMem_Free(). NULL with an exception. */
cprof_name *ext_convert_notes(PyObject *notes);

#endif
