#include "cprofiling/files/chrome_track.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/vector.h"
#include "cprofiling/files/chrome_write.h"

#include <stdio.h>
#include <string.h>

enum {
    FIRST_LANES = 16,
    LONGEST_NUMBER = 32, /* "Thread " and a number, too */
};

#define VALUE(field) cprof_chrome_event_value(event, CPROF_CHROME_##field)

_Static_assert(sizeof(cprof_chrome_thread) == 24, "it is compared as bytes, and has none between its fields");

void cprof_chrome_track_dispose(cprof_chrome_tracks *tracks)
{
    cprof_names_dispose(&tracks->lanes);
    cprof_alloc_release(tracks->of_lanes);
}

static cprof_names key_of(const cprof_chrome_thread *thread)
{
    return (cprof_names){{"", 0}, {(const char *)thread, sizeof *thread}};
}

static cprof_status number_or_text(cprof_chrome_values *values, const cprof_json_value *value, int64_t *number,
                                   cprof_text *text)
{
    *text = 0;
    if (cprof_chrome_values_is_integer(value, number)) {
        return CPROF_OK;
    }
    *number = 0;
    if (value != NULL && value->kind == CPROF_JSON_STRING && value->text.length == 0) {
        return cprof_chrome_values_intern(values, (cprof_name){" ", 1}, text);
    }
    return cprof_chrome_values_text(values, value, text);
}

static cprof_status thread_of(cprof_chrome_values *values, const cprof_chrome_event *event, cprof_chrome_thread *thread)
{
    cprof_status status = number_or_text(values, VALUE(PID), &thread->pid, &thread->pid_text);
    return status == CPROF_OK ? number_or_text(values, VALUE(TID), &thread->tid, &thread->tid_text) : status;
}

/* Finds the track of a thread that there is one of; a lane's is that of its thread. */
static bool find_known(const cprof_chrome_tracks *tracks, const cprof_chrome_thread *thread, uint32_t *track)
{
    size_t lane = cprof_names_find(&tracks->lanes, key_of(thread));
    if (lane != CPROF_NAMES_ABSENT) {
        *track = tracks->of_lanes[lane];
        return true;
    }
    return cprof_table_find_track(tracks->values->table, thread->pid, thread->pid_text, thread->tid, thread->tid_text, track);
}

static cprof_status find_track(cprof_chrome_tracks *tracks, const cprof_chrome_thread *thread, uint32_t *track)
{
    if (tracks->last_track != 0 && memcmp(&tracks->last, thread, sizeof *thread) == 0) {
        *track = tracks->last_track - 1;
        return CPROF_OK;
    }
    cprof_status status = CPROF_OK;
    if (!find_known(tracks, thread, track)) {
        status = cprof_table_track(tracks->values->table, thread->pid, thread->pid_text, thread->tid, thread->tid_text, track);
    }
    if (status == CPROF_OK) {
        tracks->last = *thread;
        tracks->last_track = *track + 1;
    }
    return status;
}

cprof_status cprof_chrome_track_of(cprof_chrome_tracks *tracks, const cprof_chrome_event *event, uint32_t *track)
{
    cprof_chrome_thread thread;
    cprof_status status = thread_of(tracks->values, event, &thread);
    return status == CPROF_OK ? find_track(tracks, &thread, track) : status;
}

/* ---- lanes ---- */

/* Takes the number of a lane away from the end of a name; 0: there is none. */
static unsigned take_lane(cprof_name *name)
{
    unsigned number = 0;
    if (name->length == 0 || name->bytes[name->length - 1] != ')') {
        return 0;
    }
    size_t at = name->length - 1;
    for (unsigned unit = 1; unit < 1000 && at > 0 && name->bytes[at - 1] >= '0' && name->bytes[at - 1] <= '9'; unit *= 10) {
        number += (unsigned)(name->bytes[--at] - '0') * unit;
    }
    if (at < 2 || memcmp(name->bytes + at - 2, " (", 2) != 0 || name->bytes[at] == '0' || number < 2 ||
        number > CPROF_TABLE_MAX_LANES) {
        return 0;
    }
    name->length = at - 2;
    return number - 1;
}

/* The thread that a thread is that lane of, if it is one. */
static cprof_status thread_of_lane(cprof_chrome_values *values, const cprof_chrome_thread *thread, unsigned lane,
                                   cprof_chrome_thread *base, bool *is_lane)
{
    static const int64_t step = (int64_t)CPROF_CHROME_WRITE_LANE;
    *base = *thread;
    if (thread->tid_text != 0) {
        cprof_name name = cprof_table_string(values->table, thread->tid_text);
        *is_lane = take_lane(&name) == lane && name.length > 0;
        return *is_lane ? cprof_chrome_values_intern(values, name, &base->tid_text) : CPROF_OK;
    }
    *is_lane = thread->tid > (lane - 1) * step && thread->tid <= (lane + 1) * step;
    base->tid -= *is_lane ? lane * step : 0;
    return CPROF_OK;
}

/* Whether a name is what lanes of a thread are called by. It may have no track yet. */
static bool is_name_of(const cprof_chrome_tracks *tracks, const cprof_chrome_thread *thread, cprof_name name)
{
    char text[LONGEST_NUMBER];
    const cprof_table *table = tracks->values->table;
    uint32_t track;
    bool has_name = find_known(tracks, thread, &track) && table->tracks[track].thread_name != 0;
    cprof_text own = has_name ? table->tracks[track].thread_name : thread->tid_text;
    if (own == 0) {
        (void)snprintf(text, sizeof text, "Thread %lld", (long long)thread->tid);
        return cprof_name_is(name, text);
    }
    cprof_name string = cprof_table_string(table, own);
    return name.length == string.length && memcmp(name.bytes, string.bytes, name.length) == 0;
}

static cprof_status add_lane(cprof_chrome_tracks *tracks, const cprof_chrome_thread *thread, uint32_t track)
{
    uint32_t *of_lanes =
        cprof_vector_grow(tracks->of_lanes, &tracks->capacity, tracks->lanes.count, sizeof *of_lanes, FIRST_LANES);
    if (of_lanes == NULL) {
        return CPROF_NO_MEMORY;
    }
    tracks->of_lanes = of_lanes;
    tracks->of_lanes[tracks->lanes.count] = track;
    return cprof_names_add(&tracks->lanes, key_of(thread));
}

/* Finds out whether the name of a thread makes it a lane, or it is one already. */
static cprof_status find_lane(cprof_chrome_tracks *tracks, const cprof_chrome_thread *thread, cprof_name name, bool *is_lane)
{
    cprof_chrome_thread base;
    uint32_t track;
    *is_lane = cprof_names_find(&tracks->lanes, key_of(thread)) != CPROF_NAMES_ABSENT;
    unsigned lane = *is_lane ? 0 : take_lane(&name);
    if (lane == 0) {
        return CPROF_OK;
    }
    cprof_status status = thread_of_lane(tracks->values, thread, lane, &base, is_lane);
    *is_lane = status == CPROF_OK && *is_lane && is_name_of(tracks, &base, name);
    if (!*is_lane) {
        return status;
    }
    status = find_track(tracks, &base, &track);
    return status == CPROF_OK ? add_lane(tracks, thread, track) : status;
}

/* ---- metadata ---- */

enum { PROCESS_NAME, PROCESS_LABELS, PROCESS_SORT, THREAD_NAME, THREAD_SORT, METADATA };

/* What metadata says, and in which of its args. */
static const struct {
    const char *name;
    cprof_chrome_field field;
} metadata[METADATA] = {
    [PROCESS_NAME] = {"process_name", CPROF_CHROME_META_NAME},
    [PROCESS_LABELS] = {"process_labels", CPROF_CHROME_LABELS},
    [PROCESS_SORT] = {"process_sort_index", CPROF_CHROME_SORT_INDEX},
    [THREAD_NAME] = {"thread_name", CPROF_CHROME_META_NAME},
    [THREAD_SORT] = {"thread_sort_index", CPROF_CHROME_SORT_INDEX},
};

static cprof_status name_thread(cprof_chrome_tracks *tracks, const cprof_chrome_thread *thread, const cprof_json_value *value)
{
    cprof_name name;
    uint32_t track;
    bool is_lane = false;
    cprof_status status = cprof_chrome_values_string(tracks->values, value, &name);
    if (status == CPROF_OK) {
        status = find_lane(tracks, thread, name, &is_lane);
    }
    if (status != CPROF_OK || is_lane) {
        return status;
    }
    status = find_track(tracks, thread, &track);
    return status == CPROF_OK
               ? cprof_chrome_values_intern(tracks->values, name, &tracks->values->table->tracks[track].thread_name)
               : status;
}

/* What is said of a process is said of any of its tracks, if there is one; what comes later shares it. */
static cprof_status find_described(cprof_chrome_tracks *tracks, const cprof_chrome_thread *thread, int what, uint32_t *track)
{
    bool of_process = what == PROCESS_NAME || what == PROCESS_LABELS || what == PROCESS_SORT;
    if (of_process && cprof_table_find_process(tracks->values->table, thread->pid, thread->pid_text, track)) {
        return CPROF_OK;
    }
    return find_track(tracks, thread, track);
}

static cprof_status set_metadata(cprof_chrome_values *values, int what, const cprof_json_value *value, cprof_track *track)
{
    cprof_track *process = &values->table->tracks[track->process];
    switch (what) {
    case PROCESS_NAME:
        return cprof_chrome_values_text(values, value, &process->process_name);
    case PROCESS_LABELS:
        return cprof_chrome_values_text(values, value, &process->process_labels);
    default:
        break;
    }
    int64_t *sort = what == PROCESS_SORT ? &process->process_sort : &track->thread_sort;
    *sort = cprof_chrome_values_integer(value, INT64_MIN, INT64_MAX, CPROF_TABLE_UNKNOWN);
    return CPROF_OK;
}

cprof_status cprof_chrome_track_metadata(cprof_chrome_tracks *tracks, const cprof_chrome_event *event, bool *is_known)
{
    cprof_name name;
    cprof_chrome_thread thread;
    uint32_t track;
    int what = 0;
    *is_known = false;
    cprof_status status = cprof_chrome_values_string(tracks->values, VALUE(NAME), &name);
    while (status == CPROF_OK && what < METADATA && !cprof_name_is(name, metadata[what].name)) {
        what++;
    }
    const cprof_json_value *value = what < METADATA ? cprof_chrome_event_value(event, metadata[what].field) : NULL;
    if (status != CPROF_OK || value == NULL) {
        return status;
    }
    *is_known = true;
    status = thread_of(tracks->values, event, &thread);
    if (status == CPROF_OK && what == THREAD_NAME) {
        return name_thread(tracks, &thread, value);
    }
    if (status == CPROF_OK) {
        status = find_described(tracks, &thread, what, &track);
    }
    return status == CPROF_OK ? set_metadata(tracks->values, what, value, &tracks->values->table->tracks[track]) : status;
}
