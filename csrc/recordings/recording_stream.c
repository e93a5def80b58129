#include "csrc/recordings/arrow_stream.h"
#include "csrc/convert.h"
#include "csrc/recordings/recording.h"

#include "cprofiling/files/arrow_table.h"
#include "cprofiling/files/chrome_write.h"
#include "cprofiling/files/chrome_read.h"
#include "cprofiling/trace/nesting.h"

#include <string.h>

/* A function of Python's that the core calls in the midst of work without the GIL. */
typedef struct {
    PyObject *function;
    PyThreadState *thread; /* saved */
} callback;

/* Any status will do to end the work: the exception says why. */
static cprof_status outcome_of(bool fine)
{
    return fine ? CPROF_OK : CPROF_BUSY;
}

static PyObject *checked_function(PyObject *function, const char *parameter)
{
    if (!PyCallable_Check(function)) {
        ext_convert_refuse_type(parameter, "callable", function);
        return NULL;
    }
    return function;
}

static cprof_status hand_on(void *context, const char *bytes, size_t length)
{
    callback *write = context;
    PyEval_RestoreThread(write->thread);
    PyObject *piece = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)length);
    PyObject *result = piece != NULL ? PyObject_CallOneArg(write->function, piece) : NULL;
    bool fine = result != NULL;
    Py_XDECREF(piece);
    Py_XDECREF(result);
    write->thread = PyEval_SaveThread();
    return outcome_of(fine);
}

/* None, or NULL with the exception, after writing without the GIL. */
static PyObject *written(const callback *write, cprof_status status)
{
    PyEval_RestoreThread(write->thread);
    return PyErr_Occurred() ? NULL : ext_convert_status(status, "writing a trace");
}

PyObject *ext_recording_write_chrome(PyObject *object, PyObject *write)
{
    const ext_recording *self = (ext_recording *)object;
    if (checked_function(write, "write") == NULL || !ext_recording_can_read(self)) {
        return NULL;
    }
    callback context = {.function = write, .thread = PyEval_SaveThread()};
    return written(&context, cprof_chrome_write(self->table, hand_on, &context));
}

PyObject *ext_recording_write_events(PyObject *object, PyObject *args)
{
    const ext_recording *self = (ext_recording *)object;
    PyObject *write;
    long long base_ns;
    int is_first;
    if (!PyArg_ParseTuple(args, "OLp:_write_events", &write, &base_ns, &is_first) || checked_function(write, "write") == NULL ||
        !ext_recording_can_read(self)) {
        return NULL;
    }
    callback context = {.function = write, .thread = PyEval_SaveThread()};
    return written(&context, cprof_chrome_write_events(self->table, base_ns, is_first != 0, hand_on, &context));
}

PyObject *ext_recording_chrome_base(PyObject *object, void *Py_UNUSED(unused))
{
    const ext_recording *self = (ext_recording *)object;
    return ext_recording_can_read(self) ? PyLong_FromLongLong(cprof_chrome_write_base(self->table)) : NULL;
}

/* Copies what read() gave. */
static bool take_piece(PyObject *piece, char *buffer, size_t size, size_t *length)
{
    Py_buffer view;
    if (!PyObject_CheckBuffer(piece)) {
        ext_convert_refuse_type("what read() returns", "bytes", piece);
        return false;
    }
    if (PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE) < 0) {
        return false;
    }
    bool fits = (size_t)view.len <= size;
    if (fits) {
        *length = (size_t)view.len;
        memcpy(buffer, view.buf, *length);
    } else {
        PyErr_Format(PyExc_ValueError, "read(%zu) returned %zd bytes", size, view.len);
    }
    PyBuffer_Release(&view);
    return fits;
}

static cprof_status fetch(void *context, char *buffer, size_t size, size_t *length)
{
    callback *read = context;
    PyEval_RestoreThread(read->thread);
    PyObject *piece = PyObject_CallFunction(read->function, "n", (Py_ssize_t)size);
    bool fine = piece != NULL && take_piece(piece, buffer, size, length);
    Py_XDECREF(piece);
    read->thread = PyEval_SaveThread();
    return outcome_of(fine);
}

static PyObject *refuse_trace(PyObject *object, cprof_status status, const cprof_chrome_read_report *report)
{
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (status == CPROF_BAD_FORMAT) {
        ext_state *state = ext_state_of_type(Py_TYPE(object));
        return state != NULL
                   ? PyErr_Format(state->format_error, "%s, at byte %llu", report->reason, (unsigned long long)report->bytes)
                   : NULL;
    }
    if (status == CPROF_OUT_OF_RANGE) {
        PyErr_Format(PyExc_OverflowError, "a recording has at most %d rows", CPROF_TABLE_MAX_ROWS);
        return NULL;
    }
    return ext_convert_status(status, "loading a trace");
}

PyObject *ext_recording_load(PyObject *object, PyObject *args)
{
    ext_recording *self = (ext_recording *)object;
    PyObject *read;
    long long shift_ns, id_offset = 0;
    if (!PyArg_ParseTuple(args, "OL|L:_load", &read, &shift_ns, &id_offset) || checked_function(read, "read") == NULL ||
        !ext_recording_can_change(self)) {
        return NULL;
    }
    cprof_chrome_read_report report = {.reason = NULL};
    self->phase = EXT_RECORDING_BUSY;
    callback context = {.function = read, .thread = PyEval_SaveThread()};
    cprof_status status = cprof_chrome_read(self->table, shift_ns, id_offset, fetch, &context, &report);
    PyEval_RestoreThread(context.thread);
    self->phase = status == CPROF_OK ? EXT_RECORDING_OPEN : EXT_RECORDING_GIVEN_UP;
    if (status != CPROF_OK) {
        return refuse_trace(object, status, &report);
    }
    return Py_BuildValue("{sKsKsKsKsKsL}", "bytes", (unsigned long long)report.bytes, "ignored",
                         (unsigned long long)report.ignored, "unmatched", (unsigned long long)report.unmatched, "negative",
                         (unsigned long long)report.negative, "dropped", (unsigned long long)report.dropped, "greatest_id",
                         (long long)report.greatest_id);
}

static PyObject *make_capsule(const ext_recording *self, const cprof_arrow_extras *extras)
{
    cprof_arrow_stream stream;
    cprof_status status;
    EXT_WITHOUT_GIL(status = cprof_arrow_table_open(self->table, extras, &stream));
    if (status == CPROF_OUT_OF_RANGE) {
        PyErr_SetString(PyExc_ValueError, "spans must be numbers of rows, or -1");
        return NULL;
    }
    return status == CPROF_OK ? ext_arrow_stream_capsule(stream) : ext_convert_status(status, "opening a stream");
}

/* One number for each row, from a buffer; None: NULL. False with an exception; else the view is to be released. */
static bool numbers_of(const ext_recording *self, PyObject *value, const char *parameter, size_t item_size, Py_buffer *view)
{
    *view = (Py_buffer){.buf = NULL};
    if (value == Py_None) {
        return true;
    }
    if (PyObject_GetBuffer(value, view, PyBUF_CONTIG_RO | PyBUF_FORMAT) < 0) {
        return false;
    }
    bool fits = (size_t)view->itemsize == item_size && view->format != NULL && strchr("Bilq", view->format[0]) != NULL &&
                (size_t)view->len == self->table->count * item_size;
    if (!fits) {
        PyErr_Format(PyExc_ValueError, "%s must be %zu integers of %zu bytes", parameter, self->table->count, item_size);
        PyBuffer_Release(view);
    }
    return fits;
}

PyObject *ext_recording_arrow(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"spans", "execution_index", "operator_index", NULL};
    const ext_recording *self = (ext_recording *)object;
    PyObject *spans_value = Py_None, *executions_value = Py_None, *operators_value = Py_None;
    Py_buffer spans = {.buf = NULL}, executions = {.buf = NULL}, operators = {.buf = NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOO:_arrow_stream", keywords, &spans_value, &executions_value,
                                     &operators_value) ||
        !ext_recording_can_read(self)) {
        return NULL;
    }
    PyObject *capsule = NULL;
    if (numbers_of(self, spans_value, "spans", sizeof(int32_t), &spans) &&
        numbers_of(self, executions_value, "execution_index", sizeof(int64_t), &executions) &&
        numbers_of(self, operators_value, "operator_index", sizeof(int64_t), &operators)) {
        capsule = make_capsule(self, &(cprof_arrow_extras){spans.buf, executions.buf, operators.buf});
    }
    PyBuffer_Release(&spans);
    PyBuffer_Release(&executions);
    PyBuffer_Release(&operators);
    return capsule;
}

/* Bytes of a number of so many bytes for each row, made from another number of each. */
static PyObject *computed(const ext_recording *self, PyObject *value, const char *parameter, size_t item_size, size_t made_size,
                          cprof_status (*compute)(const cprof_table *table, const void *from, void *into))
{
    Py_buffer given;
    if (value == Py_None) {
        ext_convert_refuse_type(parameter, "a buffer", value);
        return NULL;
    }
    if (!ext_recording_can_read(self) || !numbers_of(self, value, parameter, item_size, &given)) {
        return NULL;
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(self->table->count * made_size));
    cprof_status status = CPROF_NO_MEMORY;
    if (made != NULL) {
        EXT_WITHOUT_GIL(status = compute(self->table, given.buf, PyBytes_AS_STRING(made)));
    }
    PyBuffer_Release(&given);
    if (status != CPROF_OK) {
        Py_CLEAR(made);
        return PyErr_NoMemory();
    }
    return made;
}

static cprof_status own_times(const cprof_table *table, const void *parents, void *own_ns)
{
    return cprof_nesting_own_times(table, parents, own_ns);
}

static cprof_status nesting_parents(const cprof_table *table, const void *counted, void *parents)
{
    return cprof_nesting_parents(table, counted, parents);
}

PyObject *ext_recording_own_times(PyObject *object, PyObject *parents)
{
    return computed((ext_recording *)object, parents, "parents", sizeof(int32_t), sizeof(uint64_t), own_times);
}

PyObject *ext_recording_parents(PyObject *object, PyObject *counted)
{
    return computed((ext_recording *)object, counted, "counted", sizeof(uint8_t), sizeof(int32_t), nesting_parents);
}
