/* Checks that end the program with status 1, naming the place, when they do not hold; NDEBUG or not. */
#ifndef TESTS_CORE_CHECK_H
#define TESTS_CORE_CHECK_H

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__))

/* Both are integers, compared as 64 bits. */
#define CHECK_EQUAL(value, expected) check_equal(#value, (uint64_t)(value), (uint64_t)(expected), __FILE__, __LINE__)

/* Both are doubles; `tolerance` is relative to `expected`, and 0 asks for the same value. */
#define CHECK_NEAR(value, expected, tolerance) check_near(#value, value, expected, tolerance, __FILE__, __LINE__)

static inline _Noreturn void check_failed(const char *condition, const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
    exit(EXIT_FAILURE);
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

/* The program's argument, a number from 1 on; `otherwise` without one. */
static inline uint64_t check_argument(int count, char **arguments, uint64_t otherwise)
{
    uint64_t number = count > 1 ? strtoull(arguments[1], NULL, 10) : otherwise;
    CHECK(number > 0);
    return number;
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
