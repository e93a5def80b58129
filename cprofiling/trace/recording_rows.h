/* What a recording is made of, for recording.c, which also frees it: labels, rings, steps; and how it becomes rows of a table.
 * No function here locks. */
#ifndef CPROF_RECORDING_ROWS_H
#define CPROF_RECORDING_ROWS_H

#include "cprofiling/base/names.h"
#include "cprofiling/trace/ring.h"
#include "cprofiling/trace/table.h"

#include <sys/types.h>

enum {
    CPROF_RECORDING_NUMBER_SHIFT = 40,         /* of a thread's number in the numbers of its spans */
    CPROF_RECORDING_MAX_LABELS = 1 << 20,      /* in one recording: names, and texts of details, of these bytes in all; */
    CPROF_RECORDING_MAX_LABEL_BYTES = 1 << 28, /* further names are called __overflow__, further texts are left out */
    CPROF_RECORDING_MOST_TIDS = 1 << 22,       /* no kernel gives a higher thread id: the n-th thread that has one gets n
                                                * times this more, from 0 */
};

/* All zero: none. */
typedef struct {
    cprof_names_table names; /* label 1 is the first */
    size_t bytes;            /* of all of them */
} cprof_labels;

/* The number of a label, found or made. 0 without memory, and past the limits unless it `may_overflow`: then it is that of the
 * label __overflow__. */
uint32_t cprof_labels_make(cprof_labels *labels, cprof_names names, bool may_overflow);

typedef struct cprof_recording_session cprof_recording_session;

typedef struct {
    uint64_t owner;    /* of registries: those of this owner take part */
    uint64_t capacity; /* events of each thread: CPROF_RECORDING_LEAST_CAPACITY to CPROF_RECORDING_MOST_CAPACITY */
    bool drop_newest;  /* when a ring is full; else the oldest goes */
    bool hosts;        /* record spans; else steps only */
    bool details;      /* spans may have a cprof_recording_detail: registries get CPROF_FLAG_DETAIL, too */
    bool synchronizes; /* nodes wait for their device before and after: registries get CPROF_FLAG_SYNC, too */
} cprof_recording_options;

typedef struct {
    cprof_ticks start;
    uint64_t span;
    uint32_t label;
    uint32_t thread;
} cprof_recording_begun_step;

typedef struct {
    pid_t tid;     /* of the kernel, which gives it to several in turn */
    uint32_t name; /* a label's node; 0: not known */
} cprof_recording_thread;

struct cprof_recording_session {
    cprof_recording_options options;
    uint32_t serial;
    uint32_t epoch; /* of the process that records */
    cprof_clock_pair begin;
    cprof_ns since_epoch; /* what CLOCK_REALTIME was ahead of CLOCK_MONOTONIC */
    uint64_t seeds[2];
    struct cprof_ring *rings; /* this and the rest: under the lock of cprof_recording */
    uint64_t unjoined;        /* spans of threads for which there was no memory */
    cprof_labels labels;
    cprof_recording_thread *threads; /* number 1 is the first */
    uint32_t thread_count;
    size_t thread_capacity;
    cprof_recording_begun_step *steps; /* the last one goes on */
    size_t step_count;
    size_t step_capacity;
};

/* Adds what a recording that has ended at `stop` knows to a table; with the spans that are still open, if nobody opens or
 * closes any meanwhile. CPROF_NO_MEMORY, CPROF_OUT_OF_RANGE: the table lacks events. */
cprof_status cprof_recording_rows(cprof_recording_session *session, cprof_table *table, cprof_ticks stop, bool with_open);

#endif
