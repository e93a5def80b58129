#include "cprofiling/process.h"

#include "cprofiling/alloc.h"
#include "cprofiling/gpu.h"
#include "cprofiling/thread.h"

#include <pthread.h>

/* The state that several files work on; what belongs to one platform's devices is in gpu_cuda.c. */
_Atomic uint32_t cprof_lock_epoch = 1;
const cprof_alloc_hooks *cprof_alloc_hooks_in_use = &cprof_alloc_system;
cprof_clock_state cprof_clock = {.source = CPROF_CLOCK_MONOTONIC, .multiplier = CPROF_CLOCK_UNIT};
cprof_thread_spares cprof_thread_spare = {.key_once = PTHREAD_ONCE_INIT};
_Thread_local cprof_thread *cprof_thread_self;

static pthread_once_t start_once = PTHREAD_ONCE_INIT;
static cprof_lock list_lock;
static cprof_registry *first_registry;

/* The list, the tables of keys and the configurations must be whole in the child; what the other locks guard is discarded
 * there. */
static void before_fork(void)
{
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
}

static void after_fork_in_child(void)
{
    atomic_fetch_add(&cprof_lock_epoch, 1);
    cprof_gpu_after_fork_in_child();
    for (cprof_registry *registry = first_registry; registry != NULL; registry = registry->next) {
        cprof_registry_after_fork_in_child(registry);
        cprof_lock_release(&registry->epoch_lock);
        cprof_lock_release(&registry->table_lock);
    }
    cprof_lock_release(&list_lock);
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

void cprof_process_add(cprof_registry *registry)
{
    cprof_process_start();
    cprof_lock_acquire(&list_lock);
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
