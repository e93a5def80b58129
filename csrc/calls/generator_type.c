#include "csrc/calls/suspendable.h"

#include "csrc/calls/outcome.h"
#include "csrc/types.h"

static void leave_raised(ext_suspendable *self, const ext_resumption *now)
{
    if (now->view != NULL && ext_suspendable_is_finished(self)) {
        ext_suspendable_leave_ended(self, now, ext_outcome(now->view->state));
    } else {
        ext_suspendable_leave_suspended(self, now, true);
    }
}

static PySendResult resume(PyObject *object, PyObject *argument, PyObject **result)
{
    ext_suspendable *self = (ext_suspendable *)object;
    ext_resumption now;
    *result = NULL;
    if (self->inner == NULL) {
        *result = Py_NewRef(Py_None);
        return PYGEN_RETURN;
    }
    if (!ext_suspendable_enter(self, &now)) {
        return PYGEN_ERROR;
    }
    PySendResult sent = PyIter_Send(self->inner, argument, result);
    if (sent == PYGEN_NEXT) {
        ext_suspendable_leave_suspended(self, &now, self->function->kind == EXT_KIND_GENERATOR);
    } else if (sent == PYGEN_RETURN) {
        ext_suspendable_leave_ended(self, &now, CPROF_OUTCOME_SUCCESS);
    } else {
        leave_raised(self, &now);
    }
    return sent;
}

static PyObject *resumable_throw(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    ext_suspendable *self = (ext_suspendable *)object;
    ext_resumption now;
    if (self->inner == NULL) {
        PyErr_SetNone(PyExc_StopIteration);
        return NULL;
    }
    if (!ext_suspendable_claim(self, &now)) {
        return NULL;
    }
    if (!self->begun) { /* raised at the start of a call that never ran */
        self->begun = true;
        PyObject *thrown = ext_suspendable_call(self, self->inner, EXT_WORD_THROW, args, nargs);
        ext_suspendable_end_claim(self, &now);
        return thrown;
    }
    if (!ext_suspendable_enter_claimed(self, &now)) {
        return NULL;
    }
    PyObject *result = ext_suspendable_call(self, self->inner, EXT_WORD_THROW, args, nargs);
    if (result != NULL) {
        ext_suspendable_leave_suspended(self, &now, self->function->kind == EXT_KIND_GENERATOR);
    } else if (PyErr_ExceptionMatches(PyExc_StopIteration)) {
        ext_suspendable_leave_ended(self, &now, CPROF_OUTCOME_SUCCESS);
    } else {
        leave_raised(self, &now);
    }
    return result;
}

static PyObject *resumable_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
    ext_suspendable *self = (ext_suspendable *)object;
    ext_resumption now = {.view = NULL};
    if (self->inner == NULL) {
        Py_RETURN_NONE;
    }
    if (!ext_suspendable_claim(self, &now) || (self->begun && !ext_suspendable_enter_claimed(self, &now))) {
        return NULL;
    }
    self->begun = true;
    PyObject *result = ext_suspendable_call(self, self->inner, EXT_WORD_CLOSE, NULL, 0);
    if (result != NULL) {
        ext_suspendable_leave_ended(self, &now, ext_suspendable_outcome_of_close(self));
    } else {
        leave_raised(self, &now);
    }
    return result;
}

/* Only those of types.coroutine() can be awaited. */
static PyObject *generator_await(PyObject *object)
{
    PyObject *code = PyObject_GetAttrString(object, "gi_code");
    bool can_be = code != NULL && PyCode_Check(code) && (((PyCodeObject *)code)->co_flags & CO_ITERABLE_COROUTINE) != 0;
    Py_XDECREF(code);
    if (can_be) {
        return Py_NewRef(object);
    }
    PyErr_SetString(PyExc_TypeError, "object generator can't be used in 'await' expression");
    return NULL;
}

static PyMethodDef generator_methods[] = {
    {"send", ext_suspendable_send, METH_O, PyDoc_STR("Resumes the generator with a value.")},
    {"throw", EXT_METHOD(resumable_throw), METH_FASTCALL, PyDoc_STR("Raises an exception in the generator.")},
    {"close", resumable_close, METH_NOARGS, PyDoc_STR("Closes the generator; it counts as one call.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot generator_slots[] = {
    EXT_SUSPENDABLE_SLOTS
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, ext_suspendable_next},
    {Py_am_await, generator_await},
    {Py_am_send, resume},
    {Py_tp_methods, generator_methods},
    {Py_tp_doc, (void *)"A generator whose resumptions are measured."},
    {0, NULL},
};

PyType_Spec ext_generator_spec = EXT_TYPES_SPEC("ProfiledGenerator", ext_suspendable, generator_slots, EXT_SUSPENDABLE_FLAGS);

/* What an awaitable holds. */
typedef struct {
    PyObject_HEAD
    PyObject *held; /* owned; NULL once it was given */
} holder;

/* Takes `held` over. NULL with an exception. */
static PyObject *new_holder(PyTypeObject *type, PyObject *held)
{
    holder *made = type != NULL ? PyObject_GC_New(holder, type) : (holder *)ext_state_ending();
    if (made == NULL) {
        Py_DECREF(held);
        return NULL;
    }
    made->held = held;
    PyObject_GC_Track(made);
    return (PyObject *)made;
}

static int holder_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((holder *)object)->held);
    return 0;
}

static void holder_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    Py_CLEAR(((holder *)object)->held);
    ext_state_free(object);
}

/* Python's own coroutines cannot be iterated: what their __await__() returns can. The interpreter takes the slot and needs none
 * of this. */
static PyObject *coroutine_await(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return new_holder(((ext_suspendable *)object)->function->node.state->await_type, Py_NewRef(object));
}

/* Generators of types.coroutine() may `yield from` a coroutine, as from any of Python's; nobody else may iterate it. */
static PyObject *coroutine_iter(PyObject *object)
{
    PyFrameObject *frame = PyEval_GetFrame();
    PyCodeObject *code = frame != NULL ? PyFrame_GetCode(frame) : NULL;
    bool may = code != NULL && (code->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE)) != 0;
    Py_XDECREF(code);
    if (may) {
        return Py_NewRef(object);
    }
    PyErr_SetString(PyExc_TypeError, "'coroutine' object is not iterable");
    return NULL;
}

static PyMethodDef coroutine_methods[] = {
    {"__await__", coroutine_await, METH_NOARGS | METH_COEXIST, PyDoc_STR("Returns an iterator that resumes the coroutine.")},
    {"send", ext_suspendable_send, METH_O, PyDoc_STR("Resumes the coroutine with a value.")},
    {"throw", EXT_METHOD(resumable_throw), METH_FASTCALL, PyDoc_STR("Raises an exception in the coroutine.")},
    {"close", resumable_close, METH_NOARGS, PyDoc_STR("Closes the coroutine; begun, it counts as cancelled.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot coroutine_slots[] = {
    EXT_SUSPENDABLE_SLOTS
    {Py_tp_iter, coroutine_iter},
    {Py_am_await, PyObject_SelfIter},
    {Py_tp_iternext, ext_suspendable_next},
    {Py_am_send, resume},
    {Py_tp_methods, coroutine_methods},
    {Py_tp_doc, (void *)"A coroutine whose running and waiting are measured."},
    {0, NULL},
};

PyType_Spec ext_coroutine_spec = EXT_TYPES_SPEC("ProfiledCoroutine", ext_suspendable, coroutine_slots, EXT_SUSPENDABLE_FLAGS);

static PySendResult await_resume(PyObject *object, PyObject *argument, PyObject **result)
{
    return resume(((holder *)object)->held, argument, result);
}

static PyObject *await_throw(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    return resumable_throw(((holder *)object)->held, args, nargs);
}

static PyObject *await_close(PyObject *object, PyObject *unused)
{
    return resumable_close(((holder *)object)->held, unused);
}

static PyMethodDef await_methods[] = {
    {"send", ext_suspendable_send, METH_O, PyDoc_STR("Resumes the coroutine with a value.")},
    {"throw", EXT_METHOD(await_throw), METH_FASTCALL, PyDoc_STR("Raises an exception in the coroutine.")},
    {"close", await_close, METH_NOARGS, PyDoc_STR("Closes the coroutine.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot await_slots[] = {
    {Py_tp_traverse, holder_traverse},
    {Py_tp_dealloc, holder_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, ext_suspendable_next},
    {Py_am_send, await_resume},
    {Py_tp_methods, await_methods},
    {Py_tp_doc, (void *)"Iterates a coroutine whose running and waiting are measured."},
    {0, NULL},
};

PyType_Spec ext_await_spec = EXT_TYPES_SPEC("ProfiledAwait", holder, await_slots, EXT_SUSPENDABLE_FLAGS);

PyObject *ext_generator_ready(ext_state *state, PyObject *value)
{
    return value != NULL ? new_holder(state->ready_type, value) : NULL;
}

static PySendResult ready_resume(PyObject *object, PyObject *Py_UNUSED(argument), PyObject **result)
{
    holder *self = (holder *)object;
    EXT_ALONE(object, {
        *result = self->held != NULL ? self->held : Py_NewRef(Py_None);
        self->held = NULL;
    });
    return PYGEN_RETURN;
}

static PyType_Slot ready_slots[] = {
    {Py_tp_traverse, holder_traverse},
    {Py_tp_dealloc, holder_dealloc},
    {Py_am_await, PyObject_SelfIter},
    {Py_am_send, ready_resume},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, ext_suspendable_next},
    {Py_tp_doc, (void *)"An awaitable that is ready at once."},
    {0, NULL},
};

PyType_Spec ext_ready_spec = EXT_TYPES_SPEC("Ready", holder, ready_slots, EXT_SUSPENDABLE_FLAGS);

bool ext_generator_prepare(PyTypeObject *generator, PyTypeObject *coroutine)
{
    bool done = PyDict_DelItemString(generator->tp_dict, "__await__") == 0 &&
                PyDict_DelItemString(coroutine->tp_dict, "__iter__") == 0 &&
                PyDict_DelItemString(coroutine->tp_dict, "__next__") == 0;
    PyType_Modified(generator);
    PyType_Modified(coroutine);
    return done;
}
