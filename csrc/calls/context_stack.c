#include "csrc/calls/context_stack.h"

#include "csrc/calls/view.h"

enum { ITEM, ENTRIES, CELL, BELOW };

/* The whole stack from the first entry on that is in force, borrowed from the context, or None. NULL with an exception. */
static PyObject *get_stack(PyObject *variable)
{
    PyObject *stack;
    if (ext_view_context(PyThreadState_Get()) == NULL || PyContextVar_Get(variable, Py_None, &stack) < 0) {
        return NULL;
    }
    Py_DECREF(stack);
    while (stack != Py_None && PyList_GET_SIZE(PyTuple_GET_ITEM(stack, CELL)) == 0) {
        stack = PyTuple_GET_ITEM(stack, BELOW);
    }
    return stack;
}

static bool set_stack(PyObject *variable, PyObject *stack)
{
    bool collects = PyGC_Disable(); /* a generator that goes would change the variable amid this, and CPython crash */
    PyObject *token = PyContextVar_Set(variable, stack);
    if (collects) {
        PyGC_Enable();
    }
    bool is_set = token != NULL;
    ext_view_invalidate();
    Py_XDECREF(token); /* the old stack may go with it, and run finalisers */
    return is_set;
}

bool ext_context_stack_push(ext_state *state, PyObject *variable, PyObject *item, PyObject **entries)
{
    if (*entries == NULL) {
        *entries = PyDict_New();
    }
    if (*entries == NULL) {
        return false;
    }
    PyObject *number = PyLong_FromUnsignedLongLong(++state->entered);
    PyObject *cell = number != NULL ? Py_BuildValue("[O]", number) : NULL;
    PyObject *stack = cell != NULL ? PyTuple_Pack(4, item, *entries, cell, Py_None) : NULL;
    PyObject *below = stack != NULL ? get_stack(variable) : NULL; /* last, as allocating may run code that leaves it */
    if (below != NULL) {
        Py_DECREF(PyTuple_GET_ITEM(stack, BELOW));
        PyTuple_SET_ITEM(stack, BELOW, Py_NewRef(below));
    }
    bool pushed = below != NULL && PyDict_SetItem(*entries, number, cell) == 0;
    if (pushed && !set_stack(variable, stack)) {
        pushed = false;
        (void)PyDict_DelItem(*entries, number);
    }
    Py_XDECREF(stack);
    Py_XDECREF(cell);
    Py_XDECREF(number);
    return pushed;
}

/* The cell that was made last is the dict's last. */
static bool leave_elsewhere(ext_state *state, PyObject *entries, PyObject *what)
{
    if (entries == NULL || PyDict_GET_SIZE(entries) == 0) {
        PyErr_Format(PyExc_RuntimeError, "%R is not entered", what);
        return false;
    }
    PyObject *last = PyObject_CallMethod(entries, "popitem", NULL);
    bool left = last != NULL && PyList_SetSlice(PyTuple_GET_ITEM(last, 1), 0, 1, NULL) == 0;
    ext_view_invalidate_all(state);
    Py_XDECREF(last);
    return left;
}

/* Whether the entry is this owner's, and not left yet: a copy of the context may have it for longer. */
static bool is_open(PyObject *stack, PyObject *entries)
{
    PyObject *cell = PyTuple_GET_ITEM(stack, CELL);
    return PyTuple_GET_ITEM(stack, ENTRIES) == entries && PyList_GET_SIZE(cell) == 1 &&
           PyDict_Contains(entries, PyList_GET_ITEM(cell, 0)) > 0;
}

bool ext_context_stack_pop(ext_state *state, PyObject *variable, PyObject *entries, PyObject *what)
{
    PyObject *stack = get_stack(variable);
    while (stack != NULL && stack != Py_None && !is_open(stack, entries)) {
        stack = PyTuple_GET_ITEM(stack, BELOW);
    }
    if (stack == NULL || stack == Py_None) {
        return stack != NULL && leave_elsewhere(state, entries, what);
    }
    Py_INCREF(stack);
    PyObject *number = PyList_GET_ITEM(PyTuple_GET_ITEM(stack, CELL), 0);
    bool popped = PyDict_DelItem(entries, number) == 0 && set_stack(variable, PyTuple_GET_ITEM(stack, BELOW));
    Py_DECREF(stack);
    return popped;
}

bool ext_context_stack_top(PyObject *variable, PyObject **item)
{
    PyObject *stack = get_stack(variable);
    *item = stack != NULL && stack != Py_None ? PyTuple_GET_ITEM(stack, ITEM) : NULL;
    return stack != NULL;
}
