#define _GNU_SOURCE
#include "cprofiling/base/random.h"

#include "cprofiling/base/clock.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

void cprof_random_bytes(void *bytes, size_t size)
{
    if (getrandom(bytes, size, GRND_NONBLOCK) == (ssize_t)size) {
        return;
    }
    uint64_t parts[] = {(uint64_t)cprof_clock_monotonic_ns(), (uint64_t)getpid() << 32 ^ (uintptr_t)bytes};
    memcpy(bytes, parts, size < sizeof parts ? size : sizeof parts);
}

uint64_t cprof_random_serial(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}
