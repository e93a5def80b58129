#include "csrc/probes/probe.h"

#include "csrc/convert.h"
#include "csrc/probes/callbacks.h"
#include "csrc/probes/device_mark.h"
#include "csrc/probes/launches.h"
#include "csrc/probes/shape.h"
#include "csrc/probes/sync.h"

#include "cprofiling/devices/capture.h"
#include "cprofiling/devices/cupti.h"

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

/* What is unknown for want of a device stays so for a while: a process without one pays next to nothing. */
static bool take_place(cprof_probe *probe, ext_profiler *profiler, PyObject *answer)
{
    if (answer == Py_None) {
        cprof_probe_begin_rest(&profiler->rest);
        return true;
    }
    if (!PyTuple_Check(answer)) {
        return ext_device_mark_set(probe, profiler, answer);
    }
    if (PyTuple_GET_SIZE(answer) == 2 && PyUnicode_Check(PyTuple_GET_ITEM(answer, 0))) {
        probe->cause = ext_device_mark_cause(profiler, PyTuple_GET_ITEM(answer, 0), PyTuple_GET_ITEM(answer, 1));
        return true;
    }
    if (convert_place(answer, &probe->place) && ext_launches_see_cuda(profiler)) {
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

/* Whether the call is still open: what is asked for may run code that leaves it. */
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
    Py_BEGIN_ALLOW_THREADS
    memory = cprof_probe_device_memory();
    Py_END_ALLOW_THREADS
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
    } else if (known && ext_launches_see_cuda(profiler)) {
        probe->memory = whole_device();
        probe->resets_peak = false;
    }
    Py_XDECREF(answer);
    return known;
}

static bool ask_for_memory_after(ext_state *state, const ending *call)
{
    cprof_probe_memory now = {.known = true, .device = call->probe->memory.device};
    long long in_use = 0;
    long long highest = 0;
    bool known = true;
    if (now.device == CPROF_PROBE_WHOLE_DEVICE) {
        now = whole_device();
    } else {
        PyObject *resets = call->probe->resets_peak ? Py_True : Py_False;
        PyObject *answer =
            PyObject_CallFunction(ext_callback_get(state, EXT_CALLBACK_MEMORY_AFTER), "LO", (long long)now.device, resets);
        known = answer != NULL && (answer == Py_None || PyArg_ParseTuple(answer, "LL", &in_use, &highest));
        now.known = known && answer != Py_None;
        Py_XDECREF(answer);
    }
    if (now.known && now.device != CPROF_PROBE_WHOLE_DEVICE) {
        now.in_use = in_use;
        now.highest = highest;
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
        Py_BEGIN_ALLOW_THREADS
        cprof_probe_begin_capture(probe);
        Py_END_ALLOW_THREADS
    }
    if (profiler->seeks_cuda && ext_launches_see_cuda(profiler)) {
        ext_launches_want(profiler, true);
    }
    if (profiler->launches != EXT_LAUNCHES_ON) {
        cprof_probe_leave_out(probe, CPROF_FLAG_LAUNCHES);
    }
    return probe;
}

void ext_probe_drop(cprof_probe *probe)
{
    if (probe != NULL) {
        cprof_probe_finish(probe, false, true);
        cprof_probe_settle();
    }
}

void ext_probe_wait(ext_state *state, cprof_probe *probe, int device)
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

static void ask_after(ext_state *state, const ending *call, ext_profiler *profiler)
{
    if (call->probe->events != NULL && !ask_for_place_after(state, call, profiler)) {
        ext_callback_fail(profiler);
    }
    if (goes_on(call) && call->probe->memory.known && !ask_for_memory_after(state, call)) {
        ext_callback_fail(profiler);
    }
}

/* Once it is over, what is off is quick again. */
static void end_capture(ext_state *state, const ending *call)
{
    if (call->probe->captures) {
        Py_BEGIN_ALLOW_THREADS
        cprof_probe_end_capture(call->probe);
        Py_END_ALLOW_THREADS
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
