#include "csrc/calls/context.h"

enum { ITEM, ENTRIES, CELL, BELOW, PARTS };

enum { MOST_CONTEXTS = 64 }; /* entered inside one another, when the outermost is looked for */

/* Asked by trying to enter it, as there is no other way. */
bool ext_context_is_entered(PyObject *context)
{
    if (PyContext_Enter(context) < 0) {
        ext_state_forget_error();
        return true;
    }
    if (PyContext_Exit(context) < 0) {
        ext_state_forget_error();
    }
    return false;
}

/* At the interpreter's end there is none any more, and context variables remember values that went with it, until the version
 * of the context changes: entering one does that. */
PyObject *ext_context_current(PyThreadState *tstate)
{
    if (ext_compat_context(tstate) == NULL) {
        PyObject *copy = PyContext_CopyCurrent();
        if (copy != NULL) {
            (void)ext_context_is_entered(copy);
        }
        Py_XDECREF(copy);
    }
    return ext_compat_context(tstate);
}

/* A greenlet other than the thread's first is suspended while others run, though its context was not entered. */
static bool in_child_greenlet(const ext_state *state)
{
    PyObject *greenlet = ext_state_loaded_module(state, EXT_WORD_GREENLET);
    if (greenlet == NULL) {
        return false;
    }
    PyObject *current = PyObject_CallMethod(greenlet, "getcurrent", NULL);
    PyObject *parent = current != NULL ? PyObject_GetAttrString(current, "parent") : NULL;
    bool is_child = parent != NULL && parent != Py_None;
    Py_XDECREF(current);
    Py_XDECREF(parent);
    Py_DECREF(greenlet);
    ext_state_forget_error();
    return is_child;
}

PyObject *ext_context_outermost(const ext_state *state, PyThreadState *tstate)
{
    PyObject *left[MOST_CONTEXTS];
    int count = 0;
    PyObject *base = NULL;
    if (in_child_greenlet(state)) {
        return NULL;
    }
    while (base == NULL && count < MOST_CONTEXTS) {
        PyObject *context = Py_XNewRef(ext_context_current(tstate));
        if (context == NULL || PyContext_Exit(context) < 0) {
            ext_state_forget_error();
            base = context;
            break;
        }
        left[count++] = context;
    }
    while (count > 0) {
        PyObject *context = left[--count];
        if (PyContext_Enter(context) < 0) {
            ext_state_forget_error();
        }
        Py_DECREF(context);
    }
    return base;
}

/* Whether this is an entry of ours: anybody may set the variable of a context. */
static bool is_entry(PyObject *stack)
{
    return PyTuple_CheckExact(stack) && PyTuple_GET_SIZE(stack) == PARTS && PyList_CheckExact(PyTuple_GET_ITEM(stack, CELL));
}

/* The whole stack from the first entry on that is in force, a new reference; or None. NULL with an exception. */
static PyObject *get_stack(PyObject *variable)
{
    PyObject *stack;
    if (ext_context_current(PyThreadState_Get()) == NULL || PyContextVar_Get(variable, Py_None, &stack) < 0) {
        return NULL;
    }
    while (is_entry(stack) && PyList_GET_SIZE(PyTuple_GET_ITEM(stack, CELL)) == 0) {
        Py_SETREF(stack, Py_NewRef(PyTuple_GET_ITEM(stack, BELOW)));
    }
    if (!is_entry(stack)) {
        Py_SETREF(stack, Py_NewRef(Py_None));
    }
    return stack;
}

/* A new reference to what was in force before, as ext_context_push() gives it. */
static PyObject *set_stack(PyObject *variable, PyObject *stack)
{
    /* A generator that goes would change the variable amid this, and CPython crash. Where threads run at the same time the
     * collector runs between instructions only, and to switch it would undo what another thread does. */
    bool collects = !EXT_FREE_THREADED && PyGC_Disable();
    PyObject *token = PyContextVar_Set(variable, stack);
    if (collects) {
        PyGC_Enable();
    }
    return token;
}

PyObject *ext_context_push(ext_state *state, PyObject *variable, PyObject *item, PyObject **entries)
{
    if (*entries == NULL) {
        *entries = PyDict_New();
    }
    if (*entries == NULL) {
        return NULL;
    }
    PyObject *number = PyLong_FromUnsignedLongLong(++state->entered);
    PyObject *cell = number != NULL ? Py_BuildValue("[O]", number) : NULL;
    PyObject *stack = cell != NULL ? PyTuple_Pack(PARTS, item, *entries, cell, Py_None) : NULL;
    PyObject *below = stack != NULL ? get_stack(variable) : NULL; /* last, as allocating may run code that leaves it */
    PyObject *before = NULL;
    if (below != NULL) {
        Py_DECREF(PyTuple_GET_ITEM(stack, BELOW));
        PyTuple_SET_ITEM(stack, BELOW, below);
    }
    if (below != NULL && PyDict_SetItem(*entries, number, cell) == 0) {
        before = set_stack(variable, stack);
        if (before == NULL) {
            (void)PyDict_DelItem(*entries, number);
        }
    }
    Py_XDECREF(stack);
    Py_XDECREF(cell);
    Py_XDECREF(number);
    return before;
}

/* The cell that was made last is the dict's last. */
static PyObject *leave_elsewhere(PyObject *entries, PyObject *what)
{
    if (entries == NULL || PyDict_GET_SIZE(entries) == 0) {
        PyErr_Format(PyExc_RuntimeError, "%R is not entered", what);
        return NULL;
    }
    PyObject *last = PyObject_CallMethod(entries, "popitem", NULL);
    bool left = last != NULL && PyList_SetSlice(PyTuple_GET_ITEM(last, 1), 0, 1, NULL) == 0;
    Py_XDECREF(last);
    return left ? Py_NewRef(Py_None) : NULL;
}

/* Whether the entry is this owner's, and not left yet: a copy of the context may have it for longer. */
static bool is_open(PyObject *stack, PyObject *entries)
{
    PyObject *cell = PyTuple_GET_ITEM(stack, CELL);
    return PyTuple_GET_ITEM(stack, ENTRIES) == entries && PyList_GET_SIZE(cell) == 1 &&
           PyDict_Contains(entries, PyList_GET_ITEM(cell, 0)) > 0;
}

PyObject *ext_context_pop(PyObject *variable, PyObject *entries, PyObject *what)
{
    PyObject *stack = get_stack(variable);
    while (stack != NULL && is_entry(stack) && !is_open(stack, entries)) {
        Py_SETREF(stack, Py_NewRef(PyTuple_GET_ITEM(stack, BELOW)));
    }
    PyObject *before = NULL;
    if (stack != NULL && !is_entry(stack)) {
        before = leave_elsewhere(entries, what);
    } else if (stack != NULL && PyDict_DelItem(entries, PyList_GET_ITEM(PyTuple_GET_ITEM(stack, CELL), 0)) == 0) {
        before = set_stack(variable, PyTuple_GET_ITEM(stack, BELOW));
    }
    Py_XDECREF(stack);
    return before;
}

bool ext_context_top(PyObject *variable, PyObject **item)
{
    PyObject *stack = get_stack(variable);
    *item = stack != NULL && stack != Py_None ? Py_NewRef(PyTuple_GET_ITEM(stack, ITEM)) : NULL;
    Py_XDECREF(stack);
    return stack != NULL;
}
