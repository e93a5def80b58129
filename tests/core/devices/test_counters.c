/* counters.h, on a kernel of ours where hardware events are concerned: it opens descriptors, and gives the values that the test
 * has set; and on the machine's own, with events that any machine has. */
#define _GNU_SOURCE
#include "cprofiling/devices/counters.h"

#include "cprofiling/process.h"
#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    EVENTS = 4,
    DESCRIPTORS = 1024,
    RETRY_AFTER = 256,
    CROWD = 8,
    LOOP_NS = 100 * 1000 * 1000,
    PAGES = 64,
    PAGE = 65536, /* as large as pages are */
};

#define CPU_TIME CPROF_COUNTER_BIT(CPROF_COUNTER_CPU_TIME)
#define SWITCHES CPROF_COUNTER_BIT(CPROF_COUNTER_CONTEXT_SWITCHES)
#define FAULTS CPROF_COUNTER_BIT(CPROF_COUNTER_PAGE_FAULTS)
#define CYCLES CPROF_COUNTER_BIT(CPROF_COUNTER_CYCLES)
#define INSTRUCTIONS CPROF_COUNTER_BIT(CPROF_COUNTER_INSTRUCTIONS)
#define BRANCH_MISSES CPROF_COUNTER_BIT(CPROF_COUNTER_BRANCH_MISSES)
#define CACHE_MISSES CPROF_COUNTER_BIT(CPROF_COUNTER_CACHE_MISSES)
#define HARDWARE CPROF_COUNTER_HARDWARE
#define FIRST CPROF_COUNTER_CYCLES
#define ENOUGH 200 /* for any reason */

static const uint64_t configurations[EVENTS] = {PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS,
                                                PERF_COUNT_HW_BRANCH_MISSES, PERF_COUNT_HW_CACHE_MISSES};

typedef enum { SCRIPTED, SOFTWARE, MACHINE } behaviour;

/* What the kernel does, and what was asked of it. */
static struct {
    behaviour behaviour;
    int refused[EVENTS];                  /* errno of an event; 0: it opens */
    int events[DESCRIPTORS];              /* 1 + the event of a descriptor */
    int members[DESCRIPTORS];             /* events in the group that a descriptor leads, */
    unsigned groups[DESCRIPTORS][EVENTS]; /* in the order of their opening */
    _Atomic uint64_t opened;
    _Atomic uint64_t started; /* groups */
    int start_error;
    _Atomic uint64_t reads;
    uint64_t values[EVENTS];
    uint64_t enabled_ns, running_ns;
    ssize_t cut;      /* bytes that a read lacks */
    uint64_t surplus; /* added to the number of values that it tells */
    int read_error;
    int clock_error, usage_error;
    uint64_t clock_reads, usage_reads;
    const char *level; /* of paranoia; NULL: not to be had */
    int level_fd;
    bool key_fails, binding_fails;
} kernel = {.level = "2\n", .level_fd = -1};

static unsigned event_of(uint64_t configuration)
{
    for (unsigned event = 0; event < EVENTS; event++) {
        if (configurations[event] == configuration) {
            return event;
        }
    }
    CHECK(!"one of the four is asked for");
    return 0;
}

static void check_asked_rightly(const struct perf_event_attr *attributes, long pid, long cpu, long leader, long flags)
{
    struct perf_event_attr expected = {.type = PERF_TYPE_HARDWARE, .size = PERF_ATTR_SIZE_VER0, .config = attributes->config};
    expected.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    expected.exclude_kernel = expected.exclude_hv = 1;
    expected.disabled = leader < 0;
    CHECK(memcmp(attributes, &expected, PERF_ATTR_SIZE_VER0) == 0);
    CHECK_EQUAL(pid, 0);
    CHECK_EQUAL(cpu, -1);
    CHECK_EQUAL(flags, PERF_FLAG_FD_CLOEXEC);
}

static long open_scripted(const struct perf_event_attr *attributes, int leader)
{
    unsigned event = event_of(attributes->config);
    if (kernel.refused[event] != 0) {
        errno = kernel.refused[event];
        return -1;
    }
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    CHECK(fd >= 0 && fd < DESCRIPTORS);
    CHECK(leader < 0 || fcntl(leader, F_GETFD) >= 0);
    leader = leader >= 0 ? leader : fd;
    kernel.events[fd] = (int)event + 1;
    kernel.members[fd] = 0;
    kernel.groups[leader][kernel.members[leader]++] = event;
    return fd;
}

/* Events that every machine has, in the place of those of the hardware. */
long real_syscall(long number, ...) __asm__("__real_syscall");

static long open_software(const struct perf_event_attr *attributes, int leader)
{
    static const uint64_t stand_ins[EVENTS] = {PERF_COUNT_SW_TASK_CLOCK, PERF_COUNT_SW_PAGE_FAULTS,
                                               PERF_COUNT_SW_CONTEXT_SWITCHES, PERF_COUNT_SW_CPU_MIGRATIONS};
    struct perf_event_attr other = *attributes;
    other.config = stand_ins[event_of(attributes->config)];
    other.type = PERF_TYPE_SOFTWARE;
    return real_syscall(SYS_perf_event_open, &other, 0L, -1L, (long)leader, PERF_FLAG_FD_CLOEXEC);
}

WRAP(long, syscall, long number, ...)
{
    va_list arguments;
    va_start(arguments, number);
    const struct perf_event_attr *attributes = va_arg(arguments, const struct perf_event_attr *);
    long pid = va_arg(arguments, long);
    long cpu = va_arg(arguments, long);
    long leader = va_arg(arguments, long);
    long flags = va_arg(arguments, long);
    va_end(arguments);
    CHECK_EQUAL(number, SYS_perf_event_open);
    check_asked_rightly(attributes, pid, cpu, leader, flags);
    (void)atomic_fetch_add(&kernel.opened, 1);
    switch (kernel.behaviour) {
    case SCRIPTED:
        return open_scripted(attributes, (int)leader);
    case SOFTWARE:
        return open_software(attributes, (int)leader);
    default:
        return real_syscall(number, attributes, pid, cpu, leader, flags);
    }
}

WRAP_REAL(int, ioctl, int fd, unsigned long request, ...)
{
    CHECK_EQUAL(request, PERF_EVENT_IOC_ENABLE);
    if (kernel.behaviour != SCRIPTED) {
        return real_ioctl(fd, request, 0);
    }
    CHECK(kernel.members[fd] > 0); /* all that are to join have joined */
    (void)atomic_fetch_add(&kernel.started, 1);
    errno = kernel.start_error;
    return kernel.start_error != 0 ? -1 : 0;
}

static ssize_t read_group(int fd, void *buffer, size_t size)
{
    uint64_t words[3 + EVENTS] = {kernel.surplus, kernel.enabled_ns, kernel.running_ns};
    size_t length = 3;
    (void)atomic_fetch_add(&kernel.reads, 1);
    for (int i = 0; i < kernel.members[fd]; i++) {
        words[length++] = kernel.values[kernel.groups[fd][i]];
        words[0]++;
    }
    CHECK(size >= length * sizeof words[0]);
    if (kernel.read_error != 0) {
        errno = kernel.read_error;
        return -1;
    }
    memcpy(buffer, words, length * sizeof words[0]);
    return (ssize_t)(length * sizeof words[0]) - kernel.cut;
}

WRAP_REAL(ssize_t, read, int fd, void *buffer, size_t size)
{
    if (fd >= 0 && fd == kernel.level_fd) {
        size_t length = strlen(kernel.level);
        CHECK(length <= size);
        memcpy(buffer, kernel.level, length);
        kernel.level_fd = -1;
        return (ssize_t)length;
    }
    bool is_event = fd >= 0 && fd < DESCRIPTORS && kernel.behaviour == SCRIPTED && kernel.events[fd] != 0;
    return is_event ? read_group(fd, buffer, size) : real_read(fd, buffer, size);
}

WRAP_REAL(int, open, const char *path, int flags, int mode)
{
    if (strstr(path, "perf_event_paranoid") == NULL) {
        return real_open(path, flags, mode); /* of a library that the program is linked with */
    }
    errno = ENOENT;
    kernel.level_fd = kernel.level != NULL ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3) : -1;
    return kernel.level_fd;
}

WRAP_REAL(int, getrusage, int who, struct rusage *usage)
{
    kernel.usage_reads++;
    CHECK_EQUAL(who, RUSAGE_THREAD);
    errno = kernel.usage_error;
    return kernel.usage_error != 0 ? -1 : real_getrusage(who, usage);
}

WRAP_REAL(int, clock_gettime, clockid_t id, struct timespec *now)
{
    if (id != CLOCK_THREAD_CPUTIME_ID) {
        return real_clock_gettime(id, now);
    }
    kernel.clock_reads++;
    errno = kernel.clock_error;
    return kernel.clock_error != 0 ? -1 : real_clock_gettime(id, now);
}

WRAP_REAL(int, pthread_key_create, pthread_key_t *key, void (*end)(void *))
{
    return kernel.key_fails ? EAGAIN : real_pthread_key_create(key, end);
}

WRAP_REAL(int, pthread_setspecific, pthread_key_t key, const void *value)
{
    return kernel.binding_fails ? ENOMEM : real_pthread_setspecific(key, value);
}

/* How many descriptors are open. */
static size_t descriptors(void)
{
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder) != NULL) {
        count++;
    }
    CHECK(closedir(folder) == 0);
    return count;
}

static cprof_counter_reading read_now(unsigned wanted)
{
    cprof_counter_reading reading;
    memset(&reading, 0xee, sizeof reading);
    cprof_counters_read(wanted, &reading);
    return reading;
}

/* So many readings of hardware events know nothing. */
static void read_nothing(int readings)
{
    for (int i = 0; i < readings; i++) {
        CHECK_EQUAL(read_now(CPROF_COUNTER_HARDWARE).known, 0);
    }
}

static void check_reason(cprof_counter counter, const char *expected)
{
    char reason[ENOUGH] = "before";
    errno = EDOM;
    CHECK(cprof_counters_reason(counter, reason, sizeof reason));
    CHECK_EQUAL(errno, EDOM);
    if (strstr(reason, expected) == NULL) {
        (void)fprintf(stderr, "reason: %s\nexpected in it: %s\n", reason, expected);
    }
    CHECK(strstr(reason, expected) != NULL);
}

static void check_no_reason(cprof_counter counter)
{
    char reason[ENOUGH] = "before";
    CHECK(!cprof_counters_reason(counter, reason, sizeof reason));
    CHECK(strcmp(reason, "") == 0);
}

static void set_values(uint64_t cycles, uint64_t instructions, uint64_t branch_misses, uint64_t cache_misses)
{
    uint64_t values[EVENTS] = {cycles, instructions, branch_misses, cache_misses};
    memcpy(kernel.values, values, sizeof values);
}

/* Working with readings. */

TEST(names_and_units)
{
    CHECK(strcmp(cprof_counter_name(CPROF_COUNTER_CPU_TIME), "cpu_time") == 0);
    CHECK(strcmp(cprof_counter_unit(CPROF_COUNTER_CPU_TIME), "ns") == 0);
    CHECK(strcmp(cprof_counter_name(CPROF_COUNTER_CACHE_MISSES), "cache_misses") == 0);
    CHECK(strcmp(cprof_counter_unit(CPROF_COUNTER_CACHE_MISSES), "times") == 0);
    CHECK_EQUAL(CPROF_COUNTER_ALL, 0x7f);
    CHECK_EQUAL(HARDWARE, CYCLES | INSTRUCTIONS | BRANCH_MISSES | CACHE_MISSES);
}

static const cprof_counter_reading earlier = {{100, 2, 3, 1000, 2000, 30, 40}, 5000, 5000, CPROF_COUNTER_ALL, false};

TEST(differences)
{
    static const struct {
        const char *what;
        cprof_counter_reading later, expected;
    } cases[] = {
        {"what both know",
         {{350, 4, 3, 1500, 3000, 31, 41}, 9000, 9000, CPROF_COUNTER_ALL & ~FAULTS, false},
         {{250, 2, 0, 500, 1000, 1, 1}, 4000, 4000, CPROF_COUNTER_ALL & ~FAULTS, false}},
        {"E1: what steps backwards counts as nothing",
         {{99, 1, 2, 999, 1999, 29, 39}, 4999, 4000, CPROF_COUNTER_ALL, false},
         {{0}, 0, 0, CPROF_COUNTER_ALL, false}},
        {"the hardware counted for a third of the time, the others for all of it",
         {{350, 4, 3, 1500, 2001, 30, UINT64_MAX}, 5000 + 3000, 5000 + 1000, CPROF_COUNTER_ALL, false},
         {{250, 2, 0, 1500, 3, 0, UINT64_MAX}, 3000, 1000, CPROF_COUNTER_ALL, true}},
        {"without hardware, times mean nothing",
         {{350, 4, 3, 1500, 2001, 30, UINT64_MAX}, 5000 + 3000, 5000 + 1000, CPU_TIME, false},
         {{250}, 3000, 1000, CPU_TIME, false}},
        {"hardware that never counted is not known",
         {{350, 4, 3, 1000, 2000, 30, 40}, 5000 + 3000, 5000, CPROF_COUNTER_ALL, false},
         {{250, 2, 0}, 3000, 0, CPU_TIME | SWITCHES | FAULTS, false}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const cprof_counter_reading *expected = &cases[i].expected;
        cprof_counter_reading later = cases[i].later;
        cprof_counter_reading difference;
        check_case = cases[i].what;
        cprof_counter_between(&earlier, &later, &difference);
        CHECK_EQUAL(difference.known, expected->known);
        for (unsigned counter = 0; counter < CPROF_COUNTER_COUNT; counter++) {
            if ((expected->known & CPROF_COUNTER_BIT(counter)) != 0) {
                CHECK_EQUAL(difference.values[counter], expected->values[counter]);
            }
        }
        CHECK_EQUAL(difference.enabled_ns, expected->enabled_ns);
        CHECK_EQUAL(difference.running_ns, expected->running_ns);
        CHECK(difference.estimated == expected->estimated);
        cprof_counter_between(&earlier, &later, &later); /* into one of the two */
        CHECK(memcmp(later.values, difference.values, sizeof later.values) == 0);
    }
}

TEST(a_sum)
{
    cprof_counter_reading sum = {.known = CPROF_COUNTER_ALL};
    cprof_counter_reading scaled = earlier;
    scaled.estimated = true;
    scaled.known &= ~CYCLES;
    cprof_counter_add(&sum, &earlier);
    CHECK_EQUAL(sum.known, CPROF_COUNTER_ALL);
    CHECK(memcmp(sum.values, earlier.values, sizeof sum.values) == 0);
    CHECK(!sum.estimated);
    cprof_counter_add(&sum, &scaled);
    cprof_counter_add(&sum, &earlier);
    CHECK_EQUAL(sum.known, CPROF_COUNTER_ALL & ~CYCLES);
    CHECK_EQUAL(sum.values[CPROF_COUNTER_CPU_TIME], 300);
    CHECK_EQUAL(sum.values[CPROF_COUNTER_CYCLES], 0);
    CHECK_EQUAL(sum.values[CPROF_COUNTER_CACHE_MISSES], 120);
    CHECK_EQUAL(sum.enabled_ns, 15000);
    CHECK_EQUAL(sum.running_ns, 15000);
    CHECK(sum.estimated);
}

/* What the system counts for a thread. */

static uint64_t used_ns(const struct rusage *usage)
{
    uint64_t seconds = (uint64_t)usage->ru_utime.tv_sec + (uint64_t)usage->ru_stime.tv_sec;
    return seconds * 1000000000 + ((uint64_t)usage->ru_utime.tv_usec + (uint64_t)usage->ru_stime.tv_usec) * 1000;
}

static void touch_new_pages(void)
{
    char *pages = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    (void)madvise(pages, (size_t)PAGES * PAGE, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < PAGES; i++) {
        ((volatile char *)pages)[i * PAGE] = 1;
    }
    CHECK(munmap(pages, (size_t)PAGES * PAGE) == 0);
}

static void work(void)
{
    struct timespec start, now;
    CHECK(real_clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start) == 0);
    do {
        touch_new_pages();
        CHECK(real_clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    } while ((now.tv_sec - start.tv_sec) * 1000000000 + now.tv_nsec - start.tv_nsec < LOOP_NS);
    for (int i = 0; i < 3; i++) {
        struct timespec moment = {0, 1000};
        CHECK(nanosleep(&moment, NULL) == 0); /* a switch, each time */
    }
}

static void check_between_usages(uint64_t value, long outer, long inner)
{
    CHECK(value <= (uint64_t)outer);
    CHECK(value >= (uint64_t)inner);
}

TEST_IN_CHILD(system_counters_are_those_of_getrusage)
{
    struct rusage outer[2], inner[2];
    cprof_counter_reading before, after, counted;
    CHECK(real_getrusage(RUSAGE_THREAD, &outer[0]) == 0);
    cprof_counters_read(CPU_TIME | SWITCHES | FAULTS, &before);
    CHECK(real_getrusage(RUSAGE_THREAD, &inner[0]) == 0);
    work();
    CHECK(real_getrusage(RUSAGE_THREAD, &inner[1]) == 0);
    cprof_counters_read(CPU_TIME | SWITCHES | FAULTS, &after);
    CHECK(real_getrusage(RUSAGE_THREAD, &outer[1]) == 0);
    cprof_counter_between(&before, &after, &counted);
    CHECK_EQUAL(counted.known, CPU_TIME | SWITCHES | FAULTS);
    CHECK_NEAR((double)counted.values[CPROF_COUNTER_CPU_TIME], (double)(used_ns(&inner[1]) - used_ns(&inner[0])), 0.05);
    CHECK(counted.values[CPROF_COUNTER_PAGE_FAULTS] >= PAGES);
    CHECK(counted.values[CPROF_COUNTER_CONTEXT_SWITCHES] >= 3);
#define FAULTS_OF(usages) (usages[1].ru_minflt + usages[1].ru_majflt - usages[0].ru_minflt - usages[0].ru_majflt)
#define SWITCHES_OF(usages) (usages[1].ru_nvcsw + usages[1].ru_nivcsw - usages[0].ru_nvcsw - usages[0].ru_nivcsw)
    check_between_usages(counted.values[CPROF_COUNTER_PAGE_FAULTS], FAULTS_OF(outer), FAULTS_OF(inner));
    check_between_usages(counted.values[CPROF_COUNTER_CONTEXT_SWITCHES], SWITCHES_OF(outer), SWITCHES_OF(inner));
}

TEST_IN_CHILD(only_what_is_wanted_is_asked_for)
{
    CHECK_EQUAL(read_now(0).known, 0);
    CHECK_EQUAL(kernel.clock_reads + kernel.usage_reads + atomic_load(&kernel.opened), 0);
    CHECK_EQUAL(read_now(CPU_TIME).known, CPU_TIME);
    CHECK_EQUAL(kernel.clock_reads, 1);
    CHECK_EQUAL(read_now(FAULTS).known, FAULTS);
    CHECK_EQUAL(kernel.usage_reads, 1);
    CHECK_EQUAL(read_now(FAULTS | SWITCHES).known, FAULTS | SWITCHES);
    CHECK_EQUAL(kernel.usage_reads, 2); /* one call for both */
    CHECK_EQUAL(kernel.clock_reads, 1);
    CHECK_EQUAL(atomic_load(&kernel.opened), 0);
    for (cprof_counter counter = 0; counter < CPROF_COUNTER_CYCLES; counter++) {
        check_no_reason(counter);
    }
}

TEST_IN_CHILD(the_system_may_refuse_too)
{
    kernel.clock_error = EINVAL;
    kernel.usage_error = EPERM;
    errno = EDOM;
    CHECK_EQUAL(read_now(CPU_TIME | SWITCHES | FAULTS).known, 0);
    CHECK_EQUAL(errno, EDOM);
    check_reason(CPROF_COUNTER_CPU_TIME, "the system does not tell (errno 22)");
    check_reason(CPROF_COUNTER_CONTEXT_SWITCHES, "the system does not tell (errno 1)");
    check_reason(CPROF_COUNTER_PAGE_FAULTS, "the system does not tell (errno 1)");
}

/* Hardware events, by read(2). */

TEST_IN_CHILD(a_group_is_read_at_once)
{
    size_t open_before = descriptors();
    set_values(1000, 2000, 30, 40);
    kernel.enabled_ns = kernel.running_ns = 70;
    errno = EDOM;
    cprof_counter_reading reading = read_now(HARDWARE);
    CHECK_EQUAL(errno, EDOM);
    CHECK_EQUAL(reading.known, HARDWARE);
    CHECK(memcmp(&reading.values[FIRST], kernel.values, sizeof kernel.values) == 0);
    CHECK_EQUAL(reading.enabled_ns, 70);
    CHECK_EQUAL(reading.running_ns, 70);
    CHECK(!reading.estimated);
    CHECK_EQUAL(atomic_load(&kernel.opened), EVENTS);
    CHECK_EQUAL(atomic_load(&kernel.started), 1);
    CHECK_EQUAL(atomic_load(&kernel.reads), 1);
    CHECK_EQUAL(descriptors(), open_before + EVENTS);
    CHECK_EQUAL(read_now(INSTRUCTIONS | CPU_TIME).known, INSTRUCTIONS | CPU_TIME);
    CHECK_EQUAL(atomic_load(&kernel.opened), EVENTS);
    for (cprof_counter counter = FIRST; counter < CPROF_COUNTER_COUNT; counter++) {
        check_no_reason(counter);
    }
}

TEST_IN_CHILD(sharing_counters_is_scaled)
{
    cprof_counter_reading before, after, counted;
    set_values(1000, 2000, 30, 40);
    kernel.enabled_ns = 1000000;
    kernel.running_ns = 600000;
    before = read_now(HARDWARE);
    set_values(1000 + 700, 2000 + 1400, 37, 40);
    kernel.enabled_ns += 5000;
    kernel.running_ns += 2000;
    after = read_now(HARDWARE);
    cprof_counter_between(&before, &after, &counted);
    CHECK(counted.estimated);
    CHECK_EQUAL(counted.known, HARDWARE);
    CHECK_EQUAL(counted.values[CPROF_COUNTER_CYCLES], 1750);
    CHECK_EQUAL(counted.values[CPROF_COUNTER_INSTRUCTIONS], 3500);
    CHECK_EQUAL(counted.values[CPROF_COUNTER_BRANCH_MISSES], 17); /* 17.5 */
    CHECK_EQUAL(counted.values[CPROF_COUNTER_CACHE_MISSES], 0);
    kernel.enabled_ns += 5000;
    before = read_now(HARDWARE);
    cprof_counter_between(&after, &before, &counted);
    CHECK_EQUAL(counted.known, 0);
}

TEST_IN_CHILD(a_reading_that_fails_knows_nothing)
{
    CHECK_EQUAL(read_now(HARDWARE).known, HARDWARE);
    errno = EDOM;
    kernel.read_error = EIO;
    CHECK_EQUAL(read_now(HARDWARE | CPU_TIME).known, CPU_TIME);
    CHECK_EQUAL(errno, EDOM);
    kernel.read_error = 0;
    kernel.cut = 8;
    read_nothing(1);
    kernel.cut = 56; /* nothing at all: the group is in an error state */
    read_nothing(1);
    kernel.cut = 0;
    kernel.surplus = 1;
    read_nothing(1);
    kernel.surplus = 0;
    CHECK_EQUAL(read_now(HARDWARE).known, HARDWARE);
}

/* Refusals. */

static const struct {
    int error;
    const char *reason;
} finals[] = {
    {ENOENT, "this machine does not offer it; few virtual machines do (ENOENT)"},
    {EOPNOTSUPP, "(EOPNOTSUPP)"},
    {ENODEV, "(ENODEV)"},
    {ENXIO, "(ENXIO)"},
    {ENOSYS, "the kernel has no perf_event_open (ENOSYS)"},
    {EINVAL, "the kernel does not accept it, or not beside the other hardware events (EINVAL)"},
    {E2BIG, "(E2BIG)"},
    {EPERM, "forbidden (EPERM) although kernel.perf_event_paranoid is 2: the container's seccomp profile"},
    {EACCES, "forbidden (EACCES) although"},
};

enum { FINALS = COUNT_OF(finals) };

static unsigned refused_event, refused_error; /* of the test below */

static void test_one_event_is_refused(void)
{
    unsigned bit = CPROF_COUNTER_BIT(FIRST + refused_event);
    set_values(1000, 2000, 30, 40);
    kernel.refused[refused_event] = finals[refused_error].error;
    cprof_counter_reading reading = read_now(HARDWARE);
    CHECK_EQUAL(reading.known, HARDWARE & ~bit);
    for (unsigned event = 0; event < EVENTS; event++) {
        CHECK_EQUAL(reading.values[FIRST + event], event == refused_event ? 0 : kernel.values[event]);
    }
    CHECK_EQUAL(atomic_load(&kernel.opened), EVENTS);
    check_reason(FIRST + refused_event, finals[refused_error].reason);
    check_no_reason(FIRST + (refused_event + 1) % EVENTS);
    CHECK_EQUAL(read_now(bit).known, 0);
    CHECK_EQUAL(atomic_load(&kernel.opened), EVENTS);
    CHECK_EQUAL(atomic_load(&kernel.reads), 1); /* what is not known anyway is not read for */
}

TEST(each_event_is_refused)
{
    for (refused_event = 0; refused_event < EVENTS; refused_event++) {
        refused_error = refused_event; /* all errors by the first event, one by each other one */
        for (; refused_error < (refused_event == 0 ? FINALS : refused_event + 1); refused_error++) {
            IN_CHILD
            {
                test_one_event_is_refused();
            }
        }
    }
}

static void *read_in_thread(void *known)
{
    *(unsigned *)known = read_now(HARDWARE | CPU_TIME).known;
    return NULL;
}

static unsigned known_in_another_thread(void)
{
    unsigned known = 0;
    check_in_thread(read_in_thread, &known);
    return known;
}

static void refuse_all(int error)
{
    for (unsigned event = 0; event < EVENTS; event++) {
        kernel.refused[event] = error;
    }
}

TEST_IN_CHILD(what_is_refused_is_asked_for_once)
{
    refuse_all(ENOENT);
    check_reason(CPROF_COUNTER_CACHE_MISSES, "(ENOENT)"); /* without a reading before it */
    CHECK_EQUAL(atomic_load(&kernel.opened), EVENTS);
    refuse_all(0);
    CHECK_EQUAL(read_now(HARDWARE | CPU_TIME).known, CPU_TIME);
    CHECK_EQUAL(known_in_another_thread(), CPU_TIME);
    CHECK_EQUAL(atomic_load(&kernel.opened), EVENTS);
    check_reason(CPROF_COUNTER_CYCLES, "(ENOENT)");
    CHECK_EQUAL(atomic_load(&kernel.opened), EVENTS);
}

TEST_IN_CHILD(who_forbids_is_said)
{
    refuse_all(EACCES);
    kernel.level = "4\n";
    check_reason(CPROF_COUNTER_CYCLES, "kernel.perf_event_paranoid is 4 (EACCES): 2 or less, or CAP_PERFMON, would allow it");
    kernel.level = "-1\n";
    check_reason(CPROF_COUNTER_CYCLES, "although kernel.perf_event_paranoid is -1: the container's seccomp profile");
    kernel.level = "";
    check_reason(CPROF_COUNTER_CYCLES, "forbids perf_event_open (EACCES)");
    kernel.level = NULL;
    check_reason(CPROF_COUNTER_CYCLES,
                 "the kernel or the container forbids perf_event_open (EACCES): CAP_PERFMON would allow it");
    char cut[6] = "begin";
    CHECK(cprof_counters_reason(CPROF_COUNTER_CYCLES, cut, sizeof cut));
    CHECK(strcmp(cut, "the k") == 0);
    CHECK(cprof_counters_reason(CPROF_COUNTER_CYCLES, cut, 0));
    CHECK(strcmp(cut, "the k") == 0);
}

static const struct {
    int error;
    const char *reason;
} shortages[] = {
    {EMFILE, "the process has no file descriptor left for it; it is tried again (EMFILE)"},
    {ENFILE, "(ENFILE)"},
    {ENOMEM, "there is no memory left for it; it is tried again (ENOMEM)"},
    {EBUSY, "(EBUSY)"},
    {EINTR, "perf_event_open failed with errno 4; it is tried again"},
};

/* The third event finds no room: the two before it are closed again, and all are opened some readings later. */
TEST_IN_CHILD(a_shortage_passes)
{
    size_t open_before = descriptors();
    kernel.refused[2] = EMFILE;
    read_nothing(1);
    CHECK_EQUAL(atomic_load(&kernel.opened), 3);
    CHECK_EQUAL(descriptors(), open_before);
    for (size_t i = 0; i < COUNT_OF(shortages); i++) {
        kernel.refused[2] = shortages[i].error;
        check_reason(CPROF_COUNTER_BRANCH_MISSES, shortages[i].reason);
        CHECK_EQUAL(descriptors(), open_before);
    }
    kernel.refused[2] = 0;
    uint64_t opened = atomic_load(&kernel.opened);
    read_nothing(RETRY_AFTER);
    CHECK_EQUAL(atomic_load(&kernel.opened), opened);
    CHECK_EQUAL(read_now(HARDWARE).known, HARDWARE);
    check_no_reason(CPROF_COUNTER_BRANCH_MISSES);
    CHECK_EQUAL(descriptors(), open_before + EVENTS);
}

TEST_IN_CHILD(no_memory_for_a_group)
{
    fake_alloc_install();
    fake_alloc_fail(1);
    read_nothing(1);
    CHECK(fake_alloc_has_failed());
    fake_alloc_fail(1);
    check_reason(CPROF_COUNTER_CYCLES, "(ENOMEM)");
    CHECK(fake_alloc_has_failed());
    read_nothing(RETRY_AFTER);
    CHECK_EQUAL(atomic_load(&kernel.opened), 0);
    CHECK_EQUAL(read_now(HARDWARE).known, HARDWARE);
}

TEST_IN_CHILD(no_memory_for_the_threads_end)
{
    kernel.binding_fails = true;
    read_nothing(1);
    CHECK_EQUAL(atomic_load(&kernel.opened), 0); /* or who would close it? */
    kernel.binding_fails = false;
    read_nothing(RETRY_AFTER);
    CHECK_EQUAL(read_now(HARDWARE).known, HARDWARE);
}

TEST_IN_CHILD(no_key)
{
    kernel.key_fails = true;
    read_nothing(1);
    kernel.key_fails = false;
    read_nothing(2 * RETRY_AFTER);
    CHECK_EQUAL(atomic_load(&kernel.opened), 0);
    check_reason(CPROF_COUNTER_CYCLES, "(ENOMEM)");
}

/* Threads and processes. */

static uint64_t crowd;

/* D18: nothing stays open. */
TEST_IN_CHILD(threads_close_what_they_opened)
{
    fake_alloc_install();
    CHECK_EQUAL(known_in_another_thread(), HARDWARE | CPU_TIME);
    size_t open_before = descriptors();
    uint64_t blocks = fake_alloc_live();
    for (uint64_t i = 0; i < crowd; i++) {
        CHECK_EQUAL(known_in_another_thread(), HARDWARE | CPU_TIME);
    }
    CHECK_EQUAL(descriptors(), open_before);
    CHECK_EQUAL(fake_alloc_live(), blocks);
    CHECK_EQUAL(atomic_load(&kernel.opened), EVENTS * (crowd + 1));
}

static pthread_barrier_t gate;

static void *read_together(void *unused)
{
    (void)unused;
    for (int round = 0; round < 2; round++) {
        (void)pthread_barrier_wait(&gate);
        for (int i = 0; i < 50; i++) {
            CHECK_EQUAL(read_now(HARDWARE & ~CYCLES).known, HARDWARE & ~CYCLES);
            check_reason(CPROF_COUNTER_CYCLES, "(ENOENT)");
        }
    }
    return NULL;
}

TEST_IN_CHILD(threads_read_at_once)
{
    kernel.refused[0] = ENOENT;
    size_t open_before = descriptors();
    CHECK(pthread_barrier_init(&gate, NULL, CROWD) == 0);
    check_threads(CROWD, read_together, NULL, 0);
    CHECK_EQUAL(descriptors(), open_before);
    CHECK_EQUAL(known_in_another_thread(), (HARDWARE & ~CYCLES) | CPU_TIME);
    CHECK(pthread_barrier_destroy(&gate) == 0);
}

static pthread_key_t late_key;
static unsigned known_late;

static void read_late(void *unused)
{
    (void)unused;
    known_late = read_now(HARDWARE | CPU_TIME).known;
    check_no_reason(CPROF_COUNTER_CYCLES); /* other threads may */
}

static void *read_at_the_end(void *unused)
{
    CHECK_EQUAL(read_now(HARDWARE).known, HARDWARE);
    CHECK(real_pthread_key_create(&late_key, read_late) == 0); /* after the core's, so it runs after that */
    CHECK(real_pthread_setspecific(late_key, &late_key) == 0);
    return unused;
}

/* What has been closed is not opened again, for nobody would close it. */
TEST_IN_CHILD(a_thread_that_ends_has_no_events)
{
    size_t open_before = descriptors();
    check_in_thread(read_at_the_end, NULL);
    CHECK_EQUAL(known_late, CPU_TIME);
    CHECK_EQUAL(descriptors(), open_before);
    CHECK_EQUAL(known_in_another_thread(), HARDWARE | CPU_TIME);
}

static void *hold_open(void *unused)
{
    CHECK_EQUAL(read_now(HARDWARE).known, HARDWARE);
    (void)pthread_barrier_wait(&gate);
    (void)pthread_barrier_wait(&gate);
    CHECK_EQUAL(read_now(HARDWARE).known, HARDWARE);
    return unused;
}

/* D1: what the parent's threads have open is not the child's, which opens its own. */
TEST_IN_CHILD(a_child_has_events_of_its_own)
{
    cprof_process_start();
    size_t open_without_events = descriptors();
    CHECK_EQUAL(read_now(HARDWARE).known, HARDWARE);
    CHECK(pthread_barrier_init(&gate, NULL, 2) == 0);
    pthread_t thread = check_thread(hold_open, NULL);
    (void)pthread_barrier_wait(&gate);
    IN_CHILD
    {
        CHECK_EQUAL(descriptors(), open_without_events);
        CHECK_EQUAL(read_now(HARDWARE).known, HARDWARE);
        CHECK_EQUAL(descriptors(), open_without_events + EVENTS);
        cprof_counters_after_fork_in_child(); /* as a child of the child would */
        CHECK_EQUAL(descriptors(), open_without_events);
    }
    CHECK_EQUAL(descriptors(), open_without_events + 2 * EVENTS);
    (void)pthread_barrier_wait(&gate);
    check_join(thread);
    CHECK_EQUAL(read_now(HARDWARE).known, HARDWARE);
    CHECK_EQUAL(descriptors(), open_without_events + EVENTS);
    CHECK(pthread_barrier_destroy(&gate) == 0);
}

/* The machine's own kernel. */

/* Software events in the place of the hardware's: task clock, page faults, switches, migrations. */
TEST_IN_CHILD(a_group_of_the_machine)
{
    kernel.behaviour = SOFTWARE;
    size_t open_before = descriptors();
    cprof_counter_reading before = read_now(HARDWARE | CPU_TIME);
    if ((before.known & HARDWARE) == 0) {
        check_reason(CPROF_COUNTER_CYCLES, "(");
        CHECK_EQUAL(descriptors(), open_before);
        return;
    }
    touch_new_pages();
    cprof_counter_reading after = read_now(HARDWARE | CPU_TIME);
    cprof_counter_reading counted;
    cprof_counter_between(&before, &after, &counted);
    CHECK_EQUAL(counted.known, HARDWARE | CPU_TIME);
    CHECK(counted.values[FIRST] > 0);
    CHECK(counted.values[FIRST + 1] >= PAGES);
    CHECK_EQUAL(descriptors(), open_before + EVENTS);
    CHECK_EQUAL(known_in_another_thread(), HARDWARE | CPU_TIME);
    CHECK_EQUAL(descriptors(), open_before + EVENTS);
}

/* Whatever the machine has: a counter has a value, or a reason. */
TEST_IN_CHILD(the_counters_of_the_machine)
{
    kernel.behaviour = MACHINE;
    unsigned known = read_now(CPROF_COUNTER_ALL).known;
    for (cprof_counter counter = 0; counter < CPROF_COUNTER_COUNT; counter++) {
        char reason[ENOUGH];
        CHECK(cprof_counters_reason(counter, reason, sizeof reason) == ((known & CPROF_COUNTER_BIT(counter)) == 0));
        CHECK((strlen(reason) > 0) == ((known & CPROF_COUNTER_BIT(counter)) == 0));
    }
}

int main(int count, char **arguments)
{
    crowd = check_argument(count, arguments, 10000);
    check_run(NULL, NULL);
    return EXIT_SUCCESS;
}
