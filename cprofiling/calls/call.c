#include "cprofiling/calls/call.h"

#include "cprofiling/trace/recording.h"

#define UNKNOWN_NS INT64_MIN

enum { NEAR = 64 }; /* spans at the top of a chain among which one that is to be closed is looked for */

/* Whether its times are wanted: it is a node or a record(). */
static inline bool is_timed(const cprof_span *span)
{
    return (cprof_span_state(span) & (CPROF_FLAG_STATS | CPROF_FLAG_TRACE)) != 0;
}

/* Statistics know the span. They skip other spans, and give their children to the enclosing one. */
static inline bool is_counted(const cprof_span *span)
{
    return (cprof_span_state(span) & CPROF_FLAG_STATS) != 0;
}

cprof_span *cprof_call_open(cprof_thread *thread, cprof_chain *chain, cprof_accum *accum, uint64_t state, void *owner,
                            const void *tag)
{
    cprof_span *span = cprof_call_put(thread, chain, accum, state, owner, tag);
    if (__builtin_expect(span == NULL, 0)) {
        return NULL;
    }
    if (__builtin_expect((state & CPROF_FLAG_TRACE) != 0, 0)) {
        cprof_recording_open(thread, span, span->parent);
    }
    if (__builtin_expect(is_timed(span), 1)) {
        span->start = cprof_clock_read();
    }
    return span;
}

/* Adds time spent in a child to what the still open parent knows of its children. */
static inline void add_nested(cprof_span *child, cprof_ns nested_ns)
{
    cprof_span *parent = cprof_span_around(child);
    cprof_ns before_ns = parent != NULL ? cprof_span_nested_ns(parent) : -1;
    if (before_ns >= 0) {
        cprof_span_set_nested_ns(parent, nested_ns >= 0 ? before_ns + nested_ns : UNKNOWN_NS);
    }
}

/* Spans closed out of order overlap: no self time can be given for them, nor for the span around them. One that is not counted
 * passes on what its children took. */
static void forget_nested(cprof_span *span)
{
    if (!is_counted(span)) {
        add_nested(span, cprof_span_nested_ns(span));
        return;
    }
    cprof_span_set_nested_ns(span, UNKNOWN_NS);
    add_nested(span, UNKNOWN_NS);
}

/* The innermost span around this one that is counted, or the chain's base. */
static const cprof_span *counted_around(const cprof_chain *chain, const cprof_span *span)
{
    const cprof_span *around = span->parent;
    while (around != NULL && around != chain->base && !is_counted(around)) {
        around = around->parent;
    }
    return around;
}

/* The span above one of the chain's own that is near its top; NULL: it is not. */
static cprof_span *find_above(const cprof_chain *chain, const cprof_span *span)
{
    cprof_span *above = span != chain->base ? chain->top : chain->base;
    for (int i = 0; i < NEAR && above != chain->base; i++) {
        if (above->parent == span) {
            return above;
        }
        above = above->parent;
    }
    return NULL;
}

static void take_out(cprof_chain *chain, cprof_span *span, cprof_span *above, cprof_ns charge_ns)
{
    bool overlaps = !is_counted(span);
    for (const cprof_span *at = chain->top; at != span; at = at->parent) {
        overlaps = overlaps || is_counted(at);
    }
    if (overlaps) {
        forget_nested(span);
        for (cprof_span *over = chain->top; is_counted(span) && over != span; over = over->parent) {
            cprof_span_set_nested_ns(over, UNKNOWN_NS);
        }
    } else {
        /* To statistics it is the top also when those above it are not counted; what these know of children is its own. */
        for (cprof_span *over = chain->top; over != span; over = over->parent) {
            cprof_ns own_ns = cprof_span_nested_ns(span), over_ns = cprof_span_nested_ns(over);
            cprof_span_set_nested_ns(span, own_ns >= 0 && over_ns >= 0 ? own_ns + over_ns : UNKNOWN_NS);
            cprof_span_set_nested_ns(over, 0);
        }
        add_nested(span, charge_ns);
    }
    cprof_span_set_parent(above, span->parent, span->parent_serial);
}

/* Leaves a closed span where it is, as a mark without a meaning: to statistics and recordings it is not there. The state goes
 * last: from then on the thread of the chain may take it for another call. */
static void mark_left(cprof_span *span)
{
    span->accum = NULL;
    cprof_span_set_nested_ns(span, 0);
    span->owner = NULL;
    cprof_span_set_tag(span, NULL);
    span->opener = NULL;
    __atomic_store_n(&span->state, CPROF_FLAG_LEFT, __ATOMIC_RELEASE);
}

/* Counts a call that is told apart by its arguments. Without a probe there was no memory. */
static __attribute__((noinline)) bool count_shaped(const cprof_span *span, cprof_outcome outcome, const cprof_sample *sample)
{
    cprof_name signature = span->probe != NULL ? span->probe->signature : cprof_name_of(CPROF_SHAPES_REST);
    return cprof_accum_finish_shaped(span->accum, span->state >> CPROF_STATE_GENERATION_SHIFT, outcome, sample, signature);
}

/* Counts a call. Whether it is a sample. */
static inline bool count(cprof_span *span, cprof_ticks stop, cprof_outcome outcome, cprof_ns elapsed_ns, cprof_ns suspended_ns)
{
    cprof_sample sample = {.elapsed_ns = elapsed_ns, .nested_ns = cprof_span_nested_ns(span), .suspended_ns = suspended_ns};
#if CPROF_STRIPES > 1
    sample.stop = stop;
#else
    (void)stop;
#endif
    if (__builtin_expect(sample.nested_ns > elapsed_ns, 0)) {
        sample.nested_ns = elapsed_ns; /* the clock's rate was refined in between */
    }
    if (__builtin_expect((span->state & (CPROF_FLAG_STATS | CPROF_FLAG_SHAPES)) != CPROF_FLAG_STATS, 0)) {
        return is_counted(span) && count_shaped(span, outcome, &sample);
    }
    return cprof_accum_finish(span->accum, span->state >> CPROF_STATE_GENERATION_SHIFT, outcome, &sample);
}

static __attribute__((noinline)) void finish_probe(cprof_span *span, bool is_sample, bool was_switched)
{
    cprof_probe *probe = span->probe;
    span->probe = NULL;
    if (probe != NULL) {
        cprof_probe_finish(probe, is_sample, was_switched);
    }
}

/* When the call ended; read before any other figure. */
static inline cprof_ticks stop_of(const cprof_span *span, cprof_ticks now)
{
    bool stopped = __builtin_expect((span->state & CPROF_FLAG_PROBED) != 0, 0) && span->probe != NULL && span->probe->stopped;
    return stopped ? span->probe->stop : now;
}

/* What goes into the parent's time in children. */
static inline cprof_ns charge_of_span(const cprof_chain *chain, const cprof_span *span, cprof_ns elapsed_ns, bool switched)
{
    if (__builtin_expect(!is_counted(span), 0)) {
        return cprof_span_nested_ns(span);
    }
    /* An inherited parent may have run other lines of execution: their times overlap. */
    return __builtin_expect(switched, 0) && counted_around(chain, span) == chain->base ? UNKNOWN_NS : elapsed_ns;
}

/* Counts a span that is off its chain, or will be left in it. */
static inline void finish(cprof_thread *thread, cprof_span *span, cprof_ticks stop, cprof_ns elapsed_ns, cprof_outcome outcome,
                          bool was_switched)
{
    bool is_sample = count(span, stop, outcome, elapsed_ns, __builtin_expect(was_switched, 0) ? UNKNOWN_NS : 0);
    if (__builtin_expect((span->state & (CPROF_FLAG_TRACE | CPROF_FLAG_PROBED)) != 0, 0)) {
        if (span->trace != 0) {
            cprof_recording_close(thread, span, stop, 0, outcome, was_switched);
        }
        finish_probe(span, is_sample, was_switched);
    }
}

/* Closes a span that is not the top of the chain, or that the chain has only inherited. */
static __attribute__((noinline)) void close_below(cprof_thread *thread, cprof_chain *chain, cprof_span *span,
                                                  cprof_outcome outcome, bool may_suspend)
{
    cprof_ticks stop = stop_of(span, cprof_clock_read());
    bool is_detached = (cprof_span_state(span) & CPROF_FLAG_DETACHED) != 0;
    cprof_span *above = is_detached ? NULL : find_above(chain, span);
    cprof_ns elapsed_ns = is_timed(span) ? cprof_clock_between(span->start, stop) : 0;
    bool switched = above == NULL || (span->moment != chain->moment && may_suspend);
    if (above != NULL) {
        take_out(chain, span, above, charge_of_span(chain, span, elapsed_ns, span->moment != chain->moment));
    } else {
        forget_nested(span);
    }
    if (is_timed(span)) {
        finish(thread, span, stop, elapsed_ns, outcome, switched);
    } else {
        finish_probe(span, false, true);
    }
    if (above != NULL) {
        cprof_span_give(thread, span);
    } else if (is_detached) {
        cprof_span_give(NULL, span);
    } else {
        mark_left(span);
    }
}

void cprof_call_close(cprof_thread *thread, cprof_chain *chain, cprof_span *span, cprof_outcome outcome, bool may_suspend)
{
    if (__builtin_expect(chain->top != span || chain->base == span, 0)) {
        close_below(thread, chain, span, outcome, may_suspend);
        return;
    }
    if (__builtin_expect(!is_timed(span), 0)) {
        chain->top = span->parent;
        add_nested(span, cprof_span_nested_ns(span));
        finish_probe(span, false, true);
        cprof_span_give(thread, span);
        return;
    }
    cprof_ticks stop = stop_of(span, cprof_clock_read());
    cprof_ns elapsed_ns = cprof_clock_between(span->start, stop);
    bool switched = span->moment != chain->moment;
    cprof_ns charge_ns = charge_of_span(chain, span, elapsed_ns, switched);
    chain->top = span->parent;
    add_nested(span, charge_ns);
    finish(thread, span, stop, elapsed_ns, outcome, switched && may_suspend);
    cprof_span_give(thread, span);
}

void cprof_call_trim(cprof_thread *thread, cprof_chain *chain)
{
    cprof_span *span = cprof_chain_top(chain);
    while (span != chain->base && cprof_span_is_left(span)) {
        chain->top = span->parent;
        add_nested(span, cprof_span_nested_ns(span));
        cprof_span_give(thread, span);
        span = chain->top;
    }
}

void cprof_call_discard(cprof_span *span)
{
    finish_probe(span, false, true);
    cprof_recording_discard(span);
    cprof_span_give(NULL, span);
}

void cprof_call_detach(cprof_span *span)
{
    forget_nested(span);
    cprof_span_set_parent(span, NULL, 0);
    __atomic_store_n(&span->state, span->state | CPROF_FLAG_DETACHED, __ATOMIC_RELEASE);
}

void cprof_call_abandon(cprof_span *span)
{
    if ((cprof_span_state(span) & CPROF_FLAG_DETACHED) != 0) {
        cprof_call_discard(span);
        return;
    }
    finish_probe(span, false, true);
    cprof_recording_discard(span);
    forget_nested(span);
    mark_left(span);
}

static bool parent_is_own(const cprof_chain *chain, const cprof_span *span)
{
    const cprof_span *around = counted_around(chain, span);
    return around != NULL && around != chain->base;
}

bool cprof_call_resumable_begin(cprof_resumable *call, cprof_thread *thread, cprof_chain *chain, cprof_accum *accum,
                                uint64_t state, void *owner)
{
    cprof_span *span = cprof_call_open(thread, chain, accum, state | CPROF_FLAG_RESUMABLE, owner, call);
    if (span == NULL) {
        return false;
    }
    span->start = cprof_clock_read();
    *call = (cprof_resumable){
        .span = span,
        .home = thread,
        .step_start = span->start,
        .resumed = span->start,
        .own_parent = parent_is_own(chain, span),
    };
    return true;
}

void cprof_call_resumable_begin_probe(cprof_resumable *call, cprof_thread *thread, cprof_probe *probe)
{
    cprof_probe_begin(probe, thread, call->span);
    call->step_start = call->resumed = call->span->start;
}

/* What the parent of the moment is to be charged with at a pause: the resumption; or, when it waited along, all of the step
 * that it was not charged with yet. */
static cprof_ns charge_of(cprof_resumable *call)
{
    if (!call->own_parent) {
        return cprof_clock_between(call->resumed, call->paused);
    }
    cprof_ns charge_ns = cprof_clock_between(call->step_start, call->paused) - call->charged_ns;
    charge_ns = charge_ns > 0 ? charge_ns : 0; /* the clock's rate may have been refined in between */
    call->charged_ns += charge_ns;
    return charge_ns;
}

/* A span that is no node passes on what its children took. */
static void charge_parent(cprof_resumable *call)
{
    cprof_span *span = call->span;
    if (!is_counted(span)) {
        add_nested(span, cprof_span_nested_ns(span));
        cprof_span_set_nested_ns(span, 0);
    } else {
        add_nested(span, charge_of(call));
    }
}

static void pause_call(cprof_resumable *call, bool step_ends)
{
    call->paused = stop_of(call->span, cprof_clock_read());
    call->active += call->paused - call->resumed;
    call->between = step_ends;
    charge_parent(call);
}

static void continue_probes(const cprof_resumable *call, cprof_thread *thread)
{
    cprof_probe *outermost_first = NULL;
    for (cprof_span *span = call->inner; span != NULL; span = span != call->span ? span->parent : NULL) {
        if (span->probe != NULL) {
            span->probe->outer = outermost_first;
            outermost_first = span->probe;
        }
    }
    while (outermost_first != NULL) {
        cprof_probe *probe = outermost_first;
        outermost_first = probe->outer;
        cprof_probe_continue(probe, thread);
    }
}

static inline bool may_have_probes(const cprof_resumable *call, const cprof_span *inner)
{
    return __builtin_expect(inner != call->span || (call->span->state & CPROF_FLAG_PROBED) != 0, 0);
}

void cprof_call_resumable_suspend(cprof_resumable *call, cprof_chain *chain, bool step_ends)
{
    pause_call(call, step_ends);
    if (may_have_probes(call, chain->top)) {
        /* What is measured beyond the clock stands still while a call is suspended, also for the blocks that are open inside
         * it; the innermost first, and the last one to go on. */
        for (cprof_span *span = chain->top; span != NULL; span = span != call->span ? span->parent : NULL) {
            if (span->probe != NULL) {
                cprof_probe_pause(span->probe, step_ends);
            }
        }
    }
    call->inner = chain->top;
    chain->top = call->span->parent;
}

void cprof_call_resumable_continue(cprof_resumable *call, cprof_chain *chain)
{
    cprof_span *span = call->span;
    cprof_span *parent = span->parent;
    uint64_t parent_serial = span->parent_serial;
    cprof_call_put_on_top(chain, span);
    chain->top = call->inner;
    if (may_have_probes(call, call->inner) && cprof_thread_self != NULL) {
        continue_probes(call, cprof_thread_self);
    }
    call->resumed = cprof_clock_read();
    if (call->between) {
        call->outside += call->resumed - call->paused;
        call->step_start = call->resumed;
        call->charged_ns = 0;
        call->own_parent = parent_is_own(chain, span);
    } else if (span->parent != parent || span->parent_serial != parent_serial) {
        call->own_parent = false;
    }
}

/* Counts a call that is paused: it ended when it was paused last. */
static void count_resumable(cprof_resumable *call, cprof_thread *thread, cprof_outcome outcome, bool is_off_chain)
{
    cprof_span *span = call->span;
    call->span = NULL;
    cprof_ns elapsed_ns = cprof_clock_between(span->start + call->outside, call->paused);
    cprof_ns active_ns = cprof_clock_between(0, call->active);
    bool is_sample = count(span, call->paused, outcome, elapsed_ns, active_ns < elapsed_ns ? elapsed_ns - active_ns : 0);
    if (span->trace != 0) {
        cprof_recording_close(thread, span, call->paused, call->paused - span->start - call->active, outcome, true);
    }
    finish_probe(span, is_sample, false);
    if (is_off_chain) {
        /* A thread that ends what others begin would gather their spans for ever. */
        cprof_span_give(call->home == thread ? thread : NULL, span);
    } else {
        mark_left(span);
    }
}

void cprof_call_resumable_end(cprof_resumable *call, cprof_thread *thread, cprof_chain *chain, cprof_outcome outcome)
{
    pause_call(call, true);
    if (__builtin_expect(chain->top != call->span, 0)) {
        cprof_call_trim(thread, chain);
    }
    bool is_top = chain->top == call->span;
    cprof_span *above = __builtin_expect(is_top, 1) ? NULL : find_above(chain, call->span);
    if (is_top) {
        chain->top = call->span->parent;
    } else if (above != NULL) {
        take_out(chain, call->span, above, 0); /* the parent is charged already */
    } else {
        forget_nested(call->span);
    }
    count_resumable(call, thread, outcome, is_top || above != NULL);
}

void cprof_call_resumable_abandon(cprof_resumable *call, cprof_thread *thread, cprof_outcome outcome)
{
    if (call->span->probe != NULL) {
        cprof_probe_pause(call->span->probe, true);
    }
    count_resumable(call, thread, outcome, true);
}
