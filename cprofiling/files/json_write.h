/* Writes the parts of a JSON text, in UTF-8, into a buffer that is emptied through a callback.
 *
 * Whoever writes puts characters at `at` himself, and calls the functions here for what needs some care. Between two calls of
 * those that say so there is room for CPROF_JSON_WRITE_ROOM bytes, which is not looked at.
 */
#ifndef CPROF_JSON_WRITE_H
#define CPROF_JSON_WRITE_H

#include "cprofiling/base/text.h"
#include "cprofiling/base/status.h"

enum {
    CPROF_JSON_WRITE_BUFFER = 256 << 10,
    CPROF_JSON_WRITE_ROOM = 2048,
    CPROF_JSON_WRITE_NUMBER = 24, /* the longest number, in characters */
};

/* Takes bytes, borrowed for the call, that do not end within a character. A status other than CPROF_OK ends the writing. */
typedef cprof_status (*cprof_write)(void *context, const char *bytes, size_t length);

typedef struct {
    char *at;
    cprof_write write;
    void *context;
    cprof_status status; /* the first that was not CPROF_OK: nothing is handed on any more */
    char buffer[CPROF_JSON_WRITE_BUFFER];
} cprof_json_writer;

/* Makes the buffer empty. There is room. */
void cprof_json_write_begin(cprof_json_writer *writer, cprof_write write, void *context);

/* Hands on the buffer's content. There is room. */
void cprof_json_write_flush(cprof_json_writer *writer);

/* Sees to it that there is room. */
static inline void cprof_json_write_make_room(cprof_json_writer *writer)
{
    if (writer->buffer + sizeof writer->buffer - writer->at < CPROF_JSON_WRITE_ROOM) {
        cprof_json_write_flush(writer);
    }
}

/* Writes a string's characters, without the quotes around them: quotes, backslashes and control characters as escapes,
 * surrogates as the escape of themselves, and each byte that is no UTF-8 as U+FFFD. All else is written as it is: not every
 * reader understands the escapes of characters beyond ASCII. There is room afterwards. */
void cprof_json_write_string(cprof_json_writer *writer, cprof_name string);

/* Writes JSON as it is, but for surrogates and bytes that are no UTF-8, as above. There is room afterwards. */
void cprof_json_write_json(cprof_json_writer *writer, cprof_name json);

/* Writes the escaped form of a string to `out`, which has room for it (six times its length always is enough) and seven bytes
 * more; returns its end. */
char *cprof_json_write_escaped(char *out, cprof_name string);

/* Writes a number to `out`; returns its end. */
char *cprof_json_write_unsigned(char *out, uint64_t number);
char *cprof_json_write_integer(char *out, int64_t number);

/* Writes the time between two moments, both in ns, as microseconds with three decimals; returns its end. It may be negative. */
char *cprof_json_write_us(char *out, int64_t from_ns, int64_t to_ns);

/* Writes 16 hexadecimal digits, in lower case; returns their end. */
char *cprof_json_write_hex(char *out, uint64_t number);

#endif
