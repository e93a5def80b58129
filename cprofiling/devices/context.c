#include "cprofiling/devices/context.h"

#include <stdio.h>

enum { REASON_NONE, REASON_BEING_WRITTEN, REASON_THERE };

static const cprof_gpu_answer success = {CU_SUCCESS, ""};

cprof_gpu_answer cprof_gpu_answer_first_error(cprof_gpu_answer one, cprof_gpu_answer other)
{
    return one.code != CU_SUCCESS ? one : other;
}

static bool may_write(cprof_gpu_reason *reason)
{
    int none = REASON_NONE;
    return atomic_compare_exchange_strong(&reason->state, &none, REASON_BEING_WRITTEN);
}

void cprof_gpu_reason_keep(cprof_gpu_reason *reason, const char *text)
{
    if (may_write(reason)) {
        (void)snprintf(reason->text, sizeof reason->text, "%s", text);
        atomic_store_explicit(&reason->state, REASON_THERE, memory_order_release);
    }
}

void cprof_gpu_reason_keep_answer(cprof_gpu_reason *reason, cprof_gpu_answer answer, const char *effect)
{
    if (may_write(reason)) {
        (void)snprintf(reason->text, sizeof reason->text, "%s (%d) from %s: %s", cprof_driver_error_name(answer.code),
                       answer.code, answer.function, effect);
        atomic_store_explicit(&reason->state, REASON_THERE, memory_order_release);
    }
}

bool cprof_gpu_reason_is_kept(const cprof_gpu_reason *reason)
{
    return atomic_load_explicit(&reason->state, memory_order_acquire) != REASON_NONE;
}

const char *cprof_gpu_reason_text(const cprof_gpu_reason *reason)
{
    return atomic_load_explicit(&reason->state, memory_order_acquire) == REASON_THERE ? reason->text : NULL;
}

static cprof_gpu_answer release(cu_device device)
{
    return (cprof_gpu_answer){cprof_driver->primary_ctx_release(device), "cuDevicePrimaryCtxRelease"};
}

/* As long as the context is active, retaining it only counts. */
static cprof_gpu_answer retain_active(cu_context *context, cu_device device)
{
    unsigned flags;
    int active = 0;
    cu_result code = cprof_driver->primary_ctx_get_state(device, &flags, &active);
    if (code != CU_SUCCESS || active == 0) {
        return (cprof_gpu_answer){code != CU_SUCCESS ? code : CU_INVALID_CONTEXT, "cuDevicePrimaryCtxGetState"};
    }
    return (cprof_gpu_answer){cprof_driver->primary_ctx_retain(context, device), "cuDevicePrimaryCtxRetain"};
}

static cprof_gpu_answer push(cprof_context_visit *visit)
{
    cprof_gpu_answer answer = {cprof_driver->ctx_push_current(visit->context), "cuCtxPushCurrent"};
    visit->is_pushed = answer.code == CU_SUCCESS;
    return answer;
}

cprof_gpu_answer cprof_context_visit_primary(cprof_context_visit *visit, cu_device device)
{
    *visit = (cprof_context_visit){.device = device, .is_retained = true};
    cprof_gpu_answer answer = retain_active(&visit->context, device);
    if (answer.code != CU_SUCCESS) {
        return answer;
    }
    answer = push(visit);
    if (answer.code != CU_SUCCESS) {
        (void)release(device);
    }
    return answer;
}

/* Whether no other call would be answered any better. An error of the current context says nothing of others. */
static bool is_no_driver(cu_result code)
{
    return code == CU_NOT_INITIALIZED || code == CU_DEINITIALIZED;
}

/* The thread's current context and its device; CU_INVALID_CONTEXT when it has none, or one that was destroyed. */
static cprof_gpu_answer current(cprof_context_visit *visit)
{
    *visit = (cprof_context_visit){0};
    cprof_gpu_answer answer = {cprof_driver->ctx_get_device(&visit->device), "cuCtxGetDevice"};
    if (answer.code == CU_CONTEXT_IS_DESTROYED) {
        answer.code = CU_INVALID_CONTEXT;
    }
    if (answer.code == CU_SUCCESS) {
        answer = (cprof_gpu_answer){cprof_driver->ctx_get_current(&visit->context), "cuCtxGetCurrent"};
    }
    return answer;
}

cprof_gpu_answer cprof_context_visit_begin(cprof_context_visit *visit, int ordinal)
{
    if (ordinal == CPROF_GPU_CURRENT_DEVICE) {
        return current(visit);
    }
    cu_device wanted;
    cprof_gpu_answer answer = {cprof_driver->device_get(&wanted, ordinal), "cuDeviceGet"};
    if (answer.code != CU_SUCCESS) {
        return answer;
    }
    answer = current(visit);
    bool is_there = answer.code == CU_SUCCESS && visit->device == wanted;
    return is_there || is_no_driver(answer.code) ? answer : cprof_context_visit_primary(visit, wanted);
}

cprof_gpu_answer cprof_context_visit_id(cu_context context, unsigned long long *id)
{
    *id = 0;
    if (cprof_driver->ctx_get_id == NULL) {
        return success;
    }
    return (cprof_gpu_answer){cprof_driver->ctx_get_id(context, id), "cuCtxGetId"};
}

cprof_gpu_answer cprof_context_visit_is_primary(cu_context context, cu_device device, bool *is_primary)
{
    cu_context primary;
    cprof_gpu_answer answer = retain_active(&primary, device);
    *is_primary = answer.code == CU_SUCCESS && primary == context;
    if (answer.code == CU_SUCCESS) {
        return release(device);
    }
    return answer.code == CU_INVALID_CONTEXT ? success : answer;
}

static cprof_gpu_answer require_id(cu_context context, unsigned long long id)
{
    unsigned long long present;
    cprof_gpu_answer answer = cprof_context_visit_id(context, &present);
    if (answer.code == CU_SUCCESS && present != id) {
        answer.code = CU_INVALID_CONTEXT;
    }
    return answer;
}

cprof_gpu_answer cprof_context_visit_again(cprof_context_visit *visit, cu_context context, unsigned long long id,
                                           cu_device device, bool is_primary)
{
    cprof_gpu_answer answer = current(visit);
    bool is_current = answer.code == CU_SUCCESS && visit->context == context;
    if (is_no_driver(answer.code)) {
        return answer;
    }
    if (!is_primary || is_current) {
        answer = require_id(context, id);
        if (answer.code != CU_SUCCESS || is_current) {
            return answer;
        }
        if (cprof_driver->ctx_get_id == NULL) { /* one that is not primary cannot be kept alive, only looked at */
            return (cprof_gpu_answer){CU_NOT_READY, "cuCtxGetId"};
        }
        *visit = (cprof_context_visit){.context = context, .device = device};
        return push(visit);
    }
    answer = cprof_context_visit_primary(visit, device);
    if (answer.code == CU_SUCCESS) {
        answer = visit->context == context ? require_id(context, id) : (cprof_gpu_answer){CU_INVALID_CONTEXT, "cuCtxGetId"};
        if (answer.code != CU_SUCCESS) {
            (void)cprof_context_visit_end(visit);
        }
    }
    return answer;
}

cprof_gpu_answer cprof_context_visit_end(const cprof_context_visit *visit)
{
    cprof_gpu_answer answer = success;
    if (visit->is_pushed) {
        cu_context popped;
        answer = (cprof_gpu_answer){cprof_driver->ctx_pop_current(&popped), "cuCtxPopCurrent"};
    }
    if (visit->is_retained) {
        answer = cprof_gpu_answer_first_error(answer, release(visit->device));
    }
    return answer;
}

bool cprof_gpu_answer_is_capture(cu_result code)
{
    return code >= CU_FIRST_CAPTURE_ERROR && code <= CU_LAST_CAPTURE_ERROR;
}

cprof_gpu_answer cprof_context_visit_ask_capture(uint64_t stream)
{
    int status = CU_CAPTURE_NONE;
    cu_result code = cprof_driver->stream_is_capturing((cu_stream)(uintptr_t)stream, &status);
    if (code == CU_SUCCESS && status != CU_CAPTURE_NONE) {
        code = CU_FIRST_CAPTURE_ERROR;
    }
    return (cprof_gpu_answer){code, "cuStreamIsCapturing"};
}

static cprof_gpu_answer exchange_mode(int *mode)
{
    if (cprof_driver->thread_exchange_capture_mode == NULL) {
        return success;
    }
    return (cprof_gpu_answer){cprof_driver->thread_exchange_capture_mode(mode), "cuThreadExchangeStreamCaptureMode"};
}

cprof_gpu_answer cprof_context_visit_relax(int *mode)
{
    *mode = CU_CAPTURE_MODE_RELAXED;
    return exchange_mode(mode);
}

cprof_gpu_answer cprof_context_visit_unrelax(int *mode)
{
    return exchange_mode(mode);
}
