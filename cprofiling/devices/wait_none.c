/* wait.h on platforms for which there is no gpu_*.c: nothing is ever waited for, and the reason says so. */
#include "cprofiling/devices/wait.h"

#include <stdio.h>

bool cprof_wait_probe(void)
{
    return false;
}

int cprof_wait_synchronize(int device, uint64_t stream)
{
    (void)device;
    (void)stream;
    return CPROF_GPU_OFF;
}

bool cprof_wait_reason(char *buffer, size_t size)
{
    (void)snprintf(buffer, size, "CUDA is unavailable on this platform: synchronisation is off");
    return true;
}

bool cprof_wait_memory(int device, int64_t *free_bytes, int64_t *total_bytes)
{
    (void)device;
    (void)free_bytes;
    (void)total_bytes;
    return false;
}

int cprof_wait_profiler_start(void)
{
    return CPROF_GPU_NOT_CALLED;
}

int cprof_wait_profiler_stop(void)
{
    return CPROF_GPU_NOT_CALLED;
}

void cprof_wait_get_counters(cprof_gpu_counters *counters)
{
    *counters = (cprof_gpu_counters){0};
}

void cprof_wait_after_fork_in_child(void)
{
    /* There is nothing to forget. */
}

void cprof_wait_reset_for_test(void)
{
    /* There is no state. */
}

void cprof_wait_set_clock_for_test(cprof_ns (*now)(void))
{
    (void)now; /* nothing is searched for, so nothing is timed */
}
