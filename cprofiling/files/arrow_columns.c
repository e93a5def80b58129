#include "cprofiling/files/arrow_columns.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/text.h"

#include <errno.h>
#include <string.h>

struct cprof_arrow_columns {
    size_t count;
    size_t rows;
    cprof_arrow_field *fields; /* the names are owned; NULL of a column that was not begun */
    struct ArrowArray batch;   /* released once it was handed out */
    const char *error;
};

cprof_arrow_columns *cprof_arrow_columns_create(size_t count, size_t rows)
{
    cprof_arrow_columns *columns = cprof_alloc_zeroed(sizeof *columns + (count + 1) * sizeof(cprof_arrow_field));
    if (columns == NULL) {
        return NULL;
    }
    columns->count = count;
    columns->rows = rows;
    columns->fields = (cprof_arrow_field *)(columns + 1);
    if (!cprof_arrow_batch(count, rows, &columns->batch)) {
        cprof_alloc_release(columns);
        return NULL;
    }
    return columns;
}

cprof_status cprof_arrow_columns_begin(cprof_arrow_columns *columns, size_t number, cprof_arrow_field field, size_t characters)
{
    static const size_t repaired = 3; /* times as many bytes as before */
    bool is_text = field.format[0] == 'u';
    if (is_text && characters > INT32_MAX / repaired) {
        return CPROF_OUT_OF_RANGE;
    }
    size_t first_size = is_text ? (columns->rows + 1) * sizeof(int32_t) : columns->rows * sizeof(int64_t);
    size_t size = strlen(field.name) + 1;
    char *name = cprof_alloc_zeroed(size);
    if (name == NULL || !cprof_arrow_column(field.format, columns->rows, first_size, is_text ? characters * repaired : 0,
                                            columns->batch.children[number])) {
        cprof_alloc_release(name);
        return CPROF_NO_MEMORY;
    }
    memcpy(name, field.name, size);
    columns->fields[number] = (cprof_arrow_field){name, field.format};
    return CPROF_OK;
}

void cprof_arrow_columns_set_whole(cprof_arrow_columns *columns, size_t number, size_t row, int64_t value)
{
    int64_t *items = cprof_arrow_buffer(columns->batch.children[number], 1);
    items[row] = value;
    cprof_arrow_set_valid(columns->batch.children[number], row);
}

void cprof_arrow_columns_set_real(cprof_arrow_columns *columns, size_t number, size_t row, double value)
{
    double *items = cprof_arrow_buffer(columns->batch.children[number], 1);
    items[row] = value;
    cprof_arrow_set_valid(columns->batch.children[number], row);
}

void cprof_arrow_columns_set_text(cprof_arrow_columns *columns, size_t number, size_t row, const cprof_name *text)
{
    struct ArrowArray *column = columns->batch.children[number];
    int32_t *offsets = cprof_arrow_buffer(column, 1);
    char *characters = cprof_arrow_buffer(column, 2);
    offsets[row + 1] = offsets[row];
    if (text != NULL) {
        offsets[row + 1] += (int32_t)cprof_text_repair(*text, characters + offsets[row]);
        cprof_arrow_set_valid(column, row);
    }
}

static int get_schema(struct ArrowArrayStream *self, struct ArrowSchema *out)
{
    cprof_arrow_columns *columns = self->private_data;
    if (!cprof_arrow_schema(columns->fields, columns->count, true, out)) {
        columns->error = cprof_status_text(CPROF_NO_MEMORY);
        return ENOMEM;
    }
    return 0;
}

/* The one batch, then the end, which is released. */
static int get_next(struct ArrowArrayStream *self, struct ArrowArray *out)
{
    cprof_arrow_columns *columns = self->private_data;
    *out = columns->batch;
    columns->batch.release = NULL;
    return 0;
}

static const char *get_last_error(struct ArrowArrayStream *self)
{
    return ((cprof_arrow_columns *)self->private_data)->error;
}

static void release_stream(struct ArrowArrayStream *self)
{
    cprof_arrow_columns_destroy(self->private_data);
    self->private_data = NULL;
    self->release = NULL;
}

void cprof_arrow_columns_open(cprof_arrow_columns *columns, cprof_arrow_stream *stream)
{
    *stream = (cprof_arrow_stream){
        .get_schema = get_schema,
        .get_next = get_next,
        .get_last_error = get_last_error,
        .release = release_stream,
        .private_data = columns,
    };
}

void cprof_arrow_columns_destroy(cprof_arrow_columns *columns)
{
    if (columns == NULL) {
        return;
    }
    for (size_t i = 0; i < columns->count; i++) {
        cprof_alloc_release((void *)columns->fields[i].name);
    }
    if (columns->batch.release != NULL) {
        columns->batch.release(&columns->batch);
    }
    cprof_alloc_release(columns);
}
