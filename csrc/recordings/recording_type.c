#include "csrc/recordings/recording.h"

#include "csrc/types.h"
#include "csrc/convert.h"

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
    PyTypeObject *type = Py_TYPE(object);
    cprof_table_destroy(self->table);
    Py_XDECREF(self->strings);
    Py_XDECREF(self->tracks);
    type->tp_free(object);
    Py_DECREF(type);
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
    Py_BEGIN_ALLOW_THREADS
    status = cprof_table_finish(self->table);
    Py_END_ALLOW_THREADS
    self->phase = status == CPROF_OK ? EXT_RECORDING_FINISHED : EXT_RECORDING_OPEN;
    if (status != CPROF_OK) {
        return ext_convert_status(status, "finishing a recording");
    }
    Py_RETURN_NONE;
}

static Py_ssize_t recording_length(PyObject *object)
{
    const ext_recording *self = (ext_recording *)object;
    return ext_recording_can_look(self) ? (Py_ssize_t)self->table->count : -1;
}

static PyObject *recording_dropped(PyObject *object, void *Py_UNUSED(unused))
{
    const ext_recording *self = (ext_recording *)object;
    return ext_recording_can_look(self) ? PyLong_FromUnsignedLongLong(self->table->dropped) : NULL;
}

static PyObject *recording_itself(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return Py_NewRef(object);
}

PyDoc_STRVAR(column_doc, "column($self, name, /)\n--\n\n"
                         "A column as a read-only memoryview, which keeps the recording alive; None where all rows have its "
                         "\"none\".");

PyDoc_STRVAR(write_chrome_doc, "write_chrome($self, write, /)\n--\n\n"
                               "Writes a Chrome trace, in UTF-8: calls write(piece) with bytes of at most 256 KiB. What it "
                               "raises ends the writing.");

PyDoc_STRVAR(arrow_doc, "__arrow_c_stream__($self, requested_schema=None)\n--\n\n"
                        "The rows but counters as Arrow record batches: a capsule of the Arrow PyCapsule interface. The "
                        "requested schema is ignored.");

PyDoc_STRVAR(load_doc,
             "_load($self, read, shift_ns, id_offset=0, /)\n--\n\n"
             "Adds the events of a Chrome trace: read(size) gives the next bytes of it, none at its end. Returns what "
             "was read, and what not\n"
             "taken over, as counts by words, and the greatest id. Raises FormatError with the reason and the byte; the "
             "recording is of no "
             "use after any error.");

static PyMethodDef recording_methods[] = {
    {"empty", recording_empty, METH_NOARGS | METH_CLASS, PyDoc_STR("A recording of nothing, to be added to.")},
    {"column", ext_recording_column, METH_O, column_doc},
    {"none", ext_recording_none, METH_O, PyDoc_STR("The value that stands for \"none\" in a column.")},
    {"args", ext_recording_args, METH_O, PyDoc_STR("The args of a row as they were loaded or added, in JSON; or None.")},
    {"write_chrome", ext_recording_write_chrome, METH_O, write_chrome_doc},
    {"_write_events", ext_recording_write_events, METH_VARARGS,
     PyDoc_STR("Writes only the events of a Chrome trace: write, base_ns, is_first. See cprof_chrome_write_events.")},
    {"__arrow_c_stream__", (PyCFunction)(void (*)(void))ext_recording_arrow, METH_VARARGS | METH_KEYWORDS, arrow_doc},
    {"_arrow_stream", (PyCFunction)(void (*)(void))ext_recording_arrow_with, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("As __arrow_c_stream__, with what is known of the rows beyond the recording: buffers of one number for each.")},
    {"_add", (PyCFunction)(void (*)(void))ext_recording_add, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Adds a row, by keywords named as columns; pid and tid, ints or strs, stand for the track.")},
    {"_set_fact", ext_recording_set_fact, METH_VARARGS, PyDoc_STR("Sets a fact about the whole: a key, and JSON.")},
    {"_name_process", ext_recording_name_process, METH_VARARGS,
     PyDoc_STR("Names a process, if it is in the recording: pid, name, labels and sort number, or None.")},
    {"_name_thread", ext_recording_name_thread, METH_VARARGS,
     PyDoc_STR("Names a thread, if it is in the recording: pid, tid, name and sort number, or None.")},
    {"_renumber", ext_recording_renumber, METH_O,
     PyDoc_STR("Gives each track another process, by a sequence of numbers; then it can only be finished and written.")},
    {"_load", ext_recording_load, METH_VARARGS, load_doc},
    {"_finish", recording_finish, METH_NOARGS, PyDoc_STR("Ends the adding: sorts, and finds parents and lanes.")},
    {"__copy__", recording_itself, METH_NOARGS, NULL},
    {"__deepcopy__", recording_itself, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef recording_attributes[] = {
    {"strings", ext_recording_strings, NULL, PyDoc_STR("The texts by their numbers; not to be changed."), NULL},
    {"tracks", ext_recording_tracks, NULL,
     PyDoc_STR("By their numbers: pid, tid, the texts that stand for them or None, process name, labels, thread name, sort "
               "numbers of both, highest lane; not to be changed."),
     NULL},
    {"flows", ext_recording_flows, NULL,
     PyDoc_STR("Ends of arrows: phase, ns, id, track, name, category, whether bound to the enclosing row."), NULL},
    {"facts", ext_recording_facts, NULL, PyDoc_STR("JSON texts by their keys."), NULL},
    {"column_names", ext_recording_column_names, NULL, PyDoc_STR("The names of all columns."), NULL},
    {"_chrome_base", ext_recording_chrome_base, NULL, PyDoc_STR("What times in a Chrome trace of it count from, in ns."), NULL},
    {"dropped", recording_dropped, NULL, PyDoc_STR("How many events are missing, as there was no room for them."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot recording_slots[] = {
    {Py_tp_new, recording_new},
    {Py_tp_dealloc, recording_dealloc},
    {Py_tp_methods, recording_methods},
    {Py_tp_getset, recording_attributes},
    {Py_sq_length, recording_length},
    {Py_bf_getbuffer, ext_recording_get_buffer},
    {Py_tp_doc, (void *)"What happened, as a table of rows. Immutable once it is finished."},
    {0, NULL},
};

PyType_Spec ext_recording_spec = {
    .name = "cprofiling._core.Recording",
    .basicsize = sizeof(ext_recording),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = recording_slots,
};
