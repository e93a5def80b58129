/* event.h, with event_pool.h and context.h, against the fake driver. */
#define _GNU_SOURCE
#include "cprofiling/devices/event.h"

#include "cprofiling/devices/event_pool.h"
#include "cprofiling/devices/context.h"
#include "cprofiling/process.h"
#include "tests/core/fake_alloc.h"
#include "tests/core/fake_gpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define MS INT64_C(1000000) /* in ns */

enum {
    NODES = 8,
    THREADS = 6,
    ROUNDS = 150,
    IDENTITY = 1, /* the generation of a registry that was never reset */
};

static cprof_registry *registry;
static cprof_accum *nodes[NODES];
static uint64_t asked[NODES]; /* calls that wanted a time */

static uint64_t stream;      /* of the first device */
static uint64_t foreign;     /* of the second one */
static bool may_break_rules; /* of the fake driver, in this test */

static const char *hidden_function; /* by its exported name */

/* With it, a driver has no cuGetProcAddress, and not that function either. */
WRAP_REAL(void *, dlsym, void *library, const char *name)
{
    bool is_hidden =
        hidden_function != NULL && (strcmp(name, "cuGetProcAddress_v2") == 0 || strcmp(name, hidden_function) == 0);
    return is_hidden ? NULL : real_dlsym(library, name);
}

static cprof_ns read_device_time(void)
{
    return fake.now();
}

static cprof_registry *make_registry(cprof_accum **accums)
{
    cprof_registry *made = cprof_registry_create(0);
    CHECK(made != NULL);
    for (int i = 0; i < NODES; i++) {
        char name[] = {'n', (char)('0' + i)};
        accums[i] = cprof_registry_accum(made, (cprof_names){{"test", 4}, {name, sizeof name}});
        CHECK(accums[i] != NULL);
    }
    return made;
}

static void end_test(void)
{
    if (registry == NULL) {
        return;
    }
    if (!may_break_rules) {
        check_rules();
    }
    cprof_process_end_registry(registry);
    CHECK(cprof_event_pool_pending(registry) == 0); /* an address, no more */
    registry = NULL;
}

/* A fresh driver with two devices in use, the first one current, and a stream of each. */
static void start_test(void)
{
    end_test();
    fake.reset();
    cprof_wait_reset_for_test();
    cprof_event_reset_for_test();
    CHECK(setenv(LIBRARY_VARIABLE, library_path, 1) == 0);
    fake.activate(0);
    fake.activate(1);
    stream = fake.new_stream(0, 1);
    foreign = fake.new_stream(1, 1);
    played_streams['S' - 'A'] = stream;
    played_streams['F' - 'A'] = foreign;
    fake.bind(0);
    may_break_rules = false;
    registry = make_registry(nodes);
    memset(asked, 0, sizeof asked);
}

static const cprof_resources_figures *figures(int node)
{
    static const cprof_resources_figures none;
    return nodes[node]->extra != NULL ? &nodes[node]->extra->figures : &none;
}

static uint64_t missed(int node)
{
    uint64_t sum = 0;
    for (int cause = 0; cause < CPROF_GPU_CAUSES; cause++) {
        sum += figures(node)->missed[cause];
    }
    return sum;
}

static cprof_gpu_place place(int device, uint64_t which)
{
    return (cprof_gpu_place){device, which};
}

static cprof_gpu_place here(uint64_t which)
{
    return place(CPROF_GPU_CURRENT_DEVICE, which);
}

/* As a call does it. */
static cprof_gpu_mark *begin(int node, cprof_gpu_place where)
{
    cprof_gpu_cause cause = CPROF_GPU_CAUSES;
    cprof_gpu_mark *mark = cprof_event_begin(where, &cause);
    CHECK((mark != NULL) == (cause == CPROF_GPU_KNOWN));
    CHECK(cause < CPROF_GPU_CAUSES);
    asked[node]++;
    if (mark == NULL) {
        cprof_accum_miss_gpu(nodes[node], IDENTITY, cause);
    }
    return mark;
}

static void finish(int node, cprof_gpu_mark *mark, cprof_gpu_place where)
{
    if (mark != NULL) {
        cprof_event_end(mark, where, nodes[node], IDENTITY);
    }
}

static void call(int node, cprof_gpu_place where, int64_t ns)
{
    cprof_gpu_mark *mark = begin(node, where);
    if (where.stream == 0) {
        fake.launch_default(where.device, ns);
    } else {
        fake.launch(where.stream, ns);
    }
    finish(node, mark, where);
}

static void check_miss(int node, cprof_gpu_cause cause, uint64_t count)
{
    CHECK_EQUAL(figures(node)->missed[cause], count);
    CHECK_EQUAL(missed(node), count);
}

static void check_gpu(int node, uint64_t count, int64_t sum)
{
    CHECK_EQUAL(figures(node)->gpu_count, count);
    CHECK_EQUAL(figures(node)->gpu_ns, sum);
    CHECK_EQUAL(figures(node)->queue_count <= count, true);
}

static void check_reason(const char *expected)
{
    char reason[200] = "before";
    CHECK(cprof_event_reason(reason, sizeof reason) == (expected[0] != '\0'));
    check_text(reason, expected);
}

static cprof_gpu_cause refused(cprof_gpu_place where)
{
    cprof_gpu_cause cause = CPROF_GPU_KNOWN;
    CHECK(cprof_event_begin(where, &cause) == NULL);
    return cause;
}

static void advance_and_poll(int64_t ns)
{
    fake.advance(ns);
    cprof_event_poll();
}

/* Times. */

/* A time is converted from a float of milliseconds: its 24 bits tell all numbers of nanoseconds below 2^23, and those of
 * whole milliseconds that is met here. */
static int64_t exact_duration(uint64_t *random)
{
    return check_random(random) % 4 == 0 ? (int64_t)(check_random(random) % 4000) * MS
                                         : (int64_t)(check_random(random) % (1 << 23));
}

TEST(a_thousand_nodes)
{
    int64_t sums[6] = {0};
    uint64_t counts[6] = {0};
    cprof_gpu_place places[6];
    uint64_t random = 1;
    for (int i = 0; i < 6; i++) {
        places[i] = place(i / 3, fake.new_stream(i / 3, i % 2));
    }
    for (int i = 0; i < 1000; i++) {
        int which = (int)(check_random(&random) % 6);
        int64_t duration = exact_duration(&random);
        call(which, places[which], duration);
        sums[which] += duration;
        counts[which]++;
        fake.advance(check_random(&random) % 8 == 0 ? exact_duration(&random) : 0);
    }
    CHECK(cprof_event_pool_pending(registry) > 100);
    advance_and_poll(INT64_C(3600) * 1000 * MS);
    CHECK_EQUAL(cprof_event_pool_pending(registry), 0);
    for (int i = 0; i < 6; i++) {
        check_gpu(i, counts[i], sums[i]);
        CHECK_EQUAL(figures(i)->queue_count, counts[i]);
        CHECK_EQUAL(figures(i)->multi_stream + missed(i), 0);
    }
    CHECK(fake.calls("cuEventCreate") <= 2 * 1000);
    CHECK(fake.references(0) == 1 && fake.references(1) == 1 && fake.current_device() == 0);
    check_reason("");
}

TEST(nothing_waits_and_little_is_asked)
{
    for (int i = 0; i < 100; i++) {
        call(0, here(stream), MS);
    }
    CHECK(fake.now() == 0);
    CHECK(fake.calls("cuCtxSynchronize") == 0);
    CHECK(fake.calls("cuEventQuery") <= 2 * 100); /* one at each begin and end */
    CHECK_EQUAL(cprof_event_pool_pending(registry), 100);
    fake.advance(200 * MS);
    for (int i = 0; i < 100; i++) { /* marks resolve each other, and their events are used again */
        call(0, here(stream), MS);
        fake.advance(MS);
    }
    CHECK_EQUAL(cprof_event_pool_pending(registry), 1);
    cprof_event_poll();
    CHECK(fake.calls("cuEventCreate") <= 202);
    check_gpu(0, 200, 200 * MS);
}

/* ---- Scenarios
 *
 * A text of what the driver does (fake_gpu.h), and of calls of the nodes a to e. Their places are a stream of the current
 * device, of which `.` is the default one, or one of a device that stands before it; S and F are there from the start.
 *
 *   a(S a)1F a%  begins a mark, ends it, cancels it; that none was begun counts as missed
 *   a=S:5m       a call that gives the stream work of 5 ms
 *   poll         resolves what has passed; pending=2 pairs have not; memory: that of the device is told
 */

static cprof_gpu_mark *played[NODES];

static cprof_gpu_place place_of(const char *text, const char **rest)
{
    int device = CPROF_GPU_CURRENT_DEVICE;
    if (*text >= '0' && *text <= '9') {
        device = *text++ - '0';
    }
    CHECK(*text == '.' || *text >= 'A');
    *rest = text + 1;
    return place(device, *text == '.' ? 0 : played_streams[*text - 'A']);
}

static void play_word(const char *word)
{
    int node = word[0] - 'a';
    const char *rest;
    char *end;
    int64_t size;
    if (strcmp(word, "poll") == 0) {
        cprof_event_poll();
    } else if (strcmp(word, "memory") == 0) {
        CHECK(cprof_wait_memory(0, &size, &size));
    } else if (strncmp(word, "pending=", 8) == 0) {
        CHECK_EQUAL(cprof_event_pool_pending(registry), strtoull(word + 8, NULL, 10));
    } else if (word[1] == '%') {
        cprof_event_cancel(played[node]);
    } else if (word[1] == '(') {
        played[node] = begin(node, place_of(word + 2, &rest));
    } else if (word[1] == ')') {
        finish(node, played[node], place_of(word + 2, &rest));
    } else if (node >= 0 && node < NODES && word[1] == '=') {
        cprof_gpu_place where = place_of(word + 2, &rest);
        call(node, where, check_ns(rest + 1, &end));
    } else if (!play_driver(word)) {
        check_driver(word);
    }
}

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* of the scenarios: 0 */

#define BAD_STREAM "CUDA_ERROR_INVALID_HANDLE (400) from cuStreamIsCapturing: no GPU time of that call"
#define MISSES(why, count) .cause = CPROF_GPU_##why, .missed = (count)

static const struct {
    const char *what, *words;
    struct {
        uint64_t count;
        int64_t gpu_ns;
        uint64_t multi_stream; /* without a delay in the queue; the others have one */
        cprof_gpu_cause cause;
        uint64_t missed;
    } nodes[NODES];
    const char *reason; /* NULL: none */
} scenarios[] = {
    {"nested calls and two streams; the last one begins at 9 ms and ends at 5 ms, where the device has not begun yet",
     "T=0 a(S S:2m b=S:3m T:9m a)T c(T c)S 6m poll pending=2 6m poll",
     {{1, 9 * MS, 1}, {1, 3 * MS}, {MISSES(FAILED, 1)}},
     "an impossible time (-4 ms) from cuEventElapsedTime: no GPU time of that call"},
    {"cancelled marks come back", "a(S a% a(S a% a(S a% cuEventCreate=2 b=S:1m 1m poll", {{0}, {1, MS}}},
    {"without a driver, a device, a context",
     "started:0 a(0. b(. started:1 c(7. reset:1 d(1. at:-1 e(. at:1 e(. cuEventCreate=0",
     {{MISSES(NO_CUDA, 1)}, {MISSES(NO_CUDA, 1)}, {MISSES(NO_CONTEXT, 1)}, {MISSES(NO_CONTEXT, 1)}, {MISSES(NO_CONTEXT, 2)}}},
    {"H4: captured streams are left alone",
     "T=0b a=S:1m 1m cuEventQuery=1 S{ b(S S} T{ b(S b(. poll cuEventQuery=1 pending=1 T} poll",
     {{1, MS}, {MISSES(CAPTURED, 3)}}},
    {"a capture that begins inside a call", "a(S S{ a)S S} cuEventRecord=1 b=S:1m 1m poll", {{MISSES(CAPTURED, 1)}, {1, MS}}},
    {"a capture of a stream that nobody knows: queries are allowed in the relaxed mode, and the thread gets its own back",
     "T=0 T{ a=S:1m 1m b=S:1m 1m poll memory T} mode=0",
     {{1, MS}, {1, MS}}},
    {"an event that a capture took", "a=S:1m b=S:1m 2m fail:cuEventQuery:907:1 poll", {{MISSES(CAPTURED, 1)}, {1, MS}}},
    {"that a stream is of another context costs its call the time, and no other",
     "a=S:1m b(F c(S c)F 1m poll",
     {{1, MS}, {MISSES(FAILED, 1)}, {MISSES(FAILED, 1)}},
     BAD_STREAM},
    {"H6: a call ends on another device, or in another context",
     "a(0S a)1F b(S own:0 b).",
     {{MISSES(OTHER_DEVICE, 1)}, {MISSES(OTHER_DEVICE, 1)}}},
    {"H6, H7: a device is reset: its handle comes back, its events do not",
     "a=S:1m 1m poll b=S:1m c=1F:1m d(S reset:0 d). poll on:0 S=0 e=S:1m 1m poll refs0=1 refs1=1 cuEventDestroy=0",
     {{1, MS}, {MISSES(LOST, 1)}, {1, MS}, {MISSES(LOST, 1)}, {1, MS}}},
    {"the same unnoticed: an old driver says that the event is none, others that the context is new",
     "a=S:1m 1m poll b=S:1m c(S reset:0 on:0 S=0 c)S d=S:1m d=S:1m 2m poll",
     {{1, MS}, {MISSES(LOST, 1)}, {MISSES(LOST, 1)}, {2, 2 * MS}}},
    {"H3: no more events, but those of the first call, of which one is the base",
     "limit:3 a=S:1m a=S:1m 1m b=S:1m 2m poll events=3",
     {{1, MS, MISSES(FAILED, 1)}, {1, MS}},
     "CUDA_ERROR_OUT_OF_MEMORY (2) from cuEventCreate: no GPU time of that call"},
};

TEST(scenarios)
{
    for (size_t i = 0; i < COUNT_OF(scenarios); i++) {
        char words[200];
        char *rest = NULL;
        CHECK((size_t)snprintf(words, sizeof words, "%s", scenarios[i].words) < sizeof words);
        start_test();
        for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
            play_word(word);
        }
        check_case = scenarios[i].what;
        for (int node = 0; node < NODES; node++) {
            check_gpu(node, scenarios[i].nodes[node].count, scenarios[i].nodes[node].gpu_ns);
            check_miss(node, scenarios[i].nodes[node].cause, scenarios[i].nodes[node].missed);
            CHECK_EQUAL(figures(node)->multi_stream, scenarios[i].nodes[node].multi_stream);
            CHECK_EQUAL(figures(node)->queue_count, figures(node)->gpu_count - figures(node)->multi_stream);
        }
        check_reason(scenarios[i].reason != NULL ? scenarios[i].reason : "");
    }
}

TEST(default_stream)
{
    cprof_gpu_mark *mark = begin(0, here(0));
    fake.launch_default(0, 5 * MS);
    finish(0, mark, place(0, 1)); /* by its other name */
    call(1, place(1, 0), 7 * MS);
    advance_and_poll(7 * MS);
    check_gpu(0, 1, 5 * MS);
    check_gpu(1, 1, 7 * MS);
    CHECK_EQUAL(figures(0)->multi_stream, 0);
}

TEST(odd_times)
{
    static const char *const odd[] = {"nan", "-1", "inf", "-inf", "1e20"};
    call(0, here(stream), MS);
    advance_and_poll(MS);
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        call(1, here(stream), MS);
        fake.advance(MS);
        fake.next_elapsed(odd[i]);
        cprof_event_poll();
        check_miss(1, CPROF_GPU_FAILED, i + 1);
    }
    call(0, here(stream), MS);
    advance_and_poll(MS);
    check_gpu(0, 2, 2 * MS);
    check_reason("an impossible time (nan ms) from cuEventElapsedTime: no GPU time of that call");
}

/* Conversion and queue delays. */

TEST(conversion)
{
    static const struct {
        float ms;
        cprof_ns ns;
    } exact[] = {{0, 0}, {1, MS}, {0.0005f, 500}, {-2, -2 * MS}, {8.388607f, 8388607}, {0.000001f, 1}, {-0.000001f, -1}};
    static const float impossible[] = {NAN, INFINITY, -INFINITY, 1e13f, -1e13f};
    cprof_ns ns = 77;
    for (size_t i = 0; i < COUNT_OF(exact); i++) {
        CHECK(cprof_event_pool_ns_of_ms(exact[i].ms, &ns));
        CHECK_EQUAL(ns, exact[i].ns);
    }
    for (size_t i = 0; i < COUNT_OF(impossible); i++) {
        CHECK(!cprof_event_pool_ns_of_ms(impossible[i], &ns));
    }
    CHECK_EQUAL(ns, -1);
}

/* The device's clock reads 500 where the host's reads 0. */
TEST(delays_are_relative_to_the_least)
{
    const cprof_ns window = CPROF_EVENT_DELAY_WINDOW_NS;
    const struct {
        cprof_ns host_ns, late_ns, delay_ns;
    } marks[] = {
        {100, 30, 0}, /* the first one is all there is */
        {200, 50, 20},
        {300, 10, 0},
        {400, 60, 50},
        {150, 60, 50}, /* out of order */
        {100 + window, 25, 15},
        {100 + 2 * window, 40, 15}, /* the 10 have gone */
        {100 + 4 * window, 90, 0},  /* all have */
    };
    cprof_event_delay delay = {0};
    for (size_t i = 0; i < COUNT_OF(marks); i++) {
        CHECK_EQUAL(cprof_event_pool_delay_of(&delay, marks[i].host_ns, 500 + marks[i].host_ns + marks[i].late_ns),
                    marks[i].delay_ns);
    }
}

TEST(queue_delays)
{
    cprof_driver_set_clock_for_test(read_device_time);
    call(0, here(stream), MS);        /* passed at once */
    call(0, here(stream), MS);        /* after 1 ms */
    call(0, here(stream), 2 * MS);    /* after 2 ms */
    call(1, here(stream), 3000 * MS); /* after 4 ms */
    call(1, here(stream), MS);        /* after 3,004 ms: a new base */
    advance_and_poll(3100 * MS);
    call(2, here(stream), MS); /* idle: not delayed, 3.1 s behind the first base, and told by the second */
    call(2, here(stream), MS);
    advance_and_poll(MS * 10);
    CHECK_EQUAL(figures(0)->queue_count + figures(1)->queue_count + figures(2)->queue_count, 7);
    CHECK_EQUAL(figures(0)->queue_ns, 3 * MS);
    CHECK_EQUAL(figures(1)->queue_ns, 3008 * MS);
    CHECK_EQUAL(figures(2)->queue_ns, MS);
    cprof_driver_set_clock_for_test(NULL);
}

/* The pair itself has its time, whatever becomes of the time since the base. */
TEST(base_that_fails)
{
    static const int codes[] = {400, 600, 201, 709, 700};
    for (size_t i = 0; i < COUNT_OF(codes); i++) {
        start_test();
        call(0, here(stream), MS);
        advance_and_poll(MS);
        call(0, here(stream), MS);
        fake.advance(MS);
        fake.fail("cuEventElapsedTime", codes[i], 2);
        cprof_event_poll();
        check_gpu(0, 2, 2 * MS);
        CHECK_EQUAL(figures(0)->queue_count, 1);
        call(1, here(stream), MS);
        advance_and_poll(MS);
        check_gpu(1, codes[i] != 700, codes[i] != 700 ? MS : 0);
        CHECK_EQUAL(figures(1)->queue_count, codes[i] != 700);
    }
}

/* Where there is nothing to record in. */

TEST(no_use_of_a_library)
{
    CHECK(setenv(LIBRARY_VARIABLE, "/nowhere/libcuda.so.1", 1) == 0);
    CHECK(refused(place(0, 0)) == CPROF_GPU_FAILED);
    check_reason("the library in CPROFILING_LIBCUDA cannot be loaded: no GPU time");
}

/* Waiting goes on without what only events need, and events without what they can do without. */
TEST(functions_that_a_driver_lacks)
{
    static const struct {
        const char *name;
        const char *reason;
    } functions[] = {
        {"cuCtxGetCurrent", "the CUDA driver lacks cuCtxGetCurrent: no GPU time"},
        {"cuEventCreate", "the CUDA driver lacks cuEventCreate: no GPU time"},
        {"cuEventDestroy_v2", "the CUDA driver lacks cuEventDestroy: no GPU time"},
        {"cuEventRecord", "the CUDA driver lacks cuEventRecord: no GPU time"},
        {"cuEventQuery", "the CUDA driver lacks cuEventQuery: no GPU time"},
        {"cuEventElapsedTime", "the CUDA driver lacks cuEventElapsedTime: no GPU time"},
        {"cuCtxGetId", ""},
        {"cuThreadExchangeStreamCaptureMode", ""},
        {"cuMemGetInfo_v2", ""},
        {"cuProfilerStart", ""},
        {"cuProfilerStop", ""},
    };
    for (size_t i = 0; i < COUNT_OF(functions); i++) {
        hidden_function = functions[i].name;
        start_test();
        CHECK(cprof_wait_synchronize(0, 0) == CPROF_GPU_WAITED);
        bool works = functions[i].reason[0] == '\0';
        finish(0, begin(0, place(1, 0)), place(1, 0));
        cprof_event_poll();
        check_gpu(0, works, 0);
        check_miss(0, CPROF_GPU_FAILED, !works);
        check_reason(functions[i].reason);
        int64_t size;
        CHECK(cprof_wait_memory(0, &size, &size) == (strcmp(hidden_function, "cuMemGetInfo_v2") != 0 && i != 0));
        CHECK(cprof_wait_profiler_start() == (strcmp(hidden_function, "cuProfilerStart") == 0 ? CPROF_GPU_NOT_CALLED : 0));
        CHECK(cprof_wait_profiler_stop() == (strcmp(hidden_function, "cuProfilerStop") == 0 ? CPROF_GPU_NOT_CALLED : 0));
        hidden_function = NULL;
    }
}

/* Contexts (H6). */

TEST(contexts_that_are_not_primary)
{
    fake.bind_own(0);
    call(2, here(0), 2 * MS);
    fake.bind(0);
    call(3, place(1, foreign), 2 * MS);
    advance_and_poll(2 * MS);
    CHECK_EQUAL(figures(2)->gpu_count, fake.is_old_driver() ? 0 : 1); /* without ids it must not be looked for */
    check_gpu(3, 1, 2 * MS);
    fake.bind_own(0);
    cprof_event_poll();
    check_gpu(2, 1, 2 * MS);
    CHECK(fake.references(0) == 1 && fake.references(1) == 1);
    check_reason("");
}

enum { GOOD_CALLS = 100, BAD_CALLS = 200 };

static void check_foreign_streams(bool answers, const char *reason)
{
    start_test();
    fake.answer_for_foreign_streams(answers);
    for (int i = 0; i < GOOD_CALLS; i++) {
        call(0, here(stream), MS);
    }
    check_reason("");
    int64_t events = fake.open_events();
    for (int i = 0; i < BAD_CALLS; i++) {
        CHECK(begin(1, here(foreign)) == NULL);
        finish(2, begin(2, here(stream)), here(foreign));
    }
    check_miss(1, CPROF_GPU_FAILED, BAD_CALLS);
    check_miss(2, CPROF_GPU_FAILED, BAD_CALLS);
    CHECK(fake.open_events() <= events + 2); /* those of one mark: used again and again */
    call(0, here(stream), MS);
    advance_and_poll((GOOD_CALLS + 1) * MS);
    check_gpu(0, GOOD_CALLS + 1, (GOOD_CALLS + 1) * MS);
    check_reason(reason);
}

/* H2: whether the driver notices it when it is asked for captures, or when an event is recorded, it costs nobody else. */
TEST(streams_of_another_context)
{
    check_foreign_streams(false, "CUDA_ERROR_INVALID_HANDLE (400) from cuStreamIsCapturing: no GPU time of that call");
    check_foreign_streams(true, "CUDA_ERROR_INVALID_HANDLE (400) from cuEventRecord: no GPU time of that call");
}

/* An event that cannot be recorded is looked into; what the driver says then of the context counts. */
TEST(records_that_fail_in_a_context_that_goes)
{
    const char *asked_then = fake.is_old_driver() ? "cuEventQuery" : "cuCtxGetId";
    static const struct {
        int code;
        cprof_gpu_cause cause;
    } answers[] = {{709, CPROF_GPU_LOST}, {201, CPROF_GPU_LOST}, {400, CPROF_GPU_LOST}, {700, CPROF_GPU_FAILED}};
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        start_test();
        cprof_gpu_mark *mark = begin(0, here(stream));
        fake.fail("cuEventRecord", 400, 1);
        fake.fail(asked_then, answers[i].code, fake.is_old_driver() ? 1 : 2); /* the first one is of the visit */
        finish(0, mark, here(stream));
        check_miss(0, answers[i].cause, 1);
    }
}

/* The device has not come so far yet, or the thread cannot be freed from a capture's ban. */
TEST(records_that_fail_with_an_old_driver)
{
    if (!fake.is_old_driver()) {
        return;
    }
    cprof_gpu_mark *mark = begin(0, here(stream));
    fake.fail("cuEventRecord", 400, 1);
    fake.fail("cuEventQuery", 600, 1);
    finish(0, mark, here(stream));
    check_miss(0, CPROF_GPU_FAILED, 1);
    mark = begin(1, here(stream));
    fake.fail("cuEventRecord", 400, 1);
    fake.fail("cuThreadExchangeStreamCaptureMode", 999, 1);
    finish(1, mark, here(stream));
    check_miss(1, CPROF_GPU_FAILED, 1);
    check_reason("CUDA_ERROR_INVALID_HANDLE (400) from cuEventRecord: no GPU time of that call");
}

/* Found by the one who polls, from the outside. */
TEST(contexts_that_have_gone)
{
    call(0, place(1, foreign), MS);
    fake.bind_own(1);
    call(1, here(0), MS);
    fake.bind(0);
    fake.device_reset(1);
    fake.activate(1);
    fake.destroy_own(1);
    cprof_event_poll();
    check_miss(0, CPROF_GPU_LOST, 1);
    CHECK_EQUAL(figures(1)->missed[CPROF_GPU_LOST], !fake.is_old_driver());
    fake.create_own(1);
    fake.bind_own(1);
    cprof_event_poll();
    check_miss(1, CPROF_GPU_LOST, 1);
    finish(3, begin(3, here(0)), here(0));
    cprof_event_poll();
    check_gpu(3, 1, 0);
    CHECK(fake.references(1) == 1);
    may_break_rules = fake.is_old_driver();
}

/* One primary context follows another: there is never more than one of a device. */
TEST(many_contexts)
{
    fake.set_device_count(FAKE_CUDA_MAX_DEVICES);
    for (int device = 0; device < FAKE_CUDA_MAX_DEVICES; device++) {
        if (device > 1) {
            fake.activate(device);
        }
        finish(0, begin(0, place(device, 0)), place(device, 0));
    }
    fake.bind_own(0);
    CHECK(refused(here(0)) == CPROF_GPU_FULL);
    fake.bind(-1);
    for (int round = 0; round < 3; round++) {
        fake.device_reset(5);
        fake.activate(5);
        finish(1, begin(1, place(5, 0)), place(5, 0));
    }
    cprof_event_poll();
    CHECK_EQUAL(figures(1)->gpu_count + missed(1), 3);
    CHECK(figures(1)->gpu_count >= 1);
    CHECK_EQUAL(figures(0)->gpu_count + missed(0), FAKE_CUDA_MAX_DEVICES);
}

/* A fault of one context leaves the times of another alone (H2). */
TEST(sticky_error_of_one_context)
{
    static const int codes[] = {700, 719, 999};
    for (size_t i = 0; i < COUNT_OF(codes); i++) {
        start_test();
        call(0, here(stream), MS);
        call(1, place(1, foreign), MS);
        fake.break_context(0, codes[i]);
        fake.advance(MS);
        cprof_event_poll();
        check_miss(0, CPROF_GPU_FAILED, 1);
        check_gpu(1, 1, MS);
        uint64_t records = fake.calls("cuEventRecord");
        CHECK(refused(here(stream)) == CPROF_GPU_FAILED);
        CHECK(refused(place(0, stream)) == CPROF_GPU_FAILED);
        CHECK(fake.calls("cuEventRecord") == records);
        call(2, place(1, foreign), 2 * MS); /* its thread's current context is the broken one */
        advance_and_poll(2 * MS);
        check_gpu(2, 1, 2 * MS);
        char reason[200];
        CHECK(cprof_event_reason(reason, sizeof reason));
        CHECK(strstr(reason, "from cuStreamIsCapturing: no GPU time from this context any more") != NULL);
        CHECK(cprof_wait_probe()); /* waiting is another matter */
        CHECK(fake.references(0) == 1 && fake.references(1) == 1);
    }
}

TEST(sticky_error_while_a_call_is_open)
{
    cprof_gpu_mark *open = begin(0, here(stream));
    cprof_gpu_mark *cancelled = begin(1, here(stream));
    fake.fail("cuEventRecord", 700, 1);
    call(2, here(stream), MS);
    finish(0, open, here(stream));
    cprof_event_cancel(cancelled);
    check_miss(0, CPROF_GPU_FAILED, 1);
    check_miss(2, CPROF_GPU_FAILED, 1);
    check_reason("CUDA_ERROR_ILLEGAL_ADDRESS (700) from cuEventRecord: no GPU time from this context any more");
    if (!fake.is_old_driver()) { /* the user begins anew */
        fake.device_reset(0);
        fake.activate(0);
        stream = fake.new_stream(0, 1);
        call(3, here(stream), MS);
        advance_and_poll(MS);
        check_gpu(3, 1, MS);
    }
}

TEST(most_pairs)
{
    for (int i = 0; i < CPROF_EVENT_MOST_PENDING; i++) {
        call(0, here(stream), 1000);
    }
    CHECK_EQUAL(cprof_event_pool_pending(registry), CPROF_EVENT_MOST_PENDING);
    call(1, here(stream), MS);
    call(1, place(1, 0), MS); /* the limit is that of all contexts together */
    check_miss(1, CPROF_GPU_FULL, 2);
    fake.advance(1000);
    call(2, here(stream), MS); /* makes place for itself */
    fake.advance(10000 * MS);
    cprof_event_poll();
    CHECK_EQUAL(cprof_event_pool_pending(registry), 0);
    check_gpu(0, CPROF_EVENT_MOST_PENDING, INT64_C(1000) * CPROF_EVENT_MOST_PENDING);
    check_gpu(2, 1, MS);
    CHECK(fake.open_events() <= CPROF_EVENT_POOL_IDLE + 1); /* and the base */
}

TEST(most_streams)
{
    uint64_t streams[CPROF_EVENT_POOL_STREAMS + 1];
    for (int i = 0; i <= CPROF_EVENT_POOL_STREAMS; i++) {
        streams[i] = fake.new_stream(0, 1);
        call(i < CPROF_EVENT_POOL_STREAMS ? 0 : 1, here(streams[i]), 100 * MS);
    }
    check_miss(1, CPROF_GPU_FULL, 1);
    advance_and_poll(100 * MS);
    call(2, here(streams[CPROF_EVENT_POOL_STREAMS]), 200 * MS);
    advance_and_poll(300 * MS);
    check_gpu(0, CPROF_EVENT_POOL_STREAMS, 100 * MS * CPROF_EVENT_POOL_STREAMS);
    check_gpu(2, 1, 200 * MS);
    call(3, here(streams[0]), 7 * MS); /* whose place was taken */
    advance_and_poll(7 * MS);
    check_gpu(3, 1, 7 * MS);
    CHECK_EQUAL(figures(3)->queue_ns, 0);
    fake.destroy_stream(streams[0]);
}

TEST(no_memory)
{
    for (uint64_t nth = 1; nth <= 2; nth++) {
        start_test();
        fake_alloc_fail(nth);
        CHECK(refused(here(stream)) == CPROF_GPU_FULL);
        CHECK(fake_alloc_has_failed());
        call(0, here(stream), MS);
        advance_and_poll(MS);
        check_gpu(0, 1, MS);
    }
}

/* Registries that go. */

TEST(registry_that_is_destroyed)
{
    cprof_accum *others[NODES];
    cprof_registry *other = make_registry(others);
    for (int i = 0; i < 3; i++) {
        call(0, here(stream), MS);
        cprof_event_end(begin(1, here(stream)), here(stream), others[0], IDENTITY);
    }
    CHECK_EQUAL(cprof_event_pool_pending(registry), 3);
    CHECK_EQUAL(cprof_event_pool_pending(other), 3);
    cprof_process_end_registry(other);
    CHECK_EQUAL(cprof_event_pool_pending(other), 0);
    advance_and_poll(3 * MS);
    check_gpu(0, 3, 3 * MS);
    call(0, here(stream), MS);
    finish(1, begin(1, here(stream)), here(stream));
    cprof_event_pool_forget(registry);
    CHECK_EQUAL(cprof_event_pool_pending(registry), 0);
    fake.device_reset(0); /* lost, for nobody */
    cprof_event_poll();
    check_gpu(0, 3, 3 * MS);
    CHECK_EQUAL(missed(0) + missed(1), 0);
}

/* Shutting down (H8). */

TEST(driver_that_shuts_down)
{
    call(0, place(0, stream), MS);
    call(1, place(1, 0), MS);
    cprof_gpu_mark *open = begin(2, here(stream));
    fake.advance(MS);
    fake.break_driver(4);
    CHECK(refused(here(stream)) == CPROF_GPU_FAILED);
    uint64_t before = fake.total_calls();
    finish(2, open, here(stream));
    CHECK(refused(here(stream)) == CPROF_GPU_FAILED);
    cprof_event_poll();
    cprof_event_pool_forget(registry);
    int64_t size;
    CHECK(!cprof_wait_memory(0, &size, &size));
    CHECK(cprof_wait_profiler_start() == CPROF_GPU_NOT_CALLED);
    CHECK(cprof_wait_profiler_stop() == CPROF_GPU_NOT_CALLED);
    CHECK(cprof_wait_synchronize(0, 0) == CPROF_GPU_OFF);
    CHECK(fake.total_calls() == before);
    CHECK(fake.calls("cuGetErrorName") == 0);
    check_miss(0, CPROF_GPU_LOST, 1);
    check_miss(1, CPROF_GPU_LOST, 1);
    check_miss(2, CPROF_GPU_FAILED, 1);
    check_reason("CUDA_ERROR_DEINITIALIZED (4) from cuCtxGetDevice: no GPU time any more");
    char reason[200];
    CHECK(cprof_wait_reason(reason, sizeof reason));
    check_text(reason, "CUDA has shut down: synchronisation is off");
}

TEST(shut_down_that_others_saw)
{
    fake.fail("cuProfilerStop", 4, 1);
    CHECK(cprof_wait_profiler_stop() == 4);
    CHECK(refused(here(0)) == CPROF_GPU_FAILED);
    check_reason("CUDA has shut down: no GPU time");
}

/* Fork (H5). */

TEST(fork_inside_a_call)
{
    call(1, here(stream), MS);
    cprof_gpu_mark *mark = begin(0, here(stream));
    fake.fail("cuEventCreate", 2, 1);
    CHECK(refused(here(stream)) == CPROF_GPU_FAILED);
    IN_CHILD
    {
        int64_t size;
        uint64_t before = fake.total_calls();
        cprof_event_end(mark, here(0), nodes[0], IDENTITY);
        cprof_event_cancel(mark);
        CHECK(refused(here(0)) == CPROF_GPU_FAILED);
        cprof_event_poll();
        CHECK_EQUAL(cprof_event_pool_pending(registry), 0);
        cprof_event_pool_forget(registry);
        CHECK(!cprof_wait_memory(0, &size, &size));
        CHECK(cprof_wait_profiler_start() == CPROF_GPU_NOT_CALLED);
        check_reason("off(fork): CUDA does not survive a fork: no GPU time");
        CHECK(fake.total_calls() == before);
        check_rules();
    }
    fake.launch(stream, MS);
    finish(0, mark, here(stream));
    advance_and_poll(2 * MS);
    check_gpu(0, 1, MS);
    check_gpu(1, 1, MS);
    check_reason("CUDA_ERROR_OUT_OF_MEMORY (2) from cuEventCreate: no GPU time of that call");
}

/* Threads. */

static uint64_t shared_streams[THREADS];

/* In a registry of its own, which goes while pairs of it still wait. */
static void mark_and_forget(uint64_t shared, int device, int round)
{
    cprof_accum *own[NODES];
    cprof_gpu_cause cause;
    cprof_registry *made = make_registry(own);
    cprof_gpu_mark *mark = cprof_event_begin(place(device, shared), &cause);
    if (mark != NULL && round % 3 == 0) {
        cprof_event_cancel(mark);
    } else if (mark != NULL) {
        cprof_event_end(mark, place(device, shared), own[0], IDENTITY);
    }
    CHECK(cprof_event_pool_pending(made) <= 1);
    cprof_process_end_registry(made);
}

/* Two threads share a stream, one is on another device than the others, and each is asked for what it can. */
static void *work_in_rounds(void *number)
{
    int index = (int)(intptr_t)number;
    int device = index % 2;
    uint64_t shared = shared_streams[index / 2 * 2 + device];
    fake.bind(index % 3 - 1);
    for (int round = 0; round < ROUNDS; round++) {
        cprof_gpu_cause cause;
        cprof_gpu_mark *mark = cprof_event_begin(place(device, shared), &cause);
        fake.launch(shared, MS);
        if (mark != NULL) {
            cprof_event_end(mark, place(device, shared), nodes[index], IDENTITY);
        } else {
            cprof_accum_miss_gpu(nodes[index], IDENTITY, cause);
        }
        if (round % 8 == index) {
            fake.advance(20 * MS);
            cprof_event_poll();
        }
        if (round % 8 == 7) {
            mark_and_forget(shared, device, round);
        }
    }
    CHECK(fake.current_device() == index % 3 - 1);
    return NULL;
}

static void work_together(void)
{
    for (int i = 0; i < THREADS; i++) {
        shared_streams[i] = fake.new_stream(i % 2, 1);
    }
    check_threads(THREADS, work_in_rounds, NULL, 1);
    fake.bind(0);
    advance_and_poll(INT64_C(100000) * MS);
    CHECK_EQUAL(cprof_event_pool_pending(registry), 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQUAL(figures(i)->gpu_count + missed(i), ROUNDS);
    }
    CHECK(fake.references(0) == 1 && fake.references(1) == 1);
}

TEST(threads)
{
    work_together();
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQUAL(missed(i), 0);
    }
}

/* Contexts are said to be destroyed, or broken, again and again. */
TEST(threads_meet_errors)
{
    static const struct {
        const char *function;
        int code;
    } errors[] = {
        {"cuEventQuery", 709}, {"cuEventRecord", 400}, {"cuEventCreate", 2}, {"cuEventElapsedTime", 700}, {"cuEventQuery", 4}};
    for (size_t i = 0; i < COUNT_OF(errors); i++) {
        start_test();
        fake.fail(errors[i].function, errors[i].code, 5);
        work_together();
    }
}

static atomic_int recorded;

static void *record_and_count(void *unused)
{
    cprof_gpu_cause cause;
    cprof_event_cancel(cprof_event_begin(place(0, 0), &cause));
    atomic_fetch_add(&recorded, 1);
    return unused;
}

/* A queue that is full lets its own thread wait, and nobody else. */
TEST(no_lock_is_held_while_recording)
{
    call(0, place(0, stream), MS);
    fake.advance(MS);
    fake.hold_records(1);
    pthread_t thread = check_thread(record_and_count, NULL);
    while (fake.held() < 1) {
        (void)sched_yield();
    }
    cprof_event_poll();
    CHECK_EQUAL(cprof_event_pool_pending(registry), 0);
    cprof_event_pool_forget(registry);
    CHECK(atomic_load(&recorded) == 0);
    fake.hold_records(0);
    check_join(thread);
    CHECK(atomic_load(&recorded) == 1);
}

/* Every call fails once (H1, H2). */

enum { DURATIONS = 5 }; /* node i takes (i + 1) ms, whenever it has a time */

static int64_t duration_of(int node)
{
    return (node + 1) * MS;
}

/* What a program does in two rounds: both devices, the default stream, two streams in one call, waits, memory, a tool's window.
 */
static void run_program(void)
{
    uint64_t other = fake.new_stream(0, 1);
    for (int round = 0; round < 2; round++) {
        int64_t size;
        fake.bind(0);
        call(0, place(0, stream), duration_of(0));
        fake.bind(0);
        call(1, place(1, foreign), duration_of(1));
        fake.bind(0);
        call(2, here(0), duration_of(2));
        fake.advance(20 * MS);
        fake.bind(0);
        cprof_gpu_mark *mark = begin(3, place(0, stream));
        fake.launch(other, duration_of(3));
        finish(3, mark, place(0, other));
        fake.advance(20 * MS);
        fake.bind(0);
        cprof_event_poll();
        (void)cprof_wait_memory(round, &size, &size);
        (void)cprof_wait_profiler_start();
        (void)cprof_wait_profiler_stop();
        (void)cprof_wait_synchronize(1, foreign);
    }
}

/* Every call has its exact time, or a cause. */
static void check_program(uint64_t calls)
{
    for (int node = 0; node < DURATIONS; node++) {
        const cprof_resources_figures *found = figures(node);
        CHECK_EQUAL(found->gpu_count + missed(node), asked[node]);
        CHECK_EQUAL(found->gpu_ns, (int64_t)found->gpu_count * duration_of(node));
        CHECK(calls == 0 || found->gpu_count == asked[node]);
    }
}

/* Whether a code means that this context, or all of CUDA, is of no use any more. */
static bool is_final(int code)
{
    static const int passing[] = {3, 100, 101, 201, 400, 600, 709};
    bool passes = code >= 900 && code <= 908;
    for (size_t i = 0; i < COUNT_OF(passing); i++) {
        passes |= passing[i] == code;
    }
    return !passes;
}

/* True when the call came that fails. */
static bool run_program_with(const char *function, int code, uint64_t nth)
{
    start_test();
    fake.fail(function, code, nth);
    run_program();
    cprof_event_poll();
    bool has_failed = fake.calls(function) >= nth;
    may_break_rules = true;
    fake.fail(function, 0, UINT32_MAX); /* not later */
    bool is_pop = has_failed && strcmp(function, "cuCtxPopCurrent") == 0;
    bool is_release = has_failed && strcmp(function, "cuDevicePrimaryCtxRelease") == 0;
    CHECK(fake.violations() == 0);
    CHECK_EQUAL(fake.open_pushes(), is_pop);
    CHECK_EQUAL(fake.references(0) + fake.references(1), 2 + is_release);
    CHECK(fake.capture_mode() == 0 || strcmp(function, "cuThreadExchangeStreamCaptureMode") == 0);
    CHECK_EQUAL(cprof_event_pool_pending(registry), 0);
    check_program(0);
    char reason[200];
    if (is_final(code) && missed(0) + missed(1) + missed(2) + missed(3) > 0) {
        CHECK(cprof_event_reason(reason, sizeof reason));
        CHECK(strstr(reason, "no GPU time") != NULL);
    }
    if (code != 4 && (!is_final(code) || !fake.is_old_driver())) { /* a context that comes anew has its times */
        fake.bind(0);
        if (is_final(code)) {
            fake.device_reset(0);
            fake.activate(0);
        }
        uint64_t fresh = fake.new_stream(0, 1);
        fake.bind(0);
        call(4, place(0, fresh), duration_of(4));
        fake.advance(20 * MS);
        cprof_event_poll();
        check_gpu(4, 1, duration_of(4));
    }
    return has_failed;
}

static void test_every_call_fails_once(uint64_t most_calls)
{
    static const int codes[] = {1, 2, 3, 4, 34, 100, 101, 201, 400, 600, 700, 709, 719, 900, 901, 902, 905, 906, 907, 908, 999};
    static const char *const functions[] = {"cuGetErrorName",
                                            "cuDeviceGet",
                                            "cuCtxGetDevice",
                                            "cuCtxGetCurrent",
                                            "cuCtxGetId",
                                            "cuCtxPushCurrent",
                                            "cuCtxPopCurrent",
                                            "cuCtxSynchronize",
                                            "cuDevicePrimaryCtxGetState",
                                            "cuDevicePrimaryCtxRetain",
                                            "cuDevicePrimaryCtxRelease",
                                            "cuStreamIsCapturing",
                                            "cuThreadExchangeStreamCaptureMode",
                                            "cuEventCreate",
                                            "cuEventRecord",
                                            "cuEventQuery",
                                            "cuEventElapsedTime",
                                            "cuMemGetInfo",
                                            "cuProfilerStart",
                                            "cuProfilerStop"};
    for (size_t i = 0; i < COUNT_OF(functions); i++) {
        bool is_missing = fake.is_old_driver() && strcmp(functions[i], "cuCtxGetId") == 0;
        bool has_failed = !is_missing;
        for (uint64_t nth = 1; has_failed && nth <= most_calls; nth++) {
            for (size_t j = 0; j < COUNT_OF(codes); j++) {
                has_failed = run_program_with(functions[i], codes[j], nth);
                CHECK(has_failed || nth > 1 || strcmp(functions[i], "cuGetErrorName") == 0);
            }
        }
    }
}

/* Before the fake is loaded: no libcuda.so.1 is in the process. */
static void check_no_driver(void)
{
    CHECK(unsetenv(LIBRARY_VARIABLE) == 0);
    CHECK(refused(place(0, 0)) == CPROF_GPU_NO_CUDA);
    cprof_event_poll();
    CHECK(cprof_event_pool_pending(NULL) == 0);
    check_reason("");
}

int main(int count, char **arguments)
{
    keep_library_path();
    fake_alloc_install();
    cprof_process_start();
    check_no_driver();
    cprof_wait_reset_for_test();
    load_fake();
    check_run(start_test, end_test);
    test_every_call_fails_once(check_argument(count, arguments, 12)); /* calls of one function */
    end_test();
    cprof_event_reset_for_test();
    CHECK(fake_alloc_live() == 0);
    free(library_path);
    return EXIT_SUCCESS;
}
