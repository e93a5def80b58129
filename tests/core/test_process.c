/* process.h: what a forked child finds (D1), whatever the threads of its parent were doing. Argument: the number of forks under
 * load, 200 by default. */
#define _GNU_SOURCE
#include "cprofiling/base/random.h"
#include "cprofiling/process.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/calls/call.h"
#include "tests/core/check.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    THREADS = 8,
    NUMBERS = 2000,
    KEYS = 16,
    PASSING_KEYS = 2000,
    SKIPS = 2,
    ELAPSED_NS = 12345,
    ARENA = 8 * 1024 * 1024,
};

static uint64_t forks = 200;
static cprof_registry *registry;
static cprof_accum *accums[KEYS];
static uint64_t counts[CPROF_HISTOGRAM_BUCKETS];

static cprof_names key(const char *node)
{
    return (cprof_names){{"train", 5}, {node, strlen(node)}};
}

static cprof_accum *numbered(uint64_t number)
{
    char node[32];
    (void)snprintf(node, sizeof node, "%" PRIu64, number);
    cprof_accum *accum = cprof_registry_accum(registry, key(node));
    CHECK(accum != NULL);
    return accum;
}

static void set_up(uint64_t skip_first_n)
{
    registry = cprof_registry_create(0);
    CHECK(registry != NULL);
    cprof_registry_configure(registry, CPROF_FLAG_STATS | CPROF_FLAG_SYNC, skip_first_n, false);
    for (uint64_t i = 0; i < KEYS; i++) {
        accums[i] = numbered(i);
    }
}

static void tear_down(void)
{
    cprof_process_end_registry(registry);
    registry = NULL;
}

static void finish(cprof_accum *accum)
{
    cprof_sample sample = {ELAPSED_NS, 0, 0};
    cprof_accum_finish(accum, cprof_epoch_present(&registry->epoch).generation, CPROF_OUTCOME_SUCCESS, &sample);
}

static cprof_figures figures_of(cprof_accum *accum)
{
    cprof_figures figures;
    uint64_t order;
    memset(counts, 0, sizeof counts);
    cprof_generation now = cprof_epoch_present(&registry->epoch);
    CHECK(cprof_accum_copy(accum, &now, INT64_MAX, &figures, counts, &order, NULL) == CPROF_OK);
    return figures;
}

static cprof_status count_keys(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                               const uint64_t *row_counts)
{
    (void)names, (void)order, (void)figures, (void)row_counts;
    ++*(uint64_t *)context;
    return CPROF_OK;
}

static uint64_t keys_with_figures(void)
{
    uint64_t count = 0;
    cprof_generation epoch;
    CHECK(cprof_registry_visit(registry, count_keys, &count, &epoch) == CPROF_OK);
    return count;
}

/* While the process has one thread: the child ends as a program does. */
static void in_child(void (*run)(void))
{
    IN_CHILD
    {
        run();
        tear_down();
    }
}

static _Atomic uint8_t drawn[THREADS * NUMBERS + 1];

static void *draw_numbers(void *unused)
{
    for (int i = 0; i < NUMBERS; i++) {
        uint64_t number = cprof_random_serial();
        CHECK(number >= 1 && number <= THREADS * NUMBERS);
        CHECK_EQUAL(atomic_fetch_add(&drawn[number], 1), 0);
    }
    return unused;
}

TEST(numbers_are_unique)
{
    check_threads(THREADS, draw_numbers, NULL, 0);
    CHECK_EQUAL(cprof_random_serial(), THREADS * NUMBERS + 1);
}

static uint32_t epoch_of_parent;

static void check_epoch(void)
{
    CHECK_EQUAL(atomic_load(&cprof_lock_epoch), epoch_of_parent + 1);
}

TEST(one_fork_handler)
{
    epoch_of_parent = atomic_load(&cprof_lock_epoch);
    cprof_process_start();
    cprof_process_start();
    in_child(check_epoch);
    CHECK_EQUAL(atomic_load(&cprof_lock_epoch), epoch_of_parent);
}

static cprof_registry *listed[3];

static void check_listed(void)
{
    for (int i = 0; i < 3; i++) {
        CHECK(listed[i] == NULL || cprof_epoch_present(&listed[i]->epoch).generation == 2);
    }
}

/* Registries are taken out of the list in every order; the child meets those that are left. */
static void count_up(void *count)
{
    ++*(int *)count;
}

TEST(watches_of_forks)
{
    int counted[3] = {0};
    cprof_process_watch watches[COUNT_OF(counted)];
    for (size_t i = 0; i < COUNT_OF(counted); i++) {
        watches[i] = (cprof_process_watch){count_up, &counted[i], NULL};
        cprof_process_begin_watch(&watches[i]);
    }
    cprof_process_end_watch(&watches[1]);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        cprof_process_end_watch(&watches[0]);
        _exit(counted[0] == 1 && counted[1] == 0 && counted[2] == 1 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(counted[0] == 0 && counted[2] == 0);
    cprof_process_end_watch(&watches[0]);
    cprof_process_end_watch(&watches[2]);
}

TEST(list_of_registries)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < COUNT_OF(orders); i++) {
        for (int k = 0; k < 3; k++) {
            listed[k] = cprof_registry_create(0);
            CHECK(listed[k] != NULL);
        }
        for (int k = 0; k < 3; k++) {
            in_child(check_listed);
            cprof_process_end_registry(listed[orders[i][k]]);
            listed[orders[i][k]] = NULL;
        }
    }
    in_child(check_listed);
}

static uint8_t id_of_parent[CPROF_REGISTRY_ID_BYTES];

/* Same configuration, empty statistics, another identity. */
static void check_fresh(void)
{
    CHECK_EQUAL(keys_with_figures(), 0);
    CHECK_EQUAL(cprof_registry_state(registry) & CPROF_FLAG_ALL, CPROF_FLAG_STATS | CPROF_FLAG_SYNC);
    CHECK_EQUAL(cprof_epoch_present(&registry->epoch).skip_first_n, SKIPS);
    CHECK(memcmp(registry->id, id_of_parent, sizeof id_of_parent) != 0);
}

/* Each key counts from nothing, whatever was half-written in it when the fork came. */
static void use_every_key(void)
{
    for (int i = 0; i < KEYS; i++) {
        for (int k = 0; k < SKIPS + 3; k++) {
            finish(accums[i]);
        }
        cprof_figures figures = figures_of(accums[i]);
        CHECK_EQUAL(figures.count, 3);
        CHECK_EQUAL(figures.skipped_count, SKIPS);
        CHECK(figures.moments.total_ns == 3 * ELAPSED_NS);
        CHECK(figures.min_ms == figures.max_ms && figures.median_ms == figures.last_ms);
        CHECK_EQUAL(figures.rows & (figures.rows - 1), 0);
        CHECK_EQUAL(counts[cprof_histogram_index((uint64_t)ELAPSED_NS * CPROF_HISTOGRAM_ROW)], 3);
    }
    CHECK_EQUAL(keys_with_figures(), KEYS);
}

static void use_everything(void)
{
    check_fresh();
    use_every_key();
    finish(cprof_registry_accum(registry, key("new in the child")));
    cprof_registry_reset(registry);
    CHECK_EQUAL(keys_with_figures(), 0);
    cprof_chain chain = {.top = NULL};
    cprof_thread *thread = cprof_thread_get();
    cprof_span *span = cprof_call_open(thread, &chain, accums[0], cprof_registry_state(registry), NULL, NULL);
    CHECK(span != NULL);
    cprof_call_close(thread, &chain, span, CPROF_OUTCOME_SUCCESS, false);
    CHECK_EQUAL(keys_with_figures(), 1);
    cprof_registry *other = cprof_registry_create(0);
    CHECK(other != NULL);
    cprof_process_end_registry(other);
}

/* A child, and a child of that. */
static void use_in_grandchild(void)
{
    use_everything();
    memcpy(id_of_parent, registry->id, sizeof id_of_parent);
    finish(accums[0]);
    in_child(use_everything);
    CHECK(figures_of(accums[0]).skipped_count == SKIPS);
}

TEST(child_is_usable)
{
    set_up(SKIPS);
    memcpy(id_of_parent, registry->id, sizeof id_of_parent);
    for (int i = 0; i < 10; i++) {
        finish(accums[i]);
    }
    in_child(use_everything);
    in_child(use_in_grandchild);
    CHECK_EQUAL(keys_with_figures(), 10);
    CHECK(memcmp(registry->id, id_of_parent, sizeof id_of_parent) == 0);
    tear_down();
}

static cprof_chain chain;
static cprof_span *open_span;

static void close_open_span(void)
{
    cprof_call_close(cprof_thread_get(), &chain, open_span, CPROF_OUTCOME_SUCCESS, false);
    CHECK_EQUAL(figures_of(accums[0]).count, 0);
    CHECK_EQUAL(figures_of(accums[0]).dropped_count, 1);
}

/* A node open at the fork is not recorded in the child; in the parent it is. */
TEST(open_nodes)
{
    set_up(0);
    open_span = cprof_call_open(cprof_thread_get(), &chain, accums[0], cprof_registry_state(registry), NULL, NULL);
    CHECK(open_span != NULL);
    in_child(close_open_span);
    cprof_call_close(cprof_thread_get(), &chain, open_span, CPROF_OUTCOME_SUCCESS, false);
    CHECK_EQUAL(figures_of(accums[0]).count, 1);
    CHECK_EQUAL(figures_of(accums[0]).dropped_count, 0);
    tear_down();
}

/* The allocator of a sanitizer may be locked in a child by a thread that does not exist there; that of the system may not. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static _Alignas(4096) unsigned char arena[ARENA];
static size_t arena_used;

static void *arena_zeroed(size_t size)
{
    void *memory = arena + arena_used;
    arena_used += (size + 4095) / 4096 * 4096;
    CHECK(arena_used <= sizeof arena);
    return memory;
}

static void *arena_resize(void *memory, size_t size)
{
    void *larger = arena_zeroed(size);
    return memory != NULL ? memcpy(larger, memory, size / 2) : larger; /* the core's tables double */
}

static void arena_release(void *memory)
{
    (void)memory;
}

static void arena_unmap(void *memory, size_t size)
{
    (void)memory, (void)size;
}

static const cprof_alloc_hooks arena_hooks = {arena_zeroed, arena_resize, arena_release, arena_zeroed, arena_unmap};

static void use_allocator_of_child(void)
{
    cprof_alloc_set_hooks(&arena_hooks);
}
#else
static void use_allocator_of_child(void)
{
}
#endif

/* While the process has several threads: the child ends at once. */
static void in_child_under_load(void (*run)(void))
{
    IN_CHILD
    {
        use_allocator_of_child();
        run();
        _exit(EXIT_SUCCESS);
    }
}

static _Atomic bool stop;
static _Atomic uint64_t finished;

/* Calls of all keys, keys that come and go by, summaries. */
static void *load(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    uint64_t count = 0;
    for (; !atomic_load(&stop); count++) {
        uint64_t choice = check_random(&random);
        if (choice % 64 == 0) {
            finish(numbered(KEYS + choice / 64 % PASSING_KEYS));
        } else if (choice % 1024 == 1) {
            CHECK(keys_with_figures() <= KEYS + PASSING_KEYS);
            count--;
        } else {
            finish(accums[choice / 64 % KEYS]);
        }
    }
    atomic_fetch_add(&finished, count);
    return NULL;
}

static cprof_status sum_calls(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                              const uint64_t *row_counts)
{
    (void)names, (void)order, (void)row_counts;
    *(uint64_t *)context += figures->count + figures->skipped_count;
    return CPROF_OK;
}

TEST(forks_under_load)
{
    pthread_t threads[THREADS];
    uint64_t sum = 0;
    cprof_generation epoch;
    set_up(SKIPS);
    memcpy(id_of_parent, registry->id, sizeof id_of_parent);
    for (uintptr_t i = 0; i < THREADS; i++) {
        threads[i] = check_thread(load, (void *)i);
    }
    for (uint64_t i = 0; i < forks; i++) {
        in_child_under_load(use_everything);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++) {
        check_join(threads[i]);
    }
    CHECK(cprof_registry_visit(registry, sum_calls, &sum, &epoch) == CPROF_OK);
    CHECK_EQUAL(sum, atomic_load(&finished)); /* the parent lost nothing */
    CHECK_EQUAL(epoch.generation, 1 + 1);     /* set_up began the second */
    tear_down();
}

static void *reconfigure(void *unused)
{
    while (!atomic_load(&stop)) {
        cprof_registry_configure(registry, CPROF_FLAG_STATS, 0, true);
        cprof_registry_configure(registry, 0, SKIPS, true);
    }
    return unused;
}

static void check_configuration(void)
{
    bool is_on = (cprof_registry_state(registry) & CPROF_FLAG_ALL) != 0;
    CHECK_EQUAL(cprof_epoch_present(&registry->epoch).skip_first_n, is_on ? 0 : SKIPS);
}

/* The child has the configuration before a change or the one after it. */
TEST(fork_keeps_one_configuration)
{
    set_up(0);
    cprof_registry_configure(registry, 0, SKIPS, true);
    atomic_store(&stop, false);
    pthread_t thread = check_thread(reconfigure, NULL);
    for (uint64_t i = 0; i < forks; i++) {
        in_child_under_load(check_configuration);
    }
    atomic_store(&stop, true);
    check_join(thread);
    tear_down();
}

static _Atomic int gate; /* 1: the next release waits behind it, 2: it does, 0: open */

static void *plain_zeroed(size_t size)
{
    return calloc(1, size);
}

static void release_behind_gate(void *memory)
{
    int closed = 1;
    free(memory);
    if (atomic_compare_exchange_strong(&gate, &closed, 2)) {
        while (atomic_load(&gate) != 0) {
            (void)sched_yield();
        }
    }
}

static void *plain_map(size_t size)
{
    void *memory = aligned_alloc(4096, size);
    return memory != NULL ? memset(memory, 0, size) : NULL;
}

static void plain_unmap(void *memory, size_t size)
{
    (void)size;
    free(memory);
}

static const cprof_alloc_hooks gate_hooks = {plain_zeroed, realloc, release_behind_gate, plain_map, plain_unmap};

static void *finish_one(void *unused)
{
    finish(accums[0]);
    return unused;
}

/* The fork comes when the histogram's high halves are given back, and not yet forgotten: the child must not do it again. */
TEST(fork_while_a_histogram_is_cleared)
{
    cprof_alloc_set_hooks(&gate_hooks);
    set_up(0);
    finish(accums[0]);
    cprof_histogram_rows *rows = accums[0]->histogram.rows;
    rows->buckets[cprof_histogram_index((uint64_t)ELAPSED_NS * CPROF_HISTOGRAM_ROW) % CPROF_HISTOGRAM_ROW] = UINT32_MAX;
    finish(accums[0]);
    CHECK(accums[0]->histogram.rows->high != NULL);
    cprof_registry_reset(registry);
    atomic_store(&gate, 1);
    pthread_t thread = check_thread(finish_one, NULL);
    while (atomic_load(&gate) != 2) {
        (void)sched_yield();
    }
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(HANG_SECONDS);
        atomic_store(&gate, 0);
        finish(accums[0]);
        CHECK_EQUAL(figures_of(accums[0]).count, 1);
        CHECK_EQUAL(counts[cprof_histogram_index((uint64_t)ELAPSED_NS * CPROF_HISTOGRAM_ROW)], 1);
        _exit(EXIT_SUCCESS);
    }
    atomic_store(&gate, 0);
    check_success(child);
    check_join(thread);
    CHECK_EQUAL(figures_of(accums[0]).count, 1);
    tear_down();
    cprof_alloc_set_hooks(NULL);
}

int main(int count, char **arguments)
{
    forks = check_argument(count, arguments, forks);
    check_run(NULL, NULL);
    return EXIT_SUCCESS;
}
