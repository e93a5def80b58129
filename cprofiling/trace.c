#define _GNU_SOURCE
#include "cprofiling/trace.h"

#include "cprofiling/alloc.h"
#include "cprofiling/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    FIRST_CHUNK = 64, /* events, a page of them: a thread may come for one */
    MOST_IN_CHUNK = 4096,
    NUMBER_SHIFT = 40, /* of a thread's number in the numbers of its spans */
    MOST_THREADS = (1 << 24) - 1,
};

#define OVERFLOW_NAME "__overflow__"
#define UNKNOWN_MEMORY {CPROF_TABLE_UNKNOWN, CPROF_TABLE_UNKNOWN, CPROF_TABLE_UNKNOWN, CPROF_TABLE_UNKNOWN}

typedef struct {
    cprof_trace_event *events;
    struct cprof_trace_detail *details; /* NULL when the recording has none */
    size_t size;                        /* of both, in events */
} chunk;

/* Belongs to a thread's record, and so to one thread after another. */
struct cprof_trace_ring {
    cprof_thread *thread; /* compared, and looked at for its mark */
    uint32_t serial;      /* of the recording, as are: */
    bool drop_newest;
    bool has_details;
    cprof_trace_event *at;
    cprof_trace_event *end; /* of the chunk */
    uint64_t written;       /* into a place of the ring */
    uint64_t refused;       /* for want of room or memory */
    chunk *chunks;
    size_t chunk_count;
    size_t chunk_capacity;
    size_t current; /* chunk */
    uint64_t room;  /* that further chunks may have, in events */
    struct cprof_trace_ring *next;
};

typedef struct {
    cprof_ticks start;
    uint64_t span;
    uint32_t label;
    uint32_t thread;
} step;

struct cprof_trace_session {
    cprof_trace_options options;
    uint32_t serial;
    uint32_t epoch; /* of the process that records */
    cprof_clock_pair begin;
    cprof_ns since_epoch; /* what CLOCK_REALTIME was ahead of CLOCK_MONOTONIC */
    uint64_t seeds[2];
    struct cprof_trace_ring *rings; /* this and the rest: under the lock of cprof_trace */
    uint64_t unjoined;              /* spans of threads for which there was no memory */
    cprof_names_table labels;       /* label 1 is its first entry */
    pid_t *threads;                 /* number 1 is the first */
    uint32_t thread_count;
    uint32_t thread_capacity;
    step *steps; /* the last one goes on */
    size_t step_count;
    size_t step_capacity;
};

/* A number told from its neighbours in all bits, and from all others: the finaliser of SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t number)
{
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

/* ---- Beginning */

static bool membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

static uint32_t next_serial(void)
{
    uint32_t serial = atomic_fetch_add(&cprof_trace.last_serial, 1) + 1;
    return serial != 0 ? serial : next_serial();
}

static void set_recording(const cprof_trace_session *session, bool runs)
{
    unsigned flags = CPROF_FLAG_TRACE | (session->options.details ? CPROF_FLAG_DETAIL : 0);
    cprof_process_record(session->options.owner, runs && session->options.hosts ? flags : 0);
}

static cprof_trace_session *make_session(const cprof_trace_options *options)
{
    cprof_trace_session *session = cprof_alloc_zeroed(sizeof *session);
    if (session != NULL) {
        session->options = *options;
        session->epoch = atomic_load(&cprof_lock_epoch);
        session->serial = next_serial();
        cprof_process_random(session->seeds, sizeof session->seeds);
    }
    return session;
}

static bool put_in_force(cprof_trace_session *session)
{
    cprof_lock_acquire(&cprof_trace.lock);
    bool free = cprof_trace.session == NULL;
    if (free) {
        cprof_trace.session = session;
        atomic_store(&cprof_trace.serial, session->serial);
        atomic_store(&cprof_trace.open_serial, session->serial);
    }
    cprof_lock_release(&cprof_trace.lock);
    return free;
}

cprof_status cprof_trace_start(const cprof_trace_options *options, cprof_trace_session **session)
{
    if (options->capacity < CPROF_TRACE_LEAST_CAPACITY || options->capacity > CPROF_TRACE_MOST_CAPACITY) {
        return CPROF_OUT_OF_RANGE;
    }
    cprof_clock_start();
    cprof_trace_session *made = make_session(options);
    if (made == NULL) {
        return CPROF_NO_MEMORY;
    }
    atomic_store(&cprof_trace.fenced, !membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED));
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

void cprof_trace_pause(cprof_trace_session *session)
{
    if (atomic_load(&cprof_trace.open_serial) == session->serial) {
        set_recording(session, false);
        atomic_store(&cprof_trace.paused, cprof_clock_read());
        atomic_store(&cprof_trace.open_serial, 0);
    }
}

void cprof_trace_resume(cprof_trace_session *session)
{
    if (atomic_load(&cprof_trace.serial) == session->serial && atomic_load(&cprof_trace.open_serial) == 0) {
        atomic_store(&cprof_trace.open_serial, session->serial);
        set_recording(session, true);
    }
}

/* ---- A thread joins */

static bool grow_threads(cprof_trace_session *session)
{
    if (session->thread_count < session->thread_capacity) {
        return true;
    }
    uint32_t capacity = session->thread_capacity == 0 ? 16 : session->thread_capacity * 2;
    pid_t *threads = cprof_alloc_resize(session->threads, capacity * sizeof *threads);
    if (threads == NULL) {
        return false;
    }
    session->threads = threads;
    session->thread_capacity = capacity;
    return true;
}

static struct cprof_trace_ring *ring_of(cprof_trace_session *session, cprof_thread *thread)
{
    struct cprof_trace_ring *ring = session->rings;
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

static bool join_lock_held(cprof_trace_session *session, cprof_thread *thread)
{
    if (session->thread_count >= MOST_THREADS || !grow_threads(session)) {
        return false;
    }
    struct cprof_trace_ring *ring = ring_of(session, thread);
    if (ring == NULL) {
        return false;
    }
    session->threads[session->thread_count++] = gettid();
    thread->trace = (cprof_thread_trace){
        .ring = ring,
        .serial = session->serial,
        .number = session->thread_count,
        .last_span = (uint64_t)session->thread_count << NUMBER_SHIFT,
    };
    return true;
}

/* Gives a thread a number and a ring. False when the recording has ended, or without memory: then a span is lost, and counted.
 */
static __attribute__((noinline)) bool join(cprof_thread *thread, uint32_t serial)
{
    cprof_lock_acquire(&cprof_trace.lock);
    cprof_trace_session *session = cprof_trace.session;
    bool goes_on = session != NULL && session->serial == serial;
    bool joined = goes_on && join_lock_held(session, thread);
    if (goes_on && !joined) {
        session->unjoined++;
    }
    cprof_lock_release(&cprof_trace.lock);
    return joined;
}

/* ---- Labels */

/* The index of a label, or CPROF_NAMES_ABSENT. Past the limit *names becomes the label that stands for all further ones. */
static size_t index_of(const cprof_trace_session *session, cprof_names *names)
{
    static const cprof_names overflow = {{"", 0}, {OVERFLOW_NAME, sizeof OVERFLOW_NAME - 1}};
    size_t index = cprof_names_find(&session->labels, *names);
    if (index == CPROF_NAMES_ABSENT && session->labels.count >= CPROF_TRACE_MAX_LABELS) {
        *names = overflow;
        index = cprof_names_find(&session->labels, overflow);
    }
    return index;
}

static uint32_t label_lock_held(cprof_trace_session *session, cprof_names names)
{
    size_t index = index_of(session, &names);
    if (index == CPROF_NAMES_ABSENT) {
        index = session->labels.count;
        if (cprof_names_add(&session->labels, names) != CPROF_OK) {
            return 0;
        }
    }
    return (uint32_t)index + 1;
}

uint32_t cprof_trace_label(uint32_t serial, cprof_names names)
{
    cprof_lock_acquire(&cprof_trace.lock);
    cprof_trace_session *session = cprof_trace.session;
    uint32_t label = session != NULL && session->serial == serial ? label_lock_held(session, names) : 0;
    cprof_lock_release(&cprof_trace.lock);
    return label;
}

static __attribute__((noinline)) uint32_t find_label(cprof_accum *accum, uint32_t serial)
{
    uint32_t label = cprof_trace_label(serial, cprof_registry_names(accum));
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

static bool grow_steps(cprof_trace_session *session)
{
    if (session->step_count < session->step_capacity) {
        return true;
    }
    size_t capacity = session->step_capacity == 0 ? 16 : session->step_capacity * 2;
    step *steps = cprof_alloc_resize(session->steps, capacity * sizeof *steps);
    if (steps == NULL) {
        return false;
    }
    session->steps = steps;
    session->step_capacity = capacity;
    return true;
}

cprof_status cprof_trace_step(cprof_trace_session *session, cprof_thread *thread, cprof_names names)
{
    if (thread->trace.serial != session->serial && !join(thread, session->serial)) {
        return CPROF_NO_MEMORY;
    }
    uint32_t label = cprof_trace_label(session->serial, names);
    if (label == 0 || !grow_steps(session)) {
        return CPROF_NO_MEMORY;
    }
    session->steps[session->step_count++] = (step){
        .start = cprof_clock_read(),
        .span = ++thread->trace.last_span,
        .label = label,
        .thread = thread->trace.number,
    };
    return CPROF_OK;
}

/* ---- Writing */

static size_t size_of_next(const struct cprof_trace_ring *ring)
{
    size_t size = ring->chunk_count < 6 ? (size_t)FIRST_CHUNK << ring->chunk_count : MOST_IN_CHUNK;
    return size < ring->room ? size : (size_t)ring->room;
}

static size_t page_bytes(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

static void free_chunk(chunk *old)
{
    cprof_alloc_unmap_pages(old->events, page_bytes(old->size * sizeof *old->events));
    cprof_alloc_unmap_pages(old->details, page_bytes(old->size * sizeof *old->details));
}

static bool make_chunk(const struct cprof_trace_ring *ring, chunk *made)
{
    bool details = ring->has_details;
    *made = (chunk){.size = size_of_next(ring)};
    made->events = cprof_alloc_map_pages(page_bytes(made->size * sizeof *made->events));
    made->details = details ? cprof_alloc_map_pages(page_bytes(made->size * sizeof *made->details)) : NULL;
    if (made->events == NULL || (details && made->details == NULL)) {
        free_chunk(made);
        return false;
    }
    cprof_alloc_touch_pages(made->events, page_bytes(made->size * sizeof *made->events));
    return true;
}

static bool add_chunk(struct cprof_trace_ring *ring)
{
    if (ring->chunk_count == ring->chunk_capacity) {
        size_t capacity = ring->chunk_capacity == 0 ? 8 : ring->chunk_capacity * 2;
        chunk *chunks = cprof_alloc_resize(ring->chunks, capacity * sizeof *chunks);
        if (chunks == NULL) {
            return false;
        }
        ring->chunks = chunks;
        ring->chunk_capacity = capacity;
    }
    if (!make_chunk(ring, &ring->chunks[ring->chunk_count])) {
        return false;
    }
    ring->room -= ring->chunks[ring->chunk_count].size;
    ring->chunk_count++;
    return true;
}

/* Goes on to the next chunk, a new one or, in a full ring, the oldest. Without memory for a new one the ring is full, too. */
static __attribute__((noinline)) bool advance(struct cprof_trace_ring *ring)
{
    size_t next = ring->at != NULL ? ring->current + 1 : 0;
    if (next == ring->chunk_count && (ring->room == 0 || !add_chunk(ring))) {
        ring->room = 0;
        if (ring->drop_newest || ring->chunk_count == 0) {
            return false;
        }
        next = 0;
    }
    ring->current = next;
    ring->at = ring->chunks[next].events;
    ring->end = ring->at + ring->chunks[next].size;
    return true;
}

/* The place of the next event; NULL: it goes. */
static inline cprof_trace_event *take_place(struct cprof_trace_ring *ring)
{
    if (__builtin_expect(ring->at == ring->end, 0) && !advance(ring)) {
        ring->refused++;
        return NULL;
    }
    ring->written++;
    return ring->at++;
}

static __attribute__((noinline)) void keep_detail(struct cprof_trace_ring *ring, const cprof_trace_event *event,
                                                  const cprof_span *span)
{
    static const struct cprof_trace_detail none = {
        .memory = UNKNOWN_MEMORY, .in_use = CPROF_TABLE_UNKNOWN, .device_in_use = CPROF_TABLE_UNKNOWN};
    chunk *current = &ring->chunks[ring->current];
    struct cprof_trace_detail *kept = &current->details[event - current->events];
    *kept = span->detail != NULL ? *span->detail : none;
    if (kept->in_use == CPROF_TABLE_UNKNOWN && kept->device_in_use == CPROF_TABLE_UNKNOWN) {
        kept->memory = none.memory; /* nobody looked at its end: these are still the figures of its start */
    }
}

static inline void write_event(cprof_thread *thread, const cprof_span *span, cprof_ticks stop, cprof_ticks suspended,
                               cprof_outcome outcome, uint8_t flags)
{
    uint32_t label = span->accum != NULL ? label_of(span->accum, span->trace_serial) : span->label;
    struct cprof_trace_ring *ring = thread->trace.ring;
    if (__builtin_expect(label == 0, 0)) { /* no memory for it, or the recording is ending */
        ring->refused++;
        return;
    }
    cprof_trace_event *event = take_place(ring);
    if (__builtin_expect(event == NULL, 0)) {
        return;
    }
    *event = (cprof_trace_event){
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
}

/* Writes into the ring if the span's recording goes on; the thread is marked as writing. */
static inline void write_marked(cprof_thread *thread, const cprof_span *span, cprof_ticks stop, cprof_ticks suspended,
                                cprof_outcome outcome, bool suspendable)
{
    uint32_t serial = span->trace_serial;
    if (atomic_load_explicit(&cprof_trace.serial, memory_order_relaxed) != serial ||
        (__builtin_expect(thread->trace.serial != serial, 0) && !join(thread, serial))) {
        return;
    }
    uint8_t flags = suspendable ? CPROF_ROW_SUSPENDABLE : 0;
    if (__builtin_expect(atomic_load_explicit(&cprof_trace.open_serial, memory_order_relaxed) != serial, 0)) {
        stop = atomic_load(&cprof_trace.paused);
        flags |= CPROF_ROW_CUT;
    }
    write_event(thread, span, stop, suspended, outcome, flags);
}

static __attribute__((noinline)) void release_detail(cprof_span *span)
{
    cprof_alloc_release(span->detail);
    span->detail = NULL;
}

void cprof_trace_close(cprof_thread *thread, cprof_span *span, cprof_ticks stop, cprof_ticks suspended, cprof_outcome outcome,
                       bool suspendable)
{
    if (__builtin_expect(span->trace != CPROF_TRACE_MUTED, 1)) {
        atomic_store_explicit(&thread->trace_mark, span->trace_serial, memory_order_relaxed);
        if (__builtin_expect(atomic_load_explicit(&cprof_trace.fenced, memory_order_relaxed), 0)) {
            atomic_thread_fence(memory_order_seq_cst);
        }
        atomic_signal_fence(memory_order_seq_cst); /* the other half is the membarrier in wait_for_writers() */
        write_marked(thread, span, stop, suspended, outcome, suspendable);
        atomic_store_explicit(&thread->trace_mark, 0, memory_order_release);
    }
    span->trace = 0;
    if (__builtin_expect(span->detail != NULL, 0)) {
        release_detail(span);
    }
}

void cprof_trace_discard(cprof_span *span)
{
    span->trace = 0;
    if (span->detail != NULL) {
        release_detail(span);
    }
}

/* ---- Opening */

/* The innermost enclosing span that takes part in the recording; mostly the first, or there is none. */
static inline const cprof_span *recorded_from(const cprof_span *span, uint32_t serial)
{
    while (span != NULL && (span->trace == 0 || span->trace_serial != serial)) {
        const cprof_span *parent = span->parent;
        span = parent != NULL && parent->serial == span->parent_serial ? parent : NULL;
    }
    return span;
}

void cprof_trace_open(cprof_thread *thread, cprof_span *span, cprof_span *parent)
{
    uint32_t serial = atomic_load_explicit(&cprof_trace.open_serial, memory_order_relaxed);
    if (serial == 0 || (__builtin_expect(thread->trace.serial != serial, 0) && !join(thread, serial))) {
        return;
    }
    const cprof_span *outer = recorded_from(parent, serial);
    span->trace = ++thread->trace.last_span;
    span->trace_serial = serial;
    span->trace_parent = 0;
    span->trace_root = span->trace;
    if (outer != NULL) {
        span->trace = outer->trace != CPROF_TRACE_MUTED ? span->trace : CPROF_TRACE_MUTED;
        span->trace_parent = outer->trace;
        span->trace_root = outer->trace_root;
    }
}

void cprof_trace_mute(cprof_span *span)
{
    if (span->trace != 0) {
        span->trace = CPROF_TRACE_MUTED;
    }
}

bool cprof_trace_is_muted(const cprof_span *innermost)
{
    const cprof_span *outer = recorded_from(innermost, atomic_load(&cprof_trace.open_serial));
    return outer != NULL && outer->trace == CPROF_TRACE_MUTED;
}

/* ---- Beyond times */

static int64_t resident_bytes(void)
{
    char text[64];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (length <= 0) {
        return CPROF_TABLE_UNKNOWN;
    }
    text[length] = '\0';
    char *second = strchr(text, ' ');
    return second != NULL ? (int64_t)strtoll(second, NULL, 10) * sysconf(_SC_PAGESIZE) : CPROF_TABLE_UNKNOWN;
}

cprof_trace_memory cprof_trace_memory_now(void)
{
    cprof_trace_memory now = UNKNOWN_MEMORY;
    struct rusage usage;
    now.memory = resident_bytes();
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        now.memory_peak = (int64_t)usage.ru_maxrss * 1024;
    }
    return now;
}

void cprof_trace_begin_detail(cprof_span *span, const struct cprof_trace_detail *detail)
{
    if (cprof_trace_has(span) && (span->detail = cprof_alloc_zeroed(sizeof *span->detail)) != NULL) {
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

void cprof_trace_end_detail(cprof_span *span, const cprof_trace_memory *now)
{
    if (span->detail != NULL) {
        cprof_trace_memory *memory = &span->detail->memory;
        span->detail->in_use = now->memory;
        span->detail->device_in_use = now->device_memory;
        *memory = (cprof_trace_memory){
            .memory = change(memory->memory, now->memory),
            .memory_peak = risen(memory->memory_peak, now->memory_peak),
            .device_memory = change(memory->device_memory, now->device_memory),
            .device_memory_peak = risen(memory->device_memory_peak, now->device_memory_peak),
        };
    }
}

/* ---- Collecting */

/* What all rows of one recording have in common while they are made. */
typedef struct {
    const cprof_trace_session *session;
    cprof_table *table;
    cprof_text cat_of[CPROF_KIND_STEP + 1];
    cprof_ns base_ns;
    cprof_text *texts; /* of labels: the name, then the stage; UINT32_MAX: not asked for yet */
    uint32_t *tracks;  /* of threads; UINT32_MAX likewise */
    cprof_status status;
} collector;

static cprof_name name_of(const char *text)
{
    return (cprof_name){text, strlen(text)};
}

static bool is_fine(collector *to, cprof_status status)
{
    to->status = to->status == CPROF_OK ? status : to->status;
    return to->status == CPROF_OK;
}

static cprof_ns moment_of(const collector *from, cprof_ticks ticks)
{
    return from->base_ns + cprof_clock_between(from->session->begin.ticks, ticks);
}

static uint64_t id_of(const collector *from, uint64_t number)
{
    return number != 0 ? mix(number + from->session->seeds[1]) : 0;
}

static void set_names(collector *to, uint32_t label, cprof_row *row)
{
    cprof_text *texts = &to->texts[2 * (size_t)(label - 1)];
    if (texts[0] == UINT32_MAX) {
        cprof_names names = cprof_names_at(&to->session->labels, label - 1);
        if (!is_fine(to, cprof_table_text(to->table, names.node, &texts[0])) ||
            !is_fine(to, cprof_table_text(to->table, names.stage, &texts[1]))) {
            texts[0] = UINT32_MAX;
            return;
        }
    }
    row->name = texts[0];
    row->stage = texts[1];
}

static cprof_text text_of(collector *to, uint32_t label)
{
    cprof_text text = 0;
    if (label != 0) {
        (void)is_fine(to, cprof_table_text(to->table, cprof_names_at(&to->session->labels, label - 1).node, &text));
    }
    return text;
}

static void set_track(collector *to, uint32_t thread, cprof_row *row)
{
    uint32_t *track = &to->tracks[thread - 1];
    if (*track == UINT32_MAX &&
        !is_fine(to, cprof_table_track(to->table, getpid(), 0, to->session->threads[thread - 1], 0, track))) {
        *track = UINT32_MAX;
        return;
    }
    row->track = *track;
}

static void set_detail(collector *to, const struct cprof_trace_detail *detail, cprof_row *row)
{
    row->shapes = text_of(to, detail->shapes);
    row->types = text_of(to, detail->types);
    row->stack = text_of(to, detail->stack);
    if ((row->flags & CPROF_ROW_UNFINISHED) != 0) {
        return; /* the memory is still that at the start */
    }
    row->memory_change = detail->memory.memory;
    row->memory_peak = detail->memory.memory_peak;
    row->device_memory_change = detail->memory.device_memory;
    row->device_memory_peak = detail->memory.device_memory_peak;
}

/* What was in use when a span ended, for a curve over time. */
static void add_counter(collector *to, const cprof_row *of, const char *name, int64_t in_use)
{
    char json[40];
    cprof_row row = cprof_row_none;
    if (in_use == CPROF_TABLE_UNKNOWN || to->status != CPROF_OK) {
        return;
    }
    row.start_ns = row.end_ns = of->end_ns;
    row.kind = CPROF_KIND_COUNTER;
    row.track = of->track;
    row.args_length = (uint32_t)snprintf(json, sizeof json, "{\"bytes\":%" PRId64 "}", in_use);
    if (is_fine(to, cprof_table_text(to->table, name_of(name), &row.name)) &&
        is_fine(to, cprof_table_keep(to->table, (cprof_name){json, row.args_length}, &row.args_at))) {
        (void)is_fine(to, cprof_table_add(to->table, &row));
    }
}

static void add_row(collector *to, const cprof_trace_event *event, const struct cprof_trace_detail *detail)
{
    if (to->status != CPROF_OK) {
        return;
    }
    cprof_row row = cprof_row_none;
    row.start_ns = moment_of(to, event->start);
    row.end_ns = moment_of(to, event->stop > event->start ? event->stop : event->start);
    row.trace_high = mix(to->session->seeds[0]);
    row.trace_low = mix(event->root ^ to->session->seeds[0]);
    row.span = id_of(to, event->span);
    row.parent_span = id_of(to, event->parent);
    row.kind = event->kind;
    row.cat = to->cat_of[event->kind];
    row.outcome = event->outcome;
    row.flags = event->flags;
    row.suspended_ns = cprof_clock_between(0, event->suspended);
    set_names(to, event->label, &row);
    set_track(to, event->thread, &row);
    if (detail != NULL) {
        set_detail(to, detail, &row);
    }
    if (to->status == CPROF_OK) {
        (void)is_fine(to, cprof_table_add(to->table, &row));
    }
    if (detail != NULL) {
        add_counter(to, &row, "resident memory", detail->in_use);
        add_counter(to, &row, "device memory", detail->device_in_use);
    }
}

static void add_chunk_rows(collector *to, const chunk *from, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        add_row(to, &from->events[i], from->details != NULL ? &from->details[i] : NULL);
    }
}

/* Oldest first; chunks are freed on the way, so that ring and table are never there together. */
static void collect_ring(collector *to, struct cprof_trace_ring *ring)
{
    uint64_t places = 0;
    for (size_t i = 0; i < ring->chunk_count; i++) {
        places += ring->chunks[i].size;
    }
    bool wrapped = ring->written > places;
    to->table->dropped += ring->refused + (wrapped ? ring->written - places : 0);
    size_t used = ring->chunk_count == 0 ? 0 : (size_t)(ring->at - ring->chunks[ring->current].events);
    for (size_t i = 0; wrapped && i < ring->chunk_count; i++) {
        size_t index = (ring->current + i) % ring->chunk_count;
        add_chunk_rows(to, &ring->chunks[index], i == 0 ? used : 0, ring->chunks[index].size);
        if (i > 0) {
            free_chunk(&ring->chunks[index]);
            ring->chunks[index] = (chunk){.events = NULL};
        }
    }
    for (size_t i = 0; !wrapped && i < ring->current; i++) {
        add_chunk_rows(to, &ring->chunks[i], 0, ring->chunks[i].size);
        free_chunk(&ring->chunks[i]);
        ring->chunks[i] = (chunk){.events = NULL};
    }
    if (ring->chunk_count > 0) {
        add_chunk_rows(to, &ring->chunks[ring->current], 0, used);
    }
}

/* A step goes on to the next, the last one to the end. */
static void collect_steps(collector *to, cprof_ticks stop)
{
    const cprof_trace_session *session = to->session;
    for (size_t i = 0; i < session->step_count; i++) {
        const step *from = &session->steps[i];
        cprof_trace_event event = {
            .start = from->start,
            .stop = i + 1 < session->step_count ? from[1].start : stop,
            .span = from->span,
            .root = from->span,
            .label = from->label,
            .thread = from->thread,
            .kind = CPROF_KIND_STEP,
        };
        add_row(to, &event, NULL);
    }
}

typedef struct {
    collector *to;
    cprof_ticks stop;
} open_spans;

/* A span that is open when the recording ends is as long as that. */
static void collect_open(void *context, cprof_span *span)
{
    open_spans *from = context;
    collector *to = from->to;
    if (span->trace == 0 || span->trace == CPROF_TRACE_MUTED || span->trace_serial != to->session->serial) {
        return;
    }
    uint32_t label = span->label;
    if (span->accum != NULL) {
        cprof_names names = cprof_registry_names(span->accum);
        size_t index = index_of(to->session, &names);
        label = index != CPROF_NAMES_ABSENT ? (uint32_t)index + 1 : 0;
    }
    if (label == 0) { /* there was no memory for it */
        to->table->dropped++;
        return;
    }
    cprof_trace_event event = {
        .start = span->start,
        .stop = from->stop,
        .span = span->trace,
        .parent = span->trace_parent,
        .root = span->trace_root,
        .label = label,
        .thread = (uint32_t)(span->trace >> NUMBER_SHIFT),
        .kind = span->accum != NULL ? CPROF_KIND_NODE : CPROF_KIND_RECORD,
        .flags = CPROF_ROW_UNFINISHED,
    };
    add_row(to, &event, span->detail);
}

static bool prepare(collector *to)
{
    const cprof_trace_session *session = to->session;
    size_t text_bytes = 2 * session->labels.count * sizeof *to->texts;
    size_t track_bytes = session->thread_count * sizeof *to->tracks;
    to->texts = cprof_alloc_zeroed(text_bytes + 1);
    to->tracks = cprof_alloc_zeroed(track_bytes + 1);
    if (to->texts == NULL || to->tracks == NULL) {
        to->status = CPROF_NO_MEMORY;
        return false;
    }
    memset(to->texts, 0xff, text_bytes);
    memset(to->tracks, 0xff, track_bytes);
    bool fine = is_fine(to, cprof_table_text(to->table, name_of("cpu_op"), &to->cat_of[CPROF_KIND_NODE])) &&
                is_fine(to, cprof_table_text(to->table, name_of("user_annotation"), &to->cat_of[CPROF_KIND_RECORD]));
    to->cat_of[CPROF_KIND_STEP] = to->cat_of[CPROF_KIND_RECORD];
    return fine;
}

/* The keys of spans that are still open may not have a label yet. */
static void label_open(void *context, cprof_span *span)
{
    cprof_trace_session *session = context;
    if (span->trace != 0 && span->trace_serial == session->serial && span->accum != NULL) {
        (void)label_lock_held(session, cprof_registry_names(span->accum));
    }
}

static cprof_status collect(cprof_trace_session *session, cprof_table *table, cprof_ticks stop, bool with_open)
{
    collector to = {.session = session, .table = table, .base_ns = session->begin.ns + session->since_epoch};
    if (with_open) {
        cprof_thread_visit_spans(label_open, session);
    }
    if (prepare(&to)) {
        for (struct cprof_trace_ring *ring = session->rings; ring != NULL; ring = ring->next) {
            collect_ring(&to, ring);
        }
        collect_steps(&to, stop);
        open_spans open = {&to, stop};
        if (with_open) {
            cprof_thread_visit_spans(collect_open, &open);
        }
    }
    cprof_alloc_release(to.texts);
    cprof_alloc_release(to.tracks);
    return to.status;
}

/* ---- Ending */

/* Threads that are marked as writing come to their end, or are stopped: then their ring is left to them. */
static bool is_writing(const struct cprof_trace_ring *ring, int64_t deadline_ns)
{
    while (atomic_load_explicit(&ring->thread->trace_mark, memory_order_acquire) == ring->serial) {
        if (cprof_clock_monotonic_ns() > deadline_ns) {
            return true;
        }
        (void)sched_yield();
    }
    return false;
}

static void free_ring(struct cprof_trace_ring *ring)
{
    for (size_t i = 0; i < ring->chunk_count; i++) {
        free_chunk(&ring->chunks[i]);
    }
    cprof_alloc_release(ring->chunks);
    cprof_alloc_release(ring);
}

/* Rings of earlier recordings that were left to threads which have come to an end with them since. */
static void free_left_rings(void)
{
    cprof_lock_acquire(&cprof_trace.lock);
    struct cprof_trace_ring **at = &cprof_trace.left_rings;
    while (*at != NULL) {
        struct cprof_trace_ring *ring = *at;
        if (is_writing(ring, INT64_MIN)) {
            at = &ring->next;
        } else {
            *at = ring->next;
            free_ring(ring);
        }
    }
    cprof_lock_release(&cprof_trace.lock);
}

static void leave_ring(struct cprof_trace_ring *ring)
{
    cprof_lock_acquire(&cprof_trace.lock);
    ring->next = cprof_trace.left_rings;
    cprof_trace.left_rings = ring;
    cprof_lock_release(&cprof_trace.lock);
}

/* Takes the rings of threads that are writing after the deadline from the recording. The number of their events. */
static uint64_t leave_rings(cprof_trace_session *session, int64_t deadline_ns)
{
    uint64_t lost = 0;
    struct cprof_trace_ring **at = &session->rings;
    while (*at != NULL) {
        struct cprof_trace_ring *ring = *at;
        if (is_writing(ring, deadline_ns)) {
            lost += ring->written + ring->refused;
            *at = ring->next;
            leave_ring(ring);
        } else {
            at = &(*at)->next;
        }
    }
    return lost;
}

/* After this nobody writes for the recording any more. Rings that are left to stopped threads are counted as lost. */
static uint64_t wait_for_writers(cprof_trace_session *session)
{
    if (!atomic_load(&cprof_trace.fenced)) {
        (void)membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    }
    return leave_rings(session, cprof_clock_monotonic_ns() + (int64_t)CPROF_TRACE_PATIENCE_MS * 1000000);
}

static void free_session(cprof_trace_session *session)
{
    while (session->rings != NULL) {
        struct cprof_trace_ring *ring = session->rings;
        session->rings = ring->next;
        free_ring(ring);
    }
    cprof_names_dispose(&session->labels);
    cprof_alloc_release(session->steps);
    cprof_alloc_release(session->threads);
    cprof_alloc_release(session);
}

static void take_out_of_force(const cprof_trace_session *session)
{
    cprof_lock_acquire(&cprof_trace.lock);
    if (cprof_trace.session == session) {
        cprof_trace.session = NULL;
        atomic_store(&cprof_trace.open_serial, 0);
        atomic_store(&cprof_trace.serial, 0);
    }
    cprof_lock_release(&cprof_trace.lock);
}

cprof_status cprof_trace_finish(cprof_trace_session *session, cprof_table *table, bool with_open)
{
    cprof_status status = CPROF_OK;
    if (session->epoch == atomic_load(&cprof_lock_epoch)) {
        bool paused = atomic_load(&cprof_trace.open_serial) == 0;
        cprof_ticks stop = paused ? atomic_load(&cprof_trace.paused) : cprof_clock_read();
        atomic_store(&cprof_trace.paused, stop); /* to a span that is closed at this moment the end is a pause */
        set_recording(session, false);
        take_out_of_force(session);
        uint64_t lost = wait_for_writers(session);
        cprof_clock_refine();
        if (table != NULL) {
            table->dropped += lost + session->unjoined;
            status = collect(session, table, stop, with_open);
        }
    } else {
        (void)leave_rings(session, INT64_MIN); /* of threads that were writing when the process was forked */
    }
    free_session(session);
    free_left_rings();
    return status;
}

void cprof_trace_after_fork_in_child(void)
{
    cprof_trace.session = NULL;
    atomic_store(&cprof_trace.open_serial, 0);
    atomic_store(&cprof_trace.serial, 0);
}
