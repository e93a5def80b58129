/* The ring of a thread that takes part in a recording: its events, each with its call's figures beyond times.
 *
 * Thread rule: one thread at a time; nothing here locks.
 */
#ifndef CPROF_RING_H
#define CPROF_RING_H

#include "cprofiling/nodes/span.h"
#include "cprofiling/trace/memory.h"

#define CPROF_RECORDING_MUTED UINT64_MAX /* the id of a span inside which nothing is recorded */

/* One finished span. Ids are numbers of their recording: collecting makes W3C's of them. */
typedef struct {
    cprof_ticks start;
    cprof_ticks stop;
    uint64_t span;
    uint64_t parent; /* 0: none */
    uint64_t root;
    cprof_ticks suspended;
    uint32_t label;  /* of a record(): its label; of a node: its key's */
    uint32_t thread; /* where it was closed: a number of the recording */
    uint8_t kind;    /* a cprof_kind */
    uint8_t outcome; /* a cprof_outcome */
    uint8_t flags;   /* CPROF_ROW_ bits */
} cprof_ring_event;

_Static_assert(sizeof(cprof_ring_event) == 64, "an event is a cache line");

/* Requested details of a span beyond its times. Texts are labels of a recording; 0: none. */
struct cprof_recording_detail {
    uint32_t serial; /* of that recording */
    uint32_t shapes;
    uint32_t types;
    uint32_t stack;
    cprof_memory memory; /* at the span's start; after its end: the change, and the peak where it rose */
    int64_t in_use;      /* resident, at its end */
    int64_t device_in_use;
};

typedef struct {
    cprof_ring_event *events;
    struct cprof_recording_detail *details; /* NULL when the recording has none */
    size_t size;                            /* of both, in events */
} cprof_ring_chunk;

/* Belongs to a thread's record, and so to one thread after another. */
struct cprof_ring {
    cprof_thread *thread; /* compared, and looked at for its mark */
    uint32_t serial;      /* of the recording, as are: */
    bool drop_newest;
    bool has_details;
    cprof_ring_event *at;
    cprof_ring_event *end; /* of the chunk */
    uint64_t written;      /* into a place of the ring */
    uint64_t refused;      /* for want of room or memory */
    cprof_ring_chunk *chunks;
    size_t chunk_count;
    size_t chunk_capacity;
    size_t current; /* chunk */
    uint64_t room;  /* that further chunks may have, in events */
    struct cprof_ring *next;
};

/* Goes on to the next chunk, a new one or, in a full ring, the oldest. Without memory for a new one the ring is full, too.
 * False: no place. */
bool cprof_ring_advance(struct cprof_ring *ring);

/* The place of the next event; NULL: it goes. */
static inline cprof_ring_event *cprof_ring_take(struct cprof_ring *ring)
{
    if (__builtin_expect(ring->at == ring->end, 0) && !cprof_ring_advance(ring)) {
        ring->refused++;
        return NULL;
    }
    ring->written++;
    return ring->at++;
}

/* Gives the pages of a chunk back; of one that has none, nothing. */
void cprof_ring_free_chunk(const cprof_ring_chunk *old);

/* Gives a ring back. */
void cprof_ring_free(struct cprof_ring *ring);

#endif
