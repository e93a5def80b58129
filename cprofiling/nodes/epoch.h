/* The epoch of a registry: which statistics calls belong to, and what a call does.
 *
 * One atomic word says what a call does (flags) and which statistics it belongs to (the generation, raised by each reset).
 * A call reads it once at entry and keeps it; at exit it only looks whether the generation is still the same.
 * Thread rule: any number of threads at once.
 */
#ifndef CPROF_EPOCH_H
#define CPROF_EPOCH_H

#include "cprofiling/base/lock.h"

enum {
    CPROF_FLAG_STATS = 1,          /* gather statistics */
    CPROF_FLAG_SYNC = 2,           /* wait for the node's device before and after */
    CPROF_FLAG_TRACE = 4,          /* a recording runs */
    CPROF_FLAG_DETAIL = 8,         /* it wants more than times */
    CPROF_FLAG_GPU = 16,           /* time nodes on their device */
    CPROF_FLAG_LAUNCHES = 32,      /* count what they launch */
    CPROF_FLAG_COUNTERS = 64,      /* read the thread's counters */
    CPROF_FLAG_MEMORY = 128,       /* look at memory */
    CPROF_FLAG_NVTX = 256,         /* tell NVIDIA's tools */
    CPROF_FLAG_CAPTURE = 512,      /* the capture window is looked for */
    CPROF_FLAG_SHAPES = 1024,      /* tell calls apart by their arguments */
    CPROF_FLAG_P2 = 2048,          /* of cprof_epoch_configure() only: estimate medians by P² */
    CPROF_FLAG_DETACHED = 0x2000,  /* of spans, not of registries, as the next two: in no chain */
    CPROF_FLAG_LEFT = 0x4000,      /* closed, but still in its chain */
    CPROF_FLAG_RESUMABLE = 0x8000, /* their tag is their cprof_resumable */
    CPROF_FLAG_ALL = 0xffff,
    /* What gives figures beyond times, and so is nothing without statistics: */
    CPROF_FLAG_FIGURES = CPROF_FLAG_SYNC | CPROF_FLAG_GPU | CPROF_FLAG_LAUNCHES | CPROF_FLAG_COUNTERS | CPROF_FLAG_MEMORY |
        CPROF_FLAG_SHAPES,
    CPROF_FLAG_PROBED = CPROF_FLAG_FIGURES | CPROF_FLAG_NVTX | CPROF_FLAG_CAPTURE, /* calls that have a probe */
    CPROF_STATE_GENERATION_SHIFT = 16,
};

typedef struct {
    _Atomic uint64_t state; /* generation << 16 | flags */
    _Atomic uint64_t next_order;
    cprof_lock lock;           /* guards the generation together with: */
    uint64_t skip_first_n;     /* of the present statistics */
    _Atomic bool has_p2;       /* their medians are estimated by P² */
    unsigned configured_flags; /* the state has these, and the added ones; a flag may be among both */
    unsigned added_flags;
} cprof_epoch;

/* What a generation was begun with. */
typedef struct {
    uint64_t generation;
    uint64_t skip_first_n;
    bool has_p2;     /* medians are estimated by P² */
    uint64_t unread; /* keys that a visit had to leave out, as a thread has stopped in the middle of an update; or more */
} cprof_generation;

/* Begins generation 1, without flags. */
void cprof_epoch_begin(cprof_epoch *epoch);

/* The word as it is now: generation << 16 | flags. */
static inline uint64_t cprof_epoch_state(const cprof_epoch *epoch)
{
    return atomic_load_explicit(&epoch->state, memory_order_relaxed);
}

/* Replaces flags and configuration. A new generation begins when `reset` is set, and when flags are on and the present one was
 * begun with another `skip_first_n`, or without P², which is wanted now. P² that is wanted no more ends. */
void cprof_epoch_configure(cprof_epoch *epoch, unsigned flags, uint64_t skip_first_n, bool reset);

/* Replaces the flags added to the configured ones. */
void cprof_epoch_set_added(cprof_epoch *epoch, unsigned flags);

/* Begins a new generation with the same configuration. */
void cprof_epoch_reset(cprof_epoch *epoch);

/* In a forked child, with the lock held: without added flags, and, if so wanted, a new generation. */
void cprof_epoch_restart_lock_held(cprof_epoch *epoch, bool new_generation);

/* The generation of now. */
cprof_generation cprof_epoch_present(cprof_epoch *epoch);

/* The same; false: the lock was not to be had before CLOCK_MONOTONIC had passed `deadline_ns`. */
bool cprof_epoch_present_before(cprof_epoch *epoch, int64_t deadline_ns, cprof_generation *now);

/* The next place in the summary. */
static inline uint64_t cprof_epoch_next_order(cprof_epoch *epoch)
{
    return atomic_fetch_add_explicit(&epoch->next_order, 1, memory_order_relaxed);
}

#endif
