#include "csrc/convert.h"
#include "csrc/recordings/recording.h"

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
    PyErr_Format(PyExc_ValueError, "name must be that of a column, got %A", name);
    return false;
}

/* The recording itself is what exports the memory, so that it lives as long as the view. Its collector, or another thread, may
 * ask for another column in the midst of this. */
PyObject *ext_recording_column(PyObject *object, PyObject *name)
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
    switch (format) {
    case 'q':
        return "q";
    case 'Q':
        return "Q";
    case 'i':
        return "i";
    case 'I':
        return "I";
    case 'H':
        return "H";
    default:
        return "B";
    }
}

int ext_recording_get_buffer(PyObject *object, Py_buffer *view, int flags)
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

PyObject *ext_recording_none(PyObject *object, PyObject *name)
{
    ext_recording *self = (ext_recording *)object;
    cprof_column_number number;
    if (!find_column(self, name, &number)) {
        return NULL;
    }
    return PyLong_FromLongLong(cprof_table_column(self->table, number).none);
}

PyObject *ext_recording_column_names(PyObject *object, void *Py_UNUSED(unused))
{
    const ext_recording *self = (ext_recording *)object;
    PyObject *names = PyTuple_New(CPROF_COLUMN_COUNT);
    for (Py_ssize_t i = 0; names != NULL && i < CPROF_COLUMN_COUNT; i++) {
        PyObject *name = PyUnicode_FromString(cprof_table_column(self->table, (cprof_column_number)i).name);
        if (name == NULL) {
            Py_CLEAR(names);
            break;
        }
        PyTuple_SET_ITEM(names, i, name);
    }
    return names;
}

PyObject *ext_recording_args(PyObject *object, PyObject *row)
{
    const ext_recording *self = (ext_recording *)object;
    const cprof_table *table = self->table;
    if (!PyIndex_Check(row)) {
        ext_convert_refuse_type("row", "the number of a row", row);
        return NULL;
    }
    Py_ssize_t index = PyNumber_AsSsize_t(row, PyExc_IndexError);
    if ((index == -1 && PyErr_Occurred()) || !ext_recording_can_read(self)) {
        return NULL;
    }
    if (index < 0 || (size_t)index >= table->count) {
        PyErr_Format(PyExc_IndexError, "row must be 0 to %zd, got %zd", (Py_ssize_t)table->count - 1, index);
        return NULL;
    }
    if (table->args_length == NULL || table->args_length[index] == 0) {
        Py_RETURN_NONE;
    }
    uint64_t at = table->args_at != NULL ? table->args_at[index] : 0;
    return to_str((cprof_name){table->kept + at, table->args_length[index]});
}

static PyObject *make_strings(const cprof_table *table)
{
    Py_ssize_t count = (Py_ssize_t)table->texts.count + 1;
    PyObject *strings = PyList_New(count);
    for (Py_ssize_t i = 0; strings != NULL && i < count; i++) {
        PyObject *string = to_str(cprof_table_string(table, (cprof_text)i));
        if (string == NULL) {
            Py_CLEAR(strings);
            break;
        }
        PyList_SET_ITEM(strings, i, string);
    }
    return strings;
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

PyObject *ext_recording_strings(PyObject *object, void *Py_UNUSED(unused))
{
    ext_recording *self = (ext_recording *)object;
    if (!ext_recording_can_read(self)) {
        return NULL;
    }
    return keep(&self->strings, self->strings == NULL ? make_strings(self->table) : NULL);
}

static PyObject *text_or_none(const cprof_table *table, cprof_text text)
{
    return text != 0 ? to_str(cprof_table_string(table, text)) : Py_NewRef(Py_None);
}

static PyObject *sort_or_none(int64_t sort)
{
    return sort != CPROF_TABLE_UNKNOWN ? PyLong_FromLongLong(sort) : Py_NewRef(Py_None);
}

static PyObject *make_track(const cprof_table *table, const cprof_track *track)
{
    return Py_BuildValue("(LLNNNNNNNi)", (long long)track->pid, (long long)track->tid, text_or_none(table, track->pid_text),
                         text_or_none(table, track->tid_text), text_or_none(table, track->process_name),
                         text_or_none(table, track->process_labels), text_or_none(table, track->thread_name),
                         sort_or_none(track->process_sort), sort_or_none(track->thread_sort), (int)track->lanes);
}

static PyObject *make_flow(const cprof_table *table, const cprof_flow *flow)
{
    return Py_BuildValue("(CLKINNN)", flow->phase, (long long)flow->at_ns, (unsigned long long)flow->id,
                         (unsigned int)flow->track, to_str(cprof_table_string(table, flow->name)),
                         to_str(cprof_table_string(table, flow->cat)), PyBool_FromLong(flow->binds_enclosing));
}

static PyObject *make_item(const cprof_table *table, bool of_flows, size_t index)
{
    return of_flows ? make_flow(table, &table->flows[index]) : make_track(table, &table->tracks[index]);
}

static PyObject *make_list(const cprof_table *table, bool of_flows)
{
    Py_ssize_t count = (Py_ssize_t)(of_flows ? table->flow_count : table->track_count);
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *item = make_item(table, of_flows, (size_t)i);
        if (item == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, item);
    }
    return list;
}

PyObject *ext_recording_tracks(PyObject *object, void *Py_UNUSED(unused))
{
    ext_recording *self = (ext_recording *)object;
    if (!ext_recording_can_read(self)) {
        return NULL;
    }
    return keep(&self->tracks, self->tracks == NULL ? make_list(self->table, false) : NULL);
}

PyObject *ext_recording_flows(PyObject *object, void *Py_UNUSED(unused))
{
    const ext_recording *self = (ext_recording *)object;
    return ext_recording_can_read(self) ? make_list(self->table, true) : NULL;
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

PyObject *ext_recording_facts(PyObject *object, void *Py_UNUSED(unused))
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
