#include "csrc/statistics/rows.h"

#include "cprofiling/stats/moments.h"

#define FIELD(name) {#name, NULL}
#define FIELD_OF_LIST(name) FIELD(name),
#define LAST {NULL, NULL}

static PyStructSequence_Field summary_fields[] = {FIELD(rows),   FIELD(skip_first_n), FIELD(lost),
                                                  FIELD(unread), FIELD(shapes),       LAST};

/* The first are those of NodeProfilingStats, in its order. */
static PyStructSequence_Field node_fields[] = {
    FIELD(node_name),       FIELD(stage),           FIELD(count),         FIELD(mean_ms),
    FIELD(median_ms),       FIELD(std_ms),          FIELD(min_ms),        FIELD(max_ms),
    FIELD(total_ms),        FIELD(last_ms),         FIELD(p50_ms),        FIELD(p90_ms),
    FIELD(p95_ms),          FIELD(p99_ms),          FIELD(p999_ms),       FIELD(error_count),
    FIELD(cancelled_count), FIELD(skipped_count),   FIELD(dropped_count), FIELD(first_ms),
    FIELD(self_total_ms),   FIELD(active_total_ms), FIELD(resources),     LAST};

static PyStructSequence_Field resources_fields[] = {FIELD(asked),    FIELD(gpu),           FIELD(launches),
                                                    FIELD(counters), FIELD(device_memory), FIELD(host_memory),
                                                    FIELD(waits),    FIELD(wait_ms),       LAST};

static PyStructSequence_Field gpu_fields[] = {FIELD(count),        FIELD(mean_ms),  FIELD(p50_ms),
                                              FIELD(p99_ms),       FIELD(total_ms), FIELD(queue_delay_ms),
                                              FIELD(multi_stream), FIELD(missed),   LAST};

static PyStructSequence_Field launches_fields[] = {CPROF_LAUNCH_COUNTS(FIELD_OF_LIST) LAST};

static PyStructSequence_Field counters_fields[] = {FIELD(asked), FIELD(counted), FIELD(totals), FIELD(estimated), LAST};

static PyStructSequence_Field memory_fields[] = {FIELD(calls), FIELD(entry), FIELD(exit), FIELD(change), FIELD(peak), LAST};

static PyStructSequence_Field shape_fields[] = {
    FIELD(node_name),       FIELD(stage),    FIELD(signature), FIELD(count),   FIELD(error_count),
    FIELD(cancelled_count), FIELD(mean_ms),  FIELD(p50_ms),    FIELD(p99_ms),  FIELD(min_ms),
    FIELD(max_ms),          FIELD(total_ms), FIELD(tail),      FIELD(slowest), LAST};

static PyStructSequence_Field facts_fields[] = {FIELD(key_count),  FIELD(source_count), FIELD(is_merged),
                                                FIELD(skip_least), FIELD(skip_most),    FIELD(internal_errors),
                                                FIELD(cost_ns),    FIELD(notes),        LAST};

static PyTypeObject *make_type(const char *name, PyStructSequence_Field *fields)
{
    int count = 0;
    while (fields[count].name != NULL) {
        count++;
    }
    PyStructSequence_Desc description = {.name = name, .fields = fields, .n_in_sequence = count};
    return PyStructSequence_NewType(&description);
}

bool ext_rows_add(ext_state *state)
{
#define ADD(name) (state->name##_row = make_type("cprofiling._core." #name "_row", name##_fields)) != NULL &&
    return EXT_STATE_ROWS(ADD) true;
#undef ADD
}

PyObject *ext_rows_new(PyTypeObject *type, PyObject **values, size_t count)
{
    PyObject *row = NULL;
    if (type != NULL) {
        row = PyStructSequence_New(type);
    } else {
        PyErr_SetString(PyExc_RuntimeError, "the interpreter is ending");
    }
    bool complete = row != NULL;
    for (size_t i = 0; i < count; i++) {
        complete = complete && values[i] != NULL;
        if (row != NULL) {
            PyStructSequence_SetItem(row, (Py_ssize_t)i, values[i]);
        } else {
            Py_XDECREF(values[i]);
        }
    }
    if (!complete) {
        Py_CLEAR(row);
    }
    return row;
}

PyObject *ext_rows_of_tuple(PyTypeObject *type, PyObject *values)
{
    enum { MOST = 16 };
    PyObject *items[MOST];
    if (values == NULL) {
        return NULL;
    }
    size_t count = (size_t)PyTuple_GET_SIZE(values);
    for (size_t i = 0; i < count; i++) {
        items[i] = Py_NewRef(PyTuple_GET_ITEM(values, (Py_ssize_t)i));
    }
    Py_DECREF(values);
    return ext_rows_new(type, items, count);
}

PyObject *ext_rows_ms(double milliseconds)
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

/* Sums of 128 bits as ints of Python's. */
static PyObject *totals(const cprof_u128 *sums)
{
    PyObject *tuple = PyTuple_New(CPROF_COUNTER_COUNT);
    for (Py_ssize_t i = 0; tuple != NULL && i < CPROF_COUNTER_COUNT; i++) {
        char text[40];
        (void)snprintf(text, sizeof text, "%llx%016llx", (unsigned long long)(sums[i] >> 64), (unsigned long long)sums[i]);
        PyObject *number = PyLong_FromString(text, NULL, 16);
        if (number == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, i, number);
        }
    }
    return tuple;
}

static PyObject *gpu_row(const ext_state *state, const cprof_resources_figures *figures, const double gpu_ms[2])
{
    double total_ms = figures->gpu_count > 0 ? cprof_moments_ns_to_ms(figures->gpu_ns) : -1.0;
    double mean_ms = cprof_resources_mean_ms(figures->gpu_ns, figures->gpu_count);
    double delay_ms = cprof_resources_mean_ms(figures->queue_ns, figures->queue_count);
    return ext_rows_of_tuple(state->gpu_row,
                             Py_BuildValue("(KNNNNNKN)", (unsigned long long)figures->gpu_count, ext_rows_ms(mean_ms),
                                           ext_rows_ms(gpu_ms[0]), ext_rows_ms(gpu_ms[1]), ext_rows_ms(total_ms),
                                           ext_rows_ms(delay_ms), (unsigned long long)figures->multi_stream,
                                           numbers(figures->missed, CPROF_GPU_CAUSES)));
}

static PyObject *launches_row(const ext_state *state, const cprof_launch_counts *all)
{
#define VALUE(name) all->name,
    const uint64_t values[] = {CPROF_LAUNCH_COUNTS(VALUE)};
#undef VALUE
    return ext_rows_of_tuple(state->launches_row, numbers(values, sizeof values / sizeof values[0]));
}

static PyObject *counters_row(const ext_state *state, const cprof_resources_figures *figures)
{
    return ext_rows_of_tuple(state->counters_row,
                             Py_BuildValue("(INNK)", figures->asked >> CPROF_RESOURCES_COUNTER_SHIFT,
                                           numbers(figures->counted, CPROF_COUNTER_COUNT), totals(figures->counters),
                                           (unsigned long long)figures->estimated));
}

static PyObject *memory_row(const ext_state *state, const cprof_resources_memory *memory)
{
    return ext_rows_of_tuple(state->memory_row,
                             Py_BuildValue("(KLLLL)", (unsigned long long)memory->calls, (long long)memory->entry,
                                           (long long)memory->exit, (long long)memory->change, (long long)memory->peak));
}

PyObject *ext_rows_of_resources(const ext_state *state, const cprof_resources_figures *figures, const double gpu_ms[2])
{
    return ext_rows_of_tuple(state->resources_row,
                             Py_BuildValue("(INNNNNKN)", figures->asked, gpu_row(state, figures, gpu_ms),
                                           launches_row(state, &figures->launched), counters_row(state, figures),
                                           memory_row(state, &figures->device_memory), memory_row(state, &figures->host_memory),
                                           (unsigned long long)figures->waits,
                                           PyFloat_FromDouble(cprof_moments_ns_to_ms(figures->wait_ns))));
}
