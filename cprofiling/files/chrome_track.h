/* The tracks of a table that processes and threads of a Chrome trace become.
 *
 * In our own traces the lanes of a thread are threads of their own (see chrome_write.h), which are found by their names: that
 * of their thread and, in parentheses, their number from 2 on. They become one track again.
 */
#ifndef CPROF_CHROME_TRACK_H
#define CPROF_CHROME_TRACK_H

#include "cprofiling/files/chrome_event.h"
#include "cprofiling/files/chrome_values.h"

/* A thread as events name it: numbers, or texts that are not 0. */
typedef struct {
    int64_t pid;
    int64_t tid;
    cprof_text pid_text;
    cprof_text tid_text;
} cprof_chrome_thread;

/* All zero but for the values: there are no tracks. */
typedef struct {
    cprof_chrome_values *values; /* borrowed */
    cprof_names_table lanes;     /* cprof_chrome_thread of those that are lanes; the stage is empty */
    uint32_t *of_lanes;          /* the track of each of them */
    size_t capacity;
    cprof_chrome_thread last; /* that an event was of, */
    uint32_t last_track;      /* and its track + 1; 0: none */
} cprof_chrome_tracks;

/* Gives back what they own. */
void cprof_chrome_track_dispose(cprof_chrome_tracks *tracks);

/* The track of an event: its process and thread, a missing one being 0. As the empty text is no text to a track, an empty
 * string becomes a blank. CPROF_NO_MEMORY. */
cprof_status cprof_chrome_track_of(cprof_chrome_tracks *tracks, const cprof_chrome_event *event, uint32_t *track);

/* Tells a track, or the process of it, what a metadata event says: name, labels or sort number. *is_known: it is one of those.
 * CPROF_NO_MEMORY. */
cprof_status cprof_chrome_track_metadata(cprof_chrome_tracks *tracks, const cprof_chrome_event *event, bool *is_known);

#endif
