#include "csrc/sync.h"

#include "csrc/convert.h"
#include "csrc/fault.h"

#include "cprofiling/gpu.h"

_Static_assert((int)EXT_SYNC_CURRENT == CPROF_GPU_CURRENT_DEVICE, "the core's word for the current device");

static bool cuda_is_in_use(void)
{
    bool in_use;
    Py_BEGIN_ALLOW_THREADS
    in_use = cprof_gpu_probe();
    Py_END_ALLOW_THREADS
    return in_use;
}

static int ask_finder(PyObject *finder, PyObject *const *args, size_t nargs, PyObject *kwnames)
{
    PyObject *arguments = ext_convert_arguments(args, nargs, kwnames);
    PyObject *answer = arguments != NULL ? PyObject_CallOneArg(finder, arguments) : NULL;
    long device = answer == NULL ? -1 : answer == Py_None ? EXT_SYNC_NONE : PyLong_AsLong(answer);
    Py_XDECREF(arguments);
    Py_XDECREF(answer);
    return (int)device;
}

int ext_sync_device(ext_state *state, ext_profiler *profiler, PyObject *const *args, size_t nargs, PyObject *kwnames)
{
    if (state->device_finder == NULL || !cuda_is_in_use()) {
        return EXT_SYNC_NONE;
    }
    int device = ask_finder(state->device_finder, args, nargs, kwnames);
    if (PyErr_Occurred()) {
        ext_fault_forget();
        profiler->internal_errors++;
        return EXT_SYNC_NONE;
    }
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
        ext_fault_forget();
        stream = 0;
    }
    return stream;
}

void ext_sync_wait(ext_state *state, int device)
{
    if (device == EXT_SYNC_NONE || state->stream_finder == NULL) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    uint64_t stream = stream_of(state, device);
    Py_BEGIN_ALLOW_THREADS(void)
    cprof_gpu_synchronize(device, stream);
    Py_END_ALLOW_THREADS
    PyErr_Restore(type, value, traceback);
}
