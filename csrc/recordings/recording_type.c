#include "csrc/recordings/recording.h"

#include "csrc/convert.h"
#include "csrc/types.h"

PyObject *ext_recording_new(PyTypeObject *type, cprof_table *table)
{
    ext_recording *self = (ext_recording *)type->tp_alloc(type, 0);
    if (self == NULL) {
        cprof_table_destroy(table);
        return NULL;
    }
    self->table = table;
    self->phase = table->finished ? EXT_RECORDING_FINISHED : EXT_RECORDING_OPEN;
    self->exporting = -1;
    return (PyObject *)self;
}

static PyObject *recording_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    PyErr_Format(PyExc_TypeError, "%.100s is made by profile() or load_trace()", type->tp_name);
    return NULL;
}

static void recording_dealloc(PyObject *object)
{
    ext_recording *self = (ext_recording *)object;
    cprof_table_destroy(self->table);
    Py_XDECREF(self->strings);
    Py_XDECREF(self->tracks);
    ext_state_free(object);
}

/* What stands against a use that needs another phase. */
static bool refuse(const ext_recording *self)
{
    static const char *const reasons[] = {
        [EXT_RECORDING_OPEN] = "the recording is not finished",
        [EXT_RECORDING_BUSY] = "the recording is in use by another thread, or by the function that it is loaded with",
        [EXT_RECORDING_FINISHED] = "the recording is finished",
        [EXT_RECORDING_GIVEN_UP] = "the recording was given up, as it could not be loaded",
    };
    PyErr_SetString(PyExc_RuntimeError, reasons[self->phase]);
    return false;
}

bool ext_recording_can_change(const ext_recording *self)
{
    return self->phase == EXT_RECORDING_OPEN || refuse(self);
}

bool ext_recording_can_read(const ext_recording *self)
{
    return self->phase == EXT_RECORDING_FINISHED || refuse(self);
}

bool ext_recording_can_look(const ext_recording *self)
{
    return self->phase == EXT_RECORDING_OPEN || ext_recording_can_read(self);
}

static PyObject *recording_empty(PyObject *type, PyObject *Py_UNUSED(unused))
{
    cprof_table *table = cprof_table_create();
    return table != NULL ? ext_recording_new((PyTypeObject *)type, table) : PyErr_NoMemory();
}

static PyObject *recording_finish(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ext_recording *self = (ext_recording *)object;
    if (self->phase == EXT_RECORDING_FINISHED) {
        Py_RETURN_NONE;
    }
    if (!ext_recording_can_change(self)) {
        return NULL;
    }
    cprof_status status;
    self->phase = EXT_RECORDING_BUSY;
    EXT_WITHOUT_GIL(status = cprof_table_finish(self->table));
    self->phase = status == CPROF_OK ? EXT_RECORDING_FINISHED : EXT_RECORDING_OPEN;
    return ext_convert_status(status, "finishing a recording");
}

static Py_ssize_t recording_length(PyObject *object)
{
    const ext_recording *self = (ext_recording *)object;
    Py_ssize_t length;
    EXT_ALONE(object, length = ext_recording_can_look(self) ? (Py_ssize_t)self->table->count : -1);
    return length;
}

static PyObject *recording_dropped(PyObject *object, void *Py_UNUSED(unused))
{
    const ext_recording *self = (ext_recording *)object;
    return ext_recording_can_look(self) ? PyLong_FromUnsignedLongLong(self->table->dropped) : NULL;
}

/* The str of a text; bytes that are no UTF-8, which a file may have, are shown as U+FFFD. */
static PyObject *to_str(cprof_name utf8)
{
    PyObject *str = ext_convert_to_str(utf8);
    if (str == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        str = PyUnicode_DecodeUTF8(utf8.bytes, (Py_ssize_t)utf8.length, "replace");
    }
    return str;
}

static bool find_column(const ext_recording *self, PyObject *name, cprof_column_number *number)
{
    if (!PyUnicode_Check(name)) {
        ext_convert_refuse_type("name", "that of a column", name);
        return false;
    }
    for (int i = 0; i < CPROF_COLUMN_COUNT; i++) {
        *number = (cprof_column_number)i;
        if (PyUnicode_CompareWithASCIIString(name, cprof_table_column(self->table, *number).name) == 0) {
            return true;
        }
    }
    ext_convert_refuse_value("%s must be that of a column, got %U", "name", name);
    return false;
}

/* The recording itself is what exports the memory, so that it lives as long as the view. Its collector, or another thread, may
 * ask for another column in the midst of this. */
static PyObject *recording_column(PyObject *object, PyObject *name)
{
    ext_recording *self = (ext_recording *)object;
    cprof_column_number number;
    if (!ext_recording_can_read(self) || !find_column(self, name, &number)) {
        return NULL;
    }
    if (cprof_table_column(self->table, number).items == NULL && self->table->count > 0) {
        Py_RETURN_NONE;
    }
    int before = self->exporting;
    self->exporting = (int)number;
    PyObject *view = PyMemoryView_FromObject(object);
    self->exporting = before;
    return view;
}

/* The formats of the struct module, as strings that live for ever. */
static char *format_string(char format)
{
    static const char formats[][2] = {"q", "Q", "i", "I", "H", "B"};
    size_t place = 0;
    while (formats[place][0] != format) {
        place++;
    }
    return (char *)formats[place];
}

static int recording_get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    ext_recording *self = (ext_recording *)object;
    view->obj = NULL;
    if (self->exporting < 0 || (flags & PyBUF_WRITABLE) != 0) {
        PyErr_SetString(PyExc_BufferError, "a recording has no bytes but those of its columns, which are read-only");
        return -1;
    }
    static const char nothing[1];
    cprof_column column = cprof_table_column(self->table, (cprof_column_number)self->exporting);
    self->rows = (Py_ssize_t)self->table->count;
    *view = (Py_buffer){
        .buf = (void *)(column.items != NULL ? column.items : nothing),
        .obj = Py_NewRef(object),
        .len = self->rows * (Py_ssize_t)column.item_size,
        .itemsize = (Py_ssize_t)column.item_size,
        .readonly = 1,
        .ndim = 1,
        .format = format_string(column.format),
        .shape = &self->rows,
    };
    view->strides = &view->itemsize;
    return 0;
}

static PyObject *recording_none(PyObject *object, PyObject *name)
{
    ext_recording *self = (ext_recording *)object;
    cprof_column_number number;
    if (!find_column(self, name, &number)) {
        return NULL;
    }
    return PyLong_FromLongLong(cprof_table_column(self->table, number).none);
}

static PyObject *nth_column_name(const void *table, size_t place)
{
    return PyUnicode_FromString(cprof_table_column(table, (cprof_column_number)place).name);
}

static PyObject *recording_column_names(PyObject *object, void *Py_UNUSED(unused))
{
    return ext_convert_tuple(CPROF_COLUMN_COUNT, nth_column_name, ((ext_recording *)object)->table);
}

static PyObject *recording_args(PyObject *object, PyObject *row)
{
    const ext_recording *self = (ext_recording *)object;
    const cprof_table *table = self->table;
    if (!PyIndex_Check(row)) {
        ext_convert_refuse_type("row", "the number of a row", row);
        return NULL;
    }
    Py_ssize_t index = PyNumber_AsSsize_t(row, NULL);
    if ((index == -1 && PyErr_Occurred()) || !ext_recording_can_read(self)) {
        return NULL;
    }
    if (index < 0 || (size_t)index >= table->count) {
        PyErr_Format(PyExc_IndexError, "row must be 0 to %zd, got %A", (Py_ssize_t)table->count - 1, row);
        return NULL;
    }
    if (table->args_length == NULL || table->args_length[index] == 0) {
        Py_RETURN_NONE;
    }
    uint64_t at = table->args_at != NULL ? table->args_at[index] : 0;
    return to_str((cprof_name){table->kept + at, table->args_length[index]});
}

static PyObject *nth_string(const void *table, size_t place)
{
    return to_str(cprof_table_string(table, (cprof_text)place));
}

/* What another thread has made meanwhile stays. */
static PyObject *keep(PyObject **field, PyObject *made)
{
    if (*field == NULL) {
        *field = made;
    } else {
        Py_XDECREF(made);
    }
    return Py_XNewRef(*field);
}

static PyObject *recording_strings(PyObject *object, void *Py_UNUSED(unused))
{
    ext_recording *self = (ext_recording *)object;
    if (!ext_recording_can_read(self)) {
        return NULL;
    }
    return keep(&self->strings,
                self->strings == NULL ? ext_convert_list(self->table->texts.count + 1, nth_string, self->table) : NULL);
}

static PyObject *text_or_none(const cprof_table *table, cprof_text text)
{
    return text != 0 ? to_str(cprof_table_string(table, text)) : Py_NewRef(Py_None);
}

static PyObject *sort_or_none(int64_t sort)
{
    return sort != CPROF_TABLE_UNKNOWN ? PyLong_FromLongLong(sort) : Py_NewRef(Py_None);
}

static PyObject *nth_track(const void *context, size_t place)
{
    const cprof_table *table = context;
    const cprof_track *track = &table->tracks[place];
    return Py_BuildValue("(LLNNNNNNNi)", (long long)track->pid, (long long)track->tid, text_or_none(table, track->pid_text),
                         text_or_none(table, track->tid_text), text_or_none(table, track->process_name),
                         text_or_none(table, track->process_labels), text_or_none(table, track->thread_name),
                         sort_or_none(track->process_sort), sort_or_none(track->thread_sort), (int)track->lanes);
}

static PyObject *nth_flow(const void *context, size_t place)
{
    const cprof_table *table = context;
    const cprof_flow *flow = &table->flows[place];
    return Py_BuildValue("(CLKINNN)", flow->phase, (long long)flow->at_ns, (unsigned long long)flow->id,
                         (unsigned int)flow->track, to_str(cprof_table_string(table, flow->name)),
                         to_str(cprof_table_string(table, flow->cat)), PyBool_FromLong(flow->binds_enclosing));
}

static PyObject *recording_tracks(PyObject *object, void *Py_UNUSED(unused))
{
    ext_recording *self = (ext_recording *)object;
    if (!ext_recording_can_read(self)) {
        return NULL;
    }
    return keep(&self->tracks,
                self->tracks == NULL ? ext_convert_list(self->table->track_count, nth_track, self->table) : NULL);
}

static PyObject *recording_flows(PyObject *object, void *Py_UNUSED(unused))
{
    const ext_recording *self = (ext_recording *)object;
    return ext_recording_can_read(self) ? ext_convert_list(self->table->flow_count, nth_flow, self->table) : NULL;
}

static bool put_fact(PyObject *facts, const cprof_table *table, const cprof_fact *fact)
{
    PyObject *key = to_str(cprof_table_string(table, fact->key));
    PyObject *json = key != NULL ? to_str((cprof_name){table->kept + fact->at, fact->length}) : NULL;
    bool fine = json != NULL && PyDict_SetItem(facts, key, json) == 0;
    Py_XDECREF(key);
    Py_XDECREF(json);
    return fine;
}

static PyObject *recording_facts(PyObject *object, void *Py_UNUSED(unused))
{
    const ext_recording *self = (ext_recording *)object;
    if (!ext_recording_can_look(self)) {
        return NULL;
    }
    PyObject *facts = PyDict_New();
    for (size_t i = 0; facts != NULL && i < self->table->fact_count; i++) {
        if (!put_fact(facts, self->table, &self->table->facts[i])) {
            Py_CLEAR(facts);
        }
    }
    return facts;
}

static PyObject *recording_itself(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return Py_NewRef(object);
}

/* A phase is found, left and entered by one thread at a time. */
EXT_ALONE_FUNCTION(recording_column, PyObject *)
EXT_ALONE_FUNCTION(recording_args, PyObject *)
EXT_ALONE_FUNCTION(ext_recording_write_chrome, PyObject *)
EXT_ALONE_FUNCTION(ext_recording_write_events, PyObject *)
EXT_ALONE_KEYWORDS(ext_recording_arrow)
EXT_ALONE_FUNCTION(ext_recording_own_times, PyObject *)
EXT_ALONE_FUNCTION(ext_recording_parents, PyObject *)
EXT_ALONE_KEYWORDS(ext_recording_add)
EXT_ALONE_FUNCTION(ext_recording_set_fact, PyObject *)
EXT_ALONE_FUNCTION(ext_recording_name_process, PyObject *)
EXT_ALONE_FUNCTION(ext_recording_name_thread, PyObject *)
EXT_ALONE_FUNCTION(ext_recording_renumber, PyObject *)
EXT_ALONE_FUNCTION(ext_recording_load, PyObject *)
EXT_ALONE_FUNCTION(recording_finish, PyObject *)
EXT_ALONE_FUNCTION(recording_strings, void *)
EXT_ALONE_FUNCTION(recording_tracks, void *)
EXT_ALONE_FUNCTION(recording_flows, void *)
EXT_ALONE_FUNCTION(recording_facts, void *)
EXT_ALONE_FUNCTION(ext_recording_chrome_base, void *)
EXT_ALONE_FUNCTION(recording_dropped, void *)

static PyMethodDef recording_methods[] = {
    {"empty", recording_empty, METH_NOARGS | METH_CLASS, PyDoc_STR("A recording of nothing, to be added to.")},
    {"column", recording_column_alone, METH_O,
     PyDoc_STR("column($self, name, /)\n--\n\nA column, a read-only memoryview that keeps the recording alive; None where all "
               "rows have its \"none\".")},
    {"none", recording_none, METH_O, PyDoc_STR("The value that stands for \"none\" in a column.")},
    {"args", recording_args_alone, METH_O, PyDoc_STR("The args of a row as they were loaded or added, in JSON; or None.")},
    {"write_chrome", ext_recording_write_chrome_alone, METH_O,
     PyDoc_STR("write_chrome($self, write, /)\n--\n\nWrites a Chrome trace in UTF-8: calls write(piece) with bytes of at most "
               "256 KiB. What that raises ends it.")},
    {"_write_events", ext_recording_write_events_alone, METH_VARARGS, PyDoc_STR("Writes only the events of a Chrome trace.")},
    {"_arrow_stream", EXT_METHOD(ext_recording_arrow_alone), METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("The rows but counters as Arrow record batches, with more of each row in buffers: a capsule.")},
    {"_own_times", ext_recording_own_times_alone, METH_O,
     PyDoc_STR("The time of each row as the innermost of its track; by parents, where -2 leaves a row out.")},
    {"_parents", ext_recording_parents_alone, METH_O,
     PyDoc_STR("The innermost counted row around each row, or -1; -2 for rows that are not counted.")},
    {"_add", EXT_METHOD(ext_recording_add_alone), METH_VARARGS | METH_KEYWORDS, PyDoc_STR("Adds a row, by names of columns.")},
    {"_set_fact", ext_recording_set_fact_alone, METH_VARARGS, PyDoc_STR("Sets a fact about the whole: a key, and JSON.")},
    {"_name_process", ext_recording_name_process_alone, METH_VARARGS, PyDoc_STR("Names a process that is in the recording.")},
    {"_name_thread", ext_recording_name_thread_alone, METH_VARARGS, PyDoc_STR("Names a thread that has no name yet.")},
    {"_renumber", ext_recording_renumber_alone, METH_O, PyDoc_STR("Gives each track another process, for writing only.")},
    {"_load", ext_recording_load_alone, METH_VARARGS, PyDoc_STR("Adds the events of a Chrome trace; returns what was read.")},
    {"_finish", recording_finish_alone, METH_NOARGS, PyDoc_STR("Ends the adding: sorts, and finds parents and lanes.")},
    {"__copy__", recording_itself, METH_NOARGS, NULL},
    {"__deepcopy__", recording_itself, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recording_attributes[] = {
    {"strings", recording_strings_alone, NULL, PyDoc_STR("The texts by their numbers; not to be changed."), NULL},
    {"tracks", recording_tracks_alone, NULL,
     PyDoc_STR("By their numbers: pid, tid, the texts that stand for them or None, process name, labels, thread name, sort "
               "numbers of both, highest lane; not to be changed."),
     NULL},
    {"flows", recording_flows_alone, NULL,
     PyDoc_STR("Ends of arrows: phase, ns, id, track, name, category, whether bound to the enclosing row."), NULL},
    {"facts", recording_facts_alone, NULL, PyDoc_STR("JSON texts by their keys."), NULL},
    {"column_names", recording_column_names, NULL, PyDoc_STR("The names of all columns."), NULL},
    {"_chrome_base", ext_recording_chrome_base_alone, NULL, PyDoc_STR("What times in a Chrome trace of it count from, in ns."),
     NULL},
    {"dropped", recording_dropped_alone, NULL, PyDoc_STR("How many events are missing, as there was no room for them."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot recording_slots[] = {
    {Py_tp_new, recording_new},
    {Py_tp_dealloc, recording_dealloc},
    {Py_tp_methods, recording_methods},
    {Py_tp_getset, recording_attributes},
    {Py_sq_length, recording_length},
    {Py_bf_getbuffer, recording_get_buffer},
    {Py_tp_doc, (void *)"What happened, as a table of rows. Immutable once it is finished."},
    {0, NULL},
};

PyType_Spec ext_recording_spec =
    EXT_TYPES_SPEC("Recording", ext_recording, recording_slots, Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE);
