/* registry.h. Linked with --wrap for the random numbers of which ids are made. */
#define _GNU_SOURCE
#include "cprofiling/nodes/registry.h"

#include "cprofiling/base/alloc.h"
#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_KEYS = CPROF_REGISTRY_MAX_KEYS,
    MAX_STAGES = CPROF_REGISTRY_MAX_OVERFLOW_STAGES,
    SHARE = 14, /* keys in a slab */
    MOST_BYTES_PER_KEY = 2 * 1024,
    PAUSE_US = 20000,
};

static bool random_fails;

WRAP_REAL(ssize_t, getrandom, void *buffer, size_t size, unsigned flags)
{
    return random_fails ? -1 : real_getrandom(buffer, size, flags);
}

static cprof_names key(const char *stage, const char *node)
{
    return (cprof_names){{stage, strlen(stage)}, {node, strlen(node)}};
}

static bool is_key(cprof_names names, const char *stage, const char *node)
{
    return names.stage.length == strlen(stage) && names.node.length == strlen(node) &&
           memcmp(names.stage.bytes, stage, names.stage.length) == 0 && memcmp(names.node.bytes, node, names.node.length) == 0;
}

static uint64_t generation_of(cprof_registry *registry)
{
    return cprof_epoch_present(&registry->epoch).generation;
}

static unsigned flags_of(cprof_registry *registry)
{
    return (unsigned)(cprof_registry_state(registry) & CPROF_FLAG_ALL);
}

static void finish(cprof_registry *registry, cprof_accum *accum)
{
    cprof_sample sample = {.elapsed_ns = 1000};
    CHECK(accum != NULL);
    cprof_accum_finish(accum, generation_of(registry), CPROF_OUTCOME_SUCCESS, &sample);
}

/* What a visit met. */
typedef struct {
    size_t count;
    size_t stop_after;
    cprof_names names[8];
    uint64_t order[8];
    uint64_t samples;
} visit;

static cprof_status note(void *context, cprof_names names, uint64_t order, const cprof_figures *figures, const uint64_t *counts)
{
    visit *met = context;
    CHECK(counts != NULL);
    if (met->count < sizeof met->names / sizeof met->names[0]) {
        met->names[met->count] = names;
        met->order[met->count] = order;
    }
    met->samples += figures->count;
    return ++met->count == met->stop_after ? CPROF_OUT_OF_RANGE : CPROF_OK;
}

static visit visit_all(cprof_registry *registry)
{
    visit met = {.count = 0};
    cprof_generation epoch;
    CHECK(cprof_registry_visit(registry, note, &met, &epoch) == CPROF_OK);
    CHECK_EQUAL(epoch.generation, generation_of(registry));
    return met;
}

static cprof_registry *registry;

static void set_up(void)
{
    registry = cprof_registry_create(0);
    CHECK(registry != NULL);
}

static void tear_down(void)
{
    cprof_registry_destroy(registry);
}

TEST(new_registry)
{
    CHECK_EQUAL(flags_of(registry), 0);
    CHECK_EQUAL(generation_of(registry), 1);
    CHECK_EQUAL(cprof_epoch_present(&registry->epoch).skip_first_n, 0);
    CHECK_EQUAL(visit_all(registry).count, 0);
    CHECK_EQUAL(registry->refused_keys, 0);
    cprof_registry_destroy(NULL);
}

TEST(ids_differ)
{
    cprof_registry *registries[4];
    for (int i = 0; i < 4; i++) {
        random_fails = i >= 2;
        registries[i] = cprof_registry_create(0);
        CHECK(registries[i] != NULL);
        for (int k = 0; k < i; k++) {
            CHECK(memcmp(registries[i]->id, registries[k]->id, CPROF_REGISTRY_ID_BYTES) != 0);
        }
    }
    random_fails = false;
    for (int i = 0; i < 4; i++) {
        cprof_registry_destroy(registries[i]);
    }
}

/* The statistics are discarded by `reset`, and by turning on with another skip_first_n than theirs; by nothing else. */
TEST(configure)
{
    static const struct {
        uint64_t flags;
        uint64_t skip_first_n;
        uint64_t reset;
        uint64_t discards;
        uint64_t skips_of_statistics;
    } steps[] = {
        {CPROF_FLAG_STATS, 0, false, false, 0},
        {CPROF_FLAG_STATS | CPROF_FLAG_SYNC, 0, false, false, 0},
        {CPROF_FLAG_STATS, 0, true, true, 0},
        {0, 0, false, false, 0},
        {0, 5, false, false, 0},
        {CPROF_FLAG_STATS, 5, false, true, 5},
        {CPROF_FLAG_STATS, 5, false, false, 5},
        {0, 0, false, false, 5},
        {CPROF_FLAG_STATS, 5, false, false, 5},
        {0, 7, true, true, 7},
        {CPROF_FLAG_ALL & ~CPROF_FLAG_P2, 7, false, false, 7},
        {CPROF_FLAG_STATS, INT64_MAX, true, true, INT64_MAX},
    };
    uint64_t generation = 1;
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        cprof_registry_configure(registry, (unsigned)steps[i].flags, steps[i].skip_first_n, steps[i].reset != 0);
        generation += steps[i].discards;
        CHECK_EQUAL(flags_of(registry), steps[i].flags);
        CHECK_EQUAL(generation_of(registry), generation);
        CHECK_EQUAL(cprof_epoch_present(&registry->epoch).skip_first_n, steps[i].skips_of_statistics);
    }
}

TEST(reset_keeps_the_configuration)
{
    cprof_registry_configure(registry, CPROF_FLAG_STATS | CPROF_FLAG_SYNC, 3, false);
    uint64_t generation = generation_of(registry);
    cprof_registry_reset(registry);
    cprof_registry_reset(registry);
    CHECK_EQUAL(generation_of(registry), generation + 2);
    CHECK_EQUAL(flags_of(registry), CPROF_FLAG_STATS | CPROF_FLAG_SYNC);
    CHECK_EQUAL(cprof_epoch_present(&registry->epoch).skip_first_n, 3);
}

/* A recording may add what is configured as well: that stays when the recording ends, or others are configured meanwhile. */
TEST(added_flags_take_none_away)
{
    cprof_registry_configure(registry, CPROF_FLAG_STATS | CPROF_FLAG_SYNC, 0, false);
    cprof_registry_record_owner(0, CPROF_FLAG_TRACE | CPROF_FLAG_SYNC);
    CHECK_EQUAL(flags_of(registry), CPROF_FLAG_STATS | CPROF_FLAG_SYNC | CPROF_FLAG_TRACE);
    cprof_registry_reset(registry);
    cprof_registry_record_owner(0, 0);
    CHECK_EQUAL(flags_of(registry), CPROF_FLAG_STATS | CPROF_FLAG_SYNC);
    cprof_registry_record_owner(0, CPROF_FLAG_TRACE | CPROF_FLAG_SYNC);
    cprof_registry_configure(registry, CPROF_FLAG_STATS, 0, false);
    CHECK_EQUAL(flags_of(registry), CPROF_FLAG_STATS | CPROF_FLAG_SYNC | CPROF_FLAG_TRACE);
    cprof_registry_record_owner(0, 0);
    CHECK_EQUAL(flags_of(registry), CPROF_FLAG_STATS);
    CHECK_EQUAL(generation_of(registry), 1 + 1);
}

TEST(keys)
{
    cprof_accum *resize = cprof_registry_accum(registry, key("train", "resize"));
    CHECK(resize != NULL);
    CHECK((uintptr_t)resize % 64 == 0);
    CHECK(resize->registry == registry);
    CHECK(cprof_registry_accum(registry, key("train", "resize")) == resize);
    CHECK(cprof_registry_accum(registry, key("val", "resize")) != resize);
    CHECK(cprof_registry_accum(registry, key("train", "norm")) != resize);
    CHECK_EQUAL(registry->names.count, 3);
}

/* Keys are visited in the order of their making, and know that of their first finished calls. */
TEST(order)
{
    cprof_accum *a = cprof_registry_accum(registry, key("train", "a"));
    cprof_accum *b = cprof_registry_accum(registry, key("train", "b"));
    cprof_accum *c = cprof_registry_accum(registry, key("val", "a"));
    CHECK_EQUAL(visit_all(registry).count, 0); /* no call has finished */
    finish(registry, c);
    finish(registry, a);
    finish(registry, c);
    visit met = visit_all(registry);
    CHECK_EQUAL(met.count, 2);
    CHECK_EQUAL(met.samples, 3);
    CHECK(is_key(met.names[0], "train", "a") && is_key(met.names[1], "val", "a"));
    CHECK(met.order[0] > met.order[1]);
    cprof_registry_reset(registry);
    CHECK_EQUAL(visit_all(registry).count, 0);
    finish(registry, b);
    finish(registry, c);
    met = visit_all(registry);
    CHECK_EQUAL(met.count, 2);
    CHECK(is_key(met.names[0], "train", "b") && is_key(met.names[1], "val", "a"));
    CHECK(met.order[0] < met.order[1]);
}

TEST(visitor_may_stop)
{
    finish(registry, cprof_registry_accum(registry, key("train", "a")));
    finish(registry, cprof_registry_accum(registry, key("train", "b")));
    finish(registry, cprof_registry_accum(registry, key("train", "c")));
    visit met = {.stop_after = 2};
    cprof_generation epoch;
    CHECK(cprof_registry_visit(registry, note, &met, &epoch) == CPROF_OUT_OF_RANGE);
    CHECK_EQUAL(met.count, 2);
    CHECK_EQUAL(visit_all(registry).count, 3); /* nothing stayed locked */
    cprof_registry_reset(registry);
}

static _Atomic bool is_resetting;

static void *reset_it(void *unused)
{
    atomic_store(&is_resetting, true);
    cprof_registry_reset(registry);
    return unused;
}

/* The context: the thread that tries to reset the registry. */
typedef struct {
    pthread_t thread;
    size_t count;
} contest;

static cprof_status contest_reset(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                                  const uint64_t *counts)
{
    contest *held = context;
    uint64_t state = cprof_registry_state(registry);
    (void)names, (void)order, (void)figures, (void)counts;
    if (held->count++ == 0) {
        held->thread = check_thread(reset_it, NULL);
    }
    while (!atomic_load(&is_resetting)) {
        (void)sched_yield();
    }
    (void)usleep(PAUSE_US); /* in which the reset would take effect */
    CHECK_EQUAL(cprof_registry_state(registry), state);
    return CPROF_OK;
}

/* C3: no reset takes effect during a visit. */
TEST(reset_waits_for_a_visit)
{
    contest held = {.count = 0};
    cprof_generation epoch;
    finish(registry, cprof_registry_accum(registry, key("train", "a")));
    finish(registry, cprof_registry_accum(registry, key("train", "b")));
    CHECK(cprof_registry_visit(registry, contest_reset, &held, &epoch) == CPROF_OK);
    check_join(held.thread);
    CHECK_EQUAL(held.count, 2);
    CHECK_EQUAL(epoch.generation, 1);
    CHECK_EQUAL(generation_of(registry), 2);
}

static _Atomic bool stop;

/* The first generation has no skips, the next one has, and so on in turn. */
static void *begin_generations(void *unused)
{
    for (uint64_t skip_first_n = 1; !atomic_load(&stop); skip_first_n ^= 1) {
        cprof_registry_configure(registry, CPROF_FLAG_STATS, skip_first_n, true);
    }
    return unused;
}

/* A generation is never met with the skips of another. */
TEST(present_is_of_one_moment)
{
    uint64_t last = 0;
    pthread_t thread = check_thread(begin_generations, NULL);
    for (int changes = 0; changes < 2000;) {
        cprof_generation now = cprof_epoch_present(&registry->epoch);
        CHECK_EQUAL(now.skip_first_n, (now.generation + 1) % 2);
        CHECK(now.generation >= last);
        changes += now.generation != last;
        last = now.generation;
    }
    atomic_store(&stop, true);
    check_join(thread);
}

static cprof_accum *numbered(const char *stage, int number)
{
    char node[16];
    (void)snprintf(node, sizeof node, "%d", number);
    return cprof_registry_accum(registry, key(stage, node));
}

TEST(accumulators_never_move)
{
    enum { KEYS = 500 };
    static cprof_accum *accums[KEYS];
    uint64_t mapped_bytes = fake_alloc_mapped_bytes();
    for (int i = 0; i < KEYS; i++) {
        accums[i] = numbered("train", i);
        finish(registry, accums[i]);
    }
    CHECK(fake_alloc_mapped_bytes() - mapped_bytes <= (uint64_t)(KEYS + SHARE) * MOST_BYTES_PER_KEY);
    for (int i = 0; i < KEYS; i++) {
        CHECK(numbered("train", i) == accums[i]);
        CHECK_EQUAL(accums[i]->count, 1);
    }
    visit met = visit_all(registry);
    CHECK_EQUAL(met.count, KEYS);
    CHECK_EQUAL(met.samples, KEYS);
}

/* F5: one key of each stage takes what finds no place of its own, and one key what finds no stage. */
TEST(overflow)
{
    tear_down();
    cprof_alloc_set_hooks(NULL); /* the system's pages cost nothing until they are touched */
    set_up();
    for (int i = 0; i < MAX_KEYS; i++) {
        CHECK(numbered("train", i) != NULL);
    }
    CHECK_EQUAL(registry->names.count, MAX_KEYS);
    CHECK_EQUAL(registry->refused_keys, 0);
    cprof_accum *overflow = numbered("train", MAX_KEYS);
    CHECK(overflow != NULL && overflow == numbered("train", MAX_KEYS + 1));
    CHECK(overflow == cprof_registry_accum(registry, key("train", "__overflow__")));
    CHECK(overflow != numbered("train", 0));
    CHECK_EQUAL(registry->refused_keys, 2);
    cprof_accum *other = numbered("val", 0);
    CHECK(other != overflow && other == numbered("val", 1));
    CHECK_EQUAL(registry->names.count, MAX_KEYS + 2);
    finish(registry, overflow);
    finish(registry, overflow);
    finish(registry, other);
    visit met = visit_all(registry);
    CHECK_EQUAL(met.count, 2);
    CHECK(is_key(met.names[0], "train", "__overflow__") && is_key(met.names[1], "val", "__overflow__"));
    tear_down();
    fake_alloc_install();
    set_up();
}

TEST(overflow_of_stages)
{
    char stage[32];
    tear_down();
    cprof_alloc_set_hooks(NULL);
    set_up();
    for (int i = 0; i < MAX_KEYS; i++) {
        CHECK(numbered("train", i) != NULL);
    }
    for (int i = 0; i < MAX_STAGES + 10; i++) {
        (void)snprintf(stage, sizeof stage, "stage %d", i);
        finish(registry, numbered(stage, 0));
    }
    CHECK_EQUAL(registry->names.count, MAX_KEYS + MAX_STAGES + 1);
    CHECK_EQUAL(registry->refused_keys, MAX_STAGES + 10);
    cprof_names last = cprof_names_at(&registry->names, registry->names.count - 1);
    CHECK(is_key(last, "__overflow__", "__overflow__"));
    visit met = visit_all(registry);
    CHECK_EQUAL(met.count, MAX_STAGES + 1);
    CHECK_EQUAL(met.samples, MAX_STAGES + 10);
    CHECK(numbered("stage 3", 77) == numbered("stage 3", 0));
    tear_down();
    fake_alloc_install();
    set_up();
}

/* G7 */
TEST(create_without_memory)
{
    uint64_t live = fake_alloc_live();
    fake_alloc_fail(1);
    CHECK(cprof_registry_create(0) == NULL);
    CHECK_EQUAL(fake_alloc_live(), live);
}

/* Each allocation that the making of a key needs fails once; then nothing was changed. */
TEST(keys_without_memory)
{
    uint64_t refusals = 0;
    for (int i = 0; i < 200; i++) {
        for (uint64_t nth = 1;; nth++) {
            fake_alloc_fail(nth);
            cprof_accum *accum = numbered("train", i);
            if (!fake_alloc_has_failed()) {
                CHECK(accum != NULL);
                finish(registry, accum);
                break;
            }
            refusals++;
            CHECK(accum == NULL);
            CHECK_EQUAL(registry->names.count, i);
            CHECK_EQUAL(visit_all(registry).count, i);
        }
    }
    CHECK(refusals > 200);
    CHECK_EQUAL(visit_all(registry).samples, 200);
}

/* A reader holds up a writer no longer than it copies that writer's key: while a visitor looks at one, all can be updated, and
 * keys be added. */
static cprof_status write_everywhere_and_stop(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                                              const uint64_t *counts)
{
    (void)context;
    (void)names;
    (void)order;
    (void)counts;
    CHECK_EQUAL(figures->count, 1);
    for (int i = 0; i < 20; i++) {
        finish(registry, numbered("val", i));
    }
    return CPROF_BAD_FORMAT; /* any other than CPROF_OK: the visit ends here */
}

TEST(writers_go_on_during_a_visit)
{
    cprof_generation epoch;
    cprof_registry_configure(registry, CPROF_FLAG_STATS, 0, false);
    finish(registry, numbered("val", 0));
    CHECK(cprof_registry_visit(registry, write_everywhere_and_stop, NULL, &epoch) == CPROF_BAD_FORMAT);
    CHECK_EQUAL(visit_all(registry).samples, 21);
}

TEST(visit_without_memory)
{
    cprof_generation epoch;
    visit met = {.count = 0};
    cprof_registry_configure(registry, CPROF_FLAG_STATS, 0, false);
    for (unsigned nth = 1; nth <= 2; nth++) { /* the second one is for shapes */
        finish(registry, cprof_registry_accum(registry, key("train", "a")));
        fake_alloc_fail(nth);
        CHECK(cprof_registry_visit(registry, note, &met, &epoch) == CPROF_NO_MEMORY);
        CHECK(fake_alloc_has_failed());
        CHECK_EQUAL(met.count, 0);
        uint64_t made = fake_alloc_made();
        CHECK_EQUAL(visit_all(registry).count, 1);
        CHECK_EQUAL(fake_alloc_made() - made, nth);
        cprof_registry_configure(registry, CPROF_FLAG_STATS | CPROF_FLAG_SHAPES, 0, false);
    }
}

/* A reader that keeps what it has seen. */
static visit visit_changed(cprof_registry_seen *seen)
{
    visit met = {.count = 0};
    cprof_generation epoch;
    CHECK(cprof_registry_visit_changed(registry, seen, note, &met, &epoch) == CPROF_OK);
    CHECK_EQUAL(epoch.unread, 0);
    return met;
}

TEST(a_reader_is_shown_what_has_changed)
{
    cprof_registry_seen seen = {.count = 0};
    cprof_generation epoch;
    cprof_accum *accums[SHARE * 3];
    CHECK_EQUAL(visit_changed(&seen).count, 0);
    for (int i = 0; i < SHARE * 3; i++) {
        accums[i] = numbered("train", i);
        finish(registry, accums[i]);
    }
    CHECK_EQUAL(visit_changed(&seen).count, SHARE * 3);
    CHECK_EQUAL(visit_changed(&seen).count, 0);
    uint64_t generation = generation_of(registry);
    const cprof_sample sample = {.elapsed_ns = 1000};
    const cprof_launch_counts launch = {.launches = 1};
    const cprof_resources_sample waits = {.asked = CPROF_RESOURCES_WAITS, .waits = 1, .wait_ns = 5};
    cprof_accum_finish(accums[0], generation, CPROF_OUTCOME_ERROR, &sample);
    cprof_accum_finish(accums[1], generation, CPROF_OUTCOME_CANCELLED, &sample);
    cprof_accum_finish(accums[2], generation - 1, CPROF_OUTCOME_SUCCESS, &sample); /* dropped */
    cprof_accum_record_ms(accums[3], 1);
    cprof_accum_add_gpu(accums[SHARE], generation, 1000, 10, false);
    cprof_accum_miss_gpu(accums[SHARE + 1], generation, CPROF_GPU_LOST);
    cprof_accum_add_launches(accums[SHARE + 2], generation, &launch);
    cprof_accum_add_sample(accums[SHARE * 3 - 1], generation, &waits);
    visit met = {.count = 0, .stop_after = 7};
    CHECK(cprof_registry_visit_changed(registry, &seen, note, &met, &epoch) == CPROF_OUT_OF_RANGE);
    met = visit_changed(&seen); /* where it was stopped, it was not seen */
    CHECK_EQUAL(met.count, 2);
    CHECK(cprof_registry_accum(registry, met.names[0]) == accums[SHARE + 2]);
    CHECK(cprof_registry_accum(registry, met.names[1]) == accums[SHARE * 3 - 1]);
    CHECK_EQUAL(visit_changed(&seen).count, 0);
    cprof_registry_reset(registry);
    CHECK_EQUAL(visit_changed(&seen).count, 0);
    finish(registry, accums[7]); /* one sample, as it had before */
    CHECK_EQUAL(visit_changed(&seen).count, 1);
    cprof_registry_configure(registry, CPROF_FLAG_STATS | CPROF_FLAG_P2, 1, false);
    finish(registry, accums[7]); /* skipped */
    CHECK_EQUAL(visit_changed(&seen).count, 1);
    cprof_registry_configure(registry, CPROF_FLAG_STATS, 1, false); /* its median is another now */
    CHECK_EQUAL(visit_changed(&seen).count, 1);
    CHECK_EQUAL(visit_changed(&seen).count, 0);
    finish(registry, numbered("train", 100));
    fake_alloc_fail(1);
    CHECK(cprof_registry_visit_changed(registry, &seen, note, &met, &epoch) == CPROF_NO_MEMORY);
    CHECK_EQUAL(visit_changed(&seen).count, 1);
    cprof_alloc_release(seen.changes);
}

/* C10: a thread that has stopped in the middle of an update keeps a lock for ever. Readers end, and say what is missing. */
TEST(a_stopped_thread_holds_no_reader_up)
{
    cprof_generation epoch;
    visit met = {.count = 0};
    cprof_accum *stuck = cprof_registry_accum(registry, key("train", "a"));
    finish(registry, stuck);
    finish(registry, cprof_registry_accum(registry, key("train", "b")));
    cprof_lock_acquire(&stuck->lock);
    CHECK(cprof_registry_visit(registry, note, &met, &epoch) == CPROF_OK);
    CHECK_EQUAL(met.count, 1);
    CHECK_EQUAL(epoch.unread, 1);
    cprof_lock_release(&stuck->lock);
    cprof_lock_acquire(&registry->table_lock);
    CHECK(cprof_registry_visit(registry, note, &met, &epoch) == CPROF_OK);
    CHECK_EQUAL(met.count, 1);
    CHECK_EQUAL(epoch.unread, 1);
    cprof_lock_release(&registry->table_lock);
    cprof_lock_acquire(&registry->epoch.lock);
    CHECK(cprof_registry_visit(registry, note, &met, &epoch) == CPROF_BUSY);
    cprof_lock_release(&registry->epoch.lock);
    CHECK(cprof_registry_visit(registry, note, &met, &epoch) == CPROF_OK);
    CHECK_EQUAL(met.count, 3);
    CHECK_EQUAL(epoch.unread, 0);
}

static void *release_soon(void *lock)
{
    static const struct timespec moment = {.tv_nsec = 20000000};
    (void)nanosleep(&moment, NULL);
    cprof_lock_release(lock);
    return NULL;
}

TEST(readers_wait_for_a_moment)
{
    cprof_generation epoch;
    visit met = {.count = 0};
    finish(registry, cprof_registry_accum(registry, key("train", "a")));
    cprof_lock_acquire(&registry->epoch.lock);
    pthread_t other = check_thread(release_soon, &registry->epoch.lock);
    CHECK(cprof_registry_visit(registry, note, &met, &epoch) == CPROF_OK);
    check_join(other);
    CHECK_EQUAL(met.count, 1);
}

/* What could not be read counts as not seen. */
TEST(a_stopped_thread_hides_no_change)
{
    cprof_registry_seen seen = {.count = 0};
    cprof_generation epoch;
    visit met = {.count = 0};
    cprof_accum *stuck = cprof_registry_accum(registry, key("train", "a"));
    cprof_accum *other = cprof_registry_accum(registry, key("train", "b"));
    finish(registry, stuck);
    CHECK_EQUAL(visit_changed(&seen).count, 1);
    finish(registry, stuck);
    finish(registry, other);
    cprof_lock_acquire(&stuck->lock);
    CHECK(cprof_registry_visit_changed(registry, &seen, note, &met, &epoch) == CPROF_OK);
    cprof_lock_release(&stuck->lock);
    CHECK_EQUAL(met.count, 1);
    CHECK(cprof_registry_accum(registry, met.names[0]) == other);
    CHECK_EQUAL(epoch.unread, 1);
    met = visit_changed(&seen);
    CHECK_EQUAL(met.count, 1);
    CHECK(cprof_registry_accum(registry, met.names[0]) == stuck);
    CHECK_EQUAL(visit_changed(&seen).count, 0);
    cprof_alloc_release(seen.changes);
}

TEST(after_fork_in_child)
{
    uint8_t id[CPROF_REGISTRY_ID_BYTES];
    cprof_registry_configure(registry, CPROF_FLAG_STATS | CPROF_FLAG_SYNC, 2, false);
    cprof_registry_record_owner(0, CPROF_FLAG_TRACE | CPROF_FLAG_SYNC);
    finish(registry, cprof_registry_accum(registry, key("train", "a")));
    CHECK_EQUAL(visit_all(registry).count, 1);
    memcpy(id, registry->id, sizeof id);
    cprof_registry_before_fork();
    cprof_registry_after_fork_in_child();
    CHECK(memcmp(id, registry->id, sizeof id) != 0);
    CHECK_EQUAL(visit_all(registry).count, 0);
    CHECK_EQUAL(flags_of(registry), CPROF_FLAG_STATS | CPROF_FLAG_SYNC); /* of the recording it has no part */
    CHECK_EQUAL(cprof_epoch_present(&registry->epoch).skip_first_n, 2);
    cprof_registry_keep_at_fork(registry);
    finish(registry, cprof_registry_accum(registry, key("train", "a")));
    cprof_registry_before_fork();
    cprof_registry_after_fork_in_child();
    CHECK_EQUAL(visit_all(registry).count, 1);
}

/* Keys that eight threads make at once, and find again. */
static void *make_keys(void *unused)
{
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 300; i++) {
            cprof_accum *accum = numbered("train", i);
            finish(registry, accum);
            CHECK(accum == numbered("train", i));
        }
        (void)visit_all(registry);
    }
    return unused;
}

TEST(threads_make_the_same_keys)
{
    check_threads(8, make_keys, NULL, 0);
    visit met = visit_all(registry);
    CHECK_EQUAL(met.count, 300);
    CHECK_EQUAL(met.samples, 8 * 3 * 300);
}

static void *come_and_go(void *unused)
{
    for (int i = 0; i < 2000; i++) {
        cprof_registry *other = cprof_registry_create(1);
        CHECK(other != NULL);
        cprof_registry_record_owner(1, i % 2 == 0 ? CPROF_FLAG_TRACE : 0);
        cprof_registry_before_fork();
        cprof_registry_after_fork_in_parent();
        cprof_registry_destroy(other);
    }
    return unused;
}

TEST(registries_of_many_threads)
{
    check_threads(8, come_and_go, NULL, 0);
    cprof_registry_record_owner(0, CPROF_FLAG_TRACE);
    CHECK_EQUAL(flags_of(registry), CPROF_FLAG_TRACE);
    cprof_registry_record_owner(0, 0);
}

FAKE_ALLOC_MAIN(set_up, tear_down)
