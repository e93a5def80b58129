/* The rows of a table that events of a Chrome trace become. */
#ifndef CPROF_CHROME_ROW_H
#define CPROF_CHROME_ROW_H

#include "cprofiling/files/chrome_track.h"

/* Begins a row at the event's time, in ns as the file has it: its times, track, name and category. *is_known: there is a time.
 * CPROF_OUT_OF_RANGE: it is beyond int64; CPROF_NO_MEMORY. */
cprof_status cprof_chrome_row_begin(cprof_chrome_tracks *tracks, const cprof_chrome_event *event, cprof_row *row,
                                    bool *is_known);

/* The kind of a row that lasts: by its args where they are ours, else by its category and name. */
cprof_kind cprof_chrome_row_kind(const cprof_table *table, const cprof_chrome_event *event, const cprof_row *row);

/* Sets what the event's args say of a row of which the rest is set. CPROF_NO_MEMORY. */
cprof_status cprof_chrome_row_args(cprof_chrome_values *values, const cprof_chrome_event *event, cprof_row *row);

/* Whether the columns of a row hold all that the event's args say: it is ours. */
bool cprof_chrome_row_is_whole(const cprof_chrome_event *event, const cprof_row *row);

/* Keeps the event's args in the table; *length is 0 where there are none. CPROF_NO_MEMORY. */
cprof_status cprof_chrome_row_keep(cprof_chrome_values *values, const cprof_chrome_event *event, uint64_t *at,
                                   uint32_t *length);

#endif
