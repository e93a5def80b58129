/* wait.h against the fake driver whose path the environment variable CPROFILING_LIBCUDA holds (see
 * tests/fakes/fake_cuda.h). */
#define _GNU_SOURCE
#include "cprofiling/devices/wait.h"

#include "tests/core/fake_gpu.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define ABSENCE_ONLY "absence-only" /* argument: run check_absence and no other */
#define ILLEGAL_ADDRESS "CUDA_ERROR_ILLEGAL_ADDRESS (700) from "
#define IS_OFF ": synchronisation is off"

enum {
    THREADS = 8,
    ROUNDS = 500,
    FUNCTIONS = 21,
    MILLISECOND = 1000 * 1000,
};

static _Atomic cprof_ns test_time;

static cprof_ns read_test_time(void)
{
    return atomic_load(&test_time);
}

/* Everything as at the start of a process with a fresh driver. */
static void start_test(void)
{
    fake.reset();
    atomic_store(&test_time, 0);
    cprof_wait_reset_for_test();
    CHECK(setenv(LIBRARY_VARIABLE, library_path, 1) == 0);
}

static void begin(void)
{
    if (fake.reset != NULL) {
        start_test();
    }
}

static void use_device(int device)
{
    fake.activate(device);
    fake.bind(device);
}

static void check_no_reason(void)
{
    char reason[200] = "before";
    CHECK(!cprof_wait_reason(reason, sizeof reason));
    CHECK(strcmp(reason, "") == 0);
}

static void check_reason(const char *expected)
{
    char reason[200] = "before";
    CHECK(cprof_wait_reason(reason, sizeof reason));
    check_text(reason, expected);
}

static void check_counters(uint64_t waited, uint64_t captured, uint64_t failed)
{
    cprof_gpu_counters counters;
    cprof_wait_get_counters(&counters);
    CHECK(counters.waited == waited);
    CHECK(counters.captured == captured);
    CHECK(counters.failed == failed);
}

/* Finding the driver. */

/* Runs before the fake is loaded: no libcuda.so.1 is in the process. */
static void check_absence(void)
{
    CHECK(unsetenv(LIBRARY_VARIABLE) == 0);
    CHECK(!cprof_wait_probe());
    CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_IDLE);
    CHECK(cprof_wait_synchronize(CPROF_GPU_CURRENT_DEVICE, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_IDLE);
    CHECK(cprof_wait_profiler_start() == CPROF_GPU_NOT_CALLED);
    CHECK(cprof_wait_profiler_stop() == CPROF_GPU_NOT_CALLED);
    int64_t size;
    CHECK(!cprof_wait_memory(0, &size, &size));
    check_no_reason();
    check_counters(0, 0, 0);
}

/* Runs in a program of its own, where the dynamic loader would find the fake if it were asked to load a libcuda.so.1.
 */
TEST(driver_is_loaded_by_others)
{
    IN_CHILD
    {
        char *slash = strrchr(library_path, '/');
        CHECK(slash != NULL);
        *slash = '\0';
        CHECK(setenv("LD_LIBRARY_PATH", library_path, 1) == 0);
        (void)execl("/proc/self/exe", "test_gpu", ABSENCE_ONLY, (char *)NULL);
        exit(EXIT_FAILURE);
    }
    check_absence();
    /* The first search has been made, at time 0. */
    CHECK(setenv(LIBRARY_VARIABLE, library_path, 1) == 0);
    atomic_store(&test_time, 100 * MILLISECOND);
    CHECK(!cprof_wait_probe());
    load_fake();
    atomic_store(&test_time, 200 * MILLISECOND - 1);
    CHECK(!cprof_wait_probe());
    CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_IDLE);
    atomic_store(&test_time, 200 * MILLISECOND);
    CHECK(cprof_wait_probe());
    fake.activate(0);
    CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_WAITED);
}

TEST(default_clock_finds_the_driver)
{
    cprof_driver_set_clock_for_test(NULL);
    CHECK(cprof_wait_probe());
    cprof_driver_set_clock_for_test(read_test_time);
}

TEST(functions_are_asked_for_by_name)
{
    CHECK(cprof_wait_probe());
    CHECK(fake.calls("cuGetProcAddress") == (fake.is_old_driver() ? 0 : FUNCTIONS));
    CHECK(fake.calls("cuInit") == 0);
    CHECK(fake.calls("cuNoSuchFunction") == UINT64_MAX);
}

TEST(function_without_an_answer_is_looked_up)
{
    for (uint64_t nth = 1; nth <= FUNCTIONS; nth++) {
        start_test();
        fake.fail("cuGetProcAddress", 500, nth);
        fake.activate(1);
        CHECK(cprof_wait_synchronize(1, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_WAITED);
        check_rules();
    }
}

/* Waiting. */

static void check_log(uint64_t first, size_t count, const char *const *names)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = fake.log(first + i);
        CHECK(name != NULL && strcmp(name, names[i]) == 0);
    }
    CHECK(fake.log(first + count) == NULL);
}

TEST(wait_in_the_current_context)
{
    static const char *const expected[] = {"cuDeviceGet", "cuCtxGetDevice", "cuStreamIsCapturing", "cuStreamIsCapturing",
                                           "cuCtxSynchronize"};
    use_device(0);
    uint64_t stream = fake.new_stream(0, 1);
    uint64_t side_stream = fake.new_stream(0, 1);
    fake.launch(stream, 1000);
    fake.launch(side_stream, 3000);
    CHECK(cprof_wait_probe());
    uint64_t before = fake.total_calls();
    CHECK(cprof_wait_synchronize(0, stream) == CPROF_GPU_WAITED);
    CHECK(fake.now() == 3000);
    check_log(before, COUNT_OF(expected), expected);
    check_counters(1, 0, 0);
    check_no_reason();
}

TEST(wait_in_a_primary_context_that_is_not_current)
{
    static const char *const expected[] = {"cuDeviceGet",
                                           "cuCtxGetDevice",
                                           "cuStreamIsCapturing",
                                           "cuDevicePrimaryCtxGetState",
                                           "cuDevicePrimaryCtxRetain",
                                           "cuCtxPushCurrent",
                                           "cuStreamIsCapturing",
                                           "cuStreamIsCapturing",
                                           "cuCtxSynchronize",
                                           "cuCtxPopCurrent",
                                           "cuDevicePrimaryCtxRelease"};
    fake.activate(0);
    fake.activate(1);
    fake.bind(0);
    fake.launch(fake.new_stream(0, 0), 9000);
    uint64_t stream = fake.new_stream(1, 1);
    fake.launch(stream, 1000);
    CHECK(cprof_wait_probe());
    uint64_t before = fake.total_calls();
    CHECK(cprof_wait_synchronize(1, stream) == CPROF_GPU_WAITED);
    CHECK(fake.now() == 1000);
    CHECK(fake.current_device() == 0);
    CHECK(fake.references(1) == 1);
    check_log(before, COUNT_OF(expected), expected);
}

/* ---- Scenarios
 *
 * A text of what the driver does (fake_gpu.h), and of waits: for a device, `.` being the current one, with a stream behind it.
 *
 *   w0 i0 c0 o0   waits; has nothing to wait for; is told of a capture; is off
 *   e0=700        meets an error
 *   off           is off for good, without a call of the driver
 *   lib=PATH      the variable of the library
 *   broken        a rule was broken, as is meant here
 */

static struct {
    uint64_t waited, captured, failed;
} expected_waits;

static void check_off_for_good(uint64_t calls)
{
    CHECK(!cprof_wait_probe());
    CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_OFF);
    CHECK(cprof_wait_synchronize(CPROF_GPU_CURRENT_DEVICE, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_OFF);
    CHECK(fake.total_calls() == calls);
}

static void play_wait(const char *word)
{
    char *rest = (char *)word + 2;
    int device = word[1] == '.' ? CPROF_GPU_CURRENT_DEVICE : (int)strtol(word + 1, &rest, 10);
    uint64_t stream = *rest >= 'A' && *rest <= 'Z' ? played_streams[*rest - 'A'] : CPROF_GPU_UNKNOWN_STREAM;
    int outcome = word[0] == 'w'   ? CPROF_GPU_WAITED
                  : word[0] == 'i' ? CPROF_GPU_IDLE
                  : word[0] == 'c' ? CPROF_GPU_CAPTURING
                  : word[0] == 'o' ? CPROF_GPU_OFF
                                   : -(int)strtol(rest + 1, NULL, 10);
    CHECK_EQUAL(cprof_wait_synchronize(device, stream), outcome);
    expected_waits.waited += word[0] == 'w';
    expected_waits.captured += word[0] == 'c';
    expected_waits.failed += word[0] == 'e';
}

static void play_word(const char *word)
{
    if (strcmp(word, "off") == 0) {
        check_off_for_good(fake.total_calls());
    } else if (strcmp(word, "broken") == 0) {
        CHECK_EQUAL(fake.violations(), 1);
    } else if (strncmp(word, "lib=", 4) == 0) {
        CHECK(setenv(LIBRARY_VARIABLE, word + 4, 1) == 0);
    } else if (play_driver(word)) {
        return;
    } else if (strchr("wicoe", word[0]) != NULL && strchr("-.0123456789", word[1]) != NULL) {
        play_wait(word);
    } else {
        check_driver(word);
    }
}

static const struct {
    const char *what, *words, *reason; /* NULL: none */
} scenarios[] = {
    {"a thread without a context", "on:1 S=1b S:500 w1 now=500 current=-1 refs1=1", NULL},
    {"the current device", "on:0 on:1 i. at:1 S=0b S:9u T=1b T:700 w. now=700 cuDevicePrimaryCtxRetain=0", NULL},
    {"the current context need not be primary", "own:0 w0 cuDevicePrimaryCtxRetain=0", NULL},
    {"a device that nobody uses", "on:0 at:0 i1 refs1=0 cuDevicePrimaryCtxRetain=0", NULL},
    {"a device that was reset", "on:0 at:0 w0 reset:0 i0 i. refs0=0 on:0 w0", NULL},
    {"no such device", "i2 i64 i2147483647 i-2 i-2147483648 devices:64 on:63 w63", NULL},
    {"a driver that is not initialised yet", "started:0 i0 i. cuInit=0 started:1 on:0 w0", NULL},
    {"a capture of the given stream", "on:0 at:0 S=0 S{ c0S S} S{ c.S S} w0S", "waits left out during stream capture: 2"},
    {"a capture of a blocking stream that is not given", "on:0 at:0 S=0b T=0 S{ c0 S} S{ c0T S}",
     "waits left out during stream capture: 2"},
    {"a capture in a context that is not current", "on:1 S=1b T=1 S{ c1 S} T{ c1T T} refs1=1",
     "waits left out during stream capture: 2"},
    {"a capture in the current context of another device", "on:0 on:1 at:0 S=0b S{ c1 S} cuDevicePrimaryCtxRetain=0",
     "waits left out during stream capture: 1"},
    {"an invalidated capture", "on:0 at:0 S=0 S{ S! c0S S}x", "waits left out during stream capture: 1"},
    {"the documented limit: a capture that cannot be seen is spoilt, but only one ever is",
     "on:0 at:0 S=0 S{ e0=900 broken o0 cuCtxSynchronize=1",
     "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900) from cuCtxSynchronize" IS_OFF},
    {"the first error wins",
     "fail:cuCtxSynchronize:700:1 fail:cuCtxPopCurrent:719:1 fail:cuDevicePrimaryCtxRelease:2:1 on:0 on:1 at:0 e1=700 "
     "cuGetErrorName=1 off",
     ILLEGAL_ADDRESS "cuCtxSynchronize" IS_OFF},
    {"a sticky error", "on:0 at:0 w. break:719 e.=719 off break:0 off",
     "CUDA_ERROR_LAUNCH_FAILED (719) from cuStreamIsCapturing" IS_OFF},
    {"an error without a name", "fail:cuDeviceGet:777:1 e0=777", "CUDA error (777) from cuDeviceGet" IS_OFF},
    {"a stub of the library", "break:34 e0=34", "CUDA_ERROR_STUB_LIBRARY (34) from cuDeviceGet" IS_OFF},
    {"a driver that shuts down is not called again", "fail:cuDeviceGet:4:1 e0=4 cuGetErrorName=0 off",
     "CUDA_ERROR_DEINITIALIZED (4) from cuDeviceGet" IS_OFF},
    {"a library that cannot be loaded", "lib=/nowhere/libcuda.so.1 off",
     "the library in CPROFILING_LIBCUDA cannot be loaded" IS_OFF},
    {"a library that is no driver", "lib=libm.so.6 off", "the library in CPROFILING_LIBCUDA lacks cuGetErrorName" IS_OFF},
    {"an empty variable is none", "lib= on:0 w0", NULL},
};

_Static_assert(FAKE_CUDA_MAX_DEVICES == 64, "of the scenario without such a device");

TEST(scenarios)
{
    for (size_t i = 0; i < COUNT_OF(scenarios); i++) {
        char words[200];
        char *rest = NULL;
        check_case = scenarios[i].what;
        CHECK((size_t)snprintf(words, sizeof words, "%s", scenarios[i].words) < sizeof words);
        start_test();
        memset(&expected_waits, 0, sizeof expected_waits);
        for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
            play_word(word);
        }
        check_counters(expected_waits.waited, expected_waits.captured, expected_waits.failed);
        CHECK(expected_waits.failed > 0 || fake.calls("cuCtxSynchronize") == expected_waits.waited);
        if (scenarios[i].reason != NULL) {
            check_reason(scenarios[i].reason);
        } else {
            check_no_reason();
        }
        if (expected_waits.failed == 0) {
            check_rules();
        }
    }
    fake.reset(); /* the rules that errors have broken are meant to be */
}

TEST(every_capture_error_means_capture)
{
    for (int code = 900; code <= 908; code++) {
        start_test();
        use_device(0);
        fake.fail("cuStreamIsCapturing", code, 1);
        CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_CAPTURING);
        CHECK(fake.calls("cuCtxSynchronize") == 0);
    }
}

/* Errors of the driver (H1, H2, H8). */

/* Another device is current, so that every function is called: cuStreamIsCapturing for this one is the second. */
static int synchronize_through_all_functions(void)
{
    fake.activate(0);
    fake.activate(1);
    fake.bind(0);
    CHECK(cprof_wait_probe());
    return cprof_wait_synchronize(1, CPROF_GPU_UNKNOWN_STREAM);
}

TEST(error_of_each_function)
{
    static const struct {
        const char *function;
        uint64_t nth;
    } places[] = {
        {"cuDeviceGet", 1},
        {"cuCtxGetDevice", 1},
        {"cuStreamIsCapturing", 1},
        {"cuDevicePrimaryCtxGetState", 1},
        {"cuDevicePrimaryCtxRetain", 1},
        {"cuCtxPushCurrent", 1},
        {"cuStreamIsCapturing", 2},
        {"cuCtxSynchronize", 1},
        {"cuCtxPopCurrent", 1},
        {"cuDevicePrimaryCtxRelease", 1},
    };
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        start_test();
        fake.fail(places[i].function, 700, places[i].nth);
        CHECK(synchronize_through_all_functions() == -700);
        char expected[200];
        (void)snprintf(expected, sizeof expected, ILLEGAL_ADDRESS "%s" IS_OFF, places[i].function);
        check_reason(expected);
        check_counters(0, 0, 1);
        CHECK(fake.calls("cuCtxPopCurrent") + (strcmp(places[i].function, "cuCtxPushCurrent") == 0) ==
              fake.calls("cuCtxPushCurrent"));
        CHECK(fake.calls("cuDevicePrimaryCtxRelease") + (strcmp(places[i].function, "cuDevicePrimaryCtxRetain") == 0) ==
              fake.calls("cuDevicePrimaryCtxRetain"));
        CHECK(fake.violations() == 0);
        check_off_for_good(fake.total_calls());
    }
}

TEST(absence_is_no_error)
{
    static const int codes[] = {3, 100, 101, 201, 709};
    static const char *const functions[] = {"cuDeviceGet", "cuStreamIsCapturing", "cuCtxSynchronize"};
    for (size_t i = 0; i < COUNT_OF(codes); i++) {
        for (size_t j = 0; j < COUNT_OF(functions); j++) {
            start_test();
            use_device(0);
            fake.fail(functions[j], codes[i], 1);
            CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_IDLE);
            CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_WAITED);
            check_no_reason();
            check_counters(1, 0, 0);
            check_rules();
        }
    }
}

TEST(reason_is_cut_to_its_buffer)
{
    char reason[16] = "0123456789abcde";
    fake.fail("cuDeviceGet", 700, 1);
    CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == -700);
    CHECK(cprof_wait_reason(reason, 5));
    CHECK(memcmp(reason,
                 "CUDA\0"
                 "56789abcde",
                 sizeof reason) == 0);
    CHECK(cprof_wait_reason(NULL, 0));
    cprof_wait_reset_for_test();
    CHECK(!cprof_wait_reason(NULL, 0));
}

/* Memory, and the window of a tool. */

static bool tells_memory(int device, int64_t free_bytes, int64_t total_bytes)
{
    int64_t found[] = {-1, -1};
    bool is_told = cprof_wait_memory(device, &found[0], &found[1]);
    CHECK(found[0] == (is_told ? free_bytes : -1) && found[1] == (is_told ? total_bytes : -1));
    return is_told;
}

TEST(memory)
{
    CHECK(!tells_memory(0, 0, 0));
    fake.activate(0);
    fake.activate(1);
    fake.bind(0);
    fake.set_memory(0, 7, 9);
    fake.set_memory(1, INT64_C(1) << 40, INT64_C(3) << 40);
    CHECK(tells_memory(0, 7, 9));
    CHECK(tells_memory(CPROF_GPU_CURRENT_DEVICE, 7, 9));
    CHECK(tells_memory(1, INT64_C(1) << 40, INT64_C(3) << 40));
    CHECK(!tells_memory(2, 0, 0));
    CHECK(fake.current_device() == 0 && fake.references(1) == 1);
    uint64_t stream = fake.new_stream(0, 0);
    fake.begin_capture(stream);
    uint64_t before = fake.calls("cuMemGetInfo");
    CHECK(!tells_memory(0, 0, 0));
    CHECK(fake.calls("cuMemGetInfo") == before);
    CHECK(fake.end_capture(stream) == 1);
    fake.device_reset(1);
    CHECK(!tells_memory(1, 0, 0));
    fake.fail("cuMemGetInfo", 700, 1);
    CHECK(!tells_memory(0, 0, 0));
    fake.fail("cuThreadExchangeStreamCaptureMode", 700, 1);
    CHECK(!tells_memory(0, 0, 0));
    CHECK(cprof_wait_probe()); /* that waits fail is not known yet */
    fake.fail("cuDeviceGet", 4, 1);
    CHECK(!tells_memory(0, 0, 0));
    CHECK(!cprof_wait_probe());
    check_reason("CUDA has shut down" IS_OFF);
}

TEST(window_of_a_tool)
{
    CHECK(cprof_wait_profiler_start() == 201); /* it is that of the current context */
    use_device(0);
    CHECK(cprof_wait_profiler_start() == 0);
    CHECK(cprof_wait_profiler_stop() == 0);
    CHECK(fake.profiler_log(0) == 1 && fake.profiler_log(1) == 0 && fake.profiler_log(2) == -1);
    fake.fail("cuProfilerStart", 999, 1);
    CHECK(cprof_wait_profiler_start() == 999);
    check_no_reason();
}

/* Fork (H5). */

TEST(child_makes_no_call)
{
    use_device(0);
    CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_WAITED);
    IN_CHILD
    {
        cprof_wait_after_fork_in_child();
        check_off_for_good(fake.total_calls());
        check_reason("off(fork): CUDA does not survive a fork" IS_OFF);
        check_counters(0, 0, 0);
    }
    IN_CHILD /* what the fake says without the handler */
    {
        CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_IDLE);
        CHECK(fake.violations() == 1);
        CHECK(strcmp(fake.violation(0), "cuDeviceGet: called in a forked child") == 0);
    }
    CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_WAITED);
}

static void expect_own_cuda(void)
{
    cprof_wait_after_fork_in_child();
    fake.reset();
    fake.activate(0);
    CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_WAITED);
    check_no_reason();
    check_counters(1, 0, 0);
}

TEST(child_may_start_cuda_itself)
{
    IN_CHILD
    {
        expect_own_cuda();
    }
}

static _Thread_local int reads_before_stop;
static atomic_bool stopped;
static atomic_bool go_on;

/* The calling thread stops in its last read. */
static cprof_ns stop_in_clock(void)
{
    if (reads_before_stop > 0 && --reads_before_stop == 0) {
        atomic_store(&stopped, true);
        while (!atomic_load(&go_on)) {
            (void)sched_yield();
        }
    }
    return read_test_time();
}

/* The first read is before the lock of the search, the second one under it. */
static void *search_and_stop(void *unused)
{
    reads_before_stop = 2;
    CHECK(cprof_wait_probe());
    return unused;
}

TEST(fork_during_a_search)
{
    atomic_store(&stopped, false);
    atomic_store(&go_on, false);
    cprof_driver_set_clock_for_test(stop_in_clock);
    pthread_t thread = check_thread(search_and_stop, NULL);
    while (!atomic_load(&stopped)) {
        (void)sched_yield();
    }
    IN_CHILD
    {
        expect_own_cuda();
        _exit(EXIT_SUCCESS); /* at once, or what the vanished thread owned would be reported as leaks */
    }
    atomic_store(&go_on, true);
    check_join(thread);
    cprof_driver_set_clock_for_test(read_test_time);
}

/* Threads. */

static pthread_barrier_t barrier;

static void *wait_at_once(void *unused)
{
    (void)pthread_barrier_wait(&barrier);
    CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_WAITED);
    return unused;
}

/* A thread that comes during another one's first search waits for its end. */
TEST(threads_find_the_driver_together)
{
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (int round = 0; round < 20; round++) {
        start_test();
        fake.activate(0);
        check_threads(THREADS, wait_at_once, NULL, 1);
        check_counters(THREADS, 0, 0);
        CHECK(fake.references(0) == 1);
        check_rules();
    }
    CHECK(pthread_barrier_destroy(&barrier) == 0);
}

static void *wait_for_device_zero(void *unused)
{
    CHECK(cprof_wait_synchronize(0, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_WAITED);
    return unused;
}

TEST(no_lock_is_held_during_a_wait)
{
    fake.activate(0);
    fake.hold(1);
    pthread_t threads[2];
    threads[0] = check_thread(wait_for_device_zero, NULL);
    threads[1] = check_thread(wait_for_device_zero, NULL);
    while (fake.held() < 2) {
        (void)sched_yield();
    }
    CHECK(cprof_wait_probe());
    CHECK(cprof_wait_synchronize(1, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_IDLE);
    check_no_reason();
    check_counters(0, 0, 0);
    fake.hold(0);
    check_join(threads[0]);
    check_join(threads[1]);
    check_counters(2, 0, 0);
}

static _Atomic uint64_t outcomes[4]; /* WAITED, IDLE, OFF, failed */

static void tally(int outcome)
{
    CHECK(outcome != CPROF_GPU_CAPTURING);
    atomic_fetch_add(&outcomes[outcome < 0 ? 3 : outcome == CPROF_GPU_OFF ? 2 : outcome], 1);
}

/* Every third thread has no context, the others device 0 or 1. */
static void *wait_in_rounds(void *number)
{
    int index = (int)(intptr_t)number;
    char reason[200];
    cprof_gpu_counters counters;
    fake.bind(index % 3 - 1);
    for (int round = 0; round < ROUNDS; round++) {
        tally(cprof_wait_synchronize(round % 3 - 1, CPROF_GPU_UNKNOWN_STREAM));
        (void)cprof_wait_reason(reason, sizeof reason);
        cprof_wait_get_counters(&counters);
    }
    CHECK(fake.current_device() == index % 3 - 1);
    return NULL;
}

static void start_rounds(void)
{
    start_test();
    fake.activate(0);
    fake.activate(1);
    for (size_t i = 0; i < COUNT_OF(outcomes); i++) {
        atomic_store(&outcomes[i], 0);
    }
}

static void check_rounds(void)
{
    check_counters(atomic_load(&outcomes[0]), 0, atomic_load(&outcomes[3]));
    CHECK(outcomes[0] + outcomes[1] + outcomes[2] + outcomes[3] == (uint64_t)THREADS * ROUNDS);
    CHECK(fake.references(0) == 1);
    CHECK(fake.references(1) == 1);
}

TEST(threads_wait_together)
{
    start_rounds();
    check_threads(THREADS, wait_in_rounds, NULL, 1);
    CHECK(atomic_load(&outcomes[2]) == 0);
    CHECK(atomic_load(&outcomes[3]) == 0);
    check_no_reason();
    check_rounds();
}

TEST(threads_meet_errors)
{
    for (uint64_t nth = 1; nth < 100; nth += 14) {
        start_rounds();
        fake.fail("cuCtxSynchronize", 700, nth);
        fake.fail("cuDeviceGet", 700, nth * 10);
        check_threads(THREADS, wait_in_rounds, NULL, 1);
        CHECK(atomic_load(&outcomes[2]) > 0);
        CHECK(atomic_load(&outcomes[3]) > 0);
        CHECK(!cprof_wait_probe());
        CHECK(fake.calls("cuGetErrorName") == 1);
        char reason[200];
        CHECK(cprof_wait_reason(reason, sizeof reason));
        CHECK(strncmp(reason, ILLEGAL_ADDRESS, sizeof ILLEGAL_ADDRESS - 1) == 0);
        check_rounds();
    }
}

int main(int count, char **arguments)
{
    keep_library_path();
    cprof_driver_set_clock_for_test(read_test_time);
    if (count > 1 && strcmp(arguments[1], ABSENCE_ONLY) == 0) {
        check_absence();
        return EXIT_SUCCESS;
    }
    check_run(begin, check_rules);
    free(library_path);
    return EXIT_SUCCESS;
}
