/* Reads Chrome traces, those of Kineto (torch 1.8 and later, CUDA and ROCm) and our own, into a table.
 *
 * JSON as json_read.h has it, in one pass: both forms of the Trace Event Format, the object with "traceEvents" and the bare
 * list, which may break off after any event. Time is linear. Memory is the table, which for a trace of Kineto is
 * about as much as its text, and for the worst that can be made up eleven times as much; and a window of the file.
 * Events of phases that a recording does not have, and those without a time, are ignored, but counted.
 */
#ifndef CPROF_CHROME_READ_H
#define CPROF_CHROME_READ_H

#include "cprofiling/files/json_read.h"
#include "cprofiling/trace/table.h"

/* Counts of read and omitted parts. */
typedef struct {
    uint64_t bytes;      /* read; after CPROF_BAD_FORMAT: the offset of the error in the uncompressed text */
    uint64_t ignored;    /* events of phases that a recording does not have (async, object, sample, ...), or without a time */
    uint64_t unmatched;  /* begin events without an end, and ends without a beginning */
    uint64_t negative;   /* durations below zero, which became zero */
    uint64_t dropped;    /* of our own traces: what they say was dropped */
    int64_t greatest_id; /* of correlations, external ids and arrows, with the offset, but for random ones; 0: none */
    const char *reason;  /* after CPROF_BAD_FORMAT: the error, a static text; else NULL */
} cprof_chrome_read_report;

enum {
    CPROF_CHROME_READ_WINDOW = 1 << 17,     /* bytes of the file in memory, */
    CPROF_CHROME_READ_MAX_EVENT = 64 << 20, /* and of one event, or of one value beside the events */
    CPROF_CHROME_READ_MAX_FACTS = 1 << 16,  /* of values beside the events */
};

#define CPROF_CHROME_READ_LONGEST_NS (INT64_C(1) << 62) /* from the first to the last time of a table: 146 years */

/* Adds the events of a trace to an unfinished table, `shift_ns` added to all times, and `id_offset` (0 or more) to
 * correlations, external ids and ids of arrows from 1 to 2^52 - 1, also in kept args; what the file says about the whole
 * becomes facts, as it stands there. CPROF_BAD_FORMAT: damaged or no trace at all, see the report; CPROF_NO_MEMORY;
 * CPROF_OUT_OF_RANGE: more rows than a table takes; or what `read` returned. After any of these the table may only be
 * destroyed. */
cprof_status cprof_chrome_read(cprof_table *table, int64_t shift_ns, int64_t id_offset, cprof_read read, void *context,
                               cprof_chrome_read_report *report);

#endif
