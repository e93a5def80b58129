/* One profiler's keys and configuration.
 *
 * Thread rule: all functions but create and destroy may be called by any number of threads at once.
 */
#ifndef CPROF_REGISTRY_H
#define CPROF_REGISTRY_H

#include "cprofiling/nodes/accum.h"
#include "cprofiling/base/names.h"
#include "cprofiling/base/status.h"

enum {
    CPROF_REGISTRY_RESETS_PEAK = 1 << 16, /* a request beyond times, beside CPROF_COUNTER_BITs */
    CPROF_REGISTRY_MAX_KEYS = 65536,
    CPROF_REGISTRY_MAX_OVERFLOW_STAGES = 1024,
    CPROF_REGISTRY_ID_BYTES = 16,
    CPROF_REGISTRY_PATIENCE_MS = 1000, /* that a visit waits, in all, for threads that have stopped */
};

#define CPROF_REGISTRY_OVERFLOW "__overflow__" /* the node of keys that stand for all without room */

struct cprof_registry {
    cprof_epoch epoch;
    _Atomic uint64_t refused_keys; /* look-ups that went to an overflow key */
    _Atomic uint32_t probing;      /* CPROF_COUNTER_BITs of counters, CPROF_REGISTRY_RESETS_PEAK */
    uint64_t owner;                /* it takes part in this owner's recordings */
    _Atomic bool keeps;            /* forked children go on with the statistics */
    _Atomic bool has_shapes;       /* calls are, or were, told apart by their arguments */
    _Atomic bool has_launched;     /* cupti_launches.h remembers, or remembered, calls of its keys */
    cprof_lock read_lock;          /* held while a reader copies, so that no generation ends under it */
    cprof_lock table_lock;         /* guards names, slabs, */
    cprof_names_table names;
    struct cprof_slab **slabs; /* fourteen accumulators each, never moved */
    size_t slab_count;
    size_t slab_capacity;
    uint8_t id[CPROF_REGISTRY_ID_BYTES]; /* random; tells the same data from other data */
    struct cprof_live_part *live;        /* its part of a live file, borrowed; NULL: it is in none. See live.h */
    cprof_registry *next;                /* in the list of all */
    cprof_registry *previous;
};

/* A new registry: no flags but those of the owner's recording that runs, generation 1. `owner` is a number that the layer above
 * gives. NULL without memory. */
cprof_registry *cprof_registry_create(uint64_t owner);

/* Frees a registry that no call is open in, or may be finished in. */
void cprof_registry_destroy(cprof_registry *registry);

/* The word as it is now: generation << 16 | flags. */
static inline uint64_t cprof_registry_state(const cprof_registry *registry)
{
    return cprof_epoch_state(&registry->epoch);
}

/* Replaces flags and configuration. The statistics are discarded when `reset` is set, and when flags are on and the present
 * statistics were gathered with another `skip_first_n`, or without P², which CPROF_FLAG_P2 asks for. */
void cprof_registry_configure(cprof_registry *registry, unsigned flags, uint64_t skip_first_n, bool reset);

/* What calls are asked beyond times from now on, where flags say that they are: counters, and how to look at peaks. */
static inline uint32_t cprof_registry_probing(const cprof_registry *registry)
{
    return atomic_load_explicit(&registry->probing, memory_order_relaxed);
}

/* Sets it. */
static inline void cprof_registry_set_probing(cprof_registry *registry, uint32_t probing)
{
    atomic_store_explicit(&registry->probing, probing, memory_order_relaxed);
}

/* Gives all registries of `owner`, and those made later, the flags of a recording; 0: it has ended, or pauses. */
void cprof_registry_record_owner(uint64_t owner, unsigned flags);

/* Gives all registries of `owner`, and those made later, flags beside those of a recording; 0: none any more. */
void cprof_registry_capture_owner(uint64_t owner, unsigned flags);

/* Takes the flags of a recording, and of the capture window, away from this registry until the next ones come. */
void cprof_registry_leave_recording(cprof_registry *registry);

/* Discards the statistics: a new generation with the same configuration. */
void cprof_registry_reset(cprof_registry *registry);

/* The accumulator of a key, made at its first use. When all keys are taken: that of the key `__overflow__` of the stage.
 * NULL without memory. Borrowed; lives as long as the registry. */
cprof_accum *cprof_registry_accum(cprof_registry *registry, cprof_names names);

/* The names of an accumulator's key: borrowed, as long as the registry lives. */
cprof_names cprof_registry_names(const cprof_accum *accum);

/* Called for each key with figures; all arguments are borrowed for the call. `counts` is the dense histogram, of which only
 * the rows named in figures->rows, and those between them, are set. A status other than CPROF_OK ends the visit. */
typedef cprof_status (*cprof_visitor)(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                                      const uint64_t *counts);

/* Visits the keys of one generation, in the order of their making; no reset takes effect in between. The visitor must not
 * call back into the registry. *generation receives the one read. CPROF_NO_MEMORY, CPROF_BUSY when a thread has stopped in the
 * middle of a reset, or the status that the visitor returned. */
cprof_status cprof_registry_visit(cprof_registry *registry, cprof_visitor visitor, void *context, cprof_generation *generation);

/* What a reader has seen of a registry. All zero: nothing yet. */
typedef struct {
    uint64_t generation;
    bool has_p2;
    uint64_t *changes; /* cprof_accum_changes() of the first `count` keys; owned by the reader */
    size_t count;
    size_t capacity;
} cprof_registry_seen;

/* The same, of keys that have changed since they were seen; all of another generation, or where P² has ended. */
cprof_status cprof_registry_visit_changed(cprof_registry *registry, cprof_registry_seen *seen, cprof_visitor visitor,
                                          void *context, cprof_generation *generation);

/* Has forked children go on with the statistics, as drop-ins for profilers in Python must. */
void cprof_registry_keep_at_fork(cprof_registry *registry);

/* Around a fork: the list, the tables of keys and the configurations must be whole in the child, where all registries have
 * the same configuration, a new id, and empty statistics unless they keep them. Each call of the first is followed by one of
 * the others. */
void cprof_registry_before_fork(void);
void cprof_registry_after_fork_in_parent(void);
void cprof_registry_after_fork_in_child(void);

#endif
