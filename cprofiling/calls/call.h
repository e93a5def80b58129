/* The way of one call: it is opened on a chain, measured, counted, recorded, and closed; suspendable ones in steps.
 *
 * A chain is used by one thread at a time; no function here takes a lock but the accumulator's.
 */
#ifndef CPROF_CALL_H
#define CPROF_CALL_H

#include "cprofiling/calls/probe.h"
#include "cprofiling/nodes/span.h"

/* Whether a registry's word asks for times, and for nothing else. */
static inline bool cprof_call_is_usual(uint64_t state)
{
    return (state & (CPROF_FLAG_ALL & ~(CPROF_FLAG_STATS | CPROF_FLAG_TRACE))) == 0 && (state & CPROF_FLAG_ALL) != 0;
}

/* Opens a span on top of the chain; the clock is read last of all. `accum` NULL: the span only names an owner for what runs
 * inside it. NULL without memory: then nothing was opened. */
cprof_span *cprof_call_open(cprof_thread *thread, cprof_chain *chain, cprof_accum *accum, uint64_t state, void *owner,
                            const void *tag);

/* Closes a span: the clock is read first of all; the call is counted, and the span given to the thread. `may_suspend` (a block
 * of a coroutine): its active time is not known if the chain's moment has changed. A span near the top is taken out of the
 * middle: it, the spans above it and its parent have no known self time. Elsewhere, in whichever chain, it and its parent have
 * none, and an empty span stays in its place until that chain is trimmed. */
void cprof_call_close(cprof_thread *thread, cprof_chain *chain, cprof_span *span, cprof_outcome outcome, bool may_suspend);

/* Makes the chain's innermost span the parent of one that is open, and this the innermost. */
static inline void cprof_call_put_on_top(cprof_chain *chain, cprof_span *span)
{
    cprof_span *parent = cprof_chain_top(chain);
    cprof_span_set_parent(span, parent, parent != NULL ? cprof_span_serial(parent) : 0);
    chain->top = span;
}

/* Puts an open span on top of the chain, without clock and recording. Of no accumulator and with state 0 it only names an owner
 * for what runs inside it. NULL without memory. */
static inline cprof_span *cprof_call_put(cprof_thread *thread, cprof_chain *chain, cprof_accum *accum, uint64_t state,
                                         void *owner, const void *tag)
{
    cprof_span *span = cprof_span_take(thread);
    if (__builtin_expect(span == NULL, 0)) {
        return NULL;
    }
    span->state = state;
    span->accum = accum;
    cprof_span_set_nested_ns(span, 0);
    span->moment = chain->moment;
    span->owner = owner;
    span->tag = tag;
    span->place = NULL;
    cprof_call_put_on_top(chain, span);
    return span;
}

/* Closes a span that only names an owner, unless nodes that ended inside are to be told to one around it, or it is not the
 * chain's top: then false.
 */
static inline bool cprof_call_close_owner(cprof_thread *thread, cprof_chain *chain, cprof_span *span)
{
    bool is_simple = chain->top == span && chain->base != span && (span->parent == NULL || cprof_span_nested_ns(span) == 0);
    if (__builtin_expect(is_simple, 1)) {
        chain->top = span->parent;
        cprof_span_give(thread, span);
    }
    return is_simple;
}

/* Takes closed spans off the top of the chain. */
void cprof_call_trim(cprof_thread *thread, cprof_chain *chain);

/* Takes an open span of a chain that nobody will use any more out of that: it may still be closed, without self time. */
void cprof_call_detach(cprof_span *span);

/* Gives up an open span that nobody will close, in a chain or detached: it is not counted. */
void cprof_call_abandon(cprof_span *span);

/* Takes an open span of the abandoned chain of an ended thread: not counted, and free for all threads. */
void cprof_call_discard(cprof_span *span);

/* Begins a suspendable call, and its first step, on top of the chain. False without memory: then nothing was begun. */
bool cprof_call_resumable_begin(cprof_resumable *call, cprof_thread *thread, cprof_chain *chain, cprof_accum *accum,
                                uint64_t state, void *owner);

/* Begins a probe for a call that was just begun. */
void cprof_call_resumable_begin_probe(cprof_resumable *call, cprof_thread *thread, cprof_probe *probe);

/* Takes the call's spans off the chain: inside a step, or, with `step_ends`, between two. */
void cprof_call_resumable_suspend(cprof_resumable *call, cprof_chain *chain, bool step_ends);

/* Puts the call's spans back on top of the chain; after the end of a step this begins the next. */
void cprof_call_resumable_continue(cprof_resumable *call, cprof_chain *chain);

/* Ends a call that was begun or continued last, and counts it. */
void cprof_call_resumable_end(cprof_resumable *call, cprof_thread *thread, cprof_chain *chain, cprof_outcome outcome);

/* Ends a call that is suspended and will never be continued, and counts it. The time since its suspension is no part of it. */
void cprof_call_resumable_abandon(cprof_resumable *call, cprof_thread *thread, cprof_outcome outcome);

#endif
