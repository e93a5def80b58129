#define _GNU_SOURCE
#include "cprofiling/devices/cupti_events.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/devices/cupti_calls.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BACKWARD_NAME "pt_autograd"

enum { NAME_SIZE = 16 }; /* of a thread, with the NUL */

static _Thread_local cprof_cupti_thread own;

static struct {
    cprof_lock lock; /* guards the list; held while a node of it is in use by another thread */
    cprof_cupti_thread *first;
    pthread_once_t key_once;
    pthread_key_t key; /* its destructor notices the end of threads that are in the list */
    bool key_made;
} threads = {.key_once = PTHREAD_ONCE_INIT};

static void leave_list(void *thread)
{
    cprof_cupti_thread *self = thread;
    cprof_lock_acquire(&threads.lock);
    if (self->is_listed) {
        *(self->previous != NULL ? &self->previous->next : &threads.first) = self->next;
        if (self->next != NULL) {
            self->next->previous = self->previous;
        }
        self->is_listed = false;
    }
    cprof_lock_release(&threads.lock);
    self->is_ending = true; /* destructors run a few times over, but nobody says which time is the last */
}

static void make_key(void)
{
    threads.key_made = pthread_key_create(&threads.key, leave_list) == 0;
}

/* A thread without a notice of its end stays out: nobody borrows from it. */
static void join_list(cprof_cupti_thread *self)
{
    (void)pthread_once(&threads.key_once, make_key);
    if (self->is_ending || !threads.key_made || pthread_setspecific(threads.key, self) != 0) {
        return;
    }
    cprof_lock_acquire(&threads.lock);
    self->next = threads.first;
    self->previous = NULL;
    if (threads.first != NULL) {
        threads.first->previous = self;
    }
    threads.first = self;
    self->is_listed = true;
    cprof_lock_release(&threads.lock);
}

void cprof_cupti_thread_set_node(cprof_cupti_node node, cprof_cupti_node *before)
{
    cprof_cupti_thread *self = &own;
    before->accum = atomic_load_explicit(&self->accum, memory_order_relaxed);
    before->generation = atomic_load_explicit(&self->generation, memory_order_relaxed);
    uint64_t changes = atomic_load_explicit(&self->changes, memory_order_relaxed);
    atomic_store_explicit(&self->changes, changes + 1, memory_order_relaxed);
    atomic_store_explicit(&self->generation, node.generation, memory_order_release);
    atomic_store_explicit(&self->accum, node.accum, memory_order_release);
    atomic_store_explicit(&self->changes, changes + 2, memory_order_release);
    if (!self->is_listed && node.accum != NULL) {
        join_list(self);
    }
}

/* Whether the calling thread is one of PyTorch's backward pass, by its name when this is asked first. */
static bool is_of_backward(cprof_cupti_thread *self)
{
    if (self->kind == CPROF_CUPTI_THREAD_NEW) {
        char name[NAME_SIZE] = "";
        (void)pthread_getname_np(pthread_self(), name, sizeof name);
        bool is_backward = strncmp(name, BACKWARD_NAME, sizeof BACKWARD_NAME - 1) == 0;
        self->kind = is_backward ? CPROF_CUPTI_THREAD_BACKWARD : CPROF_CUPTI_THREAD_OWN;
    }
    return self->kind == CPROF_CUPTI_THREAD_BACKWARD;
}

/* The thread's number. */
static pid_t number_of_thread(cprof_cupti_thread *self)
{
    if (self->id == 0) {
        self->id = (pid_t)syscall(SYS_gettid);
    }
    return self->id;
}

/* A thread's node, as it is seen from another one; false while it is changing. */
static bool node_of(cprof_cupti_thread *thread, cprof_cupti_node *node)
{
    uint64_t changes = atomic_load_explicit(&thread->changes, memory_order_acquire);
    node->accum = atomic_load_explicit(&thread->accum, memory_order_acquire);
    node->generation = atomic_load_explicit(&thread->generation, memory_order_acquire);
    return changes % 2 == 0 && changes == atomic_load_explicit(&thread->changes, memory_order_relaxed);
}

/* Calls `user` with the node of the only thread that has one, which does not end meanwhile. False: none has, or several, or one
 * is changing its node. */
static bool borrow_node(void (*user)(void *context, cprof_cupti_node node), void *context)
{
    unsigned count = 0;
    bool is_known = true;
    cprof_cupti_node only = {.accum = NULL};
    cprof_lock_acquire(&threads.lock);
    for (cprof_cupti_thread *thread = threads.first; thread != NULL; thread = thread->next) {
        cprof_cupti_node node;
        is_known = node_of(thread, &node) && is_known;
        if (node.accum != NULL) {
            only = node;
            count++;
        }
    }
    is_known = is_known && count == 1;
    if (is_known) {
        user(context, only);
    }
    cprof_lock_release(&threads.lock);
    return is_known;
}

void cprof_cupti_thread_forget(const cprof_registry *registry)
{
    cprof_lock_acquire(&threads.lock);
    for (cprof_cupti_thread *thread = threads.first; thread != NULL; thread = thread->next) {
        cprof_accum *accum = atomic_load_explicit(&thread->accum, memory_order_relaxed);
        if (accum != NULL && accum->registry == registry) {
            (void)atomic_compare_exchange_strong(&thread->accum, &accum, NULL);
        }
    }
    cprof_lock_release(&threads.lock);
}

void cprof_cupti_thread_after_fork_in_child(void)
{
    threads.first = NULL;
    own.is_listed = false;
    own.next = own.previous = NULL;
    own.id = 0;
}

/* Where the fields are in what callbacks are given, in bytes, and a value of the first. */
enum { SITE_AT = 0, CORRELATION_AT = 64, SITE_ENTER = 0 };

cprof_cupti_seen cprof_cupti_events = {.trace.capacity = CPROF_CUPTI_STORE_CAPACITY};

static cprof_cupti_seen *const seen = &cprof_cupti_events;

static void count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

cprof_cupti_clock cprof_cupti_events_line(void)
{
    cprof_lock_acquire(&seen->line_lock);
    cprof_cupti_clock line = seen->line;
    cprof_lock_release(&seen->line_lock);
    return line;
}

/* ---- Calls of CUDA, in the threads that make them ---- */

typedef struct {
    uint32_t number;
    cprof_ticks start;
    bool is_launch;
} entered_call;

static void enter_for(void *context, cprof_cupti_node node)
{
    static const cprof_launch_counts one = {.launches = 1};
    const entered_call *call = context;
    cprof_cupti_launches_put(&seen->launches, call->number, node, call->start);
    if (call->is_launch && node.accum != NULL) {
        cprof_accum_add_launches(node.accum, node.generation, &one);
    }
}

/* A call that is in no other: joined to the node of its thread, or, in PyTorch's backward pass, of the only thread with one. */
static void enter_outermost(cprof_cupti_thread *self, entered_call *call)
{
    bool is_counted = atomic_load_explicit(&seen->is_counted, memory_order_relaxed);
    cprof_cupti_node node = {
        .accum = is_counted ? atomic_load_explicit(&self->accum, memory_order_relaxed) : NULL,
        .generation = atomic_load_explicit(&self->generation, memory_order_relaxed),
    };
    count(&seen->launched, call->is_launch);
    if (node.accum != NULL || !is_counted) {
        enter_for(call, node);
        return;
    }
    if (!is_of_backward(self)) {
        count(&seen->outside, call->is_launch);
    } else if (borrow_node(enter_for, call)) {
        return;
    } else {
        count(&seen->unknown_node, call->is_launch);
    }
    enter_for(call, node);
}

static void enter(cprof_cupti_thread *self, uint32_t session, int domain, uint32_t number, uint32_t correlation)
{
    if (self->session != session) {
        self->session = session;
        self->depth = 0;
    }
    if (self->depth++ > 0) {
        if (correlation != self->outer) {
            cprof_cupti_launches_put_inner(&seen->launches, correlation, self->outer);
        }
        return;
    }
    self->outer = correlation;
    self->start = cprof_clock_read();
    self->is_traced = atomic_load_explicit(&seen->is_traced, memory_order_relaxed);
    entered_call call = {
        .number = correlation,
        .start = self->start,
        .is_launch = cprof_cupti_call_of((unsigned)domain, number)->is_launch,
    };
    enter_outermost(self, &call);
}

static void leave(cprof_cupti_thread *self, uint32_t session, int domain, uint32_t number)
{
    if (self->session != session || self->depth == 0) {
        return; /* it began before the session did */
    }
    self->depth--;
    if (self->depth > 0) {
        return; /* it is in another call */
    }
    if (self->is_traced && atomic_load_explicit(&seen->is_traced, memory_order_relaxed)) {
        cprof_cupti_traced_call call = {
            .start = self->start,
            .stop = cprof_clock_read(),
            .correlation = self->outer,
            .number = number,
            .domain = (uint32_t)domain,
            .thread = number_of_thread(self),
        };
        cprof_cupti_store_add_call(&seen->trace, &call);
    }
}

void cprof_cupti_events_call(void *context, int domain, uint32_t number, const void *data)
{
    (void)context;
    uint32_t session = atomic_load_explicit(&seen->session, memory_order_acquire);
    if (session == 0 || cprof_cupti_call_of((unsigned)domain, number) == NULL) {
        return;
    }
    int site;
    uint32_t correlation;
    memcpy(&site, (const char *)data + SITE_AT, sizeof site);
    memcpy(&correlation, (const char *)data + CORRELATION_AT, sizeof correlation);
    /* The calling thread's record. */
    cprof_cupti_thread *self = &own;
    if (site == SITE_ENTER) {
        enter(self, session, domain, number, correlation);
    } else {
        leave(self, session, domain, number);
    }
}

/* ---- Records of devices, in whatever thread CUPTI calls ---- */

static void count_copy(const cprof_cupti_record *record, cprof_launch_counts *counts)
{
    counts->copies = 1;
    switch (record->direction) {
    case CPROF_CUPTI_HTOD:
    case CPROF_CUPTI_HTOA:
        counts->bytes_to_device = record->bytes;
        break;
    case CPROF_CUPTI_DTOH:
    case CPROF_CUPTI_ATOH:
        counts->bytes_to_host = record->bytes;
        break;
    case CPROF_CUPTI_ATOA:
    case CPROF_CUPTI_ATOD:
    case CPROF_CUPTI_DTOA:
    case CPROF_CUPTI_DTOD:
    case CPROF_CUPTI_PTOP:
        counts->bytes_on_device = record->bytes;
        break;
    default:
        break;
    }
}

/* What can be true of a record's times. */
typedef enum {
    TIMES_NONE,     /* nothing; of damaged ones the rest is */
    TIMES_DURATION, /* how long it was, but not when: the clock was set */
    TIMES_ALL,
} known_times;

static known_times times_of(const cprof_cupti_record *record, const cprof_cupti_clock *line, cprof_ticks launched)
{
    cprof_ticks now = cprof_clock_read();
    if (record->start == 0 || record->start > record->end) {
        return TIMES_NONE;
    }
    if (cprof_cupti_clock_is_credible(line, record->start, launched, now) &&
        cprof_cupti_clock_is_credible(line, record->end, launched, now)) {
        return TIMES_ALL;
    }
    bool is_possible = cprof_cupti_clock_is_possible(line, record->start, record->end, launched, now);
    return is_possible ? TIMES_DURATION : TIMES_NONE;
}

static void take_record(const cprof_cupti_record *record, const cprof_cupti_clock *line)
{
    cprof_cupti_launch launch = {.outer = record->correlation, .start = line->origin.ticks};
    count(&seen->records, 1);
    bool is_known = cprof_cupti_launches_find(&seen->launches, record->correlation, &launch);
    if (!is_known) {
        count(&seen->unknown_launch, 1);
        launch = (cprof_cupti_launch){record->correlation, line->origin.ticks};
    }
    known_times times = times_of(record, line, launch.start);
    count(&seen->untimed, times == TIMES_NONE);
    if (is_known) {
        cprof_ns duration_ns = cprof_cupti_clock_between(line, record->start, record->end);
        cprof_launch_counts counts = {.launches = 0};
        if (record->kind == CPROF_CUPTI_KERNEL) {
            counts.kernels = 1;
            counts.kernel_ns = (uint64_t)(times != TIMES_NONE ? duration_ns : 0);
        } else if (record->kind == CPROF_CUPTI_MEMSET) {
            counts.fills = 1;
        } else {
            count_copy(record, &counts);
        }
        cprof_cupti_launches_count(&seen->launches, launch.outer, &counts);
    }
    if (!atomic_load_explicit(&seen->is_traced, memory_order_relaxed)) {
        return;
    }
    if (times == TIMES_ALL) {
        cprof_cupti_store_add_record(&seen->trace, record, launch.outer);
    } else {
        cprof_cupti_store_drop(&seen->trace, 1);
    }
}

void cprof_cupti_events_request(uint8_t **buffer, size_t *size, size_t *most_records)
{
    *most_records = 0; /* as many as there is room for */
    *buffer = cprof_alloc_zeroed(CPROF_CUPTI_BUFFER_SIZE);
    if (*buffer == NULL) {
        *buffer = atomic_exchange(&seen->spare, NULL);
    }
    *size = *buffer != NULL ? CPROF_CUPTI_BUFFER_SIZE : 0;
}

void cprof_cupti_events_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size)
{
    (void)context;
    (void)stream;
    (void)size;
    if (buffer != NULL && valid_size > 0 && atomic_load_explicit(&seen->session, memory_order_acquire) != 0) {
        /* Reads a buffer up to its last complete record. */
        cprof_cupti_clock line = cprof_cupti_events_line();
        cprof_cupti_result result;
        void *bytes = NULL;
        while ((result = seen->library.get_next_record(buffer, valid_size, &bytes)) == CPROF_CUPTI_SUCCESS && bytes != NULL) {
            cprof_cupti_record record;
            if (cprof_cupti_record_read(bytes, &record)) {
                take_record(&record, &line);
            }
        }
        if (result != CPROF_CUPTI_MAX_LIMIT_REACHED && result != CPROF_CUPTI_INVALID_KIND) {
            int none = 0;
            (void)atomic_compare_exchange_strong(&seen->decode_error, &none, result);
        }
    }
    uint8_t *none = NULL;
    if (buffer != NULL && !atomic_compare_exchange_strong(&seen->spare, &none, buffer)) {
        cprof_alloc_release(buffer);
    }
}
