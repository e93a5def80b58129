/* What snapshots know by signature: snapshot_merge.h (failure scenarios D14, E10, I9) */
#include "cprofiling/files/snapshot_merge.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"
#include "tests/core/snapshots.h"

enum { PARTS = 4, ORDERS = 12, SAMPLES = 80, SIGNATURES = 30, HEAD = 68 };

#define MS INT64_C(1000000)

static uint64_t seed = 11;

static void finish(cprof_registry *registry, const char *node, const char *signature, cprof_outcome outcome,
                   cprof_ns elapsed_ns)
{
    cprof_sample sample = {elapsed_ns, 0, 0};
    (void)cprof_accum_finish_shaped(accum_of(registry, "train", node), cprof_epoch_present(&registry->epoch).generation,
                                    outcome, &sample, cprof_name_of(signature));
}

static cprof_registry *shaped_registry(void)
{
    cprof_registry *registry = registry_new(0);
    cprof_registry_configure(registry, CPROF_FLAG_STATS | CPROF_FLAG_SHAPES, 0, false);
    return registry;
}

static cprof_snapshot *take(cprof_registry *registry, uint64_t taken_ns)
{
    return collected(registry, (cprof_snapshot_remarks){.taken_ns = taken_ns});
}

static const cprof_shapes_view *shapes_of(const cprof_snapshot *snapshot, const char *node)
{
    for (size_t i = 0; i < snapshot->key_count; i++) {
        if (cprof_name_is(snapshot->keys[i]->names.node, node)) {
            return snapshot->keys[i]->figures.shapes;
        }
    }
    CHECK(!"the key is there");
    return NULL;
}

/* One key without signatures, two with. */
static cprof_registry *small_registry(void)
{
    cprof_registry *registry = shaped_registry();
    finish(registry, "a", "float32[2]", CPROF_OUTCOME_SUCCESS, 1 * MS);
    finish(registry, "a", "float32[2]", CPROF_OUTCOME_SUCCESS, 2 * MS);
    finish(registry, "a", "", CPROF_OUTCOME_ERROR, 1);
    finish(registry, "b", "int64[]", CPROF_OUTCOME_CANCELLED, 1);
    cprof_accum_record_ms(accum_of(registry, "train", "c"), 1.5);
    return registry;
}

static cprof_status count_shapes(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                                 const uint64_t *counts)
{
    (void)names;
    (void)order;
    (void)counts;
    *(size_t *)context += figures->shapes != NULL ? figures->shapes->count : 0;
    return CPROF_OK;
}

TEST(round_trip)
{
    cprof_registry *registry = small_registry();
    cprof_snapshot *snapshot = take(registry, 5);
    const cprof_shapes_view *a = shapes_of(snapshot, "a");
    CHECK(a->count == 2 && a->items[0].signature.length == 0 && cprof_name_is(a->items[1].signature, "float32[2]"));
    CHECK(a->items[0].figures.error_count == 1 && a->items[1].figures.count == 2 && a->items[1].buckets.filled == 2);
    CHECK(shapes_of(snapshot, "b")->items[0].figures.cancelled_count == 1 && shapes_of(snapshot, "c") == NULL);
    cprof_snapshot *copy = round_trip(snapshot);
    CHECK(shapes_of(copy, "a")->items[1].figures.total_ns == (cprof_u128)(3 * MS));
    size_t found = 0;
    CHECK(cprof_snapshot_visit(copy, count_shapes, &found) == CPROF_OK);
    CHECK_EQUAL(found, 3);
    byte_string bytes = encode(snapshot);
    CHECK_EQUAL(bytes.data[8], CPROF_SNAPSHOT_VERSION);
}

TEST(without_signatures_the_flag_is_not_set)
{
    cprof_registry *registry = registry_new(0);
    cprof_accum_record_ms(accum_of(registry, "train", "c"), 1.5);
    cprof_snapshot *snapshot = take(registry, 5);
    byte_string bytes = encode(snapshot);
    uint8_t flags = bytes.data[FIRST_KEY + AT_FLAGS];
    CHECK((flags & 4) == 0);
    expect_reason(&bytes, FIRST_KEY + AT_FLAGS, flags | 4U, 2, "a number of signatures");
}

static cprof_snapshot *random_part(void)
{
    cprof_registry *registry = shaped_registry();
    for (int i = 0; i < SAMPLES; i++) {
        char signature[16], node[2] = {(char)('a' + check_random(&seed) % 3), '\0'};
        (void)snprintf(signature, sizeof signature, "s%d", (int)(check_random(&seed) % SIGNATURES));
        finish(registry, node, signature, (cprof_outcome)(check_random(&seed) % 5 / 3 * (1 + check_random(&seed) % 2)),
               (cprof_ns)(check_random(&seed) >> (1 + check_random(&seed) % 63)));
    }
    cprof_snapshot *part = take(registry, 5);
    return part;
}

TEST(merging_has_no_order)
{
    const cprof_snapshot *parts[PARTS];
    for (int i = 0; i < PARTS; i++) {
        parts[i] = random_part();
    }
    cprof_snapshot *all = merge(parts, PARTS);
    const cprof_shapes_view *view = shapes_of(all, "a");
    uint64_t samples = 0;
    bool has_rest = false;
    for (size_t i = 0; i < view->count; i++) {
        samples += view->items[i].figures.count;
        has_rest = has_rest || cprof_name_is(view->items[i].signature, CPROF_SHAPES_REST);
        CHECK(i == 0 || cprof_name_compare(view->items[i - 1].signature, view->items[i].signature) < 0);
    }
    CHECK(has_rest && view->count > CPROF_SHAPES_MOST && samples == all->keys[0]->figures.count); /* all are kept */
    for (int round = 0; round < ORDERS; round++) {
        for (int i = PARTS - 1; i > 0; i--) {
            size_t other = check_random(&seed) % (uint64_t)(i + 1);
            const cprof_snapshot *moved = parts[i];
            parts[i] = parts[other];
            parts[other] = moved;
        }
        cprof_snapshot *left = merge_two(parts[0], parts[1]);
        cprof_snapshot *right = merge_two(parts[2], parts[3]);
        cprof_snapshot *both = merge_two(right, left);
        CHECK(equal(both, all));
        (void)round_trip(both);
    }
}

TEST(counts_that_would_be_too_large)
{
    cprof_snapshot *parts[2];
    for (int i = 0; i < 2; i++) {
        cprof_registry *registry = shaped_registry();
        finish(registry, "a", "x", CPROF_OUTCOME_ERROR, 1);
        parts[i] = take(registry, 5);
        ((cprof_shape_copy *)parts[i]->keys[0]->figures.shapes->items)->figures.error_count = TWO_63 - 1;
    }
    cprof_snapshot *merged;
    cprof_snapshot_clash clash;
    CHECK(cprof_snapshot_merge((const cprof_snapshot *const *)parts, 2, &merged, &clash) == CPROF_OUT_OF_RANGE);
}

TEST(reasons)
{
    cprof_registry *registry = shaped_registry();
    finish(registry, "a", "ab", CPROF_OUTCOME_SUCCESS, 1 * MS);
    finish(registry, "a", "ab", CPROF_OUTCOME_SUCCESS, 9 * MS);
    finish(registry, "a", "cd", CPROF_OUTCOME_SUCCESS, 2 * MS);
    finish(registry, "a", "cd", CPROF_OUTCOME_ERROR, 1);
    cprof_snapshot *snapshot = take(registry, 5);
    byte_string bytes = encode(snapshot);
    size_t begin = FIRST_KEY + KEY_BYTES + 6 /* names */ + 3 * 10; /* buckets */
    size_t texts = 4 + 2 * HEAD;
    const change changes[] = {
        {0, 0, 4, "a number of signatures"},
        {0, 3, 4, "a number of signatures"},
        {0, UINT32_MAX, 4, "a number of signatures"},
        {4, 9, 2, "a number of signatures"},               /* length */
        {6, 3, 2, "a number of signatures"},               /* buckets */
        {8, 3, 8, "an impossible time of a signature"},    /* count */
        {8, TWO_63, 8, "an impossible count"},             /* too large */
        {32, 3, 8, "an impossible count"},                 /* lost */
        {32, 1, 8, "a histogram of another number"},       /* lost */
        {40, 9 * MS + 1, 8, "an impossible time"},         /* least */
        {48, TWO_63, 8, "an impossible time"},             /* most */
        {56, 11 * MS, 8, "an impossible time"},            /* sum */
        {40, 1 * MS + MS / 2, 8, "an impossible time"},    /* least: another sum */
        {4 + HEAD + 12, 2, 8, "more calls of signatures"}, /* errors */
        {texts, 'x', 1, "signatures that do not ascend"},
        {texts, 'c' | 'd' << 8, 2, "signatures that do not ascend"}, /* the same twice */
        {texts, 0, 1, "a signature that is too long or no UTF-8"},
        {texts, 0xff, 1, "a signature that is too long or no UTF-8"},
        {texts + 4, UINT16_MAX, 2, "an impossible bucket"},
        {texts + 4, 3, 2, "a histogram of other times"},
        {texts + 8, 2, 8, "a histogram of another number"},
    };
    expect_reasons(&bytes, begin, changes, COUNT_OF(changes));
    for (size_t size = 0; size < bytes.size; size++) {
        expect_refused(bytes.data, size);
    }
    for (size_t bit = 0; bit < bytes.size * 8; bit++) { /* with a checksum that fits, nothing but no crash */
        bytes.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        seal(bytes.data, bytes.size);
        cprof_snapshot *changed = NULL;
        if (decode(bytes.data, bytes.size, &changed, NULL) == CPROF_OK) {
            (void)round_trip(changed);
        }
        bytes.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

/* What no bucket had room for is missing in the histogram alone. */
TEST(lost_samples)
{
    cprof_registry *registry = shaped_registry();
    finish(registry, "a", "ab", CPROF_OUTCOME_SUCCESS, 1 * MS);
    finish(registry, "a", "ab", CPROF_OUTCOME_SUCCESS, 1 * MS);
    byte_string bytes = encode(take(registry, 5));
    size_t begin = FIRST_KEY + KEY_BYTES + 6 /* names */ + 10; /* a bucket */
    size_t lost = begin + 32, counted = begin + 4 + HEAD + 4;
    expect_reason(&bytes, lost, 1, 8, "a histogram of another number");
    expect_reason(&bytes, counted, 1, 8, "a histogram of another number");
    put(bytes.data + lost, 1, 8);
    put(bytes.data + counted, 1, 8);
    seal(bytes.data, bytes.size);
    cprof_snapshot *snapshot;
    CHECK(decode(bytes.data, bytes.size, &snapshot, NULL) == CPROF_OK);
    (void)round_trip(snapshot);
}

TEST(without_memory)
{
    cprof_registry *registries[] = {small_registry(), small_registry()};
    const cprof_snapshot *const parts[] = {take(registries[0], 5), take(registries[1], 6)};
    const material m = {registries[0], parts, encode(parts[0])};
    expect_no_leak(fail_collect, &m, 4);
    expect_no_leak(fail_merge, &m, 4);
    expect_no_leak(fail_decode, &m, 4);
}

FAKE_ALLOC_MAIN(NULL, drop_all)
