#include "csrc/types.h"

#include "csrc/convert.h"

#include "cprofiling/devices/capture.h"
#include "cprofiling/devices/counters.h"
#include "cprofiling/devices/cupti.h"
#include "cprofiling/devices/nvtx.h"

enum { TEXT_SIZE = 512 };

/* A text of the core's, or None; asked for without the GIL, as loaders and drivers may have to be waited for. */
typedef bool (*teller)(char *text, size_t size);

static PyObject *ask(teller tell)
{
    char text[TEXT_SIZE];
    bool any;
    EXT_WITHOUT_GIL(any = tell(text, sizeof text));
    return any ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace") : Py_NewRef(Py_None);
}

static PyObject *instruments_poll_devices(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    Py_BEGIN_ALLOW_THREADS
    cprof_event_poll();
    cprof_cupti_flush();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

#define ASKING(name, tell)                                                                        \
    static PyObject *instruments_##name(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) \
    {                                                                                             \
        return ask(tell);                                                                         \
    }
ASKING(gpu_reason, cprof_wait_reason)
ASKING(gpu_time_reason, cprof_event_reason)
ASKING(capture_report, cprof_capture_report)
ASKING(cupti_reason, cprof_cupti_reason)
#undef ASKING

static PyObject *instruments_nvtx_status(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    bool is_heard;
    EXT_WITHOUT_GIL(is_heard = cprof_nvtx_is_heard());
    return Py_BuildValue("(Nz)", PyBool_FromLong(is_heard), cprof_nvtx_reason());
}

/* From now on calls of all Profilers look whether they are meant. */
static void open_gate(ext_state *state)
{
    EXT_WITHOUT_GIL((void)cprof_nvtx_is_heard()); /* the first time a tool may be loaded */
    state->capturing = true;
    ext_state_set_gate(state);
    cprof_registry_capture_owner(state->serial, CPROF_FLAG_CAPTURE | CPROF_FLAG_NVTX);
}

static PyObject *instruments_set_capture(PyObject *module, PyObject *args)
{
    PyObject *name, *skip, *count;
    uint64_t skipped, captured;
    if (!PyArg_ParseTuple(args, "OOO:set_capture", &name, &skip, &count) || !ext_convert_count(skip, "skip", &skipped) ||
        !ext_convert_count(count, "count", &captured)) {
        return NULL;
    }
    PyObject *owner = NULL;
    cprof_name utf8;
    PyObject *legal = ext_convert_name(name, "name");
    if (legal == NULL || !ext_convert_utf8(legal, &utf8, &owner)) {
        Py_XDECREF(legal);
        return NULL;
    }
    cprof_status status = cprof_capture_set(utf8, skipped, captured);
    Py_DECREF(owner);
    Py_DECREF(legal);
    if (status != CPROF_OK) {
        return ext_convert_status(status, "set_capture");
    }
    ext_state *state = ext_state_of_module(module);
    EXT_ALONE(state->guard, open_gate(state));
    Py_RETURN_NONE;
}

/* (name, unit), which tries none of them. */
static PyObject *nth_unit(const void *Py_UNUSED(context), size_t place)
{
    return Py_BuildValue("(ss)", cprof_counter_name((cprof_counter)place), cprof_counter_unit((cprof_counter)place));
}

static PyObject *instruments_perf_units(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return ext_convert_tuple(CPROF_COUNTER_COUNT, nth_unit, NULL);
}

/* (name, unit, why it has no value here, or None). */
static PyObject *nth_status(const void *Py_UNUSED(context), size_t place)
{
    char reason[TEXT_SIZE];
    cprof_counter counter = (cprof_counter)place;
    bool any = cprof_counters_reason(counter, reason, sizeof reason);
    return Py_BuildValue("(ssz)", cprof_counter_name(counter), cprof_counter_unit(counter), any ? reason : NULL);
}

static PyObject *instruments_perf_status(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return ext_convert_list(CPROF_COUNTER_COUNT, nth_status, NULL);
}

static PyObject *instruments_cupti_status(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    cprof_cupti_state now;
    bool has_cuda;
    Py_BEGIN_ALLOW_THREADS
    has_cuda = cprof_wait_probe();
    cprof_cupti_get_state(&now);
    Py_END_ALLOW_THREADS
    PyObject *path = now.path[0] != '\0' ? PyUnicode_DecodeFSDefault(now.path) : Py_NewRef(Py_None);
    if (path == NULL) {
        return NULL;
    }
#define COUNTER(name) #name, (unsigned long long)now.name
    return Py_BuildValue("{sOsNsIsKsKsKsKsKsKsKsKsK}", "cuda", has_cuda ? Py_True : Py_False, "library", path, "version",
                         (unsigned)now.version, "counting", (unsigned long long)now.users[CPROF_CUPTI_COUNTS], "recording",
                         (unsigned long long)now.users[CPROF_CUPTI_TRACE], COUNTER(launched), COUNTER(outside),
                         COUNTER(unknown_node), COUNTER(records), COUNTER(unknown_launch), COUNTER(untimed), COUNTER(dropped));
#undef COUNTER
}

static PyMethodDef functions[] = {
    {"poll_devices", instruments_poll_devices, METH_NOARGS, PyDoc_STR("Takes in what devices have done by now.")},
    {"gpu_reason", instruments_gpu_reason, METH_NOARGS, PyDoc_STR("Why CUDA devices are not waited for, or None.")},
    {"gpu_time_reason", instruments_gpu_time_reason, METH_NOARGS, PyDoc_STR("Why devices did not time nodes, or None.")},
    {"nvtx_status", instruments_nvtx_status, METH_NOARGS, PyDoc_STR("Whether a tool listens to NVTX, and why none can.")},
    {"set_capture", instruments_set_capture, METH_VARARGS, PyDoc_STR("Sets the capture window: node, calls to skip, count.")},
    {"capture_report", instruments_capture_report, METH_NOARGS, PyDoc_STR("What became of the capture window, or None.")},
    {"perf_units", instruments_perf_units, METH_NOARGS, PyDoc_STR("Of each counter: its name and its unit.")},
    {"perf_status", instruments_perf_status, METH_NOARGS, PyDoc_STR("As perf_units; and why it has no value, or None.")},
    {"cupti_reason", instruments_cupti_reason, METH_NOARGS, PyDoc_STR("Why CUPTI is off, or what was lost; or None.")},
    {"cupti_status", instruments_cupti_status, METH_NOARGS, PyDoc_STR("The state of CUPTI, a dict.")},
    {NULL, NULL, 0, NULL},
};

bool ext_instruments_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions) == 0;
}
