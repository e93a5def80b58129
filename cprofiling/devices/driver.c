#define _GNU_SOURCE
#include "cprofiling/devices/driver.h"

#include "cprofiling/base/environment.h"

#include <dlfcn.h>
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
    REASON_SIZE = 160,
};

typedef cu_result (*cu_get_proc_address)(const char *name, void **address, int abi_version, uint64_t flags, int *status);

static const struct {
    const char *name;        /* for cuGetProcAddress, which finds the right version */
    const char *export_name; /* for dlsym, with the version in it */
    size_t offset;
    enum { FOR_WAITS, FOR_EVENTS, FOR_LESS } need; /* without the first ones the driver is refused */
} driver_symbols[] = {
    {"cuGetErrorName", "cuGetErrorName", offsetof(cprof_driver_functions, get_error_name), FOR_WAITS},
    {"cuDeviceGet", "cuDeviceGet", offsetof(cprof_driver_functions, device_get), FOR_WAITS},
    {"cuCtxGetDevice", "cuCtxGetDevice", offsetof(cprof_driver_functions, ctx_get_device), FOR_WAITS},
    {"cuCtxPushCurrent", "cuCtxPushCurrent_v2", offsetof(cprof_driver_functions, ctx_push_current), FOR_WAITS},
    {"cuCtxPopCurrent", "cuCtxPopCurrent_v2", offsetof(cprof_driver_functions, ctx_pop_current), FOR_WAITS},
    {"cuCtxSynchronize", "cuCtxSynchronize", offsetof(cprof_driver_functions, ctx_synchronize), FOR_WAITS},
    {"cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxGetState", offsetof(cprof_driver_functions, primary_ctx_get_state),
     FOR_WAITS},
    {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", offsetof(cprof_driver_functions, primary_ctx_retain), FOR_WAITS},
    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", offsetof(cprof_driver_functions, primary_ctx_release),
     FOR_WAITS},
    {"cuStreamIsCapturing", "cuStreamIsCapturing", offsetof(cprof_driver_functions, stream_is_capturing), FOR_WAITS},
    {"cuCtxGetCurrent", "cuCtxGetCurrent", offsetof(cprof_driver_functions, ctx_get_current), FOR_EVENTS},
    {"cuCtxGetId", "cuCtxGetId", offsetof(cprof_driver_functions, ctx_get_id), FOR_LESS},
    {"cuThreadExchangeStreamCaptureMode", "cuThreadExchangeStreamCaptureMode",
     offsetof(cprof_driver_functions, thread_exchange_capture_mode), FOR_LESS},
    {"cuEventCreate", "cuEventCreate", offsetof(cprof_driver_functions, event_create), FOR_EVENTS},
    {"cuEventDestroy", "cuEventDestroy_v2", offsetof(cprof_driver_functions, event_destroy), FOR_EVENTS},
    {"cuEventRecord", "cuEventRecord", offsetof(cprof_driver_functions, event_record), FOR_EVENTS},
    {"cuEventQuery", "cuEventQuery", offsetof(cprof_driver_functions, event_query), FOR_EVENTS},
    {"cuEventElapsedTime", "cuEventElapsedTime", offsetof(cprof_driver_functions, event_elapsed_time), FOR_EVENTS},
    {"cuMemGetInfo", "cuMemGetInfo_v2", offsetof(cprof_driver_functions, mem_get_info), FOR_LESS},
    {"cuProfilerStart", "cuProfilerStart", offsetof(cprof_driver_functions, profiler_start), FOR_LESS},
    {"cuProfilerStop", "cuProfilerStop", offsetof(cprof_driver_functions, profiler_stop), FOR_LESS},
};

static struct {
    _Atomic int state;               /* a cprof_driver_state; `functions` and `refusal` are set before it */
    _Atomic cprof_ns next_search_ns; /* not before this time; used while absent */
    pthread_mutex_t search_lock;     /* held while the library is searched for */
    bool searched;                   /* the variable was looked at; guarded by search_lock */
    cprof_driver_functions functions;
    const char *lacking; /* the name of the first function that events need and the driver has not */
    char refusal[REASON_SIZE];
    cprof_ns (*now)(void);
} driver = {.search_lock = PTHREAD_MUTEX_INITIALIZER, .now = cprof_clock_monotonic_ns};

const cprof_driver_functions *const cprof_driver = &driver.functions;

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

/* The name of the first missing function; NULL: none. */
static const char *bind_driver(void *library)
{
    cu_get_proc_address get_proc_address;
    void *address = dlsym(library, "cuGetProcAddress_v2");
    memcpy((void *)&get_proc_address, (const void *)&address, sizeof address);
    driver.lacking = NULL;
    for (size_t i = 0; i < sizeof driver_symbols / sizeof driver_symbols[0]; i++) {
        address = find_function(library, get_proc_address, i);
        if (address == NULL && driver_symbols[i].need == FOR_WAITS) {
            return driver_symbols[i].export_name;
        }
        if (address == NULL && driver_symbols[i].need == FOR_EVENTS && driver.lacking == NULL) {
            driver.lacking = driver_symbols[i].name;
        }
        memcpy((char *)&driver.functions + driver_symbols[i].offset, (const void *)&address, sizeof address);
    }
    return NULL;
}

static void refuse_library_lock_held(const char *library, const char *fault, const char *function)
{
    (void)snprintf(driver.refusal, sizeof driver.refusal, "%s %s%s", library, fault, function);
    atomic_store_explicit(&driver.state, CPROF_DRIVER_REFUSED, memory_order_release);
}

/* The library is never closed: others use it too, and the functions must stay valid. */
static void search_lock_held(void)
{
    /* The variable is read once: other threads may change the environment later on. */
    const char *path = driver.searched ? NULL : cprof_environment_get(LIBRARY_VARIABLE);
    driver.searched = true;
    path = path != NULL && path[0] != '\0' ? path : NULL;
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
    atomic_store_explicit(&driver.state, CPROF_DRIVER_READY, memory_order_release);
}

static bool search_is_due(void)
{
    return atomic_load_explicit(&driver.state, memory_order_acquire) == CPROF_DRIVER_ABSENT &&
           driver.now() >= atomic_load_explicit(&driver.next_search_ns, memory_order_relaxed);
}

cprof_driver_state cprof_driver_look(void)
{
    if (search_is_due()) {
        (void)pthread_mutex_lock(&driver.search_lock);
        if (search_is_due()) {
            search_lock_held();
            atomic_store_explicit(&driver.next_search_ns, driver.now() + SEARCH_PERIOD_NS, memory_order_relaxed);
        }
        (void)pthread_mutex_unlock(&driver.search_lock);
    }
    return cprof_driver_present();
}

cprof_driver_state cprof_driver_present(void)
{
    return (cprof_driver_state)atomic_load_explicit(&driver.state, memory_order_acquire);
}

const char *cprof_driver_lacks_for_events(void)
{
    return driver.lacking;
}

void cprof_driver_has_shut_down(void)
{
    int expected = CPROF_DRIVER_READY;
    (void)atomic_compare_exchange_strong(&driver.state, &expected, CPROF_DRIVER_SHUT_DOWN);
}

bool cprof_driver_reason(char *buffer, size_t size, const char *effect)
{
    switch (cprof_driver_present()) {
    case CPROF_DRIVER_REFUSED:
        (void)snprintf(buffer, size, "%s: %s", driver.refusal, effect);
        return true;
    case CPROF_DRIVER_SHUT_DOWN:
        (void)snprintf(buffer, size, "CUDA has shut down: %s", effect);
        return true;
    case CPROF_DRIVER_FORKED:
        (void)snprintf(buffer, size, "off(fork): CUDA does not survive a fork: %s", effect);
        return true;
    default:
        return false;
    }
}

const char *cprof_driver_error_name(cu_result code)
{
    const char *name = NULL;
    if (code == CU_DEINITIALIZED) {
        return "CUDA_ERROR_DEINITIALIZED"; /* it must not be called any more */
    }
    if (driver.functions.get_error_name(code, &name) == CU_SUCCESS && name != NULL) {
        return name;
    }
    return "CUDA error";
}

cprof_ns cprof_driver_now(void)
{
    return driver.now();
}

/* The lock may have been held by a thread that does not exist here. */
void cprof_driver_after_fork_in_child(void)
{
    driver.search_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (atomic_load(&driver.state) != CPROF_DRIVER_ABSENT) {
        atomic_store(&driver.state, CPROF_DRIVER_FORKED);
    }
}

void cprof_driver_reset_for_test(void)
{
    atomic_store(&driver.state, CPROF_DRIVER_ABSENT);
    atomic_store(&driver.next_search_ns, 0);
    driver.searched = false;
}

void cprof_driver_set_clock_for_test(cprof_ns (*now)(void))
{
    driver.now = now != NULL ? now : cprof_clock_monotonic_ns;
}
