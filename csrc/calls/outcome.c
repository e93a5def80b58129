#include "csrc/calls/outcome.h"

enum { MOST_GROUPS = 16 }; /* inside one another */

/* A class of a module, a new reference; NULL where the program has not loaded it, or there is none. */
static PyObject *loaded_class(const ext_state *state, ext_word module_name, ext_word name)
{
    PyObject *module = ext_state_loaded_module(state, module_name);
    PyObject *found = module != NULL ? PyObject_GetAttr(module, state->words[name]) : NULL;
    Py_XDECREF(module);
    ext_state_forget_error();
    return found;
}

/* Whether an exception is a group of such of one class only, as trio's nurseries raise them.
 * NOLINTNEXTLINE(misc-no-recursion) */
static bool is_group_of(const ext_state *state, PyObject *error, PyObject *known, int depth)
{
    PyObject *parts = error != NULL && depth > 0 ? PyObject_GetAttr(error, state->words[EXT_WORD_EXCEPTIONS]) : NULL;
    bool matches = parts != NULL && PyTuple_Check(parts) && PyTuple_GET_SIZE(parts) > 0;
    for (Py_ssize_t i = 0; matches && i < PyTuple_GET_SIZE(parts); i++) {
        PyObject *part = PyTuple_GET_ITEM(parts, i);
        matches = PyErr_GivenExceptionMatches(part, known) || is_group_of(state, part, known, depth - 1);
    }
    Py_XDECREF(parts);
    ext_state_forget_error();
    return matches;
}

cprof_outcome ext_outcome_of(const ext_state *state, PyObject *type, PyObject *error)
{
    PyObject *of_asyncio = loaded_class(state, EXT_WORD_ASYNCIO_EXCEPTIONS, EXT_WORD_CANCELLED_ERROR);
    PyObject *of_trio = loaded_class(state, EXT_WORD_TRIO, EXT_WORD_CANCELLED);
    bool matches =
        (of_asyncio != NULL && PyErr_GivenExceptionMatches(type, of_asyncio)) ||
        (of_trio != NULL && (PyErr_GivenExceptionMatches(type, of_trio) || is_group_of(state, error, of_trio, MOST_GROUPS)));
    Py_XDECREF(of_asyncio);
    Py_XDECREF(of_trio);
    return matches ? CPROF_OUTCOME_CANCELLED : CPROF_OUTCOME_ERROR;
}

cprof_outcome ext_outcome(const ext_state *state)
{
    ext_compat_error error = ext_compat_take_error();
    cprof_outcome outcome = ext_outcome_of(state, error.type, error.value);
    ext_compat_restore_error(error);
    return outcome;
}
