/* Texts that are read and written as files are: in pieces, and with failures. */
#ifndef TESTS_CORE_STREAM_H
#define TESTS_CORE_STREAM_H

#include "cprofiling/base/names.h"
#include "cprofiling/base/status.h"
#include "tests/core/check.h"

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

/* A text that is written, and grows; a 0 is behind it. */
typedef struct {
    char *bytes; /* to be freed */
    size_t length;
    size_t capacity;
    size_t pieces;
    size_t fails_at; /* the piece that is refused, from 1 on; 0: none */
} sink;

/* For cprof_chrome_write, with a sink as its context. */
static inline cprof_status sink_write(void *context, const char *bytes, size_t length)
{
    sink *to = context;
    CHECK(length > 0);
    if (++to->pieces == to->fails_at) {
        return CPROF_BUSY;
    }
    CHECK(to->fails_at == 0 || to->pieces < to->fails_at);
    if (to->length + length + 1 > to->capacity) {
        to->capacity = 2 * (to->length + length + 1);
        char *grown = realloc(to->bytes, to->capacity);
        CHECK(grown != NULL);
        to->bytes = grown;
    }
    memcpy(to->bytes + to->length, bytes, length);
    to->length += length;
    to->bytes[to->length] = '\0';
    return CPROF_OK;
}

#endif
