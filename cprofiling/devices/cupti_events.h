/* What CUPTI calls, at each call of CUDA in its thread and with buffers of records in whatever thread; and the threads' nodes.
 *
 * Thread rule: any thread, any number at once, with CUPTI's own locks held: nothing here calls CUPTI but for the next record of
 * a buffer, or waits for anything but short locks.
 */
#ifndef CPROF_CUPTI_EVENTS_H
#define CPROF_CUPTI_EVENTS_H

#include "cprofiling/devices/cupti_library.h"
#include "cprofiling/devices/cupti_store.h"

#include <sys/types.h>

/* A thread is in a list while it lives and has had a node, so that threads of PyTorch's backward pass, which have none, find
 * the node that they work for: that of the only thread that has one. The record of a thread is used by that thread only, but
 * for its node, which others read. */

/* The owner of a thread's launches outside of nodes. */
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

/* Sets the node that the calling thread's launches count for from now on. `accum` NULL: none. Returns to
 * *before what it was, to be set again afterwards. Costs two stores. */
void cprof_cupti_thread_set_node(cprof_cupti_node node, cprof_cupti_node *before);

/* Takes the nodes of this registry from all threads, and waits until nobody has borrowed one. */
void cprof_cupti_thread_forget(const cprof_registry *registry);

/* In the child of a fork: the other threads are not there. */
void cprof_cupti_thread_after_fork_in_child(void);

enum { CPROF_CUPTI_BUFFER_SIZE = 1 << 20 };

/* Counters, as in cprof_cupti_state. */
#define CPROF_CUPTI_COUNTERS(X) \
    X(launched)                 \
    X(outside)                  \
    X(unknown_node)             \
    X(records)                  \
    X(unknown_launch)           \
    X(untimed)                  \
    X(dropped)

/* What callbacks look at and fill. */
typedef struct {
    cprof_cupti_library library; /* there, and constant, while there is a session */
    _Atomic uint32_t session;    /* while the subscriber is held; 0: nothing that comes is of interest */
    _Atomic bool is_traced;      /* calls and records are kept */
    _Atomic bool is_counted;     /* launches are counted for nodes */
    _Atomic int decode_error;    /* the first answer that ended the reading of a buffer too early; 0: none */
    _Atomic(uint8_t *) spare;    /* a buffer for lack of memory: some versions do not survive having none */
    cprof_lock line_lock;        /* guards: */
    cprof_cupti_clock line;
    cprof_cupti_launches launches;
    cprof_cupti_store trace;
#define CPROF_CUPTI_COUNTER(name) _Atomic uint64_t name;
    CPROF_CUPTI_COUNTERS(CPROF_CUPTI_COUNTER)
#undef CPROF_CUPTI_COUNTER
} cprof_cupti_seen;

/* That of the process; changed by cupti.c and the callbacks. */
extern cprof_cupti_seen cprof_cupti_events;

/* A copy of the line, as it is. */
cprof_cupti_clock cprof_cupti_events_line(void);

/* For cuptiSubscribe: a call of CUDA begins or ends in this thread. */
void cprof_cupti_events_call(void *context, int domain, uint32_t number, const void *data);

/* For cuptiActivityRegisterCallbacks: CUPTI wants a buffer; it has filled one, which is given back. */
void cprof_cupti_events_request(uint8_t **buffer, size_t *size, size_t *most_records);
void cprof_cupti_events_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size);

#endif
