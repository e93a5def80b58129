/* chrome_read.h: whole files. What events become is shown by test_chrome.c. */
#include "cprofiling/files/chrome_read.h"

#include "cprofiling/nodes/accum.h"
#include "cprofiling/base/alloc.h"
#include "cprofiling/files/chrome_write.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"
#include "tests/core/kept_tables.h"
#include "tests/core/stream.h"

#include <string.h>

enum { NEVER = INT32_MAX };

static cprof_status load_into(cprof_table *table, cprof_name text, cprof_chrome_read_report *report)
{
    stream f = {text, 0, SIZE_MAX, NEVER};
    return cprof_chrome_read(table, 0, 0, stream_read, &f, report);
}

/* Loads a good text. */
static cprof_table *load(cprof_name text, cprof_chrome_read_report *report)
{
    cprof_table *table = new_table();
    cprof_status status = load_into(table, text, report);
    if (status != CPROF_OK) {
        (void)fprintf(stderr, "%.60s: %s at %" PRIu64 "\n", text.bytes, report->reason, report->bytes);
    }
    CHECK(status == CPROF_OK && report->reason == NULL);
    CHECK_EQUAL(report->bytes, text.length);
    return table;
}

static bool is_text(const cprof_table *table, cprof_text text, const char *expected)
{
    return cprof_name_is(cprof_table_string(table, text), expected);
}

static bool is_fact(const cprof_table *table, const char *key, const char *expected)
{
    cprof_name value;
    return cprof_table_fact(table, cprof_name_of(key), &value) && cprof_name_is(value, expected);
}

/* ---- forms of files ---- */

#define EVENT "{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":2,\"ts\":1,\"dur\":2}"

TEST(forms)
{
    static const struct {
        const char *text;
        size_t rows;
    } forms[] = {
        {"{\"traceEvents\":[]}", 0},
        {"{\"traceEvents\":[" EVENT "]}", 1},
        {"\xef\xbb\xbf { \"traceEvents\" : [ " EVENT " , " EVENT " ] , \"a\" : 1 } \n", 2},
        {"{\"a\":{\"traceEvents\":5},\"trace\\u0045vents\":[" EVENT "],\"b\":[1,2]}", 1},
        {"{\"\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061"
         "\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\":1,\"traceEvents\":[" EVENT "]}",
         1},
        {"[]", 0},
        {" [" EVENT "]\n", 1},
        {"[", 0}, /* the list's end may be missing */
        {"[\n", 0},
        {"[" EVENT, 1},
        {"[\n" EVENT ",\n" EVENT "\n", 2},
        {"[" EVENT ",", 1},
        {"[" EVENT ",\n" EVENT ",\n", 2},
    };
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        cprof_chrome_read_report report;
        cprof_table *table = load(cprof_name_of(forms[i].text), &report);
        CHECK_EQUAL(table->count, forms[i].rows);
        CHECK_EQUAL(report.ignored + report.unmatched + report.negative + report.dropped, 0);
    }
}

TEST(bad_files)
{
    static const struct {
        const char *text;
        uint64_t wrong_at;
        const char *reason;
    } files[] = {
        {"", 0, "the file is empty"},
        {" \n\t", 3, "the file is empty"},
        {"\xef\xbb\xbf", 3, "the file is empty"},
        {"\x1f\x8b\x08", 0, "no list or object where one is expected"},
        {"5", 0, "no list or object where one is expected"},
        {"{}", 2, "there are no traceEvents"},
        {"{\"samples\":[]}", 14, "there are no traceEvents"},
        {"{\"traceEvents\":{}}", 15, "traceEvents is no list"},
        {"{\"traceEvents\":null}", 15, "traceEvents is no list"},
        {"{\"traceEvents\":[],\"traceEvents\":[]}", 32, "traceEvents for the second time"},
        {"{\"traceEvents\":[5]}", 16, "an event that is no object"},
        {"{\"traceEvents\":[{},null]}", 19, "an event that is no object"},
        {"[[]]", 1, "an event that is no object"},
        {"[{},]", 4, "an event that is no object"},
        {"{\"traceEvents\":[{},]}", 19, "an event that is no object"},
        {"{\"traceEvents\":[", 16, "the file ends in the middle"},
        {"{\"traceEvents\":[" EVENT, 16 + sizeof EVENT - 1, "the file ends in the middle"},
        {"{\"traceEvents\":[]", 17, "the file ends in the middle"},
        {"{\"traceEvents\":[],\"a\"", 21, "the file ends in the middle"},
        {"{\"a\":[1,2", 9, "the file ends in the middle"},
        {"{", 1, "the file ends in the middle"},
        {"[{\"ph\":", 7, "the file ends in the middle"},
        {"[{},{\"ph\":\"X\"", 13, "the file ends in the middle"},
        {"[{\"args\":{\"a\":1", 15, "the file ends in the middle"},
        {"[] ,", 3, "something after the end"},
        {"{\"traceEvents\":[]}]", 18, "something after the end"},
        {"[{\"ts\":1,}]", 9, "no name of a member of an object"},
        {"[{\"args\":{\"a\" 1}}]", 14, "no colon after the name of a member"},
        {"[{\"args\":[1 2]}]", 12, "neither a comma nor the end of a list or object"},
        {"[{\"ph\":\"X\",\"ts\":1e300,\"dur\":1}]", 16, "a time beyond 2^63 ns"},
        {"[{\"ph\":\"X\",\"ts\":-9223372036854775.809}]", 16, "a time beyond 2^63 ns"},
        {"[{\"ph\":\"X\",\"ts\":1,\"dur\":1e300}]", 24, "an end beyond 2^63 ns"},
        {"[{\"ph\":\"X\",\"ts\":1,\"dur\":9223372036854775.807}]", 24, "an end beyond 2^63 ns"},
        {"[{\"ph\":\"i\",\"ts\":1e300}]", 16, "a time beyond 2^63 ns"},
        {"[{\"ph\":\"B\",\"ts\":1e300}]", 16, "a time beyond 2^63 ns"},
        {"[{\"ph\":\"E\",\"ts\":1e300}]", 16, "a time beyond 2^63 ns"},
        {"[{\"ph\":\"s\",\"id\":1,\"ts\":1e300}]", 23, "a time beyond 2^63 ns"},
        {"{\"baseTimeNanoseconds\":1.5}", 23, "baseTimeNanoseconds is no integer below 2^63"},
        {"{\"baseTimeNanoseconds\":9223372036854775808}", 23, "baseTimeNanoseconds is no integer below 2^63"},
        {"{\"baseTimeNanoseconds\":\"1\"}", 24, "baseTimeNanoseconds is no integer below 2^63"},
        {"{\"baseTimeNanoseconds\":9223372036854775807,\"traceEvents\":[" EVENT "]}", 0,
         "times beyond 2^63 ns, counted from their base"},
        {"{\"baseTimeNanoseconds\":9223372036854773000,\"traceEvents\":[" EVENT "]}", 0,
         "times beyond 2^63 ns, counted from their base"},
        {"{\"baseTimeNanoseconds\":-9223372036854775808,\"traceEvents\":[{\"ph\":\"s\",\"id\":1,\"ts\":-1}]}", 0,
         "times beyond 2^63 ns, counted from their base"},
        {"[{\"ph\":\"i\",\"ts\":-4611686018427387.904},{\"ph\":\"X\",\"ts\":0,\"dur\":0.001}]", 0,
         "times more than 2^62 ns from one another"},
        {"[{\"ph\":\"B\",\"ts\":-9e15},{\"ph\":\"E\",\"ts\":9e15}]", 0, "times more than 2^62 ns from one another"},
        {"[{\"ph\":\"s\",\"id\":1,\"ts\":9e15},{\"ph\":\"f\",\"id\":1,\"ts\":-9e15}]", 0,
         "times more than 2^62 ns from one another"},
    };
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        cprof_chrome_read_report report;
        cprof_table *table = new_table();
        CHECK(load_into(table, cprof_name_of(files[i].text), &report) == CPROF_BAD_FORMAT);
        uint64_t wrong_at = files[i].wrong_at != 0 || report.bytes == 0 ? files[i].wrong_at : strlen(files[i].text);
        if (strcmp(report.reason, files[i].reason) != 0 || report.bytes != wrong_at) {
            (void)fprintf(stderr, "%s: %s at %" PRIu64 "\n", files[i].text, report.reason, report.bytes);
        }
        CHECK(strcmp(report.reason, files[i].reason) == 0);
        CHECK_EQUAL(report.bytes, wrong_at);
    }
}

/* Lists and objects that the file itself makes count, too. */
TEST(depth)
{
    char text[2 * CPROF_JSON_MAX_DEPTH + 64];
    static const char begin[] = "{\"traceEvents\":[{\"args\":{\"a\":"; /* four deep */
    static const char end[] = {'}', '}', ']', '}'};
    for (size_t depth = CPROF_JSON_MAX_DEPTH - 4; depth <= CPROF_JSON_MAX_DEPTH - 3; depth++) {
        size_t length = sizeof begin - 1;
        memcpy(text, begin, length);
        memset(text + length, '[', depth);
        memset(text + length + depth, ']', depth);
        length += 2 * depth;
        memcpy(text + length, end, sizeof end);
        cprof_chrome_read_report report;
        cprof_table *table = new_table();
        cprof_status status = load_into(table, (cprof_name){text, length + 4}, &report);
        CHECK(status == (depth <= CPROF_JSON_MAX_DEPTH - 4 ? CPROF_OK : CPROF_BAD_FORMAT));
        CHECK_EQUAL(report.bytes, status == CPROF_OK ? length + 4 : sizeof begin - 1 + CPROF_JSON_MAX_DEPTH - 4);
    }
}

TEST(facts)
{
    cprof_chrome_read_report report;
    cprof_table *table =
        load(cprof_name_of(
                 "{\"schemaVersion\": 1, \"a\\nb\":\"x\\\"y\", \"c\": [1, {\"d\" : NaN}],\"droppedEvents\":7,"
                 "\"displayTimeUnit\":\"ns\",\"traceEvents\":[],\"schemaVersion\": 2.50,\"\":null,\"\\u0063\\u0063\":inf}"),
             &report);
    CHECK_EQUAL(table->fact_count, 7);
    CHECK(is_fact(table, "schemaVersion", "2.50")); /* the last one */
    CHECK(is_fact(table, "a\nb", "\"x\\\"y\""));
    CHECK(is_fact(table, "c", "[1, {\"d\" : null}]")); /* JSON by the RFC */
    CHECK(is_fact(table, "displayTimeUnit", "\"ns\""));
    CHECK(is_fact(table, "", "null"));
    CHECK(is_fact(table, "cc", "null"));
    CHECK_EQUAL(report.dropped, 7);
    CHECK_EQUAL(table->dropped, 7);
}

/* The base may come before the events or after them; of two, the last one counts. */
TEST(base)
{
    static const char *const texts[] = {
        "{\"baseTimeNanoseconds\":1790857026000000000,\"traceEvents\":[" EVENT ",{\"ph\":\"s\",\"id\":1,\"ts\":0.001}]}",
        "{\"traceEvents\":[" EVENT ",{\"ph\":\"s\",\"id\":1,\"ts\":0.001}],\"baseTimeNanoseconds\":1790857026000000000}",
        "{\"baseTimeNanoseconds\":5,\"traceEvents\":[" EVENT ",{\"ph\":\"s\",\"id\":1,\"ts\":1e-3}],\"baseTimeNanoseconds\":"
        "1790857026e9}",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        cprof_chrome_read_report report;
        cprof_table *table = load(cprof_name_of(texts[i]), &report);
        CHECK_EQUAL(table->start_ns[0], 1790857026000001000);
        CHECK_EQUAL(table->end_ns[0], 1790857026000003000);
        CHECK_EQUAL(table->flows[0].at_ns, 1790857026000000001);
        CHECK(is_fact(table, "baseTimeNanoseconds", "1790857026000000000"));
    }
}

/* Earlier rows stay as they are; the shift is the caller's. */
TEST(second_file)
{
    cprof_chrome_read_report report;
    cprof_table *table = load(cprof_name_of("[" EVENT ",{\"ph\":\"s\",\"id\":1,\"ts\":5}]"), &report);
    cprof_name text =
        cprof_name_of("{\"baseTimeNanoseconds\":100,\"traceEvents\":[" EVENT ",{\"ph\":\"s\",\"id\":1,\"ts\":5}]}");
    stream f = {text, 0, SIZE_MAX, NEVER};
    CHECK(cprof_chrome_read(table, -20, 0, stream_read, &f, &report) == CPROF_OK);
    CHECK_EQUAL(table->count, 2);
    CHECK_EQUAL(table->start_ns[0], 1000);
    CHECK_EQUAL(table->start_ns[1], 1080);
    CHECK_EQUAL(table->end_ns[1], 3080);
    CHECK_EQUAL(table->flows[0].at_ns, 5000);
    CHECK_EQUAL(table->flows[1].at_ns, 5080);
    f = (stream){cprof_name_of("[{\"ph\":\"i\",\"ts\":-9223372036854775.0}]"), 0, SIZE_MAX, NEVER};
    CHECK(cprof_chrome_read(table, 0, 0, stream_read, &f, &report) == CPROF_BAD_FORMAT); /* far from the other times */
    f = (stream){cprof_name_of("{\"baseTimeNanoseconds\":-1,\"traceEvents\":[]}"), 0, SIZE_MAX, NEVER};
    CHECK(cprof_chrome_read(table, INT64_MIN, 0, stream_read, &f, &report) == CPROF_BAD_FORMAT);
}

/* ---- begin and end events ---- */

TEST(begin_and_end)
{
    cprof_chrome_read_report report;
    cprof_table *table = load(
        cprof_name_of(
            "[{\"ph\":\"B\",\"name\":\"outer\",\"cat\":\"c\",\"tid\":1,\"ts\":1,\"args\":{\"a\":1,\"correlation\":5,\"x\":0}},"
            "{\"ph\":\"B\",\"name\":\"other\",\"tid\":2,\"ts\":1.5},"
            "{\"ph\":\"B\",\"name\":\"inner\",\"tid\":1,\"ts\":2,\"args\":{ }},"
            "{\"ph\":\"E\",\"tid\":1,\"ts\":3,\"args\":{\"stream\":7,\"b\":inf}},"
            "{\"ph\":\"E\",\"tid\":2,\"ts\":1},"
            "{\"ph\":\"E\",\"name\":\"?\",\"tid\":1,\"ts\":4,\"args\":{ \"x\":\"\\u0041\"}},"
            "{\"ph\":\"E\",\"tid\":1,\"ts\":5},{\"ph\":\"E\",\"tid\":3,\"ts\":5},"
            "{\"ph\":\"B\",\"name\":\"ProfilerStep#1\",\"cat\":\"cpu_op\",\"tid\":1,\"ts\":6,\"args\":{\"bytes\":2}},"
            "{\"ph\":\"E\",\"tid\":1,\"ts\":7,\"args\":{ }},"
            "{\"ph\":\"B\",\"tid\":1,\"ts\":8},{\"ph\":\"B\",\"tid\":4,\"ts\":8},{\"ph\":\"B\"},{\"ph\":\"E\"}]"),
        &report);
    CHECK_EQUAL(table->count, 4);
    CHECK_EQUAL(report.unmatched, 4);
    CHECK_EQUAL(report.ignored, 2);
    CHECK_EQUAL(report.negative, 1);
    static const struct {
        const char *name;
        int64_t start_ns;
        int64_t end_ns;
        const char *args;
    } rows[] = {
        {"inner", 2000, 3000, "{\"stream\":7,\"b\":null}"},
        {"other", 1500, 1500, ""},
        {"outer", 1000, 4000, "{\"a\":1,\"correlation\":5,\"x\":0, \"x\":\"\\u0041\"}"},
        {"ProfilerStep#1", 6000, 7000, "{\"bytes\":2}"},
    };
    for (size_t i = 0; i < 4; i++) {
        CHECK(is_text(table, table->name[i], rows[i].name));
        CHECK_EQUAL(table->start_ns[i], rows[i].start_ns);
        CHECK_EQUAL(table->end_ns[i], rows[i].end_ns);
        CHECK_EQUAL(table->args_length[i], strlen(rows[i].args));
        CHECK(memcmp(table->kept + table->args_at[i], rows[i].args, table->args_length[i]) == 0);
    }
    CHECK(is_text(table, table->cat[2], "c"));
    CHECK_EQUAL(table->correlation[2], 5);
    CHECK_EQUAL(table->stream[0], 7);
    CHECK_EQUAL(table->bytes[3], 2);
    CHECK_EQUAL(table->kind[3], CPROF_KIND_STEP);
    CHECK_EQUAL(table->kind[2], CPROF_KIND_HOST);
}

/* ---- windows, memory, hostile files ---- */

static const char kineto[] =
    "{\n  \"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": \"A\\u0031\"}],\n"
    "  \"traceEvents\": [\n"
    "  {\"name\": \"thread_n\\u0061me\", \"ph\": \"M\", \"pid\": \"p\\u0070\", \"tid\": \"t (2)\","
    " \"args\": {\"name\": \"t (\\u0032)\"}},\n"
    "  {\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm \\u00e9\", \"pid\": 10, \"tid\": 11, \"ts\": 100.25,"
    " \"dur\": 5.001,\n   \"args\": {\"External id\": 3, \"Input Dims\": [[2, 3], []], \"Input type\": [\"float\", \"\"],"
    " \"Call stack\": \"a;b\\n\"}},\n"
    "  {\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k<int>\", \"pid\": 0, \"tid\": 7, \"ts\": 101, \"dur\": 2,\n"
    "   \"args\": {\"device\": 0, \"stream\": 7, \"correlation\": 9, \"Input Dims\": [inf, 123456]}},\n"
    "  {\"ph\": \"s\", \"id\": 9, \"pid\": 10, \"tid\": 11, \"ts\": 100.5, \"cat\": \"ac2g\", \"name\": \"ac2g\"},\n"
    "  {\"ph\": \"f\", \"id\": \"x\\t9\", \"pid\": 0, \"tid\": 7, \"ts\": 101, \"cat\": \"ac2g\", \"bp\": \"e\"},\n"
    "  {\"name\": \"process_name\", \"ph\": \"M\", \"ts\": 1, \"pid\": 10, \"tid\": 0, \"args\": {\"name\": \"py\\\"thon\"}},\n"
    "  {\"name\": \"process_labels\", \"ph\": \"M\", \"pid\": \"q\\u0071\", \"args\": {\"labels\": \"\\u004cabels\"}},\n"
    "  {\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 10, \"tid\": 11, \"args\": {\"name\": \"main\"}},\n"
    "  {\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 10, \"tid\": 4194315, \"args\": {\"name\": \"main (2)\"}},\n"
    "  {\"ph\": \"B\", \"name\": \"b\", \"pid\": 10, \"tid\": \"t\\u0020x\", \"ts\": 102, \"args\": {\"a\": [1]}},\n"
    "  {\"ph\": \"E\", \"pid\": 10, \"tid\": \"t x\", \"ts\": 103, \"args\": {\"b\": NaN}},\n"
    "  {\"ph\": \"i\", \"s\": \"g\", \"name\": \"[memory]\", \"pid\": \"\", \"ts\": 104, \"args\": {\"Bytes\": -5}},\n"
    "  {\"ph\": \"C\", \"name\": \"c\", \"pid\": 10, \"ts\": 104.5, \"args\": {\"v\": 1}},\n"
    "  {\"ph\": \"X\", \"name\": \"n\", \"pid\": 10, \"tid\": 4194315, \"ts\": 105, \"dur\": 1,\n   \"args\": {\"kind\": "
    "\"node\","
    " \"stage\": \"train\", \"trace_id\": \"000000000000000a000000000000000b\", \"span_id\": \"000000000000000c\"}}\n"
    "  ],\n  \"traceName\": [\"x\\/y\", -inf, 123456789012345678901234567890],\n"
    "  \"baseTimeNanoseconds\": 1700000000000000000\n}\n";

static const char bare[] =
    "[\n{\"ph\":\"B\",\"name\":\"a\",\"pid\":\"p\",\"tid\":\"t\",\"ts\":1e3,\"args\":{\"x\":{\"y\":[]}}},\n"
    "{\"ph\":\"E\",\"pid\":\"p\",\"tid\":\"t\",\"ts\":1001},\n{\"ph\":\"R\",\"name\":\"m\",\"ts\":-0.5},\n{\"ph\":\"n\",\"id\":"
    "1}";

enum { MAX_TEXT = 4096 };

static cprof_status hash_bytes(void *context, const char *bytes, size_t length)
{
    uint64_t *hash = context;
    for (size_t i = 0; i < length; i++) {
        *hash = (*hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    }
    return CPROF_OK;
}

/* A hash of all that is in a table, which is finished by that. */
static uint64_t hash_of(cprof_table *table)
{
    uint64_t hash = 1;
    CHECK(cprof_table_finish(table) == CPROF_OK);
    CHECK(cprof_chrome_write(table, hash_bytes, &hash) == CPROF_OK);
    return hash;
}

/* Whatever it is, it is loaded or refused, with a place that is in the file; nothing is left over. */
static cprof_status try_to_load(cprof_name text)
{
    cprof_chrome_read_report report;
    uint64_t live = fake_alloc_live();
    cprof_table *table = cprof_table_create();
    cprof_status status = load_into(table, text, &report);
    CHECK(status == CPROF_OK || status == CPROF_BAD_FORMAT);
    CHECK((status == CPROF_BAD_FORMAT) == (report.reason != NULL));
    CHECK(report.bytes <= text.length);
    if (status == CPROF_OK) {
        CHECK_EQUAL(report.bytes, text.length);
        CHECK(cprof_table_finish(table) == CPROF_OK);
    }
    cprof_table_destroy(table);
    CHECK_EQUAL(fake_alloc_live(), live);
    return status;
}

/* I9: each cut. A list may end after each of its events. */
TEST(cuts)
{
    for (size_t length = 0; length + 2 < sizeof kineto; length++) {
        CHECK(try_to_load((cprof_name){kineto, length}) == CPROF_BAD_FORMAT);
    }
    CHECK(try_to_load((cprof_name){kineto, sizeof kineto - 1}) == CPROF_OK);
    for (size_t length = 0; length < sizeof bare; length++) {
        size_t end = length;
        while (end > 0 && (bare[end - 1] == '\n' || bare[end - 1] == ',')) {
            end--;
        }
        bool after_event = end > 1 && bare[end - 1] == '}' && (bare[end] == ',' || bare[end] == '\0');
        bool ok = length > 0 && (end == 1 || after_event);
        CHECK(try_to_load((cprof_name){bare, length}) == (ok ? CPROF_OK : CPROF_BAD_FORMAT));
    }
}

/* I9: each flip of a bit. */
TEST(flips)
{
    char text[MAX_TEXT];
    const cprof_name texts[] = {{kineto, sizeof kineto - 1}, {bare, sizeof bare - 1}};
    size_t loaded = 0;
    for (size_t i = 0; i < 2; i++) {
        CHECK(texts[i].length <= sizeof text);
        memcpy(text, texts[i].bytes, texts[i].length);
        for (size_t bit = 0; bit < texts[i].length * 8; bit++) {
            text[bit / 8] = (char)(text[bit / 8] ^ (1 << (bit % 8)));
            loaded += try_to_load((cprof_name){text, texts[i].length}) == CPROF_OK ? 1 : 0;
            text[bit / 8] = (char)(text[bit / 8] ^ (1 << (bit % 8)));
        }
    }
    CHECK(loaded > 1000); /* most changes make another name, or another number */
}

/* Makes a file in which the window's end comes at some place of `kineto`: `before` bytes are a fact. */
static char *with_long_fact(size_t before)
{
    char *text = malloc(before + sizeof kineto);
    CHECK(text != NULL && before > 16);
    static const char begin[] = {'{', '"', 'f', 'a', 'c', 't', '"', ':', '"'};
    memset(text, 'x', before);
    memcpy(text, begin, sizeof begin);
    text[before - 2] = '"';
    text[before - 1] = ',';
    memcpy(text + before, kineto + 1, sizeof kineto - 1);
    return text;
}

TEST(windows)
{
    enum { STRIDE = 7 };
    cprof_chrome_read_report report;
    uint64_t expected = 0;
    for (size_t into = 0; into < sizeof kineto; into += STRIDE) {
        size_t before = CPROF_CHROME_READ_WINDOW - into;
        char *text = with_long_fact(before);
        cprof_name name = {text, before + sizeof kineto - 2};
        cprof_table *table = load(name, &report);
        CHECK(cprof_table_set_fact(table, cprof_name_of("fact"), cprof_name_of("1")) == CPROF_OK);
        uint64_t hash = hash_of(table);
        CHECK(into == 0 || hash == expected);
        expected = hash;
        free(text);
    }
}

/* An event, and a fact, that are longer than the window. */
TEST(long_values)
{
    enum { LONG = 3 * CPROF_CHROME_READ_WINDOW };
    static const char begin[] = "{\"fact\":\"";
    static const char middle[] = "\",\"traceEvents\":[{\"ph\":\"X\",\"ts\":1,\"name\":\"";
    static const char end[] = "\\n\"}]}";
    size_t length = 2 * LONG + sizeof begin + sizeof middle + sizeof end - 3;
    char *text = malloc(length + 1);
    CHECK(text != NULL);
    memset(text, 'x', length);
    memcpy(text, begin, sizeof begin - 1);
    memcpy(text + LONG + sizeof begin - 1, middle, sizeof middle - 1);
    memcpy(text + length - sizeof end + 1, end, sizeof end - 1);
    cprof_chrome_read_report report;
    cprof_table *table = load((cprof_name){text, length}, &report);
    cprof_name fact;
    CHECK(cprof_table_fact(table, cprof_name_of("fact"), &fact));
    CHECK_EQUAL(fact.length, LONG + 2);
    CHECK_EQUAL(cprof_table_string(table, table->name[0]).length, LONG + 1);
    free(text);
}

/* G7: each allocation fails once. */
static void expect_no_leak(cprof_name text, uint64_t least)
{
    uint64_t nth = 0;
    while (fake_alloc_fail_next(&nth)) {
        cprof_chrome_read_report report = {.reason = NULL};
        cprof_table *table = cprof_table_create();
        cprof_status status = table != NULL ? load_into(table, text, &report) : CPROF_NO_MEMORY;
        CHECK(status == (fake_alloc_has_failed() ? CPROF_NO_MEMORY : CPROF_OK));
        CHECK(report.reason == NULL);
        cprof_table_destroy(table);
        CHECK_EQUAL(fake_alloc_live(), 0);
    }
    CHECK(nth > least);
}

/* G7: where it takes more than one event: many tracks, many open events, many lanes, a window that grows. */
static size_t write_many(char *text, size_t size)
{
    enum { MANY = 130 };
    size_t at = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < MANY; i++) {
        at += (size_t)snprintf(text + at, size - at,
                               "{\"ph\":\"M\",\"name\":\"thread_name\",\"tid\":%d,\"args\":{\"name\":\"t\"}},"
                               "{\"ph\":\"M\",\"name\":\"thread_name\",\"tid\":%d,\"args\":{\"name\":\"t (2)\"}},"
                               "{\"ph\":\"B\",\"name\":\"b%d\",\"tid\":%d,\"ts\":%d,\"args\":{\"i\":%d}},",
                               i, i + (1 << 22), i, i % 2 == 0 ? i : i + (1 << 22), i, i);
    }
    for (int i = 0; i < MANY; i++) {
        at +=
            (size_t)snprintf(text + at, size - at, "{\"ph\":\"E\",\"tid\":%d,\"ts\":1000,\"args\":{\"j\":\"%.*s\"}},", i, i,
                             "----------------------------------------------------------------------------------------------");
    }
    return at + (size_t)snprintf(text + at, size - at, "{\"ph\":\"E\",\"ts\":5}]");
}

TEST(without_memory)
{
    static char text[1 << 16];
    cprof_name many = {text, write_many(text, sizeof text)};
    cprof_chrome_read_report report;
    cprof_table *table = load(many, &report);
    CHECK_EQUAL(table->count, 130);
    CHECK_EQUAL(table->track_count, 130);
    CHECK_EQUAL(report.unmatched, 1);
    drop_tables();
    expect_no_leak(many, 50);
    expect_no_leak((cprof_name){kineto, sizeof kineto - 1}, 50);
}

TEST(failing_file)
{
    for (int call = 0;; call++) {
        stream f = {{kineto, sizeof kineto - 1}, 0, 50, call};
        cprof_chrome_read_report report;
        cprof_table *table = new_table();
        cprof_status status = cprof_chrome_read(table, 0, 0, stream_read, &f, &report);
        drop_tables();
        CHECK_EQUAL(fake_alloc_live(), 0);
        if (status == CPROF_OK) {
            CHECK(call > 20);
            return;
        }
        CHECK(status == CPROF_BUSY && report.reason == NULL);
    }
}

/* I9, F5: much of what costs most, in time in proportion. */
TEST(hostile_files)
{
    enum { MANY = 100000, LONGEST = 64 };
    static const char *const formats[] = {
        "{\"ph\":\"B\",\"ts\":%d},",
        "{\"ph\":\"E\",\"ts\":%d},",
        "{\"ph\":\"X\",\"ts\":0,\"name\":\"%d\"},",
        "{\"ph\":\"X\",\"ts\":0,\"tid\":%d},",
        "{\"ph\":\"X\",\"ts\":0,\"pid\":\"%d\"},",
        "{\"ph\":\"X\",\"ts\":0,\"\\u0061%d\":{}},",
        "{\"ph\":\"s\",\"ts\":0,\"id\":\"%d\"},",
        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"p\"}},",
    };
    char *text = malloc((size_t)MANY * LONGEST * 2);
    CHECK(text != NULL);
    for (size_t i = 0; i < COUNT_OF(formats); i++) {
        size_t at = 1;
        text[0] = '[';
        for (int j = 0; j < MANY; j++) {
            at += (size_t)snprintf(text + at, LONGEST * 2, formats[i], j);
        }
        CHECK(try_to_load((cprof_name){text, at}) == CPROF_OK);
    }
    size_t at = (size_t)snprintf(text, LONGEST, "{\"traceEvents\":[]");
    for (int j = 0; j < MANY; j++) {
        at += (size_t)snprintf(text + at, LONGEST, ",\"%d\":0", j);
    }
    text[at++] = '}';
    CHECK(try_to_load((cprof_name){text, at}) == CPROF_BAD_FORMAT);
    memset(text, '[', MANY);
    CHECK(try_to_load((cprof_name){text, MANY}) == CPROF_BAD_FORMAT);
    free(text);
}

/* ---- our own traces ---- */

static cprof_text text_in(cprof_table *table, const char *string)
{
    cprof_text text;
    CHECK(cprof_table_text(table, cprof_name_of(string), &text) == CPROF_OK);
    return text;
}

static uint64_t below(uint64_t *state, uint64_t limit)
{
    return check_random(state) % limit;
}

/* A row of ours with any of its properties. */
static cprof_row random_row(cprof_table *table, uint64_t *state)
{
    static const char *const names[] = {"a", "b\"\\\n\x01", "\xc3\xa9\xf0\x9f\x98\x80", "\xed\xa0\x80", "", "ProfilerStep#12"};
    static const cprof_kind kinds[] = {CPROF_KIND_NODE, CPROF_KIND_NODE, CPROF_KIND_RECORD, CPROF_KIND_STEP, CPROF_KIND_DEVICE};
    cprof_row row = cprof_row_none;
    row.kind = (uint8_t)kinds[below(state, 5)];
    row.start_ns = 1790857026000000000 + (int64_t)below(state, 100000);
    row.end_ns = row.start_ns + (int64_t)below(state, 10000);
    row.name = text_in(table, names[below(state, 6)]);
    row.cat = text_in(table, row.kind == CPROF_KIND_DEVICE ? "kernel" : "user_annotation");
    row.stage = text_in(table, below(state, 2) == 0 ? "train" : "");
    row.track = (uint32_t)below(state, table->track_count);
    row.trace_high = check_random(state);
    row.trace_low = check_random(state);
    row.span = check_random(state) | 1;
    row.outcome = (uint8_t)below(state, 3);
    row.flags = (uint8_t)below(state, 8);
    row.suspended_ns = (int64_t)below(state, 2) * 77;
    row.device = (int32_t)below(state, 3) - 1;
    row.stream = (int64_t)below(state, 3) - 1;
    row.correlation = (int64_t)below(state, 5) - 1;
    row.external_id = (int64_t)below(state, 5) - 1;
    row.memory_change = below(state, 2) == 0 ? -5 : CPROF_TABLE_UNKNOWN;
    row.memory_peak = below(state, 2) == 0 ? INT64_MAX : CPROF_TABLE_UNKNOWN;
    row.device_memory_change = below(state, 2) == 0 ? INT64_MIN + 1 : CPROF_TABLE_UNKNOWN;
    row.device_memory_peak = below(state, 2) == 0 ? 0 : CPROF_TABLE_UNKNOWN;
    row.bytes = below(state, 2) == 0 ? 1 << 20 : CPROF_TABLE_UNKNOWN;
    row.shapes = text_in(table, below(state, 2) == 0 ? "[[1, 2], []]" : "");
    row.types = text_in(table, below(state, 2) == 0 ? "[\"float\",\"\"]" : "");
    row.stack = text_in(table, below(state, 2) == 0 ? "f.py(1): g\nf.py(2): <module>" : "");
    return row;
}

static cprof_table *random_table(uint64_t seed)
{
    enum { ROWS = 200 };
    static const char *const tids[] = {"", "", "text", "", "other"};
    uint64_t state = seed;
    uint32_t track;
    cprof_table *table = new_table();
    for (int i = 0; i < 5; i++) {
        CHECK(cprof_table_track(table, 100, 0, i == 3 ? -1 : 100 + i, text_in(table, tids[i]), &track) == CPROF_OK);
        table->tracks[track].thread_name = i == 0 ? text_in(table, "main (2)") : i == 1 ? text_in(table, "work\ner") : 0;
        table->tracks[track].thread_sort = i;
        table->tracks[track].process_name = text_in(table, "python");
    }
    CHECK(cprof_table_set_fact(table, cprof_name_of("schemaVersion"), cprof_name_of("1")) == CPROF_OK);
    CHECK(cprof_table_set_fact(table, cprof_name_of("deviceProperties"), cprof_name_of("[{\"id\": 0}]")) == CPROF_OK);
    CHECK(cprof_table_set_fact(table, cprof_name_of("text"), cprof_name_of("\"\\u00e9\"")) == CPROF_OK);
    CHECK(cprof_table_set_fact(
              table, cprof_name_of("cprofiling"),
              cprof_name_of("{\"sources\": {\"a\": \"f.py:1\", \"b\\\"\\\\\\n\\u0001\": \"\\u00e9.py:2\"}}")) == CPROF_OK);
    table->dropped = 3;
    uint64_t last_span = 0;
    for (int i = 0; i < ROWS; i++) {
        cprof_row row = random_row(table, &state);
        row.parent_span = below(&state, 3) == 0 ? last_span : 0;
        last_span = row.span;
        CHECK(cprof_table_add(table, &row) == CPROF_OK);
    }
    cprof_flow flow = {1790857026000000001, UINT64_MAX, 1, text_in(table, "n"), text_in(table, "c"), 's', false};
    CHECK(cprof_table_add_flow(table, &flow) == CPROF_OK);
    flow = (cprof_flow){1790857026000000002, 0, 2, text_in(table, "n"), text_in(table, "c"), 'f', true};
    CHECK(cprof_table_add_flow(table, &flow) == CPROF_OK);
    return table;
}

static bool is_text_column(const char *name)
{
    static const char *const names[] = {"name", "cat", "stage", "shapes", "types", "stack"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int64_t item_of(const cprof_table *table, cprof_column_number number, size_t row)
{
    cprof_column column = cprof_table_column(table, number);
    uint64_t item = 0;
    if (column.items == NULL) {
        return column.none;
    }
    memcpy(&item, (const char *)column.items + row * column.item_size, column.item_size);
    return column.format == 'i' ? (int32_t)item : (int64_t)item;
}

/* Tracks by what they are called; texts by what they say. */
static bool is_same_track(const cprof_table *a, const cprof_table *b, uint32_t in_a, uint32_t in_b)
{
    const cprof_track *x = &a->tracks[in_a];
    const cprof_track *y = &b->tracks[in_b];
    return x->pid == y->pid && x->tid == y->tid && x->lanes == y->lanes &&
           cprof_name_compare(cprof_table_string(a, x->tid_text), cprof_table_string(b, y->tid_text)) == 0;
}

static void check_same_item(const cprof_table *a, const cprof_table *b, cprof_column_number number, size_t row)
{
    const char *name = cprof_table_column(a, number).name;
    int64_t x = item_of(a, number, row);
    int64_t y = item_of(b, number, row);
    if (strcmp(name, "track") == 0) {
        CHECK(is_same_track(a, b, (uint32_t)x, (uint32_t)y));
    } else if (is_text_column(name)) {
        CHECK(cprof_name_compare(cprof_table_string(a, (cprof_text)x), cprof_table_string(b, (cprof_text)y)) == 0);
    } else if (x != y) {
        (void)fprintf(stderr, "%s of row %zu\n", name, row);
        CHECK_EQUAL(y, x);
    }
}

/* The times that can be loaded can be written, however far apart. */
TEST(times_far_apart)
{
    static const char *const texts[] = {
        "[{\"ph\":\"i\",\"ts\":-2305843009213693.952},{\"ph\":\"X\",\"ts\":2305843009213693,\"dur\":0.952}]",
        "[{\"ph\":\"X\",\"ts\":-9223372036854775.808,\"dur\":4611686018427387.904}]",
        "[{\"ph\":\"s\",\"id\":1,\"ts\":4611686018427387.904},{\"ph\":\"X\",\"ts\":4611686018427388,\"dur\":4611686018427386."
        "807}]",
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        cprof_chrome_read_report report;
        sink out = {.bytes = NULL};
        cprof_table *table = load(cprof_name_of(texts[i]), &report);
        CHECK(cprof_table_finish(table) == CPROF_OK);
        CHECK(cprof_chrome_write(table, sink_write, &out) == CPROF_OK);
        cprof_table *loaded = load((cprof_name){out.bytes, out.length}, &report);
        CHECK(cprof_table_finish(loaded) == CPROF_OK);
        CHECK_EQUAL(loaded->count, table->count);
        for (size_t row = 0; row < table->count; row++) {
            CHECK(loaded->start_ns[row] == table->start_ns[row] && loaded->end_ns[row] == table->end_ns[row]);
        }
        free(out.bytes);
    }
}

/* The dropped events of several files add up. */
TEST(dropped_events_of_two_files)
{
    cprof_chrome_read_report report;
    sink out = {.bytes = NULL};
    cprof_table *table = load(cprof_name_of("{\"traceEvents\":[" EVENT "],\"droppedEvents\":5,\"a\":1}"), &report);
    CHECK(load_into(table, cprof_name_of("{\"droppedEvents\":7,\"traceEvents\":[]}"), &report) == CPROF_OK);
    CHECK_EQUAL(report.dropped, 7);
    CHECK_EQUAL(table->dropped, 12);
    CHECK(cprof_table_finish(table) == CPROF_OK);
    CHECK(cprof_chrome_write(table, sink_write, &out) == CPROF_OK);
    cprof_table *loaded = load((cprof_name){out.bytes, out.length}, &report);
    CHECK_EQUAL(loaded->dropped, 12);
    CHECK(is_fact(loaded, "droppedEvents", "12"));
    free(out.bytes);
}

/* Events whose source is not what the facts say keep their args. */
TEST(sources_beside_facts)
{
#define NODE(name, source)                                                                        \
    "{\"ph\":\"X\",\"ts\":1,\"name\":\"" name "\",\"args\":{\"kind\":\"node\",\"source\":" source \
    ",\"span_id\":\"00000000000000ff\"}}"
    static const char begin[] = "{\"cprofiling\":{\"sources\":{\"a\":\"f.py:1\",\"b\":\"f.py:2\"}},\"traceEvents\":[";
    static const struct {
        const char *text;
        bool is_kept;
    } events[] = {
        {NODE("a", "\"f.py:1\""), false}, {NODE("b", "\"f.py:2\""), false}, {NODE("a", "\"f.py:2\""), true},
        {NODE("c", "\"f.py:1\""), true},  {NODE("a", "1"), true},           {NODE("a", "null"), true},
    };
    for (size_t i = 0; i < COUNT_OF(events); i++) {
        char text[400];
        cprof_chrome_read_report report;
        sink out = {.bytes = NULL};
        (void)snprintf(text, sizeof text, "%s%s]}", begin, events[i].text);
        cprof_table *table = load(cprof_name_of(text), &report);
        CHECK(cprof_table_finish(table) == CPROF_OK);
        CHECK((table->args_length != NULL) == events[i].is_kept);
        CHECK(cprof_chrome_write(table, sink_write, &out) == CPROF_OK);
        CHECK(strstr(out.bytes, strstr(events[i].text, "\"args\"")) != NULL);
        free(out.bytes);
    }
}

/* What was written and loaded is what it was, and written again, it is the same file. */
TEST(own_traces)
{
    uint64_t lanes = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        cprof_chrome_read_report report;
        sink first = {.bytes = NULL};
        sink second = {.bytes = NULL};
        cprof_table *table = random_table(seed);
        CHECK(cprof_table_finish(table) == CPROF_OK);
        CHECK(cprof_chrome_write(table, sink_write, &first) == CPROF_OK);
        cprof_table *loaded = load((cprof_name){first.bytes, first.length}, &report);
        CHECK(cprof_table_finish(loaded) == CPROF_OK);
        CHECK_EQUAL(loaded->count, table->count);
        for (size_t row = 0; row < table->count; row++) {
            for (int column = 0; column < CPROF_COLUMN_COUNT; column++) {
                check_same_item(table, loaded, (cprof_column_number)column, row);
            }
        }
        CHECK_EQUAL(loaded->dropped, 3);
        CHECK(cprof_chrome_write(loaded, sink_write, &second) == CPROF_OK);
        CHECK(second.length == first.length && memcmp(second.bytes, first.bytes, first.length) == 0);
        for (size_t i = 0; i < table->track_count; i++) {
            lanes += table->tracks[i].lanes;
        }
        free(first.bytes);
        free(second.bytes);
    }
    CHECK(lanes > 100);
}

FAKE_ALLOC_MAIN(NULL, drop_tables)
