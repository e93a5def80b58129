#include "csrc/calls/pipeline.h"
#include "csrc/convert.h"
#include "csrc/probes/shape.h"
#include "csrc/statistics/cost.h"
#include "csrc/statistics/summary.h"
#include "csrc/types.h"

#include "cprofiling/base/environment.h"
#include "cprofiling/process.h"

#ifndef CPROF_BUILD
#define CPROF_BUILD "unknown" /* setup.py tells it: see _build.py */
#endif
#ifndef CPROF_NVTX
#define CPROF_NVTX "without NVTX" /* setup.py tells it, too */
#endif
#ifdef __clang__
#define COMPILER "Clang " __clang_version__
#else
#define COMPILER "GCC " __VERSION__
#endif

static bool set_hook(ext_state *state, PyObject *name, PyObject *value)
{
    static const struct {
        const char *name;
        size_t at;
    } hooks[] = {
#define HOOK(name) {#name, offsetof(ext_state, name)},
        EXT_STATE_HOOKS(HOOK)
#undef HOOK
    };
    for (size_t i = 0; i < sizeof hooks / sizeof hooks[0]; i++) {
        if (PyUnicode_CompareWithASCIIString(name, hooks[i].name) == 0) {
            PyObject *EXT_SHARED *field = (PyObject * EXT_SHARED *)((char *)state + hooks[i].at);
            /* Others may be using what is replaced; but what recordings and Profilers ask is used in EXT_ALONE() only. */
            bool is_asked = field == &state->thread_namer || field == &state->probers;
            bool retires = EXT_FREE_THREADED && *field != NULL && *field != value && !is_asked;
            if (retires && (state->retired == NULL || PyList_Append(state->retired, *field) < 0)) {
                return false;
            }
            ext_state_set(field, value);
            return true;
        }
    }
    PyErr_Format(PyExc_TypeError, "configure() has no keyword %R", name);
    return false;
}

static PyObject *module_configure(PyObject *module, PyObject *Py_UNUSED(args), PyObject *kwargs)
{
    PyObject *name, *value;
    Py_ssize_t place = 0;
    ext_state *state = ext_state_of_module(module);
    bool is_set = true;
    while (is_set && kwargs != NULL && PyDict_Next(kwargs, &place, &name, &value)) {
        EXT_ALONE(state->guard, is_set = set_hook(state, name, value));
    }
    return is_set ? Py_NewRef(Py_None) : NULL;
}

static PyObject *profiler_of(ext_state *state, PyObject *object)
{
    ext_profiler *profiler;
    if (!ext_pipeline_find(state, object, &profiler)) {
        Py_RETURN_NONE;
    }
    return Py_XNewRef((PyObject *)ext_pipeline_profiler(state, object));
}

static PyObject *module_profiler_of(PyObject *module, PyObject *object)
{
    ext_state *state = ext_state_of_module(module);
    PyObject *profiler;
    EXT_ALONE(state->guard, profiler = profiler_of(state, object));
    return profiler;
}

static PyObject *module_forget_pipeline(PyObject *module, PyObject *pipeline)
{
    ext_state *state = ext_state_of_module(module);
    EXT_ALONE(state->guard, ext_pipeline_forget(state, pipeline));
    Py_RETURN_NONE;
}

static PyObject *module_convert_name(PyObject *Py_UNUSED(module), PyObject *name)
{
    return ext_convert_name(name, "name");
}

static PyObject *module_clock(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("(sz)", cprof_clock_name(), cprof_clock_reason());
}

static PyObject *module_clock_figures(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    uint64_t step_ps, read_ps;
    cprof_clock_start();
    cprof_clock_measure(&step_ps, &read_ps);
    return Py_BuildValue("(KK)", (unsigned long long)step_ps, (unsigned long long)read_ps);
}

static PyObject *module_clock_backward(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(atomic_load(&cprof_clock.backward));
}

static PyObject *module_refine_clock(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    cprof_clock_refine();
    Py_RETURN_NONE;
}

static PyObject *module_cost_ns(PyObject *module, PyObject *profiler)
{
    ext_state *state = ext_state_of_module(module);
    if (profiler != Py_None && !ext_convert_is_profiler(state, profiler, "a Profiler or None")) {
        return NULL;
    }
    return ext_cost_ns(state, profiler != Py_None ? (ext_profiler *)profiler : NULL);
}

static PyObject *module_environment_is_trusted(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(cprof_environment_is_trusted());
}

static PyMethodDef module_methods[] = {
    {"configure", EXT_METHOD(module_configure), METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Sets objects of the package that the extension calls: see EXT_STATE_HOOKS in csrc/state.h; None: none.")},
    {"profiler_of", module_profiler_of, METH_O, PyDoc_STR("The Profiler of an object that is a pipeline; else None.")},
    {"forget_pipeline", module_forget_pipeline, METH_O, PyDoc_STR("Ends the pair of a pipeline and its Profiler.")},
    {"open_node", ext_open_node, METH_NOARGS, PyDoc_STR("Stage and name of the innermost open node of the task; or None.")},
    {"note_node", ext_open_node_note, METH_O, PyDoc_STR("Notes in a recording that a node begins, known by an int.")},
    {"has_noted_nodes", ext_open_node_has_noted, METH_NOARGS, PyDoc_STR("Whether this thread has noted nodes.")},
    {"end_noted_node", ext_open_node_end_noted, METH_VARARGS, PyDoc_STR("Records a noted node, which ends now.")},
    {"convert_name", module_convert_name, METH_O, PyDoc_STR("A node name, checked.")},
    {"clock", module_clock, METH_NOARGS, PyDoc_STR("The clock in use, and why it is not the processor's counter, or None.")},
    {"clock_figures", module_clock_figures, METH_NOARGS, PyDoc_STR("The clock's step and the cost of reading it, in ps.")},
    {"clock_backward", module_clock_backward, METH_NOARGS, PyDoc_STR("How often a span ended before it began.")},
    {"refine_clock", module_refine_clock, METH_NOARGS, PyDoc_STR("Measures the counter's rate since the start.")},
    {"checksum", ext_live_checksum, METH_O, PyDoc_STR("The checksum of this package's files: CRC-64 as in .xz files.")},
    {"arrow_stream", ext_arrow_stream, METH_O, PyDoc_STR("Columns of values as an Arrow stream: a capsule.")},
    {"take_snapshot", ext_snapshot_take, METH_VARARGS, PyDoc_STR("The statistics of now: a Snapshot of the type given.")},
    {"fill_row", ext_summary_fill, METH_VARARGS, PyDoc_STR("Gives the first keys of a dict a row's values.")},
    {"cost_ns", module_cost_ns, METH_O, PyDoc_STR("The cost of a call of a Profiler (None: a plain one) here, in ns.")},
    {"environment_is_trusted", module_environment_is_trusted, METH_NOARGS, PyDoc_STR("Whether variables may start things.")},
    {"run_program", EXT_METHOD(ext_program_run), METH_FASTCALL, PyDoc_STR("Runs a program with no Python frame below it.")},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base)
{
    /* Threads keep their views: these must not keep a module that was removed, and may be imported anew. */
    PyObject *held = spec != &ext_view_spec ? module : NULL;
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(held, spec, (PyObject *)base);
    if (type != NULL && PyModule_AddType(module, type) < 0) {
        Py_CLEAR(type);
    }
    return type;
}

static bool add_types(PyObject *module, ext_state *state)
{
#define ADD(name, base) (state->name##_type = add_type(module, &ext_##name##_spec, base)) != NULL &&
    return EXT_STATE_TYPES(ADD) ext_generator_prepare(state->generator_type, state->coroutine_type);
#undef ADD
}

static PyObject *get_enum_type(void)
{
    PyObject *enum_module = PyImport_ImportModule("enum");
    PyObject *type = enum_module != NULL ? PyObject_GetAttrString(enum_module, "Enum") : NULL;
    Py_XDECREF(enum_module);
    return type;
}

static bool add_objects(PyObject *module, ext_state *state)
{
    ext_record_prepare(state->record_type);
    ext_idle_prepare(state->idle_type);
    return (state->sys_module = PyImport_ImportModule("sys")) != NULL &&
           (state->stage_variable = PyContextVar_New("cprofiling.stage", NULL)) != NULL &&
           (state->bound_variable = PyContextVar_New("cprofiling.profiler", NULL)) != NULL &&
           (state->first_stage = PyUnicode_InternFromString("inference")) != NULL &&
           (state->default_stage = Py_NewRef(state->first_stage)) != NULL && (state->defaults = PyList_New(0)) != NULL &&
           (state->retired = PyList_New(0)) != NULL && (state->entered_stages = PyDict_New()) != NULL &&
           (state->view_key = PyUnicode_FromFormat("cprofiling.view.%llu", (unsigned long long)state->serial)) != NULL &&
           (state->enum_type = get_enum_type()) != NULL && (state->format_error = ext_snapshot_format_error()) != NULL &&
           PyModule_AddObjectRef(module, "FormatError", state->format_error) == 0 &&
           PyModule_AddStringConstant(module, "BUILD", CPROF_BUILD) == 0 &&
           PyModule_AddStringConstant(module, "BUILT_WITH", COMPILER ", " CPROF_NVTX) == 0 &&
           (state->record_profiler = PyObject_CallNoArgs((PyObject *)state->profiler_type)) != NULL;
}

/* Where Python ignores its variables, ours are too. */
static bool follow_flags(void)
{
    PyObject *flags = PySys_GetObject("flags"); /* borrowed */
    PyObject *ignored = flags != NULL ? PyObject_GetAttrString(flags, "ignore_environment") : NULL;
    int is_ignored = ignored != NULL ? PyObject_IsTrue(ignored) : -1;
    Py_XDECREF(ignored);
    if (is_ignored > 0) {
        cprof_environment_distrust();
    }
    return is_ignored >= 0;
}

static int module_exec(PyObject *module)
{
    ext_state *state = ext_state_create();
    if (state == NULL) {
        return -1;
    }
    *(ext_state **)PyModule_GetState(module) = state;
    cprof_process_start();
    bool complete = follow_flags() && add_types(module, state) && ext_summary_add_rows(state) && add_objects(module, state) &&
                    ext_instruments_add(module) && ext_device_activity_add(module);
    if (!complete && !PyErr_Occurred()) { /* CPython's maker of types does not always say it */
        PyErr_NoMemory();
    }
    return complete ? 0 : -1;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    ext_state *state = ext_state_of_module(module);
    int result = state != NULL ? ext_state_traverse(state, visit, arg) : 0;
    return state != NULL && result == 0 ? ext_shape_traverse(state, visit, arg) : result;
}

/* Breaks the cycles. Wrapped functions may still be called afterwards: without the types nothing is measured any more, and what
 * has no part in a cycle stays until the module goes. */
static int module_clear(PyObject *module)
{
    ext_state *state = ext_state_of_module(module);
    if (state != NULL) {
        ext_state_clear(state);
        ext_shape_forget(state);
        ext_pipeline_clear(state);
    }
    return 0;
}

static void module_free(void *module)
{
    (void)module_clear(module);
    ext_state_release(ext_state_of_module(module));
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    EXT_COMPAT_MODULE_SLOTS
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = ext_state_module_name,
    .m_doc = "The C extension of cprofiling. Use the package's names instead.",
    .m_size = sizeof(ext_state *),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&module_definition);
}
