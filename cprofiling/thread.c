#define _GNU_SOURCE
#include "cprofiling/thread.h"

#include "cprofiling/alloc.h"
#include "cprofiling/lock.h"
#include "cprofiling/span.h"

#include <pthread.h>

enum { SPANS_AT_ONCE = 32 };

_Thread_local cprof_thread *cprof_thread_self;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

/* What ended threads left for new ones. */
static cprof_lock spare_lock;
static cprof_thread *spare_threads;
static cprof_span *spare_spans;

/* Runs at the end of each thread that has a record: touches nothing but the core's own memory. */
static void retire(void *record)
{
    cprof_thread *thread = record;
    cprof_thread_self = NULL;
    thread->binding = NULL;
    cprof_lock_acquire(&spare_lock);
    if (thread->free_spans != NULL) {
        cprof_span *last = thread->free_spans;
        while (last->parent != NULL) {
            last = last->parent;
        }
        last->parent = spare_spans;
        spare_spans = thread->free_spans;
        thread->free_spans = NULL;
    }
    thread->next_free = spare_threads;
    spare_threads = thread;
    cprof_lock_release(&spare_lock);
}

static void make_key(void)
{
    key_made = pthread_key_create(&key, retire) == 0;
}

static cprof_thread *take_record(void)
{
    cprof_lock_acquire(&spare_lock);
    cprof_thread *thread = spare_threads;
    if (thread != NULL) {
        spare_threads = thread->next_free;
    }
    cprof_lock_release(&spare_lock);
    return thread != NULL ? thread : cprof_alloc_zeroed(sizeof *thread);
}

/* A small stack keeps half of itself free instead of the full reserve, or no call could ever begin on it. */
static void set_bounds(cprof_thread *thread, uintptr_t low, size_t size)
{
    size_t reserve = size / 2 < CPROF_THREAD_RESERVE ? size / 2 : CPROF_THREAD_RESERVE;
    thread->stack_low = low;
    thread->stack_floor = low + reserve;
    thread->stack_room = size - reserve;
}

static void find_bounds(cprof_thread *thread)
{
    pthread_attr_t attributes;
    void *low = NULL;
    size_t size = 0;
    size_t guard = 0;
    thread->stack_low = thread->stack_floor = 0;
    thread->stack_room = SIZE_MAX;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
        return;
    }
    if (pthread_attr_getstack(&attributes, &low, &size) == 0 && pthread_attr_getguardsize(&attributes, &guard) == 0 &&
        size > guard) {
        set_bounds(thread, (uintptr_t)low + guard, size - guard);
    }
    (void)pthread_attr_destroy(&attributes);
}

cprof_thread *cprof_thread_get(void)
{
    if (cprof_thread_self != NULL) {
        return cprof_thread_self;
    }
    (void)pthread_once(&key_once, make_key);
    if (!key_made) {
        return NULL;
    }
    cprof_thread *thread = take_record();
    if (thread == NULL) {
        return NULL;
    }
    thread->binding = NULL;
    find_bounds(thread);
    if (pthread_setspecific(key, thread) != 0) {
        retire(thread);
        return NULL;
    }
    cprof_thread_self = thread;
    return thread;
}

bool cprof_thread_stack_ok(const cprof_thread *thread)
{
    uintptr_t address = (uintptr_t)__builtin_frame_address(0);
    return address < thread->stack_low || address >= thread->stack_floor;
}

void cprof_thread_return(cprof_span *span)
{
    cprof_lock_acquire(&spare_lock);
    span->parent = spare_spans;
    spare_spans = span;
    cprof_lock_release(&spare_lock);
}

bool cprof_thread_refill(cprof_thread *thread)
{
    cprof_lock_acquire(&spare_lock);
    thread->free_spans = spare_spans;
    spare_spans = NULL;
    cprof_lock_release(&spare_lock);
    if (thread->free_spans != NULL) {
        return true;
    }
    cprof_span *spans = cprof_alloc_zeroed(SPANS_AT_ONCE * sizeof *spans);
    if (spans == NULL) {
        return false;
    }
    for (int i = 0; i + 1 < SPANS_AT_ONCE; i++) {
        spans[i].parent = &spans[i + 1];
    }
    thread->free_spans = spans;
    return true;
}
