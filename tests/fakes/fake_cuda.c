/* A fake CUDA driver: see fake_cuda.h.
 *
 * Every driver function has the same three steps: begin() logs the call and says whether an ordered error is its
 * answer, the middle acts on the model, end() answers. All of it happens under one lock, which only a held wait gives
 * up.
 *
 * To add a function: a line in FAKE_CUDA_FUNCTIONS, and its body at the end. What streams owe is `busy_until`: an event
 * would take that as its stamp, and be ready when the clock has passed it.
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
};

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
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

/* X(name, exported name) for each driver function, cuGetProcAddress_v2 apart. */
#define FAKE_CUDA_FUNCTIONS(X)                                 \
    X(cuInit, cuInit)                                          \
    X(cuGetErrorName, cuGetErrorName)                          \
    X(cuDeviceGet, cuDeviceGet)                                \
    X(cuCtxGetDevice, cuCtxGetDevice)                          \
    X(cuCtxPushCurrent, cuCtxPushCurrent_v2)                   \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2)                     \
    X(cuCtxSynchronize, cuCtxSynchronize)                      \
    X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState)  \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)      \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2) \
    X(cuStreamIsCapturing, cuStreamIsCapturing)

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
} fake_context;

typedef struct fake_stream {
    fake_context *context; /* NULL: the stream was destroyed with its context */
    bool non_blocking;
    capture_status capture;
    int64_t busy_until; /* ns on the virtual clock */
} fake_stream;

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
    return (*context)->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static void destroy_context(fake_context *context)
{
    context->alive = false;
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
    for (int device = 0; device < FAKE_CUDA_MAX_DEVICES; device++) {
        fake.primary[device] = (fake_context){.device = device, .primary = true};
        fake.own[device] = (fake_context){.device = device, .alive = true};
    }
}

/* The lock is taken over a fork, so that the child can ask the controls. */
__attribute__((constructor)) static void start(void)
{
    (void)pthread_atfork(lock_fake, unlock_fake, unlock_fake);
    reset_lock_held();
}

EXPORT void fake_reset(void)
{
    lock_fake();
    require(fake.held == 0, "reset while a thread waits");
    reset_lock_held();
    unlock_fake();
}

EXPORT int fake_is_old_driver(void)
{
#ifdef FAKE_CUDA_OLD_DRIVER
    return 1;
#else
    return 0;
#endif
}

EXPORT void fake_set_device_count(int count)
{
    require(count >= 1 && count <= FAKE_CUDA_MAX_DEVICES, "number of devices out of range");
    lock_fake();
    fake.device_count = count;
    unlock_fake();
}

EXPORT void fake_set_initialized(int initialized)
{
    lock_fake();
    fake.initialized = initialized != 0;
    unlock_fake();
}

EXPORT void fake_activate(int device)
{
    lock_fake();
    fake_context *context = primary_context(device);
    require(!context->alive, "the device is active already");
    context->alive = true;
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

EXPORT int fake_references(int device)
{
    lock_fake();
    int references = primary_context(device)->references;
    unlock_fake();
    return references;
}

EXPORT void fake_bind(int device)
{
    lock_fake();
    replace_current(device == -1 ? NULL : primary_context(device));
    unlock_fake();
}

EXPORT void fake_bind_own(int device)
{
    lock_fake();
    require(is_device(device), "no such device");
    replace_current(&fake.own[device]);
    unlock_fake();
}

EXPORT int fake_current_device(void)
{
    lock_fake();
    const fake_context *context = current_context();
    unlock_fake();
    return context == NULL ? -1 : context->device;
}

EXPORT int64_t fake_open_pushes(void)
{
    lock_fake();
    int64_t pushes = fake.open_pushes;
    unlock_fake();
    return pushes;
}

EXPORT uint64_t fake_new_stream(int device, int non_blocking)
{
    lock_fake();
    fake_context *context = primary_context(device);
    require(context->alive, "a stream needs an active device");
    require(fake.stream_count < FAKE_CUDA_MAX_STREAMS, "too many streams");
    fake_stream *stream = &fake.streams[fake.stream_count++];
    *stream = (fake_stream){.context = context, .non_blocking = non_blocking != 0};
    unlock_fake();
    return (uint64_t)(uintptr_t)stream;
}

EXPORT void fake_launch(uint64_t stream, int64_t ns)
{
    lock_fake();
    fake_stream *target = need_stream(stream);
    int64_t start = target->busy_until > fake.now ? target->busy_until : fake.now;
    target->busy_until = start + ns;
    unlock_fake();
}

EXPORT void fake_begin_capture(uint64_t stream)
{
    lock_fake();
    fake_stream *target = need_stream(stream);
    require(target->capture == CAPTURE_NONE, "the stream is being captured already");
    target->capture = CAPTURE_ACTIVE;
    unlock_fake();
}

EXPORT int fake_end_capture(uint64_t stream)
{
    lock_fake();
    fake_stream *target = need_stream(stream);
    require(target->capture != CAPTURE_NONE, "the stream is not being captured");
    bool good = target->capture == CAPTURE_ACTIVE;
    target->capture = CAPTURE_NONE;
    unlock_fake();
    return good;
}

EXPORT void fake_invalidate_capture(uint64_t stream)
{
    lock_fake();
    fake_stream *target = need_stream(stream);
    require(target->capture != CAPTURE_NONE, "the stream is not being captured");
    target->capture = CAPTURE_INVALIDATED;
    unlock_fake();
}

EXPORT int64_t fake_now(void)
{
    lock_fake();
    int64_t now = fake.now;
    unlock_fake();
    return now;
}

EXPORT void fake_advance(int64_t ns)
{
    require(ns >= 0, "the clock does not run backwards");
    lock_fake();
    fake.now += ns;
    unlock_fake();
}

EXPORT void fake_hold(int hold)
{
    lock_fake();
    fake.hold = hold != 0;
    (void)pthread_cond_broadcast(&fake.released);
    unlock_fake();
}

EXPORT int fake_held(void)
{
    lock_fake();
    int held = fake.held;
    unlock_fake();
    return held;
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

EXPORT void fake_break_driver(int code)
{
    lock_fake();
    fake.sticky_code = code;
    unlock_fake();
}

EXPORT uint64_t fake_calls(const char *function)
{
    function_index index = find_function(function);
    if (index == FUNCTION_COUNT) {
        return UINT64_MAX;
    }
    lock_fake();
    uint64_t calls = fake.functions[index].calls;
    unlock_fake();
    return calls;
}

EXPORT uint64_t fake_total_calls(void)
{
    lock_fake();
    uint64_t calls = fake.total_calls;
    unlock_fake();
    return calls;
}

EXPORT const char *fake_log(uint64_t index)
{
    lock_fake();
    bool logged = index < fake.total_calls && index < LOG_CAPACITY;
    const char *name = logged ? function_names[fake.log[index]] : NULL;
    unlock_fake();
    return name;
}

EXPORT uint64_t fake_violations(void)
{
    lock_fake();
    uint64_t count = fake.violation_count;
    unlock_fake();
    return count;
}

EXPORT const char *fake_violation(uint64_t index)
{
    lock_fake();
    const char *text = index < fake.violation_count && index < VIOLATION_CAPACITY ? fake.violations[index] : NULL;
    unlock_fake();
    return text;
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

/* Gives the lock back, and answers `code`. */
static int end(int code)
{
    unlock_fake();
    return code;
}

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
    int code = begin(FUNCTION_cuGetErrorName);
    *name = NULL;
    for (size_t i = 0; code == CUDA_SUCCESS && i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].code == error) {
            *name = errors[i].name;
        }
    }
    return end(code == CUDA_SUCCESS && *name == NULL ? CUDA_ERROR_INVALID_VALUE : code);
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
    int code = begin_on_device(FUNCTION_cuDeviceGet);
    if (code == CUDA_SUCCESS && !is_device(ordinal)) {
        code = CUDA_ERROR_INVALID_DEVICE;
    }
    if (code == CUDA_SUCCESS) {
        *device = ordinal;
    }
    return end(code);
}

EXPORT int cuCtxGetDevice(int *device)
{
    fake_context *context = NULL;
    int code = begin_on_device(FUNCTION_cuCtxGetDevice);
    if (code == CUDA_SUCCESS) {
        code = need_current_context(&context);
    }
    if (code == CUDA_SUCCESS) {
        *device = context->device;
    }
    return end(code);
}

EXPORT int cuCtxPushCurrent_v2(fake_context *context)
{
    int code = begin_on_device(FUNCTION_cuCtxPushCurrent);
    if (code == CUDA_SUCCESS) {
        forget_old_stack();
        require(stack.depth < STACK_CAPACITY, "too many contexts pushed");
        stack.contexts[stack.depth++] = context;
        fake.open_pushes++;
    }
    return end(code);
}

EXPORT int cuCtxPopCurrent_v2(fake_context **context)
{
    int code = begin_on_device(FUNCTION_cuCtxPopCurrent);
    if (code == CUDA_SUCCESS && current_context() == NULL) {
        violate(FUNCTION_cuCtxPopCurrent, "no context to pop");
        code = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (code == CUDA_SUCCESS) {
        *context = stack.contexts[--stack.depth];
        fake.open_pushes--;
    }
    return end(code);
}

EXPORT int cuCtxSynchronize(void)
{
    fake_context *context = NULL;
    int code = begin_on_device(FUNCTION_cuCtxSynchronize);
    if (code == CUDA_SUCCESS) {
        code = need_current_context(&context);
    }
    if (code == CUDA_SUCCESS && spoil_captures(context)) {
        violate(FUNCTION_cuCtxSynchronize, "invalidated a capture");
        code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (code == CUDA_SUCCESS) {
        wait_for_work(context);
    }
    return end(code);
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    int code = begin_on_device(FUNCTION_cuDevicePrimaryCtxGetState);
    if (code == CUDA_SUCCESS) {
        *flags = 0;
        *active = primary_context(device)->alive;
    }
    return end(code);
}

EXPORT int cuDevicePrimaryCtxRetain(fake_context **context, int device)
{
    int code = begin_on_device(FUNCTION_cuDevicePrimaryCtxRetain);
    if (code == CUDA_SUCCESS) {
        *context = primary_context(device);
        if (!(*context)->alive) {
            violate(FUNCTION_cuDevicePrimaryCtxRetain, "made a context");
        }
        (*context)->alive = true;
        (*context)->references++;
    }
    return end(code);
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
    int code = begin_on_device(FUNCTION_cuDevicePrimaryCtxRelease);
    fake_context *context = primary_context(device);
    if (code == CUDA_SUCCESS && context->references == 0) {
        violate(FUNCTION_cuDevicePrimaryCtxRelease, "no reference to release");
        code = CUDA_ERROR_INVALID_CONTEXT;
    }
    if (code == CUDA_SUCCESS && --context->references == 0) {
        destroy_context(context);
    }
    return end(code);
}

static int capture_of_legacy_stream(int *status)
{
    fake_context *context = NULL;
    int code = need_current_context(&context);
    if (code == CUDA_SUCCESS && blocking_capture_in(context)) {
        *status = CAPTURE_NONE; /* unspecified by contract: a reader must not trust it */
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    *status = CAPTURE_NONE;
    return code;
}

/* A stream is known in its own context only: stricter than the real driver may be. */
static int capture_of_stream(uint64_t handle, int *status)
{
    fake_context *context = NULL;
    int code = need_current_context(&context);
    const fake_stream *stream = find_stream(handle);
    if (code == CUDA_SUCCESS && stream == NULL) {
        violate(FUNCTION_cuStreamIsCapturing, "no such stream");
    }
    if (code == CUDA_SUCCESS && (stream == NULL || stream->context != context)) {
        code = CUDA_ERROR_INVALID_HANDLE;
    }
    if (code == CUDA_SUCCESS) {
        *status = (int)stream->capture;
    }
    return code;
}

EXPORT int cuStreamIsCapturing(void *stream, int *status)
{
    uint64_t handle = (uint64_t)(uintptr_t)stream;
    int code = begin_on_device(FUNCTION_cuStreamIsCapturing);
    if (code == CUDA_SUCCESS) {
        code = handle <= 1 ? capture_of_legacy_stream(status) : capture_of_stream(handle, status);
    }
    return end(code);
}

/* The first versions of these functions, which a real driver still exports for old programs. */
static int outdated(function_index function)
{
    lock_fake();
    violate(function, "an outdated version");
    return end(CUDA_ERROR_INVALID_VALUE);
}

EXPORT int cuCtxPushCurrent(fake_context *context)
{
    (void)context;
    return outdated(FUNCTION_cuCtxPushCurrent);
}

EXPORT int cuCtxPopCurrent(fake_context **context)
{
    (void)context;
    return outdated(FUNCTION_cuCtxPopCurrent);
}

EXPORT int cuDevicePrimaryCtxRelease(int device)
{
    (void)device;
    return outdated(FUNCTION_cuDevicePrimaryCtxRelease);
}

#ifndef FAKE_CUDA_OLD_DRIVER
EXPORT int cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status)
{
    static void *const addresses[] = {
#define FUNCTION_ADDRESS(base, exported) (void *)exported,
        FAKE_CUDA_FUNCTIONS(FUNCTION_ADDRESS)
#undef FUNCTION_ADDRESS
    };
    int code = begin(FUNCTION_cuGetProcAddress);
    (void)flags;
    *address = NULL;
    *status = SYMBOL_NOT_FOUND;
    function_index index = find_function(name);
    if (code == CUDA_SUCCESS && version >= 12000 && index < FUNCTION_cuGetProcAddress) {
        *address = addresses[index];
        *status = SYMBOL_FOUND;
    }
    return end(code);
}
#endif
