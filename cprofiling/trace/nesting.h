/* How the rows of a table are nested, and how long each was the innermost one of its track. */
#ifndef CPROF_NESTING_H
#define CPROF_NESTING_H

#include "cprofiling/trace/table.h"

#define CPROF_NESTING_LEFT_OUT (-2) /* in place of a parent: the row does not count */

/* Sets parents, which has room for every row of a finished table: of a row that counts, the innermost row around it that
 * counts, which is before it, or -1. What begins where a row ends is not inside that, unless it has a span's id. Where spans of
 * the same time are around each other, as ids can say, more than 100 in a row are cut. counted has a byte for each row, 0 for
 * those that do not count. Any thread. CPROF_NO_MEMORY: parents has no meaning. */
cprof_status cprof_nesting_parents(const cprof_table *table, const uint8_t *counted, int32_t *parents);

/* Sets own_ns, which has room for every row of a finished table: the time in which a row was the innermost of those that count;
 * where they overlap, that is the one that began last. 0 for rows that do not count, and for all rows of a track on which
 * any row is suspendable. Any thread. CPROF_NO_MEMORY: own_ns has no meaning. */
cprof_status cprof_nesting_own_times(const cprof_table *table, const int32_t *parents, uint64_t *own_ns);

#endif
