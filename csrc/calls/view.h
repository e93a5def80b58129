/* A thread's view of its interpreter: which chain of spans is current, the stage in force, the Profiler bound by `with`.
 *
 * The view is looked up once per call, and valid as long as the thread state and the version of its context are the same; a
 * switch of task or greenlet changes the version. Then the chain that was left is parked under its context, and that of the
 * new one taken up, or begun. The thread state's dictionary owns the view.
 */
#ifndef EXT_VIEW_H
#define EXT_VIEW_H

#include "csrc/state.h"

#include "cprofiling/calls/call.h"

struct ext_function;
typedef struct ext_profiler ext_profiler;

/* Of a call decorated twice: the next call of `inner`, or of a wrapped function inside that, is counted already for `owner`.
 * Kept on the heap, as a C stack may be moved away under a greenlet. */
typedef struct ext_pending {
    struct ext_pending *outer;
    struct ext_function *inner; /* borrowed; NULL once it was called */
    const void *owner;          /* Profiler; compared only */
} ext_pending;

typedef struct ext_view {
    PyObject_HEAD
    cprof_chain chain;           /* of the current task */
    uint64_t tstate_id;          /* of the thread state that owns the view */
    EXT_SHARED uint64_t version; /* of the context at the last refresh; any thread may set it to 0 */
    ext_state *state;            /* held */
    uint64_t state_serial;
    PyObject *stage;          /* interned str, or NULL: none in force. Owned: anybody may set the context's variable */
    PyObject *bound;          /* Profiler, or NULL. Owned likewise */
    PyObject *task;           /* context of the current chain; owned */
    PyObject *base_task;      /* the thread's outermost context, or NULL when not known; owned */
    ext_ptrmap parked;        /* context (borrowed) -> ext_parked of a task that is not running, with open spans */
    struct ext_parked *known; /* of the current task, which was parked before; owned, or NULL */
    ext_pending *pending;     /* innermost first; borrowed */
#if EXT_FREE_THREADED
    /* What nodes keep themselves where one thread runs at a time: the Profiler of the last first argument, as long as there are
     * as many pipelines; and that which a block in the chain named last, as others may leave the block. */
    const PyObject *pipeline;        /* compared only */
    ext_profiler *pipeline_profiler; /* borrowed, or NULL: it is no pipeline, or was never asked for */
    size_t pipeline_changes;
    PyObject *block_owner; /* owned, or NULL */
#endif
    cprof_thread *thread;
    struct ext_view *next; /* in the state's list */
    struct ext_view **link;
    bool describing; /* a recording asks for more than times: calls that this makes are not described */
} ext_view;

/* The Profiler that a span names, or NULL. Without the GIL the span of a call borrows it, and marks that, where it is kept
 * otherwise: threads that call nodes of one Profiler would wait for each other at its reference count. */
static inline PyObject *ext_view_owner(const cprof_span *span)
{
    return (PyObject *)((uintptr_t)span->owner & ~(uintptr_t)EXT_FREE_THREADED);
}

/* Ends a span's reference to its Profiler, given as it was in the span. */
static inline void ext_view_release_owner(void *owner)
{
    if (((uintptr_t)owner & EXT_FREE_THREADED) == 0) {
        Py_XDECREF((PyObject *)owner);
    }
}

/* What a span has of a Profiler: a reference, or a mark where the function that is called, or the state, keeps it. */
static inline void *ext_view_hold_owner(PyObject *profiler, bool is_kept)
{
    return EXT_FREE_THREADED && is_kept ? (void *)((uintptr_t)profiler | EXT_FREE_THREADED) : (void *)Py_NewRef(profiler);
}

/* The slow half of ext_view_get. NULL, without an exception, when the view cannot be had: then nothing is measured. */
ext_view *ext_view_refresh(ext_state *state, cprof_thread *thread);

/* Whether nothing was switched since the view was looked up. */
static inline bool ext_view_is_current(const ext_view *view, PyThreadState *tstate)
{
    return view->version == ext_compat_context_version(tstate) && view->tstate_id == tstate->id;
}

/* The calling thread's view, up to date; `tstate` is the thread state that runs. NULL as above. A pending exception is kept. */
static inline ext_view *ext_view_get_in(PyThreadState *tstate, ext_state *state, cprof_thread *thread)
{
    ext_view *view = thread->binding;
    if (__builtin_expect(view != NULL && view->state_serial == state->serial && ext_view_is_current(view, tstate), 1)) {
        return view;
    }
    return ext_view_refresh(state, thread);
}

/* As ext_view_get_in(), of the thread state that runs. */
static inline ext_view *ext_view_get(ext_state *state, cprof_thread *thread)
{
    return ext_view_get_in(PyThreadState_Get(), state, thread);
}

/* Brings a view up to date after user code ran: it may have switched tasks and come back; `tstate` as above. False, without an
 * exception, when that cannot be done. */
static inline bool ext_view_renew_in(PyThreadState *tstate, ext_view *view)
{
    return __builtin_expect(ext_view_is_current(view, tstate), 1) || ext_view_refresh(view->state, view->thread) != NULL;
}

/* As ext_view_renew_in(), of the thread state that runs. */
static inline bool ext_view_renew(ext_view *view)
{
    return ext_view_renew_in(PyThreadState_Get(), view);
}

/* The chain of this view that `span` is open in: mostly the current one; else that of a task that is not running; else NULL. */
cprof_chain *ext_view_chain_of(ext_view *view, const cprof_span *span);

/* Puts `item` in force in the current context, and takes it off again, in EXT_ALONE() of the state's guard: see context.h.
 * False with an exception. */
bool ext_view_push(ext_state *state, PyObject *variable, PyObject *item, PyObject **entries);
bool ext_view_pop(ext_state *state, PyObject *variable, PyObject *entries, PyObject *what);

/* Takes the spans from *top down to `base` out of a chain that nobody will use any more: blocks may still be left, the rest is
 * given up. */
void ext_view_drop_spans(cprof_span **top, cprof_span *base);

/* Whether a block that a plain generator has opened is open while that is suspended, or no more. */
bool ext_view_is_away(const ext_view *view, const cprof_span *block);

/* The innermost open span that is around what runs now, from `span` (or NULL) outwards. A block in a suspended plain generator
 * is not. */
static inline cprof_span *ext_view_around(const ext_view *view, cprof_span *span)
{
    while (span != NULL && __builtin_expect(span->place != NULL, 0) && span->opener != NULL && ext_view_is_away(view, span)) {
        span = cprof_span_around(span);
    }
    return span;
}

/* Forgets a parked chain after its last span was closed from outside. */
void ext_view_forget_idle(ext_view *view, cprof_chain *chain);

/* Puts a pending call in force while the wrapper around it runs, and ends that. */
void ext_view_push_pending(ext_view *view, ext_pending *pending);
void ext_view_pop_pending(ext_view *view, ext_pending *pending);

#endif
