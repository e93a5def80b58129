#include "csrc/probe.h"

#include "csrc/convert.h"
#include "csrc/device_mark.h"
#include "csrc/fault.h"
#include "csrc/sync.h"

#include "cprofiling/cupti.h"

static PyObject *prober(const ext_state *state, ext_prober which)
{
    return state->probers != NULL ? PyTuple_GET_ITEM(state->probers, which) : NULL;
}

static void count_fault(ext_profiler *profiler)
{
    ext_fault_forget();
    profiler->internal_errors++;
}

/* ---- The device and the stream */

static bool cuda_is_in_use(ext_profiler *profiler)
{
    if (!profiler->has_cuda) {
        Py_BEGIN_ALLOW_THREADS
        profiler->has_cuda = cprof_gpu_probe();
        Py_END_ALLOW_THREADS
    }
    return profiler->has_cuda;
}

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
    if (convert_place(answer, &probe->place) && cuda_is_in_use(profiler)) {
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
    PyObject *answer = PyObject_CallFunctionObjArgs(prober(state, EXT_PROBER_PLACE), arguments, stream, NULL);
    bool known = answer != NULL && take_place(probe, profiler, answer);
    Py_DECREF(stream);
    Py_XDECREF(answer);
    if (!known) {
        probe->cause = CPROF_GPU_FAILED;
    }
    return known;
}

static bool ask_for_place_after(ext_state *state, cprof_probe *probe, const ext_profiler *profiler)
{
    PyObject *stream = Py_NewRef(profiler->gpu_stream != NULL ? profiler->gpu_stream : Py_None);
    PyObject *answer = PyObject_CallFunction(prober(state, EXT_PROBER_PLACE_AFTER), "(iK)O", probe->place.device,
                                             (unsigned long long)probe->place.stream, stream);
    bool known = answer != NULL && (answer == Py_None || convert_place(answer, &probe->left_at));
    Py_DECREF(stream);
    Py_XDECREF(answer);
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
    PyObject *answer = PyObject_CallFunctionObjArgs(prober(state, EXT_PROBER_MEMORY), arguments, resets, NULL);
    bool known = answer != NULL && (answer == Py_None || PyArg_ParseTuple(answer, "LLL", &device, &in_use, &highest));
    if (known && answer != Py_None) {
        probe->memory = (cprof_probe_memory){true, device, in_use, highest};
        profiler->rest = profiler->state->no_other_device = (cprof_probe_rest){0}; /* there is one */
    } else if (known && cuda_is_in_use(profiler)) {
        probe->memory = whole_device();
        probe->resets_peak = false;
    }
    Py_XDECREF(answer);
    return known;
}

static bool ask_for_memory_after(ext_state *state, cprof_probe *probe)
{
    if (probe->memory.device == CPROF_PROBE_WHOLE_DEVICE) {
        cprof_probe_memory now = whole_device();
        cprof_probe_set_memory(probe, &now);
        return true;
    }
    long long in_use, highest;
    PyObject *resets = probe->resets_peak ? Py_True : Py_False;
    PyObject *answer =
        PyObject_CallFunction(prober(state, EXT_PROBER_MEMORY_AFTER), "LO", (long long)probe->memory.device, resets);
    bool known = answer != NULL && (answer == Py_None || PyArg_ParseTuple(answer, "LL", &in_use, &highest));
    if (known && answer != Py_None) {
        cprof_probe_set_memory(probe, &(cprof_probe_memory){true, probe->memory.device, in_use, highest});
    }
    Py_XDECREF(answer);
    return known;
}

/* ---- Launches */

/* The package knows where CUPTI may be installed, and when the interpreter ends: it is to be given back while the driver is
 * there. */
static void announce_launches(ext_profiler *profiler)
{
    PyObject *told = prober(profiler->state, EXT_PROBER_LAUNCHES);
    PyObject *answer = told != NULL ? PyObject_CallOneArg(told, (PyObject *)profiler) : Py_NewRef(Py_None);
    if (answer == NULL) {
        count_fault(profiler);
    }
    Py_XDECREF(answer);
}

static void start_launches(ext_profiler *profiler)
{
    bool has_cuda, started;
    profiler->counts_launches = true; /* others may come here meanwhile */
    announce_launches(profiler);
    Py_BEGIN_ALLOW_THREADS
    has_cuda = cprof_gpu_probe();
    started = cprof_cupti_start(CPROF_CUPTI_COUNTS);
    Py_END_ALLOW_THREADS
    profiler->counts_launches = started;
    profiler->seeks_cuda = !started && !has_cuda;
}

static void stop_launches(ext_profiler *profiler)
{
    profiler->counts_launches = false;
    Py_BEGIN_ALLOW_THREADS
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    Py_END_ALLOW_THREADS
}

void ext_probe_want_launches(ext_profiler *profiler, bool wanted)
{
    profiler->seeks_cuda = false;
    if (wanted && !profiler->counts_launches) {
        start_launches(profiler);
    } else if (!wanted && profiler->counts_launches) {
        stop_launches(profiler);
    }
}

/* ---- A call */

static void ask_before(ext_state *state, cprof_probe *probe, ext_profiler *profiler, PyObject *const *args, size_t nargs,
                       PyObject *kwnames)
{
    PyObject *arguments = ext_convert_arguments(args, nargs, kwnames);
    if (arguments == NULL || ((probe->flags & CPROF_FLAG_MEMORY) != 0 && !ask_for_memory(state, probe, profiler, arguments))) {
        count_fault(profiler);
    }
    if (arguments != NULL && (probe->flags & CPROF_FLAG_GPU) != 0 && !ask_for_place(state, probe, profiler, arguments)) {
        count_fault(profiler);
    }
    Py_XDECREF(arguments);
}

cprof_probe *ext_probe_prepare(ext_state *state, const ext_target *target, PyObject *const *args, size_t nargs,
                               PyObject *kwnames)
{
    if ((target->state & CPROF_FLAG_PROBED) == 0) {
        return NULL;
    }
    ext_profiler *profiler = target->profiler;
    cprof_probe *probe = cprof_probe_new(target->accum, target->state);
    if (probe == NULL) {
        profiler->internal_errors++;
        return NULL;
    }
    if ((probe->flags & (CPROF_FLAG_GPU | CPROF_FLAG_MEMORY)) != 0 && state->probers != NULL) {
        ask_before(state, probe, profiler, args, nargs, kwnames);
    }
    if (cprof_probe_looks_for_capture(probe)) {
        Py_BEGIN_ALLOW_THREADS
        cprof_probe_begin_capture(probe);
        Py_END_ALLOW_THREADS
    }
    if (profiler->seeks_cuda && cuda_is_in_use(profiler)) {
        ext_probe_want_launches(profiler, true);
    }
    if (!profiler->counts_launches) {
        cprof_probe_leave_out(probe, CPROF_FLAG_LAUNCHES);
    }
    return probe;
}

void ext_probe_drop(cprof_probe *probe)
{
    if (probe != NULL) {
        cprof_probe_finish(probe, false, true);
    }
}

void ext_probe_wait(ext_state *state, cprof_probe *probe, int device)
{
    if (device == EXT_SYNC_NONE || probe == NULL) {
        ext_sync_wait(state, device);
        return;
    }
    cprof_probe_begin_wait(probe);
    ext_sync_wait(state, device);
    cprof_probe_end_wait(probe);
}

void ext_probe_end(ext_state *state, cprof_span *span)
{
    cprof_probe *probe = span->probe;
    if (probe == NULL) {
        return;
    }
    cprof_probe_stop(probe);
    if (probe->captures) {
        Py_BEGIN_ALLOW_THREADS
        cprof_probe_end_capture(probe);
        Py_END_ALLOW_THREADS
    }
    if ((probe->events == NULL && !probe->memory.known) || state->probers == NULL) {
        return;
    }
    ext_profiler *profiler = (ext_profiler *)span->owner;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (probe->events != NULL && !ask_for_place_after(state, probe, profiler)) {
        count_fault(profiler);
    }
    if (span->probe == probe && probe->memory.known && !ask_for_memory_after(state, probe)) {
        count_fault(profiler);
    }
    PyErr_Restore(type, value, traceback);
}
