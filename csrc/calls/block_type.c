#include "csrc/types.h"

#include "csrc/convert.h"
#include "csrc/calls/opening.h"

typedef struct {
    PyObject_HEAD
    ext_opening opening;
    ext_node node;
    PyObject *weakrefs;
} block_object;

static PyObject *block_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"name", "stage", "profiler", NULL};
    PyObject *name, *stage, *profiler;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:Block", keywords, &name, &stage, &profiler)) {
        return NULL;
    }
    ext_state *state = ext_state_of_type(type);
    block_object *self = state != NULL ? (block_object *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        return NULL;
    }
    if (!ext_node_init(&self->node, state, name, Py_None, stage, profiler)) {
        Py_DECREF(self);
        return NULL;
    }
    ext_opening_init(&self->opening, ext_node_gate(&self->node));
    if (self->node.key.name == NULL) {
        self->opening.quick_thread = NULL; /* it cannot be entered */
    }
    return (PyObject *)self;
}

/* Opens a span; while nothing is measured but the block is open further out, one that only marks the place, so that each exit
 * finds its own entry. */
static cprof_span *open_block(ext_opening *opening, ext_view *view, PyObject *arguments)
{
    block_object *self = (block_object *)((char *)opening - offsetof(block_object, opening));
    ext_target target;
    ext_profiler *profiler = ext_node_find_profiler(&self->node, view, NULL);
    bool measured = ext_node_resolve(&self->node, view, profiler, NULL, &target);
    if (!measured && opening->open == 0) {
        return NULL;
    }
    if (!measured) {
        target = (ext_target){.profiler = NULL};
    }
    cprof_span *span = ext_opening_put_span(opening, view, &target, arguments);
    if (span == NULL) {
        self->node.state->internal_errors++;
        Py_XDECREF(target.profiler);
    }
    return span;
}

static __attribute__((noinline)) PyObject *enter_slowly(block_object *self, PyObject *arguments)
{
    if (self->node.key.name == NULL) {
        PyErr_SetString(PyExc_TypeError, "profile_node needs a name (a str) to be used as a context manager");
        return NULL;
    }
    ext_opening_enter_slowly(&self->opening, self->node.state, open_block, arguments);
    return Py_NewRef((PyObject *)self);
}

/* While off, this and block_exit are leaves: they save no register. */
static PyObject *block_enter(PyObject *object, PyObject *Py_UNUSED(unused))
{
    block_object *self = (block_object *)object;
    PyObject *entered;
    EXT_ALONE(object, entered = ext_opening_enter_quickly(&self->opening) ? Py_NewRef(object) : enter_slowly(self, NULL));
    return entered;
}

static PyObject *block_enter_call(PyObject *object, PyObject *arguments)
{
    block_object *self = (block_object *)object;
    if (!PyTuple_Check(arguments)) {
        ext_convert_refuse_type("arguments", "a tuple", arguments);
        return NULL;
    }
    PyObject *entered;
    EXT_ALONE(object, entered = ext_opening_enter_quickly(&self->opening) ? Py_NewRef(object) : enter_slowly(self, arguments));
    return entered;
}

static PyObject *block_exit(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    block_object *self = (block_object *)object;
    PyObject *left;
    EXT_ALONE(object, left = ext_opening_exit_quickly(&self->opening)
                                 ? Py_NewRef(Py_None)
                                 : ext_opening_exit_slowly(&self->opening, self->node.state, args, nargs, "profile_node",
                                                           self->node.key.name != NULL ? self->node.key.name : Py_None));
    return left;
}

EXT_READY_METHODS(block, ((block_object *)object)->node.state)

static PyObject *block_repr(PyObject *object)
{
    block_object *self = (block_object *)object;
    return PyUnicode_FromFormat("profile_node(%A)", self->node.key.name != NULL ? self->node.key.name : Py_None);
}

static PyObject *block_name(PyObject *object, void *Py_UNUSED(unused))
{
    block_object *self = (block_object *)object;
    return Py_NewRef(self->node.name_finder != NULL ? self->node.name_finder
                     : self->node.key.name != NULL  ? self->node.key.name
                                                    : Py_None);
}

static int block_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    return ext_node_traverse(&((block_object *)object)->node, visit, arg);
}

static void block_dealloc(PyObject *object)
{
    block_object *self = (block_object *)object;
    PyObject_GC_UnTrack(object);
    PyObject_ClearWeakRefs(object);
    ext_opening_clear(&self->opening, self->node.state->guard);
    ext_node_clear(&self->node);
    ext_state_free(object);
}

static PyObject *block_own_methods(PyObject *cls, PyObject *unused);

static PyMethodDef block_methods[] = {
    {"__enter__", block_enter, METH_NOARGS, PyDoc_STR("Opens the block. TypeError when the node has no name.")},
    {"_enter_call", block_enter_call, METH_O, PyDoc_STR("Opens the block for a call with a tuple of arguments.")},
    {"__exit__", EXT_METHOD(block_exit), METH_FASTCALL,
     PyDoc_STR("Closes the block, wherever it was opened. RuntimeError when it is not open.")},
    {"__aenter__", block_aenter, METH_NOARGS, PyDoc_STR("Opens the block in the running task.")},
    {"__aexit__", EXT_METHOD(block_aexit), METH_FASTCALL, PyDoc_STR("Closes the block in the running task.")},
    {"own_methods", block_own_methods, METH_NOARGS | METH_CLASS, PyDoc_STR("Gives a subclass methods of its own.")},
    {NULL, NULL, 0, NULL},
};

/* An inherited method looks along the bases of its object's type, each time that it is bound; that takes longer than all that
 * we do ourselves while nothing is measured. */
static PyObject *block_own_methods(PyObject *cls, PyObject *Py_UNUSED(unused))
{
    for (PyMethodDef *method = block_methods; method->ml_name != NULL; method++) {
        if ((method->ml_flags & METH_CLASS) != 0) {
            continue;
        }
        PyObject *own = PyDescr_NewMethod((PyTypeObject *)cls, method);
        bool is_set = own != NULL && PyObject_SetAttrString(cls, method->ml_name, own) == 0;
        Py_XDECREF(own);
        if (!is_set) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyGetSetDef block_getset[] = {
    {"name", block_name, NULL, PyDoc_STR("The node's name, the callable that finds it, or None."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef block_members[] = {
    {"stage", T_OBJECT, offsetof(block_object, node.stage), READONLY, PyDoc_STR("The explicit stage, or None.")},
    {"profiler", T_OBJECT, offsetof(block_object, node.profiler), READONLY, PyDoc_STR("The explicit Profiler, or None.")},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(block_object, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot block_slots[] = {
    {Py_tp_new, block_new},
    {Py_tp_repr, block_repr},
    {Py_tp_traverse, block_traverse},
    {Py_tp_dealloc, block_dealloc},
    {Py_tp_methods, block_methods},
    {Py_tp_getset, block_getset},
    {Py_tp_members, block_members},
    {Py_tp_doc, (void *)"Block(name, stage, profiler)\n--\n\nA block of code that counts as a node's call."},
    {0, NULL},
};

PyType_Spec ext_block_spec = EXT_TYPES_SPEC("Block", block_object, block_slots, Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE);
