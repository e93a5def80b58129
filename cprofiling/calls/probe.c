#include "cprofiling/calls/probe.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/devices/capture.h"
#include "cprofiling/devices/counters.h"
#include "cprofiling/devices/cupti_events.h"
#include "cprofiling/devices/nvtx.h"
#include "cprofiling/trace/recording.h"

#include <string.h>

cprof_probe_state cprof_probes;

#define UNKNOWN (-1)

enum { REST_NS = 100 * 1000 * 1000, SIGNATURE_STEP = 64 };

/* Mostly the one that the thread has given back last: that takes no lock. */
static cprof_probe *take_spare(void)
{
    cprof_thread *thread = cprof_thread_self;
    cprof_probe *probe = thread != NULL ? thread->spare_probe : NULL;
    if (probe != NULL) {
        thread->spare_probe = NULL;
        return probe;
    }
    cprof_lock_acquire(&cprof_probes.lock);
    probe = cprof_probes.spare;
    if (probe != NULL) {
        cprof_probes.spare = probe->next;
    }
    cprof_lock_release(&cprof_probes.lock);
    return probe != NULL ? probe : cprof_alloc_zeroed(sizeof *probe);
}

static void give_back(cprof_probe *probe)
{
    cprof_thread *thread = cprof_thread_self;
    if (thread != NULL && thread->spare_probe == NULL) {
        thread->spare_probe = probe;
        return;
    }
    cprof_lock_acquire(&cprof_probes.lock);
    probe->next = cprof_probes.spare;
    cprof_probes.spare = probe;
    cprof_lock_release(&cprof_probes.lock);
}

static unsigned asked_of(unsigned flags, uint32_t options)
{
    static const struct {
        unsigned flag;
        unsigned asked;
    } bits[] = {
        {CPROF_FLAG_GPU, CPROF_RESOURCES_GPU},
        {CPROF_FLAG_LAUNCHES, CPROF_RESOURCES_LAUNCHES},
        {CPROF_FLAG_MEMORY, CPROF_RESOURCES_MEMORY},
        {CPROF_FLAG_SYNC, CPROF_RESOURCES_WAITS},
    };
    unsigned asked = 0;
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        asked |= (flags & bits[i].flag) != 0 ? bits[i].asked : 0;
    }
    if ((flags & CPROF_FLAG_COUNTERS) != 0) {
        asked |= CPROF_RESOURCES_COUNTERS | (options & CPROF_COUNTER_ALL) << CPROF_RESOURCES_COUNTER_SHIFT;
    }
    return asked;
}

void cprof_probe_leave_out(cprof_probe *probe, unsigned flags)
{
    bool is_missed = (probe->flags & flags & CPROF_FLAG_LAUNCHES) != 0;
    probe->flags &= ~flags;
    probe->sample.asked &= ~asked_of(flags, CPROF_COUNTER_ALL);
    probe->sample.asked |= is_missed ? CPROF_RESOURCES_LAUNCHES_UNKNOWN : 0U;
}

cprof_probe *cprof_probe_new(cprof_accum *accum, uint64_t state)
{
    unsigned flags = (unsigned)(state & CPROF_FLAG_PROBED);
    uint64_t generation = state >> CPROF_STATE_GENERATION_SHIFT;
    uint32_t options = cprof_registry_probing(accum->registry);
    cprof_probe *probe = take_spare();
    if (probe == NULL) {
        return NULL;
    }
    unsigned wanted = (state & CPROF_FLAG_STATS) != 0 ? asked_of(flags & CPROF_FLAG_COUNTERS, options) : 0;
    bool measures = (flags & CPROF_FLAG_FIGURES & ~(unsigned)CPROF_FLAG_SHAPES) != 0; /* else there is nothing to leave out */
    if (measures && ((state & CPROF_FLAG_STATS) == 0 || cprof_accum_is_skipping(accum, generation))) {
        flags &= ~(unsigned)CPROF_FLAG_FIGURES;
    }
    *probe = (cprof_probe){
        .flags = flags,
        .accum = accum,
        .generation = generation,
        .wanted = wanted,
        .cause = CPROF_GPU_NO_CUDA,
        .epoch = atomic_load_explicit(&cprof_lock_epoch, memory_order_relaxed),
        .sample = {.asked = asked_of(flags, options), .counters.known = CPROF_COUNTER_ALL},
        .signature = cprof_name_of(""),
        .text = probe->text,
        .room = probe->room,
    };
    probe->counters = options & CPROF_COUNTER_ALL;
    probe->resets_peak = (options & CPROF_REGISTRY_RESETS_PEAK) != 0;
    return probe;
}

void cprof_probe_set_signature(cprof_probe *probe, cprof_name signature)
{
    size_t room = (signature.length / SIGNATURE_STEP + 1) * SIGNATURE_STEP;
    char *text = cprof_alloc_reserve(probe->text, &probe->room, room);
    if (text == NULL) {
        probe->signature = cprof_name_of(CPROF_SHAPES_REST);
        return;
    }
    probe->text = text;
    memcpy(probe->text, signature.bytes, signature.length);
    probe->signature = (cprof_name){probe->text, signature.length};
}

void cprof_probe_begin_rest(cprof_probe_rest *rest)
{
    *rest = (cprof_probe_rest){true, cprof_clock_read()};
}

bool cprof_probe_rests(const cprof_probe_rest *rest)
{
    if (!rest->is_on) {
        return false;
    }
    cprof_ticks now = cprof_clock_read(); /* a tenth of what CLOCK_MONOTONIC costs: this is asked in every call */
    return now >= rest->since && cprof_clock_between(rest->since, now) < REST_NS;
}

/* ---- Peaks of an allocator that is reset at each reading: the highest belongs to all open probes. */

static void fold_lock_held(const cprof_probe_memory *memory)
{
    for (cprof_probe *open = cprof_probes.open; open != NULL; open = open->next_open) {
        if (open->memory.device == memory->device && memory->highest > open->sample.device_memory.peak) {
            open->sample.device_memory.peak = memory->highest;
        }
    }
}

static void open_memory(cprof_probe *probe)
{
    probe->resets_peak = probe->resets_peak && probe->memory.highest >= 0; /* what nobody keeps cannot be reset */
    probe->sample.device_memory.peak = probe->resets_peak ? probe->memory.in_use : UNKNOWN;
    if (!probe->resets_peak) {
        return;
    }
    cprof_lock_acquire(&cprof_probes.lock);
    fold_lock_held(&probe->memory);
    probe->next_open = cprof_probes.open;
    if (probe->next_open != NULL) {
        probe->next_open->previous_open = probe;
    }
    cprof_probes.open = probe;
    cprof_lock_release(&cprof_probes.lock);
}

static void take_out_of_open_lock_held(cprof_probe *probe)
{
    if (probe->previous_open != NULL) {
        probe->previous_open->next_open = probe->next_open;
    } else if (cprof_probes.open == probe) {
        cprof_probes.open = probe->next_open;
    }
    if (probe->next_open != NULL) {
        probe->next_open->previous_open = probe->previous_open;
    }
    probe->next_open = probe->previous_open = NULL;
}

void cprof_probe_set_memory(cprof_probe *probe, const cprof_probe_memory *memory)
{
    cprof_resources_memory_sample *sample = &probe->sample.device_memory;
    if (!probe->memory.known || !memory->known || memory->device != probe->memory.device) {
        return;
    }
    if (probe->resets_peak) {
        cprof_lock_acquire(&cprof_probes.lock);
        fold_lock_held(memory);
        take_out_of_open_lock_held(probe); /* what others reach until it is closed is not its own */
        cprof_lock_release(&cprof_probes.lock);
    } else if (probe->memory.highest >= 0 && memory->highest > probe->memory.highest) {
        sample->peak = memory->highest; /* it rose inside the call, and so was reached there */
    }
    probe->sample.asked |= probe->memory.highest < 0 ? CPROF_RESOURCES_PEAK_UNKNOWN : 0U;
    sample->known = true;
    sample->entry = probe->memory.in_use;
    sample->exit = memory->in_use;
}

cprof_probe_memory cprof_probe_device_memory(void)
{
    int64_t unused, total;
    if (!cprof_wait_memory(CPROF_GPU_CURRENT_DEVICE, &unused, &total)) {
        return (cprof_probe_memory){.known = false};
    }
    return (cprof_probe_memory){true, CPROF_PROBE_WHOLE_DEVICE, total - unused, UNKNOWN};
}

/* ---- Memory of the process */

static void end_host_memory(cprof_probe *probe)
{
    cprof_memory now = cprof_memory_now();
    cprof_resources_memory_sample *sample = &probe->sample.host_memory;
    sample->known = sample->known && now.memory != CPROF_TABLE_UNKNOWN;
    sample->exit = now.memory;
    if (probe->host_highest == CPROF_TABLE_UNKNOWN || now.memory_peak <= probe->host_highest) {
        return; /* the call's own peak is below an earlier one */
    }
    sample->peak = now.memory_peak;
}

/* ---- Running */

static void set_launching(const cprof_thread *thread)
{
    const cprof_probe *innermost = atomic_load_explicit(&thread->running, memory_order_relaxed);
    while (innermost != NULL && (innermost->flags & CPROF_FLAG_LAUNCHES) == 0) {
        innermost = innermost->outer;
    }
    cprof_cupti_node node = {NULL, 0};
    cprof_cupti_node before;
    if (innermost != NULL) {
        node = (cprof_cupti_node){innermost->accum, innermost->generation};
    }
    cprof_cupti_thread_set_node(node, &before);
}

static void enter_range(cprof_probe *probe)
{
    cprof_accum *accum = probe->accum;
    if (!cprof_nvtx_is_heard()) {
        return;
    }
    void *message = atomic_load_explicit(&accum->range, memory_order_acquire);
    if (message == NULL) {
        message = cprof_nvtx_register(cprof_registry_names(accum).node);
        atomic_store_explicit(&accum->range, message, memory_order_release);
    }
    if (message != NULL) {
        cprof_nvtx_push(message, atomic_fetch_add_explicit(&accum->ranges, 1, memory_order_relaxed));
        probe->in_range = true;
    }
}

/* The list belongs to the thread in which the probe began to run; the end may come in another one, while that ends. */
static void take_off(cprof_probe *probe)
{
    cprof_probe *expected = probe;
    if (atomic_compare_exchange_strong(&probe->thread->running, &expected, probe->outer)) {
        return;
    }
    cprof_probe *at = expected;
    while (at != NULL && at->outer != probe) {
        at = at->outer;
    }
    if (at != NULL) {
        at->outer = probe->outer;
    }
}

void cprof_probe_continue(cprof_probe *probe, cprof_thread *thread)
{
    probe->running = true;
    probe->thread = thread;
    probe->thread_life = atomic_load_explicit(&thread->life, memory_order_relaxed);
    probe->outer = atomic_load_explicit(&thread->running, memory_order_relaxed);
    atomic_store_explicit(&thread->running, probe, memory_order_relaxed);
    if ((probe->flags & CPROF_FLAG_LAUNCHES) != 0) {
        set_launching(thread);
    }
    if ((probe->flags & CPROF_FLAG_NVTX) != 0) {
        enter_range(probe);
    }
    if ((probe->flags & CPROF_FLAG_COUNTERS) != 0) {
        cprof_counters_read(probe->counters, &probe->before);
    }
}

void cprof_probe_pause(cprof_probe *probe, bool yields)
{
    probe->has_yielded |= yields;
    if (!probe->running) {
        return;
    }
    bool at_home = probe->thread == cprof_thread_self && probe->thread_life == probe->thread->life;
    if ((probe->flags & CPROF_FLAG_COUNTERS) != 0) {
        cprof_counter_reading now, difference;
        cprof_counters_read(probe->counters, &now);
        cprof_counter_between(&probe->before, &now, &difference);
        cprof_counter_add(&probe->sample.counters, &difference);
        probe->sample.counters.known &= at_home ? CPROF_COUNTER_ALL : 0;
    }
    probe->running = false;
    probe->has_paused |= !probe->stopped;
    take_off(probe);
    if (at_home && (probe->flags & CPROF_FLAG_LAUNCHES) != 0) {
        set_launching(probe->thread);
    }
    if (at_home && probe->in_range) {
        cprof_nvtx_pop();
    }
    probe->in_range = false;
}

void cprof_probe_begin(cprof_probe *probe, cprof_thread *thread, cprof_span *span)
{
    span->probe = probe;
    if ((probe->flags & CPROF_FLAG_MEMORY) != 0) {
        cprof_memory now = cprof_memory_now();
        probe->sample.host_memory = (cprof_resources_memory_sample){
            .known = now.memory != CPROF_TABLE_UNKNOWN,
            .entry = now.memory,
            .peak = UNKNOWN,
        };
        probe->host_highest = now.memory_peak;
        if (probe->memory.known) {
            open_memory(probe);
        }
    }
    if ((probe->flags & CPROF_FLAG_GPU) != 0 && probe->mark == NULL && probe->cause == CPROF_GPU_KNOWN) {
        probe->left_at = probe->place;
        probe->events = cprof_event_begin(probe->place, &probe->cause);
    }
    cprof_probe_continue(probe, thread);
    span->start = cprof_clock_read();
}

bool cprof_probe_is_for_capture(const cprof_probe *probe)
{
    return (probe->flags & CPROF_FLAG_CAPTURE) != 0 && cprof_capture_is_of(cprof_registry_names(probe->accum).node);
}

void cprof_probe_begin_capture(cprof_probe *probe)
{
    probe->captures = cprof_capture_begin(cprof_registry_names(probe->accum).node);
}

void cprof_probe_end_capture(cprof_probe *probe)
{
    if (probe->captures) {
        cprof_capture_end();
    }
    probe->captures = false;
}

void cprof_probe_stop(cprof_probe *probe)
{
    if (probe->stopped) {
        return;
    }
    probe->stopped = true;
    probe->stop = cprof_clock_read();
    cprof_probe_pause(probe, false);
    if ((probe->flags & CPROF_FLAG_MEMORY) != 0) {
        end_host_memory(probe);
    }
}

void cprof_probe_begin_wait(cprof_probe *probe)
{
    probe->wait_start = cprof_clock_read();
}

void cprof_probe_end_wait(cprof_probe *probe)
{
    probe->sample.waits++;
    probe->sample.wait_ns += cprof_clock_between(probe->wait_start, cprof_clock_read());
}

/* ---- The end */

/* `counts`: for a mark of the layer above only kept, as to end it may run anything. */
static void end_gpu(cprof_probe *probe, bool counts)
{
    probe->mark_counts = counts;
    if (probe->events != NULL && counts) {
        cprof_event_end(probe->events, probe->left_at, probe->accum, probe->generation);
    } else if (probe->events != NULL) {
        cprof_event_cancel(probe->events);
    }
}

void cprof_probe_settle_all(void)
{
    cprof_lock_acquire(&cprof_probes.lock);
    cprof_probe *probe = atomic_exchange_explicit(&cprof_probes.unsettled, NULL, memory_order_relaxed);
    cprof_lock_release(&cprof_probes.lock);
    while (probe != NULL) {
        cprof_probe *next = probe->next;
        probe->end_mark(probe->mark, probe->mark_counts ? probe->accum : NULL, probe->generation);
        give_back(probe);
        probe = next;
    }
}

void cprof_probe_finish(cprof_probe *probe, bool is_sample, bool was_switched)
{
    cprof_probe_stop(probe);
    if (probe->epoch != atomic_load_explicit(&cprof_lock_epoch, memory_order_relaxed)) {
        return; /* begun by the parent of this process, as was all that it holds */
    }
    if ((probe->flags & CPROF_FLAG_GPU) != 0) {
        bool has_time = probe->events != NULL || probe->mark != NULL;
        end_gpu(probe, is_sample && has_time && !probe->has_yielded);
        if (is_sample && (!has_time || probe->has_yielded)) {
            cprof_accum_miss_gpu(probe->accum, probe->generation, has_time ? CPROF_GPU_SUSPENDED : probe->cause);
        }
    }
    if (probe->memory.known && probe->resets_peak) {
        cprof_lock_acquire(&cprof_probes.lock);
        take_out_of_open_lock_held(probe);
        cprof_lock_release(&cprof_probes.lock);
    }
    cprof_probe_end_capture(probe);
    if ((probe->flags & CPROF_FLAG_CAPTURE) != 0 && !cprof_capture_is_set()) {
        cprof_registry_capture_owner(probe->accum->registry->owner, 0); /* it is over: calls are quick again */
    }
    /* A call that has no counters, since its key skipped or it is no sample, tells which were asked for. */
    unsigned told = is_sample ? probe->sample.asked : 0;
    if (probe->thread != NULL && (probe->wanted & ~told) != 0) {
        cprof_accum_add_sample(probe->accum, probe->generation, &(cprof_resources_sample){.asked = probe->wanted});
    }
    if (is_sample && probe->sample.asked != 0) {
        bool own = !was_switched || probe->has_paused;
        probe->sample.counters.known &= own && (probe->flags & CPROF_FLAG_COUNTERS) != 0 ? CPROF_COUNTER_ALL : 0;
        cprof_accum_add_sample(probe->accum, probe->generation, &probe->sample);
    }
    if (probe->mark != NULL) {
        cprof_lock_acquire(&cprof_probes.lock);
        probe->next = atomic_load_explicit(&cprof_probes.unsettled, memory_order_relaxed);
        atomic_store_explicit(&cprof_probes.unsettled, probe, memory_order_relaxed);
        cprof_lock_release(&cprof_probes.lock);
    } else {
        give_back(probe);
    }
}

void cprof_probe_after_fork_in_child(void)
{
    cprof_probes.spare = NULL; /* may be half-changed; little is lost */
    cprof_probes.open = NULL;
    atomic_store_explicit(&cprof_probes.unsettled, NULL, memory_order_relaxed);
}
