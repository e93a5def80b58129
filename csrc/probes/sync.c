#include "csrc/probes/sync.h"

#include "csrc/convert.h"

#include "cprofiling/devices/wait.h"

_Static_assert((int)EXT_SYNC_CURRENT == CPROF_GPU_CURRENT_DEVICE, "the core's word for the current device");

enum { MOST_DEVICES = 1 << 16 };

/* What a finder of devices answers about a call, a new reference; NULL with an exception. */
static PyObject *ask_finder(PyObject *finder, PyObject *const *args, size_t nargs, PyObject *kwnames)
{
    Py_INCREF(finder);
    PyObject *arguments = ext_convert_arguments(args, nargs, kwnames);
    PyObject *answer = arguments != NULL ? PyObject_CallOneArg(finder, arguments) : NULL;
    Py_XDECREF(arguments);
    Py_DECREF(finder);
    return answer;
}

static int cuda_device(ext_state *state, PyObject *const *args, size_t nargs, PyObject *kwnames)
{
    bool in_use;
    if (state->device_finder == NULL) {
        return EXT_SYNC_NONE;
    }
    EXT_WITHOUT_GIL(in_use = cprof_wait_probe());
    if (!in_use) {
        return EXT_SYNC_NONE;
    }
    PyObject *answer = ask_finder(state->device_finder, args, nargs, kwnames);
    long device = answer == NULL ? -1 : answer == Py_None ? EXT_SYNC_NONE : PyLong_AsLong(answer);
    Py_XDECREF(answer);
    return (int)device;
}

static PyObject *other_callback(ext_state *state, ext_callback which)
{
    bool asks = state->probers != NULL && !cprof_probe_rests(&state->no_other_device);
    return asks ? ext_callback_get(state, which) : NULL;
}

static int other_device(ext_state *state, PyObject *const *args, size_t nargs, PyObject *kwnames)
{
    PyObject *finder = other_callback(state, EXT_CALLBACK_WAIT_DEVICE);
    if (finder == NULL) {
        return EXT_SYNC_NONE;
    }
    PyObject *answer = ask_finder(finder, args, nargs, kwnames);
    if (answer == Py_None) {
        cprof_probe_begin_rest(&state->no_other_device);
    }
    long index = answer != NULL && answer != Py_None ? PyLong_AsLong(answer) : -1;
    Py_XDECREF(answer);
    return index >= 0 && index < MOST_DEVICES ? EXT_SYNC_OTHER - (int)index : EXT_SYNC_NONE;
}

static int find_device(ext_state *state, ext_profiler *profiler, PyObject *const *args, size_t nargs, PyObject *kwnames)
{
    int device = cuda_device(state, args, nargs, kwnames);
    if (device == EXT_SYNC_NONE) {
        device = other_device(state, args, nargs, kwnames);
    }
    if (PyErr_Occurred()) {
        ext_callback_fail(profiler);
        return EXT_SYNC_NONE;
    }
    return device;
}

int ext_sync_device(ext_state *state, ext_profiler *profiler, PyObject *const *args, size_t nargs, PyObject *kwnames)
{
    int device;
    EXT_ALONE(state->guard, device = find_device(state, profiler, args, nargs, kwnames));
    return device;
}

/* The stream in use on a device, which is asked whether it is being captured. 0: not known. */
static uint64_t stream_of(ext_state *state, int device)
{
    PyObject *number = PyLong_FromLong(device);
    PyObject *answer = number != NULL ? PyObject_CallOneArg(state->stream_finder, number) : NULL;
    unsigned long long stream = answer != NULL ? PyLong_AsUnsignedLongLong(answer) : 0;
    Py_XDECREF(number);
    Py_XDECREF(answer);
    if (PyErr_Occurred()) {
        ext_state_forget_error();
        stream = 0;
    }
    return stream;
}

static bool wait_for_cuda(ext_state *state, int device)
{
    if (state->stream_finder == NULL) {
        return false;
    }
    uint64_t stream = stream_of(state, device);
    int outcome;
    EXT_WITHOUT_GIL(outcome = cprof_wait_synchronize(device, stream));
    return outcome == CPROF_GPU_WAITED;
}

/* `index`: negative for the one that the thread uses, if the process uses one. */
static bool wait_for_other(ext_state *state, int index)
{
    PyObject *waiter = other_callback(state, EXT_CALLBACK_WAIT);
    if (waiter == NULL) {
        return false;
    }
    PyObject *answer = PyObject_CallFunction(waiter, "i", index);
    bool waited = answer == Py_True;
    if (answer == NULL) {
        ext_state_forget_error();
        state->internal_errors++;
    } else if (answer == Py_False) {
        cprof_probe_begin_rest(&state->no_other_device);
    }
    Py_XDECREF(answer);
    return waited;
}

bool ext_sync_wait(ext_state *state, int device)
{
    if (device == EXT_SYNC_NONE) {
        return false;
    }
    ext_compat_error error = ext_compat_take_error();
    bool waited = device <= EXT_SYNC_OTHER ? wait_for_other(state, EXT_SYNC_OTHER - device) : wait_for_cuda(state, device);
    if (device == EXT_SYNC_CURRENT) {
        waited = wait_for_other(state, EXT_SYNC_CURRENT) || waited;
    }
    ext_compat_restore_error(error);
    return waited;
}
