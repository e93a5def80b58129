#include "cprofiling/files/chrome_read.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/files/chrome_values.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_OPEN = 64 };

/* A begin event that waits for its end. */
typedef struct {
    int64_t start_ns;
    uint64_t args_at; /* in the table */
    uint32_t args_length;
    cprof_text name;
    cprof_text cat;
    uint32_t next; /* the one around it on its track, or another one that is free: number + 1, 0: none */
} open_event;

typedef struct {
    cprof_chrome_read_report *report; /* borrowed */
    int64_t base_ns;                  /* what the file's times count from */
    size_t first_row;                 /* of this file, as is the next one */
    size_t first_flow;
    bool has_list;        /* traceEvents has come */
    bool is_list;         /* and is what comes next */
    cprof_json_next next; /* what the last step came to */
    cprof_json_value key;
    cprof_json_value value;
    cprof_chrome_event event;
    open_event *open;
    size_t open_count; /* in use or free */
    size_t open_capacity;
    uint32_t free_open;  /* as open_event.next */
    uint32_t *innermost; /* the open event of each track, as open_event.next */
    size_t innermost_count;
    cprof_chrome_values_room joined; /* the args of a begin and an end */
    cprof_json_reader reader;
    cprof_chrome_values values;
} load;

static cprof_status refuse(load *l, cprof_chrome_field field, const char *reason)
{
    const cprof_json_value *value = cprof_chrome_event_value(&l->event, field);
    cprof_json_read_refuse(&l->reader, value != NULL ? value->text.bytes : l->reader.at, reason);
    return CPROF_BAD_FORMAT;
}

/* ---- events that are rows ---- */

static cprof_status add_row(load *l, cprof_row *row)
{
    cprof_status status = cprof_chrome_values_row_args(&l->values, &l->event, row);
    bool is_whole = row->args_length > 0;
    if (status == CPROF_OK && !is_whole) {
        status = cprof_chrome_values_row_is_whole(&l->values, &l->event, row, &is_whole);
    }
    if (status == CPROF_OK && !is_whole) {
        status = cprof_chrome_values_row_keep(&l->values, &l->event, true, &row->args_at, &row->args_length);
    }
    return status == CPROF_OK ? cprof_table_add(l->values.table, row) : status;
}

static cprof_status take_complete(load *l, cprof_row *row)
{
    int64_t duration_ns;
    bool is_known;
    cprof_status status =
        cprof_chrome_values_ns(cprof_chrome_event_value(&l->event, CPROF_CHROME_DUR), &duration_ns, &is_known);
    if (status != CPROF_OK || (duration_ns > 0 && __builtin_add_overflow(row->start_ns, duration_ns, &row->end_ns))) {
        return refuse(l, CPROF_CHROME_DUR, "an end beyond 2^63 ns");
    }
    l->report->negative += duration_ns < 0 ? 1 : 0;
    row->kind = (uint8_t)cprof_chrome_values_row_kind(l->values.table, &l->event, row);
    return add_row(l, row);
}

/* ---- begin and end events ---- */

/* The place for the number of the open event of a track; NULL without memory. */
static uint32_t *innermost_of(load *l, uint32_t track)
{
    if (track >= l->innermost_count) {
        size_t larger = l->values.table->track_capacity;
        uint32_t *innermost = cprof_alloc_resize(l->innermost, larger * sizeof *innermost);
        if (innermost == NULL) {
            return NULL;
        }
        memset(innermost + l->innermost_count, 0, (larger - l->innermost_count) * sizeof *innermost);
        l->innermost = innermost;
        l->innermost_count = larger;
    }
    return &l->innermost[track];
}

/* The number + 1 of a place for an open event; 0 without memory. */
static uint32_t new_open(load *l)
{
    uint32_t number = l->free_open;
    if (number != 0) {
        l->free_open = l->open[number - 1].next;
        return number;
    }
    open_event *open = l->open_count < UINT32_MAX / 2
                           ? cprof_alloc_grow(l->open, &l->open_capacity, l->open_count, sizeof *open, FIRST_OPEN)
                           : NULL;
    if (open == NULL) {
        return 0;
    }
    l->open = open;
    return (uint32_t)++l->open_count;
}

static cprof_status take_begin(load *l, cprof_row *row)
{
    cprof_status status = cprof_chrome_values_row_keep(&l->values, &l->event, false, &row->args_at, &row->args_length);
    uint32_t *innermost = status == CPROF_OK ? innermost_of(l, row->track) : NULL;
    uint32_t number = innermost != NULL ? new_open(l) : 0;
    if (number == 0) {
        return status == CPROF_OK ? CPROF_NO_MEMORY : status;
    }
    l->open[number - 1] = (open_event){row->start_ns, row->args_at, row->args_length, row->name, row->cat, *innermost};
    *innermost = number;
    l->report->unmatched++;
    return CPROF_OK;
}

static bool is_empty_object(cprof_name object)
{
    for (size_t at = 1; at + 1 < object.length; at++) {
        if ((unsigned char)object.bytes[at] > ' ') {
            return false;
        }
    }
    return true;
}

/* Makes the args of a begin event those of its end event, before what that has itself. */
static cprof_status join_args(load *l, const open_event *begin, cprof_row *row)
{
    const cprof_json_value *args = cprof_chrome_event_value(&l->event, CPROF_CHROME_ARGS);
    cprof_name more = {"{}", 2};
    cprof_status status = args != NULL ? cprof_chrome_values_json(&l->values, args, &more) : CPROF_OK;
    char *joined =
        status == CPROF_OK ? cprof_chrome_values_grow(&l->joined, begin->args_length + more.length + CPROF_JSON_PADDING) : NULL;
    if (joined == NULL) {
        return CPROF_NO_MEMORY;
    }
    cprof_name text = {joined, begin->args_length};
    memcpy(joined, l->values.table->kept + begin->args_at, begin->args_length);
    if (is_empty_object(more)) {
        if (l->values.id_offset == 0) { /* else they are kept anew */
            row->args_at = begin->args_at;
            row->args_length = begin->args_length;
        }
    } else if (is_empty_object(text)) {
        memcpy(joined, more.bytes, text.length = more.length);
    } else {
        joined[text.length - 1] = ',';
        memcpy(joined + text.length, more.bytes + 1, more.length - 1);
        text.length += more.length - 1;
    }
    memset(joined + text.length, 0, CPROF_JSON_PADDING);
    cprof_json_reader again;
    cprof_json_read_text(&again, text);
    (void)cprof_chrome_event_read_args(&again, &l->event); /* which was read before */
    return CPROF_OK;
}

static cprof_status take_end(load *l, cprof_row *row)
{
    uint32_t number = row->track < l->innermost_count ? l->innermost[row->track] : 0;
    if (number == 0) {
        l->report->unmatched++;
        return CPROF_OK;
    }
    open_event *begin = &l->open[number - 1];
    row->start_ns = begin->start_ns;
    row->name = begin->name;
    row->cat = begin->cat;
    if (row->end_ns < row->start_ns) {
        l->report->negative++;
        row->end_ns = row->start_ns;
    }
    cprof_status status = begin->args_length > 0 ? join_args(l, begin, row) : CPROF_OK;
    l->innermost[row->track] = begin->next;
    begin->next = l->free_open;
    l->free_open = number;
    l->report->unmatched--;
    row->kind = (uint8_t)cprof_chrome_values_row_kind(l->values.table, &l->event, row);
    return status == CPROF_OK ? add_row(l, row) : status;
}

/* ---- other events ---- */

static cprof_status take_flow(load *l, const cprof_row *row, char phase)
{
    const cprof_json_value *binding = cprof_chrome_event_value(&l->event, CPROF_CHROME_BINDING);
    cprof_flow flow = {
        .at_ns = row->start_ns,
        .track = row->track,
        .name = row->name,
        .cat = row->cat,
        .phase = phase,
        .binds_enclosing = binding != NULL && cprof_name_is(binding->text, "e"),
    };
    cprof_status status = cprof_chrome_values_id(&l->values, cprof_chrome_event_value(&l->event, CPROF_CHROME_ID), &flow.id);
    return status == CPROF_OK ? cprof_table_add_flow(l->values.table, &flow) : status;
}

/* Ignores events of unknown phases or without a time, and flows without an id. */
static cprof_status take_event(load *l)
{
    const cprof_json_value *phase = cprof_chrome_event_value(&l->event, CPROF_CHROME_PHASE);
    char letter = (char)(phase != NULL && phase->text.length == 1 ? phase->text.bytes[0] : '?');
    bool is_flow = letter == 's' || letter == 't' || letter == 'f';
    bool is_known = (letter != '\0' && strchr("MXBEiIRC", letter) != NULL) ||
                    (is_flow && cprof_chrome_event_value(&l->event, CPROF_CHROME_ID) != NULL);
    cprof_row row;
    cprof_status status = CPROF_OK;
    if (letter == 'M') {
        status = cprof_chrome_values_metadata(&l->values, &l->event, &is_known);
    } else if (is_known) {
        status = cprof_chrome_values_row_begin(&l->values, &l->event, &row, &is_known);
    }
    if (status == CPROF_OUT_OF_RANGE) {
        return refuse(l, CPROF_CHROME_TS, "a time beyond 2^63 ns");
    }
    if (status != CPROF_OK || !is_known || letter == 'M') {
        l->report->ignored += status == CPROF_OK && !is_known ? 1 : 0;
        return status;
    }
    switch (letter) {
    case 'X':
        return take_complete(l, &row);
    case 'B':
        return take_begin(l, &row);
    case 'E':
        return take_end(l, &row);
    case 's':
    case 't':
    case 'f':
        return take_flow(l, &row, letter);
    default:
        row.kind = (uint8_t)(letter == 'C' ? CPROF_KIND_COUNTER : CPROF_KIND_INSTANT);
        return add_row(l, &row);
    }
}

/* ---- the file ---- */

/* Does a step, again if need be. False: the loading has ended, see the reader's status. */
static bool do_step(load *l, bool (*step)(load *))
{
    cprof_json_read_mark(&l->reader);
    while (!step(l)) {
        if (!cprof_json_read_again(&l->reader)) {
            return false;
        }
    }
    return true;
}

static bool step_enter(load *l)
{
    return cprof_json_read_enter(&l->reader);
}

static bool step_item(load *l)
{
    l->next = cprof_json_read_item(&l->reader);
    return l->next != CPROF_JSON_STOP;
}

static bool step_event(load *l)
{
    return cprof_chrome_event_read(&l->reader, &l->event);
}

/* A member of the file's object: its key, and its value unless that is the list of events. */
static bool step_member(load *l)
{
    l->next = cprof_json_read_member(&l->reader, &l->key);
    if (l->next != CPROF_JSON_ITEM) {
        return l->next == CPROF_JSON_END;
    }
    /* Whether a key is "traceEvents", in whatever way it is written. */
    char unescaped[128];
    cprof_name name = l->key.text;
    if (!l->key.is_plain && name.length <= sizeof unescaped) {
        name = (cprof_name){unescaped, cprof_json_read_unescape(name, unescaped)};
    }
    l->is_list = cprof_name_is(name, "traceEvents");
    if (!l->is_list) {
        return cprof_json_read_value(&l->reader, &l->value);
    }
    if (l->has_list) {
        return cprof_json_read_stop(&l->reader, "traceEvents for the second time");
    }
    return *l->reader.at == '[' || cprof_json_read_stop(&l->reader, "traceEvents is no list");
}

/* The list of events; one that is the whole file may end after any of them. */
static cprof_status read_events(load *l, bool is_file)
{
    (void)do_step(l, step_enter); /* its bracket was seen */
    for (;;) {
        if (is_file && cprof_json_read_is_over(&l->reader)) {
            return l->reader.status;
        }
        if (!do_step(l, step_item) || l->next == CPROF_JSON_END) {
            return l->reader.status;
        }
        if (is_file && cprof_json_read_is_over(&l->reader)) {
            return l->reader.status;
        }
        if (!do_step(l, step_event)) {
            return l->reader.status;
        }
        cprof_status status = take_event(l);
        if (status != CPROF_OK) {
            return status;
        }
    }
}

/* The times' base: as plain digits, in whatever way the file has it. */
static cprof_status take_base(load *l, cprof_name key)
{
    char digits[32];
    if (!cprof_chrome_values_is_integer(&l->value, &l->base_ns)) {
        cprof_json_read_refuse(&l->reader, l->value.text.bytes, "baseTimeNanoseconds is no integer below 2^63");
        return CPROF_BAD_FORMAT;
    }
    int length = snprintf(digits, sizeof digits, "%lld", (long long)l->base_ns);
    return cprof_table_set_fact(l->values.table, key, (cprof_name){digits, (size_t)length});
}

/* Keeps what the file says about the whole. */
static cprof_status take_fact(load *l)
{
    cprof_name json;
    char *bytes = cprof_chrome_values_grow(&l->joined, l->key.text.length + 1);
    if (bytes == NULL || cprof_chrome_values_json(&l->values, &l->value, &json) != CPROF_OK) {
        return CPROF_NO_MEMORY;
    }
    cprof_name key = {bytes, cprof_json_read_unescape(l->key.text, bytes)};
    if (cprof_name_is(key, "baseTimeNanoseconds")) {
        return take_base(l, key);
    }
    if (l->values.table->fact_count >= CPROF_CHROME_READ_MAX_FACTS) {
        cprof_json_read_refuse(&l->reader, l->key.text.bytes, "too many values beside the events");
        return CPROF_BAD_FORMAT;
    }
    if (cprof_name_is(key, "droppedEvents")) {
        l->report->dropped = (uint64_t)cprof_chrome_values_integer(&l->value, 0, INT64_MAX, 0);
    }
    if (l->value.kind == CPROF_JSON_STRING) {
        json = (cprof_name){json.bytes - 1, json.length + 2};
    }
    return cprof_table_set_fact(l->values.table, key, json);
}

static cprof_status read_object(load *l)
{
    if (!do_step(l, step_enter)) {
        return l->reader.status;
    }
    while (do_step(l, step_member) && l->next == CPROF_JSON_ITEM) {
        cprof_status status = l->is_list ? read_events(l, false) : take_fact(l);
        if (status != CPROF_OK) {
            return status;
        }
        l->has_list |= l->is_list;
    }
    if (l->reader.status == CPROF_OK && !l->has_list) {
        cprof_json_read_refuse(&l->reader, l->reader.at, "there are no traceEvents");
    }
    return l->reader.status;
}

static cprof_status read_file(load *l)
{
    if (cprof_json_read_is_over(&l->reader)) {
        if (l->reader.status == CPROF_OK) {
            cprof_json_read_refuse(&l->reader, l->reader.at, "the file is empty");
        }
        return l->reader.status;
    }
    cprof_status status = *l->reader.at == '[' ? read_events(l, true) : read_object(l);
    if (status == CPROF_OK && !cprof_json_read_is_over(&l->reader)) {
        cprof_json_read_refuse(&l->reader, l->reader.at, "something after the end");
    }
    return status == CPROF_OK ? l->reader.status : status;
}

/* Whether the times of a table are near enough to one another: durations are int64, and so are times in files, counted from a
 * base that lies some weeks before the first. */
static bool is_within_reach(const cprof_table *table)
{
    int64_t first = table->count > 0 ? table->start_ns[0] : table->flow_count > 0 ? table->flows[0].at_ns : 0;
    int64_t last = first;
    int64_t all;
    for (size_t i = 0; i < table->count; i++) {
        first = table->start_ns[i] < first ? table->start_ns[i] : first;
        last = table->end_ns[i] > last ? table->end_ns[i] : last;
    }
    for (size_t i = 0; i < table->flow_count; i++) {
        first = table->flows[i].at_ns < first ? table->flows[i].at_ns : first;
        last = table->flows[i].at_ns > last ? table->flows[i].at_ns : last;
    }
    return !__builtin_sub_overflow(last, first, &all) && all <= CPROF_CHROME_READ_LONGEST_NS;
}

/* Moves all that the file has brought to when it was. */
static cprof_status shift(load *l, int64_t shift_ns)
{
    cprof_table *table = l->values.table;
    int64_t by_ns;
    bool is_far = __builtin_add_overflow(shift_ns, l->base_ns, &by_ns);
    for (size_t i = l->first_row; i < table->count && !is_far; i++) {
        is_far = __builtin_add_overflow(table->start_ns[i], by_ns, &table->start_ns[i]) ||
                 __builtin_add_overflow(table->end_ns[i], by_ns, &table->end_ns[i]);
    }
    for (size_t i = l->first_flow; i < table->flow_count && !is_far; i++) {
        is_far = __builtin_add_overflow(table->flows[i].at_ns, by_ns, &table->flows[i].at_ns);
    }
    if (is_far) {
        cprof_json_read_refuse(&l->reader, l->reader.at, "times beyond 2^63 ns, counted from their base");
    } else if (!is_within_reach(table)) {
        cprof_json_read_refuse(&l->reader, l->reader.at, "times more than 2^62 ns from one another");
    }
    return l->reader.status;
}

cprof_status cprof_chrome_read(cprof_table *table, int64_t shift_ns, int64_t id_offset, cprof_read read, void *context,
                               cprof_chrome_read_report *report)
{
    *report = (cprof_chrome_read_report){.reason = NULL};
    load *l = cprof_alloc_zeroed(sizeof *l);
    if (l == NULL) {
        return CPROF_NO_MEMORY;
    }
    l->report = report;
    l->values.table = table;
    l->values.id_offset = id_offset;
    l->first_row = table->count;
    l->first_flow = table->flow_count;
    cprof_status status =
        cprof_json_read_open(&l->reader, CPROF_CHROME_READ_WINDOW, CPROF_CHROME_READ_MAX_EVENT, read, context);
    status = status == CPROF_OK ? read_file(l) : status;
    if (status == CPROF_OK) {
        status = shift(l, shift_ns);
        table->dropped += report->dropped;
    }
    report->greatest_id = l->values.greatest_id;
    report->reason = l->reader.reason;
    report->bytes = l->reader.reason != NULL ? l->reader.wrong_at : l->reader.mark_offset;
    cprof_json_read_close(&l->reader);
    cprof_chrome_values_dispose(&l->values);
    cprof_alloc_release(l->joined.bytes);
    cprof_alloc_release(l->open);
    cprof_alloc_release(l->innermost);
    cprof_alloc_release(l);
    return status;
}
