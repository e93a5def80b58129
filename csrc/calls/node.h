/* The common part of wrapped functions and blocks: the Profiler, name and stage of a call, and where it is counted. */
#ifndef EXT_NODE_H
#define EXT_NODE_H

#include "csrc/calls/key.h"
#include "csrc/calls/pipeline.h"
#include "csrc/calls/view.h"

#include "cprofiling/trace/recording.h"

/* Asking for the name of an instance. On the heap, as a C stack may be moved away under a greenlet. */
typedef struct ext_asking {
    struct ext_asking *outer;
    const PyObject *instance;    /* compared only */
    const PyThreadState *thread; /* likewise */
    bool is_endless;             /* it calls the node for the instance again and again */
} ext_asking;

typedef struct {
    ext_state *state;                          /* held */
    ext_profiler *profiler;                    /* owned; NULL: found at each call */
    PyObject *stage;                           /* str, owned; NULL: the one in force */
    PyObject *name_finder;                     /* callable(first argument) -> name; NULL: always key.name. Owned */
    ext_key key;                               /* its name may be NULL for a block: then it cannot be entered */
    ext_key passing_key;                       /* of the last instance that cannot be told again; with a name_finder */
    ext_ptrmap instance_keys;                  /* instance (borrowed) -> ext_instance_key; with a name_finder */
    ext_asking *asking;                        /* by all threads; with a name_finder */
    const PyTypeObject *EXT_SHARED other_type; /* of a first argument that was no pipeline lately; compared only, */
    EXT_SHARED unsigned other_version;         /* and what it was then: see ext_compat_type_version() */
    const PyObject *pipeline;                  /* a first argument that was one; compared only. See also ext_view */
    ext_profiler *pipeline_profiler;           /* its own: borrowed, while there are as many */
    size_t pipeline_changes;                   /* in state->pipelines */
    bool is_record;                            /* a record(): no Profiler counts it; its own is that of all such */
    bool mutes;                                /* one inside which nothing is recorded */
} ext_node;

/* Where a call is counted. */
typedef struct {
    ext_profiler *profiler; /* owned by whoever resolved: user code may run before the call begins */
    cprof_accum *accum;     /* borrowed; lives as long as the Profiler */
    uint64_t state;         /* the registry's word as read at entry */
    ext_label_number label; /* of a record(), which has no accumulator */
    bool mutes;             /* a record() inside which nothing is recorded */
} ext_target;

/* Fills a zeroed node. `name`: a str, a callable of one argument, or None for `default_name`; that is a str, or None for a node
 * that has no name. `stage` and `profiler` may be None. False with an exception naming the parameter. */
bool ext_node_init(ext_node *node, ext_state *state, PyObject *name, PyObject *default_name, PyObject *stage,
                   PyObject *profiler);

/* Fills a zeroed node that counts as `of` for a call with this first argument, or NULL. False with an exception. */
bool ext_node_init_bound(ext_node *node, ext_node *of, PyObject *first);

/* The node's part of its owner's tp_traverse and tp_dealloc. */
int ext_node_traverse(ext_node *node, visitproc visit, void *arg);
void ext_node_clear(ext_node *node);

/* The word that is 0 (in its flags) while no call of the node can be counted. */
const _Atomic uint64_t *ext_node_gate(const ext_node *node);

/* The Profiler of a pipeline that a call of this view has as its first argument, mostly that of the call before: borrowed.
 * NULL: it was never asked for, or this is no pipeline. */
#if EXT_FREE_THREADED
static inline ext_profiler *ext_node_pipeline_profiler(ext_node *node, ext_view *view, PyObject *first)
{
    const ext_ptrmap *pipelines = &node->state->pipelines;
    if (pipelines->count == 0) {
        return NULL;
    }
    if (view->pipeline != first || view->pipeline_changes != pipelines->changes) {
        const ext_pipeline *pair;
        EXT_ALONE(node->state->guard, {
            pair = ext_ptrmap_get(pipelines, first);
            view->pipeline = first;
            view->pipeline_profiler = pair != NULL ? pair->profiler : NULL;
            view->pipeline_changes = pipelines->changes;
        });
    }
    return view->pipeline_profiler;
}
#else
static inline ext_profiler *ext_node_pipeline_profiler(ext_node *node, const ext_view *view, PyObject *first)
{
    (void)view;
    const ext_ptrmap *pipelines = &node->state->pipelines;
    if (__builtin_expect(node->pipeline != first || node->pipeline_changes != pipelines->changes, 0)) {
        const ext_pipeline *pair = ext_ptrmap_get(pipelines, first);
        if (pair == NULL) {
            return NULL;
        }
        node->pipeline = first;
        node->pipeline_profiler = pair->profiler;
        node->pipeline_changes = pipelines->changes;
    }
    return node->pipeline_profiler;
}
#endif

/* Whether a span names the Profiler of what runs inside. Markers of blocks entered while off do not, nor do calls that are only
 * recorded or captured: who does that must not change who counts. */
static inline bool ext_node_names_owner(const cprof_span *span)
{
    return span->owner != NULL && ((cprof_span_state(span) & CPROF_FLAG_STATS) != 0 ||
                                   (cprof_span_state(span) & (CPROF_FLAG_TRACE | CPROF_FLAG_NVTX | CPROF_FLAG_CAPTURE)) == 0);
}

/* The slow half of the next: an argument of a type not met lately, or spans that name nobody. */
ext_profiler *ext_node_find_profiler_slow(ext_node *node, ext_view *view, PyObject *first);

/* The Profiler of a call: borrowed, or NULL when nobody's. `first` is the first positional argument, or NULL. */
static inline ext_profiler *ext_node_find_profiler(ext_node *node, ext_view *view, PyObject *first)
{
    if (node->profiler != NULL) {
        return node->profiler;
    }
    if (first != NULL) {
        ext_profiler *own = ext_node_pipeline_profiler(node, view, first); /* also of one that was given another class */
        if (own != NULL) {
            return own;
        }
        if (Py_TYPE(first) != node->other_type || ext_compat_type_version(Py_TYPE(first)) != node->other_version) {
            return ext_node_find_profiler_slow(node, view, first);
        }
    }
    const cprof_span *top = cprof_chain_top(&view->chain);
    if (top == NULL) {
        return (ext_profiler *)(view->bound != NULL ? view->bound : node->state->default_profiler);
    }
    bool is_usual = top->place == NULL && ext_node_names_owner(top);
    return __builtin_expect(is_usual, 1) ? (ext_profiler *)ext_view_owner(top) : ext_node_find_profiler_slow(node, view, NULL);
}

/* The slow half of ext_node_resolve: a key not met lately, or a name to be asked for. The view is up to date afterwards. */
bool ext_node_resolve_slow(ext_node *node, ext_view *view, PyObject *stage, PyObject *first, ext_target *target);

/* What a record() sets in its span when it is open. */
static inline void ext_node_mark_record(cprof_span *span, const ext_target *target)
{
    cprof_recording_set_label(span, target->label.serial, target->label.label);
    if (target->mutes) {
        cprof_recording_mute(span);
    }
}

/* Opens a span for a call, last of all that is done before it. NULL without memory. */
static inline cprof_span *ext_node_open_span(ext_view *view, const ext_target *target, const void *tag)
{
    cprof_span *span = cprof_call_open(view->thread, &view->chain, target->accum, target->state, target->profiler, tag);
    if (__builtin_expect(target->label.label != 0, 0) && span != NULL) {
        ext_node_mark_record(span, target);
    }
    return span;
}

/* The stage of a call that begins now; borrowed. */
static inline PyObject *ext_node_stage(const ext_node *node, const ext_view *view)
{
    return node->stage != NULL ? node->stage : view->stage != NULL ? view->stage : node->state->default_stage;
}

/* Decides what a call does. False: it is not counted, and there is nothing to let go of. Never leaves an exception. */
static inline bool ext_node_resolve(ext_node *node, ext_view *view, ext_profiler *profiler, PyObject *first, ext_target *target)
{
    if (profiler == NULL) {
        return false;
    }
    target->profiler = profiler;
    target->label.label = 0;
    target->mutes = node->mutes;
    target->state = cprof_registry_state(profiler->registry);
    if ((target->state & CPROF_FLAG_ALL) == 0) {
        return false;
    }
    PyObject *stage = ext_node_stage(node, view);
    target->accum = node->name_finder == NULL ? ext_key_known(&node->key, profiler, stage) : NULL;
    if (__builtin_expect(target->accum != NULL, 1)) {
        Py_INCREF(profiler);
        return true;
    }
    return ext_node_resolve_slow(node, view, stage, first, target);
}

#endif
