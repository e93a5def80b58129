/* perf.h where no counter is known: linked with perf_none.c in place of perf_linux.c. */
#include "cprofiling/perf.h"

#include "tests/core/check.h"

#include <string.h>

#define REASON "counters are unavailable on this platform"

static void check_nothing_is_known(void)
{
    cprof_perf_reading reading = {.known = CPROF_PERF_ALL, .estimated = true};
    cprof_perf_read(CPROF_PERF_ALL, &reading);
    CHECK_EQUAL(reading.known, 0);
    CHECK(!reading.estimated);
    CHECK(!cprof_perf_in_user_space());
}

static void test_the_reason_is_given(void)
{
    char reason[sizeof REASON];
    char cut[5];
    for (cprof_perf_counter counter = 0; counter < CPROF_PERF_COUNT; counter++) {
        CHECK(cprof_perf_reason(counter, reason, sizeof reason));
        CHECK(strcmp(reason, REASON) == 0);
        CHECK(strlen(cprof_perf_name(counter)) > 0);
    }
    CHECK(cprof_perf_reason(CPROF_PERF_CYCLES, cut, sizeof cut));
    CHECK(strcmp(cut, "coun") == 0);
    cut[0] = 'x';
    CHECK(cprof_perf_reason(CPROF_PERF_CYCLES, cut, 0));
    CHECK(cut[0] == 'x');
}

int main(void)
{
    check_nothing_is_known();
    test_the_reason_is_given();
    cprof_perf_after_fork_in_child();
    check_nothing_is_known();
    return EXIT_SUCCESS;
}
