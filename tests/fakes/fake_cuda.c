/* A fake CUDA driver: see fake_cuda.h.
 *
 * Every driver function has the same three steps: begin() logs the call and says whether an ordered error is its
 * answer, the middle acts on the model, end() answers. All of it happens under one lock, which only a held wait gives
 * up.
 *
 * To add a function: a line in FAKE_CUDA_FUNCTIONS, and its body at the end. What streams owe is `busy_until`: an event
 * takes that as its stamp, and is ready when the clock has reached it.
 */
#define _GNU_SOURCE
#include "tests/fakes/fake_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    LOG_CAPACITY = 4096,
    VIOLATION_CAPACITY = 64,
    VIOLATION_SIZE = 120,
    STACK_CAPACITY = 16,
    EVENT_CAPACITY = 1 << 15,
    PROFILER_LOG_CAPACITY = 64,
};

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_CAPTURED_EVENT = 907,
};

enum {
    SYMBOL_FOUND = 0,
    SYMBOL_NOT_FOUND = 1,
};

typedef enum {
    CAPTURE_NONE = 0,
    CAPTURE_ACTIVE = 1,
    CAPTURE_INVALIDATED = 2,
} capture_status;

enum {
    MODE_GLOBAL = 0,
    MODE_RELAXED = 2,
};

/* X(name, exported name) for each driver function, cuGetProcAddress_v2 apart. */
#define FAKE_CUDA_COMMON_FUNCTIONS(X)                                       \
    X(cuInit, cuInit)                                                       \
    X(cuGetErrorName, cuGetErrorName)                                       \
    X(cuDeviceGet, cuDeviceGet)                                             \
    X(cuCtxGetDevice, cuCtxGetDevice)                                       \
    X(cuCtxGetCurrent, cuCtxGetCurrent)                                     \
    X(cuCtxPushCurrent, cuCtxPushCurrent_v2)                                \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2)                                  \
    X(cuCtxSynchronize, cuCtxSynchronize)                                   \
    X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState)               \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                   \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)              \
    X(cuStreamIsCapturing, cuStreamIsCapturing)                             \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode) \
    X(cuEventCreate, cuEventCreate)                                         \
    X(cuEventDestroy, cuEventDestroy_v2)                                    \
    X(cuEventRecord, cuEventRecord)                                         \
    X(cuEventQuery, cuEventQuery)                                           \
    X(cuEventElapsedTime, cuEventElapsedTime)                               \
    X(cuMemGetInfo, cuMemGetInfo_v2)                                        \
    X(cuProfilerStart, cuProfilerStart)                                     \
    X(cuProfilerStop, cuProfilerStop)

#ifdef FAKE_CUDA_OLD_DRIVER
#define FAKE_CUDA_FUNCTIONS(X) FAKE_CUDA_COMMON_FUNCTIONS(X)
#else
#define FAKE_CUDA_FUNCTIONS(X) FAKE_CUDA_COMMON_FUNCTIONS(X) X(cuCtxGetId, cuCtxGetId)
#endif

typedef enum {
#define FUNCTION_ENUM(name, exported) FUNCTION_##name,
    FAKE_CUDA_FUNCTIONS(FUNCTION_ENUM)
#undef FUNCTION_ENUM
        FUNCTION_cuGetProcAddress,
    FUNCTION_COUNT
} function_index;

static const char *const function_names[] = {
#define FUNCTION_NAME(name, exported) #name,
    FAKE_CUDA_FUNCTIONS(FUNCTION_NAME)
#undef FUNCTION_NAME
        "cuGetProcAddress",
};

typedef struct fake_context {
    int device;
    bool primary;
    bool alive;
    int references; /* of a primary one */
    uint64_t id;    /* of its present life */
    int sticky_code;
    int64_t busy_until; /* its legacy default stream */
} fake_context;

typedef struct fake_stream {
    fake_context *context; /* NULL: the stream was destroyed with its context */
    bool non_blocking;
    capture_status capture;
    int64_t busy_until; /* ns on the virtual clock */
} fake_stream;

typedef struct fake_event {
    fake_context *context; /* NULL: it went with its context */
    bool is_open;
    bool is_recorded;
    bool is_captured; /* recorded into a capture */
    int64_t stamp;    /* when the device passes it */
} fake_event;

typedef struct {
    uint64_t calls;
    uint64_t fail_at; /* the value of `calls` with which it fails; 0: never */
    int fail_code;
} function_state;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t released; /* signalled when `hold` ends */
    unsigned generation;     /* of resets */
    pid_t owner;
    bool initialized;
    int device_count;
    int sticky_code;
    int64_t now;
    int64_t open_pushes;
    bool hold;
    int held;
    fake_context primary[FAKE_CUDA_MAX_DEVICES];
    fake_context own[FAKE_CUDA_MAX_DEVICES];
    fake_stream streams[FAKE_CUDA_MAX_STREAMS];
    size_t stream_count;
    fake_event events[EVENT_CAPACITY];
    size_t event_count; /* that were ever open */
    size_t closed_events;
    int64_t open_events;
    bool is_time_odd;
    float odd_ms; /* the next time, then */
    int64_t event_limit;
    uint64_t last_id;
    bool hold_records;
    bool answers_for_foreign_streams;
    int64_t free_bytes[FAKE_CUDA_MAX_DEVICES];
    int64_t total_bytes[FAKE_CUDA_MAX_DEVICES];
    int profiler_log[PROFILER_LOG_CAPACITY];
    size_t profiler_calls;
    function_state functions[FUNCTION_COUNT];
    uint64_t total_calls;
    function_index log[LOG_CAPACITY];
    uint64_t violation_count;
    char violations[VIOLATION_CAPACITY][VIOLATION_SIZE];
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .released = PTHREAD_COND_INITIALIZER};

/* The calling thread's stack of contexts; the topmost is current. Void when it is of another generation. */
static _Thread_local struct {
    unsigned generation;
    size_t depth;
    fake_context *contexts[STACK_CAPACITY];
    int capture_mode;
} stack;

static void lock_fake(void)
{
    (void)pthread_mutex_lock(&fake.lock);
}

static void unlock_fake(void)
{
    (void)pthread_mutex_unlock(&fake.lock);
}

static void require(bool condition, const char *what)
{
    if (!condition) {
        (void)fprintf(stderr, "fake_cuda: misused: %s\n", what);
        abort();
    }
}

static void violate(function_index function, const char *what)
{
    if (fake.violation_count < VIOLATION_CAPACITY) {
        (void)snprintf(fake.violations[fake.violation_count], VIOLATION_SIZE, "%s: %s", function_names[function], what);
    }
    fake.violation_count++;
}

/* The model; all of it under the lock. */

static void forget_old_stack(void)
{
    if (stack.generation != fake.generation) {
        stack.generation = fake.generation;
        stack.depth = 0;
        stack.capture_mode = MODE_GLOBAL;
    }
}

static fake_context *current_context(void)
{
    forget_old_stack();
    return stack.depth == 0 ? NULL : stack.contexts[stack.depth - 1];
}

static void replace_current(fake_context *context)
{
    forget_old_stack();
    stack.depth -= stack.depth > 0;
    if (context != NULL) {
        stack.contexts[stack.depth++] = context;
    }
}

static bool is_device(int device)
{
    return device >= 0 && device < fake.device_count;
}

static fake_context *primary_context(int device)
{
    require(is_device(device), "no such device");
    return &fake.primary[device];
}

/* 0, and the current context; else the error that a function answers which needs one. */
static int need_current_context(fake_context **context)
{
    *context = current_context();
    if (*context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return (*context)->alive ? (*context)->sticky_code : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static void enliven(fake_context *context)
{
    context->alive = true;
    context->id = ++fake.last_id;
    context->sticky_code = 0;
    context->busy_until = 0;
}

static void destroy_context(fake_context *context)
{
    context->alive = false;
    for (size_t i = 0; i < fake.event_count; i++) {
        if (fake.events[i].is_open && fake.events[i].context == context) {
            fake.events[i].context = NULL;
            fake.open_events--;
        }
    }
    for (size_t i = 0; i < fake.stream_count; i++) {
        if (fake.streams[i].context == context) {
            fake.streams[i].context = NULL;
        }
    }
}

/* NULL when the handle is not that of a living stream. */
static fake_stream *find_stream(uint64_t handle)
{
    for (size_t i = 0; i < fake.stream_count; i++) {
        if ((uint64_t)(uintptr_t)&fake.streams[i] == handle && fake.streams[i].context != NULL) {
            return &fake.streams[i];
        }
    }
    return NULL;
}

static fake_stream *need_stream(uint64_t handle)
{
    fake_stream *stream = find_stream(handle);
    require(stream != NULL, "no such stream");
    return stream;
}

static bool blocking_capture_in(const fake_context *context)
{
    for (size_t i = 0; i < fake.stream_count; i++) {
        const fake_stream *stream = &fake.streams[i];
        if (stream->context == context && !stream->non_blocking && stream->capture != CAPTURE_NONE) {
            return true;
        }
    }
    return false;
}

/* Whether a wait for the context is illegal; it invalidates the captures if so. */
static bool spoil_captures(const fake_context *context)
{
    bool spoilt = false;
    for (size_t i = 0; i < fake.stream_count; i++) {
        fake_stream *stream = &fake.streams[i];
        if (stream->context == context && stream->capture != CAPTURE_NONE) {
            stream->capture = CAPTURE_INVALIDATED;
            spoilt = true;
        }
    }
    return spoilt;
}

/* The time at which work given to the stream now would begin; NULL: the legacy default stream of the context, which waits for
 * the blocking ones. */
static int64_t free_from(const fake_context *context, const fake_stream *stream)
{
    int64_t from = fake.now;
    if (stream != NULL) {
        return stream->busy_until > from ? stream->busy_until : from;
    }
    from = context->busy_until > from ? context->busy_until : from;
    for (size_t i = 0; i < fake.stream_count; i++) {
        const fake_stream *other = &fake.streams[i];
        if (other->context == context && !other->non_blocking && other->busy_until > from) {
            from = other->busy_until;
        }
    }
    return from;
}

/* NULL, and a broken rule, when the handle was never that of an event, or that of one destroyed. */
static fake_event *find_event(function_index function, fake_event *handle)
{
    if (handle < fake.events || handle >= fake.events + fake.event_count || !handle->is_open) {
        violate(function, "no such event");
        return NULL;
    }
    return handle;
}

/* 0 when the event may be used. */
static int event_fault(const fake_event *event)
{
    if (event == NULL || event->context == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return event->context->sticky_code;
}

static void wait_while_held(void)
{
    fake.held++;
    while (fake.hold) {
        (void)pthread_cond_wait(&fake.released, &fake.lock);
    }
    fake.held--;
}

static void wait_for_work(const fake_context *context)
{
    wait_while_held();
    for (size_t i = 0; i < fake.stream_count; i++) {
        const fake_stream *stream = &fake.streams[i];
        if (stream->context == context && stream->busy_until > fake.now) {
            fake.now = stream->busy_until;
        }
    }
}

/* The controls. */

static void reset_lock_held(void)
{
    fake.generation++;
    fake.owner = getpid();
    fake.initialized = true;
    fake.device_count = 2;
    fake.sticky_code = 0;
    fake.now = 0;
    fake.open_pushes = 0;
    fake.hold = false;
    fake.stream_count = 0;
    fake.total_calls = 0;
    fake.violation_count = 0;
    memset(fake.functions, 0, sizeof fake.functions);
    fake.event_count = 0;
    fake.closed_events = 0;
    fake.is_time_odd = false;
    fake.open_events = 0;
    fake.event_limit = EVENT_CAPACITY;
    fake.last_id = 0;
    fake.hold_records = false;
    fake.answers_for_foreign_streams = false;
    fake.profiler_calls = 0;
    for (int device = 0; device < FAKE_CUDA_MAX_DEVICES; device++) {
        fake.primary[device] = (fake_context){.device = device, .primary = true};
        fake.own[device] = (fake_context){.device = device};
        enliven(&fake.own[device]);
        fake.free_bytes[device] = INT64_C(60) << 30;
        fake.total_bytes[device] = INT64_C(80) << 30;
    }
}

/* The lock is taken over a fork, so that the child can ask the controls. */
__attribute__((constructor)) static void start(void)
{
    (void)pthread_atfork(lock_fake, unlock_fake, unlock_fake);
    reset_lock_held();
}

/* A control that answers, and one that acts, both under the lock. */
#define ANSWER(type, control, parameters, value) \
    EXPORT type fake_##control parameters        \
    {                                            \
        lock_fake();                             \
        type found = (value);                    \
        unlock_fake();                           \
        return found;                            \
    }
#define ACT(control, parameters, ...)                 \
    EXPORT void fake_##control parameters             \
    {                                                 \
        lock_fake();                                  \
        __VA_ARGS__;                                  \
        (void)pthread_cond_broadcast(&fake.released); \
        unlock_fake();                                \
    }

static const fake_context *current_or_none(void)
{
    static const fake_context none = {.device = -1};
    const fake_context *context = current_context();
    return context == NULL ? &none : context;
}

static int capture_mode(void)
{
    forget_old_stack();
    return stack.capture_mode;
}

static fake_stream *stream_in_capture(uint64_t handle)
{
    fake_stream *stream = need_stream(handle);
    require(stream->capture != CAPTURE_NONE, "the stream is not being captured");
    return stream;
}

static int end_capture(fake_stream *stream)
{
    bool is_good = stream->capture == CAPTURE_ACTIVE;
    stream->capture = CAPTURE_NONE;
    return is_good;
}

static uint64_t new_stream(fake_context *context, bool non_blocking)
{
    require(context->alive, "a stream needs an active device");
    require(fake.stream_count < FAKE_CUDA_MAX_STREAMS, "too many streams");
    fake_stream *stream = &fake.streams[fake.stream_count++];
    *stream = (fake_stream){.context = context, .non_blocking = non_blocking};
    return (uint64_t)(uintptr_t)stream;
}

static fake_context *own_context(int device)
{
    require(is_device(device), "no such device");
    return &fake.own[device];
}

/* FUNCTION_COUNT when there is none of that name. */
static function_index find_function(const char *name)
{
    int index = 0;
    while (index < FUNCTION_COUNT && strcmp(function_names[index], name) != 0) {
        index++;
    }
    return (function_index)index;
}

ANSWER(int64_t, open_pushes, (void), fake.open_pushes)
ANSWER(int64_t, open_events, (void), fake.open_events)
ANSWER(int64_t, now, (void), fake.now)
ANSWER(int, held, (void), fake.held)
ANSWER(uint64_t, total_calls, (void), fake.total_calls)
ANSWER(uint64_t, violations, (void), fake.violation_count)
ANSWER(int, references, (int device), primary_context(device)->references)
ANSWER(int, current_device, (void), current_or_none()->device)
ANSWER(int, capture_mode, (void), capture_mode())
ANSWER(int, end_capture, (uint64_t stream), end_capture(stream_in_capture(stream)))
ANSWER(uint64_t, new_stream, (int device, int non_blocking), new_stream(primary_context(device), non_blocking != 0))
ANSWER(int, profiler_log, (uint64_t index),
       index < fake.profiler_calls && index < PROFILER_LOG_CAPACITY ? fake.profiler_log[index] : -1)
ANSWER(const char *, log, (uint64_t index),
       index < fake.total_calls && index < LOG_CAPACITY ? function_names[fake.log[index]] : NULL)
ANSWER(const char *, violation, (uint64_t index),
       index < fake.violation_count && index < VIOLATION_CAPACITY ? fake.violations[index] : NULL)

ACT(reset, (void), require(fake.held == 0, "reset while a thread waits"); reset_lock_held())
ACT(set_initialized, (int initialized), fake.initialized = initialized != 0)
ACT(set_event_limit, (int64_t limit), fake.event_limit = limit)
ACT(answer_for_foreign_streams, (int answers), fake.answers_for_foreign_streams = answers != 0)
ACT(break_driver, (int code), fake.sticky_code = code)
ACT(break_context, (int device, int code), primary_context(device)->sticky_code = code)
ACT(hold, (int hold), fake.hold = hold != 0)
ACT(hold_records, (int hold), fake.hold_records = hold != 0)
ACT(bind, (int device), replace_current(device == -1 ? NULL : primary_context(device)))
ACT(bind_own, (int device), replace_current(own_context(device)))
ACT(destroy_own, (int device), destroy_context(own_context(device)))
ACT(create_own, (int device), require(!own_context(device)->alive, "there is such a context"); enliven(own_context(device)))
ACT(destroy_stream, (uint64_t stream), need_stream(stream)->context = NULL)
ACT(begin_capture, (uint64_t stream),
    require(need_stream(stream)->capture == CAPTURE_NONE, "the stream is being captured already");
    need_stream(stream)->capture = CAPTURE_ACTIVE)
ACT(invalidate_capture, (uint64_t stream), stream_in_capture(stream)->capture = CAPTURE_INVALIDATED)
ACT(next_elapsed, (const char *ms), fake.is_time_odd = true; fake.odd_ms = strtof(ms, NULL))
ACT(advance, (int64_t ns), require(ns >= 0, "the clock does not run backwards"); fake.now += ns)
ACT(set_device_count, (int count), require(count >= 1 && count <= FAKE_CUDA_MAX_DEVICES, "number of devices out of range");
    fake.device_count = count)
ACT(set_memory, (int device, int64_t free_bytes, int64_t total_bytes), require(is_device(device), "no such device");
    fake.free_bytes[device] = free_bytes; fake.total_bytes[device] = total_bytes)

EXPORT int fake_is_old_driver(void)
{
#ifdef FAKE_CUDA_OLD_DRIVER
    return 1;
#else
    return 0;
#endif
}

EXPORT void fake_activate(int device)
{
    lock_fake();
    fake_context *context = primary_context(device);
    require(!context->alive, "the device is active already");
    enliven(context);
    context->references++;
    unlock_fake();
}

EXPORT void fake_device_reset(int device)
{
    lock_fake();
    fake_context *context = primary_context(device);
    require(context->alive, "the device is not active");
    destroy_context(context);
    context->references--;
    unlock_fake();
}

EXPORT void fake_launch(uint64_t stream, int64_t ns)
{
    lock_fake();
    fake_stream *target = need_stream(stream);
    target->busy_until = free_from(target->context, target) + ns;
    unlock_fake();
}

EXPORT void fake_launch_default(int device, int64_t ns)
{
    lock_fake();
    fake_context *context = device == -1 ? current_context() : primary_context(device);
    require(context != NULL && context->alive, "there is no such context");
    context->busy_until = free_from(context, NULL) + ns;
    unlock_fake();
}

EXPORT void fake_fail(const char *function, int code, uint64_t nth)
{
    function_index index = find_function(function);
    require(index < FUNCTION_COUNT, "no such function");
    require(nth > 0, "calls are counted from 1");
    lock_fake();
    fake.functions[index].fail_code = code;
    fake.functions[index].fail_at = fake.functions[index].calls + nth;
    unlock_fake();
}

EXPORT uint64_t fake_calls(const char *function)
{
    function_index index = find_function(function);
    lock_fake();
    uint64_t calls = index == FUNCTION_COUNT ? UINT64_MAX : fake.functions[index].calls;
    unlock_fake();
    return calls;
}

/* The driver. */

/* Takes the lock. 0 when the function is to act; else what it is to answer. */
static int begin(function_index function)
{
    lock_fake();
    function_state *state = &fake.functions[function];
    if (fake.total_calls < LOG_CAPACITY) {
        fake.log[fake.total_calls] = function;
    }
    fake.total_calls++;
    state->calls++;
    if (getpid() != fake.owner) {
        violate(function, "called in a forked child");
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    return state->calls == state->fail_at ? state->fail_code : CUDA_SUCCESS;
}

/* The same for a function that needs the driver initialised and its devices sound. */
static int begin_on_device(function_index function)
{
    int code = begin(function);
    if (code == CUDA_SUCCESS && !fake.initialized) {
        code = CUDA_ERROR_NOT_INITIALIZED;
    }
    return code == CUDA_SUCCESS ? fake.sticky_code : code;
}

/* The same for a function that needs a current context, too. */
static int begin_in_context(function_index function, fake_context **context)
{
    int code = begin_on_device(function);
    return code == CUDA_SUCCESS ? need_current_context(context) : code;
}

/* Gives the lock back, and answers `code`. */
static int end(int code)
{
    unlock_fake();
    return code;
}

/* Ends the function where a step of it answers an error. */
#define TRY(step)                     \
    do {                              \
        int answer = (step);          \
        if (answer != CUDA_SUCCESS) { \
            return end(answer);       \
        }                             \
    } while (0)

EXPORT int cuInit(unsigned flags)
{
    int code = begin(FUNCTION_cuInit);
    violate(FUNCTION_cuInit, "left to the user's program");
    fake.initialized = true;
    return end(code == CUDA_SUCCESS && flags != 0 ? CUDA_ERROR_INVALID_VALUE : code);
}

EXPORT int cuGetErrorName(int error, const char **name)
{
    static const struct {
        int code;
        const char *name;
    } errors[] = {
        {2, "CUDA_ERROR_OUT_OF_MEMORY"},     {34, "CUDA_ERROR_STUB_LIBRARY"},   {400, "CUDA_ERROR_INVALID_HANDLE"},
        {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}, {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    };
    *name = NULL;
    TRY(begin(FUNCTION_cuGetErrorName));
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].code == error) {
            *name = errors[i].name;
        }
    }
    return end(*name == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
    TRY(begin_on_device(FUNCTION_cuDeviceGet));
    TRY(is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return end(CUDA_SUCCESS);
}

EXPORT int cuCtxGetDevice(int *device)
{
    fake_context *context = NULL;
    TRY(begin_in_context(FUNCTION_cuCtxGetDevice, &context));
    *device = context->device;
    return end(CUDA_SUCCESS);
}

EXPORT int cuCtxPushCurrent_v2(fake_context *context)
{
    TRY(begin_on_device(FUNCTION_cuCtxPushCurrent));
    forget_old_stack();
    require(stack.depth < STACK_CAPACITY, "too many contexts pushed");
    stack.contexts[stack.depth++] = context;
    fake.open_pushes++;
    return end(CUDA_SUCCESS);
}

EXPORT int cuCtxPopCurrent_v2(fake_context **context)
{
    TRY(begin_on_device(FUNCTION_cuCtxPopCurrent));
    if (current_context() == NULL) {
        violate(FUNCTION_cuCtxPopCurrent, "no context to pop");
        return end(CUDA_ERROR_INVALID_CONTEXT);
    }
    *context = stack.contexts[--stack.depth];
    fake.open_pushes--;
    return end(CUDA_SUCCESS);
}

EXPORT int cuCtxSynchronize(void)
{
    fake_context *context = NULL;
    TRY(begin_in_context(FUNCTION_cuCtxSynchronize, &context));
    if (spoil_captures(context)) {
        violate(FUNCTION_cuCtxSynchronize, "invalidated a capture");
        return end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    wait_for_work(context);
    return end(CUDA_SUCCESS);
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    TRY(begin_on_device(FUNCTION_cuDevicePrimaryCtxGetState));
    *flags = 0;
    *active = primary_context(device)->alive;
    return end(CUDA_SUCCESS);
}

EXPORT int cuDevicePrimaryCtxRetain(fake_context **context, int device)
{
    TRY(begin_on_device(FUNCTION_cuDevicePrimaryCtxRetain));
    *context = primary_context(device);
    if (!(*context)->alive) {
        violate(FUNCTION_cuDevicePrimaryCtxRetain, "made a context");
    }
    if ((*context)->references++ == 0) {
        enliven(*context);
    }
    return end(CUDA_SUCCESS);
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
    TRY(begin_on_device(FUNCTION_cuDevicePrimaryCtxRelease));
    fake_context *context = primary_context(device);
    if (context->references == 0) {
        violate(FUNCTION_cuDevicePrimaryCtxRelease, "no reference to release");
        return end(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (--context->references == 0) {
        destroy_context(context);
    }
    return end(CUDA_SUCCESS);
}

/* A stream is known in its own context only, unless fake_answer_for_foreign_streams() says so: drivers may do either. */
EXPORT int cuStreamIsCapturing(void *handle, int *status)
{
    fake_context *context = NULL;
    TRY(begin_on_device(FUNCTION_cuStreamIsCapturing));
    if ((uintptr_t)handle <= 1) {
        *status = CAPTURE_NONE; /* where a capture runs it is unspecified: a reader must not trust it */
        TRY(need_current_context(&context));
        return end(blocking_capture_in(context) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS);
    }
    TRY(need_current_context(&context));
    const fake_stream *stream = find_stream((uintptr_t)handle);
    if (stream == NULL) {
        violate(FUNCTION_cuStreamIsCapturing, "no such stream");
        return end(CUDA_ERROR_INVALID_HANDLE);
    }
    TRY(stream->context == context || fake.answers_for_foreign_streams ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
    *status = (int)stream->capture;
    return end(CUDA_SUCCESS);
}

EXPORT int cuCtxGetCurrent(fake_context **context)
{
    TRY(begin_on_device(FUNCTION_cuCtxGetCurrent));
    *context = current_context();
    return end(CUDA_SUCCESS);
}

#ifndef FAKE_CUDA_OLD_DRIVER
/* The given context, as ids are of other contexts than the current one, too. */
EXPORT int cuCtxGetId(fake_context *context, unsigned long long *id)
{
    TRY(begin_on_device(FUNCTION_cuCtxGetId));
    TRY(context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED);
    *id = context->id;
    return end(CUDA_SUCCESS);
}
#endif

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
    TRY(begin_on_device(FUNCTION_cuThreadExchangeStreamCaptureMode));
    TRY(*mode < MODE_GLOBAL || *mode > MODE_RELAXED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
    int before = capture_mode();
    stack.capture_mode = *mode;
    *mode = before;
    return end(CUDA_SUCCESS);
}

static fake_event *new_event(fake_context *context)
{
    size_t index = fake.closed_events > 0 ? 0 : fake.event_count;
    while (index < fake.event_count && fake.events[index].is_open) {
        index++;
    }
    require(index < EVENT_CAPACITY, "too many events");
    fake.closed_events -= index < fake.event_count;
    fake.event_count += index == fake.event_count;
    fake.events[index] = (fake_event){.context = context, .is_open = true};
    fake.open_events++;
    return &fake.events[index];
}

EXPORT int cuEventCreate(fake_event **event, unsigned flags)
{
    fake_context *context = NULL;
    TRY(begin_on_device(FUNCTION_cuEventCreate));
    if (flags != 0) {
        violate(FUNCTION_cuEventCreate, "an event without times, or of another kind");
    }
    TRY(need_current_context(&context));
    TRY(fake.open_events >= fake.event_limit ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
    *event = new_event(context);
    return end(CUDA_SUCCESS);
}

EXPORT int cuEventDestroy_v2(fake_event *handle)
{
    TRY(begin_on_device(FUNCTION_cuEventDestroy));
    fake_event *event = find_event(FUNCTION_cuEventDestroy, handle);
    TRY(event_fault(event));
    event->is_open = false;
    fake.closed_events++;
    fake.open_events--;
    return end(CUDA_SUCCESS);
}

EXPORT int cuEventRecord(fake_event *handle, void *stream_handle)
{
    int code = begin_on_device(FUNCTION_cuEventRecord);
    fake_event *event = find_event(FUNCTION_cuEventRecord, handle);
    bool was_held = fake.hold_records;
    fake.held += was_held;
    while (fake.hold_records) {
        (void)pthread_cond_wait(&fake.released, &fake.lock);
    }
    fake.held -= was_held;
    TRY(code);
    TRY(event_fault(event));
    fake_context *context = NULL;
    const fake_stream *stream = NULL;
    if ((uintptr_t)stream_handle <= 1) {
        TRY(need_current_context(&context));
    } else {
        stream = find_stream((uintptr_t)stream_handle);
        context = stream != NULL ? stream->context : NULL;
    }
    TRY(context != event->context ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS);
    event->is_captured = stream != NULL ? stream->capture != CAPTURE_NONE : blocking_capture_in(context);
    event->is_recorded = true;
    event->stamp = free_from(context, stream);
    if (event->is_captured) {
        violate(FUNCTION_cuEventRecord, "into a capture");
    }
    return end(event->is_captured && stream == NULL ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS);
}

/* Queries are banned while a stream that could have been asked is being captured, and, for threads of any mode but the relaxed
 * one, while any is. */
static int banned_by_capture(function_index function, const fake_context *context)
{
    bool is_visible = blocking_capture_in(context);
    if ((is_visible || capture_mode() != MODE_RELAXED) && spoil_captures(context)) {
        violate(function, "invalidated a capture");
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}

static int query(const fake_event *event)
{
    if (event->is_captured) {
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    return event->is_recorded && event->stamp > fake.now ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

EXPORT int cuEventQuery(fake_event *handle)
{
    TRY(begin_on_device(FUNCTION_cuEventQuery));
    const fake_event *event = find_event(FUNCTION_cuEventQuery, handle);
    TRY(event_fault(event));
    TRY(banned_by_capture(FUNCTION_cuEventQuery, event->context));
    return end(query(event));
}

EXPORT int cuEventElapsedTime(float *ms, fake_event *first_handle, fake_event *last_handle)
{
    TRY(begin_on_device(FUNCTION_cuEventElapsedTime));
    const fake_event *first = find_event(FUNCTION_cuEventElapsedTime, first_handle);
    const fake_event *last = find_event(FUNCTION_cuEventElapsedTime, last_handle);
    TRY(event_fault(first));
    TRY(event_fault(last));
    bool is_pair = first->context == last->context && first->is_recorded && last->is_recorded;
    TRY(is_pair ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
    TRY(query(first));
    TRY(query(last));
    *ms = fake.is_time_odd ? fake.odd_ms : (float)((double)(last->stamp - first->stamp) / 1e6);
    fake.is_time_odd = false;
    return end(CUDA_SUCCESS);
}

EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    fake_context *context = NULL;
    TRY(begin_in_context(FUNCTION_cuMemGetInfo, &context));
    TRY(banned_by_capture(FUNCTION_cuMemGetInfo, context));
    *free_bytes = (size_t)fake.free_bytes[context->device];
    *total_bytes = (size_t)fake.total_bytes[context->device];
    return end(CUDA_SUCCESS);
}

static int control_profiler(function_index function, int what)
{
    fake_context *context = NULL;
    TRY(begin_in_context(function, &context));
    if (fake.profiler_calls < PROFILER_LOG_CAPACITY) {
        fake.profiler_log[fake.profiler_calls] = what;
    }
    fake.profiler_calls++;
    return end(CUDA_SUCCESS);
}

EXPORT int cuProfilerStart(void)
{
    return control_profiler(FUNCTION_cuProfilerStart, 1);
}

EXPORT int cuProfilerStop(void)
{
    return control_profiler(FUNCTION_cuProfilerStop, 0);
}

/* The first versions of these functions, which a real driver still exports for old programs. */
#define OUTDATED(function)                                   \
    EXPORT int function(void)                                \
    {                                                        \
        lock_fake();                                         \
        violate(FUNCTION_##function, "an outdated version"); \
        return end(CUDA_ERROR_INVALID_VALUE);                \
    }
OUTDATED(cuCtxPushCurrent)
OUTDATED(cuCtxPopCurrent)
OUTDATED(cuDevicePrimaryCtxRelease)
OUTDATED(cuEventDestroy)
OUTDATED(cuMemGetInfo)

#ifndef FAKE_CUDA_OLD_DRIVER
EXPORT int cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status)
{
    static void *const addresses[] = {
#define FUNCTION_ADDRESS(base, exported) (void *)exported,
        FAKE_CUDA_FUNCTIONS(FUNCTION_ADDRESS)
#undef FUNCTION_ADDRESS
    };
    (void)flags;
    *address = NULL;
    *status = SYMBOL_NOT_FOUND;
    TRY(begin(FUNCTION_cuGetProcAddress));
    function_index index = find_function(name);
    if (version >= 12000 && index < FUNCTION_cuGetProcAddress) {
        *address = addresses[index];
        *status = SYMBOL_FOUND;
    }
    return end(CUDA_SUCCESS);
}
#endif
