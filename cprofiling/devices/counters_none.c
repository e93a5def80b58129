/* counters.h on platforms for which there is no perf_*.c: no counter is known, and the reason says so. */
#include "cprofiling/devices/counters.h"

#include <stdio.h>

void cprof_counters_read(unsigned wanted, cprof_counters_reading *reading)
{
    (void)wanted;
    *reading = (cprof_counters_reading){.known = 0};
}

bool cprof_counters_reason(cprof_counter counter, char *buffer, size_t size)
{
    (void)counter;
    (void)snprintf(buffer, size, "counters are unavailable on this platform");
    return true;
}

bool cprof_counters_in_user_space(void)
{
    return false;
}

void cprof_counters_after_fork_in_child(void)
{
    /* Nothing is open. */
}
