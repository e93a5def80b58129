#include "csrc/snapshot_histograms.h"

#include "csrc/convert.h"

/* 0: an item was added; -1 with an exception. */
static int add_bucket(PyObject *list, unsigned bucket, uint64_t count)
{
    PyObject *pair = Py_BuildValue("(IK)", bucket, (unsigned long long)count);
    int result = pair != NULL ? PyList_Append(list, pair) : -1;
    Py_XDECREF(pair);
    return result;
}

static int add_row(PyObject *list, unsigned row, const uint64_t *counts)
{
    int result = 0;
    for (unsigned bucket = row * CPROF_HISTOGRAM_ROW; result == 0 && bucket < (row + 1) * CPROF_HISTOGRAM_ROW; bucket++) {
        result = counts[bucket] != 0 ? add_bucket(list, bucket, counts[bucket]) : 0;
    }
    return result;
}

/* `rows`: bit r: row r of the dense histogram holds something. */
static PyObject *filled(uint64_t rows, const uint64_t *counts)
{
    PyObject *list = PyList_New(0);
    int result = list != NULL ? 0 : -1;
    for (unsigned row = 0; result == 0 && row < CPROF_HISTOGRAM_ROWS; row++) {
        result = (rows >> row & 1) != 0 ? add_row(list, row, counts) : 0;
    }
    PyObject *tuple = result == 0 ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}

static PyObject *key_tuple(cprof_names names, const cprof_figures *figures, const uint64_t *counts)
{
    const cprof_extra_copy *extra = figures->extra;
    PyObject *node = ext_convert_to_str(names.node);
    PyObject *stage = ext_convert_to_str(names.stage);
    PyObject *times = filled(figures->rows, counts);
    PyObject *gpu_times = extra != NULL ? filled(extra->figures.gpu_rows, extra->gpu_counts) : PyTuple_New(0);
    PyObject *tuple = NULL;
    if (node != NULL && stage != NULL && times != NULL && gpu_times != NULL) {
        tuple = PyTuple_Pack(4, node, stage, times, gpu_times);
    }
    Py_XDECREF(node);
    Py_XDECREF(stage);
    Py_XDECREF(times);
    Py_XDECREF(gpu_times);
    return tuple;
}

/* With the GIL: a snapshot does not change, and no lock is held. Any other status than CPROF_OK comes with an exception. */
static cprof_status collect(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                            const uint64_t *counts)
{
    (void)order; /* a snapshot is visited in it */
    PyObject *tuple = key_tuple(names, figures, counts);
    int result = tuple != NULL ? PyList_Append(context, tuple) : -1;
    Py_XDECREF(tuple);
    return result == 0 ? CPROF_OK : CPROF_NO_MEMORY;
}

PyObject *ext_snapshot_histograms(const cprof_snapshot *snapshot)
{
    PyObject *list = PyList_New(0);
    if (list != NULL && cprof_snapshot_visit(snapshot, collect, list) != CPROF_OK) {
        Py_CLEAR(list);
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
    }
    return list;
}
