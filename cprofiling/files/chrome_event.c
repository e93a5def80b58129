#include "cprofiling/files/chrome_event.h"

#include <string.h>

enum {
    LONGEST = 20,  /* key */
    SPELLINGS = 8, /* of one length */
    ESCAPE = 6,    /* the longest way to write a letter of a key */
};

/* A key that is known; all zero: none. */
typedef struct {
    char text[LONGEST + 1];
    uint8_t field;
} known_key;

/* By their length. */
typedef const known_key known_keys[LONGEST + 1][SPELLINGS];

static known_keys event_keys = {
    [2] = {{"ph", CPROF_CHROME_PHASE}, {"ts", CPROF_CHROME_TS}, {"id", CPROF_CHROME_ID}, {"bp", CPROF_CHROME_BINDING}},
    [3] = {{"pid", CPROF_CHROME_PID}, {"tid", CPROF_CHROME_TID}, {"cat", CPROF_CHROME_CAT}, {"dur", CPROF_CHROME_DUR}},
    [4] = {{"name", CPROF_CHROME_NAME}, {"args", CPROF_CHROME_ARGS}},
};

static known_keys args_keys = {
    [3] = {{"cut", CPROF_CHROME_CUT}},
    [4] = {{"kind", CPROF_CHROME_KIND}, {"name", CPROF_CHROME_META_NAME}},
    [5] = {{"bytes", CPROF_CHROME_BYTES}, {"Bytes", CPROF_CHROME_BYTES}, {"stage", CPROF_CHROME_STAGE}},
    [6] = {{"device", CPROF_CHROME_DEVICE},
           {"stream", CPROF_CHROME_STREAM},
           {"labels", CPROF_CHROME_LABELS},
           {"source", CPROF_CHROME_SOURCE}},
    [7] = {{"span_id", CPROF_CHROME_SPAN_ID}, {"outcome", CPROF_CHROME_OUTCOME}},
    [8] = {{"trace_id", CPROF_CHROME_TRACE_ID}, {"pe_index", CPROF_CHROME_ELEMENT}},
    [9] = {{"Device Id", CPROF_CHROME_DEVICE}, {"dram_base", CPROF_CHROME_ON_NPU}},
    [10] = {{"Input Dims", CPROF_CHROME_SHAPES},
            {"Input dims", CPROF_CHROME_SHAPES},
            {"Input type", CPROF_CHROME_TYPES},
            {"Call stack", CPROF_CHROME_STACK},
            {"sort_index", CPROF_CHROME_SORT_INDEX},
            {"unfinished", CPROF_CHROME_UNFINISHED}},
    [11] = {{"External id", CPROF_CHROME_EXTERNAL_ID},
            {"external id", CPROF_CHROME_EXTERNAL_ID},
            {"correlation", CPROF_CHROME_CORRELATION},
            {"Input types", CPROF_CHROME_TYPES},
            {"memory_peak", CPROF_CHROME_MEMORY_PEAK},
            {"suspendable", CPROF_CHROME_SUSPENDABLE}},
    [12] = {{"suspended_ns", CPROF_CHROME_SUSPENDED}},
    [13] = {{"memory_change", CPROF_CHROME_MEMORY_CHANGE}},
    [14] = {{"parent_span_id", CPROF_CHROME_PARENT_SPAN_ID}},
    [17] = {{"instruction_index", CPROF_CHROME_ON_NPU}},
    [18] = {{"device_memory_peak", CPROF_CHROME_DEVICE_MEMORY_PEAK}},
    [20] = {{"device_memory_change", CPROF_CHROME_DEVICE_MEMORY_CHANGE}},
};

static const uint64_t args_fields = ~(uint64_t)0 << CPROF_CHROME_ARGS;

/* The field of a key; CPROF_CHROME_FIELDS: unknown. */
static cprof_chrome_field find(known_keys keys, const cprof_json_value *key)
{
    char unescaped[ESCAPE * LONGEST];
    cprof_name name = key->text;
    if (!key->is_plain && name.length <= sizeof unescaped) {
        name = (cprof_name){unescaped, cprof_json_read_unescape(name, unescaped)};
    }
    if (name.length > LONGEST) {
        return CPROF_CHROME_FIELDS;
    }
    for (const known_key *known = keys[name.length]; known->text[0] != '\0'; known++) {
        if (known->text[0] == name.bytes[0] && memcmp(known->text, name.bytes, name.length) == 0) {
            return known->field;
        }
    }
    return CPROF_CHROME_FIELDS;
}

static inline void set(cprof_chrome_event *event, cprof_chrome_field field, const cprof_json_value *value)
{
    if (field < CPROF_CHROME_FIELDS) {
        event->values[field] = *value;
        event->present |= UINT64_C(1) << field;
    }
}

bool cprof_chrome_event_read_args(cprof_json_reader *reader, cprof_chrome_event *event)
{
    cprof_json_value key;
    cprof_json_value value;
    cprof_json_next next;
    const char *start = reader->at;
    uint64_t unknown = reader->unknown;
    event->present &= ~args_fields;
    (void)cprof_json_read_enter(reader); /* it is an object, and few are around it */
    while ((next = cprof_json_read_member(reader, &key)) == CPROF_JSON_ITEM) {
        if (!cprof_json_read_value(reader, &value)) {
            return false;
        }
        cprof_chrome_field field = find(args_keys, &key);
        set(event, field < CPROF_CHROME_FIELDS ? field : CPROF_CHROME_OTHER, &value);
    }
    cprof_name text = {start, (size_t)(reader->at - start)};
    set(event, CPROF_CHROME_ARGS, &(cprof_json_value){text, CPROF_JSON_OBJECT, true, reader->unknown == unknown});
    return next == CPROF_JSON_END;
}

static bool read_member(cprof_json_reader *reader, cprof_chrome_event *event, cprof_chrome_field field)
{
    cprof_json_value value;
    if (field == CPROF_CHROME_ARGS) {
        if (*reader->at == '{') {
            return cprof_chrome_event_read_args(reader, event);
        }
        event->present &= ~args_fields;
        return cprof_json_read_value(reader, &value);
    }
    if (!cprof_json_read_value(reader, &value)) {
        return false;
    }
    set(event, field, &value);
    return true;
}

bool cprof_chrome_event_read(cprof_json_reader *reader, cprof_chrome_event *event)
{
    cprof_json_value key;
    cprof_json_next next;
    event->present = 0;
    if (*reader->at != '{') {
        return cprof_json_read_stop(reader, "an event that is no object");
    }
    (void)cprof_json_read_enter(reader);
    while ((next = cprof_json_read_member(reader, &key)) == CPROF_JSON_ITEM) {
        if (!read_member(reader, event, find(event_keys, &key))) {
            return false;
        }
    }
    return next == CPROF_JSON_END;
}
