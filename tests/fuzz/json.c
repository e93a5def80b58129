/* JSON: a window of any size makes no difference, and what texts stand for is what the C library says, and can be read again.
 */
#include "tests/fuzz/fuzz.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/files/json_read.h"
#include "cprofiling/files/json_write.h"
#include "tests/core/stream.h"

enum { LARGE = 1 << 16, LONGEST = 4096, NEVER = INT32_MAX };

typedef struct {
    cprof_status status;
    const char *reason;
    uint64_t wrong_at;
    uint64_t hash; /* of all values and their places in each other */
} outcome;

static uint64_t hash_of(uint64_t hash, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* A copy followed by zeros. */
static char *padded(cprof_name text)
{
    char *copy = calloc(1, text.length + CPROF_JSON_PADDING);
    CHECK(copy != NULL);
    memcpy(copy, text.bytes, text.length);
    return copy;
}

static void check_number(cprof_name text, int power)
{
    int64_t number;
    bool is_exact;
    char *copy = padded(text);
    long double expected = strtold(copy, NULL) * powl(10.0L, power);
    long double rounding = fabsl(expected) * 0x1p-60L;
    if (cprof_json_read_decimal(text, power, &number, &is_exact)) {
        CHECK(fabsl((long double)number - expected) <= (is_exact ? 0.0L : 0.5L) + rounding);
    } else {
        CHECK(!(fabsl(expected) + 0.5L + rounding < 0x1p63L));
    }
    free(copy);
}

/* A value that is a text of its own reads as itself. */
static void check_alone(cprof_name text, cprof_json_kind kind)
{
    char *copy = padded(text);
    cprof_json_reader reader;
    cprof_json_value value;
    cprof_json_read_text(&reader, (cprof_name){copy, text.length});
    CHECK(cprof_json_read_value(&reader, &value) && cprof_json_read_is_over(&reader));
    CHECK(value.kind == kind && value.text.length == text.length - (kind == CPROF_JSON_STRING ? 2 : 0) && value.is_strict);
    free(copy);
}

static void check_string(cprof_name text, bool is_plain)
{
    char *meaning = malloc(text.length + 1);
    char *escaped = malloc(6 * text.length + 2 + 7);
    char *again = malloc(6 * text.length + 2 + 7);
    CHECK(meaning != NULL && escaped != NULL && again != NULL);
    cprof_name string = {meaning, cprof_json_read_unescape(text, meaning)};
    CHECK(string.length <= text.length);
    CHECK(!is_plain || (string.length == text.length && memcmp(string.bytes, text.bytes, text.length) == 0));
    *escaped = '"';
    char *end = cprof_json_write_escaped(escaped + 1, string);
    *end++ = '"';
    check_alone((cprof_name){escaped, (size_t)(end - escaped)}, CPROF_JSON_STRING);
    cprof_name inside = {escaped + 1, (size_t)(end - escaped - 2)};
    size_t length = cprof_json_read_unescape(inside, again);
    CHECK(!cprof_name_is_legal(string) || memchr(string.bytes, 0xed, string.length) != NULL || /* perhaps of a surrogate */
          (length == string.length && memcmp(again, meaning, length) == 0));
    free(meaning);
    free(escaped);
    free(again);
}

static void check_value(const cprof_json_value *value)
{
    char *strict = malloc(2 * value->text.length + 1);
    CHECK(strict != NULL);
    if (value->kind == CPROF_JSON_STRING) {
        check_string(value->text, value->is_plain);
    } else {
        size_t length = cprof_json_read_strict(value->text, strict);
        CHECK(!value->is_strict || (length == value->text.length && memcmp(strict, value->text.bytes, length) == 0));
        bool is_scalar = value->kind >= CPROF_JSON_NUMBER; /* which needs something behind it */
        if (!is_scalar) {
            check_alone((cprof_name){strict, length}, value->kind);
        }
    }
    if (value->kind == CPROF_JSON_NUMBER && value->text.length <= LONGEST) {
        check_number(value->text, 0);
        check_number(value->text, 3);
    }
    free(strict);
}

/* Reads one thing: a key, the beginning or the end of a list or object, or a value; those `most_depth` deep in one piece. */
static bool step(cprof_json_reader *reader, unsigned most_depth, outcome *found, bool is_checked)
{
    cprof_json_value key = {.text = {"", 0}};
    cprof_json_value value = {.text = {"", 0}};
    bool in_object = reader->depth > 0 && reader->closers[reader->depth - 1] == '}';
    cprof_json_next next = reader->depth == 0 ? CPROF_JSON_ITEM
                           : in_object        ? cprof_json_read_member(reader, &key)
                                              : cprof_json_read_item(reader);
    bool goes_in = next == CPROF_JSON_ITEM && reader->depth < most_depth && (*reader->at == '[' || *reader->at == '{');
    if (next == CPROF_JSON_STOP ||
        (next == CPROF_JSON_ITEM && !(goes_in ? cprof_json_read_enter(reader) : cprof_json_read_value(reader, &value)))) {
        return false;
    }
    if (is_checked && in_object && next == CPROF_JSON_ITEM) {
        check_string(key.text, key.is_plain);
    }
    if (is_checked && next == CPROF_JSON_ITEM && !goes_in) {
        check_value(&value);
    }
    const char kinds[] = {(char)next, (char)goes_in, (char)value.kind, (char)value.is_plain, (char)value.is_strict};
    found->hash = hash_of(found->hash, kinds, sizeof kinds);
    found->hash = hash_of(found->hash, key.text.bytes, key.text.length);
    found->hash = hash_of(found->hash, value.text.bytes, value.text.length);
    return true;
}

static outcome read_all(cprof_name text, size_t window, size_t piece, unsigned most_depth, bool is_checked)
{
    stream s = {text, 0, piece, NEVER};
    outcome found = {.hash = 1};
    cprof_json_reader reader;
    CHECK(cprof_json_read_open(&reader, window, LARGE, stream_read, &s) == CPROF_OK);
    do {
        cprof_json_read_mark(&reader);
        while (!step(&reader, most_depth, &found, is_checked) && cprof_json_read_again(&reader)) {
        }
    } while (reader.status == CPROF_OK && reader.depth > 0);
    if (reader.status == CPROF_OK && !cprof_json_read_is_over(&reader)) {
        cprof_json_read_refuse(&reader, reader.at, "more");
    }
    found.status = reader.status;
    found.reason = reader.reason;
    found.wrong_at = reader.wrong_at;
    CHECK(found.wrong_at <= text.length && (found.status == CPROF_BAD_FORMAT) == (found.reason != NULL));
    cprof_json_read_close(&reader);
    return found;
}

/* The first three bytes say how the rest is read. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) {
        return 0;
    }
    cprof_name text = {(const char *)data + 3, size - 3};
    unsigned most_depth = data[2];
    outcome whole = read_all(text, 3 + text.length, LARGE, most_depth, true);
    outcome windowed = read_all(text, 3 + (size_t)data[0], 1 + (size_t)data[1], most_depth, false);
    CHECK(whole.status == windowed.status && whole.reason == windowed.reason && whole.wrong_at == windowed.wrong_at);
    CHECK(whole.status != CPROF_OK || whole.hash == windowed.hash);
    return 0;
}
