/* arrow_table.h */
#include "cprofiling/files/arrow_table.h"

#include "tests/core/tables.h"

#include <errno.h>
#include <string.h>

enum { COLUMNS = 24 };

static const struct {
    const char *name;
    const char *format;
} columns[COLUMNS] = {
    {"trace_id", "u"},
    {"parent_span_id", "u"},
    {"span_id", "u"},
    {"name", "u"},
    {"cat", "u"},
    {"stage", "u"},
    {"start", "l"},
    {"end", "l"},
    {"dur", "l"},
    {"thread.id", "l"},
    {"device_index", "i"},
    {"stream", "l"},
    {"execution_index", "l"},
    {"operator_index", "l"},
    {"input_shapes", "u"},
    {"input_types", "u"},
    {"memory_change", "l"},
    {"memory_peak", "l"},
    {"device_memory_change", "l"},
    {"device_memory_peak", "l"},
    {"bytes", "l"},
    {"kind", "u"},
    {"outcome", "u"},
    {"row", "l"},
};

static const cprof_arrow_extras none = {.spans = NULL};

static cprof_row row_of(cprof_kind kind, const char *name, cprof_ns start_ns, cprof_ns end_ns)
{
    cprof_row row = cprof_row_none;
    row.kind = (uint8_t)kind;
    row.name = text_of(name);
    row.start_ns = start_ns;
    row.end_ns = end_ns;
    CHECK(cprof_table_track(table, 1, 0, 2, 0, &row.track) == CPROF_OK);
    return row;
}

/* Finishes the table, which the stream alone owns then. */
static cprof_arrow_stream open_stream(const cprof_arrow_extras *extras)
{
    cprof_arrow_stream stream;
    CHECK(cprof_table_finish(table) == CPROF_OK);
    CHECK(cprof_arrow_table_open(table, extras, &stream) == CPROF_OK);
    tear_down();
    return stream;
}

static struct ArrowArray next_batch(cprof_arrow_stream *stream)
{
    struct ArrowArray batch;
    CHECK_EQUAL(stream->get_next(stream, &batch), 0);
    return batch;
}

static void check_end(cprof_arrow_stream *stream)
{
    struct ArrowArray batch = next_batch(stream);
    CHECK(batch.release == NULL);
    stream->release(stream);
    CHECK(stream->release == NULL);
}

static const struct ArrowArray *column_of(const struct ArrowArray *batch, const char *name)
{
    size_t i = 0;
    while (i < COLUMNS && strcmp(columns[i].name, name) != 0) {
        i++;
    }
    CHECK(i < COLUMNS);
    return batch->children[i];
}

static bool is_valid(const struct ArrowArray *column, size_t i)
{
    return (((const uint8_t *)column->buffers[0])[i / 8] >> i % 8 & 1) != 0;
}

/* NULL: there is none. */
static void check_text(const struct ArrowArray *batch, const char *name, size_t row, const char *expected)
{
    const struct ArrowArray *column = column_of(batch, name);
    const int32_t *offsets = column->buffers[1];
    size_t length = (size_t)(offsets[row + 1] - offsets[row]);
    CHECK(is_valid(column, row) == (expected != NULL));
    CHECK_EQUAL(length, expected != NULL ? strlen(expected) : 0);
    CHECK(expected == NULL || memcmp((const char *)column->buffers[2] + offsets[row], expected, length) == 0);
}

static void check_number(const struct ArrowArray *batch, const char *name, size_t row, int64_t expected)
{
    const struct ArrowArray *column = column_of(batch, name);
    CHECK(is_valid(column, row));
    if (strcmp(name, "device_index") == 0) {
        CHECK_EQUAL(((const int32_t *)column->buffers[1])[row], expected);
    } else {
        CHECK_EQUAL(((const int64_t *)column->buffers[1])[row], expected);
    }
}

static void check_no_number(const struct ArrowArray *batch, const char *name, size_t row)
{
    CHECK(!is_valid(column_of(batch, name), row));
}

/* What holds for every batch. */
static void check_batch(const struct ArrowArray *batch, size_t rows)
{
    CHECK_EQUAL(batch->length, rows);
    CHECK(batch->null_count == 0 && batch->offset == 0 && batch->n_buffers == 1 && batch->buffers[0] == NULL);
    CHECK(batch->n_children == COLUMNS && batch->dictionary == NULL);
    for (size_t i = 0; i < COLUMNS; i++) {
        const struct ArrowArray *column = batch->children[i];
        int64_t nulls = 0;
        for (size_t row = 0; row < rows; row++) {
            nulls += !is_valid(column, row);
        }
        CHECK_EQUAL(column->length, rows);
        CHECK_EQUAL(column->null_count, nulls);
        CHECK(column->offset == 0 && column->n_children == 0 && column->dictionary == NULL && column->release != NULL);
        CHECK_EQUAL(column->n_buffers, columns[i].format[0] == 'u' ? 3 : 2);
        CHECK_EQUAL((uintptr_t)column->buffers[1] % 16, 0);
    }
}

TEST(schema)
{
    cprof_arrow_stream stream = open_stream(&none);
    struct ArrowSchema schema;
    CHECK_EQUAL(stream.get_schema(&stream, &schema), 0);
    CHECK(strcmp(schema.format, "+s") == 0 && schema.n_children == COLUMNS && schema.dictionary == NULL);
    for (size_t i = 0; i < COLUMNS; i++) {
        const struct ArrowSchema *child = schema.children[i];
        CHECK(strcmp(child->name, columns[i].name) == 0 && strcmp(child->format, columns[i].format) == 0);
        CHECK(child->flags == ARROW_FLAG_NULLABLE && child->n_children == 0 && child->metadata == NULL);
    }
    CHECK(stream.get_last_error(&stream) == NULL);
    check_end(&stream);
    schema.release(&schema); /* it outlives its stream */
    CHECK(schema.release == NULL);
}

/* All that can be known of a row, and next to nothing. */
TEST(items)
{
    cprof_row row = row_of(CPROF_KIND_NODE, "forward", 100, 250);
    row.trace_high = 1;
    row.trace_low = 2;
    row.span = 0xabc;
    row.cat = text_of("node");
    row.stage = text_of("train");
    row.device = 3;
    row.stream = 7;
    row.shapes = text_of("[[1]]");
    row.types = text_of("[\"float\"]");
    row.memory_change = -5;
    row.memory_peak = 6;
    row.device_memory_change = 0;
    row.device_memory_peak = INT64_MAX;
    row.bytes = 9;
    add(&row);
    row = row_of(CPROF_KIND_HOST, "", 100, 200);
    CHECK(cprof_table_track(table, 1, 0, 0, text_of("a text"), &row.track) == CPROF_OK);
    add(&row);
    cprof_arrow_stream stream = open_stream(&none);
    struct ArrowArray batch = next_batch(&stream);
    check_batch(&batch, 2);
    static const char *const first[][2] = {
        {"trace_id", "00000000000000010000000000000002"},
        {"span_id", "0000000000000abc"},
        {"parent_span_id", "0000000000000000"},
        {"cat", "node"},
        {"stage", "train"},
        {"input_shapes", "[[1]]"},
        {"input_types", "[\"float\"]"},
        {"outcome", "success"},
    };
    for (size_t i = 0; i < COUNT_OF(first); i++) {
        check_text(&batch, first[i][0], 0, first[i][1]);
        check_text(&batch, first[i][0], 1, NULL);
    }
    check_text(&batch, "name", 0, "forward");
    check_text(&batch, "kind", 0, "node");
    check_text(&batch, "name", 1, "");
    check_text(&batch, "kind", 1, "host");
    static const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"start", 100},
                   {"end", 250},
                   {"dur", 150},
                   {"thread.id", 2},
                   {"device_index", 3},
                   {"stream", 7},
                   {"memory_change", -5},
                   {"memory_peak", 6},
                   {"device_memory_change", 0},
                   {"device_memory_peak", INT64_MAX},
                   {"bytes", 9}};
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        check_number(&batch, numbers[i].name, 0, numbers[i].value);
    }
    check_no_number(&batch, "execution_index", 0);
    check_no_number(&batch, "operator_index", 0);
    for (size_t i = 9; i < 21; i++) {
        CHECK(!is_valid(batch.children[i], 1));
    }
    batch.release(&batch);
    check_end(&stream);
}

TEST(kinds_and_outcomes)
{
    cprof_row row = row_of(CPROF_KIND_RECORD, "a", 0, 1);
    row.outcome = CPROF_OUTCOME_ERROR;
    add(&row);
    row.outcome = CPROF_OUTCOME_CANCELLED;
    add(&row);
    row.flags = CPROF_ROW_UNFINISHED;
    add(&row);
    row.flags = CPROF_ROW_CUT;
    row.outcome = CPROF_OUTCOME_SUCCESS;
    add(&row);
    for (cprof_kind kind = CPROF_KIND_STEP; kind <= CPROF_KIND_COUNTER; kind++) {
        row.kind = (uint8_t)kind;
        add(&row);
    }
    cprof_arrow_stream stream = open_stream(&none);
    struct ArrowArray batch = next_batch(&stream);
    static const char *const kinds[] = {"record", "record", "record", "record", "step", "host", "device", "instant"};
    static const char *const outcomes[] = {"error", "cancelled", "unfinished", "success", NULL, NULL, NULL, NULL};
    check_batch(&batch, 8);
    for (size_t i = 0; i < 8; i++) {
        check_text(&batch, "kind", i, kinds[i]);
        check_text(&batch, "outcome", i, outcomes[i]);
    }
    batch.release(&batch);
    check_end(&stream);
}

/* Without extras: what the table has. */
TEST(ids_of_rows)
{
    cprof_row row = row_of(CPROF_KIND_NODE, "a", 0, 10);
    row.span = 1;
    row.trace_low = 5;
    add(&row);
    row.span = 2;
    row.parent_span = 1;
    add(&row);
    row.span = 0;
    add(&row);
    row.parent_span = 0;
    row.trace_low = 0;
    add(&row);
    cprof_arrow_stream stream = open_stream(&none);
    struct ArrowArray batch = next_batch(&stream);
    static const char *const parents[] = {"0000000000000000", "0000000000000001", "0000000000000001", NULL};
    static const char *const spans[] = {"0000000000000001", "0000000000000002", NULL, NULL};
    for (size_t i = 0; i < 4; i++) {
        check_text(&batch, "parent_span_id", i, parents[i]);
        check_text(&batch, "span_id", i, spans[i]);
        check_text(&batch, "trace_id", i, i < 3 ? "00000000000000000000000000000005" : NULL);
    }
    batch.release(&batch);
    check_end(&stream);
}

TEST(extras)
{
    static const int32_t spans[] = {0, 1, -1, 1, -1};
    static const int64_t executions[] = {-1, -1, -1, 0, 7};
    static const int64_t operators[] = {0, 1, -1, 2, 3};
    for (int i = 0; i < 5; i++) {
        cprof_row row = row_of(i == 2 ? CPROF_KIND_COUNTER : CPROF_KIND_NODE, "a", i, 10);
        row.span = i < 2 ? (uint64_t)i + 1 : 0;
        row.parent_span = i == 1 ? 1 : 0;
        row.trace_low = i < 2 ? 5 : 0;
        add(&row);
    }
    cprof_arrow_stream stream = open_stream(&(cprof_arrow_extras){spans, executions, operators});
    struct ArrowArray batch = next_batch(&stream);
    check_batch(&batch, 4);
    check_text(&batch, "parent_span_id", 0, "0000000000000000");
    check_text(&batch, "parent_span_id", 1, "0000000000000001");
    check_text(&batch, "parent_span_id", 2, "0000000000000002");
    check_text(&batch, "parent_span_id", 3, NULL);
    check_text(&batch, "span_id", 1, "0000000000000002");
    check_text(&batch, "span_id", 2, NULL);
    check_text(&batch, "trace_id", 2, "00000000000000000000000000000005");
    check_text(&batch, "trace_id", 3, NULL);
    check_no_number(&batch, "execution_index", 1);
    check_number(&batch, "execution_index", 2, 0);
    check_number(&batch, "execution_index", 3, 7);
    check_number(&batch, "operator_index", 0, 0);
    check_number(&batch, "operator_index", 2, 2);
    check_number(&batch, "row", 1, 1);
    check_number(&batch, "row", 2, 3); /* behind the counter */
    batch.release(&batch);
    check_end(&stream);
}

TEST(spans_that_are_no_rows)
{
    static const int32_t wrong[] = {1, -2, INT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        set_up();
        cprof_row row = row_of(CPROF_KIND_NODE, "a", 0, 1);
        cprof_arrow_stream stream;
        add(&row);
        CHECK(cprof_table_finish(table) == CPROF_OK);
        CHECK(cprof_arrow_table_open(table, &(cprof_arrow_extras){.spans = &wrong[i]}, &stream) == CPROF_OUT_OF_RANGE);
    }
}

/* F3: readers may rely on UTF-8. */
TEST(strings_are_repaired)
{
    cprof_row row = row_of(CPROF_KIND_NODE, "caf\xc3\xa9 \xed\xa0\x80 \xff", 0, 1);
    row.stage = text_of("\xf0\x9f\x98\x80");
    add(&row);
    cprof_arrow_stream stream = open_stream(&none);
    struct ArrowArray batch = next_batch(&stream);
    check_text(&batch, "name", 0, "caf\xc3\xa9 \xef\xbf\xbd \xef\xbf\xbd");
    check_text(&batch, "stage", 0, "\xf0\x9f\x98\x80");
    batch.release(&batch);
    check_end(&stream);
}

/* A duration that 64 bits do not hold is not known. */
TEST(a_duration_beyond_all)
{
    cprof_row row = row_of(CPROF_KIND_NODE, "a", INT64_MIN, INT64_MAX);
    add(&row);
    cprof_arrow_stream stream = open_stream(&none);
    struct ArrowArray batch = next_batch(&stream);
    check_number(&batch, "start", 0, INT64_MIN);
    check_number(&batch, "end", 0, INT64_MAX);
    check_no_number(&batch, "dur", 0);
    batch.release(&batch);
    check_end(&stream);
}

TEST(batches_of_many_rows)
{
    enum { ROWS = 2 * CPROF_ARROW_BATCH_ROWS + 10 };
    for (int i = 0; i < ROWS; i++) {
        cprof_row row = row_of(i % 3 == 1 ? CPROF_KIND_COUNTER : CPROF_KIND_HOST, "a", i, i);
        add(&row);
    }
    cprof_arrow_stream stream = open_stream(&none);
    struct ArrowArray first = next_batch(&stream);
    struct ArrowArray second = next_batch(&stream);
    check_batch(&first, CPROF_ARROW_BATCH_ROWS);
    check_batch(&second, ROWS - (ROWS + 1) / 3 - CPROF_ARROW_BATCH_ROWS);
    check_end(&stream); /* batches outlive it */
    for (size_t i = 0; i < CPROF_ARROW_BATCH_ROWS; i++) {
        check_number(&first, "start", i, (int64_t)(i / 2 * 3 + i % 2 * 2));
    }
    check_number(&second, "start", 0, CPROF_ARROW_BATCH_ROWS / 2 * 3);
    check_text(&second, "name", (size_t)second.length - 1, "a");
    first.release(&first);
    second.release(&second);
}

static void expect_batches(size_t length, int rows, int in_a_batch)
{
    char *name = malloc(length + 1);
    CHECK(name != NULL);
    memset(name, 'n', length);
    name[length] = '\0';
    set_up();
    for (int i = 0; i < rows; i++) {
        cprof_row row = row_of(CPROF_KIND_HOST, name, i, i);
        add(&row);
    }
    cprof_arrow_stream stream = open_stream(&none);
    for (int i = 0; i < rows; i += in_a_batch) {
        struct ArrowArray batch = next_batch(&stream);
        check_batch(&batch, (size_t)(rows - i < in_a_batch ? rows - i : in_a_batch));
        check_text(&batch, "name", 0, name);
        batch.release(&batch);
    }
    check_end(&stream);
    free(name);
}

/* A name that is longer than a batch may be goes alone. */
TEST(batches_of_long_names)
{
    expect_batches(1000000, 20, CPROF_ARROW_BATCH_BYTES / 3 / 1000000);
    expect_batches(CPROF_ARROW_BATCH_BYTES / 3 + 1, 2, 1);
}

/* Strings that might be a GiB: offsets have 32 bits. */
TEST(strings_beyond_all)
{
    enum { LONG = CPROF_ARROW_ROW_BYTES / 3 / 5 + 1 };
    cprof_row row = row_of(CPROF_KIND_HOST, "a", 0, 1);
    char *zeros = calloc(1, LONG);
    CHECK(zeros != NULL);
    CHECK(cprof_table_text(table, (cprof_name){zeros, LONG}, &row.name) == CPROF_OK);
    free(zeros);
    row.cat = row.stage = row.shapes = row.types = row.name;
    add(&row);
    cprof_arrow_stream stream = open_stream(&none);
    struct ArrowArray batch;
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(stream.get_next(&stream, &batch), EOVERFLOW);
        CHECK(batch.release == NULL && strstr(stream.get_last_error(&stream), "1 GiB") != NULL);
    }
    stream.release(&stream);
}

/* Children may be moved out, and outlive what they were in. */
TEST(children_can_be_moved)
{
    cprof_row row = row_of(CPROF_KIND_NODE, "a", 0, 1);
    add(&row);
    cprof_arrow_stream stream = open_stream(&none);
    struct ArrowSchema schema;
    CHECK_EQUAL(stream.get_schema(&stream, &schema), 0);
    struct ArrowArray batch = next_batch(&stream);
    struct ArrowArray name = *batch.children[3];
    struct ArrowSchema name_schema = *schema.children[3];
    batch.children[3]->release = NULL;
    schema.children[3]->release = NULL;
    batch.release(&batch);
    schema.release(&schema);
    stream.release(&stream);
    CHECK(batch.release == NULL && schema.release == NULL && stream.release == NULL);
    CHECK(memcmp(name.buffers[2], "a", 1) == 0 && strcmp(name_schema.name, "name") == 0);
    name.release(&name);
    name_schema.release(&name_schema);
    CHECK(name.release == NULL && name_schema.release == NULL);
}

/* A stream that nobody reads to the end, and one that is released twice. */
TEST(early_and_double_release)
{
    cprof_row row = row_of(CPROF_KIND_NODE, "a", 0, 1);
    add(&row);
    cprof_arrow_stream stream = open_stream(&none);
    void (*release)(struct ArrowArrayStream *) = stream.release;
    release(&stream);
    release(&stream);
    CHECK(stream.release == NULL);
}

static void add_for_refusals(void)
{
    for (int i = 0; i < 3; i++) {
        cprof_row row = row_of(CPROF_KIND_NODE, "a", i, i + 1);
        add(&row);
    }
    CHECK(cprof_table_finish(table) == CPROF_OK);
}

/* G7: opening and reading fail, say why, leave nothing, and can be tried again. */
TEST(without_memory)
{
    static const int32_t spans[] = {0, 1, 2};
    static const int64_t numbers[] = {0, 1, 2};
    const cprof_arrow_extras extras = {spans, numbers, numbers};
    add_for_refusals();
    cprof_arrow_stream stream = {.release = NULL};
    uint64_t nth = 0;
    for (uint64_t live = fake_alloc_live(); fake_alloc_fail_next(&nth);) {
        cprof_status status = cprof_arrow_table_open(table, &extras, &stream);
        CHECK(status == (fake_alloc_has_failed() ? CPROF_NO_MEMORY : CPROF_OK));
        CHECK(status == CPROF_OK || fake_alloc_live() == live);
    }
    CHECK_EQUAL(nth, 6 + 1);
    CHECK(stream.get_schema != NULL && stream.get_next != NULL && stream.get_last_error != NULL);
    struct ArrowSchema schema = {.release = NULL};
    nth = 0;
    for (uint64_t live = fake_alloc_live(); fake_alloc_fail_next(&nth);) {
        bool is_made = stream.get_schema(&stream, &schema) == 0;
        CHECK(is_made != fake_alloc_has_failed());
        CHECK(is_made || (fake_alloc_live() == live && strcmp(stream.get_last_error(&stream), "out of memory") == 0));
    }
    CHECK_EQUAL(nth, 1 + COLUMNS + 1);
    CHECK(schema.release != NULL);
    schema.release(&schema);
    struct ArrowArray batch = {.release = NULL};
    nth = 0;
    for (uint64_t live = fake_alloc_live(); fake_alloc_fail_next(&nth);) {
        bool is_made = stream.get_next(&stream, &batch) == 0;
        CHECK(is_made != fake_alloc_has_failed() && is_made == (batch.release != NULL));
        CHECK(is_made || (fake_alloc_live() == live && strcmp(stream.get_last_error(&stream), "out of memory") == 0));
    }
    CHECK_EQUAL(nth, 1 + COLUMNS + 1);
    CHECK(batch.release != NULL);
    check_batch(&batch, 3);
    batch.release(&batch);
    check_end(&stream);
}

FAKE_ALLOC_MAIN(set_up, tear_down)
