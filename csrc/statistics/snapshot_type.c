#include "csrc/types.h"
#include "csrc/convert.h"
#include "csrc/statistics/cost.h"
#include "csrc/profiler.h"
#include "csrc/statistics/summary.h"

#include "cprofiling/files/snapshot.h"

typedef struct {
    PyObject_HEAD
    cprof_snapshot *snapshot; /* owned, never changed */
} snapshot_object;

static const cprof_snapshot *core_of(PyObject *object)
{
    return ((snapshot_object *)object)->snapshot;
}

PyDoc_STRVAR(format_error_doc,
             "Data that was to be read is cut, changed, of another schema version, or no such data at all.\n\n"
             "A ValueError; the message says what is wrong, and at which byte.");

PyObject *ext_snapshot_format_error(void)
{
    return PyErr_NewExceptionWithDoc("cprofiling.FormatError", format_error_doc, PyExc_ValueError, NULL);
}

/* An instance of `type`, which takes the snapshot over also when this fails. */
static PyObject *wrap(PyObject *type, cprof_snapshot *snapshot)
{
    snapshot_object *self = (snapshot_object *)((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
    if (self == NULL) {
        cprof_snapshot_destroy(snapshot);
        return NULL;
    }
    self->snapshot = snapshot;
    return (PyObject *)self;
}

static PyObject *snapshot_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    PyErr_Format(PyExc_TypeError, "%.100s is made by Profiler.snapshot(), Snapshot.merge() or Snapshot.from_bytes()",
                 type->tp_name);
    return NULL;
}

static void snapshot_dealloc(PyObject *object)
{
    cprof_snapshot_destroy(((snapshot_object *)object)->snapshot);
    ext_state_free(object);
}

/* take_snapshot(type, profiler, taken_ns, notes): taken_ns is the time of day since 1970, the notes are UTF-8. */
PyObject *ext_snapshot_take(PyObject *module, PyObject *args)
{
    ext_state *state = ext_state_of_module(module);
    PyObject *type, *object, *notes;
    long long taken_ns;
    if (!PyArg_ParseTuple(args, "O!OLO!:take_snapshot", &PyType_Type, &type, &object, &taken_ns, &PyTuple_Type, &notes) ||
        !ext_convert_is_profiler(state, object, "a Profiler")) {
        return NULL;
    }
    if (!PyType_IsSubtype((PyTypeObject *)type, state->snapshot_type)) {
        ext_convert_refuse_type("type", "Snapshot or a subclass", type);
        return NULL;
    }
    ext_profiler *profiler = (ext_profiler *)object;
    PyObject *cost = ext_cost_ns(state, profiler);
    cprof_name *names = cost != NULL ? ext_convert_notes(notes) : NULL;
    if (names == NULL) {
        Py_XDECREF(cost);
        return NULL;
    }
    cprof_snapshot_remarks remarks = {
        .taken_ns = taken_ns > 0 ? (uint64_t)taken_ns : 0,
        .internal_errors = profiler->internal_errors + state->internal_errors,
        .cost_ns = PyFloat_AS_DOUBLE(cost),
        .notes = names,
        .note_count = (size_t)PyTuple_GET_SIZE(notes),
    };
    Py_DECREF(cost);
    cprof_snapshot *snapshot;
    cprof_status status;
    EXT_WITHOUT_GIL(status = cprof_snapshot_collect(profiler->registry, &remarks, &snapshot));
    PyMem_Free(names);
    return status == CPROF_OK ? wrap(type, snapshot) : ext_convert_status(status, "taking a snapshot");
}

static PyObject *refuse_merge(cprof_status status, const cprof_snapshot_clash *clash)
{
    if (status == CPROF_DUPLICATE) {
        PyObject *id = PyBytes_FromStringAndSize((const char *)clash->source.id, CPROF_REGISTRY_ID_BYTES);
        PyObject *digits = id != NULL ? PyObject_CallMethod(id, "hex", NULL) : NULL;
        if (digits != NULL) {
            PyErr_Format(PyExc_ValueError,
                         "the same data twice: snapshots[%zu] and snapshots[%zu] both hold generation %llu of Profiler %U",
                         clash->first, clash->second, (unsigned long long)clash->source.generation, digits);
        }
        Py_XDECREF(digits);
        Py_XDECREF(id);
        return NULL;
    }
    if (status == CPROF_OUT_OF_RANGE) {
        PyErr_SetString(PyExc_OverflowError, "a count of the merged snapshots exceeds 2**63-1");
        return NULL;
    }
    return ext_convert_status(status, "merging snapshots");
}

/* Without the GIL: the tuple holds the snapshots, which never change. */
static PyObject *merge_items(PyObject *type, PyObject *items)
{
    ext_state *state = ext_state_of_type((PyTypeObject *)type);
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    const cprof_snapshot **snapshots = state != NULL ? PyMem_Calloc((size_t)count, sizeof(cprof_snapshot *)) : NULL;
    if (snapshots == NULL) {
        return state != NULL ? PyErr_NoMemory() : NULL;
    }
    if (count == 0) {
        PyErr_SetString(PyExc_ValueError, "snapshots must not be empty: there is nothing to merge");
    }
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        if (PyObject_TypeCheck(item, state->snapshot_type)) {
            snapshots[i] = core_of(item);
        } else {
            PyErr_Format(PyExc_TypeError, "snapshots[%zd] must be a Snapshot, got %.100s", i, Py_TYPE(item)->tp_name);
        }
    }
    PyObject *result = NULL;
    if (!PyErr_Occurred()) {
        cprof_snapshot *merged = NULL;
        cprof_snapshot_clash clash;
        cprof_status status;
        EXT_WITHOUT_GIL(status = cprof_snapshot_merge(snapshots, (size_t)count, &merged, &clash));
        result = status == CPROF_OK ? wrap(type, merged) : refuse_merge(status, &clash);
    }
    PyMem_Free(snapshots);
    return result;
}

static PyObject *snapshot_merge(PyObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"snapshots", NULL};
    PyObject *snapshots;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:merge", keywords, &snapshots)) {
        return NULL;
    }
    if (Py_TYPE(snapshots)->tp_iter == NULL && !PySequence_Check(snapshots)) {
        ext_convert_refuse_type("snapshots", "an iterable of Snapshots", snapshots);
        return NULL;
    }
    PyObject *items = PySequence_Tuple(snapshots);
    PyObject *merged = items != NULL ? merge_items(type, items) : NULL;
    Py_XDECREF(items);
    return merged;
}

/* Without the GIL: bytes never change. */
static PyObject *decode(PyObject *type, ext_state *state, PyObject *bytes)
{
    cprof_snapshot *snapshot = NULL;
    cprof_snapshot_fault fault;
    cprof_status status;
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(bytes);
    size_t size = (size_t)PyBytes_GET_SIZE(bytes);
    EXT_WITHOUT_GIL(status = cprof_snapshot_decode(data, size, &snapshot, &fault));
    if (status == CPROF_BAD_FORMAT) {
        PyErr_SetString(state->format_error, fault.text);
        return NULL;
    }
    return status == CPROF_OK ? wrap(type, snapshot) : ext_convert_status(status, "reading a snapshot");
}

static PyObject *snapshot_from_bytes(PyObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"data", NULL};
    PyObject *data;
    ext_state *state = ext_state_of_type((PyTypeObject *)type);
    if (state == NULL || !PyArg_ParseTupleAndKeywords(args, kwargs, "O:from_bytes", keywords, &data)) {
        return NULL;
    }
    if (!PyObject_CheckBuffer(data)) {
        ext_convert_refuse_type("data", "a bytes-like object", data);
        return NULL;
    }
    PyObject *bytes = PyBytes_FromObject(data); /* a copy of what others can write to */
    PyObject *snapshot = bytes != NULL ? decode(type, state, bytes) : NULL;
    Py_XDECREF(bytes);
    return snapshot;
}

static PyObject *snapshot_to_bytes(PyObject *object, PyObject *Py_UNUSED(unused))
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)cprof_snapshot_size(core_of(object)));
    if (bytes != NULL) {
        cprof_snapshot_encode(core_of(object), (uint8_t *)PyBytes_AS_STRING(bytes));
    }
    return bytes;
}

static PyObject *snapshot_reduce(PyObject *object, PyObject *unused)
{
    PyObject *reader = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "from_bytes");
    PyObject *bytes = reader != NULL ? snapshot_to_bytes(object, unused) : NULL;
    PyObject *recipe = bytes != NULL ? Py_BuildValue("(O(O))", reader, bytes) : NULL;
    Py_XDECREF(reader);
    Py_XDECREF(bytes);
    return recipe;
}

static PyObject *snapshot_itself(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return Py_NewRef(object);
}

static PyObject *snapshot_compare(PyObject *left, PyObject *right, int operation)
{
    ext_state *state = ext_state_of_type(Py_TYPE(left));
    if (state == NULL) {
        return NULL;
    }
    if (!PyObject_TypeCheck(right, state->snapshot_type) || (operation != Py_EQ && operation != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    PyObject *a = snapshot_to_bytes(left, NULL);
    PyObject *b = a != NULL ? snapshot_to_bytes(right, NULL) : NULL;
    PyObject *result = b != NULL ? PyObject_RichCompare(a, b, operation) : NULL;
    Py_XDECREF(a);
    Py_XDECREF(b);
    return result;
}

static Py_hash_t snapshot_hash(PyObject *object)
{
    PyObject *bytes = snapshot_to_bytes(object, NULL);
    Py_hash_t hash = bytes != NULL ? PyObject_Hash(bytes) : -1;
    Py_XDECREF(bytes);
    return hash;
}

/* Sets *part to some of the snapshot's keys, borrowed: from a place in the summary's order on, at most so many. False with an
 * exception: the arguments, of which "O" is the first, are others. */
static bool take_part(PyObject *object, PyObject *args, PyObject **argument, cprof_snapshot *part)
{
    Py_ssize_t first = 0, most = PY_SSIZE_T_MAX;
    if (!PyArg_ParseTuple(args, "O|nn", argument, &first, &most)) {
        return false;
    }
    *part = *core_of(object);
    Py_ssize_t count = (Py_ssize_t)part->key_count;
    first = first < 0 ? 0 : first < count ? first : count;
    part->in_order += first;
    part->key_count = (size_t)(most < 0 ? 0 : most < count - first ? most : count - first);
    return true;
}

static PyObject *snapshot_rows(PyObject *object, PyObject *args)
{
    ext_state *state = ext_state_of_type(Py_TYPE(object));
    PyObject *stage;
    cprof_snapshot part;
    return state != NULL && take_part(object, args, &stage, &part) ? ext_summary_rows(state, NULL, &part, stage) : NULL;
}

/* ---- Histograms, as coarse as a reader wants them */

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

static PyObject *nth_of_groups(const void *context, size_t place)
{
    const cprof_buckets *groups = context;
    return PyLong_FromUnsignedLongLong(place % 2 == 0 ? groups->indices[place / 2] : groups->counts[place / 2]);
}

static PyObject *grouped(grouping *all, size_t place, bool of_gpu)
{
    cprof_buckets groups = {all->counts, all->numbers, 0};
    cprof_buckets buckets = cprof_snapshot_histogram(all->snapshot, place, of_gpu);
    if (all->is_grouped) {
        cprof_buckets_group(&buckets, all->bounds, all->bound_count, &groups);
        return ext_convert_tuple(2 * groups.filled, nth_of_groups, &groups);
    }
    return ext_convert_tuple(2 * buckets.filled, nth_of_groups, &buckets);
}

static PyObject *list_of_keys(grouping *all)
{
    PyObject *list = PyList_New(0);
    for (size_t place = 0; list != NULL && place < all->snapshot->key_count; place++) {
        if (place % KEYS_AT_A_TIME == KEYS_AT_A_TIME - 1) {
            EXT_WITHOUT_GIL((void)0); /* others may want to run */
        }
        PyObject *pair = Py_BuildValue("(NN)", grouped(all, place, false), grouped(all, place, true));
        if (pair == NULL || PyList_Append(list, pair) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(pair);
    }
    return list;
}

/* For each key, in the summary's order, a pair: of its times, and of its GPU times, the groups of buckets that hold something,
 * as a flat tuple (group, count, ...), ascending. Group i ends before bucket bounds[i], which rise; None: each bucket is one.
 */
static PyObject *snapshot_groups(PyObject *object, PyObject *args)
{
    PyObject *bounds;
    cprof_snapshot part;
    if (!take_part(object, args, &bounds, &part)) {
        return NULL;
    }
    grouping *all = PyMem_Malloc(sizeof *all);
    if (all == NULL) {
        return PyErr_NoMemory();
    }
    all->snapshot = &part;
    PyObject *list = set_bounds(all, bounds) ? list_of_keys(all) : NULL;
    PyMem_Free(all);
    return list;
}

/* ---- Facts */

static PyObject *snapshot_facts(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const ext_state *state = ext_state_of_type(Py_TYPE(object));
    const cprof_snapshot *snapshot = core_of(object);
    PyObject *notes = state != NULL ? PyList_New(0) : NULL;
    size_t at = 0;
    for (size_t i = 0; notes != NULL && i < snapshot->note_count; i++) {
        PyObject *note = ext_convert_to_str(cprof_snapshot_next_note(snapshot, &at));
        if (note == NULL || PyList_Append(notes, note) < 0) {
            Py_CLEAR(notes);
        }
        Py_XDECREF(note);
    }
    if (notes == NULL) {
        return NULL;
    }
    PyObject *values = Py_BuildValue("(nnNKKKdN)", (Py_ssize_t)snapshot->key_count, (Py_ssize_t)snapshot->source_count,
                                     PyBool_FromLong(snapshot->is_merged), (unsigned long long)snapshot->skip_least,
                                     (unsigned long long)snapshot->skip_most, (unsigned long long)snapshot->internal_errors,
                                     snapshot->cost_ns, PyList_AsTuple(notes));
    Py_DECREF(notes);
    return ext_summary_row_of(state->facts_row, values);
}

static PyObject *nth_source(const void *sources, size_t place)
{
    const cprof_snapshot_source *source = (const cprof_snapshot_source *)sources + place;
    return Py_BuildValue("(y#K)", (const char *)source->id, (Py_ssize_t)sizeof source->id,
                         (unsigned long long)source->generation);
}

static PyObject *snapshot_sources(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return ext_convert_tuple(core_of(object)->source_count, nth_source, core_of(object)->sources);
}

PyDoc_STRVAR(merge_doc,
             "merge($type, /, snapshots)\n--\n\n"
             "One snapshot of the calls of all.\n\n"
             "snapshots: an iterable of at least one Snapshot, in any order, merged ones among them: the result is\n"
             "    the same to the bit in any order and grouping. Those of one Profiler must be separated by resets.\n\n"
             "Counts, sums, extremes, percentiles and what follows from them are those of all calls together. The\n"
             "P-square median cannot be merged: median_ms is then p50_ms, exact of up to five samples. last_ms is\n"
             "that of the snapshot taken last by the time of day, first_ms is known only where one snapshot has it.\n"
             "Keys come in the order of their smallest place in a snapshot, then by stage and name.\n\n"
             "Raises TypeError for what is no Snapshot, ValueError for none at all and when two hold the same data,\n"
             "and OverflowError when a count exceeds 2**63-1.");

PyDoc_STRVAR(from_bytes_doc,
             "from_bytes($type, /, data)\n--\n\n"
             "The snapshot that to_bytes() wrote, here or elsewhere.\n\n"
             "data: any bytes-like object. It may come from anywhere: nothing in it is run, and the memory taken is\n"
             "    less than four times its length.\n\n"
             "Raises FormatError, with the reason and the byte, when a bit is missing, changed or too much, or the\n"
             "schema version is another; TypeError for what is not bytes-like.");

static PyMethodDef snapshot_methods[] = {
    {"merge", EXT_METHOD(snapshot_merge), METH_VARARGS | METH_KEYWORDS | METH_CLASS, merge_doc},
    {"from_bytes", EXT_METHOD(snapshot_from_bytes), METH_VARARGS | METH_KEYWORDS | METH_CLASS, from_bytes_doc},
    {"to_bytes", snapshot_to_bytes, METH_NOARGS,
     PyDoc_STR("to_bytes($self, /)\n--\n\n"
               "The snapshot as bytes with a version and a checksum, the same on every machine and for equal snapshots.")},
    {"_rows", snapshot_rows, METH_VARARGS, PyDoc_STR("As Profiler._rows, of what was taken.")},
    {"_groups", snapshot_groups, METH_VARARGS, PyDoc_STR("Histograms of each key, as coarse as the bounds say.")},
    {"_facts", snapshot_facts, METH_NOARGS, PyDoc_STR("A row about the whole snapshot.")},
    {"_sources", snapshot_sources, METH_NOARGS, PyDoc_STR("The id of each Profiler, and its generation, ascending.")},
    {"__reduce__", snapshot_reduce, METH_NOARGS, NULL},
    {"__copy__", snapshot_itself, METH_NOARGS, NULL},
    {"__deepcopy__", snapshot_itself, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot snapshot_slots[] = {
    {Py_tp_new, snapshot_new},
    {Py_tp_dealloc, snapshot_dealloc},
    {Py_tp_richcompare, snapshot_compare},
    {Py_tp_hash, snapshot_hash},
    {Py_tp_methods, snapshot_methods},
    {Py_tp_doc, (void *)"Statistics as they were at one moment, or several of them merged. Immutable."},
    {0, NULL},
};

PyType_Spec ext_snapshot_spec =
    EXT_TYPES_SPEC("Snapshot", snapshot_object, snapshot_slots, Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE);
