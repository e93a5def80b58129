#include "cprofiling/process.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/devices/capture.h"
#include "cprofiling/devices/cupti.h"
#include "cprofiling/devices/wait.h"
#include "cprofiling/calls/probe.h"
#include "cprofiling/devices/counters.h"
#include "cprofiling/devices/event.h"
#include "cprofiling/nodes/thread.h"
#include "cprofiling/trace/recording.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* The state that several files work on; what belongs to one platform is in wait.c and counters_event.c. */
_Atomic uint32_t cprof_lock_epoch = 1;
const cprof_alloc_hooks *cprof_alloc_hooks_in_use = &cprof_alloc_system;
cprof_clock_state cprof_clock = {.source = CPROF_CLOCK_MONOTONIC, .multiplier = CPROF_CLOCK_UNIT};
cprof_thread_spares cprof_thread_spare = {.key_once = PTHREAD_ONCE_INIT};
_Thread_local cprof_thread *cprof_thread_self;
cprof_recording_state cprof_recording;
cprof_probe_state cprof_probes;
cprof_capture_state cprof_capture = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t start_once = PTHREAD_ONCE_INIT;
static cprof_lock list_lock;
static cprof_registry *first_registry;

/* What is added to the flags of an owner's registries. */
typedef struct {
    uint64_t owner;
    unsigned flags;
} added;

static added recording;
static added capture;

/* The list, the tables of keys and the configurations must be whole in the child; what the other locks guard is discarded
 * there. */
static void before_fork(void)
{
    cprof_lock_acquire(&cprof_recording.lock);
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
    cprof_lock_release(&cprof_recording.lock);
}

static void after_fork_in_child(void)
{
    atomic_fetch_add(&cprof_lock_epoch, 1);
    cprof_wait_after_fork_in_child();
    cprof_capture_after_fork_in_child();
    cprof_counters_after_fork_in_child();
    cprof_event_after_fork_in_child();
    cprof_cupti_after_fork_in_child();
    cprof_recording_after_fork_in_child();
    cprof_probe_after_fork_in_child();
    recording.flags = capture.flags = 0;
    for (cprof_registry *registry = first_registry; registry != NULL; registry = registry->next) {
        cprof_registry_after_fork_in_child(registry);
        cprof_lock_release(&registry->epoch_lock);
        cprof_lock_release(&registry->table_lock);
    }
    cprof_lock_release(&list_lock);
    cprof_lock_release(&cprof_recording.lock);
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

static unsigned added_to_list_lock_held(uint64_t owner)
{
    return (recording.owner == owner ? recording.flags : 0) | (capture.owner == owner ? capture.flags : 0);
}

static void add(added *kind, uint64_t owner, unsigned flags)
{
    cprof_lock_acquire(&list_lock);
    *kind = (added){owner, flags};
    for (cprof_registry *registry = first_registry; registry != NULL; registry = registry->next) {
        if (registry->owner == owner) {
            cprof_registry_set_added(registry, added_to_list_lock_held(owner));
        }
    }
    cprof_lock_release(&list_lock);
}

void cprof_process_record(uint64_t owner, unsigned flags)
{
    add(&recording, owner, flags);
}

void cprof_process_capture(uint64_t owner, unsigned flags)
{
    add(&capture, owner, flags);
}

void cprof_process_add(cprof_registry *registry)
{
    cprof_process_start();
    cprof_lock_acquire(&list_lock);
    cprof_registry_set_added(registry, added_to_list_lock_held(registry->owner));
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
