/* counters.h where no counter is known: linked with counters_none.c in place of counters_linux.c. */
#include "cprofiling/devices/counters.h"

#include "tests/core/check.h"

#include <string.h>

#define REASON "counters are unavailable on this platform"

static void check_nothing_is_known(void)
{
    cprof_counters_reading reading = {.known = CPROF_COUNTER_ALL, .estimated = true};
    cprof_counters_read(CPROF_COUNTER_ALL, &reading);
    CHECK_EQUAL(reading.known, 0);
    CHECK(!reading.estimated);
    CHECK(!cprof_counters_in_user_space());
}

static void test_the_reason_is_given(void)
{
    char reason[sizeof REASON];
    char cut[5];
    for (cprof_counter counter = 0; counter < CPROF_COUNTER_COUNT; counter++) {
        CHECK(cprof_counters_reason(counter, reason, sizeof reason));
        CHECK(strcmp(reason, REASON) == 0);
        CHECK(strlen(cprof_counters_name(counter)) > 0);
    }
    CHECK(cprof_counters_reason(CPROF_COUNTER_CYCLES, cut, sizeof cut));
    CHECK(strcmp(cut, "coun") == 0);
    cut[0] = 'x';
    CHECK(cprof_counters_reason(CPROF_COUNTER_CYCLES, cut, 0));
    CHECK(cut[0] == 'x');
}

int main(void)
{
    check_nothing_is_known();
    test_the_reason_is_given();
    cprof_counters_after_fork_in_child();
    check_nothing_is_known();
    return EXIT_SUCCESS;
}
