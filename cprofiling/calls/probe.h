/* Measures one call beyond the clock: device events, launches, counters, memory, ranges for tools, waits.
 *
 * A probe lives as long as its span, which has flags of CPROF_FLAG_PROBED. The layer above says, at the start and the end,
 * where the call works and what its framework's allocator holds. The figures of a sample go to the span's accumulator.
 *
 * A thread's running probes are a list, innermost first; launches are the innermost one's. Thread rule: the layer above lets
 * one thread at a time into these functions.
 */
#ifndef CPROF_PROBE_H
#define CPROF_PROBE_H

#include "cprofiling/devices/event.h"
#include "cprofiling/nodes/span.h"

#define CPROF_PROBE_WHOLE_DEVICE INT64_MIN /* no allocator's, but all used memory of the device */

/* What an allocator of the layer above holds: bytes in use, and the most since its last reset; negative: it does not know. */
typedef struct {
    bool known;
    int64_t device; /* any number that tells devices apart */
    int64_t in_use;
    int64_t highest;
} cprof_probe_memory;

/* A device's time of a call, measured by the layer above: told once how the call ended (`accum` NULL: it does not count). */
typedef void (*cprof_probe_ender)(void *mark, cprof_accum *accum, uint64_t generation);

struct cprof_probe {
    cprof_probe *next; /* on the free list */
    unsigned flags;    /* CPROF_FLAG_ bits of the measured figures */
    bool running;
    bool stopped;
    bool has_yielded; /* to a consumer, or was given up: the device's time is not its own */
    bool has_paused;  /* was paused when its call was suspended: what others did meanwhile is not in its counters */
    cprof_ticks stop;
    /* Set by the layer above before the beginning: */
    cprof_gpu_cause cause;   /* why no GPU time is known, or KNOWN: it has a place, or a mark of its own */
    cprof_gpu_place place;   /* at the start; then */
    cprof_gpu_place left_at; /* at the end, for which it is set before the end */
    void *mark;              /* of the layer above, or NULL; owned, until `end_mark` is called */
    bool mark_counts;        /* worked here: what it is told then */
    cprof_probe_ender end_mark;
    bool resets_peak;          /* the allocator's highest is reset whenever it is read */
    cprof_probe_memory memory; /* of the allocator at the start */
    /* Worked here: */
    cprof_gpu_mark *events;
    cprof_accum *accum; /* of the span, for launches and ranges */
    uint64_t generation;
    cprof_thread *thread; /* in which it runs */
    uint64_t thread_life; /* as records of threads are used again */
    cprof_probe *outer;   /* in the thread's list, while it runs */
    unsigned counters;    /* CPROF_COUNTER_BITs */
    unsigned wanted;      /* CPROF_RESOURCES_ bits of the counters asked for, also while the key skips */
    cprof_counter_reading before;
    cprof_resources_sample sample;
    int64_t host_highest;
    cprof_ticks wait_start;
    cprof_probe *next_open; /* among the probes with folded peaks */
    cprof_probe *previous_open;
    uint32_t epoch; /* of the process that began it */
    bool captures;
    bool in_range;
    cprof_name signature; /* of the call's arguments */
    char *text;           /* what it is in; owned, and stays with the probe for the next call */
    size_t room;          /* there */
};

/* Worked by probe.c. */
typedef struct {
    cprof_lock lock; /* guards: */
    cprof_probe *spare;
    cprof_probe *open;                /* probes with folded peaks */
    _Atomic(cprof_probe *) unsettled; /* probes with marks to end */
} cprof_probe_state;

extern cprof_probe_state cprof_probes;

/* A pause before a missing library is looked for again. All zero: it is over. */
typedef struct {
    bool is_on;
    cprof_ticks since;
} cprof_probe_rest;

/* Begins a while of 100 ms. */
void cprof_probe_begin_rest(cprof_probe_rest *rest);

/* Whether it goes on. */
bool cprof_probe_rests(const cprof_probe_rest *rest);

/* Memory in use on the calling thread's CUDA device, by all processes. The driver knows no peak.
 * For calls whose framework has no allocator to be asked. May wait for the driver: not with the GIL held. */
cprof_probe_memory cprof_probe_device_memory(void);

/* A zeroed probe for a call of the accumulator (NULL without memory). `state`: the registry's word at its entry, of which the
 * flags may be fewer here: while the key skips, nothing that is statistics is measured. */
cprof_probe *cprof_probe_new(cprof_accum *accum, uint64_t state);

/* Sets the signature, which is copied, under which a call with CPROF_FLAG_SHAPES counts: without memory, that of the rest. Not
 * set, it is the empty one. */
void cprof_probe_set_signature(cprof_probe *probe, cprof_name signature);

/* Leaves out unavailable figures: CPROF_FLAG_ bits. Before the beginning. */
void cprof_probe_leave_out(cprof_probe *probe, unsigned flags);

/* Begins: attaches the probe to a span that was just opened, and starts the span's clock anew, last of all. */
void cprof_probe_begin(cprof_probe *probe, cprof_thread *thread, cprof_span *span);

/* Go around a wait of the call for its device: before it begins, or before it is stopped. */
void cprof_probe_begin_wait(cprof_probe *probe);
void cprof_probe_end_wait(cprof_probe *probe);

/* Whether a probe that is not begun yet is of the node that the capture window is for. */
bool cprof_probe_is_for_capture(const cprof_probe *probe);

/* Begin a captured call, if this is one, before the probe is begun, and end it after it was stopped, or cprof_probe_finish()
 * does. They may wait for the driver and the tool: not with the GIL held; any number of threads at once. */
void cprof_probe_begin_capture(cprof_probe *probe);
void cprof_probe_end_capture(cprof_probe *probe);

/* The call is suspended, and goes on, maybe in another thread. `yields`: to its consumer. */
void cprof_probe_pause(cprof_probe *probe, bool yields);
void cprof_probe_continue(cprof_probe *probe, cprof_thread *thread);

/* The end of the call, before anything else is done: its clock stands from here on. Idempotent. */
void cprof_probe_stop(cprof_probe *probe);

/* Sets what the allocator holds at the end of the call. */
void cprof_probe_set_memory(cprof_probe *probe, const cprof_probe_memory *memory);

/* Ends the marks of probes that were given up: goes after each closing of a span, when that is done with its chain, as to end a
 * mark may run anything. */
void cprof_probe_settle_all(void);
static inline void cprof_probe_settle(void)
{
    if (__builtin_expect(atomic_load_explicit(&cprof_probes.unsettled, memory_order_relaxed) != NULL, 0)) {
        cprof_probe_settle_all();
    }
}

/* For call.c. Gives up the probe of a span that is closed. `is_sample`: its figures count; `was_switched`: others ran in its
 * thread meanwhile, so that its counters are not its own. */
void cprof_probe_finish(cprof_probe *probe, bool is_sample, bool was_switched);

/* In the child of a fork: probes that are open are the parent's. */
void cprof_probe_after_fork_in_child(void);

#endif
