/* Texts: bytes and their length; and bytes as UTF-8, where that has to be known, as others read them.
 *
 * A surrogate, which is no character, has three bytes as if it were one.
 */
#ifndef CPROF_TEXT_H
#define CPROF_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A borrowed run of bytes; the pointer is not NULL, even where the length is 0. */
typedef struct {
    const char *bytes;
    size_t length;
} cprof_name;

/* The name that a text is. */
static inline cprof_name cprof_name_of(const char *text)
{
    return (cprof_name){text, strlen(text)};
}

/* Whether a name is this text. */
static inline bool cprof_name_is(cprof_name name, const char *text)
{
    return name.length == strlen(text) && memcmp(name.bytes, text, name.length) == 0;
}

/* Both names of a key. */
typedef struct {
    cprof_name stage;
    cprof_name node;
} cprof_names;

/* The number of bytes of the character, or surrogate, with which `left` bytes (at least one) begin, and its code; 0 when they
 * begin with none. */
size_t cprof_text_decode(const char *bytes, size_t left, uint32_t *code);

/* Whether a code is that of a surrogate. */
static inline bool cprof_text_is_surrogate(uint32_t code)
{
    return code >= 0xd800 && code <= 0xdfff;
}

/* Whether bytes are UTF-8, without surrogates. */
bool cprof_text_is_valid(cprof_name bytes);

/* Writes bytes as UTF-8, U+FFFD for each surrogate and each byte that is no part of a character, to `out`, which has room for
 * three times as many; NULL: nowhere. Returns how many they are. */
size_t cprof_text_repair(cprof_name bytes, char *out);

enum { CPROF_NAME_LIMIT = 4096 }; /* bytes of a stage, node name, signature or note that is stored */

/* Whether a name may be stored: at most CPROF_NAME_LIMIT bytes of UTF-8 (surrogates are) without NUL. */
bool cprof_name_is_legal(cprof_name name);

/* As memcmp(); a name that begins another is less. Of both names of a key: by stage, then by node. */
int cprof_name_compare(cprof_name a, cprof_name b);
int cprof_names_compare(cprof_names a, cprof_names b);

#endif
