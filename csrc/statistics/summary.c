#include "csrc/statistics/summary.h"

#include "csrc/convert.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/stats/moments.h"

#include <math.h>

/* ---- Rows: named tuples of figures */

#define FIELD(name) {#name, NULL}
#define FIELD_OF_LIST(name) FIELD(name),
#define LAST {NULL, NULL}

static PyStructSequence_Field summary_fields[] = {FIELD(rows),   FIELD(skip_first_n), FIELD(median), FIELD(lost),
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

bool ext_summary_add_rows(ext_state *state)
{
#define ADD(name) (state->name##_row = make_type("cprofiling._core." #name "_row", name##_fields)) != NULL &&
    return EXT_STATE_ROWS(ADD) true;
#undef ADD
}

PyObject *ext_summary_row_of(PyTypeObject *type, PyObject *values)
{
    if (values == NULL) {
        return NULL;
    }
    PyObject *row = type != NULL ? PyStructSequence_New(type) : ext_state_ending();
    for (Py_ssize_t i = 0; row != NULL && i < PyTuple_GET_SIZE(values); i++) {
        PyStructSequence_SetItem(row, i, Py_NewRef(PyTuple_GET_ITEM(values, i)));
    }
    Py_DECREF(values);
    return row;
}

/* Milliseconds as a float; negative stands for unknown, and becomes None. */
static PyObject *ms_or_none(double milliseconds)
{
    return milliseconds < 0.0 ? Py_NewRef(Py_None) : PyFloat_FromDouble(milliseconds);
}

static PyObject *nth_number(const void *values, size_t place)
{
    return PyLong_FromUnsignedLongLong(((const uint64_t *)values)[place]);
}

static PyObject *numbers(const uint64_t *values, size_t count)
{
    return ext_convert_tuple(count, nth_number, values);
}

/* A sum of 128 bits as an int of Python's. */
static PyObject *nth_total(const void *sums, size_t place)
{
    char text[40];
    cprof_u128 sum = ((const cprof_u128 *)sums)[place];
    (void)snprintf(text, sizeof text, "%llx%016llx", (unsigned long long)(sum >> 64), (unsigned long long)sum);
    return PyLong_FromString(text, NULL, 16);
}

static PyObject *gpu_row(const ext_state *state, const cprof_resources_figures *figures, const double gpu_ms[2])
{
    double total_ms = figures->gpu_count > 0 ? cprof_moments_ns_to_ms(figures->gpu_ns) : -1.0;
    double mean_ms = cprof_resources_mean_ms(figures->gpu_ns, figures->gpu_count);
    double delay_ms = cprof_resources_mean_ms(figures->queue_ns, figures->queue_count);
    return ext_summary_row_of(
        state->gpu_row, Py_BuildValue("(KNNNNNKN)", (unsigned long long)figures->gpu_count, ms_or_none(mean_ms),
                                      ms_or_none(gpu_ms[0]), ms_or_none(gpu_ms[1]), ms_or_none(total_ms), ms_or_none(delay_ms),
                                      (unsigned long long)figures->multi_stream, numbers(figures->missed, CPROF_GPU_CAUSES)));
}

static PyObject *launches_row(const ext_state *state, const cprof_launch_counts *all)
{
#define VALUE(name) all->name,
    const uint64_t values[] = {CPROF_LAUNCH_COUNTS(VALUE)};
#undef VALUE
    return ext_summary_row_of(state->launches_row, numbers(values, sizeof values / sizeof values[0]));
}

static PyObject *counters_row(const ext_state *state, const cprof_resources_figures *figures)
{
    return ext_summary_row_of(state->counters_row,
                              Py_BuildValue("(INNK)", figures->asked >> CPROF_RESOURCES_COUNTER_SHIFT,
                                            numbers(figures->counted, CPROF_COUNTER_COUNT),
                                            ext_convert_tuple(CPROF_COUNTER_COUNT, nth_total, figures->counters),
                                            (unsigned long long)figures->estimated));
}

static PyObject *memory_row(const ext_state *state, const cprof_resources_memory *memory)
{
    return ext_summary_row_of(state->memory_row,
                              Py_BuildValue("(KLLLL)", (unsigned long long)memory->calls, (long long)memory->entry,
                                            (long long)memory->exit, (long long)memory->change, (long long)memory->peak));
}

/* `gpu_ms`: the 50th and the 99th percentile; negative: not known. */
static PyObject *resources_row(const ext_state *state, const cprof_resources_figures *figures, const double gpu_ms[2])
{
    return ext_summary_row_of(state->resources_row,
                              Py_BuildValue("(INNNNNKN)", figures->asked, gpu_row(state, figures, gpu_ms),
                                            launches_row(state, &figures->launched), counters_row(state, figures),
                                            memory_row(state, &figures->device_memory),
                                            memory_row(state, &figures->host_memory), (unsigned long long)figures->waits,
                                            PyFloat_FromDouble(cprof_moments_ns_to_ms(figures->wait_ns))));
}

/* ---- Copies of all keys */

enum { QUANTILES = 5, ROWS_AT_A_TIME = 256 };

static const double fractions[QUANTILES] = {0.5, 0.9, 0.95, 0.99, 0.999};
static const double p50_p99[] = {0.5, 0.99};

/* What a node used beyond time. */
typedef struct {
    cprof_resources_figures figures;
    double gpu_ms[2];
} resources_copy;

typedef struct {
    cprof_name signature;
    cprof_shape_figures figures;
    double quantiles_ms[2];
    uint64_t tail;
} shape_row;

typedef struct {
    size_t count;
    uint64_t slowest;
    shape_row rows[]; /* behind them lie the tails, and then the signatures */
} shape_rows;

typedef struct {
    cprof_names names; /* borrowed from the registry or snapshot */
    uint64_t order;
    cprof_figures figures;
    double quantiles_ms[QUANTILES];
    resources_copy *extra; /* NULL: nothing was asked for beyond times */
    shape_rows *shapes;    /* NULL: calls were not told apart by their arguments */
} summary_row;

typedef struct {
    const cprof_name *stage; /* NULL: all */
    cprof_alloc_pool pool;   /* of rows, and what they point to */
    summary_row **rows;      /* owned */
    size_t count;
    size_t capacity;
} collector;

static bool copy_resources(cprof_alloc_pool *pool, const cprof_resources_copy *extra, resources_copy **copy)
{
    *copy = cprof_alloc_from(pool, sizeof **copy);
    if (*copy == NULL) {
        return false;
    }
    (*copy)->figures = extra->figures;
    cprof_resources_gpu_quantiles_ms(extra, p50_p99, 2, (*copy)->gpu_ms);
    return true;
}

static shape_rows *new_shapes(cprof_alloc_pool *pool, const cprof_shapes_view *view)
{
    size_t text = 0;
    for (size_t i = 0; i < view->count; i++) {
        text += view->items[i].signature.length;
    }
    size_t size = sizeof(shape_rows) + view->count * sizeof(shape_row) + text + view->count * sizeof(uint64_t);
    shape_rows *shapes = cprof_alloc_from(pool, size);
    if (shapes != NULL) {
        shapes->count = view->count;
    }
    return shapes;
}

static void fill_shapes(shape_rows *shapes, const cprof_shapes_view *view, uint64_t *scratch)
{
    uint64_t *tails = (uint64_t *)(shapes->rows + shapes->count);
    char *text = (char *)(tails + shapes->count);
    shapes->slowest = cprof_shapes_tails(view, scratch, tails);
    for (size_t i = 0; i < view->count; i++) {
        const cprof_shape_copy *item = &view->items[i];
        shape_row *row = &shapes->rows[i];
        memcpy(text, item->signature.bytes, item->signature.length);
        row->signature = (cprof_name){text, item->signature.length};
        row->figures = item->figures;
        row->tail = tails[i];
        cprof_shape_quantiles_ms(item, scratch, p50_p99, 2, row->quantiles_ms);
        text += item->signature.length;
    }
}

/* A copy of a key's calls by signature, with quantiles. False without memory. */
static bool copy_shapes(cprof_alloc_pool *pool, const cprof_shapes_view *view, shape_rows **copy)
{
    uint64_t *scratch = cprof_alloc_zeroed(CPROF_HISTOGRAM_BUCKETS * sizeof *scratch);
    *copy = scratch != NULL ? new_shapes(pool, view) : NULL;
    if (*copy != NULL) {
        fill_shapes(*copy, view, scratch);
    }
    cprof_alloc_release(scratch);
    return *copy != NULL;
}

/* Called under the registry's read lock and without the GIL: no Python here. */
static cprof_status collect(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                            const uint64_t *counts)
{
    collector *all = context;
    if (all->stage != NULL &&
        (all->stage->length != names.stage.length || memcmp(all->stage->bytes, names.stage.bytes, names.stage.length) != 0)) {
        return CPROF_OK;
    }
    summary_row **rows = cprof_alloc_grow(all->rows, &all->capacity, all->count, sizeof *rows, 16);
    all->rows = rows != NULL ? rows : all->rows;
    summary_row *row = rows != NULL ? cprof_alloc_from(&all->pool, sizeof *row) : NULL;
    if (row == NULL) {
        return CPROF_NO_MEMORY;
    }
    rows[all->count++] = row;
    row->names = names;
    row->order = order;
    row->figures = *figures;
    cprof_figures_quantiles_ms(figures, counts, fractions, QUANTILES, row->quantiles_ms);
    if (figures->count <= CPROF_FIGURES_EXACT) {
        row->quantiles_ms[0] = figures->median_ms;
    } else if (figures->median_ms == CPROF_FIGURES_NO_MEDIAN) {
        row->figures.median_ms = fmax(row->quantiles_ms[0], figures->min_ms); /* without memory the histogram may lack all */
    }
    bool complete = (figures->extra == NULL || copy_resources(&all->pool, figures->extra, &row->extra)) &&
                    (figures->shapes == NULL || copy_shapes(&all->pool, figures->shapes, &row->shapes));
    return complete ? CPROF_OK : CPROF_NO_MEMORY;
}

static int by_order(const void *left, const void *right)
{
    uint64_t a = (*(const summary_row *const *)left)->order;
    uint64_t b = (*(const summary_row *const *)right)->order;
    return (a > b) - (a < b);
}

static PyObject *make_row(const ext_state *state, const summary_row *row)
{
    PyObject *made = state->node_row != NULL ? PyStructSequence_New(state->node_row) : ext_state_ending();
    if (made == NULL) {
        return NULL;
    }
    const cprof_figures *figures = &row->figures;
    bool any = figures->count > 0;
    bool is_known = figures->count > figures->histogram_lost;
    double mean_ms = cprof_moments_mean_ms(&figures->moments, figures->count);
    const double *ms = row->quantiles_ms;
    PyObject *const values[] = {
        ext_convert_to_str(row->names.node),
        ext_convert_to_str(row->names.stage),
        PyLong_FromUnsignedLongLong(figures->count),
        PyFloat_FromDouble(any ? fmin(fmax(mean_ms, figures->min_ms), figures->max_ms) : 0.0), /* rounded, or forged */
        PyFloat_FromDouble(any ? figures->median_ms : 0.0),
        PyFloat_FromDouble(cprof_figures_std_ms(figures)),
        PyFloat_FromDouble(any ? figures->min_ms : 0.0),
        PyFloat_FromDouble(any ? figures->max_ms : 0.0),
        PyFloat_FromDouble(cprof_moments_total_ms(&figures->moments)),
        PyFloat_FromDouble(any ? figures->last_ms : 0.0),
        ms_or_none(is_known || (any && figures->count <= CPROF_FIGURES_EXACT) ? ms[0] : -1.0),
        ms_or_none(is_known ? ms[1] : -1.0),
        ms_or_none(is_known ? ms[2] : -1.0),
        ms_or_none(is_known ? ms[3] : -1.0),
        ms_or_none(is_known ? ms[4] : -1.0),
        PyLong_FromUnsignedLongLong(figures->error_count),
        PyLong_FromUnsignedLongLong(figures->cancelled_count),
        PyLong_FromUnsignedLongLong(figures->skipped_count),
        PyLong_FromUnsignedLongLong(figures->dropped_count),
        ms_or_none(figures->first_ms),
        ms_or_none(cprof_figures_self_ms(figures)),
        ms_or_none(cprof_figures_active_ms(figures)),
        row->extra != NULL ? resources_row(state, &row->extra->figures, row->extra->gpu_ms) : Py_NewRef(Py_None),
    };
    bool is_complete = true;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        PyStructSequence_SetItem(made, (Py_ssize_t)i, values[i]);
        is_complete = is_complete && values[i] != NULL;
    }
    if (!is_complete) {
        Py_CLEAR(made);
    }
    return made;
}

PyObject *ext_summary_fill(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *values, *row, *key;
    if (!PyArg_ParseTuple(args, "O!O!", &PyDict_Type, &values, &PyTuple_Type, &row)) {
        return NULL;
    }
    Py_ssize_t last = PyTuple_GET_SIZE(row) - 1, place = 0;
    for (Py_ssize_t i = 0; i < last && PyDict_Next(values, &place, &key, NULL); i++) {
        if (PyDict_SetItem(values, key, PyTuple_GET_ITEM(row, i)) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyObject *row_list(const ext_state *state, const collector *all, uint64_t *lost)
{
    PyObject *list = PyList_New((Py_ssize_t)all->count);
    if (list == NULL) {
        return NULL;
    }
    PyObject_GC_UnTrack(list); /* others, who run meanwhile, must not find it half filled */
    for (size_t i = 0; i < all->count; i++) {
        if (i % ROWS_AT_A_TIME == ROWS_AT_A_TIME - 1) {
            EXT_WITHOUT_GIL((void)0); /* others may want to run */
        }
        PyObject *row = make_row(state, all->rows[i]);
        if (row == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, row);
        *lost += all->rows[i]->figures.histogram_lost;
    }
    PyObject_GC_Track(list);
    return list;
}

static PyObject *make_shape_row(const ext_state *state, cprof_names names, const shape_row *row, uint64_t slowest)
{
    const cprof_shape_figures *figures = &row->figures;
    bool any = figures->count > 0;
    return ext_summary_row_of(
        state->shape_row,
        Py_BuildValue("(NNNKKKdNNdddKK)", ext_convert_to_str(names.node), ext_convert_to_str(names.stage),
                      ext_convert_to_str(row->signature), (unsigned long long)figures->count,
                      (unsigned long long)figures->error_count, (unsigned long long)figures->cancelled_count,
                      any ? cprof_resources_mean_ms(figures->total_ns, figures->count) : 0.0, ms_or_none(row->quantiles_ms[0]),
                      ms_or_none(row->quantiles_ms[1]), cprof_moments_ns_to_ms(any ? figures->least_ns : 0),
                      cprof_moments_ns_to_ms(figures->most_ns), cprof_moments_ns_to_ms(figures->total_ns),
                      (unsigned long long)row->tail, (unsigned long long)slowest));
}

/* The calls of all keys by their signatures. */
static PyObject *shape_list(const ext_state *state, const collector *all)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; i < all->count; i++) {
        const shape_rows *shapes = all->rows[i]->shapes;
        for (size_t j = 0; list != NULL && shapes != NULL && j < shapes->count; j++) {
            PyObject *shape = make_shape_row(state, all->rows[i]->names, &shapes->rows[j], shapes->slowest);
            bool is_added = shape != NULL && PyList_Append(list, shape) == 0;
            Py_XDECREF(shape);
            if (!is_added) {
                Py_DECREF(list);
                return NULL;
            }
        }
    }
    return list;
}

/* Runs without the GIL at first: with many keys it takes long, and no writer is to wait for more than the key that is being
 * copied. */
static PyObject *rows_of(const ext_state *state, cprof_registry *registry, const cprof_snapshot *snapshot,
                         const cprof_name *stage)
{
    collector all = {.stage = stage};
    cprof_generation epoch = {.skip_first_n = 0};
    if (snapshot != NULL) {
        epoch = (cprof_generation){.skip_first_n = snapshot->skip_most, .has_p2 = snapshot->has_p2};
    }
    uint64_t lost = 0;
    PyObject *result = NULL;
    cprof_status status;
    Py_BEGIN_ALLOW_THREADS
    status = snapshot != NULL ? cprof_snapshot_visit(snapshot, collect, &all)
                              : cprof_registry_visit(registry, collect, &all, &epoch);
    if (all.count > 0) {
        qsort(all.rows, all.count, sizeof *all.rows, by_order);
    }
    Py_END_ALLOW_THREADS
    if (status != CPROF_OK) {
        (void)ext_convert_status(status, "reading the statistics");
    } else {
        PyObject *list = row_list(state, &all, &lost);
        PyObject *values = list != NULL ? Py_BuildValue("(NKsKKN)", list, (unsigned long long)epoch.skip_first_n,
                                                        ext_summary_median(epoch.has_p2), (unsigned long long)lost,
                                                        (unsigned long long)epoch.unread, shape_list(state, &all))
                                        : NULL;
        result = ext_summary_row_of(state->summary_row, values);
    }
    cprof_alloc_release_pool(&all.pool);
    cprof_alloc_release(all.rows);
    return result;
}

PyObject *ext_summary_rows(ext_state *state, cprof_registry *registry, const cprof_snapshot *snapshot, PyObject *stage)
{
    if (stage == Py_None) {
        return rows_of(state, registry, snapshot, NULL);
    }
    cprof_name utf8;
    PyObject *owner = NULL;
    PyObject *name = ext_convert_stage(state, stage, "stage");
    bool is_legal = name != NULL && ext_convert_utf8(name, &utf8, &owner);
    PyObject *result = is_legal ? rows_of(state, registry, snapshot, &utf8) : NULL;
    Py_XDECREF(owner);
    Py_XDECREF(name);
    return result;
}
