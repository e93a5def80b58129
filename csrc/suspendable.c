#include "csrc/suspendable.h"

#include "csrc/sync.h"

/* One resumption: where it is measured. `view` NULL: it is not. */
typedef struct {
    cprof_thread *thread;
    ext_view *view;
} resumption;

PyObject *ext_suspendable_wrap(ext_function *function, ext_profiler *profiler, PyObject *first, int device,
                               ext_function *pending_inner, PyObject *made)
{
    ext_state *state = function->node.state;
    PyTypeObject *type = function->kind == EXT_KIND_GENERATOR   ? state->generator_type
                         : function->kind == EXT_KIND_COROUTINE ? state->coroutine_type
                                                                : state->async_generator_type;
    ext_suspendable *self = (ext_suspendable *)type->tp_alloc(type, 0);
    if (self == NULL) {
        PyErr_Clear();
        profiler->internal_errors++;
        return made;
    }
    self->inner = made;
    self->function = (ext_function *)Py_NewRef((PyObject *)function);
    self->profiler = (ext_profiler *)Py_NewRef((PyObject *)profiler);
    self->first = Py_XNewRef(first);
    self->device = device;
    self->pending = (ext_pending){.inner = pending_inner, .owner = profiler};
    return (PyObject *)self;
}

/* Decides whether, and under which stage and name, the call is counted. The target's Profiler is owned. */
static bool resolve(ext_suspendable *self, ext_view *view, ext_target *target)
{
    if (self->function->binds) {
        *target = (ext_target){(ext_profiler *)Py_NewRef((PyObject *)self->profiler), NULL, 0};
        return true;
    }
    return ext_node_resolve(&self->function->node, view, self->profiler, self->first, target);
}

/* The first resumption. */
static bool begin(ext_suspendable *self, const resumption *now)
{
    self->begun = true;
    ext_target target;
    if (!resolve(self, now->view, &target)) {
        return false;
    }
    Py_DECREF(target.profiler); /* self keeps it */
    if ((target.state & CPROF_FLAG_SYNC) == 0) {
        self->device = EXT_SYNC_NONE;
    }
    ext_sync_wait(self->function->node.state, self->device);
    bool begun = ext_view_renew(now->view) &&
                 cprof_resumable_begin(&self->call, now->thread, &now->view->chain, target.accum, target.state, self->profiler);
    if (!begun) {
        self->profiler->internal_errors++;
    }
    return begun;
}

/* Goes before each resumption. False with RecursionError when too little stack is left. */
static bool enter(ext_suspendable *self, resumption *now)
{
    ext_state *state = self->function->node.state;
    now->view = NULL;
    now->thread = cprof_thread_get();
    if (now->thread == NULL) {
        return true;
    }
    if (!cprof_thread_stack_ok(now->thread)) {
        PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack is nearly used up");
        return false;
    }
    if (self->running || (self->begun && self->call.span == NULL)) {
        return true;
    }
    now->view = ext_view_get(state, now->thread);
    if (now->view == NULL) {
        return true;
    }
    if (self->begun) {
        cprof_resumable_continue(&self->call, &now->view->chain);
    } else if (!begin(self, now)) {
        now->view = NULL;
    }
    self->running = now->view != NULL;
    if (self->running && self->function->inner != NULL) {
        ext_function_push_pending(now->view, &self->pending);
    }
    Py_CLEAR(self->first);
    return true;
}

/* The chain that the call's span is in: the current one, which may have been switched away and back. */
static cprof_chain *chain_of_call(const ext_suspendable *self, const resumption *now)
{
    (void)ext_view_renew(now->view);
    cprof_chain *chain = ext_view_chain_of(now->view, self->call.span);
    return chain != NULL ? chain : &now->view->chain;
}

/* Goes after each resumption. False: it was not measured. */
static bool leave(ext_suspendable *self, const resumption *now)
{
    if (now->view == NULL) {
        return false;
    }
    if (self->function->inner != NULL) {
        ext_function_pop_pending(now->view, &self->pending);
    }
    self->running = false;
    return true;
}

static void leave_suspended(ext_suspendable *self, const resumption *now, bool step_ends)
{
    if (leave(self, now)) {
        cprof_resumable_suspend(&self->call, chain_of_call(self, now), step_ends);
    }
}

static void leave_ended(ext_suspendable *self, const resumption *now, cprof_outcome outcome)
{
    if (!leave(self, now)) {
        return;
    }
    if (outcome == CPROF_OUTCOME_SUCCESS) {
        ext_sync_wait(self->function->node.state, self->device);
    }
    cprof_resumable_end(&self->call, now->thread, chain_of_call(self, now), outcome);
}

/* Whether the user's generator has come to its end: an exception may also only refuse a resumption ("already executing"). */
static bool is_finished(const ext_suspendable *self)
{
    static const char *const frames[] = {
        [EXT_KIND_GENERATOR] = "gi_frame", [EXT_KIND_COROUTINE] = "cr_frame", [EXT_KIND_ASYNC_GENERATOR] = "ag_frame"};
    PyObject *frame = PyObject_GetAttrString(self->inner, frames[self->function->kind]);
    if (frame == NULL) {
        PyErr_Clear();
        return true;
    }
    Py_DECREF(frame);
    return frame == Py_None;
}

static void leave_raised(ext_suspendable *self, const resumption *now)
{
    if (now->view == NULL) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    bool finished = is_finished(self);
    PyErr_Restore(type, value, traceback);
    if (finished) {
        leave_ended(self, now, ext_function_outcome());
    } else {
        leave_suspended(self, now, true);
    }
}

static PySendResult resume(ext_suspendable *self, PyObject *argument, PyObject **result)
{
    resumption now;
    *result = NULL;
    if (self->inner == NULL) {
        *result = Py_NewRef(Py_None);
        return PYGEN_RETURN;
    }
    if (!enter(self, &now)) {
        return PYGEN_ERROR;
    }
    PySendResult sent = PyIter_Send(self->inner, argument, result);
    if (sent == PYGEN_NEXT) {
        leave_suspended(self, &now, self->function->kind == EXT_KIND_GENERATOR);
    } else if (sent == PYGEN_RETURN) {
        leave_ended(self, &now, CPROF_OUTCOME_SUCCESS);
    } else {
        leave_raised(self, &now);
    }
    return sent;
}

/* What send() and __next__ make of a result: a return becomes StopIteration, made as an object so that no value is unpacked. */
static PyObject *as_method_result(PySendResult sent, PyObject *result)
{
    if (sent != PYGEN_RETURN) {
        return result;
    }
    PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, result);
    if (stop != NULL) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
    Py_DECREF(result);
    return NULL;
}

static PyObject *suspendable_next(PyObject *object)
{
    PyObject *result;
    PySendResult sent = resume((ext_suspendable *)object, Py_None, &result);
    if (sent == PYGEN_RETURN && result == Py_None) {
        Py_DECREF(result);
        return NULL; /* the short form of StopIteration */
    }
    return as_method_result(sent, result);
}

static PyObject *suspendable_send(PyObject *object, PyObject *argument)
{
    PyObject *result;
    PySendResult sent = resume((ext_suspendable *)object, argument, &result);
    return as_method_result(sent, result);
}

static PySendResult suspendable_am_send(PyObject *object, PyObject *argument, PyObject **result)
{
    return resume((ext_suspendable *)object, argument, result);
}

static PyObject *call_method(PyObject *object, const char *name, PyObject *const *args, Py_ssize_t nargs)
{
    if (object == NULL) { /* taken apart by the collector */
        PyErr_Format(PyExc_RuntimeError, "%s() of a finalised generator", name);
        return NULL;
    }
    PyObject *method = PyObject_GetAttrString(object, name);
    PyObject *result = method != NULL ? PyObject_Vectorcall(method, args, (size_t)nargs, NULL) : NULL;
    Py_XDECREF(method);
    return result;
}

static PyObject *suspendable_throw(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    ext_suspendable *self = (ext_suspendable *)object;
    resumption now;
    if (self->inner == NULL) {
        PyErr_SetNone(PyExc_StopIteration);
        return NULL;
    }
    if (!self->begun) { /* raised at the start of a call that never ran */
        self->begun = true;
        return call_method(self->inner, "throw", args, nargs);
    }
    if (!enter(self, &now)) {
        return NULL;
    }
    PyObject *result = call_method(self->inner, "throw", args, nargs);
    if (result != NULL) {
        leave_suspended(self, &now, self->function->kind == EXT_KIND_GENERATOR);
    } else if (PyErr_ExceptionMatches(PyExc_StopIteration)) {
        leave_ended(self, &now, CPROF_OUTCOME_SUCCESS);
    } else {
        leave_raised(self, &now);
    }
    return result;
}

/* A generator that is closed has done its work; a coroutine has not. */
static cprof_outcome outcome_of_close(const ext_suspendable *self)
{
    return self->function->kind == EXT_KIND_COROUTINE ? CPROF_OUTCOME_CANCELLED : CPROF_OUTCOME_SUCCESS;
}

static PyObject *suspendable_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    ext_suspendable *self = (ext_suspendable *)object;
    resumption now = {NULL, NULL};
    if (self->inner == NULL) {
        Py_RETURN_NONE;
    }
    if (self->begun && !enter(self, &now)) {
        return NULL;
    }
    self->begun = true;
    PyObject *result = call_method(self->inner, "close", NULL, 0);
    if (result != NULL) {
        leave_ended(self, &now, outcome_of_close(self));
    } else {
        leave_raised(self, &now);
    }
    return result;
}

/* Counts a call that will not be resumed any more. */
static void end_unfinished(ext_suspendable *self)
{
    cprof_thread *thread = self->call.span != NULL ? cprof_thread_get() : NULL;
    if (thread != NULL) {
        cprof_resumable_abandon(&self->call, thread, outcome_of_close(self));
    }
}

/* Collected before its end: the user's generator is finalised here, with its spans in place for the blocks open in it. */
static void finalize_inner(ext_suspendable *self)
{
    resumption now = {NULL, NULL};
    if (self->call.span != NULL && Py_REFCNT(self->inner) == 1 && enter(self, &now)) {
        Py_CLEAR(self->inner);
        leave_ended(self, &now, outcome_of_close(self));
    }
    PyErr_Clear();
    end_unfinished(self);
}

/* An event loop closes the asynchronous generators that it knows itself; that brings the wrapper back to life. */
static void finalize_by_loop(ext_suspendable *self)
{
    PyObject *finalizer = self->finalizer;
    self->finalizer = NULL;
    if (finalizer == NULL || is_finished(self)) {
        end_unfinished(self);
    } else {
        PyObject *result = PyObject_CallOneArg(finalizer, (PyObject *)self);
        if (result == NULL) {
            PyErr_WriteUnraisable((PyObject *)self);
        }
        Py_XDECREF(result);
    }
    Py_XDECREF(finalizer);
}

static void suspendable_finalize(PyObject *object)
{
    ext_suspendable *self = (ext_suspendable *)object;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (self->function->kind == EXT_KIND_ASYNC_GENERATOR) {
        finalize_by_loop(self);
    } else {
        finalize_inner(self);
    }
    PyErr_Restore(type, value, traceback);
}

static int suspendable_traverse(PyObject *object, visitproc visit, void *arg)
{
    ext_suspendable *self = (ext_suspendable *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->inner);
    Py_VISIT(self->function);
    Py_VISIT(self->profiler);
    Py_VISIT(self->first);
    Py_VISIT(self->finalizer);
    return 0;
}

static int suspendable_clear(PyObject *object)
{
    ext_suspendable *self = (ext_suspendable *)object;
    Py_CLEAR(self->inner);
    Py_CLEAR(self->first);
    Py_CLEAR(self->finalizer);
    return 0;
}

static void suspendable_dealloc(PyObject *object)
{
    ext_suspendable *self = (ext_suspendable *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (PyObject_CallFinalizerFromDealloc(object) < 0) {
        return;
    }
    PyObject_GC_UnTrack(object);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    end_unfinished(self); /* a loop may have let go of one that it was to close */
    (void)suspendable_clear(object);
    Py_CLEAR(self->function);
    Py_CLEAR(self->profiler);
    type->tp_free(object);
    Py_DECREF(type);
}

/* gi_frame, cr_running, __qualname__ and the like are the user's generator's. */
static PyObject *suspendable_getattro(PyObject *object, PyObject *name)
{
    ext_suspendable *self = (ext_suspendable *)object;
    PyObject *value = PyObject_GenericGetAttr(object, name);
    if (value != NULL || self->inner == NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return value;
    }
    PyErr_Clear();
    return PyObject_GetAttr(self->inner, name);
}

static PyObject *suspendable_repr(PyObject *object)
{
    ext_suspendable *self = (ext_suspendable *)object;
    return PyUnicode_FromFormat("<profiled %R>", self->inner != NULL ? self->inner : Py_None);
}

static PyObject *self_itself(PyObject *self)
{
    return Py_NewRef(self);
}

static PyMemberDef suspendable_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ext_suspendable, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* The slots that all three kinds have. */
#define COMMON_SLOTS                                                                                                    \
    {Py_tp_getattro, suspendable_getattro}, {Py_tp_repr, suspendable_repr}, {Py_tp_traverse, suspendable_traverse},     \
        {Py_tp_clear, suspendable_clear}, {Py_tp_finalize, suspendable_finalize}, {Py_tp_dealloc, suspendable_dealloc}, \
        {Py_tp_members, suspendable_members},

#define FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION)

static PyMethodDef generator_methods[] = {
    {"send", suspendable_send, METH_O, PyDoc_STR("Resumes the generator with a value.")},
    {"throw", (PyCFunction)(void (*)(void))suspendable_throw, METH_FASTCALL,
     PyDoc_STR("Raises an exception in the generator.")},
    {"close", suspendable_close, METH_NOARGS, PyDoc_STR("Closes the generator; it counts as one call.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot generator_slots[] = {
    COMMON_SLOTS
    {Py_tp_iter, self_itself},
    {Py_tp_iternext, suspendable_next},
    {Py_am_send, suspendable_am_send},
    {Py_tp_methods, generator_methods},
    {Py_tp_doc, (void *)"A generator whose resumptions are measured."},
    {0, NULL},
};

PyType_Spec ext_generator_spec = {
    .name = "cprofiling._core.ProfiledGenerator",
    .basicsize = sizeof(ext_suspendable),
    .flags = FLAGS,
    .slots = generator_slots,
};

static PyMethodDef coroutine_methods[] = {
    {"send", suspendable_send, METH_O, PyDoc_STR("Resumes the coroutine with a value.")},
    {"throw", (PyCFunction)(void (*)(void))suspendable_throw, METH_FASTCALL,
     PyDoc_STR("Raises an exception in the coroutine.")},
    {"close", suspendable_close, METH_NOARGS, PyDoc_STR("Closes the coroutine; begun, it counts as cancelled.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot coroutine_slots[] = {
    COMMON_SLOTS
    {Py_am_await, self_itself},
    {Py_tp_iternext, suspendable_next},
    {Py_am_send, suspendable_am_send},
    {Py_tp_methods, coroutine_methods},
    {Py_tp_doc, (void *)"A coroutine whose running and waiting are measured."},
    {0, NULL},
};

PyType_Spec ext_coroutine_spec = {
    .name = "cprofiling._core.ProfiledCoroutine",
    .basicsize = sizeof(ext_suspendable),
    .flags = FLAGS,
    .slots = coroutine_slots,
};

static PyObject *make_step(ext_suspendable *self, PyObject *awaitable, bool ends)
{
    PyTypeObject *type = self->function->node.state->step_type;
    if (awaitable == NULL || type == NULL) {
        return awaitable; /* failed, or the interpreter is ending */
    }
    ext_step *step = (ext_step *)type->tp_alloc(type, 0);
    if (step == NULL) {
        Py_DECREF(awaitable);
        return NULL;
    }
    step->owner = (ext_suspendable *)Py_NewRef((PyObject *)self);
    step->awaitable = awaitable;
    step->ends = ends;
    return (PyObject *)step;
}

static PyObject *call_sys(const char *name, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *function = PySys_GetObject(name);
    if (function == NULL) {
        PyErr_Format(PyExc_RuntimeError, "lost sys.%s", name);
        return NULL;
    }
    return PyObject_Vectorcall(function, args, (size_t)nargs, NULL);
}

/* Tells the event loop of the wrapper, as Python would have told it of the user's generator (PEP 525). */
static bool tell_loop(ext_suspendable *self, PyObject *first_iteration, PyObject *finalizer)
{
    if (finalizer != Py_None) {
        self->finalizer = Py_NewRef(finalizer);
    }
    if (first_iteration == Py_None) {
        return true;
    }
    PyObject *told = PyObject_CallOneArg(first_iteration, (PyObject *)self);
    Py_XDECREF(told);
    return told != NULL;
}

/* Calls a method of the user's generator for the first time, without the event loop's hooks: the loop is told of the wrapper
 * instead, so that what it closes at its end is counted. */
static PyObject *call_hooked(ext_suspendable *self, const char *name, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *const none[] = {Py_None, Py_None};
    PyObject *hooks = call_sys("get_asyncgen_hooks", NULL, 0);
    PyObject *cleared = hooks != NULL ? call_sys("set_asyncgen_hooks", none, 2) : NULL;
    PyObject *result = NULL;
    if (cleared != NULL) {
        result = call_method(self->inner, name, args, nargs);
        PyObject *const both[] = {PyTuple_GET_ITEM(hooks, 0), PyTuple_GET_ITEM(hooks, 1)};
        PyObject *restored = call_sys("set_asyncgen_hooks", both, 2);
        if (restored == NULL || (result != NULL && !tell_loop(self, both[0], both[1]))) {
            Py_CLEAR(result);
        }
        Py_XDECREF(restored);
    }
    Py_XDECREF(cleared);
    Py_XDECREF(hooks);
    return result;
}

static PyObject *begin_step(PyObject *object, const char *name, PyObject *const *args, Py_ssize_t nargs, bool ends)
{
    ext_suspendable *self = (ext_suspendable *)object;
    bool first = !self->hooked;
    self->hooked = true;
    PyObject *awaitable = first ? call_hooked(self, name, args, nargs) : call_method(self->inner, name, args, nargs);
    return make_step(self, awaitable, ends);
}

static PyObject *async_generator_anext(PyObject *object)
{
    return begin_step(object, "__anext__", NULL, 0, false);
}

static PyObject *async_generator_asend(PyObject *object, PyObject *argument)
{
    return begin_step(object, "asend", &argument, 1, false);
}

static PyObject *async_generator_athrow(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    return begin_step(object, "athrow", args, nargs, true);
}

static PyObject *async_generator_aclose(PyObject *object, PyObject *unused)
{
    (void)unused;
    return begin_step(object, "aclose", NULL, 0, true);
}

static PyMethodDef async_generator_methods[] = {
    {"asend", async_generator_asend, METH_O, PyDoc_STR("Resumes the asynchronous generator with a value.")},
    {"athrow", (PyCFunction)(void (*)(void))async_generator_athrow, METH_FASTCALL,
     PyDoc_STR("Raises an exception in the asynchronous generator.")},
    {"aclose", async_generator_aclose, METH_NOARGS, PyDoc_STR("Closes the asynchronous generator; it counts as one call.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot async_generator_slots[] = {
    COMMON_SLOTS
    {Py_am_aiter, self_itself},
    {Py_am_anext, async_generator_anext},
    {Py_tp_methods, async_generator_methods},
    {Py_tp_doc, (void *)"An asynchronous generator whose resumptions are measured."},
    {0, NULL},
};

PyType_Spec ext_async_generator_spec = {
    .name = "cprofiling._core.ProfiledAsyncGenerator",
    .basicsize = sizeof(ext_suspendable),
    .flags = FLAGS,
    .slots = async_generator_slots,
};

/* A step that came to its end: with a value, or with the end of the generator. */
static void leave_step(ext_suspendable *owner, const resumption *now, bool returned)
{
    if (now->view == NULL) {
        return;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    bool finished = is_finished(owner);
    bool success = returned || PyErr_GivenExceptionMatches(type, PyExc_StopAsyncIteration);
    PyErr_Restore(type, value, traceback);
    if (!finished) {
        leave_suspended(owner, now, true);
    } else {
        leave_ended(owner, now, success ? CPROF_OUTCOME_SUCCESS : ext_function_outcome());
    }
}

/* Ending a generator that never began is no resumption of it; nor can it begin afterwards. */
static bool enter_step(ext_step *step, resumption *now)
{
    if (step->ends) {
        step->owner->begun = true;
    }
    return enter(step->owner, now);
}

static PySendResult step_resume(PyObject *object, PyObject *argument, PyObject **result)
{
    ext_step *step = (ext_step *)object;
    resumption now;
    *result = NULL;
    if (!enter_step(step, &now)) {
        return PYGEN_ERROR;
    }
    PySendResult sent = PyIter_Send(step->awaitable, argument, result);
    if (sent == PYGEN_NEXT) {
        leave_suspended(step->owner, &now, false);
    } else {
        leave_step(step->owner, &now, sent == PYGEN_RETURN);
    }
    return sent;
}

static PyObject *step_next(PyObject *object)
{
    PyObject *result;
    PySendResult sent = step_resume(object, Py_None, &result);
    return as_method_result(sent, result);
}

static PyObject *step_send(PyObject *object, PyObject *argument)
{
    PyObject *result;
    PySendResult sent = step_resume(object, argument, &result);
    return as_method_result(sent, result);
}

static PyObject *step_throw(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    ext_step *step = (ext_step *)object;
    resumption now;
    if (!enter_step(step, &now)) {
        return NULL;
    }
    PyObject *result = call_method(step->awaitable, "throw", args, nargs);
    if (result != NULL) {
        leave_suspended(step->owner, &now, false);
    } else {
        leave_step(step->owner, &now, PyErr_ExceptionMatches(PyExc_StopIteration));
    }
    return result;
}

static PyObject *step_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    return call_method(((ext_step *)object)->awaitable, "close", NULL, 0);
}

static int step_traverse(PyObject *object, visitproc visit, void *arg)
{
    ext_step *step = (ext_step *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(step->owner);
    Py_VISIT(step->awaitable);
    return 0;
}

static void step_dealloc(PyObject *object)
{
    ext_step *step = (ext_step *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_CLEAR(step->awaitable);
    Py_CLEAR(step->owner);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef step_methods[] = {
    {"send", step_send, METH_O, PyDoc_STR("Resumes the step with a value.")},
    {"throw", (PyCFunction)(void (*)(void))step_throw, METH_FASTCALL, PyDoc_STR("Raises an exception in the step.")},
    {"close", step_close, METH_NOARGS, PyDoc_STR("Gives the step up.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot step_slots[] = {
    {Py_tp_traverse, step_traverse},
    {Py_tp_dealloc, step_dealloc},
    {Py_tp_iter, self_itself},
    {Py_tp_iternext, step_next},
    {Py_am_await, self_itself},
    {Py_am_send, step_resume},
    {Py_tp_methods, step_methods},
    {Py_tp_doc, (void *)"One step of an asynchronous generator."},
    {0, NULL},
};

PyType_Spec ext_step_spec = {
    .name = "cprofiling._core.ProfiledStep",
    .basicsize = sizeof(ext_step),
    .flags = FLAGS,
    .slots = step_slots,
};
