#include "cprofiling/devices/cupti.h"

#include <stdio.h>

/* The platforms without CUDA: nothing is there, nothing is counted. */
bool cprof_cupti_start(cprof_cupti_use use)
{
    (void)use;
    return false;
}

void cprof_cupti_stop(cprof_cupti_use use)
{
    (void)use;
}

void cprof_cupti_flush(void)
{
}

void cprof_cupti_set_node(cprof_cupti_node node, cprof_cupti_node *before)
{
    (void)node;
    *before = (cprof_cupti_node){.accum = NULL};
}

void cprof_cupti_forget(const cprof_registry *registry)
{
    (void)registry;
}

cprof_status cprof_cupti_collect(cprof_table *table)
{
    (void)table;
    return CPROF_OK;
}

bool cprof_cupti_set_folders(const char *const *folders, size_t count)
{
    (void)folders;
    (void)count;
    return true;
}

bool cprof_cupti_reason(char *buffer, size_t size)
{
    (void)snprintf(buffer, size, "CUPTI is unavailable on this platform");
    return true;
}

void cprof_cupti_get_state(cprof_cupti_state *state)
{
    *state = (cprof_cupti_state){.has_library = false};
}

void cprof_cupti_after_fork_in_child(void)
{
}

void cprof_cupti_reset_for_test(void)
{
}
