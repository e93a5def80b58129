#include "cprofiling/files/arrow_table.h"

#include "cprofiling/nodes/accum.h"
#include "cprofiling/base/alloc.h"
#include "cprofiling/files/json_write.h"
#include "cprofiling/base/text.h"

#include <errno.h>
#include <string.h>

enum {
    SPAN_DIGITS = 16,
    TRACE_DIGITS = 32,
    GROWTH_BY_REPAIR = 3,
};

/* What an item of a column is. */
typedef enum {
    ITEM_TRACE_ID,
    ITEM_PARENT_ID,
    ITEM_SPAN_ID,
    ITEM_TEXT, /* of a column of the table, as is the next one */
    ITEM_NUMBER,
    ITEM_TIME, /* likewise */
    ITEM_DURATION,
    ITEM_THREAD,
    ITEM_EXECUTION,
    ITEM_OPERATOR,
    ITEM_ROW,
    ITEM_KIND,
    ITEM_OUTCOME,
} item;

typedef struct {
    cprof_arrow_field field;
    item item;
    cprof_column_number column;
} field;

static const field fields[] = {
    {{"trace_id", "u"}, ITEM_TRACE_ID, CPROF_COLUMN_trace_low},
    {{"parent_span_id", "u"}, ITEM_PARENT_ID, CPROF_COLUMN_parent_span},
    {{"span_id", "u"}, ITEM_SPAN_ID, CPROF_COLUMN_span},
    {{"name", "u"}, ITEM_TEXT, CPROF_COLUMN_name},
    {{"cat", "u"}, ITEM_TEXT, CPROF_COLUMN_cat},
    {{"stage", "u"}, ITEM_TEXT, CPROF_COLUMN_stage},
    {{"start", "l"}, ITEM_TIME, CPROF_COLUMN_start_ns},
    {{"end", "l"}, ITEM_TIME, CPROF_COLUMN_end_ns},
    {{"dur", "l"}, ITEM_DURATION, CPROF_COLUMN_end_ns},
    {{"thread.id", "l"}, ITEM_THREAD, CPROF_COLUMN_track},
    {{"device_index", "i"}, ITEM_NUMBER, CPROF_COLUMN_device},
    {{"stream", "l"}, ITEM_NUMBER, CPROF_COLUMN_stream},
    {{"execution_index", "l"}, ITEM_EXECUTION, CPROF_COLUMN_track},
    {{"operator_index", "l"}, ITEM_OPERATOR, CPROF_COLUMN_track},
    {{"input_shapes", "u"}, ITEM_TEXT, CPROF_COLUMN_shapes},
    {{"input_types", "u"}, ITEM_TEXT, CPROF_COLUMN_types},
    {{"memory_change", "l"}, ITEM_NUMBER, CPROF_COLUMN_memory_change},
    {{"memory_peak", "l"}, ITEM_NUMBER, CPROF_COLUMN_memory_peak},
    {{"device_memory_change", "l"}, ITEM_NUMBER, CPROF_COLUMN_device_memory_change},
    {{"device_memory_peak", "l"}, ITEM_NUMBER, CPROF_COLUMN_device_memory_peak},
    {{"bytes", "l"}, ITEM_NUMBER, CPROF_COLUMN_bytes},
    {{"kind", "u"}, ITEM_KIND, CPROF_COLUMN_kind},
    {{"outcome", "u"}, ITEM_OUTCOME, CPROF_COLUMN_outcome},
    {{"row", "l"}, ITEM_ROW, CPROF_COLUMN_track},
};

enum { FIELDS = sizeof fields / sizeof fields[0] };

/* The owner of a stream. */
typedef struct {
    cprof_arrow_source source;
    cprof_table *table;
    int32_t *spans; /* as in the extras, as are the next two */
    int64_t *executions;
    int64_t *operators;
    bool *needs_repair; /* of each text: it is no UTF-8 */
    uint32_t *rows;     /* of the present batch */
    size_t row_count;
    size_t next; /* row of the table */
    cprof_arrow_field fields[FIELDS];
} stream;

/* A column of one batch that is being made. */
typedef struct {
    const stream *stream;
    const field *field;
    cprof_column column; /* of the table */
} batch_column;

static bool extra_of(const int64_t *extras, size_t row, int64_t *number)
{
    *number = extras != NULL ? extras[row] : -1;
    return *number != -1;
}

/* False: none. */
static bool number_of(const batch_column *from, size_t row, int64_t *number)
{
    const cprof_table *table = from->stream->table;
    switch (from->field->item) {
    case ITEM_DURATION:
        return !__builtin_sub_overflow(table->end_ns[row], table->start_ns[row], number);
    case ITEM_THREAD:
        *number = table->tracks[table->track[row]].tid;
        return table->tracks[table->track[row]].tid_text == 0;
    case ITEM_EXECUTION:
        return extra_of(from->stream->executions, row, number);
    case ITEM_OPERATOR:
        return extra_of(from->stream->operators, row, number);
    case ITEM_ROW:
        *number = (int64_t)row;
        return true;
    case ITEM_TIME:
        *number = ((const int64_t *)from->column.items)[row];
        return true;
    default:
        break;
    }
    const void *items = from->column.items;
    if (items == NULL) {
        return false;
    }
    *number = from->column.item_size == sizeof(int32_t) ? ((const int32_t *)items)[row] : ((const int64_t *)items)[row];
    return *number != from->column.none;
}

static uint64_t id_of(const uint64_t *ids, size_t row)
{
    return ids != NULL ? ids[row] : 0;
}

/* An id that a row has, or has through its span; false: none. */
static bool id_text(const batch_column *from, size_t row, char *digits, cprof_name *text)
{
    const cprof_table *table = from->stream->table;
    int64_t span = from->stream->spans != NULL ? from->stream->spans[row] : (int64_t)row;
    if (span < 0) {
        return false;
    }
    bool is_span = span == (int64_t)row && id_of(table->span, row) != 0;
    if (from->field->item == ITEM_TRACE_ID) {
        uint64_t high = id_of(table->trace_high, (size_t)span);
        uint64_t low = id_of(table->trace_low, (size_t)span);
        (void)cprof_json_write_hex(cprof_json_write_hex(digits, high), low);
        *text = (cprof_name){digits, TRACE_DIGITS};
        return (high | low) != 0;
    }
    *text = (cprof_name){digits, SPAN_DIGITS};
    if (from->field->item == ITEM_SPAN_ID) {
        (void)cprof_json_write_hex(digits, id_of(table->span, row));
        return is_span;
    }
    uint64_t parent = span == (int64_t)row ? id_of(table->parent_span, row) : id_of(table->span, (size_t)span);
    (void)cprof_json_write_hex(digits, parent);
    return parent != 0 || is_span;
}

static bool text_of(const batch_column *from, size_t row, char *digits, cprof_name *text, bool *needs_repair)
{
    static const cprof_name outcomes[] = {{"success", 7}, {"error", 5}, {"cancelled", 9}};
    static const cprof_name kinds[] = {{"node", 4}, {"record", 6}, {"step", 4}, {"host", 4}, {"device", 6}, {"instant", 7}};
    const cprof_table *table = from->stream->table;
    *needs_repair = false;
    switch (from->field->item) {
    case ITEM_TEXT:
        break;
    case ITEM_KIND:
        *text = kinds[table->kind[row]];
        return true;
    case ITEM_OUTCOME:
        *text = table->outcome != NULL ? outcomes[table->outcome[row]] : outcomes[CPROF_OUTCOME_SUCCESS];
        if (table->flags != NULL && (table->flags[row] & CPROF_ROW_UNFINISHED) != 0) {
            *text = (cprof_name){"unfinished", 10};
        }
        return table->kind[row] == CPROF_KIND_NODE || table->kind[row] == CPROF_KIND_RECORD;
    default:
        return id_text(from, row, digits, text);
    }
    cprof_text number = from->column.items != NULL ? ((const cprof_text *)from->column.items)[row] : 0;
    *text = cprof_table_string(table, number);
    *needs_repair = number != 0 && from->stream->needs_repair[number - 1];
    return number != 0 || from->field->column == CPROF_COLUMN_name;
}

static bool make_numbers(const batch_column *from, struct ArrowArray *array)
{
    bool is_short = from->field->field.format[0] == 'i';
    size_t item_size = is_short ? sizeof(int32_t) : sizeof(int64_t);
    if (!cprof_arrow_column(from->field->field.format, from->stream->row_count, from->stream->row_count * item_size, 0,
                            array)) {
        return false;
    }
    int64_t *items = cprof_arrow_buffer(array, 1);
    int32_t *short_items = cprof_arrow_buffer(array, 1);
    for (size_t i = 0; i < from->stream->row_count; i++) {
        int64_t number;
        if (!number_of(from, from->stream->rows[i], &number)) {
            continue;
        }
        cprof_arrow_set_valid(array, i);
        if (is_short) {
            short_items[i] = (int32_t)number;
        } else {
            items[i] = number;
        }
    }
    return true;
}

/* The bytes of an item, written to `out` unless that is NULL. */
static size_t put_text(const batch_column *from, size_t row, char *out, bool *is_valid)
{
    char digits[TRACE_DIGITS];
    cprof_name text;
    bool needs_repair;
    *is_valid = text_of(from, row, digits, &text, &needs_repair);
    if (!*is_valid) {
        return 0;
    }
    if (needs_repair) {
        return cprof_text_repair(text, out);
    }
    if (out != NULL) {
        memcpy(out, text.bytes, text.length);
    }
    return text.length;
}

static bool make_texts(const batch_column *from, struct ArrowArray *array)
{
    const stream *s = from->stream;
    size_t total = 0;
    bool is_valid;
    for (size_t i = 0; i < s->row_count; i++) {
        total += put_text(from, s->rows[i], NULL, &is_valid);
    }
    if (!cprof_arrow_column("u", s->row_count, (s->row_count + 1) * sizeof(int32_t), total, array)) {
        return false;
    }
    int32_t *offsets = cprof_arrow_buffer(array, 1);
    char *characters = cprof_arrow_buffer(array, 2);
    size_t at = 0;
    for (size_t i = 0; i < s->row_count; i++) {
        at += put_text(from, s->rows[i], characters + at, &is_valid);
        offsets[i + 1] = (int32_t)at;
        if (is_valid) {
            cprof_arrow_set_valid(array, i);
        }
    }
    return true;
}

/* Takes the rows of the next batch. False: the strings of one row alone are too long. */
static bool take_rows(stream *s)
{
    uint64_t bytes = 0;
    s->row_count = 0;
    for (; s->next < s->table->count && s->row_count < CPROF_ARROW_BATCH_ROWS; s->next++) {
        if (s->table->kind[s->next] == CPROF_KIND_COUNTER) {
            continue;
        }
        for (size_t i = 0; i < FIELDS; i++) { /* the most that its strings can be */
            cprof_column column = cprof_table_column(s->table, fields[i].column);
            if (fields[i].item == ITEM_TEXT && column.items != NULL) {
                bytes += GROWTH_BY_REPAIR * cprof_table_string(s->table, ((const cprof_text *)column.items)[s->next]).length;
            }
        }
        if (s->row_count > 0 && bytes > CPROF_ARROW_BATCH_BYTES) {
            return true;
        }
        if (bytes > CPROF_ARROW_ROW_BYTES) {
            return false;
        }
        s->rows[s->row_count++] = (uint32_t)s->next;
    }
    return true;
}

static int make_batch(const stream *s, struct ArrowArray *out)
{
    if (!cprof_arrow_batch(FIELDS, s->row_count, out)) {
        return ENOMEM;
    }
    bool fine = true;
    for (size_t i = 0; i < FIELDS; i++) {
        batch_column from = {s, &fields[i], cprof_table_column(s->table, fields[i].column)};
        struct ArrowArray *child = out->children[i];
        fine = fine && (fields[i].field.format[0] == 'u' ? make_texts(&from, child) : make_numbers(&from, child));
    }
    if (!fine) {
        out->release(out);
        return ENOMEM;
    }
    return 0;
}

static int get_next(cprof_arrow_source *source, struct ArrowArray *out)
{
    stream *s = (stream *)source;
    size_t first = s->next;
    *out = (struct ArrowArray){.release = NULL};
    if (!take_rows(s)) {
        s->next = first;
        source->error = "the strings of a row may be longer than 1 GiB";
        return EOVERFLOW;
    }
    if (s->row_count == 0) {
        return 0; /* the end */
    }
    int error = make_batch(s, out);
    if (error != 0) {
        s->next = first;
        source->error = cprof_status_text(CPROF_NO_MEMORY);
    }
    return error;
}

static void destroy(cprof_arrow_source *source)
{
    stream *s = (stream *)source;
    cprof_table_destroy(s->table);
    cprof_alloc_release(s->spans);
    cprof_alloc_release(s->executions);
    cprof_alloc_release(s->operators);
    cprof_alloc_release(s->needs_repair);
    cprof_alloc_release(s->rows);
    cprof_alloc_release(s);
}

/* Makes *copy a copy of `count` items of `width` bytes, or NULL of none. False without memory. */
static bool copy_items(const void *items, size_t count, size_t width, void **copy)
{
    *copy = items != NULL ? cprof_alloc_zeroed(count * width + 1) : NULL;
    if (*copy != NULL) {
        memcpy(*copy, items, count * width);
    }
    return (*copy != NULL) == (items != NULL);
}

cprof_status cprof_arrow_table_open(cprof_table *table, const cprof_arrow_extras *extras, cprof_arrow_stream *opened)
{
    size_t count = table->count;
    for (size_t i = 0; extras->spans != NULL && i < count; i++) {
        if (extras->spans[i] < -1 || (extras->spans[i] >= 0 && (size_t)extras->spans[i] >= count)) {
            return CPROF_OUT_OF_RANGE;
        }
    }
    stream *s = cprof_alloc_zeroed(sizeof *s);
    if (s == NULL) {
        return CPROF_NO_MEMORY;
    }
    s->table = cprof_table_share(table);
    s->rows = cprof_alloc_zeroed(CPROF_ARROW_BATCH_ROWS * sizeof *s->rows);
    s->needs_repair = cprof_alloc_zeroed(table->texts.count + 1);
    void *spans, *executions, *operators;
    bool is_copied = copy_items(extras->spans, count, sizeof *s->spans, &spans);
    is_copied = copy_items(extras->executions, count, sizeof *s->executions, &executions) && is_copied;
    is_copied = copy_items(extras->operators, count, sizeof *s->operators, &operators) && is_copied;
    s->spans = spans;
    s->executions = executions;
    s->operators = operators;
    if (s->rows == NULL || s->needs_repair == NULL || !is_copied) {
        destroy(&s->source);
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < table->texts.count; i++) {
        s->needs_repair[i] = !cprof_text_is_valid(cprof_table_string(table, (cprof_text)(i + 1)));
    }
    for (size_t i = 0; i < FIELDS; i++) {
        s->fields[i] = fields[i].field;
    }
    s->source = (cprof_arrow_source){s->fields, FIELDS, NULL, get_next, destroy};
    cprof_arrow_open(&s->source, opened);
    return CPROF_OK;
}
