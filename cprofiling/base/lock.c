#define _GNU_SOURCE
#include "cprofiling/base/lock.h"

#include <sched.h>
#include <time.h>

_Atomic uint32_t cprof_lock_epoch = 1;

enum { SPINS_BEFORE_YIELD = 128, YIELDS_BEFORE_SLEEP = 1024, SLEEP_NS = 50000 };

static int64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

bool cprof_lock_wait(cprof_lock *lock, int64_t deadline_ns)
{
    uint32_t epoch = atomic_load_explicit(&cprof_lock_epoch, memory_order_relaxed);
    unsigned spins = 0;
    do {
        while (atomic_load_explicit(&lock->word, memory_order_relaxed) == epoch) {
            if (++spins % SPINS_BEFORE_YIELD != 0) {
                continue;
            }
            if (now_ns() > deadline_ns) {
                return false;
            }
            static const struct timespec moment = {.tv_nsec = SLEEP_NS};
            if (spins / SPINS_BEFORE_YIELD <= YIELDS_BEFORE_SLEEP) {
                (void)sched_yield();
            } else {
                (void)nanosleep(&moment, NULL);
            }
        }
    } while (atomic_exchange_explicit(&lock->word, epoch, memory_order_acquire) == epoch);
    return true;
}

bool cprof_lock_acquire_within(cprof_lock *lock, int64_t patience_ns)
{
    return cprof_lock_acquire_before(lock, now_ns() + patience_ns);
}
