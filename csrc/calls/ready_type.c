#include "csrc/types.h"

typedef struct {
    PyObject_HEAD
    PyObject *value; /* owned; NULL once it was given */
} ready_object;

PyObject *ext_ready_new(ext_state *state, PyObject *value)
{
    if (value != NULL && state->ready_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the interpreter is ending");
    }
    ready_object *self = value != NULL && state->ready_type != NULL ? PyObject_GC_New(ready_object, state->ready_type) : NULL;
    if (self == NULL) {
        Py_XDECREF(value);
        return NULL;
    }
    self->value = value;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PySendResult ready_send(PyObject *object, PyObject *argument, PyObject **result)
{
    (void)argument;
    ready_object *self = (ready_object *)object;
    *result = self->value != NULL ? self->value : Py_NewRef(Py_None);
    self->value = NULL;
    return PYGEN_RETURN;
}

static PyObject *ready_next(PyObject *object)
{
    PyObject *value;
    (void)ready_send(object, Py_None, &value);
    PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, value);
    Py_DECREF(value);
    if (stop != NULL) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
    return NULL;
}

static int ready_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((ready_object *)object)->value);
    return 0;
}

static void ready_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    Py_CLEAR(((ready_object *)object)->value);
    ext_state_free(object);
}

static PyType_Slot ready_slots[] = {
    {Py_tp_traverse, ready_traverse},
    {Py_tp_dealloc, ready_dealloc},
    {Py_am_await, PyObject_SelfIter},
    {Py_am_send, ready_send},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, ready_next},
    {Py_tp_doc, (void *)"An awaitable that is ready at once."},
    {0, NULL},
};

PyType_Spec ext_ready_spec = {
    .name = "cprofiling._core.Ready",
    .basicsize = sizeof(ready_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = ready_slots,
};
