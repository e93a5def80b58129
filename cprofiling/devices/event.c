#include "cprofiling/devices/event.h"

#include "cprofiling/devices/event_pool.h"
#include "cprofiling/devices/context.h"

#include <stdio.h>

#define OF_THIS_CALL "no GPU time of that call"
#define OF_THIS_CONTEXT "no GPU time from this context any more"
#define AT_ALL "no GPU time any more"

static cprof_gpu_reason first_reason;

/* A visit to a context that is known to the pool. */
typedef struct {
    cprof_context_visit visit;
    cprof_gpu_context *context;
} stay;

static void keep_reason(cprof_gpu_answer answer, const char *effect)
{
    cprof_gpu_reason_keep_answer(&first_reason, answer, effect);
}

/* CPROF_GPU_KNOWN when the driver may be called. */
static cprof_gpu_cause readiness(void)
{
    cprof_driver_state state = cprof_driver_look();
    if (state == CPROF_DRIVER_ABSENT) {
        return CPROF_GPU_NO_CUDA;
    }
    return state == CPROF_DRIVER_READY && cprof_driver_lacks_for_events() == NULL ? CPROF_GPU_KNOWN : CPROF_GPU_FAILED;
}

static cprof_gpu_cause shut_down(cprof_gpu_answer answer)
{
    keep_reason(answer, AT_ALL);
    cprof_driver_has_shut_down();
    cprof_event_pool_drop_all();
    return CPROF_GPU_FAILED;
}

/* What an answer means before a context is known. */
static cprof_gpu_cause judge_absence(cprof_gpu_answer answer)
{
    switch (answer.code) {
    case CU_SUCCESS:
        return CPROF_GPU_KNOWN;
    case CU_NOT_INITIALIZED:
    case CU_NO_DEVICE:
        return CPROF_GPU_NO_CUDA;
    case CU_INVALID_DEVICE:
    case CU_INVALID_CONTEXT:
    case CU_CONTEXT_IS_DESTROYED:
        return CPROF_GPU_NO_CONTEXT;
    case CU_DEINITIALIZED:
        return shut_down(answer);
    default:
        keep_reason(answer, OF_THIS_CALL);
        return CPROF_GPU_FAILED;
    }
}

/* What an answer means for the context in which it was given. That a handle is none means that its context was destroyed, and
 * the events with it. An unknown answer counts as a lasting error. */
static cprof_gpu_cause judge(cprof_gpu_context *context, cprof_gpu_answer answer)
{
    switch (answer.code) {
    case CU_SUCCESS:
        return CPROF_GPU_KNOWN;
    case CU_NOT_INITIALIZED:
    case CU_NO_DEVICE:
    case CU_INVALID_DEVICE:
    case CU_INVALID_CONTEXT:
    case CU_INVALID_HANDLE:
    case CU_CONTEXT_IS_DESTROYED:
        cprof_event_pool_drop(context);
        return CPROF_GPU_LOST;
    case CU_DEINITIALIZED:
        return shut_down(answer);
    case CU_NOT_READY: /* another question's answer */
        keep_reason(answer, OF_THIS_CALL);
        return CPROF_GPU_FAILED;
    default:
        if (cprof_gpu_answer_is_capture(answer.code)) {
            return CPROF_GPU_CAPTURED;
        }
        keep_reason(answer, OF_THIS_CONTEXT);
        cprof_event_pool_turn_off(context);
        return CPROF_GPU_FAILED;
    }
}

/* Stays. */

/* What the pool knows of the context, or will; NULL with the cause. */
static cprof_gpu_context *meet(const cprof_context_visit *visit, cprof_gpu_cause *cause)
{
    unsigned long long id;
    bool is_primary = visit->is_retained;
    *cause = judge_absence(cprof_context_visit_id(visit->context, &id));
    if (*cause != CPROF_GPU_KNOWN) {
        return NULL;
    }
    cprof_gpu_context *context = cprof_event_pool_find(visit->context, id);
    if (context != NULL) {
        return context;
    }
    if (!is_primary) {
        *cause = judge_absence(cprof_context_visit_is_primary(visit->context, visit->device, &is_primary));
    }
    if (*cause == CPROF_GPU_KNOWN) {
        context = cprof_event_pool_add(visit->context, id, visit->device, is_primary);
        *cause = context != NULL ? CPROF_GPU_KNOWN : CPROF_GPU_FULL;
    }
    return context;
}

static cprof_gpu_cause begin_stay(stay *here, int ordinal)
{
    cprof_gpu_cause cause = judge_absence(cprof_context_visit_begin(&here->visit, ordinal));
    if (cause != CPROF_GPU_KNOWN) {
        return cause;
    }
    here->context = meet(&here->visit, &cause);
    if (here->context == NULL) {
        (void)judge_absence(cprof_context_visit_end(&here->visit));
    }
    return cause;
}

static void end_stay(stay *here)
{
    (void)judge(here->context, cprof_context_visit_end(&here->visit));
    cprof_event_pool_leave(here->context);
}

/* CPROF_GPU_KNOWN when events may be recorded in the stream. That a stream is none is the caller's error, and no sign that the
 * context has gone. */
static cprof_gpu_cause refuse_capture(cprof_gpu_context *context, cu_stream stream)
{
    if (stream != NULL) {
        cprof_gpu_answer answer = cprof_context_visit_ask_capture((uintptr_t)stream);
        if (answer.code == CU_INVALID_HANDLE) {
            keep_reason(answer, OF_THIS_CALL);
            return CPROF_GPU_FAILED;
        }
        if (answer.code != CU_SUCCESS) {
            return judge(context, answer);
        }
    }
    return judge(context, cprof_context_visit_ask_capture(CU_LEGACY_STREAM));
}

/* Resolving. */

/* The answer of the device to a pair; *times is set when it is CU_SUCCESS, or means a capture. */
static cprof_gpu_answer ask_pair(const cprof_gpu_pair *pair, cprof_gpu_times *times)
{
    float ms = 0;
    *times = (cprof_gpu_times){.cause = CPROF_GPU_CAPTURED};
    cprof_gpu_answer answer = {cprof_driver->event_query(pair->last), "cuEventQuery"};
    if (answer.code == CU_SUCCESS) {
        answer = (cprof_gpu_answer){cprof_driver->event_elapsed_time(&ms, pair->first, pair->last), "cuEventElapsedTime"};
    }
    if (answer.code == CU_SUCCESS) {
        bool is_time = cprof_event_pool_ns_of_ms(ms, &times->gpu_ns) && times->gpu_ns >= 0;
        times->cause = is_time ? CPROF_GPU_KNOWN : CPROF_GPU_FAILED;
        if (!is_time) { /* ends before their beginnings, as on two streams, give negative ones */
            char text[sizeof first_reason.text];
            (void)snprintf(text, sizeof text, "an impossible time (%g ms) from cuEventElapsedTime: " OF_THIS_CALL, (double)ms);
            cprof_gpu_reason_keep(&first_reason, text);
        }
    }
    return answer;
}

/* The time since the stream's base, if that can be told: only the queue delay hangs on it. */
static cprof_gpu_answer ask_base(const cprof_gpu_pair *pair, cprof_gpu_times *times)
{
    float ms;
    cprof_gpu_answer answer = {CU_SUCCESS, ""};
    if (pair->base != NULL && times->cause == CPROF_GPU_KNOWN) {
        answer = (cprof_gpu_answer){cprof_driver->event_elapsed_time(&ms, pair->base, pair->first), "cuEventElapsedTime"};
        times->is_based = answer.code == CU_SUCCESS && cprof_event_pool_ns_of_ms(ms, &times->from_base_ns);
    }
    return answer;
}

/* The oldest pair of the stream; false if the device has passed none. The caller holds stream->resolving. */
static bool resolve_oldest(cprof_gpu_context *context, cprof_gpu_stream *stream)
{
    cprof_gpu_pair pair;
    cprof_gpu_times times;
    if (!cprof_event_pool_oldest(stream, &pair)) {
        return false;
    }
    cprof_gpu_answer answer = ask_pair(&pair, &times);
    if (answer.code == CU_NOT_READY) {
        return false;
    }
    if (judge(context, answer) != CPROF_GPU_KNOWN && !cprof_gpu_answer_is_capture(answer.code)) {
        return false;
    }
    answer = ask_base(&pair, &times);
    cprof_event_pool_resolve(context, stream, &times);
    if (answer.code != CU_NOT_READY && answer.code != CU_INVALID_HANDLE) {
        (void)judge(context, answer);
    }
    cu_event surplus = cprof_event_pool_surplus(context);
    while (surplus != NULL) {
        (void)judge(context, (cprof_gpu_answer){cprof_driver->event_destroy(surplus), "cuEventDestroy"});
        surplus = cprof_event_pool_surplus(context);
    }
    return true;
}

/* One pair, of the next stream; unless another thread is at it. */
static void resolve_one(cprof_gpu_context *context)
{
    cprof_gpu_stream *stream = cprof_event_pool_turn(context);
    int mode;
    if (stream == NULL || !cprof_lock_acquire_before(&stream->resolving, INT64_MIN)) {
        return;
    }
    if (judge(context, cprof_context_visit_relax(&mode)) == CPROF_GPU_KNOWN) {
        (void)resolve_oldest(context, stream);
        (void)judge(context, cprof_context_visit_unrelax(&mode));
    }
    cprof_lock_release(&stream->resolving);
}

static void poll_context(cprof_gpu_context *context)
{
    stay here = {.context = context};
    cprof_gpu_answer answer =
        cprof_context_visit_again(&here.visit, context->handle, context->id, context->device, context->is_primary);
    if (answer.code == CU_NOT_READY || judge(context, answer) != CPROF_GPU_KNOWN) {
        cprof_event_pool_leave(context);
        return;
    }
    int mode;
    if (refuse_capture(context, NULL) == CPROF_GPU_KNOWN &&
        judge(context, cprof_context_visit_relax(&mode)) == CPROF_GPU_KNOWN) {
        size_t index = 0;
        cprof_gpu_stream *stream = cprof_event_pool_stream(context, &index);
        while (stream != NULL) {
            cprof_lock_acquire(&stream->resolving);
            while (resolve_oldest(context, stream)) {
                continue;
            }
            cprof_lock_release(&stream->resolving);
            stream = cprof_event_pool_stream(context, &index);
        }
        (void)judge(context, cprof_context_visit_unrelax(&mode));
    }
    end_stay(&here);
}

void cprof_event_poll(void)
{
    uint64_t number = 0;
    cprof_gpu_context *context = NULL;
    while (readiness() == CPROF_GPU_KNOWN && (context = cprof_event_pool_next_pending(number)) != NULL) {
        number = context->number;
        poll_context(context);
    }
}

/* Marks. */

/* Without memory this call has no time; the next one may be luckier. */
static cprof_gpu_cause create(cprof_gpu_context *context, cu_event *created)
{
    if (*created != NULL) {
        return CPROF_GPU_KNOWN;
    }
    cprof_gpu_answer answer = {cprof_driver->event_create(created, 0), "cuEventCreate"};
    if (answer.code == CU_SUCCESS) {
        return CPROF_GPU_KNOWN;
    }
    *created = NULL;
    if (answer.code == CU_OUT_OF_MEMORY) {
        keep_reason(answer, OF_THIS_CALL);
        return CPROF_GPU_FAILED;
    }
    return judge(context, answer);
}

/* What tells that the current context, or one of its events, is not any more what it was; success: nothing does. Where contexts
 * have ids these say it for sure; else an event that is none does. */
static cprof_gpu_answer ask_life(const cprof_gpu_context *context, cu_event one)
{
    unsigned long long id;
    int mode;
    if (cprof_driver->ctx_get_id != NULL) {
        cprof_gpu_answer told = cprof_context_visit_id(context->handle, &id);
        bool is_other = told.code == CU_SUCCESS && id != context->id;
        return is_other ? (cprof_gpu_answer){CU_CONTEXT_IS_DESTROYED, told.function} : told;
    }
    cprof_gpu_answer answer = cprof_context_visit_relax(&mode);
    if (answer.code == CU_SUCCESS) {
        answer = (cprof_gpu_answer){cprof_driver->event_query(one), "cuEventQuery"};
        answer = cprof_gpu_answer_first_error(answer, cprof_context_visit_unrelax(&mode));
    }
    return answer.code == CU_NOT_READY ? (cprof_gpu_answer){CU_SUCCESS, ""} : answer;
}

/* CPROF_GPU_KNOWN when the event is recorded. An invalid handle is a dead event, or a stream of another context, which is the
 * caller's error, and no sign that the context has gone. */
static cprof_gpu_cause record(cprof_gpu_context *context, cu_event one, cu_stream stream)
{
    cprof_gpu_answer answer = {cprof_driver->event_record(one, stream), "cuEventRecord"};
    if (answer.code != CU_INVALID_HANDLE) {
        return judge(context, answer);
    }
    cprof_gpu_cause cause = judge(context, ask_life(context, one));
    if (cause == CPROF_GPU_KNOWN) {
        keep_reason(answer, OF_THIS_CALL);
        cause = CPROF_GPU_FAILED;
    }
    return cause;
}

static cprof_gpu_mark *begin_here(cprof_gpu_context *context, cu_stream stream, cprof_gpu_cause *cause)
{
    *cause = cprof_event_pool_life(context);
    if (*cause == CPROF_GPU_KNOWN) {
        *cause = refuse_capture(context, stream);
    }
    if (*cause != CPROF_GPU_KNOWN) {
        return NULL;
    }
    resolve_one(context);
    cprof_gpu_mark *mark = cprof_event_pool_take(context, cause);
    if (mark == NULL) {
        return NULL;
    }
    mark->stream = stream;
    *cause = create(context, &mark->first);
    if (*cause == CPROF_GPU_KNOWN) {
        *cause = create(context, &mark->last);
    }
    if (*cause == CPROF_GPU_KNOWN) {
        /* Taken before the call, as the event may be passed as soon as it is recorded. */
        mark->host_ns = cprof_driver_now();
        *cause = record(mark->context, mark->first, mark->stream);
    }
    if (*cause != CPROF_GPU_KNOWN) {
        cprof_event_pool_give_back(mark);
        mark = NULL;
    }
    return mark;
}

/* The default stream has a handle of its own, too. */
static cu_stream stream_of(cprof_gpu_place place)
{
    return place.stream == CU_LEGACY_STREAM ? NULL : (cu_stream)(uintptr_t)place.stream;
}

cprof_gpu_mark *cprof_event_begin(cprof_gpu_place place, cprof_gpu_cause *cause)
{
    stay here;
    *cause = readiness();
    if (*cause == CPROF_GPU_KNOWN) {
        *cause = begin_stay(&here, place.device);
    }
    if (*cause != CPROF_GPU_KNOWN) {
        return NULL;
    }
    cprof_gpu_mark *mark = begin_here(here.context, stream_of(place), cause);
    end_stay(&here);
    return mark;
}

static cprof_gpu_cause end_here(cprof_gpu_context *context, cprof_gpu_mark *mark, cu_stream stream)
{
    cprof_gpu_cause cause = cprof_event_pool_life(mark->context);
    if (cause == CPROF_GPU_KNOWN && mark->context != context) {
        cause = CPROF_GPU_OTHER_DEVICE;
    }
    if (cause == CPROF_GPU_KNOWN) {
        cause = refuse_capture(context, stream);
    }
    if (cause == CPROF_GPU_KNOWN) {
        cause = record(context, mark->last, stream);
    }
    if (cause == CPROF_GPU_KNOWN) {
        cause = cprof_event_pool_push(mark, stream);
    }
    if (cause == CPROF_GPU_KNOWN) {
        resolve_one(context);
    }
    return cause;
}

static cprof_gpu_cause end_mark(cprof_gpu_mark *mark, cprof_gpu_place place)
{
    stay here;
    cprof_gpu_cause cause = readiness();
    if (cause == CPROF_GPU_KNOWN) {
        cause = begin_stay(&here, place.device);
    }
    if (cause != CPROF_GPU_KNOWN) {
        return cause == CPROF_GPU_NO_CONTEXT || cause == CPROF_GPU_NO_CUDA ? CPROF_GPU_LOST : cause;
    }
    cause = end_here(here.context, mark, stream_of(place));
    end_stay(&here);
    return cause;
}

/* A mark of before a fork is nobody's. */
static bool is_ours(void)
{
    return cprof_driver_present() != CPROF_DRIVER_FORKED;
}

void cprof_event_end(cprof_gpu_mark *mark, cprof_gpu_place place, cprof_accum *accum, uint64_t generation)
{
    if (!is_ours()) {
        cprof_accum_miss_gpu(accum, generation, CPROF_GPU_FAILED);
        return;
    }
    mark->accum = accum;
    mark->generation = generation;
    cprof_gpu_cause cause = end_mark(mark, place);
    if (cause != CPROF_GPU_KNOWN) {
        cprof_event_pool_give_back(mark);
        cprof_accum_miss_gpu(accum, generation, cause);
    }
}

void cprof_event_cancel(cprof_gpu_mark *mark)
{
    if (mark != NULL && is_ours()) {
        cprof_event_pool_give_back(mark);
    }
}

bool cprof_event_reason(char *buffer, size_t size)
{
    cprof_driver_state state = cprof_driver_present();
    const char *reason = state != CPROF_DRIVER_FORKED ? cprof_gpu_reason_text(&first_reason) : NULL;
    if (reason == NULL && cprof_driver_reason(buffer, size, "no GPU time")) {
        return true;
    }
    const char *lacking = reason == NULL && state == CPROF_DRIVER_READY ? cprof_driver_lacks_for_events() : NULL;
    if (lacking != NULL) {
        (void)snprintf(buffer, size, "the CUDA driver lacks %s: no GPU time", lacking);
    } else {
        (void)snprintf(buffer, size, "%s", reason != NULL ? reason : "");
    }
    return reason != NULL || lacking != NULL;
}

void cprof_event_after_fork_in_child(void)
{
    first_reason = (cprof_gpu_reason){0};
    cprof_event_pool_after_fork_in_child();
}

void cprof_event_reset_for_test(void)
{
    first_reason = (cprof_gpu_reason){0};
    cprof_event_pool_reset_for_test();
}
