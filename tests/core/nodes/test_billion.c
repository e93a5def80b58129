/* Very many samples of one key: the total is exact, mean and standard deviation are within 1e-12 (E5, E6, E7). Argument: how
 * many, a million by default; a billion takes some minutes.
 *
 * The reference knows each sample as `base` plus something small, and sums only that, in 128 bits: exactly. */
#include "tests/core/node.h"

enum { MOST_VARIED = 1000 };

#define TOLERANCE 1e-12
#define MOST (UINT64_C(1) << 32) /* samples that the reference can sum */

static uint64_t samples = 1000000;

/* What is added to the base: below 2^32. */
typedef uint64_t (*variation)(uint64_t *random, uint64_t index);

static uint64_t nothing(uint64_t *random, uint64_t index)
{
    (void)random, (void)index;
    return 0;
}

static uint64_t one_or_none(uint64_t *random, uint64_t index)
{
    (void)index;
    return check_random(random) & 1;
}

static uint64_t some(uint64_t *random, uint64_t index)
{
    (void)index;
    return check_random(random) % (MOST_VARIED + 1);
}

static uint64_t anything(uint64_t *random, uint64_t index)
{
    (void)index;
    return check_random(random) >> 32;
}

static uint64_t rising(uint64_t *random, uint64_t index)
{
    (void)random;
    return index % MOST_VARIED;
}

static uint64_t rarely_very_much(uint64_t *random, uint64_t index)
{
    (void)index;
    return check_random(random) % 100000 == 0 ? UINT32_MAX : 0;
}

static void check_spans(uint64_t base_ns, variation vary)
{
    uint64_t random = base_ns;
    cprof_u128 sum = 0;
    cprof_u128 squares = 0;
    cprof_registry_reset(registry);
    uint64_t generation = cprof_epoch_present(&registry->epoch).generation;
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t more_ns = vary(&random, i);
        cprof_sample sample = {(cprof_ns)(base_ns + more_ns), 0, 0};
        cprof_accum_finish(accum, generation, CPROF_OUTCOME_SUCCESS, &sample);
        sum += more_ns;
        squares += (cprof_u128)more_ns * more_ns;
    }
    cprof_figures figures = figures_now();
    cprof_u128 total_ns = (cprof_u128)base_ns * samples + sum;
    long double spread = (long double)(squares * samples - sum * sum); /* the same whatever the base */
    CHECK(figures.moments.total_ns == total_ns);
    CHECK_NEAR(cprof_moments_total_ms(&figures.moments), (double)((long double)total_ns / 1e6L), 1e-15);
    CHECK_NEAR(cprof_moments_mean_ms(&figures.moments, samples), (double)((long double)total_ns / (long double)samples / 1e6L),
               TOLERANCE);
    CHECK_NEAR(cprof_figures_std_ms(&figures), (double)(sqrtl(spread) / (long double)samples / 1e6L), TOLERANCE);
}

/* E6: the squares of the base are up to 10^38 times as large as the variance. */
TEST(spans)
{
    check_spans(0, nothing);
    check_spans(100000, nothing);
    check_spans(1000000000, one_or_none);
    check_spans(UINT64_C(20000000000), one_or_none);
    check_spans(UINT64_C(1000000000000), rising);
    check_spans(INT64_MAX - MOST_VARIED, some);
    check_spans(0, anything);
    check_spans(1000, rarely_very_much);
}

/* E7: a tenth is no double; what is summed is the double next to it, 3602879701896397 / 2^55. */
TEST(tenths)
{
    cprof_registry_reset(registry);
    for (uint64_t i = 0; i < samples; i++) {
        cprof_accum_record_ms(accum, 0.1);
    }
    cprof_figures figures = figures_now();
    double total_ms = (double)((long double)((cprof_u128)3602879701896397 * samples) / 0x1p55L);
    CHECK_NEAR(cprof_moments_total_ms(&figures.moments), total_ms, 1e-15);
    CHECK(cprof_moments_mean_ms(&figures.moments, samples) == 0.1);
    CHECK(cprof_figures_std_ms(&figures) == 0.0);
}

/* Two values in turn: n Σx² - (Σx)² is the product of how often each came, times the square of their difference. */
TEST(two_values_in_turn)
{
    static const double pairs_ms[][2] = {{0.1, 0.3}, {1e6, 1e6 + 0.0625}, {1e-6, 1e12}};
    for (size_t pair = 0; pair < COUNT_OF(pairs_ms); pair++) {
        cprof_registry_reset(registry);
        for (uint64_t i = 0; i < samples; i++) {
            cprof_accum_record_ms(accum, pairs_ms[pair][i % 2]);
        }
        long double low_ms = pairs_ms[pair][0];
        long double high_ms = pairs_ms[pair][1];
        uint64_t half = samples / 2;
        long double high_count = (long double)half;
        long double low_count = (long double)(samples - half);
        long double total_ms = low_ms * low_count + high_ms * high_count;
        long double std_ms = (high_ms - low_ms) * sqrtl(low_count * high_count) / (long double)samples;
        cprof_figures figures = figures_now();
        CHECK_NEAR(cprof_moments_total_ms(&figures.moments), (double)total_ms, 1e-15);
        CHECK_NEAR(cprof_moments_mean_ms(&figures.moments, samples), (double)(total_ms / (long double)samples), TOLERANCE);
        CHECK_NEAR(cprof_figures_std_ms(&figures), (double)std_ms, TOLERANCE);
    }
}

int main(int count, char **arguments)
{
    samples = check_argument(count, arguments, samples);
    CHECK(samples <= MOST);
    check_run(set_up, tear_down);
    return EXIT_SUCCESS;
}
