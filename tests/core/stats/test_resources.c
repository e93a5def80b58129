/* resources.h, and what accum.h says of such figures */
#include "cprofiling/stats/resources.h"

#include "tests/core/fake_alloc.h"
#include "tests/core/node.h"

#define US INT64_C(1000) /* in ns */
#define MS INT64_C(1000000)
#define LONGEST INT64_MAX

enum { ADDERS = 4, ADDS = 10000 };

static cprof_resources extra;

static void begin(void)
{
    set_up();
    cprof_resources_begin(&extra, 1);
}

static void end(void)
{
    tear_down();
    cprof_histogram_dispose(&extra.gpu_histogram);
}

/* GPU times */

TEST(nothing)
{
    const cprof_resources_figures *figures = &extra.figures;
    CHECK_EQUAL(extra.generation, 1);
    CHECK(figures->asked == 0 && figures->gpu_count == 0);
    CHECK(figures->gpu_min_ns == UINT64_MAX && figures->gpu_max_ns == 0);
    CHECK(figures->device_memory.peak < 0 && figures->host_memory.peak < 0);
    cprof_resources_destroy(NULL);
}

TEST(gpu_times)
{
    cprof_resources_add_gpu(&extra, 300 * US, 20 * US, false);
    cprof_resources_add_gpu(&extra, 100 * US, -1, true);
    cprof_resources_add_gpu(&extra, 200 * US, 0, false);
    const cprof_resources_figures *figures = &extra.figures;
    CHECK_EQUAL(figures->asked, CPROF_RESOURCES_GPU);
    CHECK_EQUAL(figures->gpu_count, 3);
    CHECK(figures->gpu_ns == (cprof_u128)(600 * US));
    CHECK_EQUAL(figures->gpu_min_ns, 100 * US);
    CHECK_EQUAL(figures->gpu_max_ns, 300 * US);
    CHECK_EQUAL(figures->queue_count, 2); /* a delay of 0 is known */
    CHECK(figures->queue_ns == (cprof_u128)(20 * US));
    CHECK_EQUAL(figures->multi_stream, 1);
    CHECK_EQUAL(figures->gpu_lost, 0);
    cprof_resources_begin(&extra, 2);
    CHECK(extra.generation == 2 && extra.figures.gpu_count == 0);
    cprof_resources_add_gpu(&extra, 0, -1, false);
    uint64_t counts[CPROF_HISTOGRAM_BUCKETS] = {0};
    CHECK_EQUAL(cprof_histogram_copy(&extra.gpu_histogram, counts), 1);
    for (unsigned i = 0; i < CPROF_HISTOGRAM_BUCKETS; i++) {
        CHECK_EQUAL(counts[i], i == 0);
    }
}

TEST(milliseconds_are_rounded)
{
    CHECK_EQUAL(cprof_resources_ns_of_ms(0.0), 0);
    CHECK_EQUAL(cprof_resources_ns_of_ms(1e-6), 1);
    CHECK_EQUAL(cprof_resources_ns_of_ms(2.6e-6), 3);
    CHECK_EQUAL(cprof_resources_ns_of_ms(2.4e-6), 2);
    CHECK_EQUAL(cprof_resources_ns_of_ms(1e12), INT64_C(1000000000000000000));
}

TEST(longest_gpu_times_add_up)
{
    for (int i = 0; i < 4; i++) {
        cprof_resources_add_gpu(&extra, LONGEST, LONGEST, false);
    }
    CHECK(extra.figures.gpu_ns == (cprof_u128)LONGEST * 4 && extra.figures.queue_ns == extra.figures.gpu_ns);
    CHECK_EQUAL(extra.figures.gpu_min_ns, LONGEST);
    uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
    CHECK_EQUAL(cprof_histogram_copy(&extra.gpu_histogram, counts), UINT64_C(1) << (CPROF_HISTOGRAM_ROWS - 1));
}

static cprof_resources_copy copy_of(uint64_t *counts)
{
    cprof_resources_copy copy = {.figures = extra.figures, .gpu_counts = counts};
    copy.figures.gpu_rows = cprof_histogram_copy(&extra.gpu_histogram, counts);
    return copy;
}

TEST(quantiles)
{
    static const double fractions[] = {0.0, 0.5, 0.99, 1.0};
    uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
    double ms[4];
    cprof_resources_copy copy = copy_of(counts);
    cprof_resources_gpu_quantiles_ms(&copy, fractions, 4, ms);
    for (int i = 0; i < 4; i++) {
        CHECK(ms[i] < 0.0);
    }
    for (cprof_ns i = 1; i <= 1000; i++) {
        cprof_resources_add_gpu(&extra, i * US, -1, false);
    }
    copy = copy_of(counts);
    cprof_resources_gpu_quantiles_ms(&copy, fractions, 4, ms);
    CHECK_NEAR(ms[0], 0.001, 0.01);
    CHECK_NEAR(ms[1], 0.5, 0.01);
    CHECK_NEAR(ms[2], 0.99, 0.01);
    CHECK_NEAR(ms[3], 1.0, 0.01);
    CHECK(ms[0] >= 0.001 && ms[3] <= 1.0);
}

/* The middle of a bucket may be outside of what was measured. */
static void check_quantile(cprof_ns gpu_ns)
{
    cprof_resources_begin(&extra, 1);
    uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
    double ms;
    cprof_resources_add_gpu(&extra, gpu_ns, -1, false);
    cprof_resources_copy copy = copy_of(counts);
    cprof_resources_gpu_quantiles_ms(&copy, (const double[]){0.5}, 1, &ms);
    CHECK(ms == (double)gpu_ns / 1e6);
}

TEST(quantiles_are_within_the_samples)
{
    check_quantile(1);
    check_quantile(1000001);
    check_quantile(1000000);
    check_quantile(1048575);
}

TEST(quantiles_of_lost_samples)
{
    uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
    double ms;
    fake_alloc_fail(1);
    cprof_resources_add_gpu(&extra, 1 * MS, -1, false);
    CHECK(fake_alloc_has_failed() && extra.figures.gpu_lost == 1 && extra.figures.gpu_count == 1);
    cprof_resources_copy copy = copy_of(counts);
    cprof_resources_gpu_quantiles_ms(&copy, (const double[]){0.5}, 1, &ms);
    CHECK(ms < 0.0);
    cprof_resources_add_gpu(&extra, 2 * MS, -1, false);
    copy = copy_of(counts);
    cprof_resources_gpu_quantiles_ms(&copy, (const double[]){0.0}, 1, &ms);
    CHECK_NEAR(ms, 2.0, 0.01);
}

/* Launches */

static const cprof_launch_counts one_of_each = {1, 2, 3, 4, 5, 6, 7, 8};

static void expect_launches(const cprof_launch_counts *got, uint64_t times)
{
    const uint64_t values[] = {got->launches,        got->kernels,       got->kernel_ns,       got->copies,
                               got->bytes_to_device, got->bytes_to_host, got->bytes_on_device, got->fills};
    for (unsigned i = 0; i < 8; i++) {
        CHECK_EQUAL(values[i], (i + 1) * times);
    }
}

TEST(launches)
{
    cprof_resources_add_launches(&extra.figures, &one_of_each);
    cprof_resources_add_launches(&extra.figures, &one_of_each);
    CHECK_EQUAL(extra.figures.asked, CPROF_RESOURCES_LAUNCHES);
    expect_launches(&extra.figures.launched, 2);
}

TEST(launches_stay_below_their_end)
{
    const cprof_launch_counts many = {.launches = UINT64_MAX, .bytes_to_device = LONGEST, .fills = LONGEST - 1};
    cprof_resources_add_launches(&extra.figures, &many);
    cprof_resources_add_launches(&extra.figures, &one_of_each);
    const cprof_launch_counts *all = &extra.figures.launched;
    CHECK_EQUAL(all->launches, LONGEST);
    CHECK_EQUAL(all->bytes_to_device, LONGEST);
    CHECK_EQUAL(all->fills, LONGEST);
    CHECK_EQUAL(all->kernels, 2);
}

/* Samples */

TEST(counters)
{
    cprof_resources_sample sample = {.asked = CPROF_RESOURCES_COUNTERS};
    for (unsigned i = 0; i < CPROF_COUNTER_COUNT; i++) {
        sample.counters.values[i] = UINT64_MAX - i;
    }
    sample.counters.known = CPROF_COUNTER_BIT(CPROF_COUNTER_CPU_TIME) | CPROF_COUNTER_BIT(CPROF_COUNTER_CYCLES);
    sample.counters.estimated = true;
    cprof_resources_add_sample(&extra.figures, &sample);
    sample.counters.known = CPROF_COUNTER_BIT(CPROF_COUNTER_CPU_TIME);
    sample.counters.estimated = false;
    cprof_resources_add_sample(&extra.figures, &sample);
    for (unsigned i = 0; i < CPROF_COUNTER_COUNT; i++) {
        uint64_t expected = i == CPROF_COUNTER_CPU_TIME ? 2 : i == CPROF_COUNTER_CYCLES ? 1 : 0;
        CHECK_EQUAL(extra.figures.counted[i], expected);
        CHECK(extra.figures.counters[i] == (cprof_u128)(UINT64_MAX - i) * expected);
    }
    CHECK_EQUAL(extra.figures.estimated, 1);
    CHECK_EQUAL(extra.figures.asked, CPROF_RESOURCES_COUNTERS);
    CHECK(extra.figures.device_memory.calls == 0 && extra.figures.host_memory.calls == 0 && extra.figures.waits == 0);
}

static void add_memory(cprof_resources_memory_sample device)
{
    cprof_resources_sample sample = {.asked = CPROF_RESOURCES_MEMORY, .device_memory = device};
    cprof_resources_add_sample(&extra.figures, &sample);
}

static void expect_memory(const cprof_resources_memory *got, cprof_resources_memory expected)
{
    CHECK_EQUAL(got->calls, expected.calls);
    CHECK_EQUAL(got->entry, expected.entry);
    CHECK_EQUAL(got->exit, expected.exit);
    CHECK_EQUAL(got->change, expected.change);
    CHECK_EQUAL(got->peak, expected.peak);
}

TEST(memory)
{
    const cprof_resources_memory *device = &extra.figures.device_memory;
    add_memory((cprof_resources_memory_sample){.known = false, .entry = 5, .exit = 6, .peak = 7});
    expect_memory(device, (cprof_resources_memory){.peak = -1});
    add_memory((cprof_resources_memory_sample){true, 100, 150, -1});
    expect_memory(device, (cprof_resources_memory){1, 100, 150, 50, -1});
    add_memory((cprof_resources_memory_sample){true, 150, 110, 500});
    expect_memory(device, (cprof_resources_memory){2, 150, 110, 10, 500});
    add_memory((cprof_resources_memory_sample){true, 110, 120, 130}); /* the highest of all calls */
    expect_memory(device, (cprof_resources_memory){3, 110, 120, 20, 500});
    add_memory((cprof_resources_memory_sample){true, -1, INT64_MAX, 900}); /* no number of bytes */
    add_memory((cprof_resources_memory_sample){true, INT64_MAX, INT64_MIN, 900});
    expect_memory(device, (cprof_resources_memory){3, 110, 120, 20, 500});
    CHECK_EQUAL(extra.figures.host_memory.calls, 0);
    CHECK_EQUAL(extra.figures.asked, CPROF_RESOURCES_MEMORY);
    cprof_resources_sample sample = {.host_memory = {true, 8, 9, 10}};
    cprof_resources_add_sample(&extra.figures, &sample);
    expect_memory(&extra.figures.host_memory, (cprof_resources_memory){1, 8, 9, 1, 10});
    CHECK_EQUAL(device->calls, 3);
}

TEST(changes_stay_at_their_end)
{
    add_memory((cprof_resources_memory_sample){true, 0, INT64_MAX, -1});
    add_memory((cprof_resources_memory_sample){true, 0, 1, -1});
    CHECK_EQUAL(extra.figures.device_memory.change, INT64_MAX);
    cprof_resources_begin(&extra, 1);
    add_memory((cprof_resources_memory_sample){true, INT64_MAX, 0, -1});
    add_memory((cprof_resources_memory_sample){true, 2, 0, -1});
    CHECK_EQUAL(extra.figures.device_memory.change, INT64_MIN);
}

TEST(waits)
{
    cprof_resources_sample sample = {.asked = CPROF_RESOURCES_WAITS, .waits = 2, .wait_ns = LONGEST};
    cprof_resources_add_sample(&extra.figures, &sample);
    cprof_resources_add_sample(&extra.figures, &sample);
    cprof_resources_add_sample(&extra.figures, &sample);
    CHECK_EQUAL(extra.figures.waits, 6);
    CHECK(extra.figures.wait_ns == (cprof_u128)LONGEST * 3);
    CHECK_EQUAL(extra.figures.asked, CPROF_RESOURCES_WAITS);
}

/* Merging */

/* Figures in which no two fields are equal. */
static cprof_resources_figures distinct(uint64_t number)
{
    cprof_resources_begin(&extra, 1);
    cprof_resources_sample sample = {
        .asked = CPROF_RESOURCES_COUNTERS,
        .counters = {.known = CPROF_COUNTER_BIT(CPROF_COUNTER_COUNT) - 1, .estimated = true},
        .device_memory = {true, (int64_t)number, (int64_t)number * 3, (int64_t)number * 4},
        .host_memory = {true, (int64_t)number * 5, (int64_t)number, -1},
        .waits = number,
        .wait_ns = (cprof_ns)number * 6,
    };
    for (unsigned i = 0; i < CPROF_COUNTER_COUNT; i++) {
        sample.counters.values[i] = number << (8 * i);
    }
    for (uint64_t i = 0; i < number; i++) {
        cprof_resources_add_gpu(&extra, (cprof_ns)(number * 100 + i), (cprof_ns)number, i == 0);
        cprof_resources_add_sample(&extra.figures, &sample);
    }
    for (unsigned i = 1; i < CPROF_GPU_CAUSES; i++) {
        extra.figures.missed[i] = number * i;
    }
    extra.figures.launched = one_of_each;
    static uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
    extra.figures.gpu_rows = cprof_histogram_copy(&extra.gpu_histogram, counts);
    return extra.figures;
}

TEST(merging_adds)
{
    cprof_resources_figures figures = distinct(2);
    cprof_resources_figures other = distinct(3);
    other.gpu_lost = 1;
    cprof_resources_merge(&figures, &other, true);
    CHECK_EQUAL(figures.asked, CPROF_RESOURCES_GPU | CPROF_RESOURCES_COUNTERS); /* launches were not asked for by adding them */
    CHECK_EQUAL(figures.gpu_count, 5);
    CHECK(figures.gpu_ns == 200 + 201 + 300 + 301 + 302);
    CHECK_EQUAL(figures.gpu_min_ns, 200);
    CHECK_EQUAL(figures.gpu_max_ns, 302);
    CHECK_EQUAL(figures.gpu_lost, 1);
    CHECK_EQUAL(figures.gpu_rows, UINT64_C(1) << 8 | UINT64_C(1) << 9);
    CHECK_EQUAL(figures.queue_count, 5);
    CHECK(figures.queue_ns == 2 * 2 + 3 * 3);
    CHECK_EQUAL(figures.multi_stream, 2);
    for (unsigned i = 0; i < CPROF_GPU_CAUSES; i++) {
        CHECK_EQUAL(figures.missed[i], 5 * i);
    }
    expect_launches(&figures.launched, 2);
    for (unsigned i = 0; i < CPROF_COUNTER_COUNT; i++) {
        CHECK_EQUAL(figures.counted[i], 5);
        CHECK(figures.counters[i] == (cprof_u128)(2 * 2 + 3 * 3) << (8 * i));
    }
    CHECK_EQUAL(figures.estimated, 5);
    CHECK_EQUAL(figures.waits, 2 * 2 + 3 * 3);
    CHECK(figures.wait_ns == 2 * 12 + 3 * 18);
    expect_memory(&figures.device_memory, (cprof_resources_memory){5, 3, 9, 2 * 4 + 3 * 6, 12});
    expect_memory(&figures.host_memory, (cprof_resources_memory){5, 15, 3, -2 * 8 - 3 * 12, -1});
}

TEST(merging_with_what_was_earlier)
{
    cprof_resources_figures figures = distinct(3);
    cprof_resources_figures other = distinct(2);
    cprof_resources_merge(&figures, &other, false);
    expect_memory(&figures.device_memory, (cprof_resources_memory){5, 3, 9, 26, 12});
    expect_memory(&figures.host_memory, (cprof_resources_memory){5, 15, 3, -52, -1});
}

TEST(merging_with_nothing)
{
    cprof_resources_figures figures = distinct(2);
    cprof_resources_figures whole = figures;
    cprof_resources_begin(&extra, 1);
    cprof_resources_figures nothing = extra.figures;
    nothing.asked = CPROF_RESOURCES_WAITS;
    cprof_resources_merge(&figures, &nothing, true);
    CHECK_EQUAL(figures.asked, whole.asked | CPROF_RESOURCES_WAITS);
    expect_memory(&figures.device_memory, whole.device_memory);
    cprof_resources_merge(&nothing, &whole, false);
    expect_memory(&nothing.device_memory, whole.device_memory);
    expect_memory(&nothing.host_memory, whole.host_memory);
    CHECK(nothing.gpu_min_ns == 200 && nothing.gpu_max_ns == 201 && nothing.gpu_count == 2);
}

/* Of an accumulator */

static bool finish(void)
{
    cprof_sample sample = {1 * MS, 0, 0};
    return cprof_accum_finish(accum, generation(), CPROF_OUTCOME_SUCCESS, &sample);
}

/* What a visitor of the one key saw. */
typedef struct {
    int keys;
    bool has_extra;
    cprof_resources_figures figures;
    uint64_t gpu_sum;
    double gpu_median_ms;
} seen;

static cprof_status look(void *context, cprof_names names, uint64_t order, const cprof_figures *figures, const uint64_t *counts)
{
    (void)names;
    (void)order;
    (void)counts;
    seen *key = context;
    key->keys++;
    key->has_extra = figures->extra != NULL;
    if (figures->extra != NULL) {
        key->figures = figures->extra->figures;
        cprof_resources_gpu_quantiles_ms(figures->extra, (const double[]){0.5}, 1, &key->gpu_median_ms);
        for (unsigned i = 0; i < CPROF_HISTOGRAM_BUCKETS; i++) {
            bool is_set = (key->figures.gpu_rows >> (i / CPROF_HISTOGRAM_ROW) & 1) != 0;
            key->gpu_sum += is_set ? figures->extra->gpu_counts[i] : 0;
        }
    }
    return CPROF_OK;
}

static seen see(void)
{
    seen key = {.keys = 0};
    cprof_generation epoch;
    CHECK(cprof_registry_visit(registry, look, &key, &epoch) == CPROF_OK && epoch.unread == 0);
    return key;
}

static void add_all_kinds(uint64_t of_generation)
{
    cprof_resources_sample sample = {.asked = CPROF_RESOURCES_WAITS, .waits = 3, .wait_ns = 4};
    cprof_accum_add_gpu(accum, of_generation, 2 * MS, -1, true);
    cprof_accum_miss_gpu(accum, of_generation, CPROF_GPU_CAPTURED);
    cprof_accum_add_launches(accum, of_generation, &one_of_each);
    cprof_accum_add_sample(accum, of_generation, &sample);
}

TEST(an_accumulator_keeps_what_is_asked_for)
{
    CHECK(finish());
    seen key = see();
    CHECK(key.keys == 1 && !key.has_extra && accum->extra == NULL); /* no memory for what nobody asks for */
    add_all_kinds(generation());
    add_all_kinds(generation());
    key = see();
    CHECK(key.has_extra && key.gpu_sum == 2 && key.gpu_median_ms == 2.0);
    CHECK_EQUAL(key.figures.asked, CPROF_RESOURCES_GPU | CPROF_RESOURCES_LAUNCHES | CPROF_RESOURCES_WAITS);
    CHECK(key.figures.gpu_count == 2 && key.figures.multi_stream == 2 && key.figures.missed[CPROF_GPU_CAPTURED] == 2);
    CHECK(key.figures.waits == 6 && key.figures.wait_ns == 8);
    expect_launches(&key.figures.launched, 2);
}

static void *add_often(void *unused)
{
    for (int i = 0; i < ADDS; i++) {
        add_all_kinds(generation());
    }
    return unused;
}

TEST(threads_add_up)
{
    CHECK(finish());
    add_all_kinds(generation());
    check_threads(ADDERS, add_often, NULL, 0);
    seen key = see();
    const uint64_t times = ADDERS * ADDS + 1;
    CHECK(key.gpu_sum == times && key.figures.gpu_count == times && key.figures.missed[CPROF_GPU_CAPTURED] == times);
    CHECK(key.figures.waits == 3 * times && key.figures.wait_ns == 4 * times);
    expect_launches(&key.figures.launched, times);
}

TEST(what_is_missed_alone_is_asked_for)
{
    CHECK(finish());
    cprof_accum_miss_gpu(accum, generation(), CPROF_GPU_NO_CUDA);
    seen key = see();
    CHECK_EQUAL(key.figures.asked, CPROF_RESOURCES_GPU);
    CHECK(key.figures.missed[CPROF_GPU_NO_CUDA] == 1 && key.gpu_median_ms < 0.0 && key.figures.gpu_rows == 0);
}

/* Launches come before the call that makes them has finished, perhaps with an exception. */
TEST(launches_of_an_open_call)
{
    cprof_accum_add_launches(accum, generation(), &one_of_each);
    CHECK_EQUAL(see().keys, 0);
    cprof_sample sample = {1 * MS, 0, 0};
    CHECK(!cprof_accum_finish(accum, generation(), CPROF_OUTCOME_ERROR, &sample));
    seen key = see();
    CHECK(key.keys == 1 && key.has_extra && key.figures.launched.kernels == 2);
}

TEST(figures_of_another_generation)
{
    uint64_t old = generation();
    CHECK(finish());
    add_all_kinds(old);
    cprof_registry_reset(registry);
    CHECK(finish());
    CHECK(!see().has_extra); /* those from before the reset are gone */
    add_all_kinds(old);
    add_all_kinds(generation() + 1);
    CHECK(!see().has_extra);
    add_all_kinds(generation());
    seen key = see();
    CHECK(key.has_extra && key.figures.gpu_count == 1 && key.gpu_sum == 1 && key.figures.waits == 3);
    CHECK(key.figures.missed[CPROF_GPU_CAPTURED] == 1);
    expect_launches(&key.figures.launched, 1);
}

TEST(a_copy_without_what_is_not_wanted)
{
    static uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
    cprof_figures figures;
    uint64_t order;
    CHECK(finish());
    add_all_kinds(generation());
    cprof_generation now = cprof_epoch_present(&registry->epoch);
    CHECK(cprof_accum_copy(accum, &now, INT64_MAX, &figures, counts, &order, NULL) == CPROF_OK);
    CHECK(figures.extra == NULL && figures.count == 1);
}

TEST(without_memory)
{
    CHECK(finish());
    uint64_t now = generation();
    cprof_resources_sample sample = {.asked = CPROF_RESOURCES_WAITS, .waits = 1};
    for (int kind = 0; kind < 4; kind++) {
        fake_alloc_fail(1);
        if (kind == 0) {
            cprof_accum_add_gpu(accum, now, 1 * MS, -1, false);
        } else if (kind == 1) {
            cprof_accum_miss_gpu(accum, now, CPROF_GPU_FULL);
        } else if (kind == 2) {
            cprof_accum_add_launches(accum, now, &one_of_each);
        } else {
            cprof_accum_add_sample(accum, now, &sample);
        }
        CHECK(fake_alloc_has_failed() && !see().has_extra);
    }
    fake_alloc_fail(2); /* the row of the histogram */
    cprof_accum_add_gpu(accum, now, 1 * MS, -1, false);
    seen key = see();
    CHECK(fake_alloc_has_failed() && key.figures.gpu_count == 1 && key.figures.gpu_lost == 1);
    CHECK(key.gpu_sum == 0 && key.gpu_median_ms < 0.0);
}

/* Skips */

TEST(skipping)
{
    skip_first(2);
    uint64_t first = generation();
    CHECK(cprof_accum_is_skipping(accum, first)); /* its first call of all */
    CHECK(!cprof_accum_is_skipping(accum, first + 1));
    CHECK(!finish() && cprof_accum_is_skipping(accum, first));
    CHECK(!finish() && !cprof_accum_is_skipping(accum, first));
    CHECK(finish() && !cprof_accum_is_skipping(accum, first));
    cprof_registry_reset(registry);
    CHECK(!cprof_accum_is_skipping(accum, first)); /* the call is dropped */
    CHECK(cprof_accum_is_skipping(accum, first + 1));
    skip_first(0);
    CHECK(!cprof_accum_is_skipping(accum, generation()));
    CHECK(finish() && !cprof_accum_is_skipping(accum, generation()));
}

FAKE_ALLOC_MAIN(begin, end)
