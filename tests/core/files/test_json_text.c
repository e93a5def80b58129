/* json_text.h */
#include "cprofiling/files/json_text.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <string.h>

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
        CHECK(cprof_json_text_decimal(cprof_name_of(decimals[i].text), decimals[i].power, &value, &is_exact));
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
        CHECK(!cprof_json_text_decimal(cprof_name_of(texts[i]), 0, &value, &is_exact));
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
        CHECK(cprof_json_text_decimal(cprof_name_of(text), power, &value, &is_exact));
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
    CHECK(cprof_json_text_decimal(cprof_name_of(text), 1, &value, &is_exact) && value == 1725 && is_exact);
    text[1] = '.';
    (void)snprintf(text + DIGITS, 32, "17e%d", DIGITS);
    CHECK(cprof_json_text_decimal(cprof_name_of(text), 0, &value, &is_exact) && value == 17 && is_exact);
    (void)snprintf(text + DIGITS, 32, "17e%d", DIGITS - 1);
    CHECK(cprof_json_text_decimal(cprof_name_of(text), 0, &value, &is_exact) && value == 2 && !is_exact);
    (void)snprintf(text, DIGITS, "%0*d", DIGITS - 1, 0);
    text[0] = '3';
    (void)snprintf(text + DIGITS - 1, 32, "e-%d", DIGITS - 3);
    CHECK(cprof_json_text_decimal(cprof_name_of(text), 0, &value, &is_exact) && value == 30 && is_exact);
    memset(text, '9', DIGITS);
    text[DIGITS] = '\0';
    CHECK(!cprof_json_text_decimal(cprof_name_of(text), 0, &value, &is_exact));
    free(text);
}

static void check_unescaped(const char *string, const char *expected, size_t length)
{
    char out[128];
    CHECK(strlen(string) < sizeof out);
    memset(out, '#', sizeof out);
    CHECK_EQUAL(cprof_json_text_unescape(cprof_name_of(string), out), length);
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
    size_t length = cprof_json_text_strict(cprof_name_of(text), out);
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

int main(void)
{
    fake_alloc_install();
    check_run(NULL, NULL);
    CHECK_EQUAL(fake_alloc_made(), 0);
    return EXIT_SUCCESS;
}
