#include "csrc/calls/suspendable.h"

#include "csrc/convert.h"
#include "csrc/calls/outcome.h"
#include "csrc/calls/probing.h"
#include "csrc/probes/sync.h"

/* The type of the wrapper around what a call made; NULL: it cannot be resumed. Another package's own kinds of generators and
 * coroutines are told by the function. */
static PyTypeObject *type_around(const ext_state *state, ext_kind kind, PyObject *made)
{
    if (PyGen_CheckExact(made) || Py_IS_TYPE(made, state->generator_type)) {
        return state->generator_type;
    }
    if (PyCoro_CheckExact(made) || Py_IS_TYPE(made, state->coroutine_type)) {
        return state->coroutine_type;
    }
    if (PyAsyncGen_CheckExact(made) || Py_IS_TYPE(made, state->async_generator_type)) {
        return state->async_generator_type;
    }
    if (kind == EXT_KIND_ASYNC_GENERATOR) {
        return PyObject_HasAttr(made, state->words[EXT_WORD_ASEND]) ? state->async_generator_type : NULL;
    }
    if (!PyObject_HasAttr(made, state->words[EXT_WORD_SEND])) {
        return NULL;
    }
    return kind == EXT_KIND_GENERATOR ? state->generator_type : state->coroutine_type;
}

/* What to resume: of a function marked as a coroutine function that returned another awaitable, a coroutine that awaits it. A
 * new reference; NULL, mostly with an exception, when there is nothing. */
static PyObject *resumable_of(const ext_function *function, PyObject *made, PyTypeObject **type)
{
    const ext_state *state = function->node.state;
    *type = type_around(state, function->kind, made);
    if (*type != NULL) {
        return Py_NewRef(made);
    }
    *type = state->coroutine_type;
    bool is_awaitable = function->kind == EXT_KIND_COROUTINE && PyObject_HasAttr(made, state->words[EXT_WORD_AWAIT]);
    return is_awaitable && state->awaiter != NULL ? PyObject_CallOneArg(state->awaiter, made) : NULL;
}

PyObject *ext_suspendable_wrap(ext_function *function, const ext_target *target, PyObject *first, int device,
                               ext_function *pending_inner, PyObject *made)
{
    ext_profiler *profiler = target->profiler;
    PyTypeObject *type;
    PyObject *resumable = resumable_of(function, made, &type);
    ext_suspendable *self = resumable != NULL && type != NULL ? (ext_suspendable *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        profiler->internal_errors += PyErr_Occurred() != NULL;
        Py_XDECREF(resumable);
        ext_state_forget_error();
        return made;
    }
    Py_DECREF(made);
    self->inner = resumable;
    self->function = (ext_function *)Py_NewRef((PyObject *)function);
    self->profiler = (ext_profiler *)Py_NewRef((PyObject *)profiler);
    self->first = Py_XNewRef(first);
    self->device = device;
    self->is_counted = (target->state & CPROF_FLAG_STATS) != 0;
    self->pending = (ext_pending){.inner = pending_inner, .owner = profiler};
    return (PyObject *)self;
}

void ext_suspendable_keep_arguments(const ext_state *state, PyObject *made, PyObject *const *args, size_t nargs,
                                    PyObject *kwnames, bool has_self)
{
    PyTypeObject *type = made != NULL ? Py_TYPE(made) : NULL;
    if (type == NULL ||
        (type != state->generator_type && type != state->coroutine_type && type != state->async_generator_type)) {
        return;
    }
    ((ext_suspendable *)made)->has_self = has_self;
    ((ext_suspendable *)made)->arguments = ext_convert_arguments(args, nargs, kwnames);
    ext_state_forget_error();
}

/* Decides whether, and under which stage and name, the call is counted. The target's Profiler is owned, if so. */
static bool resolve(ext_suspendable *self, ext_view *view, ext_target *target)
{
    if (self->function->binds) {
        *target = (ext_target){.profiler = (ext_profiler *)Py_NewRef((PyObject *)self->profiler)};
        return true;
    }
    if (!ext_node_resolve(&self->function->node, view, self->profiler, self->first, target)) {
        return false;
    }
    if (!self->is_counted) { /* without a recording it would be no wrapper: none is counted, whenever it begins */
        target->state &= ~(uint64_t)(CPROF_FLAG_STATS | CPROF_FLAG_FIGURES);
    }
    bool is_wanted = (target->state & CPROF_FLAG_ALL) != 0;
    if (!is_wanted) {
        Py_DECREF(target->profiler);
    }
    return is_wanted;
}

/* The first resumption. */
static bool begin(ext_suspendable *self, const ext_resumption *now)
{
    self->begun = true;
    ext_target target;
    if (!resolve(self, now->view, &target)) {
        return false;
    }
    if ((target.state & CPROF_FLAG_SYNC) == 0) {
        self->device = EXT_SYNC_NONE;
    }
    PyObject *const *items = self->arguments != NULL ? PySequence_Fast_ITEMS(self->arguments) : NULL;
    size_t count = self->arguments != NULL ? (size_t)PyTuple_GET_SIZE(self->arguments) : 0;
    bool is_probed = (target.state & (CPROF_FLAG_PROBED | CPROF_FLAG_DETAIL)) != 0;
    ext_probing probing;
    if (is_probed) {
        ext_probing_prepare(&probing, now->view, &target, items, count, NULL, self->has_self);
        ext_probe_wait(self->function->node.state, probing.probe, self->device);
    }
    bool begun = ext_view_renew(now->view) && cprof_call_resumable_begin(&self->call, now->thread, &now->view->chain,
                                                                         target.accum, target.state, self->profiler);
    if (begun && target.label.label != 0) {
        ext_node_mark_record(self->call.span, &target);
    }
    if (is_probed) {
        EXT_ALONE(self->function->node.state->guard,
                  ext_probing_begin(&probing, now->thread, begun ? self->call.span : NULL, &self->call));
    }
    if (!begun) {
        Py_DECREF(target.profiler); /* else the span's, as that of any call */
        self->profiler->internal_errors++;
    }
    return begun;
}

/* Whether other spans than the call's own, or anything but its time, go with it when it is suspended, continued or ended:
 * blocks inside it may be left by other threads at the same time, and lists of probes are changed by one at a time. */
static bool is_alone(const ext_suspendable *self, const cprof_span *inner)
{
    return !EXT_FREE_THREADED || (inner == self->call.span && (self->call.span->state & CPROF_FLAG_PROBED) == 0);
}

/* Executes a statement about a call whose innermost open span is `inner`. */
#define WITH_INNER(self, inner, statement)                             \
    do {                                                               \
        if (is_alone(self, inner)) {                                   \
            statement;                                                 \
        } else {                                                       \
            EXT_ALONE((self)->function->node.state->guard, statement); \
        }                                                              \
    } while (0)

#if EXT_FREE_THREADED
bool ext_suspendable_claim(ext_suspendable *self, ext_resumption *now)
{
    const ext_state *state = self->function->node.state;
    uintptr_t here = (uintptr_t)&cprof_thread_self;
    uintptr_t holder = 0;
    now->claims = atomic_compare_exchange_strong(&self->claimed, &holder, here);
    if (now->claims || holder == here) { /* the latter it refuses itself */
        return true;
    }
    if (Py_IS_TYPE(self, state->async_generator_type)) {
        PyErr_SetString(PyExc_RuntimeError, "anext(): asynchronous generator is already running");
    } else {
        PyErr_Format(PyExc_ValueError, "%s already executing",
                     Py_IS_TYPE(self, state->coroutine_type) ? "coroutine" : "generator");
    }
    return false;
}

void ext_suspendable_end_claim(ext_suspendable *self, const ext_resumption *now)
{
    if (now->claims) {
        self->claimed = 0;
    }
}
#else
bool ext_suspendable_claim(ext_suspendable *self, ext_resumption *now)
{
    (void)self;
    now->claims = false;
    return true;
}

void ext_suspendable_end_claim(ext_suspendable *self, const ext_resumption *now)
{
    (void)self;
    (void)now;
}
#endif

/* Of a call that is claimed. */
static bool enter(ext_suspendable *self, ext_resumption *now)
{
    ext_state *state = self->function->node.state;
    now->view = NULL;
    now->thread = cprof_thread_self != NULL ? cprof_thread_self : cprof_thread_get();
    if (now->thread == NULL) {
        return true;
    }
    if (__builtin_expect(!cprof_thread_stack_near(now->thread), 0) && !cprof_thread_stack_ok(now->thread)) {
        PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack is nearly used up");
        return false;
    }
    if (self->running || (self->begun && self->call.span == NULL)) {
        return true;
    }
    now->view = ext_view_get(state, now->thread);
    if (self->running || (self->begun && self->call.span == NULL)) {
        now->view = NULL; /* a context went with that, and code of its values resumed or ended the call */
    }
    if (now->view == NULL) {
        return true;
    }
    if (self->begun) {
        WITH_INNER(self, self->call.inner, cprof_call_resumable_continue(&self->call, &now->view->chain));
    } else if (!begin(self, now)) {
        now->view = NULL;
    }
    self->running = now->view != NULL;
    if (self->running && self->function->inner != NULL) {
        ext_view_push_pending(now->view, &self->pending);
    }
    Py_CLEAR(self->first);
    Py_CLEAR(self->arguments);
    return true;
}

bool ext_suspendable_enter_claimed(ext_suspendable *self, ext_resumption *now)
{
    bool entered = enter(self, now);
    if (!entered) {
        ext_suspendable_end_claim(self, now);
    }
    return entered;
}

bool ext_suspendable_enter(ext_suspendable *self, ext_resumption *now)
{
    now->view = NULL;
    return ext_suspendable_claim(self, now) && ext_suspendable_enter_claimed(self, now);
}

/* The chain that the call's span is in: the current one, which may have been switched away and back. */
static cprof_chain *chain_of_call(const ext_suspendable *self, const ext_resumption *now)
{
    (void)ext_view_renew(now->view);
    cprof_chain *chain = &now->view->chain;
    if (__builtin_expect(chain->top == self->call.span && chain->base != self->call.span, 1)) {
        return chain;
    }
    chain = ext_view_chain_of(now->view, self->call.span);
    return chain != NULL ? chain : &now->view->chain;
}

/* Goes after each resumption that is measured. */
static void leave(ext_suspendable *self, const ext_resumption *now)
{
    if (self->function->inner != NULL) {
        ext_view_pop_pending(now->view, &self->pending);
    }
    self->running = false;
}

void ext_suspendable_leave_suspended(ext_suspendable *self, const ext_resumption *now, bool step_ends)
{
    if (now->view != NULL) {
        cprof_chain *chain = chain_of_call(self, now); /* may run code of the user's, to which the call is still running */
        leave(self, now);
        WITH_INNER(self, chain->top, cprof_call_resumable_suspend(&self->call, chain, step_ends));
    }
    ext_suspendable_end_claim(self, now);
}

void ext_suspendable_leave_ended(ext_suspendable *self, const ext_resumption *now, cprof_outcome outcome)
{
    if (now->view == NULL) {
        ext_suspendable_end_claim(self, now);
        return;
    }
    bool is_probed = (self->call.span->state & (CPROF_FLAG_PROBED | CPROF_FLAG_DETAIL)) != 0;
    if (is_probed) { /* the user's code may run here: to it the call is still running */
        int device = outcome == CPROF_OUTCOME_SUCCESS ? self->device : EXT_SYNC_NONE;
        ext_probing_end(self->function->node.state, self->call.span, device);
    }
    cprof_chain *chain = chain_of_call(self, now);
    leave(self, now);
    WITH_INNER(self, chain->top, cprof_call_resumable_end(&self->call, now->thread, chain, outcome));
    ext_suspendable_end_claim(self, now);
    Py_DECREF(self->profiler);
    if (is_probed) {
        cprof_probe_settle();
    }
}

bool ext_suspendable_is_finished(const ext_suspendable *self)
{
    const ext_state *state = self->function->node.state;
    ext_word word = Py_IS_TYPE(self, state->generator_type)   ? EXT_WORD_GI_FRAME
                    : Py_IS_TYPE(self, state->coroutine_type) ? EXT_WORD_CR_FRAME
                                                              : EXT_WORD_AG_FRAME;
    ext_compat_error error = ext_compat_take_error();
    PyObject *frame = PyObject_GetAttr(self->inner, state->words[word]);
    bool is_finished = frame == NULL || frame == Py_None;
    Py_XDECREF(frame);
    ext_state_forget_error();
    ext_compat_restore_error(error);
    return is_finished;
}

/* A return becomes StopIteration, made as an object so that no value is unpacked. */
static PyObject *stop_with(PyObject *value)
{
    PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, value);
    if (stop != NULL) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
    Py_DECREF(value);
    return NULL;
}

PyObject *ext_suspendable_send(PyObject *object, PyObject *argument)
{
    PyObject *result;
    PySendResult sent = Py_TYPE(object)->tp_as_async->am_send(object, argument, &result);
    return sent == PYGEN_RETURN ? stop_with(result) : result;
}

/* The end without a value needs no exception. */
PyObject *ext_suspendable_next(PyObject *object)
{
    PyObject *result;
    PySendResult sent = Py_TYPE(object)->tp_as_async->am_send(object, Py_None, &result);
    if (sent != PYGEN_RETURN || result != Py_None) {
        return sent == PYGEN_RETURN ? stop_with(result) : result;
    }
    Py_DECREF(result);
    return NULL;
}

PyObject *ext_suspendable_call(const ext_suspendable *self, PyObject *object, ext_word name, PyObject *const *args,
                               Py_ssize_t nargs)
{
    if (object == NULL) { /* taken apart by the collector */
        PyErr_SetString(PyExc_RuntimeError, "the generator was finalised");
        return NULL;
    }
    PyObject *method = PyObject_GetAttr(object, self->function->node.state->words[name]);
    PyObject *result = method != NULL ? PyObject_Vectorcall(method, args, (size_t)nargs, NULL) : NULL;
    Py_XDECREF(method);
    return result;
}

cprof_outcome ext_suspendable_outcome_of_close(const ext_suspendable *self)
{
    return self->function->kind == EXT_KIND_COROUTINE ? CPROF_OUTCOME_CANCELLED : CPROF_OUTCOME_SUCCESS;
}

/* Counts a call that will not be resumed any more. One that still runs, in a thread that is no more (after a fork), has lost
 * its spans with that. */
static void end_unfinished(ext_suspendable *self)
{
    cprof_thread *thread = self->call.span != NULL && !self->running ? cprof_thread_get() : NULL;
    if (thread != NULL) {
        EXT_ALONE(self->function->node.state->guard, {
            ext_view_drop_spans(&self->call.inner, self->call.span);
            cprof_call_resumable_abandon(&self->call, thread, ext_suspendable_outcome_of_close(self));
        });
        Py_DECREF(self->profiler);
        cprof_probe_settle();
    }
}

/* Collected before its end: the user's generator is finalised here, with its spans in place for the blocks open in it. */
static void finalize_inner(ext_suspendable *self)
{
    ext_resumption now = {.view = NULL};
    if (self->call.span != NULL && Py_REFCNT(self->inner) == 1 && ext_suspendable_enter(self, &now)) {
        Py_CLEAR(self->inner);
        ext_suspendable_leave_ended(self, &now, ext_suspendable_outcome_of_close(self));
    }
    ext_state_forget_error();
}

/* An event loop closes the asynchronous generators that it knows itself; that brings the wrapper back to life. */
static void finalize_by_loop(ext_suspendable *self)
{
    PyObject *finalizer = self->finalizer;
    self->finalizer = NULL;
    if (finalizer != NULL && !ext_suspendable_is_finished(self)) {
        PyObject *result = PyObject_CallOneArg(finalizer, (PyObject *)self);
        if (result == NULL) {
            PyErr_WriteUnraisable((PyObject *)self);
        }
        Py_XDECREF(result);
    }
    Py_XDECREF(finalizer);
}

void ext_suspendable_finalize(PyObject *object)
{
    ext_suspendable *self = (ext_suspendable *)object;
    ext_compat_error error = ext_compat_take_error();
    if (Py_IS_TYPE(self, self->function->node.state->async_generator_type)) {
        finalize_by_loop(self);
    } else {
        finalize_inner(self);
    }
    ext_compat_restore_error(error);
}

int ext_suspendable_traverse(PyObject *object, visitproc visit, void *arg)
{
    ext_suspendable *self = (ext_suspendable *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->inner);
    Py_VISIT(self->function);
    Py_VISIT(self->profiler);
    Py_VISIT(self->first);
    Py_VISIT(self->arguments);
    Py_VISIT(self->finalizer);
    return 0;
}

int ext_suspendable_clear(PyObject *object)
{
    ext_suspendable *self = (ext_suspendable *)object;
    Py_CLEAR(self->inner);
    Py_CLEAR(self->first);
    Py_CLEAR(self->arguments);
    Py_CLEAR(self->finalizer);
    return 0;
}

void ext_suspendable_dealloc(PyObject *object)
{
    ext_suspendable *self = (ext_suspendable *)object;
    bool has_ended = self->call.span == NULL && self->finalizer == NULL; /* or it never began */
    if (!has_ended && PyObject_CallFinalizerFromDealloc(object) < 0) {
        return;
    }
    PyObject_GC_UnTrack(object);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    (void)ext_suspendable_clear(object); /* blocks that are open inside are left here */
    end_unfinished(self);
    Py_CLEAR(self->function);
    Py_CLEAR(self->profiler);
    ext_state_free(object);
}

/* What isinstance() asks for beside the type. */
static PyObject *get_class(PyObject *object, void *Py_UNUSED(unused))
{
    const ext_suspendable *self = (ext_suspendable *)object;
    if (self->inner == NULL) { /* finalised */
        return Py_NewRef((PyObject *)Py_TYPE(object));
    }
    return PyObject_GetAttr(self->inner, self->function->node.state->words[EXT_WORD_CLASS]);
}

PyGetSetDef ext_suspendable_getset[] = {
    {"__class__", get_class, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* gi_frame, cr_running, __qualname__ and the like are the user's generator's. */
PyObject *ext_suspendable_getattro(PyObject *object, PyObject *name)
{
    ext_suspendable *self = (ext_suspendable *)object;
    PyObject *value = PyObject_GenericGetAttr(object, name);
    if (value != NULL || self->inner == NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return value;
    }
    PyErr_Clear();
    return PyObject_GetAttr(self->inner, name);
}

int ext_suspendable_setattro(PyObject *object, PyObject *name, PyObject *value)
{
    ext_suspendable *self = (ext_suspendable *)object;
    return self->inner != NULL ? PyObject_SetAttr(self->inner, name, value) : PyObject_GenericSetAttr(object, name, value);
}

PyObject *ext_suspendable_repr(PyObject *object)
{
    ext_suspendable *self = (ext_suspendable *)object;
    return PyUnicode_FromFormat("<profiled %R>", self->inner != NULL ? self->inner : Py_None);
}

PyMemberDef ext_suspendable_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ext_suspendable, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
