/* Checks that end the program with status 1, naming the place, when they do not hold; NDEBUG or not. */
#ifndef TESTS_CORE_CHECK_H
#define TESTS_CORE_CHECK_H

#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define CHECK(condition) ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__))

/* Both are integers, compared as 64 bits. */
#define CHECK_EQUAL(value, expected) check_equal(#value, (uint64_t)(value), (uint64_t)(expected), __FILE__, __LINE__)

/* Both are doubles; `tolerance` is relative to `expected`, and 0 asks for the same value. */
#define CHECK_NEAR(value, expected, tolerance) check_near(#value, value, expected, tolerance, __FILE__, __LINE__)

static const char *check_case = ""; /* the test, or the row of its table, for the messages */

static inline _Noreturn void check_failed(const char *condition, const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d: CHECK failed: %s %s\n", file, line, condition, check_case);
    _exit(EXIT_FAILURE); /* without the sanitizer's list of what is still in use, which is long and hides the place */
}

static inline void check_equal(const char *what, uint64_t value, uint64_t expected, const char *file, int line)
{
    if (value != expected) {
        (void)fprintf(stderr, "%s is %" PRIu64 " (%" PRId64 "), not %" PRIu64 "\n", what, value, (int64_t)value, expected);
        check_failed(what, file, line);
    }
}

static inline void check_near(const char *what, double value, double expected, double tolerance, const char *file, int line)
{
    if (!(fabs(value - expected) <= tolerance * fabs(expected))) {
        (void)fprintf(stderr, "%s is %.17g, not %.17g within %g\n", what, value, expected, tolerance);
        check_failed(what, file, line);
    }
}

/* ---- Tests ---- */

enum { CHECK_TESTS = 100, HANG_SECONDS = 140 }; /* a child that waits longer than this is in a deadlock */

typedef struct {
    void (*tests[CHECK_TESTS])(void);
    const char *names[CHECK_TESTS];
    size_t count;
    const char *only; /* the one test that runs; NULL: all */
} check_list;

static check_list check_all;

/* Begins a test: check_run runs all tests of a program in the order of the file. */
#define TEST(name)                                                  \
    static void test_##name(void);                                  \
    __attribute__((constructor)) static void check_add_##name(void) \
    {                                                               \
        check_all.names[check_all.count] = #name;                   \
        check_all.tests[check_all.count++] = test_##name;           \
    }                                                               \
    static void test_##name(void)

/* Begins a test in a process of its own. */
#define TEST_IN_CHILD(name)            \
    static void child_of_##name(void); \
    TEST(name)                         \
    {                                  \
        IN_CHILD                       \
        {                              \
            child_of_##name();         \
        }                              \
    }                                  \
    static void child_of_##name(void)

/* Runs `begin` before each test and `end` after it; both may be NULL. */
static inline void check_run(void (*begin)(void), void (*end)(void))
{
    CHECK(check_all.count > 0);
    for (size_t i = 0; i < check_all.count; i++) {
        if (check_all.only != NULL && strcmp(check_all.only, check_all.names[i]) != 0) {
            continue;
        }
        if (begin != NULL) {
            begin();
        }
        check_case = check_all.names[i];
        check_all.tests[i]();
        if (end != NULL) {
            end();
        }
    }
}

/* A main function that only runs the tests. */
#define TEST_MAIN(begin, end)  \
    int main(void)             \
    {                          \
        check_run(begin, end); \
        return EXIT_SUCCESS;   \
    }

/* ---- Functions of others, child processes, threads ---- */

/* Begins a function that is called in the place of the function `name`; WRAP_REAL also declares that one, real_<name>.
 * test_core.py passes the names to the linker. */
#define WRAP(type, name, ...)                                  \
    type wrapped_##name(__VA_ARGS__) __asm__("__wrap_" #name); \
    type wrapped_##name(__VA_ARGS__)
#define WRAP_REAL(type, name, ...)                          \
    type real_##name(__VA_ARGS__) __asm__("__real_" #name); \
    WRAP(type, name, __VA_ARGS__)

/* Sets the pointer to a function, at the address `pointer`, to that of this name. */
static inline void check_symbol(void *library, const char *name, void *pointer)
{
    void *address = dlsym(library, name);
    CHECK(address != NULL);
    memcpy(pointer, (const void *)&address, sizeof address);
}

/* Runs the block that follows in a forked child, and checks that the child came to its end. */
#define IN_CHILD for (pid_t child_ = fork(); check_is_child(child_); exit(EXIT_SUCCESS))

static inline void check_success(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
}

static inline bool check_is_child(pid_t child)
{
    if (child == 0) {
        (void)alarm(HANG_SECONDS);
        return true;
    }
    check_success(child);
    return false;
}

static inline pthread_t check_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    return thread;
}

static inline void check_join(pthread_t thread)
{
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Runs `body` in `count` threads at once, with the arguments `first`, `first` + `step` and so on, in bytes. */
static inline void check_threads(size_t count, void *(*body)(void *), void *first, size_t step)
{
    pthread_t threads[64];
    CHECK(count <= COUNT_OF(threads));
    for (size_t i = 0; i < count; i++) {
        threads[i] = check_thread(body, (void *)((uintptr_t)first + i * step));
    }
    for (size_t i = 0; i < count; i++) {
        check_join(threads[i]);
    }
}

static inline void check_in_thread(void *(*body)(void *), void *argument)
{
    check_join(check_thread(body, argument));
}

/* ---- Arguments and numbers ---- */

/* The program's argument, a number from 1 on; `otherwise` without one. */
static inline uint64_t check_argument(int count, char **arguments, uint64_t otherwise)
{
    uint64_t number = count > 1 ? strtoull(arguments[1], NULL, 10) : otherwise;
    CHECK(number > 0);
    return number;
}

/* The time at the beginning of a text, in ns: `5`, `5u` (us), `5m` (ms). *rest is what follows. */
static inline int64_t check_ns(const char *text, char **rest)
{
    int64_t number = strtoll(text, rest, 10);
    int64_t unit = **rest == 'u' ? 1000 : **rest == 'm' ? 1000 * 1000 : 1;
    *rest += unit > 1;
    return number * unit;
}

/* The next number of a reproducible sequence (SplitMix64, by Steele, Lea and Flood); `state` may begin anywhere. */
static inline uint64_t check_random(uint64_t *state)
{
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

/* The next number of the sequence that is evenly spread over 0 (included) to 1 (excluded). */
static inline double check_random_unit(uint64_t *state)
{
    return (double)(check_random(state) >> 11) * 0x1p-53;
}

/* The longest run of slots of a hash table that are taken: how long a search may be. */
static inline size_t check_longest_run(const uint32_t *slots, size_t count)
{
    size_t longest = 0;
    size_t run = 0;
    for (size_t i = 0; i < 2 * count && run < count; i++) { /* one may go on at the beginning */
        run = slots[i % count] != 0 ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

#endif
