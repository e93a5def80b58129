/* lock.h; that a fork frees locks is process.c's part of it. */
#define _GNU_SOURCE
#include "cprofiling/base/lock.h"

#include "cprofiling/process.h"
#include "tests/core/check.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, TURNS = 20000, WAIT_NS = 100000000 };

static cprof_lock lock;
static uint64_t guarded[2];

TEST(zeroed_lock_is_free)
{
    cprof_lock fresh = {0};
    cprof_lock_acquire(&fresh);
    CHECK_EQUAL(atomic_load(&fresh.word), atomic_load(&cprof_lock_epoch));
    cprof_lock_release(&fresh);
    CHECK_EQUAL(atomic_load(&fresh.word), 0);
}

TEST(stale_epoch_is_free)
{
    cprof_lock stale = {.word = atomic_load(&cprof_lock_epoch) - 1};
    cprof_lock_acquire(&stale);
    CHECK_EQUAL(atomic_load(&stale.word), atomic_load(&cprof_lock_epoch));
    cprof_lock_release(&stale);
}

static void *take_turns(void *unused)
{
    for (int i = 0; i < TURNS; i++) {
        cprof_lock_acquire(&lock);
        guarded[0]++;
        if (i % 64 == 0) {
            (void)sched_yield(); /* so that others meet a lock that is held for long */
        }
        CHECK(guarded[1] == guarded[0] - 1);
        guarded[1]++;
        cprof_lock_release(&lock);
    }
    return unused;
}

TEST(one_thread_at_a_time)
{
    check_threads(THREADS, take_turns, NULL, 0);
    CHECK_EQUAL(guarded[0], (uint64_t)THREADS * TURNS);
    CHECK_EQUAL(guarded[1], (uint64_t)THREADS * TURNS);
}

static _Atomic int stage; /* of the thread below: 1 when it holds the lock, 2 when it may let go */

static void *hold(void *unused)
{
    cprof_lock_acquire(&lock);
    atomic_store(&stage, 1);
    while (atomic_load(&stage) != 2) {
        (void)sched_yield();
    }
    cprof_lock_release(&lock);
    return unused;
}

/* D1: the thread that holds the lock does not exist in the child. */
TEST(lock_is_free_in_a_forked_child)
{
    cprof_process_start();
    uint32_t epoch = atomic_load(&cprof_lock_epoch);
    pthread_t holder = check_thread(hold, NULL);
    while (atomic_load(&stage) != 1) {
        (void)sched_yield();
    }
    IN_CHILD
    {
        cprof_lock_acquire(&lock);
        cprof_lock_release(&lock);
        _exit(atomic_load(&lock.word) == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    CHECK_EQUAL(atomic_load(&lock.word), epoch);
    CHECK_EQUAL(atomic_load(&cprof_lock_epoch), epoch);
    atomic_store(&stage, 2);
    check_join(holder);
    CHECK_EQUAL(atomic_load(&lock.word), 0);
}

/* C10: whoever waits for a thread that has stopped may give up. */
TEST(deadline)
{
    CHECK(cprof_lock_acquire_before(&lock, 0)); /* long past, but the lock is free */
    CHECK(!cprof_lock_acquire_before(&lock, 0));
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    int64_t deadline_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + WAIT_NS;
    CHECK(!cprof_lock_acquire_before(&lock, deadline_ns));
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    CHECK((int64_t)now.tv_sec * 1000000000 + now.tv_nsec > deadline_ns);
    CHECK(!cprof_lock_acquire_within(&lock, WAIT_NS));
    cprof_lock_release(&lock);
    CHECK(cprof_lock_acquire_within(&lock, WAIT_NS));
    cprof_lock_release(&lock);
    CHECK(cprof_lock_acquire_before(&lock, INT64_MAX));
    cprof_lock_release(&lock);
}

TEST_MAIN(NULL, NULL)
