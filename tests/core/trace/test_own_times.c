/* own_times.h */
#include "cprofiling/trace/own_times.h"

#include "tests/core/tables.h"

enum { ROWS = 6, THREAD, OTHER };

static void add_between(cprof_ns start_ns, cprof_ns end_ns, int64_t thread, uint8_t flags)
{
    cprof_row row = cprof_row_none;
    row.start_ns = start_ns;
    row.end_ns = end_ns;
    row.track = track_of(1, thread);
    row.flags = flags;
    add(&row);
}

/* 0 to 100 around 10 to 30 and 40 to 60; what overlaps that by 20; and far off, as long as any time can be. */
static void add_rows(uint8_t flags)
{
    add_between(0, 100, THREAD, 0);
    add_between(10, 30, THREAD, 0);
    add_between(40, 60, THREAD, 0);
    add_between(50, 80, THREAD, 0);
    add_between(INT64_MIN, INT64_MAX, OTHER, flags);
    add_between(5, 5, OTHER, 0);
    finish();
}

static void check_times(const int32_t parents[ROWS], const uint64_t expected[ROWS])
{
    uint64_t own_ns[ROWS];
    CHECK(cprof_own_times(table, parents, own_ns) == CPROF_OK);
    for (size_t row = 0; row < ROWS; row++) {
        CHECK_EQUAL(own_ns[row], expected[row]);
    }
}

TEST(innermost_of_each_track)
{
    add_rows(0);
    check_times((int32_t[ROWS]){-1, -1, 1, -1, 1, 1}, (uint64_t[ROWS]){UINT64_MAX, 40, 0, 20, 10, 30});
    check_times((int32_t[ROWS]){-2, -1, -1, -2, -2, 1}, (uint64_t[ROWS]){0, 70, 0, 0, 0, 30});
}

TEST(tracks_that_are_shared_in_turns)
{
    add_rows(CPROF_ROW_SUSPENDABLE);
    check_times((int32_t[ROWS]){-1, -1, 0, 1, 1, 1}, (uint64_t[ROWS]){0, 40, 0, 20, 10, 30});
}

TEST(no_rows)
{
    finish();
    CHECK(cprof_own_times(table, NULL, NULL) == CPROF_OK);
}

TEST(without_memory)
{
    add_rows(0);
    const int32_t parents[ROWS] = {-1, -1, -1, -1, -1, -1};
    uint64_t own_ns[ROWS];
    for (uint64_t nth = 1; nth <= 2; nth++) {
        fake_alloc_fail(nth);
        CHECK(cprof_own_times(table, parents, own_ns) == CPROF_NO_MEMORY);
        CHECK(fake_alloc_has_failed());
    }
}

FAKE_ALLOC_MAIN(set_up, tear_down)
