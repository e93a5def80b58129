#include "cprofiling/files/chrome_values.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/hash.h"
#include "cprofiling/files/chrome_write.h"
#include "cprofiling/files/json_write.h"
#include "cprofiling/nodes/accum.h"

#include <stdio.h>
#include <string.h>

enum { NS_POWER = 3 }; /* times are microseconds */

static const int64_t least_random_id = INT64_C(1) << 52; /* such ids are of no other trace, and stay */

void cprof_chrome_values_dispose(cprof_chrome_values *values)
{
    cprof_alloc_release(values->scratch.bytes);
    cprof_alloc_release(values->changed.bytes);
    cprof_names_dispose(&values->lanes);
    cprof_alloc_release(values->of_lanes);
    cprof_chrome_sources_close(&values->sources);
}

char *cprof_chrome_values_grow(cprof_chrome_values_room *room, size_t size)
{
    char *bytes = cprof_alloc_reserve(room->bytes, &room->size, size);
    room->bytes = bytes != NULL ? bytes : room->bytes;
    return bytes;
}

/* ---- texts ---- */

/* Without a seed: arrows of several files meet by it. */
static uint64_t hash_text(cprof_name text)
{
    uint64_t hash = text.length;
    uint64_t eight;
    for (; text.length >= sizeof eight; text.bytes += sizeof eight, text.length -= sizeof eight) {
        memcpy(&eight, text.bytes, sizeof eight);
        hash = cprof_hash_mix(hash, eight);
    }
    eight = 0;
    memcpy(&eight, text.bytes, text.length);
    return cprof_hash_mix(hash, eight);
}

/* Most strings were met lately. */
static cprof_status intern_text(cprof_chrome_values *values, cprof_name string, cprof_text *text)
{
    uint64_t hash = hash_text(string);
    size_t slot = hash % CPROF_CHROME_VALUES_CACHED;
    if (values->cache[slot].hash == hash && values->cache[slot].text != 0) {
        *text = values->cache[slot].text;
        cprof_name known = cprof_table_string(values->table, *text);
        if (known.length == string.length && memcmp(known.bytes, string.bytes, string.length) == 0) {
            return CPROF_OK;
        }
    }
    cprof_status status = cprof_table_text(values->table, string, text);
    if (status == CPROF_OK) {
        values->cache[slot].hash = hash;
        values->cache[slot].text = *text;
    }
    return status;
}

/* The string that a value stands for; of one that is no string, its JSON. Borrowed until the next call of a function here.
 * Empty: it is absent. CPROF_NO_MEMORY. */
static cprof_status string_of_value(cprof_chrome_values *values, const cprof_json_value *value, cprof_name *string)
{
    bool is_null = value != NULL && value->kind == CPROF_JSON_WORD && value->text.bytes[0] == 'n';
    *string = value == NULL || value->kind == CPROF_JSON_UNKNOWN || is_null ? (cprof_name){"", 0} : value->text;
    if (string->length == 0 || value->is_plain) {
        return CPROF_OK;
    }
    char *bytes = cprof_chrome_values_grow(&values->scratch, string->length);
    if (bytes == NULL) {
        return CPROF_NO_MEMORY;
    }
    *string = (cprof_name){bytes, cprof_json_read_unescape(*string, bytes)};
    return CPROF_OK;
}

/* The same as a text. CPROF_NO_MEMORY. */
static cprof_status text_of_value(cprof_chrome_values *values, const cprof_json_value *value, cprof_text *text)
{
    cprof_name string;
    cprof_status status = string_of_value(values, value, &string);
    return status == CPROF_OK ? intern_text(values, string, text) : status;
}

/* The JSON of a list as a text; 0: it is no list. CPROF_NO_MEMORY. */
static cprof_status list_of_value(cprof_chrome_values *values, const cprof_json_value *value, cprof_text *text)
{
    cprof_name json;
    *text = 0;
    if (value == NULL || value->kind != CPROF_JSON_LIST) {
        return CPROF_OK;
    }
    cprof_status status = cprof_chrome_values_json(values, value, &json);
    return status == CPROF_OK ? intern_text(values, json, text) : status;
}

/* The frames of a stack, which Kineto puts in one line; 0: it is no string. CPROF_NO_MEMORY. */
static cprof_status stack_of_value(cprof_chrome_values *values, const cprof_json_value *value, cprof_text *text)
{
    cprof_name string;
    *text = 0;
    if (value == NULL || value->kind != CPROF_JSON_STRING || value->text.length == 0) {
        return CPROF_OK;
    }
    cprof_status status = string_of_value(values, value, &string);
    char *lines = status == CPROF_OK ? cprof_chrome_values_grow(&values->changed, string.length) : NULL;
    if (lines == NULL) {
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < string.length; i++) {
        lines[i] = (char)(string.bytes[i] == ';' ? '\n' : string.bytes[i]);
    }
    return intern_text(values, (cprof_name){lines, string.length}, text);
}

cprof_status cprof_chrome_values_json(cprof_chrome_values *values, const cprof_json_value *value, cprof_name *json)
{
    *json = value->text;
    if (value->is_strict) {
        return CPROF_OK;
    }
    char *bytes = cprof_chrome_values_grow(&values->scratch, 2 * json->length);
    if (bytes == NULL) {
        return CPROF_NO_MEMORY;
    }
    *json = (cprof_name){bytes, cprof_json_read_strict(*json, bytes)};
    return CPROF_OK;
}

/* ---- numbers ---- */

bool cprof_chrome_values_is_integer(const cprof_json_value *value, int64_t *integer)
{
    bool is_exact = false;
    return value != NULL && value->kind == CPROF_JSON_NUMBER && cprof_json_read_decimal(value->text, 0, integer, &is_exact) &&
           is_exact;
}

int64_t cprof_chrome_values_integer(const cprof_json_value *value, int64_t least, int64_t most, int64_t none)
{
    int64_t integer;
    return cprof_chrome_values_is_integer(value, &integer) && integer >= least && integer <= most ? integer : none;
}

/* An integer of 64 bits. */
static int64_t integer_of(const cprof_json_value *value, int64_t none)
{
    return cprof_chrome_values_integer(value, INT64_MIN, INT64_MAX, none);
}

cprof_status cprof_chrome_values_ns(const cprof_json_value *value, int64_t *ns, bool *is_known)
{
    bool ignored;
    *ns = 0;
    *is_known = value != NULL && value->kind == CPROF_JSON_NUMBER;
    return !*is_known || cprof_json_read_decimal(value->text, NS_POWER, ns, &ignored) ? CPROF_OK : CPROF_OUT_OF_RANGE;
}

/* Reads `count` words of 16 hexadecimal digits in lower case, the most significant first; anything else changes nothing. */
static void read_hex(const cprof_json_value *value, size_t count, uint64_t *words)
{
    enum { DIGITS = 16 };
    uint64_t found[2] = {0, 0};
    if (value == NULL || value->kind != CPROF_JSON_STRING || value->text.length != count * DIGITS) {
        return;
    }
    for (size_t i = 0; i < value->text.length; i++) {
        char c = value->text.bytes[i];
        bool is_letter = c >= 'a' && c <= 'f';
        if (!is_letter && !cprof_json_read_is_digit(c)) {
            return;
        }
        found[i / DIGITS] = found[i / DIGITS] << 4 | (uint64_t)(is_letter ? c - 'a' + 10 : c - '0');
    }
    memcpy(words, found, count * sizeof *words);
}

/* Whether a text is a number of 64 bits without sign or point. */
static bool is_unsigned(cprof_name text, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < text.length; i++) {
        unsigned digit = (unsigned char)text.bytes[i] - (unsigned)'0';
        if (digit > 9 || __builtin_mul_overflow(*number, 10, number) || __builtin_add_overflow(*number, digit, number)) {
            return false;
        }
    }
    return true;
}

/* The id with the offset. It stays as it is unless it is positive and below the random ones, and there is room for all. */
static int64_t move_id(cprof_chrome_values *values, int64_t id)
{
    if (id <= 0 || id >= least_random_id || values->id_offset > INT64_MAX - least_random_id) {
        return id;
    }
    id += values->id_offset;
    values->greatest_id = id > values->greatest_id ? id : values->greatest_id;
    return id;
}

cprof_status cprof_chrome_values_id(cprof_chrome_values *values, const cprof_json_value *value, uint64_t *id)
{
    int64_t integer;
    cprof_name string;
    if (cprof_chrome_values_is_integer(value, &integer)) {
        *id = (uint64_t)move_id(values, integer);
        return CPROF_OK;
    }
    if (value->kind == CPROF_JSON_NUMBER && is_unsigned(value->text, id)) {
        return CPROF_OK;
    }
    cprof_status status = string_of_value(values, value, &string);
    *id = hash_text(string);
    return status;
}

enum {
    FIRST_LANES = 16,
    LONGEST_NUMBER = 32, /* "Thread " and a number, too */
};

#define VALUE(field) cprof_chrome_event_value(event, CPROF_CHROME_##field)

_Static_assert(sizeof(cprof_chrome_thread) == 24, "it is compared as bytes, and has none between its fields");

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
        return intern_text(values, (cprof_name){" ", 1}, text);
    }
    return text_of_value(values, value, text);
}

/* The process and thread of an event, a missing one being 0. As the empty text is no text to a track, an empty string becomes
 * a blank. CPROF_NO_MEMORY. */
static cprof_status thread_of(cprof_chrome_values *values, const cprof_chrome_event *event, cprof_chrome_thread *thread)
{
    cprof_status status = number_or_text(values, VALUE(PID), &thread->pid, &thread->pid_text);
    return status == CPROF_OK ? number_or_text(values, VALUE(TID), &thread->tid, &thread->tid_text) : status;
}

/* Finds the track of a thread that there is one of; a lane's is that of its thread. */
static bool find_known(const cprof_chrome_values *values, const cprof_chrome_thread *thread, uint32_t *track)
{
    size_t lane = cprof_names_find(&values->lanes, key_of(thread));
    if (lane != CPROF_NAMES_ABSENT) {
        *track = values->of_lanes[lane];
        return true;
    }
    return cprof_table_find_track(values->table, thread->pid, thread->pid_text, thread->tid, thread->tid_text, track);
}

static cprof_status find_track(cprof_chrome_values *values, const cprof_chrome_thread *thread, uint32_t *track)
{
    if (values->last_track != 0 && memcmp(&values->last, thread, sizeof *thread) == 0) {
        *track = values->last_track - 1;
        return CPROF_OK;
    }
    cprof_status status = CPROF_OK;
    if (!find_known(values, thread, track)) {
        status = cprof_table_track(values->table, thread->pid, thread->pid_text, thread->tid, thread->tid_text, track);
    }
    if (status == CPROF_OK) {
        values->last = *thread;
        values->last_track = *track + 1;
    }
    return status;
}

/* ---- lanes ---- */

/* Takes the number of a lane off the end of a name; 0: none. */
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
        return *is_lane ? intern_text(values, name, &base->tid_text) : CPROF_OK;
    }
    *is_lane = thread->tid > (lane - 1) * step && thread->tid <= (lane + 1) * step;
    base->tid -= *is_lane ? lane * step : 0;
    return CPROF_OK;
}

/* Whether a name is what lanes of a thread are called by. It may have no track yet. */
static bool is_name_of(const cprof_chrome_values *values, const cprof_chrome_thread *thread, cprof_name name)
{
    char text[LONGEST_NUMBER];
    const cprof_table *table = values->table;
    uint32_t track;
    bool has_name = find_known(values, thread, &track) && table->tracks[track].thread_name != 0;
    cprof_text own = has_name ? table->tracks[track].thread_name : thread->tid_text;
    if (own == 0) {
        (void)snprintf(text, sizeof text, "Thread %lld", (long long)thread->tid);
        return cprof_name_is(name, text);
    }
    cprof_name string = cprof_table_string(table, own);
    return name.length == string.length && memcmp(name.bytes, string.bytes, name.length) == 0;
}

/* Finds out whether the name of a thread makes it a lane, or it is one already. */
static cprof_status find_lane(cprof_chrome_values *values, const cprof_chrome_thread *thread, cprof_name name, bool *is_lane)
{
    cprof_chrome_thread base;
    uint32_t track;
    *is_lane = cprof_names_find(&values->lanes, key_of(thread)) != CPROF_NAMES_ABSENT;
    unsigned lane = *is_lane ? 0 : take_lane(&name);
    if (lane == 0) {
        return CPROF_OK;
    }
    cprof_status status = thread_of_lane(values, thread, lane, &base, is_lane);
    *is_lane = status == CPROF_OK && *is_lane && is_name_of(values, &base, name);
    if (!*is_lane) {
        return status;
    }
    status = find_track(values, &base, &track);
    if (status != CPROF_OK) {
        return status;
    }
    uint32_t *of_lanes =
        cprof_alloc_grow(values->of_lanes, &values->lane_capacity, values->lanes.count, sizeof *of_lanes, FIRST_LANES);
    if (of_lanes == NULL) {
        return CPROF_NO_MEMORY;
    }
    values->of_lanes = of_lanes;
    of_lanes[values->lanes.count] = track;
    return cprof_names_add(&values->lanes, key_of(thread));
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

static cprof_status name_thread(cprof_chrome_values *values, const cprof_chrome_thread *thread, const cprof_json_value *value)
{
    cprof_name name;
    uint32_t track;
    bool is_lane = false;
    cprof_status status = string_of_value(values, value, &name);
    if (status == CPROF_OK) {
        status = find_lane(values, thread, name, &is_lane);
    }
    if (status != CPROF_OK || is_lane) {
        return status;
    }
    status = find_track(values, thread, &track);
    return status == CPROF_OK ? intern_text(values, name, &values->table->tracks[track].thread_name) : status;
}

cprof_status cprof_chrome_values_metadata(cprof_chrome_values *values, const cprof_chrome_event *event, bool *is_known)
{
    cprof_name name;
    cprof_chrome_thread thread;
    uint32_t track;
    int what = 0;
    *is_known = false;
    cprof_status status = string_of_value(values, VALUE(NAME), &name);
    while (status == CPROF_OK && what < METADATA && !cprof_name_is(name, metadata[what].name)) {
        what++;
    }
    const cprof_json_value *value = what < METADATA ? cprof_chrome_event_value(event, metadata[what].field) : NULL;
    if (status != CPROF_OK || value == NULL) {
        return status;
    }
    *is_known = true;
    status = thread_of(values, event, &thread);
    if (status == CPROF_OK && what == THREAD_NAME) {
        return name_thread(values, &thread, value);
    }
    /* Any track of a process may hold its description. */
    bool of_process = what != THREAD_SORT;
    if (status == CPROF_OK && !(of_process && cprof_table_find_process(values->table, thread.pid, thread.pid_text, &track))) {
        status = find_track(values, &thread, &track);
    }
    if (status != CPROF_OK) {
        return status;
    }
    cprof_track *described = &values->table->tracks[track];
    described = of_process ? &values->table->tracks[described->process] : described;
    if (what == PROCESS_NAME || what == PROCESS_LABELS) {
        return text_of_value(values, value, what == PROCESS_NAME ? &described->process_name : &described->process_labels);
    }
    *(of_process ? &described->process_sort : &described->thread_sort) = integer_of(value, CPROF_TABLE_UNKNOWN);
    return CPROF_OK;
}

cprof_status cprof_chrome_values_row_begin(cprof_chrome_values *values, const cprof_chrome_event *event, cprof_row *row,
                                           bool *is_known)
{
    *row = cprof_row_none;
    cprof_status status = cprof_chrome_values_ns(VALUE(TS), &row->start_ns, is_known);
    if (status != CPROF_OK || !*is_known) {
        return status;
    }
    row->end_ns = row->start_ns;
    cprof_chrome_thread thread;
    status = thread_of(values, event, &thread);
    if (status == CPROF_OK) {
        status = find_track(values, &thread, &row->track);
    }
    if (status == CPROF_OK) {
        status = text_of_value(values, VALUE(NAME), &row->name);
    }
    return status == CPROF_OK ? text_of_value(values, VALUE(CAT), &row->cat) : status;
}

/* Categories of what happens on a device, in the words of Kineto, of torch before 1.13, and of Furiosa's SDK. */
static const char *const device_cats[] = {
    "kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync", "cuda_event", "cuda_profiler_range",
    "Kernel", "Memcpy",     "Memset",     "mtia_ccp_events",     "NPU",
};

/* Whether a name is ProfilerStep# and a number. */
static bool is_step(cprof_name name)
{
    static const char prefix[] = "ProfilerStep#";
    size_t at = sizeof prefix - 1;
    if (name.length <= at || memcmp(name.bytes, prefix, at) != 0) {
        return false;
    }
    while (at < name.length && name.bytes[at] >= '0' && name.bytes[at] <= '9') {
        at++;
    }
    return at == name.length;
}

/* The args that only we write, but for the kind. */
static const uint64_t own_fields = (UINT64_C(1) << CPROF_CHROME_OTHER) - (UINT64_C(1) << CPROF_CHROME_STAGE);

/* Our words for kinds. Steps and rows of a device may lack an id. */
static const struct {
    const char *word;
    cprof_kind kind;
    bool has_id;
} own_kinds[] = {
    {"node", CPROF_KIND_NODE, true},
    {"record", CPROF_KIND_RECORD, true},
    {"step", CPROF_KIND_STEP, false},
    {"device", CPROF_KIND_DEVICE, false},
};
enum { OWN_KINDS = sizeof own_kinds / sizeof own_kinds[0] };

/* The place of a row's kind among our words; OWN_KINDS when it is not ours. */
static size_t find_own_kind(const cprof_chrome_event *event)
{
    const cprof_json_value *value = VALUE(KIND);
    size_t i = 0;
    if (value == NULL || value->kind != CPROF_JSON_STRING) {
        return OWN_KINDS;
    }
    while (i < OWN_KINDS && !cprof_name_is(value->text, own_kinds[i].word)) {
        i++;
    }
    return i < OWN_KINDS && own_kinds[i].has_id && VALUE(SPAN_ID) == NULL ? OWN_KINDS : i;
}

cprof_kind cprof_chrome_values_row_kind(const cprof_table *table, const cprof_chrome_event *event, const cprof_row *row)
{
    size_t own = find_own_kind(event);
    if (own < OWN_KINDS) {
        return own_kinds[own].kind;
    }
    cprof_name cat = cprof_table_string(table, row->cat);
    bool is_on_device = false;
    for (size_t i = 0; i < sizeof device_cats / sizeof device_cats[0] && !is_on_device; i++) {
        is_on_device = cprof_name_is(cat, device_cats[i]);
    }
    if (is_on_device || VALUE(ELEMENT) != NULL || VALUE(ON_NPU) != NULL) {
        return CPROF_KIND_DEVICE;
    }
    bool may_be_step = cprof_name_is(cat, "user_annotation") || cprof_name_is(cat, "cpu_op") || cprof_name_is(cat, "Operator");
    return may_be_step && is_step(cprof_table_string(table, row->name)) ? CPROF_KIND_STEP : CPROF_KIND_HOST;
}

static bool is_true(const cprof_json_value *value)
{
    return value != NULL && value->kind == CPROF_JSON_WORD && value->text.bytes[0] == 't';
}

/* What only our own args say. */
static cprof_status set_own(cprof_chrome_values *values, const cprof_chrome_event *event, cprof_row *row)
{
    if ((event->present & own_fields) == 0) {
        return CPROF_OK;
    }
    uint64_t trace[2] = {0, 0};
    read_hex(VALUE(TRACE_ID), 2, trace);
    row->trace_high = trace[0];
    row->trace_low = trace[1];
    read_hex(VALUE(SPAN_ID), 1, &row->span);
    read_hex(VALUE(PARENT_SPAN_ID), 1, &row->parent_span);
    /* How a row of ours ended. */
    const cprof_json_value *outcome = VALUE(OUTCOME);
    if (outcome != NULL && cprof_name_is(outcome->text, "error")) {
        row->outcome = CPROF_OUTCOME_ERROR;
    } else if (outcome != NULL && cprof_name_is(outcome->text, "cancelled")) {
        row->outcome = CPROF_OUTCOME_CANCELLED;
    }
    row->flags = (uint8_t)((is_true(VALUE(UNFINISHED)) ? CPROF_ROW_UNFINISHED : 0) | (is_true(VALUE(CUT)) ? CPROF_ROW_CUT : 0) |
                           (is_true(VALUE(SUSPENDABLE)) ? CPROF_ROW_SUSPENDABLE : 0));
    row->suspended_ns = cprof_chrome_values_integer(VALUE(SUSPENDED), 0, INT64_MAX, 0);
    row->memory_change = integer_of(VALUE(MEMORY_CHANGE), CPROF_TABLE_UNKNOWN);
    row->memory_peak = integer_of(VALUE(MEMORY_PEAK), CPROF_TABLE_UNKNOWN);
    row->device_memory_change = integer_of(VALUE(DEVICE_MEMORY_CHANGE), CPROF_TABLE_UNKNOWN);
    row->device_memory_peak = integer_of(VALUE(DEVICE_MEMORY_PEAK), CPROF_TABLE_UNKNOWN);
    return text_of_value(values, VALUE(STAGE), &row->stage);
}

cprof_status cprof_chrome_values_row_args(cprof_chrome_values *values, const cprof_chrome_event *event, cprof_row *row)
{
    /* Where a row is on a device; if its args do not say, by its track, which is that of a stream. */
    int64_t device = -1;
    int64_t stream = -1;
    if (row->kind == CPROF_KIND_DEVICE && find_own_kind(event) == OWN_KINDS) {
        const cprof_track *track = &values->table->tracks[row->track];
        device = track->pid_text == 0 && track->pid >= 0 && track->pid <= INT32_MAX ? track->pid : -1;
        stream = track->tid_text == 0 ? track->tid : -1;
    }
    device = cprof_chrome_values_integer(VALUE(ELEMENT), INT32_MIN, INT32_MAX, device);
    row->device = (int32_t)cprof_chrome_values_integer(VALUE(DEVICE), INT32_MIN, INT32_MAX, device);
    row->stream = integer_of(VALUE(STREAM), stream);
    row->correlation = move_id(values, integer_of(VALUE(CORRELATION), -1));
    row->external_id = move_id(values, integer_of(VALUE(EXTERNAL_ID), -1));
    row->bytes = integer_of(VALUE(BYTES), CPROF_TABLE_UNKNOWN);
    cprof_status status = list_of_value(values, VALUE(SHAPES), &row->shapes);
    if (status == CPROF_OK) {
        status = list_of_value(values, VALUE(TYPES), &row->types);
    }
    if (status == CPROF_OK) {
        status = stack_of_value(values, VALUE(STACK), &row->stack);
    }
    return status == CPROF_OK ? set_own(values, event, row) : status;
}

cprof_status cprof_chrome_values_row_is_whole(cprof_chrome_values *values, const cprof_chrome_event *event,
                                              const cprof_row *row, bool *is_whole)
{
    size_t own = find_own_kind(event);
    const cprof_json_value *source = VALUE(SOURCE);
    *is_whole = row->span != 0 && VALUE(OTHER) == NULL && own < OWN_KINDS && own_kinds[own].kind == row->kind;
    if (!*is_whole || source == NULL) {
        return CPROF_OK;
    }
    if (values->sources.table == NULL) {
        cprof_status status = cprof_chrome_sources_open(&values->sources, values->table);
        if (status != CPROF_OK) {
            return status;
        }
    }
    cprof_name place = cprof_chrome_sources_of(&values->sources, row->name);
    *is_whole = row->kind == CPROF_KIND_NODE && source->kind == CPROF_JSON_STRING && place.length > 0 &&
                place.length == source->text.length && memcmp(place.bytes, source->text.bytes, place.length) == 0;
    return CPROF_OK;
}

/* The args with moved ids; borrowed as by cprof_chrome_values_json(). CPROF_NO_MEMORY. */
static cprof_status move_args(cprof_chrome_values *values, const cprof_chrome_event *event, cprof_json_value *args)
{
    char *bytes = cprof_chrome_values_grow(&values->changed, args->text.length + 2 * (size_t)LONGEST_NUMBER);
    if (bytes == NULL) {
        return CPROF_NO_MEMORY;
    }
    const cprof_json_value *first = VALUE(CORRELATION);
    const cprof_json_value *second = VALUE(EXTERNAL_ID);
    bool is_swapped = first != NULL && second != NULL && first->text.bytes > second->text.bytes;
    const cprof_json_value *const ids[] = {is_swapped ? second : first, is_swapped ? first : second};
    const char *from = args->text.bytes;
    char *at = bytes;
    for (int i = 0; i < 2; i++) {
        int64_t integer;
        if (cprof_chrome_values_is_integer(ids[i], &integer)) {
            size_t length = (size_t)(ids[i]->text.bytes - from);
            memcpy(at, from, length);
            at = cprof_json_write_integer(at + length, move_id(values, integer));
            from = ids[i]->text.bytes + ids[i]->text.length;
        }
    }
    size_t rest = (size_t)(args->text.bytes + args->text.length - from);
    memcpy(at, from, rest);
    args->text = (cprof_name){bytes, (size_t)(at - bytes) + rest};
    return CPROF_OK;
}

cprof_status cprof_chrome_values_row_keep(cprof_chrome_values *values, const cprof_chrome_event *event, bool moves_ids,
                                          uint64_t *at, uint32_t *length)
{
    cprof_name json = {"", 0};
    cprof_status status = CPROF_OK;
    if (VALUE(ARGS) != NULL) {
        cprof_json_value args = *VALUE(ARGS);
        if (moves_ids && values->id_offset > 0) {
            status = move_args(values, event, &args);
        }
        status = status == CPROF_OK ? cprof_chrome_values_json(values, &args, &json) : status;
    }
    *length = (uint32_t)json.length;
    return status == CPROF_OK && json.length > 0 ? cprof_table_keep(values->table, json, at) : status;
}
