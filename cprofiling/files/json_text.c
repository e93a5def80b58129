#include "cprofiling/files/json_text.h"

#include <string.h>

enum { INT64_DIGITS = 19, EXPONENT_LIMIT = 1 << 30 };

/* A number's digits, without its point: they are before and behind it. */
typedef struct {
    const char *whole;
    const char *fraction;
    size_t whole_count;
    size_t count;
    int64_t point; /* how many of them are before the point, once the exponent has moved it; may be outside of them */
    bool is_negative;
} digits;

static inline unsigned digit_at(const digits *d, size_t index)
{
    return (unsigned)((index < d->whole_count ? d->whole[index] : d->fraction[index - d->whole_count]) - '0');
}

/* The exponent, which is limited to what no number of digits makes up for. */
static int64_t read_exponent(const char *at, const char *end)
{
    bool is_negative = *at == '-';
    int64_t exponent = 0;
    for (at += *at == '-' || *at == '+'; at < end; at++) {
        exponent = exponent < EXPONENT_LIMIT ? exponent * 10 + (*at - '0') : exponent;
    }
    return is_negative ? -exponent : exponent;
}

static digits split(cprof_name number)
{
    const char *at = number.bytes;
    const char *end = at + number.length;
    digits d = {.is_negative = *at == '-'};
    d.whole = at += d.is_negative;
    while (at < end && cprof_json_text_is_digit(*at)) {
        at++;
    }
    d.count = d.whole_count = (size_t)(at - d.whole);
    d.point = (int64_t)d.whole_count;
    if (at < end && *at == '.') {
        d.fraction = ++at;
        while (at < end && cprof_json_text_is_digit(*at)) {
            at++;
        }
        d.count += (size_t)(at - d.fraction);
    }
    if (at < end) {
        d.point += read_exponent(at + 1, end);
    }
    return d;
}

/* Whether to round up after digit `first` - 1 of a number whose digits so far make up `magnitude`. */
static bool rounds_up(const digits *d, size_t first, uint64_t magnitude, bool *is_exact)
{
    bool rest = false;
    for (size_t i = first + 1; i < d->count && !rest; i++) {
        rest = digit_at(d, i) != 0;
    }
    unsigned next = first < d->count ? digit_at(d, first) : 0;
    *is_exact = next == 0 && !rest;
    return next > 5 || (next == 5 && (rest || magnitude % 2 == 1));
}

bool cprof_json_text_decimal(cprof_name number, int power, int64_t *value, bool *is_exact)
{
    digits d = split(number);
    size_t first = 0;
    while (first < d.count && digit_at(&d, first) == 0) {
        first++;
    }
    int64_t wanted = d.point + power - (int64_t)first;
    *value = 0;
    *is_exact = first == d.count;
    if (*is_exact || wanted < 0) {
        return true;
    }
    if (wanted > INT64_DIGITS) {
        return false;
    }
    uint64_t magnitude = 0;
    for (int64_t i = 0; i < wanted; i++, first += first < d.count) {
        magnitude = magnitude * 10 + (first < d.count ? digit_at(&d, first) : 0);
    }
    magnitude += rounds_up(&d, first, magnitude, is_exact) ? 1 : 0;
    if (magnitude > (uint64_t)INT64_MAX + (d.is_negative ? 1 : 0)) {
        return false;
    }
    *value = d.is_negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

static unsigned read_hex(const char *at)
{
    unsigned value = 0;
    for (int i = 0; i < 4; i++) {
        unsigned digit = cprof_json_text_is_digit(at[i]) ? (unsigned)(at[i] - '0') : (unsigned)((at[i] | 0x20) - 'a') + 10;
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

size_t cprof_json_text_unescape(cprof_name string, char *out)
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

/* Whether something unknown is here: a word that begins as none of true, false and null does, and has no such beginning inside.
 */
static bool is_unknown(const char *at)
{
    return *at == 'N' || *at == 'I' || *at == 'i' || (*at == 'n' && at[1] == 'a') ||
           (*at == '-' && !cprof_json_text_is_digit(at[1]));
}

/* The length of a word, with a minus before it. */
static size_t word_length(const char *at)
{
    size_t length = 1;
    while ((unsigned char)((at[length] | 0x20) - 'a') < 26) {
        length++;
    }
    return length;
}

/* The length of the string that the text begins with, with its quotes. */
static size_t string_length(const char *text)
{
    size_t length = 1;
    while (text[length] != '"') {
        length += text[length] == '\\' ? 2 : 1;
    }
    return length + 1;
}

size_t cprof_json_text_strict(cprof_name value, char *out)
{
    static const char null[] = {'n', 'u', 'l', 'l'};
    const char *end = value.bytes + value.length;
    char *start = out;
    for (const char *at = value.bytes; at < end;) {
        if (is_unknown(at)) {
            memcpy(out, null, sizeof null);
            out += sizeof null;
            at += word_length(at);
            continue;
        }
        size_t length = *at == '"' ? string_length(at) : 1;
        memcpy(out, at, length);
        out += length;
        at += length;
    }
    return (size_t)(out - start);
}
