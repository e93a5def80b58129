#include "csrc/calls/pipeline.h"

static void free_pair(void *data)
{
    ext_pipeline *pair = data;
    if (pair != NULL) {
        ext_ptrmap_forget(&pair->weak);
        Py_CLEAR(pair->profiler);
        PyMem_Free(pair);
    }
}

void ext_pipeline_forget(ext_state *state, PyObject *pipeline)
{
    free_pair(ext_ptrmap_take(&state->pipelines, pipeline));
}

void ext_pipeline_clear(ext_state *state)
{
    ext_ptrmap_clear(&state->pipelines, free_pair);
}

static ext_profiler *make_profiler(ext_state *state)
{
    if (state->profiler_class == NULL) {
        return (ext_profiler *)ext_state_ending();
    }
    PyObject *profiler = PyObject_CallNoArgs(state->profiler_class);
    if (profiler != NULL && !PyObject_TypeCheck(profiler, state->profiler_type)) {
        PyErr_SetString(PyExc_TypeError, "the Profiler class must make Profilers");
        Py_CLEAR(profiler);
    }
    return (ext_profiler *)profiler;
}

/* Readers are shown the class of the pipeline. */
static void label(ext_profiler *profiler, PyObject *pipeline)
{
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(pipeline), "__qualname__");
    if (name == NULL || !PyUnicode_Check(name)) {
        ext_state_forget_error();
        Py_CLEAR(name);
    }
    profiler->label = name;
}

static ext_pipeline *make_pair(ext_state *state, PyObject *pipeline)
{
    ext_pipeline *pair = PyMem_Calloc(1, sizeof *pair);
    if (pair == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    pair->profiler = make_profiler(state);
    if (pair->profiler == NULL || !ext_ptrmap_watch(&pair->weak, &state->pipelines, pipeline, state->guard, free_pair)) {
        free_pair(pair);
        return NULL;
    }
    label(pair->profiler, pipeline);
    return pair;
}

ext_profiler *ext_pipeline_profiler(ext_state *state, PyObject *pipeline)
{
    ext_pipeline *pair = ext_ptrmap_get(&state->pipelines, pipeline);
    if (pair != NULL) {
        return pair->profiler;
    }
    ext_pipeline *made = make_pair(state, pipeline);
    if (made == NULL) {
        return NULL;
    }
    /* Making it may have run other threads, or the collector. */
    pair = ext_ptrmap_get(&state->pipelines, pipeline);
    if (pair != NULL) {
        free_pair(made);
        return pair->profiler;
    }
    if (!ext_ptrmap_add(&state->pipelines, pipeline, made)) {
        free_pair(made);
        PyErr_NoMemory();
        return NULL;
    }
    return made->profiler;
}
