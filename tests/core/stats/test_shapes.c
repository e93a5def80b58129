/* shapes.h, and what accum.h, registry.h and probe.h say of signatures (failure scenarios C1, D1, F5) */
#include "cprofiling/calls/call.h"
#include "cprofiling/stats/shapes.h"

#include "cprofiling/calls/probe.h"
#include "tests/core/fake_alloc.h"
#include "tests/core/node.h"

enum { THREADS = 8, SIGNATURES = 40, CALLS = 4000 };

#define US INT64_C(1000) /* in ns */
#define MS INT64_C(1000000)
#define NAME(text) ((cprof_name){text, sizeof(text) - 1})

static void begin(void)
{
    set_up();
    cprof_registry_configure(registry, CPROF_FLAG_STATS | CPROF_FLAG_SHAPES, 0, false);
}

static bool finish_as(cprof_outcome outcome, const char *signature, cprof_ns elapsed_ns)
{
    cprof_sample sample = {elapsed_ns, 0, 0};
    return cprof_accum_finish_shaped(accum, generation(), outcome, &sample, cprof_name_of(signature));
}

static bool finish(const char *signature, cprof_ns elapsed_ns)
{
    return finish_as(CPROF_OUTCOME_SUCCESS, signature, elapsed_ns);
}

/* What a reader finds of the one key. */
typedef struct {
    uint64_t count;
    uint64_t errors;
    bool has_shapes;
    size_t shapes;
    char signatures[CPROF_SHAPES_MOST][16];
    cprof_shape_figures figures[CPROF_SHAPES_MOST];
    uint64_t tails[CPROF_SHAPES_MOST];
    double quantiles_ms[CPROF_SHAPES_MOST][2];
    uint64_t in_buckets; /* of all */
    uint64_t slowest;
} seen;

static cprof_status look(void *context, cprof_names key, uint64_t order, const cprof_figures *figures, const uint64_t *counts)
{
    static uint64_t scratch[CPROF_HISTOGRAM_BUCKETS];
    static const double fractions[] = {0.5, 0.99};
    seen *found = context;
    (void)key;
    (void)order;
    (void)counts;
    *found = (seen){.count = figures->count, .errors = figures->error_count, .has_shapes = figures->shapes != NULL};
    if (!found->has_shapes) {
        return CPROF_OK;
    }
    const cprof_shapes_view *view = figures->shapes;
    found->shapes = view->count;
    CHECK(view->count <= CPROF_SHAPES_MOST);
    found->slowest = cprof_shapes_tails(view, scratch, found->tails);
    for (size_t i = 0; i < view->count; i++) {
        const cprof_shape_copy *item = &view->items[i];
        CHECK(item->signature.length < sizeof found->signatures[i]);
        memcpy(found->signatures[i], item->signature.bytes, item->signature.length);
        found->figures[i] = item->figures;
        cprof_shape_quantiles_ms(item, scratch, fractions, 2, found->quantiles_ms[i]);
        for (size_t k = 0; k < item->buckets.filled; k++) {
            CHECK(item->buckets.counts[k] > 0 && (k == 0 || item->buckets.indices[k - 1] < item->buckets.indices[k]));
            found->in_buckets += item->buckets.counts[k];
        }
    }
    for (size_t i = 0; i < CPROF_HISTOGRAM_BUCKETS; i++) {
        CHECK_EQUAL(scratch[i], 0);
    }
    return CPROF_OK;
}

static seen see(void)
{
    seen found = {.count = UINT64_MAX};
    cprof_generation epoch;
    CHECK(cprof_registry_visit(registry, look, &found, &epoch) == CPROF_OK);
    CHECK_EQUAL(epoch.unread, 0);
    return found;
}

TEST(each_signature_has_its_calls)
{
    CHECK(finish("a", 1 * MS) && finish("b", 5 * MS) && finish("a", 3 * MS) && finish("", 7));
    CHECK(!finish_as(CPROF_OUTCOME_ERROR, "b", 1) && !finish_as(CPROF_OUTCOME_CANCELLED, "c", 1));
    seen key = see();
    CHECK(key.count == 4 && key.errors == 1 && key.shapes == 4 && key.in_buckets == 4);
    CHECK(strcmp(key.signatures[0], "a") == 0 && strcmp(key.signatures[1], "b") == 0);
    CHECK(strcmp(key.signatures[2], "") == 0 && strcmp(key.signatures[3], "c") == 0);
    const cprof_shape_figures *f = key.figures;
    CHECK(f[0].count == 2 && f[0].total_ns == (cprof_u128)(4 * MS) && f[0].least_ns == 1 * MS && f[0].most_ns == 3 * MS);
    CHECK(f[1].count == 1 && f[1].error_count == 1 && f[1].cancelled_count == 0 && f[1].lost == 0);
    CHECK(f[2].count == 1 && f[2].least_ns == 7 && f[2].most_ns == 7);
    CHECK(f[3].count == 0 && f[3].cancelled_count == 1 && f[3].least_ns == UINT64_MAX && f[3].most_ns == 0);
    CHECK_NEAR(key.quantiles_ms[0][0], 1.0, 0.01);
    CHECK_NEAR(key.quantiles_ms[0][1], 3.0, 0.01);
    CHECK_NEAR(key.quantiles_ms[1][1], 5.0, 0); /* within the samples, exactly */
    CHECK(key.quantiles_ms[3][0] < 0 && key.quantiles_ms[3][1] < 0);
}

TEST(sixteen_are_kept_and_one_for_the_rest)
{
    char signature[16];
    for (int i = 0; i < SIGNATURES; i++) {
        (void)snprintf(signature, sizeof signature, "s%d", i);
        CHECK(finish(signature, (i + 1) * US));
    }
    CHECK(finish("s3", US) && finish("s30", US) && finish(CPROF_SHAPES_REST, US));
    seen key = see();
    CHECK_EQUAL(key.shapes, CPROF_SHAPES_MOST);
    for (size_t i = 0; i < CPROF_SHAPES_KEPT; i++) {
        (void)snprintf(signature, sizeof signature, "s%d", (int)i);
        CHECK(strcmp(key.signatures[i], signature) == 0);
        CHECK_EQUAL(key.figures[i].count, i == 3 ? 2 : 1);
    }
    CHECK(strcmp(key.signatures[16], CPROF_SHAPES_REST) == 0);
    CHECK_EQUAL(key.figures[16].count, SIGNATURES - CPROF_SHAPES_KEPT + 2);
    CHECK_EQUAL(key.in_buckets, key.count);
}

TEST(skips_drops_and_records_have_none)
{
    skip_first(2);
    CHECK(!finish("cold", 9 * MS) && !finish_as(CPROF_OUTCOME_ERROR, "bad", 1) && !finish("cold", 9 * MS) && finish("warm", 1));
    cprof_accum_record_ms(accum, 3.0);
    seen key = see();
    CHECK(key.count == 2 && key.shapes == 2 && strcmp(key.signatures[0], "bad") == 0);
    CHECK(strcmp(key.signatures[1], "warm") == 0 && key.figures[1].count == 1);
    uint64_t old = generation();
    cprof_sample sample = {1, 0, 0};
    cprof_registry_reset(registry);
    CHECK(!cprof_accum_finish_shaped(accum, old, CPROF_OUTCOME_SUCCESS, &sample, NAME("late")));
    CHECK(!cprof_accum_finish_shaped(accum, old, CPROF_OUTCOME_ERROR, &sample, NAME("late")));
    CHECK(!see().has_shapes);
    CHECK(!finish("x", 1) && !finish("x", 1) && finish("x", 1)); /* skips again */
    key = see();
    CHECK(key.count == 1 && key.shapes == 1 && key.figures[0].count == 1);
}

TEST(all_of_a_generation_goes_with_it)
{
    char signature[16];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SIGNATURES; i++) {
            (void)snprintf(signature, sizeof signature, "%c%d", 'a' + round, i);
            CHECK(finish(signature, (i + 1) * MS));
        }
        seen key = see();
        CHECK(key.signatures[0][0] == 'a' + round && key.count == SIGNATURES && key.shapes == CPROF_SHAPES_MOST);
        CHECK_EQUAL(key.figures[16].count, SIGNATURES - CPROF_SHAPES_KEPT);
        CHECK_EQUAL(key.figures[16].most_ns, SIGNATURES * MS);
        cprof_registry_reset(registry);
    }
}

TEST(what_was_not_asked_for_takes_nothing)
{
    cprof_registry_configure(registry, CPROF_FLAG_STATS, 0, false);
    cprof_sample sample = {1, 0, 0};
    CHECK(cprof_accum_finish(accum, generation(), CPROF_OUTCOME_SUCCESS, &sample));
    CHECK(accum->shapes == NULL && !see().has_shapes);
    CHECK(finish("a", 1)); /* of a call that began before */
    CHECK(see().count == 2 && see().shapes == 1);
}

/* The slowest: one in a hundred, ten at least, by buckets. */
TEST(who_makes_the_tail)
{
    for (int i = 0; i < 1960; i++) {
        CHECK(finish("even", 1 * MS + i)); /* a bucket or two */
    }
    for (int i = 0; i < 20; i++) {
        CHECK(finish("odd", 20 * MS + i * MS));
        CHECK(finish("slow", i < 5 ? 90 * MS : 1 * MS));
    }
    seen key = see();
    CHECK_EQUAL(key.slowest, 20);
    CHECK(key.tails[0] == 0 && key.tails[1] == 15 && key.tails[2] == 5);
    cprof_registry_reset(registry);
    for (int i = 0; i < 300; i++) {
        CHECK(finish(i % 30 == 0 ? "odd" : "even", i % 30 == 0 ? 5 * MS : 1 * MS));
    }
    key = see(); /* the last bucket with ten, which are allowed */
    CHECK(key.slowest == 10 && key.tails[0] == 10 && key.tails[1] == 0);
    CHECK(finish("odd", 5 * MS));
    key = see(); /* now it has more, and is it all the same */
    CHECK(key.slowest == 11 && key.tails[0] == 11);
    cprof_registry_reset(registry);
    for (int i = 0; i < 20; i++) {
        CHECK(finish("a", i < 4 ? 40 * MS : i < 10 ? 20 * MS : 1 * MS));
    }
    CHECK_EQUAL(see().slowest, 10); /* two buckets with ten */
    cprof_registry_reset(registry);
    CHECK(!finish_as(CPROF_OUTCOME_ERROR, "a", 1));
    CHECK(see().slowest == 0 && see().tails[0] == 0);
}

TEST(without_memory)
{
    for (uint64_t nth = 1; nth <= 2; nth++) {
        fake_alloc_fail(nth); /* all signatures; the first of them */
        cprof_accum_finish_shaped(accum, generation(), CPROF_OUTCOME_ERROR, NULL, NAME("a"));
        CHECK(fake_alloc_has_failed());
    }
    fake_alloc_fail(0);
    seen key = see();
    CHECK(key.errors == 2 && key.shapes == 1 && strcmp(key.signatures[0], CPROF_SHAPES_REST) == 0);
    CHECK_EQUAL(key.figures[0].error_count, 1);
    CHECK(finish("b", 5));
    fake_alloc_fail(2); /* the row of the signature's histogram, after that of the key's */
    CHECK(finish("b", 1 * MS));
    CHECK(fake_alloc_has_failed());
    fake_alloc_fail(0);
    key = see();
    CHECK(key.shapes == 2 && key.figures[0].count == 2 && key.figures[0].lost == 1 && key.figures[0].most_ns == 1 * MS);
    CHECK_NEAR(key.quantiles_ms[0][0], 5e-6, 0.02);
    seen nothing = {.count = 0};
    cprof_generation epoch;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        fake_alloc_fail(nth);
        CHECK(cprof_registry_visit(registry, look, &nothing, &epoch) == CPROF_NO_MEMORY);
        CHECK(fake_alloc_has_failed());
    }
}

TEST(probes_carry_signatures)
{
    cprof_thread *thread = cprof_thread_get();
    cprof_chain chain = {.moment = 1};
    static char longest[5000];
    memset(longest, 'x', sizeof longest);
    const cprof_name given[] = {NAME("one"), {longest, 4096}, NAME("two"), NAME("")};
    uint64_t state = cprof_registry_state(registry);
    for (size_t i = 0; i < COUNT_OF(given); i++) {
        cprof_probe *probe = cprof_probe_new(accum, state);
        CHECK(probe != NULL && probe->signature.length == 0);
        cprof_probe_set_signature(probe, given[i]);
        CHECK(probe->signature.length == given[i].length && probe->signature.bytes != given[i].bytes);
        CHECK(memcmp(probe->signature.bytes, given[i].bytes, given[i].length) == 0);
        cprof_span *span = cprof_call_open(thread, &chain, accum, state, NULL, NULL);
        CHECK(span != NULL);
        cprof_probe_begin(probe, thread, span);
        cprof_call_close(thread, &chain, span, CPROF_OUTCOME_SUCCESS, false);
    }
    cprof_probe *probe = cprof_probe_new(accum, state);
    cprof_probe *other = cprof_probe_new(accum, state); /* that has no room yet */
    fake_alloc_fail(1);
    cprof_probe_set_signature(other, NAME("three"));
    CHECK(fake_alloc_has_failed() && cprof_name_is(other->signature, CPROF_SHAPES_REST));
    cprof_probe_finish(probe, false, false);
    cprof_probe_finish(other, false, false);
    cprof_span *bare = cprof_call_open(thread, &chain, accum, state, NULL, NULL); /* for want of a probe */
    cprof_call_close(thread, &chain, bare, CPROF_OUTCOME_SUCCESS, false);
    cprof_span *label = cprof_call_open(thread, &chain, accum, CPROF_FLAG_SHAPES | CPROF_FLAG_TRACE, NULL, NULL);
    cprof_call_close(thread, &chain, label, CPROF_OUTCOME_SUCCESS, false);
    cprof_shapes *shapes = accum->shapes;
    CHECK(shapes->count == 4 && shapes->rest.figures.count == 1 && shapes->kept[1]->signature.length == 4096);
    CHECK(accum->count == 5);
}

static void *record_many(void *argument)
{
    uint64_t seed = (uintptr_t)argument;
    char signature[16];
    for (int i = 0; i < CALLS; i++) {
        (void)snprintf(signature, sizeof signature, "s%d", (int)(check_random(&seed) % SIGNATURES));
        (void)finish_as(i % 7 == 0 ? CPROF_OUTCOME_ERROR : CPROF_OUTCOME_SUCCESS, signature, (cprof_ns)(1 + seed % 1000));
    }
    return NULL;
}

/* Under threads that race for places, sixteen are kept, and at each moment the key has exactly the calls of all. */
TEST(threads)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        threads[i] = check_thread(record_many, (void *)(i + 1));
    }
    seen key;
    do {
        uint64_t samples = 0;
        uint64_t errors = 0;
        key = see();
        for (size_t i = 0; i < key.shapes; i++) {
            samples += key.figures[i].count;
            errors += key.figures[i].error_count;
        }
        CHECK(key.count == UINT64_MAX || (samples == key.count && errors == key.errors && key.in_buckets == samples));
    } while (key.count == UINT64_MAX || key.count + key.errors < (uint64_t)THREADS * CALLS);
    for (int i = 0; i < THREADS; i++) {
        check_join(threads[i]);
    }
    CHECK_EQUAL(key.shapes, CPROF_SHAPES_MOST);
    CHECK_EQUAL(key.errors, (uint64_t)THREADS * ((CALLS + 6) / 7));
}

int main(void)
{
    fake_alloc_install();
    check_run(begin, tear_down);
    return EXIT_SUCCESS;
}
