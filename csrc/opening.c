#include "csrc/opening.h"

#include "csrc/probe.h"
#include "csrc/recorder.h"
#include "csrc/shape.h"
#include "csrc/suspendable.h"
#include "csrc/sync.h"

/* The Python frame that enters or leaves: the same object both times, as long as the frame runs. Compared only. */
static const void *entering_frame(void)
{
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    Py_XDECREF(frame);
    return frame;
}

/* Whether other openings may be mistaken for a new one: on the same chain, where each may belong to another generator, or
 * inside a suspended call that will come back to this chain. */
static bool needs_place(const ext_opening *self, const ext_view *view)
{
    return self->open > 0 && (view->state->holding != NULL || cprof_chain_find(&view->chain, self) != NULL);
}

static cprof_span *open_here(ext_opening *self, ext_view *view, const ext_target *target)
{
    if (!ext_view_renew(view)) {
        return NULL;
    }
    bool placed = needs_place(self, view);
    cprof_span *span = cprof_span_open(view->thread, &view->chain, target->accum, target->state, target->profiler, self);
    if (span != NULL && placed) {
        span->place = entering_frame();
    }
    return span;
}

/* Whether other tasks may run in the thread while the block is open: it is in one, and no call is around it that stands still
 * with it. What they launch, and tell tools, would be taken for the block's. */
static bool others_may_run(const ext_view *view)
{
    if (view->task == view->base_task) {
        return false;
    }
    const cprof_span *span = view->chain.top;
    while (span != view->chain.base && cprof_resumable_of(span) == NULL) {
        span = span->parent;
    }
    return span == view->chain.base;
}

/* With all that is asked for beyond times. */
static __attribute__((noinline)) cprof_span *open_carefully(ext_opening *self, ext_view *view, const ext_target *target,
                                                            PyObject *arguments)
{
    struct cprof_trace_detail detail;
    bool described = (target->state & CPROF_FLAG_DETAIL) != 0;
    if (described) {
        ext_recorder_describe(view, NULL, 0, NULL, &detail);
    }
    cprof_probe *probe = ext_probe_prepare(view->state, NULL, target, NULL, 0, NULL);
    if (probe != NULL && arguments != NULL && (target->state & CPROF_FLAG_SHAPES) != 0) {
        ext_shape_look(view->state, probe, PySequence_Fast_ITEMS(arguments), (size_t)PyTuple_GET_SIZE(arguments));
    }
    if (probe != NULL && others_may_run(view)) {
        cprof_probe_leave_out(probe, CPROF_FLAG_LAUNCHES | (probe->captures ? 0U : CPROF_FLAG_NVTX));
    }
    ext_probe_wait(view->state, probe, (target->state & CPROF_FLAG_SYNC) != 0 ? EXT_SYNC_CURRENT : EXT_SYNC_NONE);
    cprof_span *span = open_here(self, view, target);
    if (span == NULL) {
        ext_probe_drop(probe);
        return NULL;
    }
    if (described) {
        cprof_trace_begin_detail(span, &detail);
    }
    if (probe != NULL) {
        cprof_probe_begin(probe, view->thread, span);
    }
    return span;
}

cprof_span *ext_opening_put_span(ext_opening *self, ext_view *view, const ext_target *target, PyObject *arguments)
{
    if (__builtin_expect((target->state & (CPROF_FLAG_PROBED | CPROF_FLAG_DETAIL)) != 0, 0)) {
        return open_carefully(self, view, target, arguments);
    }
    return open_here(self, view, target);
}

static void enter_idle(ext_opening *self)
{
    const void *here = ext_opening_this_thread();
    self->idle_thread = self->idle++ == 0 || self->idle_thread == here ? here : NULL;
    self->quick_thread = self->open == 0 ? self->idle_thread : NULL;
}

void ext_opening_enter_slowly(ext_opening *self, ext_state *state, ext_opener opener, PyObject *arguments)
{
    bool is_off = (atomic_load_explicit(self->gate, memory_order_relaxed) & CPROF_FLAG_ALL) == 0;
    if (is_off && self->open == 0) {
        enter_idle(self);
        return;
    }
    cprof_thread *thread = cprof_thread_self != NULL ? cprof_thread_self : cprof_thread_get();
    ext_view *view = thread != NULL ? ext_view_get(state, thread) : NULL;
    if (view != NULL && opener(self, view, arguments) != NULL) {
        self->open++;
        self->quick_thread = NULL;
    } else {
        enter_idle(self);
    }
}

static cprof_outcome outcome_of(const ext_state *state, PyObject *const *args, Py_ssize_t nargs)
{
    if (__builtin_expect(nargs == 0 || args[0] == Py_None, 1)) {
        return CPROF_OUTCOME_SUCCESS;
    }
    return ext_function_outcome_of(state, args[0]);
}

/* What goes before a span is closed: waiting for the device, and the end of what is asked for beyond times. */
static void before_close(ext_state *state, cprof_span *span, cprof_outcome outcome)
{
    uint64_t serial = span->serial;
    if ((span->state & CPROF_FLAG_SYNC) != 0 && outcome == CPROF_OUTCOME_SUCCESS) {
        ext_probe_wait(state, span->probe, EXT_SYNC_CURRENT);
    }
    if (span->serial == serial) {
        ext_probe_end(state, span);
    }
    ext_recorder_end_detail(state, span);
}

/* The chain of an open span after code of the user's ran: it may have been switched away and back. */
static cprof_chain *chain_now(ext_view *view, const cprof_span *span)
{
    (void)ext_view_renew(view);
    cprof_chain *chain = ext_view_chain_of(view, span);
    return chain != NULL ? chain : &view->chain;
}

static bool close_span(ext_opening *self, ext_view *view, cprof_chain *chain, cprof_span *span, cprof_outcome outcome)
{
    /* In the thread's outermost context nothing is suspended while the thread runs. */
    bool may_suspend = view->task != view->base_task;
    if (__builtin_expect((span->state & (CPROF_FLAG_PROBED | CPROF_FLAG_DETAIL)) != 0, 0)) {
        uint64_t serial = span->serial;
        before_close(view->state, span, outcome);
        if (span->serial != serial) {
            return true; /* it was left meanwhile, by code that ran for us */
        }
        chain = chain_now(view, span);
    }
    PyObject *owner = span->owner;
    cprof_span_close(view->thread, chain, span, outcome, may_suspend);
    ext_view_forget_idle(view, chain);
    self->open--;
    Py_XDECREF(owner);
    cprof_probe_settle();
    return true;
}

/* Whether this thread may have an entry without a span. */
static bool has_idle(const ext_opening *self)
{
    return self->idle > 0 && (self->idle_thread == NULL || self->idle_thread == ext_opening_this_thread());
}

static bool leave_idle(ext_opening *self)
{
    if (!has_idle(self)) {
        return false;
    }
    self->idle--;
    return true;
}

/* The opening on the current chain that is to be closed. NULL: there is none. */
static cprof_span *find_current(const ext_opening *self, const ext_view *view)
{
    cprof_span *span = cprof_chain_find(&view->chain, self);
    bool several = span != NULL && self->open > 1 && cprof_chain_next(&view->chain, span) != NULL;
    return several ? cprof_chain_find_at(&view->chain, self, entering_frame()) : span;
}

static bool close_inside(ext_opening *self, ext_view *view, ext_suspendable *holder, cprof_span *span, cprof_outcome outcome)
{
    PyObject *owner = span->owner;
    cprof_resumable_close(&holder->call, view->thread, span, outcome);
    self->open--;
    Py_XDECREF(owner);
    cprof_probe_settle();
    return true;
}

/* Leaves an opening that is not on the current chain: one of this thread without a span; else one of another task, whose
 * coroutine is being collected, or one inside a suspended call, made there by a generator that now goes on outside. */
static bool exit_elsewhere(ext_opening *self, ext_view *view, cprof_outcome outcome)
{
    if (has_idle(self)) {
        return leave_idle(self);
    }
    cprof_chain *chain;
    ext_suspendable *holder;
    const void *frame = entering_frame();
    cprof_span *parked = ext_view_find(view, self, frame, &chain);
    cprof_span *inside = ext_suspendable_find_inside(view->state, self, frame, &holder);
    if (parked != NULL && cprof_span_fit(parked, frame) >= cprof_span_fit(inside, frame)) {
        return close_span(self, view, chain, parked, outcome);
    }
    return inside != NULL ? close_inside(self, view, holder, inside, outcome) : leave_idle(self);
}

bool ext_opening_exit_slowly(ext_opening *self, ext_state *state, PyObject *const *args, Py_ssize_t nargs)
{
    if (self->open == 0) {
        return leave_idle(self);
    }
    cprof_thread *thread = cprof_thread_self != NULL ? cprof_thread_self : cprof_thread_get();
    ext_view *view = thread != NULL ? ext_view_get(state, thread) : NULL;
    if (view == NULL) {
        return leave_idle(self);
    }
    cprof_span *span = find_current(self, view);
    cprof_outcome outcome = outcome_of(state, args, nargs);
    if (__builtin_expect(span == NULL, 0)) {
        return exit_elsewhere(self, view, outcome);
    }
    return close_span(self, view, &view->chain, span, outcome);
}
