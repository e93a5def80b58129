/* What a recording is made of, for recording.c, which also frees it; and how it becomes rows of a table. */
#ifndef CPROF_RECORDING_ROWS_H
#define CPROF_RECORDING_ROWS_H

#include "cprofiling/base/alloc.h"
#include "cprofiling/trace/recording.h"
#include "cprofiling/trace/labels.h"

#include <sys/types.h>

enum { CPROF_RECORDING_NUMBER_SHIFT = 40 }; /* of a thread's number in the numbers of its spans */

typedef struct {
    cprof_recording_event *events;
    struct cprof_recording_detail *details; /* NULL when the recording has none */
    size_t size;                            /* of both, in events */
} cprof_recording_chunk;

/* Belongs to a thread's record, and so to one thread after another. */
struct cprof_recording_ring {
    cprof_thread *thread; /* compared, and looked at for its mark */
    uint32_t serial;      /* of the recording, as are: */
    bool drop_newest;
    bool has_details;
    cprof_recording_event *at;
    cprof_recording_event *end; /* of the chunk */
    uint64_t written;           /* into a place of the ring */
    uint64_t refused;           /* for want of room or memory */
    cprof_recording_chunk *chunks;
    size_t chunk_count;
    size_t chunk_capacity;
    size_t current; /* chunk */
    uint64_t room;  /* that further chunks may have, in events */
    struct cprof_recording_ring *next;
};

typedef struct {
    cprof_ticks start;
    uint64_t span;
    uint32_t label;
    uint32_t thread;
} cprof_recording_begun_step;

struct cprof_recording_session {
    cprof_recording_options options;
    uint32_t serial;
    uint32_t epoch; /* of the process that records */
    cprof_clock_pair begin;
    cprof_ns since_epoch; /* what CLOCK_REALTIME was ahead of CLOCK_MONOTONIC */
    uint64_t seeds[2];
    struct cprof_recording_ring *rings; /* this and the rest: under the lock of cprof_recording */
    uint64_t unjoined;                  /* spans of threads for which there was no memory */
    cprof_labels labels;
    pid_t *threads; /* number 1 is the first */
    uint32_t thread_count;
    uint32_t thread_capacity;
    cprof_recording_begun_step *steps; /* the last one goes on */
    size_t step_count;
    size_t step_capacity;
};

/* The bytes of whole pages in which so many fit. */
static inline size_t cprof_recording_page_bytes(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

/* Gives the pages of a chunk back; of one that has none, nothing. */
static inline void cprof_recording_free_chunk(const cprof_recording_chunk *old)
{
    cprof_alloc_unmap_pages(old->events, cprof_recording_page_bytes(old->size * sizeof *old->events));
    cprof_alloc_unmap_pages(old->details, cprof_recording_page_bytes(old->size * sizeof *old->details));
}

/* Adds what a recording that has ended at `stop` knows to a table; with the spans that are still open, if nobody opens or
 * closes any meanwhile. CPROF_NO_MEMORY, CPROF_OUT_OF_RANGE: the table lacks events. */
cprof_status cprof_recording_rows(cprof_recording_session *session, cprof_table *table, cprof_ticks stop, bool with_open);

#endif
