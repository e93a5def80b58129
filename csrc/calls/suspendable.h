/* Running generators, coroutines and asynchronous generators that a wrapped function made. */
#ifndef EXT_SUSPENDABLE_H
#define EXT_SUSPENDABLE_H

#include "csrc/calls/function.h"

typedef struct ext_suspendable {
    PyObject_HEAD
    PyObject *inner;        /* the user's generator or coroutine; NULL once it was finalised. Owned */
    ext_function *function; /* owned */
    ext_profiler *profiler; /* decided at the call; owned */
    PyObject *first;        /* the call's first argument, until the first resumption; owned, or NULL */
    PyObject *arguments;    /* tuple of all, likewise, where a recording asks for them */
    cprof_resumable call;
    ext_pending pending; /* decorated twice: its inner, when that was not called yet */
    int device;          /* to wait for before and after, or EXT_SYNC_NONE */
    bool is_counted;     /* statistics were on at the call: else it is there for a recording only */
    bool has_self;       /* the first of the arguments */
    bool begun;
    bool running;        /* measured at this moment: another resumption will be refused by the user's generator */
    bool hooked;         /* an asynchronous generator that the event loop was told of */
    PyObject *finalizer; /* the event loop's, for one that is collected unfinished; owned, or NULL */
#if EXT_FREE_THREADED
    EXT_SHARED uintptr_t claimed; /* told by the address of a thread-local variable: the thread that resumes it; 0: none does */
#endif
    const void *EXT_SHARED step; /* of an asynchronous generator: the step that is under way, or NULL; compared only */
    PyObject *weakrefs;
} ext_suspendable;

/* A wrapper around `made` (taken over) that measures its running, and waits for `device` before and after it
 * where that is asked for. `pending_inner`: of a call decorated twice, the inner wrapped function if it was not called yet,
 * else NULL. Returns `made` itself when there is no memory. */
PyObject *ext_suspendable_wrap(ext_function *function, const ext_target *target, PyObject *first, int device,
                               ext_function *pending_inner, PyObject *made);

/* Remembers the arguments of a call, and whether the first is self, for what ext_suspendable_wrap() returned. */
void ext_suspendable_keep_arguments(const ext_state *state, PyObject *made, PyObject *const *args, size_t nargs,
                                    PyObject *kwnames, bool has_self);

/* One resumption: where it is measured. `view` NULL: it is not. */
typedef struct {
    cprof_thread *thread;
    ext_view *view;
    bool claims; /* the call was claimed for it */
} ext_resumption;

/* Where threads run at the same time, claims the call for this thread. False with the exception that Python's own kind of
 * generator raises when another thread resumes it already. The claim ends with the resumption, or by the second. */
bool ext_suspendable_claim(ext_suspendable *self, ext_resumption *now);
void ext_suspendable_end_claim(ext_suspendable *self, const ext_resumption *now);

/* Goes before each resumption, and claims the call. False with RecursionError when too little stack is left, or as above. */
bool ext_suspendable_enter(ext_suspendable *self, ext_resumption *now);

/* The same of a call that is claimed; false: it is no more. */
bool ext_suspendable_enter_claimed(ext_suspendable *self, ext_resumption *now);

/* Goes after a resumption, also of one that is not measured: the call waits inside a step, or, with `step_ends`, between two;
 * or it has ended. A pending exception is kept. */
void ext_suspendable_leave_suspended(ext_suspendable *self, const ext_resumption *now, bool step_ends);
void ext_suspendable_leave_ended(ext_suspendable *self, const ext_resumption *now, cprof_outcome outcome);

/* Whether the user's generator has come to its end: an exception may also only refuse a resumption ("already executing"). A
 * pending one is kept. */
bool ext_suspendable_is_finished(const ext_suspendable *self);

/* Calls a method of the user's generator, of what that returned, or of `sys`. RuntimeError when `object` is NULL: it was
 * finalised, or the interpreter is ending. */
PyObject *ext_suspendable_call(const ext_suspendable *self, PyObject *object, ext_word name, PyObject *const *args,
                               Py_ssize_t nargs);

/* The outcome of a call that is closed, or collected: a generator has done its work, a coroutine has not. */
cprof_outcome ext_suspendable_outcome_of_close(const ext_suspendable *self);

/* Methods and slots that several of the types share; the first two, by am_send. */
PyObject *ext_suspendable_send(PyObject *object, PyObject *argument);
PyObject *ext_suspendable_next(PyObject *object);
PyObject *ext_suspendable_getattro(PyObject *object, PyObject *name);
int ext_suspendable_setattro(PyObject *object, PyObject *name, PyObject *value);
PyObject *ext_suspendable_repr(PyObject *object);
int ext_suspendable_traverse(PyObject *object, visitproc visit, void *arg);
int ext_suspendable_clear(PyObject *object);
void ext_suspendable_finalize(PyObject *object);
void ext_suspendable_dealloc(PyObject *object);
extern PyMemberDef ext_suspendable_members[];
extern PyGetSetDef ext_suspendable_getset[];

#define EXT_SUSPENDABLE_SLOTS                                                                 \
    {Py_tp_getattro, ext_suspendable_getattro}, {Py_tp_setattro, ext_suspendable_setattro},   \
        {Py_tp_repr, ext_suspendable_repr}, {Py_tp_getset, ext_suspendable_getset},           \
        {Py_tp_traverse, ext_suspendable_traverse}, {Py_tp_clear, ext_suspendable_clear},     \
        {Py_tp_finalize, ext_suspendable_finalize}, {Py_tp_dealloc, ext_suspendable_dealloc}, \
        {Py_tp_members, ext_suspendable_members},

#define EXT_SUSPENDABLE_FLAGS (Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION)

#endif
