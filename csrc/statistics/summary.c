#include "csrc/statistics/summary.h"

#include "csrc/convert.h"
#include "csrc/statistics/summary_extra.h"
#include "csrc/statistics/summary_shapes.h"

#include "cprofiling/base/alloc.h"

enum { QUANTILES = 5, FIELDS = 23, ROWS_AT_A_TIME = 256 };

static const double fractions[QUANTILES] = {0.5, 0.9, 0.95, 0.99, 0.999};

typedef struct {
    cprof_names names; /* borrowed from the registry or snapshot */
    uint64_t order;
    cprof_figures figures;
    double quantiles_ms[QUANTILES];
    ext_summary_extra *extra;   /* owned; NULL: nothing was asked for beyond times */
    ext_summary_shapes *shapes; /* owned; NULL: calls were not told apart by their arguments */
} summary_row;

typedef struct {
    const cprof_name *stage; /* NULL: all */
    summary_row *rows;       /* owned */
    size_t count;
    size_t capacity;
} collector;

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
    bool complete = (figures->extra == NULL || ext_summary_extra_copy(figures->extra, &row->extra)) &&
                    (figures->shapes == NULL || ext_summary_shapes_copy(figures->shapes, &row->shapes));
    return complete ? CPROF_OK : CPROF_NO_MEMORY;
}

static int by_order(const void *left, const void *right)
{
    uint64_t a = ((const summary_row *)left)->order;
    uint64_t b = ((const summary_row *)right)->order;
    return (a > b) - (a < b);
}

/* Negative stands for unknown, and becomes None. */
static PyObject *known_or_none(double milliseconds)
{
    return milliseconds < 0.0 ? Py_NewRef(Py_None) : PyFloat_FromDouble(milliseconds);
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
        fields[10 + i] = known_or_none(any_ranked ? row->quantiles_ms[i] : -1.0);
    }
    fields[19] = known_or_none(figures->first_ms);
    fields[20] = known_or_none(cprof_figures_self_ms(figures));
    fields[21] = known_or_none(cprof_figures_active_ms(figures));
}

static void fill_counts(PyObject **fields, const cprof_figures *figures)
{
    fields[2] = PyLong_FromUnsignedLongLong(figures->count);
    fields[15] = PyLong_FromUnsignedLongLong(figures->error_count);
    fields[16] = PyLong_FromUnsignedLongLong(figures->cancelled_count);
    fields[17] = PyLong_FromUnsignedLongLong(figures->skipped_count);
    fields[18] = PyLong_FromUnsignedLongLong(figures->dropped_count);
}

static PyObject *row_tuple(const summary_row *row)
{
    PyObject *fields[FIELDS];
    fields[0] = ext_convert_to_str(row->names.node);
    fields[1] = ext_convert_to_str(row->names.stage);
    fill_counts(fields, &row->figures);
    fill_times(fields, row);
    fields[22] = ext_summary_extra_tuple(row->extra);
    PyObject *tuple = PyTuple_New(FIELDS);
    bool complete = tuple != NULL;
    for (int i = 0; i < FIELDS; i++) {
        complete = complete && fields[i] != NULL;
        if (tuple != NULL) {
            PyTuple_SET_ITEM(tuple, i, fields[i]);
        } else {
            Py_XDECREF(fields[i]);
        }
    }
    if (!complete) {
        Py_CLEAR(tuple);
    }
    return tuple;
}

static void let_others_run(void)
{
    Py_BEGIN_ALLOW_THREADS
    Py_END_ALLOW_THREADS
}

static PyObject *row_list(const collector *all, uint64_t *lost)
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
        PyObject *tuple = row_tuple(&all->rows[i]);
        if (tuple == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, tuple);
        *lost += all->rows[i].figures.histogram_lost;
    }
    PyObject_GC_Track(list);
    return list;
}

/* What the rows' calls are told apart by, as one list. */
static PyObject *shape_list(const collector *all)
{
    PyObject *list = PyList_New(0);
    bool complete = list != NULL;
    for (size_t i = 0; complete && i < all->count; i++) {
        complete = ext_summary_shapes_append(list, all->rows[i].names, all->rows[i].shapes);
    }
    if (!complete) {
        Py_CLEAR(list);
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

static PyObject *rows_of(reader read, void *source, const cprof_name *stage)
{
    collector all = {.stage = stage};
    cprof_generation epoch;
    uint64_t lost = 0;
    PyObject *result = NULL;
    cprof_status status = read_sorted(read, source, &all, &epoch);
    if (status != CPROF_OK) {
        (void)ext_convert_status(status, "reading the statistics");
    } else {
        PyObject *list = row_list(&all, &lost);
        result = list != NULL ? Py_BuildValue("(NKKKN)", list, (unsigned long long)epoch.skip_first_n, (unsigned long long)lost,
                                              (unsigned long long)epoch.unread, shape_list(&all))
                              : NULL;
    }
    free_rows(&all);
    return result;
}

static PyObject *rows_of_stage(ext_state *state, reader read, void *source, PyObject *stage)
{
    if (stage == Py_None) {
        return rows_of(read, source, NULL);
    }
    PyObject *name = ext_convert_stage(state, stage, "stage");
    if (name == NULL) {
        return NULL;
    }
    cprof_name utf8;
    PyObject *owner;
    PyObject *result = NULL;
    if (ext_convert_utf8(name, &utf8, &owner)) {
        result = rows_of(read, source, &utf8);
        Py_DECREF(owner);
    }
    Py_DECREF(name);
    return result;
}

PyObject *ext_summary_rows(ext_profiler *profiler, PyObject *stage)
{
    return rows_of_stage(profiler->state, read_registry, profiler->registry, stage);
}

PyObject *ext_summary_snapshot_rows(ext_state *state, const cprof_snapshot *snapshot, PyObject *stage)
{
    return rows_of_stage(state, read_snapshot, (void *)snapshot, stage);
}
