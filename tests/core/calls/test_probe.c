/* probe.h, and what span.c and process.c do with probes; with a clock that only the test moves, and with devices, counters,
 * tools and allocators that only note what they were told. Whatever they are told takes LATE_NS, which is nobody's time. */
#define _GNU_SOURCE
#include "cprofiling/calls/call.h"
#include "cprofiling/calls/probe.h"

#include "cprofiling/devices/capture.h"
#include "cprofiling/devices/cupti_events.h"
#include "cprofiling/devices/nvtx.h"
#include "cprofiling/process.h"
#include "cprofiling/trace/recording.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

enum { NODES = 4, OWNER = 7, THREADS = 4, CALLS = 300, LATE_NS = 7, GPU_NS = 5000, LOG_SIZE = 400, MARKS = 16 };

#define FLAG(name) CPROF_FLAG_##name
#define ALL_COUNTERS ((uint32_t)CPROF_COUNTER_ALL)
#define UNKNOWN (-1)

static const char names[NODES][2] = {"a", "b", "c", "d"};
static const char tags[NODES];
static _Atomic cprof_ticks now;
static cprof_registry *registry;
static cprof_accum *nodes[NODES];
static cprof_thread *thread;
static cprof_chain chain;        /* of the thread */
static cprof_span *spans[NODES]; /* of the text */
static cprof_resumable calls[NODES];
static uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
static uint64_t gpu_counts[CPROF_HISTOGRAM_BUCKETS];
static char notes[LOG_SIZE];

/* What the fakes answer, and what they were told. */
static struct {
    bool is_quiet; /* notes nothing */
    bool is_heard;
    bool is_without_names;
    cprof_gpu_cause refusal;
    unsigned marks;
    unsigned registered;
    unsigned known; /* counters */
    cprof_memory memory;
    int64_t device_bytes; /* of the whole device, 20 of them free; 0: not known */
    _Atomic int64_t open_ranges;
    _Atomic uint64_t pushed;
} fake;

static _Thread_local uint64_t worked; /* what the thread's counters count */
static _Thread_local cprof_cupti_node launching;
static char marks[MARKS];
static char message;

/* ---- The fakes */

static cprof_ticks read_clock(void)
{
    return atomic_load(&now);
}

static void pass(cprof_ticks ns)
{
    atomic_fetch_add(&now, ns);
}

static __attribute__((format(printf, 1, 2))) void note(const char *format, ...)
{
    pass(LATE_NS);
    if (fake.is_quiet) {
        return;
    }
    size_t length = strlen(notes);
    va_list arguments;
    va_start(arguments, format);
    int added = vsnprintf(notes + length, LOG_SIZE - length, format, arguments);
    va_end(arguments);
    CHECK(added > 0 && (size_t)added < LOG_SIZE - length);
}

/* The notes since the last look. */
static void check_notes(const char *expected)
{
    if (strcmp(notes, expected) != 0) {
        (void)fprintf(stderr, "notes: %s\nexpected: %s\n", notes, expected);
    }
    CHECK(strcmp(notes, expected) == 0);
    notes[0] = '\0';
}

WRAP(cprof_gpu_mark *, cprof_event_begin, cprof_gpu_place place, cprof_gpu_cause *cause)
{
    note("begin %d.%d ", place.device, (int)place.stream);
    *cause = fake.refusal;
    return fake.refusal == CPROF_GPU_KNOWN ? (cprof_gpu_mark *)(void *)&marks[fake.marks++ % MARKS] : NULL;
}

WRAP(void, cprof_event_end, cprof_gpu_mark *mark, cprof_gpu_place place, cprof_accum *accum, uint64_t generation)
{
    note("end%d %d.%d ", (int)((char *)mark - marks), place.device, (int)place.stream);
    cprof_accum_add_gpu(accum, generation, GPU_NS, UNKNOWN, false);
}

WRAP(void, cprof_event_cancel, cprof_gpu_mark *mark)
{
    note("cancel%d ", (int)((char *)mark - marks));
}

WRAP(bool, cprof_nvtx_is_heard, void)
{
    return fake.is_heard;
}

WRAP(void *, cprof_nvtx_register, cprof_name name)
{
    note("register %.*s ", (int)name.length, name.bytes);
    fake.registered++;
    return fake.is_without_names ? NULL : &message;
}

WRAP(void, cprof_nvtx_push, void *pushed, uint64_t payload)
{
    CHECK(pushed == &message);
    note("push%d ", (int)payload);
    atomic_fetch_add(&fake.open_ranges, 1);
    atomic_fetch_add(&fake.pushed, 1);
}

WRAP(void, cprof_nvtx_pop, void)
{
    note("pop ");
    CHECK(atomic_fetch_add(&fake.open_ranges, -1) > 0);
}

WRAP(int, cprof_wait_profiler_start, void)
{
    note("start ");
    return 0;
}

WRAP(int, cprof_wait_profiler_stop, void)
{
    note("stop ");
    return 0;
}

WRAP(void, cprof_counters_read, unsigned wanted, cprof_counter_reading *reading)
{
    *reading = (cprof_counter_reading){.known = wanted & fake.known};
    for (unsigned i = 0; i < CPROF_COUNTER_COUNT; i++) {
        reading->values[i] = worked * (i + 1);
    }
    pass(LATE_NS);
}

WRAP(void, cprof_cupti_thread_set_node, cprof_cupti_node node, cprof_cupti_node *before)
{
    *before = launching;
    launching = node;
    pass(LATE_NS);
}

WRAP(bool, cprof_wait_memory, int device, int64_t *free_bytes, int64_t *total_bytes)
{
    CHECK(device == CPROF_GPU_CURRENT_DEVICE);
    *free_bytes = 20;
    *total_bytes = fake.device_bytes;
    return fake.device_bytes != 0;
}

WRAP(cprof_memory, cprof_memory_now, void)
{
    pass(LATE_NS);
    return fake.memory;
}

/* ---- What tests are made of */

static void set_up(unsigned flags, uint32_t probing, uint64_t skip_first_n)
{
    registry = cprof_registry_create(OWNER);
    CHECK(registry != NULL);
    cprof_registry_set_probing(registry, probing);
    cprof_registry_configure(registry, flags, skip_first_n, false);
    for (int i = 0; i < NODES; i++) {
        nodes[i] = cprof_registry_accum(registry, (cprof_names){{"train", 5}, {names[i], 1}});
        CHECK(nodes[i] != NULL);
    }
    chain = (cprof_chain){.top = NULL};
    memset(&fake, 0, sizeof fake);
    fake.is_heard = true;
    fake.known = CPROF_COUNTER_ALL;
    fake.memory = (cprof_memory){.memory = 1000, .memory_peak = 1000};
    notes[0] = '\0';
    worked = 0;
    atomic_store(&now, 1000);
}

static void tear_down(void)
{
    if (registry == NULL) {
        return;
    }
    CHECK(!cprof_chain_busy(&chain));
    CHECK(thread->running == NULL);
    CHECK(cprof_probes.open == NULL);
    CHECK(launching.accum == NULL);
    CHECK_EQUAL(atomic_load(&fake.open_ranges), 0);
    cprof_process_end_registry(registry);
    registry = NULL;
    cprof_capture_reset_for_test();
}

static cprof_probe *new_probe(int node)
{
    cprof_probe *probe = cprof_probe_new(nodes[node], cprof_registry_state(registry));
    CHECK(probe != NULL);
    return probe;
}

static cprof_span *open_with(int node, cprof_probe *probe)
{
    cprof_span *span = cprof_call_open(thread, &chain, nodes[node], cprof_registry_state(registry), registry, &tags[node]);
    CHECK(span != NULL);
    if (cprof_probe_is_for_capture(probe)) {
        cprof_probe_begin_capture(probe);
    }
    cprof_probe_begin(probe, thread, span);
    CHECK(span->probe == probe);
    return span;
}

static cprof_span *open_node(int node)
{
    return open_with(node, new_probe(node));
}

static cprof_span *open_at(int node, cprof_gpu_place place)
{
    cprof_probe *probe = new_probe(node);
    probe->place = place;
    probe->cause = CPROF_GPU_KNOWN;
    return open_with(node, probe);
}

static cprof_span *open_using(int node, int64_t device, int64_t in_use, int64_t highest)
{
    cprof_probe *probe = new_probe(node);
    probe->memory = (cprof_probe_memory){true, device, in_use, highest};
    return open_with(node, probe);
}

static void close_as(cprof_span *span, cprof_outcome outcome)
{
    cprof_call_close(thread, &chain, span, outcome, false);
}

static void close_node(cprof_span *span)
{
    close_as(span, CPROF_OUTCOME_SUCCESS);
}

static void begin_call(void)
{
    calls[0].span = NULL;
    CHECK(cprof_call_resumable_begin(&calls[0], thread, &chain, nodes[0], cprof_registry_state(registry), registry));
}

static void set_memory(cprof_span *span, int64_t device, int64_t in_use, int64_t highest)
{
    cprof_probe_set_memory(span->probe, &(cprof_probe_memory){true, device, in_use, highest});
}

static void close_using(cprof_span *span, int64_t device, int64_t in_use, int64_t highest)
{
    set_memory(span, device, in_use, highest);
    close_node(span);
}

static cprof_figures figures_of(int node, cprof_resources_figures *extra)
{
    cprof_figures figures = {.count = 0};
    cprof_resources_copy copy = {.gpu_counts = gpu_counts};
    uint64_t order;
    cprof_generation generation = cprof_epoch_present(&registry->epoch);
    (void)cprof_accum_copy(nodes[node], &generation, INT64_MAX, &figures, counts, &order, &copy);
    *extra = figures.extra != NULL ? figures.extra->figures : (cprof_resources_figures){.asked = 0};
    return figures;
}

static cprof_resources_figures extra_of(int node)
{
    cprof_resources_figures extra;
    (void)figures_of(node, &extra);
    return extra;
}

static void check_time(int node, uint64_t count, cprof_ns total_ns)
{
    cprof_resources_figures extra;
    cprof_figures figures = figures_of(node, &extra);
    CHECK_EQUAL(figures.count, count);
    CHECK_EQUAL(figures.moments.total_ns, total_ns);
}

static void check_memory(const cprof_resources_memory *memory, uint64_t count, int64_t entry, int64_t exit, int64_t peak)
{
    CHECK_EQUAL(memory->calls, count);
    CHECK_EQUAL(memory->entry, entry);
    CHECK_EQUAL(memory->exit, exit);
    CHECK_EQUAL(memory->peak, peak);
}

/* Of one call. */
static void check_device_memory(int node, int64_t entry, int64_t exit, int64_t peak)
{
    cprof_resources_figures extra = extra_of(node);
    check_memory(&extra.device_memory, 1, entry, exit, peak);
    CHECK_EQUAL(extra.device_memory.change, exit - entry);
}

/* The counters of a node: `work` in so many samples; the CPU time counts once, the next one twice. */
static void check_work(int node, uint64_t samples, uint64_t work)
{
    cprof_resources_figures extra = extra_of(node);
    CHECK_EQUAL(extra.counted[CPROF_COUNTER_CPU_TIME], samples);
    CHECK_EQUAL(extra.counters[CPROF_COUNTER_CPU_TIME], work);
    CHECK_EQUAL(extra.counters[CPROF_COUNTER_CONTEXT_SWITCHES], 2 * work);
}

/* This thread's, and those of all. */
static size_t spare_probes(void)
{
    size_t count = thread->spare_probe != NULL;
    for (const cprof_probe *probe = cprof_probes.spare; probe != NULL; probe = probe->next) {
        count++;
    }
    return count;
}

static void check_launching(int node)
{
    CHECK(launching.accum == (node < NODES ? nodes[node] : NULL));
    CHECK_EQUAL(launching.generation, node < NODES ? cprof_epoch_present(&registry->epoch).generation : 0);
}

/* ---- Calls as a text
 *
 * A word does something to the node of its letter:
 *
 *   a( a) a! a~  opens a block; closes it with success, with an error, cancelled; a)? others may have run meanwhile
 *   a[ a] a_     begins a call that may be suspended; ends it; gives it up while it is suspended
 *   a, a; a.     suspends it within a step or between two, and continues it
 *   a(- a[-      without a probe
 *   a(1.20       on stream 20 of device 1, which it leaves on stream 30 by a>30
 *   a(1:30,40    with 30 bytes of device 1 in use, and 40 at most; so a) and a= that only tells them; a=- they are not known
 *   a#           discards it
 *   @a @-        checks whose launches are counted
 *
 * +5 lets the thread's counters count; {...} are the notes since the last ones. tick: others run; reset: of the statistics;
 * counters, launches: only these are asked for from now on.
 */

static bool play_whole_word(const char *word)
{
    if (word[0] == '+') {
        worked += strtoull(word, NULL, 10);
    } else if (word[0] == '@') {
        check_launching(word[1] == '-' ? NODES : word[1] - 'a');
    } else if (strcmp(word, "tick") == 0) {
        chain.moment++;
    } else if (strcmp(word, "reset") == 0) {
        cprof_registry_reset(registry);
    } else if (strcmp(word, "counters") == 0 || strcmp(word, "launches") == 0) {
        cprof_registry_configure(registry, FLAG(STATS) | (word[0] == 'c' ? FLAG(COUNTERS) : FLAG(LAUNCHES)), 0, false);
    } else {
        return false;
    }
    return true;
}

static void play_word(const char *word)
{
    if (play_whole_word(word)) {
        return;
    }
    int node = word[0] - 'a';
    CHECK(node >= 0 && node < NODES);
    cprof_span **span = &spans[node];
    cprof_resumable *own = &calls[node];
    char *rest;
    int64_t first = strtoll(word + 2, &rest, 10);
    int64_t second = *rest == '.' || *rest == ':' ? strtoll(rest + 1, &rest, 10) : UNKNOWN;
    bool has_memory = *rest == ',';
    int64_t third = has_memory ? strtoll(rest + 1, &rest, 10) : UNKNOWN;
    bool is_bare = word[2] == '-';
    uint64_t state = is_bare ? FLAG(STATS) : cprof_registry_state(registry);
    cprof_probe *probe = NULL;
    if (!is_bare && (word[1] == '(' || word[1] == '[')) {
        probe = new_probe(node);
        probe->memory = (cprof_probe_memory){has_memory, first, second, third};
        if (!has_memory && second != UNKNOWN) {
            probe->place = (cprof_gpu_place){(int)first, (uint64_t)second};
            probe->cause = CPROF_GPU_KNOWN;
        }
    } else if (has_memory) {
        set_memory(*span, first, second, third);
    }
    switch (word[1]) {
    case '(':
        *span = is_bare ? cprof_call_open(thread, &chain, nodes[node], state, registry, &tags[node]) : open_with(node, probe);
        CHECK(*span != NULL);
        break;
    case ')':
    case '!':
    case '~':
        cprof_call_close(thread, &chain, *span,
                         word[1] == ')'   ? CPROF_OUTCOME_SUCCESS
                         : word[1] == '!' ? CPROF_OUTCOME_ERROR
                                          : CPROF_OUTCOME_CANCELLED,
                         word[2] == '?');
        break;
    case '[':
        own->span = NULL;
        CHECK(cprof_call_resumable_begin(own, thread, &chain, nodes[node], state, registry));
        if (probe != NULL) {
            cprof_call_resumable_begin_probe(own, thread, probe);
        }
        break;
    case ']':
        cprof_call_resumable_end(own, thread, &chain, CPROF_OUTCOME_SUCCESS);
        break;
    case ',':
    case ';':
        cprof_call_resumable_suspend(own, &chain, word[1] == ';');
        break;
    case '.':
        cprof_call_resumable_continue(own, &chain);
        break;
    case '_':
        cprof_call_resumable_abandon(own, thread, CPROF_OUTCOME_SUCCESS);
        break;
    case '>':
        (*span)->probe->left_at.stream = (uint64_t)first;
        break;
    case '=':
        if (is_bare) {
            cprof_probe_set_memory((*span)->probe, &(cprof_probe_memory){.known = false});
        }
        break;
    case '#':
        chain.top = (*span)->parent;
        cprof_call_discard(*span);
        break;
    default:
        CHECK(!"a word that is known");
    }
}

static void play(const char *words)
{
    char word[100];
    while (*words != '\0') {
        bool is_note = *words == '{';
        size_t length = strcspn(words += is_note, is_note ? "}" : " ");
        CHECK(length < sizeof word);
        (void)snprintf(word, sizeof word, "%.*s", (int)length, words);
        if (is_note) {
            check_notes(word);
        } else {
            play_word(word);
        }
        words += length + is_note;
        words += strspn(words, " ");
    }
}

/* ---- What is asked */

TEST(without_memory)
{
    set_up(FLAG(STATS) | FLAG(COUNTERS), 1, 0);
    CHECK(cprof_probes.spare == NULL); /* runs first */
    fake_alloc_fail(1);
    CHECK(cprof_probe_new(nodes[0], cprof_registry_state(registry)) == NULL);
    CHECK(fake_alloc_has_failed());
    cprof_span *span = cprof_call_open(thread, &chain, nodes[0], cprof_registry_state(registry), registry, &tags[0]);
    CHECK(span != NULL && span->probe == NULL);
    pass(5);
    close_node(span); /* counted without it */
    check_time(0, 1, 5);
    CHECK_EQUAL(extra_of(0).asked, 0);
    begin_call();
    play("a, a. a]");
    check_time(0, 2, 5);
}

/* The figures themselves may be without memory; the call is counted all the same. */
TEST(figures_without_memory)
{
    set_up(FLAG(STATS) | FLAG(COUNTERS), 1, 0);
    uint64_t nth = 0;
    do {
        cprof_registry_reset(registry);
        cprof_span *span = open_node((int)(nth % NODES));
        fake_alloc_fail(nth + 1);
        close_node(span);
        cprof_resources_figures extra;
        CHECK_EQUAL(figures_of((int)(nth % NODES), &extra).count, 1);
        nth++;
    } while (fake_alloc_has_failed());
    CHECK(nth > 1);
}

TEST(what_is_asked)
{
    static const struct {
        unsigned flag;
        unsigned asked;
    } each[] = {
        {FLAG(STATS), 0},
        {FLAG(GPU), CPROF_RESOURCES_GPU},
        {FLAG(LAUNCHES), CPROF_RESOURCES_LAUNCHES},
        {FLAG(MEMORY), CPROF_RESOURCES_MEMORY},
        {FLAG(SYNC), CPROF_RESOURCES_WAITS},
        {FLAG(COUNTERS), CPROF_RESOURCES_COUNTERS | 5 << CPROF_RESOURCES_COUNTER_SHIFT},
        {FLAG(NVTX), 0},
        {FLAG(CAPTURE), 0},
    };
    set_up(FLAG(STATS), 5 | CPROF_REGISTRY_RESETS_PEAK, 0);
    for (size_t i = 0; i < COUNT_OF(each); i++) {
        cprof_registry_configure(registry, FLAG(STATS) | each[i].flag, 0, false);
        cprof_probe *probe = new_probe(0);
        CHECK_EQUAL(probe->sample.asked, each[i].asked);
        CHECK_EQUAL(probe->flags, each[i].flag & CPROF_FLAG_PROBED);
        CHECK(probe->counters == 5 && probe->resets_peak);
        cprof_probe_leave_out(probe, each[i].flag);
        CHECK_EQUAL(probe->sample.asked, each[i].flag == FLAG(LAUNCHES) ? CPROF_RESOURCES_LAUNCHES_UNKNOWN : 0);
        CHECK_EQUAL(probe->flags, 0);
        cprof_probe_finish(probe, false, true);
    }
}

TEST(leaving_out_leaves_the_rest)
{
    set_up(FLAG(STATS) | FLAG(LAUNCHES) | FLAG(COUNTERS) | FLAG(SYNC), 1, 0);
    cprof_probe *probe = new_probe(0);
    cprof_probe_leave_out(probe, FLAG(LAUNCHES));
    cprof_span *span = open_with(0, probe);
    CHECK(launching.accum == NULL);
    worked += 3;
    close_node(span);
    CHECK_EQUAL(extra_of(0).asked, CPROF_RESOURCES_COUNTERS | CPROF_RESOURCES_WAITS | CPROF_RESOURCES_LAUNCHES_UNKNOWN |
                                       1 << CPROF_RESOURCES_COUNTER_SHIFT);
}

/* What is never asked for is not unknown either. */
TEST(leaving_out_what_was_not_asked_for)
{
    set_up(FLAG(STATS) | FLAG(SYNC), 0, 0);
    cprof_probe *probe = new_probe(0);
    cprof_probe_leave_out(probe, FLAG(LAUNCHES));
    close_node(open_with(0, probe));
    CHECK_EQUAL(extra_of(0).asked, CPROF_RESOURCES_WAITS);
}

/* Which counters were asked for is known of calls that have none: no samples, and calls that began while their key skipped. */
TEST(counters_that_were_only_asked_for)
{
    const unsigned counters = CPROF_RESOURCES_COUNTERS | 5 << CPROF_RESOURCES_COUNTER_SHIFT;
    set_up(FLAG(STATS) | FLAG(COUNTERS) | FLAG(MEMORY), 5, 0);
    close_as(open_node(0), CPROF_OUTCOME_ERROR);
    cprof_call_abandon(open_node(0));
    cprof_call_trim(thread, &chain);
    cprof_resources_figures figures = extra_of(0);
    CHECK_EQUAL(figures.asked, counters);
    CHECK(figures.counted[0] == 0 && figures.host_memory.calls == 0 && figures.estimated == 0);
    play("b(- b)");
    cprof_probe *dropped = new_probe(1);
    cprof_probe_finish(dropped, false, true); /* its call was never made */
    CHECK_EQUAL(extra_of(1).asked, 0);
    cprof_registry_configure(registry, FLAG(STATS) | FLAG(COUNTERS), 1, false);
    cprof_span *early = open_node(0);
    cprof_span *later = open_node(0);
    close_node(later); /* skipped; so that the other one, which began while the key skipped, is a sample */
    CHECK_EQUAL(extra_of(0).asked, counters);
    close_node(early);
    CHECK_EQUAL(extra_of(0).asked, counters);
    CHECK_EQUAL(extra_of(0).counted[0], 0);
    cprof_span *before = open_node(0);
    cprof_registry_reset(registry);
    close_node(before);
    CHECK_EQUAL(extra_of(0).asked, 0);
}

/* A key that still skips has no figures, but is shown to tools all the same. */
TEST(skipping_key)
{
    set_up(FLAG(STATS) | CPROF_FLAG_PROBED, ALL_COUNTERS, 1);
    cprof_span *span = open_at(0, (cprof_gpu_place){0, 0});
    CHECK_EQUAL(span->probe->flags, FLAG(NVTX) | FLAG(CAPTURE));
    CHECK_EQUAL(span->probe->sample.asked, 0);
    close_node(span);
    check_notes("register a push0 pop ");
    CHECK_EQUAL(extra_of(0).asked, CPROF_RESOURCES_COUNTERS | CPROF_COUNTER_ALL << CPROF_RESOURCES_COUNTER_SHIFT);
    span = open_at(0, (cprof_gpu_place){0, 0});
    close_node(span);
    check_notes("begin 0.0 push1 pop end0 0.0 ");
    CHECK_EQUAL(extra_of(0).asked,
                CPROF_RESOURCES_ALL & ~(unsigned)(CPROF_RESOURCES_LAUNCHES_UNKNOWN | CPROF_RESOURCES_PEAK_UNKNOWN));
    check_time(0, 1, 0);
}

/* Tools are told also where nothing is counted. */
TEST(without_statistics)
{
    set_up(FLAG(NVTX) | FLAG(GPU), 0, 0);
    cprof_span *span = open_at(0, (cprof_gpu_place){0, 0});
    close_node(span);
    check_notes("register a push0 pop ");
    check_time(0, 0, 0);
    play("a[ a]");
    check_notes("push1 pop ");
    span = open_at(0, (cprof_gpu_place){0, 0});
    cprof_span *inner = cprof_call_open(thread, &chain, nodes[1], 0, NULL, NULL);
    close_node(span); /* below another one */
    check_notes("push2 pop ");
    close_node(inner);
    span = open_at(0, (cprof_gpu_place){0, 0});
    cprof_call_abandon(span);
    check_notes("push3 pop ");
    cprof_call_trim(thread, &chain);
    cprof_registry_configure(registry, FLAG(STATS), 0, false);
    play("a(- a)");
    CHECK_EQUAL(extra_of(0).asked, 0); /* for what was not counted */
}

/* ---- Scenarios */

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* of the scenarios: 0 */

enum { NOTHING = 1 << 30 };

static const struct {
    const char *what, *words;
    unsigned flags; /* besides the statistics */
    bool keeps_peaks;
    uint64_t ranges;
    struct {
        uint64_t samples, work;  /* of the counters */
        uint64_t gpu, suspended; /* calls with GPU time, and those that had none for being suspended */
        int64_t memory[4];       /* of a device: calls, and of the one call the entry, exit, peak */
        unsigned asked;          /* NOTHING: 0; 0: anything */
    } nodes[NODES];
} scenarios[] = {
    {"without another word a call ended where it began",
     "a(1.20 a) {begin 1.20 end0 1.20 } a(1.20 a>30 a) {begin 1.20 end1 1.30 }", FLAG(GPU), .nodes = {{.gpu = 2}}},
    {"calls that are no sample have no GPU time",
     "a(0.1 a! {begin 0.1 cancel0 } a(0.1 a~ {begin 0.1 cancel1 } a(0.1 reset a) {begin 0.1 cancel2 } a( a!", FLAG(GPU),
     .nodes = {{.asked = NOTHING}}},
    {"of a generator, what its consumer gives the stream between two steps does not count; what comes while it waits does",
     "a[0.1 a, a. a] {begin 0.1 end0 0.1 } a[0.1 a; a. a] {begin 0.1 cancel1 } a[0.1 a, a_ {begin 0.1 cancel2 }", FLAG(GPU),
     .nodes = {{.gpu = 1, .suspended = 2}}},
    {"launches are the innermost's, and those of a call that counts none are the one's around it",
     "a( @a b( @b counters c( @b launches d( @d d) @b c) @b b) @a a) @-", FLAG(LAUNCHES), .nodes = {[2] = {1, 0}}},
    {"out of order", "a( +1 b( +10 c( +100 b) @c a) +1000 @c c) @-", FLAG(LAUNCHES) | FLAG(NVTX) | FLAG(COUNTERS), .ranges = 3,
     .nodes = {{1, 111}, {1, 110}, {1, 1100}}},
    {"the outermost of three first", "a( b( c( a) @c c) @b b) @-", FLAG(LAUNCHES) | FLAG(NVTX), .ranges = 3},
    {"a block in whose thread others ran, of which nobody knew that it stood still, has no counters",
     "a( tick +3 a)? a( +4 a)?", FLAG(COUNTERS), .nodes = {{1, 4}}},
    {"blocks inside a suspended call stand still with it, whether they have a probe or not",
     "d( a[ +1 b( c(- +10 {register d push0 register a push0 register b push0 } a, {pop pop } @d +1000 tick "
     "a. {push1 push1 } @b +100 c) b)? @a a] d)",
     FLAG(COUNTERS) | FLAG(LAUNCHES) | FLAG(NVTX), .ranges = 5, .nodes = {{1, 111}, {1, 110}, {0}, {1, 1111}}},
    {"a call that is never suspended", "a[ +5 a]", FLAG(COUNTERS), .nodes = {{1, 5}}},
    {"a block closed inside a suspended call", "a[ b( +10 a, +1000 b)? a_", FLAG(COUNTERS) | FLAG(NVTX), .ranges = 2,
     .nodes = {{1, 10}, {1, 10}}},
    {"a suspended call of which nobody asks anything may hold blocks that are asked", "a[- a, a. b( +10 a, +1000 a. +100 b) a]",
     FLAG(COUNTERS), .nodes = {[1] = {1, 110}}},
    {"a parent's peak contains those of its children on its device, and what was reached between them",
     "a(1:100,900 d(2:50,2000 b(1:150,300 c(1:150,160 c)1:140,400 b)1:160,200 d)2:60,70 a)1:120,350", FLAG(MEMORY),
     .nodes = {{.memory = {1, 100, 120, 400}},
               {.memory = {1, 150, 160, 400}},
               {.memory = {1, 150, 140, 400}},
               {.memory = {1, 50, 60, 70}}}},
    {"overlapping: what is reached after a call's end was read, while it is still open, is not its peak",
     "a(1:10,10 b(1:10,20 c(1:10,30 b=1:10,40 a=1:10,50 b) a) c)1:10,15", FLAG(MEMORY),
     .nodes = {{.memory = {1, 10, 10, 50}}, {.memory = {1, 10, 10, 40}}, {.memory = {1, 10, 10, 50}}}},
    {"also one whose allocator is not told of at its end ends to gather peaks",
     "a(1:10,10 b(1:20,60 b! c(1:20,40 c# b(1:20,30 b)1:20,30 a)1:20,50", FLAG(MEMORY),
     .nodes = {{.memory = {1, 10, 20, 60}}, {.memory = {1, 20, 20, 30}}}},
    {"memory that is told of long before the end, with others open on both sides",
     "d(1:10,10 a(1:10,10 b(1:10,20 a=1:10,30 b)1:10,40 a) d)1:10,10", FLAG(MEMORY),
     .nodes = {{.memory = {1, 10, 10, 30}}, {.memory = {1, 10, 10, 40}}, [3] = {.memory = {1, 10, 10, 40}}}},
    {"memory that is not known at the end, by a word of its own, of another device there, or not at the start",
     "a(1:100,100 a) a(0:100,100 a=- a) a(1:100,100 a)2:100,100 a( a)0:100,100", FLAG(MEMORY),
     .nodes = {{.asked = CPROF_RESOURCES_MEMORY}}},
    {"an allocator that keeps no peak", "a(1:100,-1 a)1:130,-1", FLAG(MEMORY),
     .nodes = {{.memory = {1, 100, 130, UNKNOWN}, .asked = CPROF_RESOURCES_MEMORY | CPROF_RESOURCES_PEAK_UNKNOWN}}},
    {"a counter of peaks that nobody resets tells only when it rises; a peak is kept, if not known",
     "a(1:100,900 b(1:150,900 b)1:160,900 a)1:120,901", FLAG(MEMORY), .keeps_peaks = true,
     .nodes = {{.memory = {1, 100, 120, 901}}, {.memory = {1, 150, 160, UNKNOWN}, .asked = CPROF_RESOURCES_MEMORY}}},
    {"the same where nothing was in use yet", "a(1:0,0 a)1:5,9", FLAG(MEMORY), .keeps_peaks = true,
     .nodes = {{.memory = {1, 0, 5, 9}}}},
    {"discarded", "a(0.1 a# {begin 0.1 register a push0 pop cancel0 }", CPROF_FLAG_PROBED, .ranges = 1,
     .nodes = {{.asked = NOTHING}}},
};

TEST(scenarios)
{
    for (size_t i = 0; i < COUNT_OF(scenarios); i++) {
        check_case = scenarios[i].what;
        set_up(FLAG(STATS) | scenarios[i].flags, ALL_COUNTERS | (scenarios[i].keeps_peaks ? 0 : CPROF_REGISTRY_RESETS_PEAK), 0);
        play(scenarios[i].words);
        CHECK_EQUAL(atomic_load(&fake.pushed), scenarios[i].ranges);
        for (int node = 0; node < NODES; node++) {
            __typeof__(&scenarios[0].nodes[0]) expected = &scenarios[i].nodes[node];
            cprof_resources_figures extra = extra_of(node);
            check_work(node, expected->samples, expected->work);
            CHECK_EQUAL(extra.gpu_count, expected->gpu);
            CHECK_EQUAL(extra.gpu_ns, expected->gpu * GPU_NS);
            CHECK_EQUAL(extra.missed[CPROF_GPU_SUSPENDED], expected->suspended);
            const int64_t *memory = expected->memory;
            CHECK_EQUAL(extra.device_memory.calls, memory[0]);
            CHECK((scenarios[i].flags & FLAG(MEMORY)) != 0 || extra.host_memory.calls == 0);
            if (memory[0] > 0) {
                check_device_memory(node, memory[1], memory[2], memory[3]);
            }
            if (expected->asked != 0) {
                CHECK_EQUAL(extra.asked, expected->asked & ~(unsigned)NOTHING);
            }
        }
        tear_down();
    }
}

/* ---- Time */

/* What is found out before and after a call is not its time, nor its parent's own before that. */
TEST(the_clock_is_read_innermost)
{
    set_up(FLAG(STATS) | CPROF_FLAG_PROBED, ALL_COUNTERS, 0);
    cprof_span *span = open_at(0, (cprof_gpu_place){0, 0});
    pass(100);
    cprof_probe_stop(span->probe);
    pass(50);
    cprof_probe_stop(span->probe);
    close_node(span);
    check_time(0, 1, 100);
    span = open_node(1);
    pass(20);
    close_node(span); /* stops it */
    check_time(1, 1, 20);
}

TEST(the_clock_of_a_suspended_call)
{
    set_up(FLAG(STATS) | FLAG(COUNTERS) | FLAG(MEMORY), ALL_COUNTERS, 0);
    begin_call();
    pass(1000);
    cprof_call_resumable_begin_probe(&calls[0], thread, new_probe(0));
    cprof_ticks begun = read_clock();
    pass(100);
    play("a,");
    pass(10000);
    play("a.");
    pass(10);
    cprof_ticks elapsed = read_clock() - begun;
    cprof_probe_stop(calls[0].span->probe);
    pass(5000);
    play("a]");
    check_time(0, 1, (cprof_ns)elapsed);
    cprof_resources_figures unused;
    cprof_figures figures = figures_of(0, &unused); /* what passed before the probe is neither call nor suspension */
    CHECK(figures.suspended_ns >= 10000 && figures.suspended_ns < 10000 + 10 * LATE_NS);
}

TEST(waits)
{
    set_up(FLAG(STATS) | FLAG(SYNC), 0, 0);
    cprof_probe *probe = new_probe(0);
    cprof_probe_begin_wait(probe);
    pass(30);
    cprof_probe_end_wait(probe);
    cprof_span *span = open_with(0, probe);
    pass(100);
    cprof_probe_begin_wait(probe);
    pass(12);
    cprof_probe_end_wait(probe);
    close_node(span);
    cprof_resources_figures extra = extra_of(0);
    CHECK_EQUAL(extra.asked, CPROF_RESOURCES_WAITS);
    CHECK_EQUAL(extra.waits, 2);
    CHECK_EQUAL(extra.wait_ns, 42);
    check_time(0, 1, 112); /* what the call waits for at its end is its own */
}

/* ---- Devices */

TEST(why_there_is_no_gpu_time)
{
    set_up(FLAG(STATS) | FLAG(GPU), 0, 0);
    close_node(open_node(0)); /* nobody has told a place */
    fake.refusal = CPROF_GPU_CAPTURED;
    close_node(open_at(0, (cprof_gpu_place){0, 1}));
    check_notes("begin 0.1 ");
    cprof_probe *probe = new_probe(0);
    probe->cause = CPROF_GPU_UNSUPPORTED;
    close_node(open_with(0, probe));
    cprof_resources_figures extra = extra_of(0);
    CHECK_EQUAL(extra.gpu_count, 0);
    CHECK_EQUAL(extra.missed[CPROF_GPU_NO_CUDA], 1);
    CHECK_EQUAL(extra.missed[CPROF_GPU_CAPTURED], 1);
    CHECK_EQUAL(extra.missed[CPROF_GPU_UNSUPPORTED], 1);
}

static void end_own_mark(void *mark, cprof_accum *accum, uint64_t generation)
{
    note("own%d %s", (int)((char *)mark - marks), accum != NULL ? "counts " : "does not count ");
    if (accum != NULL) {
        cprof_accum_add_gpu(accum, generation, GPU_NS, UNKNOWN, false);
    }
}

static cprof_span *open_marked(int node, int mark)
{
    cprof_probe *probe = new_probe(node);
    probe->mark = &marks[mark];
    probe->end_mark = end_own_mark;
    return open_with(node, probe);
}

TEST(a_mark_of_the_layer_above)
{
    set_up(FLAG(STATS) | FLAG(GPU), 0, 0);
    close_node(open_marked(0, 1));
    close_as(open_marked(0, 2), CPROF_OUTCOME_ERROR);
    check_notes(""); /* not before whoever closes is done */
    cprof_probe_settle();
    check_notes("own2 does not count own1 counts ");
    CHECK_EQUAL(extra_of(0).gpu_count, 1);
    cprof_probe_settle();              /* there is nothing left */
    cprof_probe *probe = new_probe(0); /* dropped before it began */
    probe->mark = &marks[3];
    probe->end_mark = end_own_mark;
    cprof_probe_finish(probe, false, true);
    cprof_probe_settle();
    check_notes("own3 does not count ");
}

/* ---- Counters */

TEST(counters)
{
    set_up(FLAG(STATS) | FLAG(COUNTERS), CPROF_COUNTER_BIT(CPROF_COUNTER_CPU_TIME) | CPROF_COUNTER_BIT(CPROF_COUNTER_CYCLES),
           0);
    fake.known = CPROF_COUNTER_BIT(CPROF_COUNTER_CPU_TIME);
    play("a( +5 b( +6 b) a)");
    cprof_resources_figures extra = extra_of(0);
    CHECK_EQUAL(extra.counted[CPROF_COUNTER_CPU_TIME], 1);
    CHECK_EQUAL(extra.counters[CPROF_COUNTER_CPU_TIME], 11);
    CHECK_EQUAL(extra.counted[CPROF_COUNTER_CYCLES], 0); /* refused */
    CHECK_EQUAL(extra.counted[CPROF_COUNTER_PAGE_FAULTS], 0);
    CHECK_EQUAL(extra_of(1).counters[CPROF_COUNTER_CPU_TIME], 6);
}

static void *close_elsewhere(void *span)
{
    cprof_thread *here = cprof_thread_get();
    CHECK(here != NULL);
    cprof_call_close(here, &chain, span, CPROF_OUTCOME_SUCCESS, false);
    CHECK(here->running == NULL);
    return NULL;
}

/* The counters are those of two threads, and the range is the first one's: it cannot be ended by another. */
TEST(end_in_another_thread)
{
    set_up(FLAG(STATS) | FLAG(COUNTERS) | FLAG(LAUNCHES) | FLAG(NVTX), ALL_COUNTERS, 0);
    cprof_span *span = open_node(0);
    pass(9);
    check_in_thread(close_elsewhere, span);
    check_work(0, 0, 0);
    check_time(0, 1, 9);
    check_notes("register a push0 ");
    CHECK(thread->running == NULL);
    play("b( b) @-"); /* which tells the thread whose its launches are */
    wrapped_cprof_nvtx_pop();
}

static void *run_unknown(void *unused)
{
    cprof_chain here = {.top = NULL};
    cprof_call_resumable_continue(&calls[0], &here);
    worked += 20;
    cprof_call_resumable_suspend(&calls[0], &here, false);
    return unused;
}

/* A thread of which nothing is known has no list of running probes: what is done there is not measured. */
TEST(suspended_call_in_a_thread_without_a_record)
{
    set_up(FLAG(STATS) | FLAG(COUNTERS), ALL_COUNTERS, 0);
    play("a[ +1 a,");
    check_in_thread(run_unknown, NULL);
    play("a. +300 a]");
    check_work(0, 1, 301);
}

/* A stretch of the call in another thread; the last one where it `ends`. */
static void *run_elsewhere(void *ends)
{
    cprof_chain here = {.top = NULL};
    cprof_thread *runner = cprof_thread_get();
    CHECK(runner != NULL);
    cprof_call_resumable_continue(&calls[0], &here);
    worked += 20;
    if (ends != NULL) {
        cprof_call_resumable_end(&calls[0], runner, &here, CPROF_OUTCOME_SUCCESS);
    } else {
        cprof_call_resumable_suspend(&calls[0], &here, false);
    }
    CHECK(runner->running == NULL && launching.accum == NULL);
    return NULL;
}

/* What others do in either thread while the call is suspended is not its work. */
TEST(suspended_call_in_two_threads)
{
    set_up(FLAG(STATS) | FLAG(COUNTERS) | FLAG(LAUNCHES) | FLAG(NVTX), ALL_COUNTERS, 0);
    play("a[ +1 a, @- +1000");
    check_in_thread(run_elsewhere, NULL);
    play("a. @a +300 a; +1000");
    check_in_thread(run_elsewhere, &message);
    check_work(0, 1, 341);
    CHECK_EQUAL(atomic_load(&fake.pushed), 4);
    check_notes("register a push0 pop push1 pop push2 pop push3 pop ");
}

/* ---- Memory */

static void host_call(int64_t memory, int64_t memory_peak)
{
    cprof_span *span = open_node(0);
    fake.memory = (cprof_memory){.memory = memory, .memory_peak = memory_peak};
    close_node(span);
}

TEST(memory_of_the_process)
{
    set_up(FLAG(STATS) | FLAG(MEMORY), 0, 0);
    fake.memory = (cprof_memory){.memory = 1000, .memory_peak = 5000};
    host_call(1500, 5000);
    cprof_resources_figures extra = extra_of(0);
    check_memory(&extra.host_memory, 1, 1000, 1500, UNKNOWN); /* it did not rise above the earlier peak */
    host_call(1400, 6000);
    extra = extra_of(0);
    check_memory(&extra.host_memory, 2, 1500, 1400, 6000);
    host_call(7000, 6500); /* the kernel's peak lags */
    CHECK_EQUAL(extra_of(0).host_memory.peak, 7000);
    host_call(2000, 6900);
    CHECK_EQUAL(extra_of(0).host_memory.peak, 7000);
    host_call(CPROF_TABLE_UNKNOWN, CPROF_TABLE_UNKNOWN);
    host_call(3000, 9000);
    extra = extra_of(0);
    check_memory(&extra.host_memory, 4, 7000, 2000, 7000);
    CHECK_EQUAL(extra.host_memory.change, 500 - 100 + 5600 - 5000);
    cprof_registry_reset(registry);
    fake.memory = (cprof_memory){.memory = 3000, .memory_peak = 2000};
    host_call(1000, 2500); /* it lags already at the beginning */
    CHECK_EQUAL(extra_of(0).host_memory.peak, 3000);
}

/* Without an allocator to ask, what is not free on the device counts; of which nobody knows a peak. */
TEST(memory_of_the_device)
{
    set_up(FLAG(STATS) | FLAG(MEMORY), CPROF_REGISTRY_RESETS_PEAK, 0);
    CHECK(!cprof_probe_device_memory().known);
    fake.device_bytes = 80;
    cprof_probe_memory whole = cprof_probe_device_memory();
    CHECK(whole.known && whole.device == CPROF_PROBE_WHOLE_DEVICE);
    CHECK_EQUAL(whole.in_use, 60);
    cprof_probe *probe = new_probe(0);
    probe->memory = whole;
    probe->resets_peak = false;
    cprof_span *span = open_with(0, probe);
    fake.device_bytes = 100;
    whole = cprof_probe_device_memory();
    cprof_probe_set_memory(span->probe, &whole);
    close_node(span);
    check_device_memory(0, 60, 80, UNKNOWN);
    probe = new_probe(1);
    probe->memory = (cprof_probe_memory){true, 0, 0, 0}; /* nothing was in use yet, which is known */
    probe->resets_peak = true;
    close_using(open_with(1, probe), 0, 5, 9);
    check_device_memory(1, 0, 5, 9);
    probe = new_probe(2);
    probe->memory = (cprof_probe_memory){true, 0, 0, 0};
    probe->resets_peak = true;
    close_using(open_with(2, probe), 0, 0, 0);
    check_device_memory(2, 0, 0, 0);
    CHECK_EQUAL(extra_of(2).asked & CPROF_RESOURCES_PEAK_UNKNOWN, 0);
}

TEST(rests)
{
    cprof_probe_rest rest = {0};
    CHECK(!cprof_probe_rests(&rest));
    pass(1);
    cprof_probe_begin_rest(&rest);
    CHECK(cprof_probe_rests(&rest));
    pass(100 * 1000 * 1000 - 1);
    CHECK(cprof_probe_rests(&rest));
    pass(1);
    CHECK(!cprof_probe_rests(&rest));
    rest.since = read_clock() + 1; /* of another processor, or another clock: it is over, and no fault of the clock's */
    CHECK(!cprof_probe_rests(&rest));
    CHECK(atomic_load(&cprof_clock.backward) == 0);
}

/* ---- Ranges for tools */

TEST(ranges)
{
    set_up(FLAG(STATS) | FLAG(NVTX), 0, 0);
    fake.is_heard = false;
    close_node(open_node(0));
    check_notes(""); /* nobody listens */
    fake.is_heard = true;
    fake.is_without_names = true;
    close_node(open_node(0));
    check_notes("register a ");
    fake.is_without_names = false;
    cprof_span *outer = open_node(0);
    cprof_span *inner = open_node(0);
    close_node(inner);
    close_as(outer, CPROF_OUTCOME_ERROR);
    check_notes("register a push0 push1 pop pop ");
    play("a[ a,");
    check_notes("push2 pop ");
    fake.is_heard = false; /* no more, when it goes on */
    play("a. a]");
    check_notes("");
}

static cprof_thread *ended;

static void *leave_open(void *span)
{
    cprof_chain here = {.top = NULL};
    ended = cprof_thread_get();
    CHECK(ended != NULL);
    *(cprof_span **)span = cprof_call_open(ended, &here, nodes[0], cprof_registry_state(registry), registry, &tags[0]);
    CHECK(*(cprof_span **)span != NULL);
    cprof_probe_begin(new_probe(0), ended, *(cprof_span **)span);
    CHECK(ended->running != NULL);
    return NULL;
}

static void *discard_in_its_place(void *span)
{
    CHECK(cprof_thread_get() == ended);
    cprof_call_discard(span);
    return NULL;
}

/* A block that was never left, of a thread that has ended: its range went with the thread, whose record another may have. */
TEST(discarded_after_its_thread)
{
    cprof_span *span = NULL;
    set_up(FLAG(STATS) | CPROF_FLAG_PROBED, ALL_COUNTERS, 0);
    check_in_thread(leave_open, (void *)&span);
    check_notes("register a push0 ");
    cprof_call_discard(span);
    check_notes("");
    check_in_thread(leave_open, (void *)&span);
    check_notes("push1 ");
    check_in_thread(discard_in_its_place, span);
    check_notes("");
    wrapped_cprof_nvtx_pop();
    wrapped_cprof_nvtx_pop();
}

/* ---- The capture window */

static bool has_capture(const cprof_registry *which)
{
    return (cprof_registry_state(which) & CPROF_FLAG_CAPTURE) != 0;
}

TEST(flags_of_the_window)
{
    set_up(FLAG(STATS), 0, 0);
    cprof_registry *another = cprof_registry_create(OWNER + 1);
    cprof_registry_record_owner(OWNER, FLAG(TRACE));
    cprof_registry_capture_owner(OWNER, FLAG(CAPTURE));
    cprof_registry *later = cprof_registry_create(OWNER);
    CHECK(another != NULL && later != NULL);
    CHECK(has_capture(registry) && has_capture(later) && !has_capture(another));
    cprof_registry_record_owner(OWNER, 0); /* each takes away its own only */
    CHECK_EQUAL(cprof_registry_state(registry) & CPROF_FLAG_ALL, FLAG(STATS) | FLAG(CAPTURE));
    cprof_registry_configure(registry, 0, 0, false);
    CHECK(has_capture(registry));
    cprof_registry_record_owner(OWNER, FLAG(TRACE));
    cprof_registry_capture_owner(OWNER, 0);
    CHECK_EQUAL(cprof_registry_state(registry) & CPROF_FLAG_ALL, FLAG(TRACE));
    cprof_registry_record_owner(OWNER, 0);
    CHECK_EQUAL(cprof_registry_state(later) & CPROF_FLAG_ALL, 0);
    cprof_process_end_registry(later);
    cprof_process_end_registry(another);
}

/* Calls are captured whether or not they are counted, fail, or are skipped; once the window is over they are quick again. */
TEST(window)
{
    set_up(0, 0, 0);
    CHECK(cprof_capture_set(cprof_name_of("b"), 1, 2) == CPROF_OK);
    close_node(open_node(1));
    close_node(open_node(1)); /* it is another owner's node so far */
    check_notes("");
    cprof_registry_capture_owner(OWNER, FLAG(CAPTURE));
    close_node(open_node(1));
    close_node(open_node(0));
    check_notes("");
    cprof_span *first = open_node(1);
    cprof_span *second = open_node(1);
    close_as(second, CPROF_OUTCOME_ERROR);
    CHECK(has_capture(registry));
    check_notes("start ");
    cprof_probe_stop(first->probe);
    cprof_probe_end_capture(first->probe);
    check_notes("stop ");
    CHECK(has_capture(registry));
    close_node(first);
    check_notes("");
    CHECK(!has_capture(registry));
    CHECK_EQUAL(cprof_registry_state(registry) & CPROF_FLAG_ALL, 0);
}

/* A call that has ended its part of the window does not end the part of another one. */
TEST(window_of_two_calls)
{
    set_up(0, 0, 0);
    CHECK(cprof_capture_set(cprof_name_of("b"), 0, 2) == CPROF_OK);
    cprof_registry_capture_owner(OWNER, FLAG(CAPTURE));
    cprof_span *first = open_node(1);
    cprof_span *second = open_node(1);
    cprof_probe_stop(first->probe);
    cprof_probe_end_capture(first->probe);
    close_node(first);
    check_notes("start ");
    close_node(second);
    check_notes("stop ");
}

TEST(window_around_a_discarded_call)
{
    set_up(FLAG(STATS), 0, 3);
    CHECK(cprof_capture_set(cprof_name_of("a"), 0, 1) == CPROF_OK);
    cprof_registry_capture_owner(OWNER, FLAG(CAPTURE));
    cprof_span *span = open_node(0);
    chain.top = NULL;
    cprof_call_discard(span);
    check_notes("start stop ");
    CHECK(!has_capture(registry));
}

/* ---- Where probes come from */

TEST(probes_are_used_again)
{
    set_up(FLAG(STATS) | CPROF_FLAG_PROBED, CPROF_REGISTRY_RESETS_PEAK, 0);
    fake.is_quiet = true;
    close_using(open_using(0, 1, 1, 1), 1, 1, 1);
    cprof_probe *spare = thread->spare_probe;
    CHECK(spare != NULL);
    uint64_t made = fake_alloc_made();
    for (int i = 0; i < CALLS; i++) {
        close_using(open_using(0, 1, 1, 1), 1, 1, 1);
    }
    CHECK(thread->spare_probe == spare);
    CHECK_EQUAL(fake_alloc_made(), made);
    cprof_probe *probe = new_probe(0);
    CHECK(probe == spare && !probe->stopped && !probe->running && !probe->has_paused && probe->events == NULL);
    CHECK(probe->next == NULL && probe->next_open == NULL && probe->outer == NULL && !probe->memory.known);
    cprof_probe_finish(probe, false, true);
    for (int round = 0; round < 3; round++) {
        cprof_probe *several[] = {new_probe(0), new_probe(0), new_probe(0)};
        made = round == 0 ? fake_alloc_made() : made;
        for (size_t i = 0; i < COUNT_OF(several); i++) {
            cprof_probe_finish(several[i], false, true);
        }
    }
    CHECK_EQUAL(fake_alloc_made(), made);
}

/* ---- Forks */

/* In a forked child what the parent began is given up without a word to device or window (H5); what begins there is whole. */
TEST(fork)
{
    set_up(FLAG(STATS) | CPROF_FLAG_PROBED, ALL_COUNTERS | CPROF_REGISTRY_RESETS_PEAK, 0);
    cprof_probe *probe = new_probe(0);
    probe->memory = (cprof_probe_memory){true, 1, 10, 10};
    probe->cause = CPROF_GPU_KNOWN;
    cprof_span *span = open_with(0, probe);
    check_notes("begin 0.0 register a push0 ");
    IN_CHILD
    {
        CHECK(spare_probes() == 0 && cprof_probes.open == NULL);
        close_using(span, 1, 20, 99);
        check_notes("pop ");
        CHECK_EQUAL(spare_probes(), 0);
        CHECK_EQUAL(extra_of(0).asked, 0);
        span = open_using(0, 1, 10, 10);
        worked += 5;
        close_using(span, 1, 20, 30);
        check_notes("push1 pop ");
        check_work(0, 1, 5);
        CHECK_EQUAL(extra_of(0).device_memory.peak, 30);
        CHECK(thread->running == NULL && spare_probes() == 1);
        _exit(EXIT_SUCCESS); /* the parent's probes, which it has forgotten, are no leak */
    }
    close_using(span, 1, 20, 30);
    check_notes("pop end0 0.0 ");
    CHECK_EQUAL(extra_of(0).gpu_count, 1);
}

TEST(marks_of_the_parent_are_not_the_childs)
{
    set_up(FLAG(STATS) | FLAG(GPU), 0, 0);
    close_node(open_marked(0, 1));
    IN_CHILD
    {
        cprof_probe_settle();
        check_notes("");
        _exit(EXIT_SUCCESS); /* without looking for leaks: the parent's probe is forgotten */
    }
    cprof_probe_settle();
    check_notes("own1 counts ");
}

/* ---- Threads */

static pthread_mutex_t layer_above = PTHREAD_MUTEX_INITIALIZER; /* one thread at a time is in these functions */

static void call_in(cprof_thread *here, cprof_chain *line_of, int node, int64_t highest)
{
    CHECK(pthread_mutex_lock(&layer_above) == 0);
    cprof_probe *probe = new_probe(node);
    probe->memory = (cprof_probe_memory){true, 1, 10, highest};
    probe->cause = CPROF_GPU_KNOWN;
    cprof_span *span = cprof_call_open(here, line_of, nodes[node], cprof_registry_state(registry), registry, &tags[node]);
    CHECK(span != NULL);
    cprof_probe_begin(probe, here, span);
    CHECK(pthread_mutex_unlock(&layer_above) == 0);
    worked += 2;
    CHECK(pthread_mutex_lock(&layer_above) == 0);
    cprof_probe_stop(probe);
    cprof_probe_set_memory(probe, &(cprof_probe_memory){true, 1, 10, highest});
    cprof_call_close(here, line_of, span, CPROF_OUTCOME_SUCCESS, false);
    CHECK(pthread_mutex_unlock(&layer_above) == 0);
}

static void *call_often(void *argument)
{
    int node = (int)((char *)argument - marks);
    cprof_chain line_of = {.top = NULL};
    cprof_thread *here = cprof_thread_get();
    CHECK(here != NULL);
    for (int i = 0; i < CALLS; i++) {
        call_in(here, &line_of, node, i);
    }
    CHECK(here->running == NULL && launching.accum == NULL);
    return NULL;
}

TEST(threads)
{
    set_up(FLAG(STATS) | CPROF_FLAG_PROBED, ALL_COUNTERS | CPROF_REGISTRY_RESETS_PEAK, 0);
    fake.is_quiet = true;
    check_threads(THREADS, call_often, marks, sizeof marks[0]);
    for (int i = 0; i < THREADS; i++) {
        cprof_resources_figures extra = extra_of(i);
        check_work(i, CALLS, (uint64_t)2 * CALLS);
        CHECK_EQUAL(extra.gpu_count, CALLS);
        CHECK_EQUAL(extra.device_memory.peak, CALLS - 1);
    }
    CHECK(spare_probes() <= THREADS + 8);
    CHECK_EQUAL(atomic_load(&fake.pushed), THREADS * CALLS);
    CHECK_EQUAL(fake.registered, THREADS);
}

static _Atomic int allowed_steps, done_steps;

static void end_step(void)
{
    int done = atomic_fetch_add(&done_steps, 1) + 1;
    while (atomic_load(&allowed_steps) == done) {
        (void)sched_yield();
    }
}

/* Each step changes one of the lists that all threads have in common. */
static void *take_steps(void *unused)
{
    cprof_thread *here = cprof_thread_get();
    cprof_span span = {.probe = NULL};
    CHECK(here != NULL);
    cprof_probe *own = here->spare_probe != NULL ? new_probe(0) : NULL; /* of an earlier thread with this record */
    cprof_probe *first = new_probe(0);
    first->memory = (cprof_probe_memory){true, 1, 10, 10};
    end_step();
    cprof_probe_begin(first, here, &span);
    end_step();
    cprof_probe_set_memory(first, &first->memory);
    end_step();
    cprof_probe_finish(first, true, false);
    end_step();
    cprof_probe *second = new_probe(0); /* the thread's own spare one */
    second->mark = &marks[0];
    second->end_mark = end_own_mark;
    cprof_probe_finish(second, false, false);
    end_step();
    cprof_probe_settle();
    end_step();
    first = new_probe(0);
    second = new_probe(0);
    cprof_probe_finish(first, false, false);
    end_step();
    cprof_probe_finish(second, false, false);
    atomic_fetch_add(&done_steps, 1);
    if (own != NULL) {
        cprof_probe_finish(own, false, false);
    }
    return unused;
}

/* Without a GIL, too, no thread changes a list while another one does. */
TEST(lists_are_changed_by_one_thread_at_a_time)
{
    enum { STEPS = 8, MOMENT_US = 10000 };
    set_up(FLAG(STATS) | FLAG(GPU) | FLAG(MEMORY), CPROF_REGISTRY_RESETS_PEAK, 0);
    fake.is_quiet = true;
    pthread_t taker = 0;
    for (int i = 0; i < STEPS; i++) {
        cprof_lock_acquire(&cprof_probes.lock);
        atomic_store(&allowed_steps, i + 1);
        taker = i == 0 ? check_thread(take_steps, NULL) : taker;
        (void)usleep(MOMENT_US);
        CHECK_EQUAL(atomic_load(&done_steps), i);
        cprof_lock_release(&cprof_probes.lock);
        while (atomic_load(&done_steps) == i) {
            (void)sched_yield();
        }
    }
    check_join(taker);
}

int main(void)
{
    cprof_process_start();
    fake_alloc_install();
    cprof_clock_set_test(read_clock);
    thread = cprof_thread_get();
    CHECK(thread != NULL);
    check_run(NULL, tear_down);
    return EXIT_SUCCESS;
}
