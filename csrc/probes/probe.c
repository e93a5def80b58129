#include "csrc/probes/probe.h"

#include "csrc/convert.h"
#include "csrc/probes/shape.h"
#include "csrc/probes/sync.h"

#include "cprofiling/devices/capture.h"
#include "cprofiling/devices/cupti.h"
#include "cprofiling/devices/wait.h"

/* ---- Launches */

/* Whether the process has loaded CUDA. The GIL is given up to find out: seldom, as others may want it. */
static bool see_cuda(ext_profiler *profiler)
{
    if (!profiler->has_cuda && !cprof_probe_rests(&profiler->cuda_rest)) {
        EXT_WITHOUT_GIL(profiler->has_cuda = cprof_wait_probe());
        if (!profiler->has_cuda) {
            cprof_probe_begin_rest(&profiler->cuda_rest);
        }
    }
    return profiler->has_cuda;
}

/* The package knows where CUPTI may be installed, and when the interpreter ends: it is to be given back while the driver is
 * there. */
static void announce_launches(ext_profiler *profiler)
{
    PyObject *told = ext_callback_get(profiler->state, EXT_CALLBACK_LAUNCHES);
    PyObject *answer = told != NULL ? PyObject_CallOneArg(told, (PyObject *)profiler) : Py_NewRef(Py_None);
    if (answer == NULL) {
        ext_callback_fail(profiler);
    }
    Py_XDECREF(answer);
}

static void release_launches(void)
{
    EXT_WITHOUT_GIL(cprof_cupti_stop(CPROF_CUPTI_COUNTS));
}

/* Others may come here meanwhile: they leave the start to this thread, and only say what they want. */
static void start_launches(ext_profiler *profiler)
{
    bool has_cuda, started;
    profiler->launches = EXT_LAUNCHES_STARTING;
    announce_launches(profiler);
    Py_BEGIN_ALLOW_THREADS
    has_cuda = cprof_wait_probe();
    started = cprof_cupti_start(CPROF_CUPTI_COUNTS);
    Py_END_ALLOW_THREADS
    profiler->launches = started && profiler->wants_launches ? EXT_LAUNCHES_ON : EXT_LAUNCHES_OFF;
    profiler->seeks_cuda = !has_cuda && profiler->wants_launches;
    if (started && profiler->launches == EXT_LAUNCHES_OFF) {
        release_launches();
    }
}

void ext_probe_want_launches(ext_profiler *profiler, bool wanted)
{
    profiler->wants_launches = wanted;
    profiler->seeks_cuda = false;
    if (wanted && profiler->launches == EXT_LAUNCHES_OFF) {
        start_launches(profiler);
    } else if (!wanted && profiler->launches == EXT_LAUNCHES_ON) {
        profiler->launches = EXT_LAUNCHES_OFF;
        release_launches();
    }
}

/* ---- Times that a device takes itself */

typedef struct {
    PyObject *mark;
    ext_profiler *profiler;
} own_mark;

/* Where the time of such a mark goes, when it is known. */
typedef struct {
    ext_profiler *profiler;
    cprof_accum *accum;
    uint64_t generation;
} own_sink;

static const char sink_name[] = "cprofiling.gpu_sink";

static void free_sink(PyObject *capsule)
{
    own_sink *sink = PyCapsule_GetPointer(capsule, sink_name);
    Py_DECREF(sink->profiler);
    PyMem_Free(sink);
}

static cprof_gpu_cause cause_of(PyObject *name)
{
    static const struct {
        const char *name;
        cprof_gpu_cause cause;
    } causes[] = {
        {"full", CPROF_GPU_FULL},
        {"captured", CPROF_GPU_CAPTURED},
        {"unsupported", CPROF_GPU_UNSUPPORTED},
        {"untold", CPROF_GPU_UNTOLD},
    };
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++) {
        if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, causes[i].name) == 0) {
            return causes[i].cause;
        }
    }
    return CPROF_GPU_FAILED;
}

/* The cause that the package calls so; a reason that is a str becomes what a device has said to the Profiler. */
static cprof_gpu_cause mark_cause(ext_profiler *profiler, PyObject *name, PyObject *reason)
{
    if (PyUnicode_Check(reason)) {
        Py_XSETREF(profiler->device_note, Py_NewRef(reason));
    }
    return cause_of(name);
}

/* sink(elapsed_ms, None), sink(None, cause, reason=None) */
static PyObject *sink_call(PyObject *capsule, PyObject *args)
{
    own_sink *sink = PyCapsule_GetPointer(capsule, sink_name);
    PyObject *elapsed, *cause, *reason = Py_None;
    double elapsed_ms;
    if (sink == NULL || !PyArg_ParseTuple(args, "OO|O:sink", &elapsed, &cause, &reason)) {
        return NULL;
    }
    if (elapsed == Py_None) {
        if (cprof_registry_state(sink->profiler->registry) >> CPROF_STATE_GENERATION_SHIFT != sink->generation) {
            reason = Py_None; /* of statistics that were discarded it says nothing */
        }
        cprof_gpu_cause known;
        EXT_ALONE(sink->profiler->state->guard, known = mark_cause(sink->profiler, cause, reason));
        cprof_accum_miss_gpu(sink->accum, sink->generation, known);
    } else if (ext_convert_ms(elapsed, "elapsed_ms", &elapsed_ms)) {
        cprof_accum_add_gpu(sink->accum, sink->generation, cprof_resources_ns_of_ms(elapsed_ms), -1, false);
    } else {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *new_sink(ext_profiler *profiler, cprof_accum *accum, uint64_t generation)
{
    static PyMethodDef method = {"sink", sink_call, METH_VARARGS, NULL};
    own_sink *sink = PyMem_Malloc(sizeof *sink);
    if (sink == NULL) {
        return PyErr_NoMemory();
    }
    *sink = (own_sink){(ext_profiler *)Py_NewRef((PyObject *)profiler), accum, generation};
    PyObject *capsule = PyCapsule_New(sink, sink_name, free_sink);
    if (capsule == NULL) {
        Py_DECREF(sink->profiler);
        PyMem_Free(sink);
        return NULL;
    }
    PyObject *function = PyCFunction_New(&method, capsule);
    Py_DECREF(capsule);
    return function;
}

static void end_own_mark(void *data, cprof_accum *accum, uint64_t generation)
{
    own_mark *own = data;
    ext_compat_error error = ext_compat_take_error();
    PyObject *sink = accum != NULL ? new_sink(own->profiler, accum, generation) : NULL;
    PyObject *answer = NULL;
    if (sink != NULL) {
        answer = PyObject_CallMethod(own->mark, "end", "O", sink);
    } else if (accum == NULL) {
        answer = PyObject_CallMethod(own->mark, "cancel", NULL);
    }
    if (answer == NULL) {
        ext_state_forget_error();
        own->profiler->internal_errors++;
    }
    Py_XDECREF(answer);
    Py_XDECREF(sink);
    Py_DECREF(own->mark);
    Py_DECREF(own->profiler);
    PyMem_Free(own);
    ext_compat_restore_error(error);
}

/* Gives a probe an object of the package's (python/cprofiling/devices/) that times the call on a device which is not CUDA's. It
 * has the methods end(sink) and cancel(); the sink is to be called once. False with MemoryError. */
static bool set_mark(cprof_probe *probe, ext_profiler *profiler, PyObject *mark)
{
    own_mark *own = PyMem_Malloc(sizeof *own);
    if (own == NULL) {
        PyErr_NoMemory();
        return false;
    }
    *own = (own_mark){Py_NewRef(mark), (ext_profiler *)Py_NewRef((PyObject *)profiler)};
    probe->mark = own;
    probe->cause = CPROF_GPU_KNOWN;
    probe->end_mark = end_own_mark;
    return true;
}

/* ---- The device and the stream */

static bool convert_place(PyObject *answer, cprof_gpu_place *place)
{
    int device;
    unsigned long long stream;
    if (!PyArg_ParseTuple(answer, "iK", &device, &stream)) {
        return false;
    }
    *place = (cprof_gpu_place){device, stream};
    return true;
}

/* Without a device it is not asked again for a while, so that a process without one pays next to nothing. */
static bool take_place(cprof_probe *probe, ext_profiler *profiler, PyObject *answer)
{
    if (answer == Py_None) {
        cprof_probe_begin_rest(&profiler->rest);
        return true;
    }
    if (!PyTuple_Check(answer)) {
        return set_mark(probe, profiler, answer);
    }
    if (PyTuple_GET_SIZE(answer) == 2 && PyUnicode_Check(PyTuple_GET_ITEM(answer, 0))) {
        probe->cause = mark_cause(profiler, PyTuple_GET_ITEM(answer, 0), PyTuple_GET_ITEM(answer, 1));
        return true;
    }
    if (convert_place(answer, &probe->place) && see_cuda(profiler)) {
        probe->cause = CPROF_GPU_KNOWN;
    }
    return !PyErr_Occurred();
}

static bool ask_for_place(ext_state *state, cprof_probe *probe, ext_profiler *profiler, PyObject *arguments)
{
    if (cprof_probe_rests(&profiler->rest)) {
        return true;
    }
    PyObject *stream = Py_NewRef(profiler->gpu_stream != NULL ? profiler->gpu_stream : Py_None);
    PyObject *answer = PyObject_CallFunctionObjArgs(ext_callback_get(state, EXT_CALLBACK_PLACE), arguments, stream, NULL);
    bool known = answer != NULL && take_place(probe, profiler, answer);
    Py_DECREF(stream);
    Py_XDECREF(answer);
    if (!known) {
        probe->cause = CPROF_GPU_FAILED;
    }
    return known;
}

/* Whether the call is still open: asking may run code that leaves it. */
typedef struct {
    cprof_span *span;
    cprof_probe *probe;
    uint64_t serial;
} ending;

static bool goes_on(const ending *call)
{
    return call->span->serial == call->serial && call->span->probe == call->probe;
}

static bool ask_for_place_after(ext_state *state, const ending *call, const ext_profiler *profiler)
{
    cprof_gpu_place place = call->probe->place;
    PyObject *stream = Py_NewRef(profiler->gpu_stream != NULL ? profiler->gpu_stream : Py_None);
    PyObject *answer = PyObject_CallFunction(ext_callback_get(state, EXT_CALLBACK_PLACE_AFTER), "(iK)O", place.device,
                                             (unsigned long long)place.stream, stream);
    bool known = answer != NULL && (answer == Py_None || convert_place(answer, &place));
    Py_DECREF(stream);
    Py_XDECREF(answer);
    if (known && goes_on(call)) {
        call->probe->left_at = place;
    }
    return known;
}

/* ---- Memory */

static cprof_probe_memory whole_device(void)
{
    cprof_probe_memory memory;
    EXT_WITHOUT_GIL(memory = cprof_probe_device_memory());
    return memory;
}

static bool ask_for_memory(ext_state *state, cprof_probe *probe, ext_profiler *profiler, PyObject *arguments)
{
    long long device, in_use, highest;
    PyObject *resets = probe->resets_peak ? Py_True : Py_False;
    PyObject *answer = PyObject_CallFunctionObjArgs(ext_callback_get(state, EXT_CALLBACK_MEMORY), arguments, resets, NULL);
    bool known = answer != NULL && (answer == Py_None || PyArg_ParseTuple(answer, "LLL", &device, &in_use, &highest));
    if (known && answer != Py_None) {
        probe->memory = (cprof_probe_memory){true, device, in_use, highest};
        profiler->rest = profiler->state->no_other_device = (cprof_probe_rest){0}; /* there is one */
    } else if (known && see_cuda(profiler)) {
        probe->memory = whole_device();
        probe->resets_peak = false;
    }
    Py_XDECREF(answer);
    return known;
}

static bool ask_for_memory_after(ext_state *state, const ending *call)
{
    cprof_probe_memory now = {.known = true, .device = call->probe->memory.device};
    bool known = true;
    if (now.device == CPROF_PROBE_WHOLE_DEVICE) {
        now = whole_device();
    } else {
        long long in_use = 0, highest = 0;
        PyObject *resets = call->probe->resets_peak ? Py_True : Py_False;
        PyObject *answer =
            PyObject_CallFunction(ext_callback_get(state, EXT_CALLBACK_MEMORY_AFTER), "LO", (long long)now.device, resets);
        known = answer != NULL && (answer == Py_None || PyArg_ParseTuple(answer, "LL", &in_use, &highest));
        now.known = known && answer != Py_None;
        if (now.known) {
            now.in_use = in_use;
            now.highest = highest;
        }
        Py_XDECREF(answer);
    }
    if (now.known && goes_on(call)) {
        cprof_probe_set_memory(call->probe, &now);
    }
    return known;
}

/* ---- A call */

static void ask_before(ext_state *state, cprof_probe *probe, ext_profiler *profiler, PyObject *const *args, size_t nargs,
                       PyObject *kwnames)
{
    PyObject *arguments = ext_convert_arguments(args, nargs, kwnames);
    if (arguments == NULL || ((probe->flags & CPROF_FLAG_MEMORY) != 0 && !ask_for_memory(state, probe, profiler, arguments))) {
        ext_callback_fail(profiler);
    }
    if (arguments != NULL && (probe->flags & CPROF_FLAG_GPU) != 0 && !ask_for_place(state, probe, profiler, arguments)) {
        ext_callback_fail(profiler);
    }
    Py_XDECREF(arguments);
}

cprof_probe *ext_probe_prepare(ext_profiler *profiler, cprof_accum *accum, uint64_t flags, PyObject *const *args, size_t nargs,
                               PyObject *kwnames, bool skips_self)
{
    if ((flags & CPROF_FLAG_PROBED) == 0) {
        return NULL;
    }
    ext_state *state = profiler->state;
    cprof_probe *probe = cprof_probe_new(accum, flags);
    if (probe == NULL) {
        profiler->internal_errors++;
        return NULL;
    }
    if ((probe->flags & (CPROF_FLAG_GPU | CPROF_FLAG_MEMORY)) != 0 && state->probers != NULL) {
        ask_before(state, probe, profiler, args, nargs, kwnames);
    }
    if ((flags & CPROF_FLAG_SHAPES) != 0) {
        size_t count = nargs + (kwnames != NULL ? (size_t)PyTuple_GET_SIZE(kwnames) : 0); /* values by keyword lie behind */
        size_t own = skips_self && nargs > 0;
        ext_shape_look(state, probe, args + own, count - own);
    }
    if (cprof_probe_is_for_capture(probe)) {
        EXT_WITHOUT_GIL(cprof_probe_begin_capture(probe));
    }
    if (profiler->seeks_cuda && see_cuda(profiler)) {
        ext_probe_want_launches(profiler, true);
    }
    if (profiler->launches != EXT_LAUNCHES_ON) {
        cprof_probe_leave_out(probe, CPROF_FLAG_LAUNCHES);
    }
    return probe;
}

void ext_probe_wait_alone(ext_state *state, cprof_probe *probe, int device)
{
    if (probe == NULL) {
        (void)ext_sync_wait(state, device);
        return;
    }
    cprof_probe_begin_wait(probe);
    if (ext_sync_wait(state, device)) {
        cprof_probe_end_wait(probe);
    }
}

void ext_probe_wait(ext_state *state, cprof_probe *probe, int device)
{
    if (device != EXT_SYNC_NONE || probe != NULL) {
        EXT_ALONE(state->guard, ext_probe_wait_alone(state, probe, device));
    }
}

static void ask_after(ext_state *state, const ending *call, ext_profiler *profiler)
{
    if (call->probe->events != NULL && !ask_for_place_after(state, call, profiler)) {
        ext_callback_fail(profiler);
    }
    if (goes_on(call) && call->probe->memory.known && !ask_for_memory_after(state, call)) {
        ext_callback_fail(profiler);
    }
}

/* Once the window is over, calls that are off are quick again. */
static void end_capture(ext_state *state, const ending *call)
{
    if (call->probe->captures) {
        EXT_WITHOUT_GIL(cprof_probe_end_capture(call->probe));
    }
    if (state->capturing && !cprof_capture_is_set()) {
        state->capturing = false;
        ext_state_set_gate(state);
    }
}

void ext_probe_end(ext_state *state, cprof_span *span)
{
    ending call = {span, span->probe, span->serial};
    if (call.probe == NULL) {
        return;
    }
    cprof_probe_stop(call.probe);
    end_capture(state, &call);
    bool asks = goes_on(&call) && (call.probe->events != NULL || call.probe->memory.known) && state->probers != NULL;
    if (!asks) {
        return;
    }
    ext_compat_error error = ext_compat_take_error();
    ext_profiler *profiler = (ext_profiler *)Py_NewRef(span->owner);
    ask_after(state, &call, profiler);
    Py_DECREF(profiler);
    ext_compat_restore_error(error);
}
