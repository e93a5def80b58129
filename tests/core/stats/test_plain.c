/* plain.h: sums that are rounded as those of a plain loop are, samples of any value, and the clock's reading. */
#include "cprofiling/stats/plain.h"

#include "tests/core/check.h"

static void test_nothing_was_seen(void)
{
    cprof_plain sums = {.skips_left = 0};
    CHECK_EQUAL(sums.count, 0);
    CHECK_NEAR(cprof_plain_std_ms(&sums), 0.0, 0.0);
    CHECK_NEAR(cprof_p2_median(&sums.median), 0.0, 0.0);
}

static void test_skips_come_first(void)
{
    cprof_plain sums = {.skips_left = 2};
    CHECK(!cprof_plain_add(&sums, 100.0));
    CHECK(!cprof_plain_add(&sums, 200.0));
    CHECK_EQUAL(sums.count, 0);
    CHECK(cprof_plain_add(&sums, 3.0));
    CHECK_EQUAL(sums.count, 1);
    CHECK_NEAR(sums.total_ms, 3.0, 0.0);
    CHECK_NEAR(sums.max_ms, 3.0, 0.0);
    CHECK_NEAR(sums.min_ms, 3.0, 0.0);
}

/* 0.1 ten times is not 1.0 when it is added up as floats. */
static void test_sums_are_rounded_one_by_one(void)
{
    cprof_plain sums = {.skips_left = 0};
    double total = 0.0;
    for (int i = 0; i < 10; i++) {
        CHECK(cprof_plain_add(&sums, 0.1));
        total += 0.1;
    }
    CHECK(total != 1.0);
    CHECK_NEAR(sums.total_ms, total, 0.0);
    CHECK_NEAR(sums.mean_ms, 0.1, 0.0);
    CHECK_NEAR(cprof_plain_std_ms(&sums), 0.0, 0.0);
}

static void test_figures(void)
{
    static const double samples[] = {4.0, -2.0, 9.0, 1.0};
    cprof_plain sums = {.skips_left = 0};
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        CHECK(cprof_plain_add(&sums, samples[i]));
    }
    CHECK_NEAR(sums.mean_ms, 3.0, 1e-15);
    CHECK_NEAR(cprof_plain_std_ms(&sums), sqrt(66.0 / 4.0), 1e-15);
    CHECK_NEAR(sums.min_ms, -2.0, 0.0);
    CHECK_NEAR(sums.max_ms, 9.0, 0.0);
    CHECK_NEAR(sums.last_ms, 1.0, 0.0);
    CHECK_NEAR(cprof_p2_median(&sums.median), 2.5, 0.0);
}

static void test_what_is_no_number_is_neither_least_nor_most(void)
{
    cprof_plain sums = {.skips_left = 0};
    CHECK(cprof_plain_add(&sums, NAN));
    CHECK(isnan(sums.total_ms) && isnan(sums.mean_ms));
    CHECK(sums.min_ms > sums.max_ms);
}

static void test_the_clock(void)
{
    cprof_ns elapsed_ns = -1;
    double elapsed_ms = -1.0;
    cprof_ns start = cprof_plain_start();
    CHECK(cprof_plain_stop(start, &elapsed_ns, &elapsed_ms));
    CHECK(elapsed_ns >= 0);
    CHECK_NEAR(elapsed_ms, (double)elapsed_ns / 1e6, 0.0);
    CHECK(cprof_plain_stop(start + 1000000000000, &elapsed_ns, &elapsed_ms));
    CHECK(elapsed_ns < 0 && elapsed_ms < 0.0);
    CHECK(!cprof_plain_stop(INT64_MIN, &elapsed_ns, &elapsed_ms)); /* is no int64 */
    CHECK(!cprof_plain_stop(INT64_MAX, &elapsed_ns, &elapsed_ms)); /* is no double */
    CHECK(!cprof_plain_stop(-(INT64_C(1) << 54), &elapsed_ns, &elapsed_ms));
}

int main(void)
{
    test_nothing_was_seen();
    test_skips_come_first();
    test_sums_are_rounded_one_by_one();
    test_figures();
    test_what_is_no_number_is_neither_least_nor_most();
    test_the_clock();
    return 0;
}
