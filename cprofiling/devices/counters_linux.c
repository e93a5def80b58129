#define _GNU_SOURCE
#include "cprofiling/devices/counters_event.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    USAGE = CPROF_COUNTER_BIT(CPROF_COUNTER_CONTEXT_SWITCHES) | CPROF_COUNTER_BIT(CPROF_COUNTER_PAGE_FAULTS),
    UNKNOWN_LEVEL = INT_MIN,
    USER_SPACE_LEVEL = 2, /* of kernel.perf_event_paranoid: whoever has no privilege may count user space, and no more */
};

#define LEVEL_FILE "/proc/sys/kernel/perf_event_paranoid"

/* What an errno of perf_event_open(2) means here. */
static const struct {
    int error;
    const char *name;
    const char *meaning;
} refusals[] = {
    {ENOENT, "ENOENT", "this machine does not offer it; few virtual machines do"},
    {EOPNOTSUPP, "EOPNOTSUPP", "this machine does not offer it; few virtual machines do"},
    {ENODEV, "ENODEV", "this machine does not offer it; few virtual machines do"},
    {ENXIO, "ENXIO", "this machine does not offer it; few virtual machines do"},
    {ENOSYS, "ENOSYS", "the kernel has no perf_event_open"},
    {EINVAL, "EINVAL", "the kernel does not accept it, or not beside the other hardware events"},
    {E2BIG, "E2BIG", "the kernel does not accept it, or not beside the other hardware events"},
    {EMFILE, "EMFILE", "the process has no file descriptor left for it; it is tried again"},
    {ENFILE, "ENFILE", "the system has no file descriptor left for it; it is tried again"},
    {ENOMEM, "ENOMEM", "there is no memory left for it; it is tried again"},
    {EBUSY, "EBUSY", "another program has the counters to itself; it is tried again"},
};

/* The errno, or 0. */
static int read_cpu_time(cprof_counters_reading *reading)
{
    struct timespec time;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) {
        return errno;
    }
    reading->values[CPROF_COUNTER_CPU_TIME] = (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
    reading->known |= CPROF_COUNTER_BIT(CPROF_COUNTER_CPU_TIME);
    return 0;
}

/* The errno, or 0. */
static int read_usage(unsigned wanted, cprof_counters_reading *reading)
{
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) != 0) {
        return errno;
    }
    reading->values[CPROF_COUNTER_CONTEXT_SWITCHES] = (uint64_t)usage.ru_nvcsw + (uint64_t)usage.ru_nivcsw;
    reading->values[CPROF_COUNTER_PAGE_FAULTS] = (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
    reading->known |= wanted & USAGE;
    return 0;
}

void cprof_counters_read(unsigned wanted, cprof_counters_reading *reading)
{
    int kept_errno = errno;
    *reading = (cprof_counters_reading){.known = 0};
    if ((wanted & CPROF_COUNTER_BIT(CPROF_COUNTER_CPU_TIME)) != 0) {
        (void)read_cpu_time(reading);
    }
    if ((wanted & USAGE) != 0) {
        (void)read_usage(wanted, reading);
    }
    if ((wanted & CPROF_COUNTER_HARDWARE) != 0) {
        cprof_counters_event_read(wanted, reading);
    }
    errno = kept_errno;
}

/* How much the kernel keeps from those without privileges. */
static int paranoid_level(void)
{
    char text[16];
    int fd = open(LEVEL_FILE, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return UNKNOWN_LEVEL;
    }
    ssize_t length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (length <= 0) {
        return UNKNOWN_LEVEL;
    }
    text[length] = '\0';
    return (int)strtol(text, NULL, 10);
}

static void say_forbidden(const char *name, char *buffer, size_t size)
{
    int level = paranoid_level();
    if (level == UNKNOWN_LEVEL) {
        (void)snprintf(buffer, size, "the kernel or the container forbids perf_event_open (%s): CAP_PERFMON would allow it",
                       name);
    } else if (level > USER_SPACE_LEVEL) {
        (void)snprintf(buffer, size, "kernel.perf_event_paranoid is %d (%s): 2 or less, or CAP_PERFMON, would allow it", level,
                       name);
    } else {
        (void)snprintf(buffer, size,
                       "forbidden (%s) although kernel.perf_event_paranoid is %d: the container's seccomp profile, or a "
                       "security module, would have to allow perf_event_open",
                       name, level);
    }
}

static void say_refused(int error, char *buffer, size_t size)
{
    if (error == EACCES || error == EPERM) {
        say_forbidden(error == EACCES ? "EACCES" : "EPERM", buffer, size);
        return;
    }
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        if (refusals[i].error == error) {
            (void)snprintf(buffer, size, "%s (%s)", refusals[i].meaning, refusals[i].name);
            return;
        }
    }
    (void)snprintf(buffer, size, "perf_event_open failed with errno %d; it is tried again", error);
}

/* 0 when the counter has values; else an errno. */
static int try_counter(cprof_counter counter)
{
    cprof_counters_reading reading = {.known = 0};
    if ((CPROF_COUNTER_BIT(counter) & CPROF_COUNTER_HARDWARE) != 0) {
        return cprof_counters_event_refusal(counter);
    }
    return counter == CPROF_COUNTER_CPU_TIME ? read_cpu_time(&reading) : read_usage(USAGE, &reading);
}

bool cprof_counters_reason(cprof_counter counter, char *buffer, size_t size)
{
    int kept_errno = errno;
    int error = try_counter(counter);
    if (error == 0) {
        (void)snprintf(buffer, size, "%s", "");
    } else if ((CPROF_COUNTER_BIT(counter) & CPROF_COUNTER_HARDWARE) != 0) {
        say_refused(error, buffer, size);
    } else {
        (void)snprintf(buffer, size, "the system does not tell (errno %d)", error);
    }
    errno = kept_errno;
    return error != 0;
}

bool cprof_counters_in_user_space(void)
{
    return cprof_counters_event_in_user_space();
}

void cprof_counters_after_fork_in_child(void)
{
    cprof_counters_event_after_fork_in_child();
}
