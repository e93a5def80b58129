/* What event.c keeps: the contexts that it met, their unused events, and the marks that wait for a device.
 *
 * No call of the driver is made here, so that the lock is held for moments. Handles come back: a context is told by handle and
 * id. It is live; off, after a final error; or gone: destroyed, with its events. The pairs of a stream are resolved in the
 * order of their ends, as the device passes them. Before CUDA 12 there are no ids: a context that was made anew is noticed by
 * dead events, and one that is off stays so.
 *
 * Thread rule: any thread, any number at once. Order of locks: a stream's `resolving`, the pool's, an accumulator's.
 */
#ifndef CPROF_EVENT_POOL_H
#define CPROF_EVENT_POOL_H

#include "cprofiling/devices/driver.h"
#include "cprofiling/nodes/accum.h"

enum {
    CPROF_EVENT_MOST_PENDING = 4096,
    CPROF_EVENT_POOL_CONTEXTS = 64,
    CPROF_EVENT_POOL_STREAMS = 64, /* of one context, with pairs that wait */
    CPROF_EVENT_POOL_MOST_EVENTS = 2 * CPROF_EVENT_MOST_PENDING + 2 * CPROF_EVENT_POOL_STREAMS,
    CPROF_EVENT_POOL_IDLE = 1024, /* unused events that a context keeps */
};

#define CPROF_EVENT_DELAY_WINDOW_NS INT64_C(10000000000)

typedef struct cprof_gpu_mark cprof_gpu_mark;

/* How long work waits in a device's queue, estimated from two clocks that nobody compares.
 *
 * The host knows when it gave an event to the queue; the device, on its own clock, when it passed it. No event is passed before
 * it was given, so the largest difference of the last 10 to 20 s (host time less device time) is taken for the clocks' own, and
 * what an event is later than that is its delay: 0 or more, relative to the least delay of that time, and wrong by the clocks'
 * drift in it, 10 to 100 us. One thread at a time for one estimate. Zeroed memory has seen nothing. */
typedef struct {
    bool is_begun;
    cprof_ns window_ns; /* host time at which the present window began */
    cprof_ns offset_ns; /* the largest of the present window */
    cprof_ns previous_offset_ns;
} cprof_event_delay;

typedef enum {
    CPROF_GPU_CONTEXT_LIVE,
    CPROF_GPU_CONTEXT_OFF,
    CPROF_GPU_CONTEXT_GONE,
} cprof_gpu_context_life;

typedef struct {
    cu_stream handle;
    cprof_lock resolving; /* held by the thread that asks for the oldest pair */
    cprof_gpu_mark *oldest;
    cprof_gpu_mark *newest;
    cu_event base;    /* an event that the stream has passed; NULL: none yet */
    cprof_ns base_ns; /* the device's time at it, from the first base on */
    cprof_event_delay delay;
} cprof_gpu_stream;

/* Handle, id, device and is_primary never change; the rest is the pool's, under its lock. */
typedef struct cprof_gpu_context {
    cu_context handle;
    unsigned long long id; /* 0 where the driver tells none */
    cu_device device;
    bool is_primary;
    uint64_t number; /* 1, 2, ... in the order of meeting */
    struct cprof_gpu_context *next;
    cprof_gpu_context_life life;
    uint64_t users; /* visits, and marks */
    uint64_t pending;
    size_t turn; /* of the stream that is asked next */
    size_t stream_count;
    cprof_gpu_stream streams[CPROF_EVENT_POOL_STREAMS];
    size_t idle_count;
    cu_event idle[CPROF_EVENT_POOL_MOST_EVENTS]; /* more than marks and bases can ever give back */
} cprof_gpu_context;

/* Its owner's, until it is pending. */
struct cprof_gpu_mark {
    cprof_gpu_mark *next;
    cprof_gpu_context *context; /* used by the mark */
    cu_event first;             /* NULL: yet to be created */
    cu_event last;
    cu_stream stream; /* of `first` */
    cprof_ns host_ns; /* when `first` was given to the stream */
    cprof_accum *accum;
    uint64_t generation;
    bool is_pending;
    bool is_multi_stream;
};

/* The oldest pair of a stream. */
typedef struct {
    cu_event first;
    cu_event last;
    cu_event base; /* the stream's; NULL: no queue delay is known from it */
} cprof_gpu_pair;

/* What the device told of it. */
typedef struct {
    cprof_gpu_cause cause; /* CPROF_GPU_KNOWN: the times are known */
    cprof_ns gpu_ns;
    bool is_based;         /* from_base_ns is known */
    cprof_ns from_base_ns; /* from the stream's base to the pair's first event */
} cprof_gpu_times;

/* The delay of an event that was given at `host_ns` and passed at `device_ns`. Events may come in any order. */
cprof_ns cprof_event_pool_delay_of(cprof_event_delay *delay, cprof_ns host_ns, cprof_ns device_ns);

/* Converts the driver's times to the nearest nanosecond: milliseconds of 24 bits, of a clock that counts half microseconds, so
 * exact below 8.3 ms. False: no time that 64 bits can hold. */
bool cprof_event_pool_ns_of_ms(float ms, cprof_ns *ns);

/* A context by its handle and id, which is used until cprof_event_pool_leave(); NULL when it was not met yet. */
cprof_gpu_context *cprof_event_pool_find(cu_context handle, unsigned long long id);

/* The same, and makes it. Others with its handle, and former primary contexts of its device, are gone. NULL without memory, or
 * when there are CPROF_EVENT_POOL_CONTEXTS. */
cprof_gpu_context *cprof_event_pool_add(cu_context handle, unsigned long long id, cu_device device, bool is_primary);

/* The first context with pairs that wait, of those with numbers above `after`; used, too. NULL: none. */
cprof_gpu_context *cprof_event_pool_next_pending(uint64_t after);

/* Ends a use. */
void cprof_event_pool_leave(cprof_gpu_context *context);

/* CPROF_GPU_KNOWN when live; else why no time is known: CPROF_GPU_FAILED (off), CPROF_GPU_LOST (gone). */
cprof_gpu_cause cprof_event_pool_life(cprof_gpu_context *context);

/* Ends what a context can do: its pairs and events are forgotten, and the pairs counted as lost (gone) or failed (off). */
void cprof_event_pool_drop(cprof_gpu_context *context);
void cprof_event_pool_turn_off(cprof_gpu_context *context);
void cprof_event_pool_drop_all(void);

/* A mark of the context, with unused events as far as there are; NULL with the cause. */
cprof_gpu_mark *cprof_event_pool_take(cprof_gpu_context *context, cprof_gpu_cause *cause);

/* Gives back a mark that is not pending. */
void cprof_event_pool_give_back(cprof_gpu_mark *mark);

/* Queues a mark behind the others of the stream in which it ended; or says why not. */
cprof_gpu_cause cprof_event_pool_push(cprof_gpu_mark *mark, cu_stream end_stream);

/* The next stream of the context, in turn, with pairs that wait; NULL: none. */
cprof_gpu_stream *cprof_event_pool_turn(cprof_gpu_context *context);

/* The first stream with pairs that wait, from number *index on, which becomes the number of the one behind it. */
cprof_gpu_stream *cprof_event_pool_stream(cprof_gpu_context *context, size_t *index);

/* Copies the oldest pair; false: none. The caller holds stream->resolving. */
bool cprof_event_pool_oldest(const cprof_gpu_stream *stream, cprof_gpu_pair *pair);

/* Ends the wait of that pair: its times go to its accumulator. Nothing when the context has ended meanwhile. The caller holds
 * stream->resolving. */
void cprof_event_pool_resolve(cprof_gpu_context *context, cprof_gpu_stream *stream, const cprof_gpu_times *times);

/* An event that is one too many, to be destroyed by the caller; NULL: none. */
cu_event cprof_event_pool_surplus(cprof_gpu_context *context);

/* Pairs of this registry that no device had passed at the last poll. */
uint64_t cprof_event_pool_pending(const cprof_registry *registry);

/* Forgets the pairs of a registry that is being destroyed. They still wait for the device, and their events with them. */
void cprof_event_pool_forget(const cprof_registry *registry);

/* Forgets all; in the child of a fork without giving memory back. */
void cprof_event_pool_after_fork_in_child(void);
void cprof_event_pool_reset_for_test(void);

#endif
