/* Reads JSON (RFC 8259) from a stream, piece by piece through a window, without building a tree. Time is linear.
 *
 * A step is the part read between two calls of cprof_json_read_mark(). It is read from the window; a function that cannot go on
 * there returns false, or CPROF_JSON_STOP. Then cprof_json_read_again() gets more of the stream and goes back to the mark, so
 * that the whole step is done again, or ends the reading:
 *
 *     cprof_json_read_mark(reader);
 *     while (!step(reader)) {
 *         if (!cprof_json_read_again(reader)) {
 *             return reader->status;
 *         }
 *     }
 *
 * The bytes of strings are not looked into: UTF-8 is what the stream says it is. Beyond the RFC, a byte order mark is skipped,
 * and what C, JavaScript and Python print for values that are not finite is CPROF_JSON_UNKNOWN. One thread at a time uses a
 * reader.
 */
#ifndef CPROF_JSON_READ_H
#define CPROF_JSON_READ_H

#include "cprofiling/base/text.h"
#include "cprofiling/base/status.h"

#include <stdbool.h>

enum {
    CPROF_JSON_MAX_DEPTH = 256, /* of lists and objects within each other */
    CPROF_JSON_PADDING = 8,     /* zero bytes after each text that is read */
};

/* Reads up to `size` bytes into `buffer`; *length receives how many, 0 at the end of the stream. A status other than CPROF_OK
 * ends the reading. */
typedef cprof_status (*cprof_read)(void *context, char *buffer, size_t size, size_t *length);

typedef enum {
    CPROF_JSON_OBJECT,
    CPROF_JSON_LIST,
    CPROF_JSON_STRING,
    CPROF_JSON_NUMBER,
    CPROF_JSON_WORD,    /* true, false, null */
    CPROF_JSON_UNKNOWN, /* NaN, nan, Infinity, inf, or these after a minus */
} cprof_json_kind;

/* A value in the window: borrowed until the next mark, or the next call of cprof_json_read_again. */
typedef struct {
    cprof_name text; /* as it is in the stream; a string without its quotes */
    cprof_json_kind kind;
    bool is_plain;  /* of a string: it has no escapes */
    bool is_strict; /* it is JSON by the RFC: nothing in it is CPROF_JSON_UNKNOWN */
} cprof_json_value;

/* What comes next in a list or an object. */
typedef enum {
    CPROF_JSON_STOP, /* no going on, for now */
    CPROF_JSON_ITEM, /* a value */
    CPROF_JSON_END,  /* nothing; the list or object has been left */
} cprof_json_next;

typedef struct {
    cprof_status status; /* CPROF_OK until the reading has been ended */
    const char *reason;  /* with CPROF_BAD_FORMAT: the error, a static text */
    uint64_t wrong_at;   /* with CPROF_BAD_FORMAT: where, as an offset in the stream */
    uint64_t unknown;    /* values of that kind so far */
    const char *at;      /* the next byte to read; at the window's end, a 0 */
    /* Of the functions here only: */
    const char *end; /* of the window */
    char *window;
    size_t size;          /* of the window, without padding */
    size_t most;          /* bytes of a step */
    const char *fault;    /* why reading cannot go on; NULL: the window ended */
    const char *mark;     /* where the step began, */
    uint64_t mark_offset; /* in the stream */
    unsigned mark_depth;  /* and how */
    bool mark_is_fresh;
    bool is_fresh;  /* nothing was read yet of the innermost list or object */
    bool has_ended; /* the stream */
    unsigned depth;
    cprof_read read;
    void *context;
    char closers[CPROF_JSON_MAX_DEPTH]; /* what ends each open list or object */
} cprof_json_reader;

/* Begins to read a stream, with a window of `size` bytes (at least 3) that grows for the sake of steps of up to `most` bytes
 * (at least `size`). CPROF_NO_MEMORY, or what `read` returned: then there is nothing to close. */
cprof_status cprof_json_read_open(cprof_json_reader *reader, size_t size, size_t most, cprof_read read, void *context);

/* Begins to read a text that lies in memory, followed by CPROF_JSON_PADDING zero bytes. It is borrowed, and its reader not
 * closed. */
void cprof_json_read_text(cprof_json_reader *reader, cprof_name text);

/* Gives the window back. */
void cprof_json_read_close(cprof_json_reader *reader);

/* Begins a step, after the blanks that come next. */
void cprof_json_read_mark(cprof_json_reader *reader);

/* After a step that could not go on: true when it is to be done again, with more of the stream. False when the reading has
 * ended: reader->status says why. CPROF_BAD_FORMAT: a fault, the end of the stream, or a step that is too long;
 * CPROF_NO_MEMORY; what `read` returned. */
bool cprof_json_read_again(cprof_json_reader *reader);

/* Whether nothing but blanks comes until the end of the stream, or the reading has ended for another reason: see the status.
 * Begins a step. */
bool cprof_json_read_is_over(cprof_json_reader *reader);

/* Stops here: at the window's end, or else at an error with this reason. Returns false. */
bool cprof_json_read_stop(cprof_json_reader *reader, const char *reason);

/* Ends the reading with CPROF_BAD_FORMAT: an error at `place` in the window. */
void cprof_json_read_refuse(cprof_json_reader *reader, const char *place, const char *reason);

/* Enters the list or object that comes next. */
bool cprof_json_read_enter(cprof_json_reader *reader);

/* Whether another value comes in the list that was entered last; it is then next to be read. */
cprof_json_next cprof_json_read_item(cprof_json_reader *reader);

/* Whether another member comes in the object that was entered last: *key is its name, and its value is next to be read. */
cprof_json_next cprof_json_read_member(cprof_json_reader *reader, cprof_json_value *key);

/* Reads the value that comes next, to its end. */
bool cprof_json_read_value(cprof_json_reader *reader, cprof_json_value *value);

/* What the texts of values stand for, that a reader has read: all of them are well-formed. */

/* Whether a byte is a decimal digit. */
static inline bool cprof_json_read_is_digit(char byte)
{
    return (unsigned char)(byte - '0') < 10;
}

/* Of a number's text: the number times 10^power, rounded half to even, without any loss before; *is_exact says whether there
 * was nothing to round. False when it is not within int64. */
bool cprof_json_read_decimal(cprof_name number, int power, int64_t *value, bool *is_exact);

/* Writes what a string's text stands for to `out`, which has room for as many bytes; returns how many there are. Halves of
 * surrogate pairs are joined; a lone one becomes three bytes, as if it were a character. */
size_t cprof_json_read_unescape(cprof_name string, char *out);

/* Writes a value's text to `out`, which has room for twice as many bytes, with null for each CPROF_JSON_UNKNOWN; returns how
 * many bytes there are. */
size_t cprof_json_read_strict(cprof_name value, char *out);

#endif
