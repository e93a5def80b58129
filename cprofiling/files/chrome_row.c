#include "cprofiling/files/chrome_row.h"

#include "cprofiling/nodes/accum.h"

#include <string.h>

#define VALUE(field) cprof_chrome_event_value(event, CPROF_CHROME_##field)

cprof_status cprof_chrome_row_begin(cprof_chrome_tracks *tracks, const cprof_chrome_event *event, cprof_row *row,
                                    bool *is_known)
{
    cprof_chrome_values *values = tracks->values;
    *row = cprof_row_none;
    cprof_status status = cprof_chrome_values_ns(VALUE(TS), &row->start_ns, is_known);
    if (status != CPROF_OK || !*is_known) {
        return status;
    }
    row->end_ns = row->start_ns;
    status = cprof_chrome_track_of(tracks, event, &row->track);
    if (status == CPROF_OK) {
        status = cprof_chrome_values_text(values, VALUE(NAME), &row->name);
    }
    return status == CPROF_OK ? cprof_chrome_values_text(values, VALUE(CAT), &row->cat) : status;
}

/* Categories of what happens on a device, in the words of Kineto, of torch before 1.13, and of Furiosa's SDK. */
static const char *const device_cats[] = {
    "kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync", "cuda_event", "cuda_profiler_range",
    "Kernel", "Memcpy",     "Memset",     "mtia_ccp_events",     "NPU",
};

static bool is_device_cat(cprof_name cat)
{
    for (size_t i = 0; i < sizeof device_cats / sizeof device_cats[0]; i++) {
        if (cprof_name_is(cat, device_cats[i])) {
            return true;
        }
    }
    return false;
}

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

/* Our words for kinds. Steps, and what is on a device, may be without an id. */
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

cprof_kind cprof_chrome_row_kind(const cprof_table *table, const cprof_chrome_event *event, const cprof_row *row)
{
    size_t own = find_own_kind(event);
    if (own < OWN_KINDS) {
        return own_kinds[own].kind;
    }
    cprof_name cat = cprof_table_string(table, row->cat);
    if (is_device_cat(cat) || VALUE(ELEMENT) != NULL || VALUE(ON_NPU) != NULL) {
        return CPROF_KIND_DEVICE;
    }
    bool may_be_step = cprof_name_is(cat, "user_annotation") || cprof_name_is(cat, "cpu_op") || cprof_name_is(cat, "Operator");
    return may_be_step && is_step(cprof_table_string(table, row->name)) ? CPROF_KIND_STEP : CPROF_KIND_HOST;
}

static int64_t integer_of(const cprof_json_value *value, int64_t none)
{
    return cprof_chrome_values_integer(value, INT64_MIN, INT64_MAX, none);
}

/* Where a row is on a device; if its args do not say, by its track, which is that of a stream. */
static void set_place(const cprof_chrome_values *values, const cprof_chrome_event *event, cprof_row *row)
{
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
}

static bool is_true(const cprof_json_value *value)
{
    return value != NULL && value->kind == CPROF_JSON_WORD && value->text.bytes[0] == 't';
}

/* How a row of ours ended. */
static void set_end(const cprof_chrome_event *event, cprof_row *row)
{
    const cprof_json_value *outcome = VALUE(OUTCOME);
    if (outcome != NULL && cprof_name_is(outcome->text, "error")) {
        row->outcome = CPROF_OUTCOME_ERROR;
    } else if (outcome != NULL && cprof_name_is(outcome->text, "cancelled")) {
        row->outcome = CPROF_OUTCOME_CANCELLED;
    }
    row->flags = (uint8_t)((is_true(VALUE(UNFINISHED)) ? CPROF_ROW_UNFINISHED : 0) | (is_true(VALUE(CUT)) ? CPROF_ROW_CUT : 0) |
                           (is_true(VALUE(SUSPENDABLE)) ? CPROF_ROW_SUSPENDABLE : 0));
    row->suspended_ns = cprof_chrome_values_integer(VALUE(SUSPENDED), 0, INT64_MAX, 0);
}

/* What only our own args say. */
static cprof_status set_own(cprof_chrome_values *values, const cprof_chrome_event *event, cprof_row *row)
{
    if ((event->present & own_fields) == 0) {
        return CPROF_OK;
    }
    cprof_chrome_values_hex(VALUE(TRACE_ID), &row->trace_high, &row->trace_low);
    cprof_chrome_values_hex(VALUE(SPAN_ID), NULL, &row->span);
    cprof_chrome_values_hex(VALUE(PARENT_SPAN_ID), NULL, &row->parent_span);
    set_end(event, row);
    row->memory_change = integer_of(VALUE(MEMORY_CHANGE), CPROF_TABLE_UNKNOWN);
    row->memory_peak = integer_of(VALUE(MEMORY_PEAK), CPROF_TABLE_UNKNOWN);
    row->device_memory_change = integer_of(VALUE(DEVICE_MEMORY_CHANGE), CPROF_TABLE_UNKNOWN);
    row->device_memory_peak = integer_of(VALUE(DEVICE_MEMORY_PEAK), CPROF_TABLE_UNKNOWN);
    return cprof_chrome_values_text(values, VALUE(STAGE), &row->stage);
}

cprof_status cprof_chrome_row_args(cprof_chrome_values *values, const cprof_chrome_event *event, cprof_row *row)
{
    set_place(values, event, row);
    row->correlation = integer_of(VALUE(CORRELATION), -1);
    row->external_id = integer_of(VALUE(EXTERNAL_ID), -1);
    row->bytes = integer_of(VALUE(BYTES), CPROF_TABLE_UNKNOWN);
    cprof_status status = cprof_chrome_values_list(values, VALUE(SHAPES), &row->shapes);
    if (status == CPROF_OK) {
        status = cprof_chrome_values_list(values, VALUE(TYPES), &row->types);
    }
    if (status == CPROF_OK) {
        status = cprof_chrome_values_stack(values, VALUE(STACK), &row->stack);
    }
    return status == CPROF_OK ? set_own(values, event, row) : status;
}

bool cprof_chrome_row_is_whole(const cprof_chrome_event *event, const cprof_row *row)
{
    size_t own = find_own_kind(event);
    return row->span != 0 && VALUE(OTHER) == NULL && own < OWN_KINDS && own_kinds[own].kind == row->kind;
}

cprof_status cprof_chrome_row_keep(cprof_chrome_values *values, const cprof_chrome_event *event, uint64_t *at, uint32_t *length)
{
    const cprof_json_value *args = VALUE(ARGS);
    cprof_name json = {"", 0};
    cprof_status status = args != NULL ? cprof_chrome_values_json(values, args, &json) : CPROF_OK;
    *length = (uint32_t)json.length;
    return status == CPROF_OK && json.length > 0 ? cprof_table_keep(values->table, json, at) : status;
}
