/* recording.h: what a recording keeps, and what it says of the rest (C11). Argument: the events of each of eight threads,
 * 100,000 by default. */
#define _GNU_SOURCE
#include "cprofiling/calls/call.h"
#include "cprofiling/trace/recording.h"

#include "cprofiling/process.h"
#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"
#include "tests/core/kept_tables.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OWNER = 7, THREADS = 8, DEPTH = 4, SMALL_RING = 1000, MANY_LABELS = CPROF_RECORDING_MAX_LABELS + 10 };

/* A column's value, also where the whole column is "none". */
#define AT(table, column, row) ((table)->column != NULL ? (table)->column[row] : cprof_row_none.column)

#define EVENTS_OF_EACH UINT64_C(100000)
static uint64_t events_of_each = EVENTS_OF_EACH;
static cprof_ticks now;
static cprof_registry *registry;
static cprof_accum *outer, *inner;
static cprof_thread *thread;
static cprof_chain chain;

static cprof_ticks read_clock(void)
{
    return now;
}

static cprof_names key(const char *stage, const char *node)
{
    return (cprof_names){{stage, strlen(stage)}, {node, strlen(node)}};
}

static void tear_down(void)
{
    drop_tables();
    if (registry == NULL) {
        return;
    }
    CHECK(!cprof_chain_busy(&chain));
    cprof_registry_destroy(registry);
    registry = NULL;
}

static void set_up(void)
{
    tear_down();
    registry = cprof_registry_create(OWNER);
    CHECK(registry != NULL);
    outer = cprof_registry_accum(registry, key("train", "outer"));
    inner = cprof_registry_accum(registry, key("train", "inner"));
    CHECK(outer != NULL && inner != NULL);
    thread = cprof_thread_get();
    chain = (cprof_chain){.top = NULL};
    now = 1000;
}

static void begin(void)
{
    cprof_clock_set_test(read_clock);
    set_up();
}

static cprof_recording_session *start(uint64_t capacity, bool drop_newest, bool details)
{
    cprof_recording_options options = {
        .owner = OWNER, .capacity = capacity, .drop_newest = drop_newest, .hosts = true, .details = details};
    cprof_recording_session *session = NULL;
    CHECK_EQUAL(cprof_recording_start(&options, &session), CPROF_OK);
    return session;
}

static cprof_table *finish(cprof_recording_session *session)
{
    cprof_table *table = new_table();
    CHECK_EQUAL(cprof_recording_finish(session, table, true), CPROF_OK);
    CHECK_EQUAL(cprof_table_finish(table), CPROF_OK);
    return table;
}

static cprof_span *open_node(cprof_accum *accum)
{
    cprof_span *span = cprof_call_open(thread, &chain, accum, cprof_registry_state(registry), registry, accum);
    CHECK(span != NULL);
    return span;
}

static cprof_span *open_label(const char *name)
{
    cprof_span *span = cprof_call_open(thread, &chain, NULL, cprof_registry_state(registry), NULL, name);
    CHECK(span != NULL);
    span->label = cprof_recording_label(atomic_load(&cprof_recording.serial), key("", name));
    return span;
}

/* A record() as the layer above has it: without statistics, whatever is on. */
static cprof_span *open_record(const char *name)
{
    uint64_t state = cprof_registry_state(registry) & (CPROF_FLAG_TRACE | CPROF_FLAG_DETAIL);
    cprof_span *span = cprof_call_open(thread, &chain, NULL, state, NULL, name);
    CHECK(span != NULL);
    uint32_t serial = atomic_load(&cprof_recording.serial);
    cprof_recording_set_label(span, serial, cprof_recording_label(serial, key("", name)));
    return span;
}

static void close_span(cprof_span *span)
{
    cprof_call_close(thread, &chain, span, CPROF_OUTCOME_SUCCESS, false);
}

static void call(cprof_accum *accum)
{
    cprof_span *span = open_node(accum);
    now += 10;
    close_span(span);
}

static bool has_text(const cprof_table *table, const uint32_t *texts, size_t row, const char *expected)
{
    cprof_name text = cprof_table_string(table, texts != NULL ? texts[row] : 0);
    return text.length == strlen(expected) && memcmp(text.bytes, expected, text.length) == 0;
}

/* A row of a table. The first row begins at 0. */
typedef struct {
    const char *name;
    cprof_ns start_ns, elapsed_ns;
    int32_t parent; /* a row, or -1 */
    unsigned flags;
    cprof_ns suspended_ns;
} expected_row;

static void expect_rows(const cprof_table *table, const expected_row *rows, size_t count)
{
    CHECK_EQUAL(table->count, count);
    for (size_t i = 0; i < count; i++) {
        int32_t parent = rows[i].parent;
        CHECK(has_text(table, table->name, i, rows[i].name));
        CHECK_EQUAL(table->start_ns[i] - table->start_ns[0], rows[i].start_ns);
        CHECK_EQUAL(table->end_ns[i] - table->start_ns[i], rows[i].elapsed_ns);
        CHECK_EQUAL(AT(table, parent, i), parent);
        CHECK_EQUAL(AT(table, parent_span, i), parent < 0 ? 0 : table->span[parent]);
        CHECK(parent < 0 || table->trace_low[i] == table->trace_low[parent]);
        CHECK_EQUAL(AT(table, flags, i), rows[i].flags);
        CHECK_EQUAL(AT(table, suspended_ns, i), rows[i].suspended_ns);
    }
}

#define EXPECT_ROWS(table, ...) \
    expect_rows(table, (const expected_row[]){__VA_ARGS__}, COUNT_OF(((const expected_row[]){__VA_ARGS__})))

TEST(what_an_event_says)
{
    cprof_recording_session *session = start(100, false, false);
    cprof_span *first = open_node(outer);
    now += 5;
    cprof_span *label = open_label("load");
    call(inner);
    close_span(label);
    now += 5;
    cprof_call_close(thread, &chain, first, CPROF_OUTCOME_ERROR, false);
    call(inner);
    cprof_table *table = finish(session);
    EXPECT_ROWS(table, {"outer", 0, 20, -1, 0, 0}, {"load", 5, 10, 0, 0, 0}, {"inner", 5, 10, 1, 0, 0},
                {"inner", 20, 10, -1, 0, 0});
    CHECK_EQUAL(table->dropped, 0);
    CHECK(has_text(table, table->stage, 0, "train") && has_text(table, table->stage, 1, ""));
    CHECK(has_text(table, table->cat, 0, "cpu_op") && has_text(table, table->cat, 1, "user_annotation"));
    CHECK_EQUAL(table->kind[0], CPROF_KIND_NODE);
    CHECK_EQUAL(table->kind[1], CPROF_KIND_RECORD);
    CHECK_EQUAL(AT(table, outcome, 0), CPROF_OUTCOME_ERROR);
    CHECK_EQUAL(AT(table, outcome, 1), CPROF_OUTCOME_SUCCESS);
    CHECK(table->trace_low[3] != table->trace_low[0]);
    CHECK_EQUAL(table->trace_high[3], table->trace_high[0]);
    for (size_t i = 0; i < 4; i++) {
        CHECK(table->span[i] != 0 && table->trace_low[i] != 0);
        CHECK_EQUAL(table->tracks[table->track[i]].tid, gettid());
        CHECK_EQUAL(table->tracks[table->track[i]].pid, getpid());
    }
    CHECK_EQUAL(cprof_epoch_present(&registry->epoch).generation, 1); /* and nothing was counted */
}

TEST(times_are_those_of_the_day)
{
    struct timespec before;
    CHECK(clock_gettime(CLOCK_REALTIME, &before) == 0);
    cprof_recording_session *session = start(100, false, false);
    call(inner);
    cprof_table *table = finish(session);
    int64_t since_ns = table->start_ns[0] - ((int64_t)before.tv_sec * 1000000000 + before.tv_nsec);
    CHECK(since_ns >= -1000000 && since_ns < INT64_C(60000000000));
}

static void check_kept(uint64_t capacity, uint64_t made, bool drop_newest)
{
    set_up();
    cprof_recording_session *session = start(capacity, drop_newest, false);
    for (uint64_t i = 0; i < made; i++) {
        call(inner);
    }
    cprof_table *table = finish(session);
    uint64_t kept = made < capacity ? made : capacity;
    CHECK_EQUAL(table->count, kept);
    CHECK_EQUAL(table->dropped, made - kept);
    cprof_ns first_ns = table->start_ns[0];
    for (size_t i = 0; i < kept; i++) {
        CHECK_EQUAL(table->start_ns[i] - first_ns, 10 * i);
    }
}

TEST(a_full_ring_says_what_is_missing)
{
    static const uint64_t capacities[] = {1, 2, 63, 64, 65, 192, 4095, 5000, 12345};
    static const uint64_t made[] = {1, 64, 65, 4100, 5000, 5001, 12345, 12346, 40000};
    for (size_t i = 0; i < COUNT_OF(capacities); i++) {
        for (size_t j = 0; j < COUNT_OF(made); j++) {
            check_kept(capacities[i], made[j], false);
            check_kept(capacities[i], made[j], true);
        }
    }
}

TEST(which_events_go)
{
    for (int newest = 0; newest < 2; newest++) {
        set_up();
        cprof_recording_session *session = start(3, newest, false);
        for (int i = 0; i < 5; i++) {
            now = 1000 + (cprof_ticks)(i * i) * 100;
            call(inner);
        }
        cprof_table *table = finish(session);
        CHECK_EQUAL(table->count, 3);
        CHECK_EQUAL(table->start_ns[2] - table->start_ns[0], newest ? 400 : 1200);
    }
}

/* Open before, inside and after: each of the cases that pause() states. */
TEST(pausing)
{
    cprof_recording_session *session = start(100, false, false);
    cprof_span *across = open_node(outer);
    cprof_span *cut = open_node(outer);
    now += 10;
    cprof_recording_pause(session);
    cprof_recording_pause(session);
    now += 100;
    CHECK_EQUAL(cprof_registry_state(registry) & CPROF_FLAG_ALL, 0);
    call(inner);
    close_span(cut);
    cprof_span *late = open_node(inner);
    cprof_recording_resume(session);
    cprof_recording_resume(session);
    now += 1000;
    close_span(late);
    call(inner);
    close_span(across);
    EXPECT_ROWS(finish(session), {"outer", 0, 1130, -1, 0, 0}, {"outer", 0, 10, 0, CPROF_ROW_CUT, 0},
                {"inner", 1120, 10, 0, 0, 0});
}

TEST(the_end_while_paused)
{
    cprof_recording_session *session = start(100, false, false);
    cprof_span *span = open_node(outer);
    now += 7;
    cprof_recording_pause(session);
    now += 1000;
    EXPECT_ROWS(finish(session), {"outer", 0, 7, -1, CPROF_ROW_UNFINISHED, 0});
    close_span(span);
}

TEST(what_is_open_at_the_end)
{
    cprof_recording_session *session = start(100, false, false);
    cprof_span *first = open_node(outer);
    cprof_span *second = open_label("never seen before");
    cprof_resumable call_object = {.span = NULL};
    CHECK(cprof_call_resumable_begin(&call_object, thread, &chain, inner, cprof_registry_state(registry), registry));
    cprof_call_resumable_suspend(&call_object, &chain, true);
    now += 50;
    cprof_table *table = finish(session);
    EXPECT_ROWS(table, {"outer", 0, 50, -1, CPROF_ROW_UNFINISHED, 0}, {"never seen before", 0, 50, 0, CPROF_ROW_UNFINISHED, 0},
                {"inner", 0, 50, 1, CPROF_ROW_UNFINISHED | CPROF_ROW_SUSPENDABLE, 50});
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQUAL(table->tracks[table->track[i]].tid, gettid());
    }
    session = start(100, false, false); /* to the next recording they are nothing */
    cprof_call_resumable_continue(&call_object, &chain);
    cprof_call_resumable_end(&call_object, thread, &chain, CPROF_OUTCOME_SUCCESS);
    call(inner);
    close_span(second);
    close_span(first);
    EXPECT_ROWS(finish(session), {"inner", 0, 10, -1, 0, 0});
}

TEST(suspended_calls)
{
    cprof_recording_session *session = start(100, false, false);
    cprof_resumable call_object = {.span = NULL};
    CHECK(cprof_call_resumable_begin(&call_object, thread, &chain, outer, cprof_registry_state(registry), registry));
    now += 10;
    cprof_call_resumable_suspend(&call_object, &chain, true);
    now += 100;
    call(inner);
    cprof_call_resumable_continue(&call_object, &chain);
    call(inner);
    cprof_call_resumable_end(&call_object, thread, &chain, CPROF_OUTCOME_CANCELLED);
    CHECK(cprof_call_resumable_begin(&call_object, thread, &chain, outer, cprof_registry_state(registry), registry));
    now += 3;
    cprof_call_resumable_suspend(&call_object, &chain, true);
    now += 100;
    cprof_call_resumable_abandon(&call_object, thread, CPROF_OUTCOME_SUCCESS);
    cprof_span *given_up = open_node(inner);
    cprof_recording_begin_detail(given_up, &(struct cprof_recording_detail){.stack = 0});
    CHECK(given_up->detail != NULL);
    chain.top = given_up->parent;
    cprof_call_discard(given_up);
    CHECK(given_up->detail == NULL);
    cprof_table *table = finish(session);
    EXPECT_ROWS(table, {"outer", 0, 130, -1, CPROF_ROW_SUSPENDABLE, 110}, {"inner", 110, 10, -1, 0, 0},
                {"inner", 120, 10, 0, 0, 0}, {"outer", 130, 3, -1, CPROF_ROW_SUSPENDABLE, 0});
    CHECK_EQUAL(AT(table, outcome, 0), CPROF_OUTCOME_CANCELLED);
}

/* A recording that is paused, or ends, knows of calls that go on how long they were suspended up to there. */
TEST(suspended_calls_that_are_cut)
{
    cprof_recording_session *session = start(100, false, false);
    cprof_resumable calls[3];
    for (int i = 0; i < 3; i++) {
        CHECK(cprof_call_resumable_begin(&calls[i], thread, &chain, outer, cprof_registry_state(registry), registry));
        now += 10;
        cprof_call_resumable_suspend(&calls[i], &chain, i > 0);
        now += 100;
    }
    cprof_call_resumable_continue(&calls[0], &chain);
    now += 7;
    cprof_call_resumable_suspend(&calls[0], &chain, true);
    now += 50;
    cprof_recording_pause(session);
    now += 1000;
    cprof_call_resumable_abandon(&calls[0], thread, CPROF_OUTCOME_SUCCESS);
    cprof_call_resumable_continue(&calls[1], &chain);
    now += 3;
    cprof_call_resumable_end(&calls[1], thread, &chain, CPROF_OUTCOME_SUCCESS);
    cprof_recording_resume(session);
    cprof_table *table = finish(session);
    cprof_call_resumable_abandon(&calls[2], thread, CPROF_OUTCOME_SUCCESS);
    /* what the second ran after the pause counts as run before */
    EXPECT_ROWS(table, {"outer", 0, 387, -1, CPROF_ROW_CUT | CPROF_ROW_SUSPENDABLE, 370},
                {"outer", 110, 277, -1, CPROF_ROW_CUT | CPROF_ROW_SUSPENDABLE, 264},
                {"outer", 220, 1170, -1, CPROF_ROW_UNFINISHED | CPROF_ROW_SUSPENDABLE, 1160});
}

/* Also of one that runs when the recording ends, or that ran on after the pause in which it ends. */
TEST(suspended_calls_that_run_on)
{
    for (int paused = 0; paused < 2; paused++) {
        set_up();
        cprof_recording_session *session = start(100, false, false);
        cprof_resumable running;
        cprof_span *plain = open_node(inner);
        CHECK(cprof_call_resumable_begin(&running, thread, &chain, outer, cprof_registry_state(registry), registry));
        cprof_call_resumable_suspend(&running, &chain, true);
        now += 100;
        if (paused) {
            cprof_recording_pause(session);
            now += 5;
        }
        cprof_call_resumable_continue(&running, &chain);
        now += 10;
        cprof_table *table = finish(session);
        cprof_call_resumable_end(&running, thread, &chain, CPROF_OUTCOME_SUCCESS);
        close_span(plain);
        cprof_ns elapsed_ns = paused ? 100 : 110;
        EXPECT_ROWS(table, {"inner", 0, elapsed_ns, -1, CPROF_ROW_UNFINISHED, 0},
                    {"outer", 0, elapsed_ns, 0, CPROF_ROW_UNFINISHED | CPROF_ROW_SUSPENDABLE, 100});
    }
}

TEST(nothing_inside_a_muted_span)
{
    cprof_recording_session *session = start(100, false, false);
    cprof_span *warm = open_label("warm up");
    cprof_recording_mute(warm);
    struct cprof_recording_detail detail = {.stack = 1};
    cprof_recording_begin_detail(warm, &detail);
    CHECK(warm->detail == NULL);
    cprof_span *first = open_node(outer);
    call(inner);
    close_span(first);
    close_span(warm);
    call(inner);
    cprof_span *open = open_label("warm up");
    cprof_recording_mute(open);
    EXPECT_ROWS(finish(session), {"inner", 0, 10, -1, 0, 0});
    close_span(open);
    cprof_span *unrecorded = open_node(outer);
    cprof_recording_mute(unrecorded);
    CHECK_EQUAL(unrecorded->trace, 0);
    close_span(unrecorded);
}

static void note_at(cprof_ticks tick, int64_t call_key)
{
    now = 1000 + tick;
    cprof_recording_note(thread, call_key);
}

static void end_noted_at(cprof_ticks tick, int64_t call_key, cprof_accum *accum)
{
    now = 1000 + tick;
    cprof_recording_end_noted(thread, call_key, accum, cprof_chain_top(&chain));
}

TEST(calls_that_are_told_of_when_they_are_over)
{
    static const expected_row alone[] = {
        {"inner", 0, 10, -1, 0, 0},  {"outer", 100, 90, -1, 0, 0}, {"inner", 110, 10, 1, 0, 0},   {"label", 130, 30, 1, 0, 0},
        {"inner", 140, 10, 3, 0, 0}, {"inner", 170, 10, 1, 0, 0},  {"longer", 185, 10, -1, 0, 0},
    };
    static const expected_row inside[] = {
        {"inner", 0, 10, -1, 0, 0},  {"around", 50, 145, -1, 0, 0}, {"outer", 100, 90, 1, 0, 0}, {"inner", 110, 10, 2, 0, 0},
        {"label", 130, 30, 2, 0, 0}, {"inner", 140, 10, 4, 0, 0},   {"inner", 170, 10, 2, 0, 0}, {"longer", 185, 10, 1, 0, 0},
    };
    for (int rooted = 0; rooted < 2; rooted++) {
        set_up();
        cprof_recording_session *session = start(1000, false, false);
        call(inner); /* before: has nothing to do with the rest */
        now = 1000 + 50;
        cprof_span *around = rooted ? open_label("around") : NULL;
        note_at(100, 5);
        now = 1000 + 110;
        call(inner);
        now = 1000 + 130;
        cprof_span *label = open_label("label");
        now = 1000 + 140;
        call(inner);
        now = 1000 + 160;
        close_span(label);
        note_at(165, 4);
        note_at(170, 6);
        end_noted_at(180, 6, inner);
        end_noted_at(181, 7, inner);
        now = 1000 + 185;
        cprof_span *longer = open_label("longer");
        end_noted_at(190, 5, outer);
        now = 1000 + 195;
        close_span(longer);
        if (around != NULL) {
            close_span(around);
        }
        cprof_table *table = finish(session);
        if (rooted) {
            expect_rows(table, inside, COUNT_OF(inside));
        } else {
            expect_rows(table, alone, COUNT_OF(alone));
        }
        size_t noted = rooted ? 2 : 1;
        CHECK(has_text(table, table->stage, noted, "train"));
        CHECK_EQUAL(table->kind[noted], CPROF_KIND_NODE);
    }
}

/* They may be in other chunks of the ring, and the oldest of them gone. */
TEST(many_children_of_such_a_call)
{
    enum { CALLS = 200 };
    static const uint64_t capacities[] = {1, 2, 63, 64, 65, 100, 192, CALLS, CALLS + 1, 5000};
    for (size_t i = 0; i < COUNT_OF(capacities); i++) {
        for (int newest = 0; newest < 2; newest++) {
            set_up();
            cprof_recording_session *session = start(capacities[i], newest, false);
            note_at(0, 1);
            for (int j = 0; j < CALLS; j++) {
                call(inner);
            }
            end_noted_at(10 * CALLS, 1, outer);
            cprof_table *table = finish(session);
            bool kept = !newest || capacities[i] > CALLS;
            CHECK_EQUAL(table->count, capacities[i] < CALLS + 1 ? (int64_t)capacities[i] : CALLS + 1);
            size_t outers = 0;
            for (size_t row = 0; row < table->count; row++) {
                bool is_outer = has_text(table, table->name, row, "outer");
                outers += is_outer;
                CHECK_EQUAL(table->parent[row] >= 0, kept && !is_outer);
            }
            CHECK_EQUAL(outers, kept);
        }
    }
}

TEST(such_calls_that_nobody_tells_of)
{
    cprof_recording_session *session = start(100, false, false);
    for (int i = 0; i < 3 * CPROF_THREAD_NOTES; i++) {
        note_at((cprof_ticks)i, i);
    }
    for (int i = 0; i < 3 * CPROF_THREAD_NOTES; i++) {
        end_noted_at(1000, i, inner);
        end_noted_at(1000, i, inner);
    }
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, CPROF_THREAD_NOTES);
}

TEST(such_calls_and_pauses)
{
    note_at(0, 1); /* nothing is recorded yet */
    cprof_recording_session *session = start(100, false, false);
    end_noted_at(10, 1, inner);
    note_at(100, 1);
    note_at(101, 2);
    now = 1000 + 110;
    cprof_recording_pause(session);
    end_noted_at(120, 2, inner);
    note_at(130, 3);
    cprof_recording_resume(session);
    end_noted_at(140, 3, inner);
    end_noted_at(150, 1, outer);
    cprof_span *warm = open_label("warm up");
    cprof_recording_mute(warm);
    note_at(160, 4);
    end_noted_at(170, 4, inner);
    close_span(warm);
    note_at(180, 5);
    cprof_table *table = finish(session);
    end_noted_at(190, 5, inner);
    EXPECT_ROWS(table, {"outer", 0, 50, -1, 0, 0}, {"inner", 1, 9, 0, CPROF_ROW_CUT, 0});
}

TEST(steps)
{
    cprof_recording_session *session = start(100, false, false);
    char name[32];
    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof name, "ProfilerStep#%d", i);
        CHECK_EQUAL(cprof_recording_step(session, thread, key("", name)), CPROF_OK);
        now += 10;
    }
    now += 5;
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 40);
    CHECK_EQUAL(table->kind[39], CPROF_KIND_STEP);
    CHECK(has_text(table, table->name, 39, "ProfilerStep#39"));
    CHECK_EQUAL(table->end_ns[38] - table->start_ns[38], 10);
    CHECK_EQUAL(table->end_ns[39] - table->start_ns[39], 15);
}

TEST(beyond_times)
{
    cprof_recording_session *session = start(100, false, true);
    CHECK_EQUAL(cprof_registry_state(registry) & CPROF_FLAG_ALL, CPROF_FLAG_TRACE | CPROF_FLAG_DETAIL);
    uint32_t serial = atomic_load(&cprof_recording.serial);
    struct cprof_recording_detail detail = {
        .serial = serial,
        .shapes = cprof_recording_label(serial, key("", "[[3, 4]]")),
        .types = cprof_recording_label(serial, key("", "[\"float32\"]")),
        .stack = cprof_recording_label(serial, key("", "a.py(1): f")),
        .memory = {1000, 2000, CPROF_TABLE_UNKNOWN, 30},
    };
    cprof_memory after = {900, 2500, 50, 30};
    for (int i = 0; i < 2; i++) {
        cprof_span *span = open_node(outer);
        cprof_recording_end_detail(span, &after); /* it has none */
        cprof_recording_begin_detail(span, &detail);
        now += 10;
        if (i == 0) {
            call(inner);
            cprof_recording_end_detail(span, &after);
            close_span(span);
        }
    }
    cprof_table *table = finish(session);
    CHECK(chain.top->detail != NULL); /* until it is closed */
    close_span(chain.top);
    CHECK(has_text(table, table->shapes, 0, "[[3, 4]]") && has_text(table, table->types, 0, "[\"float32\"]"));
    CHECK(has_text(table, table->stack, 0, "a.py(1): f") && has_text(table, table->stack, 1, ""));
    CHECK_EQUAL(AT(table, memory_change, 0), -100);
    CHECK_EQUAL(AT(table, memory_peak, 0), 2500);
    CHECK(table->device_memory_change == NULL && table->device_memory_peak == NULL);
    CHECK_EQUAL(AT(table, memory_change, 1), CPROF_TABLE_UNKNOWN);
    CHECK_EQUAL(table->count, 5);
    CHECK_EQUAL(AT(table, flags, 2), CPROF_ROW_UNFINISHED);
    CHECK(has_text(table, table->stack, 2, "a.py(1): f"));
    CHECK_EQUAL(AT(table, memory_change, 2), CPROF_TABLE_UNKNOWN);
    for (size_t i = 3; i < 5; i++) {
        const char *json = table->kept + table->args_at[i];
        CHECK_EQUAL(table->kind[i], CPROF_KIND_COUNTER);
        CHECK_EQUAL(table->start_ns[i], table->end_ns[0]);
        CHECK(memcmp(json, i == 3 ? "{\"bytes\":900}" : "{\"bytes\":50}", table->args_length[i]) == 0);
    }
    cprof_memory present = cprof_memory_now();
    CHECK(present.memory > 0 && present.memory_peak >= present.memory / 2);
    CHECK_EQUAL(present.device_memory, CPROF_TABLE_UNKNOWN);
}

TEST(one_at_a_time)
{
    cprof_recording_options options = {.owner = OWNER, .capacity = 10, .hosts = true};
    cprof_recording_session *session = start(10, false, false);
    cprof_recording_session *second = NULL;
    CHECK_EQUAL(cprof_recording_start(&options, &second), CPROF_IN_USE);
    CHECK(second == NULL);
    cprof_registry *later = cprof_registry_create(OWNER);
    cprof_registry *foreign = cprof_registry_create(OWNER + 1);
    CHECK_EQUAL(cprof_registry_state(later) & CPROF_FLAG_ALL, CPROF_FLAG_TRACE);
    CHECK_EQUAL(cprof_registry_state(foreign) & CPROF_FLAG_ALL, 0);
    cprof_registry_configure(later, CPROF_FLAG_STATS, 0, false);
    CHECK_EQUAL(cprof_registry_state(later) & CPROF_FLAG_ALL, CPROF_FLAG_STATS | CPROF_FLAG_TRACE);
    CHECK_EQUAL(cprof_recording_finish(session, NULL, true), CPROF_OK);
    CHECK_EQUAL(cprof_registry_state(later) & CPROF_FLAG_ALL, CPROF_FLAG_STATS);
    cprof_registry_destroy(later);
    cprof_registry_destroy(foreign);
    options.capacity = 0;
    CHECK_EQUAL(cprof_recording_start(&options, &session), CPROF_OUT_OF_RANGE);
    options.capacity = (uint64_t)CPROF_RECORDING_MOST_CAPACITY + 1;
    CHECK_EQUAL(cprof_recording_start(&options, &session), CPROF_OUT_OF_RANGE);
    options = (cprof_recording_options){.owner = OWNER, .capacity = 10, .hosts = false};
    CHECK_EQUAL(cprof_recording_start(&options, &session), CPROF_OK);
    CHECK_EQUAL(cprof_registry_state(registry) & CPROF_FLAG_ALL, 0);
    CHECK_EQUAL(cprof_recording_finish(session, NULL, false), CPROF_OK);
    CHECK_EQUAL(cprof_recording_label(1, key("", "x")), 0);
}

enum { LABELS = 2 };

/* When labels end that were entered inside a node: before it, or after it was left in one of these ways. */
typedef enum { INSIDE, FIRST_IN_FIRST_OUT, FIRST_IN_LAST_OUT, AS_A_CALL_IN_STEPS, UNDER_ANOTHER_NODE, ORDERS } order;

static void leave_node(order how, cprof_span *node, cprof_resumable *steps)
{
    if (how == AS_A_CALL_IN_STEPS) {
        cprof_call_resumable_end(steps, thread, &chain, CPROF_OUTCOME_SUCCESS);
        return;
    }
    cprof_span *over = how == UNDER_ANOTHER_NODE ? open_node(inner) : NULL;
    close_span(node);
    if (over != NULL) {
        close_span(over);
    }
}

/* Calls before, between and after labels that may outlive the node. */
static void call_around_labels(order how, bool recorded)
{
    cprof_span *labels[LABELS] = {NULL};
    cprof_resumable steps = {.span = NULL};
    cprof_span *node = NULL;
    cprof_span *around = open_node(outer);
    if (how == AS_A_CALL_IN_STEPS) {
        CHECK(cprof_call_resumable_begin(&steps, thread, &chain, outer, cprof_registry_state(registry), registry));
    } else {
        node = open_node(outer);
    }
    call(inner);
    for (int i = 0; recorded && i < LABELS; i++) {
        labels[i] = open_record(i == 0 ? "first" : "second");
    }
    call(inner);
    if (how != INSIDE) {
        leave_node(how, node, &steps);
    }
    for (int i = 0; i < LABELS; i++) {
        call(inner);
        if (recorded) {
            close_span(labels[how == INSIDE || how == FIRST_IN_LAST_OUT ? LABELS - 1 - i : i]);
        }
    }
    if (how == INSIDE) {
        leave_node(how, node, &steps);
    }
    call(inner);
    close_span(around);
}

TEST(statistics_are_the_same_beside_a_recording)
{
    static uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
    cprof_figures figures[2];
    uint64_t place;
    for (int how = 0; how < ORDERS; how++) {
        for (int recorded = 0; recorded < 2; recorded++) {
            set_up();
            cprof_registry_configure(registry, CPROF_FLAG_STATS, 0, false);
            cprof_recording_session *session = recorded ? start(100, false, false) : NULL;
            call_around_labels(how, recorded);
            CHECK_EQUAL(cprof_accum_copy(outer, 1, INT64_MAX, &figures[recorded], counts, &place, NULL), CPROF_OK);
            CHECK(session == NULL || cprof_recording_finish(session, NULL, true) == CPROF_OK);
            CHECK_EQUAL(figures[recorded].count, 2);
            CHECK_EQUAL(figures[recorded].self_unknown, how == UNDER_ANOTHER_NODE ? 2 : 0);
            CHECK_EQUAL(figures[recorded].nested_ns, figures[0].nested_ns);
            CHECK(figures[recorded].max_ms == figures[0].max_ms);
        }
        CHECK(how != INSIDE || figures[0].nested_ns == 90);
    }
}

/* Labels and texts that were asked for in one recording mean nothing in the next. */
TEST(texts_of_an_earlier_recording)
{
    cprof_recording_session *session = start(100, false, true);
    uint32_t serial = atomic_load(&cprof_recording.serial);
    uint32_t label = 0;
    for (int i = 0; i < 100; i++) {
        label = cprof_recording_label(serial, (cprof_names){{"", 0}, {(const char *)&i, sizeof i}});
    }
    struct cprof_recording_detail detail = {.serial = serial, .shapes = label, .types = label, .stack = label};
    CHECK_EQUAL(cprof_recording_finish(session, NULL, true), CPROF_OK);
    session = start(100, false, true);
    cprof_span *closed = open_record("closed");
    cprof_recording_set_label(closed, serial, label);
    cprof_span *node = open_node(outer);
    cprof_recording_begin_detail(node, &detail);
    close_span(node);
    close_span(closed);
    cprof_span *open = open_record("open");
    cprof_recording_set_label(open, serial, label);
    cprof_table *table = finish(session);
    close_span(open);
    CHECK_EQUAL(table->count, 1);
    CHECK_EQUAL(table->dropped, 2);
    CHECK(has_text(table, table->name, 0, "outer"));
    CHECK(table->shapes == NULL && table->types == NULL && table->stack == NULL);
}

/* Of a span that was given up from outside nobody looked at the end: it has no figures of memory. */
TEST(memory_at_an_end_that_nobody_saw)
{
    cprof_recording_session *session = start(100, false, true);
    struct cprof_recording_detail detail = {.memory = {1000, 2000, 10, 20}};
    cprof_span *span = open_node(outer);
    cprof_recording_begin_detail(span, &detail);
    close_span(span);
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 1);
    CHECK(table->memory_change == NULL && table->memory_peak == NULL);
    CHECK(table->device_memory_change == NULL && table->device_memory_peak == NULL);
}

TEST(what_is_muted)
{
    CHECK(!cprof_recording_is_muted(NULL));
    cprof_recording_session *session = start(100, false, false);
    cprof_span *warm = open_record("warm up");
    CHECK(!cprof_recording_is_muted(chain.top));
    cprof_recording_mute(warm);
    cprof_span *marker = cprof_call_open(thread, &chain, NULL, 0, NULL, NULL);
    CHECK(cprof_recording_is_muted(warm) && cprof_recording_is_muted(marker));
    CHECK_EQUAL(cprof_recording_finish(session, NULL, true), CPROF_OK);
    session = start(100, false, false); /* to the next recording it is nothing */
    CHECK(!cprof_recording_is_muted(marker));
    close_span(marker);
    close_span(warm);
    CHECK_EQUAL(cprof_recording_finish(session, NULL, true), CPROF_OK);
}

/* A thread for which there is no memory loses its spans, which are counted. */
TEST(spans_that_cannot_take_part)
{
    cprof_recording_session *session = start(100, false, false);
    for (uint64_t nth = 1; nth <= 2; nth++) { /* the list of threads; the ring */
        fake_alloc_fail(nth);
        call(inner);
        CHECK(fake_alloc_has_failed());
        fake_alloc_fail(0);
    }
    fake_alloc_fail(1);
    CHECK_EQUAL(cprof_recording_step(session, thread, key("", "step")), CPROF_NO_MEMORY);
    fake_alloc_fail(0);
    while (thread->trace.number < 16) { /* until that list is full */
        thread->trace.serial = 0;
        call(inner);
    }
    cprof_span *open = open_node(outer);
    thread->trace.serial = 0; /* as if another thread closed it */
    fake_alloc_fail(1);
    close_span(open);
    CHECK(fake_alloc_has_failed());
    fake_alloc_fail(0);
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 16);
    CHECK_EQUAL(table->dropped, 4);
}

TEST(every_allocation_may_fail)
{
    uint64_t made = 0;
    for (uint64_t nth = 1; made == 0; nth++) {
        set_up();
        cprof_recording_options options = {.owner = OWNER, .capacity = 300, .hosts = true, .details = true};
        cprof_recording_session *session = NULL;
        struct cprof_recording_detail detail = {.stack = 0};
        fake_alloc_fail(nth);
        if (cprof_recording_start(&options, &session) == CPROF_OK) {
            for (int i = 0; i < 200; i++) {
                cprof_span *span = open_node(i % 2 == 0 ? outer : inner);
                cprof_recording_begin_detail(span, &detail);
                close_span(span);
            }
            (void)cprof_recording_step(session, thread, key("", "step"));
            cprof_span *open = open_label("open");
            cprof_table *table = cprof_table_create();
            cprof_status status = cprof_recording_finish(session, table, true);
            CHECK(status == CPROF_OK || status == CPROF_NO_MEMORY);
            if (status == CPROF_OK && table != NULL) {
                CHECK(table->count + table->dropped >= 200 || fake_alloc_has_failed());
            }
            cprof_table_destroy(table);
            close_span(open);
        } else {
            CHECK(session == NULL);
        }
        made = fake_alloc_has_failed() ? 0 : 1;
        fake_alloc_fail(0);
    }
}

TEST(a_child_has_no_part_in_it)
{
    cprof_recording_session *session = start(100, false, false);
    cprof_span *span = open_node(outer);
    IN_CHILD
    {
        CHECK_EQUAL(cprof_registry_state(registry) & CPROF_FLAG_ALL, 0);
        close_span(span);
        CHECK_EQUAL(cprof_recording_step(session, thread, key("", "step")), CPROF_OK);
        cprof_table *nothing = finish(session);
        CHECK_EQUAL(nothing->count, 0);
        cprof_recording_session *own = start(100, false, false);
        call(inner);
        cprof_table *table = finish(own);
        CHECK_EQUAL(table->count, 1);
        CHECK_EQUAL(table->tracks[0].pid, getpid());
        _exit(0);
    }
    close_span(span);
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 1);
}

TEST(labels_have_a_limit)
{
    if (events_of_each < EVENTS_OF_EACH) {
        return; /* a million labels take long where a program is slow */
    }
    cprof_recording_session *session = start(10, false, false);
    uint32_t serial = atomic_load(&cprof_recording.serial);
    char name[16];
    uint32_t label = 0;
    for (int i = 0; i < MANY_LABELS; i++) {
        (void)snprintf(name, sizeof name, "%d", i);
        uint32_t last = label;
        label = cprof_recording_label(serial, key("", name));
        CHECK(label != 0 && (label == last + 1 || label == CPROF_RECORDING_MAX_LABELS + 1));
    }
    CHECK_EQUAL(label, CPROF_RECORDING_MAX_LABELS + 1);
    CHECK_EQUAL(cprof_recording_text(serial, cprof_name_of("17")), 18);
    CHECK_EQUAL(cprof_recording_text(serial, cprof_name_of("[[2, 3]]")), 0); /* it is JSON, and what stands for others is not */
    CHECK_EQUAL(cprof_recording_text(serial + 1, cprof_name_of("17")), 0);
    call(outer);
    cprof_span *open = open_node(inner);
    cprof_table *table = finish(session);
    close_span(open);
    CHECK_EQUAL(table->count, 2);
    CHECK(has_text(table, table->name, 0, "__overflow__") && has_text(table, table->name, 1, "__overflow__"));
}

/* However long labels are, they take no more memory than that; what is known by then goes on. */
TEST(labels_have_so_many_bytes)
{
    enum { LABEL = 1 << 20, ALL = CPROF_RECORDING_MAX_LABEL_BYTES / LABEL };
    cprof_recording_session *session = start(10, false, false);
    uint32_t serial = atomic_load(&cprof_recording.serial);
    char *name = calloc(1, LABEL);
    CHECK(name != NULL);
    for (uint32_t i = 1; i < ALL; i++) {
        memcpy(name, &i, sizeof i);
        CHECK_EQUAL(cprof_recording_label(serial, (cprof_names){{"", 0}, {name, LABEL}}), i);
    }
    cprof_names last = {{name, LABEL / 2}, {name, LABEL / 2 - 3}};
    CHECK_EQUAL(cprof_recording_label(serial, last), ALL);
    CHECK_EQUAL(cprof_recording_text(serial, cprof_name_of("long")), 0);
    CHECK_EQUAL(cprof_recording_label(serial, key("", "long")), ALL + 1);
    CHECK_EQUAL(cprof_recording_label(serial, key("", "longer")), ALL + 1);
    CHECK_EQUAL(cprof_recording_text(serial, (cprof_name){name, LABEL}), ALL - 1);
    call(outer);
    cprof_table *table = finish(session);
    CHECK(table->count == 1 && has_text(table, table->name, 0, "__overflow__"));
    free(name);
}

/* Another thread was in the middle of an event when the process was forked: its ring may be anything, and is left alone. */
TEST(a_fork_while_others_write)
{
    cprof_recording_session *session = start(100, false, true);
    call(inner);
    atomic_store(&thread->trace_mark, atomic_load(&cprof_recording.serial));
    IN_CHILD
    {
        uint64_t live = fake_alloc_live();
        CHECK_EQUAL(cprof_recording_finish(session, NULL, true), CPROF_OK);
        CHECK_EQUAL(live - fake_alloc_live(), 5); /* session, threads, three of the labels; not the ring, nor what it has */
        _exit(0);
    }
    atomic_store(&thread->trace_mark, 0);
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 1);
}

/* ---- Threads */

static _Atomic uint64_t made;
static _Atomic bool go_on;

static void nest(cprof_thread *self, cprof_chain *own)
{
    cprof_span *spans[DEPTH];
    bool recorded[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        spans[i] = cprof_call_open(self, own, i % 2 == 0 ? outer : inner, cprof_registry_state(registry), NULL, own);
        CHECK(spans[i] != NULL);
        recorded[i] = spans[i]->trace != 0;
    }
    for (int i = DEPTH - 1; i >= 0; i--) {
        cprof_call_close(self, own, spans[i], CPROF_OUTCOME_SUCCESS, false);
        atomic_fetch_add_explicit(&made, recorded[i], memory_order_relaxed);
    }
}

static void *make_events(void *unused)
{
    cprof_thread *self = cprof_thread_get();
    cprof_chain own = {.top = NULL};
    for (uint64_t i = 0; i < events_of_each / DEPTH; i++) {
        nest(self, &own);
    }
    return unused;
}

static void *make_events_on(void *unused)
{
    cprof_thread *self = cprof_thread_get();
    cprof_chain own = {.top = NULL};
    while (atomic_load(&go_on)) {
        nest(self, &own);
    }
    return unused;
}

static void check_well_formed(const cprof_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        CHECK(table->span[i] != 0 && table->end_ns[i] >= table->start_ns[i]);
        CHECK(has_text(table, table->name, i, "outer") || has_text(table, table->name, i, "inner"));
        int32_t parent = table->parent[i];
        if (parent >= 0) {
            CHECK_EQUAL(AT(table, parent_span, i), table->span[parent]);
            CHECK_EQUAL(table->trace_low[i], table->trace_low[parent]);
            CHECK_EQUAL(table->track[i], table->track[parent]);
            bool is_cut = (AT(table, flags, parent) & CPROF_ROW_CUT) != 0; /* at a pause beside it */
            CHECK(table->start_ns[i] >= table->start_ns[parent]);
            CHECK(is_cut || table->end_ns[i] <= table->end_ns[parent]);
        }
    }
}

TEST(what_is_kept_and_what_is_dropped_are_all)
{
    cprof_clock_set_test(NULL);
    for (int newest = 0; newest < 2; newest++) {
        set_up();
        made = 0;
        cprof_recording_session *session = start(SMALL_RING, newest, false);
        check_threads(THREADS, make_events, NULL, 0);
        cprof_table *table = finish(session);
        CHECK_EQUAL(made, THREADS * (events_of_each / DEPTH) * DEPTH);
        CHECK_EQUAL(table->count + table->dropped, made);
        CHECK(table->count >= SMALL_RING && table->count <= (size_t)THREADS * SMALL_RING);
        check_well_formed(table);
    }
}

/* Recordings begin, pause and end while threads go on; what was kept is whole. */
TEST(ends_while_threads_go_on)
{
    cprof_clock_set_test(NULL);
    pthread_t threads[THREADS];
    atomic_store(&go_on, true);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = check_thread(make_events_on, NULL);
    }
    for (int i = 0; i < 20; i++) {
        cprof_recording_session *session = start(i % 2 == 0 ? 100 : 5000, i % 3 == 0, i % 5 == 0);
        for (int j = 0; j < 3; j++) {
            (void)usleep(300);
            cprof_recording_pause(session);
            cprof_recording_resume(session);
        }
        cprof_table *table = new_table();
        CHECK_EQUAL(cprof_recording_finish(session, table, false), CPROF_OK);
        CHECK_EQUAL(cprof_table_finish(table), CPROF_OK);
        check_well_formed(table);
    }
    atomic_store(&go_on, false);
    for (int i = 0; i < THREADS; i++) {
        check_join(threads[i]);
    }
}

/* A thread that has stopped in the middle of an event holds nobody up for long; its events count as dropped (C10). */
TEST(a_thread_that_stopped_while_writing)
{
    cprof_recording_session *session = start(100, false, false);
    call(inner);
    call(inner);
    atomic_store(&thread->trace_mark, atomic_load(&cprof_recording.serial));
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 0);
    CHECK_EQUAL(table->dropped, 2);
    session = start(100, false, false);
    CHECK_EQUAL(cprof_recording_finish(session, NULL, true), CPROF_OK);
    uint64_t live = fake_alloc_live();
    atomic_store(&thread->trace_mark, 0);
    session = start(100, false, false);
    CHECK_EQUAL(cprof_recording_finish(session, NULL, true), CPROF_OK);
    CHECK(fake_alloc_live() < live); /* what was left to it is free */
}

/* What membarrier() answers; 0: what the system says. */
static int membarrier_error;

WRAP_REAL(long, syscall, long number, long command, long flags, long cpu)
{
    if (number == SYS_membarrier && membarrier_error != 0) {
        errno = membarrier_error;
        return -1;
    }
    return real_syscall(number, command, flags, cpu);
}

static void record_one_call(void)
{
    cprof_recording_session *session = start(100, false, false);
    call(inner);
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 1);
}

/* Where there is no membarrier, at the beginning or at the end of a recording, writers fence by themselves from then on. */

TEST(without_membarrier)
{
    membarrier_error = ENOSYS;
    record_one_call();
    CHECK(atomic_load(&cprof_recording.fenced));
    membarrier_error = 0;
    cprof_recording_session *session = start(100, false, false);
    atomic_store(&cprof_recording.fenced, false);
    call(inner);
    membarrier_error = EPERM;
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 1);
    CHECK(atomic_load(&cprof_recording.fenced));
    membarrier_error = 0;
    record_one_call();
}

static void *call_once(void *number)
{
    cprof_chain own = {.top = NULL};
    cprof_span *span = cprof_call_open(cprof_thread_get(), &own, inner, cprof_registry_state(registry), NULL, number);
    CHECK(span != NULL);
    cprof_call_close(cprof_thread_get(), &own, span, CPROF_OUTCOME_SUCCESS, false);
    return NULL;
}

/* Short-lived threads share a ring, one after the other; each has a track of its own (C4). */
TEST(threads_that_come_and_go)
{
    cprof_clock_set_test(NULL);
    fake_alloc_fail(0);
    cprof_recording_session *session = start(1000, false, false);
    uint64_t before = fake_alloc_mapped_bytes();
    for (int i = 0; i < 200; i++) {
        check_in_thread(call_once, NULL);
    }
    CHECK(fake_alloc_mapped_bytes() - before < 100 * 4096);
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 200);
    CHECK(table->track_count > 1);
}

int main(int argc, char **argv)
{
    events_of_each = check_argument(argc, argv, EVENTS_OF_EACH);
    cprof_process_start();
    fake_alloc_install();
    check_run(begin, tear_down);
    return EXIT_SUCCESS;
}
