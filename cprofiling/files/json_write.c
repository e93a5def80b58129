#include "cprofiling/files/json_write.h"

#include "cprofiling/base/text.h"

#include <stdbool.h>
#include <string.h>

enum {
    LONGEST_ESCAPE = 6, /* of a byte: more bytes have shorter ones */
    PER_WORD = 8,
};

#define EACH_BYTE(byte) (UINT64_C(0x0101010101010101) * (byte))

#define DECIMALS(tens) tens "0" tens "1" tens "2" tens "3" tens "4" tens "5" tens "6" tens "7" tens "8" tens "9"
#define HEXADECIMALS(sixteens) DECIMALS(sixteens) sixteens "a" sixteens "b" sixteens "c" sixteens "d" sixteens "e" sixteens "f"

/* Two digits for each number below 100, and below 256. */
static const char decimal_pairs[] = DECIMALS("0") DECIMALS("1") DECIMALS("2") DECIMALS("3") DECIMALS("4") DECIMALS("5")
    DECIMALS("6") DECIMALS("7") DECIMALS("8") DECIMALS("9");
static const char hexadecimal_pairs[] = HEXADECIMALS("0") HEXADECIMALS("1") HEXADECIMALS("2") HEXADECIMALS("3")
    HEXADECIMALS("4") HEXADECIMALS("5") HEXADECIMALS("6") HEXADECIMALS("7") HEXADECIMALS("8") HEXADECIMALS("9")
        HEXADECIMALS("a") HEXADECIMALS("b") HEXADECIMALS("c") HEXADECIMALS("d") HEXADECIMALS("e") HEXADECIMALS("f");

static inline char *put_pair(char *out, const char *pairs, unsigned number)
{
    memcpy(out, pairs + (size_t)2 * number, 2);
    return out + 2;
}

char *cprof_json_write_unsigned(char *out, uint64_t number)
{
    char digits[CPROF_JSON_WRITE_NUMBER];
    char *at = digits + sizeof digits;
    for (; number >= 100; number /= 100) {
        at -= 2;
        (void)put_pair(at, decimal_pairs, (unsigned)(number % 100));
    }
    at -= 2;
    (void)put_pair(at, decimal_pairs, (unsigned)number);
    at += number < 10;
    size_t length = (size_t)(digits + sizeof digits - at);
    memcpy(out, at, length);
    return out + length;
}

char *cprof_json_write_integer(char *out, int64_t number)
{
    if (number >= 0) {
        return cprof_json_write_unsigned(out, (uint64_t)number);
    }
    *out++ = '-';
    return cprof_json_write_unsigned(out, 0 - (uint64_t)number);
}

char *cprof_json_write_us(char *out, int64_t from_ns, int64_t to_ns)
{
    uint64_t ns = (uint64_t)to_ns - (uint64_t)from_ns;
    if (to_ns < from_ns) {
        *out++ = '-';
        ns = 0 - ns;
    }
    out = cprof_json_write_unsigned(out, ns / 1000);
    unsigned rest = (unsigned)(ns % 1000);
    *out++ = '.';
    *out++ = (char)('0' + rest / 100);
    return put_pair(out, decimal_pairs, rest % 100);
}

char *cprof_json_write_hex(char *out, uint64_t number)
{
    for (int shift = 56; shift >= 0; shift -= 8) {
        out = put_pair(out, hexadecimal_pairs, (unsigned)(number >> shift & 0xff));
    }
    return out;
}

/* Whether there is a zero among eight bytes. */
static inline bool has_zero(uint64_t bytes)
{
    return ((bytes - EACH_BYTE(1)) & ~bytes & EACH_BYTE(0x80)) != 0;
}

/* Whether one of eight bytes has to be looked at: none that does is missed. */
static inline bool any_is_special(uint64_t bytes, bool is_json)
{
    uint64_t beyond = bytes & EACH_BYTE(0x80);
    if (is_json) {
        return beyond != 0;
    }
    uint64_t control = (bytes - EACH_BYTE(0x20)) & EACH_BYTE(0x80);
    return (beyond | control) != 0 || has_zero(bytes ^ EACH_BYTE('"')) || has_zero(bytes ^ EACH_BYTE('\\'));
}

static inline bool is_special(unsigned char byte, bool is_json)
{
    return byte >= 0x80 || (!is_json && (byte < 0x20 || byte == '"' || byte == '\\'));
}

static char *put_code(char *out, unsigned code)
{
    memcpy(out, "\\u", 2);
    out = put_pair(out + 2, hexadecimal_pairs, code >> 8);
    return put_pair(out, hexadecimal_pairs, code & 0xff);
}

static char *put_ascii(char *out, unsigned char byte)
{
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* byte and letter by turns */
    for (size_t i = 0; i < sizeof named - 1; i += 2) {
        if (named[i] == (char)byte) {
            *out++ = '\\';
            *out++ = named[i + 1];
            return out;
        }
    }
    return put_code(out, byte);
}

/* Writes what begins here, which may need an escape; *from moves behind it. */
static char *put_checked(char *out, const unsigned char **from, const unsigned char *end)
{
    static const char replacement[] = "\xef\xbf\xbd";
    uint32_t code;
    if (**from < 0x80) {
        return put_ascii(out, *(*from)++);
    }
    const unsigned char *character = *from;
    size_t length = cprof_text_decode((const char *)character, (size_t)(end - character), &code);
    *from += length > 0 ? length : 1;
    if (length == 0) {
        memcpy(out, replacement, sizeof replacement - 1);
        return out + sizeof replacement - 1;
    }
    if (cprof_text_is_surrogate(code)) {
        return put_code(out, code);
    }
    memcpy(out, character, length);
    return out + length;
}

static inline char *put_characters(char *out, cprof_name text, bool is_json)
{
    const unsigned char *from = (const unsigned char *)text.bytes;
    const unsigned char *end = from + text.length;
    while (from < end) {
        uint64_t eight;
        while (end - from >= PER_WORD) {
            memcpy(&eight, from, sizeof eight);
            memcpy(out, &eight, sizeof eight);
            if (any_is_special(eight, is_json)) {
                break;
            }
            from += PER_WORD;
            out += PER_WORD;
        }
        const unsigned char *stop = end - from < PER_WORD ? end : from + PER_WORD;
        while (from < stop) {
            if (is_special(*from, is_json)) {
                out = put_checked(out, &from, end);
            } else {
                *out++ = (char)*from++;
            }
        }
    }
    return out;
}

char *cprof_json_write_escaped(char *out, cprof_name string)
{
    return put_characters(out, string, false);
}

void cprof_json_write_begin(cprof_json_writer *writer, cprof_write write, void *context)
{
    writer->at = writer->buffer;
    writer->write = write;
    writer->context = context;
    writer->status = CPROF_OK;
}

void cprof_json_write_flush(cprof_json_writer *writer)
{
    size_t length = (size_t)(writer->at - writer->buffer);
    if (length > 0 && writer->status == CPROF_OK) {
        writer->status = writer->write(writer->context, writer->buffer, length);
    }
    writer->at = writer->buffer;
}

/* How many bytes can be escaped into the buffer for sure. */
static size_t escapable(const cprof_json_writer *writer)
{
    size_t left = (size_t)(writer->buffer + sizeof writer->buffer - writer->at);
    return left > CPROF_JSON_WRITE_ROOM ? (left - CPROF_JSON_WRITE_ROOM) / LONGEST_ESCAPE : 0;
}

/* How much of a text that is longer than `most` to take, so that no character is cut. */
static size_t piece_of(cprof_name text, size_t most)
{
    size_t length = most;
    while (most - length < 3 && ((unsigned char)text.bytes[length] & 0xc0) == 0x80) {
        length--;
    }
    return length;
}

static inline void put_text(cprof_json_writer *writer, cprof_name text, bool is_json)
{
    while (text.length > escapable(writer)) {
        cprof_json_write_flush(writer);
        size_t most = escapable(writer);
        if (text.length > most) {
            size_t length = piece_of(text, most);
            writer->at = put_characters(writer->at, (cprof_name){text.bytes, length}, is_json);
            text = (cprof_name){text.bytes + length, text.length - length};
        }
    }
    writer->at = put_characters(writer->at, text, is_json);
}

void cprof_json_write_string(cprof_json_writer *writer, cprof_name string)
{
    put_text(writer, string, false);
}

void cprof_json_write_json(cprof_json_writer *writer, cprof_name json)
{
    put_text(writer, json, true);
}
