#include "csrc/types.h"

#include "csrc/convert.h"
#include "csrc/calls/opening.h"
#include "csrc/profiler.h"

#include "cprofiling/trace/recording.h"

typedef struct {
    PyObject_HEAD
    ext_opening opening;
    ext_profiler *profiler; /* of all that are record(): has the gate. Owned */
    PyObject *name;         /* str; owned */
    PyObject *weakrefs;
    bool warm_up;
} record_object;

/* A new reference; NULL with an exception. */
static inline PyObject *checked_name(PyObject *name)
{
    if (__builtin_expect(ext_convert_is_plain_name(name), 1)) {
        return Py_NewRef(name);
    }
    if (PyFunction_Check(name)) {
        PyErr_Format(PyExc_TypeError, "name must be a str, got %R: as a decorator, record() is called with a name", name);
        return NULL;
    }
    return ext_convert_name(name, "name");
}

static PyObject *make(PyTypeObject *type, ext_profiler *profiler, PyObject *name, bool warm_up)
{
    name = checked_name(name);
    record_object *self = name != NULL ? PyObject_New(record_object, type) : NULL;
    if (self == NULL) {
        Py_XDECREF(name);
        return NULL;
    }
    ext_opening_init(&self->opening, &profiler->registry->epoch.state);
    self->profiler = (ext_profiler *)Py_NewRef((PyObject *)profiler);
    self->name = name;
    self->weakrefs = NULL;
    self->warm_up = warm_up;
    return (PyObject *)self;
}

static PyObject *record_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"name", "args", "warm_up", NULL};
    PyObject *name, *ignored = Py_None, *warm_up = Py_False;
    bool warms_up = false;
    if (PyTuple_GET_SIZE(args) > 2) {
        PyErr_Format(
            PyExc_TypeError,
            "record(name) labels a block, and takes one name, got %zd arguments: Profiler.record(stage, node_name, elapsed_ms) "
            "counts a call",
            PyTuple_GET_SIZE(args));
        return NULL;
    }
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O$O:record", keywords, &name, &ignored, &warm_up) ||
        !ext_convert_flag(warm_up, "warm_up", &warms_up)) {
        return NULL;
    }
    if (ignored != Py_None && !PyUnicode_Check(ignored)) {
        ext_convert_refuse_type("args", "a str or None", ignored);
        return NULL;
    }
    ext_state *state = ext_state_of_type(type);
    if (state == NULL || state->record_profiler == NULL) {
        return ext_state_ending();
    }
    return make(type, (ext_profiler *)state->record_profiler, name, warms_up);
}

/* record("name"), which programs write in their loops, without a tuple of arguments. */
static PyObject *record_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyTypeObject *type = (PyTypeObject *)callable;
    PyObject *module = ((PyHeapTypeObject *)type)->ht_module; /* NULL: the interpreter is ending */
    ext_state *state = __builtin_expect(module != NULL, 1) ? ext_state_of_module(module) : NULL;
    if (__builtin_expect(PyVectorcall_NARGS(nargsf) == 1 && kwnames == NULL && state != NULL && state->record_profiler != NULL,
                         1)) {
        return make(type, (ext_profiler *)state->record_profiler, args[0], false);
    }
    return ext_convert_call(type, record_new, args, (size_t)PyVectorcall_NARGS(nargsf), kwnames);
}

void ext_record_prepare(PyTypeObject *type)
{
    type->tp_vectorcall = record_vectorcall;
}

/* As for nodes: where nothing is recorded, but the object is open further out, a span marks the place. */
static cprof_span *open_record(ext_opening *opening, ext_view *view, PyObject *arguments)
{
    record_object *self = (record_object *)((char *)opening - offsetof(record_object, opening));
    ext_state *state = self->profiler->state;
    uint64_t flags = atomic_load_explicit(opening->gate, memory_order_relaxed) & EXT_LABEL_FLAGS;
    ext_label_number number = {0, 0};
    if ((flags & CPROF_FLAG_TRACE) != 0) {
        ext_compat_intern(&self->name);
        number = ext_key_label(state, view->stage != NULL ? view->stage : state->default_stage, self->name);
    }
    if (number.label == 0 && opening->open == 0) {
        return NULL;
    }
    ext_target target = {.state = number.label != 0 ? flags : 0};
    cprof_span *span = ext_opening_put_span(opening, view, &target, arguments);
    if (span == NULL) {
        state->internal_errors++;
        return NULL;
    }
    cprof_recording_set_label(span, number.serial, number.label);
    if (self->warm_up) {
        cprof_recording_mute(span);
    }
    return span;
}

static PyObject *record_enter(PyObject *object, PyObject *Py_UNUSED(unused))
{
    record_object *self = (record_object *)object;
    EXT_ALONE(object, {
        if (!ext_opening_enter_quickly(&self->opening)) {
            ext_opening_enter_slowly(&self->opening, self->profiler->state, open_record, NULL);
        }
    });
    return Py_NewRef(object);
}

static PyObject *record_exit(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    record_object *self = (record_object *)object;
    PyObject *left;
    EXT_ALONE(object,
              left = ext_opening_exit_quickly(&self->opening)
                         ? Py_NewRef(Py_None)
                         : ext_opening_exit_slowly(&self->opening, self->profiler->state, args, nargs, "record", self->name));
    return left;
}

EXT_READY_METHODS(record, ((record_object *)object)->profiler->state)

static PyObject *record_call(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", NULL};
    record_object *self = (record_object *)object;
    PyObject *function;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:record", keywords, &function)) {
        return NULL;
    }
    PyObject *wrapper = self->profiler->state->record_wrapper;
    return wrapper != NULL
               ? PyObject_CallFunctionObjArgs(wrapper, function, self->name, self->warm_up ? Py_True : Py_False, NULL)
               : ext_state_ending();
}

static PyObject *record_repr(PyObject *object)
{
    record_object *self = (record_object *)object;
    return PyUnicode_FromFormat(self->warm_up ? "record(%A, warm_up=True)" : "record(%A)", self->name);
}

static PyObject *record_reduce(PyObject *object, PyObject *Py_UNUSED(unused))
{
    record_object *self = (record_object *)object;
    return ext_convert_reduce(object, Py_BuildValue("(O)", self->name),
                              Py_BuildValue("{sO}", "warm_up", self->warm_up ? Py_True : Py_False));
}

static void record_dealloc(PyObject *object)
{
    record_object *self = (record_object *)object;
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    ext_opening_clear(&self->opening, self->profiler->state->guard);
    Py_DECREF(self->name);
    Py_DECREF(self->profiler);
    ext_state_free(object);
}

static PyMethodDef record_methods[] = {
    {"__enter__", record_enter, METH_NOARGS, PyDoc_STR("Opens the block.")},
    {"__exit__", EXT_METHOD(record_exit), METH_FASTCALL,
     PyDoc_STR("Closes the block, wherever it was opened. RuntimeError when it is not open.")},
    {"__aenter__", record_aenter, METH_NOARGS, PyDoc_STR("Opens the block in the running task.")},
    {"__aexit__", EXT_METHOD(record_aexit), METH_FASTCALL, PyDoc_STR("Closes the block in the running task.")},
    {"__reduce__", record_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef record_members[] = {
    {"name", T_OBJECT, offsetof(record_object, name), READONLY, PyDoc_STR("The label.")},
    {"warm_up", T_BOOL, offsetof(record_object, warm_up), READONLY, PyDoc_STR("Whether nothing is recorded inside.")},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(record_object, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(record_doc,
             "record(name, args=None, *, warm_up=False)\n--\n\n"
             "Labels a block of a recording, or, as a decorator, the calls of a function.\n\n"
             "name: a str of at most 4,096 bytes of UTF-8 without NUL.\n"
             "args: a str or None, which torch.profiler's record_function has; it is not recorded.\n"
             "warm_up: record neither the block nor anything inside it; threads that it starts are not inside.\n\n"
             "While no recording runs it does nothing, at next to no cost. One object may be entered again, nested in\n"
             "itself, and by many threads and tasks at once. Decorated generators and coroutines are recorded from\n"
             "their first resumption to their end, as nodes are.\n"
             "Raises TypeError or ValueError for a name that is none, and RuntimeError when left without having been\n"
             "entered.");

static PyType_Slot record_slots[] = {
    {Py_tp_new, record_new},         {Py_tp_repr, record_repr},
    {Py_tp_call, record_call},       {Py_tp_dealloc, record_dealloc},
    {Py_tp_methods, record_methods}, {Py_tp_members, record_members},
    {Py_tp_doc, (void *)record_doc}, {0, NULL},
};

PyType_Spec ext_record_spec = EXT_TYPES_SPEC("record", record_object, record_slots, Py_TPFLAGS_IMMUTABLETYPE);
