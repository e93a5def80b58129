#include "csrc/convert.h"

#include <math.h>

/* A value for a message: its ASCII representation, cut short, as it may have surrogates or be long; its type if that raises. */
static PyObject *shown(PyObject *value)
{
    PyObject *ascii = PyObject_ASCII(value);
    if (ascii == NULL) {
        ext_state_forget_error();
        ascii = PyUnicode_FromFormat("<%.100s>", Py_TYPE(value)->tp_name);
    }
    if (ascii != NULL && PyUnicode_GET_LENGTH(ascii) > 80) {
        Py_SETREF(ascii, PyUnicode_FromFormat("%.77U...", ascii));
    }
    return ascii;
}

void ext_convert_refuse_value(const char *format, const char *parameter, PyObject *value)
{
    PyObject *text = shown(value);
    if (text != NULL) {
        PyErr_Format(PyExc_ValueError, format, parameter, text);
        Py_DECREF(text);
    }
}

void ext_convert_refuse_type(const char *parameter, const char *expected, PyObject *value)
{
    PyObject *text = shown(value);
    if (text != NULL) {
        PyErr_Format(PyExc_TypeError, "%s must be %s, got %U (%.100s)", parameter, expected, text, Py_TYPE(value)->tp_name);
        Py_DECREF(text);
    }
}

bool ext_convert_is_profiler(const ext_state *state, PyObject *value, const char *expected)
{
    bool is_profiler = state->profiler_type != NULL && PyObject_TypeCheck(value, state->profiler_type);
    if (!is_profiler) {
        ext_convert_refuse_type("profiler", expected, value);
    }
    return is_profiler;
}

bool ext_convert_utf8(PyObject *name, cprof_name *utf8, PyObject **owner)
{
    Py_ssize_t length;
    const char *bytes = PyUnicode_AsUTF8AndSize(name, &length);
    if (bytes != NULL) {
        *owner = Py_NewRef(name);
        *utf8 = (cprof_name){bytes, (size_t)length};
        return true;
    }
    PyErr_Clear();
    *owner = PyUnicode_AsEncodedString(name, "utf-8", "surrogatepass");
    if (*owner == NULL) {
        return false;
    }
    *utf8 = (cprof_name){PyBytes_AS_STRING(*owner), (size_t)PyBytes_GET_SIZE(*owner)};
    return true;
}

bool ext_convert_names(PyObject *stage, PyObject *node, cprof_names *names, PyObject *owners[2])
{
    owners[0] = owners[1] = NULL;
    return ext_convert_utf8(stage, &names->stage, &owners[0]) && ext_convert_utf8(node, &names->node, &owners[1]);
}

PyObject *ext_convert_arguments(PyObject *const *args, size_t nargs, PyObject *kwnames)
{
    size_t count = nargs + (kwnames != NULL ? (size_t)PyTuple_GET_SIZE(kwnames) : 0);
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; tuple != NULL && i < count; i++) {
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, Py_NewRef(args[i]));
    }
    return tuple;
}

PyObject *ext_convert_call(PyTypeObject *type, newfunc make, PyObject *const *args, size_t nargs, PyObject *kwnames)
{
    PyObject *positional = ext_convert_arguments(args, nargs, NULL);
    PyObject *keywords = PyDict_New();
    PyObject *made = NULL;
    bool fine = positional != NULL && keywords != NULL;
    for (Py_ssize_t i = 0; fine && kwnames != NULL && i < PyTuple_GET_SIZE(kwnames); i++) {
        fine = PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, i), args[nargs + (size_t)i]) == 0;
    }
    if (fine) {
        made = make(type, positional, keywords);
    }
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return made;
}

PyObject *ext_convert_to_str(cprof_name utf8)
{
    /* Several at a time are arguments of one call: after the first that fails, no other is made. */
    return PyErr_Occurred() ? NULL : PyUnicode_DecodeUTF8(utf8.bytes, (Py_ssize_t)utf8.length, "surrogatepass");
}

static PyObject *legal_name(PyObject *value, const char *parameter)
{
    cprof_name utf8;
    PyObject *owner = NULL;
    PyObject *name = PyUnicode_FromObject(value); /* the str itself for a subclass's instance */
    if (name == NULL) {
        return NULL;
    }
    bool has_nul = PyUnicode_FindChar(name, 0, 0, PyUnicode_GET_LENGTH(name), 1) >= 0;
    bool is_legal = !has_nul && ext_convert_utf8(name, &utf8, &owner) && utf8.length <= EXT_NAME_LIMIT;
    if (is_legal) {
        ext_compat_intern(&name);
    } else if (has_nul) {
        ext_convert_refuse_value("%s must not contain NUL, got %U", parameter, name);
    } else if (owner != NULL) {
        PyObject *text = shown(name);
        if (text != NULL) {
            PyErr_Format(PyExc_ValueError, "%s must be at most %d bytes of UTF-8, got %zu bytes: %U", parameter, EXT_NAME_LIMIT,
                         utf8.length, text);
            Py_DECREF(text);
        }
    }
    Py_XDECREF(owner);
    if (!is_legal) {
        Py_CLEAR(name);
    }
    return name;
}

PyObject *ext_convert_name(PyObject *value, const char *parameter)
{
    if (PyUnicode_Check(value)) {
        return legal_name(value, parameter);
    }
    ext_convert_refuse_type(parameter, "a str", value);
    return NULL;
}

PyObject *ext_convert_stage(ext_state *state, PyObject *value, const char *parameter)
{
    if (PyUnicode_CheckExact(value)) {
        return legal_name(value, parameter);
    }
    int is_enum = PyObject_IsInstance(value, state->enum_type);
    if (is_enum < 0) {
        return NULL;
    }
    PyObject *plain = is_enum ? PyObject_GetAttrString(value, "value") : Py_NewRef(value);
    if (plain == NULL) {
        return NULL;
    }
    PyObject *stage = NULL;
    if (PyUnicode_Check(plain)) {
        stage = legal_name(plain, parameter);
    } else {
        ext_convert_refuse_type(parameter, "a str or an enum whose value is a str", value);
    }
    Py_DECREF(plain);
    return stage;
}

bool ext_convert_flag(PyObject *value, const char *parameter, bool *flag)
{
    PyNumberMethods *methods = Py_TYPE(value)->tp_as_number;
    if (value == Py_None || methods == NULL || methods->nb_bool == NULL) {
        ext_convert_refuse_type(parameter, "a bool", value);
        return false;
    }
    int is_on = PyObject_IsTrue(value);
    *flag = is_on > 0;
    return is_on >= 0;
}

bool ext_convert_count(PyObject *value, const char *parameter, uint64_t *count)
{
    if (PyBool_Check(value) || !PyIndex_Check(value)) {
        ext_convert_refuse_type(parameter, "an integer", value);
        return false;
    }
    PyObject *number = PyNumber_Index(value);
    if (number == NULL) {
        return false;
    }
    int overflow;
    long long result = PyLong_AsLongLongAndOverflow(number, &overflow);
    bool fits = overflow == 0 && result >= 0;
    if (overflow > 0) {
        ext_convert_refuse_value("%s must be <= 9223372036854775807, got %U", parameter, number);
    } else if (!fits) {
        ext_convert_refuse_value("%s must be >= 0, got %U", parameter, number);
    }
    Py_DECREF(number);
    *count = (uint64_t)result;
    return fits;
}

/* An integer too large for a float. */
static void refuse_huge(const char *parameter, PyObject *value)
{
    PyObject *zero = PyLong_FromLong(0);
    int negative = zero != NULL ? PyObject_RichCompareBool(value, zero, Py_LT) : -1;
    Py_XDECREF(zero);
    if (negative >= 0) {
        ext_convert_refuse_value(negative ? "%s must be >= 0 ms, got %U" : "%s must be <= 1e12 ms, got %U", parameter, value);
    }
}

bool ext_convert_ms(PyObject *value, const char *parameter, double *milliseconds)
{
    PyNumberMethods *methods = Py_TYPE(value)->tp_as_number;
    if (PyBool_Check(value) || methods == NULL || (methods->nb_float == NULL && methods->nb_index == NULL)) {
        ext_convert_refuse_type(parameter, "a number", value);
        return false;
    }
    double result = PyFloat_AsDouble(value);
    if (result == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
            PyErr_Clear();
            refuse_huge(parameter, value);
        }
        return false;
    }
    const char *wrong = !isfinite(result)     ? "%s must be finite, got %U"
                        : result < 0.0        ? "%s must be >= 0 ms, got %U"
                        : result > EXT_MAX_MS ? "%s must be <= 1e12 ms, got %U"
                                              : NULL;
    if (wrong != NULL) {
        ext_convert_refuse_value(wrong, parameter, value);
        return false;
    }
    *milliseconds = result + 0.0; /* -0.0 becomes 0.0 */
    return true;
}

PyObject *ext_convert_status(cprof_status status, const char *operation)
{
    if (status == CPROF_OK) {
        Py_RETURN_NONE;
    }
    if (status == CPROF_NO_MEMORY) {
        return PyErr_NoMemory();
    }
    PyErr_Format(PyExc_RuntimeError, "%s: %s", operation, cprof_status_text(status));
    return NULL;
}

/* An attribute, None if it is missing. NULL with another exception. */
static PyObject *get_or_none(PyObject *object, const char *name)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    return value;
}

/* What a subclass' objects hold. Before CPython 3.11 an object has no __getstate__ of its own, and slots stay behind. */
static PyObject *get_state(PyObject *object)
{
    PyObject *getstate = get_or_none(object, "__getstate__");
    PyObject *state = getstate == Py_None ? get_or_none(object, "__dict__")
                      : getstate != NULL  ? PyObject_CallNoArgs(getstate)
                                          : NULL;
    Py_XDECREF(getstate);
    return state;
}

PyObject *ext_convert_reduce(PyObject *object, PyObject *args, PyObject *kwargs)
{
    bool is_made = args != NULL && kwargs != NULL;
    PyObject *copyreg = is_made ? PyImport_ImportModule("copyreg") : NULL;
    PyObject *maker = copyreg != NULL ? PyObject_GetAttrString(copyreg, "__newobj_ex__") : NULL;
    PyObject *state = maker != NULL ? get_state(object) : NULL;
    PyObject *reduced = state != NULL ? Py_BuildValue("O(OOO)O", maker, Py_TYPE(object), args, kwargs, state) : NULL;
    Py_XDECREF(state);
    Py_XDECREF(maker);
    Py_XDECREF(copyreg);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return reduced;
}

PyObject *ext_convert_list(size_t count, PyObject *(*nth)(const void *context, size_t place), const void *context)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    if (list == NULL) {
        return NULL;
    }
    PyObject_GC_UnTrack(list); /* others, who run meanwhile, must not find it half filled */
    for (size_t i = 0; i < count; i++) {
        PyObject *item = nth(context, i);
        if (item == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    PyObject_GC_Track(list);
    return list;
}

PyObject *ext_convert_tuple(size_t count, PyObject *(*nth)(const void *context, size_t place), const void *context)
{
    PyObject *list = ext_convert_list(count, nth, context);
    PyObject *tuple = list != NULL ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}

cprof_name *ext_convert_notes(PyObject *notes)
{
    size_t count = (size_t)PyTuple_GET_SIZE(notes);
    cprof_name *names = PyMem_Calloc(count, sizeof *names);
    if (names == NULL) {
        return (cprof_name *)PyErr_NoMemory();
    }
    for (size_t i = 0; i < count; i++) {
        PyObject *note = PyTuple_GET_ITEM(notes, (Py_ssize_t)i);
        if (!PyBytes_Check(note)) {
            PyErr_SetString(PyExc_TypeError, "notes must be bytes");
            PyMem_Free(names);
            return NULL;
        }
        names[i] = (cprof_name){PyBytes_AS_STRING(note), (size_t)PyBytes_GET_SIZE(note)};
    }
    return names;
}
