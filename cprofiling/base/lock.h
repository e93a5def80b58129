/* A spin lock of four bytes that frees itself in a forked child.
 *
 * The lock is held while its word equals the process's fork epoch. A fork raises the epoch in the child, so locks that
 * threads of the parent held at that moment are free there without anybody walking over them. What such a lock protects may
 * be half-written: its owner must discard it after a fork (the registry does, by a new generation).
 *
 * For short critical sections: whoever waits spins, then yields the processor, then sleeps for moments, so that also a holder
 * of lower priority comes to its end. Not recursive, not fair.
 */
#ifndef CPROF_LOCK_H
#define CPROF_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    _Atomic uint32_t word; /* 0 or a stale epoch: free */
} cprof_lock;

/* The epoch of this process: 1, and one more for each fork on the way from the first process. Raised by process.c only. */
extern _Atomic uint32_t cprof_lock_epoch;

/* Waits until the lock is free, and takes it; or until CLOCK_MONOTONIC has passed `deadline_ns`: then false. */
bool cprof_lock_wait(cprof_lock *lock, int64_t deadline_ns);

/* Takes the lock, waiting for it as long as another thread has it, or until CLOCK_MONOTONIC has passed `deadline_ns`: then
 * false. It is tried once, at least. */
static inline bool cprof_lock_acquire_before(cprof_lock *lock, int64_t deadline_ns)
{
    uint32_t epoch = atomic_load_explicit(&cprof_lock_epoch, memory_order_relaxed);
    return __builtin_expect(atomic_exchange_explicit(&lock->word, epoch, memory_order_acquire) != epoch, 1) ||
           cprof_lock_wait(lock, deadline_ns);
}

/* Takes the lock where it is free; false: another thread has it. */
static inline bool cprof_lock_try(cprof_lock *lock)
{
    uint32_t epoch = atomic_load_explicit(&cprof_lock_epoch, memory_order_relaxed);
    return atomic_exchange_explicit(&lock->word, epoch, memory_order_acquire) != epoch;
}

/* Takes the lock, waiting for it as long as another thread has it. */
static inline void cprof_lock_acquire(cprof_lock *lock)
{
    (void)cprof_lock_acquire_before(lock, INT64_MAX);
}

/* As cprof_lock_acquire(), for so many ns at the most: then false. */
bool cprof_lock_acquire_within(cprof_lock *lock, int64_t patience_ns);

/* Gives the lock back; the caller has it. */
static inline void cprof_lock_release(cprof_lock *lock)
{
    atomic_store_explicit(&lock->word, 0, memory_order_release);
}

#endif
