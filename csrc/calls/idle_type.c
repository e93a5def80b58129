#include "csrc/types.h"

#include "csrc/convert.h"

typedef struct {
    PyObject_HEAD
    PyObject *name; /* any object; owned. NULL in what __aexit__ returns */
} idle_object;

/* A new reference, with a reference to `name` of its own; NULL with MemoryError. */
static PyObject *make(PyTypeObject *type, PyObject *name)
{
    idle_object *self = PyObject_New(idle_object, type);
    if (self != NULL) {
        self->name = Py_XNewRef(name);
    }
    return (PyObject *)self;
}

static PyObject *idle_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"name", "reset_peak_memory", "capture_memory", NULL};
    PyObject *name, *resets, *captures;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OO:ProfilingContextDebug", keywords, &name, &resets, &captures)) {
        return NULL;
    }
    PyObject *checked = ext_convert_name(name, "name");
    PyObject *self = checked != NULL ? make(type, checked) : NULL;
    Py_XDECREF(checked);
    return self;
}

/* With a name alone, as in the with statements of programs. Any other argument goes the long way, which refuses it. */
static PyObject *idle_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyTypeObject *type = (PyTypeObject *)callable;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (nargs == 1 && kwnames == NULL && ext_convert_is_plain_name(args[0])) {
        return make(type, args[0]);
    }
    return ext_convert_call(type, idle_new, args, (size_t)nargs, kwnames);
}

void ext_idle_prepare(PyTypeObject *type)
{
    type->tp_vectorcall = idle_vectorcall;
}

static PyObject *idle_enter(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return Py_NewRef(self);
}

static PyObject *idle_exit(PyObject *Py_UNUSED(self), PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(nargs))
{
    Py_RETURN_NONE;
}

/* The result of awaiting this must be false, or the block's exception would be lost. */
static PyObject *idle_async_exit(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(nargs))
{
    return make(Py_TYPE(self), NULL);
}

/* As an awaitable it is its own iterator, which is at its end at once: __aenter__ gives the object, __aexit__ None. */
static PyObject *idle_next(PyObject *object)
{
    if (((idle_object *)object)->name != NULL) {
        PyErr_SetObject(PyExc_StopIteration, object);
    }
    return NULL;
}

static PyObject *idle_call(PyObject *Py_UNUSED(self), PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", NULL};
    PyObject *function;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:ProfilingContextDebug", keywords, &function)) {
        return NULL;
    }
    return Py_NewRef(function);
}

static PyObject *idle_repr(PyObject *object)
{
    return PyUnicode_FromFormat("ProfilingContextDebug(%R)", ((idle_object *)object)->name);
}

static PyObject *idle_reduce(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("O(O)", Py_TYPE(object), ((idle_object *)object)->name);
}

static void idle_dealloc(PyObject *object)
{
    Py_CLEAR(((idle_object *)object)->name);
    ext_state_free(object);
}

static PyMethodDef idle_methods[] = {
    {"__enter__", idle_enter, METH_NOARGS, NULL},   {"__exit__", EXT_METHOD(idle_exit), METH_FASTCALL, NULL},
    {"__aenter__", idle_enter, METH_NOARGS, NULL},  {"__aexit__", EXT_METHOD(idle_async_exit), METH_FASTCALL, NULL},
    {"__reduce__", idle_reduce, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL},
};

static PyMemberDef idle_members[] = {
    {"name", T_OBJECT, offsetof(idle_object, name), READONLY, PyDoc_STR("The stage's name.")},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(idle_doc, "IdleContext(name, *, reset_peak_memory=True, capture_memory=False)\n--\n\n"
                       "A stage's context that does nothing; as a decorator it returns the function itself.");

static PyType_Slot idle_slots[] = {
    {Py_tp_new, idle_new},
    {Py_tp_repr, idle_repr},
    {Py_tp_call, idle_call},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, idle_next},
    {Py_am_await, PyObject_SelfIter},
    {Py_tp_dealloc, idle_dealloc},
    {Py_tp_methods, idle_methods},
    {Py_tp_members, idle_members},
    {Py_tp_doc, (void *)idle_doc},
    {0, NULL},
};

PyType_Spec ext_idle_spec = EXT_TYPES_SPEC("IdleContext", idle_object, idle_slots, Py_TPFLAGS_IMMUTABLETYPE);
