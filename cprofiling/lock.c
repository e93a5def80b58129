#include "cprofiling/lock.h"

#include <sched.h>

enum { SPINS_BEFORE_YIELD = 128 };

void cprof_lock_wait(cprof_lock *lock)
{
    uint32_t epoch = atomic_load_explicit(&cprof_lock_epoch, memory_order_relaxed);
    unsigned spins = 0;
    do {
        while (atomic_load_explicit(&lock->word, memory_order_relaxed) == epoch) {
            if (++spins % SPINS_BEFORE_YIELD == 0) {
                (void)sched_yield();
            }
        }
    } while (atomic_exchange_explicit(&lock->word, epoch, memory_order_acquire) == epoch);
}
