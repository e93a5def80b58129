/* Lanes: rows of one track that overlap without lying within one another, as those of asynchronous tasks do, are drawn side by
 * side.
 *
 * For table_order.c only. Ends of rows may stick out by a rounding, but only those of rows without ids, which were recorded by
 * others: times of Kineto's older traces are whole microseconds.
 */
#ifndef CPROF_TABLE_LANES_H
#define CPROF_TABLE_LANES_H

#include "cprofiling/trace/table.h"

enum { CPROF_TABLE_LANES_ROUNDING_NS = 1000 };

/* The rows of each track, in their order: those of track t are rows[first[t]] to rows[first[t + 1] - 1]. */
typedef struct {
    uint32_t *rows;
    uint32_t *first;
} cprof_table_lanes_index;

/* Whether a row has an id, or names a parent: its parent is found by that alone. */
static inline bool cprof_table_lanes_has_ids(const cprof_table *table, size_t row)
{
    return (table->span != NULL && table->span[row] != 0) || (table->parent_span != NULL && table->parent_span[row] != 0);
}

/* Lays rows of one track that last, and overlap without lying within one another, into lanes. Sets lane, which is NULL before,
 * and the tracks' number of lanes. CPROF_NO_MEMORY: some of that may be done. */
cprof_status cprof_table_lanes_assign(cprof_table *table, const cprof_table_lanes_index *index);

#endif
