#include "csrc/statistics/buckets.h"

#include "csrc/convert.h"

enum { KEYS_AT_A_TIME = 256 };

typedef struct {
    const cprof_snapshot *snapshot; /* borrowed */
    bool is_grouped;                /* else each bucket is a group of its own */
    size_t bound_count;
    uint16_t bounds[CPROF_HISTOGRAM_BUCKETS];
    uint16_t numbers[CPROF_HISTOGRAM_BUCKETS]; /* of the groups of one histogram, */
    uint64_t counts[CPROF_HISTOGRAM_BUCKETS];  /* and what they hold */
} grouping;

static bool set_bounds(grouping *all, PyObject *bounds)
{
    all->is_grouped = bounds != Py_None;
    if (!all->is_grouped) {
        return true;
    }
    Py_ssize_t count = PyTuple_Check(bounds) ? PyTuple_GET_SIZE(bounds) : -1;
    if (count < 0) {
        ext_convert_refuse_type("bounds", "a tuple or None", bounds);
        return false;
    }
    long before = -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        long bound = PyLong_AsLong(PyTuple_GET_ITEM(bounds, i));
        if (bound == -1 && PyErr_Occurred()) {
            return false;
        }
        if (bound <= before || bound >= CPROF_HISTOGRAM_BUCKETS) {
            PyErr_Format(PyExc_ValueError, "bounds must rise, from 0 to %d at most, got %ld after %ld",
                         CPROF_HISTOGRAM_BUCKETS - 1, bound, before);
            return false;
        }
        all->bounds[i] = (uint16_t)bound;
        before = bound;
    }
    all->bound_count = (size_t)count;
    return true;
}

static PyObject *flat_tuple(const cprof_buckets *groups)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)(2 * groups->filled));
    for (size_t i = 0; tuple != NULL && i < 2 * groups->filled; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(i % 2 == 0 ? groups->indices[i / 2] : groups->counts[i / 2]);
        if (number == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, number);
        }
    }
    return tuple;
}

static PyObject *grouped(grouping *all, size_t place, bool of_gpu)
{
    cprof_buckets groups = {all->counts, all->numbers, 0};
    cprof_buckets buckets = cprof_snapshot_histogram(all->snapshot, place, of_gpu);
    if (!all->is_grouped) {
        return flat_tuple(&buckets);
    }
    cprof_buckets_group(&buckets, all->bounds, all->bound_count, &groups);
    return flat_tuple(&groups);
}

static bool append_key(PyObject *list, grouping *all, size_t place)
{
    PyObject *times = grouped(all, place, false);
    PyObject *gpu_times = times != NULL ? grouped(all, place, true) : NULL;
    PyObject *pair = gpu_times != NULL ? PyTuple_Pack(2, times, gpu_times) : NULL;
    bool is_done = pair != NULL && PyList_Append(list, pair) == 0;
    Py_XDECREF(times);
    Py_XDECREF(gpu_times);
    Py_XDECREF(pair);
    return is_done;
}

static void let_others_run(void)
{
    Py_BEGIN_ALLOW_THREADS
    Py_END_ALLOW_THREADS
}

static PyObject *list_of_keys(grouping *all)
{
    PyObject *list = PyList_New(0);
    for (size_t place = 0; list != NULL && place < all->snapshot->key_count; place++) {
        if (place % KEYS_AT_A_TIME == KEYS_AT_A_TIME - 1) {
            let_others_run();
        }
        if (!append_key(list, all, place)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

PyObject *ext_buckets_of_snapshot(const cprof_snapshot *snapshot, PyObject *bounds)
{
    grouping *all = PyMem_Malloc(sizeof *all);
    if (all == NULL) {
        return PyErr_NoMemory();
    }
    all->snapshot = snapshot;
    PyObject *list = set_bounds(all, bounds) ? list_of_keys(all) : NULL;
    PyMem_Free(all);
    return list;
}
