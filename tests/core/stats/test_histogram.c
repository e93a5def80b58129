/* histogram.h */
#include "cprofiling/stats/histogram.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <stdbool.h>
#include <string.h>

enum {
    ROW = CPROF_HISTOGRAM_ROW,
    BUCKETS = CPROF_HISTOGRAM_BUCKETS,
    LAST_ROW = CPROF_HISTOGRAM_ROWS - 1,
    VALUES = 1000000,
};

#define DAY_NS 86400e9
#define ALL_ROWS ((UINT64_C(1) << CPROF_HISTOGRAM_ROWS) - 1)

static cprof_histogram histogram;
static uint64_t counts[BUCKETS];
static uint64_t lost;

static void set_up(void)
{
    histogram = (cprof_histogram){0};
    lost = 0;
}

static void tear_down(void)
{
    cprof_histogram_dispose(&histogram);
}

static void copy_all(void)
{
    memset(counts, 0, sizeof counts);
    (void)cprof_histogram_copy(&histogram, counts);
}

static uint64_t sum_of_counts(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        sum += counts[i];
    }
    return sum;
}

/* In 1/64 ns; exact, as every edge is a whole number of them. */
static uint64_t edge_units(unsigned index)
{
    double units = cprof_histogram_edge_ns(index) * ROW;
    CHECK(units == floor(units));
    return (uint64_t)units;
}

TEST(edges_of_every_bucket)
{
    CHECK(cprof_histogram_edge_ns(0) == 0.0);
    CHECK(edge_units(BUCKETS) == CPROF_HISTOGRAM_LIMIT);
    for (unsigned i = 0; i < BUCKETS; i++) {
        uint64_t low = edge_units(i);
        uint64_t high = edge_units(i + 1);
        CHECK(low < high);
        CHECK_EQUAL(cprof_histogram_index(low), i);
        CHECK_EQUAL(cprof_histogram_index(high - 1), i);
        CHECK(i < ROW || (high - low) * ROW <= low); /* at most 1/64 of its value wide from 1 ns up */
    }
}

TEST(rows_are_powers_of_two)
{
    CHECK_EQUAL(cprof_histogram_index(ROW - 1) / ROW, 0);
    for (unsigned row = 1; row <= LAST_ROW; row++) {
        CHECK_EQUAL(cprof_histogram_index((uint64_t)ROW << (row - 1)), row * ROW);
        CHECK_EQUAL(cprof_histogram_index(((uint64_t)ROW << row) - 1), row * ROW + ROW - 1);
    }
}

TEST(beyond_the_limit)
{
    CHECK(CPROF_HISTOGRAM_LIMIT / ROW == UINT64_C(1) << 47);
    CHECK_EQUAL(cprof_histogram_index(CPROF_HISTOGRAM_LIMIT - 1), BUCKETS - 1);
    CHECK_EQUAL(cprof_histogram_index(CPROF_HISTOGRAM_LIMIT), BUCKETS - 1);
    CHECK_EQUAL(cprof_histogram_index(UINT64_MAX), BUCKETS - 1);
    CHECK_EQUAL(cprof_histogram_index_ns((cprof_ns)(CPROF_HISTOGRAM_LIMIT / ROW)), BUCKETS - 1);
    CHECK_EQUAL(cprof_histogram_index_ns(INT64_MAX), BUCKETS - 1);
}

static double quantile_ns(cprof_histogram_dense dense, uint64_t total, double fraction)
{
    double ms;
    cprof_histogram_quantiles_ms(dense, total, 0.0, INFINITY, 0.0, &fraction, 1, &ms);
    return ms * 1e6;
}

/* One value alone: its quantile is the middle of its bucket. */
static double middle_ns(uint64_t units)
{
    unsigned row = cprof_histogram_index(units) / ROW;
    memset(counts + row * ROW, 0, ROW * sizeof *counts);
    counts[cprof_histogram_index(units)] = 1;
    return quantile_ns((cprof_histogram_dense){counts, UINT64_C(1) << row}, 1, 0.5);
}

TEST(within_one_percent)
{
    uint64_t random = 1;
    for (int i = 0; i < VALUES; i++) {
        double value_ns = exp(check_random_unit(&random) * log(DAY_NS));
        CHECK_NEAR(middle_ns((uint64_t)(value_ns * ROW)), value_ns, 0.01);
    }
    CHECK_NEAR(middle_ns(ROW), 1.0, 0.01);
    CHECK_NEAR(middle_ns((uint64_t)DAY_NS * ROW), DAY_NS, 0.01);
}

static void add(unsigned index)
{
    cprof_histogram_add(&histogram, index, &lost);
}

/* `stride` is prime to the number of buckets: each has its turn. */
static void check_every_bucket(unsigned stride)
{
    set_up();
    for (unsigned turn = 0; turn < 3 * BUCKETS; turn++) {
        unsigned index = turn * stride % BUCKETS;
        if (turn / BUCKETS <= index % 3) {
            add(index);
        }
    }
    copy_all();
    for (unsigned i = 0; i < BUCKETS; i++) {
        CHECK_EQUAL(counts[i], i % 3 + 1);
    }
    CHECK_EQUAL(lost, 0);
    CHECK(histogram.rows->high == NULL);
    cprof_histogram_dispose(&histogram);
}

/* From the lowest value to the highest, from the highest to the lowest, and in no order. */
TEST(every_bucket_counts_for_itself)
{
    check_every_bucket(1);
    check_every_bucket(BUCKETS - 1);
    check_every_bucket(1271);
}

TEST(empty_histogram)
{
    copy_all();
    CHECK_EQUAL(sum_of_counts(), 0);
    CHECK_EQUAL(cprof_histogram_add_copy(&histogram, counts, 0), 0);
    CHECK_EQUAL(sum_of_counts(), 0);
    cprof_histogram_clear(&histogram);
    cprof_histogram_dispose(&histogram);
    cprof_histogram_dispose(&histogram);
}

TEST(only_rows_in_use_are_copied)
{
    add(4 * ROW);
    add(7 * ROW);
    cprof_histogram_clear(&histogram);
    CHECK_EQUAL(cprof_histogram_copy(&histogram, counts), 0);
    for (unsigned i = 5 * ROW; i < 6 * ROW; i++) {
        add(i);
    }
    add(7 * ROW + 63);
    memset(counts, 0xff, sizeof counts);
    CHECK_EQUAL(cprof_histogram_copy(&histogram, counts), 1U << 5 | 1U << 7);
    for (unsigned i = 0; i < BUCKETS; i++) {
        unsigned row = i / ROW;
        CHECK_EQUAL(counts[i], row < 4 || row > 7 ? UINT64_MAX : row == 5 || i == 7 * ROW + 63);
    }
}

/* A node whose times span a decade keeps four or five rows. */
TEST(only_rows_in_use_take_memory)
{
    add(20 * ROW);
    CHECK_EQUAL(histogram.rows->count, 1);
    add(23 * ROW + 63);
    add(22 * ROW);
    CHECK_EQUAL(histogram.rows->first, 20);
    CHECK_EQUAL(histogram.rows->count, 4);
    add(19 * ROW);
    CHECK_EQUAL(histogram.rows->first, 19);
    CHECK_EQUAL(histogram.rows->count, 5);
    uint64_t made = fake_alloc_made();
    cprof_histogram_clear(&histogram);
    copy_all();
    CHECK_EQUAL(sum_of_counts(), 0);
    add(19 * ROW);
    add(23 * ROW);
    CHECK_EQUAL(fake_alloc_made(), made); /* the rows stay */
}

/* The histogram's own 32 bits of a bucket in use. */
static uint32_t *low_of(unsigned index)
{
    return &histogram.rows->buckets[index - histogram.rows->first * ROW];
}

/* A bucket that has counted `count` values. */
static void fill(unsigned index, uint32_t count)
{
    add(index);
    *low_of(index) = count;
}

/* C12: the 32 bits of a bucket run over. */
TEST(carry)
{
    unsigned index = 20 * ROW + 5;
    fill(index, UINT32_MAX - 2);
    fake_alloc_fail(2);
    for (uint64_t i = 1; i <= 6; i++) {
        add(index);
        copy_all();
        CHECK_EQUAL(counts[index], UINT32_MAX - UINT64_C(2) + i);
        CHECK_EQUAL(sum_of_counts(), counts[index]);
        CHECK((histogram.rows->high == NULL) == (i < 3));
    }
    CHECK(!fake_alloc_has_failed()); /* one allocation is enough */
    *low_of(index) = UINT32_MAX;
    add(index);
    copy_all();
    CHECK_EQUAL(counts[index], UINT64_C(2) << 32);
    CHECK_EQUAL(lost, 0);
}

TEST(carry_of_two_buckets)
{
    fill(0, UINT32_MAX);
    add(0);
    uint32_t *high = histogram.rows->high;
    fill(BUCKETS - 1, UINT32_MAX);
    add(BUCKETS - 1);
    CHECK(histogram.rows->high == high);
    copy_all();
    CHECK_EQUAL(counts[0], UINT64_C(1) << 32);
    CHECK_EQUAL(counts[BUCKETS - 1], UINT64_C(1) << 32);
    CHECK_EQUAL(sum_of_counts(), UINT64_C(2) << 32);
}

TEST(clear_gives_the_high_halves_back)
{
    fill(ROW, UINT32_MAX);
    uint64_t live = fake_alloc_live();
    add(ROW);
    CHECK_EQUAL(fake_alloc_live(), live + 1);
    cprof_histogram_clear(&histogram);
    CHECK_EQUAL(fake_alloc_live(), live);
    CHECK(histogram.rows->high == NULL);
    copy_all();
    CHECK_EQUAL(sum_of_counts(), 0);
    cprof_histogram_dispose(&histogram);
    CHECK_EQUAL(fake_alloc_live(), live - 1);
}

/* G7, C12: without memory the bucket stays full, what it lost is counted, and it counts on when there is memory again. */
TEST(carry_without_memory)
{
    fill(ROW, UINT32_MAX);
    for (uint64_t i = 1; i <= 3; i++) {
        fake_alloc_fail(1);
        add(ROW);
        CHECK(fake_alloc_has_failed());
        copy_all();
        CHECK_EQUAL(counts[ROW], UINT32_MAX);
        CHECK_EQUAL(lost, i);
    }
    add(ROW);
    copy_all();
    CHECK_EQUAL(counts[ROW], UINT64_C(1) << 32);
    CHECK_EQUAL(lost, 3);
}

/* G7: a value whose row cannot be made is lost, and nothing else. */
TEST(rows_without_memory)
{
    static const unsigned rows[] = {10, 20, 5, 12};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        bool exists = i == 3;
        fake_alloc_fail(1);
        add(rows[i] * ROW);
        CHECK(fake_alloc_has_failed() == !exists);
        CHECK_EQUAL(lost, exists ? 3 : i + 1);
        add(rows[i] * ROW);
        copy_all();
        CHECK_EQUAL(counts[rows[i] * ROW], exists ? 2 : 1);
        CHECK_EQUAL(sum_of_counts(), i + (exists ? 2 : 1));
    }
}

TEST(quantile_of_nothing)
{
    memset(counts, 0, sizeof counts);
    CHECK(quantile_ns((cprof_histogram_dense){counts, ALL_ROWS}, 0, 0.5) == 0.0);
}

TEST(quantile_is_the_nearest_rank)
{
    memset(counts, 0, sizeof counts);
    for (unsigned i = 1; i <= 10; i++) { /* 10 counts each of ten values */
        counts[cprof_histogram_index((uint64_t)i * 1000 * ROW)] = 10;
    }
    static const struct {
        double fraction;
        double value_ns;
    } expected[] = {{0.0, 1000},  {0.001, 1000}, {0.1, 1000},   {0.101, 2000}, {0.5, 5000},
                    {0.51, 6000}, {0.9, 9000},   {0.95, 10000}, {0.99, 10000}, {1.0, 10000}};
    for (size_t i = 0; i < COUNT_OF(expected); i++) {
        double value_ns = quantile_ns((cprof_histogram_dense){counts, ALL_ROWS}, 100, expected[i].fraction);
        CHECK_NEAR(value_ns, expected[i].value_ns, 1.0 / 128);
    }
}

/* Counts beyond 2^53 do not fit a double: the rank may be rounded up beyond the last. */
TEST(quantile_of_very_many)
{
    memset(counts, 0, sizeof counts);
    counts[ROW] = UINT64_MAX;
    CHECK_NEAR(quantile_ns((cprof_histogram_dense){counts, UINT64_C(1) << 1}, UINT64_MAX, 0.5), 1.0, 0.01);
    CHECK(quantile_ns((cprof_histogram_dense){counts, UINT64_C(1) << 1}, UINT64_MAX, 1.0) <= 2.02);
    memset(counts, 0, sizeof counts);
    counts[BUCKETS - 1] = 5;
    CHECK_NEAR(quantile_ns((cprof_histogram_dense){counts, UINT64_C(1) << LAST_ROW}, 5, 0.999), 0x1p47, 0.01);
}

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Against the order statistics of a long-tailed sample. */
TEST(quantiles_of_a_sample)
{
    enum { COUNT = 100000 };
    static uint64_t values[COUNT];
    static const double fractions[] = {0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999};
    uint64_t random = 7;
    for (size_t i = 0; i < COUNT; i++) {
        values[i] = (uint64_t)(1000.0 * ROW / pow(1.0 - check_random_unit(&random), 0.8));
        add(cprof_histogram_index(values[i]));
    }
    qsort(values, COUNT, sizeof values[0], by_value);
    copy_all();
    double found_ms[COUNT_OF(fractions)];
    cprof_histogram_dense dense = {counts, ALL_ROWS};
    cprof_histogram_quantiles_ms(dense, COUNT, 0.0, INFINITY, 0.0, fractions, COUNT_OF(fractions), found_ms);
    for (size_t i = 0; i < COUNT_OF(fractions); i++) {
        double exact_ns = (double)values[(size_t)ceil(fractions[i] * COUNT) - 1] / ROW;
        CHECK_NEAR(found_ms[i] * 1e6, exact_ns, 0.01);
        CHECK(found_ms[i] * 1e6 == quantile_ns(dense, COUNT, fractions[i]));
    }
}

FAKE_ALLOC_MAIN(set_up, tear_down)
