/* CHECK(condition): ends the program with status 1, naming the place, when the condition does not hold; NDEBUG or not.
 */
#ifndef TESTS_CORE_CHECK_H
#define TESTS_CORE_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__))

static inline _Noreturn void check_failed(const char *condition, const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
    exit(EXIT_FAILURE);
}

#endif
