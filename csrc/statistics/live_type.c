#include "csrc/types.h"

#include "csrc/convert.h"
#include "csrc/statistics/cost.h"
#include "csrc/profiler.h"

#include "cprofiling/base/checksum.h"
#include "cprofiling/base/lock.h"
#include "cprofiling/files/live.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE_NS INT64_C(5000000000)

typedef struct {
    PyObject_HEAD
    ext_state *state;
    cprof_live *live;       /* owned; NULL once it is closed */
    cprof_live_state heard; /* of it last */
} live_object;

/* Executes a statement, which makes no objects, for one thread at a time, though it may release the GIL: files, and registries
 * in them, come and go one at a time. */
#define ALONE_WITH_FILES(state, ...)                               \
    do {                                                           \
        EXT_WITHOUT_GIL(cprof_lock_acquire(&(state)->live_files)); \
        __VA_ARGS__;                                               \
        cprof_lock_release(&(state)->live_files);                  \
    } while (0)

/* For ends without Python: what could not be written would else be missing without a word. */
static void say_unwritten(int error)
{
    if (error != 0) {
        const char *why = strerror(error); /* NOLINT(concurrency-mt-unsafe): not so, from glibc 2.32 on */
        (void)fprintf(stderr, "cprofiling: the newest statistics are not in a live file: %s\n", why);
    }
}

static void stop_all(void)
{
    say_unwritten(cprof_live_stop_all());
}

static PyObject *live_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"descriptor", "path", "head", "room", "interval_ns", NULL};
    const char *head;
    Py_ssize_t head_size;
    unsigned long long room, interval_ns;
    cprof_live_plan plan;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iyy#KK:LiveFile", keywords, &plan.descriptor, &plan.path, &head, &head_size,
                                     &room, &interval_ns)) {
        return NULL;
    }
    if (head_size != CPROF_LIVE_HEAD) {
        return PyErr_Format(PyExc_ValueError, "head must have %d bytes, got %zd", CPROF_LIVE_HEAD, head_size);
    }
    plan.head = (const uint8_t *)head;
    plan.room = room;
    plan.interval_ns = interval_ns;
    ext_state *state = ext_state_of_type(type);
    live_object *self = state != NULL ? (live_object *)type->tp_alloc(type, 0) : NULL;
    if (self == NULL) {
        return NULL;
    }
    self->state = ext_state_hold(state);
    plan.errors = &state->internal_errors;
    if (cprof_live_is_first()) { /* files that the interpreter does not let go of, as somebody's leaked object holds them */
        (void)Py_AtExit(stop_all);
    }
    cprof_live *live = NULL;
    int error;
    EXT_WITHOUT_GIL(error = cprof_live_open(&plan, &live));
    self->live = live;
    if (error != 0) {
        Py_DECREF(self);
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return (PyObject *)self;
}

/* The Profiler that is meant; NULL with TypeError. */
static ext_profiler *profiler_of(PyObject *self, PyObject *object)
{
    const ext_state *state = ((live_object *)self)->state;
    return ext_convert_is_profiler(state, object, "a Profiler") ? (ext_profiler *)object : NULL;
}

static PyObject *live_add(PyObject *object, PyObject *args)
{
    const live_object *self = (live_object *)object;
    PyObject *profiler, *label, *notes;
    if (!PyArg_ParseTuple(args, "OSO!:add", &profiler, &label, &PyTuple_Type, &notes)) {
        return NULL;
    }
    ext_profiler *added = profiler_of(object, profiler);
    PyObject *cost = added != NULL ? ext_cost_ns(added->state, added) : NULL;
    cprof_name *names = cost != NULL ? ext_convert_notes(notes) : NULL;
    if (names == NULL) {
        Py_XDECREF(cost);
        return NULL;
    }
    cprof_live_about about = {
        .label = {PyBytes_AS_STRING(label), (size_t)PyBytes_GET_SIZE(label)},
        .notes = names,
        .note_count = (size_t)PyTuple_GET_SIZE(notes),
        .errors = &added->internal_errors,
        .cost_ns = PyFloat_AS_DOUBLE(cost),
    };
    Py_DECREF(cost);
    cprof_status status;
    ALONE_WITH_FILES(self->state,
                     status = self->live != NULL ? cprof_live_add(self->live, added->registry, &about) : CPROF_ABSENT);
    PyMem_Free(names);
    return ext_convert_status(status, "adding a Profiler to a live file");
}

static PyObject *live_holds(PyObject *object, PyObject *profiler)
{
    const ext_profiler *meant = profiler_of(object, profiler);
    const live_object *self = (live_object *)object;
    bool holds = false;
    if (meant != NULL) {
        ALONE_WITH_FILES(self->state, holds = self->live != NULL && cprof_live_has(self->live, meant->registry));
    }
    return meant != NULL ? PyBool_FromLong(holds) : NULL;
}

static void take_out(const live_object *self, ext_profiler *profiler)
{
    if (self->live != NULL && cprof_live_has(self->live, profiler->registry)) {
        EXT_WITHOUT_GIL(cprof_live_remove(profiler->registry));
    }
}

static PyObject *live_remove(PyObject *object, PyObject *profiler)
{
    ext_profiler *meant = profiler_of(object, profiler);
    const live_object *self = (live_object *)object;
    if (meant == NULL) {
        return NULL;
    }
    ALONE_WITH_FILES(self->state, take_out(self, meant));
    Py_RETURN_NONE;
}

/* Does this while no other thread uses live files, and returns what close() returns. */
static PyObject *state_after(PyObject *object, void (*work)(live_object *))
{
    live_object *self = (live_object *)object;
    cprof_live_state heard;
    ALONE_WITH_FILES(self->state, work(self); heard = self->heard);
    return Py_BuildValue("KKi", (unsigned long long)heard.commits, (unsigned long long)heard.bytes, heard.error);
}

static void close_live(live_object *self)
{
    cprof_live *live = self->live;
    self->live = NULL;
    if (live != NULL) {
        EXT_WITHOUT_GIL(cprof_live_stop(live, &self->heard));
        EXT_ALONE(self->state->guard, cprof_live_close(live)); /* Profilers, in which registries end, may go meanwhile */
    }
}

static PyObject *live_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return state_after(object, close_live);
}

static void commit(live_object *self)
{
    if (self->live != NULL) {
        EXT_WITHOUT_GIL(cprof_live_commit(self->live, &self->heard));
    }
}

static PyObject *live_commit(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return state_after(object, commit);
}

static void prepare_end(live_object *self)
{
    if (self->live != NULL) {
        EXT_WITHOUT_GIL(cprof_live_prepare_end(self->live, &self->heard));
    }
}

static PyObject *live_prepare_end(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return state_after(object, prepare_end);
}

/* At the end of the interpreter the lock may be a thread's that is no more: then the file is left as it is. */
static void live_dealloc(PyObject *object)
{
    live_object *self = (live_object *)object;
    bool is_alone = false;
    if (self->live != NULL) {
        EXT_WITHOUT_GIL(is_alone = cprof_lock_acquire_within(&self->state->live_files, PATIENCE_NS));
    }
    if (is_alone) {
        int told = self->heard.error;
        close_live(self);
        say_unwritten(self->heard.error != told ? self->heard.error : 0);
        cprof_lock_release(&self->state->live_files);
    }
    ext_state_release(self->state);
    ext_state_free(object);
}

PyObject *ext_live_checksum(PyObject *Py_UNUSED(module), PyObject *bytes)
{
    Py_buffer view;
    if (PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    uint64_t checksum = cprof_checksum(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLongLong(checksum);
}

static PyMethodDef live_methods[] = {
    {"add", live_add, METH_VARARGS, PyDoc_STR("Adds a Profiler that is in no live file, with a label and notes.")},
    {"holds", live_holds, METH_O, PyDoc_STR("Whether a Profiler is part of it.")},
    {"remove", live_remove, METH_O, PyDoc_STR("Takes a Profiler out; its figures stay in the file.")},
    {"commit", live_commit, METH_NOARGS, PyDoc_STR("Writes now. Returns what close() returns.")},
    {"prepare_end", live_prepare_end, METH_NOARGS, PyDoc_STR("Does so too. Profilers that go later stay in it.")},
    {"close", live_close, METH_NOARGS,
     PyDoc_STR("Writes for the last time and closes the file. Returns the number of commits, the bytes of the last one, and\n"
               "the errno of why that does not have the newest figures, or 0.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot live_slots[] = {
    {Py_tp_new, live_new},
    {Py_tp_dealloc, live_dealloc},
    {Py_tp_methods, live_methods},
    {Py_tp_doc, (void *)"LiveFile(descriptor, path, head, room, interval_ns)\n--\n\n"
                        "A live file, which takes the descriptor over; -1: which is made as soon as something was counted."},
    {0, NULL},
};

PyType_Spec ext_live_spec = EXT_TYPES_SPEC("LiveFile", live_object, live_slots, Py_TPFLAGS_IMMUTABLETYPE);
