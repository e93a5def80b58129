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

/* What the one that runs this has said. */
static const char *environment(const char *variable)
{
    const char *value = getenv(variable);
    CHECK(value != NULL);
    return value;
}

/* `pointer`: the address of a function pointer. */
static void load_control(void *library, const char *name, void *pointer)
{
    void *address = dlsym(library, name);
    CHECK(address != NULL);
    memcpy(pointer, (const void *)&address, sizeof address);
}

static void load_fake(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* NOLINT(clang-analyzer-optin.taint.GenericTaint) */
    CHECK(library != NULL);
#define LOAD_CONTROL(name) load_control(library, "fake_cupti_" #name, &fake.name##_);
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

static void launch_in(const char *name, const char *kernel, int64_t ns)
{
    cprof_cupti_node before = enter_node(name);
    fake.launch_(kernel, ns);
    leave_node(before);
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

/* ---- Counts ---- */

TEST(counts_per_node_are_exact)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    cprof_cupti_node outside = enter_node("outer");
    CHECK(outside.accum == NULL);
    fake.launch_("one", 300 * US);
    cprof_cupti_node outer = enter_node("inner");
    CHECK(outer.accum == node_of("outer").accum);
    fake.launch_("two", 200 * US);
    fake.launch_("two", 100 * US);
    fake.upload_(4096, 10 * US);
    leave_node(outer);
    fake.launch_("one", 50 * US);
    leave_node(outside);
    fake.launch_("nobody's", 7 * US);
    check_launched("outer", (cprof_launch_counts){.launches = 2});
    check_launched("inner", (cprof_launch_counts){.launches = 2});
    fake.advance_(10 * MS);
    cprof_cupti_flush();
    check_launched("outer", (cprof_launch_counts){.launches = 2, .kernels = 2, .kernel_ns = 350 * US});
    check_launched("inner", (cprof_launch_counts){
                                .launches = 2, .kernels = 2, .kernel_ns = 300 * US, .copies = 1, .bytes_to_device = 4096});
    check_reason("");
    cprof_cupti_state seen = state();
    CHECK_EQUAL(seen.launched, 5);
    CHECK_EQUAL(seen.outside, 1);
    CHECK_EQUAL(seen.records, 6);
    CHECK_EQUAL(seen.users[CPROF_CUPTI_COUNTS], 1);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    CHECK(!fake.is_subscribed_());
}

TEST(all_directions_and_kinds_are_told_apart)
{
    static const struct {
        int direction;
        uint64_t to_device, to_host, on_device;
    } kinds[] = {{1, 10, 0, 0}, {2, 0, 10, 0}, {3, 10, 0, 0}, {4, 0, 10, 0},  {5, 0, 0, 10}, {6, 0, 0, 10},
                 {7, 0, 0, 10}, {8, 0, 0, 10}, {9, 0, 0, 0},  {10, 0, 0, 10}, {0, 0, 0, 0},  {200, 0, 0, 0}};
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%zu", i);
        cprof_cupti_node before = enter_node(name);
        int64_t call = fake.correlation_();
        make_call(RUNTIME, COPY, call);
        leave_node(before);
        uint64_t now = fake.stamp_(fake.now_());
        fake.copy_(kinds[i].direction, 2, 3, 10, now, now, call);
        fake.strange_record_();
        cprof_cupti_flush();
        check_launched(name, (cprof_launch_counts){.copies = 1,
                                                   .bytes_to_device = kinds[i].to_device,
                                                   .bytes_to_host = kinds[i].to_host,
                                                   .bytes_on_device = kinds[i].on_device});
    }
    cprof_cupti_node before = enter_node("fills");
    int64_t call = fake.correlation_();
    make_call(RUNTIME, FILL, call);
    leave_node(before);
    uint64_t now = fake.stamp_(fake.now_());
    fake.fill_(3, 99, now, now, call);
    fake.peer_copy_(77, now, now, call);
    cprof_cupti_flush();
    check_launched("fills", (cprof_launch_counts){.copies = 1, .bytes_on_device = 77, .fills = 1});
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    check_reason("");
}

/* A graph's kernels share one number; a call inside another may have a number of its own. */
TEST(graphs_and_nested_calls_count_once)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    cprof_cupti_node before = enter_node("graph");
    int64_t graph = fake.correlation_();
    make_call(RUNTIME, GRAPH, graph);
    int64_t outer = fake.correlation_();
    int64_t inner = fake.correlation_();
    fake.enter_(RUNTIME, LAUNCH, outer);
    make_call(DRIVER, CU_LAUNCH, inner);
    fake.leave_(RUNTIME, LAUNCH, outer);
    fake.leave_(RUNTIME, LAUNCH, outer); /* one too many */
    leave_node(before);
    uint64_t now = fake.stamp_(fake.now_());
    for (int i = 0; i < 3; i++) {
        fake.kernel_("of the graph", now, now + 5, 0, 7, graph);
    }
    fake.kernel_("by the driver's number", now, now + 100, 1, 8, inner);
    fake.advance_(MS);
    cprof_cupti_flush();
    check_launched("graph", (cprof_launch_counts){.launches = 2, .kernels = 4, .kernel_ns = 115});
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
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

TEST(what_is_not_known_is_counted)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    cprof_cupti_node before = enter_node("node");
    int64_t call = fake.launch_("zero stamps", 0);
    uint64_t now = fake.stamp_(fake.now_());
    fake.kernel_("reversed", now, now - 5, 0, 7, call);
    fake.kernel_("without", 0, 0, 0, 7, call);
    fake.kernel_("too early", now - 2 * MS, now, 0, 7, call);
    fake.kernel_("early, but not too much", now - MS / 2, now, 0, 7, call);
    fake.kernel_("in the future", now + 100 * MS, now + 101 * MS, 0, 7, call);
    fake.kernel_("without end", now, UINT64_MAX, 0, 7, call);
    fake.kernel_("nobody's", now, now, 0, 7, 12345);
    fake.kernel_("of number 0", now, now, 0, 7, 0);
    fake.drop_(3);
    leave_node(before);
    fake.set_time_(start_ns + 1);
    cprof_cupti_flush();
    fake.advance_(99 * MS);               /* the future one is not over yet */
    cprof_cupti_stop(CPROF_CUPTI_COUNTS); /* which hands it over without times */
    check_launched("node", (cprof_launch_counts){.launches = 1, .kernels = 7, .kernel_ns = MS / 2});
    check_reason("records that CUPTI had no room for: 3; records of work whose launch is not known: 2; "
                 "records without times: 5");
}

TEST(numbers_that_come_again_forget_the_old_ones)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    cprof_cupti_node before = enter_node("node");
    uint64_t now = fake.stamp_(fake.now_());
    make_call(RUNTIME, LAUNCH, 5);
    fake.enter_(RUNTIME, LAUNCH, 5 + CPROF_CUPTI_LAUNCHES);
    fake.enter_(DRIVER, CU_LAUNCH, 6 + CPROF_CUPTI_LAUNCHES);
    fake.leave_(DRIVER, CU_LAUNCH, 6 + CPROF_CUPTI_LAUNCHES);
    fake.leave_(RUNTIME, LAUNCH, 5 + CPROF_CUPTI_LAUNCHES);
    fake.kernel_("forgotten", now, now, 0, 7, 5);
    fake.kernel_("known", now, now, 0, 7, 5 + CPROF_CUPTI_LAUNCHES);
    cprof_cupti_flush();
    make_call(RUNTIME, LAUNCH, 5);
    fake.kernel_("whose outer call is forgotten", now, now, 0, 7, 6 + CPROF_CUPTI_LAUNCHES);
    leave_node(before);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    check_launched("node", (cprof_launch_counts){.launches = 3, .kernels = 1});
    check_reason("records of work whose launch is not known: 2");
}

/* A clock of ticks that another profiler has set for the process. */
TEST(a_foreign_clock_is_scaled)
{
    fake.set_clock_(INT64_C(-4000000000000000000), 5, 2);
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    fake.advance_(MS);
    cprof_cupti_flush(); /* known are two moments now */
    launch_in("node", "kernel", 300 * US);
    fake.advance_(MS);
    cprof_cupti_flush();
    check_launched("node", (cprof_launch_counts){.launches = 1, .kernels = 1, .kernel_ns = 300 * US});
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    check_reason("");
}

/* A profiler that sets a clock of its own: until both are read again, nothing is known of its ticks. */
TEST(a_clock_that_changes_is_noticed)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    fake.advance_(10 * MS);
    cprof_cupti_flush();
    fake.set_clock_(INT64_C(-4000000000000000000), 5, 2);
    cprof_cupti_node before = enter_node("node");
    fake.launch_("not known", 300 * US);
    fake.advance_(MS);
    CHECK(cprof_cupti_events.library.flush_all(0) == CPROF_CUPTI_SUCCESS); /* as a full buffer comes */
    check_launched("node", (cprof_launch_counts){.launches = 1, .kernels = 1});
    cprof_cupti_flush();
    fake.advance_(10 * MS);
    cprof_cupti_flush();
    fake.launch_("known", 300 * US);
    leave_node(before);
    fake.advance_(MS);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    check_launched("node", (cprof_launch_counts){.launches = 2, .kernels = 2, .kernel_ns = 300 * US});
    check_reason("records without times: 1");
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

typedef struct {
    const char *thread_name;
    const char *node;
    pthread_barrier_t *entered;
    pthread_barrier_t *leaving;
} worker;

static void *launch_from_thread(void *argument)
{
    const worker *own = argument;
    if (own->thread_name != NULL) {
        CHECK(pthread_setname_np(pthread_self(), own->thread_name) == 0);
    }
    cprof_cupti_node before = {.accum = NULL};
    if (own->node != NULL) {
        before = enter_node(own->node);
    }
    if (own->entered != NULL) {
        (void)pthread_barrier_wait(own->entered);
        (void)pthread_barrier_wait(own->leaving);
    } else {
        fake.launch_("kernel", 5);
    }
    if (own->node != NULL) {
        leave_node(before);
    }
    return NULL;
}

static void run_worker(worker own)
{
    check_in_thread(launch_from_thread, &own);
}

TEST(a_backward_pass_is_that_of_the_only_thread_with_a_node)
{
    pthread_barrier_t entered, leaving;
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    run_worker((worker){.thread_name = "pt_autograd_0"}); /* nobody has a node */
    cprof_cupti_node before = enter_node("train");
    run_worker((worker){.thread_name = "pt_autograd_0"});
    run_worker((worker){.thread_name = "pt_autograd_0", .node = "its own"});
    run_worker((worker){.thread_name = "pool"});
    CHECK(pthread_barrier_init(&entered, NULL, 2) == 0 && pthread_barrier_init(&leaving, NULL, 2) == 0);
    worker loader = {.node = "load", .entered = &entered, .leaving = &leaving};
    pthread_t other = check_thread(launch_from_thread, &loader);
    (void)pthread_barrier_wait(&entered);
    run_worker((worker){.thread_name = "pt_autograd_0"}); /* two have */
    (void)pthread_barrier_wait(&leaving);
    check_join(other);
    run_worker((worker){.thread_name = "pt_autograd_1"});
    leave_node(before);
    fake.advance_(MS);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    check_launched("train", (cprof_launch_counts){.launches = 2, .kernels = 2, .kernel_ns = 10});
    check_launched("its own", (cprof_launch_counts){.launches = 1, .kernels = 1, .kernel_ns = 5});
    check_launched("load", (cprof_launch_counts){.launches = 0});
    check_reason("launches of a backward pass whose node is not known: 2");
    CHECK_EQUAL(state().outside, 1);
    CHECK_EQUAL(state().launched, 6);
    CHECK(pthread_barrier_destroy(&entered) == 0 && pthread_barrier_destroy(&leaving) == 0);
}

/* A thread whose end nobody would notice lends its node to nobody. */
static void *lend_unnoticed(void *argument)
{
    (void)argument;
    refuses_keys = true;
    cprof_cupti_node before = enter_node("unnoticed");
    refuses_keys = false;
    run_worker((worker){.thread_name = "pt_autograd_0"});
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
    run_worker((worker){.thread_name = "pt_autograd_0"});
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

/* ---- Lives of others ---- */

TEST(a_registry_may_go_before_its_records_come)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    cprof_registry *gone = registry;
    launch_in("node", "kernel", 5);
    registry = cprof_registry_create(1);
    launch_in("node", "kernel", 6);
    cprof_process_end_registry(gone);
    fake.advance_(MS);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    check_launched("node", (cprof_launch_counts){.launches = 1, .kernels = 1, .kernel_ns = 6});
    check_reason("");
}

/* A node that was left set, by blocks that ended out of order, does not outlive its registry. */
TEST(a_registry_takes_its_nodes_along)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    (void)enter_node("left open");
    cprof_process_end_registry(registry);
    registry = cprof_registry_create(1);
    fake.launch_("kernel", 6);
    cprof_cupti_node kept = enter_node("node");
    CHECK(kept.accum == NULL);
    cprof_registry *other = cprof_registry_create(1);
    cprof_process_end_registry(other);
    fake.launch_("kernel", 6);
    leave_node(kept);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    CHECK_EQUAL(launched("node").launches, 1);
}

TEST(a_reset_of_statistics_discards_what_comes_later)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    launch_in("node", "kernel", 5);
    cprof_registry_reset(registry);
    launch_in("node", "kernel", 7);
    fake.advance_(MS);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    check_launched("node", (cprof_launch_counts){.launches = 1, .kernels = 1, .kernel_ns = 7});
}

/* ---- What can go wrong ---- */

TEST(without_cuda_nothing_is_called)
{
    has_cuda = false;
    CHECK(!cprof_cupti_start(CPROF_CUPTI_COUNTS));
    check_reason("no CUDA in the process");
    CHECK(!state().has_library);
    gpu_fault = "off(fork): CUDA does not survive a fork";
    CHECK(!cprof_cupti_start(CPROF_CUPTI_TRACE));
    check_reason("CUDA cannot be used: off(fork): CUDA does not survive a fork");
    cprof_cupti_stop(CPROF_CUPTI_COUNTS); /* there is nothing to stop */
    cprof_cupti_flush();
    CHECK_EQUAL(fake.total_calls_(), 0);
    has_cuda = true;
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS)); /* which came meanwhile */
    check_reason("");
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
}

TEST(another_client_keeps_it_and_may_give_it_back)
{
    fake.hold_(1);
    CHECK(!cprof_cupti_start(CPROF_CUPTI_TRACE));
    check_reason("another profiler (torch.profiler, Nsight) holds CUPTI: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39) "
                 "from cuptiSubscribe");
    fake.hold_(0);
    fake.fail_("cuptiSubscribe", 12, 1);
    fake.fail_("cuptiGetResultString", 999, 1);
    CHECK(!cprof_cupti_start(CPROF_CUPTI_TRACE));
    check_reason("another profiler (torch.profiler, Nsight) holds CUPTI: CUPTI error (12) from cuptiSubscribe");
    CHECK(cprof_cupti_start(CPROF_CUPTI_TRACE));
    check_reason("");
    cprof_cupti_stop(CPROF_CUPTI_TRACE);
}

TEST(a_cupti_that_is_too_old_is_left_alone)
{
    fake.set_version_(12);
    CHECK(!cprof_cupti_start(CPROF_CUPTI_COUNTS));
    check_reason("this CUPTI (version 12) is older than that of CUDA 11");
    CHECK(!fake.is_subscribed_());
}

TEST(calls_that_it_does_not_know_are_left_out)
{
    fake.fail_("cuptiEnableCallback", 1, 1);
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    check_reason("");
    CHECK(fake.wants_call_(RUNTIME, LAUNCH) && fake.wants_call_(DRIVER, CU_COPY) && !fake.wants_call_(RUNTIME, 3));
    CHECK(fake.wants_kind_(10) && !fake.wants_kind_(3));
    fake.fail_("cuptiActivityFlushAll", 5, 1);
    cprof_cupti_flush();
    check_reason("CUPTI_ERROR_SOMETHING (5) from cuptiActivityFlushAll");
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
    launch_in("node", "kernel", 5);
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
    uint64_t samples = node_of("node").accum->figures.count;
    fake.fail_(function, code, nth);
    (void)live();
    bool has_failed = fake.calls_(function) >= nth;
    CHECK_EQUAL(node_of("node").accum->figures.count, samples + 1);
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
        samples = node_of("node").accum->figures.count;
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
    CHECK_EQUAL(node_of("node").accum->figures.count, samples);
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

/* Who was in a call when the subscriber went is in none when it is taken again. */
TEST(calls_that_never_end_are_forgotten)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    fake.enter_(RUNTIME, LAUNCH, fake.correlation_());
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    fake.leave_(RUNTIME, LAUNCH, 1);
    launch_in("node", "kernel", 5);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    CHECK_EQUAL(launched("node").launches, 1);
}

/* ---- Finding the library ---- */

TEST(libraries_that_are_no_use_say_so)
{
    char *path = strdup(environment("CPROFILING_LIBCUPTI"));
    CHECK(setenv("CPROFILING_LIBCUPTI", "/no/such/libcupti.so", 1) == 0);
    CHECK(!cprof_cupti_start(CPROF_CUPTI_COUNTS));
    check_reason("the library in CPROFILING_LIBCUPTI cannot be loaded");
    CHECK(setenv("CPROFILING_LIBCUPTI", path, 1) == 0);
    CHECK(!cprof_cupti_start(CPROF_CUPTI_COUNTS)); /* the environment is read once */
    cprof_cupti_reset_for_test();
    CHECK(setenv("CPROFILING_LIBCUPTI", environment("FAKE_CUPTI_INCOMPLETE"), 1) == 0);
    CHECK(!cprof_cupti_start(CPROF_CUPTI_COUNTS));
    check_reason("the libcupti that was found lacks cuptiActivityGetNumDroppedRecords");
    CHECK(setenv("CPROFILING_LIBCUPTI", path, 1) == 0);
    CHECK_EQUAL(fake.total_calls_(), 0);
    free(path);
}

/* The one that the process has loaded is taken, wherever else one may be, and no second one is loaded. */
TEST(what_is_loaded_is_taken)
{
    char *path = strdup(environment("CPROFILING_LIBCUPTI"));
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

static void check_row(const cprof_table *table, size_t row, const char *cat, const char *name, int64_t start, int64_t stop)
{
    check_text(table, table->cat[row], cat);
    check_text(table, table->name[row], name);
    CHECK_EQUAL(table->start_ns[row], start);
    CHECK_EQUAL(table->end_ns[row], stop);
}

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
        check_row(table, i, rows[i].cat, rows[i].name, base + rows[i].start * US, base + rows[i].stop * US);
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

/* A recording has what ran in it, and of several stretches each by its own times; what others count is no part of it. */
TEST(a_recording_has_its_stretches)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    fake.launch_("before", 10);
    fake.launch_("from before into it", 10 * MS);
    fake.advance_(MS);
    CHECK(cprof_cupti_start(CPROF_CUPTI_TRACE));
    CHECK(cprof_cupti_start(CPROF_CUPTI_TRACE)); /* a second user: the same recording */
    fake.launch_("first", 10);
    fake.advance_(20 * MS);
    cprof_cupti_stop(CPROF_CUPTI_TRACE);
    cprof_cupti_stop(CPROF_CUPTI_TRACE);
    fake.launch_("in the pause", 10);
    fake.advance_(MS);
    CHECK(cprof_cupti_start(CPROF_CUPTI_TRACE));
    fake.launch_("second", 10);
    fake.drop_(5);
    fake.launch_("not over", 10 * MS);
    fake.advance_(MS);
    cprof_cupti_stop(CPROF_CUPTI_TRACE);
    cprof_table *table = collected();
    static const char *const names[] = {
        "cudaLaunchKernel", "cudaLaunchKernel", "cudaLaunchKernel", "from before into it", "first", "second"};
    CHECK_EQUAL(table->count, 6);
    for (size_t i = 0; i < 6; i++) {
        check_text(table, table->name[i], names[i]);
    }
    CHECK_EQUAL(table->end_ns[4] - table->start_ns[4], 10);
    CHECK_EQUAL(table->dropped, 5);
    table = collected();
    CHECK_EQUAL(table->count, 0); /* it was forgotten */
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
}

/* That the time of day is set hides when a kernel ran that came meanwhile, but not how long; and what came before and comes
 * after stays where it was. */
TEST(a_step_of_the_time_of_day_costs_one_place)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS) && cprof_cupti_start(CPROF_CUPTI_TRACE));
    cprof_cupti_node before = enter_node("node");
    fake.launch_("known", 100 * US);
    fake.advance_(10 * MS);
    cprof_cupti_flush();
    fake.set_clock_(INT64_C(3600) * 1000000000, 1, 1);
    fake.launch_("meanwhile", 200 * US);
    fake.advance_(MS);
    CHECK(cprof_cupti_events.library.flush_all(0) == CPROF_CUPTI_SUCCESS); /* as a full buffer comes */
    fake.advance_(MS);
    cprof_cupti_flush();
    fake.launch_("later", 50 * US);
    leave_node(before);
    fake.advance_(MS);
    cprof_cupti_stop(CPROF_CUPTI_TRACE);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    check_launched("node", (cprof_launch_counts){.launches = 3, .kernels = 3, .kernel_ns = 350 * US});
    check_reason("");
    cprof_table *table = collected();
    CHECK_EQUAL(table->count, 5);
    int64_t base = table->start_ns[0];
    check_row(table, 1, "cuda_runtime", "cudaLaunchKernel", base + 10 * MS, base + 10 * MS);
    check_row(table, 2, "cuda_runtime", "cudaLaunchKernel", base + 12 * MS, base + 12 * MS);
    check_row(table, 3, "kernel", "known", base, base + 100 * US);
    check_row(table, 4, "kernel", "later", base + 12 * MS, base + 12 * MS + 50 * US);
    CHECK_EQUAL(table->dropped, 1);
}

/* What is in a call when a recording begins or ends is no part of it. */
TEST(calls_across_an_end_of_a_recording_are_left_out)
{
    CHECK(cprof_cupti_start(CPROF_CUPTI_COUNTS));
    int64_t first = fake.correlation_();
    fake.enter_(RUNTIME, LAUNCH, first);
    CHECK(cprof_cupti_start(CPROF_CUPTI_TRACE));
    fake.leave_(RUNTIME, LAUNCH, first);
    int64_t second = fake.correlation_();
    fake.enter_(RUNTIME, LAUNCH, second);
    cprof_cupti_stop(CPROF_CUPTI_TRACE);
    fake.leave_(RUNTIME, LAUNCH, second);
    cprof_table *table = collected();
    CHECK_EQUAL(table->count, 0);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
}

TEST(a_full_recording_counts_what_is_missing)
{
    cprof_cupti_events.trace.capacity = 3;
    CHECK(cprof_cupti_start(CPROF_CUPTI_TRACE));
    for (int i = 0; i < 5; i++) {
        fake.launch_("kernel", 10);
    }
    fake.kernel_("without times", 0, 0, 0, 7, 1);
    fake.advance_(MS);
    cprof_cupti_stop(CPROF_CUPTI_TRACE);
    cprof_table *table = collected();
    CHECK_EQUAL(table->count, 6);
    CHECK_EQUAL(table->dropped, 5);
}

int main(int argc, char **argv)
{
    code_step = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    cprof_process_start();
    load_fake(getenv("CPROFILING_LIBCUPTI"));
    cprof_clock_set_test(read_fake_clock);
    fake_alloc_install();
    check_run(begin, end);
    cprof_cupti_reset_for_test();
    return EXIT_SUCCESS;
}
