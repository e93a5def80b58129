/* Open calls: which node runs inside which. calls/call.h opens and closes them.
 *
 * A chain is the stack of open spans of a thread, task or greenlet; the layer above says which is current. Spans come from and
 * go to free lists of threads; their memory is never given back, so that a closed span is told by its serial number. A chain is
 * used by one thread at a time; no function here takes a lock but the accumulator's. A block may be closed by a thread that
 * does not use its chain, and at the same time: fields that both use then are read and written by the functions below. What
 * that thread tells a parent about its children may come too late, and reach the call that the parent's span is used for next:
 * that call's self time is off by it.
 */
#ifndef CPROF_SPAN_H
#define CPROF_SPAN_H

#include "cprofiling/nodes/registry.h"
#include "cprofiling/nodes/thread.h"

struct cprof_span {
    cprof_span *parent;     /* the enclosing span, or NULL; on a free list: the next */
    uint64_t parent_serial; /* parent->serial when it became the parent: another value means that it was closed */
    uint64_t serial;        /* raised whenever the span is closed */
    uint64_t state;         /* the registry's word as it was at entry; CPROF_FLAG_RESUMABLE may be added */
    cprof_accum *accum;     /* NULL: is no node, but names an owner only, or is a record() */
    cprof_ticks start;
    cprof_ns nested_ns; /* in children that have ended; negative: not known any more */
    uint64_t moment;    /* the chain's moment at entry */
    void *owner;        /* of the layer above, as is the tag: opaque here */
    const void *tag;
    /* Of a block, set by the layer above after opening, and opaque here; of other spans only the first means anything: */
    const void *place; /* NULL: it is no block */
    void *opener;
    cprof_span *same; /* others of one kind, and its neighbours among these */
    cprof_span *next;
    cprof_span **link;
    uint64_t trace; /* while it is recorded: its number in the recording, or CPROF_RECORDING_MUTED; else 0 */
    uint64_t trace_parent;
    uint64_t trace_root;
    struct cprof_recording_detail *detail; /* owned, or NULL */
    cprof_probe *probe;                    /* owned; NULL where nothing beyond the clock is asked for */
    uint32_t trace_serial;                 /* of the recording */
    uint32_t label;                        /* of a record(): its name in the recording; set by the layer above after opening */
};

typedef struct {
    cprof_span *top;  /* innermost open span, or NULL */
    cprof_span *base; /* the top taken over from an enclosing chain: not this chain's own; or NULL */
    uint64_t base_serial;
    uint64_t moment; /* changes whenever the thread may have run another line of execution */
} cprof_chain;

/* The state; whoever sees a new one sees all that was written to the span before it. */
static inline uint64_t cprof_span_state(const cprof_span *span)
{
    return __atomic_load_n(&span->state, __ATOMIC_ACQUIRE);
}

/* The serial number; for a comparison only. */
static inline uint64_t cprof_span_serial(const cprof_span *span)
{
    return __atomic_load_n(&span->serial, __ATOMIC_RELAXED);
}

/* Sets the parent, and the serial number by which it is told. */
static inline void cprof_span_set_parent(cprof_span *span, cprof_span *parent, uint64_t serial)
{
    __atomic_store_n(&span->parent, parent, __ATOMIC_RELAXED);
    __atomic_store_n(&span->parent_serial, serial, __ATOMIC_RELAXED);
}

/* The span around one, if it is still open, or NULL. */
static inline cprof_span *cprof_span_around(const cprof_span *span)
{
    cprof_span *parent = __atomic_load_n(&span->parent, __ATOMIC_RELAXED);
    uint64_t serial = __atomic_load_n(&span->parent_serial, __ATOMIC_RELAXED);
    return parent != NULL && cprof_span_serial(parent) == serial ? parent : NULL;
}

/* Its number in a recording; 0: none. */
static inline uint64_t cprof_span_trace(const cprof_span *span)
{
    return __atomic_load_n(&span->trace, __ATOMIC_RELAXED);
}

/* Sets the number. */
static inline void cprof_span_set_trace(cprof_span *span, uint64_t trace)
{
    __atomic_store_n(&span->trace, trace, __ATOMIC_RELAXED);
}

/* The serial number of that recording. */
static inline uint32_t cprof_span_trace_serial(const cprof_span *span)
{
    return __atomic_load_n(&span->trace_serial, __ATOMIC_RELAXED);
}

/* Time spent in children that have ended; negative: not known any more. */
static inline cprof_ns cprof_span_nested_ns(const cprof_span *span)
{
    return __atomic_load_n(&span->nested_ns, __ATOMIC_RELAXED);
}

/* Sets the time spent in children. */
static inline void cprof_span_set_nested_ns(cprof_span *span, cprof_ns nested_ns)
{
    __atomic_store_n(&span->nested_ns, nested_ns, __ATOMIC_RELAXED);
}

/* The tag; for a comparison only. */
static inline const void *cprof_span_tag(const cprof_span *span)
{
    return __atomic_load_n(&span->tag, __ATOMIC_RELAXED);
}

/* Sets the tag. */
static inline void cprof_span_set_tag(cprof_span *span, const void *tag)
{
    __atomic_store_n(&span->tag, tag, __ATOMIC_RELAXED);
}

/* What a suspendable call (coroutine, generator) keeps between two resumptions. All zero: not begun.
 *
 * It runs in steps: a coroutine in one, a generator in one for each value that it yields. Inside a step it may be suspended to
 * wait for others; that is part of its time. What passes between two steps is its consumer's time, and is no part of it. */
typedef struct {
    cprof_span *span;   /* owned while the call is unfinished */
    cprof_thread *home; /* the thread in which it began; compared only */
    cprof_span *inner;  /* the innermost span open inside it when it was suspended */
    cprof_ticks step_start;
    cprof_ticks resumed;
    cprof_ticks paused;
    cprof_ticks active;  /* ticks in which it ran */
    cprof_ticks outside; /* ticks between steps */
    cprof_ns charged_ns; /* of the step, to an own parent */
    bool between;        /* suspended between two steps */
    bool own_parent;     /* the step's parent is of its own chain, and waits along: it is charged for the whole step */
} cprof_resumable;

/* Begins a chain inside another: `inherited` (may be NULL) becomes the parent of its outermost spans. The moment stays as it
 * is. */
void cprof_chain_begin(cprof_chain *chain, cprof_span *inherited);

/* Forgets a base that was closed. For the next function only. */
void cprof_chain_cut_base(cprof_chain *chain);

/* The innermost open span, own or inherited, or NULL. */
static inline cprof_span *cprof_chain_top(cprof_chain *chain)
{
    if (__builtin_expect(chain->base != NULL && cprof_span_serial(chain->base) != chain->base_serial, 0)) {
        cprof_chain_cut_base(chain);
    }
    return chain->top;
}

/* Whether the chain has open spans of its own. */
static inline bool cprof_chain_busy(const cprof_chain *chain)
{
    return chain->top != chain->base;
}

/* The innermost span of the chain's own that has `tag`, or NULL. */
cprof_span *cprof_chain_find(const cprof_chain *chain, const void *tag);

/* Whether the span was closed, and only keeps its place in a chain. */
static inline bool cprof_span_is_left(const cprof_span *span)
{
    return (cprof_span_state(span) & CPROF_FLAG_LEFT) != 0;
}

/* The call that an open span is of; NULL: of none that is resumable. */
const cprof_resumable *cprof_resumable_of(const cprof_span *span);

/* How long an open call was suspended up to now, its consumer's time included. */
cprof_ticks cprof_resumable_suspended(const cprof_resumable *call, cprof_ticks now);

/* Puts spans on the thread's empty free list. False without memory. */
bool cprof_span_refill(cprof_thread *thread);

/* A span of the thread's free list; NULL without memory. Only its serial number means anything. */
static inline cprof_span *cprof_span_take(cprof_thread *thread)
{
    if (__builtin_expect(thread->free_spans == NULL, 0) && !cprof_span_refill(thread)) {
        return NULL;
    }
    cprof_span *span = thread->free_spans;
    thread->free_spans = span->parent;
    return span;
}

/* Gives a span to all threads, after its serial number was raised. */
void cprof_span_give_to_all(cprof_span *span);

/* Gives a span to the thread's free list, or, without a thread, to all threads. */
static inline void cprof_span_give(cprof_thread *thread, cprof_span *span)
{
    __atomic_store_n(&span->serial, span->serial + 1, __ATOMIC_RELAXED);
    if (__builtin_expect(thread != NULL, 1)) {
        span->parent = thread->free_spans;
        thread->free_spans = span;
    } else {
        cprof_span_give_to_all(span);
    }
}

/* Calls `visitor` for every span there is, open or not. Nobody may open or close spans meanwhile. */
void cprof_span_visit_all(void (*visitor)(void *context, cprof_span *span), void *context);

#endif
