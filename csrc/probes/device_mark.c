#include "csrc/probes/device_mark.h"

#include "csrc/convert.h"
#include "csrc/fault.h"

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

cprof_gpu_cause ext_device_mark_cause(ext_profiler *profiler, PyObject *name, PyObject *reason)
{
    if (PyUnicode_Check(reason)) {
        Py_XSETREF(profiler->device_note, Py_NewRef(reason));
    }
    return cause_of(name);
}

static bool is_of_now(const own_sink *sink)
{
    return cprof_registry_state(sink->profiler->registry) >> CPROF_STATE_GENERATION_SHIFT == sink->generation;
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
        reason = is_of_now(sink) ? reason : Py_None; /* of statistics that were discarded it says nothing */
        cprof_accum_miss_gpu(sink->accum, sink->generation, ext_device_mark_cause(sink->profiler, cause, reason));
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
        ext_fault_forget();
        own->profiler->internal_errors++;
    }
    Py_XDECREF(answer);
    Py_XDECREF(sink);
    Py_DECREF(own->mark);
    Py_DECREF(own->profiler);
    PyMem_Free(own);
    ext_compat_restore_error(error);
}

bool ext_device_mark_set(cprof_probe *probe, ext_profiler *profiler, PyObject *mark)
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
