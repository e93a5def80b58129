/* chrome_write.h */
#include "cprofiling/files/chrome_write.h"

#include "tests/core/stream.h"
#include "tests/core/tables.h"

#include <string.h>

/* In expected texts ' stands for the quote. */
#define HEAD(base) "{\n'schemaVersion':1,\n'baseTimeNanoseconds':" base ",\n'displayTimeUnit':'ms',\n'traceEvents':["
#define TAIL "\n]}\n"

/* Finishes a table, writes and frees it; the text is the caller's. */
static char *written(void)
{
    sink to = {.bytes = NULL};
    CHECK(cprof_table_finish(table) == CPROF_OK);
    CHECK(cprof_chrome_write(table, sink_write, &to) == CPROF_OK);
    CHECK(to.bytes != NULL && strlen(to.bytes) == to.length);
    return to.bytes;
}

static const char *quoted(const char *expected)
{
    static char text[4096];
    size_t i = 0;
    do {
        CHECK(i < sizeof text);
        text[i] = (char)(expected[i] == '\'' ? '"' : expected[i]);
    } while (expected[i++] != '\0');
    return text;
}

static void check_same(const char *text, const char *expected)
{
    if (strcmp(text, quoted(expected)) != 0) {
        (void)fprintf(stderr, "written:\n%s\nexpected:\n%s\n", text, quoted(expected));
        CHECK(strcmp(text, quoted(expected)) == 0);
    }
}

static void check_contains(const char *text, const char *part)
{
    if (strstr(text, quoted(part)) == NULL) {
        (void)fprintf(stderr, "there is no %s in\n%s\n", quoted(part), text);
        CHECK(strstr(text, quoted(part)) != NULL);
    }
}

static void check_written(const char *expected)
{
    char *text = written();
    check_same(text, expected);
    free(text);
}

/* The text contains each of `parts`, up to NULL. */
static void check_parts(const char *const *parts)
{
    char *text = written();
    for (size_t i = 0; parts[i] != NULL; i++) {
        check_contains(text, parts[i]);
    }
    free(text);
}

#define CHECK_PARTS(...) check_parts((const char *const[]){__VA_ARGS__, NULL})

static void set_fact(const char *key, const char *value)
{
    CHECK(cprof_table_set_fact(table, cprof_name_of(key), cprof_name_of(value)) == CPROF_OK);
}

/* A row of process 1, thread 2. */
static cprof_row row_of(cprof_kind kind, const char *cat, const char *name, cprof_ns start_ns, cprof_ns end_ns)
{
    cprof_row row = cprof_row_none;
    row.kind = (uint8_t)kind;
    row.cat = text_of(cat);
    row.name = text_of(name);
    row.start_ns = start_ns;
    row.end_ns = end_ns;
    row.track = track_of(1, 2);
    return row;
}

static void keep_args(cprof_row *row, const char *args)
{
    CHECK(cprof_table_keep(table, cprof_name_of(args), &row->args_at) == CPROF_OK);
    row->args_length = (uint32_t)strlen(args);
}

TEST(an_empty_table)
{
    check_written(HEAD("0") TAIL);
}

TEST(a_node)
{
    cprof_row row = row_of(CPROF_KIND_NODE, "node", "forward", 1700000000000000000, 1700000000000001500);
    row.stage = text_of("train");
    row.trace_low = 0xabc;
    row.span = 0x123456789abcdef0;
    row.parent_span = 5;
    add(&row);
    check_written(HEAD("1699488000000000000") "\n{'ph':'X','cat':'node','name':'forward','pid':1,'tid':2,"
                                              "'ts':512000000000.000,'dur':1.500,'args':{'kind':'node','stage':'train',"
                                              "'trace_id':'00000000000000000000000000000abc','span_id':'123456789abcdef0',"
                                              "'parent_span_id':'0000000000000005'}}" TAIL);
}

#define EVENT(cat, name) "\n{'ph':'X','cat':'" cat "','name':'" name "','pid':1,'tid':2,'ts':0.000,'dur':0.001"

/* All that can be known of a row. */
TEST(all_columns)
{
    cprof_row row = row_of(CPROF_KIND_DEVICE, "kernel", "gemm", 0, 1);
    row.trace_high = 1;
    row.outcome = CPROF_OUTCOME_CANCELLED;
    row.flags = CPROF_ROW_UNFINISHED | CPROF_ROW_CUT | CPROF_ROW_SUSPENDABLE;
    row.suspended_ns = 17;
    row.memory_change = -4096;
    row.memory_peak = 0;
    row.device_memory_change = 1;
    row.device_memory_peak = 2;
    row.external_id = 0;
    row.correlation = 0;
    row.device = 0;
    row.stream = 7;
    row.bytes = 0;
    row.shapes = text_of("[[2, 3], []]");
    row.types = text_of("[\"float\", \"caf\xc3\xa9\"]");
    row.stack = text_of("a.py(1): f\nb.py(2): \"g\"\n");
    add(&row);
    check_written(HEAD("0") EVENT(
        "kernel",
        "gemm") ",'args':{'kind':'device','trace_id':'00000000000000010000000000000000',"
                "'outcome':'cancelled','unfinished':true,'cut':true,'suspendable':true,'suspended_ns':17,"
                "'memory_change':-4096,'memory_peak':0,'device_memory_change':1,'device_memory_peak':2,'External id':0,"
                "'correlation':0,'device':0,'stream':7,'bytes':0,'Input Dims':[[2, 3], []],"
                "'Input type':['float', 'caf\xc3\xa9'],'Call stack':'a.py(1): f;b.py(2): \\'g\\';'}}" TAIL);
}

TEST(an_error)
{
    cprof_row row = row_of(CPROF_KIND_HOST, "c", "n", 0, 1);
    row.outcome = CPROF_OUTCOME_ERROR;
    add(&row);
    check_written(HEAD("0") EVENT("c", "n") ",'args':{'outcome':'error'}}" TAIL);
}

/* Columns exist for the sake of one row: the others say nothing of what they do not have. */
TEST(rows_of_which_little_is_known)
{
    cprof_row row = row_of(CPROF_KIND_HOST, "cpu_op", "a", 0, 1);
    add(&row);
    row.outcome = CPROF_OUTCOME_ERROR;
    row.flags = CPROF_ROW_CUT;
    row.stage = row.shapes = row.types = row.stack = text_of("[]");
    row.span = row.parent_span = row.trace_low = row.trace_high = 1;
    row.memory_change = row.memory_peak = row.device_memory_change = row.device_memory_peak = row.bytes = 1;
    row.external_id = row.correlation = row.stream = row.device = 1;
    row.suspended_ns = 1;
    row.start_ns = row.end_ns = 1;
    row.kind = CPROF_KIND_NODE;
    keep_args(&row, "{}");
    add(&row);
    check_written(HEAD("0") EVENT("cpu_op", "a") "},\n{'ph':'X','cat':'cpu_op','name':'a','pid':1,'tid':2,'ts':0.001,"
                                                 "'dur':0.000,'args':{}}" TAIL);
}

TEST(kinds)
{
    cprof_row step = row_of(CPROF_KIND_STEP, "user_annotation", "ProfilerStep#1", 0, 1);
    cprof_row record = row_of(CPROF_KIND_RECORD, "record", "epoch", 0, 1);
    cprof_row mark = row_of(CPROF_KIND_INSTANT, "mark", "here", 0, 0);
    cprof_row counter = row_of(CPROF_KIND_COUNTER, "", "memory", 0, 0);
    keep_args(&counter, "{\"bytes\":5}");
    add(&step);
    add(&record);
    add(&mark);
    add(&counter);
    check_written(HEAD("0") EVENT("user_annotation", "ProfilerStep#1") ",'args':{'kind':'step'}}," EVENT(
        "record", "epoch") ",'args':{'kind':'record'}},"
                           "\n{'ph':'i','cat':'mark','name':'here','pid':1,'tid':2,'ts':0.000,'s':'t'},"
                           "\n{'ph':'C','cat':'','name':'memory','pid':1,'tid':2,'ts':0.000,'args':{'bytes':5}}" TAIL);
}

/* What was loaded is written as it was. */
TEST(loaded_args)
{
    cprof_row row = row_of(CPROF_KIND_NODE, "c", "n", 0, 1);
    row.bytes = 5;
    uint64_t unused;
    CHECK(cprof_table_keep(table, cprof_name_of("something else"), &unused) == CPROF_OK);
    keep_args(&row, "{ \"a\": [1e5, \"\\u00e9\xc3\xa9\"],\n\"bytes\": 5 }");
    add(&row);
    check_written(HEAD("0") EVENT("c", "n") ",'args':{ 'a': [1e5, '\\u00e9\xc3\xa9'],\n'bytes': 5 }}" TAIL);
}

TEST(facts)
{
    cprof_row row = row_of(CPROF_KIND_HOST, "c", "n", 1000, 2500);
    add(&row);
    set_fact("displayTimeUnit", "\"ns\"");
    set_fact("traceEvents", "[1]");
    set_fact("tracingEvents", "[2]");
    set_fact("caf\xc3\xa9 \"", "{\"a\": \"\xe2\x82\xac\"}");
    set_fact("baseTimeNanoseconds", "0500");
    set_fact("schemaVersion", "2");
    table->dropped = 12;
    check_written("{\n'baseTimeNanoseconds':500,\n'droppedEvents':12,\n'displayTimeUnit':'ns',\n'tracingEvents':[2],\n"
                  "'caf\xc3\xa9 \\'':{'a': '\xe2\x82\xac'},\n'schemaVersion':2,\n'traceEvents':["
                  "\n{'ph':'X','cat':'c','name':'n','pid':1,'tid':2,'ts':0.500,'dur':1.500}" TAIL);
}

/* Of a node, as the facts have it by its name; each JSON of the fact is one that they may have. */
TEST(sources)
{
    static const char *const facts[] = {
        ("{\"a\": [{\"sources\": 1}], \"sources\": {\"n\": \"g.py:1\", \"\": \"e.py:2\", \"m\": 5, "
         "\"\\u00e9\\\"\": \"\\\"\u00e9.py:3\", \"n\":\"f.py:1\"}}"),
        "{\"sources\":{\"n\":\"f.py:1\",\"\":\"e.py:2\",\"\xc3\xa9\\\"\":\"\\\"\u00e9.py:3\",\"m\":",
        "{\"sources\":[\"n\"]}",
        "[\"sources\"]",
        "{\"sources\"",
        "{",
        "",
    };
    static const char *const names[] = {"n", "m", "", "\xc3\xa9\"", "other"};
    static const char *const places[] = {"f.py:1", "", "e.py:2", "\\\"\u00e9.py:3", ""};
    for (size_t i = 0; i < COUNT_OF(facts); i++) {
        sink to = {.bytes = NULL};
        set_up();
        for (size_t k = 0; k < COUNT_OF(names); k++) {
            cprof_row row = row_of(CPROF_KIND_NODE, "c", names[k], (cprof_ns)k, (cprof_ns)k);
            row.span = 1;
            add(&row);
            row.kind = CPROF_KIND_RECORD;
            add(&row);
        }
        finish();
        set_fact("cprofiling", facts[i]);
        CHECK(cprof_chrome_write_events(table, 0, true, sink_write, &to) == CPROF_OK);
        const char *at = to.bytes;
        for (size_t k = 0; k < COUNT_OF(names); k++) {
            char expected[100];
            bool has_place = places[k][0] != '\0' && i < 2;
            (void)snprintf(expected, sizeof expected, "{\"kind\":\"node\",%s%s%s\"span_id\"", has_place ? "\"source\":\"" : "",
                           has_place ? places[k] : "", has_place ? "\"," : "");
            at = strstr(at, expected);
            CHECK(at != NULL);
            at = strstr(at, "{\"kind\":\"record\",\"span_id\"");
            CHECK(at != NULL);
        }
        free(to.bytes);
    }
}

/* `fact` may be NULL: the base is not set. */
static void check_base(cprof_ns start_ns, const char *fact, const char *base, const char *ts)
{
    char expected[100];
    set_up();
    cprof_row row = row_of(CPROF_KIND_HOST, "c", "n", start_ns, start_ns);
    add(&row);
    if (fact != NULL) {
        set_fact("baseTimeNanoseconds", fact);
    }
    set_fact("droppedEvents", "1");
    table->dropped = 2;
    char *text = written();
    (void)snprintf(expected, sizeof expected, "'ts':%s,'dur'", ts);
    check_contains(text, expected);
    (void)snprintf(expected, sizeof expected, "\n'baseTimeNanoseconds':%s,\n", base);
    check_contains(text, expected);
    CHECK(strstr(strstr(text, "baseTime") + 1, "baseTime") == NULL);
    CHECK(strstr(text, "\"droppedEvents\":2,") != NULL && strstr(text, "\"droppedEvents\":1") == NULL);
    free(text);
}

#define WEEK "604800000000000"
#define KINETO "1790857026000000000" /* a base of Kineto's, and the last ns for which another one would be its own */
#define KINETO_LAST INT64_C(1798746263999999999)

/* A base that was set stays. */
TEST(base_times)
{
    check_base(1000, "0", "0", "1.000");
    check_base(1000, "1000", "1000", "0.000");
    check_base(1000, "-1000", "-1000", "2.000");
    check_base(KINETO_LAST, KINETO, KINETO, "7889237999999.999");
    check_base(INT64_C(8796093022208000), "0", "0", "8796093022208.000");
    check_base(-5, "-9", "-9", "0.004");
}

/* Where it would be after the beginning, or so long before that microseconds are no longer exact, there is another. */
TEST(bases_that_do_not_fit)
{
    check_base(1000, "1001", "0", "1.000");
    check_base(1000, "9223372036854775807", "0", "1.000");
    check_base(1000, "-9223372036854775808", "0", "1.000");
    check_base(INT64_C(8796093022208001), "0", "8467200000000000", "328893022208.001");
    check_base(INT64_MAX, "-9223372036854775808", "9223200000000000000", "172036854775.807");
}

/* Without a base that is an integer of 64 bits it is the beginning of the week. */
TEST(bases_by_the_week)
{
    static const char *const wrong[] = {
        "9223372036854775808", "-9223372036854775809", "99999999999999999999999", "", "-", "1e3", "null", "-/", NULL};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        check_base(1700000000000001000, wrong[i], "1699488000000000000", "512000000001.000");
    }
    check_base(0, NULL, "0", "0.000");
    check_base(INT64_C(604799999999999), NULL, "0", "604799999999.999");
    check_base(INT64_C(604800000000000), NULL, WEEK, "0.000");
    check_base(-1, NULL, "-" WEEK, "604799999999.999");
    check_base(INT64_C(-604800000000000), NULL, "-" WEEK, "0.000");
    check_base(INT64_MIN, NULL, "-9223372036854775808", "0.000");
    check_base(INT64_MIN + 5, NULL, "-9223372036854775808", "0.005");
    check_base(INT64_MAX, NULL, "9223200000000000000", "172036854775.807");
}

/* Two arrows; the second one begins before the first. */
static void check_base_of_arrows(cprof_ns first_ns, const char *fact, const char *base)
{
    cprof_flow flow = {.at_ns = first_ns + 1, .track = track_of(1, 2), .phase = 's'};
    CHECK(cprof_table_add_flow(table, &flow) == CPROF_OK);
    flow.at_ns = first_ns;
    CHECK(cprof_table_add_flow(table, &flow) == CPROF_OK);
    set_fact("baseTimeNanoseconds", fact);
    CHECK_PARTS(base);
}

/* Arrows may begin before all rows, or be without any. */
TEST(bases_of_arrows)
{
    static const cprof_ns starts_ns[] = {1000, 999};
    static const char *const bases[] = {"\n'baseTimeNanoseconds':1000,", "\n'baseTimeNanoseconds':0,"};
    for (int i = 0; i < 2; i++) {
        set_up();
        cprof_row row = row_of(CPROF_KIND_HOST, "c", "n", 1000, 1000);
        add(&row);
        check_base_of_arrows(starts_ns[i], "1000", bases[i]);
        set_up();
        check_base_of_arrows(starts_ns[i], "1000", bases[i]);
    }
}

TEST(names_of_tracks)
{
    uint32_t first = track_of(10, 11);
    uint32_t second = track_of(10, 12);
    uint32_t other = track_of(20, 21);
    cprof_track *tracks = table->tracks;
    tracks[second].process_name = text_of("trainer \"1\"");
    tracks[second].process_labels = text_of("CPU");
    tracks[second].process_sort = -1;
    tracks[first].thread_name = text_of("main");
    tracks[second].thread_sort = 5;
    tracks[other].thread_name = text_of("worker");
    check_written(HEAD("0") "\n{'ph':'M','name':'process_name','pid':10,'tid':11,'args':{'name':'trainer \\'1\\''}}"
                            ",\n{'ph':'M','name':'process_labels','pid':10,'tid':11,'args':{'labels':'CPU'}}"
                            ",\n{'ph':'M','name':'process_sort_index','pid':10,'tid':11,'args':{'sort_index':-1}}"
                            ",\n{'ph':'M','name':'thread_name','pid':10,'tid':11,'args':{'name':'main'}}"
                            ",\n{'ph':'M','name':'thread_sort_index','pid':10,'tid':12,'args':{'sort_index':5}}"
                            ",\n{'ph':'M','name':'thread_name','pid':20,'tid':21,'args':{'name':'worker'}}" TAIL);
}

/* Processes and threads that are named by texts. */
TEST(tracks_with_texts)
{
    cprof_row row = row_of(CPROF_KIND_HOST, "c", "n", 0, 1);
    CHECK(cprof_table_track(table, 0, text_of("Spans"), 0, text_of("a\nthread"), &row.track) == CPROF_OK);
    add(&row);
    add(&row);
    char *text = written();
    static const char expected[] = "\"name\":\"n\",\"pid\":\"Spans\",\"tid\":\"a\\nthread\",\"ts\"";
    const char *found = strstr(text, expected);
    CHECK(found != NULL && strstr(found + 1, expected) != NULL);
    free(text);
}

/* Three rows that overlap on a track; lanes 0 to 2. */
static void add_overlapping(uint32_t track)
{
    for (int i = 0; i < 3; i++) {
        cprof_row row = row_of(CPROF_KIND_NODE, "c", "n", i, i + 10);
        row.span = (uint64_t)track * 3 + (uint64_t)i + 1;
        row.track = track;
        add(&row);
    }
}

TEST(lanes)
{
    uint32_t named = track_of(1, 5);
    uint32_t unnamed = track_of(1, INT64_MAX);
    uint32_t text_track;
    CHECK(cprof_table_track(table, 1, 0, 0, text_of("io"), &text_track) == CPROF_OK);
    table->tracks[named].thread_name = text_of("main");
    table->tracks[named].thread_sort = 9;
    add_overlapping(named);
    add_overlapping(unnamed);
    add_overlapping(text_track);
    char *text = written();
    check_contains(text, "'name':'thread_name','pid':1,'tid':5,'args':{'name':'main'}}");
    check_contains(text, "'name':'thread_name','pid':1,'tid':4194309,'args':{'name':'main (2)'}}");
    check_contains(text, "'name':'thread_name','pid':1,'tid':8388613,'args':{'name':'main (3)'}}");
    check_contains(text, "'name':'thread_sort_index','pid':1,'tid':8388613,'args':{'sort_index':9}}");
    check_contains(text, "'tid':-9223372036850581505,'args':{'name':'Thread 9223372036854775807 (2)'}}");
    check_contains(text, "'tid':'io (3)','args':{'name':'io (3)'}}");
    check_contains(text, "'pid':1,'tid':5,'ts':0.000,");
    check_contains(text, "'pid':1,'tid':4194309,'ts':0.001,");
    check_contains(text, "'pid':1,'tid':8388613,'ts':0.002,");
    check_contains(text, "'pid':1,'tid':'io','ts':0.000,");
    check_contains(text, "'pid':1,'tid':'io (3)','ts':0.002,");
    CHECK(strstr(text, "\"io\"}}") == NULL); /* the first lane has a name only where the thread has one */
    free(text);
}

TEST(flows)
{
    cprof_row row = row_of(CPROF_KIND_DEVICE, "kernel", "k", 0, 1);
    row.correlation = 5;
    add(&row);
    cprof_flow flow = {.at_ns = 1500, .id = UINT64_MAX, .track = 0, .name = text_of("fwdbwd"), .phase = 's'};
    CHECK(cprof_table_add_flow(table, &flow) == CPROF_OK);
    flow.phase = 'f';
    flow.binds_enclosing = true;
    flow.cat = text_of("ac2g");
    CHECK(cprof_table_add_flow(table, &flow) == CPROF_OK);
    CHECK_PARTS("}},\n{'ph':'s','cat':'','name':'fwdbwd','id':18446744073709551615,'pid':1,'tid':2,"
                "'ts':1.500},\n{'ph':'f','cat':'ac2g','name':'fwdbwd','id':18446744073709551615,"
                "'pid':1,'tid':2,'ts':1.500,'bp':'e'}" TAIL);
}

/* Ends of arrows that loaded traces have are in the lane of the row that begins there. */
TEST(flows_of_lanes)
{
    uint32_t other = track_of(1, 9);
    uint32_t track = track_of(1, 5);
    add_overlapping(track);
    cprof_row row = row_of(CPROF_KIND_HOST, "c", "n", 2, 2);
    row.track = other;
    add(&row);
    for (cprof_ns at_ns = 0; at_ns < 5; at_ns++) {
        cprof_flow flow = {.at_ns = at_ns, .id = 1, .track = at_ns == 4 ? other : track, .phase = 't'};
        CHECK(cprof_table_add_flow(table, &flow) == CPROF_OK);
    }
    CHECK_PARTS("'ph':'t','cat':'','name':'','id':1,'pid':1,'tid':5,'ts':0.000}", "'id':1,'pid':1,'tid':4194309,'ts':0.001}",
                "'id':1,'pid':1,'tid':8388613,'ts':0.002}", "'id':1,'pid':1,'tid':5,'ts':0.003}",
                "'id':1,'pid':1,'tid':9,'ts':0.004}");
}

/* Among very many that begin at once, it is not looked for to the end. */
TEST(flows_of_lanes_among_many)
{
    enum { MANY = 100 };
    add_overlapping(track_of(1, 5));
    cprof_row row = row_of(CPROF_KIND_HOST, "c", "n", 1, 1000);
    row.track = track_of(1, 9);
    for (int i = 0; i < MANY; i++) {
        add(&row);
    }
    cprof_flow flow = {.at_ns = 1, .track = track_of(1, 5), .phase = 't'};
    CHECK(cprof_table_add_flow(table, &flow) == CPROF_OK);
    CHECK_PARTS("'id':0,'pid':1,'tid':5,'ts':0.001}");
}

static void add_correlated(cprof_kind kind, const char *cat, int64_t correlation, int64_t tid)
{
    cprof_row row = row_of(kind, cat, "n", 1000 * correlation, 1000 * correlation);
    row.correlation = correlation;
    row.track = track_of(1, tid);
    add(&row);
}

#define ARROW(phase, id, tid, ts) \
    ",\n{'ph':'" phase "','cat':'ac2g','name':'ac2g','id':" id ",'pid':1,'tid':" tid ",'ts':" ts ".000,'bp':'e'}"

/* From each call that starts something to what it started. */
TEST(arrows_of_correlations)
{
    set_fact("baseTimeNanoseconds", "0");
    add_correlated(CPROF_KIND_HOST, "cuda_runtime", 1, 5);
    add_correlated(CPROF_KIND_DEVICE, "kernel", 2, 7);
    add_correlated(CPROF_KIND_HOST, "cuda_driver", 3, 5);
    add_correlated(CPROF_KIND_HOST, "cpu_op", 4, 5);
    add_correlated(CPROF_KIND_DEVICE, "gpu_memcpy", 5, 8);
    add_correlated(CPROF_KIND_HOST, "hip_runtime", 6, 5);
    add_correlated(CPROF_KIND_HOST, "runtime", 7, 5);
    add_correlated(CPROF_KIND_NODE, "cuda_runtime", 8, 5);
    add_correlated(CPROF_KIND_HOST, "cuda_runtime", 0, 5);
    add_correlated(CPROF_KIND_DEVICE, "kernel", 0, 7);
    CHECK_PARTS("}}" ARROW("s", "1", "5", "1") ARROW("f", "2", "7", "2") ARROW("s", "3", "5", "3") ARROW("f", "5", "8", "5")
                    ARROW("s", "6", "5", "6") TAIL);
}

/* Rows of one track, each within the one before it, and of its correlation. */
TEST(arrows_of_calls_within_calls)
{
    static const struct {
        const char *cat;
        int64_t correlation;
    } rows[] = {{"cpu_op", 1}, {"cuda_runtime", 1}, {"cuda_driver", 1}, {"cuda_driver", 2}, {"x", 2}, {"cuda_driver", 2}};
    enum { ROWS = COUNT_OF(rows) };
    set_fact("baseTimeNanoseconds", "0");
    for (int i = 0; i < ROWS; i++) {
        cprof_row row = row_of(CPROF_KIND_HOST, rows[i].cat, "n", 1000 * i, 1000 * (2 * ROWS - i));
        row.correlation = rows[i].correlation;
        add(&row);
    }
    CHECK_PARTS(ARROW("s", "1", "2", "1") ARROW("s", "2", "2", "3") ARROW("s", "2", "2", "5") TAIL);
}

enum { MANY_ROWS = 20000, MANY_NAMES = 3000, MANY_THREADS = 150, LONGEST_ROW = 400 };

/* Row i of many: more texts and places than are remembered, and texts that are too long for that. */
static void add_one_of_many(int i)
{
    static const char long_cat[] = "a category that is longer than what is remembered of a text, by some characters";
    char name[LONGEST_ROW], cat[LONGEST_ROW];
    (void)snprintf(name, sizeof name, "%s%d", i % 3 == 0 ? "\"quoted\"" : "node", i % MANY_NAMES);
    (void)snprintf(cat, sizeof cat, "%.*s", i % 79, long_cat);
    cprof_row row = row_of(CPROF_KIND_HOST, cat, name, (cprof_ns)i * 777, (cprof_ns)i * 778);
    row.track = track_of(i % MANY_THREADS, i % MANY_THREADS + 1);
    row.bytes = i;
    add(&row);
}

/* The same by printf. */
static void check_one_of_many(const char *line, int i)
{
    char expected[LONGEST_ROW];
    cprof_name cat = cprof_table_string(table, table->cat[i]);
    (void)snprintf(expected, sizeof expected,
                   "{'ph':'X','cat':'%.*s','name':'%s%d','pid':%d,'tid':%d,'ts':%d.%03d,'dur':%d.%03d,"
                   "'args':{'bytes':%d}}%s",
                   (int)cat.length, cat.bytes, i % 3 == 0 ? "\\'quoted\\'" : "node", i % MANY_NAMES, i % MANY_THREADS,
                   i % MANY_THREADS + 1, i * 777 / 1000, i * 777 % 1000, i / 1000, i % 1000, i, i < MANY_ROWS - 1 ? "," : "");
    check_same(line, expected);
}

TEST(many_rows)
{
    sink to = {.bytes = NULL};
    for (int i = 0; i < MANY_ROWS; i++) {
        add_one_of_many(i);
    }
    CHECK(cprof_table_finish(table) == CPROF_OK);
    CHECK(cprof_chrome_write(table, sink_write, &to) == CPROF_OK);
    CHECK(to.pieces > 10 && to.pieces < 2 + to.length / (CPROF_JSON_WRITE_BUFFER / 2));
    char *at = to.bytes + strlen(HEAD("0")) + 1;
    for (int i = 0; i < MANY_ROWS; i++) {
        char *end = strchr(at, '\n');
        CHECK(end != NULL);
        *end = '\0';
        check_one_of_many(at, i);
        at = end + 1;
    }
    check_same(at, "]}\n");
    free(to.bytes);
}

/* F3: names of a megabyte of escapes. */
TEST(long_names)
{
    enum { LONG = 1000000 };
    char *name = malloc(LONG), *args = malloc(LONG);
    CHECK(name != NULL && args != NULL);
    memset(name, '\x01', LONG);
    memset(args, ' ', LONG);
    args[0] = '{';
    args[LONG - 1] = '}';
    cprof_row row = row_of(CPROF_KIND_HOST, "c", "n", 0, 1);
    cprof_text text;
    CHECK(cprof_table_text(table, (cprof_name){name, LONG}, &text) == CPROF_OK);
    row.name = row.cat = row.stage = text;
    add(&row);
    row.start_ns = 1;
    CHECK(cprof_table_keep(table, (cprof_name){args, LONG}, &row.args_at) == CPROF_OK);
    row.args_length = LONG;
    add(&row);
    char *written_text = written();
    CHECK_EQUAL(strlen(written_text) / LONG, 31); /* five times a name, once the args */
    free(written_text);
    free(name);
    free(args);
}

/* The first refusal ends it. */
TEST(refusals)
{
    for (int i = 0; i < MANY_ROWS; i++) {
        add_one_of_many(i);
    }
    for (size_t i = 0; i < 5000; i++) {
        cprof_flow flow = {.id = i, .phase = 's'};
        CHECK(cprof_table_add_flow(table, &flow) == CPROF_OK);
    }
    CHECK(cprof_table_finish(table) == CPROF_OK);
    sink all = {.bytes = NULL};
    CHECK(cprof_chrome_write(table, sink_write, &all) == CPROF_OK);
    for (size_t i = 1; i <= all.pieces; i++) {
        sink to = {.fails_at = i};
        CHECK(cprof_chrome_write(table, sink_write, &to) == CPROF_BUSY);
        CHECK_EQUAL(to.pieces, i);
        CHECK(to.length == 0 || memcmp(to.bytes, all.bytes, to.length) == 0);
        free(to.bytes);
    }
    free(all.bytes);
}

/* G7 */
TEST(without_memory)
{
    sink to = {.bytes = NULL};
    CHECK(cprof_table_finish(table) == CPROF_OK);
    fake_alloc_fail(1);
    CHECK(cprof_chrome_write(table, sink_write, &to) == CPROF_NO_MEMORY);
    fake_alloc_fail(1);
    CHECK(cprof_chrome_write_events(table, 0, true, sink_write, &to) == CPROF_NO_MEMORY);
    CHECK(fake_alloc_has_failed());
    CHECK_EQUAL(to.pieces, 0);
    uint64_t made = fake_alloc_made();
    CHECK(cprof_chrome_write(table, sink_write, &to) == CPROF_OK);
    CHECK_EQUAL(fake_alloc_made(), made + 1);
    set_fact("cprofiling", "{\"sources\":{\"n\":\"f.py:1\"}}");
    size_t length = to.length;
    for (uint64_t nth = 0; fake_alloc_fail_next(&nth);) {
        cprof_status status = cprof_chrome_write(table, sink_write, &to);
        CHECK(status == (fake_alloc_has_failed() ? CPROF_NO_MEMORY : CPROF_OK));
        CHECK((to.length > length) == (status == CPROF_OK));
    }
    free(to.bytes);
}

FAKE_ALLOC_MAIN(set_up, tear_down)
