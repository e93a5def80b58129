/* p2.h, against a transcription of the algorithm of the paper: the markers must be equal, bit for bit, after each sample. */
#include "cprofiling/stats/p2.h"

#include "tests/core/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { SAMPLES = 20000, LEVELS = 7 };

#define PI 3.14159265358979323846

/* Box 1 of the paper, for the quantile 0.5. q, n, desired: heights, positions and desired positions of the markers. */
typedef struct {
    double q[5];
    double n[5];
    double desired[5];
    long count;
} reference;

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static void initialize_markers(reference *r)
{
    static const double desired[5] = {1.0, 2.0, 3.0, 4.0, 5.0};
    qsort(r->q, 5, sizeof r->q[0], by_value);
    memcpy(r->n, desired, sizeof desired);
    memcpy(r->desired, desired, sizeof desired);
}

/* The cell k with q_k <= x < q_(k+1), counted from 0; the extreme markers are moved to x when it lies beyond them. */
static int find_cell(reference *r, double x)
{
    if (x < r->q[0]) {
        r->q[0] = x;
        return 0;
    }
    if (x >= r->q[4]) { /* equal to the largest: it stays in the last cell */
        r->q[4] = x;
        return 3;
    }
    int k = 0;
    while (!(r->q[k] <= x && x < r->q[k + 1])) {
        k++;
    }
    return k;
}

static double parabolic(const reference *r, int i, double d)
{
    const double *q = r->q;
    const double *n = r->n;
    return q[i] + d / (n[i + 1] - n[i - 1]) *
                      ((n[i] - n[i - 1] + d) * (q[i + 1] - q[i]) / (n[i + 1] - n[i]) +
                       (n[i + 1] - n[i] - d) * (q[i] - q[i - 1]) / (n[i] - n[i - 1]));
}

static double linear(const reference *r, int i, int d)
{
    return r->q[i] + d * (r->q[i + d] - r->q[i]) / (r->n[i + d] - r->n[i]);
}

static void adjust(reference *r, int i)
{
    double distance = r->desired[i] - r->n[i];
    if (!(distance >= 1.0 && r->n[i + 1] - r->n[i] > 1.0) && !(distance <= -1.0 && r->n[i - 1] - r->n[i] < -1.0)) {
        return;
    }
    int d = distance < 0.0 ? -1 : 1;
    double height = parabolic(r, i, d);
    if (r->q[i - 1] < height && height < r->q[i + 1]) {
        r->q[i] = height;
    } else {
        r->q[i] = linear(r, i, d);
    }
    r->n[i] += d;
}

static void reference_add(reference *r, double x)
{
    static const double increments[5] = {0.0, 0.25, 0.5, 0.75, 1.0};
    if (r->count < 5) {
        r->q[r->count++] = x;
        if (r->count == 5) {
            initialize_markers(r);
        }
        return;
    }
    r->count++;
    for (int i = find_cell(r, x) + 1; i < 5; i++) {
        r->n[i] += 1.0;
    }
    for (int i = 0; i < 5; i++) {
        r->desired[i] += increments[i];
    }
    for (int i = 1; i <= 3; i++) {
        adjust(r, i);
    }
}

static double exact_median(const double *samples, long count)
{
    double sorted[5];
    memcpy(sorted, samples, (size_t)count * sizeof *samples);
    qsort(sorted, (size_t)count, sizeof sorted[0], by_value);
    return count % 2 != 0 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0;
}

static bool same_bits(const double *a, const double *b, size_t count)
{
    return memcmp(a, b, count * sizeof *a) == 0;
}

/* E8: equal to the paper's, and the markers in order and finite. */
static void check_markers(cprof_p2 *estimator, const reference *expected)
{
    CHECK_EQUAL(estimator->count, expected->count);
    CHECK(same_bits(estimator->height, expected->q, 5));
    for (int i = 0; i < 5; i++) {
        CHECK((double)estimator->position[i] == expected->n[i]);
        CHECK(isfinite(estimator->height[i]));
        CHECK(i == 0 || estimator->height[i - 1] <= estimator->height[i]);
        CHECK(i == 0 || estimator->position[i - 1] < estimator->position[i]);
    }
    double median = cprof_p2_median(estimator);
    CHECK(same_bits(&median, &expected->q[2], 1));
}

static void check_stream(const double *samples, long count)
{
    cprof_p2 estimator = {.count = 0};
    reference expected = {.count = 0};
    CHECK(cprof_p2_median(&estimator) == 0.0);
    for (long i = 0; i < count; i++) {
        cprof_p2_add(&estimator, samples[i]);
        reference_add(&expected, samples[i]);
        if (i < 5) {
            CHECK(cprof_p2_median(&estimator) == exact_median(samples, i + 1));
        }
        if (i >= 4) {
            check_markers(&estimator, &expected);
        }
    }
}

static double normal(uint64_t *random)
{
    double radius = sqrt(-2.0 * log(1.0 - check_random_unit(random)));
    return 10.0 + 2.0 * radius * cos(2.0 * PI * check_random_unit(random));
}

static double exponential(uint64_t *random)
{
    return -3.0 * log(1.0 - check_random_unit(random));
}

static double pareto(uint64_t *random)
{
    return 1.0 / pow(1.0 - check_random_unit(random), 1.0 / 1.2);
}

static double two_valued(uint64_t *random)
{
    return check_random(random) % 2 != 0 ? 1.0 : 100.0;
}

static double tied(uint64_t *random)
{
    return (double)(check_random(random) % LEVELS);
}

static double bimodal(uint64_t *random)
{
    return check_random(random) % 3 != 0 ? normal(random) : 1000.0 + normal(random);
}

static double tiny(uint64_t *random)
{
    return check_random_unit(random) * 0x1p-1060; /* subnormal */
}

static double huge(uint64_t *random)
{
    return check_random_unit(random) * 1e12; /* the largest that record() takes */
}

TEST(random_streams)
{
    static double (*const families[])(uint64_t *) = {normal, exponential, pareto, two_valued, tied, bimodal, tiny, huge};
    static double samples[SAMPLES];
    for (size_t family = 0; family < COUNT_OF(families); family++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            uint64_t random = seed;
            for (int i = 0; i < SAMPLES; i++) {
                samples[i] = families[family](&random);
            }
            check_stream(samples, SAMPLES);
        }
    }
}

TEST(regular_streams)
{
    static double constant[SAMPLES];
    static double rising[SAMPLES];
    static double falling[SAMPLES];
    static double up_and_down[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        constant[i] = 0.1;
        rising[i] = i * 0.1;
        falling[i] = (SAMPLES - i) * 0.1;
        up_and_down[i] = i < SAMPLES / 2 ? i : SAMPLES - i;
    }
    check_stream(constant, SAMPLES);
    check_stream(rising, SAMPLES);
    check_stream(falling, SAMPLES);
    check_stream(up_and_down, SAMPLES);
}

/* Every stream of up to seven samples of four values: all orders, and all ties. */
TEST(short_streams)
{
    for (int length = 0; length <= 7; length++) {
        for (int code = 0; code < 1 << (2 * length); code++) {
            double samples[7];
            for (int i = 0; i < length; i++) {
                samples[i] = (code >> (2 * i) & 3) * 1.5;
            }
            check_stream(samples, length);
        }
    }
}

/* The parabola may reach a neighbour, but not take its height. */
TEST(as_high_as_a_neighbour)
{
    static const double below[] = {11, 7, 5, 4, 12, 6, 3};
    static const double above[] = {11, 9, 11, 5, 5, 12, 10};
    check_stream(below, COUNT_OF(below));
    check_stream(above, COUNT_OF(above));
}

TEST(known_values)
{
    /* The example of the paper: Table I. */
    static const double samples[] = {0.02,  0.15,  0.74, 3.39, 0.83, 22.37, 10.15, 15.43, 38.62, 15.92,
                                     34.60, 10.28, 1.47, 0.40, 0.05, 11.39, 0.27,  0.42,  0.09,  11.37};
    cprof_p2 estimator = {.count = 0};
    for (size_t i = 0; i < COUNT_OF(samples); i++) {
        cprof_p2_add(&estimator, samples[i]);
    }
    static const int64_t positions[5] = {1, 6, 10, 16, 20};
    static const double heights[5] = {0.02, 0.49, 4.44, 17.20, 38.62};
    for (int i = 0; i < 5; i++) {
        CHECK_EQUAL(estimator.position[i], positions[i]);
        CHECK(fabs(estimator.height[i] - heights[i]) < 0.01);
    }
}

/* Samples that wait count as if they were added one by one, whenever the median is asked for. */
TEST(samples_that_wait)
{
    uint64_t random = 7;
    cprof_p2 estimator = {.count = 0};
    reference expected = {.count = 0};
    for (int i = 0; i < SAMPLES; i++) {
        int64_t sample_ns = (int64_t)(check_random(&random) % 1000000);
        if (check_random(&random) % 8 == 0) {
            cprof_p2_add(&estimator, (double)sample_ns / 1e6);
        } else {
            bool is_full = cprof_p2_put(&estimator, sample_ns);
            CHECK(is_full == (estimator.waiting == CPROF_P2_WAITING));
            if (is_full) {
                cprof_p2_settle(&estimator);
            }
        }
        reference_add(&expected, (double)sample_ns / 1e6);
        if (i >= 4 && check_random(&random) % 32 == 0) {
            cprof_p2_settle(&estimator);
            check_markers(&estimator, &expected);
        }
    }
    double median = cprof_p2_median(&estimator);
    CHECK(same_bits(&median, &expected.q[2], 1));
}

/* E8: how far off the median may be, by family. */
TEST(errors_of_the_estimate)
{
    uint64_t random = 42;
    cprof_p2 estimators[3] = {{.count = 0}};
    for (int i = 0; i < SAMPLES; i++) {
        cprof_p2_add(&estimators[0], normal(&random));
        cprof_p2_add(&estimators[1], exponential(&random));
        cprof_p2_add(&estimators[2], check_random_unit(&random));
    }
    CHECK_NEAR(cprof_p2_median(&estimators[0]), 10.0, 0.02);
    CHECK_NEAR(cprof_p2_median(&estimators[1]), 3.0 * log(2.0), 0.05);
    CHECK_NEAR(cprof_p2_median(&estimators[2]), 0.5, 0.03);
}

TEST_MAIN(NULL, NULL)
