#include "csrc/types.h"

/* Stands in a class for a method of its bases, which may be replaced there at any time: as super() it looks each time. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *owner; /* the class; owned, as are the next */
    PyObject *name;
    PyObject *found; /* what there was when this was made: tells how the method looks */
} inherited;

PyObject *ext_inherited_found(PyObject *object)
{
    return ((inherited *)object)->found;
}

/* The method of an instance, or, without one, of a class, as it is now: a new reference, or NULL with an exception. */
static PyObject *find(const inherited *self, PyObject *instance_or_class)
{
    PyObject *bases = PyObject_CallFunctionObjArgs((PyObject *)&PySuper_Type, self->owner, instance_or_class, NULL);
    PyObject *method = bases != NULL ? PyObject_GetAttr(bases, self->name) : NULL;
    Py_XDECREF(bases);
    return method;
}

/* Called as the function would be: with the instance first. */
static PyObject *inherited_vectorcall(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    inherited *self = (inherited *)object;
    size_t nargs = (size_t)PyVectorcall_NARGS(nargsf);
    if (nargs == 0 || !PyObject_TypeCheck(args[0], (PyTypeObject *)self->owner)) {
        return PyObject_Vectorcall(self->found, args, nargs, kwnames);
    }
    PyObject *method = find(self, args[0]);
    PyObject *result = method != NULL ? PyObject_Vectorcall(method, args + 1, nargs - 1, kwnames) : NULL;
    Py_XDECREF(method);
    return result;
}

static PyObject *inherited_get(PyObject *object, PyObject *instance, PyObject *owner)
{
    return find((inherited *)object, instance != NULL ? instance : owner);
}

/* It looks as the method does. */
static PyObject *inherited_getattro(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(object, name);
    if (value != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return value;
    }
    PyErr_Clear();
    return PyObject_GetAttr(((inherited *)object)->found, name);
}

static PyObject *inherited_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"owner", "name", "found", NULL};
    PyObject *owner, *name, *found;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!UO:Inherited", keywords, &PyType_Type, &owner, &name, &found)) {
        return NULL;
    }
    inherited *self = (inherited *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = inherited_vectorcall;
        self->owner = Py_NewRef(owner);
        self->name = Py_NewRef(name);
        self->found = Py_NewRef(found);
    }
    return (PyObject *)self;
}

static PyObject *inherited_reduce(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const inherited *self = (inherited *)object;
    return Py_BuildValue("O(OOO)", Py_TYPE(object), self->owner, self->name, self->found);
}

static int inherited_traverse(PyObject *object, visitproc visit, void *arg)
{
    const inherited *self = (inherited *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->owner);
    Py_VISIT(self->found);
    return 0;
}

/* The class breaks the cycle: a call may still come while it is taken apart. */
static void inherited_dealloc(PyObject *object)
{
    inherited *self = (inherited *)object;
    PyObject_GC_UnTrack(object);
    Py_CLEAR(self->owner);
    Py_CLEAR(self->name);
    Py_CLEAR(self->found);
    ext_state_free(object);
}

static PyMethodDef inherited_methods[] = {
    {"__reduce__", inherited_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef inherited_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(inherited, vectorcall), READONLY, NULL},
    {"__wrapped__", T_OBJECT, offsetof(inherited, found), READONLY, PyDoc_STR("What was inherited when this was made.")},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot inherited_slots[] = {
    {Py_tp_new, inherited_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, inherited_get},
    {Py_tp_getattro, inherited_getattro},
    {Py_tp_traverse, inherited_traverse},
    {Py_tp_dealloc, inherited_dealloc},
    {Py_tp_methods, inherited_methods},
    {Py_tp_members, inherited_members},
    {Py_tp_doc, (void *)"A method that a class inherits, which may be replaced in its bases at any time."},
    {0, NULL},
};

PyType_Spec ext_inherited_spec = EXT_TYPES_SPEC("Inherited", inherited, inherited_slots,
                                                Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE);
