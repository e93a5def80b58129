#define _GNU_SOURCE
#include "cprofiling/trace.h"

#include "cprofiling/alloc.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int64_t resident_bytes(void)
{
    char text[64];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (length <= 0) {
        return CPROF_TABLE_UNKNOWN;
    }
    text[length] = '\0';
    char *second = strchr(text, ' ');
    return second != NULL ? (int64_t)strtoll(second, NULL, 10) * sysconf(_SC_PAGESIZE) : CPROF_TABLE_UNKNOWN;
}

cprof_trace_memory cprof_trace_memory_now(void)
{
    cprof_trace_memory now = CPROF_TRACE_UNKNOWN_MEMORY;
    struct rusage usage;
    now.memory = resident_bytes();
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        now.memory_peak = (int64_t)usage.ru_maxrss * 1024;
    }
    return now;
}

void cprof_trace_begin_detail(cprof_span *span, const struct cprof_trace_detail *detail)
{
    bool takes_part = span->trace != 0 && span->trace != CPROF_TRACE_MUTED;
    span->detail = takes_part ? cprof_alloc_zeroed(sizeof *span->detail) : NULL;
    if (span->detail != NULL) {
        *span->detail = *detail;
        span->detail->in_use = span->detail->device_in_use = CPROF_TABLE_UNKNOWN;
        if (detail->serial != span->trace_serial) {
            span->detail->shapes = span->detail->types = span->detail->stack = 0;
        }
    }
}

static int64_t change(int64_t before, int64_t after)
{
    return before != CPROF_TABLE_UNKNOWN && after != CPROF_TABLE_UNKNOWN ? after - before : CPROF_TABLE_UNKNOWN;
}

static int64_t risen(int64_t before, int64_t after)
{
    return before != CPROF_TABLE_UNKNOWN && after > before ? after : CPROF_TABLE_UNKNOWN;
}

void cprof_trace_end_detail(cprof_span *span, const cprof_trace_memory *now)
{
    if (span->detail != NULL) {
        cprof_trace_memory *memory = &span->detail->memory;
        span->detail->in_use = now->memory;
        span->detail->device_in_use = now->device_memory;
        *memory = (cprof_trace_memory){
            .memory = change(memory->memory, now->memory),
            .memory_peak = risen(memory->memory_peak, now->memory_peak),
            .device_memory = change(memory->device_memory, now->device_memory),
            .device_memory_peak = risen(memory->device_memory_peak, now->device_memory_peak),
        };
    }
}
