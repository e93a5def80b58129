/* span.h, with a clock that stands still unless told otherwise. */
#include "cprofiling/calls/call.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <string.h>

enum { NODES = 4, DEPTH = 100000, ROUNDS = 50000, DEEPEST = 60, LINES = 4, MOST_OPEN = 40, DEEP = 200 };

#define UNKNOWN_NS INT64_C(-1)
#define EACH_ENDS true /* a suspension between two steps */
#define WITHIN false   /* and one inside a step */

static cprof_ticks now;
static cprof_registry *registry;
static cprof_accum *nodes[NODES];
static cprof_thread *thread;
static cprof_chain chain; /* of the thread */
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
    chain = (cprof_chain){.top = NULL};
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
    (void)cprof_accum_copy(nodes[node], cprof_epoch_present(&registry->epoch).generation, INT64_MAX, &figures, counts, &order,
                           NULL);
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

static void check_active(int node, cprof_ns active_ns)
{
    cprof_figures figures = figures_of(node);
    CHECK_EQUAL(figures.moments.total_ns - figures.suspended_ns, active_ns);
}

/* G7: without memory nothing is opened, and the next try works. */
TEST(without_memory)
{
    static cprof_span *open[1000];
    cprof_resumable call = {.span = NULL};
    int depth = 0;
    set_up();
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
    tear_down();
}

TEST(calls_need_no_memory)
{
    uint64_t made = 0;
    set_up();
    for (int i = 0; i < ROUNDS; i++) {
        cprof_span *outer = open_node(0);
        close_node(open_node(1));
        close_node(outer);
        made = i == 0 ? fake_alloc_made() : made;
    }
    CHECK_EQUAL(fake_alloc_made(), made); /* the first calls made the histograms' rows */
    tear_down();
}

TEST(one_call)
{
    set_up();
    CHECK(cprof_chain_top(&chain) == NULL);
    cprof_span *span = open_node(0);
    CHECK(cprof_chain_busy(&chain));
    CHECK(span->owner == registry && span->tag == &tags[0] && span->accum == nodes[0]);
    pass(500);
    close_node(span);
    CHECK(cprof_chain_top(&chain) == NULL);
    check_node(0, 1, 500, 500);
    check_active(0, 500);
    tear_down();
}

/* Self time leaves out the direct children, and with them what is inside these. */
TEST(nesting)
{
    set_up();
    cprof_span *outer = open_node(0);
    pass(1);
    cprof_span *middle = open_node(1);
    pass(10);
    cprof_span *inner = open_node(2);
    pass(100);
    close_node(inner);
    pass(1000);
    close_node(middle);
    inner = open_node(2);
    pass(10000);
    close_node(inner);
    close_node(outer);
    check_node(0, 1, 11111, 1);
    check_node(1, 1, 1110, 1010);
    check_node(2, 2, 10100, 10100);
    tear_down();
}

/* B1 */
TEST(recursion)
{
    static cprof_span *open[DEPTH];
    set_up();
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
    tear_down();
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
    set_up();
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
    tear_down();
}

TEST(outcomes)
{
    set_up();
    cprof_span *outer = open_node(0);
    cprof_span *inner = open_node(1);
    pass(5);
    cprof_call_close(thread, &chain, inner, CPROF_OUTCOME_ERROR, false);
    pass(2);
    cprof_call_close(thread, &chain, outer, CPROF_OUTCOME_SUCCESS, false);
    inner = open_node(1);
    cprof_call_close(thread, &chain, inner, CPROF_OUTCOME_CANCELLED, false);
    check_node(0, 1, 7, 2); /* the time of a child that failed is the child's all the same */
    cprof_figures figures = figures_of(1);
    CHECK_EQUAL(figures.count, 0);
    CHECK_EQUAL(figures.error_count, 1);
    CHECK_EQUAL(figures.cancelled_count, 1);
    tear_down();
}

/* A call belongs to the statistics in which it began. */
TEST(reset_during_a_call)
{
    set_up();
    cprof_span *outer = open_node(0);
    cprof_registry_reset(registry);
    cprof_span *inner = open_node(1);
    pass(5);
    close_node(inner);
    close_node(outer);
    check_node(0, 0, 0, 0);
    CHECK_EQUAL(figures_of(0).dropped_count, 1);
    check_node(1, 1, 5, 5);
    tear_down();
}

/* C2: turned off meanwhile, a call is counted nevertheless. */
TEST(turned_off_during_a_call)
{
    set_up();
    cprof_span *span = open_node(0);
    pass(5);
    cprof_registry_configure(registry, 0, 0, false);
    close_node(span);
    check_node(0, 1, 5, 5);
    tear_down();
}

/* A span that only names an owner is no node: its children are those of the node around it. */
TEST(span_that_is_no_node)
{
    set_up();
    cprof_span *outer = open_node(0);
    cprof_span *owner = cprof_call_open(thread, &chain, NULL, 0, registry, NULL);
    CHECK(owner != NULL && owner->accum == NULL);
    pass(1);
    cprof_span *inner = open_node(1);
    pass(10);
    close_node(inner);
    pass(100);
    close_node(owner);
    pass(1000);
    close_node(outer);
    check_node(0, 1, 1111, 1101);
    check_node(1, 1, 10, 10);
    tear_down();
}

/* The elapsed times are exact, but the spans overlap: the one that was closed too early, those above it, and the one around
 * it have no known self time. */
TEST(closed_out_of_order)
{
    set_up();
    cprof_span *around = open_node(0);
    cprof_span *early = open_node(1);
    pass(1);
    cprof_span *above = open_node(2);
    pass(10);
    close_node(early);
    CHECK(cprof_chain_top(&chain) == above);
    pass(100);
    cprof_span *inside = open_node(3);
    pass(1000);
    close_node(inside);
    close_node(above);
    CHECK(cprof_chain_top(&chain) == around);
    close_node(around);
    check_node(0, 1, 1111, UNKNOWN_NS);
    check_node(1, 1, 11, UNKNOWN_NS);
    check_node(2, 1, 1110, UNKNOWN_NS);
    check_node(3, 1, 1000, 1000);
    around = open_node(0);
    pass(3);
    close_node(around);
    CHECK_EQUAL(figures_of(0).self_unknown, 1); /* the next call knows its own again */
    tear_down();
}

TEST(closed_from_the_bottom_up)
{
    cprof_span *open[DEEPEST];
    set_up();
    for (int i = 0; i < DEEPEST; i++) {
        open[i] = open_node(0);
        pass(1);
    }
    for (int i = 0; i < DEEPEST; i++) {
        close_node(open[i]);
    }
    check_node(0, DEEPEST, DEEPEST * (DEEPEST + 1) / 2, UNKNOWN_NS);
    CHECK_EQUAL(figures_of(0).self_unknown, DEEPEST);
    tear_down();
}

/* What is left of it stays in its chain, and is trimmed there; what was opened inside it is a child of what is around it. */
TEST(closed_in_another_chain)
{
    cprof_chain other = {.top = NULL};
    set_up();
    cprof_span *around = open_in(&other, 2);
    cprof_span *span = open_in(&other, 0);
    pass(7);
    cprof_span *own = open_node(1);
    close_node(span);
    CHECK(cprof_chain_top(&chain) == own);
    close_node(own);
    CHECK(cprof_chain_top(&other) == span && cprof_span_is_left(span));
    cprof_span *inside = open_in(&other, 3);
    pass(10);
    close_in(&other, inside);
    cprof_call_trim(thread, &other);
    CHECK(cprof_chain_top(&other) == around && !cprof_span_is_left(around));
    cprof_call_trim(thread, &other);
    close_in(&other, around);
    cprof_call_trim(thread, &other);
    CHECK(!cprof_chain_busy(&other));
    check_node(0, 1, 7, UNKNOWN_NS);
    CHECK_EQUAL(figures_of(0).active_unknown, 1);
    check_node(1, 1, 0, 0);
    check_node(2, 1, 17, UNKNOWN_NS);
    check_node(3, 1, 10, 10);
    tear_down();
}

/* The one around a task's chain is closed in that: it is in its own chain only. */
static void test_closed_inside_what_it_encloses(bool has_own)
{
    cprof_chain task = {.top = NULL};
    set_up();
    cprof_span *outer = open_node(0);
    cprof_chain_begin(&task, outer);
    cprof_span *own = has_own ? open_in(&task, 1) : NULL;
    pass(1);
    close_in(&task, outer);
    CHECK(cprof_chain_top(&chain) == outer && cprof_span_is_left(outer));
    CHECK(cprof_chain_busy(&chain) && cprof_chain_busy(&task) == has_own);
    own = has_own ? own : open_in(&task, 1);
    close_in(&task, own);
    cprof_call_trim(thread, &chain);
    CHECK(cprof_chain_top(&chain) == NULL && cprof_chain_top(&task) == NULL);
    check_node(0, 1, 1, UNKNOWN_NS);
    check_node(1, 1, has_own, has_own);
    tear_down();
}

/* So deep that it is not looked for. */
TEST(closed_far_below_the_top)
{
    cprof_span *open[DEEP];
    set_up();
    for (int i = 0; i < DEEP; i++) {
        open[i] = open_node(0);
        pass(1);
    }
    for (int i = 0; i < DEEP; i++) {
        cprof_call_trim(thread, &chain);
        close_node(open[i]);
    }
    cprof_call_trim(thread, &chain);
    CHECK(!cprof_chain_busy(&chain));
    check_node(0, DEEP, DEEP * (DEEP + 1) / 2, UNKNOWN_NS);
    CHECK_EQUAL(figures_of(0).self_unknown, DEEP);
    tear_down();
}

/* Its thread has ended, but it is left all the same: the time is known. */
TEST(detached)
{
    set_up();
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
    cprof_call_abandon(given_up);
    check_node(0, 1, 77, UNKNOWN_NS);
    check_node(1, 1, 7, UNKNOWN_NS);
    check_node(2, 0, 0, 0);
    tear_down();
}

/* The object that could close it is no more. */
TEST(given_up)
{
    set_up();
    cprof_span *around = open_node(0);
    cprof_span *span = open_node(1);
    pass(1);
    cprof_call_abandon(span);
    CHECK(cprof_chain_top(&chain) == span && cprof_span_is_left(span));
    cprof_call_trim(thread, &chain);
    CHECK(cprof_chain_top(&chain) == around);
    close_node(around);
    check_node(0, 1, 1, UNKNOWN_NS);
    check_node(1, 0, 0, 0);
    tear_down();
}

/* A span that nobody will close: it is not counted, and who has inherited it as a parent can tell that it is gone. */
TEST(discarded)
{
    cprof_chain abandoned = {.top = NULL};
    cprof_chain task = {.top = NULL};
    set_up();
    cprof_span *span = open_in(&abandoned, 0);
    cprof_chain_begin(&task, span);
    cprof_span *inner = open_in(&task, 1);
    pass(5);
    cprof_call_discard(span);
    close_in(&task, inner);
    CHECK(cprof_chain_top(&task) == NULL);
    check_node(0, 0, 0, 0);
    check_node(1, 1, 5, 5);
    tear_down();
}

TEST(find)
{
    cprof_chain inside;
    set_up();
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
    tear_down();
}

/* A task that was begun inside a node is a child of it. */
TEST(inherited_parent)
{
    cprof_chain task = {.top = NULL};
    set_up();
    cprof_span *outer = open_node(0);
    cprof_chain_begin(&task, cprof_chain_top(&chain));
    CHECK(cprof_chain_top(&task) == outer);
    CHECK(!cprof_chain_busy(&task));
    cprof_span *inner = open_in(&task, 1);
    CHECK(cprof_chain_busy(&task));
    pass(10);
    close_in(&task, inner);
    CHECK(!cprof_chain_busy(&task));
    pass(1);
    close_node(outer);
    CHECK(cprof_chain_top(&task) == NULL); /* it was closed meanwhile */
    check_node(0, 1, 11, 1);
    check_node(1, 1, 10, 10);
    tear_down();
}

/* While the task's node was open, the thread ran others: their times overlap, and the parent's self time is not known. */
TEST(inherited_parent_of_overlapping_tasks)
{
    cprof_chain tasks[2] = {{.top = NULL}};
    cprof_span *inner[2];
    set_up();
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
    tear_down();
}

TEST(inherited_parent_is_closed_before_its_child)
{
    cprof_chain task = {.top = NULL};
    set_up();
    cprof_span *outer = open_node(0);
    cprof_chain_begin(&task, outer);
    cprof_span *inner = open_in(&task, 1);
    pass(1);
    close_node(outer);
    cprof_span *other = open_node(2); /* in the memory of the one that was closed */
    CHECK(other == outer);
    pass(10);
    close_in(&task, inner);
    CHECK(cprof_chain_top(&task) == NULL);
    close_node(other);
    check_node(0, 1, 1, 1);
    check_node(1, 1, 11, 11);
    check_node(2, 1, 10, 10);
    tear_down();
}

/* The memory of the inherited parent, closed meanwhile, comes back as one of the chain's own spans. */
TEST(base_closed_under_own_spans)
{
    cprof_chain task = {.top = NULL};
    set_up();
    cprof_span *outer = open_node(0);
    cprof_chain_begin(&task, outer);
    cprof_span *first = open_in(&task, 1);
    pass(1);
    close_node(outer);
    cprof_span *second = open_in(&task, 2);
    CHECK(second == outer);
    CHECK(cprof_chain_busy(&task));
    CHECK(cprof_chain_find(&task, &tags[2]) == second);
    CHECK(cprof_chain_find(&task, &tags[1]) == first);
    CHECK(cprof_chain_find(&task, &tags[0]) == NULL);
    pass(10);
    cprof_span *third = open_in(&task, 3);
    pass(100);
    close_in(&task, third);
    CHECK(cprof_chain_top(&task) == second);
    close_in(&task, second);
    CHECK(cprof_chain_top(&task) == first);
    close_in(&task, first);
    CHECK(cprof_chain_top(&task) == NULL && !cprof_chain_busy(&task));
    check_node(0, 1, 1, 1);
    check_node(1, 1, 111, 1);
    check_node(2, 1, 110, 10);
    check_node(3, 1, 100, 100);
    tear_down();
}

/* The same, but the chain's spans are then closed from the bottom up. */
TEST(base_closed_under_own_spans_out_of_order)
{
    cprof_chain task = {.top = NULL};
    set_up();
    cprof_span *outer = open_node(0);
    cprof_chain_begin(&task, outer);
    cprof_span *first = open_in(&task, 1);
    close_node(outer);
    cprof_span *second = open_in(&task, 2);
    cprof_span *third = open_in(&task, 3);
    pass(1);
    close_in(&task, first);
    close_in(&task, second);
    CHECK(cprof_chain_top(&task) == third);
    CHECK(cprof_chain_find(&task, &tags[0]) == NULL);
    close_in(&task, third);
    CHECK(!cprof_chain_busy(&task));
    check_node(1, 1, 1, UNKNOWN_NS);
    check_node(2, 1, 1, UNKNOWN_NS);
    check_node(3, 1, 1, UNKNOWN_NS);
    tear_down();
}

/* A block of a coroutine: whether all of its time was active is not known once others may have run. */
TEST(block_that_may_be_suspended)
{
    set_up();
    cprof_span *block = open_node(0);
    pass(1);
    cprof_call_close(thread, &chain, block, CPROF_OUTCOME_SUCCESS, true);
    check_active(0, 1);
    CHECK_EQUAL(figures_of(0).active_unknown, 0);
    cprof_span *outer = open_node(1);
    block = open_node(0);
    pass(10);
    chain.moment++;
    cprof_call_close(thread, &chain, block, CPROF_OUTCOME_SUCCESS, true);
    close_node(outer);
    check_node(0, 2, 11, 11);
    check_node(1, 1, 10, 0);
    CHECK_EQUAL(figures_of(0).active_unknown, 1);
    CHECK_EQUAL(figures_of(1).active_unknown, 0);
    tear_down();
}

/* E1 */
TEST(clock_goes_back)
{
    set_up();
    uint64_t backward = atomic_load(&cprof_clock.backward);
    cprof_span *outer = open_node(0);
    pass(100);
    cprof_span *inner = open_node(1);
    now -= 60;
    close_node(inner);
    close_node(outer);
    check_node(0, 1, 40, 40);
    check_node(1, 1, 0, 0);
    CHECK_EQUAL(atomic_load(&cprof_clock.backward), backward + 1);
    outer = open_node(0);
    inner = open_node(1);
    pass(100);
    close_node(inner);
    now -= 60;
    close_node(outer);
    check_node(0, 2, 80, 40); /* of 40 ns, not more than 40 were spent in the child */
    tear_down();
}

/* The clock's rate is refined while a node is open: no self time becomes negative. */
TEST(rate_changes_during_a_call)
{
    set_up();
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
    tear_down();
}

static void begin(cprof_resumable *call, cprof_chain *where, int node)
{
    CHECK(cprof_call_resumable_begin(call, thread, where, nodes[node], cprof_registry_state(registry), registry));
    CHECK(cprof_chain_top(where) == call->span);
}

/* A coroutine: what it waits is part of its time, but it is not active then. */
TEST(coroutine)
{
    cprof_resumable call = {.span = NULL};
    set_up();
    begin(&call, &chain, 0);
    pass(1);
    cprof_call_resumable_suspend(&call, &chain, WITHIN);
    CHECK(cprof_chain_top(&chain) == NULL);
    pass(10);
    cprof_call_resumable_continue(&call, &chain);
    CHECK(cprof_chain_top(&chain) == call.span);
    pass(100);
    cprof_call_resumable_end(&call, thread, &chain, CPROF_OUTCOME_SUCCESS);
    CHECK(call.span == NULL);
    check_node(0, 1, 111, 111);
    check_active(0, 101);
    tear_down();
}

/* A generator: what passes between two steps is its consumer's time. */
TEST(generator)
{
    cprof_resumable call = {.span = NULL};
    set_up();
    begin(&call, &chain, 0);
    pass(1);
    for (int i = 0; i < 5; i++) {
        cprof_call_resumable_suspend(&call, &chain, EACH_ENDS);
        pass(1000);
        cprof_call_resumable_continue(&call, &chain);
        pass(1);
    }
    cprof_call_resumable_end(&call, thread, &chain, CPROF_OUTCOME_SUCCESS);
    check_node(0, 1, 6, 6);
    check_active(0, 6);
    tear_down();
}

/* An asynchronous generator waits inside its steps, and its consumer between them. */
TEST(asynchronous_generator)
{
    cprof_resumable call = {.span = NULL};
    set_up();
    begin(&call, &chain, 0);
    for (int i = 0; i < 3; i++) {
        pass(1);
        cprof_call_resumable_suspend(&call, &chain, WITHIN);
        pass(10);
        cprof_call_resumable_continue(&call, &chain);
        pass(1);
        cprof_call_resumable_suspend(&call, &chain, EACH_ENDS);
        pass(1000);
        cprof_call_resumable_continue(&call, &chain);
    }
    cprof_call_resumable_end(&call, thread, &chain, CPROF_OUTCOME_SUCCESS);
    check_node(0, 1, 36, 36);
    check_active(0, 6);
    tear_down();
}

/* The consumer's node is charged for the steps, not for its own work between them. */
TEST(generator_inside_a_node)
{
    cprof_resumable call = {.span = NULL};
    set_up();
    cprof_span *consumer = open_node(0);
    begin(&call, &chain, 1);
    pass(1);
    cprof_call_resumable_suspend(&call, &chain, EACH_ENDS);
    CHECK(cprof_chain_top(&chain) == consumer);
    pass(10);
    cprof_call_resumable_continue(&call, &chain);
    pass(100);
    cprof_call_resumable_end(&call, thread, &chain, CPROF_OUTCOME_SUCCESS);
    CHECK(cprof_chain_top(&chain) == consumer);
    pass(1000);
    close_node(consumer);
    check_node(0, 1, 1111, 1010);
    check_node(1, 1, 101, 101);
    tear_down();
}

/* A coroutine awaited by a node of its own task: the whole of it, the waiting too, is no self time of that node. */
TEST(coroutine_inside_a_node)
{
    cprof_resumable outer = {.span = NULL};
    cprof_resumable inner = {.span = NULL};
    set_up();
    begin(&outer, &chain, 0);
    pass(1);
    begin(&inner, &chain, 1);
    pass(10);
    cprof_call_resumable_suspend(&inner, &chain, WITHIN);
    cprof_call_resumable_suspend(&outer, &chain, WITHIN);
    pass(100);
    cprof_call_resumable_continue(&outer, &chain);
    cprof_call_resumable_continue(&inner, &chain);
    pass(1000);
    cprof_call_resumable_end(&inner, thread, &chain, CPROF_OUTCOME_SUCCESS);
    pass(10000);
    cprof_call_resumable_end(&outer, thread, &chain, CPROF_OUTCOME_SUCCESS);
    check_node(0, 1, 11111, 10001);
    check_active(0, 11011);
    check_node(1, 1, 1110, 1110);
    check_active(1, 1010);
    tear_down();
}

/* Blocks that are open inside when it is suspended go off the chain with it, and come back with it. */
TEST(suspended_with_open_blocks)
{
    cprof_resumable call = {.span = NULL};
    set_up();
    begin(&call, &chain, 0);
    cprof_span *block = open_node(1);
    pass(1);
    cprof_call_resumable_suspend(&call, &chain, WITHIN);
    cprof_span *other = open_node(2);
    pass(10);
    CHECK(cprof_chain_find(&chain, &tags[1]) == NULL);
    close_node(other);
    cprof_call_resumable_continue(&call, &chain);
    CHECK(cprof_chain_top(&chain) == block);
    pass(100);
    close_node(block);
    CHECK(cprof_chain_top(&chain) == call.span);
    cprof_call_resumable_end(&call, thread, &chain, CPROF_OUTCOME_SUCCESS);
    check_node(0, 1, 111, 0);
    check_node(1, 1, 111, 111);
    check_node(2, 1, 10, 10);
    tear_down();
}

/* A generator that is no node was begun inside the call, and goes on outside while the call is suspended: what is left of its
 * blocks goes when the call ends. */
TEST(closed_inside_a_suspended_call)
{
    cprof_resumable call = {.span = NULL};
    set_up();
    begin(&call, &chain, 0);
    cprof_span *lower = open_node(1);
    cprof_span *upper = open_node(2);
    pass(1);
    cprof_call_resumable_suspend(&call, &chain, WITHIN);
    pass(10);
    cprof_call_close(thread, &chain, lower, CPROF_OUTCOME_SUCCESS, true);
    CHECK(cprof_span_is_left(lower) && !cprof_span_is_left(upper));
    pass(100);
    cprof_call_close(thread, &chain, upper, CPROF_OUTCOME_ERROR, true);
    CHECK(cprof_chain_top(&chain) == NULL);
    cprof_call_resumable_continue(&call, &chain);
    CHECK(cprof_chain_top(&chain) == upper && cprof_chain_find(&chain, &tags[2]) == NULL);
    cprof_call_resumable_end(&call, thread, &chain, CPROF_OUTCOME_SUCCESS);
    CHECK(cprof_chain_top(&chain) == NULL);
    check_node(0, 1, 111, UNKNOWN_NS);
    check_node(1, 1, 11, UNKNOWN_NS);
    CHECK_EQUAL(figures_of(1).active_unknown, 1);
    CHECK_EQUAL(figures_of(2).error_count, 1);
    tear_down();
}

/* A task inside a node of another chain: that node is charged for the time in which the task ran. */
TEST(coroutine_of_a_task_inside_a_node)
{
    cprof_resumable call = {.span = NULL};
    cprof_chain task = {.top = NULL};
    set_up();
    cprof_span *outer = open_node(0);
    cprof_chain_begin(&task, outer);
    begin(&call, &task, 1);
    pass(1);
    cprof_call_resumable_suspend(&call, &task, WITHIN);
    CHECK(!cprof_chain_busy(&task));
    pass(10);
    cprof_call_resumable_continue(&call, &task);
    pass(100);
    cprof_call_resumable_end(&call, thread, &task, CPROF_OUTCOME_SUCCESS);
    pass(1000);
    close_node(outer);
    check_node(0, 1, 1111, 1010);
    check_node(1, 1, 111, 111);
    tear_down();
}

/* A call is resumed inside another node than it was begun in: each of these is charged for what ran in it. */
static void check_resumed_elsewhere(bool step_ends, cprof_ns total_ns)
{
    cprof_resumable call = {.span = NULL};
    set_up();
    cprof_span *first = open_node(0);
    begin(&call, &chain, 1);
    pass(1);
    cprof_call_resumable_suspend(&call, &chain, step_ends);
    close_node(first);
    pass(10);
    cprof_span *second = open_node(2);
    cprof_call_resumable_continue(&call, &chain);
    pass(100);
    cprof_call_resumable_end(&call, thread, &chain, CPROF_OUTCOME_SUCCESS);
    pass(1000);
    close_node(second);
    check_node(0, 1, 1, 0);
    check_node(1, 1, total_ns, total_ns);
    check_active(1, 101);
    check_node(2, 1, 1100, 1000);
    tear_down();
}

TEST(each_step_inside_another_node)
{
    check_resumed_elsewhere(EACH_ENDS, 101);
}

TEST(step_goes_on_inside_another_node)
{
    check_resumed_elsewhere(WITHIN, 111);
}

/* A11, A9: a generator that is never exhausted ends at its last suspension. */
TEST(abandoned)
{
    cprof_resumable call = {.span = NULL};
    set_up();
    begin(&call, &chain, 0);
    pass(5);
    cprof_call_resumable_suspend(&call, &chain, EACH_ENDS);
    pass(100000);
    cprof_call_resumable_abandon(&call, thread, CPROF_OUTCOME_SUCCESS);
    CHECK(call.span == NULL);
    check_node(0, 1, 5, 5);
    begin(&call, &chain, 1);
    cprof_call_resumable_suspend(&call, &chain, WITHIN);
    cprof_call_resumable_abandon(&call, thread, CPROF_OUTCOME_CANCELLED);
    CHECK_EQUAL(figures_of(1).cancelled_count, 1);
    tear_down();
}

/* It ends while a block that was opened in it still is. */
TEST(ends_below_an_open_block)
{
    cprof_resumable call = {.span = NULL};
    set_up();
    begin(&call, &chain, 0);
    cprof_span *block = open_node(1);
    pass(1);
    cprof_call_resumable_end(&call, thread, &chain, CPROF_OUTCOME_SUCCESS);
    CHECK(cprof_chain_top(&chain) == block);
    pass(10);
    close_node(block);
    check_node(0, 1, 1, UNKNOWN_NS);
    check_node(1, 1, 11, UNKNOWN_NS);
    tear_down();
}

/* A call ends so far below the top of the chain that it is not looked for. */
TEST(ends_far_below_open_blocks)
{
    cprof_resumable call = {.span = NULL};
    cprof_span *open[DEEP];
    set_up();
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
    tear_down();
}

/* One that is no node passes on, at each suspension, what its children took. */
TEST(resumable_that_is_no_node)
{
    cprof_resumable call = {.span = NULL};
    set_up();
    cprof_span *outer = open_node(0);
    CHECK(cprof_call_resumable_begin(&call, thread, &chain, NULL, 0, registry));
    for (int i = 0; i < 2; i++) {
        pass(1);
        cprof_span *inner = open_node(1);
        pass(10);
        close_node(inner);
        cprof_call_resumable_suspend(&call, &chain, EACH_ENDS);
        pass(100);
        cprof_call_resumable_continue(&call, &chain);
    }
    cprof_call_resumable_end(&call, thread, &chain, CPROF_OUTCOME_SUCCESS);
    close_node(outer);
    check_node(0, 1, 222, 202);
    check_node(1, 2, 20, 20);
    tear_down();
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
    set_up();
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
    tear_down();
}

/* E1: also with a clock that goes back, the active time is at most the elapsed time, and neither is negative. */
TEST(clock_goes_back_in_a_coroutine)
{
    cprof_resumable call = {.span = NULL};
    set_up();
    begin(&call, &chain, 0);
    now -= 100;
    cprof_call_resumable_suspend(&call, &chain, WITHIN);
    pass(500);
    cprof_call_resumable_continue(&call, &chain);
    cprof_call_resumable_end(&call, thread, &chain, CPROF_OUTCOME_SUCCESS);
    cprof_figures figures = figures_of(0);
    CHECK_EQUAL(figures.moments.total_ns, 400);
    CHECK(figures.suspended_ns <= figures.moments.total_ns);
    tear_down();
}

int main(void)
{
    fake_alloc_install();
    cprof_clock_set_test(read_clock);
    thread = cprof_thread_get();
    CHECK(thread != NULL);
    check_run(NULL, NULL);
    test_closed_inside_what_it_encloses(false);
    test_closed_inside_what_it_encloses(true);
    return EXIT_SUCCESS;
}
