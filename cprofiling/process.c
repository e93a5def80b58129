#include "cprofiling/process.h"

#include "cprofiling/calls/probe.h"
#include "cprofiling/devices/capture.h"
#include "cprofiling/devices/counters.h"
#include "cprofiling/devices/cupti.h"
#include "cprofiling/devices/event.h"
#include "cprofiling/devices/event_pool.h"
#include "cprofiling/devices/wait.h"
#include "cprofiling/files/live.h"
#include "cprofiling/trace/recording.h"

#include <pthread.h>

static pthread_once_t start_once = PTHREAD_ONCE_INIT;
static cprof_lock watch_lock;
static cprof_process_watch *watches;

/* What other locks than these guard is discarded in the child. */
static void before_fork(void)
{
    cprof_lock_acquire(&watch_lock);
    cprof_lock_acquire(&cprof_recording.lock);
    cprof_registry_before_fork();
}

static void after_fork_in_parent(void)
{
    cprof_registry_after_fork_in_parent();
    cprof_lock_release(&cprof_recording.lock);
    cprof_lock_release(&watch_lock);
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
    cprof_registry_after_fork_in_child();
    cprof_lock_release(&cprof_recording.lock);
    for (const cprof_process_watch *watch = watches; watch != NULL; watch = watch->next) {
        watch->act(watch->context);
    }
    cprof_lock_release(&watch_lock);
}

static void start(void)
{
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void cprof_process_start(void)
{
    (void)pthread_once(&start_once, start);
}

void cprof_process_begin_watch(cprof_process_watch *watch)
{
    cprof_lock_acquire(&watch_lock);
    watch->next = watches;
    watches = watch;
    cprof_lock_release(&watch_lock);
}

void cprof_process_end_watch(cprof_process_watch *watch)
{
    cprof_lock_acquire(&watch_lock);
    cprof_process_watch **place = &watches;
    while (*place != watch) {
        place = &(*place)->next;
    }
    *place = watch->next;
    cprof_lock_release(&watch_lock);
}

void cprof_process_end_registry(cprof_registry *registry)
{
    if (registry != NULL) {
        cprof_event_pool_forget(registry);
        cprof_cupti_forget(registry);
        if (!cprof_live_take_over(registry)) {
            cprof_registry_destroy(registry);
        }
    }
}
