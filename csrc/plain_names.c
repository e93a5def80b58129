#include "csrc/plain_names.h"

#include "csrc/fault.h"
/* An attribute of an attribute; NULL without an exception. */
static PyObject *get_quietly(PyObject *object, const char *name)
{
    PyObject *value = object != NULL ? PyObject_GetAttrString(object, name) : NULL;
    PyErr_Clear();
    return value;
}

/* Whether all names that a function's code uses are of the attributes; code within code may use others. */
static bool names_only(PyObject *names, PyObject *constants, PyObject *attributes)
{
    if (names == NULL || !PyTuple_Check(names) || constants == NULL || !PyTuple_Check(constants)) {
        return false;
    }
    bool fine = true;
    for (Py_ssize_t i = 0; fine && i < PyTuple_GET_SIZE(names); i++) {
        fine = PySequence_Contains(attributes, PyTuple_GET_ITEM(names, i)) > 0;
    }
    for (Py_ssize_t i = 0; fine && i < PyTuple_GET_SIZE(constants); i++) {
        fine = !PyCode_Check(PyTuple_GET_ITEM(constants, i));
    }
    return fine;
}

/* Whether it is the code of a function of one argument, without variables of functions around it. */
static bool takes_one_argument(PyObject *code)
{
    PyObject *outer = get_quietly(code, "co_freevars");
    bool fine = outer != NULL && PyObject_Size(outer) == 0 && PyCode_Check(code) && ((PyCodeObject *)code)->co_argcount == 1 &&
                ((PyCodeObject *)code)->co_kwonlyargcount == 0;
    PyErr_Clear();
    Py_XDECREF(outer);
    return fine;
}

/* Whether a property is a function of the two attributes, and of nothing else. */
static bool reads_only(PyObject *property, PyObject *attributes)
{
    PyObject *function = get_quietly(property, "fget");
    PyObject *code = function != NULL && PyFunction_Check(function) ? get_quietly(function, "__code__") : NULL;
    PyObject *names = get_quietly(code, "co_names");
    PyObject *constants = get_quietly(code, "co_consts");
    bool fine = names_only(names, constants, attributes) && takes_one_argument(code);
    Py_XDECREF(function);
    Py_XDECREF(code);
    Py_XDECREF(names);
    Py_XDECREF(constants);
    return fine;
}

/* Names are remembered of one property, which is the first one that is known to read the attributes only: of the same
 * attributes another one makes another name. */
static bool is_the_property(ext_plain_names *memory, PyObject *property)
{
    if (memory->property == NULL && Py_IS_TYPE(property, &PyProperty_Type) && reads_only(property, memory->attributes)) {
        memory->property = Py_NewRef(property);
    }
    return memory->property == property;
}

static bool look_at(ext_plain_names *memory, const ext_state *state, PyTypeObject *type, ext_plain_kind *kind)
{
    PyObject *property = PyObject_GetAttr((PyObject *)type, state->words[EXT_WORD_NAME]);
    ext_fault_forget();
    bool is_fine = property != NULL && is_the_property(memory, property) && ext_plain_known_in_dict(type, memory->attributes);
    Py_XDECREF(property);
    *kind = (ext_plain_kind){.type = type, .version = type->tp_version_tag, .is_fine = is_fine};
    return is_fine;
}

static bool is_fine(ext_plain_names *memory, const ext_state *state, PyTypeObject *type)
{
    ext_plain_kind *kind = &memory->kinds[((uintptr_t)type >> 5) % EXT_PLAIN_KINDS];
    return ext_plain_kind_is(kind, type) ? kind->is_fine : look_at(memory, state, type, kind);
}

/* Whether what the property makes of an attribute is the same whenever the attribute is. */
static bool is_constant(PyObject *value)
{
    return value == Py_None || PyLong_CheckExact(value) || PyUnicode_CheckExact(value);
}

/* A name that was found by two attributes lately: a place of its own, or that of others, which it takes. */
static size_t place_of(const ext_plain_names *memory, const PyObject *first, const PyObject *second)
{
    size_t place = ext_plain_profiler_place(first, second);
    bool is_taken = memory->names[place].first != NULL;
    return is_taken && (memory->names[place].first != first || memory->names[place].second != second) ? place ^ 1 : place;
}

/* The name by the attributes in an instance's dict; whether it stays the same for as long as these do. */
static PyObject *by_attributes(ext_plain_names *memory, const ext_state *state, PyObject *node, PyObject *dict,
                               bool *is_lasting)
{
    /* Comparing keys may run anything, and so may the property, for all that is known of it. */
    PyObject *first = Py_XNewRef(PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(memory->attributes, 0)));
    PyObject *second = Py_XNewRef(PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(memory->attributes, 1)));
    *is_lasting = first != NULL && second != NULL && is_constant(first) && is_constant(second);
    size_t place = *is_lasting ? place_of(memory, first, second) : 0;
    PyObject *name = NULL;
    if (*is_lasting && memory->names[place].first == first && memory->names[place].second == second) {
        name = Py_NewRef(memory->names[place].name);
    } else if (!PyErr_Occurred()) {
        name = PyObject_GetAttr(node, state->words[EXT_WORD_NAME]);
        if (name != NULL && *is_lasting) {
            Py_XSETREF(memory->names[place].first, Py_NewRef(first));
            Py_XSETREF(memory->names[place].second, Py_NewRef(second));
            Py_XSETREF(memory->names[place].name, Py_NewRef(name));
        }
    }
    Py_XDECREF(first);
    Py_XDECREF(second);
    return name;
}

/* The name of a node that has changed since it was asked for, or was not met lately. */
static __attribute__((noinline)) PyObject *find(ext_plain_names *memory, const ext_state *state, PyObject *node, size_t place)
{
    PyObject *dict =
        memory->attributes != NULL && is_fine(memory, state, Py_TYPE(node)) ? PyObject_GenericGetDict(node, NULL) : NULL;
    if (dict == NULL) {
        PyErr_Clear();
        return PyObject_GetAttr(node, state->words[EXT_WORD_NAME]);
    }
    bool is_lasting;
    ext_plain_known known;
    bool can_be_told = ext_plain_known_set(&known, node);
    PyObject *name = by_attributes(memory, state, node, dict, &is_lasting);
    Py_DECREF(dict);
    if (name != NULL && is_lasting && can_be_told) {
        memory->nodes[place].node = known;
        Py_XSETREF(memory->nodes[place].name, Py_NewRef(name));
    }
    return name;
}

PyObject *ext_plain_names_get(ext_plain_names *memory, const ext_state *state, PyObject *node)
{
    size_t place = ext_plain_profiler_place(node, NULL);
    if (ext_plain_known_is(&memory->nodes[place].node, node)) {
        return Py_NewRef(memory->nodes[place].name);
    }
    return find(memory, state, node, place);
}

void ext_plain_names_clear(ext_plain_names *memory)
{
    Py_CLEAR(memory->attributes);
    Py_CLEAR(memory->property);
    for (size_t i = 0; i < EXT_PLAIN_NAMES; i++) {
        Py_CLEAR(memory->nodes[i].name);
    }
    for (size_t i = 0; i < EXT_PLAIN_NAMES; i++) {
        Py_CLEAR(memory->names[i].first);
        Py_CLEAR(memory->names[i].second);
        Py_CLEAR(memory->names[i].name);
    }
}
