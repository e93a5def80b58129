/* How long each row of a table was the innermost one of its track. */
#ifndef CPROF_OWN_TIMES_H
#define CPROF_OWN_TIMES_H

#include "cprofiling/trace/table.h"

#define CPROF_OWN_TIMES_LEFT_OUT (-2) /* in place of a parent: the row does not count */

/* Sets own_ns, which has room for every row of a finished table: the time in which a row was the innermost of those that count;
 * where they overlap, that is the one that began last. 0 for rows that do not count, and for all rows of a track on which
 * any row is suspendable. Any thread. CPROF_NO_MEMORY: own_ns has no meaning. */
cprof_status cprof_own_times(const cprof_table *table, const int32_t *parents, uint64_t *own_ns);

#endif
