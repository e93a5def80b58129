/* json_write.h */
#include "cprofiling/files/json_write.h"

#include "tests/core/check.h"

#include <stdbool.h>
#include <string.h>

enum { CAPACITY = 16 << 20 };

/* What was written. */
typedef struct {
    char *bytes;
    size_t length;
    size_t pieces;
    size_t longest;
    size_t fails_at; /* the piece that is refused, from 1 on; 0: none */
} sink;

static cprof_status take(void *context, const char *bytes, size_t length)
{
    sink *to = context;
    CHECK(length > 0 && ((unsigned char)bytes[0] & 0xc0) != 0x80);
    if (++to->pieces == to->fails_at) {
        return CPROF_BUSY;
    }
    CHECK(to->fails_at == 0 || to->pieces < to->fails_at);
    CHECK(to->length + length <= CAPACITY);
    memcpy(to->bytes + to->length, bytes, length);
    to->length += length;
    to->longest = length > to->longest ? length : to->longest;
    return CPROF_OK;
}

static cprof_json_writer writer;

static sink begin(void)
{
    sink to = {.bytes = malloc(CAPACITY)};
    CHECK(to.bytes != NULL);
    return to;
}

static void check_written(sink *to, const char *bytes, size_t length)
{
    cprof_json_write_flush(&writer);
    CHECK(writer.status == CPROF_OK);
    CHECK_EQUAL(to->length, length);
    CHECK(memcmp(to->bytes, bytes, length) == 0);
    CHECK(to->longest <= CPROF_JSON_WRITE_BUFFER);
    to->length = to->pieces = to->longest = 0;
}

static void check_unsigned(uint64_t number)
{
    char expected[32];
    char out[CPROF_JSON_WRITE_NUMBER];
    size_t length = (size_t)snprintf(expected, sizeof expected, "%" PRIu64, number);
    CHECK_EQUAL(cprof_json_write_unsigned(out, number) - out, length);
    CHECK(memcmp(out, expected, length) == 0);
    length = (size_t)snprintf(expected, sizeof expected, "%" PRId64, (int64_t)number);
    CHECK_EQUAL(cprof_json_write_integer(out, (int64_t)number) - out, length);
    CHECK(memcmp(out, expected, length) == 0);
    length = (size_t)snprintf(expected, sizeof expected, "%016" PRIx64, number);
    CHECK_EQUAL(cprof_json_write_hex(out, number) - out, length);
    CHECK(memcmp(out, expected, length) == 0);
}

TEST(numbers)
{
    uint64_t random = 1;
    for (uint64_t power = 1; power < UINT64_MAX / 10; power *= 10) {
        check_unsigned(power - 1);
        check_unsigned(power);
        check_unsigned(power + 1);
        check_unsigned(0 - power);
    }
    for (int i = 0; i < 1000; i++) {
        check_unsigned(check_random(&random) >> (i % 64));
    }
    check_unsigned(UINT64_MAX);
    check_unsigned((uint64_t)INT64_MAX);
    check_unsigned((uint64_t)INT64_MIN);
}

static void check_us(int64_t from_ns, int64_t to_ns, const char *expected)
{
    char out[CPROF_JSON_WRITE_NUMBER];
    CHECK_EQUAL(cprof_json_write_us(out, from_ns, to_ns) - out, strlen(expected));
    CHECK(memcmp(out, expected, strlen(expected)) == 0);
}

TEST(times)
{
    check_us(0, 0, "0.000");
    check_us(0, 1, "0.001");
    check_us(0, 10, "0.010");
    check_us(1, 1000, "0.999");
    check_us(0, 1000, "1.000");
    check_us(0, 1234567, "1234.567");
    check_us(1, 0, "-0.001");
    check_us(5000, 100, "-4.900");
    check_us(INT64_MIN, INT64_MAX, "18446744073709551.615");
    check_us(INT64_MAX, INT64_MIN, "-18446744073709551.615");
    check_us(INT64_C(1700000000000000000), INT64_C(1700000000123456789), "123456.789");
}

static void check_string(const char *string, size_t length, const char *expected)
{
    sink to = begin();
    char out[100];
    cprof_json_write_begin(&writer, take, &to);
    cprof_json_write_string(&writer, (cprof_name){string, length});
    check_written(&to, expected, strlen(expected));
    CHECK_EQUAL(cprof_json_write_escaped(out, (cprof_name){string, length}) - out, strlen(expected));
    CHECK(memcmp(out, expected, strlen(expected)) == 0);
    free(to.bytes);
}

#define CHECK_STRING(string, expected) check_string(string, sizeof(string) - 1, expected)

/* F3, F4 */
TEST(strings)
{
    CHECK_STRING("", "");
    CHECK_STRING("forward", "forward");
    CHECK_STRING("a name that is longer than eight", "a name that is longer than eight");
    CHECK_STRING("\"", "\\\"");
    CHECK_STRING("C:\\new", "C:\\\\new");
    CHECK_STRING("\b\f\n\r\t\v\x1f\x7f", "\\b\\f\\n\\r\\t\\u000b\\u001f\x7f");
    CHECK_STRING("a\0b", "a\\u0000b");
    CHECK_STRING("</script>/", "</script>/");
    CHECK_STRING("caf\xc3\xa9", "caf\xc3\xa9");
    CHECK_STRING("\xc2\x80\xe2\x80\xa8\xe2\x80\xa9\"", "\xc2\x80\xe2\x80\xa8\xe2\x80\xa9\\\"");
    CHECK_STRING("\xef\xbf\xbd\xef\xbf\xbf", "\xef\xbf\xbd\xef\xbf\xbf");
    CHECK_STRING("\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80");
    CHECK_STRING("\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf");
    CHECK_STRING("\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80");
    CHECK_STRING("\xed\xa0\x80", "\\ud800");
    CHECK_STRING("\xed\xa0\xbd", "\\ud83d");
    CHECK_STRING("\xed\xbf\xbf!", "\\udfff!");
}

#define REPLACED "\xef\xbf\xbd"

/* Each byte that is no part of a character is one replacement. */
TEST(bytes_that_are_no_text)
{
    CHECK_STRING("\x80", REPLACED);
    CHECK_STRING("a\xffz", "a" REPLACED "z");
    CHECK_STRING("\xc0\xaf", REPLACED REPLACED);
    CHECK_STRING("\xc1\xbf", REPLACED REPLACED);
    CHECK_STRING("\xc3", REPLACED);
    CHECK_STRING("\xc3(", REPLACED "(");
    CHECK_STRING("\xe2\x80", REPLACED REPLACED);
    CHECK_STRING("\xe2\x80\"", REPLACED REPLACED "\\\"");
    CHECK_STRING("\xe0\x9f\xbf", REPLACED REPLACED REPLACED);
    CHECK_STRING("\xf0\x8f\xbf\xbf", REPLACED REPLACED REPLACED REPLACED);
    CHECK_STRING("\xf4\x90\x80\x80", REPLACED REPLACED REPLACED REPLACED);
    CHECK_STRING("\xf5\x80\x80\x80", REPLACED REPLACED REPLACED REPLACED);
    CHECK_STRING("\xf0\x9f\x98", REPLACED REPLACED REPLACED);
}

/* What needs an escape is seen wherever it is: byte by byte the result is the same. */
TEST(random_strings)
{
    static const char some[] = "abc\"\\\n\x7f\x1f \x80\xc3\xa9\xe2\x82\xac~!#[]";
    enum { LONGEST = 40 };
    uint64_t random = 1;
    for (int round = 0; round < 20000; round++) {
        char string[LONGEST], whole[6 * LONGEST + 8], single[6 * LONGEST + 8];
        size_t length = check_random(&random) % LONGEST;
        size_t rare = 1 + check_random(&random) % 30;
        for (size_t i = 0; i < length; i++) {
            string[i] = check_random(&random) % rare == 0 ? some[check_random(&random) % (sizeof some - 1)] : 'x';
            string[i] = (char)((unsigned char)string[i] >= 0x80 ? '\n' : string[i]);
        }
        char *whole_end = cprof_json_write_escaped(whole, (cprof_name){string, length});
        char *single_end = single;
        for (size_t i = 0; i < length; i++) {
            single_end = cprof_json_write_escaped(single_end, (cprof_name){string + i, 1});
        }
        CHECK_EQUAL(whole_end - whole, single_end - single);
        CHECK(memcmp(whole, single, (size_t)(whole_end - whole)) == 0);
    }
}

TEST(json_is_copied)
{
    static const char json[] = "{\"a\\\"b\":[1,\n\t\"caf\xc3\xa9 \xf0\x9f\x98\x80\xff\xed\xbf\xbf\",\"\\u0041\x7f\"]}";
    static const char expected[] = "{\"a\\\"b\":[1,\n\t\"caf\xc3\xa9 \xf0\x9f\x98\x80" REPLACED "\\udfff\",\"\\u0041\x7f\"]}";
    sink to = begin();
    cprof_json_write_begin(&writer, take, &to);
    cprof_json_write_json(&writer, (cprof_name){json, sizeof json - 1});
    check_written(&to, expected, sizeof expected - 1);
    free(to.bytes);
}

/* Strings longer than the buffer, with characters on the borders of the pieces. */
static void check_long(cprof_name character, cprof_name escaped, size_t shift)
{
    enum { LENGTH = 300000 };
    size_t in = character.length, out = escaped.length, count = LENGTH / in;
    char *string = malloc(LENGTH + 16), *expected = malloc(6 * LENGTH + 16);
    CHECK(string != NULL && expected != NULL);
    memset(string, 'x', shift);
    memset(expected, 'x', shift);
    for (size_t i = 0; i < count; i++) {
        memcpy(string + shift + i * in, character.bytes, in);
        memcpy(expected + shift + i * out, escaped.bytes, out);
    }
    sink to = begin();
    cprof_json_write_begin(&writer, take, &to);
    cprof_json_write_string(&writer, (cprof_name){string, shift + count * in});
    CHECK(writer.buffer + sizeof writer.buffer - writer.at >= CPROF_JSON_WRITE_ROOM);
    check_written(&to, expected, shift + count * out);
    free(to.bytes);
    free(string);
    free(expected);
}

#define CHECK_LONG(character, escaped, shift) \
    check_long((cprof_name){character, sizeof(character) - 1}, (cprof_name){escaped, sizeof(escaped) - 1}, shift)

TEST(long_strings)
{
    for (size_t shift = 0; shift < 8; shift++) {
        CHECK_LONG("a", "a", shift);
        CHECK_LONG("\n", "\\n", shift);
        CHECK_LONG("\x01", "\\u0001", shift);
        CHECK_LONG("\xc3\xa9", "\xc3\xa9", shift);
        CHECK_LONG("\xe2\x82\xac", "\xe2\x82\xac", shift);
        CHECK_LONG("\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80", shift);
        CHECK_LONG("\xed\xa0\x80", "\\ud800", shift);
        CHECK_LONG("\xbf", REPLACED, shift);
    }
}

/* There is room after each string, however much was written before. */
TEST(there_is_always_room)
{
    enum { ROUNDS = 2000 };
    sink to = begin();
    size_t expected = 0;
    char name[200];
    memset(name, 'n', sizeof name);
    cprof_json_write_begin(&writer, take, &to);
    for (size_t i = 0; i < ROUNDS; i++) {
        cprof_json_write_string(&writer, (cprof_name){name, i % sizeof name});
        CHECK(writer.buffer + sizeof writer.buffer - writer.at >= CPROF_JSON_WRITE_ROOM);
        memset(writer.at, '-', CPROF_JSON_WRITE_ROOM);
        writer.at += CPROF_JSON_WRITE_ROOM;
        cprof_json_write_make_room(&writer);
        CHECK(writer.buffer + sizeof writer.buffer - writer.at >= CPROF_JSON_WRITE_ROOM);
        expected += i % sizeof name + CPROF_JSON_WRITE_ROOM;
    }
    cprof_json_write_flush(&writer);
    CHECK_EQUAL(to.length, expected);
    CHECK(to.longest <= CPROF_JSON_WRITE_BUFFER);
    CHECK(to.pieces < 2 * (expected / CPROF_JSON_WRITE_BUFFER + 1));
    free(to.bytes);
}

/* Nothing is handed on after the first refusal. */
TEST(refusals)
{
    char name[50000];
    memset(name, 'n', sizeof name);
    for (size_t fails_at = 1; fails_at < 5; fails_at++) {
        sink to = begin();
        to.fails_at = fails_at;
        cprof_json_write_begin(&writer, take, &to);
        for (int i = 0; i < 100; i++) {
            cprof_json_write_string(&writer, (cprof_name){name, sizeof name});
        }
        cprof_json_write_flush(&writer);
        CHECK_EQUAL(to.pieces, fails_at);
        CHECK_EQUAL(writer.status, CPROF_BUSY);
        free(to.bytes);
    }
}

TEST_MAIN(NULL, NULL)
