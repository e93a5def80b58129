/* Ranges for NVIDIA's tools. Without an argument: where no tool listens. With one: the path of fake_nvtx.so, which does. Each
 * test is a process of its own, because NVTX looks for a tool only once. */
#define _GNU_SOURCE
#include "cprofiling/devices/nvtx.h"

#include "cprofiling/process.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"
#include "tests/fakes/fake_nvtx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_VARIABLE "NVTX_INJECTION64_PATH"

enum { THREADS = 4, RANGES = 50, RACERS = 8 };

static unsigned long secure;
static uint64_t loaded_libraries;

WRAP_REAL(unsigned long, getauxval, unsigned long type)
{
    return type == AT_SECURE ? secure : real_getauxval(type);
}

WRAP_REAL(void *, dlopen, const char *path, int flags)
{
    loaded_libraries++;
    return real_dlopen(path, flags);
}

static void in_child(void (*test)(void))
{
    IN_CHILD
    {
        test();
    }
}

/* ---- Without a tool */

static void check_silence(void)
{
    fake_alloc_install();
    CHECK(!cprof_nvtx_is_heard());
    CHECK(cprof_nvtx_register(cprof_name_of("node")) == NULL);
    cprof_nvtx_push(NULL, 1);
    cprof_nvtx_pop();
    CHECK_EQUAL(fake_alloc_made(), 0);
    CHECK(cprof_nvtx_reason() == NULL);
}

static void test_nothing_is_loaded_without_a_tool(void)
{
    check_silence();
    CHECK(setenv(PATH_VARIABLE, "/nowhere/tool.so", 1) == 0);
    check_silence(); /* the answer was final */
    CHECK_EQUAL(loaded_libraries, 0);
}

static void test_a_set_user_id_program_loads_no_tool(void) /* G13 */
{
    secure = 1;
    CHECK(setenv(PATH_VARIABLE, "/nowhere/tool.so", 1) == 0);
    check_silence();
    CHECK_EQUAL(loaded_libraries, 0);
}

/* ---- With the fake one */

static const char *tool_path;

static struct {
    const char *(*log)(uint64_t index);
    uint64_t (*violations)(void);
    uint64_t (*open)(void);
    void (*on_domain)(void (*hook)(void));
} tool;

/* The library as the test's own; NVTX loads it itself, later. */
static void open_tool(void)
{
    void *library = real_dlopen(tool_path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    check_symbol(library, "fake_nvtx_log", (void *)&tool.log);
    check_symbol(library, "fake_nvtx_violations", (void *)&tool.violations);
    check_symbol(library, "fake_nvtx_open", (void *)&tool.open);
    check_symbol(library, "fake_nvtx_on_domain", (void *)&tool.on_domain);
    CHECK(setenv(PATH_VARIABLE, tool_path, 1) == 0);
}

/* Checks an entry of the log; NULL: there is none. */
static void check_entry(uint64_t index, const char *expected)
{
    const char *entry = tool.log(index);
    if (expected == NULL ? entry != NULL : entry == NULL || strcmp(entry, expected) != 0) {
        (void)fprintf(stderr, "entry %" PRIu64 " is %s\n", index, entry != NULL ? entry : "missing");
        CHECK(!"as expected");
    }
}

static void check_range_entry(uint64_t index, const char *what, pid_t thread, const char *rest)
{
    char expected[128];
    (void)snprintf(expected, sizeof expected, "%s cprofiling %d %s", what, (int)thread, rest);
    check_entry(index, expected);
}

static void test_ranges_are_heard(void)
{
    open_tool();
    CHECK(cprof_nvtx_is_heard());
    CHECK(cprof_nvtx_is_heard());
    void *outer = cprof_nvtx_register((cprof_name){"outer, and more", 5});
    void *inner = cprof_nvtx_register(cprof_name_of("inner"));
    cprof_nvtx_push(outer, 7);
    cprof_nvtx_push(inner, UINT64_MAX);
    CHECK_EQUAL(tool.open(), 2);
    cprof_nvtx_pop();
    cprof_nvtx_pop();
    check_entry(0, "domain cprofiling");
    check_entry(1, "name cprofiling outer");
    check_entry(2, "name cprofiling inner");
    check_range_entry(3, "push", gettid(), "outer 7");
    check_range_entry(4, "push", gettid(), "inner 18446744073709551615");
    check_range_entry(5, "pop", gettid(), "inner");
    check_range_entry(6, "pop", gettid(), "outer");
    check_entry(7, NULL);
    CHECK_EQUAL(tool.violations(), 0);
    CHECK(cprof_nvtx_reason() == NULL);
}

static void test_names_are_passed_as_they_are(void)
{
    open_tool();
    CHECK(cprof_nvtx_register((cprof_name){"cut\0here", 8}) != NULL);
    CHECK(cprof_nvtx_register(cprof_name_of("")) != NULL);
    CHECK(cprof_nvtx_register(cprof_name_of("\xed\xa0\x80 %s%n \xff")) != NULL);
    check_entry(1, "name cprofiling cut");
    check_entry(2, "name cprofiling ");
    check_entry(3, "name cprofiling \xed\xa0\x80 %s%n \xff");
}

/* G7. A range is opened all the same, so that its end has something to end. */
static void test_a_name_may_find_no_memory(void)
{
    open_tool();
    fake_alloc_install();
    fake_alloc_fail(1);
    void *message = cprof_nvtx_register(cprof_name_of("node"));
    CHECK(message == NULL && fake_alloc_has_failed());
    cprof_nvtx_push(message, 1);
    cprof_nvtx_pop();
    check_range_entry(1, "push", gettid(), "? 1");
    check_range_entry(2, "pop", gettid(), "?");
    CHECK(cprof_nvtx_register(cprof_name_of("node")) != NULL);
    CHECK_EQUAL(fake_alloc_live(), 0);
    CHECK_EQUAL(tool.violations(), 0);
}

static void *push_and_pop(void *argument)
{
    void *message = argument;
    for (uint64_t i = 0; i < RANGES; i++) {
        cprof_nvtx_push(message, i);
        CHECK_EQUAL(tool.open(), 1);
        cprof_nvtx_pop();
    }
    CHECK_EQUAL(tool.open(), 0);
    return NULL;
}

static void test_ranges_are_of_their_thread(void)
{
    open_tool();
    void *message = cprof_nvtx_register(cprof_name_of("node"));
    cprof_nvtx_push(message, 0);
    check_threads(THREADS, push_and_pop, message, 0);
    CHECK_EQUAL(tool.open(), 1);
    cprof_nvtx_pop();
    check_entry(2 + 2 * THREADS * RANGES + 1, tool.log(2 + 2 * THREADS * RANGES + 1));
    check_entry(2 + 2 * THREADS * RANGES + 2, NULL);
    CHECK_EQUAL(tool.violations(), 0);
}

static void *ask(void *argument)
{
    (void)pthread_barrier_wait(argument);
    CHECK(cprof_nvtx_is_heard());
    return NULL;
}

static void test_many_threads_make_one_domain(void)
{
    open_tool();
    pthread_barrier_t start;
    CHECK(pthread_barrier_init(&start, NULL, RACERS) == 0);
    check_threads(RACERS, ask, &start, 0);
    CHECK(pthread_barrier_destroy(&start) == 0);
    check_entry(0, "domain cprofiling");
    check_entry(1, NULL);
}

static void check_broken_tool(void)
{
    CHECK(!cprof_nvtx_is_heard());
    CHECK(cprof_nvtx_register(cprof_name_of("node")) == NULL);
    cprof_nvtx_push(NULL, 1);
    cprof_nvtx_pop();
    CHECK_EQUAL(loaded_libraries, 1); /* at the first question only */
}

static void test_a_tool_that_does_not_start(void)
{
    CHECK(setenv(PATH_VARIABLE, tool_path, 1) == 0);
    CHECK(setenv("FAKE_NVTX_REFUSES", "1", 1) == 0);
    check_broken_tool();
}

static void test_a_tool_that_hears_nothing(void)
{
    CHECK(setenv(PATH_VARIABLE, tool_path, 1) == 0);
    CHECK(setenv("FAKE_NVTX_IS_DEAF", "1", 1) == 0);
    check_broken_tool();
}

static void test_a_tool_that_is_not_there(void)
{
    CHECK(setenv(PATH_VARIABLE, "/nowhere/tool.so", 1) == 0);
    check_broken_tool();
}

static void check_fork(void)
{
    in_child(check_silence);
}

static void test_a_fork_while_another_thread_asks(void) /* D1 */
{
    cprof_process_start();
    open_tool();
    tool.on_domain(check_fork);
    CHECK(cprof_nvtx_is_heard());
    in_child(test_ranges_are_heard); /* once it is known, it is in children, too */
}

static void test_with_tool(void)
{
    in_child(test_ranges_are_heard);
    in_child(test_names_are_passed_as_they_are);
    in_child(test_a_name_may_find_no_memory);
    in_child(test_ranges_are_of_their_thread);
    in_child(test_many_threads_make_one_domain);
    in_child(test_a_tool_that_does_not_start);
    in_child(test_a_tool_that_hears_nothing);
    in_child(test_a_tool_that_is_not_there);
    in_child(test_a_fork_while_another_thread_asks);
}

int main(int count, char **arguments)
{
    in_child(test_nothing_is_loaded_without_a_tool);
    in_child(test_a_set_user_id_program_loads_no_tool);
    if (count > 1) {
        tool_path = arguments[1];
        test_with_tool();
    }
    return EXIT_SUCCESS;
}
