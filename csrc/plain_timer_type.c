#include "csrc/plain_timer.h"

#include "csrc/convert.h"
#include "csrc/fault.h"
#include "csrc/plain_names.h"
#include "csrc/plain_recorded.h"

#include "cprofiling/trace/recording.h"

/* Takes the place of a Python method, and does what it does where nothing about the pipeline is out of the ordinary; else it
 * calls it. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *original;       /* the method, a Python function; owned, as are: */
    PyObject *globals;        /* dict: its module's names, */
    PyObject *time_module;    /* `time` among them, */
    PyObject *time_names;     /* dict: the names in that, */
    PyObject *clock;          /* and its perf_counter_ns */
    uint64_t globals_version; /* of the two dicts, in which they were found */
    uint64_t time_version;
    PyObject *record;        /* the method of PlainProfiler */
    PyTypeObject *profilers; /* the class that a pipeline's profiler is an instance of, not of a subclass */
    unsigned int version;    /* of that class, in which `record` was found; 0: none */
    ext_state *state;        /* held */
    ext_plain_names names;
    PyObject *attributes;     /* tuple: the names of these two attributes of a pipeline; owned */
    ext_plain_known pipeline; /* whose attributes these are: */
    PyObject *synchronizes;   /* borrowed from it, as is: */
    PyObject *profiler;
    ext_plain_kind kind; /* fine: its instances have the two in their dict */
} plain_timer;

enum { START_ARGUMENTS = 3, STOP_ARGUMENTS = 5 };

static PyObject *call_original(const plain_timer *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return PyObject_Vectorcall(self->original, args, nargsf, kwnames);
}

/* Whether a dict has this object under a name. Names are strs: nothing is compared but them. */
static inline bool has(PyObject *dict, PyObject *name, const PyObject *object)
{
    return PyDict_GetItemWithError(dict, name) == object;
}

/* Looks for the clock anew, when one of the two dicts has changed. */
static __attribute__((noinline)) bool finds_usual_clock(plain_timer *self)
{
    PyObject *const *words = self->state->words;
    bool found = has(self->globals, words[EXT_WORD_TIME], self->time_module) &&
                 has(self->time_names, words[EXT_WORD_PERF_COUNTER_NS], self->clock);
    self->globals_version = found ? ext_compat_dict_version(self->globals) : 0;
    self->time_version = found ? ext_compat_dict_version(self->time_names) : 0;
    return found;
}

/* Whether the clock is the one that was found at first: tests put others in its place. */
static inline bool is_usual_clock(plain_timer *self)
{
    return (self->globals_version == ext_compat_dict_version(self->globals) &&
            self->time_version == ext_compat_dict_version(self->time_names)) ||
           finds_usual_clock(self);
}

static bool has_plain_attributes(plain_timer *self, PyTypeObject *type)
{
    if (!ext_plain_kind_is(&self->kind, type)) {
        bool is_fine = ext_plain_known_in_dict(type, self->attributes);
        self->kind = (ext_plain_kind){.type = type, .version = type->tp_version_tag, .is_fine = is_fine};
    }
    return self->kind.is_fine;
}

/* Looks at a pipeline that has changed, or is another one; false where its attributes may be anything. */
static __attribute__((noinline)) bool finds_pipeline(plain_timer *self, PyObject *pipeline)
{
    self->pipeline = (ext_plain_known){0};
    ext_plain_known known;
    PyObject *dict = has_plain_attributes(self, Py_TYPE(pipeline)) && ext_plain_known_set(&known, pipeline)
                         ? PyObject_GenericGetDict(pipeline, NULL)
                         : NULL;
    if (dict == NULL) {
        return false;
    }
    self->synchronizes = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(self->attributes, 0));
    self->profiler = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(self->attributes, 1));
    Py_DECREF(dict);
    if (self->synchronizes != NULL && self->profiler != NULL) {
        self->pipeline = known;
    }
    return self->pipeline.version != 0;
}

/* Whether a call is one of the usual form, for a pipeline that waits for no device. -1 with an exception. `profiler`: borrowed
 * from the pipeline, or NULL when it has to be asked. */
static inline int is_usual(plain_timer *self, PyObject *pipeline, PyObject **profiler)
{
    PyObject *synchronizes;
    if (ext_plain_known_is(&self->pipeline, pipeline) || finds_pipeline(self, pipeline)) {
        synchronizes = self->synchronizes;
        *profiler = self->profiler;
    } else {
        synchronizes = PyObject_GetAttr(pipeline, self->state->words[EXT_WORD_SYNCHRONIZE_CUDA]);
        if (synchronizes == NULL) {
            return -1;
        }
        Py_DECREF(synchronizes); /* compared only */
        *profiler = NULL;
    }
    return synchronizes == Py_False && is_usual_clock(self);
}

static inline PyObject *start(plain_timer *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (PyVectorcall_NARGS(nargsf) != START_ARGUMENTS || kwnames != NULL) {
        return call_original(self, args, nargsf, kwnames);
    }
    PyObject *profiler;
    int usual = is_usual(self, args[0], &profiler);
    if (usual <= 0) {
        return usual < 0 ? NULL : call_original(self, args, nargsf, kwnames);
    }
    return PyLong_FromLongLong(cprof_plain_start());
}

static __attribute__((noinline)) PyObject *start_recorded(plain_timer *self, PyObject *const *args, size_t nargsf,
                                                          PyObject *kwnames)
{
    PyObject *started = start(self, args, nargsf, kwnames);
    if (started != NULL) {
        ext_plain_recorded_begin(self->state, started);
    }
    return started;
}

static PyObject *start_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    plain_timer *self = (plain_timer *)callable;
    return __builtin_expect(self->state->recording, 0) ? start_recorded(self, args, nargsf, kwnames)
                                                       : start(self, args, nargsf, kwnames);
}

/* Looks the class's `record` up anew, when the class has changed. */
static __attribute__((noinline)) bool finds_record(plain_timer *self)
{
    PyObject *record = PyObject_GetAttr((PyObject *)self->profilers, self->state->words[EXT_WORD_RECORD]);
    ext_fault_forget();
    Py_XDECREF(record); /* compared only */
    self->version = record == self->record ? self->profilers->tp_version_tag : 0;
    return record == self->record;
}

/* Whether `profiler` is one whose `record` is ours. */
static inline bool is_plain(plain_timer *self, PyObject *profiler)
{
    if (Py_TYPE(profiler) != self->profilers) {
        return false;
    }
    PyObject *own = ((ext_plain_profiler *)profiler)->dict;
    if (own != NULL && PyDict_GetItemWithError(own, self->state->words[EXT_WORD_RECORD]) != NULL) {
        return false;
    }
    return (self->version != 0 && self->version == self->profilers->tp_version_tag) || finds_record(self);
}

/* args: pipeline, start in ns, node, inputs, stage. */
static PyObject *count(plain_timer *self, PyObject *profiler, PyObject *const *args, cprof_ns elapsed_ns, double elapsed_ms)
{
    PyObject *name = ext_plain_names_get(&self->names, self->state, args[2]);
    if (name == NULL) {
        return NULL;
    }
    bool counted = ext_plain_profiler_add((ext_plain_profiler *)profiler, args[4], name, elapsed_ns, elapsed_ms);
    Py_DECREF(name);
    return counted ? Py_NewRef(Py_None) : NULL;
}

static inline PyObject *stop(plain_timer *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (PyVectorcall_NARGS(nargsf) != STOP_ARGUMENTS || kwnames != NULL || !PyLong_CheckExact(args[1])) {
        return call_original(self, args, nargsf, kwnames);
    }
    int overflow;
    cprof_ns elapsed_ns;
    double elapsed_ms;
    PyObject *profiler;
    int usual = is_usual(self, args[0], &profiler);
    long long start_ns = PyLong_AsLongLongAndOverflow(args[1], &overflow);
    if (usual <= 0 || overflow != 0 || !cprof_plain_stop(start_ns, &elapsed_ns, &elapsed_ms)) {
        return usual < 0 ? NULL : call_original(self, args, nargsf, kwnames);
    }
    profiler = profiler != NULL ? Py_NewRef(profiler) : PyObject_GetAttr(args[0], self->state->words[EXT_WORD_PROFILER]);
    if (profiler == NULL) {
        return NULL;
    }
    PyObject *result = is_plain(self, profiler) ? count(self, profiler, args, elapsed_ns, elapsed_ms)
                                                : call_original(self, args, nargsf, kwnames);
    Py_DECREF(profiler);
    return result;
}

static __attribute__((noinline)) PyObject *stop_recorded(plain_timer *self, PyObject *const *args, size_t nargsf,
                                                         PyObject *kwnames)
{
    PyObject *result = stop(self, args, nargsf, kwnames);
    if (result != NULL && PyVectorcall_NARGS(nargsf) == STOP_ARGUMENTS) {
        ext_plain_recorded_end(self->state, args);
    }
    return result;
}

/* A recording that is paused has what began before. */
static PyObject *stop_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    plain_timer *self = (plain_timer *)callable;
    bool is_recorded = atomic_load_explicit(&cprof_recording.serial, memory_order_relaxed) != 0;
    return __builtin_expect(is_recorded, 0) ? stop_recorded(self, args, nargsf, kwnames) : stop(self, args, nargsf, kwnames);
}

/* Finds what the method uses of its module; false with AttributeError or TypeError: it is not as it was known. */
static bool find_names(plain_timer *self)
{
    PyObject *const *words = self->state->words;
    self->globals = PyObject_GetAttrString(self->original, "__globals__");
    self->time_module = self->globals != NULL && PyDict_CheckExact(self->globals)
                            ? Py_XNewRef(PyDict_GetItemWithError(self->globals, words[EXT_WORD_TIME]))
                            : NULL;
    if (self->time_module == NULL || !PyModule_Check(self->time_module)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "original must be a function of a module that has imported time");
        }
        return false;
    }
    self->time_names = Py_NewRef(PyModule_GetDict(self->time_module));
    self->clock = PyObject_GetAttr(self->time_module, words[EXT_WORD_PERF_COUNTER_NS]);
    self->attributes = PyTuple_Pack(2, words[EXT_WORD_SYNCHRONIZE_CUDA], words[EXT_WORD_PROFILER]);
    self->record = PyObject_GetAttr((PyObject *)self->state->plain_profiler_type, words[EXT_WORD_RECORD]);
    return self->clock != NULL && self->attributes != NULL && self->record != NULL;
}

static PyObject *timer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"original", "stops", "profilers", "name_attributes", NULL};
    PyObject *original, *profilers, *first = NULL, *second = NULL;
    int stops;
    ext_state *state = ext_state_of_type(type);
    if (state == NULL || state->plain_profiler_type == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "OpO!|(UU):PlainTimer", keywords, &original, &stops, &PyType_Type,
                                     &profilers, &first, &second)) {
        return NULL;
    }
    if (!PyType_IsSubtype((PyTypeObject *)profilers, state->plain_profiler_type)) {
        ext_convert_refuse_type("profilers", "a class of PlainProfilers", profilers);
        return NULL;
    }
    plain_timer *self = (plain_timer *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = stops ? stop_vectorcall : start_vectorcall;
    self->state = ext_state_hold(state);
    self->original = Py_NewRef(original);
    self->profilers = (PyTypeObject *)Py_NewRef(profilers);
    self->names.attributes = first != NULL ? PyTuple_Pack(2, first, second) : NULL;
    if ((first != NULL && self->names.attributes == NULL) || !find_names(self)) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static PyObject *timer_get(PyObject *object, PyObject *instance, PyObject *owner)
{
    (void)owner;
    return instance != NULL && instance != Py_None ? PyMethod_New(object, instance) : Py_NewRef(object);
}

/* Whether its type has an attribute of this name that says nothing of the method. */
static bool is_of_the_type(PyObject *name)
{
    return PyUnicode_CompareWithASCIIString(name, "__doc__") == 0 || PyUnicode_CompareWithASCIIString(name, "__module__") == 0;
}

/* What it has not itself it answers as the method does. */
static PyObject *timer_getattro(PyObject *object, PyObject *name)
{
    if (is_of_the_type(name)) {
        return PyObject_GetAttr(((plain_timer *)object)->original, name);
    }
    PyObject *value = PyObject_GenericGetAttr(object, name);
    if (value != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return value;
    }
    PyErr_Clear();
    return PyObject_GetAttr(((plain_timer *)object)->original, name);
}

static PyObject *timer_repr(PyObject *object)
{
    return PyUnicode_FromFormat("<faster %R>", ((plain_timer *)object)->original);
}

static int timer_traverse(PyObject *object, visitproc visit, void *arg)
{
    plain_timer *self = (plain_timer *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->original);
    Py_VISIT(self->globals);
    Py_VISIT(self->time_module);
    Py_VISIT(self->time_names);
    Py_VISIT(self->clock);
    Py_VISIT(self->record);
    Py_VISIT(self->profilers);
    Py_VISIT(self->names.property);
    return 0;
}

/* Nothing is cleared before the end: it may still be called while a cycle is taken apart. The cycles go through the class that
 * it stands in, which clears itself. */
static void timer_dealloc(PyObject *object)
{
    plain_timer *self = (plain_timer *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_CLEAR(self->original);
    Py_CLEAR(self->globals);
    Py_CLEAR(self->time_module);
    Py_CLEAR(self->time_names);
    Py_CLEAR(self->clock);
    Py_CLEAR(self->attributes);
    Py_CLEAR(self->record);
    Py_CLEAR(self->profilers);
    ext_plain_names_clear(&self->names);
    ext_state_release(self->state);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef timer_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(plain_timer, vectorcall), READONLY, NULL},
    {"__wrapped__", T_OBJECT_EX, offsetof(plain_timer, original), READONLY, PyDoc_STR("The method that it stands for.")},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot timer_slots[] = {
    {Py_tp_new, timer_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, timer_get},
    {Py_tp_getattro, timer_getattro},
    {Py_tp_repr, timer_repr},
    {Py_tp_traverse, timer_traverse},
    {Py_tp_dealloc, timer_dealloc},
    {Py_tp_members, timer_members},
    {Py_tp_doc, (void *)"Stands in a peer's pipeline for the method that begins, or ends, the timing of a node."},
    {0, NULL},
};

PyType_Spec ext_plain_timer_spec = {
    .name = "cprofiling._core.PlainTimer",
    .basicsize = sizeof(plain_timer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = timer_slots,
};
