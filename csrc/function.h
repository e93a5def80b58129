/* A wrapped callable: what profile_node and instrument make of a function, and PipelineProfiling of its forward. */
#ifndef EXT_FUNCTION_H
#define EXT_FUNCTION_H

#include "csrc/node.h"

/* What calling the wrapped callable gives. */
typedef enum {
    EXT_KIND_CALL,
    EXT_KIND_GENERATOR,
    EXT_KIND_COROUTINE,
    EXT_KIND_ASYNC_GENERATOR,
} ext_kind;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;            /* owned */
    const _Atomic uint64_t *gate;  /* borrowed from the node */
    bool is_plain_function;        /* a Python function: called by its own pointer */
    bool is_inner;                 /* some wrapped function calls this one */
    bool binds;                    /* is no node: names its pipeline's Profiler for what runs inside */
    ext_kind kind;
    const void *inner;             /* the wrapped function inside this one (compared only), or NULL */
    ext_node node;
    PyObject *dictionary;
    PyObject *weakrefs;
} ext_function;

extern PyType_Spec ext_function_spec;

/* The outcome of a call that an exception of this type left; of one that the pending exception left. */
cprof_outcome ext_function_outcome_of(PyObject *type);
cprof_outcome ext_function_outcome(void);

#endif
