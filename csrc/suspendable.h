/* Running generators, coroutines and asynchronous generators that a wrapped function made. */
#ifndef EXT_SUSPENDABLE_H
#define EXT_SUSPENDABLE_H

#include "csrc/function.h"

typedef struct {
    PyObject_HEAD
    PyObject *inner;        /* the user's generator or coroutine; NULL once it was finalised. Owned */
    ext_function *function; /* owned */
    ext_profiler *profiler; /* decided at the call; owned */
    PyObject *first;        /* the call's first argument, until the first resumption; owned, or NULL */
    cprof_resumable call;
    ext_pending pending; /* decorated twice: its inner, when that was not called yet */
    int device;          /* to wait for before and after, or EXT_SYNC_NONE */
    bool begun;
    bool running;        /* measured at this moment: another resumption will be refused by the user's generator */
    bool hooked;         /* an asynchronous generator that the event loop was told of */
    PyObject *finalizer; /* the event loop's, for one that is collected unfinished; owned, or NULL */
    PyObject *weakrefs;
} ext_suspendable;

/* One step of an asynchronous generator: what __anext__, asend, athrow, aclose return. */
typedef struct {
    PyObject_HEAD
    ext_suspendable *owner; /* owned */
    PyObject *awaitable;    /* the user's generator's own; owned */
    bool ends;              /* aclose or athrow: of a generator that never began it is no resumption */
} ext_step;

/* A wrapper around `made` (whose reference is taken over) that measures its running, and waits for `device` before and after it
 * where that is asked for. `pending_inner`: of a call decorated twice, the inner wrapped function if it was not called yet,
 * else NULL. Returns `made` itself when there is no memory. */
PyObject *ext_suspendable_wrap(ext_function *function, ext_profiler *profiler, PyObject *first, int device,
                               ext_function *pending_inner, PyObject *made);

extern PyType_Spec ext_generator_spec;
extern PyType_Spec ext_coroutine_spec;
extern PyType_Spec ext_async_generator_spec;
extern PyType_Spec ext_step_spec;

#endif
