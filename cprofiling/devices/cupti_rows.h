/* How what CUPTI told becomes rows of a table, for cupti_store.c; and how that keeps it. Nothing here locks. */
#ifndef CPROF_CUPTI_ROWS_H
#define CPROF_CUPTI_ROWS_H

#include "cprofiling/devices/cupti_store.h"

enum { CPROF_CUPTI_CHUNK = 4096 }; /* items, which take whole pages */

/* A record of a device, kept. */
typedef struct {
    cprof_cupti_record record; /* without a name; the kind is 0 once it is left out */
    uint32_t name;             /* a number of the trace's names + 1; 0: it has none */
    uint32_t correlation;      /* that of the outermost call */
} cprof_cupti_traced_work;

/* An item by its number. */
cprof_cupti_traced_call *cprof_cupti_rows_call(const cprof_cupti_items *calls, size_t index);
cprof_cupti_traced_work *cprof_cupti_rows_work(const cprof_cupti_items *records, size_t index);

/* Adds all settled items to a table, with the arrows from calls to their work, and names devices and streams.
 * `demangler` may be NULL.
 * CPROF_NO_MEMORY, CPROF_OUT_OF_RANGE: rows are missing. */
cprof_status cprof_cupti_rows_add(const cprof_cupti_store *trace, cprof_cupti_demangler demangler, cprof_table *table);

#endif
