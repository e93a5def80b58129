#include "cprofiling/files/json_read.h"

#include "cprofiling/base/alloc.h"

#include <string.h>

#define EIGHT(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Where a window ends there is a 0, which is no part of JSON: loops over what they expect end there by themselves. */
static inline const char *after_blanks(const char *at)
{
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') {
        at++;
    }
    return at;
}

static inline const char *after_digits(const char *at)
{
    while (cprof_json_read_is_digit(*at)) {
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
    cprof_status status = CPROF_OK;
    while (kept > size / 2 && size < reader->most) {
        size = size < reader->most / 2 ? size * 2 : reader->most;
    }
    memmove(reader->window, reader->mark, kept);
    if (size != reader->size) {
        char *larger = cprof_alloc_resize(reader->window, size + CPROF_JSON_PADDING);
        reader->window = larger != NULL ? larger : reader->window;
        reader->size = larger != NULL ? size : reader->size;
        status = larger != NULL ? CPROF_OK : CPROF_NO_MEMORY;
    }
    reader->mark = reader->window;
    reader->end = reader->window + kept;
    return status;
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
    reader->status = status;
    return status == CPROF_OK;
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
        if (!cprof_json_read_is_digit(*at) && (letter < 'a' || letter > 'f')) {
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

static const char *const words[] = {"true", "false", "null", "NaN",       "nan", "Infinity",
                                    "inf",  "-NaN",  "-nan", "-Infinity", "-inf"};
enum { WORDS = sizeof words / sizeof words[0], STRICT_WORDS = 3 };

static bool take_word(cprof_json_reader *reader, cprof_json_value *value)
{
    size_t longest = 0;
    for (size_t i = 0; i < WORDS; i++) {
        size_t length = 0;
        while (words[i][length] != '\0' && reader->at[length] == words[i][length]) {
            length++;
        }
        if (words[i][length] == '\0') {
            bool is_strict = i < STRICT_WORDS;
            cprof_json_kind kind = is_strict ? CPROF_JSON_WORD : CPROF_JSON_UNKNOWN;
            *value = (cprof_json_value){{reader->at, length}, kind, true, is_strict};
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
    return cprof_json_read_is_digit(*at) || (*at == '-' && cprof_json_read_is_digit(at[1])) ? take_number(reader, value)
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

bool cprof_json_read_value(cprof_json_reader *reader, cprof_json_value *value)
{
    if (!is_opening(*reader->at)) {
        return take_scalar(reader, value);
    }
    const char *start = reader->at;
    unsigned depth = reader->depth;
    uint64_t unknown = reader->unknown;
    bool goes_on = cprof_json_read_enter(reader);
    while (goes_on && reader->depth > depth) { /* over a value of the innermost list or object, or out of it */
        cprof_json_value ignored;
        bool in_object = reader->closers[reader->depth - 1] == '}';
        cprof_json_next next = in_object ? cprof_json_read_member(reader, &ignored) : cprof_json_read_item(reader);
        if (next == CPROF_JSON_ITEM) {
            goes_on = is_opening(*reader->at) ? cprof_json_read_enter(reader) : take_scalar(reader, &ignored);
        } else {
            goes_on = next == CPROF_JSON_END;
        }
    }
    if (!goes_on) {
        return false;
    }
    cprof_json_kind kind = *start == '{' ? CPROF_JSON_OBJECT : CPROF_JSON_LIST;
    *value = (cprof_json_value){{start, (size_t)(reader->at - start)}, kind, true, reader->unknown == unknown};
    return true;
}

/* ---- What texts stand for ---- */

/* The exponent of a number, limited to less than any number of digits makes up for. */
static int64_t read_exponent(const char *at, const char *end)
{
    static const int64_t limit = 1 << 30;
    bool is_negative = *at == '-';
    int64_t exponent = 0;
    for (at += *at == '-' || *at == '+'; at < end; at++) {
        exponent = exponent < limit ? exponent * 10 + (*at - '0') : exponent;
    }
    return is_negative ? -exponent : exponent;
}

bool cprof_json_read_decimal(cprof_name number, int power, int64_t *value, bool *is_exact)
{
    const char *at = number.bytes;
    const char *end = at + number.length;
    bool is_negative = *at == '-';
    at += is_negative;
    const char *point = at;
    while (point < end && cprof_json_read_is_digit(*point)) {
        point++;
    }
    const char *digits_end = point;
    while (digits_end < end && (*digits_end == '.' || cprof_json_read_is_digit(*digits_end))) {
        digits_end++;
    }
    /* How many digits are before the point, once both powers have moved it; negative: it has zeros behind it. */
    int64_t before = point - at + power + (digits_end < end ? read_exponent(digits_end + 1, end) : 0);
    const uint64_t most = (uint64_t)INT64_MAX + (is_negative ? 1 : 0);
    uint64_t magnitude = 0;
    unsigned next = 0; /* the first digit to be rounded away */
    bool rest = false; /* whether one behind it is not 0 */
    *value = 0;
    *is_exact = false;
    for (; at < digits_end; at++) {
        unsigned digit = (unsigned)(*at - '0');
        if (at == point) {
            continue;
        }
        if (before > 0 &&
            (__builtin_mul_overflow(magnitude, 10, &magnitude) || __builtin_add_overflow(magnitude, digit, &magnitude))) {
            return false;
        }
        next = before == 0 ? digit : next;
        rest = rest || (before < 0 && digit != 0);
        before--;
    }
    for (; before > 0 && magnitude != 0; before--) {
        if (__builtin_mul_overflow(magnitude, 10, &magnitude)) {
            return false;
        }
    }
    bool rounds_up = next > 5 || (next == 5 && (rest || magnitude % 2 == 1));
    if (magnitude > most - rounds_up) {
        return false;
    }
    magnitude += rounds_up;
    *is_exact = next == 0 && !rest;
    *value = is_negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

static unsigned read_hex(const char *at)
{
    unsigned value = 0;
    for (int i = 0; i < 4; i++) {
        unsigned digit = cprof_json_read_is_digit(at[i]) ? (unsigned)(at[i] - '0') : (unsigned)((at[i] | 0x20) - 'a') + 10;
        value = value << 4 | digit;
    }
    return value;
}

static char *put_utf8(char *out, unsigned point)
{
    if (point < 0x80) {
        *out++ = (char)point;
        return out;
    }
    unsigned shift = point < 0x800 ? 6 : point < 0x10000 ? 12 : 18;
    *out++ = (char)((0xf00u >> (shift / 6 + 1)) | point >> shift);
    while (shift > 0) {
        shift -= 6;
        *out++ = (char)(0x80 | (point >> shift & 0x3f));
    }
    return out;
}

/* Writes what the escape \u.... at `*at` stands for, together with the one behind it if that is its other half. */
static char *unescape_unicode(const char **at, const char *end, char *out)
{
    unsigned point = read_hex(*at + 2);
    *at += 6;
    if (point >= 0xd800 && point < 0xdc00 && end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u') {
        unsigned low = read_hex(*at + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
            *at += 6;
        }
    }
    return put_utf8(out, point);
}

size_t cprof_json_read_unescape(cprof_name string, char *out)
{
    static const char letters[] = "bfnrt";
    static const char controls[] = "\b\f\n\r\t";
    const char *at = string.bytes;
    const char *end = at + string.length;
    char *start = out;
    while (at < end) {
        if (*at != '\\') {
            *out++ = *at++;
        } else if (at[1] == 'u') {
            out = unescape_unicode(&at, end, out);
        } else {
            const char *letter = strchr(letters, at[1]);
            *out++ = letter != NULL ? controls[letter - letters] : at[1];
            at += 2;
        }
    }
    return (size_t)(out - start);
}

size_t cprof_json_read_strict(cprof_name value, char *out)
{
    static const char null[] = {'n', 'u', 'l', 'l'};
    const char *end = value.bytes + value.length;
    char *start = out;
    for (const char *at = value.bytes; at < end;) {
        /* Words that begin as none of true, false and null does; none has such a beginning inside. */
        bool is_unknown = *at == 'N' || *at == 'I' || *at == 'i' || (*at == 'n' && at[1] == 'a') ||
                          (*at == '-' && !cprof_json_read_is_digit(at[1]));
        size_t length = 1;
        if (is_unknown) {
            while ((unsigned char)((at[length] | 0x20) - 'a') < 26) {
                length++;
            }
        } else if (*at == '"') {
            while (at[length] != '"') {
                length += at[length] == '\\' ? 2 : 1;
            }
            length++;
        }
        size_t written = is_unknown ? sizeof null : length;
        memcpy(out, is_unknown ? null : at, written);
        out += written;
        at += length;
    }
    return (size_t)(out - start);
}
