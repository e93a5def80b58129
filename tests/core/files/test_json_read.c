/* json_read.h */
#include "cprofiling/files/json_read.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"
#include "tests/core/stream.h"

#include <string.h>

enum { LARGE = 1 << 16, NEVER = INT32_MAX };

#define TOO_DEEP "too many lists and objects within each other"
#define IN_THE_MIDDLE "the file ends in the middle"
#define NO_VALUE "no value where one is expected"
#define NO_COMMA "neither a comma nor the end of a list or object"

typedef struct {
    cprof_status status;
    const char *reason;
    uint64_t wrong_at;
    cprof_json_kind kind;
    bool is_strict;
} outcome;

/* Reads a text that is to be one value. */
static outcome read_one(cprof_name text, size_t size, size_t most, size_t piece)
{
    stream s = {text, 0, piece, NEVER};
    cprof_json_reader reader;
    cprof_json_value value = {.kind = CPROF_JSON_WORD};
    CHECK(cprof_json_read_open(&reader, size, most, stream_read, &s) == CPROF_OK);
    cprof_json_read_mark(&reader);
    bool done = false;
    while (!done && reader.status == CPROF_OK) {
        done = cprof_json_read_value(&reader, &value);
        if (!done) {
            (void)cprof_json_read_again(&reader);
        }
    }
    if (done) {
        CHECK(value.text.length > 0 || value.kind == CPROF_JSON_STRING);
        if (!cprof_json_read_is_over(&reader)) {
            cprof_json_read_refuse(&reader, reader.at, "more");
        }
    }
    outcome result = {reader.status, reader.reason, reader.wrong_at, value.kind, value.is_strict};
    CHECK((result.status == CPROF_BAD_FORMAT) == (result.reason != NULL));
    cprof_json_read_close(&reader);
    return result;
}

/* Windows and pieces of all sizes, between which there must be no difference. */
static outcome read_all_ways(cprof_name text)
{
    static const size_t sizes[] = {3, 4, 5, 7, 8, 16, 33, 64};
    static const size_t pieces[] = {1, 2, 7, LARGE};
    outcome expected = read_one(text, LARGE, LARGE, LARGE);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (size_t j = 0; j < COUNT_OF(pieces); j++) {
            outcome result = read_one(text, sizes[i], LARGE, pieces[j]);
            CHECK(result.status == expected.status);
            CHECK(result.reason == expected.reason);
            CHECK_EQUAL(result.wrong_at, expected.wrong_at);
            CHECK(result.kind == expected.kind && result.is_strict == expected.is_strict);
        }
    }
    return expected;
}

static const struct {
    const char *text;
    cprof_json_kind kind;
    bool is_strict;
} good[] = {
    {"[]", CPROF_JSON_LIST, true},
    {"{}", CPROF_JSON_OBJECT, true},
    {" \t\r\n[ \n]\t ", CPROF_JSON_LIST, true},
    {"\"\"", CPROF_JSON_STRING, true},
    {"\"a\\\"b\\\\c\\/d\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\\ud800\"", CPROF_JSON_STRING, true},
    {"\"caf\xc3\xa9 \xed\xa0\x80 \xff\x80 \x7f\"", CPROF_JSON_STRING, true},
    {"true ", CPROF_JSON_WORD, true},
    {"[true,false , null]", CPROF_JSON_LIST, true},
    {"[0,-0,1,-1,10,1234567890123456789012345678901234567890]", CPROF_JSON_LIST, true},
    {"[0.5,-0.5,1.0,1e5,1E5,1e+5,1e-5,1.25e-05,0e0,0.0e00]", CPROF_JSON_LIST, true},
    {"-12.5e3 ", CPROF_JSON_NUMBER, true},
    {"[[[[]]],{},[{}],{\"a\":[]}]", CPROF_JSON_LIST, true},
    {"{\"\":{\"a\":1,\"a\":[2,3]}, \"b\" : \"c\" ,\"d\":null}", CPROF_JSON_OBJECT, true},
    {"\xef\xbb\xbf{\"a\":1}", CPROF_JSON_OBJECT, true},
    {"NaN", CPROF_JSON_UNKNOWN, false},
    {"[1,-Infinity]", CPROF_JSON_LIST, false},
    {"{\"a\":[{\"b\":nan}],\"c\":1}", CPROF_JSON_OBJECT, false},
    {"[NaN,nan,Infinity,inf,-NaN,-nan,-Infinity,-inf]", CPROF_JSON_LIST, false},
    {"\"NaN\"", CPROF_JSON_STRING, true},
};

TEST(good)
{
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        outcome result = read_all_ways(cprof_name_of(good[i].text));
        CHECK(result.status == CPROF_OK);
        CHECK(result.kind == good[i].kind);
        CHECK(result.is_strict == good[i].is_strict);
    }
}

static const struct {
    const char *text;
    uint64_t wrong_at;
    const char *reason;
} bad[] = {
    {"", 0, IN_THE_MIDDLE},
    {" \n ", 3, IN_THE_MIDDLE},
    {"[", 1, IN_THE_MIDDLE},
    {"[1", 2, IN_THE_MIDDLE},
    {"[1,", 3, IN_THE_MIDDLE},
    {"{\"a", 3, IN_THE_MIDDLE},
    {"\"a\\", 3, IN_THE_MIDDLE},
    {"\"\\u12", 5, IN_THE_MIDDLE},
    {"tru", 3, IN_THE_MIDDLE},
    {"-", 1, IN_THE_MIDDLE},
    {"12", 2, IN_THE_MIDDLE}, /* it might go on */
    {"\xef\xbb\xbf", 3, IN_THE_MIDDLE},
    {"\xef\xbb[]", 0, NO_VALUE},
    {"[]\xef\xbb\xbf", 2, "more"},
    {"[] []", 3, "more"},
    {"{}}", 2, "more"},
    {"[1,]", 3, NO_VALUE},
    {"[,1]", 1, NO_VALUE},
    {"[1,,2]", 3, NO_VALUE},
    {"[1 2]", 3, NO_COMMA},
    {"[1}", 2, NO_COMMA},
    {"{\"a\":1]", 6, NO_COMMA},
    {"[truey]", 5, NO_COMMA},
    {"[tru]", 4, NO_VALUE},
    {"[nul]", 4, NO_VALUE},
    {"[TRUE]", 1, NO_VALUE},
    {"[+1]", 1, NO_VALUE},
    {"[.5]", 1, NO_VALUE},
    {"[-]", 2, NO_VALUE},
    {"[-x]", 2, NO_VALUE},
    {"[--1]", 2, NO_VALUE},
    {"['a']", 1, NO_VALUE},
    {"[infinity]", 4, NO_COMMA},
    {"[01]", 2, "a number that begins with 0"},
    {"[-00]", 3, "a number that begins with 0"},
    {"[1.]", 3, "a number without a digit"},
    {"[1.e5]", 3, "a number without a digit"},
    {"[1e]", 3, "a number without a digit"},
    {"[1e+]", 4, "a number without a digit"},
    {"[1e-x]", 4, "a number without a digit"},
    {"[1.5.5]", 4, NO_COMMA},
    {"[1e5e5]", 4, NO_COMMA},
    {"[0x10]", 2, NO_COMMA},
    {"{1:2}", 1, "no name of a member of an object"},
    {"{,}", 1, "no name of a member of an object"},
    {"{\"a\":1,}", 7, "no name of a member of an object"},
    {"{\"a\"}", 4, "no colon after the name of a member"},
    {"{\"a\" 1}", 5, "no colon after the name of a member"},
    {"{\"a\":}", 5, NO_VALUE},
    {"[\"\n\"]", 2, "a control character in a string"},
    {"[\"abcdefgh\x1f\"]", 10, "a control character in a string"},
    {"{\"a\tb\":1}", 3, "a control character in a string"},
    {"[\"\\x\"]", 3, "an unknown escape in a string"},
    {"[\"abc\\U0041\"]", 6, "an unknown escape in a string"},
    {"[\"\\\n\"]", 3, "an unknown escape in a string"},
    {"[\"\\u12g4\"]", 6, "an escape \\u without four hexadecimal digits"},
    {"[\"\\u 123\"]", 4, "an escape \\u without four hexadecimal digits"},
    {"[\"\\u@123\"]", 4, "an escape \\u without four hexadecimal digits"},
    {"[\"\\uG123\"]", 4, "an escape \\u without four hexadecimal digits"},
    {"\x01", 0, NO_VALUE},
};

TEST(bad)
{
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        outcome result = read_all_ways(cprof_name_of(bad[i].text));
        CHECK(result.status == CPROF_BAD_FORMAT);
        if (strcmp(result.reason, bad[i].reason) != 0 || result.wrong_at != bad[i].wrong_at) {
            (void)fprintf(stderr, "%s: %s at %" PRIu64 "\n", bad[i].text, result.reason, result.wrong_at);
        }
        CHECK_EQUAL(result.wrong_at, bad[i].wrong_at);
        CHECK(strcmp(result.reason, bad[i].reason) == 0);
    }
}

/* A zero byte is no end. */
TEST(zero_bytes)
{
    static const char texts[][8] = {"[1\0]", "[\0]", "[\"\0\"]", "[1]\0", "{\"a\"\0:", "[\"\\\0\"]", "[tru\0]", "[\"\\u1\0"};
    static const uint64_t places[] = {2, 1, 2, 3, 4, 3, 4, 5};
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        outcome result = read_all_ways((cprof_name){texts[i], places[i] + 1});
        CHECK(result.status == CPROF_BAD_FORMAT);
        CHECK(strcmp(result.reason, IN_THE_MIDDLE) != 0);
        CHECK_EQUAL(result.wrong_at, places[i]);
    }
}

/* I9: each cut of a good text is refused at its place, unless the rest is good, too. */
TEST(cuts)
{
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        size_t whole = strlen(good[i].text);
        for (size_t length = 0; length < whole; length++) {
            outcome result = read_all_ways((cprof_name){good[i].text, length});
            if (result.status != CPROF_OK && strcmp(result.reason, NO_VALUE) != 0) {
                CHECK(strcmp(result.reason, IN_THE_MIDDLE) == 0);
                CHECK_EQUAL(result.wrong_at, length);
            }
        }
    }
}

/* I9: whatever bit is flipped, the window makes no difference. */
TEST(flips)
{
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        char text[128];
        size_t length = strlen(good[i].text);
        memcpy(text, good[i].text, length);
        for (size_t bit = 0; bit < length * 8; bit++) {
            text[bit / 8] = (char)(text[bit / 8] ^ (1 << (bit % 8)));
            (void)read_all_ways((cprof_name){text, length});
            text[bit / 8] = (char)(text[bit / 8] ^ (1 << (bit % 8)));
        }
    }
}

/* All places of a special byte within the eight that are looked at together. */
TEST(strings_of_all_lengths)
{
    char text[64];
    for (size_t length = 0; length < 40; length++) {
        for (int quoted = 0x20; quoted < 0x100; quoted += 0x1f) {
            memset(text, quoted == '"' || quoted == '\\' ? '!' : quoted, sizeof text);
            text[0] = text[length + 1] = '"';
            outcome result = read_one((cprof_name){text, length + 2}, LARGE, LARGE, LARGE);
            CHECK(result.status == CPROF_OK && result.kind == CPROF_JSON_STRING);
            for (size_t at = 1; at <= length; at++) {
                char kept = text[at];
                text[at] = 0x1f;
                result = read_one((cprof_name){text, length + 2}, LARGE, LARGE, LARGE);
                CHECK_EQUAL(result.wrong_at, at);
                text[at] = kept;
            }
        }
    }
}

TEST(depth)
{
    char text[4 * CPROF_JSON_MAX_DEPTH];
    memset(text, '[', CPROF_JSON_MAX_DEPTH);
    memset(text + CPROF_JSON_MAX_DEPTH, ']', CPROF_JSON_MAX_DEPTH);
    CHECK(read_all_ways((cprof_name){text, 2 * CPROF_JSON_MAX_DEPTH}).status == CPROF_OK);
    memset(text, '[', sizeof text);
    outcome result = read_all_ways((cprof_name){text, sizeof text});
    CHECK_EQUAL(result.wrong_at, CPROF_JSON_MAX_DEPTH);
    CHECK(strcmp(result.reason, TOO_DEEP) == 0);
}

/* A step may be as long as it may be, and no longer; blanks before it do not count. */
TEST(longest_step)
{
    enum { MOST = 100 };
    char text[4 * MOST];
    for (size_t size = 3; size <= MOST; size += 7) {
        memset(text, ' ', sizeof text);
        text[MOST] = '"';
        memset(text + MOST + 1, 'x', MOST - 2);
        text[2 * MOST - 1] = '"';
        CHECK(read_one((cprof_name){text, sizeof text}, size, MOST, LARGE).status == CPROF_OK);
        text[2 * MOST - 1] = 'x';
        text[2 * MOST] = '"';
        outcome result = read_one((cprof_name){text, sizeof text}, size, MOST, LARGE);
        CHECK(result.status == CPROF_BAD_FORMAT && strcmp(result.reason, "a value that is too long") == 0);
        CHECK_EQUAL(result.wrong_at, MOST);
    }
}

/* What lies in a list or an object, one by one. */
TEST(members)
{
    char text[128] = "{\"a\\u0062\" : [1, {}, NaN] , \"\":\"x\\n\",\"c\":{\"d\":2}}";
    cprof_json_reader r;
    cprof_json_value value;
    cprof_json_read_text(&r, cprof_name_of(text));
    CHECK(cprof_json_read_enter(&r));
    CHECK(cprof_json_read_member(&r, &value) == CPROF_JSON_ITEM);
    CHECK(value.kind == CPROF_JSON_STRING && !value.is_plain && cprof_name_is(value.text, "a\\u0062"));
    CHECK(*r.at == '[' && cprof_json_read_enter(&r));
    CHECK(cprof_json_read_item(&r) == CPROF_JSON_ITEM && cprof_json_read_value(&r, &value));
    CHECK(value.kind == CPROF_JSON_NUMBER && cprof_name_is(value.text, "1"));
    CHECK(cprof_json_read_item(&r) == CPROF_JSON_ITEM && cprof_json_read_value(&r, &value));
    CHECK(value.kind == CPROF_JSON_OBJECT && cprof_name_is(value.text, "{}"));
    CHECK(cprof_json_read_item(&r) == CPROF_JSON_ITEM && cprof_json_read_value(&r, &value));
    CHECK(value.kind == CPROF_JSON_UNKNOWN && cprof_name_is(value.text, "NaN") && r.unknown == 1);
    CHECK(cprof_json_read_item(&r) == CPROF_JSON_END);
    CHECK(cprof_json_read_member(&r, &value) == CPROF_JSON_ITEM && value.is_plain && value.text.length == 0);
    CHECK(cprof_json_read_value(&r, &value) && !value.is_plain && cprof_name_is(value.text, "x\\n"));
    CHECK(cprof_json_read_member(&r, &value) == CPROF_JSON_ITEM && cprof_name_is(value.text, "c"));
    CHECK(cprof_json_read_value(&r, &value) && cprof_name_is(value.text, "{\"d\":2}"));
    CHECK(cprof_json_read_member(&r, &value) == CPROF_JSON_END);
    CHECK(cprof_json_read_is_over(&r) && r.status == CPROF_OK);
    CHECK(!cprof_json_read_enter(&r) && !cprof_json_read_again(&r));
    CHECK(strcmp(r.reason, IN_THE_MIDDLE) == 0);
    CHECK_EQUAL(r.wrong_at, strlen(text));
    CHECK(!cprof_json_read_again(&r)); /* it stays so */
}

TEST(nothing_to_enter)
{
    char text[16] = "[\"a\"]";
    cprof_json_reader r;
    cprof_json_read_text(&r, cprof_name_of(text));
    CHECK(cprof_json_read_enter(&r) && cprof_json_read_item(&r) == CPROF_JSON_ITEM);
    CHECK(!cprof_json_read_enter(&r) && !cprof_json_read_again(&r));
    CHECK(r.status == CPROF_BAD_FORMAT && r.wrong_at == 1);
    CHECK(strcmp(r.reason, "no list or object where one is expected") == 0);
}

/* A step that is a whole item is done again from its beginning; the sum says that nothing was read twice or left out. */
static bool step_item(cprof_json_reader *reader, cprof_json_next *next, size_t *length)
{
    cprof_json_value value;
    *next = cprof_json_read_item(reader);
    if (*next != CPROF_JSON_ITEM) {
        return *next == CPROF_JSON_END;
    }
    if (!cprof_json_read_value(reader, &value)) {
        return false;
    }
    *length = value.text.length;
    return true;
}

TEST(many_steps)
{
    enum { ITEMS = 300 };
    static char text[LARGE];
    size_t expected = 0;
    size_t end = 1;
    text[0] = '[';
    for (size_t i = 0; i < ITEMS; i++) {
        int printed = snprintf(text + end, sizeof text - end, "%s[%zu,\"%.*s\"]", i > 0 ? " , " : "", i, (int)(i % 50),
                               "--------------------------------------------------");
        end += (size_t)printed;
        expected += (size_t)printed - (i > 0 ? 3 : 0);
    }
    text[end++] = ']';
    for (size_t size = 3; size < 300; size += 11) {
        stream s = {{text, end}, 0, size / 2 + 1, NEVER};
        cprof_json_reader reader;
        cprof_json_next next = CPROF_JSON_ITEM;
        size_t sum = 0;
        size_t length = 0;
        CHECK(cprof_json_read_open(&reader, size, LARGE, stream_read, &s) == CPROF_OK && cprof_json_read_enter(&reader));
        while (next != CPROF_JSON_END) {
            length = 0;
            cprof_json_read_mark(&reader);
            while (!step_item(&reader, &next, &length)) {
                CHECK(cprof_json_read_again(&reader));
            }
            sum += length;
        }
        CHECK_EQUAL(sum, expected);
        CHECK(reader.size < 300 || reader.size == size); /* a window grows for a step, not for the file */
        CHECK(cprof_json_read_is_over(&reader));
        CHECK_EQUAL(reader.mark_offset, end);
        cprof_json_read_close(&reader);
    }
}

/* What ends the reading: a stream that fails, at each of its calls. */
TEST(failing_stream)
{
    cprof_name text = cprof_name_of(" [1, \"two\", {\"three\": [4, 5, 6, 7, 8]}]   ");
    cprof_json_reader reader;
    cprof_json_value value;
    bool all_read = false;
    for (int call = 0; !all_read; call++) {
        stream s = {text, 0, 2, call};
        cprof_status status = cprof_json_read_open(&reader, 4, LARGE, stream_read, &s);
        if (status == CPROF_OK) {
            while (!cprof_json_read_value(&reader, &value) && cprof_json_read_again(&reader)) {
            }
            all_read = reader.status == CPROF_OK && cprof_json_read_is_over(&reader) && reader.status == CPROF_OK;
            CHECK(cprof_json_read_is_over(&reader));
            CHECK(!cprof_json_read_again(&reader));
            status = all_read ? CPROF_BUSY : reader.status;
            cprof_json_read_close(&reader);
        }
        CHECK(status == CPROF_BUSY);
        CHECK_EQUAL(fake_alloc_live(), 0);
        CHECK(call < 100);
    }
}

/* G7 */
TEST(without_memory)
{
    cprof_name text = cprof_name_of("[\"0123456789012345678901234567890123456789\"]");
    uint64_t nth = 0;
    while (fake_alloc_fail_next(&nth)) {
        stream s = {text, 0, LARGE, NEVER};
        cprof_json_reader reader;
        cprof_json_value value;
        cprof_status status = cprof_json_read_open(&reader, 8, LARGE, stream_read, &s);
        if (status == CPROF_OK) {
            while (!cprof_json_read_value(&reader, &value) && cprof_json_read_again(&reader)) {
            }
            status = reader.status;
            cprof_json_read_close(&reader);
        }
        CHECK(status == (fake_alloc_has_failed() ? CPROF_NO_MEMORY : CPROF_OK));
        CHECK_EQUAL(fake_alloc_live(), 0);
    }
    CHECK(nth > 3);
}

/* I9: a large value takes time in proportion. */
TEST(large)
{
    enum { MUCH = 1 << 20 };
    static const char ends[][3] = {"[[", "\"\"", "[ ", "11", "[]", "{}"};
    char *text = malloc(MUCH + 2);
    CHECK(text != NULL);
    for (size_t i = 0; i < COUNT_OF(ends); i++) {
        memset(text, ends[i][1] == '"' ? 'x' : ends[i][1], MUCH);
        text[0] = ends[i][0];
        text[MUCH] = ends[i][1];
        outcome result = read_one((cprof_name){text, MUCH + 1}, 16, 2 * MUCH, LARGE);
        CHECK((result.status == CPROF_OK) == (ends[i][0] == '"'));
    }
    free(text);
}

/* What texts stand for. */

static const struct {
    const char *text;
    int64_t value;
    int power;
    bool is_exact;
} decimals[] = {
    {"0", 0, 0, true},
    {"-0", 0, 3, true},
    {"0.000", 0, 3, true},
    {"0e99", 0, 3, true},
    {"0e-99999999999999999999", 0, 0, true},
    {"0e99999999999999999999", 0, 3, true},
    {"1", 1, 0, true},
    {"-1", -1000, 3, true},
    {"1.0", 1, 0, true},
    {"1e3", 1000, 0, true},
    {"1.5E+3", 1500, 0, true},
    {"12000e-3", 12, 0, true},
    {"1.5", 2, 0, false},
    {"0.001", 1, 3, true},
    {"00.001", 1, 3, true},
    {"0.0005", 0, 3, false}, /* halves go to the even neighbour */
    {"0.0015", 2, 3, false},
    {"0.0025", 2, 3, false},
    {"-0.0015", -2, 3, false},
    {"-0.0025", -2, 3, false},
    {"0.00050000000000000000000000000000000001", 1, 3, false},
    {"0.00250000000000000000000000000000000001", 3, 3, false},
    {"0.00049999999999999999999999999999999999", 0, 3, false},
    {"0.0004", 0, 3, false},
    {"0.0006", 1, 3, false},
    {"0.00006", 0, 3, false},
    {"0.9996", 1000, 3, false},
    {"9.9995", 10000, 3, false},
    {"1e-4", 0, 3, false},
    {"9e-4", 1, 3, false},
    {"5e-4", 0, 3, false},
    {"1e-99999999999999999999", 0, 3, false},
    {"1712195495519689.123", 1712195495519689123, 3, true}, /* no double has this */
    {"4406500314027.247", 4406500314027247, 3, true},
    {"1.712195495519689123e15", 1712195495519689123, 3, true},
    {"1712195495519689123e-3", 1712195495519689123, 3, true},
    {"1790857026000000000", 1790857026000000000, 0, true},
    {"9007199254740993", 9007199254740993, 0, true},
    {"9223372036854775807", INT64_MAX, 0, true},
    {"9223372036854775.807", INT64_MAX, 3, true},
    {"9223372036854775.8074999", INT64_MAX, 3, false},
    {"9223372036854775807.49", INT64_MAX, 0, false},
    {"-9223372036854775808", INT64_MIN, 0, true},
    {"-9223372036854775808.5", INT64_MIN, 0, false},
    {"9.223372036854775807e18", INT64_MAX, 0, true},
    {"92233720368547758070e-1", INT64_MAX, 0, true},
    {"0.000000000000000000001e39", 1000000000000000000, 0, true},
};

TEST(decimals)
{
    for (size_t i = 0; i < COUNT_OF(decimals); i++) {
        int64_t value = -7;
        bool is_exact = !decimals[i].is_exact;
        CHECK(cprof_json_read_decimal(cprof_name_of(decimals[i].text), decimals[i].power, &value, &is_exact));
        CHECK_EQUAL(value, decimals[i].value);
        CHECK(is_exact == decimals[i].is_exact);
    }
}

TEST(beyond_64_bits)
{
    static const char *const texts[] = {
        "9223372036854775808",
        "-9223372036854775809",
        "9223372036854775807.5",
        "-9223372036854775808.51",
        "10000000000000000000",
        "99999999999999999999",
        "18446744073709551616",
        "1e19",
        "1e99999999999999999999",
        "-1e400",
        "0.1e20",
        "123456789012345678901234567890",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        int64_t value;
        bool is_exact;
        CHECK(!cprof_json_read_decimal(cprof_name_of(texts[i]), 0, &value, &is_exact));
    }
}

/* A number is the same however it is written. */
TEST(ways_to_write_a_number)
{
    uint64_t state = 1;
    for (int round = 0; round < 20000; round++) {
        int64_t expected = (int64_t)(check_random(&state) >> (check_random(&state) % 63 + 1));
        int power = (int)(check_random(&state) % 12);
        int point = (int)(check_random(&state) % 19);
        bool is_negative = check_random(&state) % 2 == 1;
        char plain[32];
        char text[64];
        int count = snprintf(plain, sizeof plain, "%020" PRId64, expected);
        (void)snprintf(text, sizeof text, "%s%.*s.%s%c%d", is_negative ? "-" : "", count - point, plain,
                       point > 0 ? plain + count - point : "0", round % 2 == 0 ? 'e' : 'E', point - power);
        int64_t value = -7;
        bool is_exact = false;
        CHECK(cprof_json_read_decimal(cprof_name_of(text), power, &value, &is_exact));
        CHECK_EQUAL(value, is_negative ? -expected : expected);
        CHECK(is_exact);
    }
}

/* I9: a million digits. */
TEST(long_numbers)
{
    enum { DIGITS = 1000000 };
    char *text = malloc(DIGITS + 32);
    CHECK(text != NULL);
    int64_t value;
    bool is_exact;
    memset(text, '0', DIGITS);
    (void)snprintf(text + DIGITS, 32, "17.25e1");
    CHECK(cprof_json_read_decimal(cprof_name_of(text), 1, &value, &is_exact) && value == 1725 && is_exact);
    text[1] = '.';
    (void)snprintf(text + DIGITS, 32, "17e%d", DIGITS);
    CHECK(cprof_json_read_decimal(cprof_name_of(text), 0, &value, &is_exact) && value == 17 && is_exact);
    (void)snprintf(text + DIGITS, 32, "17e%d", DIGITS - 1);
    CHECK(cprof_json_read_decimal(cprof_name_of(text), 0, &value, &is_exact) && value == 2 && !is_exact);
    (void)snprintf(text, DIGITS, "%0*d", DIGITS - 1, 0);
    text[0] = '3';
    (void)snprintf(text + DIGITS - 1, 32, "e-%d", DIGITS - 3);
    CHECK(cprof_json_read_decimal(cprof_name_of(text), 0, &value, &is_exact) && value == 30 && is_exact);
    memset(text, '9', DIGITS);
    text[DIGITS] = '\0';
    CHECK(!cprof_json_read_decimal(cprof_name_of(text), 0, &value, &is_exact));
    free(text);
}

static void check_unescaped(const char *string, const char *expected, size_t length)
{
    char out[128];
    CHECK(strlen(string) < sizeof out);
    memset(out, '#', sizeof out);
    CHECK_EQUAL(cprof_json_read_unescape(cprof_name_of(string), out), length);
    CHECK(memcmp(out, expected, length) == 0);
    CHECK(out[strlen(string)] == '#'); /* no more room is needed than the text takes */
}

/* F3 */
TEST(unescape)
{
    check_unescaped("", "", 0);
    check_unescaped("plain \xc3\xa9\xff", "plain \xc3\xa9\xff", 9);
    check_unescaped("\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t", 8);
    check_unescaped("\\u0041\\u00e9\\u00E9\\u20ac\\uFFFF", "A\xc3\xa9\xc3\xa9\xe2\x82\xac\xef\xbf\xbf", 11);
    check_unescaped("a\\u0000b", "a\0b", 3);
    check_unescaped("\\u007f\\u0080\\u07ff\\u0800", "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80", 8);
    check_unescaped("\\ud83d\\ude00\\uD800\\uDC00\\udbff\\udfff", "\xf0\x9f\x98\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 12);
    check_unescaped("\\ud83d", "\xed\xa0\xbd", 3);
    check_unescaped("\\ude00\\ud83d", "\xed\xb8\x80\xed\xa0\xbd", 6);
    check_unescaped("\\ud83d\\ud83d\\ude00", "\xed\xa0\xbd\xf0\x9f\x98\x80", 7);
    check_unescaped("\\ud83dx\\ude00", "\xed\xa0\xbdx\xed\xb8\x80", 7);
    check_unescaped("\\ud83d\\n\\u0041", "\xed\xa0\xbd\nA", 5);
    check_unescaped("\\ud83d\\u0041",
                    "\xed\xa0\xbd"
                    "A",
                    4);
    check_unescaped("\\ud83d\\ue000", "\xed\xa0\xbd\xee\x80\x80", 6);
    check_unescaped("\\ud83d\xed\xb8\x80", "\xed\xa0\xbd\xed\xb8\x80", 6); /* halves of different kinds stay apart */
    check_unescaped("\\\\ud83d", "\\ud83d", 6);
}

static void check_strict(const char *text, const char *expected)
{
    char out[256];
    size_t length = cprof_json_read_strict(cprof_name_of(text), out);
    CHECK(length <= 2 * strlen(text));
    CHECK_EQUAL(length, strlen(expected));
    CHECK(memcmp(out, expected, length) == 0);
}

TEST(strict)
{
    check_strict("{\"a\": [true, false, null, -1.5e-3, 1E5], \"n\": {}}",
                 "{\"a\": [true, false, null, -1.5e-3, 1E5], \"n\": {}}");
    check_strict("[NaN,nan,Infinity,inf,-NaN,-nan,-Infinity,-inf]", "[null,null,null,null,null,null,null,null]");
    check_strict("{\"NaN\": NaN, \"a\\\"inf\": \"\\\\\", \"b\": [-inf ,1]}",
                 "{\"NaN\": null, \"a\\\"inf\": \"\\\\\", \"b\": [null ,1]}");
}

FAKE_ALLOC_MAIN(NULL, NULL)
