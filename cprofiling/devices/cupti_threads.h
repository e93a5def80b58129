/* What each thread does for CUPTI: the node that it works for, and the call of CUDA that it is in.
 *
 * A thread is in a list while it lives and has had a node, so that threads of PyTorch's backward pass, which have none, find
 * the node that they work for: that of the only thread that has one. Thread rule: the record of a thread is used by that thread
 * only, but for its node, which others read.
 */
#ifndef CPROF_CUPTI_THREADS_H
#define CPROF_CUPTI_THREADS_H

#include "cprofiling/devices/cupti.h"

#include <sys/types.h>

/* Whose launches a thread makes when it has no node. */
typedef enum {
    CPROF_CUPTI_THREAD_NEW,      /* not looked at yet */
    CPROF_CUPTI_THREAD_OWN,      /* nobody's */
    CPROF_CUPTI_THREAD_BACKWARD, /* of PyTorch's backward pass: another thread's */
} cprof_cupti_thread_kind;

typedef struct cprof_cupti_thread {
    _Atomic(cprof_accum *) accum;
    _Atomic uint64_t generation;
    _Atomic uint64_t changes; /* of the two; odd while they are being changed */
    bool is_ending;           /* its keys' destructors run: the list is not joined any more */
    bool is_listed;           /* guarded by the list's lock, as are: */
    struct cprof_cupti_thread *next;
    struct cprof_cupti_thread *previous;
    cprof_cupti_thread_kind kind;
    pid_t id;         /* the system's number; 0: not asked for yet */
    uint32_t session; /* to which this belongs: */
    uint32_t depth;   /* calls of CUDA that it is in */
    uint32_t outer;   /* the number of the outermost */
    bool is_traced;   /* that began while a recording ran */
    cprof_ticks start;
} cprof_cupti_thread;

/* The calling thread's record. */
cprof_cupti_thread *cprof_cupti_thread_get(void);

/* Whether the calling thread is one of PyTorch's backward pass, by its name when this is asked first. */
bool cprof_cupti_thread_is_backward(cprof_cupti_thread *self);

/* The thread's number. */
pid_t cprof_cupti_thread_id(cprof_cupti_thread *self);

/* Calls `user` with the node of the only thread that has one, which does not end meanwhile. False: none has, or several, or one
 * is changing its node. */
bool cprof_cupti_thread_borrow(void (*user)(void *context, cprof_cupti_node node), void *context);

/* Takes the nodes of this registry from all threads, and waits until nobody has borrowed one. */
void cprof_cupti_thread_forget(const cprof_registry *registry);

/* In the child of a fork: the other threads are not there. */
void cprof_cupti_thread_after_fork_in_child(void);

#endif
