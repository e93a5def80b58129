/* The capture window, with a driver that only counts. */
#include "cprofiling/devices/capture.h"

#include "cprofiling/process.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, CALLS = 200, SKIPPED = 300, CAPTURED = 500 };

static struct {
    _Atomic int running;
    _Atomic int starts;
    _Atomic int stops;
    int start_answer;
    int stop_answer;
} driver;

WRAP(int, cprof_wait_profiler_start, void)
{
    atomic_fetch_add(&driver.starts, 1);
    if (driver.start_answer == 0) {
        CHECK_EQUAL(atomic_fetch_add(&driver.running, 1), 0);
    }
    return driver.start_answer;
}

WRAP(int, cprof_wait_profiler_stop, void)
{
    atomic_fetch_add(&driver.stops, 1);
    CHECK_EQUAL(atomic_fetch_add(&driver.running, -1), 1);
    return driver.stop_answer;
}

static void reset(void)
{
    cprof_capture_reset_for_test();
    atomic_store(&driver.running, 0);
    atomic_store(&driver.starts, 0);
    atomic_store(&driver.stops, 0);
    driver.start_answer = 0;
    driver.stop_answer = 0;
}

static void set(uint64_t skip, uint64_t count)
{
    reset();
    CHECK(cprof_capture_set(cprof_name_of("node"), skip, count) == CPROF_OK);
}

static bool begin(const char *name)
{
    return cprof_capture_begin(cprof_name_of(name));
}

/* A call from begin to end; whether it was captured. */
static bool call(const char *name)
{
    if (!begin(name)) {
        return false;
    }
    CHECK_EQUAL(atomic_load(&driver.running), driver.start_answer == 0);
    cprof_capture_end();
    return true;
}

static void check_driver(int starts, int stops)
{
    CHECK_EQUAL(atomic_load(&driver.starts), starts);
    CHECK_EQUAL(atomic_load(&driver.stops), stops);
}

static void check_report(const char *expected)
{
    char report[128];
    CHECK(cprof_capture_report(report, sizeof report) == (expected[0] != '\0'));
    if (strcmp(report, expected) != 0) {
        (void)fprintf(stderr, "%s\n", report);
        CHECK(!"as expected");
    }
}

TEST(without_a_window_nothing_happens)
{
    CHECK(!cprof_capture_is_set());
    CHECK(!call("node"));
    cprof_capture_end();
    check_report("");
    CHECK(cprof_capture_set(cprof_name_of("node"), 0, 0) == CPROF_OUT_OF_RANGE);
    CHECK(!cprof_capture_is_set());
    check_driver(0, 0);
}

TEST(the_chosen_calls_are_captured_and_no_others)
{
    set(2, 3);
    CHECK(cprof_capture_is_set());
    check_report("0 of 3 calls captured: there was no call of a node of that name");
    for (int i = 0; i < 10; i++) {
        CHECK(!call("other"));
        CHECK(!call("nod"));
        CHECK(!call("node2"));
        CHECK(!call("nodE"));
        CHECK(call("node") == (i >= 2 && i < 5));
        CHECK(cprof_capture_is_set() == (i < 4));
        check_report(i == 0   ? "0 of 3 calls captured after 1 of 2 that were to be passed by"
                     : i == 1 ? "0 of 3 calls captured after 2 that were passed by"
                     : i == 2 ? "1 of 3 calls captured after 2 that were passed by"
                     : i == 3 ? "2 of 3 calls captured after 2 that were passed by"
                              : "3 of 3 calls captured after 2 that were passed by");
    }
    check_driver(3, 3);
    CHECK(cprof_capture_set(cprof_name_of("node"), 0, 1) == CPROF_IN_USE); /* it never opens again */
}

TEST(calls_that_overlap_share_a_start_and_a_stop)
{
    set(1, 3);
    CHECK(!begin("node"));
    CHECK(begin("node"));
    CHECK(begin("node"));
    check_driver(1, 0);
    cprof_capture_end();
    check_driver(1, 0);
    check_report("2 of 3 calls captured after 1 that was passed by");
    cprof_capture_end();
    check_driver(1, 1);
    CHECK(cprof_capture_is_set());
    CHECK(begin("node"));
    CHECK(!begin("node")); /* one too many, inside the last one */
    cprof_capture_end();
    CHECK(!cprof_capture_is_set());
    cprof_capture_end();
    check_driver(2, 2);
    check_report("3 of 3 calls captured after 1 that was passed by");
}

TEST(numbers_may_be_the_largest)
{
    set(UINT64_MAX, UINT64_MAX);
    CHECK(!call("node"));
    check_report("0 of 18446744073709551615 calls captured after 1 of 18446744073709551615 that were to be passed by");
    set(0, UINT64_MAX);
    CHECK(call("node"));
    CHECK(call("node"));
    CHECK(cprof_capture_is_set());
    check_driver(2, 2);
}

TEST(names_may_be_any_bytes)
{
    CHECK(cprof_capture_set((cprof_name){"a\0b", 3}, 0, 1) == CPROF_OK);
    CHECK(!call("a"));
    CHECK(cprof_capture_begin((cprof_name){"a\0b", 3}));
    cprof_capture_end();
    reset();
    CHECK(cprof_capture_set(cprof_name_of(""), 0, 1) == CPROF_OK);
    CHECK(call(""));
}

/* H1 */
TEST(what_the_driver_refuses_is_said)
{
    set(0, 2);
    driver.start_answer = 201;
    CHECK(call("node"));
    CHECK(call("node"));
    check_driver(2, 0); /* what did not start is not stopped */
    check_report("2 of 2 calls captured; cuProfilerStart answered 201");
    set(0, 2);
    driver.stop_answer = 4;
    CHECK(call("node"));
    driver.stop_answer = 5;
    CHECK(call("node"));
    check_report("2 of 2 calls captured; cuProfilerStop answered 4");
    set(0, 1);
    driver.start_answer = -1;
    CHECK(call("node"));
    CHECK(!cprof_capture_is_set());
    check_report("1 of 1 calls captured; cuProfilerStart was left out: there was no driver");
}

TEST(a_report_may_be_cut)
{
    char report[8] = "xxxxxxx";
    set(0, 1);
    CHECK(cprof_capture_report(report, 0));
    CHECK(report[0] == 'x');
    CHECK(cprof_capture_report(report, sizeof report));
    CHECK(strcmp(report, "0 of 1 ") == 0);
}

/* G7 */
TEST(memory_may_be_short)
{
    fake_alloc_fail(1);
    CHECK(cprof_capture_set(cprof_name_of("node"), 0, 1) == CPROF_NO_MEMORY);
    CHECK(fake_alloc_has_failed() && !cprof_capture_is_set());
    set(0, 1);
    CHECK_EQUAL(fake_alloc_live(), 1);
    reset();
    CHECK_EQUAL(fake_alloc_live(), 0);
}

static void *make_calls(void *captured)
{
    for (int i = 0; i < CALLS; i++) {
        if (call("node")) {
            atomic_fetch_add((_Atomic int *)captured, 1);
        }
    }
    return NULL;
}

TEST(exactly_that_many_calls_of_all_threads)
{
    static _Atomic int captured;
    set(SKIPPED, CAPTURED);
    check_threads(THREADS, make_calls, &captured, 0);
    CHECK_EQUAL(atomic_load(&captured), CAPTURED);
    CHECK_EQUAL(atomic_load(&driver.running), 0);
    CHECK(atomic_load(&driver.starts) == atomic_load(&driver.stops) && atomic_load(&driver.starts) <= CAPTURED);
    CHECK(!cprof_capture_is_set());
}

/* H5 */
TEST(the_window_is_not_the_childs)
{
    cprof_process_start();
    set(0, 2);
    CHECK(begin("node"));
    IN_CHILD
    {
        CHECK(!cprof_capture_is_set());
        cprof_capture_end(); /* of the call that was open */
        CHECK(!call("node"));
        check_driver(1, 0);
        check_report("");
        CHECK(cprof_capture_set(cprof_name_of("node"), 0, 1) == CPROF_IN_USE);
    }
    cprof_capture_end();
    check_driver(1, 1);
    CHECK(call("node"));
    check_report("2 of 2 calls captured");
}

TEST(a_child_without_one_may_set_its_own)
{
    cprof_capture_after_fork_in_child();
    CHECK(cprof_capture_set(cprof_name_of("node"), 0, 1) == CPROF_OK);
    CHECK(call("node"));
}

FAKE_ALLOC_MAIN(reset, reset)
