#include "cprofiling/devices/wait.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#define IS_OFF "synchronisation is off"

static struct {
    cprof_gpu_reason reason; /* of the first error, which has turned waiting off */
    _Atomic uint64_t waited;
    _Atomic uint64_t captured;
    _Atomic uint64_t failed;
} gpu;

bool cprof_wait_probe(void)
{
    return cprof_driver_look() == CPROF_DRIVER_READY && !cprof_gpu_reason_is_kept(&gpu.reason);
}

/* 0 when the call succeeded. A missing device or context is no error here. */
static int check(cprof_gpu_answer answer)
{
    switch (answer.code) {
    case CU_SUCCESS:
        return 0;
    case CU_NOT_INITIALIZED:
    case CU_NO_DEVICE:
    case CU_INVALID_DEVICE:
    case CU_INVALID_CONTEXT:
    case CU_CONTEXT_IS_DESTROYED:
        return CPROF_GPU_IDLE;
    default:
        cprof_gpu_reason_keep_answer(&gpu.reason, answer, IS_OFF);
        if (answer.code == CU_DEINITIALIZED) {
            cprof_driver_has_shut_down();
        }
        return -answer.code;
    }
}

/* 0 when the stream is not being captured. */
static int refuse_capture(uint64_t stream)
{
    cprof_gpu_answer answer = cprof_context_visit_ask_capture(stream);
    return cprof_gpu_answer_is_capture(answer.code) ? CPROF_GPU_CAPTURING : check(answer);
}

/* Plain cuCtxSynchronize even where the driver can be told the context: the legacy stream is that of the current one.
 * The thread's capture mode is no help, as a context that contains a capture must not be waited for in any mode. */
static int wait_in_current_context(uint64_t stream)
{
    int outcome = stream == CPROF_GPU_UNKNOWN_STREAM ? 0 : refuse_capture(stream);
    if (outcome == 0) {
        outcome = refuse_capture(CU_LEGACY_STREAM);
    }
    if (outcome == 0) {
        outcome = check((cprof_gpu_answer){cprof_driver->ctx_synchronize(), "cuCtxSynchronize"});
    }
    return outcome;
}

static int wait_in_primary_context(cu_device device, uint64_t stream)
{
    cprof_context_visit visit;
    int outcome = check(cprof_context_visit_primary(&visit, device));
    if (outcome != 0) {
        return outcome;
    }
    outcome = wait_in_current_context(stream);
    int end = check(cprof_context_visit_end(&visit));
    return outcome >= 0 && end < 0 ? end : outcome;
}

/* A thread that captures in the context of another device must not wait for this one either. */
static int wait_for_device(int ordinal, uint64_t stream)
{
    cu_device wanted;
    cu_device current;
    int outcome = check((cprof_gpu_answer){cprof_driver->device_get(&wanted, ordinal), "cuDeviceGet"});
    if (outcome != 0) {
        return outcome;
    }
    outcome = check((cprof_gpu_answer){cprof_driver->ctx_get_device(&current), "cuCtxGetDevice"});
    if (outcome == 0 && current == wanted) {
        return wait_in_current_context(stream);
    }
    if (outcome == 0) {
        outcome = refuse_capture(CU_LEGACY_STREAM);
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

int cprof_wait_synchronize(int device, uint64_t stream)
{
    cprof_driver_state state = cprof_driver_look();
    if (state != CPROF_DRIVER_READY || cprof_gpu_reason_is_kept(&gpu.reason)) {
        return state == CPROF_DRIVER_ABSENT ? CPROF_GPU_IDLE : CPROF_GPU_OFF;
    }
    return count(device == CPROF_GPU_CURRENT_DEVICE ? wait_in_current_context(stream) : wait_for_device(device, stream));
}

bool cprof_wait_reason(char *buffer, size_t size)
{
    /* That of a process that was forked goes before its parent's. */
    const char *reason = cprof_driver_present() != CPROF_DRIVER_FORKED ? cprof_gpu_reason_text(&gpu.reason) : NULL;
    if (reason == NULL && cprof_driver_reason(buffer, size, IS_OFF)) {
        return true;
    }
    uint64_t captured = atomic_load_explicit(&gpu.captured, memory_order_relaxed);
    if (reason == NULL && captured > 0) {
        (void)snprintf(buffer, size, "waits left out during stream capture: %" PRIu64, captured);
        return true;
    }
    (void)snprintf(buffer, size, "%s", reason != NULL ? reason : "");
    return reason != NULL;
}

/* In the current context. It may be banned during a capture, as a query is. */
static cprof_gpu_answer ask_memory(size_t *free_bytes, size_t *total_bytes)
{
    int mode;
    cprof_gpu_answer answer = cprof_context_visit_ask_capture(CU_LEGACY_STREAM);
    if (answer.code == CU_SUCCESS) {
        answer = cprof_context_visit_relax(&mode);
    }
    if (answer.code == CU_SUCCESS) {
        answer = (cprof_gpu_answer){cprof_driver->mem_get_info(free_bytes, total_bytes), "cuMemGetInfo"};
        answer = cprof_gpu_answer_first_error(answer, cprof_context_visit_unrelax(&mode));
    }
    return answer;
}

static cprof_gpu_answer visit_for_memory(int device, size_t *free_bytes, size_t *total_bytes)
{
    cprof_context_visit visit;
    cprof_gpu_answer answer = cprof_context_visit_begin(&visit, device);
    if (answer.code == CU_SUCCESS) {
        answer = ask_memory(free_bytes, total_bytes);
        answer = cprof_gpu_answer_first_error(answer, cprof_context_visit_end(&visit));
    }
    return answer;
}

bool cprof_wait_memory(int device, int64_t *free_bytes, int64_t *total_bytes)
{
    if (cprof_driver_look() != CPROF_DRIVER_READY || cprof_driver->mem_get_info == NULL ||
        cprof_driver->ctx_get_current == NULL) {
        return false;
    }
    size_t free_size = 0;
    size_t total_size = 0;
    cprof_gpu_answer answer = visit_for_memory(device, &free_size, &total_size);
    if (answer.code == CU_DEINITIALIZED) {
        cprof_driver_has_shut_down();
    }
    if (answer.code == CU_SUCCESS) {
        *free_bytes = (int64_t)free_size;
        *total_bytes = (int64_t)total_size;
    }
    return answer.code == CU_SUCCESS;
}

static int call_profiler(bool start)
{
    if (cprof_driver_look() != CPROF_DRIVER_READY) {
        return CPROF_GPU_NOT_CALLED;
    }
    cu_result (*call)(void) = start ? cprof_driver->profiler_start : cprof_driver->profiler_stop;
    cu_result code = call != NULL ? call() : CPROF_GPU_NOT_CALLED;
    if (code == CU_DEINITIALIZED) {
        cprof_driver_has_shut_down();
    }
    return code;
}

int cprof_wait_profiler_start(void)
{
    return call_profiler(true);
}

int cprof_wait_profiler_stop(void)
{
    return call_profiler(false);
}

void cprof_wait_get_counters(cprof_gpu_counters *counters)
{
    counters->waited = atomic_load_explicit(&gpu.waited, memory_order_relaxed);
    counters->captured = atomic_load_explicit(&gpu.captured, memory_order_relaxed);
    counters->failed = atomic_load_explicit(&gpu.failed, memory_order_relaxed);
}

static void clear_counters(void)
{
    atomic_store_explicit(&gpu.waited, 0, memory_order_relaxed);
    atomic_store_explicit(&gpu.captured, 0, memory_order_relaxed);
    atomic_store_explicit(&gpu.failed, 0, memory_order_relaxed);
}

void cprof_wait_after_fork_in_child(void)
{
    cprof_driver_after_fork_in_child();
    clear_counters();
}

void cprof_wait_reset_for_test(void)
{
    cprof_driver_reset_for_test();
    gpu.reason = (cprof_gpu_reason){0};
    clear_counters();
}
