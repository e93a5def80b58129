#include "csrc/types.h"

/* A non-data descriptor: an instrumented instance gets its wrapper, bound; all others get what was found in the class before.
 */
typedef struct {
    PyObject_HEAD
    PyObject *found;      /* what the class, or a base of it, had; owned */
    PyObject *guard;      /* the state's; owned */
    char own;             /* whether it was the class's own, and not a base's */
    ext_ptrmap instances; /* instance (borrowed) -> switch_entry */
} method_switch;

typedef struct {
    ext_ptrmap_entry weak; /* of the instance */
    PyObject *wrapper;     /* owned */
    bool binds;            /* the wrapper is called with the instance first */
} switch_entry;

static void free_entry(void *data)
{
    switch_entry *entry = data;
    ext_ptrmap_forget(&entry->weak);
    Py_CLEAR(entry->wrapper);
    PyMem_Free(entry);
}

static PyObject *switch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"found", "own", NULL};
    PyObject *found;
    int own;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Op:MethodSwitch", keywords, &found, &own)) {
        return NULL;
    }
    const ext_state *state = ext_state_of_type(type);
    method_switch *self = state != NULL ? (method_switch *)type->tp_alloc(type, 0) : NULL;
    if (self != NULL) {
        self->guard = Py_NewRef(state->guard);
        self->found = Py_NewRef(found);
        self->own = (char)own;
    }
    return (PyObject *)self;
}

static PyObject *get_found(const method_switch *self, PyObject *instance, PyObject *owner)
{
    descrgetfunc get = Py_TYPE(self->found)->tp_descr_get;
    return get != NULL ? get(self->found, instance, owner) : Py_NewRef(self->found);
}

static PyObject *get(const method_switch *self, PyObject *instance, PyObject *owner)
{
    switch_entry *entry = instance != NULL ? ext_ptrmap_get(&self->instances, instance) : NULL;
    if (entry != NULL && !PyType_HasFeature(Py_TYPE(self->found), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
        PyObject *method = get_found(self, instance, owner); /* a descriptor that does more than to bind may refuse it */
        if (method == NULL) {
            return NULL;
        }
        Py_DECREF(method);
        entry = ext_ptrmap_get(&self->instances, instance); /* it may have been removed meanwhile */
    }
    if (entry == NULL) {
        return get_found(self, instance, owner);
    }
    PyObject *wrapper = Py_NewRef(entry->wrapper); /* making a method may run code that removes the entry */
    if (!entry->binds) {
        return wrapper;
    }
    PyObject *method = PyMethod_New(wrapper, instance);
    Py_DECREF(wrapper);
    return method;
}

static PyObject *switch_get(PyObject *object, PyObject *instance, PyObject *owner)
{
    const method_switch *self = (method_switch *)object;
    PyObject *method;
    EXT_ALONE(self->guard, method = get(self, instance, owner));
    return method;
}

static bool add_entry(method_switch *self, PyObject *instance, PyObject *wrapper, bool binds)
{
    switch_entry *entry = PyMem_Calloc(1, sizeof *entry);
    if (entry == NULL) {
        PyErr_NoMemory();
        return false;
    }
    entry->wrapper = Py_NewRef(wrapper);
    entry->binds = binds;
    bool watched = ext_ptrmap_watch(&entry->weak, &self->instances, instance, self->guard, free_entry);
    switch_entry *known = watched ? ext_ptrmap_take(&self->instances, instance) : NULL; /* of code that ran meanwhile */
    if (known != NULL) {
        free_entry(known);
    }
    if (watched && entry->weak.watch == NULL) {
        PyErr_Format(PyExc_TypeError, "cannot create weak reference to '%.100s' object", Py_TYPE(instance)->tp_name);
    } else if (watched && ext_ptrmap_add(&self->instances, instance, entry)) {
        return true;
    } else if (watched) {
        PyErr_NoMemory();
    }
    free_entry(entry);
    return false;
}

static PyObject *switch_put(PyObject *object, PyObject *args)
{
    method_switch *self = (method_switch *)object;
    PyObject *instance, *wrapper;
    int binds;
    if (!PyArg_ParseTuple(args, "OOp:put", &instance, &wrapper, &binds)) {
        return NULL;
    }
    bool is_put = true;
    EXT_ALONE(self->guard, {
        switch_entry *entry = ext_ptrmap_get(&self->instances, instance);
        if (entry != NULL) {
            Py_SETREF(entry->wrapper, Py_NewRef(wrapper));
        } else {
            is_put = add_entry(self, instance, wrapper, binds);
        }
    });
    return is_put ? Py_NewRef(Py_None) : NULL;
}

static PyObject *switch_of(PyObject *object, PyObject *instance)
{
    const method_switch *self = (method_switch *)object;
    PyObject *wrapper;
    EXT_ALONE(self->guard, {
        const switch_entry *entry = ext_ptrmap_get(&self->instances, instance);
        wrapper = Py_NewRef(entry != NULL ? entry->wrapper : Py_None);
    });
    return wrapper;
}

static PyObject *switch_drop(PyObject *object, PyObject *instance)
{
    method_switch *self = (method_switch *)object;
    EXT_ALONE(self->guard, {
        switch_entry *entry = ext_ptrmap_take(&self->instances, instance);
        if (entry != NULL) {
            free_entry(entry);
        }
    });
    Py_RETURN_NONE;
}

static Py_ssize_t switch_length(PyObject *object)
{
    return (Py_ssize_t)((method_switch *)object)->instances.count;
}

static int switch_traverse(PyObject *object, visitproc visit, void *arg)
{
    method_switch *self = (method_switch *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->found);
    for (size_t i = 0; self->instances.slots != NULL && i <= self->instances.mask; i++) {
        if (self->instances.slots[i].key != NULL) {
            Py_VISIT(((switch_entry *)self->instances.slots[i].value)->wrapper);
        }
    }
    return 0;
}

/* What was found stays until dealloc: the class may still be used while a cycle is taken apart. */
static int switch_clear(PyObject *object)
{
    method_switch *self = (method_switch *)object;
    EXT_ALONE(self->guard, ext_ptrmap_clear(&self->instances, free_entry));
    return 0;
}

static void switch_dealloc(PyObject *object)
{
    method_switch *self = (method_switch *)object;
    PyObject_GC_UnTrack(object);
    (void)switch_clear(object);
    Py_CLEAR(self->found);
    Py_CLEAR(self->guard);
    ext_state_free(object);
}

/* Copies of a class have no instrumented instances, but what was found. */
static PyObject *switch_reduce(PyObject *object, PyObject *Py_UNUSED(unused))
{
    PyObject *module = PyImport_ImportModule("cprofiling.nodes.decorators");
    PyObject *itself = module != NULL ? PyObject_GetAttrString(module, "itself") : NULL;
    Py_XDECREF(module);
    return itself != NULL ? Py_BuildValue("(N(O))", itself, ((method_switch *)object)->found) : NULL;
}

static PyMethodDef switch_methods[] = {
    {"__reduce__", switch_reduce, METH_NOARGS, NULL},
    {"put", switch_put, METH_VARARGS, PyDoc_STR("put(instance, wrapper, binds): gives an instance its wrapper.")},
    {"of", switch_of, METH_O, PyDoc_STR("of(instance): its wrapper, or None.")},
    {"drop", switch_drop, METH_O, PyDoc_STR("drop(instance): it has no wrapper any more.")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef switch_members[] = {
    {"found", T_OBJECT, offsetof(method_switch, found), READONLY, PyDoc_STR("What the class, or a base of it, had.")},
    {"own", T_BOOL, offsetof(method_switch, own), READONLY, PyDoc_STR("Whether it was the class's own.")},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot switch_slots[] = {
    {Py_tp_new, switch_new},
    {Py_tp_descr_get, switch_get},
    {Py_tp_traverse, switch_traverse},
    {Py_tp_clear, switch_clear},
    {Py_tp_dealloc, switch_dealloc},
    {Py_tp_methods, switch_methods},
    {Py_tp_members, switch_members},
    {Py_mp_length, switch_length},
    {Py_tp_doc, (void *)"Stands in a class for a method of which some instances are instrumented."},
    {0, NULL},
};

PyType_Spec ext_method_switch_spec =
    EXT_TYPES_SPEC("MethodSwitch", method_switch, switch_slots, Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE);
