/* cupti.h against the fake libcupti whose path the environment variable CPROFILING_LIBCUPTI holds (see
 * tests/fakes/fake_cupti.h), with a virtual clock that is the fake's. Whether CUDA is in the process, the test says. */
#define _GNU_SOURCE
#include "cprofiling/devices/cupti.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/devices/cupti_events.h"
#include "cprofiling/devices/wait.h"
#include "cprofiling/process.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"
#include "tests/core/kept_tables.h"
#include "tests/fakes/fake_cupti.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    RUNTIME = 2,
    DRIVER = 1,
    LAUNCH = 211,    /* cudaLaunchKernel */
    CU_LAUNCH = 307, /* cuLaunchKernel */
    GRAPH = 311,     /* cudaGraphLaunch */
    CU_COPY = 277,   /* cuMemcpyHtoDAsync_v2 */
    COPY = 41,       /* cudaMemcpyAsync */
    FILL = 51,       /* cudaMemsetAsync */
    LAST_CODE = 46,  /* CUPTI_ERROR_INVALID_CHIP_NAME */
    UNKNOWN_ERROR = 999,
    US = 1000,
    MS = 1000 * 1000,
};

static const int64_t start_ns = INT64_C(1700000000) * 1000000000;

#define CONTROLS(X)   \
    X(reset)          \
    X(fail)           \
    X(break)          \
    X(set_version)    \
    X(hold)           \
    X(set_time)       \
    X(advance)        \
    X(now)            \
    X(set_clock)      \
    X(stamp)          \
    X(use_thread)     \
    X(drop)           \
    X(correlation)    \
    X(enter)          \
    X(leave)          \
    X(kernel)         \
    X(copy)           \
    X(peer_copy)      \
    X(fill)           \
    X(strange_record) \
    X(launch)         \
    X(upload)         \
    X(wants_call)     \
    X(wants_kind)     \
    X(is_subscribed)  \
    X(open_buffers)   \
    X(calls)          \
    X(total_calls)    \
    X(violations)     \
    X(violation)

static struct {
#define CONTROL_FIELD(name) __typeof__(fake_cupti_##name) *name##_;
    CONTROLS(CONTROL_FIELD)
#undef CONTROL_FIELD
} fake;

static int code_step = 1; /* of the codes that calls fail with, every so many are tried */
static bool has_cuda = true;
static const char *gpu_fault;

WRAP(bool, cprof_wait_probe, void)
{
    return has_cuda;
}

WRAP(bool, cprof_wait_reason, char *buffer, size_t size)
{
    (void)snprintf(buffer, size, "%s", gpu_fault != NULL ? gpu_fault : "");
    return gpu_fault != NULL;
}

static bool refuses_keys; /* as a process does that has used up all of its memory for them */

WRAP_REAL(int, pthread_setspecific, pthread_key_t key, const void *value)
{
    return refuses_keys ? ENOMEM : real_pthread_setspecific(key, value);
}

static void (*after_release)(void); /* called once */

WRAP_REAL(void, cprof_alloc_release, void *memory)
{
    void (*then)(void) = after_release;
    real_cprof_alloc_release(memory);
    if (then != NULL) {
        after_release = NULL;
        then();
    }
}

static void load_fake(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* NOLINT(clang-analyzer-optin.taint.GenericTaint) */
    CHECK(library != NULL);
#define LOAD_CONTROL(name) check_symbol(library, "fake_cupti_" #name, &fake.name##_);
    CONTROLS(LOAD_CONTROL)
#undef LOAD_CONTROL
}

static cprof_ticks read_fake_clock(void)
{
    return (cprof_ticks)fake.now_();
}

/* One registry with a few nodes, and all else as at the start of a process. */
static cprof_registry *registry;

static void end(void)
{
    drop_tables();
    if (registry == NULL) {
        return;
    }
    CHECK_EQUAL(fake.open_buffers_(), 0);
    if (fake.violations_() != 0) {
        (void)fprintf(stderr, "%s\n", fake.violation_());
    }
    CHECK_EQUAL(fake.violations_(), 0);
    cprof_process_end_registry(registry);
    registry = NULL;
}

static void reset_fake(void)
{
    fake.reset_();
    fake.set_time_(start_ns);
}

static void begin(void)
{
    end();
    reset_fake();
    cprof_cupti_reset_for_test();
    has_cuda = true;
    gpu_fault = NULL;
    registry = cprof_registry_create(1);
    CHECK(registry != NULL);
}

static cprof_cupti_node node_of(const char *name)
{
    cprof_accum *accum = cprof_registry_accum(registry, (cprof_names){cprof_name_of("inference"), cprof_name_of(name)});
    CHECK(accum != NULL);
    return (cprof_cupti_node){accum, cprof_registry_state(registry) >> CPROF_STATE_GENERATION_SHIFT};
}

static cprof_cupti_node enter_node(const char *name)
{
    cprof_cupti_node before;
    cprof_cupti_thread_set_node(node_of(name), &before);
    return before;
}

static void leave_node(cprof_cupti_node before)
{
    cprof_cupti_node ignored;
    cprof_cupti_thread_set_node(before, &ignored);
}

static void make_call(int domain, int number, int64_t correlation)
{
    fake.enter_(domain, number, correlation);
    fake.leave_(domain, number, correlation);
}

static cprof_launch_counts launched(const char *name)
{
    const cprof_resources *extra = node_of(name).accum->extra;
    return extra != NULL ? extra->figures.launched : (cprof_launch_counts){.launches = 0};
}

static void check_launched(const char *name, cprof_launch_counts expected)
{
    cprof_launch_counts found = launched(name);
    CHECK_EQUAL(found.launches, expected.launches);
    CHECK_EQUAL(found.kernels, expected.kernels);
    CHECK_EQUAL(found.kernel_ns, expected.kernel_ns);
    CHECK_EQUAL(found.copies, expected.copies);
    CHECK_EQUAL(found.bytes_to_device, expected.bytes_to_device);
    CHECK_EQUAL(found.bytes_to_host, expected.bytes_to_host);
    CHECK_EQUAL(found.bytes_on_device, expected.bytes_on_device);
    CHECK_EQUAL(found.fills, expected.fills);
}

static const char *reason(void)
{
    static char text[500];
    CHECK(cprof_cupti_reason(text, sizeof text) == (text[0] != '\0'));
    return text;
}

static void check_reason(const char *expected)
{
    if (strcmp(reason(), expected) != 0) {
        check_failed(reason(), __FILE__, __LINE__);
    }
}

static cprof_cupti_state state(void)
{
    cprof_cupti_state found;
    cprof_cupti_get_state(&found);
    return found;
}

/* ---- Scenarios ----
 *
 * A text, of which each word does something in this thread. Times are in ns, 3u in us, 3m in ms; one alone passes.
 *
 *   +c -c +t -t  begins or ends a use: counts, or a recording; !c !t tries to, and is refused
 *   a( )         goes into node a, and back to the one before
 *   k5 u4096:5   launches a kernel that runs so long; uploads so many bytes
 *   R7( R7)      is in cudaLaunchKernel under the number 7; D7( D7) in cuLaunchKernel, G7( G7) in cudaGraphLaunch
 *   K7:0:5       a kernel of number 7 begins and ends, from now; K7:0:- has no end, K7:- no times
 *   p pb p-      a thread of the backward pass launches a kernel; one that is in node b; a thread of another kind
 *   {b }         a thread goes into node b; and ends
 *   flush full   records are asked for; come by themselves
 *   fail:F:3     the next call of F answers 3; drop:3 says that 3 records were dropped; room:3 a recording has room for 3;
 *                cuda:0 there is none in the process; off: it does not survive a fork; hold:1 another client has CUPTI
 *   clock hour   the fake's clock is another one; is set
 *   reset other  the statistics; another registry comes and goes; new late: comes, and the old one goes then; gone: both at
 * once uncalled     so far nothing of CUPTI's was called
 */

enum { LETTERS = 2, MOST_ROWS = 6, DEEPEST = 10 };

typedef struct {
    const char *thread_name, *node; /* NULL: any; none */
    bool waits;                     /* launches nothing */
} worker;

static pthread_barrier_t entered, leaving;

static void *run_worker(void *argument)
{
    const worker *own = argument;
    cprof_cupti_node before = own->node != NULL ? enter_node(own->node) : (cprof_cupti_node){.accum = NULL};
    if (own->thread_name != NULL) {
        CHECK(pthread_setname_np(pthread_self(), own->thread_name) == 0);
    }
    if (own->waits) {
        (void)pthread_barrier_wait(&entered);
        (void)pthread_barrier_wait(&leaving);
    } else {
        fake.launch_("kernel", 5);
    }
    if (own->node != NULL) {
        leave_node(before);
    }
    return NULL;
}

static void launch_backward(void)
{
    check_in_thread(run_worker, &(worker){.thread_name = "pt_autograd_0"});
}

static void play_worker(const char *word)
{
    static pthread_t thread;
    static worker waiting = {.waits = true};
    const char *node = word[1] == '\0' || word[1] == '-' ? NULL : word + 1;
    if (word[0] == 'p') {
        check_in_thread(run_worker, &(worker){.thread_name = word[1] == '-' ? "pool" : "pt_autograd_1", .node = node});
    } else if (word[0] == '{') {
        CHECK(pthread_barrier_init(&entered, NULL, 2) == 0 && pthread_barrier_init(&leaving, NULL, 2) == 0);
        waiting.node = node;
        thread = check_thread(run_worker, &waiting);
        (void)pthread_barrier_wait(&entered);
    } else {
        (void)pthread_barrier_wait(&leaving);
        check_join(thread);
        CHECK(pthread_barrier_destroy(&entered) == 0 && pthread_barrier_destroy(&leaving) == 0);
    }
}

static void play_kernel(const char *word)
{
    char *rest;
    int64_t number = strtoll(word + 1, &rest, 10);
    bool has_start = strcmp(rest, ":-") != 0;
    uint64_t start = has_start ? fake.stamp_(fake.now_() + check_ns(rest + 1, &rest)) : 0;
    bool has_end = has_start && strcmp(rest, ":-") != 0;
    uint64_t end = has_end ? fake.stamp_(fake.now_() + check_ns(rest + 1, &rest)) : has_start ? UINT64_MAX : 0;
    fake.kernel_(word, start, end, 0, 7, number);
}

static void play_call(const char *word)
{
    char *rest;
    int64_t number = strtoll(word + 1, &rest, 10);
    int call_number = word[0] == 'R' ? LAUNCH : word[0] == 'D' ? CU_LAUNCH : GRAPH;
    (void)(*rest == '(' ? fake.enter_ : fake.leave_)(word[0] == 'D' ? DRIVER : RUNTIME, call_number, number);
}

static bool play_whole_word(const char *word)
{
    static cprof_registry *late;
    if (strcmp(word, "flush") == 0) {
        cprof_cupti_flush();
    } else if (strcmp(word, "full") == 0) {
        CHECK(cprof_cupti_events.library.flush_all(0) == CPROF_CUPTI_SUCCESS);
    } else if (strcmp(word, "clock") == 0) {
        fake.set_clock_(INT64_C(-4000000000000000000), 5, 2);
    } else if (strcmp(word, "hour") == 0) {
        fake.set_clock_(INT64_C(3600) * 1000000000, 1, 1);
    } else if (strcmp(word, "reset") == 0) {
        cprof_registry_reset(registry);
    } else if (strcmp(word, "new") == 0) {
        late = registry;
        registry = cprof_registry_create(1);
    } else if (strcmp(word, "late") == 0) {
        cprof_process_end_registry(late);
    } else if (strcmp(word, "gone") == 0) {
        cprof_process_end_registry(registry);
        registry = cprof_registry_create(1);
    } else if (strcmp(word, "other") == 0) {
        cprof_process_end_registry(cprof_registry_create(1));
    } else if (strcmp(word, "off") == 0) {
        gpu_fault = "off(fork): CUDA does not survive a fork";
    } else if (strcmp(word, "uncalled") == 0) {
        CHECK(fake.total_calls_() == 0 && !state().has_library);
    } else {
        return false;
    }
    return true;
}

/* A word that ends with a colon and a number. */
static void play_setting(const char *word)
{
    char function[64];
    const char *colon = strrchr(word, ':');
    int number = (int)strtol(colon + 1, NULL, 10);
    if (strncmp(word, "fail:", 5) == 0) {
        (void)snprintf(function, sizeof function, "%.*s", (int)(colon - word - 5), word + 5);
        fake.fail_(function, number, 1);
    } else if (word[0] == 'd') {
        fake.drop_((uint64_t)number);
    } else if (word[0] == 'r') {
        cprof_cupti_events.trace.capacity = (size_t)number;
    } else if (word[0] == 'c') {
        has_cuda = number != 0;
    } else if (word[0] == 'v') {
        fake.set_version_((uint64_t)number);
    } else {
        fake.hold_(number);
    }
}

static cprof_cupti_node nodes_before[DEEPEST];
static size_t depth;

static void play_word(const char *word)
{
    if (play_whole_word(word)) {
        return;
    }
    char *rest;
    cprof_cupti_use use = word[1] == 'c' ? CPROF_CUPTI_COUNTS : CPROF_CUPTI_TRACE;
    switch (word[0]) {
    case '+':
    case '!':
        CHECK(cprof_cupti_start(use) == (word[0] == '+'));
        break;
    case '-':
        cprof_cupti_stop(use);
        break;
    case ')':
        leave_node(nodes_before[--depth]);
        break;
    case 'k':
        (void)fake.launch_(word, check_ns(word + 1, &rest));
        break;
    case 'u': {
        uint64_t bytes = strtoull(word + 1, &rest, 10);
        (void)fake.upload_(bytes, check_ns(rest + 1, &rest));
        break;
    }
    case 'K':
        play_kernel(word);
        break;
    case 'R':
    case 'D':
    case 'G':
        play_call(word);
        break;
    case 'p':
    case '{':
    case '}':
        play_worker(word);
        break;
    default:
        if (word[1] == '(') {
            CHECK(depth < DEEPEST);
            nodes_before[depth++] = enter_node(word[0] == 'a' ? "a" : "b");
        } else if (strchr(word, ':') != NULL) {
            play_setting(word);
        } else {
            fake.advance_(check_ns(word, &rest));
            CHECK(*rest == '\0');
        }
    }
}

static cprof_table *collected(void)
{
    cprof_table *table = new_table();
    CHECK(cprof_cupti_collect(table) == CPROF_OK);
    return table;
}

static void check_text(const cprof_table *table, cprof_text text, const char *expected)
{
    CHECK(cprof_name_is(cprof_table_string(table, text), expected));
}

static void check_row(const cprof_table *table, size_t row, const char *name, int64_t start, int64_t stop)
{
    bool is_kernel = name[0] == 'k' || name[0] == 'K';
    check_text(table, table->cat[row], is_kernel ? "kernel" : "cuda_runtime");
    check_text(table, table->name[row], name);
    CHECK(llabs(table->start_ns[row] - table->start_ns[0] - start) < MS / 2); /* each stretch reads the time of day anew */
    CHECK_EQUAL(table->end_ns[row] - table->start_ns[row], stop - start);
}

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* of the scenarios: 0 */

#define CALL "cudaLaunchKernel"
#define HELD "another profiler (torch.profiler, Nsight) holds CUPTI: "

_Static_assert(CPROF_CUPTI_LAUNCHES == 131072, "the scenarios have numbers that take each other's places");

static const struct {
    const char *what, *words;
    cprof_launch_counts nodes[LETTERS];
    const char *reason; /* NULL: none */
    uint64_t outside, unknown_node,
        lost; /* launches by threads without a node; whose node is not known; that went with theirs */
    struct {
        const char *name;
        int64_t start_ns, stop_ns; /* from the first row's start on */
    } rows[MOST_ROWS];
    uint64_t dropped;
} scenarios[] = {
    {"launches count at once, kernels and copies when their records come",
     "+c a( k300u b( k200u k100u u4096:10u ) k50u ) k7u",
     {{.launches = 2}, {.launches = 2}},
     .outside = 1},
    {"exact counts of each node",
     "+c a( k300u b( k200u k100u u4096:10u ) k50u ) k7u 10m flush",
     {{2, 2, 350 * US}, {2, 2, 300 * US, 1, 4096}},
     .outside = 1},
    {"a graph's kernels share one number; a call inside another may have a number of its own, and one may end twice",
     "+c a( G1( G1) R2( D3( D3) R2) R2) ) K1:0:5 K1:0:5 K1:0:5 K3:0:100 1m flush",
     {{2, 4, 115}}},
    {"records without credible times, without a launch, and that were dropped; -c hands over what is not over yet",
     "+c a( k0 K1:0:-5 K1:- K1:-2m:0 K1:-500u:0 K1:100m:101m K1:0:- K12345:0:0 K0:0:0 drop:3 ) 1 flush 99m -c",
     {{1, 7, MS / 2}},
     "records that CUPTI had no room for: 3; records of work whose launch is not known: 2; records without times: 5"},
    {"numbers that come again forget the old ones",
     "+c a( R5( R5) R131077( D131078( D131078) R131077) K5:0:0 K131077:0:0 flush R5( R5) K131078:0:0 ) -c",
     {{3, 1}},
     "records of work whose launch is not known: 2"},
    {"the ticks of a clock that another profiler has set for the process",
     "clock +c 1m flush a( k300u ) 1m flush",
     {{1, 1, 300 * US}}},
    {"once a profiler sets a clock, nothing is known of its ticks until both are read again",
     "+c 10m flush clock a( k300u 1m full flush 10m flush k200u ) 1m -c",
     {{2, 2, 200 * US}},
     "records without times: 1"},
    {"a backward pass is that of the only thread with a node",
     "+c p a( p pb p- {b p } p ) 1m -c",
     {{2, 2, 10}, {1, 1, 5}},
     "launches of a backward pass whose node is not known: 2",
     .outside = 1,
     .unknown_node = 2},
    {"a registry may go before its records come", "+c a( k5 ) new a( k6 ) late 1m -c", {{1, 1, 6}}, .lost = 1},
    {"a node that was left set, by blocks that ended out of order, does not outlive its registry",
     "+c a( gone k6 a( other k6 ) 1m -c",
     {{1, 1, 6}},
     .outside = 1},
    {"a reset of statistics discards what comes later", "+c a( k5 ) reset a( k7 ) 1m -c", {{1, 1, 7}}, .lost = 1},
    {"who was in a call when the subscriber went is in none when it is taken again",
     "+c R1( -c +c R1) a( k5 ) 1m -c",
     {{1, 1, 5}}},
    {"a recording has its stretches, each by its own times, and nothing that others count",
     "+c k10 k10m 1m +t +t k11 20m -t -t k12 1m +t k13 drop:5 k14m 1m -t", .reason = "records that CUPTI had no room for: 5",
     .outside = 6,
     .rows = {{CALL, 0, 0},
              {CALL, 21 * MS, 21 * MS},
              {CALL, 21 * MS, 21 * MS},
              {"k10m", -MS + 10, 9 * MS + 10},
              {"k11", 9 * MS + 10, 9 * MS + 21},
              {"k13", 21 * MS, 21 * MS + 13}},
     .dropped = 5},
    {"that the time of day is set hides when a kernel ran that came meanwhile, not how long; the others stay where they were",
     "+c +t a( k100u 10m flush hour k200u 1m full 1m flush k50u ) 1m -t -c",
     {{3, 3, 350 * US}},
     .rows = {{CALL, 0, 0},
              {CALL, 10 * MS, 10 * MS},
              {CALL, 12 * MS, 12 * MS},
              {"k100u", 0, 100 * US},
              {"k50u", 12 * MS, 12 * MS + 50 * US}},
     .dropped = 1},
    {"a call in which a recording begins or ends is no part of it", "+c R1( +t R1) R2( -t R2) -c", .outside = 2},
    {"a full recording counts what is missing", "room:3 +t k10 k20 k30 k40 k50 K1:- 1m -t",
     .reason = "records without times: 1", .lost = 5,
     .rows = {{CALL}, {CALL}, {CALL}, {"k10", 0, 10}, {"k20", 10, 30}, {"k30", 30, 60}}, .dropped = 5},
    {"without CUDA nothing is called, nor stopped", "cuda:0 !c -c flush uncalled", .reason = "no CUDA in the process"},
    {"CUDA that cannot be used", "cuda:0 off !t uncalled",
     .reason = "CUDA cannot be used: off(fork): CUDA does not survive a fork"},
    {"CUDA that came meanwhile", "cuda:0 !c cuda:1 +c"},
    {"another client", "hold:1 !t", .reason = HELD "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39) from cuptiSubscribe"},
    {"another client of an old version", "fail:cuptiSubscribe:12 fail:cuptiGetResultString:999 !t",
     .reason = HELD "CUPTI error (12) from cuptiSubscribe"},
    {"another client that gives it back", "hold:1 !t hold:0 +t"},
    {"too old", "version:12 !c", .reason = "this CUPTI (version 12) is older than that of CUDA 11"},
    {"a flush that fails", "+c fail:cuptiActivityFlushAll:5 flush",
     .reason = "CUPTI_ERROR_SOMETHING (5) from cuptiActivityFlushAll"},
};

static void check_scenario(size_t i)
{
    static char words[300]; /* kernels are called by parts of it */
    char *rest = NULL;
    uint64_t launches = 0;
    size_t rows = 0;
    check_case = scenarios[i].what;
    CHECK((size_t)snprintf(words, sizeof words, "%s", scenarios[i].words) < sizeof words);
    for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        play_word(word);
    }
    for (int node = 0; node < LETTERS; node++) {
        check_launched((const char[]){(char)('a' + node), '\0'}, scenarios[i].nodes[node]);
        launches += scenarios[i].nodes[node].launches;
    }
    check_reason(scenarios[i].reason != NULL ? scenarios[i].reason : "");
    cprof_cupti_state seen = state();
    CHECK_EQUAL(seen.outside, scenarios[i].outside);
    CHECK_EQUAL(seen.unknown_node, scenarios[i].unknown_node);
    CHECK_EQUAL(seen.launched, launches + seen.outside + seen.unknown_node + scenarios[i].lost);
    for (int use = 0; use < CPROF_CUPTI_USES; use++) {
        while (state().users[use] > 0) {
            cprof_cupti_stop(use);
        }
    }
    CHECK(!fake.is_subscribed_());
    cprof_table *table = collected();
    for (; rows < MOST_ROWS && scenarios[i].rows[rows].name != NULL; rows++) {
        CHECK(rows < table->count);
        check_row(table, rows, scenarios[i].rows[rows].name, scenarios[i].rows[rows].start_ns, scenarios[i].rows[rows].stop_ns);
    }
    CHECK_EQUAL(table->count, rows);
    CHECK_EQUAL(table->dropped, scenarios[i].dropped);
    CHECK_EQUAL(collected()->count, 0); /* it was forgotten */
}

TEST(scenarios)
{
    for (size_t i = 0; i < COUNT_OF(scenarios); i++) {
        begin();
        check_scenario(i);
    }
}

/* Each copy has another power of two as its bytes. */
TEST(all_directions_and_kinds_are_told_apart)
{
    static const int directions[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 200};
    const uint64_t to_device = 1 << 1 | 1 << 3, to_host = 1 << 2 | 1 << 4;
    const uint64_t on_device = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10;
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    cprof_cupti_node before = enter_node("node");
    uint64_t now = fake.stamp_(fake.now_());
    make_call(RUNTIME, COPY, 1);
    for (size_t i = 0; i < COUNT_OF(directions); i++) {
        fake.copy_(directions[i], 2, 3, UINT64_C(2) << i, now, now, 1);
        fake.strange_record_();
    }
    make_call(RUNTIME, FILL, 2);
    leave_node(before);
    fake.fill_(3, 99, now, now, 2);
    fake.peer_copy_(1 << 20, now, now, 2);
    cprof_cupti_flush();
    check_launched("node", (cprof_launch_counts){.copies = COUNT_OF(directions) + 1,
                                                 .bytes_to_device = to_device,
                                                 .bytes_to_host = to_host,
                                                 .bytes_on_device = on_device + (1 << 20),
                                                 .fills = 1});
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    check_reason("");
}

/* The numbers of cudaLaunchKernel as old compilers and nvcc 13 call it, and of what came before it. */
TEST(launches_of_all_ages_count)
{
    static const int numbers[][2] = {{RUNTIME, 13},  {RUNTIME, 211}, {RUNTIME, 213}, {RUNTIME, 214}, {RUNTIME, 505},
                                     {RUNTIME, 506}, {DRIVER, 115},  {DRIVER, 116},  {DRIVER, 117},  {DRIVER, 307}};
    enum { AGES = COUNT_OF(numbers) };
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    cprof_cupti_node before = enter_node("node");
    for (int i = 0; i < AGES; i++) {
        int64_t outer = fake.correlation_();
        int64_t inner = fake.correlation_();
        uint64_t now = fake.stamp_(fake.now_());
        CHECK(fake.enter_(numbers[i][0], numbers[i][1], outer));
        CHECK(fake.enter_(DRIVER, CU_LAUNCH, inner));
        fake.kernel_("of the outer call's number", now, now + 5, 0, 7, outer);
        fake.leave_(DRIVER, CU_LAUNCH, inner);
        fake.leave_(numbers[i][0], numbers[i][1], outer);
    }
    leave_node(before);
    fake.advance_(MS);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    check_launched("node", (cprof_launch_counts){.launches = AGES, .kernels = AGES, .kernel_ns = 5 * AGES});
    check_reason("");
}

TEST(records_may_come_in_another_thread_and_in_old_sizes)
{
    static const uint64_t versions[] = {13, 18, 28, 130500};
    for (size_t i = 0; i < COUNT_OF(versions); i++) {
        begin();
        fake.set_version_(versions[i]);
        fake.use_thread_(1);
        CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
        cprof_cupti_node before = enter_node("node");
        for (int j = 0; j < 12000; j++) { /* more than fit into two buffers */
            fake.launch_("kernel", 1);
        }
        leave_node(before);
        fake.advance_(MS);
        cprof_cupti_stop(CPROF_CUPTI_COUNTS);
        check_launched("node", (cprof_launch_counts){.launches = 12000, .kernels = 12000, .kernel_ns = 12000});
        check_reason("");
        CHECK_EQUAL(state().version, versions[i]);
    }
}

/* ---- Threads ---- */

/* A thread whose end nobody would notice lends its node to nobody. */
static void *lend_unnoticed(void *argument)
{
    (void)argument;
    refuses_keys = true;
    cprof_cupti_node before = enter_node("unnoticed");
    refuses_keys = false;
    launch_backward();
    fake.launch_("its own", 5);
    leave_node(before);
    return NULL;
}

TEST(a_thread_that_cannot_be_watched_counts_for_itself)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    check_in_thread(lend_unnoticed, NULL);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    CHECK_EQUAL(launched("unnoticed").launches, 1);
    CHECK_EQUAL(state().unknown_node, 1);
}

#ifdef __SANITIZE_THREAD__
enum { ROUNDS = PTHREAD_DESTRUCTOR_ITERATIONS - 1 }; /* in the last one, the sanitizer has forgotten the thread */
#else
enum { ROUNDS = PTHREAD_DESTRUCTOR_ITERATIONS };
#endif

static pthread_key_t late_key;

/* In every round of destructors, after the core's own. */
static void enter_late(void *rounds)
{
    int *left = rounds;
    (void)enter_node("at its end");
    if (--*left > 0) {
        CHECK(pthread_setspecific(late_key, rounds) == 0);
    }
}

static void *end_in_a_node(void *rounds)
{
    leave_node(enter_node("at its end"));
    CHECK(pthread_setspecific(late_key, rounds) == 0);
    return NULL;
}

/* Of the last nodes of a thread nobody hears when they end, so nobody borrows them. */
TEST(a_thread_that_ends_lends_nothing)
{
    int rounds = ROUNDS;
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    leave_node(enter_node("which makes the core's key"));
    CHECK(pthread_key_create(&late_key, enter_late) == 0);
    check_in_thread(end_in_a_node, &rounds);
    CHECK_EQUAL(rounds, 0);
    launch_backward();
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    CHECK_EQUAL(launched("at its end").launches, 0);
    CHECK_EQUAL(state().unknown_node, 1);
    CHECK(pthread_key_delete(late_key) == 0);
}

enum { CHANGES = 2000000 };

static void *come_into_nodes_and_go(void *done)
{
    cprof_cupti_node node = node_of("on and off");
    for (int i = 0; i < CHANGES; i++) {
        cprof_cupti_node before, ignored;
        cprof_cupti_thread_set_node(node, &before);
        cprof_cupti_thread_set_node(before, &ignored);
    }
    atomic_store((atomic_bool *)done, true);
    return NULL;
}

static void *launch_until(void *done)
{
    CHECK(pthread_setname_np(pthread_self(), "pt_autograd_0") == 0);
    while (!atomic_load((atomic_bool *)done)) {
        fake.launch_("kernel", 3);
    }
    return NULL;
}

/* Each launch is its node's, or is known to be nobody's: none is that of a node as it was while it changed. */
TEST(nodes_that_change_while_they_are_borrowed)
{
    atomic_bool done = false;
    pthread_t changing, launching;
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    launching = check_thread(launch_until, &done);
    changing = check_thread(come_into_nodes_and_go, &done);
    check_join(changing);
    check_join(launching);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    CHECK_EQUAL(launched("on and off").launches + state().unknown_node, state().launched);
}

enum { THREADS = 4, LAUNCHES = 300 };

/* Thread number THREADS is one of a backward pass. */
static void *launch_many(void *argument)
{
    char name[32];
    int number = *(int *)argument;
    (void)snprintf(name, sizeof name, number < THREADS ? "t%d" : "pt_autograd_%d", number);
    if (number == THREADS) {
        CHECK(pthread_setname_np(pthread_self(), name) == 0);
    }
    for (int i = 0; i < LAUNCHES; i++) {
        cprof_cupti_node before = {.accum = NULL};
        if (number < THREADS) {
            before = enter_node(name);
        }
        fake.launch_("kernel", 3);
        leave_node(before);
        if (i % 16 == 0) {
            cprof_cupti_flush();
            (void)state();
        }
    }
    return NULL;
}

static void *come_and_go(void *argument)
{
    (void)argument;
    for (int i = 0; i < 20; i++) {
        char text[100];
        CHECK(cprof_cupti_start(CPROF_CUPTI_TRACE));
        (void)cprof_cupti_reason(text, sizeof text);
        cprof_registry *other = cprof_registry_create(2);
        cprof_cupti_stop(CPROF_CUPTI_TRACE);
        cprof_process_end_registry(other);
        CHECK(cprof_cupti_collect(NULL) == CPROF_OK);
    }
    return NULL;
}

TEST(many_threads_at_once)
{
    pthread_t threads[THREADS + 2];
    int numbers[THREADS + 1];
    fake.use_thread_(1);
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    for (int i = 0; i <= THREADS; i++) {
        numbers[i] = i;
        threads[i] = check_thread(launch_many, &numbers[i]);
    }
    threads[THREADS + 1] = check_thread(come_and_go, NULL);
    for (int i = 0; i <= THREADS + 1; i++) {
        check_join(threads[i]);
    }
    fake.advance_(MS);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    uint64_t unknown = state().unknown_node;
    cprof_launch_counts all = {.launches = 0};
    for (int i = 0; i < THREADS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%d", i);
        cprof_launch_counts own = launched(name);
        CHECK(own.launches >= LAUNCHES && own.launches == own.kernels);
        all.launches += own.launches;
        all.kernel_ns += own.kernel_ns;
    }
    CHECK_EQUAL(all.launches + unknown, (THREADS + 1) * LAUNCHES);
    CHECK_EQUAL(all.kernel_ns, 3 * all.launches);
    CHECK_EQUAL(state().records, (THREADS + 1) * LAUNCHES);
    CHECK_EQUAL(state().unknown_launch + state().untimed, 0);
}

/* ---- What can go wrong ---- */

TEST(calls_that_it_does_not_know_are_left_out)
{
    fake.fail_("cuptiEnableCallback", 1, 1);
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    check_reason("");
    CHECK(fake.wants_call_(RUNTIME, LAUNCH) && fake.wants_call_(DRIVER, CU_COPY) && !fake.wants_call_(RUNTIME, 3));
    CHECK(fake.wants_kind_(10) && !fake.wants_kind_(3));
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    CHECK(!fake.wants_kind_(10) && !fake.wants_call_(RUNTIME, LAUNCH));
    fake.fail_("cuptiEnableCallback", 1, 0); /* none of them: that is something else */
    CHECK(!cprof_cupti_start(CPROF_CUPTI_COUNTS));
    check_reason("CUPTI_ERROR_SOMETHING (1) from cuptiEnableCallback");
}

/* A whole life, with a node in it; every part may find CUPTI broken. */
static bool live(void)
{
    bool is_on = cprof_cupti_start(CPROF_CUPTI_COUNTS);
    bool is_traced = is_on && cprof_cupti_start(CPROF_CUPTI_TRACE);
    cprof_cupti_node before = enter_node("node");
    fake.launch_("kernel", 5);
    leave_node(before);
    (void)cprof_accum_finish(node_of("node").accum, node_of("node").generation, CPROF_OUTCOME_SUCCESS,
                             &(cprof_sample){1, 0, 0});
    fake.advance_(MS);
    cprof_cupti_flush();
    fake.launch_("kernel", 5);
    fake.advance_(MS);
    if (is_traced) {
        cprof_cupti_stop(CPROF_CUPTI_TRACE);
    }
    if (is_on) {
        cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    }
    cprof_table *table = new_table();
    CHECK(cprof_cupti_collect(table) == CPROF_OK);
    return is_on;
}

static const char *const functions[] = {"cuptiGetVersion",
                                        "cuptiGetTimestamp",
                                        "cuptiSubscribe",
                                        "cuptiUnsubscribe",
                                        "cuptiEnableCallback",
                                        "cuptiActivityEnable",
                                        "cuptiActivityDisable",
                                        "cuptiActivityRegisterCallbacks",
                                        "cuptiActivityFlushAll",
                                        "cuptiActivityGetNextRecord",
                                        "cuptiActivityGetNumDroppedRecords"};

/* Whether such an answer is one that the function gives where all is well. */
static bool is_harmless(const char *function, int code)
{
    bool is_end = strcmp(function, "cuptiActivityGetNextRecord") == 0 && (code == 12 || code == 21);
    return is_end || (strcmp(function, "cuptiEnableCallback") == 0 && code == 1);
}

static void fail_once(const char *function, int code, uint64_t nth)
{
    reset_fake();
    uint64_t samples = node_of("node").accum->count;
    fake.fail_(function, code, nth);
    (void)live();
    bool has_failed = fake.calls_(function) >= nth;
    CHECK_EQUAL(node_of("node").accum->count, samples + 1);
    CHECK_EQUAL(fake.violations_(), 0);
    CHECK_EQUAL(fake.open_buffers_(), 0);
    if (has_failed && !is_harmless(function, code)) {
        char text[64];
        (void)snprintf(text, sizeof text, "(%d) from %s", code, function);
        CHECK(strstr(reason(), text) != NULL);
    }
    bool may_be_stuck = strcmp(function, "cuptiUnsubscribe") == 0;
    CHECK(fake.is_subscribed_() == (may_be_stuck && has_failed));
}

/* Each function fails once, at its nth call, with each documented code. */
TEST(each_call_may_fail_with_each_code)
{
    static const uint64_t at[] = {1, 2, 3, 4, 8, 165};
    CHECK(live());
    check_reason("");
    for (size_t f = 0; f < COUNT_OF(functions); f++) {
        for (size_t i = 0; i < COUNT_OF(at); i++) {
            if (fake.calls_(functions[f]) < at[i] && i > 0 && at[i] > 8 && strcmp(functions[f], "cuptiEnableCallback") != 0) {
                continue;
            }
            for (int code = 1; code <= LAST_CODE; code += code_step) {
                fail_once(functions[f], code, at[i]);
            }
            fail_once(functions[f], UNKNOWN_ERROR, at[i]);
        }
    }
    reset_fake();
    CHECK(live()); /* and then it can be had again */
    check_reason("");
}

/* Without a driver, some versions answer this to everything. */
TEST(all_calls_may_fail)
{
    fake.break_(999);
    CHECK(!live());
    check_reason("CUPTI error (999) from cuptiSubscribe");
    CHECK_EQUAL(state().version, 0);
    fake.break_(0);
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    cprof_cupti_node before = enter_node("node");
    fake.launch_("kernel", 5);
    fake.break_(999);
    cprof_cupti_flush();
    leave_node(before);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    CHECK(strstr(reason(), "CUPTI error (999) from cuptiGetTimestamp") != NULL);
    fake.break_(0);
    fake.reset_();
}

TEST(any_allocation_may_fail)
{
    uint64_t nth = 1;
    bool failed = true;
    uint64_t samples = 0;
    for (; failed; nth++) {
        reset_fake();
        cprof_cupti_reset_for_test();
        samples = node_of("node").accum->count;
        fake_alloc_fail(nth);
        bool is_on = cprof_cupti_start(CPROF_CUPTI_COUNTS);
        bool is_traced = is_on && cprof_cupti_start(CPROF_CUPTI_TRACE);
        cprof_cupti_node before = enter_node("node");
        fake.launch_("kernel", 5);
        leave_node(before);
        fake.advance_(MS);
        if (is_on) {
            cprof_cupti_stop(CPROF_CUPTI_COUNTS);
        }
        if (is_traced) {
            cprof_cupti_stop(CPROF_CUPTI_TRACE);
        }
        (void)cprof_cupti_collect(NULL);
        failed = fake_alloc_has_failed();
        if (!is_on) {
            check_reason("out of memory");
        }
        CHECK(is_on == is_traced);
    }
    CHECK(nth > 5);
    CHECK_EQUAL(node_of("node").accum->count, samples);
}

static void *refuse_buffers(void)
{
    uint8_t *first, *second, *third;
    size_t size, most;
    fake_alloc_fail(1);
    cprof_cupti_events_request(&first, &size, &most);
    CHECK(fake_alloc_has_failed());
    CHECK(first != NULL && size == CPROF_CUPTI_BUFFER_SIZE && most == 0); /* the spare one */
    fake_alloc_fail(1);
    cprof_cupti_events_request(&second, &size, &most);
    CHECK(fake_alloc_has_failed());
    CHECK(second == NULL && size == 0);
    cprof_cupti_events_request(&third, &size, &most);
    CHECK(third != NULL);
    cprof_cupti_events_complete(NULL, 0, NULL, 0, 0);
    cprof_cupti_events_complete(NULL, 0, first, size, 0); /* is the spare one again */
    return third;
}

/* Buffers come and go also when nobody wants them any more. */
TEST(there_is_a_buffer_to_spare)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    uint8_t *late = refuse_buffers();
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    cprof_cupti_events_complete(NULL, 0, late, CPROF_CUPTI_BUFFER_SIZE, 64);
    static const uint8_t data[72] = {0};
    cprof_cupti_events_call(NULL, RUNTIME, LAUNCH, data); /* after the end: nobody's */
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    cprof_cupti_events_call(NULL, RUNTIME, 3, data); /* not one of ours */
    CHECK_EQUAL(state().launched, 0);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
}

/* ---- Finding the library ---- */

/* A variable that the test's start has set. */
static const char *setting(const char *name)
{
    const char *text = getenv(name);
    CHECK(text != NULL);
    return text;
}

TEST(libraries_that_are_no_use_say_so)
{
    char *path = strdup(setting("CPROFILING_LIBCUPTI"));
    CHECK(setenv("CPROFILING_LIBCUPTI", "/no/such/libcupti.so", 1) == 0);
    CHECK(!cprof_cupti_start(CPROF_CUPTI_COUNTS));
    check_reason("the library in CPROFILING_LIBCUPTI cannot be loaded");
    CHECK(setenv("CPROFILING_LIBCUPTI", path, 1) == 0);
    CHECK(!cprof_cupti_start(CPROF_CUPTI_COUNTS)); /* the environment is read once */
    cprof_cupti_reset_for_test();
    CHECK(setenv("CPROFILING_LIBCUPTI", setting("FAKE_CUPTI_INCOMPLETE"), 1) == 0);
    CHECK(!cprof_cupti_start(CPROF_CUPTI_COUNTS));
    check_reason("the libcupti that was found lacks cuptiActivityGetNumDroppedRecords");
    CHECK(setenv("CPROFILING_LIBCUPTI", path, 1) == 0);
    CHECK_EQUAL(fake.total_calls_(), 0);
    free(path);
}

/* The one that the process has loaded is taken, wherever else one may be, and no second one is loaded. */
TEST(what_is_loaded_is_taken)
{
    char *path = strdup(setting("CPROFILING_LIBCUPTI"));
    const char *const folders[] = {"", "/no/such/folder"};
    CHECK(unsetenv("CPROFILING_LIBCUPTI") == 0);
    CHECK(cprof_cupti_set_folders(folders, 2));
    CHECK(setenv("CUDA_HOME", "/no/such/home", 1) == 0);
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    CHECK(fake.is_subscribed_());
    CHECK(strcmp(state().path, path) == 0);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    CHECK(setenv("CPROFILING_LIBCUPTI", path, 1) == 0);
    CHECK(unsetenv("CUDA_HOME") == 0);
    free(path);
}

/* ---- Fork ---- */

TEST(a_child_never_calls_it)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    CHECK(cprof_cupti_start(CPROF_CUPTI_TRACE));
    cprof_cupti_node before = enter_node("node");
    fake.launch_("kernel", 5);
    uint64_t calls = fake.total_calls_();
    IN_CHILD
    {
        fake.launch_("kernel", 5);
        cprof_cupti_flush();
        cprof_cupti_stop(CPROF_CUPTI_TRACE);
        cprof_cupti_stop(CPROF_CUPTI_COUNTS);
        leave_node(before);
        CHECK(!cprof_cupti_start(CPROF_CUPTI_COUNTS));
        check_reason("off(fork): CUPTI does not survive a fork");
        CHECK(cprof_cupti_collect(NULL) == CPROF_OK);
        CHECK(!state().has_library);
        cprof_process_end_registry(registry);
        CHECK_EQUAL(fake.total_calls_(), calls);
    }
    leave_node(before);
    fake.advance_(MS);
    cprof_cupti_stop(CPROF_CUPTI_TRACE);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    CHECK(cprof_cupti_collect(NULL) == CPROF_OK);
    check_launched("node", (cprof_launch_counts){.launches = 1, .kernels = 1, .kernel_ns = 5});
}

/* What a thread that is not there any more was in the middle of is left alone. */
TEST(a_child_leaves_what_is_half_written)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_TRACE));
    cprof_lock_acquire(&cprof_cupti_events.trace.lock);
    IN_CHILD
    {
        CHECK(cprof_cupti_collect(NULL) == CPROF_OK);
    }
    cprof_lock_release(&cprof_cupti_events.trace.lock);
    cprof_cupti_stop(CPROF_CUPTI_TRACE);
}

TEST(a_child_of_a_process_without_it_may_use_it)
{
    IN_CHILD
    {
        fake.reset_();
        CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
        cprof_cupti_stop(CPROF_CUPTI_COUNTS);
        CHECK_EQUAL(fake.violations_(), 0);
    }
}

static const char *const folders_before[] = {"/before"};
static const char *const folders_after[] = {"/after", "/behind"};
static const char *const folders_of_child[] = {"/whose name is longer, so that it takes other memory"};
static bool has_child;

static void fork_and_set_folders(void)
{
    IN_CHILD
    {
        CHECK(cprof_cupti_set_folders(folders_of_child, 1)); /* gives back those that the child has */
    }
    has_child = true;
}

TEST(a_child_that_is_forked_while_folders_are_set)
{
    CHECK(cprof_cupti_set_folders(folders_before, 1));
    after_release = fork_and_set_folders;
    CHECK(cprof_cupti_set_folders(folders_after, 2));
    CHECK(has_child);
}

/* ---- Recordings ---- */

TEST(the_rows_of_a_recording_are_exact)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_TRACE));
    int64_t at = fake.now_();
    fake.launch_("a kernel", 30 * US);
    fake.advance_(10 * US);
    int64_t call = fake.correlation_();
    fake.enter_(DRIVER, CU_COPY, call);
    fake.advance_(2 * US);
    fake.leave_(DRIVER, CU_COPY, call);
    fake.copy_(2, 3, 1, 512, fake.stamp_(at + 50 * US), fake.stamp_(at + 60 * US), call);
    fake.fill_(3, 64, fake.stamp_(at + 70 * US), fake.stamp_(at + 71 * US), 4711);
    fake.kernel_(NULL, fake.stamp_(at + 80 * US), fake.stamp_(at + 90 * US), 1, 0, 4712);
    fake.kernel_("a kernel", fake.stamp_(at + 80 * US), fake.stamp_(at + 85 * US), 1, 0, 4712);
    fake.advance_(MS);
    cprof_cupti_stop(CPROF_CUPTI_TRACE);
    cprof_table *table = collected();
    CHECK_EQUAL(table->count, 7);
    int64_t base = table->start_ns[0];
    CHECK(llabs(base / 1000000000 - (int64_t)time(NULL)) < 60); /* the test's clock has no part in that */
    static const struct {
        const char *cat, *name;
        int64_t start, stop; /* in us */
        int64_t correlation, device, stream, bytes;
    } rows[] = {
        {"cuda_runtime", "cudaLaunchKernel", 0, 0, 1, -1, -1, CPROF_TABLE_UNKNOWN},
        {"cuda_driver", "cuMemcpyHtoDAsync", 10, 12, 2, -1, -1, CPROF_TABLE_UNKNOWN},
        {"kernel", "a kernel", 0, 30, 1, 0, 7, CPROF_TABLE_UNKNOWN},
        {"gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 50, 60, 2, 0, 7, 512},
        {"gpu_memset", "Memset (Device)", 70, 71, 4711, 0, 7, 64},
        {"kernel", "unknown kernel", 80, 90, 4712, 1, 0, CPROF_TABLE_UNKNOWN},
        {"kernel", "a kernel", 80, 85, 4712, 1, 0, CPROF_TABLE_UNKNOWN},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_text(table, table->cat[i], rows[i].cat);
        check_text(table, table->name[i], rows[i].name);
        CHECK_EQUAL(table->start_ns[i], base + rows[i].start * US);
        CHECK_EQUAL(table->end_ns[i], base + rows[i].stop * US);
        CHECK_EQUAL(table->correlation[i], rows[i].correlation);
        CHECK_EQUAL(table->device[i], rows[i].device);
        CHECK_EQUAL(table->stream[i], rows[i].stream);
        CHECK_EQUAL(table->bytes[i], rows[i].bytes);
        CHECK_EQUAL(table->kind[i], i < 2 ? CPROF_KIND_HOST : CPROF_KIND_DEVICE);
        const cprof_track *track = &table->tracks[table->track[i]];
        CHECK_EQUAL(track->pid, i < 2 ? getpid() : rows[i].device);
        CHECK_EQUAL(track->tid, i < 2 ? getpid() : rows[i].stream);
    }
    const cprof_track *track = &table->tracks[table->track[2]];
    check_text(table, track->thread_name, "stream 7");
    check_text(table, track->process_labels, "GPU 0");
    CHECK_EQUAL(track->process_sort, 0x1000000);
    CHECK_EQUAL(table->flow_count, 4);
    for (size_t i = 0; i < 4; i++) {
        const cprof_flow *flow = &table->flows[i];
        CHECK(flow->phase == (i % 2 == 0 ? 's' : 'f'));
        CHECK_EQUAL(flow->id, 1 + i / 2);
        check_text(table, flow->name, "ac2g");
        check_text(table, flow->cat, "ac2g");
        size_t row = i % 2 == 0 ? i / 2 : 2 + i / 2;
        CHECK_EQUAL(flow->at_ns, table->start_ns[row]);
        CHECK_EQUAL(flow->track, table->track[row]);
        CHECK(flow->binds_enclosing == (i % 2 == 1));
    }
    CHECK_EQUAL(table->dropped, 0);
    CHECK(cprof_table_finish(table) == CPROF_OK);
}

int main(int argc, char **argv)
{
    code_step = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    cprof_process_start();
    load_fake(setting("CPROFILING_LIBCUPTI"));
    cprof_clock_set_test(read_fake_clock);
    fake_alloc_install();
    check_run(begin, end);
    cprof_cupti_reset_for_test();
    return EXIT_SUCCESS;
}
