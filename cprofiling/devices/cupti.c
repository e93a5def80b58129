#define _GNU_SOURCE
#include "cprofiling/devices/cupti.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/devices/cupti_calls.h"
#include "cprofiling/devices/cupti_events.h"
#include "cprofiling/devices/cupti_library.h"
#include "cprofiling/base/environment.h"
#include "cprofiling/devices/wait.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIBRARY_VARIABLE "CPROFILING_LIBCUPTI"
#define HOME_VARIABLE "CUDA_HOME"

enum {
    OLDEST_VERSION = 13, /* CUDA 11.0: its records have their fields where those of later ones have them */
    FLUSH_COMPLETE = 0,
    FLUSH_FORCED = 1,
    READINGS = 8,              /* of both clocks; the closest counts */
    RATE_SPAN_NS = 200 * 1000, /* between the first two moments: to tell a clock of another rate */
    REASON_SIZE = 240,
};

static const int kinds[] = {CPROF_CUPTI_KERNEL, CPROF_CUPTI_MEMCPY, CPROF_CUPTI_MEMSET, CPROF_CUPTI_PEER_COPY};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static struct {
    pthread_mutex_t lock; /* held by all functions but callbacks, also while CUPTI is called; guards: */
    uint64_t users[CPROF_CUPTI_USES];
    bool is_forked;
    bool has_places; /* the environment was read */
    bool has_library;
    char *path; /* from the environment, owned, as are: */
    char *home;
    char *folders;
    void *subscriber;
    uint32_t last_session;
    unsigned enabled;         /* kinds of records */
    char reason[REASON_SIZE]; /* why it is off, or what went wrong first since it is on */
    cprof_ticks trace_begin;
    cprof_ns since_epoch;
} cupti = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What callbacks share with this unit; the library in it is written before the first of them. */
static cprof_cupti_seen *const seen = &cprof_cupti_events;

/* ---- Reasons ---- */

/* The first one stays. */
static void note_lock_held(const char *text)
{
    if (cupti.reason[0] == '\0') {
        (void)snprintf(cupti.reason, sizeof cupti.reason, "%s", text);
    }
}

/* Whether a call succeeded; notes it if not. */
static bool check_lock_held(cprof_cupti_result result, const char *function)
{
    char text[REASON_SIZE];
    if (result == CPROF_CUPTI_SUCCESS) {
        return true;
    }
    (void)snprintf(text, sizeof text, "%s (%d) from %s", cprof_cupti_library_result(&seen->library, result), result, function);
    note_lock_held(text);
    return false;
}

/* ---- The two clocks ---- */

/* The moments are those of one reading of their clock between two of ours; the closest of several. */
static bool read_moment_lock_held(cprof_cupti_moment *moment)
{
    cprof_ticks closest = UINT64_MAX;
    for (int i = 0; i < READINGS; i++) {
        uint64_t theirs = 0;
        cprof_ticks before = cprof_clock_read();
        cprof_cupti_result result = seen->library.get_timestamp(&theirs);
        cprof_ticks after = cprof_clock_read();
        if (!check_lock_held(result, "cuptiGetTimestamp")) {
            return false;
        }
        if (after - before < closest) {
            closest = after - before;
            *moment = (cprof_cupti_moment){before + closest / 2, theirs};
        }
    }
    return true;
}

static bool begin_line_lock_held(void)
{
    cprof_cupti_clock line = {.origin = cprof_clock_pair_now()};
    if (!read_moment_lock_held(&line.first)) {
        return false;
    }
    line.last = line.first;
    cprof_lock_acquire(&seen->line_lock);
    seen->line = line;
    cprof_lock_release(&seen->line_lock);
    return true;
}

/* Sets *goes_on to false where the line had to begin anew: what a recording has by then gets its times from the old one. */
static bool add_moment_lock_held(bool *goes_on)
{
    cprof_cupti_moment now;
    if (!read_moment_lock_held(&now)) {
        return false;
    }
    cprof_cupti_clock before = cprof_cupti_events_line();
    cprof_cupti_clock line = before;
    *goes_on = cprof_cupti_clock_continue(&line, now);
    if (!*goes_on && atomic_load(&seen->is_traced)) {
        cprof_cupti_store_settle(&seen->trace, &before, cupti.since_epoch, cupti.trace_begin);
    }
    cprof_lock_acquire(&seen->line_lock);
    seen->line = line;
    cprof_lock_release(&seen->line_lock);
    return true;
}

/* Lets some time pass on both clocks, so that their rates can be told apart. */
static void wait_for_rate(void)
{
    const struct timespec span = {.tv_nsec = RATE_SPAN_NS};
    (void)nanosleep(&span, NULL);
}

/* Without a reading the line goes on as before. */
static bool continue_line_lock_held(void)
{
    bool goes_on = true;
    bool is_read = add_moment_lock_held(&goes_on);
    if (is_read && !goes_on) {
        wait_for_rate();
        is_read = add_moment_lock_held(&goes_on);
    }
    return is_read;
}

/* ---- Taking the subscriber, and giving it back ---- */

static char *copy_of(const char *text)
{
    size_t size = text != NULL ? strlen(text) + 1 : 0;
    char *copy = size > 1 ? cprof_alloc_zeroed(size) : NULL;
    return copy != NULL ? memcpy(copy, text, size) : NULL;
}

static bool find_library_lock_held(void)
{
    char reason[REASON_SIZE];
    if (cupti.has_library) {
        return true;
    }
    if (!cupti.has_places) { /* once only: other threads may change the environment later on */
        cupti.path = copy_of(cprof_environment_get(LIBRARY_VARIABLE));
        cupti.home = copy_of(cprof_environment_get(HOME_VARIABLE));
        cupti.has_places = true;
    }
    const cprof_cupti_places places = {.path = cupti.path, .folders = cupti.folders, .home = cupti.home};
    cupti.has_library = cprof_cupti_library_find(&places, &seen->library, reason, sizeof reason);
    if (!cupti.has_library) {
        note_lock_held(reason);
    }
    return cupti.has_library;
}

static bool subscribe_lock_held(void)
{
    char text[REASON_SIZE];
    cprof_cupti_result result = seen->library.subscribe(&cupti.subscriber, cprof_cupti_events_call, NULL);
    if (result == CPROF_CUPTI_MULTIPLE_SUBSCRIBERS || result == CPROF_CUPTI_MAX_LIMIT_REACHED) {
        (void)snprintf(text, sizeof text, "another profiler (torch.profiler, Nsight) holds CUPTI: %s (%d) from cuptiSubscribe",
                       cprof_cupti_library_result(&seen->library, result), result);
        note_lock_held(text);
    }
    return check_lock_held(result, "cuptiSubscribe");
}

static bool check_version_lock_held(void)
{
    char text[REASON_SIZE];
    uint32_t version = 0;
    if (!check_lock_held(seen->library.get_version(&version), "cuptiGetVersion")) {
        return false;
    }
    if (version < OLDEST_VERSION) {
        (void)snprintf(text, sizeof text, "this CUPTI (version %" PRIu32 ") is older than that of CUDA 11", version);
        note_lock_held(text);
    }
    return version >= OLDEST_VERSION;
}

/* What an older version does not know, no program that uses it calls; but none knows nothing. */
static bool enable_calls_lock_held(unsigned domain)
{
    bool is_any_known = false;
    for (uint32_t number = 0; number < cprof_cupti_call_end(domain); number++) {
        if (cprof_cupti_call_of(domain, number) == NULL) {
            continue;
        }
        cprof_cupti_result result = seen->library.enable_callback(1, cupti.subscriber, (int)domain, number);
        if (result != CPROF_CUPTI_INVALID_PARAMETER && !check_lock_held(result, "cuptiEnableCallback")) {
            return false;
        }
        is_any_known = is_any_known || result == CPROF_CUPTI_SUCCESS;
    }
    return is_any_known || check_lock_held(CPROF_CUPTI_INVALID_PARAMETER, "cuptiEnableCallback");
}

static bool enable_kinds_lock_held(void)
{
    for (cupti.enabled = 0; cupti.enabled < KINDS; cupti.enabled++) {
        if (!check_lock_held(seen->library.enable(kinds[cupti.enabled]), "cuptiActivityEnable")) {
            return false;
        }
    }
    return true;
}

/* As far as not enough time has passed. */
static bool learn_rate_lock_held(void)
{
    cprof_cupti_clock line = cprof_cupti_events_line();
    if (cprof_cupti_clock_ours(&line, cprof_clock_read()) - cprof_cupti_clock_ours(&line, line.first.ours) < RATE_SPAN_NS) {
        wait_for_rate();
    }
    return continue_line_lock_held();
}

static bool prepare_memory_lock_held(void)
{
    if (atomic_load(&seen->spare) == NULL) {
        atomic_store(&seen->spare, cprof_alloc_zeroed(CPROF_CUPTI_BUFFER_SIZE));
    }
    bool is_ready = atomic_load(&seen->spare) != NULL && cprof_cupti_launches_create(&seen->launches);
    if (!is_ready) {
        note_lock_held("out of memory");
    }
    return is_ready;
}

static void clear_counters(void)
{
#define CLEAR(name) atomic_store(&seen->name, 0);
    CPROF_CUPTI_COUNTERS(CLEAR)
#undef CLEAR
    atomic_store(&seen->decode_error, 0);
}

static void flush_lock_held(uint32_t flag)
{
    (void)continue_line_lock_held();
    (void)check_lock_held(seen->library.flush_all(flag), "cuptiActivityFlushAll");
    /* Adds what CUPTI had no room for since this was asked last. */
    size_t dropped = 0;
    if (check_lock_held(seen->library.get_num_dropped_records(NULL, 0, &dropped), "cuptiActivityGetNumDroppedRecords")) {
        atomic_fetch_add(&seen->dropped, dropped);
        if (atomic_load(&seen->is_traced)) {
            cprof_cupti_store_drop(&seen->trace, dropped);
        }
    }
}

/* Every step is taken, whatever the one before it answers. Records of work that has not ended come now, without times. */
static void close_lock_held(void)
{
    while (cupti.enabled > 0) {
        (void)check_lock_held(seen->library.disable(kinds[--cupti.enabled]), "cuptiActivityDisable");
    }
    flush_lock_held(FLUSH_FORCED);
    atomic_store(&seen->session, 0);
    (void)check_lock_held(seen->library.unsubscribe(cupti.subscriber), "cuptiUnsubscribe");
}

static bool open_lock_held(void)
{
    cupti.reason[0] = '\0';
    clear_counters();
    if (!cprof_wait_probe()) {
        char text[REASON_SIZE] = "CUDA cannot be used: ";
        size_t length = strlen(text);
        bool is_off = cprof_wait_reason(text + length, sizeof text - length);
        note_lock_held(is_off ? text : "no CUDA in the process");
        return false;
    }
    if (!find_library_lock_held() || !prepare_memory_lock_held() || !subscribe_lock_held()) {
        return false;
    }
    cupti.enabled = 0;
    cprof_clock_start(); /* it is what it will be, before the first reading */
    if (check_version_lock_held() && begin_line_lock_held()) {
        cupti.last_session++;
        atomic_store(&seen->session, cupti.last_session != 0 ? cupti.last_session : ++cupti.last_session);
        if (check_lock_held(seen->library.register_callbacks(cprof_cupti_events_request, cprof_cupti_events_complete),
                            "cuptiActivityRegisterCallbacks") &&
            enable_kinds_lock_held() && enable_calls_lock_held(CPROF_CUPTI_RUNTIME) &&
            enable_calls_lock_held(CPROF_CUPTI_DRIVER) && learn_rate_lock_held()) {
            return true;
        }
    }
    close_lock_held();
    return false;
}

/* ---- Users ---- */

static uint64_t all_users_lock_held(void)
{
    return cupti.users[CPROF_CUPTI_COUNTS] + cupti.users[CPROF_CUPTI_TRACE];
}

bool cprof_cupti_start(cprof_cupti_use use)
{
    (void)pthread_mutex_lock(&cupti.lock);
    bool is_on = !cupti.is_forked && (all_users_lock_held() > 0 || open_lock_held());
    if (is_on) {
        if (use == CPROF_CUPTI_COUNTS) {
            atomic_store(&seen->is_counted, true);
        } else if (cupti.users[use] == 0) {
            if (all_users_lock_held() > 0) {
                flush_lock_held(FLUSH_COMPLETE); /* what others did before is no part of it */
            }
            cupti.since_epoch = cprof_clock_since_epoch();
            cupti.trace_begin = cprof_clock_read();
            atomic_store(&seen->is_traced, true);
        }
        cupti.users[use]++;
    }
    (void)pthread_mutex_unlock(&cupti.lock);
    return is_on;
}

static void end_use_lock_held(cprof_cupti_use use)
{
    if (all_users_lock_held() == 0) {
        close_lock_held();
    } else if (use == CPROF_CUPTI_TRACE) {
        flush_lock_held(FLUSH_COMPLETE);
    }
    if (use == CPROF_CUPTI_COUNTS) {
        atomic_store(&seen->is_counted, false);
        return;
    }
    atomic_store(&seen->is_traced, false);
    cprof_clock_refine();
    cprof_cupti_clock line = cprof_cupti_events_line();
    cprof_cupti_store_settle(&seen->trace, &line, cupti.since_epoch, cupti.trace_begin);
}

void cprof_cupti_stop(cprof_cupti_use use)
{
    (void)pthread_mutex_lock(&cupti.lock);
    if (cupti.users[use] > 0) {
        cupti.users[use]--;
        if (cupti.users[use] == 0) {
            end_use_lock_held(use);
        }
    }
    (void)pthread_mutex_unlock(&cupti.lock);
}

void cprof_cupti_flush(void)
{
    (void)pthread_mutex_lock(&cupti.lock);
    if (all_users_lock_held() > 0) {
        flush_lock_held(FLUSH_COMPLETE);
    }
    (void)pthread_mutex_unlock(&cupti.lock);
}

void cprof_cupti_forget(const cprof_registry *registry)
{
    cprof_cupti_thread_forget(registry);
    cprof_cupti_launches_forget(&seen->launches, registry);
}

cprof_status cprof_cupti_collect(cprof_table *table)
{
    (void)pthread_mutex_lock(&cupti.lock);
    cprof_status status =
        cprof_cupti_store_collect(&seen->trace, table != NULL ? cprof_cupti_library_demangler() : NULL, table);
    (void)pthread_mutex_unlock(&cupti.lock);
    return status;
}

/* Earlier folders go first: without memory none is better than wrong ones. */
bool cprof_cupti_set_folders(const char *const *folders, size_t count)
{
    size_t size = 1;
    for (size_t i = 0; i < count; i++) {
        size += strlen(folders[i]) + 1;
    }
    char *copy = cprof_alloc_zeroed(size);
    char *at = copy;
    for (size_t i = 0; i < count && copy != NULL; i++) {
        at = stpcpy(at, folders[i]) + (folders[i][0] != '\0'); /* an empty one would be the end */
    }
    (void)pthread_mutex_lock(&cupti.lock);
    char *before = cupti.folders;
    cupti.folders = copy; /* first: a child that is forked meanwhile has this one, or the other */
    atomic_signal_fence(memory_order_seq_cst);
    cprof_alloc_release(before);
    (void)pthread_mutex_unlock(&cupti.lock);
    return copy != NULL;
}

/* ---- State ---- */

/* Adds a loss to a list, unless its count is 0. */
static void add_loss(char *text, size_t size, uint64_t lost, const char *what)
{
    size_t length = strlen(text);
    if (lost > 0) {
        (void)snprintf(text + length, size - length, "%s%s: %" PRIu64, length > 0 ? "; " : "", what, lost);
    }
}

static void describe_lock_held(char *text, size_t size)
{
    (void)snprintf(text, size, "%s", cupti.reason);
    int error = atomic_load(&seen->decode_error);
    size_t length = strlen(text);
    if (error != 0) {
        (void)snprintf(text + length, size - length, "%s%s (%d) from cuptiActivityGetNextRecord", length > 0 ? "; " : "",
                       cprof_cupti_library_result(&seen->library, error), error);
    }
    add_loss(text, size, atomic_load(&seen->dropped), "records that CUPTI had no room for");
    add_loss(text, size, atomic_load(&seen->unknown_launch), "records of work whose launch is not known");
    add_loss(text, size, atomic_load(&seen->untimed), "records without times");
    add_loss(text, size, atomic_load(&seen->unknown_node), "launches of a backward pass whose node is not known");
}

bool cprof_cupti_reason(char *buffer, size_t size)
{
    char text[2 * REASON_SIZE] = "off(fork): CUPTI does not survive a fork";
    (void)pthread_mutex_lock(&cupti.lock);
    if (!cupti.is_forked) {
        describe_lock_held(text, sizeof text);
    }
    (void)pthread_mutex_unlock(&cupti.lock);
    (void)snprintf(buffer, size, "%s", text);
    return text[0] != '\0';
}

void cprof_cupti_get_state(cprof_cupti_state *state)
{
    *state = (cprof_cupti_state){.has_library = false};
    (void)pthread_mutex_lock(&cupti.lock);
    memcpy(state->users, cupti.users, sizeof state->users);
    if (cupti.has_library && !cupti.is_forked) {
        const char *path = cprof_cupti_library_path(&seen->library);
        state->has_library = true;
        (void)snprintf(state->path, sizeof state->path, "%s", path != NULL ? path : "");
        (void)seen->library.get_version(&state->version);
    }
    (void)pthread_mutex_unlock(&cupti.lock);
#define COPY(name) state->name = atomic_load(&seen->name);
    CPROF_CUPTI_COUNTERS(COPY)
#undef COPY
}

/* ---- Fork, and tests ---- */

static void forget_all(void)
{
    memset(cupti.users, 0, sizeof cupti.users);
    cupti.enabled = 0;
    atomic_store(&seen->session, 0);
    atomic_store(&seen->is_traced, false);
    atomic_store(&seen->is_counted, false);
}

void cprof_cupti_after_fork_in_child(void)
{
    cupti.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    cupti.is_forked = cupti.is_forked || cupti.has_library;
    forget_all();
    clear_counters();
    if (atomic_load(&seen->trace.lock.word) == 0) {
        (void)cprof_cupti_store_collect(&seen->trace, NULL, NULL);
    } else { /* half-written */
        seen->trace = (cprof_cupti_store){.capacity = seen->trace.capacity};
    }
    cprof_cupti_thread_after_fork_in_child();
}

void cprof_cupti_reset_for_test(void)
{
    forget_all();
    clear_counters();
    (void)cprof_cupti_store_collect(&seen->trace, NULL, NULL);
    seen->trace.capacity = CPROF_CUPTI_STORE_CAPACITY;
    cprof_cupti_launches_dispose(&seen->launches);
    cprof_alloc_release(atomic_exchange(&seen->spare, NULL));
    cprof_alloc_release(cupti.path);
    cprof_alloc_release(cupti.home);
    cprof_alloc_release(cupti.folders);
    cupti.path = cupti.home = cupti.folders = NULL;
    cupti.has_places = cupti.has_library = cupti.is_forked = false;
    cupti.reason[0] = '\0';
}
