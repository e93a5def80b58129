#define _GNU_SOURCE
#include "cprofiling/devices/counters_event.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/devices/counters_rdpmc.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    EVENTS = CPROF_COUNTER_COUNT - CPROF_COUNTER_CYCLES,
    HEADER = 3,           /* words before the values that read(2) gives: their number, and two times */
    RETRY_AFTER = 256,    /* readings without hardware events, once a thread had no descriptor or memory for them */
    PAGE_TRIES = 16,      /* the kernel changes a page seldom: more tries than two mean that something is wrong */
    LEAST_GAP_NS = 500000 /* events take turns for a millisecond at least; that they begin to count takes far less */
};

static const uint64_t configurations[EVENTS] = {PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS,
                                                PERF_COUNT_HW_BRANCH_MISSES, PERF_COUNT_HW_CACHE_MISSES};

typedef const volatile struct perf_event_mmap_page event_page;

typedef struct {
    int fd;
    unsigned event;
    event_page *page; /* NULL: read(2) it is */
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
    _Atomic unsigned accepted;   /* CPROF_COUNTER_BITs of those that any thread has opened */
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

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static int open_one(unsigned event, int leader)
{
    struct perf_event_attr attributes = {
        .type = PERF_TYPE_HARDWARE,
        .size = PERF_ATTR_SIZE_VER0, /* what every kernel accepts */
        .config = configurations[event],
        .read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
        .disabled = leader < 0, /* or those that join it later would count later */
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    return (int)syscall(SYS_perf_event_open, &attributes, 0L, -1L, (long)leader, PERF_FLAG_FD_CLOEXEC);
}

static event_page *map_page(int fd)
{
    if (!cprof_counters_rdpmc_exists()) {
        return NULL;
    }
    void *page = mmap(NULL, page_size(), PROT_READ, MAP_SHARED, fd, 0);
    return page != MAP_FAILED ? page : NULL;
}

static void close_group(group *owned)
{
    unsigned count = atomic_exchange(&owned->count, 0);
    for (unsigned i = 0; i < count; i++) {
        if (owned->events[i].page != NULL) {
            (void)munmap((void *)(uintptr_t)owned->events[i].page, page_size());
        }
        (void)close(owned->events[i].fd);
    }
}

/* Whether another thread, or a later attempt, would fare the same. */
static bool is_final(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
    case ENOENT:
    case ENODEV:
    case ENXIO:
    case EOPNOTSUPP:
    case ENOSYS:
    case EINVAL:
    case E2BIG:
        return true;
    default:
        return false;
    }
}

/* The first one to find out says why. */
static void refuse(unsigned event, int error)
{
    int none = 0;
    (void)atomic_compare_exchange_strong(&hardware.refused[event], &none, error);
    (void)atomic_fetch_or(&hardware.refusals, bit_of(event));
}

static void put_in(group *owned, unsigned count, unsigned event, int fd)
{
    owned->events[count] = (open_event){.fd = fd, .event = event, .page = map_page(fd)};
    atomic_store_explicit(&owned->count, count + 1, memory_order_release);
    (void)atomic_fetch_or(&hardware.accepted, bit_of(event));
}

/* 0 when the event is in the group, or refused for good; else an errno. */
static int add_event(group *owned, unsigned event)
{
    unsigned count = atomic_load_explicit(&owned->count, memory_order_relaxed);
    int fd = open_one(event, count > 0 ? owned->events[0].fd : -1);
    if (fd >= 0) {
        put_in(owned, count, event, fd);
        return 0;
    }
    int error = errno;
    if (!is_final(error)) {
        return error;
    }
    refuse(event, error);
    return 0;
}

static int start_group(const group *owned)
{
    if (atomic_load_explicit(&owned->count, memory_order_relaxed) == 0) {
        return ENOENT;
    }
    return ioctl(owned->events[0].fd, PERF_EVENT_IOC_ENABLE, 0) == 0 ? 0 : errno;
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
    error = error != 0 ? error : start_group(owned);
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

static bool take(group *candidate)
{
    return !atomic_load_explicit(&candidate->taken, memory_order_relaxed) && !atomic_exchange(&candidate->taken, true);
}

/* One that no thread uses; NULL without memory. */
static group *take_group(void)
{
    for (group *known = atomic_load(&hardware.first); known != NULL; known = known->next) {
        if (take(known)) {
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

static uint64_t sign_extended(uint64_t value, unsigned width)
{
    return (uint64_t)((int64_t)(value << (64 - width)) >> (64 - width));
}

/* The value of an event, and how long it has counted, if it has all the time, as of the page's last change. False: the
 * processor does not count it now, did not all the time, or may not be asked. */
static bool read_page(event_page *page, uint64_t *value, uint64_t *running_ns)
{
    for (int i = 0; page != NULL && i < PAGE_TRIES; i++) {
        uint32_t sequence = page->lock;
        atomic_signal_fence(memory_order_seq_cst);
        uint32_t index = page->index;
        unsigned width = page->pmc_width;
        if (page->cap_user_rdpmc == 0 || index == 0 || width == 0 || width > 64) {
            return false;
        }
        uint64_t gap_ns = page->time_enabled - page->time_running;
        *running_ns = page->time_running;
        *value = (uint64_t)page->offset + sign_extended(cprof_counters_rdpmc(index - 1), width);
        atomic_signal_fence(memory_order_seq_cst);
        if (page->lock == sequence) {
            return gap_ns < LEAST_GAP_NS;
        }
    }
    return false;
}

static void put_value(cprof_counters_reading *reading, unsigned wanted, unsigned event, uint64_t value)
{
    if ((wanted & bit_of(event)) != 0) {
        reading->values[CPROF_COUNTER_CYCLES + event] = value;
        reading->known |= bit_of(event);
    }
}

/* The times are the leader's, so that they fit those of read(2), and both the same, so that nothing is scaled between two such
 * readings: they may be old by then, while the values are not. */
static bool read_in_user_space(const group *owned, unsigned wanted, cprof_counters_reading *reading)
{
    unsigned count = atomic_load_explicit(&owned->count, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++) {
        uint64_t value, running_ns;
        if (i > 0 && (wanted & bit_of(owned->events[i].event)) == 0) {
            continue;
        }
        if (!read_page(owned->events[i].page, &value, &running_ns)) {
            reading->known &= ~CPROF_COUNTER_HARDWARE;
            return false;
        }
        put_value(reading, wanted, owned->events[i].event, value);
        if (i == 0) {
            reading->enabled_ns = reading->running_ns = running_ns;
        }
    }
    return true;
}

static void read_from_kernel(const group *owned, unsigned wanted, cprof_counters_reading *reading)
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
        put_value(reading, wanted, owned->events[i].event, words[HEADER + i]);
    }
}

void cprof_counters_event_read(unsigned wanted, cprof_counters_reading *reading)
{
    wanted &= CPROF_COUNTER_HARDWARE & ~atomic_load_explicit(&hardware.refusals, memory_order_relaxed);
    if (wanted != 0 && is_ready() && !read_in_user_space(self.group, wanted, reading)) {
        read_from_kernel(self.group, wanted, reading);
    }
}

int cprof_counters_event_refusal(cprof_counter counter)
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

bool cprof_counters_event_in_user_space(void)
{
    cprof_counters_reading reading = {.known = 0};
    return prepare() == 0 && read_in_user_space(self.group, CPROF_COUNTER_HARDWARE, &reading);
}

/* The pages are not unmapped: the kernel leaves them out of a child, and their place may be another's by now. */
void cprof_counters_event_after_fork_in_child(void)
{
    for (group *known = atomic_load(&hardware.first); known != NULL; known = known->next) {
        unsigned count = atomic_exchange(&known->count, 0);
        for (unsigned i = 0; i < count; i++) {
            (void)close(known->events[i].fd);
        }
        atomic_store(&known->taken, known == self.group);
    }
    self.pause = 0;
}
