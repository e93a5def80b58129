#include "csrc/plain_recorded.h"

#include "csrc/fault.h"
#include "csrc/calls/view.h"

#include "cprofiling/trace/recording.h"

/* The int as a key; false, without an exception, where it is none. */
static bool key_of(PyObject *start, int64_t *key)
{
    int overflow = 1;
    *key = PyLong_CheckExact(start) ? PyLong_AsLongLongAndOverflow(start, &overflow) : 0;
    return overflow == 0;
}

void ext_plain_recorded_begin(const ext_state *state, PyObject *start)
{
    int64_t key;
    cprof_thread *thread = cprof_thread_self != NULL ? cprof_thread_self : cprof_thread_get();
    const ext_profiler *recorded = state->record_profiler;
    bool is_on = recorded != NULL && (cprof_registry_state(recorded->registry) & CPROF_FLAG_TRACE) != 0;
    if (is_on && thread != NULL && key_of(start, &key)) {
        cprof_recording_note(thread, key);
    }
}

/* The accumulator under which a node was counted, which names its key. */
static cprof_accum *accum_of(const ext_state *state, PyObject *pipeline, PyObject *node, PyObject *stage)
{
    PyObject *profiler = PyObject_GetAttr(pipeline, state->words[EXT_WORD_PROFILER]);
    PyObject *name = profiler != NULL ? PyObject_GetAttr(node, state->words[EXT_WORD_NAME]) : NULL;
    cprof_accum *accum = NULL;
    if (name != NULL && state->plain_profiler_type != NULL && PyObject_TypeCheck(profiler, state->plain_profiler_type)) {
        accum = ext_plain_profiler_accum((ext_plain_profiler *)profiler, stage, name);
    }
    ext_fault_forget();
    Py_XDECREF(profiler);
    Py_XDECREF(name);
    return accum;
}

void ext_plain_recorded_end(ext_state *state, PyObject *const *args)
{
    int64_t key;
    cprof_thread *thread = cprof_thread_self;
    if (thread == NULL || thread->trace.noted == 0 || !key_of(args[1], &key)) {
        return;
    }
    cprof_accum *accum = accum_of(state, args[0], args[2], args[4]);
    ext_view *view = accum != NULL ? ext_view_get(state, thread) : NULL;
    if (view != NULL) {
        cprof_recording_end_noted(thread, key, accum, cprof_chain_top(&view->chain));
    }
}
