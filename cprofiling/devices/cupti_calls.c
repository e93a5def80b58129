#include "cprofiling/devices/cupti_calls.h"

#include <stddef.h>

#define ENTRY(domain, cupti_name, number, is_launch, name) [number] = {name, is_launch},

static const cprof_cupti_call runtime_calls[] = {CPROF_CUPTI_RUNTIME_CALLS(ENTRY)};
static const cprof_cupti_call driver_calls[] = {CPROF_CUPTI_DRIVER_CALLS(ENTRY)};

uint32_t cprof_cupti_call_end(unsigned domain)
{
    switch (domain) {
    case CPROF_CUPTI_DRIVER:
        return sizeof driver_calls / sizeof driver_calls[0];
    case CPROF_CUPTI_RUNTIME:
        return sizeof runtime_calls / sizeof runtime_calls[0];
    default:
        return 0;
    }
}

const cprof_cupti_call *cprof_cupti_call_of(unsigned domain, uint32_t number)
{
    if (number >= cprof_cupti_call_end(domain)) {
        return NULL;
    }
    const cprof_cupti_call *call = domain == CPROF_CUPTI_DRIVER ? &driver_calls[number] : &runtime_calls[number];
    return call->name != NULL ? call : NULL;
}
