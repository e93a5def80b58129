#include "csrc/stage.h"

#include "csrc/context_stack.h"
#include "csrc/convert.h"

typedef struct {
    PyObject_HEAD
    ext_state *state;   /* held */
    PyObject *stage;    /* str */
    PyObject *replaced; /* list: the defaults that entering replaced, innermost last; NULL for a stage of the context */
} stage_object;

static PyObject *stage_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"stage", "default", NULL};
    PyObject *stage;
    int is_default = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$p:stage", keywords, &stage, &is_default)) {
        return NULL;
    }
    ext_state *state = ext_state_of_type(type);
    stage_object *self = state != NULL ? (stage_object *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        return NULL;
    }
    self->state = ext_state_hold(state);
    self->stage = ext_convert_stage(state, stage, "stage");
    self->replaced = self->stage != NULL && is_default ? PyList_New(0) : NULL;
    if (self->stage == NULL || (is_default && self->replaced == NULL)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *stage_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    stage_object *self = (stage_object *)object;
    if (self->replaced == NULL) {
        return ext_context_stack_push(self->state->stage_variable, self->stage, object) ? Py_NewRef(object) : NULL;
    }
    if (PyList_Append(self->replaced, self->state->default_stage) < 0) {
        return NULL;
    }
    Py_SETREF(self->state->default_stage, Py_NewRef(self->stage));
    return Py_NewRef(object);
}

static bool restore_default(stage_object *self)
{
    Py_ssize_t depth = PyList_GET_SIZE(self->replaced);
    if (depth == 0) {
        PyErr_Format(PyExc_RuntimeError, "%R is not entered", self);
        return false;
    }
    Py_SETREF(self->state->default_stage, Py_NewRef(PyList_GET_ITEM(self->replaced, depth - 1)));
    return PyList_SetSlice(self->replaced, depth - 1, depth, NULL) == 0;
}

static PyObject *stage_exit(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    (void)args;
    (void)nargs;
    stage_object *self = (stage_object *)object;
    bool left =
        self->replaced == NULL ? ext_context_stack_pop(self->state->stage_variable, object, object) : restore_default(self);
    if (!left) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *stage_repr(PyObject *object)
{
    stage_object *self = (stage_object *)object;
    return PyUnicode_FromFormat(self->replaced != NULL ? "stage(%A, default=True)" : "stage(%A)", self->stage);
}

static int stage_traverse(PyObject *object, visitproc visit, void *arg)
{
    stage_object *self = (stage_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->replaced);
    return 0;
}

static void stage_dealloc(PyObject *object)
{
    stage_object *self = (stage_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_CLEAR(self->stage);
    Py_CLEAR(self->replaced);
    ext_state_release(self->state);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef stage_methods[] = {
    {"__enter__", stage_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))stage_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(stage_doc, "stage(stage, *, default=False)\n--\n\n"
                        "Context manager: the execution stage of the calls that start inside.\n\n"
                        "stage: a str of at most 4,096 bytes of UTF-8 without NUL, or an enum whose value is one (an enum\n"
                        "    and its value are one stage).\n"
                        "default: False, the stage of this thread or task (a context variable: new threads do not inherit\n"
                        "    it); True, the stage of all threads and tasks that are inside no stage() of their own.\n\n"
                        "One object may be entered again and by many threads and tasks at once.\n"
                        "Raises TypeError or ValueError for a stage that is none, and RuntimeError when left without\n"
                        "having been entered.");

static PyType_Slot stage_slots[] = {
    {Py_tp_new, stage_new},
    {Py_tp_repr, stage_repr},
    {Py_tp_traverse, stage_traverse},
    {Py_tp_dealloc, stage_dealloc},
    {Py_tp_methods, stage_methods},
    {Py_tp_doc, (void *)stage_doc},
    {0, NULL},
};

PyType_Spec ext_stage_spec = {
    .name = "cprofiling._core.stage",
    .basicsize = sizeof(stage_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = stage_slots,
};
