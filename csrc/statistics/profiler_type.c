#include "csrc/profiler.h"

#include "csrc/types.h"
#include "csrc/calls/view.h"
#include "csrc/convert.h"
#include "csrc/calls/key.h"
#include "csrc/probes/probe.h"
#include "csrc/calls/stage.h"
#include "csrc/statistics/summary.h"

#include "cprofiling/devices/nvtx.h"
#include "cprofiling/base/random.h"
#include "cprofiling/process.h"

static PyObject *profiler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    bool has_arguments = PyTuple_GET_SIZE(args) != 0 || (kwargs != NULL && PyDict_GET_SIZE(kwargs) != 0);
    if (has_arguments && type->tp_init == PyBaseObject_Type.tp_init) { /* a subclass' __init__ may take some */
        PyErr_Format(PyExc_TypeError, "%.100s() takes no arguments", type->tp_name);
        return NULL;
    }
    ext_state *state = ext_state_of_type(type);
    ext_profiler *self = state != NULL ? (ext_profiler *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        return NULL;
    }
    self->state = ext_state_hold(state);
    self->uid = cprof_random_serial();
    self->registry = cprof_registry_create(state->serial);
    if (self->registry == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static bool is_enabled(const ext_profiler *self)
{
    return (cprof_registry_state(self->registry) & CPROF_FLAG_STATS) != 0;
}

/* Unbound wrapped functions look at the gate only, until some Profiler of the interpreter is on, or a recording runs. */
static void set_on(ext_profiler *self, bool is_on)
{
    is_on = is_on && !self->counts_no_nodes;
    if (is_on != self->is_on) {
        self->is_on = is_on;
        self->state->profilers_on += is_on ? 1 : (size_t)-1;
        ext_state_set_gate(self->state);
    }
}

static uint64_t generation_of(const ext_profiler *self)
{
    return cprof_registry_state(self->registry) >> CPROF_STATE_GENERATION_SHIFT;
}

/* ---- set_profiling() */

/* The arguments of set_profiling(). */
typedef struct {
    unsigned flags; /* of the registry's word; 0: off */
    bool resets;
    uint64_t skips;
    uint32_t probing;     /* bits of counters, CPROF_REGISTRY_RESETS_PEAK */
    PyObject *gpu_stream; /* owned, or NULL, in any case */
    PyObject *live;       /* borrowed from the arguments */
} settings;

/* Adds a flag that is switched on. */
static bool add_flag(PyObject *value, const char *parameter, unsigned flag, unsigned *flags)
{
    bool is_on = false;
    bool is_right = ext_convert_flag(value, parameter, &is_on);
    *flags |= is_on ? flag : 0;
    return is_right;
}

static bool choose_median(PyObject *median, unsigned *flags)
{
    if (!PyUnicode_Check(median)) {
        ext_convert_refuse_type("median", "\"histogram\" or \"p2\"", median);
        return false;
    }
    bool is_p2 = PyUnicode_CompareWithASCIIString(median, ext_summary_median(true)) == 0;
    if (!is_p2 && PyUnicode_CompareWithASCIIString(median, ext_summary_median(false)) != 0) {
        ext_convert_refuse_value("%s must be \"histogram\" or \"p2\", got %U", "median", median);
        return false;
    }
    *flags |= is_p2 ? CPROF_FLAG_P2 : 0U;
    return true;
}

/* What only the package can check. */
static bool convert_options(ext_state *state, PyObject *gpu_stream, PyObject *memory, PyObject *counters, settings *asked)
{
    PyObject *check = ext_callback_get(state, EXT_CALLBACK_OPTIONS);
    if (check == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the package is not set up");
        return false;
    }
    PyObject *answer = PyObject_CallFunctionObjArgs(check, gpu_stream, memory, counters, NULL);
    PyObject *stream;
    int looks, resets;
    unsigned mask;
    bool converted = answer != NULL && PyArg_ParseTuple(answer, "OppI", &stream, &looks, &resets, &mask);
    if (converted) {
        asked->gpu_stream = stream != Py_None ? Py_NewRef(stream) : NULL;
        asked->probing = mask | (resets ? CPROF_REGISTRY_RESETS_PEAK : 0);
        asked->flags |= (looks ? CPROF_FLAG_MEMORY : 0U) | ((mask & CPROF_COUNTER_ALL) != 0 ? CPROF_FLAG_COUNTERS : 0U);
    }
    Py_XDECREF(answer);
    return converted;
}

/* Checks the arguments. False with TypeError or ValueError naming the parameter. */
static bool parse_settings(ext_state *state, PyObject *args, PyObject *kwargs, settings *asked)
{
    static char *keywords[] = {"enabled", "synchronize_cuda", "reset",    "skip_first_n", "gpu_time", "gpu_stream", "kernels",
                               "nvtx",    "memory",           "counters", "live",         "by_shape", "median",     NULL};
    PyObject *enabled, *synchronize_cuda = Py_False, *reset = Py_False, *skip_first_n = NULL, *gpu_time = Py_False,
                       *gpu_stream = Py_None, *kernels = Py_False, *nvtx = Py_False, *memory = Py_False, *counters = Py_None,
                       *by_shape = Py_False, *median = NULL;
    unsigned resets = 0;
    *asked = (settings){.live = Py_None};
    bool is_right = PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOOOOOOOOOO:set_profiling", keywords, &enabled,
                                                &synchronize_cuda, &reset, &skip_first_n, &gpu_time, &gpu_stream, &kernels,
                                                &nvtx, &memory, &counters, &asked->live, &by_shape, &median) &&
                    add_flag(enabled, "enabled", CPROF_FLAG_STATS, &asked->flags) &&
                    add_flag(synchronize_cuda, "synchronize_cuda", CPROF_FLAG_SYNC, &asked->flags) &&
                    add_flag(reset, "reset", 1, &resets) &&
                    (skip_first_n == NULL || ext_convert_count(skip_first_n, "skip_first_n", &asked->skips)) &&
                    add_flag(gpu_time, "gpu_time", CPROF_FLAG_GPU, &asked->flags) &&
                    add_flag(kernels, "kernels", CPROF_FLAG_LAUNCHES, &asked->flags) &&
                    add_flag(nvtx, "nvtx", CPROF_FLAG_NVTX, &asked->flags) &&
                    add_flag(by_shape, "by_shape", CPROF_FLAG_SHAPES, &asked->flags) &&
                    (median == NULL || choose_median(median, &asked->flags));
    bool has_counters = counters != Py_None && (!PyTuple_CheckExact(counters) || PyTuple_GET_SIZE(counters) > 0);
    /* This needs no code of the package's: at the end of the interpreter there may be none. */
    bool is_usual = gpu_stream == Py_None && memory == Py_False && !has_counters &&
                    (asked->flags & (CPROF_FLAG_GPU | CPROF_FLAG_LAUNCHES | CPROF_FLAG_SHAPES)) == 0;
    is_right = is_right && (is_usual || convert_options(state, gpu_stream, memory, counters, asked));
    asked->resets = resets != 0;
    asked->flags = (asked->flags & CPROF_FLAG_STATS) != 0 ? asked->flags : 0;
    return is_right;
}

static cprof_status end_visit(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                              const uint64_t *counts)
{
    (void)names;
    (void)order;
    (void)figures;
    (void)counts;
    *(bool *)context = true;
    return CPROF_ABSENT;
}

/* Warns where statistics will be discarded that nobody asked to discard. False with an exception: the warning is one. */
static bool warn_of_discarding(const ext_profiler *self, const settings *asked)
{
    cprof_generation now = cprof_epoch_present(&self->registry->epoch);
    bool lacks_p2 = (asked->flags & CPROF_FLAG_P2) != 0 && !now.has_p2;
    bool gathered = false;
    if (asked->flags != 0 && !asked->resets && (asked->skips != now.skip_first_n || lacks_p2)) {
        cprof_generation epoch;
        EXT_WITHOUT_GIL((void)cprof_registry_visit(self->registry, end_visit, &gathered, &epoch));
    }
    if (!gathered || self->state->warner == NULL) {
        return true;
    }
    PyObject *change = asked->skips == now.skip_first_n
                           ? PyUnicode_FromString("median changes from 'histogram' to 'p2'")
                           : PyUnicode_FromFormat("skip_first_n changes from %llu to %llu",
                                                  (unsigned long long)now.skip_first_n, (unsigned long long)asked->skips);
    PyObject *message = change != NULL ? PyUnicode_FromFormat("%U: the statistics gathered so far are discarded; reset=True "
                                                              "discards them without this warning",
                                                              change)
                                       : NULL;
    Py_XDECREF(change);
    PyObject *done = message != NULL ? PyObject_CallOneArg(self->state->warner, message) : NULL;
    Py_XDECREF(done);
    Py_XDECREF(message);
    return done != NULL;
}

/* What the package does once this Profiler is switched, a new reference: a callable, or None. NULL with an exception. */
static PyObject *prepare_live(ext_profiler *self, const settings *asked)
{
    ext_state *state = self->state;
    if (state->live_switch == NULL) {
        if (asked->live == Py_None) {
            return Py_NewRef(Py_None);
        }
        PyObject *module = PyImport_ImportModule("cprofiling.monitoring.live_writer"); /* sets it */
        if (module == NULL) {
            return NULL;
        }
        Py_DECREF(module);
    }
    return PyObject_CallFunctionObjArgs(state->live_switch, (PyObject *)self, asked->live,
                                        asked->flags != 0 ? Py_True : Py_False, NULL);
}

static PyObject *set_profiling(ext_profiler *self, PyObject *args, PyObject *kwargs)
{
    settings asked;
    bool is_right = parse_settings(self->state, args, kwargs, &asked) && warn_of_discarding(self, &asked);
    PyObject *prepared = is_right ? prepare_live(self, &asked) : NULL;
    if (prepared == NULL) {
        Py_XDECREF(asked.gpu_stream);
        return NULL;
    }
    bool is_on = asked.flags != 0;
    if (is_on) {
        Py_BEGIN_ALLOW_THREADS
        cprof_clock_start();
        if ((asked.flags & CPROF_FLAG_NVTX) != 0) {
            (void)cprof_nvtx_is_heard(); /* the first time a tool may be loaded */
        }
        Py_END_ALLOW_THREADS
    }
    if (is_on) {
        set_on(self, true); /* first: a process forked in between must not have a Profiler on behind a closed gate */
    }
    bool was_on = is_enabled(self);
    Py_XSETREF(self->gpu_stream, asked.gpu_stream);
    self->rest = self->cuda_rest = self->state->no_other_device = (cprof_probe_rest){0};
    cprof_registry_set_probing(self->registry, asked.probing);
    ext_probe_want_launches(self, (asked.flags & CPROF_FLAG_LAUNCHES) != 0);
    uint64_t generation = generation_of(self);
    /* A reader may have to be waited for. */
    EXT_WITHOUT_GIL(cprof_registry_configure(self->registry, asked.flags, asked.skips, asked.resets));
    if (generation_of(self) != generation) {
        Py_CLEAR(self->device_note); /* of calls that were discarded */
    }
    if (generation_of(self) != generation || !was_on) {
        self->stages_before = self->state->stage_entries;
    }
    /* As it is now, not as it was set here: another thread may have been faster. */
    set_on(self, is_enabled(self));
    PyObject *result = prepared == Py_None ? Py_NewRef(Py_None) : PyObject_CallNoArgs(prepared);
    Py_DECREF(prepared);
    return result;
}

static PyObject *profiler_set_profiling(PyObject *object, PyObject *args, PyObject *kwargs)
{
    ext_profiler *self = (ext_profiler *)object;
    PyObject *result;
    EXT_ALONE(self->state->guard, result = set_profiling(self, args, kwargs));
    return result;
}

static PyObject *profiler_reset_profiling(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ext_profiler *self = (ext_profiler *)object;
    EXT_WITHOUT_GIL(cprof_registry_reset(self->registry));
    EXT_ALONE(self->state->guard, {
        Py_CLEAR(self->device_note);
        self->stages_before = self->state->stage_entries;
    });
    Py_RETURN_NONE;
}

static PyObject *profiler_profiling_enabled(PyObject *object, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(is_enabled((ext_profiler *)object));
}

static PyObject *profiler_record(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"stage", "node_name", "elapsed_ms", NULL};
    ext_profiler *self = (ext_profiler *)object;
    PyObject *stage, *name, *elapsed;
    double elapsed_ms;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:record", keywords, &stage, &name, &elapsed)) {
        return NULL;
    }
    stage = ext_convert_stage(self->state, stage, "stage");
    name = stage != NULL ? ext_convert_name(name, "node_name") : NULL;
    bool is_right = name != NULL && ext_convert_ms(elapsed, "elapsed_ms", &elapsed_ms);
    if (is_right && is_enabled(self)) {
        cprof_accum *accum = ext_key_accum(self, stage, name);
        if (accum != NULL) {
            cprof_accum_record_ms(accum, elapsed_ms);
            ext_key_warn_of_overflow(self);
        } else {
            PyErr_NoMemory();
            is_right = false;
        }
    }
    Py_XDECREF(stage);
    Py_XDECREF(name);
    return is_right ? Py_NewRef(Py_None) : NULL;
}

static PyObject *profiler_rows(PyObject *object, PyObject *stage)
{
    const ext_profiler *self = (ext_profiler *)object;
    return ext_summary_rows(self->state, self->registry, NULL, stage);
}

static PyObject *profiler_stop_launches(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ext_profiler *self = (ext_profiler *)object;
    EXT_ALONE(self->state->guard, {
        if (self->launches != EXT_LAUNCHES_OFF) { /* else it may still wait for CUDA to come, also in a child of a fork */
            ext_probe_want_launches(self, false);
        }
    });
    Py_RETURN_NONE;
}

static PyObject *profiler_count_no_nodes(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ext_profiler *self = (ext_profiler *)object;
    EXT_ALONE(self->state->guard, {
        self->counts_no_nodes = true;
        set_on(self, false);
    });
    Py_RETURN_NONE;
}

static PyObject *profiler_keep_at_fork(PyObject *object, PyObject *Py_UNUSED(unused))
{
    cprof_registry_keep_at_fork(((ext_profiler *)object)->registry);
    Py_RETURN_NONE;
}

static PyObject *profiler_enter(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ext_profiler *self = (ext_profiler *)object;
    bool entered;
    EXT_ALONE(self->state->guard, entered = ext_view_push(self->state, self->state->bound_variable, object, &self->entries));
    return entered ? Py_NewRef(object) : NULL;
}

static PyObject *profiler_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(nargs))
{
    ext_profiler *self = (ext_profiler *)object;
    bool left;
    EXT_ALONE(self->state->guard, left = ext_view_pop(self->state, self->state->bound_variable, self->entries, object));
    if (!left) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Copies and pickles are new Profilers that are off: counters belong to the process that counted. A subclass' __init__ is not
 * called: what it set goes along. */
static PyObject *profiler_reduce(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return ext_convert_reduce(object, PyTuple_New(0), PyDict_New());
}

static PyObject *profiler_internal_errors(PyObject *object, void *Py_UNUSED(unused))
{
    ext_profiler *self = (ext_profiler *)object;
    return PyLong_FromUnsignedLongLong(self->internal_errors + self->state->internal_errors);
}

static PyObject *profiler_refused_keys(PyObject *object, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(atomic_load(&((ext_profiler *)object)->registry->refused_keys));
}

static PyObject *profiler_identity(PyObject *object, void *Py_UNUSED(unused))
{
    const cprof_registry *registry = ((ext_profiler *)object)->registry;
    return PyBytes_FromStringAndSize((const char *)registry->id, sizeof registry->id);
}

static PyObject *profiler_stages_without_nodes(PyObject *object, void *Py_UNUSED(unused))
{
    ext_profiler *self = (ext_profiler *)object;
    uint64_t before;
    EXT_ALONE(self->state->guard, before = self->stages_before);
    return ext_stage_without_nodes(self->state, before);
}

/* As other threads may replace it. */
static PyObject *profiler_device_note(PyObject *object, void *Py_UNUSED(unused))
{
    const ext_profiler *self = (ext_profiler *)object;
    PyObject *note;
    EXT_ALONE(self->state->guard, note = Py_NewRef(self->device_note != NULL ? self->device_note : Py_None));
    return note;
}

static PyObject *profiler_repr(PyObject *object)
{
    bool is_on = is_enabled((ext_profiler *)object);
    return PyUnicode_FromFormat("<%s %s at %p>", Py_TYPE(object)->tp_name, is_on ? "on" : "off", object);
}

static int profiler_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((ext_profiler *)object)->entries);
    Py_VISIT(((ext_profiler *)object)->gpu_stream);
    return 0;
}

static int profiler_clear(PyObject *object)
{
    Py_CLEAR(((ext_profiler *)object)->gpu_stream);
    return 0;
}

/* Open spans, wrapped functions and blocks hold a reference: nobody is in the registry any more. */
static void profiler_dealloc(PyObject *object)
{
    ext_profiler *self = (ext_profiler *)object;
    PyObject_GC_UnTrack(object);
    PyObject_ClearWeakRefs(object);
    EXT_ALONE(self->state->guard, {
        if (self->is_on) {
            set_on(self, false);
        }
        ext_probe_want_launches(self, false);
    });
    (void)profiler_clear(object);
    Py_CLEAR(self->entries);
    Py_CLEAR(self->device_note);
    Py_CLEAR(self->label);
    EXT_ALONE(self->state->guard, cprof_process_end_registry(self->registry)); /* it may be part of a live file */
    ext_state_release(self->state);
    ext_state_free(object);
}

PyDoc_STRVAR(set_profiling_doc,
             "set_profiling($self, /, enabled, *, synchronize_cuda=False, reset=False, skip_first_n=0,\n"
             "    gpu_time=False, gpu_stream=None, kernels=False, nvtx=False, memory=False, counters=(),\n"
             "    live=None, by_shape=False, median=\"histogram\")\n--\n\n"
             "Switches profiling on or off; each call fully specifies the configuration.\n\n"
             "enabled: True to count the calls that start from now on.\n"
             "synchronize_cuda: wait for the device that a node uses before and after it: CUDA's, or another\n"
             "    kind that PyTorch uses. Does nothing in a process without one.\n"
             "reset: discard the statistics gathered so far.\n"
             "skip_first_n: of each key (stage, node), the number of first successful calls that are not\n"
             "    counted; 0 to 2**63-1. Enabling with another value than the present statistics were gathered\n"
             "    with discards them; disabling never does.\n"
             "gpu_time: also time each node on its device, by events on its stream, without waiting for it.\n"
             "gpu_stream: the stream to time on: a handle (0 to 2**64-1), an object that has one (cuda_stream,\n"
             "    ptr, handle, __cuda_stream__), or what returns one at each call; None: the one that PyTorch uses.\n"
             "kernels: also count what each node launches (kernels, copies, fills) through CUPTI.\n"
             "nvtx: also tell NVIDIA's tools of each node, as a range of the domain \"cprofiling\".\n"
             "memory: also look at the memory of device and process around each node; \"peak\": reset the\n"
             "    framework's peak counter at each node, so that each has a peak of its own.\n"
             "counters: names of counters to read around each node: cpu_time, context_switches, page_faults,\n"
             "    cycles, instructions, branch_misses, cache_misses.\n"
             "live: a path at which the statistics are kept in a file while they are gathered, so that other\n"
             "    processes can read them (cprofiling top, cprofiling.live.read), also once this one was killed.\n"
             "    Profilers of a process may have one file in common. It takes 4 MiB, and more where the\n"
             "    statistics do.\n"
             "by_shape: also tell the calls of a node apart by the shapes and dtypes of their tensor arguments;\n"
             "    see cprofiling.ShapeSummary.\n"
             "median: what median_ms is of more than five samples: \"histogram\", within 1 %, or \"p2\", the P-square\n"
             "    estimate of Jain and Chlamtac. Enabling \"p2\" discards statistics that were gathered without it.\n\n"
             "Raises TypeError or ValueError naming the parameter, and OSError where the file of live cannot be\n"
             "had; then nothing was changed.");

PyDoc_STRVAR(record_doc, "record($self, /, stage, node_name, elapsed_ms)\n--\n\n"
                         "Counts one call that was timed elsewhere. Checks its arguments always, counts only while\n"
                         "profiling is on.\n\n"
                         "stage: a str, or an enum whose value is one.\n"
                         "node_name: a str. Both at most 4,096 bytes of UTF-8, without NUL.\n"
                         "elapsed_ms: milliseconds, 0 to 1e12: int, float, or anything with __float__ or __index__, but\n"
                         "    no bool. Kept unchanged.\n\n"
                         "Raises TypeError or ValueError naming the parameter, the value and the limit; then nothing\n"
                         "was counted.");

static PyMethodDef profiler_methods[] = {
    {"set_profiling", EXT_METHOD(profiler_set_profiling), METH_VARARGS | METH_KEYWORDS, set_profiling_doc},
    {"reset_profiling", profiler_reset_profiling, METH_NOARGS,
     PyDoc_STR("reset_profiling($self, /)\n--\n\n"
               "Discards the statistics, skip counters included. What is switched on stays on, as configured.")},
    {"record", EXT_METHOD(profiler_record), METH_VARARGS | METH_KEYWORDS, record_doc},
    {"_rows", profiler_rows, METH_O, PyDoc_STR("The summary's rows of one stage (None: all), and more.")},
    {"_stop_launches", profiler_stop_launches, METH_NOARGS, PyDoc_STR("Lets go of CUPTI; launches are not counted any more.")},
    {"_count_no_nodes", profiler_count_no_nodes, METH_NOARGS, PyDoc_STR("Counts only what record() is given from now on.")},
    {"_keep_at_fork", profiler_keep_at_fork, METH_NOARGS, PyDoc_STR("Has forked children go on with the statistics.")},
    {"__enter__", profiler_enter, METH_NOARGS, PyDoc_STR("Binds this Profiler to the calls of this thread or task.")},
    {"__exit__", EXT_METHOD(profiler_exit), METH_FASTCALL, PyDoc_STR("Ends the binding.")},
    {"__reduce__", profiler_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef profiler_getset[] = {
    {"profiling_enabled", profiler_profiling_enabled, NULL, PyDoc_STR("Whether calls that start now are counted."), NULL},
    {"_internal_errors", profiler_internal_errors, NULL, PyDoc_STR("Faults inside the profiler so far."), NULL},
    {"_identity", profiler_identity, NULL, PyDoc_STR("What its statistics are told by, in all processes."), NULL},
    {"_stages_without_nodes", profiler_stages_without_nodes, NULL,
     PyDoc_STR("Stages that were entered, but had no node, since the present statistics began."), NULL},
    {"_device_note", profiler_device_note, NULL, PyDoc_STR("Why a device cannot time nodes, or None."), NULL},
    {"_refused_keys", profiler_refused_keys, NULL, PyDoc_STR("Look-ups of keys that went to an overflow key."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef profiler_members[] = {
    {"_label", T_OBJECT, offsetof(ext_profiler, label), READONLY,
     PyDoc_STR("The name of the class of the pipeline that it is of, or None.")},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ext_profiler, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot profiler_slots[] = {
    {Py_tp_new, profiler_new},
    {Py_tp_repr, profiler_repr},
    {Py_tp_traverse, profiler_traverse},
    {Py_tp_clear, profiler_clear},
    {Py_tp_dealloc, profiler_dealloc},
    {Py_tp_methods, profiler_methods},
    {Py_tp_getset, profiler_getset},
    {Py_tp_members, profiler_members},
    {Py_tp_doc, (void *)"Profiler()\n--\n\nStatistics of nodes, and the switch that gathers them. Off when made."},
    {0, NULL},
};

PyType_Spec ext_profiler_spec =
    EXT_TYPES_SPEC("Profiler", ext_profiler, profiler_slots, Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE);
