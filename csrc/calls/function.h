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
    PyObject *function;                      /* owned */
    PyObject *wrapped;                       /* __wrapped__: the function, until it is set or deleted. Owned, or NULL */
    const _Atomic uint64_t *EXT_SHARED gate; /* borrowed from the node */
    bool is_plain_function;                  /* a Python function: called by its own pointer */
    EXT_SHARED bool is_inner;                /* some wrapped function calls this one */
    bool binds;                              /* is no node: names its pipeline's Profiler for what runs inside */
    EXT_SHARED bool is_uncommon;             /* decorated twice, or of another kind than EXT_KIND_CALL */
    EXT_SHARED ext_kind kind;
    PyObject *EXT_SHARED first_parameter; /* its name, a str, or None; NULL: not found out yet. Owned */
    struct ext_function *inner;           /* the wrapped function inside this one, or NULL; owned */
    ext_node node;
    PyObject *weakrefs;
} ext_function;

/* Sets the name of its first parameter, which is taken over: a str, None, or NULL, by which it is to be found out. */
void ext_function_set_first_parameter(ext_function *self, PyObject *name);

/* Calls of it, as vectorcall has them: of a node, and of what names its pipeline's Profiler for what runs inside. The hot path
 * of the profiler. */
PyObject *ext_function_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *ext_function_call_binder(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames);

#endif
