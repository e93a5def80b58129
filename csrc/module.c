#include "csrc/recordings/arrow_stream.h"
#include "csrc/calls/block.h"
#include "csrc/convert.h"
#include "csrc/statistics/cost.h"
#include "csrc/recordings/device_activity.h"
#include "csrc/fault.h"
#include "csrc/calls/function.h"
#include "csrc/calls/idle.h"
#include "csrc/calls/inherited.h"
#include "csrc/tools/instruments.h"
#include "csrc/statistics/live.h"
#include "csrc/calls/method_switch.h"
#include "csrc/calls/noted_node.h"
#include "csrc/calls/open_node.h"
#include "csrc/calls/pipeline.h"
#include "csrc/probes/callbacks.h"
#include "csrc/tools/program.h"
#include "csrc/calls/ready.h"
#include "csrc/calls/record.h"
#include "csrc/recordings/recorder.h"
#include "csrc/recordings/recording.h"
#include "csrc/probes/shape.h"
#include "csrc/statistics/snapshot.h"
#include "csrc/calls/stage.h"
#include "csrc/calls/suspendable.h"

#include "cprofiling/base/environment.h"
#include "cprofiling/base/random.h"
#include "cprofiling/process.h"

static struct PyModuleDef module_definition;

ext_state *ext_state_of_type(PyTypeObject *type)
{
    /* PyType_GetModuleByDef() came with 3.11; the bases say the same. */
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; mro != NULL && i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *module = PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE) ? ((PyHeapTypeObject *)base)->ht_module : NULL;
        if (module != NULL && PyModule_GetDef(module) == &module_definition) {
            return ext_state_of_module(module);
        }
    }
    PyErr_SetString(PyExc_TypeError, "not a type of cprofiling._core");
    return NULL;
}

ext_state *ext_state_of_module(PyObject *module)
{
    return *(ext_state **)PyModule_GetState(module);
}

ext_state *ext_state_hold(ext_state *state)
{
    state->users++;
    return state;
}

void ext_state_forget_labels(ext_state *state)
{
    for (size_t i = 0; i < EXT_LABEL_PLACES; i++) {
        state->labels[i].serial = 0;
        Py_CLEAR(state->labels[i].name);
        Py_CLEAR(state->labels[i].stage);
    }
}

PyObject *ext_state_loaded_module(const ext_state *state, ext_word word)
{
    /* PyImport_GetModuleDict() is fatal late in finalisation, and PySys_GetObject() says so when there is no memory. */
    PyObject *modules = state->sys_module != NULL ? PyObject_GetAttr(state->sys_module, state->words[EXT_WORD_MODULES]) : NULL;
    PyObject *module =
        modules != NULL && PyDict_Check(modules) ? Py_XNewRef(PyDict_GetItemWithError(modules, state->words[word])) : NULL;
    Py_XDECREF(modules);
    ext_fault_forget();
    return module;
}

static PyObject *module_configure(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {
        "mixin",         "profiler_class", "default_profiler", "device_finder",  "stream_finder", "awaiter", "record_wrapper",
        "stage_wrapper", "kind_finder",    "parameter_finder", "stand_in_maker", "marks_finder",  "probers", NULL};
    ext_state *state = ext_state_of_module(module);
    PyObject *mixin, *profiler_class, *default_profiler, *device_finder, *stream_finder, *awaiter, *record_wrapper,
        *stage_wrapper, *probers;
    PyObject *kind_finder, *parameter_finder, *stand_in_maker, *marks_finder;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$O!OO!OOOOOOOOOO!:configure", keywords, &PyType_Type, &mixin,
                                     &profiler_class, state->profiler_type, &default_profiler, &device_finder, &stream_finder,
                                     &awaiter, &record_wrapper, &stage_wrapper, &kind_finder, &parameter_finder,
                                     &stand_in_maker, &marks_finder, &PyTuple_Type, &probers)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(probers) != EXT_CALLBACKS) {
        PyErr_Format(PyExc_ValueError, "probers must be %d callables, got %zd", (int)EXT_CALLBACKS, PyTuple_GET_SIZE(probers));
        return NULL;
    }
    ext_state_set(&state->mixin, mixin);
    ext_state_set(&state->profiler_class, profiler_class);
    ext_state_set(&state->default_profiler, default_profiler);
    ext_state_set(&state->device_finder, device_finder);
    ext_state_set(&state->probers, probers);
    ext_state_set(&state->stream_finder, stream_finder);
    ext_state_set(&state->awaiter, awaiter);
    ext_state_set(&state->record_wrapper, record_wrapper);
    ext_state_set(&state->stage_wrapper, stage_wrapper);
    ext_state_set(&state->kind_finder, kind_finder);
    ext_state_set(&state->parameter_finder, parameter_finder);
    ext_state_set(&state->stand_in_maker, stand_in_maker);
    ext_state_set(&state->marks_finder, marks_finder);
    Py_RETURN_NONE;
}

static PyObject *module_set_thread_namer(PyObject *module, PyObject *namer)
{
    ext_state *state = ext_state_of_module(module);
    ext_state_set(&state->thread_namer, namer);
    Py_RETURN_NONE;
}

static PyObject *module_set_live_switch(PyObject *module, PyObject *live_switch)
{
    ext_state *state = ext_state_of_module(module);
    ext_state_set(&state->live_switch, live_switch);
    Py_RETURN_NONE;
}

static PyObject *module_pipeline_profiler(PyObject *module, PyObject *pipeline)
{
    return Py_XNewRef((PyObject *)ext_pipeline_profiler(ext_state_of_module(module), pipeline));
}

static PyObject *module_profiler_of(PyObject *module, PyObject *object)
{
    ext_profiler *profiler;
    ext_state *state = ext_state_of_module(module);
    if (!ext_pipeline_find(state, object, &profiler)) {
        Py_RETURN_NONE;
    }
    return Py_XNewRef((PyObject *)ext_pipeline_profiler(state, object));
}

static PyObject *module_forget_pipeline(PyObject *module, PyObject *pipeline)
{
    ext_pipeline_forget(ext_state_of_module(module), pipeline);
    Py_RETURN_NONE;
}

static PyObject *module_convert_name(PyObject *module, PyObject *name)
{
    (void)module;
    return ext_convert_name(name, "name");
}

static PyObject *module_clock(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return Py_BuildValue("(sz)", cprof_clock_name(), cprof_clock_reason());
}

static PyObject *module_clock_figures(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    uint64_t step_ps, read_ps;
    cprof_clock_start();
    cprof_clock_measure(&step_ps, &read_ps);
    return Py_BuildValue("(KK)", (unsigned long long)step_ps, (unsigned long long)read_ps);
}

static PyObject *module_clock_backward(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromUnsignedLongLong(atomic_load(&cprof_clock.backward));
}

static PyObject *module_refine_clock(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    cprof_clock_refine();
    Py_RETURN_NONE;
}

static PyObject *module_cost_ns(PyObject *module, PyObject *profiler)
{
    ext_state *state = ext_state_of_module(module);
    if (profiler != Py_None && (state->profiler_type == NULL || !PyObject_TypeCheck(profiler, state->profiler_type))) {
        ext_convert_refuse_type("profiler", "a Profiler or None", profiler);
        return NULL;
    }
    return ext_cost_ns(state, profiler != Py_None ? (ext_profiler *)profiler : NULL);
}

static PyObject *module_environment_is_trusted(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(cprof_environment_is_trusted());
}

static PyMethodDef module_methods[] = {
    {"configure", (PyCFunction)(void (*)(void))module_configure, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR(
         "Tells the extension the package's classes, the default Profiler, how to find a call's device and a "
         "device's stream, how to await what is no coroutine, how to make a record() of a function, and what it asks about "
         "functions.")},
    {"set_thread_namer", module_set_thread_namer, METH_O,
     PyDoc_STR("Sets what is called in each thread that is new to the profiler while a recording runs; None: nothing.")},
    {"set_live_switch", module_set_live_switch, METH_O,
     PyDoc_STR("Sets what set_profiling() calls before it changes anything: see csrc/state.h; None: nothing.")},
    {"pipeline_profiler", module_pipeline_profiler, METH_O, PyDoc_STR("The Profiler of a pipeline, made at the first use.")},
    {"profiler_of", module_profiler_of, METH_O, PyDoc_STR("The Profiler of an object that is a pipeline; else None.")},
    {"forget_pipeline", module_forget_pipeline, METH_O, PyDoc_STR("Ends the pair of a pipeline and its Profiler.")},
    {"open_node", ext_open_node, METH_NOARGS,
     PyDoc_STR("Stage and name of the innermost open call of a node in this thread and task; or None.")},
    {"note_node", ext_noted_node_begin, METH_O, PyDoc_STR("Notes in a recording that a node begins, known by an int.")},
    {"has_noted_nodes", ext_noted_node_is_any, METH_NOARGS, PyDoc_STR("Whether this thread has noted nodes.")},
    {"end_noted_node", ext_noted_node_end, METH_VARARGS,
     PyDoc_STR("end_noted_node(profiler, key, stage, name): records a noted node, which ends now.")},
    {"convert_name", module_convert_name, METH_O,
     PyDoc_STR("A checked node name. TypeError or ValueError says what is wrong.")},
    {"clock", module_clock, METH_NOARGS,
     PyDoc_STR("The name of the clock in use, and why it is not the processor's counter, or None.")},
    {"clock_figures", module_clock_figures, METH_NOARGS,
     PyDoc_STR("By which steps the clock in use goes, and what reading it costs, in picoseconds; chooses the clock.")},
    {"clock_backward", module_clock_backward, METH_NOARGS, PyDoc_STR("How often a span ended before it began.")},
    {"refine_clock", module_refine_clock, METH_NOARGS,
     PyDoc_STR("Measures the counter's rate over all the time since the start.")},
    {"checksum", ext_live_checksum, METH_O, PyDoc_STR("The checksum of this package's files: CRC-64 as in .xz files.")},
    {"arrow_stream", ext_arrow_stream, METH_O, PyDoc_STR("Columns of values as an Arrow stream: a capsule.")},
    {"take_snapshot", ext_snapshot_take, METH_VARARGS, PyDoc_STR("The statistics of now: a Snapshot of the type given.")},
    {"cost_ns", module_cost_ns, METH_O,
     PyDoc_STR("What one call of a Profiler (None: a plain one) costs here, in ns, measured at the first use.")},
    {"environment_is_trusted", module_environment_is_trusted, METH_NOARGS,
     PyDoc_STR("Return whether variables may make this program do things: see cprofiling/environment.h.")},
    {"run_program", (PyCFunction)(void (*)(void))ext_program_run, METH_FASTCALL,
     PyDoc_STR("Runs a program with no Python frame below it: see csrc/program.h.")},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, PyTypeObject *base)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, (PyObject *)base);
    if (type != NULL && PyModule_AddType(module, type) < 0) {
        Py_CLEAR(type);
    }
    return type;
}

static bool add_types(PyObject *module, ext_state *state)
{
    return (state->profiler_type = add_type(module, &ext_profiler_spec, NULL)) != NULL &&
           (state->function_type = add_type(module, &ext_function_spec, NULL)) != NULL &&
           (state->callable_type = add_type(module, &ext_callable_spec, state->function_type)) != NULL &&
           (state->block_type = add_type(module, &ext_block_spec, NULL)) != NULL &&
           (state->stage_type = add_type(module, &ext_stage_spec, NULL)) != NULL &&
           (state->idle_type = add_type(module, &ext_idle_spec, NULL)) != NULL &&
           (state->generator_type = add_type(module, &ext_generator_spec, NULL)) != NULL &&
           (state->coroutine_type = add_type(module, &ext_coroutine_spec, NULL)) != NULL &&
           (state->async_generator_type = add_type(module, &ext_async_generator_spec, NULL)) != NULL &&
           (state->step_type = add_type(module, &ext_step_spec, NULL)) != NULL &&
           (state->await_type = add_type(module, &ext_await_spec, NULL)) != NULL &&
           (state->method_switch_type = add_type(module, &ext_method_switch_spec, NULL)) != NULL &&
           (state->inherited_type = add_type(module, &ext_inherited_spec, NULL)) != NULL &&
           (state->ready_type = add_type(module, &ext_ready_spec, NULL)) != NULL &&
           (state->live_type = add_type(module, &ext_live_spec, NULL)) != NULL &&
           (state->snapshot_type = add_type(module, &ext_snapshot_spec, NULL)) != NULL &&
           (state->view_type = add_type(module, &ext_view_spec, NULL)) != NULL &&
           (state->record_type = add_type(module, &ext_record_spec, NULL)) != NULL &&
           (state->recorder_type = add_type(module, &ext_recorder_spec, NULL)) != NULL &&
           (state->recording_type = add_type(module, &ext_recording_spec, NULL)) != NULL &&
           ext_suspendable_prepare(state->generator_type, state->coroutine_type);
}

static PyObject *get_enum_type(void)
{
    PyObject *enum_module = PyImport_ImportModule("enum");
    PyObject *type = enum_module != NULL ? PyObject_GetAttrString(enum_module, "Enum") : NULL;
    Py_XDECREF(enum_module);
    return type;
}

static bool add_words(ext_state *state)
{
    static const char *const texts[] = {
#define EXT_WORD_TEXT(word, text) text,
        EXT_WORD_MAP(EXT_WORD_TEXT)
#undef EXT_WORD_TEXT
    };
    for (size_t i = 0; i < EXT_WORD_COUNT; i++) {
        state->words[i] = PyUnicode_InternFromString(texts[i]);
        if (state->words[i] == NULL) {
            return false;
        }
    }
    return true;
}

static bool add_record_profiler(ext_state *state)
{
    ext_record_prepare(state->record_type);
    ext_idle_prepare(state->idle_type);
    state->record_profiler = (ext_profiler *)PyObject_CallNoArgs((PyObject *)state->profiler_type);
    return state->record_profiler != NULL;
}

static bool add_objects(PyObject *module, ext_state *state)
{
    return add_words(state) && (state->sys_module = PyImport_ImportModule("sys")) != NULL &&
           (state->stage_variable = PyContextVar_New("cprofiling.stage", NULL)) != NULL &&
           (state->bound_variable = PyContextVar_New("cprofiling.profiler", NULL)) != NULL &&
           (state->first_stage = PyUnicode_InternFromString("inference")) != NULL &&
           (state->default_stage = Py_NewRef(state->first_stage)) != NULL && (state->defaults = PyList_New(0)) != NULL &&
           (state->entered_stages = PyDict_New()) != NULL &&
           (state->view_key = PyUnicode_FromFormat("cprofiling.view.%llu", (unsigned long long)state->serial)) != NULL &&
           (state->enum_type = get_enum_type()) != NULL && (state->format_error = ext_snapshot_format_error()) != NULL &&
           PyModule_AddObjectRef(module, "FormatError", state->format_error) == 0 && add_record_profiler(state);
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
    ext_state *state = PyMem_Calloc(1, sizeof *state);
    if (state == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *(ext_state **)PyModule_GetState(module) = ext_state_hold(state);
    state->serial = cprof_random_serial();
    cprof_process_start();
    bool complete = follow_flags() && add_types(module, state) && add_objects(module, state) && ext_instruments_add(module) &&
                    ext_device_activity_add(module);
    return complete ? 0 : -1;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    ext_state *state = ext_state_of_module(module);
    if (state == NULL) {
        return 0;
    }
    Py_VISIT(state->profiler_type);
    Py_VISIT(state->function_type);
    Py_VISIT(state->callable_type);
    Py_VISIT(state->block_type);
    Py_VISIT(state->stage_type);
    Py_VISIT(state->idle_type);
    Py_VISIT(state->generator_type);
    Py_VISIT(state->coroutine_type);
    Py_VISIT(state->async_generator_type);
    Py_VISIT(state->step_type);
    Py_VISIT(state->await_type);
    Py_VISIT(state->method_switch_type);
    Py_VISIT(state->inherited_type);
    Py_VISIT(state->ready_type);
    Py_VISIT(state->live_type);
    Py_VISIT(state->snapshot_type);
    Py_VISIT(state->view_type);
    Py_VISIT(state->record_type);
    Py_VISIT(state->recorder_type);
    Py_VISIT(state->recording_type);
    Py_VISIT(state->default_profiler);
    Py_VISIT(state->mixin);
    Py_VISIT(state->profiler_class);
    Py_VISIT(state->device_finder);
    Py_VISIT(state->sys_module);
    Py_VISIT(state->awaiter);
    Py_VISIT(state->probers);
    Py_VISIT(state->stream_finder);
    Py_VISIT(state->record_wrapper);
    Py_VISIT(state->kind_finder);
    Py_VISIT(state->parameter_finder);
    Py_VISIT(state->stand_in_maker);
    Py_VISIT(state->marks_finder);
    Py_VISIT(state->thread_namer);
    Py_VISIT(state->describer);
    Py_VISIT(state->device_memory_finder);
    Py_VISIT(state->defaults);
    Py_VISIT(state->stage_wrapper);
    Py_VISIT(state->live_switch);
    Py_VISIT(state->record_profiler);
    return ext_shape_traverse(state, visit, arg);
}

/* Breaks the cycles. Wrapped functions may still be called afterwards: without the types nothing is measured any more, and what
 * has no part in a cycle stays until the module goes. */
static int module_clear(PyObject *module)
{
    ext_state *state = ext_state_of_module(module);
    if (state == NULL) {
        return 0;
    }
    state->serial = 0;
    Py_CLEAR(state->profiler_type);
    Py_CLEAR(state->function_type);
    Py_CLEAR(state->callable_type);
    Py_CLEAR(state->block_type);
    Py_CLEAR(state->stage_type);
    Py_CLEAR(state->idle_type);
    Py_CLEAR(state->generator_type);
    Py_CLEAR(state->coroutine_type);
    Py_CLEAR(state->async_generator_type);
    Py_CLEAR(state->step_type);
    Py_CLEAR(state->await_type);
    Py_CLEAR(state->method_switch_type);
    Py_CLEAR(state->inherited_type);
    Py_CLEAR(state->ready_type);
    Py_CLEAR(state->live_type);
    Py_CLEAR(state->snapshot_type);
    Py_CLEAR(state->view_type);
    Py_CLEAR(state->record_type);
    Py_CLEAR(state->recorder_type);
    Py_CLEAR(state->recording_type);
    Py_CLEAR(state->default_profiler);
    Py_CLEAR(state->mixin);
    Py_CLEAR(state->profiler_class);
    Py_CLEAR(state->device_finder);
    Py_CLEAR(state->sys_module);
    Py_CLEAR(state->awaiter);
    Py_CLEAR(state->probers);
    Py_CLEAR(state->stream_finder);
    Py_CLEAR(state->record_wrapper);
    Py_CLEAR(state->kind_finder);
    Py_CLEAR(state->parameter_finder);
    Py_CLEAR(state->stand_in_maker);
    Py_CLEAR(state->marks_finder);
    Py_CLEAR(state->thread_namer);
    Py_CLEAR(state->describer);
    Py_CLEAR(state->device_memory_finder);
    Py_CLEAR(state->defaults);
    Py_CLEAR(state->stage_wrapper);
    Py_CLEAR(state->live_switch);
    Py_CLEAR(state->record_profiler);
    ext_shape_forget(state);
    ext_pipeline_clear(state);
    return 0;
}

void ext_state_release(ext_state *state)
{
    if (state == NULL || --state->users > 0) {
        return;
    }
    Py_CLEAR(state->stage_variable);
    Py_CLEAR(state->bound_variable);
    Py_CLEAR(state->first_stage);
    Py_CLEAR(state->default_stage);
    Py_CLEAR(state->entered_stages);
    Py_CLEAR(state->view_key);
    Py_CLEAR(state->enum_type);
    for (size_t i = 0; i < EXT_WORD_COUNT; i++) {
        Py_CLEAR(state->words[i]);
    }
    Py_CLEAR(state->format_error);
    ext_state_forget_labels(state);
    PyMem_Free(state);
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
    .m_name = "cprofiling._core",
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
