#include "csrc/probes/shape.h"

#include "csrc/convert.h"

#include <string.h>

enum { MOST_DIMENSIONS = 64, MOST_DTYPES = 128, DTYPE_CHARACTERS = 64, END = sizeof ")..." };

/* What the instances of a type are. */
typedef enum { IS_NOTHING, IS_TENSOR, IS_SEQUENCE, IS_DICT, IS_RECORD } shape_kind;

typedef struct {
    ext_ptrmap_entry weak;
    shape_kind kind;
    PyObject *fields; /* of a dataclass: a tuple of their names; owned */
} shape_type;

typedef struct {
    PyObject *dtype; /* owned, so that no other has its address */
    PyObject *owner; /* of the text */
    cprof_name text;
} shape_dtype;

typedef struct {
    ext_state *state;
    size_t left; /* values that may still be looked at */
    bool was_cut;
    size_t length; /* of the text */
    char text[EXT_SHAPE_TEXT];
} looker;

/* An attribute, or NULL: then there is none, and no exception. */
static PyObject *ask(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL) {
        ext_state_forget_error();
    }
    return value;
}

/* ---- Types */

static void free_type(void *data)
{
    shape_type *known = data;
    ext_ptrmap_forget(&known->weak);
    Py_CLEAR(known->fields);
    PyMem_Free(known);
}

/* An attribute of the class itself, whatever its metaclass may say. */
static PyObject *ask_class(PyTypeObject *type, PyObject *name)
{
    PyObject *value = PyType_Type.tp_getattro((PyObject *)type, name);
    if (value == NULL) {
        ext_state_forget_error();
    }
    return value;
}

/* By the instance's own attributes only where to ask for them runs no code. */
static bool has(PyObject *object, PyObject *name)
{
    PyObject *value = ask_class(Py_TYPE(object), name);
    if (value == NULL && Py_TYPE(object)->tp_getattro == PyObject_GenericGetAttr) {
        value = ask(object, name);
    }
    Py_XDECREF(value);
    return value != NULL;
}

/* The names of a dataclass's fields as a tuple; NULL when it is none. */
static PyObject *fields_of(const ext_state *state, PyTypeObject *type)
{
    PyObject *fields = ask_class(type, state->words[EXT_WORD_DATACLASS_FIELDS]);
    PyObject *names = fields != NULL && PyDict_Check(fields) ? PySequence_Tuple(fields) : NULL;
    if (names == NULL) {
        ext_state_forget_error();
    }
    Py_XDECREF(fields);
    return names;
}

static shape_kind find_kind(const ext_state *state, PyObject *object, PyObject **fields)
{
    if (has(object, state->words[EXT_WORD_SHAPE]) && has(object, state->words[EXT_WORD_DTYPE])) {
        return IS_TENSOR;
    }
    if (PyTuple_Check(object) || PyList_Check(object)) {
        return IS_SEQUENCE;
    }
    if (PyDict_Check(object)) {
        return IS_DICT;
    }
    *fields = fields_of(state, Py_TYPE(object));
    return *fields != NULL ? IS_RECORD : IS_NOTHING;
}

/* Remembers a type; one that can die unseen is not. Takes the fields over. */
static void remember_type(ext_state *state, PyTypeObject *type, shape_kind kind, PyObject *fields)
{
    shape_type *known = PyMem_Calloc(1, sizeof *known);
    if (known == NULL) {
        Py_XDECREF(fields);
        return;
    }
    *known = (shape_type){.kind = kind, .fields = fields};
    bool is_static = !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE);
    bool is_watched = !is_static &&
                      ext_ptrmap_watch(&known->weak, &state->shape_types, (PyObject *)type, state->guard, free_type) &&
                      known->weak.watch != NULL;
    bool is_new = state->serial != 0 && ext_ptrmap_get(&state->shape_types, type) == NULL; /* others may have run */
    if (!is_new || !(is_static || is_watched) || !ext_ptrmap_add(&state->shape_types, type, known)) {
        ext_state_forget_error();
        free_type(known);
    }
}

/* What the object is; of a dataclass also, as a new reference, the names of its fields. */
static shape_kind kind_of(ext_state *state, PyObject *object, PyObject **fields)
{
    const shape_type *known = ext_ptrmap_get(&state->shape_types, Py_TYPE(object));
    *fields = NULL;
    if (__builtin_expect(known != NULL, 1)) {
        *fields = Py_XNewRef(known->fields);
        return known->kind;
    }
    PyTypeObject *type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(object));
    shape_kind kind = find_kind(state, object, fields);
    remember_type(state, type, kind, Py_XNewRef(*fields));
    Py_DECREF(type);
    return kind;
}

/* ---- Dtypes */

static void free_dtype(void *data)
{
    shape_dtype *known = data;
    Py_XDECREF(known->dtype);
    Py_XDECREF(known->owner);
    PyMem_Free(known);
}

/* The part behind the last dot, of "torch.float32" for instance. */
static PyObject *last_part(PyObject *text)
{
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    Py_ssize_t dot = PyUnicode_FindChar(text, '.', 0, length, -1);
    return dot == -2 ? NULL : PyUnicode_Substring(text, dot + 1, length);
}

/* How a dtype is called: the str itself, a class's or any other's name, or what it shows as. NULL, maybe with an exception. */
static PyObject *name_of_dtype(const ext_state *state, PyObject *dtype)
{
    if (PyUnicode_Check(dtype)) {
        return Py_NewRef(dtype);
    }
    PyObject *name = ask(dtype, state->words[PyType_Check(dtype) ? EXT_WORD_CLASS_NAME : EXT_WORD_NAME]);
    if (name != NULL && PyUnicode_Check(name)) {
        return name;
    }
    Py_XDECREF(name);
    PyObject *text = PyObject_Str(dtype);
    PyObject *last = text != NULL ? last_part(text) : NULL;
    Py_XDECREF(text);
    return last;
}

/* As text of a signature, at most DTYPE_CHARACTERS long; one that cannot be had is "?". */
static void describe_dtype(const ext_state *state, shape_dtype *described)
{
    PyObject *name = name_of_dtype(state, described->dtype);
    PyObject *start = name != NULL ? PyUnicode_Substring(name, 0, DTYPE_CHARACTERS) : NULL;
    bool is_text = start != NULL && ext_convert_utf8(start, &described->text, &described->owner) &&
                   memchr(described->text.bytes, '\0', described->text.length) == NULL;
    if (!is_text) {
        ext_state_forget_error();
        Py_CLEAR(described->owner);
        described->text = cprof_name_of("?");
    }
    Py_XDECREF(name);
    Py_XDECREF(start);
}

/* The entry of a dtype, borrowed until Python code runs; NULL without memory. */
static const shape_dtype *dtype_of(ext_state *state, PyObject *dtype)
{
    shape_dtype *known = ext_ptrmap_get(&state->shape_dtypes, dtype);
    if (__builtin_expect(known != NULL, 1)) {
        return known;
    }
    shape_dtype *fresh = PyMem_Calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return NULL;
    }
    fresh->dtype = Py_NewRef(dtype);
    describe_dtype(state, fresh);
    if (state->shape_dtypes.count >= MOST_DTYPES) {
        ext_ptrmap_clear(&state->shape_dtypes, free_dtype);
    }
    known = ext_ptrmap_get(&state->shape_dtypes, dtype); /* others may have run */
    if (known == NULL && state->serial != 0 && ext_ptrmap_add(&state->shape_dtypes, dtype, fresh)) {
        return fresh;
    }
    free_dtype(fresh);
    return ext_ptrmap_get(&state->shape_dtypes, dtype);
}

/* ---- The text */

/* False when there is no more room: then nothing was written. */
static bool write_text(looker *self, const char *text, size_t length)
{
    if (self->length + length > sizeof self->text - END) {
        self->was_cut = true;
        return false;
    }
    memcpy(self->text + self->length, text, length);
    self->length += length;
    return true;
}

static bool write_separator(looker *self)
{
    bool is_first = self->length == 0 || self->text[self->length - 1] == '(';
    return is_first || write_text(self, ", ", 2);
}

static bool write_dimension(looker *self, PyObject *dimension)
{
    char digits[24];
    int overflow = 0;
    long long number = PyLong_Check(dimension) ? PyLong_AsLongLongAndOverflow(dimension, &overflow) : -1;
    if (number < 0 || overflow != 0) {
        return write_text(self, "?", 1);
    }
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return write_text(self, digits + at, sizeof digits - at);
}

/* The shape as a tuple or list; NULL when it is no sequence of dimensions. */
static PyObject *dimensions_of(PyObject *shape)
{
    if (PyTuple_Check(shape) || PyList_Check(shape)) {
        return Py_NewRef(shape);
    }
    if (!PySequence_Check(shape) || PyUnicode_Check(shape) || PyObject_CheckBuffer(shape)) {
        return NULL;
    }
    Py_ssize_t size = PySequence_Size(shape);
    PyObject *dimensions = size >= 0 && size <= MOST_DIMENSIONS ? PyList_New(0) : NULL;
    for (Py_ssize_t i = 0; dimensions != NULL && i < size; i++) {
        PyObject *dimension = PySequence_GetItem(shape, i);
        if (dimension == NULL || PyList_Append(dimensions, dimension) < 0) {
            Py_CLEAR(dimensions);
        }
        Py_XDECREF(dimension);
    }
    ext_state_forget_error();
    return dimensions;
}

static bool write_each_dimension(looker *self, PyObject *dimensions)
{
    Py_ssize_t count = PySequence_Fast_GET_SIZE(dimensions);
    bool fits = count <= MOST_DIMENSIONS && write_text(self, "[", 1);
    for (Py_ssize_t i = 0; fits && i < count; i++) {
        fits = (i == 0 || write_text(self, ",", 1)) && write_dimension(self, PySequence_Fast_GET_ITEM(dimensions, i));
    }
    return fits && write_text(self, "]", 1);
}

/* A list may be changed by others, as may the containers below. */
static bool write_dimensions(looker *self, PyObject *dimensions)
{
    bool fits;
    EXT_ALONE(dimensions, fits = write_each_dimension(self, dimensions));
    return fits;
}

/* All or nothing. */
static void write_tensor(looker *self, PyObject *dimensions, PyObject *dtype)
{
    size_t begin = self->length;
    const shape_dtype *known = dtype_of(self->state, dtype);
    cprof_name name = known != NULL ? known->text : cprof_name_of("?");
    if (!write_separator(self) || !write_text(self, name.bytes, name.length) || !write_dimensions(self, dimensions)) {
        self->length = begin;
    }
}

static void look_at_tensor(looker *self, PyObject *value)
{
    PyObject *shape = ask(value, self->state->words[EXT_WORD_SHAPE]);
    PyObject *dimensions = shape != NULL ? dimensions_of(shape) : NULL;
    PyObject *dtype = dimensions != NULL ? ask(value, self->state->words[EXT_WORD_DTYPE]) : NULL;
    if (dtype != NULL) {
        write_tensor(self, dimensions, dtype);
    }
    Py_XDECREF(shape);
    Py_XDECREF(dimensions);
    Py_XDECREF(dtype);
}

/* ---- Containers */

/* Borrowed items become owned, before any of them is asked for anything. */
static size_t take_items(PyObject *container, shape_kind kind, PyObject *fields, PyObject **items, size_t most)
{
    size_t count = 0;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    switch (kind) {
    case IS_SEQUENCE:
        EXT_ALONE(container, {
            for (; count < most && at < PySequence_Fast_GET_SIZE(container); at++) {
                items[count++] = Py_NewRef(PySequence_Fast_GET_ITEM(container, at));
            }
        });
        break;
    case IS_DICT:
        EXT_ALONE(container, {
            while (count < most && PyDict_Next(container, &at, &key, &value)) {
                items[count++] = Py_NewRef(value);
            }
        });
        break;
    default:
        Py_INCREF(fields);
        for (; count < most && at < PyTuple_GET_SIZE(fields); at++) {
            value = ask(container, PyTuple_GET_ITEM(fields, at));
            if (value != NULL) {
                items[count++] = value;
            }
        }
        Py_DECREF(fields);
    }
    return count;
}

static void look_at_items(looker *self, PyObject *container, shape_kind kind, PyObject *fields)
{
    PyObject *items[EXT_SHAPE_VALUES + 1]; /* one more shows that there are more */
    size_t begin = self->length;
    size_t count = take_items(container, kind, fields, items, self->left + 1);
    if (!write_separator(self) || !write_text(self, "(", 1)) {
        self->length = begin;
    }
    size_t inside = self->length;
    for (size_t i = 0; i < count; i++) {
        PyObject *names;
        bool is_looked_at = self->left > 0 && inside > begin;
        if (is_looked_at && kind_of(self->state, items[i], &names) == IS_TENSOR) {
            look_at_tensor(self, items[i]);
        }
        if (is_looked_at) {
            self->left--;
            Py_XDECREF(names);
        } else {
            self->was_cut = self->was_cut || self->length > inside;
        }
        Py_DECREF(items[i]);
    }
    if (self->length > inside) {
        self->text[self->length++] = ')';
    } else {
        self->length = begin;
    }
}

static void look_at(looker *self, PyObject *value)
{
    PyObject *fields;
    shape_kind kind = kind_of(self->state, value, &fields);
    self->left--;
    if (kind == IS_TENSOR) {
        look_at_tensor(self, value);
    } else if (kind != IS_NOTHING) {
        look_at_items(self, value, kind, fields);
    }
    Py_XDECREF(fields);
}

void ext_shape_look(ext_state *state, cprof_probe *probe, PyObject *const *args, size_t count)
{
    cprof_thread *thread = cprof_thread_self;
    if (count == 0 || thread == NULL || thread->looking) {
        return;
    }
    looker self;
    self.state = state;
    self.left = EXT_SHAPE_VALUES;
    self.was_cut = false;
    self.length = 0;
    thread->looking = true;
    size_t at = 0;
    for (; at < count && self.left > 0; at++) {
        look_at(&self, args[at]);
    }
    thread->looking = false;
    if (self.was_cut || (at < count && self.length > 0)) {
        memcpy(self.text + self.length, "...", 3);
        self.length += 3;
    }
    cprof_probe_set_signature(probe, (cprof_name){self.text, self.length});
}

void ext_shape_forget(ext_state *state)
{
    ext_ptrmap_clear(&state->shape_types, free_type);
    ext_ptrmap_clear(&state->shape_dtypes, free_dtype);
}

int ext_shape_traverse(ext_state *state, visitproc visit, void *arg)
{
    const ext_ptrmap *dtypes = &state->shape_dtypes;
    for (size_t i = 0; dtypes->count > 0 && i <= dtypes->mask; i++) {
        const shape_dtype *known = dtypes->slots[i].key != NULL ? dtypes->slots[i].value : NULL;
        if (known != NULL) {
            Py_VISIT(known->dtype);
        }
    }
    return 0;
}
