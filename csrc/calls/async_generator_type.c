#include "csrc/calls/suspendable.h"

#include "csrc/types.h"
#include "csrc/calls/outcome.h"

/* One step: what __anext__, asend, athrow, aclose return. */
typedef struct {
    PyObject_HEAD
    ext_suspendable *owner; /* owned */
    PyObject *awaitable;    /* the user's generator's own; owned */
    bool ends;              /* aclose or athrow: of a generator that never began it is no resumption */
} step_object;

static PyObject *make_step(ext_suspendable *self, PyObject *awaitable, bool ends)
{
    PyTypeObject *type = self->function->node.state->step_type;
    if (awaitable == NULL || type == NULL) {
        return awaitable; /* failed, or the interpreter is ending */
    }
    step_object *step = (step_object *)type->tp_alloc(type, 0);
    if (step == NULL) {
        Py_DECREF(awaitable);
        return NULL;
    }
    step->owner = (ext_suspendable *)Py_NewRef((PyObject *)self);
    step->awaitable = awaitable;
    step->ends = ends;
    return (PyObject *)step;
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

static PyObject *call_method(const ext_suspendable *self, ext_word name, PyObject *const *args, Py_ssize_t nargs)
{
    bool is_quick = name == EXT_WORD_ANEXT && self->inner != NULL && PyAsyncGen_CheckExact(self->inner);
    return is_quick ? PyAsyncGen_Type.tp_as_async->am_anext(self->inner)
                    : ext_suspendable_call(self, self->inner, name, args, nargs);
}

/* Calls a method of the user's generator for the first time, without the event loop's hooks: the loop is told of the wrapper
 * instead, so that what it closes at its end is counted. Where it has a finalizer, the user's generator gets one that does
 * nothing, type(): dropped after the loop has closed, it is not closed either, as without the wrapper. */
static PyObject *call_hooked(ext_suspendable *self, ext_word name, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *sys = self->function->node.state->sys_module;
    PyObject *hooks = ext_suspendable_call(self, sys, EXT_WORD_GET_HOOKS, NULL, 0);
    if (hooks == NULL) {
        return NULL;
    }
    PyObject *const both[] = {PyTuple_GET_ITEM(hooks, 0), PyTuple_GET_ITEM(hooks, 1)};
    if (both[0] == Py_None && both[1] == Py_None) {
        Py_DECREF(hooks);
        return call_method(self, name, args, nargs);
    }
    PyObject *const own[] = {Py_None, both[1] == Py_None ? Py_None : (PyObject *)&PyType_Type};
    PyObject *set = ext_suspendable_call(self, sys, EXT_WORD_SET_HOOKS, own, 2);
    PyObject *result = NULL;
    if (set != NULL) {
        result = call_method(self, name, args, nargs);
        ext_compat_error error = ext_compat_take_error();
        PyObject *restored = ext_suspendable_call(self, sys, EXT_WORD_SET_HOOKS, both, 2);
        if (restored != NULL || error.type != NULL) {
            ext_compat_restore_error(error);
        }
        if (restored == NULL || (result != NULL && !tell_loop(self, both[0], both[1]))) {
            Py_CLEAR(result);
        }
        Py_XDECREF(restored);
    }
    Py_XDECREF(set);
    Py_DECREF(hooks);
    return result;
}

static PyObject *begin_step(PyObject *object, ext_word name, PyObject *const *args, Py_ssize_t nargs, bool ends)
{
    ext_suspendable *self = (ext_suspendable *)object;
    bool first;
    EXT_ALONE(object, {
        first = !self->hooked && self->function->node.state->sys_module != NULL; /* else the interpreter is ending */
        self->hooked = true;
    });
    PyObject *awaitable = first ? call_hooked(self, name, args, nargs) : call_method(self, name, args, nargs);
    return make_step(self, awaitable, ends);
}

static PyObject *async_generator_anext(PyObject *object)
{
    return begin_step(object, EXT_WORD_ANEXT, NULL, 0, false);
}

static PyObject *async_generator_asend(PyObject *object, PyObject *argument)
{
    return begin_step(object, EXT_WORD_ASEND, &argument, 1, false);
}

static PyObject *async_generator_athrow(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    return begin_step(object, EXT_WORD_ATHROW, args, nargs, true);
}

static PyObject *async_generator_aclose(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return begin_step(object, EXT_WORD_ACLOSE, NULL, 0, true);
}

static PyMethodDef async_generator_methods[] = {
    {"asend", async_generator_asend, METH_O, PyDoc_STR("Resumes the asynchronous generator with a value.")},
    {"athrow", EXT_METHOD(async_generator_athrow), METH_FASTCALL,
     PyDoc_STR("Raises an exception in the asynchronous generator.")},
    {"aclose", async_generator_aclose, METH_NOARGS, PyDoc_STR("Closes the asynchronous generator; it counts as one call.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot async_generator_slots[] = {
    EXT_SUSPENDABLE_SLOTS
    {Py_am_aiter, PyObject_SelfIter},
    {Py_am_anext, async_generator_anext},
    {Py_tp_methods, async_generator_methods},
    {Py_tp_doc, (void *)"An asynchronous generator whose resumptions are measured."},
    {0, NULL},
};

PyType_Spec ext_async_generator_spec =
    EXT_TYPES_SPEC("ProfiledAsyncGenerator", ext_suspendable, async_generator_slots, EXT_SUSPENDABLE_FLAGS);

/* A step that came to its end: with a value, or with the end of the generator. */
static void leave_step(const step_object *step, const ext_resumption *now, bool returned)
{
    ext_suspendable *owner = step->owner;
    if (now->view == NULL) {
        ext_suspendable_end_claim(owner, now);
        return;
    }
    owner->step = NULL;
    bool has_yielded = returned && !step->ends && owner->inner != NULL && PyAsyncGen_CheckExact(owner->inner);
    if (has_yielded || !ext_suspendable_is_finished(owner)) {
        ext_suspendable_leave_suspended(owner, now, owner->function->kind == EXT_KIND_ASYNC_GENERATOR);
    } else {
        bool success = returned || PyErr_ExceptionMatches(PyExc_StopAsyncIteration);
        ext_suspendable_leave_ended(owner, now, success ? CPROF_OUTCOME_SUCCESS : ext_outcome(now->view->state));
    }
}

/* Ending a generator that never began is no resumption of it; nor can it begin afterwards. While another step is under way,
 * the user's generator will refuse this one. */
static bool enter_step(step_object *step, ext_resumption *now)
{
    ext_suspendable *owner = step->owner;
    if (!ext_suspendable_claim(owner, now)) {
        return false;
    }
    if (owner->step != NULL && owner->step != step) {
        now->view = NULL;
        return true;
    }
    owner->begun = owner->begun || step->ends;
    if (!ext_suspendable_enter_claimed(owner, now)) {
        return false;
    }
    owner->step = now->view != NULL ? step : owner->step;
    return true;
}

/* A step that is given up while it waits. Others may be beginning one of their own. */
static void give_up(const step_object *step)
{
#if EXT_FREE_THREADED
    const void *own = step;
    (void)atomic_compare_exchange_strong(&step->owner->step, &own, NULL);
#else
    if (step->owner->step == step) {
        step->owner->step = NULL;
    }
#endif
}

static PySendResult step_resume(PyObject *object, PyObject *argument, PyObject **result)
{
    step_object *step = (step_object *)object;
    ext_resumption now;
    *result = NULL;
    if (!enter_step(step, &now)) {
        return PYGEN_ERROR;
    }
    PySendResult sent = PyIter_Send(step->awaitable, argument, result);
    if (sent == PYGEN_NEXT) {
        ext_suspendable_leave_suspended(step->owner, &now, false);
    } else {
        leave_step(step, &now, sent == PYGEN_RETURN);
    }
    return sent;
}

static PyObject *step_throw(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    step_object *step = (step_object *)object;
    ext_resumption now;
    if (!enter_step(step, &now)) {
        return NULL;
    }
    PyObject *result = ext_suspendable_call(step->owner, step->awaitable, EXT_WORD_THROW, args, nargs);
    if (result != NULL) {
        ext_suspendable_leave_suspended(step->owner, &now, false);
    } else {
        leave_step(step, &now, PyErr_ExceptionMatches(PyExc_StopIteration));
    }
    return result;
}

static PyObject *step_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
    step_object *step = (step_object *)object;
    give_up(step);
    return ext_suspendable_call(step->owner, step->awaitable, EXT_WORD_CLOSE, NULL, 0);
}

static int step_traverse(PyObject *object, visitproc visit, void *arg)
{
    step_object *step = (step_object *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(step->owner);
    Py_VISIT(step->awaitable);
    return 0;
}

static void step_dealloc(PyObject *object)
{
    step_object *step = (step_object *)object;
    PyObject_GC_UnTrack(object);
    give_up(step);
    Py_CLEAR(step->awaitable);
    Py_CLEAR(step->owner);
    ext_state_free(object);
}

static PyMethodDef step_methods[] = {
    {"send", ext_suspendable_send, METH_O, PyDoc_STR("Resumes the step with a value.")},
    {"throw", EXT_METHOD(step_throw), METH_FASTCALL, PyDoc_STR("Raises an exception in the step.")},
    {"close", step_close, METH_NOARGS, PyDoc_STR("Gives the step up.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot step_slots[] = {
    {Py_tp_traverse, step_traverse},
    {Py_tp_dealloc, step_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, ext_suspendable_next},
    {Py_am_await, PyObject_SelfIter},
    {Py_am_send, step_resume},
    {Py_tp_methods, step_methods},
    {Py_tp_doc, (void *)"One step of an asynchronous generator."},
    {0, NULL},
};

PyType_Spec ext_step_spec = EXT_TYPES_SPEC("ProfiledStep", step_object, step_slots, EXT_SUSPENDABLE_FLAGS);
