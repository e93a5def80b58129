#include "cprofiling/nodes/span.h"

#include "cprofiling/base/alloc.h"

enum { SPANS_AT_ONCE = 32 };

/* Spans are made in lots, which stay where they are. */
typedef struct lot {
    struct lot *next;
    cprof_span spans[SPANS_AT_ONCE];
} lot;

static struct {
    cprof_lock lock; /* guards: */
    cprof_span *spans;
    lot *lots; /* of all spans there are */
} spare;

void cprof_chain_begin(cprof_chain *chain, cprof_span *inherited)
{
    chain->top = chain->base = inherited;
    chain->base_serial = inherited != NULL ? cprof_span_serial(inherited) : 0;
}

/* The base was closed; its memory may come back as any span, one of this chain's own included. */
void cprof_chain_cut_base(cprof_chain *chain)
{
    cprof_span **end = &chain->top;
    while (*end != chain->base) {
        end = &(*end)->parent;
    }
    *end = chain->base = NULL;
}

cprof_span *cprof_chain_find(const cprof_chain *chain, const void *tag)
{
    cprof_span *span = chain->top;
    while (span != chain->base && cprof_span_tag(span) != tag) {
        span = span->parent;
    }
    return span != chain->base ? span : NULL;
}

void cprof_span_give_to_all(cprof_span *span)
{
    cprof_lock_acquire(&spare.lock);
    span->parent = spare.spans;
    spare.spans = span;
    cprof_lock_release(&spare.lock);
}

/* At the end of a thread: touches nothing but the core's own memory. */
static void take_back(cprof_thread *thread)
{
    cprof_span *first = thread->free_spans;
    thread->free_spans = NULL;
    if (first == NULL) {
        return;
    }
    cprof_span *last = first; /* the list may be long: not under the lock */
    while (last->parent != NULL) {
        last = last->parent;
    }
    cprof_lock_acquire(&spare.lock);
    last->parent = spare.spans;
    spare.spans = first;
    cprof_lock_release(&spare.lock);
}

/* Cuts the list behind its `count`-th span, or at its end; returns what came behind. */
static cprof_span *cut_behind(cprof_span *list, int count)
{
    while (count > 1 && list->parent != NULL) {
        list = list->parent;
        count--;
    }
    cprof_span *rest = list->parent;
    list->parent = NULL;
    return rest;
}

bool cprof_span_refill(cprof_thread *thread)
{
    cprof_lock_acquire(&spare.lock);
    thread->free_spans = spare.spans;
    if (thread->free_spans != NULL) {
        spare.spans = cut_behind(thread->free_spans, SPANS_AT_ONCE);
    }
    cprof_lock_release(&spare.lock);
    thread->take_spans_back = take_back;
    if (thread->free_spans != NULL) {
        return true;
    }
    lot *made = cprof_alloc_zeroed(sizeof *made);
    if (made == NULL) {
        return false;
    }
    for (int i = 0; i + 1 < SPANS_AT_ONCE; i++) {
        made->spans[i].parent = &made->spans[i + 1];
    }
    thread->free_spans = made->spans;
    cprof_lock_acquire(&spare.lock);
    made->next = spare.lots;
    spare.lots = made;
    cprof_lock_release(&spare.lock);
    return true;
}

void cprof_span_visit_all(void (*visitor)(void *context, cprof_span *span), void *context)
{
    cprof_lock_acquire(&spare.lock);
    lot *at = spare.lots;
    cprof_lock_release(&spare.lock);
    for (; at != NULL; at = at->next) {
        for (int i = 0; i < SPANS_AT_ONCE; i++) {
            visitor(context, &at->spans[i]);
        }
    }
}

const cprof_resumable *cprof_resumable_of(const cprof_span *span)
{
    return (cprof_span_state(span) & CPROF_FLAG_RESUMABLE) != 0 ? span->tag : NULL;
}

cprof_ticks cprof_resumable_suspended(const cprof_resumable *call, cprof_ticks now)
{
    bool runs = call->paused == 0 || (int64_t)(call->resumed - call->paused) > 0;
    cprof_ticks active = call->active + (runs && (int64_t)(now - call->resumed) > 0 ? now - call->resumed : 0);
    cprof_ticks total = now - call->span->start;
    return (int64_t)(total - active) > 0 ? total - active : 0;
}
