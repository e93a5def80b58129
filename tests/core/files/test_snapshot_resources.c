/* Figures beyond times in snapshots: snapshot_merge.h (failure scenarios D14, E10) */
#include "cprofiling/files/snapshot.h"

#include "cprofiling/files/snapshot_merge.h"
#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"
#include "tests/core/snapshots.h"

#include <pthread.h>
#include <string.h>

enum { PARTS = 5, SAMPLES = 60, THREADS = 3, ROUNDS = 100 };

/* The place of the fields of what a key ends with. */
enum {
    AT_CAUSES = 0,
    AT_COUNTERS = 2,
    AT_GPU_FILLED = 4,
    AT_ASKED = 6,
    AT_GPU_COUNT = 8,
    AT_GPU_SUM = 16,
    AT_GPU_MIN = 32,
    AT_GPU_MAX = 40,
    AT_GPU_LOST = 48,
    AT_QUEUE_COUNT = 56,
    AT_QUEUE_SUM = 64,
    AT_STREAMS = 80,
    AT_MISSED = 88,
    AT_LAUNCHES = AT_MISSED + CPROF_GPU_CAUSES * 8,
    AT_COUNTED = AT_LAUNCHES + 8 * 8,
    AT_ESTIMATED = AT_COUNTED + CPROF_COUNTER_COUNT * 24,
    AT_DEVICE = AT_ESTIMATED + 8,
    AT_HOST = AT_DEVICE + 56,
    AT_WAITS = AT_HOST + 56,
    AT_WAIT_SUM = AT_WAITS + 8,
    AT_BUCKETS = AT_WAIT_SUM + 16,
    /* of memory */
    AT_MEMORY_TAKEN = 0,
    AT_CALLS = 8,
    AT_ENTRY = 16,
    AT_EXIT = 24,
    AT_CHANGE = 32,
    AT_PEAK = 48,
};

/* Statistics */

static void finish(cprof_registry *registry, const char *node)
{
    cprof_sample sample = {3 * MS, 1 * MS, 500};
    cprof_accum_finish(accum_of(registry, "train", node), cprof_epoch_present(&registry->epoch).generation,
                       CPROF_OUTCOME_SUCCESS, &sample);
}

static void add_gpu(cprof_registry *registry, const char *node, cprof_ns gpu_ns, cprof_ns queue_ns, bool multi_stream)
{
    cprof_accum_add_gpu(accum_of(registry, "train", node), cprof_epoch_present(&registry->epoch).generation, gpu_ns, queue_ns,
                        multi_stream);
}

static void miss_gpu(cprof_registry *registry, const char *node, cprof_gpu_cause cause)
{
    cprof_accum_miss_gpu(accum_of(registry, "train", node), cprof_epoch_present(&registry->epoch).generation, cause);
}

static void add_launches(cprof_registry *registry, const char *node, cprof_launch_counts launches)
{
    cprof_accum_add_launches(accum_of(registry, "train", node), cprof_epoch_present(&registry->epoch).generation, &launches);
}

static void add_sample(cprof_registry *registry, const char *node, cprof_resources_sample sample)
{
    cprof_accum_add_sample(accum_of(registry, "train", node), cprof_epoch_present(&registry->epoch).generation, &sample);
}

static cprof_snapshot *take(cprof_registry *registry, uint64_t taken_ns)
{
    return collected(registry, (cprof_snapshot_remarks){.taken_ns = taken_ns, .internal_errors = 2, .cost_ns = 0.5});
}

static bool same_memory(const cprof_resources_memory *a, const cprof_resources_memory *b)
{
    return a->calls == b->calls && a->entry == b->entry && a->exit == b->exit && a->change == b->change && a->peak == b->peak;
}

/* All figures that are sums, or extremes. */
static bool same_sums(const cprof_resources_figures *a, const cprof_resources_figures *b)
{
    return a->asked == b->asked && a->gpu_count == b->gpu_count && a->gpu_ns == b->gpu_ns && a->gpu_min_ns == b->gpu_min_ns &&
           a->gpu_max_ns == b->gpu_max_ns && a->gpu_lost == b->gpu_lost && a->queue_count == b->queue_count &&
           a->queue_ns == b->queue_ns && a->multi_stream == b->multi_stream &&
           memcmp(a->missed, b->missed, sizeof a->missed) == 0 && memcmp(&a->launched, &b->launched, sizeof a->launched) == 0 &&
           memcmp(a->counted, b->counted, sizeof a->counted) == 0 &&
           memcmp(a->counters, b->counters, sizeof a->counters) == 0 && a->estimated == b->estimated && a->waits == b->waits &&
           a->wait_ns == b->wait_ns;
}

static bool same(const seen *a, const seen *b)
{
    return a->has_extra && b->has_extra && same_sums(&a->resources, &b->resources) &&
           a->resources.gpu_rows == b->resources.gpu_rows &&
           same_memory(&a->resources.device_memory, &b->resources.device_memory) &&
           same_memory(&a->resources.host_memory, &b->resources.host_memory) && a->gpu_median_ms == b->gpu_median_ms &&
           memcmp(a->gpu_counts, b->gpu_counts, sizeof a->gpu_counts) == 0;
}

/* The golden bytes */

static const cprof_resources_sample golden_sample = {
    .asked = CPROF_RESOURCES_COUNTERS | CPROF_RESOURCES_MEMORY | CPROF_RESOURCES_WAITS,
    .counters = {.known = CPROF_COUNTER_BIT(CPROF_COUNTER_CPU_TIME) | CPROF_COUNTER_BIT(CPROF_COUNTER_CYCLES),
                 .values = {[CPROF_COUNTER_CPU_TIME] = 2500000, [CPROF_COUNTER_CYCLES] = UINT64_MAX},
                 .estimated = true},
    .device_memory = {true, 100, 150, 160},
    .host_memory = {true, 4096, 96, -1},
    .waits = 2,
    .wait_ns = 900,
};

/* One call in "train" of "blur" with everything, at the time 77. */
static cprof_registry *golden_registry(void)
{
    cprof_registry *registry = registry_new(0);
    finish(registry, "blur");
    add_gpu(registry, "blur", 2 * MS, 5000, false);
    add_gpu(registry, "blur", 5 * MS, -1, true);
    for (unsigned cause = 1; cause < CPROF_GPU_CAUSES; cause++) {
        for (unsigned i = 0; i < cause; i++) {
            miss_gpu(registry, "blur", (cprof_gpu_cause)cause);
        }
    }
    add_launches(registry, "blur", (cprof_launch_counts){1, 2, 3, 4, 5, 6, 7, 8});
    add_sample(registry, "blur", golden_sample);
    return registry;
}

typedef struct {
    uint8_t bytes[2048];
    size_t at;
} writer;

static void write_number(writer *w, uint64_t value, unsigned width)
{
    CHECK(w->at + width <= sizeof w->bytes);
    put(w->bytes + w->at, value, width);
    w->at += width;
}

static void write_all(writer *w, const uint64_t *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        write_number(w, values[i], 8);
    }
}

#define WRITE(w, ...) write_all(w, (const uint64_t[]){__VA_ARGS__}, COUNT_OF(((const uint64_t[]){__VA_ARGS__})))

#define THREE_MS 0x4008000000000000 /* as a double */

static void write_header_and_times(writer *w, uint64_t size)
{
    memcpy(w->bytes, "CPROFSNP", 8);
    w->at = 8;
    write_number(w, 5, 4);                                /* version */
    write_number(w, 0, 4);                                /* flags */
    WRITE(w, size, 0, 0, 2, 0x3fe0000000000000, 1, 0, 1); /* skips, errors, cost, counts */
    for (uint64_t i = 0; i < CPROF_REGISTRY_ID_BYTES; i++) {
        write_number(w, 0xa0 + i, 1);
    }
    WRITE(w, 1); /* generation */
    write_number(w, 5, 2);
    write_number(w, 4, 2);
    write_number(w, 1, 2);
    write_number(w, 2, 2); /* flags: figures beyond times */
    WRITE(w, 0, 77, 1, 0, 0, 0, 0, 0, 0, 0);
    WRITE(w, THREE_MS, THREE_MS, THREE_MS, THREE_MS, THREE_MS);
    WRITE(w, THREE_MS, 0, 0, 0, 0); /* the first samples */
    WRITE(w, 3000000, 0, 9000000000000, 0, 0, 1000000, 0, 500, 0);
    memcpy(w->bytes + w->at, "trainblur", 9);
    w->at += 9;
    write_number(w, 22 * 64 + 27, 2); /* 3 ms: 2^21 ns and 27/64 */
    WRITE(w, 1);
}

static void write_counters(writer *w)
{
    for (int i = 0; i < CPROF_COUNTER_COUNT; i++) {
        if (i == CPROF_COUNTER_CPU_TIME) {
            WRITE(w, 1, 2500000, 0);
        } else if (i == CPROF_COUNTER_CYCLES) {
            WRITE(w, 1, UINT64_MAX, 0);
        } else {
            WRITE(w, 0, 0, 0);
        }
    }
}

static void write_beyond_times(writer *w)
{
    write_number(w, CPROF_GPU_CAUSES, 2);
    write_number(w, CPROF_COUNTER_COUNT, 2);
    write_number(w, 2, 2);
    write_number(w, 31, 2);
    WRITE(w, 2, 7000000, 0, 2000000, 5000000, 0, 1, 5000, 0, 1);
    for (uint64_t cause = 0; cause < CPROF_GPU_CAUSES; cause++) {
        WRITE(w, cause);
    }
    WRITE(w, 1, 2, 3, 4, 5, 6, 7, 8);
    write_counters(w);
    WRITE(w, 1);
    WRITE(w, 77, 1, 100, 150, 50, 0, 160);
    WRITE(w, 77, 1, 4096, 96, (uint64_t)-4000, UINT64_MAX, UINT64_MAX);
    WRITE(w, 2, 900, 0);
    write_number(w, 21 * 64 + 58, 2); /* 2 ms: 2^20 ns and 58/64 */
    write_number(w, 23 * 64 + 12, 2); /* 5 ms: 2^22 ns and 12/64 */
    WRITE(w, 1, 1);
}

/* As snapshot.h describes them, written down without the code that writes them. */
static writer golden(void)
{
    writer w = {.at = 0};
    enum { BEYOND = 536 + (CPROF_GPU_CAUSES - 9) * 8 + (CPROF_COUNTER_COUNT - 7) * 24 + 2 * 10 };
    uint64_t size = FIRST_KEY + KEY_BYTES + 9 + 10 + BEYOND + 8;
    write_header_and_times(&w, size);
    write_beyond_times(&w);
    w.at += 8;
    CHECK_EQUAL(w.at, size);
    seal(w.bytes, w.at);
    return w;
}

/* Where in them the figures beyond times begin. */
enum { BEGIN = FIRST_KEY + KEY_BYTES + 9 + 10 };

static byte_string golden_copy(void)
{
    writer w = golden();
    byte_string bytes = {malloc(w.at), w.at};
    CHECK(bytes.data != NULL);
    keep(NULL, NULL, bytes.data);
    memcpy(bytes.data, w.bytes, w.at);
    return bytes;
}

TEST(golden_bytes)
{
    writer expected = golden();
    cprof_registry *registry = golden_registry();
    cprof_snapshot *snapshot = take(registry, 77);
    for (unsigned i = 0; i < CPROF_REGISTRY_ID_BYTES; i++) {
        snapshot->sources[0].id[i] = (uint8_t)(0xa0 + i);
    }
    byte_string bytes = encode(snapshot);
    for (size_t i = 0; i < bytes.size && i < expected.at; i++) {
        CHECK_EQUAL(i << 8 | bytes.data[i], i << 8 | expected.bytes[i]);
    }
    CHECK_EQUAL(bytes.size, expected.at);
    cprof_snapshot *copy;
    CHECK(decode(expected.bytes, expected.at, &copy, NULL) == CPROF_OK);
    CHECK(equal(snapshot, copy));
    seen live = see_live(registry, "blur");
    seen found = see(copy, "blur");
    CHECK(same(&live, &found));
    CHECK(found.resources.asked == 31 && found.resources.gpu_count == 2 && found.resources.host_memory.change == -4000);
    CHECK(found.resources.host_memory.peak == -1 && found.resources.counters[CPROF_COUNTER_CYCLES] == UINT64_MAX);
    CHECK_NEAR(found.gpu_median_ms, 2.0, 0.01);
}

TEST(every_cut_and_every_changed_bit)
{
    writer w = golden();
    expect_damage_refused(w.bytes, w.at);
}

/* Cuts that know their length and have a right checksum. */
TEST(every_cut_that_is_sealed)
{
    writer w = golden();
    for (size_t size = FIRST_KEY + 8; size < w.at; size++) {
        writer cut = w;
        put(cut.bytes + 16, size, 8);
        seal(cut.bytes, size);
        expect_refused(cut.bytes, size);
    }
}

/* Reasons for refusals */

TEST(reasons_of_gpu_times)
{
    static const change changes[] = {
        {AT_CAUSES, CPROF_GPU_CAUSES + 1, 2, "another number of causes or counters"},
        {AT_CAUSES, CPROF_GPU_CAUSES - 1, 2, "another number of causes or counters"},
        {AT_COUNTERS, CPROF_COUNTER_COUNT + 1, 2, "another number of causes or counters"},
        {AT_COUNTERS, 0, 2, "another number of causes or counters"},
        {AT_GPU_FILLED, 3, 2, "a length that points behind the end"},
        {AT_GPU_FILLED, 0xffff, 2, "a length that points behind the end"},
        {AT_GPU_FILLED, 1, 2, "a histogram of another number of samples"},
        {AT_GPU_FILLED, 0, 2, "a histogram of another number of samples"},
        {AT_ASKED, 128 | 31, 2, "figures that were not asked for"},
        {AT_ASKED, 0, 2, "figures that were not asked for"},
        {AT_ASKED, 31 - CPROF_RESOURCES_GPU, 2, "figures that were not asked for"},
        {AT_GPU_COUNT, TWO_63, 8, "a count of 2^63 or more"},
        {AT_GPU_COUNT, 0, 8, "more samples in part than in all"},
        {AT_GPU_COUNT, 1, 8, "an impossible GPU time"},
        {AT_GPU_COUNT, 3, 8, "an impossible GPU time"},
        {AT_GPU_SUM, 6999999, 8, "an impossible GPU time"},
        {AT_GPU_SUM, 7000001, 8, "an impossible GPU time"},
        {AT_GPU_SUM + 8, 1, 8, "an impossible GPU time"},
        {AT_GPU_MIN, 5000001, 8, "an impossible GPU time"},
        {AT_GPU_MIN, UINT64_MAX, 8, "an impossible GPU time"},
        {AT_GPU_MIN, 1999999, 8, "an impossible GPU time"},
        {AT_GPU_MAX, TWO_63, 8, "an impossible GPU time"},
        {AT_GPU_MAX, 0, 8, "an impossible GPU time"},
        {AT_GPU_LOST, 3, 8, "more samples in part than in all"},
        {AT_GPU_LOST, 1, 8, "a histogram of another number of samples"},
        {AT_QUEUE_COUNT, 3, 8, "more samples in part than in all"},
        {AT_QUEUE_COUNT, 0, 8, "an impossible sum"},
        {AT_QUEUE_SUM, TWO_63, 8, "an impossible sum"},
        {AT_QUEUE_SUM + 8, 1, 8, "an impossible sum"},
        {AT_STREAMS, 3, 8, "more samples in part than in all"},
        {AT_MISSED, 1, 8, "GPU times that are known and missed"},
        {AT_MISSED + 8, TWO_63, 8, "a count of 2^63 or more"},
        {AT_BUCKETS, 21 * 64 + 57, 2, "a histogram of other GPU times"},
        {AT_BUCKETS, 21 * 64 + 59, 2, "a histogram of other GPU times"},
        {AT_BUCKETS + 2, 23 * 64 + 13, 2, "a histogram of other GPU times"},
        {AT_BUCKETS + 2, 21 * 64 + 58, 2, "an impossible bucket"},
        {AT_BUCKETS + 2, CPROF_HISTOGRAM_BUCKETS, 2, "an impossible bucket"},
        {AT_BUCKETS + 4, 0, 8, "a histogram of another number of samples"},
        {AT_BUCKETS + 4, 2, 8, "a histogram of another number of samples"},
        {AT_BUCKETS + 12, UINT64_MAX, 8, "a histogram of another number of samples"},
    };
    byte_string bytes = golden_copy();
    expect_reasons(&bytes, BEGIN, changes, COUNT_OF(changes));
}

TEST(reasons_of_the_rest)
{
    static const change changes[] = {
        {AT_ASKED, 31 - CPROF_RESOURCES_LAUNCHES, 2, "figures that were not asked for"},
        {AT_ASKED, 31 - CPROF_RESOURCES_COUNTERS, 2, "figures that were not asked for"},
        {AT_ASKED, 31 - CPROF_RESOURCES_MEMORY, 2, "figures that were not asked for"},
        {AT_ASKED, 31 - CPROF_RESOURCES_WAITS, 2, "figures that were not asked for"},
        {AT_LAUNCHES, TWO_63, 8, "a count of 2^63 or more"},
        {AT_LAUNCHES + 56, UINT64_MAX, 8, "a count of 2^63 or more"},
        {AT_COUNTED, TWO_63, 8, "a count of 2^63 or more"},
        {AT_COUNTED + 16, 1, 8, "an impossible sum"},
        {AT_COUNTED + 24 * CPROF_COUNTER_CYCLES, 0, 8, "an impossible sum"},
        {AT_COUNTED + 24 * CPROF_COUNTER_CYCLES + 16, 1, 8, "an impossible sum"},
        {AT_ESTIMATED, TWO_63, 8, "a count of 2^63 or more"},
        {AT_DEVICE + AT_MEMORY_TAKEN, TWO_63, 8, "impossible bytes of memory"},
        {AT_DEVICE + AT_CALLS, TWO_63, 8, "a count of 2^63 or more"},
        {AT_DEVICE + AT_CALLS, 0, 8, "impossible bytes of memory"},
        {AT_DEVICE + AT_ENTRY, UINT64_MAX, 8, "impossible bytes of memory"},
        {AT_DEVICE + AT_ENTRY, 101, 8, "impossible bytes of memory"}, /* of one call the change is known */
        {AT_DEVICE + AT_EXIT, TWO_63, 8, "impossible bytes of memory"},
        {AT_DEVICE + AT_CHANGE, 51, 8, "impossible bytes of memory"},
        {AT_DEVICE + AT_CHANGE + 8, 1, 8, "impossible bytes of memory"},
        {AT_DEVICE + AT_PEAK, (uint64_t)-2, 8, "impossible bytes of memory"},
        {AT_HOST + AT_CALLS, TWO_63, 8, "a count of 2^63 or more"},
        {AT_HOST + AT_EXIT, 97, 8, "impossible bytes of memory"},
        {AT_HOST + AT_CHANGE + 8, 0, 8, "impossible bytes of memory"},
        {AT_WAITS, TWO_63, 8, "a count of 2^63 or more"},
        {AT_WAITS, 0, 8, "an impossible sum"},
        {AT_WAIT_SUM, UINT64_MAX, 8, "an impossible sum"},
        {AT_WAIT_SUM + 8, 1, 8, "an impossible sum"},
    };
    byte_string bytes = golden_copy();
    expect_reasons(&bytes, BEGIN, changes, COUNT_OF(changes));
    expect_reason(&bytes, FIRST_KEY + AT_FLAGS, 8, 2, "unknown flags at byte 104");
    expect_reason(&bytes, FIRST_KEY + AT_FLAGS, 0, 2, "more bytes than the counts say");
}

/* Each figure alone may be right. */
TEST(reasons_of_figures_together)
{
    byte_string bytes = golden_copy();
    put(bytes.data + BEGIN + AT_GPU_MIN, 5000000, 8);
    expect_reason(&bytes, BEGIN + AT_GPU_MAX, 2000000, 8, "an impossible GPU time");
    put(bytes.data + BEGIN + AT_GPU_MIN, 2000000, 8);
    put(bytes.data + BEGIN + AT_GPU_SUM, TWO_63 + 2000000, 8);
    expect_reason(&bytes, BEGIN + AT_GPU_MAX, TWO_63, 8, "an impossible GPU time");
}

/* Those that are lost may have been the least or the most; those that are not are still between. */
TEST(reasons_of_gpu_times_of_which_some_are_lost)
{
    static const change changes[] = {
        {AT_BUCKETS, 21 * 64 + 57, 2, "a histogram of other GPU times"},
        {AT_BUCKETS + 2, 23 * 64 + 13, 2, "a histogram of other GPU times"},
    };
    byte_string bytes = golden_copy();
    put(bytes.data + BEGIN + AT_GPU_COUNT, 3, 8);
    put(bytes.data + BEGIN + AT_GPU_LOST, 1, 8);
    put(bytes.data + BEGIN + AT_GPU_SUM, 9000000, 8);
    expect_reasons(&bytes, BEGIN, changes, COUNT_OF(changes));
    put(bytes.data + BEGIN + AT_BUCKETS, 21 * 64 + 59, 2);
    seal(bytes.data, bytes.size);
    cprof_snapshot *snapshot;
    CHECK(decode(bytes.data, bytes.size, &snapshot, NULL) == CPROF_OK);
}

/* The change of many calls has bounds, too; and 64 bits, unless it is merged. */
TEST(reasons_of_the_memory_of_many_calls)
{
    static const change changes[] = {
        {AT_CHANGE + 8, 1, 8, "impossible bytes of memory"},
        {AT_CHANGE + 8, 2, 8, "impossible bytes of memory"},
        {AT_CHANGE + 8, UINT64_MAX, 8, "impossible bytes of memory"},
        {AT_CHANGE + 8, (uint64_t)-3, 8, "impossible bytes of memory"},
        {AT_CHANGE, TWO_63, 8, "impossible bytes of memory"},
    };
    byte_string bytes = golden_copy();
    put(bytes.data + BEGIN + AT_DEVICE + AT_CALLS, 4, 8);
    expect_reasons(&bytes, BEGIN + AT_DEVICE, changes, COUNT_OF(changes));
}

TEST(reasons_of_memory_without_a_call)
{
    static const change changes[] = {
        {AT_MEMORY_TAKEN, 1, 8, "impossible bytes of memory"}, {AT_ENTRY, 1, 8, "impossible bytes of memory"},
        {AT_EXIT, 1, 8, "impossible bytes of memory"},         {AT_CHANGE, 1, 8, "impossible bytes of memory"},
        {AT_CHANGE + 8, 1, 8, "impossible bytes of memory"},   {AT_PEAK, 1, 8, "impossible bytes of memory"},
    };
    cprof_registry *registry = registry_new(0);
    finish(registry, "blur");
    miss_gpu(registry, "blur", CPROF_GPU_NO_CUDA);
    byte_string bytes = encode(take(registry, 77));
    expect_reasons(&bytes, BEGIN + AT_DEVICE, changes, COUNT_OF(changes));
    expect_reasons(&bytes, BEGIN + AT_HOST, changes, COUNT_OF(changes));
    static const change of_gpu_times[] = {
        {AT_GPU_SUM, 1, 8, "an impossible GPU time"},
        {AT_GPU_MIN, 0, 8, "an impossible GPU time"},
        {AT_GPU_MAX, 1, 8, "an impossible GPU time"},
        {AT_MISSED + 8 * CPROF_GPU_NO_CUDA, TWO_63, 8, "a count of 2^63 or more"},
    };
    expect_reasons(&bytes, BEGIN, of_gpu_times, COUNT_OF(of_gpu_times));
    put(bytes.data + BEGIN + AT_MISSED + 8 * CPROF_GPU_NO_CUDA, 0, 8);
    expect_reason(&bytes, BEGIN + AT_ASKED, 0, 2, "figures that were not asked for"); /* there are none, either */
}

/* Keys with and without them */

TEST(keys_with_and_without)
{
    cprof_registry *registry = registry_new(0);
    finish(registry, "none");
    cprof_snapshot *before = take(registry, 1);
    finish(registry, "some");
    add_gpu(registry, "some", INT64_MAX, INT64_MAX, true);
    add_gpu(registry, "some", 0, -1, false);
    cprof_accum_record_ms(accum_of(registry, "train", "fractional"), 0.1);
    add_sample(registry, "fractional", golden_sample);
    cprof_sample sample = {1 * MS, 0, 0};
    cprof_accum_finish(accum_of(registry, "train", "error"), 1, CPROF_OUTCOME_ERROR, &sample);
    add_launches(registry, "error", (cprof_launch_counts){.launches = UINT64_MAX});
    cprof_snapshot *snapshot = take(registry, 1);
    cprof_snapshot *copy = round_trip(snapshot);
    static const char *const nodes[] = {"some", "fractional", "error"};
    for (size_t i = 0; i < COUNT_OF(nodes); i++) {
        seen live = see_live(registry, nodes[i]);
        seen found = see(copy, nodes[i]);
        CHECK(same(&live, &found));
    }
    CHECK(!see(copy, "none").has_extra && !see(before, "none").has_extra);
}

/* Whoever measures should say what was asked for, and give a cause; what it leaves out must not make bytes that are refused. */
TEST(careless_figures)
{
    cprof_registry *registry = registry_new(0);
    finish(registry, "nothing");
    add_sample(registry, "nothing", (cprof_resources_sample){.asked = 0});
    cprof_snapshot *snapshot = take(registry, 1);
    CHECK(!see(snapshot, "nothing").has_extra);
    finish(registry, "unasked");
    cprof_resources_sample sample = golden_sample;
    sample.asked = 0;
    add_sample(registry, "unasked", sample);
    finish(registry, "causeless");
    miss_gpu(registry, "causeless", CPROF_GPU_KNOWN);
    snapshot = take(registry, 1);
    cprof_snapshot *copy = round_trip(snapshot);
    CHECK_EQUAL(see(copy, "unasked").resources.asked, golden_sample.asked);
    CHECK_EQUAL(see(copy, "causeless").resources.asked, CPROF_RESOURCES_GPU);
    CHECK_EQUAL(see(copy, "causeless").resources.missed[CPROF_GPU_KNOWN], 0);
}

/* Without memory a histogram counts nothing, and the rest of the figures stays. */
TEST(gpu_times_that_the_histogram_lost)
{
    cprof_registry *registry = registry_new(0);
    finish(registry, "blur");
    miss_gpu(registry, "blur", CPROF_GPU_FULL); /* so that only the histogram is to be made */
    fake_alloc_fail(1);
    add_gpu(registry, "blur", 2 * MS, -1, false);
    CHECK(fake_alloc_has_failed());
    cprof_snapshot *lost = take(registry, 1);
    cprof_snapshot *copy = round_trip(lost);
    seen key = see(copy, "blur");
    CHECK(key.resources.gpu_count == 1 && key.resources.gpu_lost == 1 && key.resources.gpu_rows == 0 &&
          key.gpu_median_ms < 0.0);
    cprof_registry *other = golden_registry();
    cprof_snapshot *whole = take(other, 2);
    cprof_snapshot *merged = merge_two(whole, lost);
    cprof_snapshot *again = round_trip(merged);
    key = see(again, "blur");
    CHECK(key.resources.gpu_count == 3 && key.resources.gpu_lost == 1);
    CHECK_NEAR(key.gpu_median_ms, 2.0, 0.01);
    byte_string bytes = encode(lost);
    expect_reason(&bytes, BEGIN + AT_GPU_LOST, 0, 8, "a histogram of another number of samples");
}

/* Merging */

static cprof_resources_memory_sample random_memory(void)
{
    return (cprof_resources_memory_sample){
        .known = random_bits() % 4 != 0,
        .entry = (int64_t)(random_bits() % 3),
        .exit = (int64_t)(random_bits() >> (16 + random_bits() % 48)),
        .peak = (int64_t)(random_bits() % 100) - 50,
    };
}

static cprof_resources_sample random_sample(void)
{
    cprof_resources_sample sample = {
        .asked = CPROF_RESOURCES_COUNTERS | CPROF_RESOURCES_MEMORY | CPROF_RESOURCES_WAITS,
        .counters.known = (unsigned)(random_bits() % CPROF_COUNTER_BIT(CPROF_COUNTER_COUNT)),
        .counters.estimated = random_bits() % 2 == 0,
        .device_memory = random_memory(),
        .host_memory = random_memory(),
        .waits = random_bits() % 2,
    };
    sample.wait_ns = sample.waits != 0 ? (cprof_ns)(random_bits() >> 1) : 0;
    for (unsigned i = 0; i < CPROF_COUNTER_COUNT; i++) {
        sample.counters.values[i] = random_bits() >> random_bits() % 64;
    }
    return sample;
}

/* The same to both registries. */
static void add_random(cprof_registry *a, cprof_registry *b)
{
    static const char *const nodes[] = {"w", "x", "y", "z"};
    const char *node = nodes[random_bits() % 4];
    cprof_ns gpu_ns = (cprof_ns)(random_bits() >> 1 >> random_bits() % 63);
    cprof_ns queue_ns = gpu_ns % 3 - 1;
    cprof_resources_sample sample = random_sample();
    uint64_t kind = random_bits() % 6;
    cprof_registry *const both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        finish(both[i], node);
        if (kind == 0) {
            miss_gpu(both[i], node, (cprof_gpu_cause)(1 + (uint64_t)gpu_ns % (CPROF_GPU_CAUSES - 1)));
        } else if (kind == 1) {
            add_launches(both[i], node, (cprof_launch_counts){1, 2, 3, 4, (uint64_t)gpu_ns, 6, 7, 8});
        } else if (kind == 2) {
            add_sample(both[i], node, sample);
        } else if (kind == 3) {
            add_gpu(both[i], node, gpu_ns, queue_ns, gpu_ns % 2 == 0);
        }
    }
}

static void expect_merged_like(const cprof_snapshot *merged, cprof_registry *whole, const char *node)
{
    seen got = see(merged, node);
    seen expected = see_live(whole, node);
    CHECK(got.has_extra && same_sums(&got.resources, &expected.resources));
    CHECK(memcmp(got.gpu_counts, expected.gpu_counts, sizeof got.gpu_counts) == 0);
    CHECK(got.gpu_median_ms == expected.gpu_median_ms);
    const cprof_resources_memory *a[] = {&got.resources.device_memory, &got.resources.host_memory};
    const cprof_resources_memory *b[] = {&expected.resources.device_memory, &expected.resources.host_memory};
    for (int i = 0; i < 2; i++) {
        CHECK(a[i]->calls == b[i]->calls && a[i]->change == b[i]->change && a[i]->peak == b[i]->peak);
    }
}

TEST(merging_is_exact_in_any_order)
{
    static const char *const nodes[] = {"w", "x", "y", "z"};
    static const uint64_t times[PARTS] = {10, 30, 30, 20, 30};
    cprof_snapshot *parts[PARTS];
    cprof_registry *whole = registry_new(0);
    for (int i = 0; i < PARTS; i++) {
        cprof_registry *registry = registry_new(0);
        for (int k = 0; k < SAMPLES; k++) {
            add_random(registry, whole);
        }
        parts[i] = take(registry, times[i]);
    }
    cprof_snapshot *merged = merge_in_all_orders(parts, PARTS);
    for (int i = 0; i < 4; i++) {
        expect_merged_like(merged, whole, nodes[i]);
    }
}

/* A snapshot of one call, with one kind of memory or both. */
static cprof_snapshot *take_memory(cprof_resources_memory_sample device, cprof_resources_memory_sample host, uint64_t taken_ns)
{
    cprof_registry *registry = registry_new(0);
    finish(registry, "blur");
    add_sample(registry, "blur",
               (cprof_resources_sample){.asked = CPROF_RESOURCES_MEMORY, .device_memory = device, .host_memory = host});
    return take(registry, taken_ns);
}

static const cprof_resources_memory_sample unknown = {.known = false};

/* The last call with one kind of memory may be in another snapshot than the last with the other, and than the last call. */
TEST(memory_is_that_of_the_last_call)
{
    cprof_registry *registry = registry_new(0);
    finish(registry, "blur");
    cprof_snapshot *const parts[] = {
        take_memory((cprof_resources_memory_sample){true, 1, 2, -1}, (cprof_resources_memory_sample){true, 10, 20, 25}, 100),
        take_memory(unknown, (cprof_resources_memory_sample){true, 30, 40, 45}, 300),
        take_memory((cprof_resources_memory_sample){true, 5, 6, 7}, unknown, 200),
        take_memory(unknown, unknown, 400),
        take(registry, 500),
    };
    cprof_snapshot *merged = merge_in_all_orders(parts, COUNT_OF(parts));
    seen key = see(merged, "blur");
    const cprof_resources_memory device = {2, 5, 6, 2, 7};
    const cprof_resources_memory host = {2, 30, 40, 20, 45};
    CHECK(same_memory(&key.resources.device_memory, &device) && same_memory(&key.resources.host_memory, &host));
}

TEST(memory_of_equal_times)
{
    cprof_snapshot *const parts[] = {
        take_memory((cprof_resources_memory_sample){true, 1, 9, -1}, unknown, 100),
        take_memory((cprof_resources_memory_sample){true, 3, 9, -1}, unknown, 100),
        take_memory((cprof_resources_memory_sample){true, 7, 8, -1}, unknown, 100),
    };
    cprof_snapshot *merged = merge_in_all_orders(parts, COUNT_OF(parts));
    seen key = see(merged, "blur");
    CHECK(key.resources.device_memory.entry == 3 && key.resources.device_memory.exit == 9);
}

/* In 64 bits that stay at their end, the order would show: (MAX + MAX) - MAX. */
TEST(changes_of_memory_do_not_end_on_the_way)
{
    const cprof_resources_memory_sample more = {true, 0, INT64_MAX, -1};
    const cprof_resources_memory_sample less = {true, INT64_MAX, 0, -1};
    cprof_snapshot *const parts[] = {take_memory(more, less, 1), take_memory(more, less, 1), take_memory(less, less, 1)};
    cprof_snapshot *merged = merge_in_all_orders(parts, 3);
    seen key = see(merged, "blur");
    CHECK_EQUAL(key.resources.device_memory.change, INT64_MAX);
    CHECK_EQUAL(key.resources.host_memory.change, INT64_MIN);
    cprof_snapshot *two = merge_in_all_orders(parts, 2);
    key = see(two, "blur");
    CHECK_EQUAL(key.resources.device_memory.change, INT64_MAX);
    CHECK_EQUAL(key.resources.host_memory.change, INT64_MIN);
    static const change changes[] = {
        {AT_DEVICE + AT_CHANGE, UINT64_MAX, 8, "impossible bytes of memory"}, /* one byte more than two calls can take */
        {AT_HOST + AT_CHANGE, 1, 8, "impossible bytes of memory"},
    };
    byte_string bytes = encode(two);
    expect_reasons(&bytes, BEGIN + SOURCE_BYTES, changes, COUNT_OF(changes));
}

/* The golden snapshot with fields of its figures changed, as of another process. */
static cprof_snapshot *take_changed(uint8_t id, const change *changes, size_t count)
{
    byte_string bytes = golden_copy();
    bytes.data[HEADER_BYTES] = id;
    for (size_t i = 0; i < count; i++) {
        put(bytes.data + BEGIN + changes[i].at, changes[i].value, changes[i].width);
    }
    seal(bytes.data, bytes.size);
    cprof_snapshot *snapshot;
    char reason[CPROF_SNAPSHOT_FAULT_TEXT];
    if (decode(bytes.data, bytes.size, &snapshot, reason) != CPROF_OK) {
        (void)fprintf(stderr, "%s\n", reason);
        exit(EXIT_FAILURE);
    }
    return snapshot;
}

static void expect_out_of_range(const change *changes, size_t count)
{
    cprof_snapshot *large = take_changed(1, changes, count);
    cprof_snapshot *other = take_changed(2, NULL, 0);
    cprof_snapshot *alone = merge((const cprof_snapshot *const[]){large}, 1);
    (void)round_trip(alone);
    cprof_snapshot *merged = NULL;
    cprof_snapshot_clash clash;
    const cprof_snapshot *const one[] = {large, other};
    const cprof_snapshot *const two[] = {other, alone};
    CHECK(cprof_snapshot_merge(one, 2, &merged, &clash) == CPROF_OUT_OF_RANGE);
    CHECK(cprof_snapshot_merge(two, 2, &merged, &clash) == CPROF_OUT_OF_RANGE && merged == NULL);
}

TEST(counts_do_not_wrap)
{
    static const change gpu_times[] = {
        {AT_GPU_COUNT, TWO_63 - 1, 8, ""},
        {AT_GPU_LOST, TWO_63 - 3, 8, ""},
        {AT_GPU_MIN, 0, 8, ""},
    };
    expect_out_of_range(gpu_times, COUNT_OF(gpu_times));
    static const size_t counts[] = {AT_MISSED + 8,
                                    AT_MISSED + 8 * (CPROF_GPU_CAUSES - 1),
                                    AT_COUNTED,
                                    AT_ESTIMATED,
                                    AT_DEVICE + AT_CALLS,
                                    AT_HOST + AT_CALLS,
                                    AT_WAITS};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        const change most = {counts[i], TWO_63 - 1, 8, ""};
        expect_out_of_range(&most, 1);
    }
}

TEST(launches_stay_below_their_end)
{
    const change most = {AT_LAUNCHES + 8 * 4, TWO_63 - 6, 8, ""};
    cprof_snapshot *const parts[] = {take_changed(1, &most, 1), take_changed(2, NULL, 0), take_changed(3, NULL, 0)};
    cprof_snapshot *merged = merge_in_all_orders(parts, COUNT_OF(parts));
    seen key = see(merged, "blur");
    CHECK_EQUAL(key.resources.launched.bytes_to_device, INT64_MAX);
    CHECK_EQUAL(key.resources.launched.fills, 24);
}

/* Threads */

typedef struct {
    const cprof_snapshot *snapshot;
    const cprof_snapshot *other;
} shared;

/* Nobody writes to a snapshot, not even the same bytes. */
static void *read_shared(void *argument)
{
    const shared *all = argument;
    for (int i = 0; i < ROUNDS; i++) {
        (void)round_trip(all->snapshot);
        (void)merge_two(all->snapshot, all->other);
        CHECK_EQUAL(see(all->snapshot, "blur").resources.gpu_count, 2);
    }
    return NULL;
}

TEST(threads_that_read_one_snapshot)
{
    shared all = {take_changed(1, NULL, 0), take_changed(2, NULL, 0)};
    check_threads(THREADS, read_shared, &all, 0);
}

FAKE_ALLOC_MAIN(NULL, drop_all)
