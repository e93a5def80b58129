#include "csrc/context_stack.h"

#include "csrc/view.h"

enum { ITEM, OWNER, BELOW };

/* The whole stack, borrowed from the context; NULL when it is empty or could not be had. */
static bool get_stack(PyObject *variable, PyObject **stack)
{
    if (ext_view_context(PyThreadState_Get()) == NULL || PyContextVar_Get(variable, Py_None, stack) < 0) {
        return false;
    }
    Py_DECREF(*stack);
    return true;
}

static bool set_stack(PyObject *variable, PyObject *stack)
{
    PyObject *token = PyContextVar_Set(variable, stack);
    bool is_set = token != NULL;
    ext_view_invalidate();
    Py_XDECREF(token); /* the old stack may go with it, and run finalisers */
    return is_set;
}

bool ext_context_stack_push(PyObject *variable, PyObject *item, PyObject *owner)
{
    PyObject *below;
    if (!get_stack(variable, &below)) {
        return false;
    }
    PyObject *stack = PyTuple_Pack(3, item, owner, below);
    bool pushed = stack != NULL && set_stack(variable, stack);
    Py_XDECREF(stack);
    return pushed;
}

bool ext_context_stack_pop(PyObject *variable, PyObject *owner, PyObject *what)
{
    PyObject *stack;
    if (!get_stack(variable, &stack)) {
        return false;
    }
    while (stack != Py_None && PyTuple_GET_ITEM(stack, OWNER) != owner) {
        stack = PyTuple_GET_ITEM(stack, BELOW);
    }
    if (stack == Py_None) {
        PyErr_Format(PyExc_RuntimeError, "%R is not entered in this thread or task", what);
        return false;
    }
    PyObject *below = Py_NewRef(PyTuple_GET_ITEM(stack, BELOW));
    bool popped = set_stack(variable, below);
    Py_DECREF(below);
    return popped;
}

bool ext_context_stack_top(PyObject *variable, PyObject **item)
{
    PyObject *stack;
    if (!get_stack(variable, &stack)) {
        return false;
    }
    *item = stack == Py_None ? NULL : PyTuple_GET_ITEM(stack, ITEM);
    return true;
}
