#define _GNU_SOURCE
#include "cprofiling/trace/recording.h"

#include "cprofiling/base/alloc.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The beginning of a file, as a text; false where it cannot be had. */
static bool read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, size - 1) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static int64_t resident_bytes(void)
{
    char text[64];
    char *second = read_text("/proc/self/statm", text, sizeof text) ? strchr(text, ' ') : NULL;
    return second != NULL ? (int64_t)strtoll(second, NULL, 10) * sysconf(_SC_PAGESIZE) : CPROF_TABLE_UNKNOWN;
}

static int64_t own_peak_bytes(void)
{
    static const char label[] = "VmHWM:";
    char text[2048];
    char *found = read_text("/proc/self/status", text, sizeof text) ? strstr(text, label) : NULL;
    return found != NULL ? (int64_t)strtoll(found + sizeof label - 1, NULL, 10) * 1024 : CPROF_TABLE_UNKNOWN;
}

/* What getrusage() tells is quick, but begins with the peak of the process that has started this program; until ours is above
 * that, the slow way is the only one. */
static int64_t peak_bytes(void)
{
    struct rusage usage;
    int64_t inherited = atomic_load_explicit(&cprof_recording.inherited_peak, memory_order_relaxed);
    if (getrusage(RUSAGE_SELF, &usage) != 0) {
        return CPROF_TABLE_UNKNOWN;
    }
    int64_t peak = (int64_t)usage.ru_maxrss * 1024;
    if (inherited != 0 && peak > inherited) {
        return peak;
    }
    int64_t own = own_peak_bytes();
    if (inherited == 0) {
        atomic_store_explicit(&cprof_recording.inherited_peak, own != CPROF_TABLE_UNKNOWN && own < peak ? peak : 1,
                              memory_order_relaxed);
    }
    return own != CPROF_TABLE_UNKNOWN ? own : peak;
}

cprof_recording_memory cprof_recording_memory_now(void)
{
    cprof_recording_memory now = CPROF_RECORDING_UNKNOWN_MEMORY;
    now.memory = resident_bytes();
    now.memory_peak = peak_bytes();
    return now;
}

void cprof_recording_begin_detail(cprof_span *span, const struct cprof_recording_detail *detail)
{
    bool takes_part = span->trace != 0 && span->trace != CPROF_RECORDING_MUTED;
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

void cprof_recording_end_detail(cprof_span *span, const cprof_recording_memory *now)
{
    if (span->detail != NULL) {
        cprof_recording_memory *memory = &span->detail->memory;
        span->detail->in_use = now->memory;
        span->detail->device_in_use = now->device_memory;
        *memory = (cprof_recording_memory){
            .memory = change(memory->memory, now->memory),
            .memory_peak = risen(memory->memory_peak, now->memory_peak),
            .device_memory = change(memory->device_memory, now->device_memory),
            .device_memory_peak = risen(memory->device_memory_peak, now->device_memory_peak),
        };
    }
}
