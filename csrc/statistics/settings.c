#include "csrc/statistics/settings.h"

#include "csrc/convert.h"
#include "csrc/fault.h"
#include "csrc/probes/callbacks.h"

/* Adds a flag that is switched on: by bool, numpy's bool, numbers; no str, whose truth would be a surprise, and not None. */
static bool add_flag(PyObject *value, const char *parameter, unsigned flag, unsigned *flags)
{
    PyNumberMethods *methods = Py_TYPE(value)->tp_as_number;
    if (value == Py_None || methods == NULL || methods->nb_bool == NULL) {
        ext_convert_refuse_type(parameter, "a bool", value);
        return false;
    }
    bool is_on;
    bool converted = ext_convert_bool(value, &is_on);
    *flags |= is_on ? flag : 0;
    return converted;
}

/* What only the package can check. */
static bool convert_options(ext_state *state, PyObject *gpu_stream, PyObject *memory, PyObject *counters, ext_settings *asked)
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

/* The usual case, which needs no code of the package's: at the end of the interpreter there may be none. */
static bool is_nothing(PyObject *counters)
{
    return counters == Py_None || (PyTuple_CheckExact(counters) && PyTuple_GET_SIZE(counters) == 0);
}

bool ext_settings_parse(ext_state *state, PyObject *args, PyObject *kwargs, ext_settings *asked)
{
    static char *keywords[] = {"enabled", "synchronize_cuda", "reset",    "skip_first_n", "gpu_time", "gpu_stream", "kernels",
                               "nvtx",    "memory",           "counters", "live",         "by_shape", NULL};
    PyObject *enabled, *synchronize_cuda = Py_False, *reset = Py_False, *skip_first_n = NULL, *gpu_time = Py_False,
                       *gpu_stream = Py_None, *kernels = Py_False, *nvtx = Py_False, *memory = Py_False, *counters = Py_None,
                       *by_shape = Py_False;
    unsigned resets = 0;
    *asked = (ext_settings){.live = Py_None};
    bool is_right = PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOOOOOOOOO:set_profiling", keywords, &enabled,
                                                &synchronize_cuda, &reset, &skip_first_n, &gpu_time, &gpu_stream, &kernels,
                                                &nvtx, &memory, &counters, &asked->live, &by_shape) &&
                    add_flag(enabled, "enabled", CPROF_FLAG_STATS, &asked->flags) &&
                    add_flag(synchronize_cuda, "synchronize_cuda", CPROF_FLAG_SYNC, &asked->flags) &&
                    add_flag(reset, "reset", 1, &resets) &&
                    (skip_first_n == NULL || ext_convert_count(skip_first_n, "skip_first_n", &asked->skips)) &&
                    add_flag(gpu_time, "gpu_time", CPROF_FLAG_GPU, &asked->flags) &&
                    add_flag(kernels, "kernels", CPROF_FLAG_LAUNCHES, &asked->flags) &&
                    add_flag(nvtx, "nvtx", CPROF_FLAG_NVTX, &asked->flags) &&
                    add_flag(by_shape, "by_shape", CPROF_FLAG_SHAPES, &asked->flags);
    bool is_usual = gpu_stream == Py_None && memory == Py_False && is_nothing(counters) &&
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

/* Whether there is anything that enabling with another skip_first_n would discard, without being asked to. */
static bool discards_silently(const ext_profiler *self, const ext_settings *asked, uint64_t skips)
{
    bool gathered = false;
    if (asked->flags != 0 && !asked->resets && asked->skips != skips) {
        cprof_generation epoch;
        Py_BEGIN_ALLOW_THREADS(void)
        cprof_registry_visit(self->registry, end_visit, &gathered, &epoch);
        Py_END_ALLOW_THREADS
    }
    return gathered;
}

bool ext_settings_warn(const ext_profiler *self, const ext_settings *asked)
{
    uint64_t skips = cprof_epoch_present(&self->registry->epoch).skip_first_n;
    if (!discards_silently(self, asked, skips)) {
        return true;
    }
    PyObject *module = PyImport_ImportModule("cprofiling._internal.messages");
    if (module == NULL) {
        ext_fault_forget(); /* the interpreter is ending */
        return true;
    }
    PyObject *message =
        PyUnicode_FromFormat("skip_first_n changes from %llu to %llu: the statistics gathered so far are discarded; reset=True "
                             "discards them without this warning",
                             (unsigned long long)skips, (unsigned long long)asked->skips);
    PyObject *done = message != NULL ? PyObject_CallMethod(module, "warn", "O", message) : NULL;
    Py_XDECREF(done);
    Py_XDECREF(message);
    Py_DECREF(module);
    return done != NULL;
}
