/* accum.h, with stripes: the same figures as without them. */
#define _GNU_SOURCE
#include "cprofiling/calls/call.h"
#include "cprofiling/nodes/accum.h"
#include "cprofiling/nodes/thread.h"

#include "tests/core/fake_alloc.h"
#include "tests/core/node.h"

#include <unistd.h>

enum { THREADS = 8, CALLS = 20000, OPERATIONS = 200000, RECORDS = 11 };

static cprof_accum *plain; /* a key in which nobody meets */
static cprof_thread records[RECORDS];
static uint64_t now_ticks;

static void *succeed_once(void *key)
{
    cprof_sample sample = {.elapsed_ns = 1000, .stop = ++now_ticks};
    cprof_accum_finish(key, generation(), CPROF_OUTCOME_SUCCESS, &sample);
    return NULL;
}

/* Lets threads meet at the lock until the key has stripes; or, without memory, `times` times. Returns how often they called. */
static uint64_t meet(int times)
{
    uint64_t calls = 0;
    while (atomic_load(&accum->stripes) == NULL && times-- > 0) {
        cprof_lock_acquire(&accum->lock);
        pthread_t thread = check_thread(succeed_once, accum);
        (void)usleep(2000);
        cprof_lock_release(&accum->lock);
        check_join(thread);
        calls++;
    }
    return calls;
}

static void set_up_both(void)
{
    set_up();
    plain = cprof_registry_accum(registry, (cprof_names){{"val", 3}, {"node", 4}});
    for (uint32_t i = 0; i < RECORDS; i++) {
        records[i].ordinal = i;
    }
    now_ticks = 1;
}

static void tear_down_both(void)
{
    cprof_thread_self = NULL;
    tear_down();
}

static cprof_status copy_of(cprof_accum *key, cprof_figures *figures, uint64_t *counts)
{
    uint64_t order;
    cprof_generation now = cprof_epoch_present(&registry->epoch);
    memset(figures, 0, sizeof *figures);
    return cprof_accum_copy(key, &now, INT64_MAX, figures, counts, &order, NULL);
}

static void check_same(void)
{
    static uint64_t other_counts[CPROF_HISTOGRAM_BUCKETS];
    cprof_figures figures, others;
    cprof_status status = copy_of(accum, &figures, all_counts);
    CHECK(copy_of(plain, &others, other_counts) == status);
    if (status != CPROF_OK) {
        return;
    }
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): both were zeroed, and no figure is -0 */
    CHECK(memcmp(&figures, &others, sizeof figures) == 0);
    size_t begin = cprof_histogram_begin_of(figures.rows), end = cprof_histogram_end_of(figures.rows);
    CHECK(end <= begin || memcmp(&all_counts[begin], &other_counts[begin], (end - begin) * sizeof *all_counts) == 0);
    uint64_t changes = 0, other_changes = 1;
    CHECK(cprof_accum_changes(accum, generation(), INT64_MAX, &changes) == CPROF_OK);
    CHECK(cprof_accum_changes(plain, generation(), INT64_MAX, &other_changes) == CPROF_OK);
    CHECK_EQUAL(changes, other_changes);
}

static void finish_both(uint64_t of, cprof_outcome outcome, const cprof_sample *sample)
{
    bool is_sample = cprof_accum_finish(accum, of, outcome, sample);
    cprof_thread *self = cprof_thread_self;
    cprof_thread_self = NULL;
    CHECK(cprof_accum_finish(plain, of, outcome, sample) == is_sample);
    cprof_thread_self = self;
}

static void operate(uint64_t *random)
{
    uint64_t draw = check_random(random), of = generation();
    cprof_thread_self = draw % 13 < RECORDS ? &records[draw % 13] : NULL;
    cprof_ns elapsed_ns = (cprof_ns)(check_random(random) >> (20 + check_random(random) % 40));
    cprof_sample sample = {.elapsed_ns = elapsed_ns, .stop = ++now_ticks};
    sample.nested_ns = (draw & 0xf00) == 0 ? -1 : (draw & 64) != 0 ? elapsed_ns / 2 : 0;
    sample.suspended_ns = (draw & 0x7000) == 0 ? elapsed_ns / 3 : (draw & 0x78000) == 0 ? -1 : 0;
    unsigned p2 = (draw & 0x80) != 0 ? CPROF_FLAG_P2 : 0U;
    switch ((draw >> 20) % 500) {
    case 0:
        cprof_epoch_reset(&registry->epoch);
        break;
    case 1:
        cprof_registry_configure(registry, CPROF_FLAG_STATS | p2, (draw >> 40) % 20, false);
        break;
    case 2:
    case 3:
        finish_both(of - 1, CPROF_OUTCOME_SUCCESS, &sample);
        break;
    case 4:
    case 5:
        finish_both(of, CPROF_OUTCOME_ERROR, &sample);
        break;
    case 6:
        finish_both(of, CPROF_OUTCOME_CANCELLED, &sample);
        break;
    case 7:
        cprof_accum_record_ms(accum, (double)(elapsed_ns % 1000) / 8.0);
        cprof_accum_record_ms(plain, (double)(elapsed_ns % 1000) / 8.0);
        break;
    default:
        finish_both(of, CPROF_OUTCOME_SUCCESS, &sample);
    }
}

static cprof_ticks next_tick(void)
{
    return now_ticks;
}

/* C1, E14, B3: whatever happens, in whichever thread, the figures are those of a key without stripes. */
TEST(random_operations)
{
    uint64_t random = 20;
    CHECK(meet(10000) > 0);
    cprof_epoch_reset(&registry->epoch);
    cprof_clock_set_test(next_tick);
    for (int i = 0; i < OPERATIONS; i++) {
        operate(&random);
        if (i % 50 == 0) {
            check_same();
        }
    }
    cprof_clock_set_test(NULL);
    check_same();
}

/* Calls of two threads, in any order: the last one is that which ended last. */
TEST(the_last_call_of_two_threads)
{
    static cprof_span spans[2];
    cprof_chain chain = {.top = NULL};
    CHECK(meet(10000) > 0);
    cprof_clock_set_test(next_tick);
    records[0].free_spans = &spans[0];
    records[1].free_spans = &spans[1];
    for (uint64_t i = 1; i < 10; i++) {
        cprof_thread_self = &records[i % 3 % 2];
        uint64_t state = cprof_registry_state(registry);
        cprof_span *span = cprof_call_open(cprof_thread_self, &chain, accum, state, registry, NULL);
        now_ticks += i;
        cprof_call_close(cprof_thread_self, &chain, span, CPROF_OUTCOME_SUCCESS, false);
        CHECK(figures_now().last_ms == (double)i / 1e6);
    }
    cprof_clock_set_test(NULL);
}

TEST(a_stripe_that_is_read_elsewhere)
{
    CHECK(meet(10000) > 0);
    cprof_accum *stripes = atomic_load(&accum->stripes);
    cprof_figures figures;
    uint64_t order, changes;
    cprof_generation now = cprof_epoch_present(&registry->epoch);
    cprof_lock_acquire(&stripes[CPROF_STRIPES - 1].lock);
    CHECK(cprof_accum_copy(accum, &now, 0, &figures, all_counts, &order, NULL) == CPROF_BUSY);
    CHECK(cprof_accum_changes(accum, now.generation, 0, &changes) == CPROF_BUSY);
    cprof_lock_release(&stripes[CPROF_STRIPES - 1].lock);
    CHECK(cprof_accum_copy(accum, &now, 0, &figures, all_counts, &order, NULL) == CPROF_OK);
    cprof_thread_self = &records[1];
    uint64_t in_stripes = 0;
    for (int i = 0; i < 10; i++) {
        (void)succeed_once(accum);
    }
    for (size_t i = 0; i < CPROF_STRIPES; i++) {
        in_stripes += stripes[i].count;
    }
    CHECK(in_stripes >= 9); /* the first may find them closed */
}

TEST(without_memory)
{
    for (int i = 0; i < 20; i++) {
        (void)succeed_once(accum); /* the histogram's row is there */
    }
    uint64_t calls = 20;
    do {
        fake_alloc_fail(1);
        calls += meet(1);
    } while (!fake_alloc_has_failed() && atomic_load(&accum->stripes) == NULL);
    CHECK(atomic_load(&accum->stripes) == NULL);
    CHECK_EQUAL(figures_now().count, calls);
    CHECK(meet(10000) > 0);
    CHECK(atomic_load(&accum->stripes) != NULL);
    cprof_thread_self = &records[1];
    (void)succeed_once(accum); /* opens the stripe */
    fake_alloc_fail(1);
    (void)succeed_once(accum);
    CHECK(fake_alloc_has_failed());
    CHECK_EQUAL(figures_now().histogram_lost, 1);
}

static void *succeed_often(void *record)
{
    cprof_thread_self = record;
    for (uint64_t i = 0; i < CALLS; i++) {
        cprof_sample sample = {.elapsed_ns = (cprof_ns)i + 1, .stop = i};
        cprof_accum_finish(accum, generation(), i % 100 != 0 ? CPROF_OUTCOME_SUCCESS : CPROF_OUTCOME_ERROR, &sample);
    }
    cprof_thread_self = NULL;
    return record;
}

static void *read_often(void *unused)
{
    static uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
    for (uint64_t last = 0; last < THREADS * CALLS / 100 * 99;) {
        cprof_figures figures = {.count = 0};
        CHECK(copy_of(accum, &figures, counts) == CPROF_OK || last == 0);
        uint64_t sum = 0;
        for (size_t i = cprof_histogram_begin_of(figures.rows); i < cprof_histogram_end_of(figures.rows); i++) {
            sum += counts[i];
        }
        CHECK(sum == figures.count && figures.count >= last);
        last = figures.count;
    }
    return unused;
}

TEST(threads)
{
    pthread_t reader = check_thread(read_often, NULL);
    check_threads(THREADS, succeed_often, records, sizeof *records);
    check_join(reader);
    cprof_figures figures = figures_now();
    CHECK_EQUAL(figures.count, THREADS * CALLS / 100 * 99);
    CHECK_EQUAL(figures.error_count, THREADS * CALLS / 100);
    CHECK(figures.min_ms == 2e-6 && figures.max_ms == CALLS / 1e6);
}

FAKE_ALLOC_MAIN(set_up_both, tear_down_both)
