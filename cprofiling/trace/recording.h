/* The recording that runs, at most one in a process: each finished span as an event of 64 bytes, in a ring of its thread.
 *
 * A span takes part if it is opened while the recording runs and closed before its end; closed during a pause it is cut at the
 * pause's beginning. Events take no lock: a thread marks itself as writing, and looks whether the recording is still the
 * span's; whoever ends the recording makes all threads see that (membarrier) and waits for marked ones. A full ring drops its
 * oldest event or the new one, and counts it.
 */
#ifndef CPROF_RECORDING_H
#define CPROF_RECORDING_H

#include "cprofiling/trace/recording_rows.h"

enum {
    CPROF_RECORDING_LEAST_CAPACITY = 1, /* events of each thread */
    CPROF_RECORDING_MOST_CAPACITY = 1000 * 1000 * 1000,
    CPROF_RECORDING_MOST_NAMED = 1 << 16, /* threads, as their names take the room of labels */
    CPROF_RECORDING_PATIENCE_MS = 1000,   /* that the end of a recording waits for threads that have stopped while they write */
};

/* Worked by recording.c. Serials are unique in the process, and not 0. */
typedef struct {
    _Atomic uint32_t open_serial; /* of the running recording; 0: none, or paused */
    _Atomic uint32_t serial;      /* of the recording, running or paused; 0: none */
    _Atomic uint32_t last_serial;
    _Atomic bool fenced;        /* no membarrier: writers fence by themselves */
    _Atomic cprof_ticks paused; /* when it was paused last; meaningful while it is */
    cprof_lock lock;            /* guards the lists of: */
    cprof_recording_session *session;
    _Atomic(cprof_recording_session *) late; /* for the binding, as the next: one that only counts what comes at the very end */
    atomic_flag tells_late;
    struct cprof_ring *left_rings; /* of recordings that have ended, to threads that have stopped while they wrote */
} cprof_recording_state;

extern cprof_recording_state cprof_recording;

/* Begins a recording. CPROF_IN_USE: there is one already; CPROF_OUT_OF_RANGE: the capacity; CPROF_NO_MEMORY. */
cprof_status cprof_recording_start(const cprof_recording_options *options, cprof_recording_session **session);

/* What the recording takes the time of day to be ahead of CLOCK_MONOTONIC: its events' times less this are on that clock, which
 * all processes of a machine have in common. */
cprof_ns cprof_recording_since_epoch(const cprof_recording_session *session);

/* Stops to record, and goes on. Idempotent. Of spans that other threads close at the moment of a pause the inner one may end a
 * little later than the outer one, which is cut. */
void cprof_recording_pause(cprof_recording_session *session);
void cprof_recording_resume(cprof_recording_session *session);

/* Ends the present step, if there is one, and begins the next, of this name (its stage is empty). In a forked child it does
 * nothing. CPROF_NO_MEMORY: the step goes on. */
cprof_status cprof_recording_step(cprof_recording_session *session, cprof_thread *thread, cprof_names names);

/* Ends the recording, adds its events to `table` (NULL: nowhere) and frees it; `with_open`: also spans that are open, which no
 * thread may open or close meanwhile. In a forked child there is nothing to add. CPROF_NO_MEMORY, CPROF_OUT_OF_RANGE: the table
 * lacks events; the recording is freed all the same. */
cprof_status cprof_recording_finish(cprof_recording_session *session, cprof_table *table, bool with_open);

/* Names the calling thread in the recording that runs, if one does: copied, but for threads past CPROF_RECORDING_MOST_NAMED and
 * without memory. */
void cprof_recording_name_thread(cprof_thread *thread, cprof_name name);

/* The number of a label, found or made; 0 without memory, or when the recording of this serial has ended (there is none of
 * serial 0). Any thread. */
uint32_t cprof_recording_label(uint32_t serial, cprof_names names);

/* The number of a text of a detail likewise; 0, too, past the limits, as nothing else may stand for it. */
uint32_t cprof_recording_text(uint32_t serial, cprof_name text);

/* Gives the span of a record(), just opened, a label of the recording of this serial. If that has ended, the span counts as
 * dropped. */
static inline void cprof_recording_set_label(cprof_span *span, uint32_t serial, uint32_t label)
{
    span->label = span->trace_serial == serial ? label : 0;
}

/* Gives a span, just opened, a copy of a detail, if it takes part in a recording and there is memory. Texts of a recording that
 * has ended meanwhile are left out. */
void cprof_recording_begin_detail(cprof_span *span, const struct cprof_recording_detail *detail);

/* Replaces the memory at the span's start by what changed up to `now`. Does nothing for a span without a detail. */
void cprof_recording_end_detail(cprof_span *span, const cprof_memory *now);

/* Makes a span, just opened, one inside which nothing is recorded; itself neither. */
void cprof_recording_mute(cprof_span *span);

/* Whether a span opened now, inside `innermost` (or NULL), would not be recorded as something around it is muted. */
bool cprof_recording_is_muted(const cprof_span *innermost);

/* Notes that a call of a node begins, which is no span, as nobody will tell if an exception leaves it. `key` tells it from
 * other calls of its thread. The oldest of more than CPROF_THREAD_NOTES is forgotten. */
void cprof_recording_note(cprof_thread *thread, int64_t key);

/* Writes the event of the newest call that was noted under `key`, which ends now; nothing without one. `innermost` (or
 * NULL) is the innermost open span. Spans that were closed in this thread since the call began become its children. */
void cprof_recording_end_noted(cprof_thread *thread, int64_t key, cprof_accum *accum, const cprof_span *innermost);

/* For call.c. Gives a span that is being opened its ids: `parent` is the innermost open span. */
void cprof_recording_open(cprof_thread *thread, cprof_span *span, cprof_span *parent);

/* For call.c. Writes the event of a span that has an id, if its recording still goes on, and takes the id away. */
void cprof_recording_close(cprof_thread *thread, cprof_span *span, cprof_ticks stop, cprof_ticks suspended,
                           cprof_outcome outcome, bool suspendable);

/* For call.c. Takes the id away from a span that is given up; it has no event. */
void cprof_recording_discard(cprof_span *span);

/* In a forked child: the recording is the parent's. */
void cprof_recording_after_fork_in_child(void);

#endif
