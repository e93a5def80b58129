#include "csrc/statistics/summary_shapes.h"

#include "csrc/convert.h"

#include "cprofiling/base/alloc.h"

enum { QUANTILES = 2 };

static const double fractions[QUANTILES] = {0.5, 0.99};

typedef struct {
    cprof_name signature;
    cprof_shape_figures figures;
    double quantiles_ms[QUANTILES];
    uint64_t tail;
} shape_row;

struct ext_summary_shapes {
    size_t count;
    uint64_t slowest;
    shape_row rows[]; /* behind them are the tails, and then the signatures */
};

static ext_summary_shapes *new_shapes(const cprof_shapes_view *view)
{
    size_t text = 0;
    for (size_t i = 0; i < view->count; i++) {
        text += view->items[i].signature.length;
    }
    ext_summary_shapes *shapes =
        cprof_alloc_zeroed(sizeof *shapes + view->count * sizeof shapes->rows[0] + text + view->count * sizeof(uint64_t));
    if (shapes != NULL) {
        shapes->count = view->count;
    }
    return shapes;
}

static void fill(ext_summary_shapes *shapes, const cprof_shapes_view *view, uint64_t *scratch)
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
        cprof_shape_quantiles_ms(item, scratch, fractions, QUANTILES, row->quantiles_ms);
        text += item->signature.length;
    }
}

bool ext_summary_shapes_copy(const cprof_shapes_view *view, ext_summary_shapes **copy)
{
    uint64_t *scratch = cprof_alloc_zeroed(CPROF_HISTOGRAM_BUCKETS * sizeof *scratch);
    *copy = scratch != NULL ? new_shapes(view) : NULL;
    if (*copy != NULL) {
        fill(*copy, view, scratch);
    }
    cprof_alloc_release(scratch);
    return *copy != NULL;
}

static PyObject *known_or_none(double milliseconds)
{
    return milliseconds < 0.0 ? Py_NewRef(Py_None) : PyFloat_FromDouble(milliseconds);
}

static PyObject *row_tuple(cprof_names names, const shape_row *row, uint64_t slowest)
{
    const cprof_shape_figures *figures = &row->figures;
    bool any = figures->count > 0;
    return Py_BuildValue("(NNNKKKdNNdddKK)", ext_convert_to_str(names.node), ext_convert_to_str(names.stage),
                         ext_convert_to_str(row->signature), (unsigned long long)figures->count,
                         (unsigned long long)figures->error_count, (unsigned long long)figures->cancelled_count,
                         any ? cprof_resources_mean_ms(figures->total_ns, figures->count) : 0.0,
                         known_or_none(row->quantiles_ms[0]), known_or_none(row->quantiles_ms[1]),
                         cprof_moments_ns_to_ms(any ? figures->least_ns : 0), cprof_moments_ns_to_ms(figures->most_ns),
                         cprof_moments_ns_to_ms(figures->total_ns), (unsigned long long)row->tail, (unsigned long long)slowest);
}

bool ext_summary_shapes_append(PyObject *list, cprof_names names, const ext_summary_shapes *shapes)
{
    bool complete = true;
    for (size_t i = 0; complete && shapes != NULL && i < shapes->count; i++) {
        PyObject *tuple = row_tuple(names, &shapes->rows[i], shapes->slowest);
        complete = tuple != NULL && PyList_Append(list, tuple) == 0;
        Py_XDECREF(tuple);
    }
    return complete;
}
