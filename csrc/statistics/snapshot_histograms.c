#include "csrc/statistics/snapshot_histograms.h"

#include "csrc/convert.h"

typedef struct {
    const cprof_snapshot *snapshot; /* borrowed */
    PyObject *list;
} histograms;

static PyObject *pairs(cprof_buckets buckets)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)buckets.filled);
    for (size_t i = 0; tuple != NULL && i < buckets.filled; i++) {
        PyObject *pair = Py_BuildValue("(IK)", (unsigned)buckets.indices[i], (unsigned long long)buckets.counts[i]);
        if (pair == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, pair);
        }
    }
    return tuple;
}

static PyObject *key_tuple(cprof_names names, const cprof_snapshot *snapshot, size_t place)
{
    PyObject *node = ext_convert_to_str(names.node);
    PyObject *stage = ext_convert_to_str(names.stage);
    PyObject *times = pairs(cprof_snapshot_histogram(snapshot, place, false));
    PyObject *gpu_times = pairs(cprof_snapshot_histogram(snapshot, place, true));
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
    (void)figures;
    (void)counts;
    histograms *all = context;
    PyObject *tuple = key_tuple(names, all->snapshot, (size_t)order);
    int result = tuple != NULL ? PyList_Append(all->list, tuple) : -1;
    Py_XDECREF(tuple);
    return result == 0 ? CPROF_OK : CPROF_NO_MEMORY;
}

PyObject *ext_snapshot_histograms(const cprof_snapshot *snapshot)
{
    PyObject *list = PyList_New(0);
    histograms all = {snapshot, list};
    if (list != NULL && cprof_snapshot_visit(snapshot, collect, &all) != CPROF_OK) {
        Py_CLEAR(list);
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
    }
    return list;
}
