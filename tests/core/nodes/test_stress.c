/* 64 threads that record, one that resets, one that toggles, one that reads (C1, C2, C3, E14). Argument: calls of each thread,
 * 10,000 by default.
 *
 * The clock is each thread's own, and set so that the duration of a call tells the generation in which it began: a figure that
 * mixes generations cannot stay unnoticed. Calls that begin in the last generation are counted one by one, and must all be
 * found there. Of calls that end in it but began before, some may have ended just before it began: for those the test knows
 * bounds, and, in the second part, where all threads wait for the reset, the exact number. */
#define _GNU_SOURCE
#include "cprofiling/calls/call.h"

#include "tests/core/check.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum {
    THREADS = 64,
    OUTER = 3, /* keys of outer calls; */
    INNER = OUTER,
    RECORDED = OUTER + 1, /* one of calls inside them, one of values known from elsewhere */
    KEYS,
    SKIPS = 1000,
    STEP_NS = 1000,    /* a duration is STEP_NS times the generation, and less than STEP_NS more */
    GENERATIONS = 997, /* then the durations begin anew */
    ROUNDS = 30,
    PAUSE_US = 50,
};

/* Of one thread and key. */
typedef struct {
    uint64_t generation; /* the latest in which a call began; of that one: */
    uint64_t ended[3];   /* calls by outcome */
    uint64_t last;       /* the latest generation in which a call ended; of that one: */
    uint64_t dropped;    /* calls that began earlier, */
    uint64_t uncertain;  /* and calls that may have ended in an earlier one */
} tally;

typedef struct {
    pthread_t thread;
    uint64_t random;
    tally tallies[KEYS];
} worker;

static uint64_t calls = 10000;
static cprof_registry *registry;
static cprof_accum *accums[KEYS];
static worker workers[THREADS];
static _Atomic uint64_t begun;   /* calls, of all threads */
static _Atomic unsigned at_work; /* threads that have not made all of their calls */
static _Atomic bool has_read;    /* the reader met a row: until then the work goes on */
static _Thread_local cprof_ticks now;

static cprof_ticks read_clock(void)
{
    return now;
}

static uint64_t generation_now(void)
{
    return cprof_registry_state(registry) >> CPROF_STATE_GENERATION_SHIFT;
}

static uint64_t base_ns(uint64_t generation)
{
    return generation % GENERATIONS * STEP_NS;
}

static void note_end(tally *t, uint64_t began, uint64_t before, uint64_t after, cprof_outcome outcome)
{
    if (began > t->generation) {
        t->generation = began;
        memset(t->ended, 0, sizeof t->ended);
    }
    if (after > t->last) {
        t->last = after;
        t->dropped = t->uncertain = 0;
    }
    t->ended[outcome] += began == t->generation;
    t->dropped += began < before && before == after;
    t->uncertain += before < after;
}

static cprof_span *open_call(cprof_chain *chain, int key, uint64_t state)
{
    cprof_span *span = cprof_call_open(cprof_thread_self, chain, accums[key], state, NULL, NULL);
    CHECK(span != NULL);
    return span;
}

static void close_call(worker *w, cprof_chain *chain, int key, cprof_span *span, cprof_outcome outcome)
{
    uint64_t began = span->state >> CPROF_STATE_GENERATION_SHIFT;
    uint64_t before = generation_now();
    cprof_call_close(cprof_thread_self, chain, span, outcome, false);
    note_end(&w->tallies[key], began, before, generation_now(), outcome);
}

static cprof_outcome choose_outcome(worker *w)
{
    uint64_t choice = check_random(&w->random) % 32;
    return choice == 0 ? CPROF_OUTCOME_CANCELLED : choice < 4 ? CPROF_OUTCOME_ERROR : CPROF_OUTCOME_SUCCESS;
}

/* A call, often with another inside; the outer one's duration tells when it began. */
static void make_call(worker *w, cprof_chain *chain, uint64_t state)
{
    int key = (int)(check_random(&w->random) % OUTER);
    uint64_t extra_ns = check_random(&w->random) % STEP_NS;
    cprof_ticks start = now;
    cprof_span *outer = open_call(chain, key, state);
    uint64_t inner_state = cprof_registry_state(registry);
    if (check_random(&w->random) % 2 == 0 && (inner_state & CPROF_FLAG_STATS) != 0) {
        cprof_span *inner = open_call(chain, INNER, inner_state);
        now += extra_ns;
        close_call(w, chain, INNER, inner, CPROF_OUTCOME_SUCCESS);
    }
    if (check_random(&w->random) % 16 == 0) {
        (void)sched_yield();
    }
    now = start + base_ns(state >> CPROF_STATE_GENERATION_SHIFT) + extra_ns;
    close_call(w, chain, key, outer, choose_outcome(w));
}

static void record_value(worker *w)
{
    uint64_t before = generation_now();
    cprof_accum_record_ms(accums[RECORDED], 0.25);
    uint64_t after = generation_now();
    tally *t = &w->tallies[RECORDED];
    note_end(t, after, before, after, CPROF_OUTCOME_SUCCESS);
    t->ended[CPROF_OUTCOME_SUCCESS] -= before < after; /* it may belong to an earlier generation */
}

static void *work(void *argument)
{
    worker *w = argument;
    cprof_chain chain = {.top = NULL};
    CHECK(cprof_thread_get() != NULL);
    for (uint64_t made = 0; made < calls || !atomic_load(&has_read);) {
        uint64_t state = cprof_registry_state(registry);
        if ((state & CPROF_FLAG_ALL) == 0) {
            (void)sched_yield();
            continue;
        }
        if (check_random(&w->random) % 8 == 0) {
            record_value(w);
        } else {
            make_call(w, &chain, state);
        }
        made++;
        atomic_fetch_add_explicit(&begun, 1, memory_order_relaxed);
    }
    atomic_fetch_sub(&at_work, 1);
    return NULL;
}

/* Resets until the last quarter, which is left for the last generation. */
static void *reset(void *unused)
{
    do {
        cprof_registry_reset(registry);
        (void)usleep(PAUSE_US);
        cprof_registry_configure(registry, CPROF_FLAG_STATS, SKIPS, true);
        (void)usleep(PAUSE_US);
    } while (atomic_load(&begun) < THREADS * calls / 4 * 3);
    return unused;
}

static void *toggle(void *unused)
{
    while (atomic_load(&at_work) > 0) {
        cprof_registry_configure(registry, 0, SKIPS, false);
        (void)sched_yield();
        cprof_registry_configure(registry, CPROF_FLAG_STATS, SKIPS, false);
        (void)usleep(PAUSE_US);
    }
    return unused;
}

/* What the reader saw last of each key, and in which generation. */
typedef struct {
    uint64_t generation;
    uint64_t visits;
    uint64_t rows;
    cprof_figures last[KEYS];
} reading;

static uint64_t sum_of_histogram(const cprof_figures *figures, const uint64_t *counts)
{
    uint64_t sum = 0;
    for (unsigned row = 0; row < CPROF_HISTOGRAM_ROWS; row++) {
        for (unsigned i = 0; (figures->rows >> row & 1) != 0 && i < CPROF_HISTOGRAM_ROW; i++) {
            sum += counts[row * CPROF_HISTOGRAM_ROW + i];
        }
    }
    return sum;
}

/* Nothing torn: every figure fits the others. */
static void check_consistent(const cprof_figures *figures, const uint64_t *counts)
{
    uint64_t count = figures->count;
    double total_ms = cprof_moments_total_ms(&figures->moments);
    CHECK_EQUAL(sum_of_histogram(figures, counts), count);
    CHECK_EQUAL(figures->histogram_lost, 0);
    CHECK(figures->skipped_count <= SKIPS);
    CHECK(count == 0 || figures->skipped_count == SKIPS);
    CHECK((figures->first_ms >= 0.0) == (count + figures->skipped_count > 0));
    CHECK(figures->nested_ns <= figures->moments.total_ns);
    CHECK(isfinite(cprof_figures_std_ms(figures)));
    if (count > 0) {
        CHECK((double)count * figures->min_ms <= total_ms * (1.0 + 1e-12));
        CHECK((double)count * figures->max_ms >= total_ms * (1.0 - 1e-12));
        CHECK(figures->min_ms <= figures->last_ms && figures->last_ms <= figures->max_ms);
        CHECK(figures->count > CPROF_FIGURES_EXACT
                  ? figures->median_ms == CPROF_FIGURES_NO_MEDIAN
                  : figures->min_ms <= figures->median_ms && figures->median_ms <= figures->max_ms);
    }
}

/* Not a mix of generations: all durations are those of this one. Integers, as count * min <= total <= count * max is exact. */
static void check_generation(int key, const cprof_figures *figures, uint64_t generation)
{
    uint64_t least_ns = (uint64_t)llround(figures->min_ms * 1e6);
    uint64_t most_ns = (uint64_t)llround(figures->max_ms * 1e6);
    if (key >= OUTER || figures->count == 0) {
        return;
    }
    CHECK(least_ns >= base_ns(generation) && most_ns < base_ns(generation) + STEP_NS);
    CHECK((cprof_u128)least_ns * figures->count <= figures->moments.total_ns);
    CHECK((cprof_u128)most_ns * figures->count >= figures->moments.total_ns);
}

static void check_grown(const cprof_figures *old, const cprof_figures *new)
{
    CHECK(new->count >= old->count && new->error_count >= old->error_count);
    CHECK(new->cancelled_count >= old->cancelled_count && new->skipped_count >= old->skipped_count);
    CHECK(new->dropped_count >= old->dropped_count && new->moments.total_ns >= old->moments.total_ns);
}

/* Forgets what was seen of an earlier generation, of which a visit may meet no row. */
static void forget_earlier(reading *r, uint64_t generation)
{
    if (generation != r->generation) {
        memset(r->last, 0, sizeof r->last);
        r->generation = generation;
    }
}

static cprof_status check_row(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                              const uint64_t *counts)
{
    reading *r = context;
    int key = names.node.bytes[0] - '0';
    (void)order;
    (void)sched_yield();
    uint64_t generation = generation_now(); /* no reset takes effect during a visit */
    CHECK(key >= 0 && key < KEYS);
    forget_earlier(r, generation);
    check_consistent(figures, counts);
    check_generation(key, figures, generation);
    check_grown(&r->last[key], figures);
    r->last[key] = *figures;
    r->rows++;
    atomic_store(&has_read, true);
    return CPROF_OK;
}

static void *read_all(void *argument)
{
    reading *r = argument;
    cprof_generation epoch;
    do {
        CHECK(cprof_registry_visit(registry, check_row, r, &epoch) == CPROF_OK);
        CHECK(r->rows == 0 || r->generation <= epoch.generation);
        r->visits++;
        (void)sched_yield();
    } while (atomic_load(&at_work) > 0);
    return NULL;
}

static void set_up(void)
{
    static const char names[KEYS] = {'0', '1', '2', '3', '4'};
    registry = cprof_registry_create(0);
    CHECK(registry != NULL);
    cprof_registry_configure(registry, CPROF_FLAG_STATS, SKIPS, false);
    for (int i = 0; i < KEYS; i++) {
        accums[i] = cprof_registry_accum(registry, (cprof_names){{"stress", 6}, {&names[i], 1}});
        CHECK(accums[i] != NULL);
    }
    memset(workers, 0, sizeof workers);
}

/* The tallies of all threads for the generation. */
static tally sum_of(int key, uint64_t generation)
{
    tally sum = {.generation = generation, .last = generation};
    for (int i = 0; i < THREADS; i++) {
        const tally *t = &workers[i].tallies[key];
        CHECK(t->generation <= generation && t->last <= generation);
        for (int outcome = 0; outcome < 3; outcome++) {
            sum.ended[outcome] += t->generation == generation ? t->ended[outcome] : 0;
        }
        sum.dropped += t->last == generation ? t->dropped : 0;
        sum.uncertain += t->last == generation ? t->uncertain : 0;
    }
    return sum;
}

/* recorded + skipped + errors + cancelled + dropped == calls that began while on and finished. */
static void check_equation(int key, const cprof_figures *figures)
{
    tally sum = sum_of(key, generation_now());
    uint64_t successes = figures->count + figures->skipped_count;
    if (key == RECORDED) {
        CHECK(successes >= sum.ended[CPROF_OUTCOME_SUCCESS]);
        CHECK(successes <= sum.ended[CPROF_OUTCOME_SUCCESS] + sum.uncertain);
        CHECK_EQUAL(figures->dropped_count, 0);
        return;
    }
    CHECK_EQUAL(successes, sum.ended[CPROF_OUTCOME_SUCCESS]);
    CHECK_EQUAL(figures->error_count, sum.ended[CPROF_OUTCOME_ERROR]);
    CHECK_EQUAL(figures->cancelled_count, sum.ended[CPROF_OUTCOME_CANCELLED]);
    CHECK(figures->dropped_count >= sum.dropped && figures->dropped_count <= sum.dropped + sum.uncertain);
    CHECK_EQUAL(figures->skipped_count, successes < SKIPS ? successes : SKIPS);
}

static void start(pthread_t *thread, void *(*function)(void *), void *argument)
{
    CHECK(pthread_create(thread, NULL, function, argument) == 0);
}

static void join(pthread_t thread)
{
    check_join(thread);
}

TEST(storm)
{
    static reading seen;
    pthread_t resetting, toggling, reading_thread;
    set_up();
    atomic_store(&has_read, false);
    atomic_store(&at_work, THREADS);
    for (int i = 0; i < THREADS; i++) {
        workers[i].random = (uint64_t)i;
        start(&workers[i].thread, work, &workers[i]);
    }
    start(&resetting, reset, NULL);
    start(&toggling, toggle, NULL);
    start(&reading_thread, read_all, &seen);
    for (int i = 0; i < THREADS; i++) {
        join(workers[i].thread);
    }
    join(resetting);
    join(toggling);
    join(reading_thread);
    CHECK(seen.visits > 0 && seen.rows > 0);
    cprof_generation epoch;
    forget_earlier(&seen, generation_now()); /* the last reset may have come after all calls */
    CHECK(cprof_registry_visit(registry, check_row, &seen, &epoch) == CPROF_OK);
    CHECK(epoch.generation > 2);
    for (int key = 0; key < KEYS; key++) {
        check_equation(key, &seen.last[key]);
    }
    cprof_registry_destroy(registry);
}

static pthread_barrier_t barrier;

static void meet(void)
{
    (void)pthread_barrier_wait(&barrier);
}

/* All open a call of each key, and close it when the main thread has done what it does in between. */
static void *work_in_step(void *argument)
{
    worker *w = argument;
    cprof_chain chain = {.top = NULL};
    CHECK(cprof_thread_get() != NULL);
    for (int round = 0; round < ROUNDS; round++) {
        cprof_span *spans[OUTER];
        meet();
        for (int key = 0; key < OUTER; key++) {
            spans[key] = open_call(&chain, key, cprof_registry_state(registry));
        }
        meet();
        meet();
        for (int key = OUTER - 1; key >= 0; key--) {
            close_call(w, &chain, key, spans[key], (cprof_outcome)(round % 3));
        }
        meet();
    }
    return NULL;
}

static cprof_figures figures_of(int key)
{
    static uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
    cprof_figures figures;
    uint64_t order;
    cprof_generation of = cprof_epoch_present(&registry->epoch);
    CHECK(cprof_accum_copy(accums[key], &of, INT64_MAX, &figures, counts, &order, NULL) == CPROF_OK);
    return figures;
}

/* In every fifth round the statistics are discarded while all calls are open; then every one of them is dropped. */
TEST(steps)
{
    uint64_t expected[3] = {0}; /* by outcome, since the last reset */
    set_up();
    cprof_registry_configure(registry, CPROF_FLAG_STATS, 0, true);
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++) {
        start(&workers[i].thread, work_in_step, &workers[i]);
    }
    uint64_t dropped = 0;
    for (int round = 0; round < ROUNDS; round++) {
        meet();
        meet();
        expected[round % 3] += THREADS;
        if (round % 5 == 0) {
            cprof_registry_reset(registry);
            memset(expected, 0, sizeof expected);
            dropped = THREADS;
        }
        meet();
        meet();
        for (int key = 0; key < OUTER; key++) {
            cprof_figures figures = figures_of(key);
            CHECK_EQUAL(figures.count, expected[CPROF_OUTCOME_SUCCESS]);
            CHECK_EQUAL(figures.error_count, expected[CPROF_OUTCOME_ERROR]);
            CHECK_EQUAL(figures.cancelled_count, expected[CPROF_OUTCOME_CANCELLED]);
            CHECK_EQUAL(figures.dropped_count, dropped);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        join(workers[i].thread);
    }
    CHECK(pthread_barrier_destroy(&barrier) == 0);
    cprof_registry_destroy(registry);
}

int main(int count, char **arguments)
{
    calls = check_argument(count, arguments, calls);
    cprof_clock_set_test(read_clock);
    check_run(NULL, NULL);
    return EXIT_SUCCESS;
}
