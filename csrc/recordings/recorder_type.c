#include "csrc/recordings/recorder.h"

#include "csrc/convert.h"
#include "csrc/fault.h"
#include "csrc/calls/record.h"
#include "csrc/recordings/recording.h"

typedef struct {
    PyObject_HEAD
    ext_state *state;                 /* held */
    cprof_recording_session *session; /* owned; NULL: it has ended */
} recorder_object;

/* ---- What a recording wants to know beyond times */

/* A text of the finder's as a label of the recording; 0 for None. False with an exception. */
static bool label_of_text(PyObject *text, uint32_t serial, uint32_t *label)
{
    cprof_name utf8;
    PyObject *owner;
    *label = 0;
    if (text == Py_None) {
        return true;
    }
    if (!PyUnicode_Check(text)) {
        ext_convert_refuse_type("description", "a str or None", text);
        return false;
    }
    if (!ext_convert_utf8(text, &utf8, &owner)) {
        return false;
    }
    *label = cprof_recording_text(serial, utf8);
    Py_DECREF(owner);
    return true;
}

static bool ask_for_texts(PyObject *finder, PyObject *const *args, size_t nargs, PyObject *kwnames,
                          struct cprof_recording_detail *detail)
{
    PyObject *arguments = ext_convert_arguments(args, nargs, kwnames);
    PyObject *texts = arguments != NULL ? PyObject_CallOneArg(finder, arguments) : NULL;
    Py_XDECREF(arguments);
    detail->serial = atomic_load(&cprof_recording.serial); /* it may be another recording by now */
    PyObject *shapes, *types, *stack;
    bool known = texts != NULL && PyArg_ParseTuple(texts, "OOO", &shapes, &types, &stack) &&
                 label_of_text(shapes, detail->serial, &detail->shapes) &&
                 label_of_text(types, detail->serial, &detail->types) && label_of_text(stack, detail->serial, &detail->stack);
    Py_XDECREF(texts);
    return known;
}

/* The figures of the framework's allocator: (bytes in use, the most there were), or None. */
static bool ask_for_device_memory(PyObject *finder, cprof_recording_memory *memory)
{
    long long in_use, peak;
    PyObject *answer = PyObject_CallNoArgs(finder);
    bool known = answer != NULL && (answer == Py_None || PyArg_ParseTuple(answer, "LL", &in_use, &peak));
    if (known && answer != Py_None) {
        memory->device_memory = in_use;
        memory->device_memory_peak = peak;
    }
    Py_XDECREF(answer);
    return known;
}

/* All that is asked runs code of the package's, and of the user's, whose exceptions are not the user's call's. */
static bool ask_for_memory(ext_state *state, cprof_recording_memory *memory)
{
    *memory = cprof_recording_memory_now();
    PyObject *finder = Py_XNewRef(state->device_memory_finder);
    bool known = finder == NULL || ask_for_device_memory(finder, memory);
    Py_XDECREF(finder);
    return known;
}

static bool describe(ext_state *state, PyObject *const *args, size_t nargs, PyObject *kwnames,
                     struct cprof_recording_detail *detail)
{
    PyObject *finder = Py_XNewRef(state->describer);
    bool known = finder == NULL || ask_for_texts(finder, args, nargs, kwnames, detail);
    Py_XDECREF(finder);
    if (!known) {
        return false;
    }
    return !state->wants_memory || ask_for_memory(state, &detail->memory);
}

void ext_recorder_describe(ext_view *view, PyObject *const *args, size_t nargs, PyObject *kwnames,
                           struct cprof_recording_detail *detail)
{
    static const int64_t none = CPROF_TABLE_UNKNOWN;
    *detail = (struct cprof_recording_detail){.memory = {none, none, none, none}};
    if (view->describing || cprof_recording_is_muted(cprof_chain_top(&view->chain))) {
        return;
    }
    ext_compat_error error = ext_compat_take_error();
    view->describing = true;
    if (!describe(view->state, args, nargs, kwnames, detail)) {
        ext_fault_forget();
        view->state->internal_errors++;
    }
    view->describing = false;
    ext_compat_restore_error(error);
}

void ext_recorder_end_detail(ext_state *state, cprof_span *span)
{
    if (span->detail == NULL || !state->wants_memory) {
        return;
    }
    ext_compat_error error = ext_compat_take_error();
    cprof_recording_memory now;
    if (!ask_for_memory(state, &now)) {
        ext_fault_forget();
        state->internal_errors++;
    }
    cprof_recording_end_detail(span, &now);
    ext_compat_restore_error(error);
}

/* ---- The recorder */

static void set_running(ext_state *state, bool runs)
{
    state->recording = runs;
    ext_state_set_gate(state);
}

static PyObject *refuse_start(cprof_status status, PyObject *capacity)
{
    if (status == CPROF_IN_USE) {
        PyErr_SetString(PyExc_RuntimeError, "a recording is running already: there can be one at a time in a process");
    } else if (status == CPROF_OUT_OF_RANGE) {
        PyErr_Format(PyExc_ValueError, "capacity must be from %d to %d events, got %S", CPROF_RECORDING_LEAST_CAPACITY,
                     CPROF_RECORDING_MOST_CAPACITY, capacity);
    } else {
        return ext_convert_status(status, "profile");
    }
    return NULL;
}

/* What the calls of the recording are to be asked. */
static void set_questions(ext_state *state, PyObject *describer, bool memory, PyObject *device_memory)
{
    ext_state_set(&state->describer, describer);
    ext_state_set(&state->device_memory_finder, device_memory);
    state->wants_memory = memory || device_memory != Py_None;
}

static PyObject *recorder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"capacity",      "drop_newest", "describer",    "memory",
                               "device_memory", "hosts",       "synchronizes", NULL};
    PyObject *capacity, *describer, *device_memory;
    int drop_newest, memory, hosts, synchronizes = false;
    cprof_recording_options options = {.owner = 0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OpOpOp|p:Recorder", keywords, &capacity, &drop_newest, &describer, &memory,
                                     &device_memory, &hosts, &synchronizes) ||
        !ext_convert_count(capacity, "capacity", &options.capacity)) {
        return NULL;
    }
    ext_state *state = ext_state_of_type(type);
    recorder_object *self = state != NULL ? (recorder_object *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        return NULL;
    }
    self->state = ext_state_hold(state);
    options.owner = state->serial;
    options.drop_newest = drop_newest;
    options.hosts = hosts;
    options.synchronizes = synchronizes;
    options.details = describer != Py_None || memory || device_memory != Py_None;
    cprof_status status;
    Py_BEGIN_ALLOW_THREADS
    status = cprof_recording_start(&options, &self->session);
    Py_END_ALLOW_THREADS
    if (status != CPROF_OK) {
        Py_DECREF(self);
        return refuse_start(status, capacity);
    }
    state->recorder = self;
    set_questions(state, describer, memory, device_memory);
    set_running(state, true);
    return (PyObject *)self;
}

static PyObject *recorder_pause(PyObject *object, PyObject *unused)
{
    (void)unused;
    recorder_object *self = (recorder_object *)object;
    if (self->session != NULL && self->state->recorder == self) {
        cprof_recording_pause(self->session);
        set_running(self->state, false);
    }
    Py_RETURN_NONE;
}

static PyObject *recorder_resume(PyObject *object, PyObject *unused)
{
    (void)unused;
    recorder_object *self = (recorder_object *)object;
    if (self->session != NULL && self->state->recorder == self) {
        set_running(self->state, true);
        cprof_recording_resume(self->session);
    }
    Py_RETURN_NONE;
}

static void end(recorder_object *self, cprof_table *table, cprof_status *status)
{
    cprof_recording_session *session = self->session;
    bool is_current = self->state->recorder == self; /* not so in a forked child that has begun another one */
    self->session = NULL;
    if (is_current) {
        set_running(self->state, false);
    }
    *status = cprof_recording_finish(session, table, true); /* with the GIL, so that nobody opens or closes spans meanwhile */
    if (is_current) {
        ext_record_forget_labels(self->state);
        set_questions(self->state, Py_None, false, Py_None);
    }
}

static PyObject *recorder_finish(PyObject *object, PyObject *type)
{
    recorder_object *self = (recorder_object *)object;
    if (self->session == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the recording has ended");
        return NULL;
    }
    if (!PyType_Check(type) || self->state->recording_type == NULL ||
        !PyType_IsSubtype((PyTypeObject *)type, self->state->recording_type)) {
        ext_convert_refuse_type("type", "a subclass of Recording", type);
        return NULL;
    }
    cprof_table *table = cprof_table_create();
    if (table == NULL) {
        return PyErr_NoMemory();
    }
    cprof_status status;
    end(self, table, &status);
    if (status != CPROF_OK) {
        cprof_table_destroy(table);
        return ext_convert_status(status, "finish");
    }
    return ext_recording_new((PyTypeObject *)type, table);
}

static PyObject *recorder_step(PyObject *object, PyObject *name)
{
    recorder_object *self = (recorder_object *)object;
    cprof_names names = {{"", 0}, {"", 0}};
    PyObject *owner;
    if (!PyUnicode_Check(name)) {
        ext_convert_refuse_type("name", "a str", name);
        return NULL;
    }
    if (!ext_convert_utf8(name, &names.node, &owner)) {
        return NULL;
    }
    cprof_thread *thread = cprof_thread_get();
    cprof_status status = CPROF_OK;
    if (self->session != NULL && thread != NULL) {
        status = cprof_recording_step(self->session, thread, names);
    }
    Py_DECREF(owner);
    if (status != CPROF_OK) {
        return ext_convert_status(status, "step");
    }
    Py_RETURN_NONE;
}

static PyObject *recorder_since_epoch_ns(PyObject *object, void *unused)
{
    (void)unused;
    recorder_object *self = (recorder_object *)object;
    if (self->session == NULL) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(cprof_recording_since_epoch(self->session));
}

/* It is in a cycle: type, module, thread namer, the package's handle, itself. */
static int recorder_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static void recorder_dealloc(PyObject *object)
{
    recorder_object *self = (recorder_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->session != NULL) {
        cprof_status status;
        end(self, NULL, &status);
    }
    ext_state_release(self->state);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef recorder_methods[] = {
    {"pause", recorder_pause, METH_NOARGS, PyDoc_STR("Records nothing until resume().")},
    {"resume", recorder_resume, METH_NOARGS, PyDoc_STR("Goes on after pause().")},
    {"finish", recorder_finish, METH_O,
     PyDoc_STR("Ends the recording: its events as a Recording of the type given, to which rows may still be added.")},
    {"step", recorder_step, METH_O, PyDoc_STR("Ends the present step, if there is one, and begins the next, of this name.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recorder_getset[] = {
    {"since_epoch_ns", recorder_since_epoch_ns, NULL,
     PyDoc_STR("What the time of day was ahead of CLOCK_MONOTONIC, in ns, for its events; None when it has ended."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot recorder_slots[] = {
    {Py_tp_new, recorder_new},
    {Py_tp_traverse, recorder_traverse},
    {Py_tp_dealloc, recorder_dealloc},
    {Py_tp_methods, recorder_methods},
    {Py_tp_getset, recorder_getset},
    {Py_tp_doc, (void *)"Recorder(capacity, drop_newest, describer, memory, device_memory, hosts, synchronizes=False)\n--\n\n"
                        "A recording that runs from now on. There can be one at a time in a process."},
    {0, NULL},
};

PyType_Spec ext_recorder_spec = {
    .name = "cprofiling._core.Recorder",
    .basicsize = sizeof(recorder_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = recorder_slots,
};
