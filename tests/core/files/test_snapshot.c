/* snapshot.h */
#include "cprofiling/files/snapshot.h"
#include "cprofiling/files/snapshot_merge.h"

#include "tests/core/fake_alloc.h"
#include "tests/core/snapshots.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum {
    PARTS = 5,
    SAMPLES = 300,
    THREADS = 4,
    CALLS = 10000,
    MUTATIONS = 1200,
};

/* Statistics */

static void finish(cprof_registry *registry, const char *node, cprof_outcome outcome, cprof_ns elapsed_ns)
{
    cprof_sample sample = {elapsed_ns, elapsed_ns / 3, elapsed_ns / 7};
    cprof_accum_finish(accum_of(registry, "train", node), cprof_epoch_present(&registry->epoch).generation, outcome, &sample);
}

static void record(cprof_registry *registry, const char *node, double elapsed_ms)
{
    cprof_accum_record_ms(accum_of(registry, "train", node), elapsed_ms);
}

static cprof_snapshot *take_with(cprof_registry *registry, uint64_t taken_ns, const char *note)
{
    cprof_name name = {note, note != NULL ? strlen(note) : 0};
    cprof_snapshot_remarks remarks = {
        .taken_ns = taken_ns,
        .internal_errors = 2,
        .cost_ns = (double)taken_ns / 8,
        .notes = &name,
        .note_count = note != NULL,
    };
    return collected(registry, remarks);
}

static cprof_snapshot *take(cprof_registry *registry, uint64_t taken_ns)
{
    return take_with(registry, taken_ns, NULL);
}

static bool same_moments(const cprof_moments *a, const cprof_moments *b)
{
    return a->total_ns == b->total_ns && a->squares_ns2 == b->squares_ns2 && a->squares_top == b->squares_top &&
           a->total_ms.high == b->total_ms.high && a->total_ms.low == b->total_ms.low &&
           a->squares_ms2.high == b->squares_ms2.high && a->squares_ms2.low == b->squares_ms2.low;
}

static bool same_counts(const cprof_figures *a, const cprof_figures *b)
{
    return a->count == b->count && a->error_count == b->error_count && a->cancelled_count == b->cancelled_count &&
           a->skipped_count == b->skipped_count && a->dropped_count == b->dropped_count && a->self_unknown == b->self_unknown &&
           a->active_unknown == b->active_unknown && a->histogram_lost == b->histogram_lost && a->nested_ns == b->nested_ns &&
           a->suspended_ns == b->suspended_ns;
}

static bool same_extremes(const cprof_figures *a, const cprof_figures *b)
{
    return a->count == 0 || (a->min_ms == b->min_ms && a->max_ms == b->max_ms);
}

/* One call of each kind. */
static void fill_with_all_kinds(cprof_registry *registry)
{
    finish(registry, "spans", CPROF_OUTCOME_SUCCESS, 3 * MS);
    finish(registry, "spans", CPROF_OUTCOME_SUCCESS, 5 * MS);
    finish(registry, "spans", CPROF_OUTCOME_SUCCESS, INT64_MAX);
    finish(registry, "errors", CPROF_OUTCOME_ERROR, 1 * MS);
    finish(registry, "errors", CPROF_OUTCOME_CANCELLED, 1 * MS);
    record(registry, "fractions", 0.1);
    record(registry, "fractions", 1e12);
    record(registry, "fractions", 5e-324);
    record(registry, "rounded up", 1e12);
    record(registry, "rounded up", 0.06); /* the nearest double to their sum is larger */
    record(registry, "both", 0.7);
    finish(registry, "both", CPROF_OUTCOME_SUCCESS, 11 * MS);
    record(registry, "zeros", 0.0);
}

static const char *const all_kinds[] = {"spans", "errors", "fractions", "rounded up", "both", "zeros"};

TEST(snapshot_is_what_the_registry_was)
{
    for (uint64_t skip_first_n = 0; skip_first_n < 2; skip_first_n++) {
        cprof_registry *registry = registry_new(skip_first_n);
        fill_with_all_kinds(registry);
        cprof_snapshot *copy = round_trip(take(registry, 1));
        for (size_t i = 0; i < COUNT_OF(all_kinds); i++) {
            seen live = see_live(registry, all_kinds[i]);
            seen found = see(copy, all_kinds[i]);
            CHECK(found.order == i);
            CHECK(same_counts(&live.figures, &found.figures) && same_extremes(&live.figures, &found.figures));
            CHECK(same_moments(&live.figures.moments, &found.figures.moments));
            CHECK(live.figures.first_ms == found.figures.first_ms && live.figures.rows == found.figures.rows);
            CHECK(live.figures.count == 0 || live.figures.last_ms == found.figures.last_ms);
            CHECK(live.figures.median_ms == found.figures.median_ms);
            CHECK(memcmp(live.counts, found.counts, sizeof live.counts) == 0);
        }
        CHECK(!copy->is_merged && copy->source_count == 1 && copy->key_count == 6 && copy->internal_errors == 2);
        CHECK(copy->skip_least == skip_first_n && copy->skip_most == skip_first_n && copy->cost_ns == 0.125);
        CHECK(memcmp(copy->sources[0].id, registry->id, sizeof registry->id) == 0);
        CHECK(copy->sources[0].generation == cprof_epoch_present(&registry->epoch).generation);
    }
}

TEST(longest_sample)
{
    cprof_registry *registry = registry_new(0);
    finish(registry, "a", CPROF_OUTCOME_SUCCESS, INT64_MAX);
    CHECK_EQUAL(see(round_trip(take(registry, 1)), "a").figures.moments.total_ns, INT64_MAX);
}

TEST(snapshot_does_not_change)
{
    cprof_registry *registry = registry_made(0);
    finish(registry, "a", CPROF_OUTCOME_SUCCESS, 3 * MS);
    cprof_snapshot *snapshot = take(registry, 1);
    finish(registry, "a", CPROF_OUTCOME_SUCCESS, 5 * MS);
    cprof_registry_reset(registry);
    cprof_registry_destroy(registry);
    seen found = see(snapshot, "a");
    CHECK(found.figures.count == 1 && found.figures.max_ms == 3.0);
}

TEST(empty_registry)
{
    cprof_registry *registry = registry_new(3);
    cprof_snapshot *snapshot = take(registry, 1);
    cprof_snapshot *other = round_trip(snapshot);
    CHECK(other->key_count == 0 && cprof_snapshot_size(other) == FIRST_KEY + 8);
    cprof_registry_reset(registry);
    other = take(registry, 1);
    cprof_snapshot *merged = merge_two(snapshot, other);
    CHECK(merged->key_count == 0 && merged->source_count == 2 && merged->skip_most == 3);
    (void)round_trip(merged);
}

static void expect_refused_name(const char *bytes, size_t length)
{
    cprof_registry *registry = registry_new(0);
    cprof_names names = {{bytes, length}, {"node", 4}};
    cprof_accum_record_ms(cprof_registry_accum(registry, names), 1.0);
    cprof_snapshot *snapshot;
    cprof_snapshot_remarks remarks = {.note_count = 0};
    CHECK(cprof_snapshot_collect(registry, &remarks, &snapshot) == CPROF_OUT_OF_RANGE);
    cprof_registry_reset(registry);
    remarks = (cprof_snapshot_remarks){.notes = &names.stage, .note_count = 1};
    CHECK(cprof_snapshot_collect(registry, &remarks, &snapshot) == CPROF_OUT_OF_RANGE);
}

TEST(names)
{
    static char longest[CPROF_NAME_LIMIT + 2];
    memset(longest, 'x', sizeof longest - 1);
    expect_refused_name(longest, CPROF_NAME_LIMIT + 1);
    expect_refused_name("a\0b", 3);
    expect_refused_name("\x80", 1);             /* a continuation without a lead */
    expect_refused_name("\xc1\xbf", 2);         /* overlong */
    expect_refused_name("\xe0\x9f\xbf", 3);     /* overlong */
    expect_refused_name("\xf0\x8f\xbf\xbf", 4); /* overlong */
    expect_refused_name("\xf4\x90\x80\x80", 4); /* beyond U+10FFFF */
    expect_refused_name("\xf5\x80\x80\x80", 4);
    expect_refused_name("\xe2\x82", 2); /* cut */
    expect_refused_name("\xe2\x82x", 3);
    static const char *const legal[] = {
        "", "\x7f", "\xc2\x80", "\xed\xa0\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    cprof_registry *registry = registry_new(0);
    longest[CPROF_NAME_LIMIT] = '\0';
    record(registry, longest, 1.0);
    for (size_t i = 0; i < COUNT_OF(legal); i++) {
        record(registry, legal[i], 1.0);
    }
    cprof_snapshot *copy = round_trip(take_with(registry, 1, longest));
    CHECK(see(copy, longest).order == 0 && see(copy, "\xf4\x8f\xbf\xbf").order == 7);
}

static cprof_status stop_at_once(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                                 const uint64_t *counts)
{
    (void)names;
    (void)order;
    (void)figures;
    (void)counts;
    ++*(int *)context;
    return CPROF_ABSENT;
}

TEST(visitor_may_stop)
{
    cprof_registry *registry = registry_new(0);
    fill_with_all_kinds(registry);
    cprof_snapshot *snapshot = take(registry, 1);
    int visits = 0;
    CHECK(cprof_snapshot_visit(snapshot, stop_at_once, &visits) == CPROF_ABSENT && visits == 1);
    cprof_snapshot_destroy(NULL);
}

/* Merging */

static double random_ms(void)
{
    switch (random_bits() % 4) {
    case 0:
        return (double)(random_bits() >> 11) * 0x1p-53 * 1e12;
    case 1:
        return ldexp((double)(random_bits() >> 11), -(int)(random_bits() % 1127) - 13);
    case 2:
        return 0.1;
    default:
        return 0.0;
    }
}

/* One sample of a key out of four, to both registries. */
static void add_random_sample(cprof_registry *a, cprof_registry *b)
{
    static const char *const nodes[] = {"w", "x", "y", "z"};
    const char *node = nodes[random_bits() % 4];
    double elapsed_ms = random_ms();
    cprof_ns elapsed_ns = (cprof_ns)(random_bits() >> 1 >> random_bits() % 63);
    cprof_outcome outcome = random_bits() % 8 == 0 ? CPROF_OUTCOME_ERROR : CPROF_OUTCOME_SUCCESS;
    bool is_fractional = random_bits() % 2 == 0 && node[0] != 'w';
    cprof_registry *const both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        if (is_fractional) {
            record(both[i], node, elapsed_ms);
        } else {
            finish(both[i], node, outcome, elapsed_ns);
        }
    }
}

/* `parts` and `whole` got the same samples. */
static void fill_parts(cprof_snapshot **parts, cprof_registry *whole)
{
    for (uint64_t i = 0; i < PARTS; i++) {
        cprof_registry *registry = registry_new(0);
        for (int k = 0; k < SAMPLES; k++) {
            add_random_sample(registry, whole);
        }
        parts[i] = take_with(registry, 100 + i * 7 % PARTS, i % 2 == 0 ? "even" : "odd");
    }
}

static double relative_difference(double a, double b)
{
    return a == b ? 0.0 : fabs(a - b) / fmax(fabs(a), fabs(b));
}

static void expect_merged_like(const cprof_snapshot *merged, cprof_registry *whole, const char *node)
{
    seen got = see(merged, node);
    seen expected = see_live(whole, node);
    const cprof_moments *a = &got.figures.moments;
    const cprof_moments *b = &expected.figures.moments;
    uint64_t count = got.figures.count;
    CHECK(same_counts(&got.figures, &expected.figures) && same_extremes(&got.figures, &expected.figures));
    CHECK(a->total_ns == b->total_ns && a->squares_ns2 == b->squares_ns2 && a->squares_top == b->squares_top);
    CHECK(memcmp(got.counts, expected.counts, sizeof got.counts) == 0);
    CHECK(relative_difference(cprof_moments_total_ms(a), cprof_moments_total_ms(b)) <= 0x1p-52);
    CHECK(relative_difference(cprof_moments_std_ms(a, count), cprof_moments_std_ms(b, count)) <= 0x1p-50);
    CHECK(got.figures.median_ms == expected.figures.median_ms);
}

TEST(merging_is_exact_in_any_order)
{
    cprof_snapshot *parts[PARTS];
    cprof_registry *whole = registry_new(0);
    fill_parts(parts, whole);
    cprof_snapshot *merged = merge_in_all_orders(parts, PARTS);
    seen first = see(merged, "x");
    seen second = see(merge_at_random(parts, PARTS), "x");
    CHECK(same_moments(&first.figures.moments, &second.figures.moments));
    CHECK(merged->is_merged && merged->source_count == PARTS && merged->internal_errors == 2 * PARTS && merged->key_count == 4);
    CHECK(merged->cost_ns == 104.0 / 8 && merged->note_count == 2);
    size_t at = 0;
    CHECK(memcmp(cprof_snapshot_next_note(merged, &at).bytes, "even", 4) == 0);
    CHECK(memcmp(cprof_snapshot_next_note(merged, &at).bytes, "odd", 3) == 0 && at == merged->note_bytes);
    static const char *const nodes[] = {"w", "x", "y", "z"};
    for (int i = 0; i < 4; i++) {
        expect_merged_like(merged, whole, nodes[i]);
    }
}

/* What a call costs is a difference of two measurements, and may be below 0. */
TEST(the_largest_cost_stays)
{
    cprof_snapshot *parts[2];
    for (int i = 0; i < 2; i++) {
        parts[i] = collected(registry_new(0), (cprof_snapshot_remarks){.cost_ns = i - 3.0});
    }
    CHECK(merge_in_all_orders(parts, 2)->cost_ns == -2.0);
}

/* 0.1 + 1e12 + 5e-324 in other orders: a compensated sum would round, and differ from order to order. */
TEST(fractional_sums_do_not_round)
{
    static const double samples[] = {1e12, 0.1, 5e-324, 1e12, 1e-300};
    cprof_snapshot *parts[PARTS];
    for (int i = 0; i < PARTS; i++) {
        cprof_registry *registry = registry_new(0);
        record(registry, "a", samples[i]);
        parts[i] = take(registry, 1);
    }
    cprof_snapshot *merged = merge_in_all_orders(parts, PARTS);
    cprof_snapshot *tiny = merge((const cprof_snapshot *const[]){parts[2]}, 1);
    seen all = see(merged, "a");
    CHECK(all.figures.moments.total_ms.high == 2e12 + 0.1 && all.figures.moments.total_ms.low != 0.0);
    CHECK(see(tiny, "a").figures.moments.total_ms.high == 5e-324);
}

static cprof_snapshot *take_one(const char *const *nodes, int count, cprof_ns elapsed_ns, uint64_t taken_ns)
{
    cprof_registry *registry = registry_new(0);
    for (int i = 0; i < count; i++) {
        finish(registry, nodes[i], CPROF_OUTCOME_SUCCESS, elapsed_ns);
    }
    return take(registry, taken_ns);
}

TEST(order_of_merged_keys)
{
    cprof_snapshot *left = take_one((const char *const[]){"load", "blur", "save"}, 3, 1 * MS, 1);
    cprof_registry *registry = registry_new(0);
    fill_with_all_kinds(registry);
    cprof_registry_reset(registry); /* places begin anew */
    static const char *const nodes[] = {"load", "detect", "blur", "show"};
    for (int i = 0; i < 4; i++) {
        finish(registry, nodes[i], CPROF_OUTCOME_SUCCESS, 1 * MS);
    }
    cprof_snapshot *right = take(registry, 1);
    cprof_snapshot *merged = merge_two(left, right);
    cprof_snapshot *other = merge_two(right, left);
    static const char *const expected[] = {"load", "blur", "detect", "save", "show"};
    for (uint64_t i = 0; i < 5; i++) {
        CHECK(see(merged, expected[i]).order == i && see(other, expected[i]).order == i);
    }
}

TEST(first_and_last_of_merged_keys)
{
    cprof_snapshot *early = take_one((const char *const[]){"a"}, 1, 9 * MS, 10);
    cprof_snapshot *late = take_one((const char *const[]){"a", "b"}, 2, 5 * MS, 20);
    cprof_snapshot *too = take_one((const char *const[]){"a"}, 1, 7 * MS, 20);
    cprof_snapshot *none = take_one(NULL, 0, 0, 30);
    cprof_snapshot *two = merge_two(early, late);
    cprof_snapshot *three = merge_two(too, two);
    cprof_snapshot *alone = merge_two(early, none);
    CHECK(see(two, "a").figures.last_ms == 5.0);
    CHECK(see(three, "a").figures.last_ms == 7.0); /* as late, and larger */
    CHECK(see(alone, "a").figures.last_ms == 9.0);
    CHECK(see(alone, "a").figures.first_ms == 9.0 && see(two, "b").figures.first_ms == 5.0);
    CHECK(see(two, "a").figures.first_ms < 0.0 && see(three, "a").figures.first_ms < 0.0);
    (void)round_trip(three);
}

/* The median of up to five samples is exact, in however many parts they come, and in whatever order. */
TEST(few_samples_keep_their_median)
{
    static const cprof_ns parts_ns[][2] = {{9 * MS, 1 * MS}, {3 * MS, 0}, {7 * MS, 5 * MS}};
    cprof_snapshot *parts[COUNT_OF(parts_ns) + 1];
    for (size_t i = 0; i < COUNT_OF(parts_ns); i++) {
        cprof_registry *registry = registry_new(0);
        for (size_t k = 0; k < 2 && parts_ns[i][k] != 0; k++) {
            finish(registry, "a", CPROF_OUTCOME_SUCCESS, parts_ns[i][k]);
        }
        parts[i] = take(registry, 1);
    }
    cprof_snapshot *merged = merge_in_all_orders(parts, COUNT_OF(parts_ns));
    CHECK(see(round_trip(merged), "a").figures.median_ms == 5.0);
    parts[COUNT_OF(parts_ns)] = take_one((const char *const[]){"a"}, 1, 3 * MS, 1);
    merged = merge_in_all_orders(parts, COUNT_OF(parts));
    CHECK(see(round_trip(merged), "a").figures.median_ms == CPROF_FIGURES_NO_MEDIAN);
}

/* An estimate of P² is kept in a snapshot, and lost when it is merged. */
TEST(estimates_do_not_merge)
{
    cprof_registry *registry = registry_new(0);
    cprof_registry_configure(registry, CPROF_FLAG_STATS | CPROF_FLAG_P2, 0, false);
    for (int i = 1; i <= 7; i++) {
        finish(registry, "a", CPROF_OUTCOME_SUCCESS, i * MS);
    }
    cprof_snapshot *alone = round_trip(take(registry, 1));
    CHECK(alone->has_p2 && see(alone, "a").figures.median_ms == 3.0);
    cprof_snapshot *merged = merge((const cprof_snapshot *const[]){alone}, 1);
    CHECK(!merged->has_p2 && see(merged, "a").figures.median_ms == CPROF_FIGURES_NO_MEDIAN);
    byte_string bytes = encode(alone);
    expect_reason(&bytes, FIRST_KEY + AT_MEDIAN, 0, 8, "an impossible median");
    expect_reason(&bytes, 12, 0, 4, "an impossible median");
    expect_reason(&bytes, 12, 3, 4, "unknown flags");
}

TEST(keys_without_a_sample_merge)
{
    cprof_registry *errors = registry_new(0);
    finish(errors, "a", CPROF_OUTCOME_ERROR, 1 * MS);
    finish(errors, "b", CPROF_OUTCOME_CANCELLED, 1 * MS);
    cprof_registry *skips = registry_new(2);
    finish(skips, "a", CPROF_OUTCOME_SUCCESS, 4 * MS);
    cprof_snapshot *copy = round_trip(merge_two(take(errors, 5), take(skips, 5)));
    seen key = see(copy, "a");
    CHECK(key.figures.count == 0 && key.figures.error_count == 1 && key.figures.skipped_count == 1);
    CHECK(key.figures.first_ms == 4.0 && key.figures.max_ms == 0.0 && key.figures.median_ms == 0.0);
    CHECK(see(copy, "b").figures.cancelled_count == 1 && see(copy, "b").figures.first_ms < 0.0);
    CHECK(copy->skip_least == 0 && copy->skip_most == 2);
}

TEST(same_data_twice)
{
    cprof_registry *registry = registry_new(0);
    finish(registry, "a", CPROF_OUTCOME_SUCCESS, 3 * MS);
    cprof_snapshot *first = take(registry, 1);
    cprof_snapshot *again = take(registry, 2);
    cprof_registry_reset(registry);
    cprof_snapshot *later = take(registry, 3);
    cprof_snapshot *other = take_one((const char *const[]){"a"}, 1, 1 * MS, 1);
    cprof_snapshot *merged = merge_two(other, first); /* another generation is other data */
    cprof_snapshot *fine = merge_two(merged, later);
    cprof_snapshot *result = NULL;
    cprof_snapshot_clash clash;
    const cprof_snapshot *const inputs[] = {later, again, merged};
    CHECK(cprof_snapshot_merge(inputs, 3, &result, &clash) == CPROF_DUPLICATE);
    CHECK(clash.first == 1 && clash.second == 2 && clash.source.generation == first->sources[0].generation);
    CHECK(memcmp(clash.source.id, registry->id, sizeof registry->id) == 0);
    CHECK(cprof_snapshot_merge((const cprof_snapshot *const[]){fine, fine}, 2, &result, &clash) == CPROF_DUPLICATE);
    CHECK(result == NULL && clash.first == 0 && clash.second == 1);
}

/* Bytes */

TEST(checksum)
{
    CHECK(slow_checksum((const uint8_t *)"123456789", 9) == UINT64_C(0x995dc9bbdf1939fa)); /* the published check value */
    byte_string bytes = encode(take_one((const char *const[]){"a"}, 1, 3 * MS, 1));
    uint8_t expected[8];
    put(expected, slow_checksum(bytes.data, bytes.size - 8), 8);
    CHECK(checksum_of(bytes.data, bytes.size - 8) == slow_checksum(bytes.data, bytes.size - 8));
    CHECK(memcmp(expected, bytes.data + bytes.size - 8, 8) == 0);
}

static void add_extra(cprof_registry *registry, const char *node)
{
    const cprof_launch_counts launches = {.launches = 3, .kernels = 2, .kernel_ns = 5000};
    cprof_resources_sample sample = {
        .asked = CPROF_RESOURCES_COUNTERS | CPROF_RESOURCES_MEMORY,
        .counters = {.known = CPROF_COUNTER_BIT(CPROF_COUNTER_CPU_TIME), .values = {1234}},
        .device_memory = {true, 100, 300, 400},
        .host_memory = {true, 900, 700, -1},
    };
    cprof_accum *accum = accum_of(registry, "train", node);
    uint64_t generation = cprof_epoch_present(&registry->epoch).generation;
    cprof_accum_add_gpu(accum, generation, 2 * MS, 1000, true);
    cprof_accum_add_gpu(accum, generation, 7 * MS, -1, false);
    cprof_accum_miss_gpu(accum, generation, CPROF_GPU_CAPTURED);
    cprof_accum_add_launches(accum, generation, &launches);
    cprof_accum_add_sample(accum, generation, &sample);
}

/* With figures beyond times for two of the keys, or none. */
static cprof_snapshot *take_all_kinds(bool with_extra)
{
    cprof_registry *registry = registry_new(1);
    fill_with_all_kinds(registry);
    fill_with_all_kinds(registry);
    if (with_extra) {
        add_extra(registry, "spans");
        add_extra(registry, "fractions");
    }
    return take_with(registry, 77, "a note");
}

TEST(every_cut_and_every_changed_bit)
{
    byte_string bytes = encode(take_all_kinds(false));
    expect_damage_refused(bytes.data, bytes.size);
}

/* Whatever is written with a right checksum is refused, or is the one encoding of a snapshot that can be visited and merged. */
static void expect_refused_or_canonical(const byte_string *bytes, const cprof_snapshot *other)
{
    cprof_snapshot *snapshot;
    cprof_status status = decode(bytes->data, bytes->size, &snapshot, NULL);
    CHECK(status == CPROF_OK || status == CPROF_BAD_FORMAT);
    if (status != CPROF_OK) {
        return;
    }
    byte_string again = encode(snapshot);
    CHECK(again.size == bytes->size && memcmp(again.data, bytes->data, again.size) == 0);
    seen key = {.node = "spans"};
    CHECK(cprof_snapshot_visit(snapshot, look, &key) == CPROF_OK);
    cprof_snapshot *merged;
    cprof_snapshot_clash clash;
    status = cprof_snapshot_merge((const cprof_snapshot *const[]){snapshot, other}, 2, &merged, &clash);
    CHECK(status == CPROF_OK || status == CPROF_OUT_OF_RANGE);
    if (status == CPROF_OK) {
        (void)round_trip(merged);
        cprof_snapshot_destroy(merged);
    }
}

static void mutate(byte_string *bytes)
{
    static const uint64_t values[] = {0, 1, 2, 0xffff, UINT64_MAX, TWO_63, TWO_63 - 1, 0x7ff8000000000000, 0xbff0000000000000};
    size_t at = random_bits() % (bytes->size - 16);
    if (random_bits() % 2 == 0) {
        bytes->data[at] ^= (uint8_t)(1 << random_bits() % 8);
    } else {
        put(bytes->data + at, values[random_bits() % (COUNT_OF(values))], 1 << random_bits() % 4);
    }
    seal(bytes->data, bytes->size);
}

TEST(changes_with_a_right_checksum)
{
    for (int i = 0; i < 4; i++) {
        bool with_extra = i / 2 != 0;
        bool is_merged = i % 2 != 0;
        cprof_snapshot *snapshot = take_all_kinds(with_extra);
        cprof_snapshot *other = take_all_kinds(true);
        byte_string original = encode(is_merged ? merge_two(snapshot, take_all_kinds(with_extra)) : snapshot);
        byte_string bytes = {malloc(original.size), original.size};
        CHECK(bytes.data != NULL);
        keep(NULL, NULL, bytes.data);
        for (int k = 0; k < MUTATIONS; k++) {
            memcpy(bytes.data, original.data, bytes.size);
            mutate(&bytes);
            expect_refused_or_canonical(&bytes, other);
        }
    }
}

TEST(reasons_of_the_header)
{
    static const change changes[] = {
        {0, 'c', 1, "wrong magic: no snapshot of cprofiling at byte 0"},
        {8, 4, 4, "schema version 4 at byte 8, where this program reads version 5"},
        {8, 6, 4, "schema version 6 at byte 8, where this program reads version 5"},
        {12, 3, 4, "unknown flags"},
        {16, 1, 8, "cut or extended"},
        {24, 5, 8, "an impossible skip_first_n"},
        {24, 0, 8, "an impossible skip_first_n"},
        {32, TWO_63, 8, "a count of 2^63 or more"},
        {40, TWO_63, 8, "a count of 2^63 or more"},
        {48, 0x7ff0000000000000, 8, "an impossible cost"},
        {48, TWO_63, 8, "an impossible cost"}, /* -0.0 */
        {56, 0, 8, "an impossible number of sources"},
        {56, 2, 8, "an impossible number of sources"},
        {64, UINT64_MAX, 8, "a note that is too long or no UTF-8"}, /* keys are none */
        {64, 0, 8, "unknown flags"},                                /* of bytes that are no key */
        {72, UINT64_MAX, 8, "a length that points behind the end"},
        {72, UINT64_MAX / KEY_BYTES, 8, "a length that points behind the end"},
        {72, 4, 8, "more bytes than the counts say"},
        {72, 7, 8, "a length that points behind the end"}, /* one key too many */
        {FIRST_KEY, 0xffff, 2, "a length that points behind the end"},
        {FIRST_KEY + 2, 0, 1, "a note that is too long or no UTF-8"},
    };
    byte_string bytes = encode(take_all_kinds(false));
    expect_reasons(&bytes, 0, changes, COUNT_OF(changes));
}

#define MINUS_ONE 0xbff0000000000000
#define MINUS_TWO 0xc000000000000000
#define NOT_A_NUMBER 0x7ff8000000000000
#define TEN_TO_13 0x42a2309ce5400000
#define EIGHT_TIMES_TEN_TO_12 0x429d1a94a2000000

TEST(reasons_of_a_key)
{
    static const change changes[] = {
        {0, 0xffff, 2, "a length that points behind the end"},
        {AT_FILLED, 0xffff, 2, "a length that points behind the end"},
        {AT_FILLED, 1, 2, "a histogram of another number of samples"},
        {AT_FLAGS, 8, 2, "unknown flags"},
        {AT_FLAGS, 1, 2, "a length that points behind the end"},
        {AT_PLACE, TWO_63, 8, "a count of 2^63 or more"},
        {AT_TAKEN, TWO_63, 8, "a count of 2^63 or more"},
        {AT_COUNT, TWO_63, 8, "a count of 2^63 or more"},
        {AT_COUNT, 6, 8, "an impossible median"},
        {AT_COUNT, 1, 8, "an impossible median"},
        {AT_ERRORS, UINT64_MAX, 8, "a count of 2^63 or more"},
        {AT_SELF_UNKNOWN, 2, 8, "an impossible sum"},
        {AT_SELF_UNKNOWN + 8, 2, 8, "an impossible sum"},
        {AT_SELF_UNKNOWN, 3, 8, "more samples in part than in all"},
        {AT_SELF_UNKNOWN + 8, 3, 8, "more samples in part than in all"},
        {AT_LOST, 3, 8, "more samples in part than in all"},
        {AT_LOST, 1, 8, "a histogram of another number of samples"},
        {AT_MIN, NOT_A_NUMBER, 8, "an impossible duration"},
        {AT_MIN, TWO_63, 8, "an impossible duration"}, /* -0.0 */
        {AT_MIN, MINUS_ONE, 8, "an impossible duration"},
        {AT_MAX, NOT_A_NUMBER, 8, "an impossible duration"},
        {AT_MAX, TEN_TO_13, 8, "an impossible duration"},
        {AT_LAST, MINUS_ONE, 8, "an impossible duration"},
        {AT_LAST, 0, 8, "an impossible duration"},
        {AT_LAST, TEN_TO_13, 8, "an impossible duration"},
        {AT_FIRST, MINUS_ONE, 8, "an impossible first duration"},
        {AT_FIRST, MINUS_TWO, 8, "an impossible first duration"},
        {AT_FIRST, NOT_A_NUMBER, 8, "an impossible first duration"},
        {AT_MEDIAN, MINUS_ONE, 8, "an impossible median"},
        {AT_MEDIAN, 0, 8, "an impossible median"},
        {AT_MEDIAN, NOT_A_NUMBER, 8, "an impossible median"},
        {AT_EXACT, 0, 8, "an impossible median"},
        {AT_EXACT + 8, NOT_A_NUMBER, 8, "an impossible median"},
        {AT_EXACT + 16, 0x3ff0000000000000, 8, "an impossible median"},
        {AT_TOTAL + 8, 1, 8, "an impossible sum"},
        {AT_SQUARES_TOP, 1, 8, "an impossible sum"},
        {AT_NESTED + 8, 1, 8, "an impossible sum"},
        {AT_SUSPENDED + 8, 1, 8, "an impossible sum"},
        {AT_NAMES, 0, 1, "a name that is too long or no UTF-8"},
        {AT_NAMES + 5, 0xff, 1, "a name that is too long or no UTF-8"},
        {AT_NAMES + 6, CPROF_HISTOGRAM_BUCKETS, 2, "an impossible bucket"},
        {AT_NAMES + 6, CPROF_HISTOGRAM_BUCKETS - 1, 2, "an impossible bucket"},
        {AT_NAMES + 10, 0, 8, "a histogram of another number of samples"},
        {AT_NAMES + 10, 2, 8, "a histogram of another number of samples"},
        {AT_FIRST, EIGHT_TIMES_TEN_TO_12, 8, "an impossible first duration"}, /* of a first call that is no sample */
        {AT_TOTAL, TWO_63 - 1, 8, "sums that no such samples have"},
        {AT_SQUARES + 8, 1, 8, "sums that no such samples have"},
        {AT_MIN, 0x3ff0000000000000, 8, "an impossible median"},
        {AT_NAMES + 6, 1, 2, "a histogram of other samples"},
        {AT_NAMES + 8, CPROF_HISTOGRAM_BUCKETS - 3, 2, "a histogram of other samples"},
    };
    cprof_registry *registry = registry_new(0);
    finish(registry, "a", CPROF_OUTCOME_SUCCESS, 3 * MS);
    finish(registry, "a", CPROF_OUTCOME_SUCCESS, INT64_MAX / 2);
    byte_string bytes = encode(take(registry, 1));
    expect_reasons(&bytes, FIRST_KEY, changes, COUNT_OF(changes));
}

TEST(reasons_of_a_key_without_a_sample)
{
    static const change changes[] = {
        {AT_TAKEN, 1, 8, "the time of a sample that is not"},
        {AT_MAX, 0x3ff0000000000000, 8, "an impossible duration"},
        {AT_FIRST, 0, 8, "an impossible first duration"},
        {AT_SKIPPED, 1, 8, "an impossible first duration"},
        {AT_MEDIAN, MINUS_ONE, 8, "an impossible median"},
        {AT_TOTAL, 1, 8, "an impossible sum"},
        {AT_SQUARES, 1, 8, "an impossible sum"},
        {AT_NESTED, 1, 8, "an impossible sum"},
    };
    cprof_registry *registry = registry_new(0);
    finish(registry, "a", CPROF_OUTCOME_ERROR, 3 * MS);
    byte_string bytes = encode(take(registry, 1));
    expect_reasons(&bytes, FIRST_KEY, changes, COUNT_OF(changes));
}

TEST(reasons_of_fractional_sums)
{
    enum { TOTAL = AT_NAMES + 6, SQUARES = TOTAL + 160 };
    static const change changes[] = {
        {TOTAL + 19 * 8, 1, 8, "an impossible fractional sum"},
        {TOTAL + 18 * 8, 1, 8, "an impossible fractional sum"},
        {TOTAL + 17 * 8, UINT64_C(1) << 40, 8, "an impossible fractional sum"},
        {SQUARES + 19 * 8, 1, 8, "an impossible fractional sum"},
        {SQUARES + 18 * 8, 1 << 16, 8, "an impossible fractional sum"},
    };
    cprof_registry *registry = registry_new(0);
    record(registry, "a", 2.0);
    byte_string bytes = encode(take(registry, 1));
    expect_reasons(&bytes, FIRST_KEY, changes, COUNT_OF(changes));
    memset(bytes.data + FIRST_KEY + TOTAL, 0, 320);
    expect_reason(&bytes, FIRST_KEY + AT_ERRORS, 1, 8, "an impossible fractional sum");
}

/* Of 2^62 samples a sum is below 2^62 * 2^40 ms, and that of squares below 2^62 * 2^80 ms²; both have 1,088 bits behind the
 * point. What fits is refused for the next reason. */
TEST(fractional_sums_of_many_samples)
{
    enum { TOTAL = AT_NAMES + 6, SQUARES = TOTAL + 160 };
    static const change changes[] = {
        {TOTAL + 18 * 8, UINT64_C(1) << 38, 8, "an impossible fractional sum"},
        {TOTAL + 18 * 8, (UINT64_C(1) << 38) - 1, 8, "a histogram of another number of samples"},
        {SQUARES + 19 * 8, 1 << 14, 8, "an impossible fractional sum"},
        {SQUARES + 19 * 8, (1 << 14) - 1, 8, "a histogram of another number of samples"},
    };
    cprof_registry *registry = registry_new(0);
    record(registry, "a", 2.0);
    byte_string bytes = encode(take(registry, 1));
    put(bytes.data + FIRST_KEY + AT_COUNT, UINT64_C(1) << 62, 8);
    put(bytes.data + FIRST_KEY + AT_MEDIAN, MINUS_ONE, 8); /* none */
    put(bytes.data + FIRST_KEY + AT_EXACT, 0, 8);
    expect_reasons(&bytes, FIRST_KEY, changes, COUNT_OF(changes));
}

static cprof_snapshot_key *key_of_sums(cprof_pair total_ms, cprof_pair squares_ms2)
{
    static const uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
    const cprof_figures figures = {.count = 1, .moments = {.total_ms = total_ms, .squares_ms2 = squares_ms2}};
    cprof_snapshot_key *key = cprof_snapshot_key_of_figures(NULL, (cprof_names){{"a", 1}, {"b", 1}}, &figures, counts, 1);
    CHECK(key != NULL);
    return key;
}

/* Bit 0 of word 17 is 1 ms. No sum gets as large as these, and none writes behind its words. */
TEST(words_of_fractional_sums)
{
    cprof_snapshot_key *key = key_of_sums((cprof_pair){0x1p191, 0.0}, (cprof_pair){0x1p181, 0.0});
    CHECK(key->sums->total[19] == UINT64_C(1) << 63 && key->sums->squares[19] == UINT64_C(1) << 53);
    CHECK(key->figures.moments.total_ms.high == 0x1p191 && key->figures.moments.squares_ms2.high == 0x1p181);
    cprof_snapshot_key_destroy(key);
    key = key_of_sums((cprof_pair){1.0, -0x1p-60}, (cprof_pair){3.0, -0x1p-64});
    cprof_snapshot_sums expected = {.total = {[16] = -(UINT64_C(1) << 4)}, .squares = {[16] = UINT64_MAX, [17] = 2}};
    CHECK(memcmp(key->sums, &expected, sizeof expected) == 0);
    cprof_snapshot_key_destroy(key);
}

/* A histogram may begin and end one bucket beside the samples, not two. */
TEST(histograms_beside_the_samples)
{
    static const char *const reason = "a histogram of other samples";
    cprof_registry *registry = registry_new(0);
    finish(registry, "a", CPROF_OUTCOME_SUCCESS, 3 * MS);
    finish(registry, "a", CPROF_OUTCOME_SUCCESS, 5 * MS);
    byte_string bytes = encode(take(registry, 1));
    for (int i = 0; i < 2; i++) {
        size_t at = FIRST_KEY + AT_NAMES + 6 + 2 * (size_t)i;
        unsigned bucket = cprof_histogram_index_ns((i == 0 ? 3 : 5) * MS);
        expect_reason(&bytes, at, bucket - 2, 2, reason);
        expect_reason(&bytes, at, bucket + 2, 2, reason);
        for (unsigned beside = bucket - 1; beside <= bucket + 1; beside++) {
            cprof_snapshot *snapshot;
            put(bytes.data + at, beside, 2);
            seal(bytes.data, bytes.size);
            CHECK(decode(bytes.data, bytes.size, &snapshot, NULL) == CPROF_OK);
        }
    }
}

TEST(reasons_of_a_merged_snapshot)
{
    cprof_snapshot *left = take_one((const char *const[]){"a", "b"}, 2, 3 * MS, 1);
    cprof_snapshot *right = take_one((const char *const[]){"a"}, 1, 3 * MS, 1);
    byte_string bytes = encode(merge_two(left, right));
    enum { KEY = FIRST_KEY + SOURCE_BYTES, NEXT = AT_NAMES + 6 + 10 };
    static const change changes[] = {
        {AT_MEDIAN, 0, 8, "an impossible median"},
        {AT_COUNT, 1, 8, "an impossible median"},
        {NEXT + AT_NAMES + 5, 'a', 1, "the same key twice"},
        {NEXT + AT_NAMES, 'a', 1, "keys that do not ascend"},
        {NEXT + AT_FIRST, MINUS_TWO, 8, "an impossible first duration"},
    };
    expect_reasons(&bytes, KEY, changes, COUNT_OF(changes));
    expect_reason(&bytes, 12, 0, 4, "an impossible number of sources");
    expect_reason(&bytes, 56, UINT64_MAX, 8, "a length that points behind the end");
    memmove(bytes.data + HEADER_BYTES, bytes.data + HEADER_BYTES + SOURCE_BYTES, SOURCE_BYTES);
    expect_reason(&bytes, 40, 0, 8, "sources that do not ascend");
}

TEST(an_empty_note)
{
    static const cprof_name notes[] = {{"a", 1}, {"", 0}};
    cprof_snapshot *snapshot = collected(registry_new(0), (cprof_snapshot_remarks){.notes = notes, .note_count = 2});
    CHECK(round_trip(snapshot)->note_count == 2);
}

TEST(reasons_of_notes)
{
    static const cprof_name notes[] = {{"b", 1}, {"a", 1}, {"b", 1}};
    cprof_snapshot_remarks remarks = {.notes = notes, .note_count = 3};
    cprof_registry *registry = registry_new(0);
    cprof_snapshot *snapshot = collected(registry, remarks);
    CHECK(snapshot->note_count == 2 && snapshot->note_bytes == 6);
    byte_string bytes = encode(snapshot);
    expect_reason(&bytes, FIRST_KEY + 2, 'c', 1, "notes that do not ascend");
    expect_reason(&bytes, FIRST_KEY + 2, 'b', 1, "notes that do not ascend");
    expect_reason(&bytes, 64, 3, 8, "a length that points behind the end");
}

/* A snapshot of one key with that many errors. */
static cprof_snapshot *take_errors(uint64_t errors, uint64_t internal_errors)
{
    cprof_registry *registry = registry_new(0);
    finish(registry, "a", CPROF_OUTCOME_ERROR, 3 * MS);
    byte_string bytes = encode(take(registry, 1));
    cprof_snapshot *snapshot;
    put(bytes.data + FIRST_KEY + AT_ERRORS, errors, 8);
    put(bytes.data + 40, internal_errors, 8);
    seal(bytes.data, bytes.size);
    CHECK(decode(bytes.data, bytes.size, &snapshot, NULL) == CPROF_OK);
    return snapshot;
}

static void expect_sum(uint64_t errors, uint64_t internal_errors, cprof_status expected)
{
    cprof_snapshot *a = take_errors(errors, internal_errors);
    cprof_snapshot *b = take_errors(TWO_63 - 1 - errors, TWO_63 - 1 - internal_errors);
    cprof_snapshot *c = take_errors(1, 0);
    cprof_snapshot *d = take_errors(0, 1);
    cprof_snapshot *merged;
    cprof_snapshot_clash clash;
    const cprof_snapshot *const inputs[] = {a, b, errors == 0 ? c : d};
    CHECK(cprof_snapshot_merge(inputs, 2, &merged, &clash) == CPROF_OK);
    CHECK(see(merged, "a").figures.error_count == TWO_63 - 1 && merged->internal_errors == TWO_63 - 1);
    (void)round_trip(merged);
    cprof_snapshot_destroy(merged);
    CHECK(cprof_snapshot_merge(inputs, 3, &merged, &clash) == expected);
}

TEST(counts_do_not_wrap)
{
    expect_sum(0, 5, CPROF_OUT_OF_RANGE);
    expect_sum(5, 5, CPROF_OUT_OF_RANGE);
}

/* Memory */

TEST(memory_of_reading)
{
    for (int with_extra = 0; with_extra < 2; with_extra++) {
        cprof_registry *registry = registry_new(0);
        for (int i = 0; i < (with_extra ? 20 : 200); i++) {
            char node[16];
            (void)snprintf(node, sizeof node, "%d", i);
            finish(registry, node, CPROF_OUTCOME_ERROR, 1 * MS); /* the shortest of keys */
            if (with_extra) {
                cprof_accum_miss_gpu(accum_of(registry, "train", node), 1, CPROF_GPU_NO_CUDA);
            }
        }
        cprof_snapshot *snapshot = take(registry, 1);
        byte_string bytes = encode(snapshot);
        for (size_t at = 0; at + 16 < bytes.size; at += at < (with_extra ? 5 : 2) * KEY_BYTES ? 1 : 100) {
            uint8_t found[8];
            memcpy(found, bytes.data + at, 8);
            put(bytes.data + at, at == 0 ? bytes.data[0] : random_bits(), 1 << random_bits() % 4);
            seal(bytes.data, bytes.size);
            uint64_t before = fake_alloc_live_bytes();
            (void)fake_alloc_peak_bytes();
            cprof_snapshot_fault fault;
            if (cprof_snapshot_decode(bytes.data, bytes.size, &snapshot, &fault) == CPROF_OK) {
                cprof_snapshot_destroy(snapshot);
            }
            CHECK(fake_alloc_peak_bytes() - before < 2 * bytes.size + 4096);
            CHECK_EQUAL(fake_alloc_live_bytes(), before);
            memcpy(bytes.data + at, found, 8);
        }
    }
}

static cprof_status fail_visit(const material *m, cprof_snapshot **snapshot)
{
    *snapshot = NULL;
    seen key = {.node = "spans"};
    return cprof_snapshot_visit(m->inputs[0], look, &key);
}

TEST(allocations_that_fail)
{
    material m = {.registry = registry_new(0)};
    for (int i = 0; i < 400; i++) { /* so that a pool has mapped pages, too */
        char node[16];
        (void)snprintf(node, sizeof node, "%d", i);
        record(m.registry, node, i);
    }
    add_extra(m.registry, "399");
    cprof_snapshot *left = take_all_kinds(true);
    cprof_snapshot *right = take_all_kinds(true);
    m.inputs = (const cprof_snapshot *const[]){left, right};
    m.bytes = encode(left);
    expect_no_leak(fail_collect, &m, 12);
    expect_no_leak(fail_merge, &m, 10);
    expect_no_leak(fail_decode, &m, 8);
    expect_no_leak(fail_visit, &m, 1);
}

/* Whatever happens in a registry: what is kept up to date is to the bit what is made anew. */
TEST(refreshing_is_as_collecting)
{
    cprof_registry *registry = registry_new(0);
    cprof_name note = {"note", 4};
    cprof_snapshot_remarks remarks = {.taken_ns = 5, .cost_ns = 3, .notes = &note, .note_count = 1};
    cprof_snapshot_kept kept_one = {.snapshot = NULL};
    uint64_t state = 1;
    byte_string before = encode(collected(registry, remarks));
    for (int round = 0; round < 300; round++) {
        uint64_t events = check_random(&state) % 3;
        for (uint64_t i = 0; i < events; i++) {
            char node[16];
            uint64_t number = check_random(&state);
            (void)snprintf(node, sizeof node, "node %d", (int)(number % (1 + (uint64_t)round / 4)));
            number /= 1000;
            if (number % 40 == 0) {
                cprof_registry_reset(registry);
            } else if (number % 5 == 1) {
                record(registry, node, (double)(number % 977) / 3);
            } else {
                finish(registry, node, number % 7 == 0 ? CPROF_OUTCOME_ERROR : CPROF_OUTCOME_SUCCESS,
                       (cprof_ns)(number % 1000000));
            }
        }
        if (round % 50 == 0) {
            cprof_registry_configure(registry, CPROF_FLAG_STATS | (round % 100 == 0 ? CPROF_FLAG_P2 : 0), 0, false);
        }
        remarks.internal_errors += check_random(&state) % 8 == 0;
        bool has_changed = false;
        CHECK(cprof_snapshot_refresh(&kept_one, registry, &remarks, &has_changed) == CPROF_OK);
        CHECK(equal(kept_one.snapshot, collected(registry, remarks)));
        byte_string bytes = encode(kept_one.snapshot);
        bool is_other = bytes.size != before.size || memcmp(bytes.data, before.data, before.size) != 0;
        CHECK(has_changed || !is_other);
        CHECK(is_other || !has_changed || round % 50 == 0);
        before = bytes;
    }
    cprof_snapshot_drop(&kept_one);
}

TEST(refreshing_fails_as_a_whole)
{
    cprof_registry *registry = registry_new(0);
    cprof_snapshot_remarks remarks = {.taken_ns = 5};
    cprof_snapshot_kept kept_one = {.snapshot = NULL};
    bool has_changed = false;
    bool passes = false;
    for (uint64_t nth = 1; !passes; nth++) {
        CHECK(cprof_snapshot_refresh(&kept_one, registry, &remarks, &has_changed) == CPROF_OK);
        char node[16];
        (void)snprintf(node, sizeof node, "node %d", (int)nth);
        record(registry, node, 1);
        record(registry, "node 1", 2);
        fake_alloc_fail(nth);
        cprof_status status = cprof_snapshot_refresh(&kept_one, registry, &remarks, &has_changed);
        passes = !fake_alloc_has_failed();
        fake_alloc_fail(0);
        CHECK(status == (passes ? CPROF_OK : CPROF_NO_MEMORY));
        CHECK((kept_one.snapshot != NULL) == passes);
        has_changed = false;
        CHECK(cprof_snapshot_refresh(&kept_one, registry, &remarks, &has_changed) == CPROF_OK);
        CHECK(has_changed == !passes);
        CHECK(equal(kept_one.snapshot, collected(registry, remarks)));
    }
    cprof_snapshot_drop(&kept_one);
}

/* A thread that has stopped in the middle of a call; then everything is read anew. */
TEST(refreshing_waits_for_nobody_for_ever)
{
    cprof_registry *registry = registry_new(0);
    cprof_snapshot_remarks remarks = {.taken_ns = 5};
    cprof_snapshot_kept kept_one = {.snapshot = NULL};
    bool has_changed = false;
    record(registry, "a", 1);
    record(registry, "b", 2);
    CHECK(cprof_snapshot_refresh(&kept_one, registry, &remarks, &has_changed) == CPROF_OK);
    cprof_accum *stuck = accum_of(registry, "train", "a");
    cprof_lock_acquire(&stuck->lock);
    CHECK(cprof_snapshot_refresh(&kept_one, registry, &remarks, &has_changed) == CPROF_BUSY);
    CHECK(kept_one.snapshot == NULL);
    cprof_lock_release(&stuck->lock);
    CHECK(cprof_snapshot_refresh(&kept_one, registry, &remarks, &has_changed) == CPROF_OK);
    CHECK(equal(kept_one.snapshot, collected(registry, remarks)));
    cprof_snapshot_drop(&kept_one);
}

/* Without memory a histogram counts nothing; the first samples are kept nevertheless. */
TEST(histogram_that_lost_all)
{
    cprof_registry *registry = registry_new(0);
    cprof_accum *accum = accum_of(registry, "train", "a");
    for (int i = 0; i < 2; i++) {
        fake_alloc_fail(1);
        cprof_accum_record_ms(accum, 3.0 + i);
        CHECK(fake_alloc_has_failed());
    }
    cprof_snapshot *snapshot = take(registry, 1);
    cprof_snapshot *merged = merge((const cprof_snapshot *const[]){snapshot}, 1);
    seen key = see(round_trip(merged), "a");
    CHECK(key.figures.histogram_lost == 2 && key.figures.rows == 0 && key.figures.median_ms == 3.5);
    CHECK(see(snapshot, "a").figures.median_ms == 3.5);
}

/* Threads */

static _Atomic bool is_over;

static void *call(void *argument)
{
    for (int i = 0; i < CALLS; i++) {
        if (i % 2 == 0) {
            finish(argument, "a", CPROF_OUTCOME_SUCCESS, (i % 100 + 1) * MS);
        } else {
            record(argument, "b", 0.25);
        }
    }
    return NULL;
}

static void *reset(void *argument)
{
    while (!atomic_load(&is_over)) {
        cprof_registry_reset(argument);
        (void)sched_yield();
    }
    return NULL;
}

static void expect_consistent(const cprof_snapshot *snapshot)
{
    seen key = {.node = "a"};
    CHECK(cprof_snapshot_visit(snapshot, look, &key) == CPROF_OK);
    double total_ms = cprof_moments_total_ms(&key.figures.moments);
    double count = (double)key.figures.count;
    CHECK(count * key.figures.min_ms <= total_ms && total_ms <= count * key.figures.max_ms);
    uint64_t sum = 0;
    for (int i = 0; i < CPROF_HISTOGRAM_BUCKETS; i++) {
        sum += key.counts[i];
    }
    CHECK(sum == key.figures.count);
}

static uint64_t samples_of(const cprof_snapshot *snapshot)
{
    seen a = {.node = "a"};
    seen b = {.node = "b"};
    CHECK(cprof_snapshot_visit(snapshot, look, &a) == CPROF_OK && cprof_snapshot_visit(snapshot, look, &b) == CPROF_OK);
    return a.figures.count + b.figures.count;
}

/* Takes snapshots beside the calls; keeps the last. */
static void *take_many(void *argument)
{
    cprof_snapshot *last = take(argument, 1);
    while (!atomic_load(&is_over)) {
        cprof_snapshot *next = take(argument, 1);
        expect_consistent(next);
        bool is_newer = next->sources[0].generation > last->sources[0].generation;
        CHECK(is_newer || samples_of(next) >= samples_of(last));
        last = next;
    }
    return NULL;
}

/* Groups of its filled buckets: numbers and counts after each other. */
static size_t grouped(const cprof_snapshot *snapshot, const uint16_t *bounds, size_t count, uint64_t *found)
{
    uint64_t counts[8];
    uint16_t numbers[8];
    cprof_buckets groups = {counts, numbers, 3}; /* as it was used before */
    cprof_buckets buckets = cprof_snapshot_histogram(snapshot, 1, false);
    cprof_buckets_group(&buckets, bounds, count, &groups);
    for (size_t i = 0; i < groups.filled; i++) {
        found[2 * i] = numbers[i];
        found[2 * i + 1] = counts[i];
    }
    return groups.filled;
}

TEST(groups_of_buckets)
{
    cprof_registry *registry = registry_new(0);
    finish(registry, "other", CPROF_OUTCOME_SUCCESS, 5);
    for (cprof_ns elapsed_ns = 1000; elapsed_ns < 1024; elapsed_ns++) { /* buckets of 8 ns */
        finish(registry, "node", CPROF_OUTCOME_SUCCESS, elapsed_ns);
    }
    finish(registry, "node", CPROF_OUTCOME_SUCCESS, INT64_MAX);
    cprof_snapshot *snapshot = take(registry, 1);
    uint64_t found[16];
    const uint16_t last = CPROF_HISTOGRAM_BUCKETS - 1;
    const uint16_t middle = (uint16_t)cprof_histogram_index_ns(1008);
    const uint16_t bounds[] = {3, middle, (uint16_t)(middle + 1), last};
    CHECK(grouped(snapshot, NULL, 0, found) == 1 && found[0] == 0 && found[1] == 25);
    CHECK(grouped(snapshot, bounds, 4, found) == 4);
    const uint64_t expected[] = {1, 8, 2, 8, 3, 8, 4, 1};
    CHECK(memcmp(found, expected, sizeof expected) == 0);
    CHECK(cprof_snapshot_histogram(snapshot, 0, true).filled == 0); /* nothing was asked for */
}

TEST(threads)
{
    cprof_registry *registry = registry_new(0);
    for (int resets = 0; resets < 2; resets++) {
        void *(*const bodies[])(void *) = {take_many, take_many, reset};
        pthread_t beside[3];
        size_t count = resets ? 3 : 2;
        atomic_store(&is_over, false);
        for (size_t i = 0; i < count; i++) {
            beside[i] = check_thread(bodies[i], registry);
        }
        check_threads(THREADS, call, registry, 0);
        atomic_store(&is_over, true);
        for (size_t i = 0; i < count; i++) {
            check_join(beside[i]);
        }
        CHECK(resets || samples_of(take(registry, 1)) == (uint64_t)THREADS * CALLS);
    }
}

static cprof_status fail_bound(const material *m, cprof_snapshot **snapshot)
{
    *snapshot = NULL;
    uint64_t folded = 0;
    cprof_snapshot copy = *m->inputs[0];
    cprof_snapshot *merged;
    cprof_snapshot_clash clash;
    cprof_status status = cprof_snapshot_merge((const cprof_snapshot *const[]){&copy}, 1, &merged, &clash);
    if (status == CPROF_OK) {
        size_t keys = merged->key_count;
        status = cprof_snapshot_bound(merged, 1, 2, &folded);
        CHECK_EQUAL(merged->key_count, status == CPROF_OK ? 3 : keys);
        CHECK(folded == (status == CPROF_OK ? keys - 1 : 0));
        cprof_snapshot_destroy(merged);
    }
    return status;
}

static void expect_bound(const cprof_snapshot *from, size_t most, size_t most_stages, size_t keys, size_t folded)
{
    cprof_snapshot *bound = merge(&from, 1);
    uint64_t found = 0;
    CHECK_EQUAL(cprof_snapshot_bound(bound, most, most_stages, &found), CPROF_OK);
    CHECK_EQUAL(bound->key_count, keys);
    CHECK_EQUAL(found, folded);
    uint64_t samples = 0;
    for (size_t i = 0; i < bound->key_count; i++) {
        const cprof_snapshot_key *key = bound->in_order[i];
        samples += key->figures.count;
        bool is_first = !cprof_name_is(key->names.node, CPROF_REGISTRY_OVERFLOW);
        CHECK_EQUAL(is_first, i < most || folded == 0);
    }
    CHECK_EQUAL(samples, 10);
    (void)round_trip(bound);
}

/* Of ten keys of two stages the first stay; the others become one for each stage, or for all. */
TEST(keys_can_be_bounded)
{
    cprof_registry *registry = registry_new(0);
    for (int i = 0; i < 10; i++) {
        char node[2] = {(char)('0' + i), 0};
        cprof_accum_record_ms(accum_of(registry, i % 2 == 0 ? "even" : "odd", node), 1.5);
    }
    cprof_snapshot *snapshot = take(registry, 1);
    expect_bound(snapshot, 10, 0, 10, 0);
    expect_bound(snapshot, 8, 2, 10, 0);
    expect_bound(snapshot, 4, 2, 6, 6);
    expect_bound(snapshot, 4, 1, 5, 6);
    expect_bound(snapshot, 0, 2, 2, 10);
    material m = {.inputs = (const cprof_snapshot *const[]){snapshot}};
    expect_no_leak(fail_bound, &m, 10);
}

/* With an argument: the one test of that name. */
int main(int argc, char **argv)
{
    check_all.only = argc > 1 ? argv[1] : NULL;
    fake_alloc_install();
    check_run(NULL, drop_all);
    CHECK_EQUAL(fake_alloc_live(), 0);
    return EXIT_SUCCESS;
}
