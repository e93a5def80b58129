/* A finished table as a stream of Arrow record batches, by Arrow's C data and C stream interfaces.
 *
 * The three structures, of arrow.h, are those of the specification
 * (https://arrow.apache.org/docs/format/CDataInterface.html), which also says who releases what. A stream owns a share of its
 * table, and what it hands out owns nothing of it: each may outlive the others. One thread at a time uses a stream; any thread
 * may release anything.
 */
#ifndef CPROF_ARROW_TABLE_H
#define CPROF_ARROW_TABLE_H

#include "cprofiling/files/arrow.h"
#include "cprofiling/trace/table.h"

enum {
    CPROF_ARROW_BATCH_ROWS = 65536,
    CPROF_ARROW_BATCH_BYTES = 16 << 20, /* of strings, unless it is a single row, */
    CPROF_ARROW_ROW_BYTES = 1 << 30,    /* which has at most these */
};

/* Columns beyond the table: one number per row, or NULL where no row has one. Copied. */
typedef struct {
    const int32_t *spans;      /* the row of the span that it belongs to, which may be itself; -1: none */
    const int64_t *executions; /* -1: none */
    const int64_t *operators;  /* -1: none */
} cprof_arrow_extras;

/* Makes a stream of all rows but counters. Its columns: trace_id, parent_span_id (of a span: zeros where it is a root; of
 * another row: its span), span_id (of spans), name, cat, stage, start, end, dur, thread.id (null where that is a text),
 * device_index, stream, execution_index, operator_index, input_shapes, input_types, memory_change, memory_peak,
 * device_memory_change, device_memory_peak, bytes, kind, outcome (of nodes and records: success, error, cancelled, unfinished),
 * row (its number in the table).
 * Without extras.spans a row has the ids that it has in the table. Invalid UTF-8, surrogates included, becomes U+FFFD.
 * CPROF_NO_MEMORY; CPROF_OUT_OF_RANGE: one of extras.spans is no row. */
cprof_status cprof_arrow_table_open(cprof_table *table, const cprof_arrow_extras *extras, cprof_arrow_stream *stream);

#endif
