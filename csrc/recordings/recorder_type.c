#include "csrc/types.h"

#include "csrc/convert.h"
#include "csrc/recordings/recording.h"

#include "cprofiling/trace/recording.h"

#include <stdio.h>

typedef struct {
    PyObject_HEAD
    ext_state *state;                 /* held */
    cprof_recording_session *session; /* owned; NULL: it has ended */
} recorder_object;

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

/* What the calls of the recording are to be asked. What is replaced goes last: code that runs with it may start another one. */
static void set_questions(ext_state *state, PyObject *describer, bool memory, PyObject *device_memory)
{
    PyObject *old_describer = state->describer;
    PyObject *old_finder = state->device_memory_finder;
    state->describer = describer != Py_None ? Py_NewRef(describer) : NULL;
    state->device_memory_finder = device_memory != Py_None ? Py_NewRef(device_memory) : NULL;
    state->wants_memory = memory || device_memory != Py_None;
    Py_XDECREF(old_describer);
    Py_XDECREF(old_finder);
}

/* What Python sees of it is one at a time, for all of the interpreter's. */
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
    EXT_WITHOUT_GIL(status = cprof_recording_start(&options, &self->session));
    if (status != CPROF_OK) {
        Py_DECREF(self);
        return refuse_start(status, capacity);
    }
    EXT_ALONE(state->guard, {
        state->recorder = self;
        set_questions(state, describer, memory, device_memory);
        set_running(state, true);
    });
    return (PyObject *)self;
}

static PyObject *recorder_pause(PyObject *object, PyObject *Py_UNUSED(unused))
{
    recorder_object *self = (recorder_object *)object;
    EXT_ALONE(self->state->guard, {
        if (self->session != NULL && self->state->recorder == self) {
            cprof_recording_pause(self->session);
            set_running(self->state, false);
        }
    });
    Py_RETURN_NONE;
}

static PyObject *recorder_resume(PyObject *object, PyObject *Py_UNUSED(unused))
{
    recorder_object *self = (recorder_object *)object;
    EXT_ALONE(self->state->guard, {
        if (self->session != NULL && self->state->recorder == self) {
            set_running(self->state, true);
            cprof_recording_resume(self->session);
        }
    });
    Py_RETURN_NONE;
}

typedef struct {
    cprof_recording_session *session;
    cprof_table *table;
    bool is_done;
    cprof_status status;
} ending;

/* Called for an object that is tracked, while no other thread runs. */
static int finish_once(PyObject *object, void *data)
{
    (void)object;
    ending *self = data;
    if (!self->is_done) {
        self->is_done = true;
        self->status = cprof_recording_finish(self->session, self->table, true);
    }
    return 0;
}

/* While nobody opens or closes spans: with the GIL, or while all other threads stand still, as they do for whoever asks for the
 * objects that are tracked. No Python runs meanwhile. */
static cprof_status finish(cprof_recording_session *session, cprof_table *table)
{
    ending self = {.session = session, .table = table};
#if EXT_FREE_THREADED
    PyUnstable_GC_VisitObjects(finish_once, &self);
#endif
    (void)finish_once(NULL, &self);
    return self.status;
}

static cprof_status end(recorder_object *self, cprof_table *table)
{
    cprof_recording_session *session = self->session;
    bool is_current = self->state->recorder == self; /* not so in a forked child that has begun another one */
    self->session = NULL;
    if (is_current) {
        set_running(self->state, false);
    }
    cprof_status status = finish(session, table);
    if (is_current) {
        ext_state_forget_labels(self->state);
        set_questions(self->state, Py_None, false, Py_None);
    }
    return status;
}

static PyObject *recorder_finish(PyObject *object, PyObject *type)
{
    recorder_object *self = (recorder_object *)object;
    if (!PyType_Check(type) || self->state->recording_type == NULL ||
        !PyType_IsSubtype((PyTypeObject *)type, self->state->recording_type)) {
        ext_convert_refuse_type("type", "a subclass of Recording", type);
        return NULL;
    }
    cprof_table *table = cprof_table_create();
    if (table == NULL) {
        return PyErr_NoMemory();
    }
    bool goes_on;
    cprof_status status = CPROF_OK;
    EXT_ALONE(self->state->guard, {
        goes_on = self->session != NULL;
        status = goes_on ? end(self, table) : status;
    });
    if (goes_on && status == CPROF_OK) {
        return ext_recording_new((PyTypeObject *)type, table);
    }
    cprof_table_destroy(table);
    return goes_on ? ext_convert_status(status, "finish") : PyErr_Format(PyExc_RuntimeError, "the recording has ended");
}

static void say_missed(const cprof_table *table)
{
    unsigned long long missed = table->count + table->dropped;
    if (missed > 0) {
        (void)fprintf(stderr,
                      "cprofiling: the recording has ended with the program, without the calls and blocks after that: %llu, in "
                      "daemon threads or in atexit functions registered before `import cprofiling`\n",
                      missed);
    }
}

/* At the very end: the interpreter is gone, and with it all that runs Python, but not the Recorder, as somebody's leaked object
 * refers to the package. */
static void tell_missed(void)
{
    cprof_recording_session *session = atomic_exchange(&cprof_recording.late, NULL);
    cprof_table *table = session != NULL ? cprof_table_create() : NULL;
    if (table != NULL && cprof_recording_finish(session, table, true) == CPROF_OK) {
        say_missed(table);
    }
    cprof_table_destroy(table);
}

static PyObject *recorder_tell_missed(PyObject *object, PyObject *Py_UNUSED(unused))
{
    if (!atomic_flag_test_and_set(&cprof_recording.tells_late)) {
        (void)Py_AtExit(tell_missed);
    }
    atomic_store(&cprof_recording.late, ((recorder_object *)object)->session);
    Py_RETURN_NONE;
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
    EXT_ALONE(self->state->guard, {
        if (self->session != NULL && thread != NULL) {
            status = cprof_recording_step(self->session, thread, names);
        }
    });
    Py_DECREF(owner);
    return ext_convert_status(status, "step");
}

static PyObject *recorder_since_epoch_ns(PyObject *object, void *Py_UNUSED(unused))
{
    recorder_object *self = (recorder_object *)object;
    int64_t ahead_ns = 0;
    bool goes_on;
    EXT_ALONE(self->state->guard, {
        goes_on = self->session != NULL;
        ahead_ns = goes_on ? cprof_recording_since_epoch(self->session) : 0;
    });
    return goes_on ? PyLong_FromLongLong(ahead_ns) : Py_NewRef(Py_None);
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
    PyObject_GC_UnTrack(object);
    if (self->session != NULL) {
        cprof_recording_session *session = self->session;
        bool is_late = atomic_compare_exchange_strong(&cprof_recording.late, &session, NULL);
        cprof_table *table = is_late ? cprof_table_create() : NULL;
        EXT_ALONE(self->state->guard, (void)end(self, table));
        if (table != NULL) {
            say_missed(table);
        }
        cprof_table_destroy(table);
    }
    ext_state_release(self->state);
    ext_state_free(object);
}

static PyMethodDef recorder_methods[] = {
    {"pause", recorder_pause, METH_NOARGS, PyDoc_STR("Records nothing until resume().")},
    {"resume", recorder_resume, METH_NOARGS, PyDoc_STR("Goes on after pause().")},
    {"finish", recorder_finish, METH_O,
     PyDoc_STR("Ends the recording: its events as a Recording of the type given, to which rows may still be added.")},
    {"tell_missed", recorder_tell_missed, METH_NOARGS,
     PyDoc_STR("Tells of the events on stderr when it goes, which it only counts.")},
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

PyType_Spec ext_recorder_spec =
    EXT_TYPES_SPEC("Recorder", recorder_object, recorder_slots, Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE);
