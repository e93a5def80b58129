/* A text that is read as files are: in pieces, and with failures. */
#ifndef TESTS_CORE_STREAM_H
#define TESTS_CORE_STREAM_H

#include "cprofiling/base/names.h"
#include "cprofiling/base/status.h"

#include <string.h>

typedef struct {
    cprof_name text;
    size_t at;
    size_t piece;   /* the most bytes at a time */
    int calls_left; /* before the one that fails, with CPROF_BUSY */
} stream;

/* For cprof_json_read_open and cprof_chrome_read, with a stream as its context. */
static inline cprof_status stream_read(void *context, char *buffer, size_t size, size_t *length)
{
    stream *s = context;
    if (s->calls_left-- == 0) {
        return CPROF_BUSY;
    }
    size_t left = s->text.length - s->at;
    *length = left < size ? left : size;
    *length = *length < s->piece ? *length : s->piece;
    memcpy(buffer, s->text.bytes + s->at, *length);
    s->at += *length;
    return CPROF_OK;
}

#endif
