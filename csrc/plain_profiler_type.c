#include "csrc/plain_profiler.h"

#include "csrc/convert.h"
#include "csrc/fault.h"

#include "cprofiling/nodes/registry.h"

#define MOST_MS EXT_MAX_MS

static PyObject *plain_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"profiler", "skips", "skip_first_n", NULL};
    PyObject *profiler, *skip_first_n;
    unsigned long long skips;
    ext_state *state = ext_state_of_type(type);
    if (state == NULL || state->profiler_type == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!KO:PlainProfiler", keywords, state->profiler_type, &profiler, &skips,
                                     &skip_first_n)) {
        return NULL;
    }
    ext_plain_profiler *self = (ext_plain_profiler *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->profiler = (ext_profiler *)Py_NewRef(profiler);
    self->skips = skips;
    self->skip_first_n = Py_NewRef(skip_first_n);
    self->names = PyDict_New();
    self->stages = PyDict_New();
    if (self->names == NULL || self->stages == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void free_entry(ext_plain_entry *entry)
{
    Py_CLEAR(entry->stage);
    Py_CLEAR(entry->name);
    PyMem_Free(entry);
}

/* The Profiler's accumulator of a key; NULL, without an exception, when it refuses the names or there is no memory. */
static cprof_accum *find_accum(const ext_plain_profiler *self, PyObject *stage, PyObject *name)
{
    cprof_names names;
    PyObject *stage_owner = NULL;
    PyObject *name_owner = NULL;
    cprof_accum *accum = NULL;
    PyObject *legal_stage = ext_convert_stage(self->profiler->state, stage, "stage");
    PyObject *legal_name = legal_stage != NULL ? ext_convert_name(name, "node_name") : NULL;
    if (legal_name != NULL && ext_convert_utf8(legal_stage, &names.stage, &stage_owner) &&
        ext_convert_utf8(legal_name, &names.node, &name_owner)) {
        accum = cprof_registry_accum(self->profiler->registry, names);
    }
    ext_fault_forget();
    Py_XDECREF(legal_stage);
    Py_XDECREF(legal_name);
    Py_XDECREF(stage_owner);
    Py_XDECREF(name_owner);
    return accum;
}

static bool make_room(ext_plain_profiler *self)
{
    if (self->count < self->capacity) {
        return true;
    }
    size_t capacity = self->capacity > 0 ? 2 * self->capacity : 16;
    ext_plain_entry **entries = PyMem_Realloc(self->entries, capacity * sizeof *entries);
    if (entries == NULL) {
        PyErr_NoMemory();
        return false;
    }
    self->entries = entries;
    self->capacity = capacity;
    return true;
}

/* A key's first sample in the statistics of `names`. NULL with an exception, or without: they were discarded. The entry may
 * have gone with them: comparing keys runs code. */
static ext_plain_entry *add_entry(ext_plain_profiler *self, const PyObject *names, PyObject *stages, PyObject *stage,
                                  PyObject *name)
{
    cprof_accum *accum = find_accum(self, stage, name);
    if (self->names != names) {
        return NULL;
    }
    ext_plain_entry *entry = make_room(self) ? PyMem_Calloc(1, sizeof *entry) : NULL;
    PyObject *place = entry != NULL ? PyLong_FromSize_t(self->count) : NULL;
    if (place == NULL) {
        PyMem_Free(entry);
        return PyErr_Occurred() ? NULL : (ext_plain_entry *)PyErr_NoMemory();
    }
    entry->stage = Py_NewRef(stage);
    entry->name = Py_NewRef(name);
    entry->accum = accum;
    entry->sums.skips_left = self->skips;
    self->entries[self->count++] = entry;
    int status = PyDict_SetItem(stages, stage, place);
    Py_DECREF(place);
    return status == 0 ? entry : NULL;
}

/* The entry at the place that a dict has for a key; NULL with an exception, or without: there is none. */
static ext_plain_entry *entry_at(const ext_plain_profiler *self, PyObject *stages, PyObject *stage)
{
    PyObject *place = PyDict_GetItemWithError(stages, stage);
    size_t index = place != NULL ? PyLong_AsSize_t(place) : self->count;
    return index < self->count ? self->entries[index] : NULL;
}

/* The entry of a key that was not met lately under these very objects. NULL as above. */
static ext_plain_entry *look_up(ext_plain_profiler *self, PyObject *stage, PyObject *name)
{
    PyObject *names = Py_NewRef(self->names); /* comparing keys may run code that resets */
    PyObject *stages = Py_XNewRef(PyDict_GetItemWithError(names, name));
    ext_plain_entry *entry = NULL;
    if (stages == NULL && !PyErr_Occurred()) {
        stages = PyDict_New();
        if (stages != NULL && PyDict_SetItem(names, name, stages) < 0) {
            Py_CLEAR(stages);
        }
    }
    if (stages != NULL) {
        entry = entry_at(self, stages, stage);
        entry = entry == NULL && !PyErr_Occurred() ? add_entry(self, names, stages, stage, name) : entry;
    }
    entry = self->names == names ? entry : NULL; /* it is freed where they were discarded meanwhile */
    Py_XDECREF(stages);
    Py_DECREF(names);
    return entry;
}

static __attribute__((noinline)) ext_plain_entry *find_slowly(ext_plain_profiler *self, PyObject *stage, PyObject *name)
{
    Py_INCREF(stage); /* it may be the memory's only, and comparing keys may run code that resets */
    ext_plain_entry *entry = look_up(self, stage, name);
    Py_DECREF(stage);
    if (entry != NULL && entry->name == name && entry->stage == stage) {
        size_t place = ext_plain_profiler_place(name, stage);
        self->recent[self->recent[place] == NULL ? place : place ^ 1] = entry;
    }
    return entry;
}

/* The object that stands for a stage: pipelines may make a new str of it each time they run. Borrowed. */
static __attribute__((noinline)) PyObject *known_stage(ext_plain_profiler *self, PyObject *stage)
{
    if (!PyUnicode_CheckExact(stage)) {
        return stage;
    }
    PyObject *known = PyDict_SetDefault(self->stages, stage, stage);
    if (known == NULL) {
        PyErr_Clear();
        return stage;
    }
    Py_XSETREF(self->last_known, Py_NewRef(known));
    Py_XSETREF(self->last_stage, Py_NewRef(stage));
    return known;
}

static ext_plain_entry *find_entry(ext_plain_profiler *self, PyObject *stage, PyObject *name)
{
    stage = __builtin_expect(stage == self->last_stage, 1) ? self->last_known : known_stage(self, stage);
    size_t place = ext_plain_profiler_place(name, stage);
    ext_plain_entry *entry = self->recent[place];
    if (__builtin_expect(entry != NULL && entry->name == name && entry->stage == stage, 1)) {
        return entry;
    }
    entry = self->recent[place ^ 1];
    if (__builtin_expect(entry != NULL && entry->name == name && entry->stage == stage, 1)) {
        return entry;
    }
    return find_slowly(self, stage, name);
}

cprof_accum *ext_plain_profiler_accum(ext_plain_profiler *self, PyObject *stage, PyObject *name)
{
    PyObject *names = Py_NewRef(self->names);
    PyObject *stages = Py_XNewRef(PyDict_GetItemWithError(names, name));
    ext_plain_entry *entry = stages != NULL ? entry_at(self, stages, stage) : NULL;
    cprof_accum *accum = entry != NULL && self->names == names ? entry->accum : NULL;
    ext_fault_forget();
    Py_XDECREF(stages);
    Py_DECREF(names);
    return accum;
}

bool ext_plain_profiler_add(ext_plain_profiler *self, PyObject *stage, PyObject *name, cprof_ns elapsed_ns, double elapsed_ms)
{
    ext_plain_entry *entry = find_entry(self, stage, name);
    if (__builtin_expect(entry == NULL, 0)) {
        return !PyErr_Occurred();
    }
    (void)cprof_plain_add(&entry->sums, elapsed_ms);
    if (__builtin_expect(entry->accum != NULL && elapsed_ns >= 0, 1)) {
        cprof_sample sample = {.elapsed_ns = elapsed_ns, .nested_ns = -1};
        uint64_t generation = cprof_registry_state(self->profiler->registry) >> CPROF_STATE_GENERATION_SHIFT;
        (void)cprof_accum_finish(entry->accum, generation, CPROF_OUTCOME_SUCCESS, &sample);
    } else if (entry->accum != NULL && elapsed_ms >= 0.0 && elapsed_ms <= MOST_MS) {
        cprof_accum_record_ms(entry->accum, elapsed_ms);
    }
    return true;
}

static PyObject *plain_record(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"stage_value", "node_name", "elapsed_ms", NULL};
    PyObject *stage, *name;
    double elapsed_ms;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOd:record", keywords, &stage, &name, &elapsed_ms) ||
        !ext_plain_profiler_add((ext_plain_profiler *)object, stage, name, -1, elapsed_ms)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Takes the entries away before their objects go, whose ends may run code. */
static void forget_entries(ext_plain_profiler *self)
{
    ext_plain_entry **entries = self->entries;
    size_t count = self->count;
    self->entries = NULL;
    self->count = self->capacity = 0;
    memset(self->recent, 0, sizeof self->recent);
    for (size_t i = 0; i < count; i++) {
        free_entry(entries[i]);
    }
    PyMem_Free(entries);
}

static PyObject *plain_reset(PyObject *object, PyObject *unused)
{
    (void)unused;
    ext_plain_profiler *self = (ext_plain_profiler *)object;
    PyObject *names = PyDict_New();
    if (names == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS /* a reader may have to be waited for */
    cprof_registry_reset(self->profiler->registry);
    Py_END_ALLOW_THREADS
    PyObject *older = self->names;
    self->names = names;
    forget_entries(self);
    Py_CLEAR(self->last_stage);
    PyDict_Clear(self->stages);
    Py_DECREF(older);
    Py_RETURN_NONE;
}

static PyObject *row_of(const ext_plain_entry *entry)
{
    const cprof_plain *sums = &entry->sums;
    /* Making a tuple may run code that resets, and frees the entry. */
    return Py_BuildValue("(NNKddddddd)", Py_NewRef(entry->name), Py_NewRef(entry->stage), (unsigned long long)sums->count,
                         sums->mean_ms, cprof_p2_median(&sums->median), cprof_plain_std_ms(sums), sums->min_ms, sums->max_ms,
                         sums->total_ms, sums->last_ms);
}

/* Whether an entry is of a stage; comparing may run code, even code that resets: then there is no entry any more. */
static int is_of_stage(const ext_plain_profiler *self, size_t index, PyObject *stage)
{
    if (stage == Py_None) {
        return 1;
    }
    PyObject *own = Py_NewRef(self->entries[index]->stage);
    int differs = PyObject_RichCompareBool(own, stage, Py_NE);
    Py_DECREF(own);
    return differs < 0 ? -1 : !differs && index < self->count;
}

static PyObject *plain_rows(PyObject *object, PyObject *stage)
{
    ext_plain_profiler *self = (ext_plain_profiler *)object;
    PyObject *rows = PyList_New(0);
    for (size_t i = 0; rows != NULL && i < self->count; i++) {
        int wanted = is_of_stage(self, i, stage);
        PyObject *row = wanted > 0 ? row_of(self->entries[i]) : NULL;
        if (wanted < 0 || (wanted > 0 && (row == NULL || PyList_Append(rows, row) < 0))) {
            Py_CLEAR(rows);
        }
        Py_XDECREF(row);
    }
    return rows;
}

static int plain_traverse(PyObject *object, visitproc visit, void *arg)
{
    ext_plain_profiler *self = (ext_plain_profiler *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->profiler);
    Py_VISIT(self->dict);
    Py_VISIT(self->skip_first_n);
    Py_VISIT(self->names);
    Py_VISIT(self->stages);
    for (size_t i = 0; i < self->count; i++) {
        Py_VISIT(self->entries[i]->stage);
        Py_VISIT(self->entries[i]->name);
    }
    return 0;
}

/* The Profiler and the dict of names stay: the object may still be used while a cycle is taken apart. */
static int plain_clear(PyObject *object)
{
    ext_plain_profiler *self = (ext_plain_profiler *)object;
    Py_CLEAR(self->dict);
    if (self->names != NULL) {
        PyDict_Clear(self->names);
    }
    forget_entries(self);
    return 0;
}

static void plain_dealloc(PyObject *object)
{
    ext_plain_profiler *self = (ext_plain_profiler *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    (void)plain_clear(object);
    Py_CLEAR(self->names);
    Py_CLEAR(self->stages);
    Py_CLEAR(self->last_stage);
    Py_CLEAR(self->last_known);
    Py_CLEAR(self->skip_first_n);
    Py_CLEAR(self->profiler);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef plain_methods[] = {
    {"record", (PyCFunction)(void (*)(void))plain_record, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("record($self, /, stage_value, node_name, elapsed_ms)\n--\n\nCounts a sample of a key.")},
    {"reset", plain_reset, METH_NOARGS, PyDoc_STR("reset($self, /)\n--\n\nDiscards the statistics.")},
    {"_plain_rows", plain_rows, METH_O,
     PyDoc_STR("The first ten figures of each key of a stage (None: all), in the order of their first samples.")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef plain_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(ext_plain_profiler, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ext_plain_profiler, weakrefs), READONLY, NULL},
    {"profiler", T_OBJECT_EX, offsetof(ext_plain_profiler, profiler), READONLY,
     PyDoc_STR("The Profiler that counts all samples too, with what more it knows of them.")},
    {"_skip_first_n", T_OBJECT_EX, offsetof(ext_plain_profiler, skip_first_n), READONLY,
     PyDoc_STR("Samples of each key that are left out, as it was asked for.")},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef plain_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot plain_slots[] = {
    {Py_tp_new, plain_new},
    {Py_tp_traverse, plain_traverse},
    {Py_tp_clear, plain_clear},
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_methods, plain_methods},
    {Py_tp_members, plain_members},
    {Py_tp_getset, plain_getset},
    {Py_tp_doc, (void *)"Statistics that count in a Profiler, and beside it in the plain sums of a peer's profiler."},
    {0, NULL},
};

PyType_Spec ext_plain_profiler_spec = {
    .name = "cprofiling._core.PlainProfiler",
    .basicsize = sizeof(ext_plain_profiler),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = plain_slots,
};
