/* event.h on platforms for which there is no gpu_*.c: no call has a GPU time, and the reason says so. */
#include "cprofiling/devices/event.h"

#include <stdio.h>

cprof_gpu_mark *cprof_event_begin(cprof_gpu_place place, cprof_gpu_cause *cause)
{
    (void)place;
    *cause = CPROF_GPU_UNSUPPORTED;
    return NULL;
}

void cprof_event_end(cprof_gpu_mark *mark, cprof_gpu_place place, cprof_accum *accum, uint64_t generation)
{
    (void)mark; /* none is ever begun */
    (void)place;
    cprof_accum_miss_gpu(accum, generation, CPROF_GPU_UNSUPPORTED);
}

void cprof_event_cancel(cprof_gpu_mark *mark)
{
    (void)mark;
}

void cprof_event_poll(void)
{
    /* Nothing waits. */
}

uint64_t cprof_event_pending(const cprof_registry *registry)
{
    (void)registry;
    return 0;
}

void cprof_event_forget(const cprof_registry *registry)
{
    (void)registry;
}

bool cprof_event_reason(char *buffer, size_t size)
{
    (void)snprintf(buffer, size, "CUDA is unavailable on this platform: no GPU time");
    return true;
}

void cprof_event_after_fork_in_child(void)
{
    /* There is nothing to forget. */
}

void cprof_event_reset_for_test(void)
{
    /* There is no state. */
}
