/* chrome_event.h, chrome_values.h: what events become, by loading files that have them. */
#include "cprofiling/nodes/accum.h"
#include "cprofiling/files/chrome_read.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"
#include "tests/core/kept_tables.h"
#include "tests/core/stream.h"

#include <string.h>

/* In this file's JSON and expected texts ' stands for the quote. */
static char quoted(char c)
{
    return (char)(c == '\'' ? '"' : c);
}

static bool is_quoted(const char *bytes, size_t length, const char *expected)
{
    bool is_same = length == strlen(expected);
    for (size_t i = 0; i < length && is_same; i++) {
        is_same = bytes[i] == quoted(expected[i]);
    }
    if (!is_same) {
        (void)fprintf(stderr, "%.*s, not %s\n", (int)length, bytes, expected);
    }
    return is_same;
}

/* Loads a list of events, without its brackets, with other ids. */
static cprof_table *load_moved(const char *events, int64_t id_offset, cprof_chrome_read_report *report)
{
    static char text[1 << 16];
    int length = snprintf(text, sizeof text, "[%s]", events);
    CHECK(length > 0 && (size_t)length < sizeof text);
    for (int i = 0; i < length; i++) {
        text[i] = quoted(text[i]);
    }
    stream f = {{text, (size_t)length}, 0, SIZE_MAX, INT32_MAX};
    cprof_table *table = new_table();
    cprof_status status = cprof_chrome_read(table, 0, id_offset, stream_read, &f, report);
    if (status != CPROF_OK) {
        (void)fprintf(stderr, "%s: %s at %" PRIu64 "\n", text, report->reason, report->bytes);
    }
    CHECK(status == CPROF_OK);
    return table;
}

static cprof_table *load(const char *events, cprof_chrome_read_report *report)
{
    return load_moved(events, 0, report);
}

/* Ids that join events move away from those of other files; ids that are random, zero or no number stay. */
TEST(moved_ids)
{
    static const struct {
        const char *args;
        const char *expected;
        int64_t correlation;
        int64_t external_id;
    } cases[] = {
        {"{'correlation': 7,'External id' :31,'x':[{'correlation':7}]}",
         "{'correlation': 1007,'External id' :1031,'x':[{'correlation':7}]}", 1007, 1031},
        {"{'external id':99.0, 'correlation':9999 }", "{'external id':1099, 'correlation':10999 }", 10999, 1099},
        {"{'correlation':0,'External id':4503599627370496}", "{'correlation':0,'External id':4503599627370496}", 0,
         INT64_C(4503599627370496)},
        {"{'External id':4503599627370495,'x':NaN}", "{'External id':4503599627371495,'x':null}", -1,
         INT64_C(4503599627371495)},
        {"{'correlation':'7','external id':-3}", "{'correlation':'7','external id':-3}", -1, -3},
        {"{'x':1}", "{'x':1}", -1, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char events[512];
        cprof_chrome_read_report report;
        for (int way = 0; way < 2; way++) { /* at once, or as the args of a beginning */
            (void)snprintf(events, sizeof events,
                           way == 0 ? "{'ph':'X','ts':1,'dur':1,'args':%s}"
                                    : "{'ph':'B','ts':1,'args':%s},{'ph':'E','ts':2,'args':{ }}",
                           cases[i].args);
            cprof_table *table = load_moved(events, 1000, &report);
            cprof_name args = {table->kept + (table->args_at != NULL ? table->args_at[0] : 0), table->args_length[0]};
            CHECK(is_quoted(args.bytes, args.length, cases[i].expected));
            CHECK_EQUAL(table->correlation != NULL ? table->correlation[0] : -1, cases[i].correlation);
            CHECK_EQUAL(table->external_id != NULL ? table->external_id[0] : -1, cases[i].external_id);
        }
    }
    cprof_chrome_read_report report;
    cprof_table *table = load_moved("{'ph':'s','id':5,'ts':1},{'ph':'f','id':'0x5','ts':1}", 1000, &report);
    CHECK_EQUAL(table->flows[0].id, 1005);
    CHECK(table->flows[1].id > (UINT64_C(1) << 52));
    CHECK_EQUAL(report.greatest_id, 1005);
    table = load_moved("{'ph':'s','id':5,'ts':1}", INT64_MAX - 1, &report); /* no room */
    CHECK_EQUAL(table->flows[0].id, 5);
}

static bool is_text(const cprof_table *table, cprof_text text, const char *expected)
{
    cprof_name string = cprof_table_string(table, text);
    return is_quoted(string.bytes, string.length, expected);
}

static cprof_text text_at(const uint32_t *column, size_t row)
{
    return column != NULL ? column[row] : 0;
}

/* ---- what Kineto writes ---- */

typedef struct {
    const char *event;
    cprof_kind kind;
    int device;
    int64_t stream;
    int64_t correlation;
    int64_t external_id;
    int64_t bytes;
    const char *shapes;
    const char *types;
    const char *stack;
} kineto_case;

#define NONE CPROF_TABLE_UNKNOWN

static const kineto_case kineto_cases[] = {
    /* torch 1.8 */
    {"{'ph': 'X', 'cat': 'Operator', 'name': 'aten::add', 'pid': 24, 'tid': '24', 'ts': 1621401187223005, 'dur': 5, "
     "'args': {'Device': 24, 'External id': 2, 'Trace name': 'PyTorch Profiler', 'Trace iteration': 0, "
     "'Input dims': [[1], []], 'Input type': ['float', '']}}",
     CPROF_KIND_HOST, -1, -1, -1, 2, NONE, "[[1], []]", "['float', '']", ""},
    {"{'ph': 'X', 'cat': 'Kernel', 'name': 'k', 'pid': 0, 'tid': 'stream 7', 'ts': 1, 'dur': 1, 'args': {'queued': 0, "
     "'device': 1, 'context': 1, 'stream': 7, 'correlation': 40, 'external id': 33}}",
     CPROF_KIND_DEVICE, 1, 7, 40, 33, NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'Memcpy', 'name': 'Memcpy HtoD', 'pid': 0, 'tid': 'stream 7', 'ts': 1, 'dur': 1, 'args': "
     "{'device': 0, 'stream': 7, 'correlation': 41, 'external id': 34, 'bytes': 4096, 'memory bandwidth (GB/s)': 1.5}}",
     CPROF_KIND_DEVICE, 0, 7, 41, 34, 4096, "", "", ""},
    {"{'ph': 'X', 'cat': 'Memset', 'name': 'Memset', 'pid': 0, 'tid': 'stream 7', 'ts': 1, 'dur': 1}", CPROF_KIND_DEVICE, 0, -1,
     -1, -1, NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'Runtime', 'name': 'cudaLaunchKernel', 'pid': 24, 'tid': '24', 'ts': 1, 'dur': 1, 'args': "
     "{'cbid': 211, 'correlation': 40, 'external id': 33, 'external ts': 5}}",
     CPROF_KIND_HOST, -1, -1, 40, 33, NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'Operator', 'name': 'ProfilerStep#3', 'pid': 24, 'tid': 24, 'ts': 1, 'dur': 1}", CPROF_KIND_STEP, -1,
     -1, -1, -1, NONE, "", "", ""},
    /* torch 1.13 */
    {"{'ph': 'X', 'cat': 'cpu_op', 'name': 'aten::mm', 'pid': 24, 'tid': 24, 'ts': 1661203462, 'dur': 18, 'args': "
     "{'Trace name': 'PyTorch Profiler', 'External id': 1, 'Profiler Event Index': 0, 'Input Dims': [[2, 3], [3, 2]], "
     "'Input type': ['float', 'float'], 'Module Hierarchy': '', 'Call stack': 'a.py(3): f;b.py(4): g'}}",
     CPROF_KIND_HOST, -1, -1, -1, 1, NONE, "[[2, 3], [3, 2]]", "['float', 'float']", "a.py(3): f\nb.py(4): g"},
    {"{'ph': 'X', 'cat': 'cpu_op', 'name': 'ProfilerStep#12', 'pid': 24, 'tid': 24, 'ts': 1, 'dur': 1}", CPROF_KIND_STEP, -1,
     -1, -1, -1, NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'gpu_memset', 'name': 'Memset (Device)', 'pid': 3, 'tid': 7, 'ts': 1, 'dur': 1, 'args': "
     "{'External id': 9, 'device': 3, 'context': 1, 'stream': 7, 'correlation': 11, 'bytes': 512}}",
     CPROF_KIND_DEVICE, 3, 7, 11, 9, 512, "", "", ""},
    /* torch 2.1 and later */
    {"{'ph': 'X', 'cat': 'user_annotation', 'name': 'ProfilerStep#1', 'pid': 24, 'tid': 24, 'ts': 1.5, 'dur': 1.25, 'args': "
     "{'External id': 5, 'Record function id': 0, 'Ev Idx': 36777}}",
     CPROF_KIND_STEP, -1, -1, -1, 5, NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'gpu_user_annotation', 'name': 'ProfilerStep#1', 'pid': 2, 'tid': 0, 'ts': 1, 'dur': 1, 'args': "
     "{'External id': 5}}",
     CPROF_KIND_DEVICE, 2, 0, -1, 5, NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'cuda_sync', 'name': 'Event Sync', 'pid': 0, 'tid': -1, 'ts': 1, 'dur': 4, 'args': "
     "{'External id': 2, 'wait_on_stream': -1, 'stream': -1, 'correlation': 24, 'device': 0}}",
     CPROF_KIND_DEVICE, 0, -1, 24, 2, NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'cuda_runtime', 'name': 'hipMemcpyWithStream', 'pid': 5, 'tid': 5, 'ts': 1, 'dur': 1, 'args': "
     "{'External id': 8, 'stream': '0x0', 'correlation': 117, 'size': '2560', 'kind': '1'}}",
     CPROF_KIND_HOST, -1, -1, 117, 8, NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'gpu_memcpy', 'name': 'Memcpy HtoD', 'pid': 2, 'tid': 0, 'ts': 1, 'dur': 1, 'args': "
     "{'device': 2, 'stream': 0, 'correlation': 117, 'kind': 'HtoD'}}",
     CPROF_KIND_DEVICE, 2, 0, 117, -1, NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'cuda_profiler_range', 'name': 'r', 'pid': 0, 'tid': 0, 'ts': 1, 'dur': 1}", CPROF_KIND_DEVICE, 0, 0,
     -1, -1, NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'cuda_event', 'name': 'e', 'pid': 'GPU', 'tid': 3, 'ts': 1, 'dur': 1}", CPROF_KIND_DEVICE, -1, 3, -1,
     -1, NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'kernel', 'name': 'k', 'pid': -5, 'tid': 3, 'ts': 1, 'dur': 1}", CPROF_KIND_DEVICE, -1, 3, -1, -1,
     NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'kernel', 'name': 'k', 'pid': 2147483648, 'tid': 3, 'ts': 1, 'dur': 1, 'args': {'device': "
     "2147483648}}",
     CPROF_KIND_DEVICE, -1, 3, -1, -1, NONE, "", "", ""},
    {"{'ph': 'i', 'cat': 'cpu_instant_event', 's': 't', 'name': '[memory]', 'pid': 5, 'tid': 5, 'ts': 1, 'args': "
     "{'Total Reserved': 0, 'Bytes': -128, 'Device Id': -1, 'Device Type': 0, 'Addr': 94633164912640}}",
     CPROF_KIND_INSTANT, -1, -1, -1, -1, -128, "", "", ""},
    {"{'ph': 'i', 'cat': 'cpu_instant_event', 's': 't', 'name': '[memory]', 'pid': 5, 'tid': 5, 'ts': 1, 'args': "
     "{'Bytes': 1024, 'Device Id': 1, 'Device Type': 1}}",
     CPROF_KIND_INSTANT, 1, -1, -1, -1, 1024, "", "", ""},
    {"{'ph': 'X', 'cat': 'Trace', 'name': 'PyTorch Profiler (0)', 'pid': 'Spans', 'tid': 'PyTorch Profiler', 'ts': 1, "
     "'dur': 1, 'args': {'Op count': 0}}",
     CPROF_KIND_HOST, -1, -1, -1, -1, NONE, "", "", ""},
    {"{'ph': 'C', 'cat': 'c', 'name': 'n', 'ts': 1, 'args': {'bytes': 5.0, 'device': 1e0}}", CPROF_KIND_COUNTER, 1, -1, -1, -1,
     5, "", "", ""},
    /* wrong types are unknown */
    {"{'ph': 'X', 'cat': 'cpu_op', 'name': 'ProfilerStep#', 'ts': 1, 'args': {'bytes': 5.5, 'correlation': '5', 'stream': "
     "1e30, 'External id': null, 'Input Dims': '[[1]]', 'Input type': {}, 'Call stack': ['a'], 'device': []}}",
     CPROF_KIND_HOST, -1, -1, -1, -1, NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'python_function', 'name': 'ProfilerStep#1x', 'ts': 1, 'args': {'Input types': [inf, 1], 'Call "
     "stack': '\\u0061;\\';b', 'bytes': 1, 'b\\u0079tes': 2}}",
     CPROF_KIND_HOST, -1, -1, -1, -1, 2, "", "[null, 1]", "a\n'\nb"},
    {"{'ph': 'X', 'cat': 'python_function', 'name': 'ProfilerStep#1', 'ts': 1, 'args': 5}", CPROF_KIND_HOST, -1, -1, -1, -1,
     NONE, "", "", ""},
    {"{'ph': 'X', 'cat': 'user_annotation', 'name': 'ProfilerStep#1 ', 'ts': 1, 'args': {'bytes': 5}, 'args': []}",
     CPROF_KIND_HOST, -1, -1, -1, -1, NONE, "", "", ""},
    {"{'ph': 'i', 'ph': 'X', 'name': 5, 'cat': null, 'ts': 0, 'ts': 1, 'args': 5, 'args': {'bytes': 5}}", CPROF_KIND_HOST, -1,
     -1, -1, -1, 5, "", "", ""},
};

static int64_t number_at(const cprof_table *table, cprof_column_number number)
{
    cprof_column column = cprof_table_column(table, number);
    return column.items == NULL ? column.none : ((const int64_t *)column.items)[0];
}

TEST(kineto)
{
    for (size_t i = 0; i < COUNT_OF(kineto_cases); i++) {
        const kineto_case *expected = &kineto_cases[i];
        cprof_chrome_read_report report;
        cprof_table *table = load(expected->event, &report);
        CHECK_EQUAL(table->count, 1);
        CHECK_EQUAL(report.ignored, 0);
        CHECK_EQUAL(table->kind[0], expected->kind);
        CHECK_EQUAL(table->device != NULL ? table->device[0] : -1, expected->device);
        CHECK_EQUAL(number_at(table, CPROF_COLUMN_stream), expected->stream);
        CHECK_EQUAL(number_at(table, CPROF_COLUMN_correlation), expected->correlation);
        CHECK_EQUAL(number_at(table, CPROF_COLUMN_external_id), expected->external_id);
        CHECK_EQUAL(number_at(table, CPROF_COLUMN_bytes), expected->bytes);
        CHECK(is_text(table, text_at(table->shapes, 0), expected->shapes));
        CHECK(is_text(table, text_at(table->types, 0), expected->types));
        CHECK(is_text(table, text_at(table->stack, 0), expected->stack));
    }
}

/* Names and args, as they are. */
TEST(texts)
{
    cprof_chrome_read_report report;
    cprof_table *table =
        load("{'ph':'X','ts':1,'name':'\\ud83d\\ude00\\ud83d','cat':'caf\xc3\xa9','args':{ 'a' : [1,'\\u0041'] }},"
             "{'ph':'X','ts':1,'name':'','cat':false,'args':{}},"
             "{'\\u0070\\u0068':'X','ts':1,'name':[1, 2],'args':{'a':nan,'b':'inf'}},"
             "{'ph':'X','ts':1,'nam\\u00e9':1,'an-unknown-key-that-is-quite-long':1,"
             "'\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061\\u0061"
             "\\u0061\\u0061\\u0061\\u0061\\u0061':1,'name':NaN,'':2}",
             &report);
    CHECK(is_text(table, table->name[0], "\xf0\x9f\x98\x80\xed\xa0\xbd"));
    CHECK(is_text(table, table->cat[0], "caf\xc3\xa9"));
    CHECK(table->name[1] == 0 && is_text(table, table->cat[1], "false"));
    CHECK(is_text(table, table->name[2], "[1, 2]") && table->cat[2] == 0);
    CHECK(table->name[3] == 0);
    static const char *const args[] = {"{ 'a' : [1,'\\u0041'] }", "{}", "{'a':null,'b':'inf'}", ""};
    for (size_t i = 0; i < 4; i++) {
        CHECK(is_quoted(table->kept + table->args_at[i], table->args_length[i], args[i]));
    }
}

TEST(times)
{
    cprof_chrome_read_report report;
    cprof_table *table = load("{'ph':'X','ts':1712195495519689.123,'dur':63.813},"
                              "{'ph':'X','ts':-0.0005,'dur':0.0015},{'ph':'X','ts':1e3,'dur':-5},"
                              "{'ph':'X','ts':7},{'ph':'X','ts':9,'dur':NaN},{'ph':'i','ts':-3,'dur':8},"
                              "{'ph':'X'},{'ph':'X','ts':'5'},{'ph':'X','ts':null},{'ph':'X','ts':inf},"
                              "{'ph':'C'},{'ph':'B'},{'ph':'E'},{'ph':'s','id':1}",
                              &report);
    static const int64_t times[][2] = {
        {1712195495519689123, 1712195495519752936}, {0, 2}, {1000000, 1000000}, {7000, 7000}, {9000, 9000}, {-3000, -3000}};
    CHECK_EQUAL(table->count, 6);
    for (size_t i = 0; i < 6; i++) {
        CHECK_EQUAL(table->start_ns[i], times[i][0]);
        CHECK_EQUAL(table->end_ns[i], times[i][1]);
    }
    CHECK_EQUAL(report.negative, 1);
    CHECK_EQUAL(report.ignored, 8);
}

TEST(phases)
{
    cprof_chrome_read_report report;
    cprof_table *table = load("{'ph':'i','ts':1},{'ph':'I','ts':1},{'ph':'R','ts':1},{'ph':'C','ts':1},"
                              "{'ph':'b','ts':1},{'ph':'n','ts':1},{'ph':'e','ts':1},{'ph':'S','ts':1},"
                              "{'ph':'P','ts':1},{'ph':'N','ts':1},{'ph':'O','ts':1},{'ph':'D','ts':1},"
                              "{'ph':'v','ts':1},{'ph':'c','ts':1},{'ph':'','ts':1},{'ph':'XX','ts':1},"
                              "{'ph':null,'ts':1},{'ts':1},{}",
                              &report);
    CHECK_EQUAL(table->count, 4);
    CHECK_EQUAL(table->kind[0], CPROF_KIND_INSTANT);
    CHECK_EQUAL(table->kind[1], CPROF_KIND_INSTANT);
    CHECK_EQUAL(table->kind[2], CPROF_KIND_INSTANT);
    CHECK_EQUAL(table->kind[3], CPROF_KIND_COUNTER);
    CHECK_EQUAL(report.ignored, 15);
}

TEST(flows)
{
    cprof_chrome_read_report report;
    cprof_table *table = load("{'ph':'s','ts':1,'id':7,'name':'n','cat':'c','pid':1,'tid':2},"
                              "{'ph':'t','ts':2,'id':7.0,'bp':'x'},{'ph':'f','ts':3,'id':7e0,'bp':'e'},"
                              "{'ph':'s','ts':4,'id':-1},{'ph':'s','ts':5,'id':18446744073709551615},"
                              "{'ph':'s','ts':6,'id':184467440737095516150},{'ph':'s','ts':7,'id':'0x\\u0031'},"
                              "{'ph':'f','ts':8,'id':'0x1'},{'ph':'f','ts':8,'id':'0x2'},"
                              "{'ph':'f','ts':9,'id':7.5},{'ph':'f','ts':10}",
                              &report);
    CHECK_EQUAL(table->flow_count, 10);
    CHECK_EQUAL(table->count, 0);
    CHECK_EQUAL(report.ignored, 1);
    const cprof_flow *flows = table->flows;
    CHECK(flows[0].phase == 's' && flows[1].phase == 't' && flows[2].phase == 'f');
    CHECK(!flows[0].binds_enclosing && !flows[1].binds_enclosing && flows[2].binds_enclosing);
    CHECK(flows[0].id == 7 && flows[1].id == 7 && flows[2].id == 7);
    CHECK(flows[3].id == UINT64_MAX && flows[4].id == UINT64_MAX && flows[5].id != UINT64_MAX);
    CHECK(flows[6].id == flows[7].id && flows[7].id != flows[8].id && flows[9].id != 7);
    CHECK(flows[1].at_ns == 2000 && is_text(table, flows[0].name, "n") && is_text(table, flows[0].cat, "c"));
    CHECK_EQUAL(table->tracks[flows[0].track].tid, 2);
}

/* ---- tracks ---- */

TEST(processes_and_threads)
{
    static const struct {
        const char *json;
        int64_t number;
        const char *text;
    } ids[] = {
        {"5", 5, ""},
        {"-1", -1, ""},
        {"5.0", 5, ""},
        {"5e1", 50, ""},
        {"9223372036854775807", INT64_MAX, ""},
        {"9223372036854775808", 0, "9223372036854775808"},
        {"5.5", 0, "5.5"},
        {"'5'", 0, "5"},
        {"'stream 7'", 0, "stream 7"},
        {"'\\u0061'", 0, "a"},
        {"''", 0, " "}, /* there is no empty text */
        {"true", 0, "true"},
        {"null", 0, ""},
        {"NaN", 0, ""},
        {"[1]", 0, "[1]"},
    };
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        char events[256];
        cprof_chrome_read_report report;
        (void)snprintf(events, sizeof events, "{'ph':'X','ts':1,'tid':%s},{'ph':'X','ts':1,'pid':%s,'tid':3}", ids[i].json,
                       ids[i].json);
        cprof_table *table = load(events, &report);
        const cprof_track *thread = &table->tracks[table->track[0]];
        const cprof_track *process = &table->tracks[table->track[1]];
        CHECK(thread->pid == 0 && thread->pid_text == 0 && process->tid == 3 && process->tid_text == 0);
        CHECK_EQUAL(thread->tid, ids[i].number);
        CHECK_EQUAL(process->pid, ids[i].number);
        CHECK(is_text(table, thread->tid_text, ids[i].text) && is_text(table, process->pid_text, ids[i].text));
    }
}

/* A process's description is that of all its tracks, earlier or later ones. */
TEST(metadata)
{
    cprof_chrome_read_report report;
    cprof_table *table =
        load("{'ph':'M','name':'process_name','pid':1,'tid':0,'args':{'name':'py\\u0074hon'}},"
             "{'ph':'M','name':'thread_name','pid':1,'tid':7,'args':{'name':'main'}},"
             "{'ph':'M','name':'thread_sort_index','pid':1,'tid':7,'args':{'sort_index':-4}},"
             "{'ph':'X','ts':1,'pid':1,'tid':8},"
             "{'ph':'M','name':'process_labels','pid':1,'tid':9,'args':{'labels':'CPU'}},"
             "{'ph':'M','n\\u0061me':'process_sort_inde\\u0078','pid':1,'tid':8,'args':{'sort_index':12.0}},"
             "{'ph':'X','ts':1,'pid':2,'tid':7},"
             "{'ph':'M','name':'thread_name','pid':2,'tid':7,'args':{'name':null}},"
             "{'ph':'M','name':'thread_sort_index','pid':2,'tid':7,'args':{'sort_index':'x'}},"
             "{'ph':'M','name':'process_uptime_seconds','pid':2,'tid':7,'args':{'uptime':5}},"
             "{'ph':'M','name':'process_name','pid':2,'tid':7,'args':{'nam':'x'}},"
             "{'ph':'M','name':'process_name','pid':3,'tid':7,'args':'x'},{'ph':'M','name':'thread_name'},{'ph':'M'}",
             &report);
    CHECK_EQUAL(report.ignored, 5);
    CHECK_EQUAL(table->track_count, 4); /* the process's first metadata made one, too */
    CHECK(cprof_table_finish(table) == CPROF_OK);
    for (size_t i = 0; i < table->track_count; i++) {
        const cprof_track *track = &table->tracks[i];
        CHECK(track->pid == 1 || track->pid == 2);
        CHECK(is_text(table, track->process_name, track->pid == 1 ? "python" : ""));
        CHECK(is_text(table, track->process_labels, track->pid == 1 ? "CPU" : ""));
        CHECK_EQUAL(track->process_sort, track->pid == 1 ? 12 : CPROF_TABLE_UNKNOWN);
        CHECK(is_text(table, track->thread_name, track->pid == 1 && track->tid == 7 ? "main" : ""));
        CHECK_EQUAL(track->thread_sort, track->pid == 1 && track->tid == 7 ? -4 : CPROF_TABLE_UNKNOWN);
    }
}

/* A thread that is a lane becomes its thread; what only looks like one is a thread. */
TEST(lanes)
{
    static const struct {
        const char *base; /* thread, and its name */
        const char *base_name;
        const char *thread;
        const char *name;
        bool is_lane;
    } lanes[] = {
        {"7", "'main'", "4194311", "'main (2)'", true},
        {"7", "'main'", "1069547527", "'main (256)'", true},
        {"7", "'main'", "8388615", "'main (3)'", true},
        {"-1", "'main'", "4194303", "'main (2)'", true},
        {"4194304", "'main'", "8388608", "'main (2)'", true},
        {"7", "'a (2)'", "4194311", "'a (2) (2)'", true},
        {"'t'", "'main'", "'t (2)'", "'main (2)'", true},
        {"'t'", "null", "'t (12)'", "'t (12)'", true},
        {"7", "null", "4194311", "'Thread 7 (2)'", true},
        {"-5", "null", "4194299", "'Thread -5 (2)'", true},
        {"7", "'main'", "4194311", "'main (3)'", false},
        {"7", "'main'", "4194311", "'main'", false},
        {"7", "'main'", "4194311", "'main 2'", false},
        {"7", "'main'", "4194311", "'main (2'", false},
        {"7", "'main'", "4194311", "'main(2)'", false},
        {"7", "'main'", "4194311", "'main (02)'", false},
        {"7", "'main'", "4194311", "'main ()'", false},
        {"7", "'main'", "4194311", "'main (1002)'", false},
        {"7", "'main'", "4194311", "'(2)'", false},
        {"7", "'main'", "4194311", "'2)'", false},
        {"7", "'main'", "4194311", "'mane (2)'", false},
        {"7", "'main'", "4194311", "''", false},
        {"7", "'main'", "4194311", "null", false},
        {"7", "null", "4194311", "'thread 7 (2)'", false},
        {"7", "'main'", "7", "'main (1)'", false},
        {"7", "'main'", "1073741831", "'main (257)'", false},
        {"7", "'main'", "8", "'main (2)'", false},
        {"7", "'main'", "13000000", "'main (2)'", false},
        {"7", "'main'", "4194311", "'mai (2)'", false},
        {"'t'", "'main'", "'t (3)'", "'main (2)'", false},
        {"'t'", "'main'", "' (2)'", "'main (2)'", false},
        {"'t'", "'main'", "4194304", "'main (2)'", false},
    };
    for (size_t i = 0; i < COUNT_OF(lanes); i++) {
        char events[1024];
        cprof_chrome_read_report report;
        (void)snprintf(events, sizeof events,
                       "{'ph':'M','name':'thread_name','tid':%s,'args':{'name':%s}},"
                       "{'ph':'M','name':'thread_name','tid':%s,'args':{'name':%s}},"
                       "{'ph':'M','name':'thread_name','tid':%s,'args':{'name':%s}},"
                       "{'ph':'X','ts':1,'tid':%s},{'ph':'X','ts':2,'tid':%s},{'ph':'s','ts':2,'id':1,'tid':%s}",
                       lanes[i].base, lanes[i].base_name, lanes[i].thread, lanes[i].name, lanes[i].thread, lanes[i].name,
                       lanes[i].base, lanes[i].thread, lanes[i].thread);
        cprof_table *table = load(events, &report);
        bool is_same = table->track[0] == table->track[1];
        CHECK(is_same == (lanes[i].is_lane || strcmp(lanes[i].base, lanes[i].thread) == 0));
        CHECK_EQUAL(table->flows[0].track, table->track[1]);
        if (lanes[i].is_lane && strcmp(lanes[i].base_name, "null") != 0) {
            char name[32];
            (void)snprintf(name, sizeof name, "%.*s", (int)strlen(lanes[i].base_name) - 2, lanes[i].base_name + 1);
            CHECK(is_text(table, table->tracks[table->track[0]].thread_name, name));
        }
    }
}

/* Names that only look like those of lanes bring no other threads about. */
TEST(threads_that_nothing_is_of)
{
    static const char *const names[] = {"'loader (2)'", "'Thread 9 (2)'", "'Thread 5 (2)'"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char events[256];
        cprof_chrome_read_report report;
        (void)snprintf(events, sizeof events,
                       "{'ph':'M','name':'thread_name','tid':4194309,'args':{'name':%s}},"
                       "{'ph':'X','ts':1,'tid':4194309}",
                       names[i]);
        cprof_table *table = load(events, &report);
        CHECK_EQUAL(table->track_count, 1);
        CHECK_EQUAL(table->tracks[0].tid, i < 2 ? 4194309 : 5);
    }
}

/* ---- our own words ---- */

#define TRACE "0123456789abcdef00000000000000ff"
#define SPAN "fedcba9876543210"

/* A row of ours in all its columns; the args need not be kept. */
TEST(own_row)
{
    cprof_chrome_read_report report;
    cprof_table *table = load(
        "{'ph':'X','ts':1,'dur':1,'args':{'kind':'node','stage':'tr\\u0061in','trace_id':'" TRACE "','span_id':'" SPAN
        "','parent_span_id':'0000000000000001','outcome':'error','unfinished':true,'cut':true,'suspendable':true,"
        "'suspended_ns':5,'memory_change':-6,'memory_peak':7,'device_memory_change':8,'device_memory_peak':9,"
        "'External id':10,'correlation':-11,'device':12,'stream':-13,'bytes':14,'Input Dims':[],'Input type':[1],'Call "
        "stack':'a;b'}},"
        "{'ph':'X','ts':2,'args':{'kind':'record','span_id':'" SPAN "','outcome':'cancelled','unfinished':false,'cut':null}},"
        "{'ph':'X','ts':3,'args':{'kind':'step','span_id':'" SPAN "','outcome':'odd'}},"
        "{'ph':'X','ts':4,'cat':'kernel','args':{'kind':'device','span_id':'" SPAN "'}}",
        &report);
    CHECK(table->args_length == NULL);
    CHECK_EQUAL(table->trace_high[0], 0x0123456789abcdef);
    CHECK_EQUAL(table->trace_low[0], 0xff);
    CHECK_EQUAL(table->span[0], 0xfedcba9876543210);
    CHECK_EQUAL(table->parent_span[0], 1);
    CHECK(is_text(table, table->stage[0], "train"));
    CHECK(table->outcome[0] == CPROF_OUTCOME_ERROR && table->outcome[1] == CPROF_OUTCOME_CANCELLED && table->outcome[2] == 0);
    CHECK_EQUAL(table->flags[0], CPROF_ROW_UNFINISHED | CPROF_ROW_CUT | CPROF_ROW_SUSPENDABLE);
    CHECK_EQUAL(table->flags[1], 0);
    CHECK_EQUAL(table->suspended_ns[0], 5);
    CHECK(table->memory_change[0] == -6 && table->memory_peak[0] == 7);
    CHECK(table->device_memory_change[0] == 8 && table->device_memory_peak[0] == 9);
    CHECK(table->external_id[0] == 10 && table->correlation[0] == -11 && table->device[0] == 12);
    CHECK(table->stream[0] == -13 && table->bytes[0] == 14);
    CHECK(is_text(table, table->shapes[0], "[]") && is_text(table, table->types[0], "[1]"));
    CHECK(is_text(table, table->stack[0], "a\nb"));
    static const cprof_kind kinds[] = {CPROF_KIND_NODE, CPROF_KIND_RECORD, CPROF_KIND_STEP, CPROF_KIND_DEVICE};
    for (size_t i = 0; i < 4; i++) {
        CHECK_EQUAL(table->kind[i], kinds[i]);
    }
    CHECK(table->device[3] == -1 && table->stream[3] == -1); /* ours would say where it was */
}

/* What lasts no time has its args only. */
TEST(moments_with_own_words)
{
    cprof_chrome_read_report report;
    static const char args[] = "{'kind':'node','span_id':'" SPAN "'}";
    cprof_table *table = load("{'ph':'C','ts':1,'args':{'kind':'node','span_id':'" SPAN "'}},"
                              "{'ph':'i','ts':2,'args':{'kind':'node','span_id':'" SPAN "'}}",
                              &report);
    CHECK(table->kind[0] == CPROF_KIND_COUNTER && table->kind[1] == CPROF_KIND_INSTANT);
    for (size_t i = 0; i < 2; i++) {
        CHECK(is_quoted(table->kept + table->args_at[i], table->args_length[i], args));
    }
}

/* Rows that are almost ours keep their args. */
TEST(nearly_own_rows)
{
    static const struct {
        const char *args;
        cprof_kind kind;
        uint64_t span;
    } rows[] = {
        {"{'kind':'node','span_id':'" SPAN "','more':1}", CPROF_KIND_NODE, 0xfedcba9876543210},
        {"{'kind':'node'}", CPROF_KIND_HOST, 0},
        {"{'kind':'Node','span_id':'" SPAN "'}", CPROF_KIND_HOST, 0xfedcba9876543210},
        {"{'kind':['node'],'span_id':'" SPAN "'}", CPROF_KIND_HOST, 0xfedcba9876543210},
        {"{'span_id':'" SPAN "'}", CPROF_KIND_HOST, 0xfedcba9876543210},
        {"{'kind':'node','span_id':'FEDCBA9876543210'}", CPROF_KIND_NODE, 0},
        {"{'kind':'node','span_id':'fedcba987654321'}", CPROF_KIND_NODE, 0},
        {"{'kind':'node','span_id':'fedcba987654321:'}", CPROF_KIND_NODE, 0},
        {"{'kind':'node','span_id':'fedcba987654321/'}", CPROF_KIND_NODE, 0},
        {"{'kind':'node','span_id':'fedcba987654321g'}", CPROF_KIND_NODE, 0},
        {"{'kind':'node','span_id':1234567890123456}", CPROF_KIND_NODE, 0},
        {"{'kind':'step'}", CPROF_KIND_STEP, 0},
        {"{'kind':'device','device':3}", CPROF_KIND_DEVICE, 0},
        {"{'trace_id':'" SPAN "'}", CPROF_KIND_HOST, 0},
        {"{'trace_id':'x123456789abcdef0123456789abcdef'}", CPROF_KIND_HOST, 0},
        {"{'trace_id':'0123456789abcdef0123456789abcdex'}", CPROF_KIND_HOST, 0},
        {"{'unfinished':1,'cut':'true','suspendable':[true]}", CPROF_KIND_HOST, 0},
        {"{'outcome':5,'stage':null,'suspended_ns':-1,'memory_peak':1.5}", CPROF_KIND_HOST, 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char events[256];
        cprof_chrome_read_report report;
        (void)snprintf(events, sizeof events, "{'ph':'X','ts':1,'args':%s}", rows[i].args);
        cprof_table *table = load(events, &report);
        CHECK_EQUAL(table->kind[0], rows[i].kind);
        CHECK_EQUAL(table->span != NULL ? table->span[0] : 0, rows[i].span);
        CHECK(table->trace_high == NULL && table->trace_low == NULL && table->stage == NULL && table->outcome == NULL &&
              table->flags == NULL);
        CHECK(table->suspended_ns == NULL && table->memory_peak == NULL);
        CHECK(table->args_at == NULL && is_quoted(table->kept, table->args_length[0], rows[i].args));
    }
}

FAKE_ALLOC_MAIN(NULL, drop_tables)
