#include "csrc/types.h"

#include "csrc/calls/key.h"
#include "csrc/calls/view.h"
#include "csrc/convert.h"

#include "cprofiling/trace/recording.h"

/* The accumulator of the innermost span that is a node's: others are labelled blocks, or only name an owner. *owner receives a
 * reference to what keeps it, as another thread may leave the block. */
static const cprof_accum *innermost(ext_state *state, PyObject **owner)
{
    /* Where no node ever ran in a thread there is nothing to look up, and no record of the thread is made for that. */
    cprof_thread *thread = cprof_thread_self;
    ext_view *view = thread != NULL ? ext_view_get(state, thread) : NULL;
    cprof_span *span = view != NULL ? ext_view_around(view, cprof_chain_top(&view->chain)) : NULL;
    while (span != NULL && span->accum == NULL) {
        span = cprof_span_around(span);
        span = ext_view_around(view, span);
    }
    *owner = span != NULL ? Py_NewRef(ext_view_owner(span)) : NULL;
    return span != NULL ? span->accum : NULL;
}

PyObject *ext_open_node(PyObject *module, PyObject *Py_UNUSED(unused))
{
    ext_state *state = ext_state_of_module(module);
    const cprof_accum *accum;
    PyObject *owner;
    EXT_ALONE(state->guard, accum = innermost(state, &owner));
    if (accum == NULL) {
        Py_RETURN_NONE;
    }
    cprof_names names = cprof_registry_names(accum);
    PyObject *pair = Py_BuildValue("(NN)", ext_convert_to_str(names.stage), ext_convert_to_str(names.node));
    Py_DECREF(owner);
    return pair;
}

static bool convert_key(PyObject *object, int64_t *key)
{
    int overflow = 1;
    *key = PyLong_CheckExact(object) ? PyLong_AsLongLongAndOverflow(object, &overflow) : 0;
    return overflow == 0;
}

/* The key tells the node from others of its thread: an int of 64 bits; with any other object nothing is noted. */
PyObject *ext_open_node_note(PyObject *module, PyObject *object)
{
    const ext_state *state = ext_state_of_module(module);
    int64_t key;
    if (__builtin_expect(state->recording, 0) && state->record_profiler != NULL && convert_key(object, &key)) {
        bool is_on = (cprof_registry_state(((ext_profiler *)state->record_profiler)->registry) & CPROF_FLAG_TRACE) != 0;
        cprof_thread *thread = is_on ? cprof_thread_get() : NULL;
        if (thread != NULL) {
            cprof_recording_note(thread, key);
        }
    }
    Py_RETURN_NONE;
}

PyObject *ext_open_node_has_noted(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(cprof_thread_self != NULL && cprof_thread_self->trace.noted != 0);
}

/* The accumulator that names the node. NULL, without an exception, for a stage or a name that no node can have. */
static cprof_accum *find_accum(ext_profiler *profiler, PyObject *stage, PyObject *name)
{
    stage = ext_convert_stage(profiler->state, stage, "stage");
    name = stage != NULL ? ext_convert_name(name, "name") : NULL;
    cprof_accum *accum = name != NULL ? ext_key_accum(profiler, stage, name) : NULL;
    ext_state_forget_error();
    Py_XDECREF(stage);
    Py_XDECREF(name);
    return accum;
}

PyObject *ext_open_node_end_noted(PyObject *module, PyObject *args)
{
    ext_state *state = ext_state_of_module(module);
    PyObject *profiler, *object, *stage, *name;
    if (state->profiler_type == NULL ||
        !PyArg_ParseTuple(args, "O!OOO:end_noted_node", state->profiler_type, &profiler, &object, &stage, &name)) {
        return state->profiler_type == NULL ? Py_NewRef(Py_None) : NULL;
    }
    int64_t key;
    cprof_thread *thread = cprof_thread_self;
    bool is_any = thread != NULL && thread->trace.noted != 0 && convert_key(object, &key);
    cprof_accum *accum = is_any ? find_accum((ext_profiler *)profiler, stage, name) : NULL;
    ext_view *view = accum != NULL ? ext_view_get(state, thread) : NULL;
    if (view != NULL) {
        cprof_recording_end_noted(thread, key, accum, cprof_chain_top(&view->chain));
    }
    Py_RETURN_NONE;
}
