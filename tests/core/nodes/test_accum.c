/* accum.h */
#define _GNU_SOURCE
#include "cprofiling/nodes/accum.h"

#include "cprofiling/stats/p2.h"
#include "tests/core/fake_alloc.h"
#include "tests/core/node.h"

enum { THREADS = 8, CALLS = 5000, SKIPS = 1000, ROW = CPROF_HISTOGRAM_ROW, ZEROS = 1000000 };

#define MS INT64_C(1000000) /* in ns */

static bool has_figures(void)
{
    cprof_figures figures;
    uint64_t order;
    cprof_generation now = cprof_epoch_present(&registry->epoch);
    return cprof_accum_copy(accum, &now, INT64_MAX, &figures, all_counts, &order, NULL) == CPROF_OK;
}

static void finish(cprof_outcome outcome, cprof_ns elapsed_ns)
{
    cprof_sample sample = {.elapsed_ns = elapsed_ns};
    cprof_accum_finish(accum, generation(), outcome, &sample);
}

static void succeed(cprof_ns elapsed_ns)
{
    finish(CPROF_OUTCOME_SUCCESS, elapsed_ns);
}

static uint64_t histogram_sum(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < CPROF_HISTOGRAM_BUCKETS; i++) {
        sum += all_counts[i];
    }
    return sum;
}

/* The histogram's own 32 bits of a bucket in use. */
static uint32_t *low_of(unsigned index)
{
    cprof_histogram_rows *rows = accum->histogram.rows;
    return &rows->buckets[index - rows->first * ROW];
}

static double quantile_ms(const cprof_figures *figures, double fraction)
{
    double value_ms;
    cprof_figures_quantiles_ms(figures, all_counts, &fraction, 1, &value_ms);
    return value_ms;
}

TEST(nothing)
{
    CHECK(!has_figures());
    cprof_figures none = {.count = 0};
    CHECK(quantile_ms(&none, 0.5) == 0.0);
    CHECK(cprof_figures_self_ms(&none) < 0.0);
    CHECK(cprof_figures_active_ms(&none) < 0.0);
}

/* ---- Scenarios: calls as a text
 *
 * `3` is a call of 3 ms, `!3` one that raised, `~3` one that was cancelled, each with a < before it if it began before the last
 * reset; r3 records 3 ms; skip:3, p2 and histogram configure; reset.
 */

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* of the scenarios: 0 */

static const struct {
    const char *what, *words;
    uint64_t count;
    double min_ms, max_ms, last_ms, median_ms; /* of a count that is not 0; median -1: the histogram's */
    double first_ms;                           /* negative: none */
    uint64_t errors, cancelled, skipped, dropped;
} scenarios[] = {
    {"samples", "3 1 2", 3, 1, 3, 2, 2, 3},
    {"an error or a cancellation is no sample, and no first call", "!5 ~5 !5", .first_ms = -1, .errors = 2, .cancelled = 1},
    {"a sample among them", "!5 ~5 !5 2 !5", 1, 2, 2, 2, 2, 2, .errors = 3, .cancelled = 1},
    {"E14: the first n that succeed are skipped; failures use up none", "skip:3 !1 9 ~1 8 r7", .first_ms = 9, .errors = 1,
     .cancelled = 1, .skipped = 3},
    {"and then no more", "skip:3 9 8 r7 6 r5", 2, 5, 6, 5, 5.5, 9, .skipped = 3},
    {"but after a reset", "skip:3 9 8 r7 6 reset 4", .first_ms = 4, .skipped = 1},
    {"the largest number of skips", "skip:9223372036854775807 1 1", .first_ms = 1, .skipped = 2},
    {"B3: what began before a reset is dropped, however it ends", "1 reset <1 <!1 <~1", .first_ms = -1, .dropped = 3},
    {"and is no first call", "1 reset <1 <!1 <~1 2 <1", 1, 2, 2, 2, 2, 2, .dropped = 4},
    {"recorded values after a reset", "r1 reset r2", 1, 2, 2, 2, 2, 2},
    {"five samples have an exact median", "9 r1.5 8 3 r4", 5, 1.5, 9, 4, 4, 9},
    {"of an even number it lies between two", "9 1 8 4", 4, 1, 9, 4, 6, 9},
    {"skipped ones are not among them", "skip:2 1 1 9 8", 2, 8, 9, 8, 8.5, 1, .skipped = 2},
    {"of more it is the histogram's", "1 2 3 4 5 6", 6, 1, 6, 6, -1, 1},
    {"P2 estimates it, where it was chosen", "p2 1 2 3 4 5 6 7", 7, 1, 7, 7, 3, 1},
    {"P2 discards what was gathered without it", "1 2 3 p2 4 5", 2, 4, 5, 5, 4.5, 4},
    {"P2 that is chosen again does not", "p2 1 2 p2 3", 3, 1, 3, 3, 2, 1},
    {"without P2 all is kept but its estimate", "p2 1 2 3 4 5 6 histogram 7", 7, 1, 7, 7, -1, 1},
};

static void estimate(bool by_p2)
{
    cprof_registry_configure(registry, CPROF_FLAG_STATS | (by_p2 ? (unsigned)CPROF_FLAG_P2 : 0U), 0, false);
}

static void play_word(const char *word)
{
    uint64_t began = generation() - (word[0] == '<');
    word += word[0] == '<';
    cprof_outcome outcome = word[0] == '!'   ? CPROF_OUTCOME_ERROR
                            : word[0] == '~' ? CPROF_OUTCOME_CANCELLED
                                             : CPROF_OUTCOME_SUCCESS;
    if (strcmp(word, "reset") == 0) {
        cprof_registry_reset(registry);
        CHECK(!has_figures());
    } else if (strncmp(word, "skip:", 5) == 0) {
        skip_first(strtoull(word + 5, NULL, 10));
    } else if (strcmp(word, "p2") == 0 || strcmp(word, "histogram") == 0) {
        estimate(word[0] == 'p');
    } else if (word[0] == 'r') {
        cprof_accum_record_ms(accum, strtod(word + 1, NULL));
    } else {
        cprof_sample sample = {strtoll(word + (outcome != CPROF_OUTCOME_SUCCESS), NULL, 10) * MS, 0, 0};
        cprof_accum_finish(accum, began, outcome, &sample);
    }
}

TEST(scenarios)
{
    for (size_t i = 0; i < COUNT_OF(scenarios); i++) {
        char words[100];
        char *rest = NULL;
        check_case = scenarios[i].what;
        CHECK((size_t)snprintf(words, sizeof words, "%s", scenarios[i].words) < sizeof words);
        tear_down();
        set_up();
        for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
            play_word(word);
        }
        cprof_figures figures = figures_now();
        CHECK_EQUAL(figures.count, scenarios[i].count);
        CHECK_EQUAL(histogram_sum(), figures.count);
        if (figures.count > 0) {
            CHECK(figures.min_ms == scenarios[i].min_ms && figures.max_ms == scenarios[i].max_ms);
            CHECK(figures.last_ms == scenarios[i].last_ms && figures.median_ms == scenarios[i].median_ms);
        } else {
            CHECK(figures.rows == 0 && cprof_figures_self_ms(&figures) < 0.0);
        }
        CHECK(scenarios[i].first_ms < 0 ? figures.first_ms < 0 : figures.first_ms == scenarios[i].first_ms);
        CHECK_EQUAL(figures.error_count, scenarios[i].errors);
        CHECK_EQUAL(figures.cancelled_count, scenarios[i].cancelled);
        CHECK_EQUAL(figures.skipped_count, scenarios[i].skipped);
        CHECK_EQUAL(figures.dropped_count, scenarios[i].dropped);
        uint64_t changes;
        CHECK_EQUAL(cprof_accum_changes(accum, generation(), INT64_MAX, &changes), CPROF_OK);
        CHECK_EQUAL(changes, figures.count + figures.error_count + figures.cancelled_count + figures.skipped_count +
                                 figures.dropped_count);
    }
}

TEST(sums)
{
    succeed(3 * MS);
    succeed(1 * MS);
    succeed(2 * MS);
    cprof_figures figures = figures_now();
    CHECK(figures.moments.total_ns == 6 * MS && figures.moments.squares_ns2 == 14 * MS * MS);
    CHECK_NEAR(quantile_ms(&figures, 0.5), 2.0, 0.01);
    CHECK(cprof_figures_self_ms(&figures) == 6.0 && cprof_figures_active_ms(&figures) == 6.0);
}

TEST(parts_of_the_time)
{
    static const cprof_sample samples[] = {{5 * MS, 2 * MS, 1 * MS}, {7 * MS, 7 * MS, 0}, {1 * MS, 0, 1 * MS}};
    for (size_t i = 0; i < 3; i++) {
        cprof_accum_finish(accum, generation(), CPROF_OUTCOME_SUCCESS, &samples[i]);
    }
    cprof_figures figures = figures_now();
    CHECK(cprof_figures_self_ms(&figures) == 4.0);
    CHECK(cprof_figures_active_ms(&figures) == 11.0);
    static const cprof_sample unknown = {MS, -1, 0};
    cprof_accum_finish(accum, generation(), CPROF_OUTCOME_SUCCESS, &unknown);
    figures = figures_now();
    CHECK_EQUAL(figures.self_unknown, 1);
    CHECK(cprof_figures_self_ms(&figures) < 0.0);
    CHECK(cprof_figures_active_ms(&figures) == 12.0);
    CHECK(cprof_accum_finish(accum, generation(), CPROF_OUTCOME_SUCCESS, &(cprof_sample){MS, 0, 1}));
    CHECK(figures_now().suspended_ns == figures.suspended_ns + 1);
    static const cprof_sample suspended = {MS, 0, -1};
    cprof_accum_finish(accum, generation(), CPROF_OUTCOME_SUCCESS, &suspended);
    figures = figures_now();
    CHECK_EQUAL(figures.active_unknown, 1);
    CHECK(cprof_figures_active_ms(&figures) < 0.0);
}

/* Discarded is everything: also the histogram with its high halves, and the estimate of the median. */
TEST(reset_discards_everything)
{
    uint64_t live = fake_alloc_live();
    for (cprof_ns elapsed_ns = 1; elapsed_ns < INT64_MAX / 4; elapsed_ns *= 3) {
        succeed(elapsed_ns);
    }
    succeed(0);
    *low_of(0) = UINT32_MAX;
    succeed(0);
    cprof_accum_record_ms(accum, 0.125);
    CHECK_EQUAL(fake_alloc_live(), live + 2);
    cprof_registry_reset(registry);
    succeed(5 * MS);
    CHECK_EQUAL(fake_alloc_live(), live + 1); /* the rows stay, the high halves go */
    cprof_figures figures = figures_now();
    CHECK_EQUAL(histogram_sum(), 1);
    CHECK_EQUAL(figures.count, 1);
    CHECK(figures.median_ms == 5.0 && figures.min_ms == 5.0 && figures.max_ms == 5.0 && figures.first_ms == 5.0);
    CHECK(figures.moments.total_ns == 5 * MS && figures.moments.total_ms.high == 0.0);
    CHECK_EQUAL(figures.self_unknown, 0);
    CHECK_EQUAL(cprof_histogram_copy(&accum->histogram, all_counts), figures.rows);
    CHECK_EQUAL(histogram_sum(), 1);
}

TEST(other_generations_have_no_figures)
{
    cprof_figures figures;
    uint64_t order;
    succeed(MS);
    cprof_generation other = {.generation = generation() - 1};
    CHECK(cprof_accum_copy(accum, &other, INT64_MAX, &figures, all_counts, &order, NULL) == CPROF_ABSENT);
    other.generation += 2;
    CHECK(cprof_accum_copy(accum, &other, INT64_MAX, &figures, all_counts, &order, NULL) == CPROF_ABSENT);
    uint64_t changes = 1;
    CHECK(cprof_accum_changes(accum, other.generation, INT64_MAX, &changes) == CPROF_OK && changes == 0);
    CHECK(has_figures());
}

/* Only registries with P² have markers, and their readers get estimates only of a generation that has them. */
TEST(markers_are_kept_for_p2_alone)
{
    for (int i = 1; i <= 7; i++) {
        succeed(i * MS);
    }
    uint64_t live = fake_alloc_live();
    estimate(true);
    for (int i = 1; i <= 7; i++) {
        succeed(i * MS);
    }
    CHECK_EQUAL(fake_alloc_live(), live + 1);
    CHECK(figures_now().median_ms == 3.0);
    estimate(false);
    cprof_generation without = cprof_epoch_present(&registry->epoch);
    estimate(true); /* as another thread may, before the figures without are read */
    cprof_figures figures;
    uint64_t order;
    CHECK(cprof_accum_copy(accum, &without, INT64_MAX, &figures, all_counts, &order, NULL) == CPROF_OK);
    CHECK(figures.count == 7 && figures.median_ms == CPROF_FIGURES_NO_MEDIAN);
    succeed(1 * MS);
    CHECK_EQUAL(fake_alloc_live(), live + 1);
    estimate(false);
    succeed(2 * MS);
    CHECK(figures_now().count == 2 && figures_now().median_ms == 1.5);
    for (int i = 0; i < CPROF_P2_WAITING; i++) {
        succeed(2 * MS);
    }
    CHECK_EQUAL(fake_alloc_live(), live);
    CHECK(figures_now().median_ms == CPROF_FIGURES_NO_MEDIAN);
    estimate(true);
    succeed(1 * MS);
    CHECK_EQUAL(fake_alloc_live(), live + 1);
    estimate(false);
    cprof_accum_record_ms(accum, 1);
    CHECK_EQUAL(fake_alloc_live(), live);
}

TEST(p2_without_memory)
{
    estimate(true);
    fake_alloc_fail(1);
    for (int i = 1; i <= 7; i++) {
        succeed(i * MS);
    }
    CHECK(fake_alloc_has_failed());
    CHECK(figures_now().median_ms == CPROF_FIGURES_NO_MEDIAN && figures_now().histogram_lost == 0);
}

/* E4 */
TEST(calls_of_no_duration)
{
    for (int i = 0; i < ZEROS; i++) {
        succeed(0);
    }
    cprof_figures figures = figures_now();
    CHECK_EQUAL(figures.count, ZEROS);
    CHECK(figures.min_ms == 0.0 && figures.max_ms == 0.0 && figures.first_ms == 0.0);
    CHECK(cprof_moments_mean_ms(&figures.moments, ZEROS) == 0.0);
    CHECK(cprof_moments_std_ms(&figures.moments, ZEROS) == 0.0);
    CHECK(quantile_ms(&figures, 0.5) == 0.0 && quantile_ms(&figures, 0.999) == 0.0);
    CHECK_EQUAL(all_counts[0], ZEROS);
}

/* E5 */
TEST(longest_calls)
{
    static const cprof_ns lengths_ns[] = {(INT64_C(1) << 47) - 1, INT64_C(1) << 47, INT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        succeed(lengths_ns[i]);
    }
    cprof_figures figures = figures_now();
    CHECK_EQUAL(all_counts[CPROF_HISTOGRAM_BUCKETS - 1], 3);
    CHECK(figures.min_ms == (double)lengths_ns[0] / 1e6);
    CHECK(figures.max_ms == (double)INT64_MAX / 1e6);
    CHECK(figures.moments.total_ns == (cprof_u128)INT64_MAX + ((cprof_u128)1 << 48) - 1);
    CHECK(quantile_ms(&figures, 0.5) >= figures.min_ms && quantile_ms(&figures, 0.5) <= figures.max_ms);
}

/* Whatever the histogram's resolution, a quantile is no value that was not there. */
TEST(quantiles_stay_within_the_samples)
{
    static const double fractions[] = {0.0, 0.5, 0.999, 1.0};
    double quantiles_ms[4];
    for (int i = 0; i < 100; i++) {
        succeed(1048575);
    }
    cprof_figures figures = figures_now();
    cprof_figures_quantiles_ms(&figures, all_counts, fractions, 4, quantiles_ms);
    for (int i = 0; i < 4; i++) {
        CHECK(quantiles_ms[i] == 1.048575);
    }
}

TEST(recorded_values_are_taken_unchanged)
{
    static const double values_ms[] = {0.1, 1e12, 0x1p-1074, 0.0, 1.0 / 3.0};
    for (size_t i = 0; i < 5; i++) {
        cprof_accum_record_ms(accum, values_ms[i]);
        CHECK(figures_now().last_ms == values_ms[i]);
    }
    cprof_figures figures = figures_now();
    CHECK_EQUAL(figures.count, 5);
    CHECK(figures.first_ms == 0.1 && figures.min_ms == 0.0 && figures.max_ms == 1e12 && figures.median_ms == 0.1);
    CHECK_EQUAL(figures.self_unknown, 5);
    CHECK_EQUAL(figures.active_unknown, 5);
    CHECK(cprof_figures_self_ms(&figures) < 0.0 && cprof_figures_active_ms(&figures) < 0.0);
    CHECK_EQUAL(all_counts[CPROF_HISTOGRAM_BUCKETS - 1], 1);
    CHECK_EQUAL(all_counts[0], 2);
    CHECK_NEAR(cprof_moments_total_ms(&figures.moments), 1000000000000.4333, 1e-15);
}

/* G7: what the histogram cannot keep without memory is counted; all other figures are exact. */
TEST(full_bucket_without_memory)
{
    succeed(1);
    *low_of(cprof_histogram_index(ROW)) = UINT32_MAX; /* 1 ns is ROW units */
    accum->count = UINT32_MAX;
    fake_alloc_fail(1);
    succeed(1);
    CHECK(fake_alloc_has_failed());
    cprof_figures figures = figures_now();
    CHECK_EQUAL(figures.count, UINT64_C(1) << 32);
    CHECK_EQUAL(figures.histogram_lost, 1);
    CHECK_EQUAL(histogram_sum(), figures.count - figures.histogram_lost);
    CHECK(quantile_ms(&figures, 0.5) == 1e-6);
}

/* G7 */
TEST(first_sample_without_memory)
{
    fake_alloc_fail(1);
    succeed(3);
    CHECK(fake_alloc_has_failed());
    cprof_figures figures = figures_now();
    CHECK_EQUAL(figures.count, 1);
    CHECK_EQUAL(figures.histogram_lost, 1);
    CHECK_EQUAL(histogram_sum(), 0);
    CHECK(figures.max_ms == 3e-6 && figures.median_ms == 3e-6);
    CHECK(quantile_ms(&figures, 0.5) == 3e-6);
    succeed(5);
    figures = figures_now();
    CHECK_EQUAL(histogram_sum(), 1);
    CHECK(quantile_ms(&figures, 0.5) >= 3e-6 && quantile_ms(&figures, 0.5) <= 5e-6);
    succeed(50);
    figures = figures_now();
    CHECK_NEAR(quantile_ms(&figures, 0.5), 5e-6, 0.02); /* of the two that are in the histogram */
}

/* E5: all_counts beyond 2^53 are exact. */
TEST(counts_beyond_doubles)
{
    succeed(1);
    finish(CPROF_OUTCOME_ERROR, 1);
    accum->count = accum->figures.error_count = UINT64_C(1) << 53;
    succeed(1);
    finish(CPROF_OUTCOME_ERROR, 1);
    CHECK_EQUAL(figures_now().count, (UINT64_C(1) << 53) + 1);
    CHECK_EQUAL(figures_now().error_count, (UINT64_C(1) << 53) + 1);
}

/* E11: 0 for none, for one, and for equal samples, whatever the rounding. */
TEST(deviation)
{
    cprof_figures none = {.count = 0};
    CHECK(cprof_figures_std_ms(&none) == 0.0);
    for (int i = 0; i < 7; i++) {
        cprof_accum_record_ms(accum, 0.1);
        cprof_figures figures = figures_now();
        CHECK(cprof_figures_std_ms(&figures) == 0.0);
    }
    cprof_registry_reset(registry);
    succeed(MS);
    succeed(3 * MS);
    cprof_figures figures = figures_now();
    CHECK(cprof_figures_std_ms(&figures) == 1.0);
}

TEST(order_of_first_calls)
{
    cprof_figures figures;
    uint64_t first, second;
    cprof_accum *other = cprof_registry_accum(registry, (cprof_names){{"val", 3}, {"node", 4}});
    cprof_accum_record_ms(other, 1.0);
    succeed(MS);
    cprof_accum_record_ms(other, 1.0);
    cprof_generation now = cprof_epoch_present(&registry->epoch);
    CHECK(cprof_accum_copy(other, &now, INT64_MAX, &figures, all_counts, &first, NULL) == CPROF_OK);
    CHECK(cprof_accum_copy(accum, &now, INT64_MAX, &figures, all_counts, &second, NULL) == CPROF_OK);
    CHECK(first < second);
}

TEST(dispose_gives_everything_back)
{
    uint64_t live = fake_alloc_live();
    succeed(0);
    *low_of(0) = UINT32_MAX;
    succeed(0);
    CHECK_EQUAL(fake_alloc_live(), live + 2);
    cprof_accum_dispose(accum);
    CHECK_EQUAL(fake_alloc_live(), live);
    cprof_accum_dispose(accum);
}

static void *finish_many(void *unused)
{
    for (int i = 0; i < CALLS; i++) {
        if (i % 10 == 0) {
            finish(CPROF_OUTCOME_ERROR, MS);
        } else if (i % 2 == 0) {
            cprof_accum_record_ms(accum, 0.5);
        } else {
            succeed(i);
        }
    }
    return unused;
}

/* C1, E14: nothing is lost, and exactly n are skipped, under contention too. */
TEST(threads)
{
    skip_first(SKIPS);
    check_threads(THREADS, finish_many, NULL, 0);
    cprof_figures figures = figures_now();
    CHECK_EQUAL(figures.skipped_count, SKIPS);
    CHECK_EQUAL(figures.error_count, THREADS * CALLS / 10);
    CHECK_EQUAL(figures.count, THREADS * CALLS / 10 * 9 - SKIPS);
    CHECK_EQUAL(histogram_sum(), figures.count);
    CHECK_EQUAL(figures.dropped_count, 0);
}

FAKE_ALLOC_MAIN(set_up, tear_down)
