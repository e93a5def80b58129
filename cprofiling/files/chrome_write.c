#include "cprofiling/files/chrome_write.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/files/chrome_sources.h"
#include "cprofiling/files/json_read.h"
#include "cprofiling/nodes/accum.h"

#include <string.h>

enum {
    CACHED_TEXTS = 1024, /* a power of two, as is the next one */
    CACHED_PLACES = 64,
    CACHED_BYTES = 57,
    MOST_AT_ONCE = 64, /* rows with one start that are looked at */
};

/* Something written before, to be copied: of a text its escaped form, of a lane the members that name it. */
typedef struct {
    uint32_t key; /* text, or track + 1; 0: none */
    uint16_t lane;
    uint8_t length;
    char bytes[CACHED_BYTES];
} cached;

typedef struct {
    const cprof_table *table;
    cprof_ns base_ns;
    bool is_first; /* event */
    cached texts[CACHED_TEXTS];
    cached places[CACHED_PLACES];
    cprof_chrome_sources sources;
    cprof_json_writer json;
} trace;

/* Writes a string constant; there has to be room. */
#define PUT(t, literal) put((t), literal, sizeof(literal) - 1)

static inline void put(trace *t, const char *bytes, size_t length)
{
    memcpy(t->json.at, bytes, length);
    t->json.at += length;
}

static void put_integer(trace *t, int64_t number)
{
    t->json.at = cprof_json_write_integer(t->json.at, number);
}

static void put_cached(trace *t, const cached *entry)
{
    memcpy(t->json.at, entry->bytes, sizeof entry->bytes);
    t->json.at += entry->length;
}

/* The characters of a text, without quotes. */
static void put_text(trace *t, cprof_text text)
{
    cached *entry = &t->texts[text % CACHED_TEXTS];
    if (text != 0 && entry->key == text) {
        put_cached(t, entry);
        return;
    }
    cprof_name string = cprof_table_string(t->table, text);
    cprof_json_write_string(&t->json, string);
    char escaped[6 * CACHED_BYTES + 7];
    size_t length = string.length <= CACHED_BYTES ? (size_t)(cprof_json_write_escaped(escaped, string) - escaped) : SIZE_MAX;
    if (length <= CACHED_BYTES) {
        entry->key = text;
        entry->length = (uint8_t)length;
        memcpy(entry->bytes, escaped, length);
    }
}

/* A process, or a thread, by its number or text; a lane further than the first has another one. */
static void put_id(trace *t, int64_t number, cprof_text text, unsigned lane)
{
    if (text == 0) {
        put_integer(t, (int64_t)((uint64_t)number + lane * CPROF_CHROME_WRITE_LANE));
        return;
    }
    PUT(t, "\"");
    put_text(t, text);
    if (lane > 0) {
        PUT(t, " (");
        put_integer(t, lane + 1);
        PUT(t, ")");
    }
    PUT(t, "\"");
}

/* Where something is: members with a comma before them. */
static void put_place(trace *t, uint32_t number, unsigned lane)
{
    cached *entry = &t->places[(number + lane) % CACHED_PLACES];
    if (entry->key == number + 1 && entry->lane == lane) {
        put_cached(t, entry);
        return;
    }
    const cprof_track *track = &t->table->tracks[number];
    const char *begin = t->json.at;
    PUT(t, ",\"pid\":");
    put_id(t, track->pid, track->pid_text, 0);
    PUT(t, ",\"tid\":");
    put_id(t, track->tid, track->tid_text, lane);
    if (track->pid_text == 0 && track->tid_text == 0) { /* else they may be anywhere by now */
        size_t length = (size_t)(t->json.at - begin);
        *entry = (cached){.key = number + 1, .lane = (uint16_t)lane, .length = (uint8_t)length};
        memcpy(entry->bytes, begin, length);
    }
}

static void begin_event(trace *t, char phase)
{
    cprof_json_write_make_room(&t->json);
    if (t->is_first) {
        PUT(t, "\n{\"ph\":\"");
    } else {
        PUT(t, ",\n{\"ph\":\"");
    }
    t->is_first = false;
    *t->json.at++ = phase;
}

static void put_ts(trace *t, cprof_ns at_ns)
{
    PUT(t, ",\"ts\":");
    t->json.at = cprof_json_write_us(t->json.at, t->base_ns, at_ns);
}

static void put_cat_and_name(trace *t, cprof_text cat, cprof_text name)
{
    PUT(t, "\",\"cat\":\"");
    put_text(t, cat);
    PUT(t, "\",\"name\":\"");
    put_text(t, name);
    PUT(t, "\"");
}

static void begin_metadata(trace *t, const char *name, uint32_t track, unsigned lane)
{
    begin_event(t, 'M');
    PUT(t, "\",\"name\":\"");
    put(t, name, strlen(name));
    PUT(t, "\"");
    put_place(t, track, lane);
    PUT(t, ",\"args\":{\"");
}

static void put_metadata_text(trace *t, const char *name, const char *key, uint32_t track, cprof_text text)
{
    if (text != 0) {
        begin_metadata(t, name, track, 0);
        put(t, key, strlen(key));
        PUT(t, "\":\"");
        put_text(t, text);
        PUT(t, "\"}}");
    }
}

static void put_metadata_sort(trace *t, const char *name, uint32_t track, unsigned lane, int64_t sort)
{
    if (sort != CPROF_TABLE_UNKNOWN) {
        begin_metadata(t, name, track, lane);
        PUT(t, "sort_index\":");
        put_integer(t, sort);
        PUT(t, "}}");
    }
}

static void put_lane_name(trace *t, uint32_t number, unsigned lane)
{
    const cprof_track *track = &t->table->tracks[number];
    begin_metadata(t, "thread_name", number, lane);
    PUT(t, "name\":\"");
    if (track->thread_name != 0) {
        put_text(t, track->thread_name);
    } else if (track->tid_text != 0) {
        put_text(t, track->tid_text);
    } else {
        PUT(t, "Thread ");
        put_integer(t, track->tid);
    }
    PUT(t, " (");
    put_integer(t, lane + 1);
    PUT(t, ")\"}}");
}

static void put_track(trace *t, uint32_t number)
{
    const cprof_track *track = &t->table->tracks[number];
    if (track->process == number) {
        put_metadata_text(t, "process_name", "name", number, track->process_name);
        put_metadata_text(t, "process_labels", "labels", number, track->process_labels);
        put_metadata_sort(t, "process_sort_index", number, 0, track->process_sort);
    }
    put_metadata_text(t, "thread_name", "name", number, track->thread_name);
    put_metadata_sort(t, "thread_sort_index", number, 0, track->thread_sort);
    for (unsigned lane = 1; lane <= track->lanes; lane++) {
        put_lane_name(t, number, lane);
        put_metadata_sort(t, "thread_sort_index", number, lane, track->thread_sort);
    }
}

/* Each writes a member of args, and a comma behind it, if it is known. */
#define PUT_NUMBER(t, row, column, none, member)                           \
    if ((t)->table->column != NULL && (t)->table->column[row] != (none)) { \
        PUT(t, member);                                                    \
        put_integer(t, (t)->table->column[row]);                           \
        PUT(t, ",");                                                       \
    }
#define PUT_ID(t, row, column, member)                                              \
    if ((t)->table->column != NULL && (t)->table->column[row] != 0) {               \
        PUT(t, member);                                                             \
        (t)->json.at = cprof_json_write_hex((t)->json.at, (t)->table->column[row]); \
        PUT(t, "\",");                                                              \
    }
#define PUT_LIST(t, row, column, member)                                                            \
    if ((t)->table->column != NULL && (t)->table->column[row] != 0) {                               \
        PUT(t, member);                                                                             \
        cprof_json_write_json(&(t)->json, cprof_table_string((t)->table, (t)->table->column[row])); \
        PUT(t, ",");                                                                                \
    }

static void put_kind(trace *t, size_t row)
{
    static const cprof_name kinds[CPROF_KIND_COUNTER + 1] = {
        [CPROF_KIND_NODE] = {"node", 4},
        [CPROF_KIND_RECORD] = {"record", 6},
        [CPROF_KIND_STEP] = {"step", 4},
        [CPROF_KIND_DEVICE] = {"device", 6},
    };
    cprof_name kind = kinds[t->table->kind[row]];
    if (kind.length > 0) {
        PUT(t, "\"kind\":\"");
        put(t, kind.bytes, kind.length);
        PUT(t, "\",");
    }
}

static void put_ids(trace *t, size_t row)
{
    const cprof_table *table = t->table;
    uint64_t high = table->trace_high != NULL ? table->trace_high[row] : 0;
    uint64_t low = table->trace_low != NULL ? table->trace_low[row] : 0;
    if ((high | low) != 0) {
        PUT(t, "\"trace_id\":\"");
        t->json.at = cprof_json_write_hex(cprof_json_write_hex(t->json.at, high), low);
        PUT(t, "\",");
    }
    PUT_ID(t, row, span, "\"span_id\":\"");
    PUT_ID(t, row, parent_span, "\"parent_span_id\":\"");
}

static void put_end(trace *t, size_t row)
{
    uint8_t outcome = t->table->outcome != NULL ? t->table->outcome[row] : CPROF_OUTCOME_SUCCESS;
    uint8_t flags = t->table->flags != NULL ? t->table->flags[row] : 0;
    if (outcome == CPROF_OUTCOME_ERROR) {
        PUT(t, "\"outcome\":\"error\",");
    } else if (outcome == CPROF_OUTCOME_CANCELLED) {
        PUT(t, "\"outcome\":\"cancelled\",");
    }
    if ((flags & CPROF_ROW_UNFINISHED) != 0) {
        PUT(t, "\"unfinished\":true,");
    }
    if ((flags & CPROF_ROW_CUT) != 0) {
        PUT(t, "\"cut\":true,");
    }
    if ((flags & CPROF_ROW_SUSPENDABLE) != 0) {
        PUT(t, "\"suspendable\":true,");
    }
    PUT_NUMBER(t, row, suspended_ns, 0, "\"suspended_ns\":");
}

/* The lines of a stack, joined by semicolons. */
static void put_stack(trace *t, cprof_name stack)
{
    PUT(t, "\"Call stack\":\"");
    for (const char *line_end; (line_end = memchr(stack.bytes, '\n', stack.length)) != NULL;) {
        size_t length = (size_t)(line_end - stack.bytes);
        cprof_json_write_string(&t->json, (cprof_name){stack.bytes, length});
        PUT(t, ";");
        stack = (cprof_name){line_end + 1, stack.length - length - 1};
    }
    cprof_json_write_string(&t->json, stack);
    PUT(t, "\",");
}

static void put_source(trace *t, cprof_text name)
{
    cprof_name place = cprof_chrome_sources_of(&t->sources, name);
    if (place.length > 0) {
        PUT(t, "\"source\":\"");
        cprof_json_write_json(&t->json, place);
        PUT(t, "\",");
    }
}

static void put_made_args(trace *t, size_t row)
{
    static const char begin[] = ",\"args\":{";
    PUT(t, begin);
    put_kind(t, row);
    if (t->table->stage != NULL && t->table->stage[row] != 0) {
        PUT(t, "\"stage\":\"");
        put_text(t, t->table->stage[row]);
        PUT(t, "\",");
    }
    if (t->table->kind[row] == CPROF_KIND_NODE) {
        put_source(t, t->table->name[row]);
    }
    put_ids(t, row);
    put_end(t, row);
    PUT_NUMBER(t, row, memory_change, CPROF_TABLE_UNKNOWN, "\"memory_change\":");
    PUT_NUMBER(t, row, memory_peak, CPROF_TABLE_UNKNOWN, "\"memory_peak\":");
    PUT_NUMBER(t, row, device_memory_change, CPROF_TABLE_UNKNOWN, "\"device_memory_change\":");
    PUT_NUMBER(t, row, device_memory_peak, CPROF_TABLE_UNKNOWN, "\"device_memory_peak\":");
    PUT_NUMBER(t, row, external_id, -1, "\"External id\":");
    PUT_NUMBER(t, row, correlation, -1, "\"correlation\":");
    PUT_NUMBER(t, row, device, -1, "\"device\":");
    PUT_NUMBER(t, row, stream, -1, "\"stream\":");
    PUT_NUMBER(t, row, bytes, CPROF_TABLE_UNKNOWN, "\"bytes\":");
    PUT_LIST(t, row, shapes, "\"Input Dims\":");
    PUT_LIST(t, row, types, "\"Input type\":");
    if (t->table->stack != NULL && t->table->stack[row] != 0) {
        put_stack(t, cprof_table_string(t->table, t->table->stack[row]));
    }
    if (t->json.at[-1] == ',') {
        t->json.at[-1] = '}';
    } else {
        t->json.at -= sizeof begin - 1;
    }
}

static void put_row(trace *t, size_t row)
{
    const cprof_table *table = t->table;
    uint8_t kind = table->kind[row];
    char phase = (char)(kind == CPROF_KIND_INSTANT ? 'i' : kind == CPROF_KIND_COUNTER ? 'C' : 'X');
    begin_event(t, phase);
    put_cat_and_name(t, table->cat[row], table->name[row]);
    put_place(t, table->track[row], table->lane != NULL ? table->lane[row] : 0);
    put_ts(t, table->start_ns[row]);
    if (kind == CPROF_KIND_INSTANT) {
        PUT(t, ",\"s\":\"t\"");
    } else if (kind != CPROF_KIND_COUNTER) {
        PUT(t, ",\"dur\":");
        t->json.at = cprof_json_write_us(t->json.at, table->start_ns[row], table->end_ns[row]);
    }
    if (table->args_length != NULL && table->args_length[row] > 0) {
        PUT(t, ",\"args\":");
        uint64_t at = table->args_at != NULL ? table->args_at[row] : 0;
        cprof_json_write_json(&t->json, (cprof_name){table->kept + at, table->args_length[row]});
    } else {
        put_made_args(t, row);
    }
    PUT(t, "}");
}

/* The lane of the row that an arrow begins or ends at. */
static unsigned lane_of(const cprof_table *table, const cprof_flow *flow)
{
    unsigned lane = 0;
    if (table->lane == NULL || table->tracks[flow->track].lanes == 0) {
        return 0;
    }
    /* The first row that does not begin before a moment; the number of rows if none. */
    size_t low = 0;
    for (size_t high = table->count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (table->start_ns[middle] < flow->at_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    size_t row = low;
    for (size_t i = 0; i < MOST_AT_ONCE && row < table->count && table->start_ns[row] == flow->at_ns; i++, row++) {
        lane = table->track[row] == flow->track ? table->lane[row] : lane;
    }
    return lane;
}

/* Whether a category is that of calls which start something on a device: cuda_runtime, hip_runtime, cuda_driver, ... */
static bool is_runtime(cprof_name cat)
{
    return (cat.length >= 8 && memcmp(cat.bytes + cat.length - 8, "_runtime", 8) == 0) ||
           (cat.length >= 7 && memcmp(cat.bytes + cat.length - 7, "_driver", 7) == 0);
}

/* One end of the arrow of a row's correlation. */
static void put_arrow(trace *t, size_t row, char phase)
{
    begin_event(t, phase);
    PUT(t, "\",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"id\":");
    put_integer(t, t->table->correlation[row]);
    put_place(t, t->table->track[row], t->table->lane != NULL ? t->table->lane[row] : 0);
    put_ts(t, t->table->start_ns[row]);
    PUT(t, ",\"bp\":\"e\"}");
}

static void put_arrows(trace *t)
{
    const cprof_table *table = t->table;
    cprof_text last_cat = 0;
    bool is_call = false;
    for (size_t i = 0; i < table->count && t->json.status == CPROF_OK; i++) {
        if (table->correlation[i] <= 0) {
            continue;
        }
        if (table->kind[i] == CPROF_KIND_DEVICE) {
            put_arrow(t, i, 'f');
        } else if (table->kind[i] == CPROF_KIND_HOST) {
            if (table->cat[i] != last_cat) {
                last_cat = table->cat[i];
                is_call = is_runtime(cprof_table_string(table, last_cat));
            }
            int32_t parent = table->parent[i]; /* of a driver's call, that of the runtime has the arrow */
            bool is_within = is_call && parent >= 0 && table->correlation[parent] == table->correlation[i] &&
                             is_runtime(cprof_table_string(table, table->cat[parent]));
            if (is_call && !is_within) {
                put_arrow(t, i, 's');
            }
        }
    }
}

static const char dropped_key[] = "droppedEvents";
static const char base_key[] = "baseTimeNanoseconds";

static void put_fact(trace *t, cprof_name key, cprof_name json)
{
    PUT(t, "\"");
    cprof_json_write_string(&t->json, key);
    PUT(t, "\":");
    cprof_json_write_json(&t->json, json);
    PUT(t, ",\n");
}

static void put_number_as_fact(trace *t, const char *key, int64_t number)
{
    char digits[CPROF_JSON_WRITE_NUMBER];
    put_fact(t, cprof_name_of(key), (cprof_name){digits, (size_t)(cprof_json_write_integer(digits, number) - digits)});
}

static void put_dropped(trace *t)
{
    uint64_t dropped = t->table->dropped;
    put_number_as_fact(t, dropped_key, (int64_t)(dropped < INT64_MAX ? dropped : INT64_MAX));
}

static bool has_fact(const trace *t, const char *key)
{
    cprof_name unused;
    return cprof_table_fact(t->table, cprof_name_of(key), &unused);
}

/* A base that was set is changed only where readers would suffer: those that drop events before it, and those that keep
 * microseconds as doubles. */
cprof_ns cprof_chrome_write_base(const cprof_table *table)
{
    cprof_name fact;
    cprof_ns base_ns;
    bool is_exact;
    /* The earliest moment that is written; 0 where nothing is. */
    cprof_ns first_ns = table->count > 0 ? table->start_ns[0] : table->flow_count > 0 ? table->flows[0].at_ns : 0;
    for (size_t i = 0; i < table->flow_count; i++) {
        first_ns = table->flows[i].at_ns < first_ns ? table->flows[i].at_ns : first_ns;
    }
    if (cprof_table_fact(table, cprof_name_of(base_key), &fact) && fact.length > 0 &&
        cprof_json_read_decimal(fact, 0, &base_ns, &is_exact) && is_exact && base_ns <= first_ns &&
        (uint64_t)first_ns - (uint64_t)base_ns <= CPROF_CHROME_WRITE_LONGEST_NS) {
        return base_ns;
    }
    cprof_ns into_ns = first_ns % CPROF_CHROME_WRITE_PERIOD_NS;
    into_ns += into_ns < 0 ? CPROF_CHROME_WRITE_PERIOD_NS : 0;
    return first_ns < INT64_MIN + into_ns ? INT64_MIN : first_ns - into_ns;
}

/* The facts that were set, and those of every trace. */
static void put_facts(trace *t)
{
    const cprof_table *table = t->table;
    if (!has_fact(t, "schemaVersion")) {
        put_number_as_fact(t, "schemaVersion", 1);
    }
    t->base_ns = cprof_chrome_write_base(table);
    put_number_as_fact(t, base_key, t->base_ns);
    if (!has_fact(t, "displayTimeUnit")) {
        put_fact(t, cprof_name_of("displayTimeUnit"), cprof_name_of("\"ms\""));
    }
    if (table->dropped > 0 && !has_fact(t, dropped_key)) {
        put_dropped(t);
    }
    for (size_t i = 0; i < table->fact_count && t->json.status == CPROF_OK; i++) {
        const cprof_fact *fact = &table->facts[i];
        cprof_name key = cprof_table_string(table, fact->key);
        if (table->dropped > 0 && cprof_name_is(key, dropped_key)) {
            put_dropped(t); /* the fact may be that of one file of several */
        } else if (!cprof_name_is(key, "traceEvents") && !cprof_name_is(key, base_key)) {
            put_fact(t, key, (cprof_name){table->kept + fact->at, fact->length});
        }
    }
}

static void put_events(trace *t)
{
    const cprof_table *table = t->table;
    for (size_t i = 0; i < table->track_count && t->json.status == CPROF_OK; i++) {
        put_track(t, (uint32_t)i);
    }
    for (size_t i = 0; i < table->count && t->json.status == CPROF_OK; i++) {
        put_row(t, i);
    }
    for (size_t i = 0; i < table->flow_count && t->json.status == CPROF_OK; i++) {
        const cprof_flow *flow = &table->flows[i];
        begin_event(t, flow->phase);
        put_cat_and_name(t, flow->cat, flow->name);
        PUT(t, ",\"id\":");
        t->json.at = cprof_json_write_unsigned(t->json.at, flow->id);
        put_place(t, flow->track, lane_of(t->table, flow));
        put_ts(t, flow->at_ns);
        if (flow->binds_enclosing) {
            PUT(t, ",\"bp\":\"e\"");
        }
        PUT(t, "}");
    }
    if (table->flow_count == 0 && table->correlation != NULL) {
        put_arrows(t);
    }
}

/* Writes the events, and with `is_file` all around them: then the base and `is_first` are chosen here. */
static cprof_status write_trace(const cprof_table *table, bool is_file, cprof_ns base_ns, bool is_first, cprof_write write,
                                void *context)
{
    trace *t = cprof_alloc_zeroed(sizeof *t);
    if (t == NULL) {
        return CPROF_NO_MEMORY;
    }
    t->table = table;
    t->base_ns = base_ns;
    t->is_first = is_first || is_file;
    cprof_status status = cprof_chrome_sources_open(&t->sources, table);
    if (status == CPROF_OK) {
        cprof_json_write_begin(&t->json, write, context);
        if (is_file) {
            PUT(t, "{\n");
            put_facts(t);
            PUT(t, "\"traceEvents\":[");
        }
        put_events(t);
        if (is_file) {
            PUT(t, "\n]}\n");
        }
        cprof_json_write_flush(&t->json);
        status = t->json.status;
    }
    cprof_chrome_sources_close(&t->sources);
    cprof_alloc_release(t);
    return status;
}

cprof_status cprof_chrome_write_events(const cprof_table *table, cprof_ns base_ns, bool is_first, cprof_write write,
                                       void *context)
{
    return write_trace(table, false, base_ns, is_first, write, context);
}

cprof_status cprof_chrome_write(const cprof_table *table, cprof_write write, void *context)
{
    return write_trace(table, true, 0, true, write, context);
}
