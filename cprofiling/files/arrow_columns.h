/* Columns of numbers and texts as a stream of one Arrow record batch: what is no recording's.
 *
 * Made column by column, each item by item; one thread at a time uses them.
 */
#ifndef CPROF_ARROW_COLUMNS_H
#define CPROF_ARROW_COLUMNS_H

#include "cprofiling/files/arrow.h"
#include "cprofiling/base/text.h"
#include "cprofiling/base/status.h"

typedef struct cprof_arrow_columns cprof_arrow_columns;

/* Room for `count` columns of `rows` rows. NULL without memory. */
cprof_arrow_columns *cprof_arrow_columns_create(size_t count, size_t rows);

/* Begins column `number`, whose name is copied; its items are null. `characters`: the most bytes that its texts have together.
 * CPROF_NO_MEMORY. CPROF_OUT_OF_RANGE: they may be more than Arrow's offsets can count. */
cprof_status cprof_arrow_columns_begin(cprof_arrow_columns *columns, size_t number, cprof_arrow_field field, size_t characters);

/* Set an item. Of a column of texts all rows are set, in their order; a NULL text is none. What is no UTF-8, surrogates among
 * it, becomes U+FFFD. */
void cprof_arrow_columns_set_whole(cprof_arrow_columns *columns, size_t number, size_t row, int64_t value);
void cprof_arrow_columns_set_real(cprof_arrow_columns *columns, size_t number, size_t row, double value);
void cprof_arrow_columns_set_text(cprof_arrow_columns *columns, size_t number, size_t row, const cprof_name *text);

/* Makes a stream of complete columns, which owns them from then on. */
void cprof_arrow_columns_open(cprof_arrow_columns *columns, cprof_arrow_stream *stream);

/* Gives everything back. NULL is ignored. */
void cprof_arrow_columns_destroy(cprof_arrow_columns *columns);

#endif
