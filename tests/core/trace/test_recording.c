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

enum {
    OWNER = 7,
    THREADS = 8,
    DEPTH = 4,
    SMALL_RING = 1000,
    MANY_LABELS = CPROF_RECORDING_MAX_LABELS + 10,
    NODES = 4,
    LETTERS = 26,
    MOST_ROWS = 10,
    CUT = CPROF_ROW_CUT,
    OPEN = CPROF_ROW_UNFINISHED,
    STEPS = CPROF_ROW_SUSPENDABLE,
};

/* A column's value, also where the whole column is "none". */
#define AT(table, column, row) ((table)->column != NULL ? (table)->column[row] : cprof_row_none.column)

#define EVENTS_OF_EACH UINT64_C(100000)
static uint64_t events_of_each = EVENTS_OF_EACH;
static cprof_ticks now;
static cprof_registry *registry;
static cprof_accum *nodes[NODES];
static cprof_recording_session *playing; /* of the text */
static cprof_span *played[LETTERS];
static cprof_resumable suspendable[LETTERS];
static cprof_thread *thread;
static cprof_chain chain;

static cprof_ticks read_clock(void)
{
    return now;
}

static cprof_names key(const char *stage, const char *node)
{
    return (cprof_names){cprof_name_of(stage), cprof_name_of(node)};
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
    static const char *const names[NODES] = {"a", "b", "c", "d"};
    tear_down();
    registry = cprof_registry_create(OWNER);
    CHECK(registry != NULL);
    for (int i = 0; i < NODES; i++) {
        nodes[i] = cprof_registry_accum(registry, key("train", names[i]));
        CHECK(nodes[i] != NULL);
    }
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

static void drop(cprof_recording_session *session)
{
    CHECK_EQUAL(cprof_recording_finish(session, NULL, true), CPROF_OK);
}

static cprof_span *open_node(cprof_accum *accum)
{
    cprof_span *span = cprof_call_open(thread, &chain, accum, cprof_registry_state(registry), registry, accum);
    CHECK(span != NULL);
    return span;
}

/* A record() as the layer above has it: without statistics, whatever is on. */
static cprof_span *open_label(const char *name)
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

static void call_for(cprof_accum *accum, cprof_ticks ns)
{
    cprof_span *span = open_node(accum);
    now += ns;
    close_span(span);
}

static void call(cprof_accum *accum)
{
    call_for(accum, 10);
}

static bool has_text(const cprof_table *table, const uint32_t *texts, size_t row, const char *expected)
{
    return cprof_name_is(cprof_table_string(table, texts != NULL ? texts[row] : 0), expected);
}

/* ---- Recordings as a text
 *
 * A word does something to the span of its letter: a to d are nodes, x to z labels, o is a span that is neither:
 *
 *   a( a) a! a~  opens it; closes it with success, with an error, cancelled
 *   b10          opens it, lets 10 ns pass, and closes it
 *   a[ a] a]~    begins a call that may be suspended; ends it with success, cancelled
 *   a, a; a. a_  suspends it within a step or between two; continues it; gives it up
 *   a% a" a# a&  mutes it; gives it a detail; discards it; gives it up in its place
 *   ?5 a=5       notes that a call of key 5 begins; it was one of a, and is over
 *
 * A number lets so many ns pass; @100 is the time since the beginning. start, pause, resume, drop, end (which looks at the
 * rows): of the recording. loud, quiet: whether a span would be recorded that is opened now. trim: takes what was given up
 * off the chain.
 */

/* A row of a table. The first row begins at 0. */
typedef struct {
    const char *name;
    cprof_ns start_ns, elapsed_ns;
    int32_t parent; /* a row, or -1 */
    unsigned flags;
    cprof_ns suspended_ns;
    cprof_outcome outcome;
} expected_row;

static void check_rows(const cprof_table *table, const expected_row *rows)
{
    size_t count = 0;
    CHECK(rows != NULL);
    for (; count < MOST_ROWS && rows[count].name != NULL; count++) {
        size_t i = count;
        const char *name = rows[i].name;
        int32_t parent = rows[i].parent;
        bool is_node = name[0] <= 'd';
        CHECK(table->count > i);
        CHECK(has_text(table, table->name, i, name));
        CHECK(has_text(table, table->stage, i, is_node ? "train" : ""));
        CHECK(has_text(table, table->cat, i, is_node ? "cpu_op" : "user_annotation"));
        CHECK_EQUAL(table->kind[i], is_node ? CPROF_KIND_NODE : CPROF_KIND_RECORD);
        CHECK_EQUAL(table->start_ns[i] - table->start_ns[0], rows[i].start_ns);
        CHECK_EQUAL(table->end_ns[i] - table->start_ns[i], rows[i].elapsed_ns);
        CHECK_EQUAL(AT(table, parent, i), parent);
        CHECK_EQUAL(AT(table, parent_span, i), parent < 0 ? 0 : table->span[parent]);
        CHECK(table->span[i] != 0 && table->trace_low[i] != 0);
        CHECK_EQUAL(table->trace_high[i], table->trace_high[0]);
        CHECK(parent >= 0 ? table->trace_low[i] == table->trace_low[parent]
                          : i == 0 || table->trace_low[i] != table->trace_low[0]);
        CHECK_EQUAL(AT(table, flags, i), rows[i].flags);
        CHECK_EQUAL(AT(table, suspended_ns, i), rows[i].suspended_ns);
        CHECK_EQUAL(AT(table, outcome, i), rows[i].outcome);
        CHECK_EQUAL(table->tracks[table->track[i]].tid, gettid());
        CHECK_EQUAL(table->tracks[table->track[i]].pid, getpid());
    }
    CHECK_EQUAL(table->count, count);
    CHECK_EQUAL(table->dropped, 0);
}

static bool play_whole_word(const char *word, const expected_row *rows)
{
    if (strcmp(word, "start") == 0) {
        playing = start(100, false, false);
    } else if (strcmp(word, "pause") == 0) {
        cprof_recording_pause(playing);
        CHECK_EQUAL(cprof_registry_state(registry) & CPROF_FLAG_TRACE, 0);
    } else if (strcmp(word, "resume") == 0) {
        cprof_recording_resume(playing);
    } else if (strcmp(word, "drop") == 0) {
        drop(playing);
        playing = NULL;
    } else if (strcmp(word, "end") == 0) {
        check_rows(finish(playing), rows);
        playing = NULL;
    } else if (strcmp(word, "loud") == 0 || strcmp(word, "quiet") == 0) {
        CHECK(cprof_recording_is_muted(chain.top) == (word[0] == 'q'));
    } else if (strcmp(word, "trim") == 0) {
        cprof_call_trim(thread, &chain);
    } else if (word[0] == '?') {
        cprof_recording_note(thread, strtoll(word + 1, NULL, 10));
    } else if (word[0] == '@') {
        now = 1000 + strtoull(word + 1, NULL, 10);
    } else if (strchr("0123456789", word[0]) != NULL) {
        now += strtoull(word, NULL, 10);
    } else {
        return false;
    }
    return true;
}

static void play_word(const char *word, const expected_row *rows)
{
    if (play_whole_word(word, rows)) {
        return;
    }
    static const char *const labels[] = {"x", "y", "z"};
    const struct cprof_recording_detail detail = {.stack = 1};
    cprof_span **span = &played[word[0] - 'a'];
    cprof_resumable *steps = &suspendable[word[0] - 'a'];
    cprof_accum *accum = word[0] <= 'd' ? nodes[word[0] - 'a'] : NULL;
    cprof_outcome outcome = strchr(word, '!') != NULL   ? CPROF_OUTCOME_ERROR
                            : strchr(word, '~') != NULL ? CPROF_OUTCOME_CANCELLED
                                                        : CPROF_OUTCOME_SUCCESS;
    switch (word[1]) {
    case '(':
        *span = accum != NULL    ? open_node(accum)
                : word[0] >= 'x' ? open_label(labels[word[0] - 'x'])
                                 : cprof_call_open(thread, &chain, NULL, 0, NULL, NULL);
        break;
    case ')':
    case '!':
    case '~':
        cprof_call_close(thread, &chain, *span, outcome, false);
        break;
    case '[':
        CHECK(cprof_call_resumable_begin(steps, thread, &chain, accum, cprof_registry_state(registry), registry));
        break;
    case ']':
        cprof_call_resumable_end(steps, thread, &chain, outcome);
        break;
    case ',':
    case ';':
        cprof_call_resumable_suspend(steps, &chain, word[1] == ';');
        break;
    case '.':
        cprof_call_resumable_continue(steps, &chain);
        break;
    case '_':
        cprof_call_resumable_abandon(steps, thread, outcome);
        break;
    case '%':
        cprof_recording_mute(*span);
        CHECK(playing != NULL || (*span)->trace == 0);
        break;
    case '"':
        cprof_recording_begin_detail(*span, &detail);
        CHECK(((*span)->detail == NULL) == cprof_recording_is_muted(*span));
        break;
    case '#':
        chain.top = (*span)->parent;
        cprof_call_discard(*span);
        CHECK((*span)->detail == NULL);
        break;
    case '&':
        cprof_call_abandon(*span);
        break;
    case '=':
        cprof_recording_end_noted(thread, strtoll(word + 2, NULL, 10), accum, cprof_chain_top(&chain));
        break;
    default:
        CHECK(strchr("0123456789", word[1]) != NULL);
        call_for(accum, strtoull(word + 1, NULL, 10));
    }
}

/* Plays a text; words of labels only where `has_labels`. */
static void play(const char *text, bool has_labels, const expected_row *rows)
{
    char words[300];
    char *rest = NULL;
    CHECK((size_t)snprintf(words, sizeof words, "%s", text) < sizeof words);
    for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (has_labels || strchr("xyz", word[0]) == NULL) {
            play_word(word, rows);
        }
    }
}

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* of the scenarios: 0 */

#define TOLD_LATER "@100 ?5 @110 b10 @130 x( @140 b10 @160 x) @165 ?4 @170 ?6 @180 b=6 @181 b=7 @185 y( @190 a=5 @195 y)"

static const struct {
    const char *what, *words;
    expected_row rows[MOST_ROWS];
} scenarios[] = {
    {"nodes and labels",
     "a( 5 x( b10 x) 5 a! b10 end",
     {{"a", 0, 20, -1, .outcome = CPROF_OUTCOME_ERROR}, {"x", 5, 10, 0}, {"b", 5, 10, 1}, {"b", 20, 10, -1}}},
    {"open before, inside and after a pause: each of the cases that pause() states",
     "a( c( 10 pause pause 100 b10 c) d( resume resume 1000 d) b10 a) end",
     {{"a", 0, 1130, -1}, {"c", 0, 10, 0, CUT}, {"b", 1120, 10, 0}}},
    {"the end while paused", "a( 7 pause 1000 end a)", {{"a", 0, 7, -1, OPEN}}},
    {"what is open at the end",
     "a( x( b[ b; 50 end b_ x) a)",
     {{"a", 0, 50, -1, OPEN}, {"x", 0, 50, 0, OPEN}, {"b", 0, 50, 1, OPEN | STEPS, 50}}},
    {"to the next recording it is nothing", "a( x( c[ c; 50 drop start c. c] b10 x) a) end", {{"b", 0, 10, -1}}},
    {"calls that are suspended, cancelled, given up, or nobody's",
     "a[ 10 a; 100 b10 a. b10 a]~ c[ 3 c; 100 c_ b( b\" b# end",
     {{"a", 0, 130, -1, STEPS, 110, CPROF_OUTCOME_CANCELLED}, {"b", 110, 10, -1}, {"b", 120, 10, 0}, {"c", 130, 3, -1, STEPS}}},
    {"what is neither node nor label is around nothing", "o( b10 o) end", {{"b", 0, 10, -1}}},
    {"one given up in its place is in no row, and around nothing",
     "a( b( 5 b& c10 trim 1 a) end",
     {{"a", 0, 16, -1}, {"c", 5, 10, 0}}},
    {"suspended calls are cut by a pause, and the end; what the second ran after the pause counts as run before",
     "a[ 10 a, 100 b[ 10 b; 100 c[ 10 c; 100 a. 7 a; 50 pause 1000 a_ b. 3 b] resume end c_",
     {{"a", 0, 387, -1, CUT | STEPS, 370}, {"b", 110, 277, -1, CUT | STEPS, 264}, {"c", 220, 1170, -1, OPEN | STEPS, 1160}}},
    {"one that ran longer after the pause than before",
     "a[ 10 pause 3 a, 5 a. 20 a] resume end",
     {{"a", 0, 10, -1, CUT | STEPS}}},
    {"one that was suspended for a moment", "a[ 10 a, 1 a. pause a] resume end", {{"a", 0, 11, -1, CUT | STEPS, 1}}},
    {"one that began at the pause", "a[ a, pause 5 a. a] resume end", {{"a", 0, 0, -1, CUT | STEPS}}},
    {"a suspended call that runs at the end",
     "b( a[ a; 100 a. 10 end a] b)",
     {{"b", 0, 110, -1, OPEN}, {"a", 0, 110, 0, OPEN | STEPS, 100}}},
    {"one that ran on after the pause in which the recording ends",
     "b( a[ a; 100 pause 5 a. 10 end a] b)",
     {{"b", 0, 100, -1, OPEN}, {"a", 0, 100, 0, OPEN | STEPS, 100}}},
    {"nothing is recorded inside a muted span", "x( x% x\" a( b10 a) x) b10 y( y% end y) a( a% a)", {{"b", 0, 10, -1}}},
    {"what is muted, to the next recording it is not", "loud x( loud x% quiet o( quiet drop start loud o) x) end"},
    {"calls that are told of when they are over; one before has nothing to do with the rest",
     "b10 " TOLD_LATER " end",
     {{"b", 0, 10, -1},
      {"a", 100, 90, -1},
      {"b", 110, 10, 1},
      {"x", 130, 30, 1},
      {"b", 140, 10, 3},
      {"b", 170, 10, 1},
      {"y", 185, 10, -1}}},
    {"the same inside a label",
     "b10 @50 z( " TOLD_LATER " z) end",
     {{"b", 0, 10, -1},
      {"z", 50, 145, -1},
      {"a", 100, 90, 1},
      {"b", 110, 10, 2},
      {"x", 130, 30, 2},
      {"b", 140, 10, 4},
      {"b", 170, 10, 2},
      {"y", 185, 10, 1}}},
    {"such calls across a start, a pause, inside a muted span, and across the end",
     "drop ?1 start @10 b=1 @100 ?1 @101 ?2 @110 pause @120 b=2 @130 ?3 resume @140 b=3 @150 a=1 x( x% @160 ?4 @170 b=4 x) "
     "@180 ?5 end @190 b=5",
     {{"a", 0, 50, -1}, {"b", 1, 9, 0, CUT}}},
};

TEST(scenarios)
{
    for (size_t i = 0; i < COUNT_OF(scenarios); i++) {
        check_case = scenarios[i].what;
        set_up();
        playing = start(100, false, false);
        play(scenarios[i].words, true, scenarios[i].rows);
        CHECK(playing == NULL);
        CHECK_EQUAL(cprof_epoch_present(&registry->epoch).generation, 1); /* and nothing was counted */
    }
}

/* Labels may end before the node in which they began, or after it, in any order. */
TEST(statistics_are_the_same_beside_a_recording)
{
    static const struct {
        const char *words;
        uint64_t self_unknown;
    } orders[] = {
        {"a( c( b10 x( y( b10 b10 y) b10 x) c) b10 a)", 0},       {"a( c( b10 x( y( b10 c) b10 x) b10 y) b10 a)", 0},
        {"a( c( b10 x( y( b10 c) b10 y) b10 x) b10 a)", 0},       {"a( c[ b10 x( y( b10 c] b10 x) b10 y) b10 a)", 0},
        {"a( c( b10 x( y( b10 d( c) d) b10 x) b10 y) b10 a)", 1},
    };
    static uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
    cprof_figures figures[2][NODES] = {{{.count = 0}}};
    uint64_t order;
    for (size_t i = 0; i < COUNT_OF(orders); i++) {
        check_case = orders[i].words;
        for (int recorded = 0; recorded < 2; recorded++) {
            set_up();
            cprof_registry_configure(registry, CPROF_FLAG_STATS, 0, false);
            cprof_recording_session *session = recorded ? start(100, false, false) : NULL;
            play(orders[i].words, recorded, NULL);
            for (int node = 0; node < NODES; node++) {
                cprof_figures *found = &figures[recorded][node];
                (void)cprof_accum_copy(nodes[node], &(cprof_generation){.generation = 1}, INT64_MAX, found, counts, &order,
                                       NULL);
                CHECK_EQUAL(found->count, node == 1 ? 5 : node < 3 || i == 4);
                CHECK_EQUAL(found->nested_ns, figures[0][node].nested_ns);
                CHECK_EQUAL(found->self_unknown, figures[0][node].self_unknown);
                CHECK(found->max_ms == figures[0][node].max_ms);
            }
            CHECK(i == 4 || figures[recorded][0].nested_ns == 50);
            CHECK_EQUAL(figures[recorded][0].self_unknown, orders[i].self_unknown);
            CHECK_EQUAL(figures[recorded][2].self_unknown, orders[i].self_unknown);
            if (recorded) {
                drop(session);
            }
        }
    }
}

TEST(times_are_those_of_the_day)
{
    struct timespec before;
    CHECK(clock_gettime(CLOCK_REALTIME, &before) == 0);
    cprof_recording_session *session = start(100, false, false);
    call(nodes[0]);
    cprof_table *table = finish(session);
    int64_t since_ns = table->start_ns[0] - ((int64_t)before.tv_sec * 1000000000 + before.tv_nsec);
    CHECK(since_ns >= -1000000 && since_ns < INT64_C(60000000000));
}

/* The oldest ones go, or the newest are not taken. Each takes as long as its number says. */
static void check_kept(uint64_t capacity, uint64_t made, bool drop_newest)
{
    set_up();
    cprof_recording_session *session = start(capacity, drop_newest, false);
    for (uint64_t i = 0; i < made; i++) {
        call_for(nodes[0], i + 1);
    }
    cprof_table *table = finish(session);
    uint64_t kept = made < capacity ? made : capacity;
    uint64_t first = drop_newest ? 0 : made - kept;
    CHECK_EQUAL(table->count, kept);
    CHECK_EQUAL(table->dropped, made - kept);
    for (size_t i = 0; i < kept; i++) {
        CHECK_EQUAL(table->end_ns[i] - table->start_ns[i], first + i + 1);
        CHECK(i == 0 || table->start_ns[i] == table->end_ns[i - 1]);
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

static void end_noted(int64_t call_key, cprof_accum *accum)
{
    cprof_recording_end_noted(thread, call_key, accum, cprof_chain_top(&chain));
}

/* The children of a call that is told of when it is over may be in other chunks of the ring, and the oldest of them gone. */
TEST(many_children_of_such_a_call)
{
    enum { CALLS = 200 };
    static const uint64_t capacities[] = {1, 2, 63, 64, 65, 100, 192, CALLS, CALLS + 1, 5000};
    for (size_t i = 0; i < COUNT_OF(capacities); i++) {
        for (int newest = 0; newest < 2; newest++) {
            set_up();
            cprof_recording_session *session = start(capacities[i], newest, false);
            cprof_recording_note(thread, 1);
            for (int j = 0; j < CALLS; j++) {
                call(nodes[1]);
            }
            now = 1000 + 10 * CALLS;
            end_noted(1, nodes[0]);
            cprof_table *table = finish(session);
            bool kept = !newest || capacities[i] > CALLS;
            CHECK_EQUAL(table->count, capacities[i] < CALLS + 1 ? (int64_t)capacities[i] : CALLS + 1);
            size_t outers = 0;
            for (size_t row = 0; row < table->count; row++) {
                bool is_outer = has_text(table, table->name, row, "a");
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
        cprof_recording_note(thread, i);
    }
    for (int i = 0; i < 3 * CPROF_THREAD_NOTES; i++) {
        end_noted(i, nodes[1]);
        end_noted(i, nodes[1]);
    }
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, CPROF_THREAD_NOTES);
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
        cprof_span *span = open_node(nodes[0]);
        cprof_recording_end_detail(span, &after); /* it has none */
        cprof_recording_begin_detail(span, &detail);
        now += 10;
        if (i == 0) {
            call(nodes[1]);
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
    drop(session);
    CHECK(atomic_load(&cprof_recording.open_serial) == 0 && atomic_load(&cprof_recording.serial) == 0);
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
    drop(session);
    session = start(100, false, true);
    cprof_span *closed = open_label("closed");
    cprof_recording_set_label(closed, serial, label);
    cprof_span *node = open_node(nodes[0]);
    cprof_recording_begin_detail(node, &detail);
    close_span(node);
    close_span(closed);
    cprof_span *open = open_label("open");
    cprof_recording_set_label(open, serial, label);
    cprof_table *table = finish(session);
    close_span(open);
    CHECK_EQUAL(table->count, 1);
    CHECK_EQUAL(table->dropped, 2);
    CHECK(has_text(table, table->name, 0, "a"));
    CHECK(table->shapes == NULL && table->types == NULL && table->stack == NULL);
}

/* Of a span that was given up from outside nobody looked at the end: it has no figures of memory. */
TEST(memory_at_an_end_that_nobody_saw)
{
    cprof_recording_session *session = start(100, false, true);
    struct cprof_recording_detail detail = {.memory = {1000, 2000, 10, 20}};
    cprof_span *span = open_node(nodes[0]);
    cprof_recording_begin_detail(span, &detail);
    close_span(span);
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 1);
    CHECK(table->memory_change == NULL && table->memory_peak == NULL);
    CHECK(table->device_memory_change == NULL && table->device_memory_peak == NULL);
}

/* A thread for which there is no memory loses its spans, which are counted. */
TEST(spans_that_cannot_take_part)
{
    cprof_recording_session *session = start(100, false, false);
    for (uint64_t nth = 1; nth <= 2; nth++) { /* the list of threads; the ring */
        fake_alloc_fail(nth);
        call(nodes[1]);
        CHECK(fake_alloc_has_failed());
        fake_alloc_fail(0);
    }
    fake_alloc_fail(1);
    CHECK_EQUAL(cprof_recording_step(session, thread, key("", "step")), CPROF_NO_MEMORY);
    fake_alloc_fail(0);
    while (thread->trace.number < 16) { /* until that list is full */
        thread->trace.serial = 0;
        call(nodes[1]);
    }
    cprof_span *open = open_node(nodes[0]);
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
                cprof_span *span = open_node(i % 2 == 0 ? nodes[0] : nodes[1]);
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
    cprof_span *span = open_node(nodes[0]);
    IN_CHILD
    {
        CHECK_EQUAL(cprof_registry_state(registry) & CPROF_FLAG_ALL, 0);
        CHECK(atomic_load(&cprof_recording.open_serial) == 0 && atomic_load(&cprof_recording.serial) == 0);
        close_span(span);
        CHECK_EQUAL(cprof_recording_step(session, thread, key("", "step")), CPROF_OK);
        cprof_table *nothing = finish(session);
        CHECK_EQUAL(nothing->count, 0);
        cprof_recording_session *own = start(100, false, false);
        call(nodes[1]);
        cprof_table *table = finish(own);
        CHECK_EQUAL(table->count, 1);
        CHECK_EQUAL(table->tracks[0].pid, getpid());
        _exit(0);
    }
    close_span(span);
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 1);
}

/* The label that a key has in one recording means nothing in another. */
TEST(many_recordings)
{
    static const char *const names[NODES] = {"a", "b", "c", "d"};
    for (int i = 0; i < 200; i++) {
        cprof_recording_session *session = start(10, false, false);
        for (int k = 0; k < NODES; k++) {
            call(nodes[(i + k) % NODES]);
        }
        cprof_table *table = finish(session);
        CHECK_EQUAL(table->count, NODES);
        for (int k = 0; k < NODES; k++) {
            CHECK(has_text(table, table->name, (size_t)k, names[(i + k) % NODES]));
        }
        drop_tables();
    }
}

/* A name for which there was no memory is asked for again with the next call. */
TEST(labels_without_memory)
{
    cprof_recording_session *session = start(100, false, false);
    call(nodes[0]); /* which brings in the thread */
    uint64_t failed = 0;
    for (uint64_t nth = 0; fake_alloc_fail_next(&nth); failed++) {
        call(nodes[1]);
        CHECK(nth < 100);
    }
    fake_alloc_fail(0);
    call(nodes[1]);
    cprof_table *table = finish(session);
    CHECK(failed > 1);
    CHECK_EQUAL(table->count, 3);
    CHECK_EQUAL(table->dropped, failed - 1);
    CHECK(has_text(table, table->name, 2, "b"));
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
    call(nodes[0]);
    cprof_span *open = open_node(nodes[1]);
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
    call(nodes[0]);
    cprof_table *table = finish(session);
    CHECK(table->count == 1 && has_text(table, table->name, 0, "__overflow__"));
    free(name);
}

/* Another thread was in the middle of an event when the process was forked: its ring may be anything, and is left alone. */
TEST(a_fork_while_others_write)
{
    cprof_recording_session *session = start(100, false, true);
    call(nodes[1]);
    atomic_store(&thread->trace_mark, atomic_load(&cprof_recording.serial));
    IN_CHILD
    {
        uint64_t live = fake_alloc_live();
        drop(session);
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
        spans[i] = cprof_call_open(self, own, i % 2 == 0 ? nodes[0] : nodes[1], cprof_registry_state(registry), NULL, own);
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
        CHECK(has_text(table, table->name, i, "a") || has_text(table, table->name, i, "b"));
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
    call(nodes[1]);
    call(nodes[1]);
    atomic_store(&thread->trace_mark, atomic_load(&cprof_recording.serial));
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 0);
    CHECK_EQUAL(table->dropped, 2);
    session = start(100, false, false);
    drop(session);
    uint64_t live = fake_alloc_live();
    atomic_store(&thread->trace_mark, 0);
    session = start(100, false, false);
    drop(session);
    CHECK(fake_alloc_live() < live); /* what was left to it is free */
}

/* What membarrier() answers; 0: what the system says. */
static int membarrier_error;

/* The number of all threads; 0: what the system says. */
static _Atomic long thread_id;

WRAP_REAL(long, syscall, long number, long command, long flags, long cpu)
{
    if (number == SYS_gettid && thread_id != 0) {
        return thread_id;
    }
    if (number == SYS_membarrier && membarrier_error != 0) {
        errno = membarrier_error;
        return -1;
    }
    return real_syscall(number, command, flags, cpu);
}

static void record_one_call(void)
{
    cprof_recording_session *session = start(100, false, false);
    call(nodes[1]);
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
    call(nodes[1]);
    membarrier_error = EPERM;
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 1);
    CHECK(atomic_load(&cprof_recording.fenced));
    membarrier_error = 0;
    record_one_call();
}

static void *call_in_thread(void *number)
{
    cprof_chain own = {.top = NULL};
    cprof_span *span = cprof_call_open(cprof_thread_get(), &own, nodes[1], cprof_registry_state(registry), NULL, number);
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
        check_in_thread(call_in_thread, NULL);
    }
    CHECK(fake_alloc_mapped_bytes() - before < 100 * 4096);
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->count, 200);
    CHECK(table->track_count > 1);
}

static void *call_named(void *name)
{
    cprof_recording_name_thread(cprof_thread_get(), cprof_name_of(name));
    return call_in_thread(NULL);
}

/* The kernel gives the number of a thread that has ended to a new one. */
TEST(threads_of_one_number)
{
    static char *const names[] = {"first", "second", "third"};
    cprof_clock_set_test(NULL);
    thread_id = 77;
    cprof_recording_session *session = start(1000, false, false);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        check_in_thread(call_named, names[i]);
    }
    check_in_thread(call_in_thread, NULL);
    thread_id = 76;
    check_in_thread(call_in_thread, NULL);
    thread_id = 0;
    cprof_table *table = finish(session);
    CHECK_EQUAL(table->track_count, 5);
    for (size_t i = 0; i < table->count; i++) {
        const cprof_track *track = &table->tracks[table->track[i]];
        CHECK_EQUAL(track->tid, i < 4 ? 77 + (int64_t)i * CPROF_RECORDING_MOST_TIDS : 76);
        CHECK(strcmp(cprof_table_string(table, track->thread_name).bytes, i < COUNT_OF(names) ? names[i] : "") == 0);
    }
}

/* Names beyond the most leave room for labels. */
TEST(more_threads_than_names)
{
    cprof_recording_session *session = start(1000, false, false);
    cprof_recording_name_thread(thread, cprof_name_of("named"));
    thread->trace.number = CPROF_RECORDING_MOST_NAMED + 1;
    cprof_recording_name_thread(thread, cprof_name_of("nameless"));
    thread->trace.number = 1;
    CHECK_EQUAL(session->labels.names.count, 1);
    drop(session);
    cprof_recording_name_thread(thread, cprof_name_of("nowhere"));
}

int main(int argc, char **argv)
{
    events_of_each = check_argument(argc, argv, EVENTS_OF_EACH);
    cprof_process_start();
    fake_alloc_install();
    check_run(begin, tear_down);
    return EXIT_SUCCESS;
}
