/* arrow.h: streams of columns */
#include "cprofiling/files/arrow.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <string.h>

enum { COLUMNS = 3, ROWS = 10 };

static const cprof_arrow_field fields[COLUMNS] = {{"name", "u"}, {"count", "l"}, {"mean", "g"}};

/* Columns in which row 1 has nothing; NULL where an allocation failed. */
static cprof_arrow_columns *make_columns(size_t rows)
{
    cprof_arrow_columns *columns = cprof_arrow_columns_create(COLUMNS, rows);
    for (size_t i = 0; columns != NULL && i < COLUMNS; i++) {
        if (cprof_arrow_columns_begin(columns, i, fields[i], rows) != CPROF_OK) {
            cprof_arrow_columns_destroy(columns);
            return NULL;
        }
    }
    for (size_t row = 0; columns != NULL && row < rows; row++) {
        char letter = (char)('a' + row);
        cprof_name text = {&letter, 1};
        cprof_arrow_columns_set_text(columns, 0, row, row != 1 ? &text : NULL);
        if (row != 1) {
            cprof_arrow_columns_set_whole(columns, 1, row, (int64_t)row - 5);
            cprof_arrow_columns_set_real(columns, 2, row, (double)row / 2);
        }
    }
    return columns;
}

static cprof_arrow_stream open_stream(size_t rows)
{
    cprof_arrow_stream stream;
    cprof_arrow_columns *columns = make_columns(rows);
    CHECK(columns != NULL);
    cprof_arrow_columns_open(columns, &stream);
    return stream;
}

static bool is_valid(const struct ArrowArray *column, size_t row)
{
    return (((const uint8_t *)column->buffers[0])[row / 8] >> row % 8 & 1) != 0;
}

TEST(items)
{
    cprof_arrow_stream stream = open_stream(ROWS);
    struct ArrowSchema schema;
    CHECK_EQUAL(stream.get_schema(&stream, &schema), 0);
    for (size_t i = 0; i < COLUMNS; i++) {
        CHECK(strcmp(schema.children[i]->name, fields[i].name) == 0);
        CHECK(strcmp(schema.children[i]->format, fields[i].format) == 0);
    }
    schema.release(&schema);
    struct ArrowArray batch, end;
    CHECK_EQUAL(stream.get_next(&stream, &batch), 0);
    CHECK_EQUAL(stream.get_next(&stream, &end), 0);
    CHECK(end.release == NULL);
    stream.release(&stream);
    CHECK(stream.release == NULL);
    CHECK(batch.length == ROWS && batch.n_children == COLUMNS && batch.null_count == 0 && batch.buffers[0] == NULL);
    const struct ArrowArray *names = batch.children[0], *counts = batch.children[1], *means = batch.children[2];
    CHECK(names->n_buffers == 3 && counts->n_buffers == 2 && means->n_buffers == 2);
    CHECK(names->null_count == 1 && counts->null_count == 1 && means->null_count == 1);
    const int32_t *offsets = names->buffers[1];
    for (size_t row = 0; row < ROWS; row++) {
        CHECK(is_valid(names, row) == (row != 1) && is_valid(counts, row) == (row != 1));
        CHECK_EQUAL(offsets[row + 1] - offsets[row], row != 1);
        CHECK_EQUAL(((const int64_t *)counts->buffers[1])[row], row != 1 ? (int64_t)row - 5 : 0);
        CHECK(((const double *)means->buffers[1])[row] == (row != 1 ? (double)row / 2 : 0.0));
    }
    CHECK(memcmp(names->buffers[2], "acdefghij", ROWS - 1) == 0);
    batch.release(&batch);
    CHECK(batch.release == NULL);
}

TEST(no_rows_and_no_columns)
{
    cprof_arrow_stream stream = open_stream(0);
    struct ArrowArray batch;
    CHECK_EQUAL(stream.get_next(&stream, &batch), 0);
    CHECK(batch.length == 0 && ((const int32_t *)batch.children[0]->buffers[1])[0] == 0);
    batch.release(&batch);
    stream.release(&stream);
    cprof_arrow_columns_open(cprof_arrow_columns_create(0, 0), &stream);
    struct ArrowSchema schema;
    CHECK_EQUAL(stream.get_schema(&stream, &schema), 0);
    CHECK_EQUAL(schema.n_children, 0);
    schema.release(&schema);
    stream.release(&stream); /* with the batch, which nobody took */
}

TEST(texts_are_repaired)
{
    static const char surrogates[] = "\xed\xa0\x80\xed\xb0\x80";
    cprof_arrow_columns *columns = cprof_arrow_columns_create(1, 2);
    cprof_name text = {surrogates, sizeof surrogates - 1}, broken = {"\xff\xff", 2};
    CHECK(cprof_arrow_columns_begin(columns, 0, fields[0], text.length + broken.length) == CPROF_OK);
    cprof_arrow_columns_set_text(columns, 0, 0, &text);
    cprof_arrow_columns_set_text(columns, 0, 1, &broken);
    cprof_arrow_stream stream;
    struct ArrowArray batch;
    cprof_arrow_columns_open(columns, &stream);
    CHECK_EQUAL(stream.get_next(&stream, &batch), 0);
    const int32_t *offsets = batch.children[0]->buffers[1];
    CHECK(offsets[1] == 6 && offsets[2] == 12);
    CHECK(memcmp(batch.children[0]->buffers[2], "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 12) == 0);
    batch.release(&batch);
    stream.release(&stream);
}

TEST(texts_beyond_all_offsets)
{
    cprof_arrow_columns *columns = cprof_arrow_columns_create(1, 1);
    CHECK(cprof_arrow_columns_begin(columns, 0, fields[0], (size_t)1 << 30) == CPROF_OUT_OF_RANGE);
    cprof_arrow_columns_destroy(columns);
    cprof_arrow_columns_destroy(NULL);
}

TEST(without_memory)
{
    uint64_t nth = 0;
    uint64_t live = fake_alloc_live();
    while (fake_alloc_fail_next(&nth)) {
        cprof_arrow_columns *columns = make_columns(ROWS);
        CHECK((columns == NULL) == fake_alloc_has_failed());
        cprof_arrow_columns_destroy(columns);
        CHECK_EQUAL(fake_alloc_live(), live);
    }
    CHECK_EQUAL(nth, 2 + 2 * COLUMNS + 1);
}

FAKE_ALLOC_MAIN(NULL, NULL)
