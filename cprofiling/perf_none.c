/* perf.h on platforms for which there is no perf_*.c: no counter is known, and the reason says so. */
#include "cprofiling/perf.h"

#include <stdio.h>

void cprof_perf_read(unsigned wanted, cprof_perf_reading *reading)
{
    (void)wanted;
    *reading = (cprof_perf_reading){.known = 0};
}

bool cprof_perf_reason(cprof_perf_counter counter, char *buffer, size_t size)
{
    (void)counter;
    (void)snprintf(buffer, size, "counters are unavailable on this platform");
    return true;
}

bool cprof_perf_in_user_space(void)
{
    return false;
}

void cprof_perf_after_fork_in_child(void)
{
    /* Nothing is open. */
}
