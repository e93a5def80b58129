#include "csrc/calls/function.h"

#include "csrc/convert.h"
#include "csrc/fault.h"
#include "csrc/calls/inherited.h"
#include "csrc/calls/pipeline.h"
#include "csrc/probes/probe.h"
#include "csrc/recordings/recorder.h"
#include "csrc/calls/suspendable.h"
#include "csrc/probes/sync.h"

enum { MOST_GROUPS = 16 }; /* inside one another */

/* The name of the first parameter, borrowed; None when it has none that can be given by keyword. */
static PyObject *first_parameter(ext_function *self)
{
    const ext_state *state = self->node.state;
    if (self->first_parameter == NULL && state->parameter_finder != NULL) {
        PyObject *found = PyObject_CallOneArg(state->parameter_finder, self->function);
        if (found == NULL || !PyUnicode_Check(found)) {
            ext_fault_forget();
            Py_XDECREF(found);
            found = Py_NewRef(Py_None);
        }
        Py_XSETREF(self->first_parameter, found);
    }
    return self->first_parameter != NULL ? self->first_parameter : Py_None;
}

static bool is_inherited(const ext_function *self, PyObject *function)
{
    return Py_TYPE(function) == self->node.state->inherited_type;
}

bool ext_function_has_self(ext_function *self)
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

/* A plain function is called by its own pointer: the check of the result that PyObject_Vectorcall() adds is made by our caller.
 */
static inline PyObject *forward(ext_function *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (__builtin_expect(self->is_plain_function, 1)) {
        return ((PyFunctionObject *)self->function)->vectorcall(self->function, args, nargsf, kwnames);
    }
    return PyObject_Vectorcall(self->function, args, nargsf, kwnames);
}

/* A class of a module, a new reference; NULL where the program has not loaded it, or there is none. */
static PyObject *loaded_class(const ext_state *state, ext_word module_name, ext_word name)
{
    PyObject *module = ext_state_loaded_module(state, module_name);
    PyObject *found = module != NULL ? PyObject_GetAttr(module, state->words[name]) : NULL;
    Py_XDECREF(module);
    ext_fault_forget();
    return found;
}

/* Whether an exception is a group of such of one class only, as trio's nurseries raise them.
 * NOLINTNEXTLINE(misc-no-recursion) */
static bool is_group_of(const ext_state *state, PyObject *error, PyObject *known, int depth)
{
    PyObject *parts = error != NULL && depth > 0 ? PyObject_GetAttr(error, state->words[EXT_WORD_EXCEPTIONS]) : NULL;
    bool matches = parts != NULL && PyTuple_Check(parts) && PyTuple_GET_SIZE(parts) > 0;
    for (Py_ssize_t i = 0; matches && i < PyTuple_GET_SIZE(parts); i++) {
        PyObject *part = PyTuple_GET_ITEM(parts, i);
        matches = PyErr_GivenExceptionMatches(part, known) || is_group_of(state, part, known, depth - 1);
    }
    Py_XDECREF(parts);
    ext_fault_forget();
    return matches;
}

cprof_outcome ext_function_outcome_of(const ext_state *state, PyObject *type, PyObject *error)
{
    PyObject *of_asyncio = loaded_class(state, EXT_WORD_ASYNCIO_EXCEPTIONS, EXT_WORD_CANCELLED_ERROR);
    PyObject *of_trio = loaded_class(state, EXT_WORD_TRIO, EXT_WORD_CANCELLED);
    bool matches =
        (of_asyncio != NULL && PyErr_GivenExceptionMatches(type, of_asyncio)) ||
        (of_trio != NULL && (PyErr_GivenExceptionMatches(type, of_trio) || is_group_of(state, error, of_trio, MOST_GROUPS)));
    Py_XDECREF(of_asyncio);
    Py_XDECREF(of_trio);
    return matches ? CPROF_OUTCOME_CANCELLED : CPROF_OUTCOME_ERROR;
}

cprof_outcome ext_function_outcome(const ext_state *state)
{
    ext_compat_error error = ext_compat_take_error();
    cprof_outcome outcome = ext_function_outcome_of(state, error.type, error.value);
    ext_compat_restore_error(error);
    return outcome;
}

/* Ends the span of a call that has just returned. The line of execution may have been switched away and back meanwhile. */
static inline void close_call(ext_view *view, cprof_span *span, PyObject *result)
{
    PyObject *owner = span->owner;
    (void)ext_view_renew(view);
    cprof_chain *chain = &view->chain;
    if (__builtin_expect(chain->top != span || chain->base == span, 0)) { /* or it encloses what goes on now */
        chain = ext_view_chain_of(view, span);
        chain = chain != NULL ? chain : &view->chain;
    }
    cprof_outcome outcome = __builtin_expect(result != NULL, 1) ? CPROF_OUTCOME_SUCCESS : ext_function_outcome(view->state);
    cprof_call_close(view->thread, chain, span, outcome, false);
    if (__builtin_expect(chain != &view->chain, 0)) {
        ext_view_forget_idle(view, chain);
    }
    Py_DECREF(owner);
    cprof_probe_settle();
}

/* Calls the function without a span, as none could be had. */
static __attribute__((noinline)) PyObject *forward_unmeasured(ext_function *self, const ext_target *target,
                                                              PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    target->profiler->internal_errors++;
    Py_DECREF(target->profiler);
    return forward(self, args, nargsf, kwnames);
}

/* The target's reference to the Profiler goes with the span, here as in all functions below. */
static inline PyObject *call_measured(ext_function *self, ext_view *view, const ext_target *target, PyObject *const *args,
                                      size_t nargsf, PyObject *kwnames)
{
    cprof_span *span = ext_node_open_span(view, target, self);
    if (__builtin_expect(span == NULL, 0)) {
        return forward_unmeasured(self, target, args, nargsf, kwnames);
    }
    PyObject *result = forward(self, args, nargsf, kwnames);
    close_call(view, span, result);
    return result;
}

/* Waits for the call's device before, and, as part of it, after; asks for what is wanted beyond times. */
static PyObject *call_carefully(ext_function *self, ext_view *view, const ext_target *target, PyObject *const *args,
                                size_t nargsf, PyObject *kwnames)
{
    ext_state *state = self->node.state;
    size_t nargs = (size_t)PyVectorcall_NARGS(nargsf);
    bool synchronizes = (target->state & CPROF_FLAG_SYNC) != 0;
    int device = synchronizes ? ext_sync_device(state, target->profiler, args, nargs, kwnames) : EXT_SYNC_NONE;
    struct cprof_recording_detail detail;
    bool described = (target->state & CPROF_FLAG_DETAIL) != 0;
    if (described) {
        ext_recorder_describe(view, args, nargs, kwnames, &detail);
    }
    cprof_probe *probe = ext_probe_prepare(state, self, target, args, nargs, kwnames);
    ext_probe_wait(state, probe, device);
    cprof_span *span = ext_view_renew(view) ? ext_node_open_span(view, target, self) : NULL;
    if (span == NULL) {
        ext_probe_drop(probe);
        return forward_unmeasured(self, target, args, nargsf, kwnames);
    }
    if (described) {
        cprof_recording_begin_detail(span, &detail);
    }
    if (probe != NULL) {
        cprof_probe_begin(probe, view->thread, span);
    }
    PyObject *result = forward(self, args, nargsf, kwnames);
    if (result != NULL) {
        ext_probe_wait(state, span->probe, device);
    }
    ext_probe_end(state, span);
    if (described) {
        ext_recorder_end_detail(state, span);
    }
    close_call(view, span, result);
    return result;
}

/* A call of a generator or coroutine function makes an object; what is measured is the running of that object. */
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
            ext_suspendable_keep_arguments(self->node.state, made, args, (size_t)PyVectorcall_NARGS(nargsf), kwnames);
        }
    }
    Py_DECREF(target->profiler);
    return made;
}

/* All that is not a plain function with plain statistics. */
static PyObject *call_any(ext_function *self, ext_view *view, const ext_target *target, const ext_pending *pending,
                          PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (self->kind != EXT_KIND_CALL) {
        return make_suspendable(self, target, pending, args, nargsf, kwnames);
    }
    if ((target->state & (CPROF_FLAG_PROBED | CPROF_FLAG_DETAIL)) != 0) {
        return call_carefully(self, view, target, args, nargsf, kwnames);
    }
    return call_measured(self, view, target, args, nargsf, kwnames);
}

void ext_function_push_pending(ext_view *view, ext_pending *pending)
{
    pending->outer = view->pending;
    view->pending = pending;
}

/* Mostly the first; greenlets may take turns. */
void ext_function_pop_pending(ext_view *view, ext_pending *pending)
{
    ext_pending **at = &view->pending;
    while (*at != NULL && *at != pending) {
        at = &(*at)->outer;
    }
    if (*at != NULL) {
        *at = pending->outer;
    }
}

/* Decorated twice: tells the inner wrapper that its call is counted already. */
static PyObject *call_outer(ext_function *self, ext_view *view, const ext_target *target, PyObject *const *args, size_t nargsf,
                            PyObject *kwnames)
{
    ext_pending *pending = PyMem_Malloc(sizeof *pending);
    if (pending == NULL) {
        return forward_unmeasured(self, target, args, nargsf, kwnames);
    }
    *pending = (ext_pending){.inner = self->inner, .owner = target->profiler};
    ext_function_push_pending(view, pending);
    PyObject *result = call_any(self, view, target, pending, args, nargsf, kwnames);
    ext_function_pop_pending(view, pending);
    PyMem_Free(pending);
    return result;
}

static __attribute__((noinline)) PyObject *call_uncommon(ext_function *self, ext_view *view, const ext_target *target,
                                                         PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (self->inner != NULL) {
        return call_outer(self, view, target, args, nargsf, kwnames);
    }
    return call_any(self, view, target, NULL, args, nargsf, kwnames);
}

static bool contains(const ext_function *function, const ext_function *inner)
{
    while (function != NULL && function != inner) {
        function = function->inner;
    }
    return function != NULL;
}

/* Whether a wrapper around this one counts the call for the same Profiler; what is pending is passed on to the next layer. */
static __attribute__((noinline)) bool is_pending(ext_function *self, ext_view *view, const ext_profiler *profiler)
{
    bool counted = false;
    for (ext_pending *pending = view->pending; pending != NULL; pending = pending->outer) {
        if (contains(pending->inner, self)) {
            counted = counted || pending->owner == profiler;
            pending->inner = self->inner;
        }
    }
    return counted;
}

static inline bool is_counted_already(ext_function *self, ext_view *view, const ext_profiler *profiler)
{
    return __builtin_expect(self->is_inner, 0) && view->pending != NULL && is_pending(self, view, profiler);
}

static __attribute__((noinline)) PyObject *call_on(ext_function *self, cprof_thread *thread, PyObject *const *args,
                                                   size_t nargsf, PyObject *kwnames)
{
    PyObject *first = first_argument(self, args, nargsf, kwnames);
    ext_view *view = ext_view_get(self->node.state, thread);
    if (__builtin_expect(view == NULL, 0)) {
        return forward(self, args, nargsf, kwnames);
    }
    ext_target target;
    ext_profiler *profiler = ext_node_find_profiler(&self->node, view, first);
    if (is_counted_already(self, view, profiler) || !ext_node_resolve(&self->node, view, profiler, first, &target)) {
        return forward(self, args, nargsf, kwnames);
    }
    if (__builtin_expect(self->is_uncommon || (target.state & (CPROF_FLAG_PROBED | CPROF_FLAG_DETAIL)) != 0, 0)) {
        return call_uncommon(self, view, &target, args, nargsf, kwnames);
    }
    return call_measured(self, view, &target, args, nargsf, kwnames);
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

/* Every path ends in a tail call, so that what is off costs no stack frame and saves no register. */
static PyObject *function_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
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
static PyObject *binder_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    ext_function *self = (ext_function *)callable;
    cprof_thread *thread = prepare_thread(self);
    if (thread == NULL && PyErr_Occurred()) {
        return NULL;
    }
    ext_profiler *profiler = self->node.profiler;
    PyObject *first = profiler == NULL && thread != NULL ? first_argument(self, args, nargsf, kwnames) : NULL;
    if (first != NULL && ext_pipeline_find(self->node.state, first, &profiler) && profiler == NULL) {
        profiler = ext_pipeline_profiler(self->node.state, first);
    }
    Py_XINCREF(profiler);
    ext_view *view = profiler != NULL && thread != NULL ? ext_view_get(self->node.state, thread) : NULL;
    if (view == NULL) {
        ext_fault_forget();
        Py_XDECREF(profiler);
        return forward(self, args, nargsf, kwnames);
    }
    ext_target target = {.profiler = profiler};
    return call_any(self, view, &target, NULL, args, nargsf, kwnames);
}

/* Whether `callable` binds in C as functions do: called with the instance first. */
static bool is_method_like(const ext_state *state, PyObject *callable)
{
    while (Py_TYPE(callable) == state->inherited_type) {
        callable = ext_inherited_found(callable);
    }
    return PyType_HasFeature(Py_TYPE(callable), Py_TPFLAGS_METHOD_DESCRIPTOR);
}

/* Fills all but the node, which is complete. `inner` may be any object. */
static void init_calls(ext_function *self, PyObject *function, ext_kind kind, bool binds, PyObject *inner)
{
    const ext_state *state = self->node.state;
    self->function = Py_NewRef(function);
    self->wrapped = Py_NewRef(function);
    self->is_plain_function = PyFunction_Check(function);
    self->kind = kind;
    self->binds = binds;
    self->vectorcall = binds ? binder_vectorcall : function_vectorcall;
    self->gate = ext_node_gate(&self->node);
    if (state->function_type != NULL && PyObject_TypeCheck(inner, state->function_type)) {
        self->inner = (ext_function *)Py_NewRef(inner);
        self->inner->is_inner = true;
    }
    self->is_uncommon = self->inner != NULL || self->kind != EXT_KIND_CALL;
}

static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"function", "kind",  "name",    "default_name", "stage", "profiler",
                               "inner",    "binds", "records", "mutes",        NULL};
    PyObject *function, *name, *default_name, *stage, *profiler, *inner;
    int kind, binds, records, mutes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OiOOOOOppp:Function", keywords, &function, &kind, &name, &default_name,
                                     &stage, &profiler, &inner, &binds, &records, &mutes)) {
        return NULL;
    }
    ext_state *state = ext_state_of_type(type);
    if (state != NULL && type == state->function_type && !is_method_like(state, function)) {
        type = state->callable_type;
    }
    ext_function *self = state != NULL ? (ext_function *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        return NULL;
    }
    self->node.is_record = records;
    self->node.mutes = mutes;
    if (!ext_node_init(&self->node, state, name, default_name, stage,
                       records ? (PyObject *)state->record_profiler : profiler)) {
        Py_DECREF(self);
        return NULL;
    }
    init_calls(self, function, (ext_kind)kind, binds, inner);
    return (PyObject *)self;
}

static int function_traverse(PyObject *object, visitproc visit, void *arg)
{
    ext_function *self = (ext_function *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->function);
    Py_VISIT(self->wrapped);
    Py_VISIT(self->inner);
    return ext_node_traverse(&self->node, visit, arg);
}

/* The function stays until dealloc: a call may still come while a cycle is taken apart. */
static int function_clear(PyObject *object)
{
    ext_function *self = (ext_function *)object;
    Py_CLEAR(self->wrapped);
    return 0;
}

static void function_dealloc(PyObject *object)
{
    ext_function *self = (ext_function *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    Py_CLEAR(self->wrapped);
    Py_CLEAR(self->function);
    Py_CLEAR(self->first_parameter);
    Py_CLEAR(self->inner);
    ext_node_clear(&self->node);
    type->tp_free(object);
    Py_DECREF(type);
}

/* The wrapper of what the wrapped callable gives for an instance: the same node. */
static PyObject *make_bound(ext_function *self, PyObject *bound, PyObject *instance)
{
    PyTypeObject *type = self->node.state->callable_type;
    if (type == NULL) {
        return Py_NewRef(bound); /* the interpreter is ending */
    }
    ext_function *made = (ext_function *)type->tp_alloc(type, 0);
    if (made == NULL || !ext_node_init_bound(&made->node, &self->node, instance)) {
        Py_XDECREF(made);
        return NULL;
    }
    PyTypeObject *function_type = self->node.state->function_type;
    bool is_own = function_type != NULL && PyObject_TypeCheck(bound, function_type);
    init_calls(made, bound, self->kind, self->binds, is_own ? bound : self->inner != NULL ? (PyObject *)self->inner : Py_None);
    return (PyObject *)made;
}

/* Binds as the wrapped callable does. */
static PyObject *callable_get(PyObject *object, PyObject *instance, PyObject *owner)
{
    ext_function *self = (ext_function *)object;
    descrgetfunc get = Py_TYPE(self->function)->tp_descr_get;
    PyObject *bound = get != NULL ? get(self->function, instance, owner) : Py_NewRef(self->function);
    if (bound == NULL || (bound == self->function && (!self->binds || instance == NULL))) {
        Py_XDECREF(bound);
        return bound != NULL ? Py_NewRef(object) : NULL;
    }
    PyObject *result;
    if (PyMethod_Check(bound) && PyMethod_GET_FUNCTION(bound) == self->function) {
        result = PyMethod_New(object, PyMethod_GET_SELF(bound));
    } else {
        result = PyCallable_Check(bound) ? make_bound(self, bound, instance) : Py_NewRef(bound);
    }
    Py_DECREF(bound);
    return result;
}

static PyObject *function_get(PyObject *object, PyObject *instance, PyObject *owner)
{
    (void)owner;
    return instance == NULL || instance == Py_None ? Py_NewRef(object) : PyMethod_New(object, instance);
}

static bool is_word(const ext_function *self, PyObject *name, ext_word word)
{
    return PyUnicode_Check(name) && PyUnicode_Compare(name, self->node.state->words[word]) == 0;
}

/* An object's __call__ has a signature, which a slot has not. */
static PyObject *get_call(ext_function *self)
{
    PyObject *call = PyObject_GetAttr(self->function, self->node.state->words[EXT_WORD_CALL]);
    PyObject *bound = call != NULL ? make_bound(self, call, NULL) : NULL;
    Py_XDECREF(call);
    return bound;
}

static PyObject *ask(PyObject *hook, PyObject *function)
{
    if (hook == NULL) {
        PyErr_SetString(PyExc_AttributeError, "the interpreter is ending");
        return NULL;
    }
    return PyObject_CallOneArg(hook, function);
}

/* The wrapper has no dict of its own. Only inspect.getattr_static() comes here, by which torch.compile asks. */
static PyObject *function_marks(PyObject *object, void *unused)
{
    (void)unused;
    ext_function *self = (ext_function *)object;
    return ask(self->node.state->marks_finder, self->function);
}

/* What the wrapper does not have itself it answers as the wrapped callable does; and the Profiler that it was given, where that
 * has no attribute of the name. */
static PyObject *function_getattro(PyObject *object, PyObject *name)
{
    ext_function *self = (ext_function *)object;
    if (is_word(self, name, EXT_WORD_CALL) && !self->is_plain_function) {
        return get_call(self);
    }
    if (is_word(self, name, EXT_WORD_INLINE)) {
        return ask(self->node.state->stand_in_maker, self->function);
    }
    bool has_own = !is_word(self, name, EXT_WORD_DICT) && !is_word(self, name, EXT_WORD_DOC) && /* a type has these, too */
                   !is_word(self, name, EXT_WORD_MODULE);
    if (has_own) {
        PyObject *value = PyObject_GenericGetAttr(object, name);
        if (value != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return value;
        }
        PyErr_Clear();
    }
    bool asks_profiler =
        self->node.profiler != NULL && !self->node.is_record && PyUnicode_CompareWithASCIIString(name, "profiler") == 0;
    bool wraps_another =
        self->node.state->function_type != NULL && PyObject_TypeCheck(self->function, self->node.state->function_type);
    PyObject *value = asks_profiler && wraps_another ? NULL : PyObject_GetAttr(self->function, name);
    if (value != NULL || !asks_profiler || (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_AttributeError))) {
        return value;
    }
    PyErr_Clear();
    return Py_NewRef((PyObject *)self->node.profiler);
}

/* Another code may make another kind of function of it. */
static void look_again(ext_function *self)
{
    Py_CLEAR(self->first_parameter);
    PyObject *finder = self->node.state->kind_finder;
    PyObject *found = finder != NULL ? PyObject_CallOneArg(finder, self->function) : NULL;
    long kind = found != NULL ? PyLong_AsLong(found) : -1;
    Py_XDECREF(found);
    ext_fault_forget();
    self->kind = kind >= 0 ? (ext_kind)kind : self->kind;
    self->is_uncommon = self->inner != NULL || self->kind != EXT_KIND_CALL;
}

static int function_setattro(PyObject *object, PyObject *name, PyObject *value)
{
    ext_function *self = (ext_function *)object;
    if (PyObject_GenericSetAttr(object, name, value) == 0) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return -1;
    }
    PyErr_Clear();
    if (PyObject_SetAttr(self->function, name, value) < 0) {
        return -1;
    }
    if (is_word(self, name, EXT_WORD_CODE)) {
        look_again(self);
    }
    return 0;
}

static PyObject *function_repr(PyObject *object)
{
    ext_function *self = (ext_function *)object;
    return PyUnicode_FromFormat("<profiled %R>", self->function);
}

/* What another one like it can be made of: the arguments of its type. */
static PyObject *function_parts(PyObject *object, PyObject *unused)
{
    (void)unused;
    const ext_function *self = (ext_function *)object;
    const ext_node *node = &self->node;
    PyObject *profiler = node->is_record ? NULL : (PyObject *)node->profiler;
#define OR_NONE(part) ((part) != NULL ? (PyObject *)(part) : Py_None)
    return Py_BuildValue("(OiOOOOOiii)", self->function, (int)self->kind, OR_NONE(node->name_finder), OR_NONE(node->key.name),
                         OR_NONE(node->stage), OR_NONE(profiler), OR_NONE(self->inner), (int)self->binds, (int)node->is_record,
                         (int)node->mutes);
#undef OR_NONE
}

/* Without it pickle would find that of the wrapped callable. */
static PyObject *function_setstate(PyObject *object, PyObject *wrapped)
{
    Py_XSETREF(((ext_function *)object)->wrapped, Py_NewRef(wrapped));
    Py_RETURN_NONE;
}

static PyObject *function_detach(PyObject *object, PyObject *unused)
{
    static const _Atomic uint64_t never;
    (void)unused;
    ((ext_function *)object)->gate = &never;
    Py_RETURN_NONE;
}

static PyObject *function_detached(PyObject *object, void *unused)
{
    (void)unused;
    ext_function *self = (ext_function *)object;
    return PyBool_FromLong(self->gate != ext_node_gate(&self->node));
}

/* Whether cloudpickle asks how to reduce an object: it would take the wrapper's code and leave the wrapper. There are copies of
 * it in Ray, Spark and others, all with this method, and, from 2.0 on, the function that the package asks then. */
static bool is_asked_by_cloudpickle(void)
{
    PyFrameObject *frame = PyEval_GetFrame();
    PyCodeObject *code = frame != NULL ? PyFrame_GetCode(frame) : NULL;
    bool is_it = code != NULL && PyUnicode_CompareWithASCIIString(code->co_name, "reducer_override") == 0;
    Py_XDECREF(code);
    PyObject *globals = is_it ? PyObject_GetAttrString((PyObject *)frame, "f_globals") : NULL;
    is_it = globals != NULL && PyMapping_HasKeyString(globals, "_should_pickle_by_reference");
    Py_XDECREF(globals);
    return is_it;
}

/* inspect, and those who use it (torch.compile among them), must take the wrapper for what it wraps. */
static PyObject *function_class(PyObject *object, void *unused)
{
    (void)unused;
    const ext_function *self = (ext_function *)object;
    if (is_asked_by_cloudpickle()) {
        return Py_NewRef((PyObject *)Py_TYPE(object));
    }
    PyObject *function = self->function;
    while (is_inherited(self, function)) {
        function = ext_inherited_found(function);
    }
    return PyObject_GetAttr(function, self->node.state->words[EXT_WORD_CLASS]);
}

static PyMethodDef function_methods[] = {
    {"detach", function_detach, METH_NOARGS, PyDoc_STR("Makes the wrapper count nothing any more.")},
    {"_parts", function_parts, METH_NOARGS, PyDoc_STR("Returns what another one like it can be made of.")},
    {"__setstate__", function_setstate, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef function_getset[] = {
    {"__class__", function_class, NULL, NULL, NULL},
    {"__dict__", function_marks, NULL, NULL, NULL},
    {"detached", function_detached, NULL, PyDoc_STR("Whether detach() was called."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ext_function, vectorcall), READONLY, NULL},
    {"__wrapped__", T_OBJECT_EX, offsetof(ext_function, wrapped), 0, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ext_function, weakrefs), READONLY, NULL},
    {"_binds", T_BOOL, offsetof(ext_function, binds), READONLY, PyDoc_STR("Whether it is a pipeline's own, and no node.")},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot function_slots[] = {
    {Py_tp_new, function_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, function_get},
    {Py_tp_getattro, function_getattro},
    {Py_tp_setattro, function_setattro},
    {Py_tp_repr, function_repr},
    {Py_tp_traverse, function_traverse},
    {Py_tp_clear, function_clear},
    {Py_tp_dealloc, function_dealloc},
    {Py_tp_methods, function_methods},
    {Py_tp_getset, function_getset},
    {Py_tp_members, function_members},
    {Py_tp_doc, (void *)"A callable whose calls are counted as those of a node."},
    {0, NULL},
};

PyType_Spec ext_function_spec = {
    .name = "cprofiling._core.Function",
    .basicsize = sizeof(ext_function),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
             Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = function_slots,
};

static PyType_Slot callable_slots[] = {
    {Py_tp_descr_get, callable_get}, /* the same as the base's would bring the flag along */
    {Py_tp_traverse, function_traverse},
    {Py_tp_clear, function_clear},
    {Py_tp_dealloc, function_dealloc},
    {Py_tp_doc, (void *)"One around a callable that binds in a way of its own, or not at all."},
    {0, NULL},
};

/* Without the flag that makes Python pass the instance by itself. */
PyType_Spec ext_callable_spec = {
    .name = "cprofiling._core.ObjectFunction",
    .basicsize = sizeof(ext_function),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = callable_slots,
};
