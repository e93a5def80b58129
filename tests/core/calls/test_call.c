/* span.h, with a clock that stands still unless told otherwise. */
#define _GNU_SOURCE
#include "cprofiling/calls/call.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <string.h>

enum { NODES = 4, DEPTH = 100000, ROUNDS = 50000, DEEPEST = 60, LINES = 4, MOST_OPEN = 40, DEEP = 200 };

#define UNKNOWN_NS INT64_C(-1)

static cprof_ticks now;
static cprof_registry *registry;
static cprof_accum *nodes[NODES];
static cprof_thread *thread;
static cprof_chain chain; /* of the thread */
static cprof_chain task;  /* begun inside a span of it */
static uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
static const char tags[NODES];

static cprof_ticks read_clock(void)
{
    return now;
}

static void pass(cprof_ticks ns)
{
    now += ns;
}

static void set_up(void)
{
    static const char *const names[NODES] = {"a", "b", "c", "d"};
    registry = cprof_registry_create(0);
    CHECK(registry != NULL);
    cprof_registry_configure(registry, CPROF_FLAG_STATS, 0, false);
    for (int i = 0; i < NODES; i++) {
        nodes[i] = cprof_registry_accum(registry, (cprof_names){{"train", 5}, {names[i], 1}});
        CHECK(nodes[i] != NULL);
    }
    chain = task = (cprof_chain){.top = NULL};
    now = 1000;
}

static void tear_down(void)
{
    CHECK(!cprof_chain_busy(&chain));
    cprof_registry_destroy(registry);
}

static cprof_span *open_in(cprof_chain *where, int node)
{
    cprof_span *span = cprof_call_open(thread, where, nodes[node], cprof_registry_state(registry), registry, &tags[node]);
    CHECK(span != NULL);
    CHECK(cprof_chain_top(where) == span);
    return span;
}

static cprof_span *open_node(int node)
{
    return open_in(&chain, node);
}

static void close_in(cprof_chain *where, cprof_span *span)
{
    cprof_call_close(thread, where, span, CPROF_OUTCOME_SUCCESS, false);
}

static void close_node(cprof_span *span)
{
    close_in(&chain, span);
}

static cprof_figures figures_of(int node)
{
    cprof_figures figures = {.count = 0};
    uint64_t order;
    cprof_generation of = cprof_epoch_present(&registry->epoch);
    (void)cprof_accum_copy(nodes[node], &of, INT64_MAX, &figures, counts, &order, NULL);
    return figures;
}

/* Negative: not known. */
static cprof_ns self_ns(const cprof_figures *figures)
{
    return figures->self_unknown != 0 ? UNKNOWN_NS : (cprof_ns)(figures->moments.total_ns - figures->nested_ns);
}

static void check_node(int node, uint64_t count, cprof_ns total_ns, cprof_ns own_ns)
{
    cprof_figures figures = figures_of(node);
    CHECK_EQUAL(figures.count, count);
    CHECK_EQUAL(figures.moments.total_ns, total_ns);
    CHECK_EQUAL(self_ns(&figures), own_ns);
}

/* G7: without memory nothing is opened, and the next try works. */
TEST(without_memory)
{
    static cprof_span *open[1000];
    cprof_resumable call = {.span = NULL};
    int depth = 0;
    do {
        open[depth++] = open_node(0);
    } while (thread->free_spans != NULL);
    cprof_span *top = cprof_chain_top(&chain);
    fake_alloc_fail(1);
    CHECK(cprof_call_open(thread, &chain, nodes[1], 0, NULL, NULL) == NULL);
    CHECK(fake_alloc_has_failed());
    fake_alloc_fail(1);
    CHECK(!cprof_call_resumable_begin(&call, thread, &chain, nodes[1], 0, NULL));
    CHECK(fake_alloc_has_failed());
    CHECK(call.span == NULL);
    CHECK(cprof_chain_top(&chain) == top);
    open[depth++] = open_node(0);
    while (depth > 0) {
        close_node(open[--depth]);
    }
    CHECK_EQUAL(figures_of(1).count, 0);
}

/* A clock that is read on another processor may be behind: the call has not run before it was resumed. */
TEST(suspended_where_the_clock_is_behind)
{
    cprof_span span = {.start = 50};
    cprof_resumable call = {.span = &span, .active = 5, .resumed = 100};
    CHECK_EQUAL(cprof_resumable_suspended(&call, 90), 35);
    CHECK_EQUAL(cprof_resumable_suspended(&call, 100), 45);
    CHECK_EQUAL(cprof_resumable_suspended(&call, 101), 45);
    CHECK_EQUAL(cprof_resumable_suspended(&call, 52), 0);
    call.paused = 110;
    CHECK_EQUAL(cprof_resumable_suspended(&call, 120), 65);
    call.resumed = 115;
    CHECK_EQUAL(cprof_resumable_suspended(&call, 120), 60);
    CHECK_EQUAL(cprof_resumable_suspended(&(cprof_resumable){.span = &span, .active = 5, .resumed = 100}, 56), 1);
}

/* Ticks may be of any height: only their differences count. */
TEST(suspended_late)
{
    const cprof_ticks high = (cprof_ticks)1 << 63;
    cprof_span span = {.start = high - 10};
    const cprof_resumable call = {.span = &span, .active = 5, .resumed = high + 10};
    CHECK_EQUAL(cprof_resumable_suspended(&call, high + 30), 15);
}

TEST(calls_need_no_memory)
{
    uint64_t made = 0;
    for (int i = 0; i < ROUNDS; i++) {
        cprof_span *outer = open_node(0);
        close_node(open_node(1));
        close_node(outer);
        made = i == 0 ? fake_alloc_made() : made;
    }
    CHECK_EQUAL(fake_alloc_made(), made); /* the first calls made the histograms' rows */
}

/* ---- Calls as a text ----
 *
 * A word does something to the node of its letter, o being a call that is no node, in the thread's chain, or in that of a task
 * when it ends with a quote:
 *   a( a) a! a~   opens a block; closes it with success, with an error, cancelled; with a ? behind, others may have run
 * meanwhile a[ a]         begins a call that may be suspended, and ends it a, a; a.      suspends it within a step or between
 * two steps, and continues it a_ a_~        gives it up while it is suspended, with success or cancelled a# a^         gives a
 * block up; begins the chain of the task inside the block =a =-         checks that the innermost of the chain is a, or none a@
 * a/         checks that the chain has the node's tag at a, or not at all a* a+ b=a     checks that a is left, or is not; and
 * that b has the memory that a had A number lets so many ns pass. Whole words: trim, busy, idle, reset, off, tick (others run).
 */

static cprof_span *spans[NODES + 1];
static cprof_resumable calls[NODES + 1];

static bool play_whole_word(const char *word, cprof_chain *where)
{
    if (strncmp(word, "trim", 4) == 0) {
        cprof_call_trim(thread, where);
    } else if (strncmp(word, "busy", 4) == 0 || strncmp(word, "idle", 4) == 0) {
        CHECK(cprof_chain_busy(where) == (word[0] == 'b'));
    } else if (strcmp(word, "reset") == 0) {
        cprof_registry_reset(registry);
    } else if (strcmp(word, "off") == 0) {
        cprof_registry_configure(registry, 0, 0, false);
    } else if (strcmp(word, "tick") == 0) {
        chain.moment++;
    } else if (strchr("-0123456789", word[0]) != NULL) {
        now += (cprof_ticks)strtoll(word, NULL, 10);
    } else {
        return false;
    }
    return true;
}

static void play_word(const char *word)
{
    cprof_chain *where = strchr(word, '\'') != NULL ? &task : &chain;
    if (play_whole_word(word, where)) {
        return;
    }
    char letter = word[word[0] == '=' ? 1 : 0];
    int node = letter == 'o' ? NODES : letter == '-' ? 0 : letter - 'a';
    cprof_span **span = &spans[node];
    cprof_resumable *call = &calls[node];
    cprof_accum *accum = node < NODES ? nodes[node] : NULL;
    const void *tag = node < NODES ? &tags[node] : NULL;
    uint64_t state = node < NODES ? cprof_registry_state(registry) : 0;
    cprof_outcome outcome = strchr(word, '!') != NULL   ? CPROF_OUTCOME_ERROR
                            : strchr(word, '~') != NULL ? CPROF_OUTCOME_CANCELLED
                                                        : CPROF_OUTCOME_SUCCESS;
    switch (word[0] == '=' ? '=' : word[1]) {
    case '(':
        *span = cprof_call_open(thread, where, accum, state, registry, tag);
        CHECK(*span != NULL && cprof_chain_top(where) == *span && (*span)->accum == accum);
        break;
    case ')':
    case '!':
    case '~':
        cprof_call_close(thread, where, *span, outcome, strchr(word, '?') != NULL);
        break;
    case '[':
        CHECK(cprof_call_resumable_begin(call, thread, where, accum, state, registry));
        *span = call->span;
        CHECK(cprof_chain_top(where) == *span);
        break;
    case ']':
        cprof_call_resumable_end(call, thread, where, CPROF_OUTCOME_SUCCESS);
        CHECK(call->span == NULL);
        break;
    case ',':
    case ';':
        cprof_call_resumable_suspend(call, where, word[1] == ';');
        break;
    case '.':
        cprof_call_resumable_continue(call, where);
        break;
    case '_':
        cprof_call_resumable_abandon(call, thread, outcome);
        CHECK(call->span == NULL);
        break;
    case '#':
        cprof_call_abandon(*span);
        break;
    case '^':
        cprof_chain_begin(&task, *span);
        break;
    case '@':
    case '/':
        CHECK(cprof_chain_find(where, tag) == (word[1] == '@' ? *span : NULL));
        break;
    case '*':
    case '+':
        CHECK(cprof_span_is_left(*span) == (word[1] == '*'));
        break;
    case '=':
        if (word[0] == '=') {
            CHECK(cprof_chain_top(where) == (letter == '-' ? NULL : *span));
        } else {
            CHECK(*span == spans[word[2] - 'a']);
        }
        break;
    default:
        CHECK(!"a word that is known");
    }
}

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* of the scenarios: 0 */

typedef struct {
    uint64_t count;
    cprof_ns total_ns, self_ns;
    cprof_ns waited_ns;
    uint64_t self_unknown, active_unknown; /* where these count, self_ns and waited_ns do not */
    uint64_t errors, cancelled, dropped;
} expected_node;

static const struct {
    const char *what, *words;
    expected_node nodes[NODES];
    uint64_t backward; /* steps of the clock that were counted */
} scenarios[] = {
    {"one call", "=- a( busy 500 a) =-", {{1, 500, 500}}},
    {"self time leaves out the direct children, and with them what is inside these",
     "a( 1 b( 10 c( 100 c) 1000 b) c( 10000 c) a)",
     {{1, 11111, 1}, {1, 1110, 1010}, {2, 10100, 10100}}},
    {"the time of a child that failed is the child's all the same",
     "a( b( 5 b! 2 a) b( b~",
     {{1, 7, 2}, {.errors = 1, .cancelled = 1}}},
    {"a call belongs to the statistics in which it began", "a( reset b( 5 b) a)", {{.dropped = 1}, {1, 5, 5}}},
    {"C2: turned off meanwhile, a call is counted nevertheless", "a( 5 off a)", {{1, 5, 5}}},
    {"a span that only names an owner is no node: its children are those of the node around it",
     "a( o( 1 b( 10 b) 100 o) 1000 a)",
     {{1, 1111, 1101}, {1, 10, 10}}},
    {"also when it is left in its place: those that ended before that, and after it",
     "a( o( c( 1000 c) 1 b( o)' o* 10 b) trim =a 100 a)",
     {{1, 1111, 101}, {1, 10, 10}, {1, 1000, 1000}}},
    {"spans that overlap, and the one around them, have no known self time; the next call has",
     "a( b( 1 c( 10 b) =c 100 d( 1000 d) c) =a a) a( 3 a)",
     {{2, 1114, .self_unknown = 1}, {1, 11, .self_unknown = 1}, {1, 1110, .self_unknown = 1}, {1, 1000, 1000}}},
    {"closed in another chain: the rest stays in its own, and is trimmed there; blocks inside it are the next one's around it",
     "c(' a(' 7 b( a) =b b) =a' a* d(' 10 d)' trim' =c' c+ trim' c)' trim' idle'",
     {{1, 7, .self_unknown = 1, .active_unknown = 1}, {1, 0, 0}, {1, 17, .self_unknown = 1}, {1, 10, 10}}},
    {"the one around a task's chain is closed in that: it is in its own chain only",
     "a( a^ b(' 1 a)' =a a* busy busy' b)' trim =- =-'",
     {{1, 1, .self_unknown = 1, .active_unknown = 1}, {1, 1, 1}}},
    {"the same while the task's chain is empty",
     "a( a^ 1 a)' =a a* busy idle' b(' b)' trim =- =-'",
     {{1, 1, .self_unknown = 1, .active_unknown = 1}, {1, 0, 0}}},
    {"the object that could close it is no more", "a( b( 1 b# =b b* trim =a a)", {{1, 1, .self_unknown = 1}}},
    {"a task that was begun inside a node is a child of it",
     "a( a^ =a' idle' b(' busy' 10 b)' idle' 1 a) =-'",
     {{1, 11, 1}, {1, 10, 10}}},
    {"an inherited parent is closed before its child",
     "a( a^ b(' 1 a) c( c=a 10 b)' =-' c)",
     {{1, 1, 1}, {1, 11, 11}, {1, 10, 10}}},
    {"the memory of the inherited parent, closed meanwhile, comes back as one of the chain's own spans",
     "a( a^ b(' 1 a) c(' c=a busy' c@' b@' a/' 10 d(' 100 d)' =c' c)' =b' b)' =-' idle'",
     {{1, 1, 1}, {1, 111, 1}, {1, 110, 10}, {1, 100, 100}}},
    {"the same, but the chain's spans are then closed from the bottom up",
     "a( a^ b(' a) c(' d(' 1 b)' c)' =d' a/' d)' idle'",
     {{1, 0, 0}, {1, 1, .self_unknown = 1}, {1, 1, .self_unknown = 1}, {1, 1, .self_unknown = 1}}},
    {"all of a coroutine's block was active when nobody else ran", "a( 1 a)?", {{1, 1, 1}}},
    {"whether it was is not known once others may have run",
     "b( a( 10 tick a)? b)",
     {{1, 10, 10, .active_unknown = 1}, {1, 10, 0}}},
    {"E1: a clock that goes back inside a child", "a( 100 b( -60 b) a)", {{1, 40, 40}, {1, 0, 0}}, 1},
    {"of 40 ns, not more than 40 were spent in the child", "a( b( 100 b) -60 a)", {{1, 40, 0}, {1, 100, 100}}},
    {"what a coroutine waits is part of its time, but it is not active then",
     "a[ 1 a, =- 10 a. =a 100 a]",
     {{1, 111, 111, 10}}},
    {"what passes between two steps of a generator is its consumer's time",
     "a[ 1 a; 1000 a. 1 a; 1000 a. 1 a; 1000 a. 1 a]",
     {{1, 4, 4}}},
    {"an asynchronous generator waits inside its steps, and its consumer between them",
     "a[ 1 a, 10 a. 1 a; 1000 a. 1 a, 10 a. 1 a; 1000 a. a]",
     {{1, 24, 24, 20}}},
    {"the consumer's node is charged for the steps, not for its own work between them",
     "a( b[ 1 b; =a 10 b. 100 b] =a 1000 a)",
     {{1, 1111, 1010}, {1, 101, 101}}},
    {"the whole of an awaited coroutine, the waiting too, is no self time of the node that awaits it",
     "a[ 1 b[ 10 b, a, 100 a. b. 1000 b] 10000 a]",
     {{1, 11111, 10001, 100}, {1, 1110, 1110, 100}}},
    {"blocks that are open inside a call go off the chain with it, and come back with it",
     "a[ b( 1 a, c( 10 b/ c) a. =b 100 b) =a a]",
     {{1, 111, 0, 10}, {1, 111, 111}, {1, 10, 10}}},
    {"blocks closed while the call around them is suspended: their rest goes when the call ends",
     "a[ b( c( 1 a, 10 b)? b* c+ 100 c!? =- a. =c c/ a] =-",
     {{1, 111, 0, 110, .self_unknown = 1}, {1, 11, .self_unknown = 1, .active_unknown = 1}, {.errors = 1}}},
    {"a node is charged for the time in which a task inside it ran",
     "a( a^ b[' 1 b,' idle' 10 b.' 100 b]' 1000 a)",
     {{1, 1111, 1010}, {1, 111, 111, 10}}},
    {"each step inside another node: each of these is charged for what ran in it",
     "a( b[ 1 b; a) 10 c( b. 100 b] 1000 c)",
     {{1, 1, 0}, {1, 101, 101}, {1, 1100, 1000}}},
    {"a step goes on inside another node",
     "a( b[ 1 b, a) 10 c( b. 100 b] 1000 c)",
     {{1, 1, 0}, {1, 111, 111, 10}, {1, 1100, 1000}}},
    {"a node that a later step is in is charged for all of it, the waiting too",
     "b[ 1 b; c( b. 10 b, 100 b. 1000 b] c)",
     {{0}, {1, 1111, 1111, 100}, {1, 1110, 0}}},
    {"nothing is charged for no time", "a( b[ b, b. b] 100 a)", {{1, 100, 100}, {1, 0, 0}}},
    {"a call ends below one that is no node", "a( b[ 10 o( 1 b] 100 o) a)", {{1, 111, 100}, {1, 11, 11}}},
    {"A11, A9: a generator that is never exhausted ends at its last suspension",
     "a[ 5 a; 100000 a_ b[ b, b_~",
     {{1, 5, 5}, {.cancelled = 1}}},
    {"a call ends while a block that was opened in it still is open",
     "a[ b( 1 a] =b 10 b)",
     {{1, 1, .self_unknown = 1}, {1, 11, .self_unknown = 1}}},
    {"a call that is no node passes on, at each suspension, what its children took",
     "a( o[ 1 b( 10 b) o; 100 o. 1 b( 10 b) o; 100 o. o] a)",
     {{1, 222, 202}, {2, 20, 20}}},
    {"E1: with a clock that goes back, the active time is at most the elapsed time",
     "a[ -100 a, 500 a. a]",
     {{1, 400, 400, 400}},
     2},
};

static void check_expected(int node, const expected_node *expected)
{
    cprof_figures figures = figures_of(node);
    CHECK_EQUAL(figures.count, expected->count);
    CHECK_EQUAL(figures.moments.total_ns, expected->total_ns);
    CHECK_EQUAL(figures.self_unknown, expected->self_unknown);
    CHECK_EQUAL(figures.active_unknown, expected->active_unknown);
    CHECK_EQUAL(expected->self_unknown == 0 ? self_ns(&figures) : 0, expected->self_ns);
    CHECK_EQUAL(expected->active_unknown == 0 ? figures.suspended_ns : 0, expected->waited_ns);
    CHECK_EQUAL(figures.error_count, expected->errors);
    CHECK_EQUAL(figures.cancelled_count, expected->cancelled);
    CHECK_EQUAL(figures.dropped_count, expected->dropped);
}

TEST(scenarios)
{
    for (size_t i = 0; i < COUNT_OF(scenarios); i++) {
        char words[200];
        char *rest = NULL;
        CHECK((size_t)snprintf(words, sizeof words, "%s", scenarios[i].words) < sizeof words);
        check_case = scenarios[i].what;
        tear_down();
        set_up();
        uint64_t backward = atomic_load(&cprof_clock.backward);
        for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
            play_word(word);
        }
        for (int node = 0; node < NODES; node++) {
            check_expected(node, &scenarios[i].nodes[node]);
        }
        CHECK_EQUAL(atomic_load(&cprof_clock.backward), backward + scenarios[i].backward);
    }
}

/* B1 */
TEST(recursion)
{
    static cprof_span *open[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        open[i] = open_node(0);
        pass(1);
    }
    for (int i = DEPTH - 1; i >= 0; i--) {
        close_node(open[i]);
    }
    check_node(0, DEPTH, (cprof_ns)DEPTH * (DEPTH + 1) / 2, DEPTH);
    uint64_t made = fake_alloc_made();
    for (int i = 0; i < DEPTH; i++) {
        open[i] = open_node(0);
    }
    CHECK_EQUAL(fake_alloc_made(), made); /* the spans are used again */
    for (int i = DEPTH - 1; i >= 0; i--) {
        close_node(open[i]);
    }
}

/* B2: any nesting of four nodes, against a model of it. */
TEST(random_nesting)
{
    struct {
        cprof_span *span;
        int node;
        cprof_ns start, nested;
    } stack[DEEPEST];
    uint64_t called[NODES] = {0};
    cprof_ns total[NODES] = {0};
    cprof_ns own[NODES] = {0};
    uint64_t random = 99;
    int depth = 0;
    for (int i = 0; i < ROUNDS || depth > 0; i++) {
        pass(check_random(&random) % 100);
        bool deeper = i < ROUNDS && (depth == 0 || (depth < DEEPEST && check_random(&random) % 2 != 0));
        if (deeper) {
            int node = (int)(check_random(&random) % NODES);
            stack[depth].node = node;
            stack[depth].start = (cprof_ns)now;
            stack[depth].nested = 0;
            stack[depth++].span = open_node(node);
            continue;
        }
        close_node(stack[--depth].span);
        cprof_ns elapsed = (cprof_ns)now - stack[depth].start;
        called[stack[depth].node]++;
        total[stack[depth].node] += elapsed;
        own[stack[depth].node] += elapsed - stack[depth].nested;
        if (depth > 0) {
            stack[depth - 1].nested += elapsed;
        }
    }
    for (int i = 0; i < NODES; i++) {
        check_node(i, called[i], total[i], own[i]);
    }
}

/* A call is looked for below 64 others; one that is deeper stays in its chain, which has to be trimmed. */
TEST(closed_from_the_bottom_up)
{
    cprof_span *open[DEEP];
    uint64_t unknown = 0;
    for (int depth = DEEPEST; depth <= DEEP; depth += DEEP - DEEPEST) {
        for (int i = 0; i < depth; i++) {
            open[i] = open_node(0);
            pass(1);
        }
        for (int i = 0; i < depth; i++) {
            close_node(open[i]);
            CHECK(cprof_span_is_left(open[i]) == (depth - 1 - i > 64));
            if (depth == DEEP) {
                cprof_call_trim(thread, &chain);
            }
        }
        CHECK(!cprof_chain_busy(&chain));
        unknown += (uint64_t)depth;
        CHECK_EQUAL(figures_of(0).self_unknown, unknown);
    }
    CHECK_EQUAL(figures_of(0).moments.total_ns, DEEPEST * (DEEPEST + 1) / 2 + DEEP * (DEEP + 1) / 2);
}

/* What ran inside one that is not counted is known of the one around it, and only once. */
TEST(closed_below_what_is_not_counted)
{
    for (int round = 0; round < 2; round++) {
        cprof_span *around = open_node(1);
        cprof_span *span = open_node(0);
        cprof_span *over = cprof_call_open(thread, &chain, nodes[3], 0, NULL, NULL);
        if (round == 0) {
            cprof_span *child = open_node(2);
            pass(10);
            close_node(child);
        }
        pass(1);
        close_node(span);
        close_node(over);
        pass(100);
        close_node(around);
    }
    check_node(0, 2, 12, 2);
    check_node(1, 2, 212, 200);
    check_node(2, 1, 10, 10);
}

/* Where a task runs on elsewhere, its calls charge nothing to what it has inherited, whatever is in between and not counted. */
TEST(inherited_through_what_is_not_counted)
{
    cprof_span *span = open_node(0);
    cprof_chain_begin(&task, span);
    cprof_span *over = cprof_call_open(thread, &task, nodes[3], 0, NULL, NULL);
    cprof_span *inner = open_in(&task, 1);
    pass(5);
    task.moment++;
    close_in(&task, inner);
    close_in(&task, over);
    close_node(span);
    check_node(0, 1, 5, UNKNOWN_NS);
    check_node(1, 1, 5, 5);
}

/* A block that is left below another one was suspended only where its line of execution went to another thread or task. */
TEST(blocks_left_below_others)
{
    for (uint64_t unknown = 0; unknown < 2; unknown++) {
        cprof_span *span = open_node(0);
        cprof_span *inner = open_node(1);
        pass(5);
        chain.moment += unknown;
        cprof_call_close(thread, &chain, span, CPROF_OUTCOME_SUCCESS, true);
        CHECK_EQUAL(figures_of(0).active_unknown, unknown);
        close_node(inner);
    }
}

/* Whether a thread that needs spans may take this one. */
static bool is_spare(const cprof_span *span)
{
    cprof_span *kept = thread->free_spans;
    thread->free_spans = NULL;
    CHECK(cprof_span_refill(thread));
    cprof_span *last = thread->free_spans;
    bool found = last == span;
    for (; last->parent != NULL; last = last->parent) {
        found = found || last->parent == span;
    }
    last->parent = kept;
    return found;
}

/* Its thread has ended, but it is left all the same: the time is known. */
TEST(detached)
{
    cprof_span *around = open_node(1);
    cprof_span *span = open_node(0);
    cprof_span *given_up = open_node(2);
    pass(7);
    chain.top = span->parent;
    cprof_call_detach(given_up);
    cprof_call_detach(span);
    close_node(around);
    pass(70);
    cprof_call_close(thread, &chain, span, CPROF_OUTCOME_SUCCESS, true);
    CHECK(is_spare(span));
    cprof_call_abandon(given_up);
    CHECK(is_spare(given_up));
    check_node(0, 1, 77, UNKNOWN_NS);
    check_node(1, 1, 7, UNKNOWN_NS);
    check_node(2, 0, 0, 0);
}

/* A span that nobody will close: it is not counted, and who has inherited it as a parent can tell that it is gone. */
TEST(discarded)
{
    cprof_chain abandoned = {.top = NULL};
    cprof_span *span = open_in(&abandoned, 0);
    cprof_chain_begin(&task, span);
    cprof_span *inner = open_in(&task, 1);
    pass(5);
    cprof_call_discard(span);
    close_in(&task, inner);
    CHECK(cprof_chain_top(&task) == NULL);
    check_node(0, 0, 0, 0);
    check_node(1, 1, 5, 5);
}

TEST(find)
{
    cprof_chain inside;
    CHECK(cprof_chain_find(&chain, &tags[0]) == NULL);
    cprof_span *outer = open_node(0);
    cprof_span *again = open_node(0);
    cprof_span *inner = open_node(1);
    CHECK(cprof_chain_find(&chain, &tags[0]) == again);
    CHECK(cprof_chain_find(&chain, &tags[1]) == inner);
    CHECK(cprof_chain_find(&chain, &tags[2]) == NULL);
    cprof_chain_begin(&inside, cprof_chain_top(&chain));
    cprof_span *own = open_in(&inside, 2);
    CHECK(cprof_chain_find(&inside, &tags[2]) == own);
    CHECK(cprof_chain_find(&inside, &tags[0]) == NULL); /* inherited, not its own */
    close_in(&inside, own);
    close_node(inner);
    close_node(again);
    CHECK(cprof_chain_find(&chain, &tags[0]) == outer);
    close_node(outer);
}

/* While the task's node was open, the thread ran others: their times overlap, and the parent's self time is not known. */
TEST(inherited_parent_of_overlapping_tasks)
{
    cprof_chain tasks[2] = {{.top = NULL}};
    cprof_span *inner[2];
    cprof_span *outer = open_node(0);
    for (int i = 0; i < 2; i++) {
        cprof_chain_begin(&tasks[i], outer);
        tasks[i].moment = (uint64_t)i;
        inner[i] = open_in(&tasks[i], 1);
        pass(10);
    }
    for (int i = 0; i < 2; i++) {
        tasks[i].moment = 2 + (uint64_t)i;
        close_in(&tasks[i], inner[i]);
    }
    close_node(outer);
    check_node(0, 1, 20, UNKNOWN_NS);
    check_node(1, 2, 30, 30);
}

/* The clock's rate is refined while a node is open: no self time becomes negative. */
TEST(rate_changes_during_a_call)
{
    uint64_t multiplier = atomic_load(&cprof_clock.multiplier);
    cprof_span *outer = open_node(0);
    cprof_span *inner = open_node(1);
    pass(1000);
    close_node(inner);
    atomic_store(&cprof_clock.multiplier, multiplier - multiplier / 100);
    close_node(outer);
    atomic_store(&cprof_clock.multiplier, multiplier);
    CHECK_EQUAL(figures_of(1).moments.total_ns, 1000);
    cprof_figures figures = figures_of(0);
    CHECK(figures.moments.total_ns < 1000);
    CHECK_EQUAL(self_ns(&figures), 0);
}

static void begin(cprof_resumable *call, cprof_chain *where, int node)
{
    CHECK(cprof_call_resumable_begin(call, thread, where, nodes[node], cprof_registry_state(registry), registry));
    CHECK(cprof_chain_top(where) == call->span);
}

/* A call ends so far below the top of the chain that it is not looked for. */
TEST(ends_far_below_open_blocks)
{
    cprof_resumable call = {.span = NULL};
    cprof_span *open[DEEP];
    begin(&call, &chain, 1);
    for (int i = 0; i < DEEP; i++) {
        open[i] = open_node(0);
    }
    pass(1);
    cprof_call_resumable_end(&call, thread, &chain, CPROF_OUTCOME_SUCCESS);
    for (int i = DEEP - 1; i >= 0; i--) {
        close_node(open[i]);
    }
    CHECK(cprof_chain_busy(&chain));
    cprof_call_trim(thread, &chain);
    CHECK(!cprof_chain_busy(&chain));
    check_node(1, 1, 1, UNKNOWN_NS);
}

/* A block or a suspendable call of the random test below, open or free. */
typedef struct item {
    cprof_span *span; /* NULL: free */
    int node;
    cprof_ticks start;
    bool is_call;
    bool between; /* a call suspended between two steps, */
    cprof_ticks paused;
    cprof_resumable call;
    size_t inside_count; /* and what was open in it then */
    struct item *inside[MOST_OPEN];
} item;

/* A line of execution: its chain, and what is open in it, from the bottom up. */
typedef struct {
    cprof_chain chain;
    item *base; /* NULL when there is none, or when it was closed */
    size_t count;
    item *open[MOST_OPEN];
} line;

/* The model: what the chains and the figures must be. */
static struct {
    item items[MOST_OPEN];
    item *suspended[MOST_OPEN];
    size_t suspended_count;
    line lines[LINES];
    line *last;
    uint64_t called[NODES];
    cprof_ticks total[NODES];
    uint64_t random;
} model;

static size_t choose(size_t count)
{
    return (size_t)(check_random(&model.random) % count);
}

static item *free_item(void)
{
    for (size_t i = 0; i < MOST_OPEN; i++) {
        if (model.items[i].span == NULL) {
            return &model.items[i];
        }
    }
    return NULL;
}

static void model_open(line *at)
{
    item *opened = free_item();
    if (opened == NULL) {
        return;
    }
    *opened = (item){.node = (int)choose(NODES), .start = now, .is_call = choose(3) == 0};
    if (opened->is_call) {
        begin(&opened->call, &at->chain, opened->node);
        opened->span = opened->call.span;
    } else {
        opened->span = open_in(&at->chain, opened->node);
    }
    at->open[at->count++] = opened;
}

static void model_end(item *ended, cprof_ticks end)
{
    model.called[ended->node]++;
    model.total[ended->node] += end - ended->start;
    ended->span = NULL;
    for (size_t i = 0; i < LINES; i++) {
        if (model.lines[i].base == ended) {
            model.lines[i].base = NULL;
        }
    }
}

/* Mostly the innermost, at times another. */
static void model_close(line *at)
{
    if (at->count == 0) {
        return;
    }
    size_t place = choose(4) == 0 ? choose(at->count) : at->count - 1;
    item *closed = at->open[place];
    if (closed->is_call) {
        cprof_call_resumable_end(&closed->call, thread, &at->chain, CPROF_OUTCOME_SUCCESS);
    } else {
        close_in(&at->chain, closed->span);
    }
    memmove(&at->open[place], &at->open[place + 1], (--at->count - place) * sizeof at->open[0]);
    model_end(closed, now);
}

/* The innermost call is suspended, with what is open in it. */
static void model_suspend(line *at)
{
    size_t place = at->count;
    while (place > 0 && !at->open[place - 1]->is_call) {
        place--;
    }
    if (place == 0) {
        return;
    }
    item *suspended = at->open[place - 1];
    suspended->between = choose(2) == 0;
    suspended->paused = now;
    suspended->inside_count = at->count - place;
    memcpy(suspended->inside, &at->open[place], suspended->inside_count * sizeof at->open[0]);
    cprof_call_resumable_suspend(&suspended->call, &at->chain, suspended->between);
    at->count = place - 1;
    model.suspended[model.suspended_count++] = suspended;
}

static bool is_inside(const item *part, const item *whole)
{
    bool found = part == whole;
    for (size_t i = 0; i < whole->inside_count; i++) {
        found = found || whole->inside[i] == part;
    }
    return found;
}

/* In whichever line, but none that itself began inside the call. Or it never goes on. */
static void model_continue(line *at)
{
    if (model.suspended_count == 0) {
        return;
    }
    size_t place = choose(model.suspended_count);
    item *continued = model.suspended[place];
    if (at->base != NULL && is_inside(at->base, continued)) {
        return;
    }
    model.suspended[place] = model.suspended[--model.suspended_count];
    if (continued->inside_count == 0 && choose(4) == 0) {
        cprof_call_resumable_abandon(&continued->call, thread, CPROF_OUTCOME_SUCCESS);
        model_end(continued, continued->paused);
        return;
    }
    cprof_call_resumable_continue(&continued->call, &at->chain);
    continued->start += continued->between ? now - continued->paused : 0;
    at->open[at->count++] = continued;
    memcpy(&at->open[at->count], continued->inside, continued->inside_count * sizeof at->open[0]);
    at->count += continued->inside_count;
}

/* An idle line begins anew inside another one; the first is the thread's, inside of none. */
static void model_begin(line *at)
{
    line *around = &model.lines[choose(LINES)];
    if (at != &model.lines[0] && at != around && at->count == 0) {
        at->base = around->count > 0 ? around->open[around->count - 1] : around->base;
        cprof_chain_begin(&at->chain, cprof_chain_top(&around->chain));
    }
}

static void check_line(line *at)
{
    item *top = at->count > 0 ? at->open[at->count - 1] : at->base;
    CHECK(cprof_chain_top(&at->chain) == (top != NULL ? top->span : NULL));
    CHECK(cprof_chain_busy(&at->chain) == (at->count > 0));
}

static void model_step(bool ends)
{
    static void (*const actions[])(line *) = {model_open,  model_open,    model_open,     model_close,
                                              model_close, model_suspend, model_continue, model_begin};
    line *at = &model.lines[choose(LINES)];
    pass(choose(10));
    at->chain.moment += at != model.last;
    model.last = at;
    (ends ? choose(2) == 0 ? model_close : model_continue : actions[choose(COUNT_OF(actions))])(at);
    for (size_t i = 0; i < LINES; i++) {
        check_line(&model.lines[i]);
    }
}

static size_t open_items(void)
{
    size_t count = 0;
    for (size_t i = 0; i < MOST_OPEN; i++) {
        count += model.items[i].span != NULL;
    }
    return count;
}

/* Lines that begin inside others, calls that go on in other lines, spans closed in any order: the times are exact, and no chain
 * loses or confuses a span, though their memory goes round. */
TEST(random_lines)
{
    for (int i = 0; i < ROUNDS; i++) {
        model_step(false);
    }
    while (open_items() > 0) {
        model_step(true);
    }
    for (int node = 0; node < NODES; node++) {
        cprof_figures figures = figures_of(node);
        CHECK_EQUAL(figures.count, model.called[node]);
        CHECK_EQUAL(figures.moments.total_ns, model.total[node]);
        CHECK(figures.nested_ns <= figures.moments.total_ns);
        CHECK(figures.suspended_ns <= figures.moments.total_ns);
    }
}

int main(void)
{
    fake_alloc_install();
    cprof_clock_set_test(read_clock);
    thread = cprof_thread_get();
    CHECK(thread != NULL);
    check_run(set_up, tear_down);
    return EXIT_SUCCESS;
}
