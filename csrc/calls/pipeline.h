/* Which Profiler belongs to which pipeline (an instance of a subclass of PipelineProfiling).
 *
 * The pairs live beside the objects, not in them: so no copy, pickle or clone of a pipeline ever carries its Profiler along,
 * and classes with __slots__ have one, too. A weak reference, or for classes without those `forget`, ends a pair. All is used
 * in EXT_ALONE() of the state's guard.
 */
#ifndef EXT_PIPELINE_H
#define EXT_PIPELINE_H

#include "csrc/profiler.h"

typedef struct {
    ext_ptrmap_entry weak;  /* of the pipeline */
    ext_profiler *profiler; /* owned */
} ext_pipeline;

/* Whether `object` is one by its type. */
static inline bool ext_pipeline_is(const ext_state *state, PyObject *object)
{
    return state->mixin != NULL && PyType_IsSubtype(Py_TYPE(object), (PyTypeObject *)state->mixin);
}

/* Whether `object` is a pipeline; *profiler is its Profiler, borrowed, or NULL as long as it was never asked for. */
static inline bool ext_pipeline_find(const ext_state *state, PyObject *object, ext_profiler **profiler)
{
    const ext_pipeline *pair = ext_ptrmap_get(&state->pipelines, object);
    if (pair != NULL) {
        *profiler = pair->profiler;
        return true;
    }
    *profiler = NULL;
    return ext_pipeline_is(state, object);
}

/* The Profiler of a pipeline, made by calling state->profiler_class at the first use. Borrowed; NULL with an exception. */
ext_profiler *ext_pipeline_profiler(ext_state *state, PyObject *pipeline);

/* Ends the pair of `pipeline`, if there is one. */
void ext_pipeline_forget(ext_state *state, PyObject *pipeline);

/* Ends all pairs. */
void ext_pipeline_clear(ext_state *state);

#endif
