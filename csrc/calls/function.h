/* A wrapped callable: what profile_node and instrument make of a function, and PipelineProfiling of its forward. */
#ifndef EXT_FUNCTION_H
#define EXT_FUNCTION_H

#include "csrc/calls/node.h"

/* What calling the wrapped callable gives. */
typedef enum {
    EXT_KIND_CALL,
    EXT_KIND_GENERATOR,
    EXT_KIND_COROUTINE,
    EXT_KIND_ASYNC_GENERATOR,
} ext_kind;

typedef struct ext_function {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;           /* owned */
    PyObject *wrapped;            /* __wrapped__: the function, until it is set or deleted. Owned, or NULL */
    const _Atomic uint64_t *gate; /* borrowed from the node */
    bool is_plain_function;       /* a Python function: called by its own pointer */
    bool is_inner;                /* some wrapped function calls this one */
    bool binds;                   /* is no node: names its pipeline's Profiler for what runs inside */
    bool is_uncommon;             /* decorated twice, or of another kind than EXT_KIND_CALL */
    ext_kind kind;
    PyObject *first_parameter;  /* its name, a str, or None; NULL: not found out yet. Owned */
    struct ext_function *inner; /* the wrapped function inside this one, or NULL; owned */
    ext_node node;
    PyObject *weakrefs;
} ext_function;

/* A call decorated twice: the next call of `inner`, or of a wrapped function inside that, is counted already for `owner`.
 * Kept on the heap, as a C stack may be moved away under a greenlet. */
typedef struct ext_pending {
    struct ext_pending *outer;
    ext_function *inner; /* borrowed; NULL once it was called */
    const void *owner;   /* Profiler; compared only */
} ext_pending;

/* Puts a pending call in force while the wrapper around it runs, and ends that. */
void ext_function_push_pending(ext_view *view, ext_pending *pending);
void ext_function_pop_pending(ext_view *view, ext_pending *pending);

extern PyType_Spec ext_function_spec;
extern PyType_Spec ext_callable_spec; /* a subtype: what it wraps does not bind as functions do */

/* Whether it is a method by its first parameter's name, self: that of what other decorators have wrapped, too. */
bool ext_function_has_self(ext_function *self);

/* The outcome of a call that an exception of this type (the exception itself, where it is known) left: asyncio and trio say
 * which are cancellations; of one that the pending exception left. */
cprof_outcome ext_function_outcome_of(const ext_state *state, PyObject *type, PyObject *error);
cprof_outcome ext_function_outcome(const ext_state *state);

#endif
