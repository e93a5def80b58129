#define _GNU_SOURCE
#include "cprofiling/devices/counters.h"

#include "cprofiling/base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LEVEL_FILE "/proc/sys/kernel/perf_event_paranoid"

enum {
    USAGE = CPROF_COUNTER_BIT(CPROF_COUNTER_CONTEXT_SWITCHES) | CPROF_COUNTER_BIT(CPROF_COUNTER_PAGE_FAULTS),
    UNKNOWN_LEVEL = INT_MIN,
    USER_SPACE_LEVEL = 2, /* of kernel.perf_event_paranoid: whoever has no privilege may count user space, and no more */
    EVENTS = CPROF_COUNTER_COUNT - CPROF_COUNTER_CYCLES,
    HEADER = 3,        /* words before the values that read(2) gives: their number, and two times */
    RETRY_AFTER = 256, /* readings without hardware events, once a thread had no descriptor or memory for them */
};

static const uint64_t configurations[] = {PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_BRANCH_MISSES,
                                          PERF_COUNT_HW_CACHE_MISSES};
_Static_assert(sizeof configurations / sizeof *configurations == EVENTS, "each event of the map has its configuration");

typedef struct {
    int fd;
    unsigned event;
} open_event;

/* The events of a thread; the first one leads. Groups are never freed, but used again by later threads, so that the child of a
 * fork may walk over them whatever the parent's other threads were doing. */
typedef struct group {
    struct group *next; /* never changes once the group is in the list */
    _Atomic bool taken;
    _Atomic unsigned count; /* raised after an event is put in, and zero before any is closed */
    open_event events[EVENTS];
} group;

static struct {
    pthread_once_t once;
    bool key_made;
    pthread_key_t key;
    _Atomic(group *) first;
    _Atomic int refused[EVENTS]; /* errno; 0: not refused, so far */
    _Atomic unsigned refusals;   /* CPROF_COUNTER_BITs of these */
    _Atomic unsigned accepted;   /* CPROF_COUNTER_BITs that any thread has opened */
} hardware = {.once = PTHREAD_ONCE_INIT};

static _Thread_local struct {
    group *group;   /* NULL: none yet, or none any more */
    unsigned pause; /* readings that will not try to open it */
    bool ended;
} self;

static unsigned bit_of(unsigned event)
{
    return CPROF_COUNTER_BIT(CPROF_COUNTER_CYCLES + event);
}

static int open_one(unsigned event, int leader)
{
    struct perf_event_attr attributes = {
        .type = PERF_TYPE_HARDWARE,
        .size = PERF_ATTR_SIZE_VER0, /* what every kernel accepts */
        .config = configurations[event],
        .read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
        .disabled = leader < 0, /* or later members of the group would count later */
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    return (int)syscall(SYS_perf_event_open, &attributes, 0L, -1L, (long)leader, PERF_FLAG_FD_CLOEXEC);
}

static void close_group(group *owned)
{
    unsigned count = atomic_exchange(&owned->count, 0);
    for (unsigned i = 0; i < count; i++) {
        (void)close(owned->events[i].fd);
    }
}

#define NOT_HERE "this machine does not offer it; few virtual machines do"
#define NOT_ACCEPTED "the kernel does not accept it, or not beside the other hardware events"

/* What an errno of perf_event_open(2) means here. */
static const struct refusal {
    int error;
    bool is_final; /* another thread, or a later attempt, would fare the same */
    const char *name;
    const char *meaning; /* NULL: it is forbidden */
} refusals[] = {
    {EACCES, true, "EACCES", NULL},
    {EPERM, true, "EPERM", NULL},
    {ENOENT, true, "ENOENT", NOT_HERE},
    {EOPNOTSUPP, true, "EOPNOTSUPP", NOT_HERE},
    {ENODEV, true, "ENODEV", NOT_HERE},
    {ENXIO, true, "ENXIO", NOT_HERE},
    {ENOSYS, true, "ENOSYS", "the kernel has no perf_event_open"},
    {EINVAL, true, "EINVAL", NOT_ACCEPTED},
    {E2BIG, true, "E2BIG", NOT_ACCEPTED},
    {EMFILE, false, "EMFILE", "the process has no file descriptor left for it; it is tried again"},
    {ENFILE, false, "ENFILE", "the system has no file descriptor left for it; it is tried again"},
    {ENOMEM, false, "ENOMEM", "there is no memory left for it; it is tried again"},
    {EBUSY, false, "EBUSY", "another program has the counters to itself; it is tried again"},
};

/* NULL: one that is not expected; it is tried again. */
static const struct refusal *find_refusal(int error)
{
    size_t i = 0;
    while (i < sizeof refusals / sizeof refusals[0] && refusals[i].error != error) {
        i++;
    }
    return i < sizeof refusals / sizeof refusals[0] ? &refusals[i] : NULL;
}

/* 0 when the event is in the group, or refused for good; else an errno. */
static int add_event(group *owned, unsigned event)
{
    unsigned count = atomic_load_explicit(&owned->count, memory_order_relaxed);
    int fd = open_one(event, count > 0 ? owned->events[0].fd : -1);
    if (fd >= 0) {
        owned->events[count] = (open_event){.fd = fd, .event = event};
        atomic_store_explicit(&owned->count, count + 1, memory_order_release);
        (void)atomic_fetch_or(&hardware.accepted, bit_of(event));
        return 0;
    }
    int error = errno;
    const struct refusal *refusal = find_refusal(error);
    if (refusal == NULL || !refusal->is_final) {
        return error;
    }
    /* The first one to find out says why. */
    int none = 0;
    (void)atomic_compare_exchange_strong(&hardware.refused[event], &none, error);
    (void)atomic_fetch_or(&hardware.refusals, bit_of(event));
    return 0;
}

/* 0 when the group has all that is not refused, and counts; else an errno, and it is empty. */
static int fill_group(group *owned)
{
    int error = 0;
    for (unsigned event = 0; error == 0 && event < EVENTS; event++) {
        if ((atomic_load(&hardware.refusals) & bit_of(event)) == 0) {
            error = add_event(owned, event);
        }
    }
    if (error == 0 && atomic_load_explicit(&owned->count, memory_order_relaxed) == 0) {
        error = ENOENT;
    }
    if (error == 0 && ioctl(owned->events[0].fd, PERF_EVENT_IOC_ENABLE, 0) != 0) {
        error = errno;
    }
    if (error != 0) {
        close_group(owned);
    }
    return error;
}

/* Runs at the end of each thread that has a group. */
static void end_thread(void *value)
{
    group *owned = value;
    self.ended = true;
    self.group = NULL;
    close_group(owned);
    atomic_store_explicit(&owned->taken, false, memory_order_release);
}

static void make_key(void)
{
    hardware.key_made = pthread_key_create(&hardware.key, end_thread) == 0;
}

/* One that no thread uses; NULL without memory. */
static group *take_group(void)
{
    for (group *known = atomic_load(&hardware.first); known != NULL; known = known->next) {
        if (!atomic_load_explicit(&known->taken, memory_order_relaxed) && !atomic_exchange(&known->taken, true)) {
            return known;
        }
    }
    group *made = cprof_alloc_zeroed(sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    atomic_store(&made->taken, true);
    made->next = atomic_load(&hardware.first);
    while (!atomic_compare_exchange_weak(&hardware.first, &made->next, made)) {
    }
    return made;
}

/* Without the key nothing would be closed again. */
static int bind_group(void)
{
    (void)pthread_once(&hardware.once, make_key);
    group *taken = hardware.key_made ? take_group() : NULL;
    if (taken == NULL) {
        return ENOMEM;
    }
    if (pthread_setspecific(hardware.key, taken) != 0) {
        atomic_store(&taken->taken, false);
        return ENOMEM;
    }
    self.group = taken;
    return 0;
}

static bool is_open(void)
{
    return self.group != NULL && atomic_load_explicit(&self.group->count, memory_order_relaxed) > 0;
}

/* Opens the thread's events unless they are: 0, or an errno. */
static int prepare(void)
{
    if (is_open()) {
        return 0;
    }
    if (self.ended) {
        return ESRCH;
    }
    int error = self.group == NULL ? bind_group() : 0;
    return error != 0 ? error : fill_group(self.group);
}

static bool is_ready(void)
{
    if (is_open()) {
        return true;
    }
    if (self.pause > 0) {
        self.pause--;
        return false;
    }
    if (prepare() == 0) {
        return true;
    }
    self.pause = RETRY_AFTER;
    return false;
}

static void read_events(const group *owned, unsigned wanted, cprof_counter_reading *reading)
{
    uint64_t words[HEADER + EVENTS];
    unsigned count = atomic_load_explicit(&owned->count, memory_order_relaxed);
    ssize_t length = read(owned->events[0].fd, words, sizeof words);
    if (length != (ssize_t)((HEADER + count) * sizeof words[0]) || words[0] != count) {
        return;
    }
    reading->enabled_ns = words[1];
    reading->running_ns = words[2];
    for (unsigned i = 0; i < count; i++) {
        unsigned event = owned->events[i].event;
        if ((wanted & bit_of(event)) != 0) {
            reading->values[CPROF_COUNTER_CYCLES + event] = words[HEADER + i];
            reading->known |= bit_of(event);
        }
    }
}

/* 0 when the event was ever opened; else the errno for which it was not. It is tried in the calling thread when none has. */
static int refusal_of(cprof_counter counter)
{
    unsigned event = counter - CPROF_COUNTER_CYCLES;
    int tried = 0;
    if (((atomic_load(&hardware.accepted) | atomic_load(&hardware.refusals)) & CPROF_COUNTER_BIT(counter)) == 0) {
        tried = prepare();
    }
    if ((atomic_load(&hardware.accepted) & CPROF_COUNTER_BIT(counter)) != 0) {
        return 0;
    }
    int refused = atomic_load(&hardware.refused[event]);
    return refused != 0 ? refused : tried;
}

/* The errno, or 0. */
static int read_cpu_time(cprof_counter_reading *reading)
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
static int read_usage(unsigned wanted, cprof_counter_reading *reading)
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

void cprof_counters_read(unsigned wanted, cprof_counter_reading *reading)
{
    int kept_errno = errno;
    *reading = (cprof_counter_reading){.known = 0};
    if ((wanted & CPROF_COUNTER_BIT(CPROF_COUNTER_CPU_TIME)) != 0) {
        (void)read_cpu_time(reading);
    }
    if ((wanted & USAGE) != 0) {
        (void)read_usage(wanted, reading);
    }
    wanted &= CPROF_COUNTER_HARDWARE & ~atomic_load_explicit(&hardware.refusals, memory_order_relaxed);
    if (wanted != 0 && is_ready()) {
        read_events(self.group, wanted, reading);
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
    const struct refusal *refusal = find_refusal(error);
    if (refusal == NULL) {
        (void)snprintf(buffer, size, "perf_event_open failed with errno %d; it is tried again", error);
    } else if (refusal->meaning == NULL) {
        say_forbidden(refusal->name, buffer, size);
    } else {
        (void)snprintf(buffer, size, "%s (%s)", refusal->meaning, refusal->name);
    }
}

bool cprof_counters_reason(cprof_counter counter, char *buffer, size_t size)
{
    int kept_errno = errno;
    cprof_counter_reading reading = {.known = 0};
    bool is_of_hardware = (CPROF_COUNTER_BIT(counter) & CPROF_COUNTER_HARDWARE) != 0;
    int error = is_of_hardware                      ? refusal_of(counter)
                : counter == CPROF_COUNTER_CPU_TIME ? read_cpu_time(&reading)
                                                    : read_usage(USAGE, &reading);
    if (error == 0) {
        (void)snprintf(buffer, size, "%s", "");
    } else if (is_of_hardware) {
        say_refused(error, buffer, size);
    } else {
        (void)snprintf(buffer, size, "the system does not tell (errno %d)", error);
    }
    errno = kept_errno;
    return error != 0;
}

void cprof_counters_after_fork_in_child(void)
{
    for (group *known = atomic_load(&hardware.first); known != NULL; known = known->next) {
        close_group(known);
        atomic_store(&known->taken, known == self.group);
    }
    self.pause = 0;
}
