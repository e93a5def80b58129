/* What streams of Arrow record batches hand out: schemas, batches and columns, each in memory of its own that it gives back
 * when it is released. Whoever takes one may move it, and release its children before it.
 */
#ifndef CPROF_ARROW_H
#define CPROF_ARROW_H

#include "cprofiling/base/status.h"
#include "cprofiling/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_NULLABLE 2

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

#endif

typedef struct ArrowArrayStream cprof_arrow_stream;

/* A column's name, and what its items are: "u": UTF-8, "l": int64, "i": int32, "g": float64. */
typedef struct {
    const char *name;
    const char *format; /* static */
} cprof_arrow_field;

/* The part of a stream's owner that this file looks at, which it begins with. */
typedef struct cprof_arrow_source {
    const cprof_arrow_field *fields; /* of its columns, all nullable; their names are copied */
    size_t count;
    const char *error;                                                          /* static: of the last call; or NULL */
    int (*get_next)(struct cprof_arrow_source *source, struct ArrowArray *out); /* as that of a stream */
    void (*destroy)(struct cprof_arrow_source *source);
} cprof_arrow_source;

/* Makes a stream that owns its source. */
void cprof_arrow_open(cprof_arrow_source *source, cprof_arrow_stream *stream);

/* Makes a batch of some columns, which the caller puts into out->children. False without memory. */
bool cprof_arrow_batch(size_t count, size_t rows, struct ArrowArray *out);

/* Makes a column without a valid item: memory for its validity, and behind it a zeroed buffer for its items, or the offsets of
 * texts, and one for characters. False without memory. */
bool cprof_arrow_column(const char *format, size_t rows, size_t first_size, size_t second_size, struct ArrowArray *out);

/* The memory of a column's buffer (0: validity, 1, 2) while it is being filled. */
void *cprof_arrow_buffer(const struct ArrowArray *column, size_t number);

/* Says that a column, which is being filled, has an item in a row. */
void cprof_arrow_set_valid(struct ArrowArray *column, size_t row);

/* Columns of numbers and texts as a stream of one Arrow record batch, for data other than recordings.
 *
 * Made column by column, each item by item; one thread at a time uses them.
 */

typedef struct cprof_arrow_columns cprof_arrow_columns;

/* Room for `count` columns of `rows` rows. NULL without memory. */
cprof_arrow_columns *cprof_arrow_columns_create(size_t count, size_t rows);

/* Begins column `number` with a copy of the name; its items are null. `characters`: the most bytes that its texts have
 * together. CPROF_NO_MEMORY. CPROF_OUT_OF_RANGE: they may be more than Arrow's offsets can count. */
cprof_status cprof_arrow_columns_begin(cprof_arrow_columns *columns, size_t number, cprof_arrow_field field, size_t characters);

/* Set an item. Of a column of texts all rows are set, in their order; a NULL text is none. Invalid UTF-8, surrogates
 * included, becomes U+FFFD. */
void cprof_arrow_columns_set_whole(cprof_arrow_columns *columns, size_t number, size_t row, int64_t value);
void cprof_arrow_columns_set_real(cprof_arrow_columns *columns, size_t number, size_t row, double value);
void cprof_arrow_columns_set_text(cprof_arrow_columns *columns, size_t number, size_t row, const cprof_name *text);

/* Makes a stream of complete columns, which owns them from then on. */
void cprof_arrow_columns_open(cprof_arrow_columns *columns, cprof_arrow_stream *stream);

/* Gives everything back. NULL is ignored. */
void cprof_arrow_columns_destroy(cprof_arrow_columns *columns);

#endif
