#include "cprofiling/devices/capture.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/devices/wait.h"

#include <inttypes.h>
#include <stdio.h>

cprof_capture_state cprof_capture = {.lock = PTHREAD_MUTEX_INITIALIZER};

static cprof_status set_lock_held(cprof_name name, uint64_t skip, uint64_t count)
{
    if (atomic_load(&cprof_capture.phase) != CPROF_CAPTURE_NONE) {
        return CPROF_IN_USE;
    }
    char *bytes = cprof_alloc_zeroed(name.length + 1);
    if (bytes == NULL) {
        return CPROF_NO_MEMORY;
    }
    memcpy(bytes, name.bytes, name.length);
    cprof_capture.name = (cprof_name){bytes, name.length};
    cprof_capture.skip = skip;
    cprof_capture.count = count;
    atomic_store_explicit(&cprof_capture.phase, CPROF_CAPTURE_SET, memory_order_release);
    return CPROF_OK;
}

cprof_status cprof_capture_set(cprof_name name, uint64_t skip, uint64_t count)
{
    if (count == 0) {
        return CPROF_OUT_OF_RANGE;
    }
    (void)pthread_mutex_lock(&cprof_capture.lock);
    cprof_status status = set_lock_held(name, skip, count);
    (void)pthread_mutex_unlock(&cprof_capture.lock);
    return status;
}

bool cprof_capture_is_of(cprof_name name)
{
    return cprof_capture_is_set() && name.length == cprof_capture.name.length &&
           memcmp(name.bytes, cprof_capture.name.bytes, name.length) == 0;
}

static void note_lock_held(int answer, const char *function)
{
    if (answer != 0 && cprof_capture.refused == NULL) {
        cprof_capture.refusal = answer;
        cprof_capture.refused = function;
    }
}

/* Whoever begins while the driver starts waits for it: what the call does is to be recorded. */
bool cprof_capture_begin(cprof_name name)
{
    if (!cprof_capture_is_of(name)) {
        return false;
    }
    uint64_t turn = atomic_fetch_add_explicit(&cprof_capture.seen, 1, memory_order_relaxed);
    if (turn < cprof_capture.skip || turn - cprof_capture.skip >= cprof_capture.count) {
        return false;
    }
    (void)pthread_mutex_lock(&cprof_capture.lock);
    if (cprof_capture.begun == cprof_capture.ended) {
        int answer = cprof_wait_profiler_start();
        note_lock_held(answer, "cuProfilerStart");
        cprof_capture.started = answer == 0;
    }
    cprof_capture.begun++;
    (void)pthread_mutex_unlock(&cprof_capture.lock);
    return true;
}

/* In a forked child there is nothing to end: the calls that were open have begun in the parent. */
void cprof_capture_end(void)
{
    (void)pthread_mutex_lock(&cprof_capture.lock);
    if (cprof_capture.ended != cprof_capture.begun) {
        cprof_capture.ended++;
        if (cprof_capture.ended == cprof_capture.begun) {
            if (cprof_capture.started) {
                note_lock_held(cprof_wait_profiler_stop(), "cuProfilerStop");
                cprof_capture.started = false;
            }
            if (cprof_capture.ended == cprof_capture.count) {
                atomic_store_explicit(&cprof_capture.phase, CPROF_CAPTURE_OVER, memory_order_release);
            }
        }
    }
    (void)pthread_mutex_unlock(&cprof_capture.lock);
}

/* What became of the calls that were to be passed by; nothing where there were to be none. */
static void say_passed_lock_held(char *buffer, size_t size)
{
    uint64_t seen = atomic_load(&cprof_capture.seen);
    if (seen == 0) {
        (void)snprintf(buffer, size, "%s", ": there was no call of a node of that name");
    } else if (seen < cprof_capture.skip) {
        (void)snprintf(buffer, size, " after %" PRIu64 " of %" PRIu64 " that were to be passed by", seen, cprof_capture.skip);
    } else if (cprof_capture.skip != 0) {
        (void)snprintf(buffer, size, " after %" PRIu64 " that %s passed by", cprof_capture.skip,
                       cprof_capture.skip == 1 ? "was" : "were");
    }
}

bool cprof_capture_report(char *buffer, size_t size)
{
    (void)pthread_mutex_lock(&cprof_capture.lock);
    int phase = atomic_load(&cprof_capture.phase);
    bool any = phase == CPROF_CAPTURE_SET || phase == CPROF_CAPTURE_OVER;
    if (any) {
        char passed[96] = "";
        char answer[64] = "";
        say_passed_lock_held(passed, sizeof passed);
        if (cprof_capture.refusal > 0) {
            (void)snprintf(answer, sizeof answer, "; %s answered %d", cprof_capture.refused, cprof_capture.refusal);
        } else if (cprof_capture.refusal < 0) {
            (void)snprintf(answer, sizeof answer, "; %s was left out: there was no driver", cprof_capture.refused);
        }
        (void)snprintf(buffer, size, "%" PRIu64 " of %" PRIu64 " calls captured%s%s", cprof_capture.begun, cprof_capture.count,
                       passed, answer);
    } else {
        (void)snprintf(buffer, size, "%s", "");
    }
    (void)pthread_mutex_unlock(&cprof_capture.lock);
    return any;
}

/* The lock may have been held by a thread that does not exist here. */
void cprof_capture_after_fork_in_child(void)
{
    cprof_capture.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    cprof_capture.ended = cprof_capture.begun;
    if (atomic_load(&cprof_capture.phase) != CPROF_CAPTURE_NONE) {
        atomic_store(&cprof_capture.phase, CPROF_CAPTURE_FORKED);
    }
}

void cprof_capture_reset_for_test(void)
{
    cprof_alloc_release((void *)cprof_capture.name.bytes);
    cprof_capture = (cprof_capture_state){.lock = PTHREAD_MUTEX_INITIALIZER};
}
