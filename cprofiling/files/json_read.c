#include "cprofiling/files/json_read.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/files/json_text.h"

#include <string.h>

#define EIGHT(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Where a window ends there is a 0, which is no part of JSON: loops over what they expect end there by themselves. */
static inline bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline const char *after_blanks(const char *at)
{
    while (is_blank(*at)) {
        at++;
    }
    return at;
}

static inline const char *after_digits(const char *at)
{
    while (cprof_json_text_is_digit(*at)) {
        at++;
    }
    return at;
}

static inline uint64_t load_eight(const char *bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 24 | (uint64_t)b[4] << 32 |
           (uint64_t)b[5] << 40 | (uint64_t)b[6] << 48 | (uint64_t)b[7] << 56;
}

/* The first byte from `at` on that does not simply belong to a string: a quote, a backslash, or below a blank. Eight at a time:
 * a subtraction borrows from the highest bit of a byte that is too small, or 0 after the exclusive or; bytes after the first
 * such one may be reported wrongly, those before it are not. */
static inline const char *after_plain(const char *at)
{
    for (;; at += sizeof(uint64_t)) {
        uint64_t bytes = load_eight(at);
        uint64_t quotes = bytes ^ EIGHT('"');
        uint64_t slashes = bytes ^ EIGHT('\\');
        uint64_t found = ((bytes - EIGHT(' ')) & ~bytes) | ((quotes - EIGHT(1)) & ~quotes) | ((slashes - EIGHT(1)) & ~slashes);
        found &= EIGHT(0x80);
        if (found != 0) {
            return at + (__builtin_ctzll(found) >> 3);
        }
    }
}

bool cprof_json_read_stop(cprof_json_reader *reader, const char *reason)
{
    reader->fault = reader->at == reader->end ? NULL : reason;
    return false;
}

static bool stop_at(cprof_json_reader *reader, const char *at, const char *reason)
{
    reader->at = at;
    return cprof_json_read_stop(reader, reason);
}

/* ---- the window */

static bool give_up(cprof_json_reader *reader, cprof_status status)
{
    reader->status = status;
    return false;
}

void cprof_json_read_refuse(cprof_json_reader *reader, const char *place, const char *reason)
{
    reader->reason = reason;
    reader->wrong_at = reader->mark_offset + (uint64_t)(place - reader->mark);
    reader->status = CPROF_BAD_FORMAT;
}

/* Makes the window begin at the mark, and large enough that at least half of it is to be filled, within the limit. */
static cprof_status make_room(cprof_json_reader *reader)
{
    size_t kept = (size_t)(reader->end - reader->mark);
    size_t size = reader->size;
    while (kept > size / 2 && size < reader->most) {
        size = size < reader->most / 2 ? size * 2 : reader->most;
    }
    memmove(reader->window, reader->mark, kept);
    if (size != reader->size) {
        char *larger = cprof_alloc_resize(reader->window, size + CPROF_JSON_PADDING);
        if (larger == NULL) {
            reader->mark = reader->window;
            reader->end = reader->window + kept;
            return CPROF_NO_MEMORY;
        }
        reader->window = larger;
        reader->size = size;
    }
    reader->mark = reader->window;
    reader->end = reader->window + kept;
    return CPROF_OK;
}

/* Reads until the window is full or the stream has ended. */
static cprof_status fill(cprof_json_reader *reader)
{
    size_t length = (size_t)(reader->end - reader->window);
    cprof_status status = CPROF_OK;
    while (status == CPROF_OK && length < reader->size && !reader->has_ended) {
        size_t more = 0;
        status = reader->read(reader->context, reader->window + length, reader->size - length, &more);
        length += more;
        reader->has_ended = status == CPROF_OK && more == 0;
    }
    reader->end = reader->window + length;
    memset(reader->window + length, 0, CPROF_JSON_PADDING);
    return status;
}

cprof_status cprof_json_read_open(cprof_json_reader *reader, size_t size, size_t most, cprof_read read, void *context)
{
    *reader = (cprof_json_reader){.size = size, .most = most, .read = read, .context = context};
    reader->window = cprof_alloc_resize(NULL, size + CPROF_JSON_PADDING);
    if (reader->window == NULL) {
        return CPROF_NO_MEMORY;
    }
    reader->at = reader->mark = reader->end = reader->window;
    cprof_status status = fill(reader);
    if (status != CPROF_OK) {
        cprof_json_read_close(reader);
        return status;
    }
    if (reader->end - reader->at >= 3 && memcmp(reader->at, "\xef\xbb\xbf", 3) == 0) {
        reader->at += 3;
    }
    cprof_json_read_mark(reader);
    return CPROF_OK;
}

void cprof_json_read_text(cprof_json_reader *reader, cprof_name text)
{
    *reader = (cprof_json_reader){.has_ended = true};
    reader->at = reader->mark = text.bytes;
    reader->end = text.bytes + text.length;
}

void cprof_json_read_close(cprof_json_reader *reader)
{
    cprof_alloc_release(reader->window);
    reader->window = NULL;
}

void cprof_json_read_mark(cprof_json_reader *reader)
{
    reader->at = after_blanks(reader->at);
    reader->mark_offset += (uint64_t)(reader->at - reader->mark);
    reader->mark = reader->at;
    reader->mark_depth = reader->depth;
    reader->mark_is_fresh = reader->is_fresh;
}

bool cprof_json_read_again(cprof_json_reader *reader)
{
    if (reader->status != CPROF_OK) {
        return false;
    }
    const char *reason = reader->fault;
    if (reason == NULL && reader->has_ended) {
        reason = "the file ends in the middle";
    } else if (reason == NULL && reader->mark == reader->window && reader->end == reader->window + reader->most) {
        reader->at = reader->mark;
        reason = "a value that is too long";
    }
    if (reason != NULL) {
        cprof_json_read_refuse(reader, reader->at, reason);
        return false;
    }
    cprof_status status = make_room(reader);
    if (status == CPROF_OK) {
        status = fill(reader);
    }
    reader->at = reader->mark;
    reader->depth = reader->mark_depth;
    reader->is_fresh = reader->mark_is_fresh;
    cprof_json_read_mark(reader);
    return status == CPROF_OK || give_up(reader, status);
}

bool cprof_json_read_is_over(cprof_json_reader *reader)
{
    cprof_json_read_mark(reader);
    while (reader->at == reader->end && !reader->has_ended && reader->status == CPROF_OK) {
        reader->fault = NULL;
        (void)cprof_json_read_again(reader);
    }
    return reader->at == reader->end || reader->status != CPROF_OK;
}

/* ---- values without others inside */

/* At a backslash. */
static bool take_escape(cprof_json_reader *reader)
{
    const char *at = reader->at + 1;
    if (*at != 'u') {
        if (*at == '\0' || strchr("\"\\/bfnrt", *at) == NULL) {
            return stop_at(reader, at, "an unknown escape in a string");
        }
        reader->at = at + 1;
        return true;
    }
    at++;
    for (int i = 0; i < 4; i++, at++) {
        char letter = (char)(*at | 0x20);
        if (!cprof_json_text_is_digit(*at) && (letter < 'a' || letter > 'f')) {
            return stop_at(reader, at, "an escape \\u without four hexadecimal digits");
        }
    }
    reader->at = at;
    return true;
}

/* At a quote. */
static bool take_string(cprof_json_reader *reader, cprof_json_value *value)
{
    const char *start = reader->at + 1;
    bool is_plain = true;
    reader->at = after_plain(start);
    while (*reader->at == '\\') {
        is_plain = false;
        if (!take_escape(reader)) {
            return false;
        }
        reader->at = after_plain(reader->at);
    }
    if (*reader->at != '"') {
        return cprof_json_read_stop(reader, "a control character in a string");
    }
    *value = (cprof_json_value){{start, (size_t)(reader->at - start)}, CPROF_JSON_STRING, is_plain, true};
    reader->at++;
    return true;
}

/* At a digit, or at a minus and a digit. A text ends with a list or an object: what ends a number is in the window. */
static bool take_number(cprof_json_reader *reader, cprof_json_value *value)
{
    const char *start = reader->at;
    const char *at = start + (*start == '-');
    bool begins_with_zero = *at == '0';
    const char *digits = at;
    at = after_digits(at);
    if (begins_with_zero && at > digits + 1) {
        return stop_at(reader, digits + 1, "a number that begins with 0");
    }
    if (*at == '.') {
        at = after_digits(digits = at + 1);
    }
    if (at > digits && (*at | 0x20) == 'e') {
        at++;
        at = after_digits(digits = at + (*at == '+' || *at == '-'));
    }
    if (at == digits || at == reader->end) {
        return stop_at(reader, at, "a number without a digit");
    }
    *value = (cprof_json_value){{start, (size_t)(at - start)}, CPROF_JSON_NUMBER, true, true};
    reader->at = at;
    return true;
}

typedef struct {
    const char *text;
    cprof_json_kind kind;
} word;

static const word words[] = {
    {"true", CPROF_JSON_WORD},    {"false", CPROF_JSON_WORD},        {"null", CPROF_JSON_WORD},    {"NaN", CPROF_JSON_UNKNOWN},
    {"nan", CPROF_JSON_UNKNOWN},  {"Infinity", CPROF_JSON_UNKNOWN},  {"inf", CPROF_JSON_UNKNOWN},  {"-NaN", CPROF_JSON_UNKNOWN},
    {"-nan", CPROF_JSON_UNKNOWN}, {"-Infinity", CPROF_JSON_UNKNOWN}, {"-inf", CPROF_JSON_UNKNOWN},
};
enum { WORDS = sizeof words / sizeof words[0] };

/* How much of the word is at `at`. */
static size_t common_length(const char *at, const char *text)
{
    size_t length = 0;
    while (text[length] != '\0' && at[length] == text[length]) {
        length++;
    }
    return length;
}

static bool take_word(cprof_json_reader *reader, cprof_json_value *value)
{
    size_t longest = 0;
    for (size_t i = 0; i < WORDS; i++) {
        size_t length = common_length(reader->at, words[i].text);
        if (words[i].text[length] == '\0') {
            bool is_strict = words[i].kind == CPROF_JSON_WORD;
            *value = (cprof_json_value){{reader->at, length}, words[i].kind, true, is_strict};
            reader->unknown += is_strict ? 0 : 1;
            reader->at += length;
            return true;
        }
        longest = length > longest ? length : longest;
    }
    return stop_at(reader, reader->at + longest, "no value where one is expected");
}

static bool take_scalar(cprof_json_reader *reader, cprof_json_value *value)
{
    const char *at = reader->at;
    if (*at == '"') {
        return take_string(reader, value);
    }
    return cprof_json_text_is_digit(*at) || (*at == '-' && cprof_json_text_is_digit(at[1])) ? take_number(reader, value)
                                                                                            : take_word(reader, value);
}

/* ---- lists and objects */

static inline bool is_opening(char c)
{
    return c == '{' || c == '[';
}

bool cprof_json_read_enter(cprof_json_reader *reader)
{
    if (!is_opening(*reader->at)) {
        return cprof_json_read_stop(reader, "no list or object where one is expected");
    }
    if (reader->depth == CPROF_JSON_MAX_DEPTH) {
        return cprof_json_read_stop(reader, "too many lists and objects within each other");
    }
    reader->closers[reader->depth++] = *reader->at == '{' ? '}' : ']';
    reader->at++;
    reader->is_fresh = true;
    return true;
}

cprof_json_next cprof_json_read_item(cprof_json_reader *reader)
{
    reader->at = after_blanks(reader->at);
    if (*reader->at == reader->closers[reader->depth - 1]) {
        reader->at++;
        reader->depth--;
        reader->is_fresh = false;
        return CPROF_JSON_END;
    }
    if (!reader->is_fresh) {
        if (*reader->at != ',') {
            (void)cprof_json_read_stop(reader, "neither a comma nor the end of a list or object");
            return CPROF_JSON_STOP;
        }
        reader->at = after_blanks(reader->at + 1);
    }
    reader->is_fresh = false;
    return CPROF_JSON_ITEM;
}

cprof_json_next cprof_json_read_member(cprof_json_reader *reader, cprof_json_value *key)
{
    cprof_json_next next = cprof_json_read_item(reader);
    if (next != CPROF_JSON_ITEM) {
        return next;
    }
    if (*reader->at != '"') {
        (void)cprof_json_read_stop(reader, "no name of a member of an object");
        return CPROF_JSON_STOP;
    }
    if (!take_string(reader, key)) {
        return CPROF_JSON_STOP;
    }
    reader->at = after_blanks(reader->at);
    if (*reader->at != ':') {
        (void)cprof_json_read_stop(reader, "no colon after the name of a member");
        return CPROF_JSON_STOP;
    }
    reader->at = after_blanks(reader->at + 1);
    return CPROF_JSON_ITEM;
}

/* Goes on in the innermost open list or object: over one value, or out of it. */
static bool take_one(cprof_json_reader *reader)
{
    cprof_json_value ignored;
    bool in_object = reader->closers[reader->depth - 1] == '}';
    cprof_json_next next = in_object ? cprof_json_read_member(reader, &ignored) : cprof_json_read_item(reader);
    if (next != CPROF_JSON_ITEM) {
        return next == CPROF_JSON_END;
    }
    return is_opening(*reader->at) ? cprof_json_read_enter(reader) : take_scalar(reader, &ignored);
}

bool cprof_json_read_value(cprof_json_reader *reader, cprof_json_value *value)
{
    if (!is_opening(*reader->at)) {
        return take_scalar(reader, value);
    }
    const char *start = reader->at;
    unsigned depth = reader->depth;
    uint64_t unknown = reader->unknown;
    bool goes_on = cprof_json_read_enter(reader);
    while (goes_on && reader->depth > depth) {
        goes_on = take_one(reader);
    }
    if (!goes_on) {
        return false;
    }
    cprof_json_kind kind = *start == '{' ? CPROF_JSON_OBJECT : CPROF_JSON_LIST;
    *value = (cprof_json_value){{start, (size_t)(reader->at - start)}, kind, true, reader->unknown == unknown};
    return true;
}
