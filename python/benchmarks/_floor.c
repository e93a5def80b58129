/* The yardsticks of the benchmarks: the least that a C wrapper and a C context manager cost when they do nothing, and
   the least that two readings of the processor's counter cost. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <structmember.h> /* T_PYSSIZET, READONLY: their Py_ names begin with 3.12 */
#include <time.h>

#if defined(__x86_64__)
static inline uint64_t read_counter(void)
{
    return __builtin_ia32_rdtsc();
}
#elif defined(__aarch64__)
static inline uint64_t read_counter(void)
{
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}
#else
#error "no counter is known for this processor"
#endif

/* Forwarder: a callable that calls its target, and nothing else. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *target; /* owned */
} Forwarder;

static PyObject *forwarder_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return PyObject_Vectorcall(((Forwarder *)self)->target, args, nargsf, kwnames);
}

static PyObject *forwarder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *target;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "Forwarder takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O:Forwarder", &target)) {
        return NULL;
    }
    Forwarder *self = (Forwarder *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = forwarder_vectorcall;
        self->target = Py_NewRef(target);
    }
    return (PyObject *)self;
}

static PyObject *forwarder_descr_get(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    return instance == NULL || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

static int forwarder_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Forwarder *)self)->target);
    return 0;
}

static int forwarder_clear(PyObject *self)
{
    Py_CLEAR(((Forwarder *)self)->target);
    return 0;
}

static void forwarder_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)forwarder_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef forwarder_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Forwarder, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot forwarder_slots[] = {
    {Py_tp_doc, "Forwarder(target)\n--\n\nA callable that forwards to target; as a class attribute, it binds."},
    {Py_tp_new, forwarder_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, forwarder_descr_get},
    {Py_tp_traverse, forwarder_traverse},
    {Py_tp_clear, forwarder_clear},
    {Py_tp_dealloc, forwarder_dealloc},
    {Py_tp_members, forwarder_members},
    {0, NULL},
};

static PyType_Spec forwarder_spec = {
    .name = "_floor.Forwarder",
    .basicsize = sizeof(Forwarder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .slots = forwarder_slots,
};

/* EmptyContext: a context manager whose two methods do nothing; made with any arguments, which it does not look at. */

static PyObject *empty_vectorcall(PyObject *type, PyObject *const *Py_UNUSED(args), size_t Py_UNUSED(nargsf),
                                  PyObject *Py_UNUSED(kwnames))
{
    return (PyObject *)PyObject_New(PyObject, (PyTypeObject *)type);
}

static PyObject *empty_enter(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(self);
}

static PyObject *empty_exit(PyObject *Py_UNUSED(self), PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(nargs))
{
    Py_RETURN_NONE;
}

static PyMethodDef empty_methods[] = {
    {"__enter__", empty_enter, METH_NOARGS, "Return self."},
    {"__exit__", (PyCFunction)(void (*)(void))empty_exit, METH_FASTCALL, "Return None."},
    {NULL, NULL, 0, NULL},
};

static void empty_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot empty_slots[] = {
    {Py_tp_doc, "EmptyContext()\n--\n\nA context manager that does nothing."},
    {Py_tp_methods, empty_methods},
    {Py_tp_dealloc, empty_dealloc},
    {0, NULL},
};

static PyType_Spec empty_spec = {
    .name = "_floor.EmptyContext",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = empty_slots,
};

/* The counter. */

static PyObject *pairs_ticks(PyObject *Py_UNUSED(module), PyObject *arg)
{
    long pairs = PyLong_AsLong(arg);
    if (pairs == -1 && PyErr_Occurred()) {
        return NULL;
    }
    uint64_t start = read_counter();
    for (long i = 0; i < pairs; i++) {
        (void)read_counter();
        (void)read_counter();
    }
    return PyLong_FromUnsignedLongLong(read_counter() - start);
}

static PyObject *counter_and_clock(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    struct timespec now;
    uint64_t ticks = read_counter();
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    long long now_ns = (long long)now.tv_sec * 1000000000LL + now.tv_nsec;
    return Py_BuildValue("(KL)", (unsigned long long)ticks, now_ns);
}

static PyMethodDef module_methods[] = {
    {"pairs_ticks", pairs_ticks, METH_O, "Ticks that `pairs` pairs of back-to-back unfenced counter reads take."},
    {"counter_and_clock", counter_and_clock, METH_NOARGS, "The counter in ticks and CLOCK_MONOTONIC in ns, as a pair."},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int status = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return status;
}

/* The empty context's type is called as quickly as a type can be. */
static int add_empty_type(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &empty_spec, NULL);
    if (type != NULL) {
        ((PyTypeObject *)type)->tp_vectorcall = empty_vectorcall;
    }
    int status = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return status;
}

static int module_exec(PyObject *module)
{
    return add_type(module, &forwarder_spec) < 0 || add_empty_type(module) < 0 ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_floor",
    .m_doc = "The least that wrappers, context managers and clock readings cost.",
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__floor(void)
{
    return PyModuleDef_Init(&module_def);
}
