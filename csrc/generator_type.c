#include "csrc/suspendable.h"

static PyMethodDef generator_methods[] = {
    {"send", ext_suspendable_send, METH_O, PyDoc_STR("Resumes the generator with a value.")},
    {"throw", (PyCFunction)(void (*)(void))ext_suspendable_throw, METH_FASTCALL,
     PyDoc_STR("Raises an exception in the generator.")},
    {"close", ext_suspendable_close, METH_NOARGS, PyDoc_STR("Closes the generator; it counts as one call.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot generator_slots[] = {
    EXT_SUSPENDABLE_SLOTS
    {Py_tp_iter, ext_suspendable_itself},
    {Py_tp_iternext, ext_suspendable_next},
    {Py_am_send, ext_suspendable_am_send},
    {Py_tp_methods, generator_methods},
    {Py_tp_doc, (void *)"A generator whose resumptions are measured."},
    {0, NULL},
};

PyType_Spec ext_generator_spec = {
    .name = "cprofiling._core.ProfiledGenerator",
    .basicsize = sizeof(ext_suspendable),
    .flags = EXT_SUSPENDABLE_FLAGS,
    .slots = generator_slots,
};

static PyMethodDef coroutine_methods[] = {
    {"send", ext_suspendable_send, METH_O, PyDoc_STR("Resumes the coroutine with a value.")},
    {"throw", (PyCFunction)(void (*)(void))ext_suspendable_throw, METH_FASTCALL,
     PyDoc_STR("Raises an exception in the coroutine.")},
    {"close", ext_suspendable_close, METH_NOARGS, PyDoc_STR("Closes the coroutine; begun, it counts as cancelled.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot coroutine_slots[] = {
    EXT_SUSPENDABLE_SLOTS
    {Py_tp_iter, ext_suspendable_itself}, /* generators of types.coroutine() may `yield from` it, as from any coroutine */
    {Py_am_await, ext_suspendable_itself},
    {Py_tp_iternext, ext_suspendable_next},
    {Py_am_send, ext_suspendable_am_send},
    {Py_tp_methods, coroutine_methods},
    {Py_tp_doc, (void *)"A coroutine whose running and waiting are measured."},
    {0, NULL},
};

PyType_Spec ext_coroutine_spec = {
    .name = "cprofiling._core.ProfiledCoroutine",
    .basicsize = sizeof(ext_suspendable),
    .flags = EXT_SUSPENDABLE_FLAGS,
    .slots = coroutine_slots,
};
