#include "cprofiling/process.h"

#include "cprofiling/alloc.h"
#include "cprofiling/cupti.h"
#include "cprofiling/gpu.h"
#include "cprofiling/thread.h"
#include "cprofiling/trace.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* The state that several files work on; what belongs to one platform's devices is in gpu_cuda.c. */
_Atomic uint32_t cprof_lock_epoch = 1;
const cprof_alloc_hooks *cprof_alloc_hooks_in_use = &cprof_alloc_system;
cprof_clock_state cprof_clock = {.source = CPROF_CLOCK_MONOTONIC, .multiplier = CPROF_CLOCK_UNIT};
cprof_thread_spares cprof_thread_spare = {.key_once = PTHREAD_ONCE_INIT};
_Thread_local cprof_thread *cprof_thread_self;
cprof_trace_state cprof_trace;

static pthread_once_t start_once = PTHREAD_ONCE_INIT;
static cprof_lock list_lock;
static cprof_registry *first_registry;
static uint64_t recording_owner;
static unsigned recording_flags;

/* The list, the tables of keys and the configurations must be whole in the child; what the other locks guard is discarded
 * there. */
static void before_fork(void)
{
    cprof_lock_acquire(&cprof_trace.lock);
    cprof_lock_acquire(&list_lock);
    for (cprof_registry *registry = first_registry; registry != NULL; registry = registry->next) {
        cprof_lock_acquire(&registry->table_lock);
        cprof_lock_acquire(&registry->epoch_lock);
    }
}

static void after_fork_in_parent(void)
{
    for (cprof_registry *registry = first_registry; registry != NULL; registry = registry->next) {
        cprof_lock_release(&registry->epoch_lock);
        cprof_lock_release(&registry->table_lock);
    }
    cprof_lock_release(&list_lock);
    cprof_lock_release(&cprof_trace.lock);
}

static void after_fork_in_child(void)
{
    atomic_fetch_add(&cprof_lock_epoch, 1);
    cprof_gpu_after_fork_in_child();
    cprof_cupti_after_fork_in_child();
    cprof_trace_after_fork_in_child();
    recording_flags = 0;
    for (cprof_registry *registry = first_registry; registry != NULL; registry = registry->next) {
        cprof_registry_after_fork_in_child(registry);
        cprof_lock_release(&registry->epoch_lock);
        cprof_lock_release(&registry->table_lock);
    }
    cprof_lock_release(&list_lock);
    cprof_lock_release(&cprof_trace.lock);
}

static void start(void)
{
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void cprof_process_start(void)
{
    (void)pthread_once(&start_once, start);
}

uint64_t cprof_process_next_number(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

void cprof_process_random(void *bytes, size_t size)
{
    if (getrandom(bytes, size, GRND_NONBLOCK) == (ssize_t)size) {
        return;
    }
    uint64_t parts[] = {(uint64_t)cprof_clock_monotonic_ns(), (uint64_t)getpid() << 32 ^ (uintptr_t)bytes};
    memcpy(bytes, parts, size < sizeof parts ? size : sizeof parts);
}

void cprof_process_record(uint64_t owner, unsigned flags)
{
    cprof_lock_acquire(&list_lock);
    recording_owner = owner;
    recording_flags = flags;
    for (cprof_registry *registry = first_registry; registry != NULL; registry = registry->next) {
        if (registry->owner == owner) {
            cprof_registry_set_recording(registry, flags);
        }
    }
    cprof_lock_release(&list_lock);
}

void cprof_process_add(cprof_registry *registry)
{
    cprof_process_start();
    cprof_lock_acquire(&list_lock);
    if (registry->owner == recording_owner) {
        cprof_registry_set_recording(registry, recording_flags);
    }
    registry->next = first_registry;
    if (first_registry != NULL) {
        first_registry->previous = registry;
    }
    first_registry = registry;
    cprof_lock_release(&list_lock);
}

void cprof_process_remove(cprof_registry *registry)
{
    cprof_lock_acquire(&list_lock);
    if (registry->previous != NULL) {
        registry->previous->next = registry->next;
    } else {
        first_registry = registry->next;
    }
    if (registry->next != NULL) {
        registry->next->previous = registry->previous;
    }
    cprof_lock_release(&list_lock);
}
