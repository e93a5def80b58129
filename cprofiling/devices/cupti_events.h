/* What CUPTI calls: at each call of CUDA, in the thread that makes it, and with buffers of records, in whatever thread.
 *
 * Thread rule: any thread, any number at once, with CUPTI's own locks held: nothing here calls CUPTI but for the next record of
 * a buffer, or waits for anything but short locks.
 */
#ifndef CPROF_CUPTI_EVENTS_H
#define CPROF_CUPTI_EVENTS_H

#include "cprofiling/devices/cupti_launches.h"
#include "cprofiling/devices/cupti_library.h"
#include "cprofiling/devices/cupti_store.h"

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
    _Atomic(uint8_t *) spare;    /* a buffer for when there is no memory: some versions do not survive having none */
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
