#include "csrc/calls/function.h"

#include "csrc/types.h"

/* What a method of the bases was when the wrapper was made; any other callable itself. Borrowed. */
static PyObject *found_in_bases(const ext_state *state, PyObject *callable)
{
    while (Py_IS_TYPE(callable, state->inherited_type)) {
        callable = ext_inherited_found(callable);
    }
    return callable;
}

/* Fills all but the node, which is complete. `inner` may be any object. */
static void init_calls(ext_function *self, PyObject *function, ext_kind kind, bool binds, PyObject *inner)
{
    const ext_state *state = self->node.state;
    self->function = Py_NewRef(function);
    self->wrapped = Py_NewRef(function);
    self->is_plain_function = PyFunction_Check(function);
    self->kind = kind;
    self->binds = binds;
    self->vectorcall = binds ? ext_function_call_binder : ext_function_call;
    self->gate = ext_node_gate(&self->node);
    if (state->function_type != NULL && PyObject_TypeCheck(inner, state->function_type)) {
        self->inner = (ext_function *)Py_NewRef(inner);
        self->inner->is_inner = true;
    }
    self->is_uncommon = self->inner != NULL || self->kind != EXT_KIND_CALL;
}

static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "kind",  "name",    "default_name", "stage", "profiler",
                               "inner",    "binds", "records", "mutes",        NULL};
    PyObject *function, *name, *default_name, *stage, *profiler, *inner = Py_None;
    int kind, binds = false, records = false, mutes = false;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OiOOOO|Oppp:Function", keywords, &function, &kind, &name, &default_name,
                                     &stage, &profiler, &inner, &binds, &records, &mutes)) {
        return NULL;
    }
    ext_state *state = ext_state_of_type(type);
    if (state != NULL && type == state->function_type &&
        !PyType_HasFeature(Py_TYPE(found_in_bases(state, function)), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
        type = state->callable_type; /* it does not bind in C as functions do, called with the instance first */
    }
    ext_function *self = state != NULL ? (ext_function *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        return NULL;
    }
    self->node.is_record = records;
    self->node.mutes = mutes;
    if (!ext_node_init(&self->node, state, name, default_name, stage, records ? state->record_profiler : profiler)) {
        Py_DECREF(self);
        return NULL;
    }
    init_calls(self, function, (ext_kind)kind, binds, inner);
    return (PyObject *)self;
}

static int function_traverse(PyObject *object, visitproc visit, void *arg)
{
    ext_function *self = (ext_function *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->function);
    Py_VISIT(self->wrapped);
    Py_VISIT(self->inner);
    return ext_node_traverse(&self->node, visit, arg);
}

/* The function stays until dealloc: a call may still come while a cycle is taken apart. */
static int function_clear(PyObject *object)
{
    ext_function *self = (ext_function *)object;
    Py_CLEAR(self->wrapped);
    return 0;
}

static void function_dealloc(PyObject *object)
{
    ext_function *self = (ext_function *)object;
    PyObject_GC_UnTrack(object);
    PyObject_ClearWeakRefs(object);
    Py_CLEAR(self->wrapped);
    Py_CLEAR(self->function);
    Py_CLEAR(self->first_parameter);
    Py_CLEAR(self->inner);
    ext_node_clear(&self->node);
    ext_state_free(object);
}

/* The wrapper of what the wrapped callable gives for an instance: the same node. */
static PyObject *make_bound(ext_function *self, PyObject *bound, PyObject *instance)
{
    PyTypeObject *type = self->node.state->callable_type;
    if (type == NULL) {
        return Py_NewRef(bound); /* the interpreter is ending */
    }
    ext_function *made = (ext_function *)type->tp_alloc(type, 0);
    if (made == NULL || !ext_node_init_bound(&made->node, &self->node, instance)) {
        Py_XDECREF(made);
        return NULL;
    }
    PyTypeObject *function_type = self->node.state->function_type;
    bool is_own = function_type != NULL && PyObject_TypeCheck(bound, function_type);
    init_calls(made, bound, self->kind, self->binds, is_own ? bound : self->inner != NULL ? (PyObject *)self->inner : Py_None);
    return (PyObject *)made;
}

/* Binds as the wrapped callable does. */
static PyObject *callable_get(PyObject *object, PyObject *instance, PyObject *owner)
{
    ext_function *self = (ext_function *)object;
    descrgetfunc get = Py_TYPE(self->function)->tp_descr_get;
    PyObject *bound = get != NULL ? get(self->function, instance, owner) : Py_NewRef(self->function);
    if (bound == NULL || (bound == self->function && (!self->binds || instance == NULL))) {
        Py_XDECREF(bound);
        return bound != NULL ? Py_NewRef(object) : NULL;
    }
    PyObject *result;
    if (PyMethod_Check(bound) && PyMethod_GET_FUNCTION(bound) == self->function) {
        result = PyMethod_New(object, PyMethod_GET_SELF(bound));
    } else {
        result = PyCallable_Check(bound) ? make_bound(self, bound, instance) : Py_NewRef(bound);
    }
    Py_DECREF(bound);
    return result;
}

static PyObject *function_get(PyObject *object, PyObject *instance, PyObject *owner)
{
    (void)owner;
    return instance == NULL || instance == Py_None ? Py_NewRef(object) : PyMethod_New(object, instance);
}

static bool is_word(const ext_function *self, PyObject *name, ext_word word)
{
    return PyUnicode_Check(name) && PyUnicode_Compare(name, self->node.state->words[word]) == 0;
}

static PyObject *ask(PyObject *hook, PyObject *function)
{
    if (hook == NULL) {
        PyErr_SetString(PyExc_AttributeError, "the interpreter is ending");
        return NULL;
    }
    return PyObject_CallOneArg(hook, function);
}

/* The wrapper has no dict of its own. Only inspect.getattr_static() comes here, by which torch.compile asks. */
static PyObject *function_marks(PyObject *object, void *Py_UNUSED(unused))
{
    ext_function *self = (ext_function *)object;
    return ask(self->node.state->marks_finder, self->function);
}

/* What the wrapper does not have itself it answers as the wrapped callable does; and the Profiler that it was given, where that
 * has no attribute of the name. */
static PyObject *function_getattro(PyObject *object, PyObject *name)
{
    ext_function *self = (ext_function *)object;
    if (is_word(self, name, EXT_WORD_CALL) && !self->is_plain_function) {
        PyObject *call = PyObject_GetAttr(self->function, name); /* has a signature, which a slot has not */
        PyObject *bound = call != NULL ? make_bound(self, call, NULL) : NULL;
        Py_XDECREF(call);
        return bound;
    }
    if (is_word(self, name, EXT_WORD_INLINE)) {
        return ask(self->node.state->stand_in_maker, self->function);
    }
    bool has_own = !is_word(self, name, EXT_WORD_DICT) && !is_word(self, name, EXT_WORD_DOC) && /* a type has these, too */
                   !is_word(self, name, EXT_WORD_MODULE);
    if (has_own) {
        PyObject *value = PyObject_GenericGetAttr(object, name);
        if (value != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return value;
        }
        PyErr_Clear();
    }
    bool asks_profiler =
        self->node.profiler != NULL && !self->node.is_record && PyUnicode_CompareWithASCIIString(name, "profiler") == 0;
    bool wraps_another =
        self->node.state->function_type != NULL && PyObject_TypeCheck(self->function, self->node.state->function_type);
    PyObject *value = asks_profiler && wraps_another ? NULL : PyObject_GetAttr(self->function, name);
    if (value != NULL || !asks_profiler || (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_AttributeError))) {
        return value;
    }
    PyErr_Clear();
    return Py_NewRef((PyObject *)self->node.profiler);
}

/* Another code may make another kind of function of it. */
static void look_again(ext_function *self)
{
    ext_function_set_first_parameter(self, NULL);
    PyObject *finder = self->node.state->kind_finder;
    PyObject *found = finder != NULL ? PyObject_CallOneArg(finder, self->function) : NULL;
    long kind = found != NULL ? PyLong_AsLong(found) : -1;
    Py_XDECREF(found);
    ext_state_forget_error();
    self->kind = kind >= 0 ? (ext_kind)kind : self->kind;
    self->is_uncommon = self->inner != NULL || self->kind != EXT_KIND_CALL;
}

static int function_setattro(PyObject *object, PyObject *name, PyObject *value)
{
    ext_function *self = (ext_function *)object;
    if (PyObject_GenericSetAttr(object, name, value) == 0) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return -1;
    }
    PyErr_Clear();
    if (PyObject_SetAttr(self->function, name, value) < 0) {
        return -1;
    }
    if (is_word(self, name, EXT_WORD_CODE)) {
        look_again(self);
    }
    return 0;
}

static PyObject *function_repr(PyObject *object)
{
    ext_function *self = (ext_function *)object;
    return PyUnicode_FromFormat("<profiled %R>", self->function);
}

/* What another one like it can be made of: the arguments of its type. */
static PyObject *function_parts(PyObject *object, PyObject *Py_UNUSED(unused))
{
    const ext_function *self = (ext_function *)object;
    const ext_node *node = &self->node;
    PyObject *profiler = node->is_record ? NULL : (PyObject *)node->profiler;
#define OR_NONE(part) ((part) != NULL ? (PyObject *)(part) : Py_None)
    return Py_BuildValue("(OiOOOOOiii)", self->function, (int)self->kind, OR_NONE(node->name_finder), OR_NONE(node->key.name),
                         OR_NONE(node->stage), OR_NONE(profiler), OR_NONE(self->inner), (int)self->binds, (int)node->is_record,
                         (int)node->mutes);
#undef OR_NONE
}

/* Without it pickle would find that of the wrapped callable. */
static PyObject *function_setstate(PyObject *object, PyObject *wrapped)
{
    EXT_ALONE(object, Py_XSETREF(((ext_function *)object)->wrapped, Py_NewRef(wrapped)));
    Py_RETURN_NONE;
}

static PyObject *function_detach(PyObject *object, PyObject *Py_UNUSED(unused))
{
    static const _Atomic uint64_t never;
    ((ext_function *)object)->gate = &never;
    Py_RETURN_NONE;
}

static PyObject *function_detached(PyObject *object, void *Py_UNUSED(unused))
{
    ext_function *self = (ext_function *)object;
    return PyBool_FromLong(self->gate != ext_node_gate(&self->node));
}

/* Whether cloudpickle asks how to reduce an object: it would take the wrapper's code and leave the wrapper. There are copies of
 * it in Ray, Spark and others, all with this method, and, from 2.0 on, the function that the package asks then. */
static bool is_asked_by_cloudpickle(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    PyCodeObject *code = frame != NULL ? PyFrame_GetCode(frame) : NULL;
    bool is_it = code != NULL && PyUnicode_CompareWithASCIIString(code->co_name, "reducer_override") == 0;
    Py_XDECREF(code);
    PyObject *globals = is_it ? PyObject_GetAttrString((PyObject *)frame, "f_globals") : NULL;
    is_it = globals != NULL && PyMapping_HasKeyString(globals, "_should_pickle_by_reference");
    Py_XDECREF(globals);
    return is_it;
}

/* inspect, and those who use it (torch.compile among them), must take the wrapper for what it wraps. */
static PyObject *function_class(PyObject *object, void *Py_UNUSED(unused))
{
    const ext_function *self = (ext_function *)object;
    if (is_asked_by_cloudpickle()) {
        return Py_NewRef((PyObject *)Py_TYPE(object));
    }
    const ext_state *state = self->node.state;
    return PyObject_GetAttr(found_in_bases(state, self->function), state->words[EXT_WORD_CLASS]);
}

/* pickle and copy ask the object; that of object would go by what __class__ says. */
static PyObject *function_reduce(PyObject *object, PyObject *Py_UNUSED(protocol))
{
    PyObject *reducer = ((ext_function *)object)->node.state->reducer;
    return reducer != NULL ? PyObject_CallOneArg(reducer, object) : ext_state_ending();
}

static PyMethodDef function_methods[] = {
    {"__reduce_ex__", function_reduce, METH_O, NULL},
    {"detach", function_detach, METH_NOARGS, PyDoc_STR("Makes the wrapper count nothing any more.")},
    {"_parts", function_parts, METH_NOARGS, PyDoc_STR("Returns what another one like it can be made of.")},
    {"__setstate__", function_setstate, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef function_getset[] = {
    {"__class__", function_class, NULL, NULL, NULL},
    {"__dict__", function_marks, NULL, NULL, NULL},
    {"detached", function_detached, NULL, PyDoc_STR("Whether detach() was called."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ext_function, vectorcall), READONLY, NULL},
    {"__wrapped__", T_OBJECT_EX, offsetof(ext_function, wrapped), 0, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ext_function, weakrefs), READONLY, NULL},
    {"_binds", T_BOOL, offsetof(ext_function, binds), READONLY, PyDoc_STR("Whether it is a pipeline's own, and no node.")},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot function_slots[] = {
    {Py_tp_new, function_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, function_get},
    {Py_tp_getattro, function_getattro},
    {Py_tp_setattro, function_setattro},
    {Py_tp_repr, function_repr},
    {Py_tp_traverse, function_traverse},
    {Py_tp_clear, function_clear},
    {Py_tp_dealloc, function_dealloc},
    {Py_tp_methods, function_methods},
    {Py_tp_getset, function_getset},
    {Py_tp_members, function_members},
    {Py_tp_doc, (void *)"A callable whose calls are counted as those of a node."},
    {0, NULL},
};

PyType_Spec ext_function_spec = EXT_TYPES_SPEC("Function", ext_function, function_slots,
                                               Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
                                                   Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE);

static PyType_Slot callable_slots[] = {
    {Py_tp_descr_get, callable_get}, /* the same as the base's would bring the flag along */
    {Py_tp_traverse, function_traverse},
    {Py_tp_clear, function_clear},
    {Py_tp_dealloc, function_dealloc},
    {Py_tp_doc, (void *)"One around a callable that binds in a way of its own, or not at all."},
    {0, NULL},
};

/* Without the flag that makes Python pass the instance by itself. */
PyType_Spec ext_callable_spec =
    EXT_TYPES_SPEC("ObjectFunction", ext_function, callable_slots,
                   Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE);
