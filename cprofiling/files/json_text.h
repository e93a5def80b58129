/* What the texts of JSON values stand for. All of them are well-formed: what a cprof_json_reader has read. */
#ifndef CPROF_JSON_TEXT_H
#define CPROF_JSON_TEXT_H

#include "cprofiling/base/text.h"

#include <stdbool.h>

/* Whether a byte is a decimal digit. */
static inline bool cprof_json_text_is_digit(char byte)
{
    return (unsigned char)(byte - '0') < 10;
}

/* Of a number's text: the number times 10^power, rounded half to even, without any loss before; *is_exact says whether there
 * was nothing to round. False when it is not within int64. */
bool cprof_json_text_decimal(cprof_name number, int power, int64_t *value, bool *is_exact);

/* Writes what a string's text stands for to `out`, which has room for as many bytes; returns how many there are. Halves of
 * surrogate pairs are joined; a lone one becomes three bytes, as if it were a character. */
size_t cprof_json_text_unescape(cprof_name string, char *out);

/* Writes a value's text to `out`, which has room for twice as many bytes, with null for what is CPROF_JSON_UNKNOWN; returns how
 * many bytes there are. */
size_t cprof_json_text_strict(cprof_name value, char *out);

#endif
