/* An event of a Chrome trace as it stands in the file: the values of the keys that are known, in all their spellings.
 *
 * Keys beside "args": "Trace Event Format" (Google, 2016). Keys inside: those of Kineto from torch 1.8 on, and our own.
 */
#ifndef CPROF_CHROME_EVENT_H
#define CPROF_CHROME_EVENT_H

#include "cprofiling/files/json_read.h"

typedef enum {
    CPROF_CHROME_NAME,
    CPROF_CHROME_CAT,
    CPROF_CHROME_PHASE,
    CPROF_CHROME_TS,
    CPROF_CHROME_DUR,
    CPROF_CHROME_PID,
    CPROF_CHROME_TID,
    CPROF_CHROME_ID,
    CPROF_CHROME_BINDING, /* "bp" */
    CPROF_CHROME_ARGS,    /* the object as a whole */
    /* inside the args: */
    CPROF_CHROME_EXTERNAL_ID,
    CPROF_CHROME_CORRELATION,
    CPROF_CHROME_DEVICE,
    CPROF_CHROME_STREAM,
    CPROF_CHROME_ELEMENT, /* the processing element of an NPU: its device, in the words of Furiosa's SDK */
    CPROF_CHROME_ON_NPU,  /* what else only work of an NPU has there */
    CPROF_CHROME_BYTES,
    CPROF_CHROME_SHAPES,
    CPROF_CHROME_TYPES,
    CPROF_CHROME_STACK,
    CPROF_CHROME_META_NAME, /* of metadata, as the next two */
    CPROF_CHROME_LABELS,
    CPROF_CHROME_SORT_INDEX,
    CPROF_CHROME_KIND, /* our own words, as all that follow: see chrome_write.h */
    CPROF_CHROME_SOURCE,
    CPROF_CHROME_STAGE,
    CPROF_CHROME_TRACE_ID,
    CPROF_CHROME_SPAN_ID,
    CPROF_CHROME_PARENT_SPAN_ID,
    CPROF_CHROME_OUTCOME,
    CPROF_CHROME_UNFINISHED,
    CPROF_CHROME_CUT,
    CPROF_CHROME_SUSPENDABLE,
    CPROF_CHROME_SUSPENDED,
    CPROF_CHROME_MEMORY_CHANGE,
    CPROF_CHROME_MEMORY_PEAK,
    CPROF_CHROME_DEVICE_MEMORY_CHANGE,
    CPROF_CHROME_DEVICE_MEMORY_PEAK,
    CPROF_CHROME_OTHER, /* the last of the args that are none of those above */
    CPROF_CHROME_FIELDS
} cprof_chrome_field;

typedef struct {
    uint64_t present; /* bit f: values[f] is known */
    cprof_json_value values[CPROF_CHROME_FIELDS];
} cprof_chrome_event;

/* Reads the event that comes next. Of a key that is there twice the last value counts; args that are no object are none.
 * False: reading cannot go on, see json_read.h. */
bool cprof_chrome_event_read(cprof_json_reader *reader, cprof_chrome_event *event);

/* Reads args that come next by themselves, in the place of the event's. */
bool cprof_chrome_event_read_args(cprof_json_reader *reader, cprof_chrome_event *event);

/* The value of a field; NULL: none. */
static inline const cprof_json_value *cprof_chrome_event_value(const cprof_chrome_event *event, cprof_chrome_field field)
{
    return (event->present >> field & 1) != 0 ? &event->values[field] : NULL;
}

#endif
