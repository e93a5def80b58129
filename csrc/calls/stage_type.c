#include "csrc/calls/stage.h"

#include "csrc/calls/view.h"
#include "csrc/convert.h"
#include "csrc/types.h"

typedef struct {
    PyObject_HEAD
    ext_state *state;  /* held */
    PyObject *stage;   /* str */
    PyObject *entries; /* where it is in force: see context.h; NULL: it never was. Owned */
    PyObject *weakrefs;
    bool is_default; /* of all threads: it is in force where it stands last in state->defaults */
} stage_object;

static PyObject *stage_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"stage", "default", NULL};
    PyObject *stage, *default_value = Py_False;
    bool is_default = false;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O:stage", keywords, &stage, &default_value) ||
        !ext_convert_flag(default_value, "default", &is_default)) {
        return NULL;
    }
    ext_state *state = ext_state_of_type(type);
    stage_object *self = state != NULL ? (stage_object *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        return NULL;
    }
    self->state = ext_state_hold(state);
    self->stage = ext_convert_stage(state, stage, "stage");
    self->is_default = is_default;
    if (self->stage == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* The stage of calls outside any stage: that of the last default entered that was not left yet. */
static void set_default(ext_state *state)
{
    Py_ssize_t count = PyList_GET_SIZE(state->defaults);
    PyObject *stage = count > 0 ? ((stage_object *)PyList_GET_ITEM(state->defaults, count - 1))->stage : state->first_stage;
    Py_INCREF(stage);
#if EXT_FREE_THREADED
    PyUnicode_InternInPlace(&stage); /* then it lives for ever: others may use what is replaced */
#endif
    Py_SETREF(state->default_stage, stage);
}

enum { MOST_NOTED = 64 }; /* stages; there may be one for each request */

/* Notes an entry of a stage by its number, or, with 0, that a node ran in it: then it need not be noted again. */
static void note(ext_state *state, PyObject *stage, bool is_entry)
{
    if (state->entered_stages == NULL) {
        return; /* the interpreter is ending */
    }
    PyObject *known = PyDict_GetItemWithError(state->entered_stages, stage);
    if (known != NULL ? PyLong_AsLongLong(known) <= 0 : PyDict_GET_SIZE(state->entered_stages) >= MOST_NOTED) {
        return;
    }
    PyObject *number = PyLong_FromUnsignedLongLong(is_entry ? ++state->stage_entries : 0);
    if (number == NULL || PyDict_SetItem(state->entered_stages, stage, number) < 0) {
        PyErr_Clear(); /* of memory: then it is not told */
    }
    Py_XDECREF(number);
}

void ext_stage_note_node(ext_state *state, PyObject *stage)
{
    note(state, stage, false);
}

static PyObject *stages_without_nodes(const ext_state *state, uint64_t since)
{
    PyObject *found = PyList_New(0);
    PyObject *stage, *entry;
    Py_ssize_t place = 0;
    while (found != NULL && state->entered_stages != NULL && PyDict_Next(state->entered_stages, &place, &stage, &entry)) {
        if (PyLong_AsUnsignedLongLong(entry) > since && PyList_Append(found, stage) < 0) {
            Py_CLEAR(found);
        }
    }
    return found;
}

PyObject *ext_stage_without_nodes(ext_state *state, uint64_t since)
{
    PyObject *found;
    EXT_ALONE(state->guard, found = stages_without_nodes(state, since));
    return found;
}

static PyObject *enter(stage_object *self)
{
    PyObject *object = (PyObject *)self;
    ext_state *state = self->state;
    if (state->profilers_on > 0) {
        note(state, self->stage, true);
    }
    if (!self->is_default) {
        return ext_view_push(state, state->stage_variable, self->stage, &self->entries) ? Py_NewRef(object) : NULL;
    }
    if (state->defaults != NULL) { /* else the interpreter is ending */
        if (PyList_Append(state->defaults, object) < 0) {
            return NULL;
        }
        set_default(state);
    }
    return Py_NewRef(object);
}

static PyObject *stage_enter(PyObject *object, PyObject *Py_UNUSED(unused))
{
    stage_object *self = (stage_object *)object;
    PyObject *entered;
    EXT_ALONE(self->state->guard, entered = enter(self));
    return entered;
}

/* Others may have been entered since, and stay in force. */
static bool leave_default(stage_object *self)
{
    ext_state *state = self->state;
    Py_ssize_t at = state->defaults != NULL ? PyList_GET_SIZE(state->defaults) : 0;
    while (at > 0 && PyList_GET_ITEM(state->defaults, at - 1) != (PyObject *)self) {
        at--;
    }
    if (at == 0 && state->defaults != NULL) {
        PyErr_Format(PyExc_RuntimeError, "%R is not entered", self);
        return false;
    }
    if (at > 0) {
        if (PyList_SetSlice(state->defaults, at - 1, at, NULL) < 0) {
            return false;
        }
        set_default(state);
    }
    return true;
}

static PyObject *stage_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(nargs))
{
    stage_object *self = (stage_object *)object;
    bool left;
    EXT_ALONE(self->state->guard, left = self->is_default
                                             ? leave_default(self)
                                             : ext_view_pop(self->state, self->state->stage_variable, self->entries, object));
    if (!left) {
        return NULL;
    }
    Py_RETURN_NONE;
}

EXT_READY_METHODS(stage, ((stage_object *)object)->state)

static PyObject *stage_call(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", NULL};
    PyObject *function;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:stage", keywords, &function)) {
        return NULL;
    }
    PyObject *wrapper = ((stage_object *)object)->state->stage_wrapper;
    return wrapper != NULL ? PyObject_CallFunctionObjArgs(wrapper, function, object, NULL) : ext_state_ending();
}

static PyObject *stage_reduce(PyObject *object, PyObject *Py_UNUSED(unused))
{
    stage_object *self = (stage_object *)object;
    return ext_convert_reduce(object, Py_BuildValue("(O)", self->stage),
                              Py_BuildValue("{sO}", "default", self->is_default ? Py_True : Py_False));
}

static PyObject *stage_repr(PyObject *object)
{
    stage_object *self = (stage_object *)object;
    return PyUnicode_FromFormat(self->is_default ? "stage(%A, default=True)" : "stage(%A)", self->stage);
}

static int stage_traverse(PyObject *object, visitproc visit, void *arg)
{
    stage_object *self = (stage_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->entries);
    return 0;
}

static void stage_dealloc(PyObject *object)
{
    stage_object *self = (stage_object *)object;
    PyObject_GC_UnTrack(object);
    PyObject_ClearWeakRefs(object);
    Py_CLEAR(self->stage);
    Py_CLEAR(self->entries);
    ext_state_release(self->state);
    ext_state_free(object);
}

static PyMethodDef stage_methods[] = {
    {"__enter__", stage_enter, METH_NOARGS, NULL},   {"__exit__", EXT_METHOD(stage_exit), METH_FASTCALL, NULL},
    {"__aenter__", stage_aenter, METH_NOARGS, NULL}, {"__aexit__", EXT_METHOD(stage_aexit), METH_FASTCALL, NULL},
    {"__reduce__", stage_reduce, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL},
};

static PyMemberDef stage_members[] = {
    {"stage", T_OBJECT_EX, offsetof(stage_object, stage), READONLY, PyDoc_STR("The stage, a str.")},
    {"default", T_BOOL, offsetof(stage_object, is_default), READONLY,
     PyDoc_STR("Whether it is that of all threads and tasks.")},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(stage_object, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(stage_doc, "stage(stage, *, default=False)\n--\n\n"
                        "Sets the execution stage of the calls that start inside a block or a function.\n\n"
                        "Used as ``with stage(\"train\"):``, ``async with stage(\"train\"):`` or ``@stage(\"train\")``.\n\n"
                        "stage: a str of at most 4,096 bytes of UTF-8 without NUL, or an enum whose value is one (an enum\n"
                        "    and its value are one stage).\n"
                        "default: False, the stage of this thread or task (a context variable: new threads do not inherit\n"
                        "    it); True, the stage of all threads and tasks that are inside no stage() of their own. Of\n"
                        "    several that are entered the last one counts.\n\n"
                        "One object may be entered again and by many threads and tasks at once, and left in any of them.\n"
                        "A decorated coroutine, generator, asynchronous generator or context manager is in the stage while\n"
                        "it runs: not its consumer or the body of the with, nor others while it waits.\n"
                        "Raises TypeError or ValueError for a stage that is none, TypeError for a default that is no bool,\n"
                        "and RuntimeError when left without having been entered.");

static PyType_Slot stage_slots[] = {
    {Py_tp_new, stage_new},         {Py_tp_repr, stage_repr},       {Py_tp_traverse, stage_traverse},
    {Py_tp_dealloc, stage_dealloc}, {Py_tp_call, stage_call},       {Py_tp_methods, stage_methods},
    {Py_tp_members, stage_members}, {Py_tp_doc, (void *)stage_doc}, {0, NULL},
};

PyType_Spec ext_stage_spec = EXT_TYPES_SPEC("stage", stage_object, stage_slots, Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE);
