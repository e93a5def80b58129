/* nesting.h */
#include "cprofiling/trace/nesting.h"

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
    CHECK(cprof_nesting_own_times(table, parents, own_ns) == CPROF_OK);
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

static void check_parents(const uint8_t counted[ROWS], const int32_t expected[ROWS])
{
    int32_t parents[ROWS];
    CHECK(cprof_nesting_parents(table, counted, parents) == CPROF_OK);
    for (size_t row = 0; row < ROWS; row++) {
        CHECK_EQUAL(parents[row], expected[row]);
    }
}

TEST(innermost_row_that_counts)
{
    add_between(0, 100, THREAD, 0);
    add_between(10, 50, THREAD, 0);
    add_between(20, 40, THREAD, 0);
    add_between(30, 30, THREAD, 0);
    add_between(31, 35, OTHER, 0);
    add_between(60, 70, THREAD, 0);
    finish();
    check_parents((uint8_t[ROWS]){1, 1, 1, 1, 1, 1}, (int32_t[ROWS]){-1, 0, 1, 2, -1, 0});
    check_parents((uint8_t[ROWS]){1, 0, 0, 1, 0, 1}, (int32_t[ROWS]){-1, -2, -2, 0, -2, 0});
    check_parents((uint8_t[ROWS]){0, 0, 9, 1, 1, 0}, (int32_t[ROWS]){-2, -2, -1, 2, -1, -2});
}

TEST(rows_that_begin_where_their_parent_ends)
{
    cprof_row row = cprof_row_none;
    row.track = track_of(1, THREAD);
    row.end_ns = 100;
    row.span = 1;
    add(&row);
    row.start_ns = 100;
    row.parent_span = 1;
    for (row.span = 2; row.span <= ROWS; row.span++) { /* each is around the next one, and all begin at the first one's end */
        add(&row);
        row.parent_span = row.span;
    }
    finish();
    check_parents((uint8_t[ROWS]){1, 1, 1, 1, 1, 1}, (int32_t[ROWS]){-1, 0, 1, 2, 3, 4});
}

TEST(no_rows)
{
    finish();
    CHECK(cprof_nesting_own_times(table, NULL, NULL) == CPROF_OK);
    CHECK(cprof_nesting_parents(table, NULL, NULL) == CPROF_OK);
}

TEST(without_memory)
{
    add_rows(0);
    const int32_t parents[ROWS] = {-1, -1, -1, -1, -1, -1};
    uint64_t own_ns[ROWS];
    for (uint64_t nth = 1; nth <= 2; nth++) {
        fake_alloc_fail(nth);
        CHECK(cprof_nesting_own_times(table, parents, own_ns) == CPROF_NO_MEMORY);
        CHECK(fake_alloc_has_failed());
    }
    const uint8_t counted[ROWS] = {1};
    int32_t found[ROWS];
    fake_alloc_fail(1);
    CHECK(cprof_nesting_parents(table, counted, found) == CPROF_NO_MEMORY);
    CHECK(fake_alloc_has_failed());
}

FAKE_ALLOC_MAIN(set_up, tear_down)
