#define _GNU_SOURCE
#include "cprofiling/trace/recording.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/random.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

cprof_recording_state cprof_recording;

enum {
    MOST_THREADS = (1 << 24) - 1,
    UNSEEN_US = 10000, /* longer than any CPU keeps what it has written from the others */
};

/* ---- Beginning */

static bool membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

static uint32_t next_serial(void)
{
    uint32_t serial;
    do {
        serial = atomic_fetch_add(&cprof_recording.last_serial, 1) + 1;
    } while (serial == 0);
    return serial;
}

static void set_recording(const cprof_recording_session *session, bool runs)
{
    unsigned flags = CPROF_FLAG_TRACE | (session->options.details ? CPROF_FLAG_DETAIL : 0) |
                     (session->options.synchronizes ? CPROF_FLAG_SYNC : 0);
    cprof_registry_record_owner(session->options.owner, runs && session->options.hosts ? flags : 0);
}

static cprof_recording_session *make_session(const cprof_recording_options *options)
{
    cprof_recording_session *session = cprof_alloc_zeroed(sizeof *session);
    if (session != NULL) {
        session->options = *options;
        session->epoch = atomic_load(&cprof_lock_epoch);
        session->serial = next_serial();
        cprof_random_bytes(session->seeds, sizeof session->seeds);
    }
    return session;
}

static bool put_in_force(cprof_recording_session *session)
{
    cprof_lock_acquire(&cprof_recording.lock);
    bool free = cprof_recording.session == NULL;
    if (free) {
        cprof_recording.session = session;
        atomic_store(&cprof_recording.serial, session->serial);
        atomic_store(&cprof_recording.open_serial, session->serial);
    }
    cprof_lock_release(&cprof_recording.lock);
    return free;
}

cprof_status cprof_recording_start(const cprof_recording_options *options, cprof_recording_session **session)
{
    if (options->capacity < CPROF_RECORDING_LEAST_CAPACITY || options->capacity > CPROF_RECORDING_MOST_CAPACITY) {
        return CPROF_OUT_OF_RANGE;
    }
    cprof_clock_start();
    cprof_recording_session *made = make_session(options);
    if (made == NULL) {
        return CPROF_NO_MEMORY;
    }
    atomic_store(&cprof_recording.fenced, !membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED));
    made->since_epoch = cprof_clock_since_epoch();
    made->begin = cprof_clock_pair_now();
    if (!put_in_force(made)) {
        cprof_alloc_release(made);
        return CPROF_IN_USE;
    }
    set_recording(made, true);
    *session = made;
    return CPROF_OK;
}

cprof_ns cprof_recording_since_epoch(const cprof_recording_session *session)
{
    return session->since_epoch;
}

void cprof_recording_pause(cprof_recording_session *session)
{
    if (atomic_load(&cprof_recording.open_serial) == session->serial) {
        set_recording(session, false);
        atomic_store(&cprof_recording.paused, cprof_clock_read());
        atomic_store(&cprof_recording.open_serial, 0);
    }
}

void cprof_recording_resume(cprof_recording_session *session)
{
    if (atomic_load(&cprof_recording.serial) == session->serial && atomic_load(&cprof_recording.open_serial) == 0) {
        atomic_store(&cprof_recording.open_serial, session->serial);
        set_recording(session, true);
    }
}

/* ---- A thread joins */

static struct cprof_ring *ring_of(cprof_recording_session *session, cprof_thread *thread)
{
    struct cprof_ring *ring = session->rings;
    while (ring != NULL && ring->thread != thread) {
        ring = ring->next;
    }
    if (ring != NULL) {
        return ring;
    }
    ring = cprof_alloc_zeroed(sizeof *ring);
    if (ring != NULL) {
        ring->thread = thread;
        ring->serial = session->serial;
        ring->drop_newest = session->options.drop_newest;
        ring->has_details = session->options.details;
        ring->room = session->options.capacity;
        ring->next = session->rings;
        session->rings = ring;
    }
    return ring;
}

static bool join_lock_held(cprof_recording_session *session, cprof_thread *thread)
{
    cprof_recording_thread *threads =
        cprof_alloc_grow(session->threads, &session->thread_capacity, session->thread_count, sizeof *threads, 16);
    if (threads == NULL) {
        return false;
    }
    session->threads = threads;
    struct cprof_ring *ring = ring_of(session, thread);
    if (ring == NULL || session->thread_count >= MOST_THREADS) {
        return false;
    }
    /* gettid() came with glibc 2.30 */
    session->threads[session->thread_count++] = (cprof_recording_thread){.tid = (pid_t)syscall(SYS_gettid)};
    thread->trace = (cprof_thread_trace){
        .ring = ring,
        .serial = session->serial,
        .number = session->thread_count,
        .last_span = (uint64_t)session->thread_count << CPROF_RECORDING_NUMBER_SHIFT,
    };
    return true;
}

/* Gives a thread a number and a ring. False when the recording has ended; or without memory: a span is lost, and counted. */
static __attribute__((noinline)) bool join(cprof_thread *thread, uint32_t serial)
{
    cprof_lock_acquire(&cprof_recording.lock);
    cprof_recording_session *session = cprof_recording.session;
    bool goes_on = session != NULL && session->serial == serial;
    bool joined = goes_on && join_lock_held(session, thread);
    if (goes_on && !joined) {
        session->unjoined++;
    }
    cprof_lock_release(&cprof_recording.lock);
    return joined;
}

void cprof_recording_name_thread(cprof_thread *thread, cprof_name name)
{
    uint32_t serial = atomic_load(&cprof_recording.open_serial);
    if (serial == 0 || (thread->trace.serial != serial && !join(thread, serial))) {
        return;
    }
    cprof_lock_acquire(&cprof_recording.lock);
    cprof_recording_session *session = cprof_recording.session;
    if (session != NULL && session->serial == serial && thread->trace.number <= CPROF_RECORDING_MOST_NAMED) {
        cprof_recording_thread *own = &session->threads[thread->trace.number - 1];
        own->name = cprof_labels_make(&session->labels, (cprof_names){{"", 0}, name}, false);
    }
    cprof_lock_release(&cprof_recording.lock);
}

/* ---- Labels */

static uint32_t make_label(uint32_t serial, cprof_names names, bool may_overflow)
{
    cprof_lock_acquire(&cprof_recording.lock);
    cprof_recording_session *session = cprof_recording.session;
    bool goes_on = session != NULL && session->serial == serial;
    uint32_t label = goes_on ? cprof_labels_make(&session->labels, names, may_overflow) : 0;
    cprof_lock_release(&cprof_recording.lock);
    return label;
}

uint32_t cprof_recording_label(uint32_t serial, cprof_names names)
{
    return make_label(serial, names, true);
}

uint32_t cprof_recording_text(uint32_t serial, cprof_name text)
{
    return make_label(serial, (cprof_names){{"", 0}, text}, false);
}

static __attribute__((noinline)) uint32_t find_label(cprof_accum *accum, uint32_t serial)
{
    uint32_t label = cprof_recording_label(serial, cprof_registry_names(accum));
    if (label != 0) {
        atomic_store_explicit(&accum->label, (uint64_t)serial << 32 | label, memory_order_relaxed);
    }
    return label;
}

/* The label of a node's key, kept with the key. */
static inline uint32_t label_of(cprof_accum *accum, uint32_t serial)
{
    uint64_t known = atomic_load_explicit(&accum->label, memory_order_relaxed);
    return __builtin_expect(known >> 32 == serial, 1) ? (uint32_t)known : find_label(accum, serial);
}

/* ---- Steps */

static bool is_parents(const cprof_recording_session *session)
{
    return session->epoch != atomic_load(&cprof_lock_epoch);
}

cprof_status cprof_recording_step(cprof_recording_session *session, cprof_thread *thread, cprof_names names)
{
    if (is_parents(session)) {
        return CPROF_OK;
    }
    if (thread->trace.serial != session->serial && !join(thread, session->serial)) {
        return CPROF_NO_MEMORY;
    }
    uint32_t label = cprof_recording_label(session->serial, names);
    if (label == 0) {
        return CPROF_NO_MEMORY;
    }
    cprof_recording_begun_step *steps =
        cprof_alloc_grow(session->steps, &session->step_capacity, session->step_count, sizeof *steps, 16);
    if (steps == NULL) {
        return CPROF_NO_MEMORY;
    }
    session->steps = steps;
    session->steps[session->step_count++] = (cprof_recording_begun_step){
        .start = cprof_clock_read(),
        .span = ++thread->trace.last_span,
        .label = label,
        .thread = thread->trace.number,
    };
    return CPROF_OK;
}

/* ---- Writing */

static const char noted; /* the tag of a span that is made of a note, when it is over */

static __attribute__((noinline)) void keep_detail(struct cprof_ring *ring, const cprof_ring_event *event,
                                                  const cprof_span *span)
{
    static const struct cprof_recording_detail none = {
        .memory = CPROF_MEMORY_UNKNOWN, .in_use = CPROF_TABLE_UNKNOWN, .device_in_use = CPROF_TABLE_UNKNOWN};
    cprof_ring_chunk *current = &ring->chunks[ring->current];
    struct cprof_recording_detail *kept = &current->details[event - current->events];
    *kept = span->detail != NULL ? *span->detail : none;
    if (kept->in_use == CPROF_TABLE_UNKNOWN && kept->device_in_use == CPROF_TABLE_UNKNOWN) {
        kept->memory = none.memory; /* nobody looked at its end: these are still the figures of its start */
    }
}

static inline bool write_event(cprof_thread *thread, const cprof_span *span, cprof_ticks stop, cprof_ticks suspended,
                               cprof_outcome outcome, uint8_t flags)
{
    uint32_t label = span->accum != NULL ? label_of(span->accum, span->trace_serial) : span->label;
    struct cprof_ring *ring = thread->trace.ring;
    if (__builtin_expect(label == 0, 0)) { /* no memory for it, or the recording is ending */
        ring->refused++;
        return false;
    }
    cprof_ring_event *event = cprof_ring_take(ring);
    if (__builtin_expect(event == NULL, 0)) {
        return false;
    }
    *event = (cprof_ring_event){
        .start = span->start,
        .stop = stop,
        .span = span->trace,
        .parent = span->trace_parent,
        .root = span->trace_root,
        .suspended = suspended,
        .label = label,
        .thread = thread->trace.number,
        .kind = span->accum != NULL ? CPROF_KIND_NODE : CPROF_KIND_RECORD,
        .outcome = (uint8_t)outcome,
        .flags = flags,
    };
    if (__builtin_expect(ring->has_details, 0)) {
        keep_detail(ring, event, span);
    }
    return true;
}

static bool began_since(cprof_ticks start, cprof_ticks moment)
{
    return (int64_t)(moment - start) >= 0;
}

/* Events lie in the order of their ends: those of a call's children are the last ones before its own. */
static void take_children_in(const cprof_thread *thread, const cprof_span *span)
{
    const struct cprof_ring *ring = thread->trace.ring;
    size_t chunk = ring->current;
    cprof_ring_event *event = ring->at - 1;
    for (uint64_t left = ring->written - 1; left > 0; left--) {
        if (event == ring->chunks[chunk].events) {
            chunk = (chunk + ring->chunk_count - 1) % ring->chunk_count;
            event = ring->chunks[chunk].events + ring->chunks[chunk].size;
        }
        event--;
        if (event->span == span->trace || !began_since(span->start, event->stop)) {
            return; /* once around the ring, or before the call */
        }
        if (event->thread == thread->trace.number && began_since(span->start, event->start)) {
            event->parent = event->parent == span->trace_parent ? span->trace : event->parent;
            event->root = span->trace_root;
        }
    }
}

/* Writes into the ring if the span's recording goes on; the thread is marked as writing. */
static inline void write_marked(cprof_thread *thread, const cprof_span *span, cprof_ticks stop, cprof_ticks suspended,
                                cprof_outcome outcome, bool suspendable)
{
    uint32_t serial = span->trace_serial;
    if (atomic_load_explicit(&cprof_recording.serial, memory_order_relaxed) != serial ||
        (__builtin_expect(thread->trace.serial != serial, 0) && !join(thread, serial))) {
        return;
    }
    uint8_t flags = suspendable ? CPROF_ROW_SUSPENDABLE : 0;
    if (__builtin_expect(atomic_load_explicit(&cprof_recording.open_serial, memory_order_relaxed) != serial, 0)) {
        cprof_ticks paused = atomic_load(&cprof_recording.paused);
        /* What a span that is cut was suspended up to there, if it ran no more after that. */
        cprof_ticks ran = stop - span->start - suspended;
        cprof_ticks until = paused > span->start ? paused - span->start : 0;
        suspended = suspended > 0 && until > ran ? until - ran : 0;
        stop = paused;
        flags |= CPROF_ROW_CUT;
    }
    bool is_written = write_event(thread, span, stop, suspended, outcome, flags);
    if (__builtin_expect(span->tag == &noted, 0) && is_written) {
        take_children_in(thread, span);
    }
}

static __attribute__((noinline)) void release_detail(cprof_span *span)
{
    cprof_alloc_release(span->detail);
    span->detail = NULL;
}

void cprof_recording_close(cprof_thread *thread, cprof_span *span, cprof_ticks stop, cprof_ticks suspended,
                           cprof_outcome outcome, bool suspendable)
{
    if (__builtin_expect(span->trace != CPROF_RECORDING_MUTED, 1)) {
        atomic_store_explicit(&thread->trace_mark, span->trace_serial, memory_order_relaxed);
        if (__builtin_expect(atomic_load_explicit(&cprof_recording.fenced, memory_order_relaxed), 0)) {
            atomic_thread_fence(memory_order_seq_cst);
        }
        atomic_signal_fence(memory_order_seq_cst); /* the other half is in meet_writers() */
        write_marked(thread, span, stop, suspended, outcome, suspendable);
        atomic_store_explicit(&thread->trace_mark, 0, memory_order_release);
    }
    cprof_span_set_trace(span, 0);
    if (__builtin_expect(span->detail != NULL, 0)) {
        release_detail(span);
    }
}

void cprof_recording_discard(cprof_span *span)
{
    cprof_span_set_trace(span, 0);
    if (span->detail != NULL) {
        release_detail(span);
    }
}

/* ---- Opening */

/* The innermost enclosing span that takes part in the recording, mostly the first; NULL: none. */
static inline const cprof_span *recorded_from(const cprof_span *span, uint32_t serial)
{
    while (span != NULL && (cprof_span_trace(span) == 0 || cprof_span_trace_serial(span) != serial)) {
        span = cprof_span_around(span);
    }
    return span;
}

static inline void give_ids(cprof_thread *thread, cprof_span *span, uint32_t serial, const cprof_span *outer)
{
    uint64_t number = ++thread->trace.last_span;
    uint64_t around = outer != NULL ? cprof_span_trace(outer) : 0;
    uint64_t root = outer != NULL ? __atomic_load_n(&outer->trace_root, __ATOMIC_RELAXED) : number;
    __atomic_store_n(&span->trace_root, root, __ATOMIC_RELAXED);
    __atomic_store_n(&span->trace_serial, serial, __ATOMIC_RELAXED);
    span->trace_parent = around;
    cprof_span_set_trace(span, around != CPROF_RECORDING_MUTED ? number : CPROF_RECORDING_MUTED);
}

void cprof_recording_open(cprof_thread *thread, cprof_span *span, cprof_span *parent)
{
    uint32_t serial = atomic_load_explicit(&cprof_recording.open_serial, memory_order_relaxed);
    if (serial == 0 || (__builtin_expect(thread->trace.serial != serial, 0) && !join(thread, serial))) {
        return;
    }
    give_ids(thread, span, serial, recorded_from(parent, serial));
}

void cprof_recording_mute(cprof_span *span)
{
    if (span->trace != 0) {
        cprof_span_set_trace(span, CPROF_RECORDING_MUTED);
    }
}

bool cprof_recording_is_muted(const cprof_span *innermost)
{
    const cprof_span *outer = recorded_from(innermost, atomic_load(&cprof_recording.open_serial));
    return outer != NULL && outer->trace == CPROF_RECORDING_MUTED;
}

/* ---- Details */

void cprof_recording_begin_detail(cprof_span *span, const struct cprof_recording_detail *detail)
{
    bool takes_part = span->trace != 0 && span->trace != CPROF_RECORDING_MUTED;
    span->detail = takes_part ? cprof_alloc_zeroed(sizeof *span->detail) : NULL;
    if (span->detail != NULL) {
        *span->detail = *detail;
        span->detail->in_use = span->detail->device_in_use = CPROF_TABLE_UNKNOWN;
        if (detail->serial != span->trace_serial) {
            span->detail->shapes = span->detail->types = span->detail->stack = 0;
        }
    }
}

static int64_t change(int64_t before, int64_t after)
{
    return before != CPROF_TABLE_UNKNOWN && after != CPROF_TABLE_UNKNOWN ? after - before : CPROF_TABLE_UNKNOWN;
}

static int64_t risen(int64_t before, int64_t after)
{
    return before != CPROF_TABLE_UNKNOWN && after > before ? after : CPROF_TABLE_UNKNOWN;
}

void cprof_recording_end_detail(cprof_span *span, const cprof_memory *now)
{
    if (span->detail != NULL) {
        cprof_memory *memory = &span->detail->memory;
        span->detail->in_use = now->memory;
        span->detail->device_in_use = now->device_memory;
        *memory = (cprof_memory){
            .memory = change(memory->memory, now->memory),
            .memory_peak = risen(memory->memory_peak, now->memory_peak),
            .device_memory = change(memory->device_memory, now->device_memory),
            .device_memory_peak = risen(memory->device_memory_peak, now->device_memory_peak),
        };
    }
}

/* ---- Calls that are told of when they are over */

static void forget_note(cprof_thread_trace *trace, size_t index)
{
    trace->noted--;
    memmove(&trace->notes[index], &trace->notes[index + 1], (trace->noted - index) * sizeof trace->notes[0]);
}

void cprof_recording_note(cprof_thread *thread, int64_t key)
{
    uint32_t serial = atomic_load_explicit(&cprof_recording.open_serial, memory_order_relaxed);
    if (serial == 0 || (thread->trace.serial != serial && !join(thread, serial))) {
        return;
    }
    cprof_thread_trace *trace = &thread->trace;
    if (trace->noted == CPROF_THREAD_NOTES) {
        forget_note(trace, 0);
    }
    trace->notes[trace->noted].key = key;
    trace->notes[trace->noted++].start = cprof_clock_read();
}

void cprof_recording_end_noted(cprof_thread *thread, int64_t key, cprof_accum *accum, const cprof_span *innermost)
{
    cprof_ticks stop = cprof_clock_read();
    cprof_thread_trace *trace = &thread->trace;
    size_t at = trace->noted;
    while (at > 0 && trace->notes[at - 1].key != key) {
        at--;
    }
    if (at == 0) {
        return;
    }
    cprof_span span = {.accum = accum, .start = trace->notes[at - 1].start, .tag = &noted};
    forget_note(trace, at - 1);
    const cprof_span *outer = recorded_from(innermost, trace->serial);
    while (outer != NULL && !began_since(outer->start, span.start)) {
        outer = recorded_from(cprof_span_around(outer), trace->serial);
    }
    give_ids(thread, &span, trace->serial, outer);
    cprof_recording_close(thread, &span, stop, 0, CPROF_OUTCOME_SUCCESS, false);
}

/* ---- Ending */

/* Threads that are marked as writing come to their end, or are stopped: then their ring is left to them. */
static bool is_writing(const struct cprof_ring *ring, int64_t deadline_ns)
{
    while (atomic_load(&ring->thread->trace_mark) == ring->serial) {
        if (cprof_clock_monotonic_ns() > deadline_ns) {
            return true;
        }
        (void)sched_yield();
    }
    return false;
}

/* Rings of earlier recordings that were left to threads which have come to an end with them since. */
static void free_left_rings(void)
{
    cprof_lock_acquire(&cprof_recording.lock);
    struct cprof_ring **at = &cprof_recording.left_rings;
    while (*at != NULL) {
        struct cprof_ring *ring = *at;
        if (is_writing(ring, INT64_MIN)) {
            at = &ring->next;
        } else {
            *at = ring->next;
            cprof_ring_free(ring);
        }
    }
    cprof_lock_release(&cprof_recording.lock);
}

/* Takes the rings of threads that are writing after the deadline from the recording. The number of their events. */
static uint64_t leave_rings(cprof_recording_session *session, int64_t deadline_ns)
{
    uint64_t lost = 0;
    struct cprof_ring **at = &session->rings;
    while (*at != NULL) {
        struct cprof_ring *ring = *at;
        if (is_writing(ring, deadline_ns)) {
            lost += ring->written + ring->refused;
            *at = ring->next;
            cprof_lock_acquire(&cprof_recording.lock);
            ring->next = cprof_recording.left_rings;
            cprof_recording.left_rings = ring;
            cprof_lock_release(&cprof_recording.lock);
        } else {
            at = &(*at)->next;
        }
    }
    return lost;
}

/* Whoever began to write before the end of the recording is seen to be marked after this; whoever begins later sees the end.
 * Where writers fence, it is enough that their marks are read after the end was written, both seq_cst. */
static void meet_writers(void)
{
    if (!atomic_load(&cprof_recording.fenced) && !membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
        atomic_store(&cprof_recording.fenced, true); /* allowed at the start, refused by now */
        (void)usleep(UNSEEN_US);
    }
}

static void take_out_of_force(const cprof_recording_session *session)
{
    cprof_lock_acquire(&cprof_recording.lock);
    if (cprof_recording.session == session) {
        cprof_recording.session = NULL;
        atomic_store(&cprof_recording.open_serial, 0);
        atomic_store(&cprof_recording.serial, 0);
    }
    cprof_lock_release(&cprof_recording.lock);
}

cprof_status cprof_recording_finish(cprof_recording_session *session, cprof_table *table, bool with_open)
{
    cprof_status status = CPROF_OK;
    if (!is_parents(session)) {
        bool paused = atomic_load(&cprof_recording.open_serial) == 0;
        cprof_ticks stop = paused ? atomic_load(&cprof_recording.paused) : cprof_clock_read();
        atomic_store(&cprof_recording.paused, stop); /* to a span that is closed at this moment the end is a pause */
        set_recording(session, false);
        take_out_of_force(session);
        /* After this nobody writes for the recording any more. Rings that are left to stopped threads are counted as lost. */
        meet_writers();
        uint64_t lost = leave_rings(session, cprof_clock_monotonic_ns() + (int64_t)CPROF_RECORDING_PATIENCE_MS * 1000000);
        cprof_clock_refine();
        if (table != NULL) {
            table->dropped += lost + session->unjoined;
            status = cprof_recording_rows(session, table, stop, with_open);
        }
    } else {
        (void)leave_rings(session, INT64_MIN); /* of threads that were writing when the process was forked */
    }
    while (session->rings != NULL) {
        struct cprof_ring *ring = session->rings;
        session->rings = ring->next;
        cprof_ring_free(ring);
    }
    cprof_names_dispose(&session->labels.names);
    cprof_alloc_release(session->steps);
    cprof_alloc_release(session->threads);
    cprof_alloc_release(session);
    free_left_rings();
    return status;
}

void cprof_recording_after_fork_in_child(void)
{
    cprof_recording.session = NULL;
    atomic_store(&cprof_recording.open_serial, 0);
    atomic_store(&cprof_recording.serial, 0);
}
