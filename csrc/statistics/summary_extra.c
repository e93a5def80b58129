#include "csrc/statistics/summary_extra.h"

#include "cprofiling/base/alloc.h"

bool ext_summary_extra_copy(const cprof_resources_copy *extra, ext_summary_extra **copy)
{
    static const double fractions[] = {0.5, 0.99};
    *copy = cprof_alloc_zeroed(sizeof **copy);
    if (*copy == NULL) {
        return false;
    }
    (*copy)->figures = extra->figures;
    cprof_resources_gpu_quantiles_ms(extra, fractions, 2, (*copy)->gpu_ms);
    return true;
}

static PyObject *known_or_none(double milliseconds)
{
    return milliseconds < 0.0 ? Py_NewRef(Py_None) : PyFloat_FromDouble(milliseconds);
}

static PyObject *numbers(const uint64_t *values, size_t count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(values[i]);
        if (number == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, number);
        }
    }
    return tuple;
}

/* 128 bits as an int of Python's. */
static PyObject *big_number(cprof_u128 value)
{
    if (value <= UINT64_MAX) {
        return PyLong_FromUnsignedLongLong((uint64_t)value);
    }
    char text[40];
    (void)snprintf(text, sizeof text, "%llx%016llx", (unsigned long long)(value >> 64), (unsigned long long)value);
    return PyLong_FromString(text, NULL, 16);
}

static PyObject *totals(const cprof_resources_figures *figures)
{
    PyObject *tuple = PyTuple_New(CPROF_COUNTER_COUNT);
    for (Py_ssize_t i = 0; tuple != NULL && i < CPROF_COUNTER_COUNT; i++) {
        PyObject *number = big_number(figures->counters[i]);
        if (number == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, i, number);
        }
    }
    return tuple;
}

/* (count, mean_ms, p50_ms, p99_ms, total_ms, queue_delay_ms, multi_stream, numbers by cause) */
static PyObject *gpu_tuple(const ext_summary_extra *extra)
{
    const cprof_resources_figures *figures = &extra->figures;
    double total_ms = figures->gpu_count > 0 ? cprof_moments_ns_to_ms(figures->gpu_ns) : -1.0;
    double mean_ms = cprof_resources_mean_ms(figures->gpu_ns, figures->gpu_count);
    double delay_ms = cprof_resources_mean_ms(figures->queue_ns, figures->queue_count);
    return Py_BuildValue("(KNNNNNKN)", (unsigned long long)figures->gpu_count, known_or_none(mean_ms),
                         known_or_none(extra->gpu_ms[0]), known_or_none(extra->gpu_ms[1]), known_or_none(total_ms),
                         known_or_none(delay_ms), (unsigned long long)figures->multi_stream,
                         numbers(figures->missed, CPROF_GPU_CAUSES));
}

static PyObject *launches_tuple(const cprof_launch_counts *all)
{
#define VALUE(name) all->name,
    const uint64_t values[] = {CPROF_LAUNCH_COUNTS(VALUE)};
#undef VALUE
    return numbers(values, sizeof values / sizeof values[0]);
}

static PyObject *counters_tuple(const cprof_resources_figures *figures)
{
    return Py_BuildValue("(INNK)", figures->asked >> CPROF_RESOURCES_COUNTER_SHIFT,
                         numbers(figures->counted, CPROF_COUNTER_COUNT), totals(figures),
                         (unsigned long long)figures->estimated);
}

static PyObject *memory_tuple(const cprof_resources_memory *memory)
{
    return Py_BuildValue("(KLLLL)", (unsigned long long)memory->calls, (long long)memory->entry, (long long)memory->exit,
                         (long long)memory->change, (long long)memory->peak);
}

PyObject *ext_summary_extra_tuple(const ext_summary_extra *extra)
{
    if (extra == NULL) {
        Py_RETURN_NONE;
    }
    const cprof_resources_figures *figures = &extra->figures;
    return Py_BuildValue("(INNNNNKN)", figures->asked, gpu_tuple(extra), launches_tuple(&figures->launched),
                         counters_tuple(figures), memory_tuple(&figures->device_memory), memory_tuple(&figures->host_memory),
                         (unsigned long long)figures->waits, PyFloat_FromDouble(cprof_moments_ns_to_ms(figures->wait_ns)));
}
