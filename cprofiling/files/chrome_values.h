/* What a Chrome trace's events are in a table: texts, numbers, times; the tracks of processes and threads; and rows.
 *
 * All functions take a value of NULL for one that is absent; null, NaN and the like are absent, too. */
#ifndef CPROF_CHROME_VALUES_H
#define CPROF_CHROME_VALUES_H

#include "cprofiling/files/chrome_event.h"
#include "cprofiling/files/chrome_sources.h"
#include "cprofiling/files/json_read.h"
#include "cprofiling/trace/table.h"

enum { CPROF_CHROME_VALUES_CACHED = 4096 };

typedef struct {
    char *bytes;
    size_t size;
} cprof_chrome_values_room;

/* A thread as events name it: numbers, or texts that are not 0. */
typedef struct {
    int64_t pid;
    int64_t tid;
    cprof_text pid_text;
    cprof_text tid_text;
} cprof_chrome_thread;

/* State for making them. All zero but for the table: nothing was made yet.
 *
 * In our own traces the lanes of a thread are threads of their own (see chrome_write.h). Their names, that of the thread and
 * in parentheses the lane's number from 2 on, make them one track again. */
typedef struct {
    cprof_table *table;               /* borrowed */
    cprof_chrome_values_room scratch; /* for texts that are not as they are in the file */
    cprof_chrome_values_room changed; /* for stacks, and for args with other ids */
    int64_t id_offset;                /* added to ids that join events; at least 0 */
    int64_t greatest_id;              /* of them so far, with the offset; 0: none */
    cprof_names_table lanes;          /* cprof_chrome_thread of lanes; the stage is empty */
    uint32_t *of_lanes;               /* the track of each of them */
    size_t lane_capacity;
    cprof_chrome_thread last;     /* that an event was of, */
    uint32_t last_track;          /* and its track + 1; 0: none */
    cprof_chrome_sources sources; /* of the facts so far, once events have some */
    struct {
        uint64_t hash;
        cprof_text text; /* 0: none */
    } cache[CPROF_CHROME_VALUES_CACHED];
} cprof_chrome_values;

/* Gives back what they own. */
void cprof_chrome_values_dispose(cprof_chrome_values *values);

/* At least `size` bytes; NULL without memory, and it is as it was. */
char *cprof_chrome_values_grow(cprof_chrome_values_room *room, size_t size);

/* The JSON of a value (a string's without its quotes), with null for values beyond the RFC. Borrowed until the next call
 * of a function here. CPROF_NO_MEMORY. */
cprof_status cprof_chrome_values_json(cprof_chrome_values *values, const cprof_json_value *value, cprof_name *json);

/* The integer, if it is one within these limits (also if it is written as 1.0 or 1e3); otherwise `none`. */
int64_t cprof_chrome_values_integer(const cprof_json_value *value, int64_t least, int64_t most, int64_t none);

/* Whether the value is an integer. */
bool cprof_chrome_values_is_integer(const cprof_json_value *value, int64_t *integer);

/* Whether the value is a number, then its microseconds in ns, rounded half to even. CPROF_OUT_OF_RANGE: beyond int64. */
cprof_status cprof_chrome_values_ns(const cprof_json_value *value, int64_t *ns, bool *is_known);

/* The 64 bits of an arrow's id: those of an integer, moved by the offset, or a hash of anything else. */
cprof_status cprof_chrome_values_id(cprof_chrome_values *values, const cprof_json_value *value, uint64_t *id);

/* Tells a track, or the process of it, what a metadata event says: name, labels or sort number. *is_known: it is one of those.
 * CPROF_NO_MEMORY. */
cprof_status cprof_chrome_values_metadata(cprof_chrome_values *values, const cprof_chrome_event *event, bool *is_known);

/* Begins a row at the event's time, in ns as the file has it: its times, track, name and category. *is_known: there is a time.
 * CPROF_OUT_OF_RANGE: it is beyond int64; CPROF_NO_MEMORY. */
cprof_status cprof_chrome_values_row_begin(cprof_chrome_values *values, const cprof_chrome_event *event, cprof_row *row,
                                           bool *is_known);

/* The kind of a row that lasts: by its args where they are ours, else by its category and name. */
cprof_kind cprof_chrome_values_row_kind(const cprof_table *table, const cprof_chrome_event *event, const cprof_row *row);

/* Completes a row by the event's args, after all else is set. CPROF_NO_MEMORY. */
cprof_status cprof_chrome_values_row_args(cprof_chrome_values *values, const cprof_chrome_event *event, cprof_row *row);

/* Whether the columns of a row hold all that the event's args say, and the facts where its function is: it is ours.
 * CPROF_NO_MEMORY. */
cprof_status cprof_chrome_values_row_is_whole(cprof_chrome_values *values, const cprof_chrome_event *event,
                                              const cprof_row *row, bool *is_whole);

/* Keeps the event's args in the table, with their ids moved if `moves_ids`; *length is 0 where there are none.
 * CPROF_NO_MEMORY. */
cprof_status cprof_chrome_values_row_keep(cprof_chrome_values *values, const cprof_chrome_event *event, bool moves_ids,
                                          uint64_t *at, uint32_t *length);

#endif
