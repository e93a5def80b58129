#define _GNU_SOURCE
#include "cprofiling/nodes/thread.h"

#include "cprofiling/base/alloc.h"

cprof_thread_spares cprof_thread_spare = {.key_once = PTHREAD_ONCE_INIT};
_Thread_local cprof_thread *cprof_thread_self;

/* Runs at the end of each thread that has a record: touches nothing but the core's own memory. */
static void retire(void *record)
{
    cprof_thread *thread = record;
    cprof_thread_self = NULL;
    if (thread->take_spans_back != NULL) {
        thread->take_spans_back(thread);
    }
    thread->binding = NULL;
    atomic_store(&thread->running, NULL);
    atomic_fetch_add(&thread->life, 1);
    thread->trace.serial = 0;
    cprof_lock_acquire(&cprof_thread_spare.lock);
    thread->next_free = cprof_thread_spare.threads;
    cprof_thread_spare.threads = thread;
    cprof_lock_release(&cprof_thread_spare.lock);
}

static void make_key(void)
{
    cprof_thread_spare.key_made = pthread_key_create(&cprof_thread_spare.key, retire) == 0;
}

static cprof_thread *take_record(void)
{
    cprof_lock_acquire(&cprof_thread_spare.lock);
    cprof_thread *thread = cprof_thread_spare.threads;
    uint32_t made = cprof_thread_spare.made;
    if (thread != NULL) {
        cprof_thread_spare.threads = thread->next_free;
    } else {
        cprof_thread_spare.made++;
    }
    cprof_lock_release(&cprof_thread_spare.lock);
    if (thread != NULL) {
        return thread;
    }
    thread = cprof_alloc_zeroed(sizeof *thread);
    if (thread != NULL) {
        thread->ordinal = made;
    }
    return thread;
}

static void find_bounds(cprof_thread *thread)
{
    pthread_attr_t attributes;
    void *low = NULL;
    size_t size = 0;
    thread->stack_low = thread->stack_floor = 0;
    thread->stack_room = SIZE_MAX;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
        return;
    }
    if (pthread_attr_getstack(&attributes, &low, &size) == 0) { /* without the guard, from glibc 2.27 on */
        /* A small stack keeps half of itself free, or no call could ever begin on it. */
        size_t reserve = size / 2 < CPROF_THREAD_RESERVE ? size / 2 : CPROF_THREAD_RESERVE;
        thread->stack_low = (uintptr_t)low;
        thread->stack_floor = thread->stack_low + reserve;
        thread->stack_room = size - reserve;
    }
    (void)pthread_attr_destroy(&attributes);
}

cprof_thread *cprof_thread_get(void)
{
    if (cprof_thread_self != NULL) {
        return cprof_thread_self;
    }
    (void)pthread_once(&cprof_thread_spare.key_once, make_key);
    if (!cprof_thread_spare.key_made) {
        return NULL;
    }
    cprof_thread *thread = take_record();
    if (thread == NULL) {
        return NULL;
    }
    thread->binding = NULL;
    find_bounds(thread);
    if (pthread_setspecific(cprof_thread_spare.key, thread) != 0) {
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
