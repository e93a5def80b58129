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

/* Whether exceptions of this type are errors, as one was lately. Without a pending exception. */
static bool is_known_error(const ext_state *state, PyObject *type)
{
    if (type == NULL || type != (PyObject *)state->error_type) {
        return false;
    }
    if (!PyType_HasFeature(state->error_type, Py_TPFLAGS_HEAPTYPE)) {
        return true;
    }
    PyObject *trio = NULL;
    bool is_known = state->error_version != 0 && ext_compat_type_version(state->error_type) == state->error_version;
    is_known = is_known && (trio = ext_state_loaded_module(state, EXT_WORD_TRIO)) == NULL;
    Py_XDECREF(trio);
    return is_known;
}

/* Remembers a type of errors, if it is none of groups. */
static void remember_error(ext_state *state, PyObject *type)
{
    if (type == NULL || !PyType_Check(type)) {
        return;
    }
    PyObject *parts = PyObject_GetAttr(type, state->words[EXT_WORD_EXCEPTIONS]);
    if (parts == NULL) {
        state->error_type = (PyTypeObject *)type;
        state->error_version = ext_compat_type_version(state->error_type);
    }
    Py_XDECREF(parts);
    ext_state_forget_error();
}

cprof_outcome ext_outcome_of(ext_state *state, PyObject *type, PyObject *error)
{
    if (is_known_error(state, type)) {
        return CPROF_OUTCOME_ERROR;
    }
    PyObject *of_asyncio = loaded_class(state, EXT_WORD_ASYNCIO_EXCEPTIONS, EXT_WORD_CANCELLED_ERROR);
    PyObject *of_trio = loaded_class(state, EXT_WORD_TRIO, EXT_WORD_CANCELLED);
    bool matches =
        (of_asyncio != NULL && PyErr_GivenExceptionMatches(type, of_asyncio)) ||
        (of_trio != NULL && (PyErr_GivenExceptionMatches(type, of_trio) || is_group_of(state, error, of_trio, MOST_GROUPS)));
    Py_XDECREF(of_asyncio);
    Py_XDECREF(of_trio);
    if (!matches) {
        remember_error(state, type);
    }
    return matches ? CPROF_OUTCOME_CANCELLED : CPROF_OUTCOME_ERROR;
}

cprof_outcome ext_outcome(ext_state *state)
{
    ext_compat_error error = ext_compat_take_error();
    cprof_outcome outcome = ext_outcome_of(state, error.type, error.value);
    ext_compat_restore_error(error);
    return outcome;
}
