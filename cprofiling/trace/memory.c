#define _GNU_SOURCE
#include "cprofiling/trace/memory.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Of resident memory, in what getrusage() tells; 0: not looked at yet. */
static _Atomic int64_t inherited_peak;

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
    int64_t inherited = atomic_load_explicit(&inherited_peak, memory_order_relaxed);
    if (getrusage(RUSAGE_SELF, &usage) != 0) {
        return CPROF_TABLE_UNKNOWN;
    }
    int64_t peak = (int64_t)usage.ru_maxrss * 1024;
    if (inherited != 0 && peak > inherited) {
        return peak;
    }
    int64_t own = own_peak_bytes();
    if (inherited == 0) {
        atomic_store_explicit(&inherited_peak, own != CPROF_TABLE_UNKNOWN && own < peak ? peak : 1, memory_order_relaxed);
    }
    return own != CPROF_TABLE_UNKNOWN ? own : peak;
}

cprof_memory cprof_memory_now(void)
{
    cprof_memory now = CPROF_MEMORY_UNKNOWN;
    now.memory = resident_bytes();
    now.memory_peak = peak_bytes();
    return now;
}
