#include "csrc/calls/opening.h"

#include "csrc/calls/outcome.h"
#include "csrc/calls/probing.h"
#include "csrc/probes/shape.h"
#include "csrc/probes/sync.h"

/* The place of the frame that runs: the same when it enters and when it leaves. A generator's or coroutine's frame may go on in
 * another thread or context, but when it has ended another may have its address: what tells it apart is its code. Another
 * frame's address means something in its own context only. */
static inline const void *place_of_frame(PyThreadState *tstate, const void *code_or_context)
{
    uintptr_t frame = (uintptr_t)ext_compat_frame(tstate);
    return (const void *)((frame ^ (uintptr_t)code_or_context * UINT64_C(0x9e3779b97f4a7c15)) | 1);
}

/* The code of a frame, to be compared only. */
static const void *code_of(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    Py_DECREF(code); /* the frame keeps it */
    return code;
}

/* Whether a with statement resumed the generator of this frame, as contextlib's decorators do: blocks open in the generator
 * then enclose the body of the statement. */
static bool is_of_with(PyFrameObject *frame)
{
    PyFrameObject *back = PyFrame_GetBack(frame);
    PyCodeObject *code = back != NULL ? PyFrame_GetCode(back) : NULL;
    bool is_enter = code != NULL && (PyUnicode_CompareWithASCIIString(code->co_name, "__enter__") == 0 ||
                                     PyUnicode_CompareWithASCIIString(code->co_name, "__aenter__") == 0);
    Py_XDECREF(code);
    Py_XDECREF(back);
    return is_enter;
}

/* Of a block that a plain generator opens: what finds that, as what its consumer calls while it is suspended is not
 * inside. Else NULL. Sets the code of the frame that runs. */
static __attribute__((noinline)) PyObject *find_generator(PyThreadState *tstate, const void **code)
{
    PyFrameObject *frame = PyThreadState_GetFrame(tstate);
    *code = frame != NULL ? code_of(frame) : NULL;
    PyObject *generator = frame != NULL ? ext_compat_frame_generator(frame) : NULL;
    PyObject *finder = NULL;
    if (generator != NULL && (PyGen_CheckExact(generator) || PyAsyncGen_CheckExact(generator)) && !is_of_with(frame)) {
        finder = ext_compat_generator_finder(frame, generator);
        if (finder == NULL) {
            PyErr_Clear(); /* of the want of memory */
        }
    }
    Py_XDECREF(generator);
    Py_XDECREF(frame);
    return finder;
}

/* ---- The spans that are open */

static void put_in_places(ext_opening *self, cprof_span *span)
{
    span->same = ext_ptrmap_take(&self->places, span->place);
    if (!ext_ptrmap_add(&self->places, span->place, span)) {
        span->same = NULL; /* without memory it is found otherwise */
    }
}

static __attribute__((noinline)) void take_out_of_places(ext_opening *self, cprof_span *span)
{
    cprof_span *first = ext_ptrmap_take(&self->places, span->place);
    cprof_span **at = &first;
    while (*at != NULL && *at != span) {
        at = &(*at)->same;
    }
    if (*at != NULL) {
        *at = span->same;
    }
    if (first != NULL) {
        (void)ext_ptrmap_add(&self->places, span->place, first); /* there is room: one was taken */
    }
}

static inline void add_span(ext_opening *self, cprof_span *span)
{
    span->next = self->spans;
    span->link = &self->spans;
    if (__builtin_expect(span->next != NULL, 0)) {
        span->next->link = &span->next;
        if (self->places.count == 0) {
            put_in_places(self, span->next);
        }
        put_in_places(self, span);
    }
    self->spans = span;
    self->open++;
    self->quick_thread = NULL;
}

/* It is in its chain still: who leaves the object there must not find it. */
static inline void take_span(ext_opening *self, cprof_span *span)
{
    cprof_span_set_tag(span, NULL);
    if (__builtin_expect(self->places.count != 0, 0)) {
        take_out_of_places(self, span);
    }
    *span->link = span->next;
    if (span->next != NULL) {
        span->next->link = span->link;
    }
    self->open--;
}

void ext_opening_drop(ext_opening *self, PyObject *guard)
{
    while (self->spans != NULL) {
        cprof_span *span = self->spans;
        PyObject *owner = span->owner;
        PyObject *generator = span->opener;
        take_span(self, span);
        EXT_ALONE(guard, cprof_call_abandon(span));
        Py_XDECREF(generator);
        Py_XDECREF(owner);
    }
    ext_ptrmap_clear(&self->places, NULL);
    cprof_probe_settle();
}

/* The view is up to date. The span is to be added. */
static cprof_span *open_here(ext_opening *self, ext_view *view, const ext_target *target)
{
    PyThreadState *tstate = PyThreadState_Get();
    PyObject *generator = NULL;
    const void *code_or_context = view->task;
    if (__builtin_expect(ext_compat_frame_suspends(tstate), 0)) {
        generator = find_generator(tstate, &code_or_context);
        if (!ext_view_renew(view)) {
            Py_XDECREF(generator);
            return NULL;
        }
    }
    if (view->chain.top != NULL && __builtin_expect(cprof_span_is_left(view->chain.top), 0)) {
        cprof_call_trim(view->thread, &view->chain);
    }
    cprof_span *span = cprof_call_open(view->thread, &view->chain, target->accum, target->state, target->profiler, self);
    if (__builtin_expect(span == NULL, 0)) {
        Py_XDECREF(generator);
        return NULL;
    }
    span->place = place_of_frame(tstate, code_or_context);
    span->opener = generator;
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
    ext_probing probing;
    ext_probing_prepare(&probing, view, target, NULL, 0, NULL, false);
    cprof_probe *probe = probing.probe;
    if (probe != NULL && arguments != NULL && (target->state & CPROF_FLAG_SHAPES) != 0) {
        EXT_ALONE(view->state->guard,
                  ext_shape_look(view->state, probe, PySequence_Fast_ITEMS(arguments), (size_t)PyTuple_GET_SIZE(arguments)));
    }
    if (probe != NULL && others_may_run(view)) {
        cprof_probe_leave_out(probe, CPROF_FLAG_LAUNCHES | (probe->captures ? 0U : CPROF_FLAG_NVTX));
    }
    ext_probe_wait(view->state, probe, (target->state & CPROF_FLAG_SYNC) != 0 ? EXT_SYNC_CURRENT : EXT_SYNC_NONE);
    cprof_span *span = ext_view_renew(view) ? open_here(self, view, target) : NULL;
    EXT_ALONE(view->state->guard, ext_probing_begin(&probing, view->thread, span, NULL));
    return span;
}

cprof_span *ext_opening_put_span(ext_opening *self, ext_view *view, const ext_target *target, PyObject *arguments)
{
    bool is_careful = __builtin_expect((target->state & (CPROF_FLAG_PROBED | CPROF_FLAG_DETAIL)) != 0, 0);
    cprof_span *span = is_careful ? open_carefully(self, view, target, arguments) : open_here(self, view, target);
    if (__builtin_expect(span != NULL, 1)) {
        add_span(self, span); /* last: nobody leaves it before it is complete */
    }
    return span;
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
    if (view == NULL || opener(self, view, arguments) == NULL) {
        enter_idle(self);
    }
}

/* Takes the span first: whoever leaves the object from then on, be it code that runs for this, does not meet it again. */
static void close_span(ext_opening *self, ext_state *state, ext_view *view, cprof_span *span, cprof_outcome outcome)
{
    uint64_t flags = cprof_span_state(span);
    bool is_probed = (flags & (CPROF_FLAG_PROBED | CPROF_FLAG_DETAIL)) != 0;
    PyObject *owner = span->owner;
    PyObject *generator = span->opener;
    take_span(self, span);
    if (__builtin_expect(is_probed, 0)) {
        if (view != NULL && ext_view_chain_of(view, span) != NULL) { /* else only its time is known */
            bool waits = (flags & CPROF_FLAG_SYNC) != 0 && outcome == CPROF_OUTCOME_SUCCESS;
            ext_probing_end(state, span, waits ? EXT_SYNC_CURRENT : EXT_SYNC_NONE);
        }
        view = view != NULL && ext_view_renew(view) ? view : NULL;
    }
    cprof_chain none = {.top = NULL};
    cprof_thread *thread = cprof_thread_self; /* was made by our caller */
    /* In the thread's outermost context nothing is suspended while the thread runs. */
    bool may_suspend = view == NULL || view->task != view->base_task;
#if EXT_FREE_THREADED
    if (is_probed || view == NULL || view->chain.top != span || view->chain.base == span) {
        /* In the chain of another thread, it may be: what that reads of blocks it reads in the same way, or not at all. */
        EXT_ALONE(state->guard, cprof_call_close(thread, view != NULL ? &view->chain : &none, span, outcome, may_suspend));
    } else {
        cprof_call_close(thread, &view->chain, span, outcome, may_suspend);
    }
    if (view != NULL && view->block_owner == owner) {
        Py_CLEAR(view->block_owner);
    }
#else
    cprof_call_close(thread, view != NULL ? &view->chain : &none, span, outcome, may_suspend);
#endif
    Py_XDECREF(generator);
    Py_XDECREF(owner);
    if (__builtin_expect(is_probed, 0)) {
        cprof_probe_settle();
    }
}

/* The span that an exit in this place closes; NULL: it leaves an entry without a span, or there is nothing to leave any more.
 */
static __attribute__((noinline)) cprof_span *choose_span(const ext_opening *self, const ext_view *view)
{
    PyThreadState *tstate = PyThreadState_Get();
    const void *place = NULL;
    if (view != NULL) {
        PyFrameObject *frame = ext_compat_frame_suspends(tstate) ? PyThreadState_GetFrame(tstate) : NULL;
        place = place_of_frame(tstate, frame != NULL ? code_of(frame) : view->task);
        Py_XDECREF(frame);
    }
    cprof_span *span = ext_ptrmap_get(&self->places, place);
    if (span == NULL && self->open == 1 && self->spans->place == place) {
        span = self->spans;
    }
    if (span == NULL && view != NULL) {
        span = cprof_chain_find(&view->chain, self);
    }
    bool is_idle_here = self->idle > 0 && (self->idle_thread == NULL || self->idle_thread == ext_opening_this_thread());
    return span != NULL || is_idle_here ? span : self->spans;
}

static bool leave_idle(ext_opening *self)
{
    bool left = self->idle > 0;
    self->idle -= left;
    return left;
}

static bool leave(ext_opening *self, ext_state *state, PyObject *const *args, Py_ssize_t nargs)
{
    if (self->open == 0) {
        return leave_idle(self);
    }
    cprof_outcome outcome = CPROF_OUTCOME_SUCCESS;
    if (__builtin_expect(nargs != 0 && args[0] != Py_None, 0)) {
        outcome = ext_outcome_of(state, args[0], nargs > 1 ? args[1] : NULL);
    }
    cprof_thread *thread = cprof_thread_self != NULL ? cprof_thread_self : cprof_thread_get();
    if (__builtin_expect(thread == NULL, 0)) {
        return true; /* without memory the span stays until the object goes */
    }
    ext_view *view = ext_view_get(state, thread);
    bool is_only = self->open == 1 && self->idle == 0;
    cprof_span *span = __builtin_expect(is_only, 1) ? self->spans : choose_span(self, view);
    if (__builtin_expect(span == NULL, 0)) {
        return leave_idle(self);
    }
    close_span(self, state, view, span, outcome);
    return true;
}

PyObject *ext_opening_exit_slowly(ext_opening *self, ext_state *state, PyObject *const *args, Py_ssize_t nargs,
                                  const char *what, PyObject *name)
{
    if (!leave(self, state, args, nargs)) {
        return PyErr_Format(PyExc_RuntimeError, "%s(%A): left without having been entered", what, name);
    }
    Py_RETURN_NONE;
}
