/* A fake libcupti: see fake_cupti.h.
 *
 * Every function has the same steps: begin() logs the call and says whether an ordered error is its answer, then it acts on the
 * model. Callbacks are called without the lock.
 */
#define _GNU_SOURCE
#include "tests/fakes/fake_cupti.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    MAX_NUMBERS = 1024,
    MAX_KINDS = 64,
    TEXT_SIZE = 120,
    LARGEST_RECORD = 216,
    DRIVER = 1,
    RUNTIME = 2,
    LAUNCH_RUNTIME = 211,
    LAUNCH_DRIVER = 307,
    UPLOAD_RUNTIME = 41,
    UPLOAD_DRIVER = 277,
    STREAM = 7,
};

enum {
    SUCCESS = 0,
    INVALID_PARAMETER = 1,
    MAX_LIMIT_REACHED = 12,
    INVALID_KIND = 21,
    MULTIPLE_SUBSCRIBERS = 39,
    UNKNOWN = 999,
};

enum { KIND_MEMCPY = 1, KIND_MEMSET = 2, KIND_KERNEL = 10, KIND_STRANGE = 17, KIND_PEER = 22 };

#define FAKE_CUPTI_FUNCTIONS(X)               \
    X(cuptiGetVersion)                        \
    X(cuptiGetResultString)                   \
    X(cuptiGetTimestamp)                      \
    X(cuptiSubscribe)                         \
    X(cuptiUnsubscribe)                       \
    X(cuptiEnableCallback)                    \
    X(cuptiActivityRegisterCallbacks)         \
    X(cuptiActivityEnable)                    \
    X(cuptiActivityDisable)                   \
    X(cuptiActivityFlushAll)                  \
    X(cuptiActivityGetNextRecord)             \
    X(cuptiActivityGetNumDroppedRecords)      \
    X(cuptiActivityRegisterTimestampCallback) \
    X(cuptiFinalize)

typedef enum {
#define FUNCTION_ENUM(name) FUNCTION_##name,
    FAKE_CUPTI_FUNCTIONS(FUNCTION_ENUM)
#undef FUNCTION_ENUM
        FUNCTION_COUNT
} function_index;

static const char *const function_names[] = {
#define FUNCTION_NAME(name) #name,
    FAKE_CUPTI_FUNCTIONS(FUNCTION_NAME)
#undef FUNCTION_NAME
};

typedef void (*call_function)(void *context, int domain, uint32_t number, const void *data);
typedef void (*request_function)(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void (*complete_function)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size);

/* Work of a device, as a record of CUPTI's. */
typedef struct work {
    uint8_t bytes[LARGEST_RECORD];
    size_t size;
    uint64_t end;
    char *name; /* owned; the record points to it until its buffer is given back */
    struct work *next;
} work;

static struct {
    uint64_t calls[FUNCTION_COUNT];
    uint64_t total;
    uint64_t fail_nth[FUNCTION_COUNT]; /* UINT64_MAX: every call */
    int fail_code[FUNCTION_COUNT];
    int broken;
    uint64_t version;
    bool is_held;
    bool is_virtual;
    bool uses_thread;
    int64_t now;
    int64_t offset, numerator, denominator;
    pid_t pid;
    bool is_subscribed;
    call_function callback;
    void *context;
    bool numbers[3][MAX_NUMBERS];
    bool kinds[MAX_KINDS];
    request_function request;
    complete_function complete;
    work *first;
    work *last;
    uint64_t dropped;
    int64_t correlation;
    uint64_t busy_until; /* a stamp */
    int64_t open_buffers;
    uint64_t violations;
    char violation[TEXT_SIZE];
} fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool is_in_callback;

static void violate_lock_held(const char *function, const char *how)
{
    fake.violations++;
    (void)snprintf(fake.violation, sizeof fake.violation, "%s %s", function, how);
}

/* Takes the lock. What is not 0 is the answer, and the lock is free again. */
static int begin(function_index function)
{
    (void)pthread_mutex_lock(&lock);
    fake.calls[function]++;
    fake.total++;
    if (fake.pid != getpid()) {
        violate_lock_held(function_names[function], "in a forked child");
    }
    if (is_in_callback && function != FUNCTION_cuptiActivityGetNextRecord) {
        violate_lock_held(function_names[function], "in a callback");
    }
    int code = fake.broken;
    if (fake.fail_nth[function] == UINT64_MAX || (fake.fail_nth[function] > 0 && --fake.fail_nth[function] == 0)) {
        code = fake.fail_code[function];
    }
    if (code != SUCCESS) {
        (void)pthread_mutex_unlock(&lock);
    }
    return code;
}

#define BEGIN(function)             \
    do {                            \
        int code = begin(function); \
        if (code != SUCCESS) {      \
            return code;            \
        }                           \
    } while (0)

static int end(int code)
{
    (void)pthread_mutex_unlock(&lock);
    return code;
}

static int64_t now_lock_held(void)
{
    struct timespec time;
    if (fake.is_virtual) {
        return fake.now;
    }
    (void)clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static uint64_t stamp_lock_held(int64_t ns)
{
    return (uint64_t)(fake.offset + (int64_t)((__int128)ns * fake.numerator / fake.denominator));
}

/* ---- CUPTI's functions ---- */

EXPORT int cuptiGetVersion(uint32_t *version)
{
    BEGIN(FUNCTION_cuptiGetVersion);
    *version = (uint32_t)fake.version;
    return end(SUCCESS);
}

EXPORT int cuptiGetResultString(int result, const char **text)
{
    BEGIN(FUNCTION_cuptiGetResultString);
    *text = result == MULTIPLE_SUBSCRIBERS ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_SOMETHING";
    return end(SUCCESS);
}

EXPORT int cuptiGetTimestamp(uint64_t *timestamp)
{
    BEGIN(FUNCTION_cuptiGetTimestamp);
    *timestamp = stamp_lock_held(now_lock_held());
    return end(SUCCESS);
}

EXPORT int cuptiSubscribe(void **subscriber, call_function callback, void *context)
{
    BEGIN(FUNCTION_cuptiSubscribe);
    if (fake.is_held || fake.is_subscribed) {
        return end(MULTIPLE_SUBSCRIBERS);
    }
    fake.is_subscribed = true;
    fake.callback = callback;
    fake.context = context;
    *subscriber = &fake;
    return end(SUCCESS);
}

EXPORT int cuptiUnsubscribe(void *subscriber)
{
    BEGIN(FUNCTION_cuptiUnsubscribe);
    if (subscriber != &fake || !fake.is_subscribed) {
        violate_lock_held("cuptiUnsubscribe", "without a subscriber");
    }
    fake.is_subscribed = false;
    memset(fake.numbers, 0, sizeof fake.numbers);
    return end(SUCCESS);
}

EXPORT int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t number)
{
    BEGIN(FUNCTION_cuptiEnableCallback);
    if (subscriber != &fake || !fake.is_subscribed) {
        violate_lock_held("cuptiEnableCallback", "without the subscriber");
    }
    fake.numbers[domain][number] = enable != 0;
    return end(SUCCESS);
}

EXPORT int cuptiActivityRegisterCallbacks(request_function request, complete_function complete)
{
    BEGIN(FUNCTION_cuptiActivityRegisterCallbacks);
    if (!fake.is_subscribed) {
        violate_lock_held("cuptiActivityRegisterCallbacks", "without the subscriber");
    }
    fake.request = request;
    fake.complete = complete;
    return end(SUCCESS);
}

static int set_kind(function_index function, int kind, bool is_on)
{
    BEGIN(function);
    if (!fake.is_subscribed || fake.kinds[kind] == is_on) {
        violate_lock_held(function_names[function], "out of turn");
    }
    fake.kinds[kind] = is_on;
    return end(SUCCESS);
}

EXPORT int cuptiActivityEnable(int kind)
{
    return set_kind(FUNCTION_cuptiActivityEnable, kind, true);
}

EXPORT int cuptiActivityDisable(int kind)
{
    return set_kind(FUNCTION_cuptiActivityDisable, kind, false);
}

/* The records that a flush hands over. */
static work *take_work_lock_held(bool forced)
{
    work *taken = NULL;
    work **end_of_taken = &taken;
    work **link = &fake.first;
    fake.last = NULL;
    uint64_t present = stamp_lock_held(now_lock_held());
    while (*link != NULL) {
        work *each = *link;
        if (each->end > present && !forced) {
            fake.last = each;
            link = &each->next;
            continue;
        }
        if (each->end > present) {
            memset(each->bytes + 16, 0, 2 * sizeof(uint64_t));
        }
        *link = each->next;
        each->next = NULL;
        *end_of_taken = each;
        end_of_taken = &each->next;
    }
    return taken;
}

typedef struct {
    uint8_t *buffer;
    size_t size;
    size_t valid;
} filled;

static void *hand_over(void *argument)
{
    const filled *full = argument;
    is_in_callback = true;
    fake.complete(NULL, 0, full->buffer, full->size, full->valid);
    is_in_callback = false;
    (void)pthread_mutex_lock(&lock);
    fake.open_buffers--;
    (void)pthread_mutex_unlock(&lock);
    return NULL;
}

static void give_back(filled *full)
{
    pthread_t thread;
    if (!fake.uses_thread) {
        (void)hand_over(full);
    } else if (pthread_create(&thread, NULL, hand_over, full) == 0) {
        (void)pthread_join(thread, NULL);
    }
}

/* A buffer, empty: of as much as the client gives. */
static bool ask_for_buffer(filled *full)
{
    size_t most_records = 0;
    *full = (filled){.buffer = NULL};
    is_in_callback = true;
    fake.request(&full->buffer, &full->size, &most_records);
    is_in_callback = false;
    (void)pthread_mutex_lock(&lock);
    fake.open_buffers += full->buffer != NULL;
    (void)pthread_mutex_unlock(&lock);
    return full->buffer != NULL;
}

static void forget_names(work *first)
{
    while (first != NULL) {
        work *next = first->next;
        if (first->name != NULL) {
            memset(first->name, '?', strlen(first->name));
        }
        free(first->name);
        free(first);
        first = next;
    }
}

static void deliver(work *first)
{
    filled full = {.buffer = NULL};
    for (work *each = first; each != NULL; each = each->next) {
        if (full.buffer != NULL && full.size - full.valid < each->size) {
            give_back(&full);
            full.buffer = NULL;
        }
        if (full.buffer == NULL && !ask_for_buffer(&full)) {
            (void)pthread_mutex_lock(&lock);
            fake.dropped++;
            (void)pthread_mutex_unlock(&lock);
            continue;
        }
        memcpy(full.buffer + full.valid, each->bytes, each->size);
        full.valid += each->size;
    }
    if (full.buffer != NULL) {
        give_back(&full);
    }
    forget_names(first);
}

EXPORT int cuptiActivityFlushAll(uint32_t flag)
{
    BEGIN(FUNCTION_cuptiActivityFlushAll);
    work *first = fake.complete != NULL ? take_work_lock_held(flag == 1) : NULL;
    (void)end(SUCCESS);
    deliver(first);
    return SUCCESS;
}

static size_t size_of(int kind)
{
    switch (kind) {
    case KIND_KERNEL:
        return fake.version < 130000 ? 160 : 216;
    case KIND_MEMCPY:
        return 96;
    case KIND_MEMSET:
        return 88;
    case KIND_PEER:
        return 112;
    default:
        return 24;
    }
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_size, void **record)
{
    BEGIN(FUNCTION_cuptiActivityGetNextRecord);
    uint8_t *next = buffer;
    if (*record != NULL) {
        int kind;
        memcpy(&kind, *record, sizeof kind);
        next = (uint8_t *)*record + size_of(kind);
    }
    if ((size_t)(next - buffer) >= valid_size) {
        return end(MAX_LIMIT_REACHED);
    }
    *record = next;
    return end(SUCCESS);
}

#ifndef FAKE_CUPTI_INCOMPLETE
EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context;
    (void)stream;
    BEGIN(FUNCTION_cuptiActivityGetNumDroppedRecords);
    *dropped = (size_t)fake.dropped;
    fake.dropped = 0;
    return end(SUCCESS);
}
#endif

EXPORT int cuptiActivityRegisterTimestampCallback(void *function)
{
    (void)function;
    (void)begin(FUNCTION_cuptiActivityRegisterTimestampCallback);
    violate_lock_held("cuptiActivityRegisterTimestampCallback", "changes the clock of all");
    return end(SUCCESS);
}

EXPORT int cuptiFinalize(void)
{
    (void)begin(FUNCTION_cuptiFinalize);
    violate_lock_held("cuptiFinalize", "is not safe");
    return end(SUCCESS);
}

/* ---- Controls ---- */

__attribute__((constructor)) EXPORT void fake_cupti_reset(void)
{
    (void)pthread_mutex_lock(&lock);
    forget_names(fake.first);
    memset(&fake, 0, sizeof fake);
    fake.version = 130000;
    fake.numerator = fake.denominator = 1;
    fake.pid = getpid();
    (void)pthread_mutex_unlock(&lock);
}

static function_index find_function(const char *name)
{
    int i = 0;
    while (i < FUNCTION_COUNT && strcmp(function_names[i], name) != 0) {
        i++;
    }
    return (function_index)i;
}

EXPORT void fake_cupti_fail(const char *function, int code, uint64_t nth)
{
    function_index index = find_function(function);
    if (index == FUNCTION_COUNT) {
        abort();
    }
    (void)pthread_mutex_lock(&lock);
    fake.fail_code[index] = code;
    fake.fail_nth[index] = nth == 0 ? UINT64_MAX : nth;
    (void)pthread_mutex_unlock(&lock);
}

#define ACT(name, parameters, ...)           \
    EXPORT void fake_cupti_##name parameters \
    {                                        \
        (void)pthread_mutex_lock(&lock);     \
        __VA_ARGS__;                         \
        (void)pthread_mutex_unlock(&lock);   \
    }

ACT(break, (int code), fake.broken = code)
ACT(set_version, (uint64_t version), fake.version = version)
ACT(hold, (int held), fake.is_held = held)
ACT(use_thread, (int other), fake.uses_thread = other)
ACT(drop, (uint64_t count), fake.dropped = count)
ACT(set_time, (int64_t ns), fake.is_virtual = true; fake.now = ns)
ACT(advance, (int64_t ns), fake.now += ns)
ACT(set_clock, (int64_t offset, int64_t numerator, int64_t denominator), fake.offset = offset; fake.numerator = numerator;
    fake.denominator = denominator)

#define GETTER(name, type, parameters, value) \
    EXPORT type fake_cupti_##name parameters  \
    {                                         \
        (void)pthread_mutex_lock(&lock);      \
        type found = (value);                 \
        (void)pthread_mutex_unlock(&lock);    \
        return found;                         \
    }

GETTER(now, int64_t, (void), now_lock_held())
GETTER(stamp, uint64_t, (int64_t ns), stamp_lock_held(ns))
GETTER(correlation, int64_t, (void), ++fake.correlation)
GETTER(wants_call, int, (int domain, int number), fake.is_subscribed &&fake.numbers[domain][number])
GETTER(wants_kind, int, (int kind), fake.kinds[kind])
GETTER(is_subscribed, int, (void), fake.is_subscribed)
GETTER(open_buffers, int64_t, (void), fake.open_buffers)
GETTER(total_calls, uint64_t, (void), fake.total)
GETTER(violations, uint64_t, (void), fake.violations)
GETTER(violation, const char *, (void), fake.violation)

static int tell(int domain, int number, int64_t correlation, int site)
{
    uint8_t data[72] = {0};
    uint32_t id = (uint32_t)correlation;
    memcpy(data, &site, sizeof site);
    memcpy(data + 64, &id, sizeof id);
    (void)pthread_mutex_lock(&lock);
    bool is_wanted = fake.is_subscribed && fake.numbers[domain][number];
    call_function callback = fake.callback;
    void *context = fake.context;
    (void)pthread_mutex_unlock(&lock);
    if (is_wanted) {
        is_in_callback = true;
        callback(context, domain, (uint32_t)number, data);
        is_in_callback = false;
    }
    return is_wanted;
}

EXPORT int fake_cupti_enter(int domain, int number, int64_t correlation)
{
    return tell(domain, number, correlation, 0);
}

EXPORT int fake_cupti_leave(int domain, int number, int64_t correlation)
{
    return tell(domain, number, correlation, 1);
}

static void put_32(work *made, size_t at, int64_t value)
{
    uint32_t small = (uint32_t)value;
    memcpy(made->bytes + at, &small, sizeof small);
}

static void put_64(work *made, size_t at, uint64_t value)
{
    memcpy(made->bytes + at, &value, sizeof value);
}

static work *new_work_lock_held(int kind, uint64_t start, uint64_t end_stamp)
{
    work *made = calloc(1, sizeof *made);
    if (made == NULL) {
        abort();
    }
    made->size = size_of(kind);
    made->end = end_stamp;
    put_32(made, 0, kind);
    if (made->size > 32) {
        put_64(made, 16, start);
        put_64(made, 24, end_stamp);
    }
    return made;
}

static void add_lock_held(work *made, int kind)
{
    if (kind != KIND_STRANGE && !fake.kinds[kind]) {
        forget_names(made);
        return;
    }
    *(fake.last != NULL ? &fake.last->next : &fake.first) = made;
    fake.last = made;
}

static void add_kernel_lock_held(const char *name, uint64_t start, uint64_t end_stamp, int device, int stream,
                                 int64_t correlation)
{
    work *made = new_work_lock_held(KIND_KERNEL, start, end_stamp);
    put_32(made, 40, device);
    put_32(made, 48, stream);
    put_32(made, 92, correlation);
    made->name = name != NULL ? strdup(name) : NULL;
    memcpy(made->bytes + 104, (void *)&made->name, sizeof made->name);
    add_lock_held(made, KIND_KERNEL);
}

/* A copy or a filling: how many bytes, and by which call, whose number is at a place of the kind's own. */
static work *new_transfer_lock_held(int kind, uint64_t bytes, uint64_t start, uint64_t end_stamp, size_t at,
                                    int64_t correlation)
{
    work *made = new_work_lock_held(kind, start, end_stamp);
    put_64(made, 8, bytes);
    put_32(made, 40, STREAM);
    put_32(made, at, correlation);
    return made;
}

static void add_copy_lock_held(int direction, int from, int to, uint64_t bytes, uint64_t start, uint64_t end_stamp,
                               int64_t correlation)
{
    work *made = new_transfer_lock_held(KIND_MEMCPY, bytes, start, end_stamp, 44, correlation);
    made->bytes[4] = (uint8_t)direction;
    made->bytes[5] = (uint8_t)from;
    made->bytes[6] = (uint8_t)to;
    add_lock_held(made, KIND_MEMCPY);
}

static void add_peer_copy_lock_held(uint64_t bytes, uint64_t start, uint64_t end_stamp, int64_t correlation)
{
    work *made = new_transfer_lock_held(KIND_PEER, bytes, start, end_stamp, 60, correlation);
    made->bytes[4] = 10;
    made->bytes[5] = made->bytes[6] = 3;
    put_32(made, 44, 9); /* where other copies have their correlation, these have a device */
    add_lock_held(made, KIND_PEER);
}

static void add_filling_lock_held(int memory, uint64_t bytes, uint64_t start, uint64_t end_stamp, int64_t correlation)
{
    work *made = new_transfer_lock_held(KIND_MEMSET, bytes, start, end_stamp, 44, correlation);
    made->bytes[50] = (uint8_t)memory;
    add_lock_held(made, KIND_MEMSET);
}

ACT(kernel, (const char *name, uint64_t start, uint64_t end, int device, int stream, int64_t correlation),
    add_kernel_lock_held(name, start, end, device, stream, correlation))
ACT(copy, (int direction, int from, int to, uint64_t bytes, uint64_t start, uint64_t end, int64_t correlation),
    add_copy_lock_held(direction, from, to, bytes, start, end, correlation))
ACT(peer_copy, (uint64_t bytes, uint64_t start, uint64_t end, int64_t correlation),
    add_peer_copy_lock_held(bytes, start, end, correlation))
ACT(fill, (int memory, uint64_t bytes, uint64_t start, uint64_t end, int64_t correlation),
    add_filling_lock_held(memory, bytes, start, end, correlation))
ACT(strange_record, (void), add_lock_held(new_work_lock_held(KIND_STRANGE, 0, 0), KIND_STRANGE))

/* A call of the runtime, and the driver's inside it, that gives work of some ns to the one stream: a kernel of a name, or
 * (NULL) a copy of some bytes. */
static int64_t call(int runtime_number, int driver_number, const char *kernel, uint64_t bytes, int64_t ns)
{
    int64_t correlation = fake_cupti_correlation();
    (void)fake_cupti_enter(RUNTIME, runtime_number, correlation);
    (void)fake_cupti_enter(DRIVER, driver_number, correlation);
    (void)pthread_mutex_lock(&lock);
    uint64_t present = stamp_lock_held(now_lock_held());
    uint64_t start = fake.busy_until > present ? fake.busy_until : present;
    fake.busy_until = start + (uint64_t)((__int128)ns * fake.numerator / fake.denominator);
    if (kernel != NULL) {
        add_kernel_lock_held(kernel, start, fake.busy_until, 0, STREAM, correlation);
    } else {
        add_copy_lock_held(1, 2, 3, bytes, start, fake.busy_until, correlation);
    }
    (void)pthread_mutex_unlock(&lock);
    (void)fake_cupti_leave(DRIVER, driver_number, correlation);
    (void)fake_cupti_leave(RUNTIME, runtime_number, correlation);
    return correlation;
}

EXPORT int64_t fake_cupti_launch(const char *name, int64_t ns)
{
    return call(LAUNCH_RUNTIME, LAUNCH_DRIVER, name, 0, ns);
}

EXPORT int64_t fake_cupti_upload(uint64_t bytes, int64_t ns)
{
    return call(UPLOAD_RUNTIME, UPLOAD_DRIVER, NULL, bytes, ns);
}

EXPORT uint64_t fake_cupti_calls(const char *function)
{
    function_index index = find_function(function);
    return index == FUNCTION_COUNT ? UINT64_MAX : fake.calls[index];
}
