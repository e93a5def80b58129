#include "cprofiling/devices/cupti_clock.h"

#include "tests/core/check.h"

enum { US = 1000, MS = 1000 * 1000 };

static const uint64_t day = UINT64_C(1700000000000000000); /* theirs: the time of day */

static cprof_ticks no_ticks(void)
{
    return 0;
}

static cprof_cupti_clock line_of(cprof_ticks ours, uint64_t theirs)
{
    return (cprof_cupti_clock){.origin = {5000, 100}, .first = {100, day}, .last = {100 + ours, day + theirs}};
}

TEST(our_times_count_from_the_origin)
{
    cprof_cupti_clock line = line_of(0, 0);
    CHECK_EQUAL(cprof_cupti_clock_ours(&line, 100), 5000);
    CHECK_EQUAL(cprof_cupti_clock_ours(&line, 150), 5050);
    CHECK_EQUAL(cprof_cupti_clock_ours(&line, 40), 4940);
}

TEST(clocks_of_one_rate_differ_by_what_they_did_last)
{
    cprof_cupti_clock line = line_of(0, 0); /* no rate is known */
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day + 7), 5007);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day - 7), 4993);
    line = line_of(1000 * MS, 1000 * MS + 10 * US); /* theirs has gained 10 µs on ours */
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day), 5000);
    CHECK_NEAR((double)cprof_cupti_clock_theirs(&line, day + 500 * MS + 5 * US), 5000.0 + 500.0 * MS, 1e-8);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day + 2000 * MS + 10 * US), 5000 + 2000 * INT64_C(1000000));
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day - MS), 5000 - MS);
    CHECK_EQUAL(cprof_cupti_clock_between(&line, day, day + 300 * US), 300 * US); /* as it was measured */
}

/* What readings differ by is no drift: durations stay as they are. */
TEST(steady_clocks_keep_durations)
{
    cprof_cupti_clock line = line_of(MS + 2 * US, MS);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day), 5000 + US);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day + MS), 5000 + MS + US);
    line = line_of(MS - 2 * US, MS);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day + 700 * US), 5000 + 699 * US);
    line = line_of(MS - 2 * US - 1, MS);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day + MS), 5000 + MS - 2 * US - 1);
    line = line_of(MS + 2 * US + 1, MS);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day), 5000);
}

/* Ticks that are no nanoseconds. */
TEST(a_foreign_clock_is_scaled)
{
    cprof_cupti_clock line = line_of(10 * MS, 25 * MS);
    CHECK_EQUAL(cprof_cupti_clock_between(&line, 7, 7 + 250), 100);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day + 250 * US), 5000 + 100 * US);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day + 50 * MS), 5000 + 20 * MS);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day - 25 * MS), 5000 - 10 * MS);
    line = line_of(10 * MS, 1 * MS); /* slow ones */
    CHECK_EQUAL(cprof_cupti_clock_between(&line, 0, 5), 50);
}

TEST(too_little_says_nothing_of_a_rate)
{
    cprof_cupti_clock line = line_of(49 * US, 99 * US);
    CHECK_EQUAL(cprof_cupti_clock_between(&line, 0, 77), 77);
    line = line_of(10 * MS, 0); /* theirs stands still, */
    CHECK_EQUAL(cprof_cupti_clock_between(&line, 0, 77), 77);
    line = line_of(10 * MS, (uint64_t)-5); /* goes back, */
    CHECK_EQUAL(cprof_cupti_clock_between(&line, 0, 77), 77);
    line = line_of(INT64_MAX / 2, 1); /* or hardly moves */
    CHECK_EQUAL(cprof_cupti_clock_between(&line, 0, 77), 77);
}

TEST(damaged_stamps_are_far_away)
{
    const int64_t farthest = INT64_C(1) << 61;
    cprof_cupti_clock line = line_of(10 * MS, 10 * MS);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day + (UINT64_C(1) << 62)), 5000 + farthest);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, day - (UINT64_C(1) << 62)), 5000 - farthest);
    CHECK(!cprof_cupti_clock_is_credible(&line, 1, 100, 100 + 10 * MS));
    CHECK(!cprof_cupti_clock_is_credible(&line, UINT64_MAX, 100, 100 + 10 * MS));
}

TEST(work_begins_after_its_launch)
{
    cprof_cupti_clock line = line_of(10 * MS, 10 * MS);
    cprof_ticks launched = 100 + 5 * MS;
    cprof_ticks now = 100 + 20 * MS;
    CHECK(cprof_cupti_clock_is_credible(&line, day + 5 * MS, launched, now));
    CHECK(cprof_cupti_clock_is_credible(&line, day + 4 * MS, launched, now));
    CHECK(cprof_cupti_clock_is_credible(&line, day + 4 * MS - 799, launched, now));
    CHECK(!cprof_cupti_clock_is_credible(&line, day + 4 * MS - 800, launched, now));
    CHECK(cprof_cupti_clock_is_credible(&line, day + 21 * MS + 2200, launched, now));
    CHECK(!cprof_cupti_clock_is_credible(&line, day + 21 * MS + 2201, launched, now));
    line = line_of(10 * MS, 20 * MS); /* a rate that was measured: the farther away, the less it tells */
    CHECK(cprof_cupti_clock_is_credible(&line, day + 8 * MS, launched, now));
    CHECK(!cprof_cupti_clock_is_credible(&line, day + 7 * MS, launched, now));
    CHECK(cprof_cupti_clock_is_credible(&line, day + 42 * MS, launched, now));
    CHECK(!cprof_cupti_clock_is_credible(&line, day + 43 * MS, launched, now));
}

/* An hour without a reading, with crystals that are 150 parts in a million apart; near a reading nothing of that is excused. */
TEST(clocks_drift_apart)
{
    const int64_t hour = INT64_C(3600) * 1000000000;
    const int64_t drift = hour / 1000000 * 150;
    cprof_cupti_clock line = line_of(MS, MS);
    cprof_ticks launched = 100 + (cprof_ticks)hour;
    uint64_t stamp = day + (uint64_t)hour;
    CHECK(cprof_cupti_clock_is_credible(&line, stamp + (uint64_t)drift, launched, launched));
    CHECK(cprof_cupti_clock_is_credible(&line, stamp - (uint64_t)drift, launched, launched));
    CHECK(!cprof_cupti_clock_is_credible(&line, stamp + 2 * (uint64_t)drift, launched, launched));
    CHECK(!cprof_cupti_clock_is_credible(&line, stamp - 2 * (uint64_t)drift, launched, launched));
    line.last = (cprof_cupti_moment){launched, stamp};
    CHECK(!cprof_cupti_clock_is_credible(&line, stamp + 2 * MS, launched, launched));
    CHECK(!cprof_cupti_clock_is_credible(&line, day + 2 * MS, 100, 100)); /* near the first one */
    CHECK(cprof_cupti_clock_is_credible(&line, stamp / 2 + day / 2 + 300 * MS, 100 + (cprof_ticks)hour / 2,
                                        100 + (cprof_ticks)hour / 2));
}

static cprof_cupti_moment moment(int64_t ours, int64_t theirs)
{
    return (cprof_cupti_moment){100 + (cprof_ticks)ours, day + (uint64_t)theirs};
}

static void check_breaks(cprof_cupti_clock line, cprof_cupti_moment now)
{
    CHECK(!cprof_cupti_clock_continue(&line, now));
    CHECK(line.first.ours == now.ours && line.first.theirs == now.theirs);
    CHECK(line.last.ours == now.ours && line.last.theirs == now.theirs);
    CHECK_EQUAL(cprof_cupti_clock_theirs(&line, now.theirs), cprof_cupti_clock_ours(&line, now.ours));
}

static void check_goes_on(cprof_cupti_clock line, cprof_cupti_moment now)
{
    cprof_cupti_moment first = line.first;
    CHECK(cprof_cupti_clock_continue(&line, now));
    CHECK(line.first.ours == first.ours && line.first.theirs == first.theirs);
    CHECK(line.last.ours == now.ours && line.last.theirs == now.theirs);
}

TEST(a_clock_that_is_set_breaks_the_line)
{
    const int64_t second = 1000 * MS;
    const int64_t hour = 3600 * second;
    cprof_cupti_clock line = line_of(MS, MS);
    check_goes_on(line, moment(10 * second, 10 * second + 10 * MS)); /* one that is being slewed */
    check_breaks(line, moment(10 * second, 10 * second + 12 * MS));
    check_breaks(line, moment(10 * second, 10 * second - 12 * MS));
    check_breaks(line, moment(10 * second, 10 * second + hour));
    check_breaks(line, moment(10 * second, 10 * second - hour));
    check_breaks(line, moment(10 * second, 25 * second)); /* another clock */
    line = line_of(0, 0);
    check_goes_on(line, moment(10 * second, 25 * second)); /* nothing was known of it */
    line = line_of(MS, 2 * MS + MS / 2);                   /* ticks, of a rate that is a guess */
    check_goes_on(line, moment(10 * second, 26 * second));
    check_breaks(line, moment(10 * second, 10 * second));
    check_breaks(line, moment(10 * second, -second));
}

TEST(work_lasts_no_longer_than_since_its_launch)
{
    const uint64_t year = UINT64_C(366) * 86400 * 1000000000;
    cprof_cupti_clock line = line_of(10 * MS, 10 * MS);
    cprof_ticks from = 100 + 10 * MS;
    cprof_ticks to = 100 + 110 * MS;
    const uint64_t away[] = {0, 3600 * UINT64_C(1000000000), year - MS, -year + 20 * MS};
    for (size_t i = 0; i < COUNT_OF(away); i++) {
        uint64_t start = day + 10 * MS + away[i];
        CHECK(cprof_cupti_clock_is_possible(&line, start, start, from, to));
        CHECK(cprof_cupti_clock_is_possible(&line, start, start + 101 * MS, from, to));
        CHECK(!cprof_cupti_clock_is_possible(&line, start, start + 102 * MS, from, to));
        CHECK(!cprof_cupti_clock_is_possible(&line, start, UINT64_MAX, from, to));
    }
    CHECK(!cprof_cupti_clock_is_possible(&line, day + 2 * year, day + 2 * year, from, to));
    CHECK(!cprof_cupti_clock_is_possible(&line, day - 2 * year, day - 2 * year, from, to));
    CHECK(!cprof_cupti_clock_is_possible(&line, 1, 2, from, to));
    line = line_of(10 * MS, 25 * MS);
    CHECK(cprof_cupti_clock_is_possible(&line, day + 25 * MS, day + 275 * MS, from, to));
    CHECK(!cprof_cupti_clock_is_possible(&line, day + 25 * MS, day + 280 * MS, from, to));
}

int main(void)
{
    cprof_clock_set_test(no_ticks); /* a tick is a nanosecond */
    check_run(NULL, NULL);
    return EXIT_SUCCESS;
}
