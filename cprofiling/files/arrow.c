#include "cprofiling/files/arrow.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/text.h"

#include <errno.h>
#include <string.h>

enum { ALIGNMENT = 64 }; /* of buffers, to the beginning of their memory */

/* What a column owns; its buffers are behind it, in the same memory. */
typedef struct {
    const void *buffers[3]; /* validity, items or offsets, characters */
} column_memory;

/* Of a schema, or a child of one. */
static void release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        struct ArrowSchema *child = schema->children[i];
        if (child->release != NULL) {
            child->release(child);
        }
    }
    cprof_alloc_release(schema->private_data);
    schema->release = NULL;
}

static int get_schema(struct ArrowArrayStream *self, struct ArrowSchema *out)
{
    cprof_arrow_source *source = self->private_data;
    size_t count = source->count;
    struct ArrowSchema *children = cprof_alloc_zeroed(count * (sizeof *children + sizeof(void *)) + 1);
    struct ArrowSchema **pointers = (struct ArrowSchema **)(children + count);
    bool fine = children != NULL;
    size_t made = 0;
    for (; fine && made < count; made++) {
        const cprof_arrow_field *field = &source->fields[made];
        size_t size = strlen(field->name) + 1;
        char *name = cprof_alloc_zeroed(size); /* a child's own: it may be moved away, and outlive all else */
        fine = name != NULL;
        if (fine) {
            memcpy(name, field->name, size);
        }
        children[made] = (struct ArrowSchema){
            .format = field->format,
            .name = name,
            .flags = ARROW_FLAG_NULLABLE,
            .release = release_schema,
            .private_data = name,
        };
        pointers[made] = &children[made];
    }
    *out = (struct ArrowSchema){
        .format = "+s",
        .name = "",
        .n_children = (int64_t)made,
        .children = pointers,
        .release = release_schema,
        .private_data = children,
    };
    if (!fine) {
        out->release(out);
        source->error = cprof_status_text(CPROF_NO_MEMORY);
    }
    return fine ? 0 : ENOMEM;
}

static int get_next(struct ArrowArrayStream *self, struct ArrowArray *out)
{
    cprof_arrow_source *source = self->private_data;
    return source->get_next(source, out);
}

static const char *get_last_error(struct ArrowArrayStream *self)
{
    return ((cprof_arrow_source *)self->private_data)->error;
}

static void release_stream(struct ArrowArrayStream *self)
{
    cprof_arrow_source *source = self->private_data;
    if (source != NULL) {
        source->destroy(source);
    }
    self->private_data = NULL;
    self->release = NULL;
}

void cprof_arrow_open(cprof_arrow_source *source, cprof_arrow_stream *stream)
{
    *stream = (cprof_arrow_stream){
        .get_schema = get_schema,
        .get_next = get_next,
        .get_last_error = get_last_error,
        .release = release_stream,
        .private_data = source,
    };
}

/* Of a batch, or a column of one. */
static void release_array(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++) {
        struct ArrowArray *child = array->children[i];
        if (child->release != NULL) {
            child->release(child);
        }
    }
    cprof_alloc_release(array->private_data);
    array->release = NULL;
}

bool cprof_arrow_batch(size_t count, size_t rows, struct ArrowArray *out)
{
    struct ArrowArray *children = cprof_alloc_zeroed(count * (sizeof *children + sizeof(void *)) + sizeof(void *));
    if (children == NULL) {
        return false;
    }
    struct ArrowArray **pointers = (struct ArrowArray **)(children + count);
    for (size_t i = 0; i < count; i++) {
        pointers[i] = &children[i];
    }
    *out = (struct ArrowArray){
        .length = (int64_t)rows,
        .n_buffers = 1,
        .n_children = (int64_t)count,
        .buffers = (const void **)(pointers + count), /* its validity is NULL: all rows are valid */
        .children = pointers,
        .release = release_array,
        .private_data = children,
    };
    return true;
}

static size_t aligned(size_t size)
{
    return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

bool cprof_arrow_column(const char *format, size_t rows, size_t first_size, size_t second_size, struct ArrowArray *out)
{
    size_t validity = aligned(sizeof(column_memory));
    size_t first = validity + aligned((rows + 7) / 8);
    size_t second = first + aligned(first_size);
    char *bytes = cprof_alloc_zeroed(second + second_size);
    if (bytes == NULL) {
        return false;
    }
    column_memory *memory = (column_memory *)bytes;
    *memory = (column_memory){{bytes + validity, bytes + first, bytes + second}};
    *out = (struct ArrowArray){
        .length = (int64_t)rows,
        .null_count = (int64_t)rows,
        .n_buffers = format[0] == 'u' ? 3 : 2,
        .buffers = memory->buffers,
        .release = release_array,
        .private_data = memory,
    };
    return true;
}

void *cprof_arrow_buffer(const struct ArrowArray *column, size_t number)
{
    const column_memory *memory = column->private_data;
    return (void *)memory->buffers[number];
}

void cprof_arrow_set_valid(struct ArrowArray *column, size_t row)
{
    uint8_t *validity = cprof_arrow_buffer(column, 0);
    validity[row / 8] = (uint8_t)(validity[row / 8] | 1U << row % 8);
    column->null_count--;
}

struct cprof_arrow_columns {
    cprof_arrow_source source;
    size_t rows;
    struct ArrowArray batch;    /* released once it was handed out */
    cprof_arrow_field fields[]; /* the names are owned; NULL of a column that was not begun */
};

/* The one batch, then the end, which is released. */
static int next_of_columns(cprof_arrow_source *source, struct ArrowArray *out)
{
    cprof_arrow_columns *columns = (cprof_arrow_columns *)source;
    *out = columns->batch;
    columns->batch.release = NULL;
    return 0;
}

static void destroy_columns(cprof_arrow_source *source)
{
    cprof_arrow_columns *columns = (cprof_arrow_columns *)source;
    for (size_t i = 0; i < source->count; i++) {
        cprof_alloc_release((void *)columns->fields[i].name);
    }
    if (columns->batch.release != NULL) {
        columns->batch.release(&columns->batch);
    }
    cprof_alloc_release(columns);
}

cprof_arrow_columns *cprof_arrow_columns_create(size_t count, size_t rows)
{
    cprof_arrow_columns *columns = cprof_alloc_zeroed(sizeof *columns + count * sizeof(cprof_arrow_field));
    if (columns == NULL) {
        return NULL;
    }
    columns->source = (cprof_arrow_source){columns->fields, count, NULL, next_of_columns, destroy_columns};
    columns->rows = rows;
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

void cprof_arrow_columns_open(cprof_arrow_columns *columns, cprof_arrow_stream *stream)
{
    cprof_arrow_open(&columns->source, stream);
}

void cprof_arrow_columns_destroy(cprof_arrow_columns *columns)
{
    if (columns != NULL) {
        destroy_columns(&columns->source);
    }
}
