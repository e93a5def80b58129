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

static bool set_text(cprof_arrow_columns *columns, size_t number, size_t row, PyObject *value)
{
    cprof_name utf8;
    PyObject *owner;
    if (value == Py_None) {
        cprof_arrow_columns_set_text(columns, number, row, NULL);
        return true;
    }
    if (!PyUnicode_Check(value)) {
        ext_convert_refuse_type("an item", "a str", value);
        return false;
    }
    if (!ext_convert_utf8(value, &utf8, &owner)) {
        return false;
    }
    cprof_arrow_columns_set_text(columns, number, row, &utf8);
    Py_DECREF(owner);
    return true;
}

typedef struct {
    const char *name;
    const char *format;
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
    if (!PyArg_ParseTuple(column, "ssO!:arrow_stream", &given->name, &format, &PyList_Type, &given->values)) {
        return false;
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(format, formats[i]) == 0) {
            given->format = formats[i];
            return true;
        }
    }
    PyErr_Format(PyExc_ValueError, "a column's format must be u, l or g, got %.80s", format);
    return false;
}

/* How many bytes the texts have, at most; -1 with an exception. */
static Py_ssize_t most_characters(PyObject *values, const char *format)
{
    enum { MOST_BYTES = 4 }; /* of a character */
    Py_ssize_t most = 0;
    for (Py_ssize_t i = 0; format[0] == 'u' && i < PyTuple_GET_SIZE(values); i++) {
        PyObject *value = PyTuple_GET_ITEM(values, i);
        if (PyUnicode_Check(value)) {
            most += PyUnicode_GET_LENGTH(value) * (PyUnicode_IS_ASCII(value) ? 1 : MOST_BYTES);
        }
    }
    return most;
}

static bool fill(cprof_arrow_columns *columns, size_t number, PyObject *values, const char *format)
{
    bool fine = true;
    for (Py_ssize_t i = 0; fine && i < PyTuple_GET_SIZE(values); i++) {
        PyObject *value = PyTuple_GET_ITEM(values, i);
        if (format[0] == 'u') {
            fine = set_text(columns, number, (size_t)i, value);
        } else if (value != Py_None) {
            if (format[0] == 'l') {
                cprof_arrow_columns_set_whole(columns, number, (size_t)i, PyLong_AsLongLong(value));
            } else {
                cprof_arrow_columns_set_real(columns, number, (size_t)i, PyFloat_AsDouble(value));
            }
            fine = !PyErr_Occurred();
        }
    }
    return fine;
}

static bool add_values(cprof_arrow_columns *columns, size_t number, const given_column *given, PyObject *values,
                       Py_ssize_t rows)
{
    if (PyTuple_GET_SIZE(values) != rows) {
        PyErr_Format(PyExc_ValueError, "all columns must have %zd rows, got %zd", rows, PyTuple_GET_SIZE(values));
        return false;
    }
    cprof_arrow_field field = {given->name, given->format};
    cprof_status status = cprof_arrow_columns_begin(columns, number, field, (size_t)most_characters(values, given->format));
    if (status != CPROF_OK) {
        (void)ext_convert_status(status, "making an Arrow column");
        return false;
    }
    return fill(columns, number, values, given->format);
}

/* Adds what the list has now: an item's __index__ or __float__ may change it. */
static bool add(cprof_arrow_columns *columns, PyObject *given_columns, Py_ssize_t number, Py_ssize_t rows)
{
    given_column given;
    if (!parse(given_columns, number, &given)) {
        return false;
    }
    PyObject *values = PyList_AsTuple(given.values);
    bool fine = values != NULL && add_values(columns, (size_t)number, &given, values, rows);
    Py_XDECREF(values);
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
    given_column first = {.values = NULL};
    if (count > 0 && !parse(columns, 0, &first)) {
        return NULL;
    }
    Py_ssize_t rows = count > 0 ? PyList_GET_SIZE(first.values) : 0;
    cprof_arrow_columns *made = cprof_arrow_columns_create((size_t)count, (size_t)rows);
    if (made == NULL) {
        return PyErr_NoMemory();
    }
    bool fine = true;
    for (Py_ssize_t i = 0; fine && i < count; i++) {
        fine = add(made, columns, i, rows);
    }
    if (!fine) {
        cprof_arrow_columns_destroy(made);
        return NULL;
    }
    cprof_arrow_stream stream;
    cprof_arrow_columns_open(made, &stream);
    return ext_arrow_stream_capsule(stream);
}
