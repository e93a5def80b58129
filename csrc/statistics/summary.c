#include "csrc/statistics/summary.h"

#include "csrc/convert.h"
#include "csrc/statistics/rows.h"

#include "cprofiling/base/alloc.h"

enum { QUANTILES = 5, FIELDS = 23, ROWS_AT_A_TIME = 256 };

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
    resources_copy *extra; /* owned; NULL: nothing was asked for beyond times */
    shape_rows *shapes;    /* owned; NULL: calls were not told apart by their arguments */
} summary_row;

typedef struct {
    const cprof_name *stage; /* NULL: all */
    summary_row *rows;       /* owned */
    size_t count;
    size_t capacity;
} collector;

static bool copy_resources(const cprof_resources_copy *extra, resources_copy **copy)
{
    *copy = cprof_alloc_zeroed(sizeof **copy);
    if (*copy == NULL) {
        return false;
    }
    (*copy)->figures = extra->figures;
    cprof_resources_gpu_quantiles_ms(extra, p50_p99, 2, (*copy)->gpu_ms);
    return true;
}

static shape_rows *new_shapes(const cprof_shapes_view *view)
{
    size_t text = 0;
    for (size_t i = 0; i < view->count; i++) {
        text += view->items[i].signature.length;
    }
    shape_rows *shapes =
        cprof_alloc_zeroed(sizeof *shapes + view->count * sizeof shapes->rows[0] + text + view->count * sizeof(uint64_t));
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
static bool copy_shapes(const cprof_shapes_view *view, shape_rows **copy)
{
    uint64_t *scratch = cprof_alloc_zeroed(CPROF_HISTOGRAM_BUCKETS * sizeof *scratch);
    *copy = scratch != NULL ? new_shapes(view) : NULL;
    if (*copy != NULL) {
        fill_shapes(*copy, view, scratch);
    }
    cprof_alloc_release(scratch);
    return *copy != NULL;
}

static bool is_wanted(const collector *all, cprof_name stage)
{
    return all->stage == NULL ||
           (all->stage->length == stage.length && memcmp(all->stage->bytes, stage.bytes, stage.length) == 0);
}

static bool make_room(collector *all)
{
    if (all->count < all->capacity) {
        return true;
    }
    size_t capacity = all->capacity == 0 ? 16 : all->capacity * 2;
    summary_row *rows = cprof_alloc_resize(all->rows, capacity * sizeof *rows);
    if (rows == NULL) {
        return false;
    }
    all->rows = rows;
    all->capacity = capacity;
    return true;
}

/* Called under the registry's read lock and without the GIL: no Python here. */
static cprof_status collect(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                            const uint64_t *counts)
{
    collector *all = context;
    if (!is_wanted(all, names.stage)) {
        return CPROF_OK;
    }
    if (!make_room(all)) {
        return CPROF_NO_MEMORY;
    }
    summary_row *row = &all->rows[all->count++];
    row->names = names;
    row->order = order;
    row->figures = *figures;
    cprof_figures_quantiles_ms(figures, counts, fractions, QUANTILES, row->quantiles_ms);
    row->extra = NULL;
    row->shapes = NULL;
    bool complete = (figures->extra == NULL || copy_resources(figures->extra, &row->extra)) &&
                    (figures->shapes == NULL || copy_shapes(figures->shapes, &row->shapes));
    return complete ? CPROF_OK : CPROF_NO_MEMORY;
}

static int by_order(const void *left, const void *right)
{
    uint64_t a = ((const summary_row *)left)->order;
    uint64_t b = ((const summary_row *)right)->order;
    return (a > b) - (a < b);
}

static void fill_times(PyObject **fields, const summary_row *row)
{
    const cprof_figures *figures = &row->figures;
    bool any = figures->count > 0;
    fields[3] = PyFloat_FromDouble(cprof_moments_mean_ms(&figures->moments, figures->count));
    fields[4] = PyFloat_FromDouble(any ? figures->median_ms : 0.0);
    fields[5] = PyFloat_FromDouble(cprof_figures_std_ms(figures));
    fields[6] = PyFloat_FromDouble(any ? figures->min_ms : 0.0);
    fields[7] = PyFloat_FromDouble(any ? figures->max_ms : 0.0);
    fields[8] = PyFloat_FromDouble(cprof_moments_total_ms(&figures->moments));
    fields[9] = PyFloat_FromDouble(any ? figures->last_ms : 0.0);
    bool any_ranked = figures->count > figures->histogram_lost;
    for (int i = 0; i < QUANTILES; i++) {
        fields[10 + i] = ext_rows_ms(any_ranked ? row->quantiles_ms[i] : -1.0);
    }
    fields[19] = ext_rows_ms(figures->first_ms);
    fields[20] = ext_rows_ms(cprof_figures_self_ms(figures));
    fields[21] = ext_rows_ms(cprof_figures_active_ms(figures));
}

static void fill_counts(PyObject **fields, const cprof_figures *figures)
{
    fields[2] = PyLong_FromUnsignedLongLong(figures->count);
    fields[15] = PyLong_FromUnsignedLongLong(figures->error_count);
    fields[16] = PyLong_FromUnsignedLongLong(figures->cancelled_count);
    fields[17] = PyLong_FromUnsignedLongLong(figures->skipped_count);
    fields[18] = PyLong_FromUnsignedLongLong(figures->dropped_count);
}

static PyObject *make_row(const ext_state *state, const summary_row *row)
{
    PyObject *fields[FIELDS];
    fields[0] = ext_convert_to_str(row->names.node);
    fields[1] = ext_convert_to_str(row->names.stage);
    fill_counts(fields, &row->figures);
    fill_times(fields, row);
    fields[22] =
        row->extra != NULL ? ext_rows_of_resources(state, &row->extra->figures, row->extra->gpu_ms) : Py_NewRef(Py_None);
    return ext_rows_new(state->node_row, fields, FIELDS);
}

static void let_others_run(void)
{
    Py_BEGIN_ALLOW_THREADS
    Py_END_ALLOW_THREADS
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
            let_others_run();
        }
        PyObject *row = make_row(state, &all->rows[i]);
        if (row == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, row);
        *lost += all->rows[i].figures.histogram_lost;
    }
    PyObject_GC_Track(list);
    return list;
}

static PyObject *make_shape_row(const ext_state *state, cprof_names names, const shape_row *row, uint64_t slowest)
{
    const cprof_shape_figures *figures = &row->figures;
    bool any = figures->count > 0;
    return ext_rows_of_tuple(
        state->shape_row,
        Py_BuildValue("(NNNKKKdNNdddKK)", ext_convert_to_str(names.node), ext_convert_to_str(names.stage),
                      ext_convert_to_str(row->signature), (unsigned long long)figures->count,
                      (unsigned long long)figures->error_count, (unsigned long long)figures->cancelled_count,
                      any ? cprof_resources_mean_ms(figures->total_ns, figures->count) : 0.0, ext_rows_ms(row->quantiles_ms[0]),
                      ext_rows_ms(row->quantiles_ms[1]), cprof_moments_ns_to_ms(any ? figures->least_ns : 0),
                      cprof_moments_ns_to_ms(figures->most_ns), cprof_moments_ns_to_ms(figures->total_ns),
                      (unsigned long long)row->tail, (unsigned long long)slowest));
}

/* Appends the calls of a key by their signatures. False with an exception. */
static bool append_shapes(const ext_state *state, PyObject *list, const summary_row *row)
{
    bool complete = true;
    for (size_t i = 0; complete && row->shapes != NULL && i < row->shapes->count; i++) {
        PyObject *shape = make_shape_row(state, row->names, &row->shapes->rows[i], row->shapes->slowest);
        complete = shape != NULL && PyList_Append(list, shape) == 0;
        Py_XDECREF(shape);
    }
    return complete;
}

static PyObject *shape_list(const ext_state *state, const collector *all)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < all->count; i++) {
        if (!append_shapes(state, list, &all->rows[i])) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* Gives the keys of `source` to a visitor, and tells what they were gathered with. Runs without the GIL: with many keys it
 * takes long, and no writer is to wait for more than the key that is being copied. */
typedef cprof_status (*reader)(void *source, cprof_visitor visitor, void *context, cprof_generation *epoch);

static cprof_status read_registry(void *source, cprof_visitor visitor, void *context, cprof_generation *epoch)
{
    return cprof_registry_visit(source, visitor, context, epoch);
}

static cprof_status read_snapshot(void *source, cprof_visitor visitor, void *context, cprof_generation *epoch)
{
    const cprof_snapshot *snapshot = source;
    *epoch = (cprof_generation){.skip_first_n = snapshot->skip_most};
    return cprof_snapshot_visit(snapshot, visitor, context);
}

static void free_rows(collector *all)
{
    for (size_t i = 0; i < all->count; i++) {
        cprof_alloc_release(all->rows[i].extra);
        cprof_alloc_release(all->rows[i].shapes);
    }
    cprof_alloc_release(all->rows);
}

static cprof_status read_sorted(reader read, void *source, collector *all, cprof_generation *epoch)
{
    cprof_status status;
    Py_BEGIN_ALLOW_THREADS
    status = read(source, collect, all, epoch);
    if (all->count > 0) {
        qsort(all->rows, all->count, sizeof *all->rows, by_order);
    }
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *rows_of(const ext_state *state, reader read, void *source, const cprof_name *stage)
{
    collector all = {.stage = stage};
    cprof_generation epoch;
    uint64_t lost = 0;
    PyObject *result = NULL;
    cprof_status status = read_sorted(read, source, &all, &epoch);
    if (status != CPROF_OK) {
        (void)ext_convert_status(status, "reading the statistics");
    } else {
        PyObject *list = row_list(state, &all, &lost);
        PyObject *values =
            list != NULL ? Py_BuildValue("(NKKKN)", list, (unsigned long long)epoch.skip_first_n, (unsigned long long)lost,
                                         (unsigned long long)epoch.unread, shape_list(state, &all))
                         : NULL;
        result = ext_rows_of_tuple(state->summary_row, values);
    }
    free_rows(&all);
    return result;
}

static PyObject *rows_of_stage(ext_state *state, reader read, void *source, PyObject *stage)
{
    if (stage == Py_None) {
        return rows_of(state, read, source, NULL);
    }
    PyObject *name = ext_convert_stage(state, stage, "stage");
    if (name == NULL) {
        return NULL;
    }
    cprof_name utf8;
    PyObject *owner;
    PyObject *result = NULL;
    if (ext_convert_utf8(name, &utf8, &owner)) {
        result = rows_of(state, read, source, &utf8);
        Py_DECREF(owner);
    }
    Py_DECREF(name);
    return result;
}

PyObject *ext_summary_rows(PyObject *object, PyObject *stage)
{
    ext_profiler *profiler = (ext_profiler *)object;
    return rows_of_stage(profiler->state, read_registry, profiler->registry, stage);
}

PyObject *ext_summary_snapshot_rows(ext_state *state, const cprof_snapshot *snapshot, PyObject *stage)
{
    return rows_of_stage(state, read_snapshot, (void *)snapshot, stage);
}
