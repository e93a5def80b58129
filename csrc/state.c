#include "csrc/state.h"

#include "cprofiling/base/random.h"

#include <pythread.h>
#include <unistd.h>

const char ext_state_module_name[] = "cprofiling._core";

static void leave_to_child(void *state)
{
    PyObject *guard = ((ext_state *)state)->guard;
    if (guard != NULL) {
        ext_compat_leave_to_child(guard);
    }
}

ext_state *ext_state_create(void)
{
    static const char *const texts[] = {
#define EXT_WORD_TEXT(word, text) text,
        EXT_WORD_MAP(EXT_WORD_TEXT)
#undef EXT_WORD_TEXT
    };
    ext_state *state = PyMem_Calloc(1, sizeof *state);
    if (state == NULL) {
        return (ext_state *)PyErr_NoMemory();
    }
    state->users = 1;
    state->serial = cprof_random_serial();
    state->forks = (cprof_process_watch){leave_to_child, state, NULL};
    cprof_process_begin_watch(&state->forks);
    state->guard = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (state->guard == NULL) {
        ext_state_release(state);
        return NULL;
    }
    for (size_t i = 0; i < EXT_WORD_COUNT; i++) {
        state->words[i] = PyUnicode_InternFromString(texts[i]);
        if (state->words[i] == NULL) {
            ext_state_release(state);
            return NULL;
        }
    }
    return state;
}

ext_state *ext_state_of_type(PyTypeObject *type)
{
    /* PyType_GetModuleByDef() came with 3.11; the bases say the same. */
    PyObject *mro = type->tp_mro;
    for (Py_ssize_t i = 0; mro != NULL && i < PyTuple_GET_SIZE(mro); i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        PyObject *module = PyType_HasFeature(base, Py_TPFLAGS_HEAPTYPE) ? ((PyHeapTypeObject *)base)->ht_module : NULL;
        if (module != NULL && PyModule_GetDef(module)->m_name == ext_state_module_name) {
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

PyObject *ext_state_loaded_module(const ext_state *state, ext_word word)
{
    /* PyImport_GetModuleDict() is fatal late in finalisation, and PySys_GetObject() says so when there is no memory. */
    PyObject *names = state->sys_module != NULL ? PyModule_GetDict(state->sys_module) : NULL;
    PyObject *modules = names != NULL ? ext_compat_dict_get(names, state->words[EXT_WORD_MODULES]) : NULL;
    PyObject *module = modules != NULL && PyDict_Check(modules) ? ext_compat_dict_get(modules, state->words[word]) : NULL;
    Py_XDECREF(modules);
    ext_state_forget_error();
    return module;
}

int ext_state_traverse(ext_state *state, visitproc visit, void *arg)
{
#define VISIT_TYPE(name, base) Py_VISIT(state->name##_type);
#define VISIT_ROW(name) Py_VISIT(state->name##_row);
#define VISIT(name) Py_VISIT(state->name);
    EXT_STATE_TYPES(VISIT_TYPE)
    EXT_STATE_ROWS(VISIT_ROW)
    EXT_STATE_HOOKS(VISIT)
    EXT_STATE_OBJECTS(VISIT)
#undef VISIT
#undef VISIT_ROW
#undef VISIT_TYPE
    return 0;
}

#define CLEAR(name) Py_CLEAR(state->name);

void ext_state_clear(ext_state *state)
{
#define CLEAR_TYPE(name, base) Py_CLEAR(state->name##_type);
#define CLEAR_ROW(name) Py_CLEAR(state->name##_row);
    state->serial = 0;
    EXT_STATE_TYPES(CLEAR_TYPE)
    EXT_STATE_ROWS(CLEAR_ROW)
    EXT_STATE_HOOKS(CLEAR)
    EXT_STATE_OBJECTS(CLEAR)
#undef CLEAR_ROW
#undef CLEAR_TYPE
}

ext_state *ext_state_hold(ext_state *state)
{
    state->users++;
    return state;
}

void ext_state_release(ext_state *state)
{
    if (state == NULL || --state->users > 0) {
        return;
    }
    cprof_process_end_watch(&state->forks);
    EXT_STATE_KEPT(CLEAR)
    for (size_t i = 0; i < EXT_WORD_COUNT; i++) {
        Py_CLEAR(state->words[i]);
    }
    ext_state_forget_labels(state);
    PyMem_Free(state);
}

PyObject *ext_state_ending(void)
{
    PyErr_SetString(PyExc_RuntimeError, "the interpreter is ending");
    return NULL;
}

void ext_state_forget_labels(ext_state *state)
{
    for (size_t i = 0; i < EXT_LABEL_PLACES; i++) {
        state->labels[i].serial = 0;
        Py_CLEAR(state->labels[i].name);
        Py_CLEAR(state->labels[i].stage);
    }
}

/* Called by the interpreter between two instructions of the main thread. */
static int raise_anew(void *exception)
{
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF((PyObject *)exception);
    return -1;
}

void ext_state_forget_error(void)
{
    if (PyErr_Occurred() == NULL) {
        return;
    }
    ext_compat_error error = ext_compat_take_error();
    if (!PyErr_GivenExceptionMatches(error.type, PyExc_Exception)) {
        PyErr_NormalizeException(&error.type, &error.value, &error.traceback);
        /* The thread in which handlers of signals run, and the only one that can be given more than a class. */
        if (PyInterpreterState_Get() != PyInterpreterState_Main() ||
            PyThread_get_thread_native_id() != (unsigned long)getpid()) {
            (void)PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), (PyObject *)Py_TYPE(error.value));
        } else if (Py_AddPendingCall(raise_anew, Py_NewRef(error.value)) < 0) {
            Py_DECREF(error.value); /* too many wait already */
        }
    }
    Py_XDECREF(error.type);
    Py_XDECREF(error.value);
    Py_XDECREF(error.traceback);
}
