#define _GNU_SOURCE
#include "cprofiling/gpu.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"
#define LIBRARY_VARIABLE "CPROFILING_LIBCUDA"

enum {
    SEARCH_PERIOD_NS = 100 * 1000 * 1000,
    ABI_VERSION = 12000,        /* of the functions asked for by name: CUDA 12.0 */
    LEGACY_STREAM_VARIANTS = 1, /* flag of cuGetProcAddress: not the per-thread-default-stream ones */
    LEGACY_STREAM = 1,          /* CU_STREAM_LEGACY: the default stream, by its explicit handle */
    REASON_SIZE = 160,
};

/* The driver's ABI, as far as it is used here; the numbers are the same in every version. */
typedef int cu_result;
typedef int cu_device;
typedef struct cu_context_opaque *cu_context;
typedef struct cu_stream_opaque *cu_stream;
typedef cu_result (*cu_get_proc_address)(const char *name, void **address, int abi_version, uint64_t flags, int *status);

enum {
    CU_SUCCESS = 0,
    CU_NOT_INITIALIZED = 3,
    CU_DEINITIALIZED = 4,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_CONTEXT = 201,
    CU_CONTEXT_IS_DESTROYED = 709,
    CU_FIRST_CAPTURE_ERROR = 900,
    CU_LAST_CAPTURE_ERROR = 908,
};

enum { CU_CAPTURE_NONE = 0 };

typedef struct {
    cu_result (*get_error_name)(cu_result code, const char **name);
    cu_result (*device_get)(cu_device *device, int ordinal);
    cu_result (*ctx_get_device)(cu_device *device);
    cu_result (*ctx_push_current)(cu_context context);
    cu_result (*ctx_pop_current)(cu_context *context);
    cu_result (*ctx_synchronize)(void);
    cu_result (*primary_ctx_get_state)(cu_device device, unsigned *flags, int *active);
    cu_result (*primary_ctx_retain)(cu_context *context, cu_device device);
    cu_result (*primary_ctx_release)(cu_device device);
    cu_result (*stream_is_capturing)(cu_stream stream, int *status);
} driver_functions;

static const struct {
    const char *name;        /* for cuGetProcAddress, which finds the right version */
    const char *export_name; /* for dlsym, with the version in it */
    size_t offset;
} driver_symbols[] = {
    {"cuGetErrorName", "cuGetErrorName", offsetof(driver_functions, get_error_name)},
    {"cuDeviceGet", "cuDeviceGet", offsetof(driver_functions, device_get)},
    {"cuCtxGetDevice", "cuCtxGetDevice", offsetof(driver_functions, ctx_get_device)},
    {"cuCtxPushCurrent", "cuCtxPushCurrent_v2", offsetof(driver_functions, ctx_push_current)},
    {"cuCtxPopCurrent", "cuCtxPopCurrent_v2", offsetof(driver_functions, ctx_pop_current)},
    {"cuCtxSynchronize", "cuCtxSynchronize", offsetof(driver_functions, ctx_synchronize)},
    {"cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxGetState", offsetof(driver_functions, primary_ctx_get_state)},
    {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", offsetof(driver_functions, primary_ctx_retain)},
    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", offsetof(driver_functions, primary_ctx_release)},
    {"cuStreamIsCapturing", "cuStreamIsCapturing", offsetof(driver_functions, stream_is_capturing)},
};

enum {
    STATE_ABSENT,      /* no driver found yet */
    STATE_READY,       /* `driver` may be used, and never changes again */
    STATE_TURNING_OFF, /* one thread is writing `reason` */
    STATE_OFF,         /* `reason` may be read, and never changes again */
    STATE_FORKED,      /* off, for another reason */
};

static struct {
    _Atomic int state;
    _Atomic cprof_ns next_search_ns; /* not before this time; used while absent */
    pthread_mutex_t search_lock;     /* held while the library is searched for */
    bool searched;                   /* the variable was looked at; guarded by search_lock */
    driver_functions driver;
    char reason[REASON_SIZE];
    cprof_ns (*now)(void);
    _Atomic uint64_t waited;
    _Atomic uint64_t captured;
    _Atomic uint64_t failed;
} gpu = {.search_lock = PTHREAD_MUTEX_INITIALIZER, .now = cprof_clock_monotonic_ns};

/* NULL when the library has no such function. */
static void *find_function(void *library, cu_get_proc_address get_proc_address, size_t index)
{
    void *address = NULL;
    int status = 0;
    if (get_proc_address != NULL &&
        get_proc_address(driver_symbols[index].name, &address, ABI_VERSION, LEGACY_STREAM_VARIANTS, &status) == CU_SUCCESS &&
        status == 0 && address != NULL) {
        return address;
    }
    return dlsym(library, driver_symbols[index].export_name);
}

/* The name of the first function that is missing; NULL when `driver` is complete. */
static const char *bind_driver(void *library)
{
    cu_get_proc_address get_proc_address;
    void *address = dlsym(library, "cuGetProcAddress_v2");
    memcpy((void *)&get_proc_address, (const void *)&address, sizeof address);
    for (size_t i = 0; i < sizeof driver_symbols / sizeof driver_symbols[0]; i++) {
        address = find_function(library, get_proc_address, i);
        if (address == NULL) {
            return driver_symbols[i].export_name;
        }
        memcpy((char *)&gpu.driver + driver_symbols[i].offset, (const void *)&address, sizeof address);
    }
    return NULL;
}

static void refuse_library_lock_held(const char *library, const char *fault, const char *function)
{
    (void)snprintf(gpu.reason, sizeof gpu.reason, "%s %s%s: synchronisation is off", library, fault, function);
    atomic_store_explicit(&gpu.state, STATE_OFF, memory_order_release);
}

/* The variable is read once only, because the environment may be changed by other threads later on. */
static const char *library_from_environment_lock_held(void)
{
    const char *path = gpu.searched ? NULL : secure_getenv(LIBRARY_VARIABLE);
    gpu.searched = true;
    return path != NULL && path[0] != '\0' ? path : NULL;
}

/* The library is never closed: others use it too, and the functions must stay valid. */
static void search_lock_held(void)
{
    const char *path = library_from_environment_lock_held();
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    const char *name = path != NULL ? "the library in " LIBRARY_VARIABLE : LIBRARY;
    if (library == NULL) {
        if (path != NULL) {
            refuse_library_lock_held(name, "cannot be loaded", "");
        }
        return;
    }
    const char *missing = bind_driver(library);
    if (missing != NULL) {
        refuse_library_lock_held(name, "lacks ", missing);
        return;
    }
    atomic_store_explicit(&gpu.state, STATE_READY, memory_order_release);
}

static bool search_is_due(void)
{
    return atomic_load_explicit(&gpu.state, memory_order_acquire) == STATE_ABSENT &&
           gpu.now() >= atomic_load_explicit(&gpu.next_search_ns, memory_order_relaxed);
}

/* The state, after a search if one is due. */
static int present_state(void)
{
    if (search_is_due()) {
        (void)pthread_mutex_lock(&gpu.search_lock);
        if (search_is_due()) {
            search_lock_held();
            atomic_store_explicit(&gpu.next_search_ns, gpu.now() + SEARCH_PERIOD_NS, memory_order_relaxed);
        }
        (void)pthread_mutex_unlock(&gpu.search_lock);
    }
    return atomic_load_explicit(&gpu.state, memory_order_acquire);
}

bool cprof_gpu_probe(void)
{
    return present_state() == STATE_READY;
}

static const char *error_name(cu_result code)
{
    const char *name = NULL;
    if (code == CU_DEINITIALIZED) {
        return "CUDA_ERROR_DEINITIALIZED"; /* the driver is shutting down: it must not be called any more */
    }
    if (gpu.driver.get_error_name(code, &name) == CU_SUCCESS && name != NULL) {
        return name;
    }
    return "CUDA error";
}

/* The one way to turn waiting off because of the driver: the first error wins. */
static int fail(cu_result code, const char *function)
{
    int expected = STATE_READY;
    if (atomic_compare_exchange_strong(&gpu.state, &expected, STATE_TURNING_OFF)) {
        (void)snprintf(gpu.reason, sizeof gpu.reason, "%s (%d) from %s: synchronisation is off", error_name(code), code,
                       function);
        atomic_store_explicit(&gpu.state, STATE_OFF, memory_order_release);
    }
    return -code;
}

/* 0 when the call succeeded. That there is no device or context (any more) is no error here. */
static int check(cu_result code, const char *function)
{
    switch (code) {
    case CU_SUCCESS:
        return 0;
    case CU_NOT_INITIALIZED:
    case CU_NO_DEVICE:
    case CU_INVALID_DEVICE:
    case CU_INVALID_CONTEXT:
    case CU_CONTEXT_IS_DESTROYED:
        return CPROF_GPU_IDLE;
    default:
        return fail(code, function);
    }
}

/* What to return after a clean-up: an error of the clean-up counts only when there was none before. */
static int after_cleanup(int outcome, int cleanup)
{
    return outcome >= 0 && cleanup < 0 ? cleanup : outcome;
}

/* 0 when the stream is not being captured. The legacy stream answers with an error while any blocking stream of its
 * context is captured, the per-thread default streams included; asking these by name might create one. */
static int refuse_capture(uint64_t stream)
{
    int status = CU_CAPTURE_NONE;
    cu_result code = gpu.driver.stream_is_capturing((cu_stream)(uintptr_t)stream, &status);
    if ((code >= CU_FIRST_CAPTURE_ERROR && code <= CU_LAST_CAPTURE_ERROR) ||
        (code == CU_SUCCESS && status != CU_CAPTURE_NONE)) {
        return CPROF_GPU_CAPTURING;
    }
    return check(code, "cuStreamIsCapturing");
}

/* Plain cuCtxSynchronize even where the driver can be told the context: the legacy stream is that of the current one.
 * The thread's capture mode is no help, as a context that contains a capture must not be waited for in any mode. */
static int wait_in_current_context(uint64_t stream)
{
    int outcome = stream == CPROF_GPU_UNKNOWN_STREAM ? 0 : refuse_capture(stream);
    if (outcome == 0) {
        outcome = refuse_capture(LEGACY_STREAM);
    }
    if (outcome == 0) {
        outcome = check(gpu.driver.ctx_synchronize(), "cuCtxSynchronize");
    }
    return outcome;
}

static int wait_in_context(cu_context context, uint64_t stream)
{
    int outcome = check(gpu.driver.ctx_push_current(context), "cuCtxPushCurrent");
    if (outcome != 0) {
        return outcome;
    }
    outcome = wait_in_current_context(stream);
    cu_context popped;
    return after_cleanup(outcome, check(gpu.driver.ctx_pop_current(&popped), "cuCtxPopCurrent"));
}

/* The reference is given back at once: one kept would outlive a reset of the device, and keep the context, with all of
 * its memory, from its owner's last release. As long as the context is active, retaining it only counts. */
static int wait_in_primary_context(cu_device device, uint64_t stream)
{
    unsigned flags;
    int active = 0;
    int outcome = check(gpu.driver.primary_ctx_get_state(device, &flags, &active), "cuDevicePrimaryCtxGetState");
    if (outcome != 0 || active == 0) {
        return outcome != 0 ? outcome : CPROF_GPU_IDLE;
    }
    cu_context context;
    outcome = check(gpu.driver.primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain");
    if (outcome != 0) {
        return outcome;
    }
    outcome = wait_in_context(context, stream);
    return after_cleanup(outcome, check(gpu.driver.primary_ctx_release(device), "cuDevicePrimaryCtxRelease"));
}

/* A thread that captures in the context of another device must not wait for this one either. */
static int wait_for_device(int ordinal, uint64_t stream)
{
    cu_device wanted;
    cu_device current;
    int outcome = check(gpu.driver.device_get(&wanted, ordinal), "cuDeviceGet");
    if (outcome != 0) {
        return outcome;
    }
    outcome = check(gpu.driver.ctx_get_device(&current), "cuCtxGetDevice");
    if (outcome == 0 && current == wanted) {
        return wait_in_current_context(stream);
    }
    if (outcome == 0) {
        outcome = refuse_capture(LEGACY_STREAM);
    }
    return outcome == 0 || outcome == CPROF_GPU_IDLE ? wait_in_primary_context(wanted, stream) : outcome;
}

static int count(int outcome)
{
    if (outcome == CPROF_GPU_WAITED) {
        atomic_fetch_add_explicit(&gpu.waited, 1, memory_order_relaxed);
    } else if (outcome == CPROF_GPU_CAPTURING) {
        atomic_fetch_add_explicit(&gpu.captured, 1, memory_order_relaxed);
    } else if (outcome < 0) {
        atomic_fetch_add_explicit(&gpu.failed, 1, memory_order_relaxed);
    }
    return outcome;
}

int cprof_gpu_synchronize(int device, uint64_t stream)
{
    int state = present_state();
    if (state != STATE_READY) {
        return state == STATE_ABSENT ? CPROF_GPU_IDLE : CPROF_GPU_OFF;
    }
    return count(device == CPROF_GPU_CURRENT_DEVICE ? wait_in_current_context(stream) : wait_for_device(device, stream));
}

bool cprof_gpu_reason(char *buffer, size_t size)
{
    int state = atomic_load_explicit(&gpu.state, memory_order_acquire);
    uint64_t captured = atomic_load_explicit(&gpu.captured, memory_order_relaxed);
    if (state == STATE_FORKED) {
        (void)snprintf(buffer, size, "off(fork): CUDA does not survive a fork: synchronisation is off");
    } else if (state == STATE_OFF) {
        (void)snprintf(buffer, size, "%s", gpu.reason);
    } else if (captured > 0) {
        (void)snprintf(buffer, size, "waits left out during stream capture: %" PRIu64, captured);
    } else {
        (void)snprintf(buffer, size, "%s", "");
        return false;
    }
    return true;
}

void cprof_gpu_get_counters(cprof_gpu_counters *counters)
{
    counters->waited = atomic_load_explicit(&gpu.waited, memory_order_relaxed);
    counters->captured = atomic_load_explicit(&gpu.captured, memory_order_relaxed);
    counters->failed = atomic_load_explicit(&gpu.failed, memory_order_relaxed);
}

static int call_profiler(const char *name)
{
    void *library = present_state() == STATE_READY ? dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) : NULL;
    void *address = library != NULL ? dlsym(library, name) : NULL;
    cu_result (*function)(void);
    memcpy((void *)&function, (const void *)&address, sizeof address);
    return address != NULL ? function() : -1;
}

int cprof_gpu_profiler_start(void)
{
    return call_profiler("cuProfilerStart");
}

int cprof_gpu_profiler_stop(void)
{
    return call_profiler("cuProfilerStop");
}

static void clear_counters(void)
{
    atomic_store_explicit(&gpu.waited, 0, memory_order_relaxed);
    atomic_store_explicit(&gpu.captured, 0, memory_order_relaxed);
    atomic_store_explicit(&gpu.failed, 0, memory_order_relaxed);
}

/* The lock may have been held by a thread that does not exist here. */
void cprof_gpu_after_fork_in_child(void)
{
    gpu.search_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (atomic_load(&gpu.state) != STATE_ABSENT) {
        atomic_store(&gpu.state, STATE_FORKED);
    }
    clear_counters();
}

void cprof_gpu_reset_for_test(void)
{
    atomic_store(&gpu.state, STATE_ABSENT);
    atomic_store(&gpu.next_search_ns, 0);
    gpu.searched = false;
    clear_counters();
}

void cprof_gpu_set_clock_for_test(cprof_ns (*now)(void))
{
    gpu.now = now != NULL ? now : cprof_clock_monotonic_ns;
}
