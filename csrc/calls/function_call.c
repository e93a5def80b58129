#include "csrc/calls/function.h"

#include "csrc/calls/outcome.h"
#include "csrc/calls/pipeline.h"
#include "csrc/calls/probing.h"
#include "csrc/calls/suspendable.h"
#include "csrc/probes/sync.h"

void ext_function_set_first_parameter(ext_function *self, PyObject *name)
{
#if EXT_FREE_THREADED
    if (name != NULL && name != Py_None) {
        PyUnicode_InternInPlace(&name); /* then it lives for ever: others may use what is replaced */
    }
#endif
    Py_XSETREF(self->first_parameter, name);
}

/* The name of the first parameter, borrowed; None when it has none that can be given by keyword. */
static PyObject *first_parameter(ext_function *self)
{
    const ext_state *state = self->node.state;
    PyObject *name = self->first_parameter;
    if (name == NULL && state->parameter_finder != NULL) {
        PyObject *found = PyObject_CallOneArg(state->parameter_finder, self->function);
        if (found == NULL || !PyUnicode_CheckExact(found)) {
            ext_state_forget_error();
            Py_XDECREF(found);
            found = Py_NewRef(Py_None);
        }
        ext_function_set_first_parameter(self, found);
        name = self->first_parameter;
    }
    return name != NULL ? name : Py_None;
}

static bool has_self(ext_function *self)
{
    PyObject *name = first_parameter(self);
    return name != Py_None && PyUnicode_CompareWithASCIIString(name, "self") == 0;
}

static __attribute__((noinline)) PyObject *first_by_keyword(ext_function *self, PyObject *const *args, PyObject *kwnames)
{
    PyObject *name = first_parameter(self);
    for (Py_ssize_t i = 0; name != Py_None && i < PyTuple_GET_SIZE(kwnames); i++) {
        PyObject *keyword = PyTuple_GET_ITEM(kwnames, i);
        if (keyword == name || PyUnicode_Compare(keyword, name) == 0) {
            return args[i];
        }
    }
    return NULL;
}

/* The call's first argument, by position or by keyword: borrowed, or NULL. */
static inline PyObject *first_argument(ext_function *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (__builtin_expect(PyVectorcall_NARGS(nargsf) > 0, 1)) {
        return args[0];
    }
    return kwnames != NULL ? first_by_keyword(self, args, kwnames) : NULL;
}

/* A plain function is called by its own pointer: our caller checks the result as PyObject_Vectorcall() does. */
static inline PyObject *forward(ext_function *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (__builtin_expect(self->is_plain_function, 1)) {
        return ((PyFunctionObject *)self->function)->vectorcall(self->function, args, nargsf, kwnames);
    }
    return PyObject_Vectorcall(self->function, args, nargsf, kwnames);
}

/* Ends the span of a call that has just returned. The line of execution may have been switched away and back meanwhile. */
static inline void close_call(PyThreadState *tstate, ext_view *view, cprof_span *span, PyObject *result)
{
    void *owner = span->owner;
    (void)ext_view_renew_in(tstate, view);
    cprof_chain *chain = &view->chain;
    if (__builtin_expect(chain->top != span || chain->base == span, 0)) { /* or it encloses what goes on now */
        chain = ext_view_chain_of(view, span);
        chain = chain != NULL ? chain : &view->chain;
    }
    cprof_outcome outcome = __builtin_expect(result != NULL, 1) ? CPROF_OUTCOME_SUCCESS : ext_outcome(view->state);
    cprof_call_close(view->thread, chain, span, outcome, false);
    if (__builtin_expect(chain != &view->chain, 0)) {
        ext_view_forget_idle(view, chain);
    }
    ext_view_release_owner(owner);
}

/* Calls the function without a span, as none could be had, and lets go of the Profiler. */
static __attribute__((noinline)) PyObject *forward_unmeasured(ext_function *self, ext_profiler *profiler, PyObject *const *args,
                                                              size_t nargsf, PyObject *kwnames)
{
    profiler->internal_errors++;
    Py_DECREF(profiler);
    return forward(self, args, nargsf, kwnames);
}

/* The target's reference to the Profiler goes with the span, here as in all functions below. */
static PyObject *call_measured(ext_function *self, ext_view *view, const ext_target *target, PyObject *const *args,
                               size_t nargsf, PyObject *kwnames)
{
    PyThreadState *tstate = PyThreadState_Get();
    cprof_span *span = ext_node_open_span(view, target, self);
    if (__builtin_expect(span == NULL, 0)) {
        return forward_unmeasured(self, target->profiler, args, nargsf, kwnames);
    }
    PyObject *result = forward(self, args, nargsf, kwnames);
    close_call(tstate, view, span, result);
    return result;
}

/* Waits for the call's device before and after, the latter as part of the call; asks for more than times. */
static PyObject *call_carefully(ext_function *self, ext_view *view, const ext_target *target, PyObject *const *args,
                                size_t nargsf, PyObject *kwnames)
{
    ext_state *state = self->node.state;
    size_t nargs = (size_t)PyVectorcall_NARGS(nargsf);
    bool synchronizes = (target->state & CPROF_FLAG_SYNC) != 0;
    int device = synchronizes ? ext_sync_device(state, target->profiler, args, nargs, kwnames) : EXT_SYNC_NONE;
    bool skips_self = (target->state & CPROF_FLAG_SHAPES) != 0 && has_self(self);
    ext_probing probing;
    ext_probing_prepare(&probing, view, target, args, nargs, kwnames, skips_self);
    ext_probe_wait(state, probing.probe, device);
    cprof_span *span = ext_view_renew(view) ? ext_node_open_span(view, target, self) : NULL;
    EXT_ALONE(state->guard, ext_probing_begin(&probing, view->thread, span, NULL));
    if (span == NULL) {
        return forward_unmeasured(self, target->profiler, args, nargsf, kwnames);
    }
    PyObject *result = forward(self, args, nargsf, kwnames);
    ext_probing_end(state, span, result != NULL ? device : EXT_SYNC_NONE);
    EXT_ALONE(state->guard, close_call(PyThreadState_Get(), view, span, result));
    cprof_probe_settle();
    return result;
}

/* A call of a generator or coroutine function makes an object: its running is measured. */
static PyObject *make_suspendable(ext_function *self, const ext_target *target, const ext_pending *pending,
                                  PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *made = forward(self, args, nargsf, kwnames);
    if (made != NULL) {
        PyObject *first = first_argument(self, args, nargsf, kwnames);
        int device = EXT_SYNC_NONE;
        if ((target->state & CPROF_FLAG_SYNC) != 0) {
            size_t nargs = (size_t)PyVectorcall_NARGS(nargsf);
            device = ext_sync_device(self->node.state, target->profiler, args, nargs, kwnames);
        }
        made = ext_suspendable_wrap(self, target, first, device, pending != NULL ? pending->inner : NULL, made);
        if ((target->state & (CPROF_FLAG_PROBED | CPROF_FLAG_DETAIL)) != 0) {
            size_t nargs = (size_t)PyVectorcall_NARGS(nargsf);
            ext_suspendable_keep_arguments(self->node.state, made, args, nargs, kwnames, has_self(self));
        }
    }
    Py_DECREF(target->profiler);
    return made;
}

/* All that is not a plain function with plain statistics. */
static __attribute__((noinline)) PyObject *call_any(ext_function *self, ext_view *view, const ext_target *target,
                                                    const ext_pending *pending, PyObject *const *args, size_t nargsf,
                                                    PyObject *kwnames)
{
    if (self->kind != EXT_KIND_CALL) {
        return make_suspendable(self, target, pending, args, nargsf, kwnames);
    }
    if ((target->state & (CPROF_FLAG_PROBED | CPROF_FLAG_DETAIL)) != 0) {
        return call_carefully(self, view, target, args, nargsf, kwnames);
    }
    return call_measured(self, view, target, args, nargsf, kwnames);
}

/* Decorated twice: tells the inner wrapper that its call is counted already. */
static __attribute__((noinline)) PyObject *call_outer(ext_function *self, ext_view *view, const ext_target *target,
                                                      PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ext_pending *pending = PyMem_Malloc(sizeof *pending);
    if (pending == NULL) {
        return forward_unmeasured(self, target->profiler, args, nargsf, kwnames);
    }
    *pending = (ext_pending){.inner = self->inner, .owner = target->profiler};
    ext_view_push_pending(view, pending);
    PyObject *result = call_any(self, view, target, pending, args, nargsf, kwnames);
    ext_view_pop_pending(view, pending);
    PyMem_Free(pending);
    return result;
}

/* Whether a wrapper around this one counts the call for the same Profiler; pending entries are passed on to the next layer. */
static __attribute__((noinline)) bool is_pending(ext_function *self, ext_view *view, const ext_profiler *profiler)
{
    bool counted = false;
    for (ext_pending *pending = view->pending; pending != NULL; pending = pending->outer) {
        const ext_function *at = pending->inner;
        while (at != NULL && at != self) {
            at = at->inner;
        }
        if (at != NULL) {
            counted = counted || pending->owner == profiler;
            pending->inner = self->inner;
        }
    }
    return counted;
}

/* All but the usual call: which Profiler counts it, where and how is found out step by step. */
static __attribute__((noinline)) PyObject *call_unusual(ext_function *self, ext_view *view, ext_profiler *profiler,
                                                        PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *first = first_argument(self, args, nargsf, kwnames);
    ext_target target;
    bool is_counted = self->is_inner && view->pending != NULL && is_pending(self, view, profiler);
    if (is_counted || !ext_node_resolve(&self->node, view, profiler, first, &target)) {
        return forward(self, args, nargsf, kwnames);
    }
    return self->inner != NULL ? call_outer(self, view, &target, args, nargsf, kwnames)
                               : call_any(self, view, &target, NULL, args, nargsf, kwnames);
}

/* The usual call, of a plain function, counted at a place that its key knows, is written out. */
static __attribute__((noinline)) PyObject *call_on(ext_function *self, cprof_thread *thread, PyObject *const *args,
                                                   size_t nargsf, PyObject *kwnames)
{
    PyThreadState *tstate = PyThreadState_Get();
    ext_view *view = ext_view_get_in(tstate, self->node.state, thread);
    if (__builtin_expect(view == NULL, 0)) {
        return forward(self, args, nargsf, kwnames);
    }
    ext_profiler *profiler = ext_node_find_profiler(&self->node, view, first_argument(self, args, nargsf, kwnames));
    if (__builtin_expect(profiler == NULL || self->is_uncommon || self->is_inner || self->node.name_finder != NULL, 0)) {
        return call_unusual(self, view, profiler, args, nargsf, kwnames);
    }
    uint64_t state = cprof_registry_state(profiler->registry);
    cprof_accum *accum = ext_key_known(&self->node.key, profiler, ext_node_stage(&self->node, view));
    if (__builtin_expect(accum == NULL || !cprof_call_is_usual(state), 0)) {
        return call_unusual(self, view, profiler, args, nargsf, kwnames);
    }
    bool is_kept = profiler == self->node.profiler || (PyObject *)profiler == self->node.state->default_profiler;
    void *owner = ext_view_hold_owner((PyObject *)profiler, is_kept);
    cprof_span *span = cprof_call_open(thread, &view->chain, accum, state, owner, self);
    if (__builtin_expect(span == NULL, 0)) {
        profiler->internal_errors++;
        ext_view_release_owner(owner);
        return forward(self, args, nargsf, kwnames);
    }
    PyObject *result = forward(self, args, nargsf, kwnames);
    close_call(tstate, view, span, result);
    return result;
}

/* The thread's record, made at its first call; NULL with RecursionError when too little stack is left. */
static __attribute__((noinline)) cprof_thread *prepare_thread(ext_function *self)
{
    cprof_thread *thread = cprof_thread_get();
    if (thread == NULL) {
        self->node.state->internal_errors++;
        return NULL;
    }
    if (!cprof_thread_stack_ok(thread)) {
        PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack is nearly used up");
        return NULL;
    }
    return thread;
}

/* The first call on a thread, a call near the end of the stack, a call on a stack that is not the thread's own. */
static __attribute__((noinline)) PyObject *call_unprepared(ext_function *self, PyObject *const *args, size_t nargsf,
                                                           PyObject *kwnames)
{
    cprof_thread *thread = prepare_thread(self);
    if (thread == NULL) {
        return PyErr_Occurred() ? NULL : forward(self, args, nargsf, kwnames);
    }
    if ((atomic_load_explicit(self->gate, memory_order_relaxed) & CPROF_FLAG_ALL) == 0) {
        return forward(self, args, nargsf, kwnames);
    }
    return call_on(self, thread, args, nargsf, kwnames);
}

/* Every path ends in a tail call, so that a node that is off costs no stack frame and saves no register. */
PyObject *ext_function_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ext_function *self = (ext_function *)callable;
    cprof_thread *thread = cprof_thread_self;
    if (__builtin_expect(thread == NULL || !cprof_thread_stack_near(thread), 0)) {
        return call_unprepared(self, args, nargsf, kwnames);
    }
    if ((atomic_load_explicit(self->gate, memory_order_relaxed) & CPROF_FLAG_ALL) == 0) {
        return forward(self, args, nargsf, kwnames);
    }
    return call_on(self, thread, args, nargsf, kwnames);
}

/* A pipeline's own forward or __call__: its Profiler becomes that of the calls inside, also while it is off. Any other object
 * owns nothing. */
PyObject *ext_function_call_binder(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ext_function *self = (ext_function *)callable;
    cprof_thread *thread = cprof_thread_self;
    if (__builtin_expect(thread == NULL || !cprof_thread_stack_near(thread), 0)) {
        thread = prepare_thread(self);
        if (thread == NULL) {
            return PyErr_Occurred() ? NULL : forward(self, args, nargsf, kwnames);
        }
    }
    ext_profiler *profiler = self->node.profiler;
    PyObject *first = profiler == NULL ? first_argument(self, args, nargsf, kwnames) : NULL;
    PyThreadState *tstate = PyThreadState_Get();
#if EXT_FREE_THREADED
    ext_view *own = first != NULL ? ext_view_get_in(tstate, self->node.state, thread) : NULL;
    profiler = own != NULL ? ext_node_pipeline_profiler(&self->node, own, first) : profiler;
#else
    profiler = first != NULL ? ext_node_pipeline_profiler(&self->node, NULL, first) : profiler;
#endif
    if (__builtin_expect(profiler == NULL, 0) && first != NULL && ext_pipeline_is(self->node.state, first)) {
        EXT_ALONE(self->node.state->guard, profiler = ext_pipeline_profiler(self->node.state, first));
    }
    Py_XINCREF(profiler);
    ext_view *view = profiler != NULL ? ext_view_get_in(tstate, self->node.state, thread) : NULL;
    if (__builtin_expect(view == NULL, 0)) {
        ext_state_forget_error();
        Py_XDECREF(profiler);
        return forward(self, args, nargsf, kwnames);
    }
    if (__builtin_expect(self->kind != EXT_KIND_CALL, 0)) {
        return make_suspendable(self, &(ext_target){.profiler = profiler}, NULL, args, nargsf, kwnames);
    }
    cprof_span *span = cprof_call_put(thread, &view->chain, NULL, 0, profiler, self);
    if (__builtin_expect(span == NULL, 0)) {
        return forward_unmeasured(self, profiler, args, nargsf, kwnames);
    }
    PyObject *result = forward(self, args, nargsf, kwnames);
    bool is_current = ext_view_is_current(view, tstate);
    if (__builtin_expect(is_current && cprof_call_close_owner(thread, &view->chain, span), 1)) {
        Py_DECREF(profiler);
    } else {
        close_call(tstate, view, span, result);
    }
    return result;
}
