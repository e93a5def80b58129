#include "csrc/recordings/arrow_stream.h"

#include "csrc/convert.h"

#include "cprofiling/files/arrow.h"

static const char capsule_name[] = "arrow_array_stream";

/* Whoever takes the stream over leaves one that is released. */
static void drop_capsule(PyObject *capsule)
{
    cprof_arrow_stream *stream = PyCapsule_GetPointer(capsule, capsule_name);
    if (stream == NULL) { /* it was renamed: whoever did that has the stream */
        PyErr_Clear();
        return;
    }
    if (stream->release != NULL) {
        stream->release(stream);
    }
    PyMem_Free(stream);
}

PyObject *ext_arrow_stream_capsule(cprof_arrow_stream stream)
{
    cprof_arrow_stream *owned = PyMem_Calloc(1, sizeof *owned);
    PyObject *capsule = owned != NULL ? PyCapsule_New(owned, capsule_name, drop_capsule) : PyErr_NoMemory();
    if (capsule == NULL) {
        PyMem_Free(owned);
        stream.release(&stream);
        return NULL;
    }
    *owned = stream;
    return capsule;
}

typedef struct {
    cprof_arrow_field field;
    PyObject *values; /* borrowed: a list */
} given_column;

/* What a column is given as. */
static bool parse(PyObject *columns, Py_ssize_t number, given_column *given)
{
    static const char *const formats[] = {"u", "l", "g"};
    PyObject *column = PyTuple_GET_ITEM(columns, number);
    const char *format;
    if (!PyTuple_Check(column)) {
        ext_convert_refuse_type("a column", "a tuple", column);
        return false;
    }
    if (!PyArg_ParseTuple(column, "ssO!:arrow_stream", &given->field.name, &format, &PyList_Type, &given->values)) {
        return false;
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(format, formats[i]) == 0) {
            given->field.format = formats[i];
            return true;
        }
    }
    PyErr_Format(PyExc_ValueError, "a column's format must be u, l or g, got %.80s", format);
    return false;
}

/* False with an exception. */
static bool set_item(cprof_arrow_columns *columns, size_t number, size_t row, char format, PyObject *value)
{
    cprof_name utf8;
    PyObject *owner;
    if (value == Py_None) {
        if (format == 'u') {
            cprof_arrow_columns_set_text(columns, number, row, NULL);
        }
    } else if (format == 'l') {
        cprof_arrow_columns_set_whole(columns, number, row, PyLong_AsLongLong(value));
    } else if (format == 'g') {
        cprof_arrow_columns_set_real(columns, number, row, PyFloat_AsDouble(value));
    } else if (!PyUnicode_Check(value)) {
        ext_convert_refuse_type("an item", "a str", value);
    } else if (ext_convert_utf8(value, &utf8, &owner)) {
        cprof_arrow_columns_set_text(columns, number, row, &utf8);
        Py_DECREF(owner);
    }
    return !PyErr_Occurred();
}

/* Adds what the list has now: an item's __index__ or __float__ may change it. False with an exception. */
static bool add(cprof_arrow_columns *columns, size_t number, const given_column *given, Py_ssize_t rows)
{
    enum { MOST_BYTES = 4 }; /* of a character */
    char format = given->field.format[0];
    size_t text_size = 0;
    PyObject *values = PyList_AsTuple(given->values);
    if (values != NULL && PyTuple_GET_SIZE(values) != rows) {
        PyErr_Format(PyExc_ValueError, "all columns must have %zd rows, got %zd", rows, PyTuple_GET_SIZE(values));
        Py_CLEAR(values);
    }
    if (values == NULL) {
        return false;
    }
    for (Py_ssize_t i = 0; format == 'u' && i < rows; i++) {
        PyObject *value = PyTuple_GET_ITEM(values, i);
        if (PyUnicode_Check(value)) {
            text_size += (size_t)PyUnicode_GET_LENGTH(value) * (PyUnicode_IS_ASCII(value) ? 1 : MOST_BYTES);
        }
    }
    cprof_status status = cprof_arrow_columns_begin(columns, number, given->field, text_size);
    bool fine = status == CPROF_OK;
    if (!fine) {
        (void)ext_convert_status(status, "making an Arrow column");
    }
    for (Py_ssize_t i = 0; fine && i < rows; i++) {
        fine = set_item(columns, number, (size_t)i, format, PyTuple_GET_ITEM(values, i));
    }
    Py_DECREF(values);
    return fine;
}

/* Each column is a tuple (name, format, list of values): "u" str, "l" int, "g" float; None: none. All have the same length. */
PyObject *ext_arrow_stream(PyObject *Py_UNUSED(module), PyObject *columns)
{
    if (!PyTuple_Check(columns)) {
        ext_convert_refuse_type("columns", "a tuple", columns);
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(columns);
    given_column given = {.values = NULL};
    if (count > 0 && !parse(columns, 0, &given)) {
        return NULL;
    }
    Py_ssize_t rows = count > 0 ? PyList_GET_SIZE(given.values) : 0;
    cprof_arrow_columns *made = cprof_arrow_columns_create((size_t)count, (size_t)rows);
    if (made == NULL) {
        return PyErr_NoMemory();
    }
    bool fine = true;
    for (Py_ssize_t i = 0; fine && i < count; i++) {
        fine = parse(columns, i, &given) && add(made, (size_t)i, &given, rows);
    }
    if (!fine) {
        cprof_arrow_columns_destroy(made);
        return NULL;
    }
    cprof_arrow_stream stream;
    cprof_arrow_columns_open(made, &stream);
    return ext_arrow_stream_capsule(stream);
}
