/* moments.h, against sums of whole numbers without limit. */
#include "cprofiling/stats/figures.h"
#include "cprofiling/stats/moments.h"

#include "tests/core/check.h"

#include <stdbool.h>
#include <string.h>

enum { DIGITS = 12, SAMPLES = 200000 };

/* A whole number below 2^384, digit by digit of 32 bits, the lowest first. */
typedef struct {
    uint32_t digit[DIGITS];
} whole;

static whole whole_of(unsigned __int128 value)
{
    whole result = {{0}};
    for (int i = 0; i < 4; i++) {
        result.digit[i] = (uint32_t)(value >> (32 * i));
    }
    return result;
}

static whole whole_sum(whole a, whole b)
{
    uint64_t carry = 0;
    for (int i = 0; i < DIGITS; i++) {
        carry += (uint64_t)a.digit[i] + b.digit[i];
        a.digit[i] = (uint32_t)carry;
        carry >>= 32;
    }
    CHECK(carry == 0);
    return a;
}

static whole whole_difference(whole a, whole b)
{
    uint64_t borrow = 0;
    for (int i = 0; i < DIGITS; i++) {
        uint64_t part = (uint64_t)a.digit[i] - b.digit[i] - borrow;
        a.digit[i] = (uint32_t)part;
        borrow = part >> 63;
    }
    CHECK(borrow == 0);
    return a;
}

static whole whole_product(whole a, whole b)
{
    whole result = {{0}};
    for (int i = 0; i < DIGITS; i++) {
        uint64_t carry = 0;
        for (int k = 0; i + k < DIGITS; k++) {
            carry += (uint64_t)a.digit[i] * b.digit[k] + result.digit[i + k];
            result.digit[i + k] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    return result;
}

static long double whole_value(whole a)
{
    long double value = 0.0L;
    for (int i = DIGITS - 1; i >= 0; i--) {
        value = value * 0x1p32L + a.digit[i];
    }
    return value;
}

/* The exact sums of a stream of whole numbers, each of them so many units of `unit_ms`. */
typedef struct {
    uint64_t count;
    whole total;
    whole squares;
    long double unit_ms;
} reference;

static void reference_add(reference *r, uint64_t units)
{
    r->count++;
    r->total = whole_sum(r->total, whole_of(units));
    r->squares = whole_sum(r->squares, whole_of((unsigned __int128)units * units));
}

/* n Σx² - (Σx)² is exact, so nothing cancels afterwards. */
static double reference_std_ms(const reference *r)
{
    whole scaled = whole_product(whole_of(r->count), r->squares);
    long double spread = whole_value(whole_difference(scaled, whole_product(r->total, r->total)));
    return (double)(sqrtl(spread) / (long double)r->count * r->unit_ms);
}

static void check_figures_within(const cprof_moments *moments, const reference *r, double tolerance)
{
    double total_ms = (double)(whole_value(r->total) * r->unit_ms);
    double mean_ms = (double)(whole_value(r->total) / (long double)r->count * r->unit_ms);
    CHECK_NEAR(cprof_moments_total_ms(moments), total_ms, 1e-15);
    CHECK_NEAR(cprof_moments_mean_ms(moments, r->count), mean_ms, 1e-15);
    CHECK_NEAR(cprof_moments_std_ms(moments, r->count), reference_std_ms(r), tolerance);
}

static void check_figures(const cprof_moments *moments, const reference *r)
{
    check_figures_within(moments, r, 1e-12);
}

static void check_exact(const cprof_moments *moments, const reference *r)
{
    whole total = whole_of(moments->total_ns);
    whole squares = whole_of(moments->squares_ns2);
    squares.digit[4] = (uint32_t)moments->squares_top;
    squares.digit[5] = (uint32_t)(moments->squares_top >> 32);
    CHECK(memcmp(&total, &r->total, sizeof total) == 0);
    CHECK(memcmp(&squares, &r->squares, sizeof squares) == 0);
    check_figures(moments, r);
}

/* Spans of `base` and up to `spread` ns more. */
static void check_spans(uint64_t base, uint64_t spread, int count)
{
    cprof_moments moments = {.total_ns = 0};
    reference r = {.unit_ms = 1e-6L};
    uint64_t random = base ^ spread;
    for (int i = 0; i < count; i++) {
        uint64_t elapsed_ns = base + (spread != 0 ? check_random(&random) % (spread + 1) : 0);
        cprof_moments_add_ns(&moments, (cprof_ns)elapsed_ns);
        reference_add(&r, elapsed_ns);
    }
    check_exact(&moments, &r);
}

/* E11 */
TEST(of_few)
{
    cprof_moments moments = {.total_ns = 0};
    CHECK(cprof_moments_total_ms(&moments) == 0.0);
    CHECK(cprof_moments_mean_ms(&moments, 0) == 0.0);
    CHECK(cprof_moments_std_ms(&moments, 0) == 0.0);
    cprof_moments_add_ns(&moments, 1500000);
    CHECK(cprof_moments_total_ms(&moments) == 1.5);
    CHECK(cprof_moments_mean_ms(&moments, 1) == 1.5);
    CHECK(cprof_moments_std_ms(&moments, 1) == 0.0);
    cprof_moments_add_ns(&moments, 500000);
    CHECK(cprof_moments_total_ms(&moments) == 2.0);
    CHECK(cprof_moments_mean_ms(&moments, 2) == 1.0);
    CHECK(cprof_moments_std_ms(&moments, 2) == 0.5);
}

TEST(spans)
{
    check_spans(0, 0, 1000); /* E4 */
    check_spans(0, 1, SAMPLES);
    check_spans(100, 50, SAMPLES);
    check_spans(123456, 0, SAMPLES);
    check_spans(0, 86400 * UINT64_C(1000000000), SAMPLES);
}

/* E6: the squares are 10^18 and more times as large as the variance. */
TEST(spans_that_cancel)
{
    check_spans(1000000000, 1, SAMPLES);
    check_spans(UINT64_C(1000000000000000), 1, SAMPLES);
    check_spans(UINT64_C(1000000000000000), 1000, SAMPLES);
}

/* E5: the sum of squares exceeds 128 bits, the total 64. */
TEST(spans_near_the_limit)
{
    check_spans(INT64_MAX, 0, 2);
    check_spans(INT64_MAX, 0, 1000);
    check_spans(INT64_MAX - 1, 1, 2);
    check_spans(0, INT64_MAX, SAMPLES);
    check_spans(INT64_MAX - 1, 1, SAMPLES);
    check_spans(INT64_MAX - 1000, 1000, SAMPLES);
}

TEST(carry_into_the_top)
{
    cprof_moments moments = {.total_ns = 0};
    for (int i = 0; i < 8; i++) {
        cprof_moments_add_ns(&moments, INT64_MAX);
        CHECK_EQUAL(moments.squares_top, i < 4 ? 0 : 1);
    }
}

static cprof_moments merged(cprof_moments a, cprof_moments b)
{
    cprof_moments_merge(&a, &b);
    return a;
}

static bool same_sums(const cprof_moments *a, const cprof_moments *b)
{
    return a->total_ns == b->total_ns && a->squares_ns2 == b->squares_ns2 && a->squares_top == b->squares_top;
}

/* E10: bit for bit for sums of spans, in any order and grouping. */
TEST(merge_of_spans)
{
    cprof_moments parts[3] = {{.total_ns = 0}};
    reference r = {.unit_ms = 1e-6L};
    uint64_t random = 5;
    for (int i = 0; i < 3000; i++) {
        uint64_t elapsed_ns = check_random(&random) >> 1;
        cprof_moments_add_ns(&parts[i % 3], (cprof_ns)elapsed_ns);
        reference_add(&r, elapsed_ns);
    }
    cprof_moments left = merged(merged(parts[0], parts[1]), parts[2]);
    cprof_moments right = merged(parts[0], merged(parts[1], parts[2]));
    cprof_moments turned = merged(parts[2], merged(parts[1], parts[0]));
    CHECK(same_sums(&left, &right) && same_sums(&left, &turned));
    check_exact(&left, &r);
    cprof_moments nothing = {.total_ns = 0};
    cprof_moments with_nothing = merged(left, nothing);
    cprof_moments from_nothing = merged(nothing, left);
    CHECK(same_sums(&left, &with_nothing) && same_sums(&left, &from_nothing));
}

/* E5: a count over 2^32, and over 2^53, made by doubling. Mean and deviation stay as they were. */
TEST(very_many_spans)
{
    cprof_moments moments = {.total_ns = 0};
    cprof_moments_add_ns(&moments, 1000000000);
    cprof_moments_add_ns(&moments, 1000000002);
    for (int doubled = 1; doubled < 63; doubled++) {
        moments = merged(moments, moments);
        uint64_t count = UINT64_C(2) << doubled;
        CHECK(moments.total_ns == (cprof_u128)count * 1000000001);
        CHECK_NEAR(cprof_moments_mean_ms(&moments, count), 1000.000001, 1e-15);
        CHECK_NEAR(cprof_moments_std_ms(&moments, count), 1e-6, 1e-12);
    }
}

TEST(ns_to_ms)
{
    CHECK(cprof_moments_ns_to_ms(0) == 0.0);
    CHECK(cprof_moments_ns_to_ms(1) == 1e-6);
    CHECK(cprof_moments_ns_to_ms(1500000) == 1.5);
    CHECK_NEAR(cprof_moments_ns_to_ms((cprof_u128)1 << 100), 0x1p100 / 1e6, 1e-15);
    CHECK_NEAR(cprof_moments_ns_to_ms(~(cprof_u128)0), 0x1p128 / 1e6, 1e-15);
}

/* Fractional samples of `base_ms` and up to `spread` times 2^-20 ms more, which doubles hold exactly. */
static void check_fractions(uint64_t base_ms, uint64_t spread, int count, double tolerance)
{
    cprof_moments moments = {.total_ns = 0};
    reference r = {.unit_ms = 0x1p-20L};
    uint64_t random = base_ms + spread;
    for (int i = 0; i < count; i++) {
        uint64_t units = (base_ms << 20) + (spread != 0 ? check_random(&random) % (spread + 1) : 0);
        cprof_moments_add_ms(&moments, (double)units * 0x1p-20);
        reference_add(&r, units);
    }
    check_figures_within(&moments, &r, tolerance);
}

TEST(fractions)
{
    check_fractions(0, 0, 1000, 1e-12);
    check_fractions(0, 1 << 20, SAMPLES, 1e-12);
    check_fractions(5, 1 << 10, SAMPLES, 1e-12);
    check_fractions(0, UINT64_C(1) << 52, SAMPLES, 1e-12);
    for (uint64_t i = 0, random = 3; i < 1000; i++) {
        cprof_moments one = {.total_ns = 0};
        cprof_moments_add_ms(&one, check_random_unit(&random));
        CHECK(cprof_moments_std_ms(&one, 1) == 0.0); /* no rounding is a deviation */
        cprof_figures equal = {.count = 3, .min_ms = (double)i / 1e6, .max_ms = (double)i / 1e6};
        cprof_moments_add_ns(&equal.moments, (cprof_ns)i);
        cprof_moments_add_ms(&equal.moments, equal.min_ms);
        cprof_moments_add_ms(&equal.moments, equal.min_ms);
        CHECK(cprof_figures_std_ms(&equal) == 0.0);
    }
}

/* E6: the mean is 10^8 times the deviation; 3.5 * 10^9 times, as uniform in [0, 1) above 10^9. What the pairs lose grows with
 * the square of that; where all samples are the same, nothing is left. */
TEST(fractions_that_cancel)
{
    check_fractions(10000000, 1 << 18, SAMPLES, 1e-12);
    check_fractions(1000000000, (1 << 20) - 1, SAMPLES, 1e-9);
    check_fractions(77, 0, SAMPLES, 0.0);
}

/* E7: a plain sum of doubles would have drifted by 1.3e-6 ms. */
TEST(no_drift)
{
    cprof_moments moments = {.total_ns = 0};
    for (int i = 0; i < 1000000; i++) {
        cprof_moments_add_ms(&moments, 0.1);
    }
    CHECK(cprof_moments_total_ms(&moments) == 100000.0);
    CHECK(cprof_moments_mean_ms(&moments, 1000000) == 0.1);
    CHECK(cprof_moments_std_ms(&moments, 1000000) < 1e-12);
}

TEST(largest_and_smallest_fractions)
{
    cprof_moments moments = {.total_ns = 0};
    for (int i = 0; i < 1000; i++) {
        cprof_moments_add_ms(&moments, 1e12);
        cprof_moments_add_ms(&moments, 0x1p-1074);
    }
    CHECK(cprof_moments_total_ms(&moments) == 1e15);
    CHECK_NEAR(cprof_moments_mean_ms(&moments, 2000), 5e11, 1e-15);
    CHECK_NEAR(cprof_moments_std_ms(&moments, 2000), 5e11, 1e-12);
}

/* Samples of both kinds under one key. */
TEST(spans_and_fractions)
{
    cprof_moments moments = {.total_ns = 0};
    reference r = {.unit_ms = 0.5e-6L};
    uint64_t random = 3;
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t halves = 2 * (check_random(&random) % 100000000);
        if (i % 2 == 0) {
            cprof_moments_add_ns(&moments, (cprof_ns)(halves / 2));
        } else {
            uint64_t whole_ms = halves / 2000000; /* a double holds it exactly */
            halves = whole_ms * 2000000;
            cprof_moments_add_ms(&moments, (double)whole_ms);
        }
        reference_add(&r, halves);
    }
    check_figures(&moments, &r);
}

/* A sum of integers that a double rounds up to 2^128. */
TEST(mixed_sums_at_the_limit)
{
    cprof_moments moments = {.total_ns = ~(cprof_u128)0, .squares_ns2 = ~(cprof_u128)0, .squares_top = 1};
    cprof_moments_add_ms(&moments, 1.0);
    CHECK_NEAR(cprof_moments_total_ms(&moments), 0x1p128 / 1e6, 1e-15);
    CHECK_NEAR(cprof_moments_mean_ms(&moments, UINT64_C(1) << 63), 0x1p65 / 1e6, 1e-15);
}

/* E10: merged fractional sums are within rounding, whatever the order. */
TEST(merge_of_fractions)
{
    cprof_moments parts[2] = {{.total_ns = 0}};
    reference r = {.unit_ms = 0x1p-20L};
    uint64_t random = 11;
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t units = check_random(&random) >> 24;
        cprof_moments_add_ms(&parts[i % 2], (double)units * 0x1p-20);
        reference_add(&r, units);
    }
    cprof_moments forward = merged(parts[0], parts[1]);
    cprof_moments backward = merged(parts[1], parts[0]);
    check_figures(&forward, &r);
    check_figures(&backward, &r);
    double forward_ms = cprof_moments_std_ms(&forward, SAMPLES);
    CHECK_NEAR(cprof_moments_std_ms(&backward, SAMPLES), forward_ms, 4 * 0x1p-52);
}

static void check_possible(const double *samples, int count, bool are_fractional)
{
    cprof_moments m = {.total_ns = 0};
    double least = samples[0], most = samples[0];
    for (int i = 0; i < count; i++) {
        double sample = samples[i];
        if (are_fractional) {
            cprof_moments_add_ms(&m, sample);
        } else {
            cprof_moments_add_ns(&m, (cprof_ns)(sample * 1e6));
            sample = (double)(cprof_ns)(sample * 1e6) / 1e6;
        }
        least = i == 0 || sample < least ? sample : least;
        most = i == 0 || sample > most ? sample : most;
    }
    uint64_t n = (uint64_t)count;
    CHECK(cprof_moments_are_possible(&m, n, least, most));
    if (most > 0.0) {
        double mean = cprof_moments_mean_ms(&m, n);
        CHECK(!cprof_moments_are_possible(&m, n, most * 1.001, most * 2));            /* the mean is below the range */
        CHECK(least == 0.0 || !cprof_moments_are_possible(&m, n, 0.0, mean * 0.999)); /* and above */
        CHECK(
            !cprof_moments_are_possible(&m, n, least, most + 3 * (double)n * most + 1e-3)); /* the largest is not among them */
    }
}

/* Of any samples the sums are possible, whatever their sizes; and not with another range. */
TEST(possible_sums)
{
    static const double scales[] = {1e-300, 1e-160, 1e-6, 1.0, 1e6, 1e12};
    uint64_t random = 1;
    double samples[40];
    for (size_t scale = 0; scale < COUNT_OF(scales); scale++) {
        for (int round = 0; round < 300; round++) {
            int count = 1 + (int)(check_random(&random) % 40);
            double base = (double)(check_random(&random) % 3) * 0.4, spread = check_random(&random) % 2 == 0 ? 0.1 : 1e-9;
            for (int i = 0; i < count; i++) {
                samples[i] = scales[scale] * (base + spread * (double)(check_random(&random) >> 11) * 0x1p-53);
            }
            check_possible(samples, count, scales[scale] < 1e-6 || round % 2 == 0);
        }
    }
    check_possible((const double[]){3.0, 3.0, 3.0}, 3, true);
    check_possible((const double[]){0.0, 0.0}, 2, false);
    check_possible((const double[]){9e12, 0.0}, 2, false);
}

TEST(impossible_sums)
{
    cprof_moments m = {.total_ns = 6000000, .squares_ns2 = (cprof_u128)18 * 1000000000000}; /* of 3 and 3 ms */
    CHECK(cprof_moments_are_possible(&m, 2, 3.0, 3.0));
    CHECK(!cprof_moments_are_possible(&m, 2, 2.0, 4.0)); /* these deviate */
    m.squares_ns2--;
    CHECK(!cprof_moments_are_possible(&m, 2, 3.0, 3.0)); /* by one of 1.8e13 */
    m.squares_ns2 = (cprof_u128)20 * 1000000000000;
    CHECK(cprof_moments_are_possible(&m, 2, 2.0, 4.0));
    m.squares_ns2 += 1000000000;
    CHECK(!cprof_moments_are_possible(&m, 2, 2.0, 4.0)); /* no two samples of that range deviate by more */
    m.squares_top = 1;
    CHECK(!cprof_moments_are_possible(&m, 2, 2.0, 4.0));
    cprof_moments high = {.total_ns = 0}; /* the least of five samples is 1.05, not 1 */
    cprof_moments_add_ns(&high, 1050000);
    for (int i = 0; i < 4; i++) {
        cprof_moments_add_ns(&high, 4000000);
    }
    CHECK(cprof_moments_are_possible(&high, 5, 1.05, 4.0) && !cprof_moments_are_possible(&high, 5, 1.0, 4.0));
    cprof_moments nothing = {.total_ns = 0};
    CHECK(cprof_moments_are_possible(&nothing, 0, 0.0, 0.0));
    CHECK(!cprof_moments_are_possible(&m, 0, 0.0, 0.0));
    cprof_moments fractions = {.total_ms = {6.0, 0.0}, .squares_ms2 = {18.0, 0.0}};
    CHECK(cprof_moments_are_possible(&fractions, 2, 3.0, 3.0));
    fractions.squares_ms2.high = 17.9999999;
    CHECK(!cprof_moments_are_possible(&fractions, 2, 3.0, 3.0));
    fractions.squares_ms2.high = 18.0 * (1 - 0x1p-50); /* as rounding may leave it */
    CHECK(cprof_moments_are_possible(&fractions, 2, 3.0, 3.0));
}

TEST_MAIN(NULL, NULL)
