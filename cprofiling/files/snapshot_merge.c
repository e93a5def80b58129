#include "cprofiling/files/snapshot_merge.h"

#include "cprofiling/base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORDS = CPROF_SNAPSHOT_KEY_WORDS,
    POINT = 17 * 64,  /* bits of a fixed-point sum behind the point (doubles use 1,074); before it are 192 */
    SAMPLE_BITS = 40, /* a fractional sample is below 2^40 ms, its square below 2^80 ms² */
};

/* Values of first_ms that are no durations. */
#define FIRST_NONE (-1.0)
#define FIRST_UNKNOWN (-2.0)

#define MAX_MS (0x1p63 / 1e6)
#define COUNT_LIMIT CPROF_SNAPSHOT_KEY_COUNT_LIMIT
#define LONGEST_NS ((uint64_t)INT64_MAX)
#define PEAK_UNKNOWN (-1)

/* The counts that figures have, as the CPROF_RESOURCES_ bits of those that are not 0; *any is all of them, combined by "or":
 * it tells whether each is below 2^63. */
static unsigned known_of(const cprof_resources_figures *f, uint64_t *any)
{
    uint64_t gpu = f->gpu_count;
    uint64_t launches = 0;
    uint64_t counters = f->estimated;
    uint64_t memory = f->device_memory.calls | f->host_memory.calls;
    for (int i = 0; i < CPROF_GPU_CAUSES; i++) {
        gpu |= f->missed[i];
    }
#define INCLUDE(name) launches |= f->launched.name;
    CPROF_LAUNCH_COUNTS(INCLUDE)
#undef INCLUDE
    for (int i = 0; i < CPROF_COUNTER_COUNT; i++) {
        counters |= f->counted[i];
    }
    *any = gpu | launches | counters | memory | f->waits;
    return (gpu != 0 ? CPROF_RESOURCES_GPU : 0u) | (launches != 0 ? CPROF_RESOURCES_LAUNCHES : 0u) |
           (counters != 0 ? CPROF_RESOURCES_COUNTERS : 0u) | (memory != 0 ? CPROF_RESOURCES_MEMORY : 0u) |
           (f->waits != 0 ? CPROF_RESOURCES_WAITS : 0u);
}

/* Takes the bytes at entry and exit that are later, or larger at equal times; without a call they are of the time 0. To be
 * called before the figures are merged. */
static void merge_memory(cprof_resources_memory *figures, cprof_snapshot_memory *memory, const cprof_resources_memory *more,
                         const cprof_snapshot_memory *part)
{
    if (more->calls == 0) {
        return;
    }
    bool is_later = part->taken_ns != memory->taken_ns ? part->taken_ns > memory->taken_ns
                    : more->exit != figures->exit      ? more->exit > figures->exit
                                                       : more->entry > figures->entry;
    if (is_later) {
        figures->entry = more->entry;
        figures->exit = more->exit;
        memory->taken_ns = part->taken_ns;
    }
    memory->change += part->change;
}

/* Adds the figures of another key, but for their buckets. False: a count would reach 2^63. */
static bool merge_resources(cprof_snapshot_resources *extra, const cprof_snapshot_resources *part)
{
    cprof_resources_figures *figures = &extra->figures;
    const cprof_resources_figures *more = &part->figures;
    uint64_t any;
    merge_memory(&figures->device_memory, &extra->device_memory, &more->device_memory, &part->device_memory);
    merge_memory(&figures->host_memory, &extra->host_memory, &more->host_memory, &part->host_memory);
    cprof_resources_merge(figures, more, false); /* each kind of memory has its own time */
    (void)known_of(figures, &any);
    return any < COUNT_LIMIT;
}

static int64_t within_64_bits(cprof_i128 sum)
{
    return sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
}

static bool memory_is_possible(const cprof_resources_memory *f, const cprof_snapshot_memory *memory, bool is_merged)
{
    if (f->entry < 0 || f->exit < 0 || f->peak < PEAK_UNKNOWN || memory->taken_ns >= COUNT_LIMIT) {
        return false;
    }
    if (f->calls == 0) {
        return f->entry == 0 && f->exit == 0 && f->peak == PEAK_UNKNOWN && memory->taken_ns == 0 && memory->change == 0;
    }
    if (f->calls == 1) {
        return memory->change == f->exit - f->entry;
    }
    cprof_i128 most = (cprof_i128)f->calls * INT64_MAX;
    bool fits = is_merged || memory->change == within_64_bits(memory->change); /* an accumulator's has 64 bits */
    return fits && memory->change <= most && memory->change >= -most;
}

const char *cprof_snapshot_resources_fault(const cprof_snapshot_resources *extra, bool is_merged)
{
    const cprof_resources_figures *f = &extra->figures;
    uint64_t any;
    unsigned known = known_of(f, &any);
    if (any >= COUNT_LIMIT) {
        return "a count of 2^63 or more";
    }
    if (f->asked == 0 || (f->asked & ~(unsigned)CPROF_RESOURCES_ALL) != 0 || (known & ~f->asked) != 0) {
        return "figures that were not asked for";
    }
    if (f->missed[CPROF_GPU_KNOWN] != 0) {
        return "GPU times that are known and missed";
    }
    if (f->gpu_lost > f->gpu_count || f->queue_count > f->gpu_count || f->multi_stream > f->gpu_count) {
        return "more samples in part than in all";
    }
    if (!cprof_buckets_sum_is_of(f->gpu_ns, f->gpu_count, f->gpu_min_ns, f->gpu_max_ns)) {
        return "an impossible GPU time";
    }
    const char *reason = cprof_buckets_fault(&extra->gpu_buckets, f->gpu_count - f->gpu_lost);
    if (reason != NULL) {
        return reason;
    }
    if (!cprof_buckets_are_of(&extra->gpu_buckets, f->gpu_min_ns, f->gpu_max_ns, f->gpu_lost)) {
        return "a histogram of other GPU times";
    }
    bool fits = f->queue_ns <= (cprof_u128)f->queue_count * LONGEST_NS && f->wait_ns <= (cprof_u128)f->waits * LONGEST_NS;
    for (int i = 0; i < CPROF_COUNTER_COUNT; i++) {
        fits = fits && f->counters[i] <= (cprof_u128)f->counted[i] * UINT64_MAX;
    }
    if (!fits) {
        return "an impossible sum";
    }
    bool is_possible = memory_is_possible(&f->device_memory, &extra->device_memory, is_merged) &&
                       memory_is_possible(&f->host_memory, &extra->host_memory, is_merged);
    return is_possible ? NULL : "impossible bytes of memory";
}

bool cprof_snapshot_shapes_begin(cprof_alloc_pool *pool, cprof_snapshot_shapes *builder, size_t count, size_t filled,
                                 size_t text)
{
    size_t head_bytes = sizeof(cprof_shapes_view) + count * sizeof(cprof_shape_copy);
    size_t bucket_bytes = filled * (sizeof(uint64_t) + sizeof(uint16_t));
    cprof_shapes_view *view = cprof_alloc_from(pool, head_bytes + bucket_bytes + text);
    if (view == NULL) {
        return false;
    }
    uint64_t *counts = (uint64_t *)((char *)view + head_bytes);
    *builder = (cprof_snapshot_shapes){
        .view = view,
        .items = (cprof_shape_copy *)(view + 1),
        .free = {counts, (uint16_t *)(counts + filled), 0},
        .text = (char *)counts + bucket_bytes,
    };
    view->items = builder->items;
    return true;
}

cprof_shape_copy *cprof_snapshot_shapes_add(cprof_snapshot_shapes *builder, cprof_name signature, size_t filled)
{
    cprof_shape_copy *item = &builder->items[builder->view->count++];
    memcpy(builder->text, signature.bytes, signature.length);
    item->signature = (cprof_name){builder->text, signature.length};
    item->buckets = (cprof_buckets){builder->free.counts, builder->free.indices, filled};
    builder->text += signature.length;
    builder->free.counts += filled;
    builder->free.indices += filled;
    return item;
}

static int by_signature(const void *left, const void *right)
{
    return cprof_name_compare((*(const cprof_shape_copy *const *)left)->signature,
                              (*(const cprof_shape_copy *const *)right)->signature);
}

/* Adds one item for the `count` that have its signature; false: a count would reach 2^63. */
static bool add_run(cprof_snapshot_shapes *builder, const cprof_shape_copy *const *run, size_t count, uint64_t *counts)
{
    cprof_shape_figures sum = {.least_ns = UINT64_MAX};
    cprof_histogram_dense dense = {counts, 0};
    bool fits = true;
    for (size_t i = 0; i < count; i++) {
        const cprof_shape_figures *part = &run[i]->figures;
        sum.count += part->count;
        sum.error_count += part->error_count;
        sum.cancelled_count += part->cancelled_count;
        sum.lost += part->lost;
        sum.least_ns = part->least_ns < sum.least_ns ? part->least_ns : sum.least_ns;
        sum.most_ns = part->most_ns > sum.most_ns ? part->most_ns : sum.most_ns;
        sum.total_ns += part->total_ns;
        fits = fits && (sum.count | sum.error_count | sum.cancelled_count) < COUNT_LIMIT;
        dense.rows |= cprof_buckets_rows(&run[i]->buckets);
        cprof_buckets_spread(&run[i]->buckets, counts);
    }
    cprof_shape_copy *item = cprof_snapshot_shapes_add(builder, run[0]->signature, cprof_buckets_count(dense));
    item->figures = sum;
    cprof_buckets_take(&item->buckets, dense);
    cprof_buckets_unspread(&item->buckets, counts);
    return fits;
}

/* Sets the figures by signature of a key to those of `count` keys, which may have none. `counts` is a dense histogram of zeros,
 * before and after. CPROF_OUT_OF_RANGE: a count would reach 2^63. CPROF_NO_MEMORY. */
static cprof_status merge_shapes(cprof_alloc_pool *pool, cprof_snapshot_key *sum, cprof_snapshot_key *const *parts,
                                 size_t count, uint64_t *counts)
{
    size_t total = 0, filled = 0, text = 0;
    for (size_t i = 0; i < count; i++) {
        const cprof_shapes_view *view = parts[i]->figures.shapes;
        for (size_t k = 0; view != NULL && k < view->count; k++, total++) {
            filled += view->items[k].buckets.filled;
            text += view->items[k].signature.length;
        }
    }
    if (total == 0) {
        return CPROF_OK;
    }
    cprof_snapshot_shapes builder;
    const cprof_shape_copy **items = cprof_snapshot_key_table(total, sizeof *items);
    if (items == NULL || !cprof_snapshot_shapes_begin(pool, &builder, total, filled, text)) {
        cprof_alloc_release(items);
        return CPROF_NO_MEMORY;
    }
    total = 0;
    for (size_t i = 0; i < count; i++) {
        const cprof_shapes_view *view = parts[i]->figures.shapes;
        for (size_t k = 0; view != NULL && k < view->count; k++) {
            items[total++] = &view->items[k];
        }
    }
    qsort(items, total, sizeof *items, by_signature);
    bool fits = true;
    size_t end;
    for (size_t begin = 0; begin < total; begin = end) {
        end = begin + 1;
        while (end < total && by_signature(&items[begin], &items[end]) == 0) {
            end++;
        }
        fits = add_run(&builder, items + begin, end - begin, counts) && fits;
    }
    cprof_alloc_release(items);
    sum->figures.shapes = builder.view;
    return fits ? CPROF_OK : CPROF_OUT_OF_RANGE;
}

static const char *item_fault(const cprof_shape_copy *item, const cprof_shape_copy *previous)
{
    const cprof_shape_figures *f = &item->figures;
    uint64_t any = f->count | f->error_count | f->cancelled_count;
    if (!cprof_name_is_legal(item->signature)) {
        return "a signature that is too long or no UTF-8";
    }
    if (previous != NULL && cprof_name_compare(previous->signature, item->signature) >= 0) {
        return "signatures that do not ascend";
    }
    if (any == 0 || any >= COUNT_LIMIT || f->lost > f->count) {
        return "an impossible count of a signature";
    }
    if (!cprof_buckets_sum_is_of(f->total_ns, f->count, f->least_ns, f->most_ns)) {
        return "an impossible time of a signature";
    }
    const char *reason = cprof_buckets_fault(&item->buckets, f->count - f->lost);
    if (reason == NULL && !cprof_buckets_are_of(&item->buckets, f->least_ns, f->most_ns, f->lost)) {
        reason = "a histogram of other times than the signature's";
    }
    return reason;
}

const char *cprof_snapshot_shapes_fault(const cprof_shapes_view *view, const cprof_figures *figures)
{
    cprof_u128 count = 0, errors = 0, cancelled = 0, total_ns = 0;
    for (size_t i = 0; i < view->count; i++) {
        const cprof_shape_figures *f = &view->items[i].figures;
        const char *reason = item_fault(&view->items[i], i > 0 ? &view->items[i - 1] : NULL);
        if (reason != NULL) {
            return reason;
        }
        count += f->count;
        errors += f->error_count;
        cancelled += f->cancelled_count;
        total_ns += f->total_ns;
    }
    bool fits = count <= figures->count && errors <= figures->error_count && cancelled <= figures->cancelled_count &&
                total_ns <= figures->moments.total_ns;
    return fits ? NULL : "more calls of signatures than of their node";
}

cprof_snapshot_key *cprof_snapshot_key_new(cprof_alloc_pool *pool, cprof_names names, const cprof_snapshot_room *room)
{
    size_t extra_bytes = room->has_extra ? sizeof(cprof_snapshot_resources) : 0;
    size_t sum_bytes = room->is_fractional ? sizeof(cprof_snapshot_sums) : 0;
    size_t filled = room->filled + room->gpu_filled;
    size_t bytes = sizeof(cprof_snapshot_key) + extra_bytes + sum_bytes + filled * (sizeof(uint64_t) + sizeof(uint16_t));
    cprof_snapshot_key *key = cprof_alloc_from(pool, bytes + names.stage.length + names.node.length);
    if (key == NULL) {
        return NULL;
    }
    char *tail = (char *)(key + 1) + extra_bytes;
    uint64_t *counts = (uint64_t *)(tail + sum_bytes);
    uint16_t *indices = (uint16_t *)(counts + filled);
    key->sums = room->is_fractional ? (cprof_snapshot_sums *)tail : NULL;
    key->buckets = (cprof_buckets){counts, indices, room->filled};
    if (room->has_extra) {
        key->extra = (cprof_snapshot_resources *)(key + 1); /* aligned as the key itself */
        key->extra->gpu_buckets = (cprof_buckets){counts + room->filled, indices + room->filled, room->gpu_filled};
    }
    char *stage = (char *)key + bytes;
    char *node = stage + names.stage.length;
    memcpy(stage, names.stage.bytes, names.stage.length);
    memcpy(node, names.node.bytes, names.node.length);
    key->names = (cprof_names){{stage, names.stage.length}, {node, names.node.length}};
    return key;
}

void cprof_snapshot_key_destroy(cprof_snapshot_key *key)
{
    if (key != NULL) {
        cprof_alloc_release((void *)key->figures.shapes);
        cprof_alloc_release(key);
    }
}

static void add_fixed(uint64_t *sum, const uint64_t *term)
{
    uint64_t carry = 0;
    for (int i = 0; i < WORDS; i++) {
        cprof_u128 word = (cprof_u128)sum[i] + term[i] + carry;
        sum[i] = (uint64_t)word;
        carry = (uint64_t)(word >> 64);
    }
}

/* Adds a double of less than 2^192, exactly; a negative one only to a larger sum. */
static void add_double(uint64_t *sum, double value)
{
    int exponent;
    uint64_t mantissa = (uint64_t)ldexp(frexp(fabs(value), &exponent), 53);
    int position = exponent - 53 + POINT; /* of the mantissa's last bit */
    if (position < 0) {                   /* then the double is subnormal, and ends in zeros */
        mantissa >>= -position;
        position = 0;
    }
    cprof_u128 bits = (cprof_u128)mantissa << (position % 64);
    uint64_t term[WORDS + 1] = {0}; /* the last stays 0 */
    term[position / 64] = (uint64_t)bits;
    term[position / 64 + 1] = (uint64_t)(bits >> 64);
    if (value < 0.0) {
        static const uint64_t one[WORDS] = {1};
        for (int i = 0; i < WORDS; i++) {
            term[i] = ~term[i];
        }
        add_fixed(term, one);
    }
    add_fixed(sum, term);
}

/* A half of a word, the half's number counted from the least significant, as a double. */
static double half_word(const uint64_t *sum, int half)
{
    return ldexp((double)(uint32_t)(sum[half / 2] >> (half % 2 * 32)), half * 32 - POINT);
}

/* The pairs that are nearest to the fixed-point sums. */
static void set_pairs(cprof_snapshot_key *key)
{
    cprof_moments *moments = &key->figures.moments;
    moments->total_ms = moments->squares_ms2 = (cprof_pair){0.0, 0.0};
    for (int half = 2 * WORDS - 1; key->sums != NULL && half >= 0; half--) {
        cprof_moments part = {
            .total_ms = {half_word(key->sums->total, half), 0.0},
            .squares_ms2 = {half_word(key->sums->squares, half), 0.0},
        };
        cprof_moments_merge(moments, &part);
    }
}

void cprof_snapshot_key_complete(cprof_snapshot_key *key)
{
    cprof_snapshot_resources *extra = key->extra;
    key->figures.rows = cprof_buckets_rows(&key->buckets);
    set_pairs(key);
    if (extra != NULL) {
        extra->figures.gpu_rows = cprof_buckets_rows(&extra->gpu_buckets);
        extra->figures.device_memory.change = within_64_bits(extra->device_memory.change);
        extra->figures.host_memory.change = within_64_bits(extra->host_memory.change);
    }
}

/* A key with the filled buckets of two histograms, and nothing else yet. NULL without memory. */
static cprof_snapshot_key *key_of_buckets(cprof_alloc_pool *pool, cprof_names names, cprof_snapshot_room room,
                                          cprof_histogram_dense times, cprof_histogram_dense gpu_times)
{
    room.filled = cprof_buckets_count(times);
    room.gpu_filled = cprof_buckets_count(gpu_times);
    cprof_snapshot_key *key = cprof_snapshot_key_new(pool, names, &room);
    if (key != NULL) {
        cprof_buckets_take(&key->buckets, times);
    }
    if (key != NULL && key->extra != NULL) {
        cprof_buckets_take(&key->extra->gpu_buckets, gpu_times);
    }
    return key;
}

static void set_resources(cprof_snapshot_resources *extra, const cprof_resources_figures *figures, uint64_t taken_ns)
{
    uint64_t any;
    cprof_resources_figures *f = &extra->figures;
    *f = *figures;
    f->missed[CPROF_GPU_KNOWN] = 0;
    f->asked |= known_of(f, &any);
    extra->device_memory = (cprof_snapshot_memory){f->device_memory.calls > 0 ? taken_ns : 0, f->device_memory.change};
    extra->host_memory = (cprof_snapshot_memory){f->host_memory.calls > 0 ? taken_ns : 0, f->host_memory.change};
}

cprof_snapshot_key *cprof_snapshot_key_of_figures(cprof_alloc_pool *pool, cprof_names names, const cprof_figures *figures,
                                                  const uint64_t *counts, uint64_t taken_ns)
{
    uint64_t any;
    const cprof_moments *moments = &figures->moments;
    const cprof_resources_copy *extra = figures->extra;
    bool has_extra = extra != NULL && (extra->figures.asked | known_of(&extra->figures, &any)) != 0;
    cprof_snapshot_room room = {
        .is_fractional = moments->total_ms.high != 0.0 || moments->squares_ms2.high != 0.0,
        .has_extra = has_extra,
    };
    cprof_histogram_dense gpu_times = {.rows = 0};
    if (has_extra) {
        gpu_times = (cprof_histogram_dense){extra->gpu_counts, extra->figures.gpu_rows};
    }
    cprof_snapshot_key *key = key_of_buckets(pool, names, room, (cprof_histogram_dense){counts, figures->rows}, gpu_times);
    if (key == NULL) {
        return NULL;
    }
    key->figures = *figures;
    key->figures.extra = NULL;
    key->figures.shapes = NULL;
    key->last_taken_ns = figures->count > 0 ? taken_ns : 0;
    if (figures->count == 0) {
        key->figures.min_ms = key->figures.max_ms = key->figures.last_ms = 0.0;
    }
    if (key->sums != NULL) {
        add_double(key->sums->total, moments->total_ms.high);
        add_double(key->sums->total, moments->total_ms.low);
        add_double(key->sums->squares, moments->squares_ms2.high);
        add_double(key->sums->squares, moments->squares_ms2.low);
    }
    if (has_extra) {
        set_resources(key->extra, &extra->figures, taken_ns);
    }
    cprof_snapshot_key_complete(key);
    if (figures->shapes != NULL && figures->shapes->count > 0) {
        cprof_snapshot_key borrowed = {.figures.shapes = figures->shapes};
        uint64_t *scratch = cprof_snapshot_key_table(CPROF_HISTOGRAM_BUCKETS, sizeof *scratch);
        if (scratch == NULL || merge_shapes(pool, key, (cprof_snapshot_key *[]){&borrowed}, 1, scratch) != CPROF_OK) {
            cprof_snapshot_key_destroy(pool == NULL ? key : NULL);
            key = NULL;
        }
        cprof_alloc_release(scratch);
    }
    return key;
}

/* To be called before the counts are added. */
static void merge_times(cprof_snapshot_key *sum, const cprof_snapshot_key *part)
{
    cprof_figures *figures = &sum->figures;
    const cprof_figures *more = &part->figures;
    if (more->first_ms != FIRST_NONE) {
        figures->first_ms = figures->first_ms == FIRST_NONE ? more->first_ms : FIRST_UNKNOWN;
    }
    if (more->count == 0) {
        return;
    }
    bool is_later =
        part->last_taken_ns != sum->last_taken_ns ? part->last_taken_ns > sum->last_taken_ns : more->last_ms > figures->last_ms;
    if (is_later) {
        figures->last_ms = more->last_ms;
        sum->last_taken_ns = part->last_taken_ns;
    }
    figures->min_ms = figures->count == 0 || more->min_ms < figures->min_ms ? more->min_ms : figures->min_ms;
    figures->max_ms = more->max_ms > figures->max_ms ? more->max_ms : figures->max_ms;
    if (figures->count + more->count <= CPROF_FIGURES_EXACT) {
        memcpy(figures->exact_ms + figures->count, more->exact_ms, (size_t)more->count * sizeof *more->exact_ms);
    }
}

/* False: a count would reach 2^63; each of both is below it. */
static bool merge_key(cprof_snapshot_key *sum, const cprof_snapshot_key *part)
{
    cprof_figures *figures = &sum->figures;
    const cprof_figures *more = &part->figures;
    merge_times(sum, part);
    sum->place = part->place < sum->place ? part->place : sum->place;
    cprof_moments_merge(&figures->moments, &more->moments);
    figures->nested_ns += more->nested_ns;
    figures->suspended_ns += more->suspended_ns;
    if (part->sums != NULL) {
        add_fixed(sum->sums->total, part->sums->total);
        add_fixed(sum->sums->squares, part->sums->squares);
    }
    figures->self_unknown += more->self_unknown;
    figures->active_unknown += more->active_unknown;
    figures->histogram_lost += more->histogram_lost;
    figures->count += more->count;
    cprof_figures_set_exact(figures);
    figures->error_count += more->error_count;
    figures->cancelled_count += more->cancelled_count;
    figures->skipped_count += more->skipped_count;
    figures->dropped_count += more->dropped_count;
    uint64_t any =
        figures->count | figures->error_count | figures->cancelled_count | figures->skipped_count | figures->dropped_count;
    bool fits = part->extra == NULL || merge_resources(sum->extra, part->extra);
    return any < COUNT_LIMIT && fits;
}

cprof_status cprof_snapshot_key_merge(cprof_snapshot_key *const *parts, size_t count, uint64_t *counts,
                                      cprof_snapshot_key **merged)
{
    cprof_snapshot_room room = {.has_extra = false};
    cprof_histogram_dense times = {counts, 0};
    uint64_t *gpu_counts = counts + CPROF_HISTOGRAM_BUCKETS;
    cprof_histogram_dense gpu_times = {gpu_counts, 0};
    for (size_t i = 0; i < count; i++) {
        const cprof_snapshot_key *part = parts[i];
        cprof_buckets_spread(&part->buckets, counts);
        times.rows |= part->figures.rows;
        room.is_fractional |= part->sums != NULL;
        if (part->extra != NULL) {
            cprof_buckets_spread(&part->extra->gpu_buckets, gpu_counts);
            gpu_times.rows |= part->extra->figures.gpu_rows;
            room.has_extra = true;
        }
    }
    cprof_snapshot_key *sum = key_of_buckets(NULL, parts[0]->names, room, times, gpu_times);
    for (size_t i = 0; i < count; i++) {
        cprof_buckets_unspread(&parts[i]->buckets, counts);
        if (parts[i]->extra != NULL) {
            cprof_buckets_unspread(&parts[i]->extra->gpu_buckets, gpu_counts);
        }
    }
    if (sum == NULL) {
        return CPROF_NO_MEMORY;
    }
    sum->figures.first_ms = FIRST_NONE;
    sum->place = UINT64_MAX;
    if (sum->extra != NULL) {
        cprof_resources_figures *figures = &sum->extra->figures;
        figures->gpu_min_ns = UINT64_MAX;
        figures->device_memory.peak = figures->host_memory.peak = PEAK_UNKNOWN;
    }
    bool fits = true;
    for (size_t i = 0; fits && i < count; i++) {
        fits = merge_key(sum, parts[i]);
    }
    cprof_status status = fits ? merge_shapes(NULL, sum, parts, count, counts) : CPROF_OUT_OF_RANGE;
    if (status != CPROF_OK) {
        cprof_snapshot_key_destroy(sum);
        return status;
    }
    cprof_snapshot_key_complete(sum);
    *merged = sum;
    return CPROF_OK;
}

/* Whether a sum is below count * 2^bits. What holds for two sums and their counts then holds for both together. */
static bool fixed_fits(const uint64_t *sum, unsigned bits, uint64_t count)
{
    unsigned first = (POINT + bits) / 64;
    unsigned shift = (POINT + bits) % 64;
    cprof_u128 rest = sum[first] >> shift | (cprof_u128)sum[first + 1] << (64 - shift);
    return rest < count && (first + 2 == WORDS || sum[WORDS - 1] == 0);
}

/* 0 or more, and no longer than 2^63 ns; neither NaN nor -0.0. */
static bool is_duration(double milliseconds)
{
    return !signbit(milliseconds) && milliseconds <= MAX_MS;
}

static bool is_within(double milliseconds, const cprof_figures *figures)
{
    return is_duration(milliseconds) && figures->min_ms <= milliseconds && milliseconds <= figures->max_ms;
}

static const char *counts_fault(const cprof_snapshot_key *key)
{
    const cprof_figures *f = &key->figures;
    uint64_t all =
        f->count | f->error_count | f->cancelled_count | f->skipped_count | f->dropped_count | key->place | key->last_taken_ns;
    if (all >= COUNT_LIMIT) {
        return "a count of 2^63 or more";
    }
    if (f->self_unknown > f->count || f->active_unknown > f->count || f->histogram_lost > f->count) {
        return "more samples in part than in all";
    }
    return f->count == 0 && key->last_taken_ns != 0 ? "the time of a sample that is not" : NULL;
}

/* Whether the median is that of the first samples, where these are all, or may be one of P². */
static bool median_is_possible(const cprof_figures *f, bool has_p2)
{
    cprof_figures expected = {.count = f->count};
    memcpy(expected.exact_ms, f->exact_ms, sizeof expected.exact_ms);
    cprof_figures_set_exact(&expected);
    /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): a zero has one encoding, not two */
    if (memcmp(expected.exact_ms, f->exact_ms, sizeof expected.exact_ms) != 0) {
        return false;
    }
    if (f->count <= CPROF_FIGURES_EXACT) {
        bool fits = f->count == 0 || (f->exact_ms[0] == f->min_ms && f->exact_ms[f->count - 1] == f->max_ms);
        for (uint64_t i = 0; i < f->count; i++) {
            fits = fits && is_within(f->exact_ms[i], f);
        }
        return fits && f->median_ms == expected.median_ms;
    }
    return f->median_ms == CPROF_FIGURES_NO_MEDIAN || (has_p2 && is_within(f->median_ms, f));
}

static const char *times_fault(const cprof_figures *f, bool is_merged, bool has_p2)
{
    if (!is_duration(f->min_ms) || !is_duration(f->max_ms) || !is_within(f->last_ms, f) ||
        (f->count == 0 && f->max_ms != 0.0)) {
        return "an impossible duration";
    }
    if (!median_is_possible(f, has_p2)) {
        return "an impossible median";
    }
    uint64_t successes = f->count + f->skipped_count;
    bool is_none = f->first_ms == FIRST_NONE && successes == 0;
    bool is_unknown = f->first_ms == FIRST_UNKNOWN && successes > 1 && is_merged;
    bool is_known = f->skipped_count == 0 ? f->count > 0 && is_within(f->first_ms, f) : is_duration(f->first_ms);
    return is_none || is_unknown || is_known ? NULL : "an impossible first duration";
}

/* No sum is larger than that of `count` samples can be; so sums of merged keys never overflow. */
static const char *sums_fault(const cprof_snapshot_key *key)
{
    const cprof_figures *f = &key->figures;
    const cprof_moments *m = &f->moments;
    cprof_u128 squares = (cprof_u128)m->squares_top << 2 | m->squares_ns2 >> 126;
    bool total_fits = m->total_ns == 0 || m->total_ns >> 63 < f->count;
    bool squares_fit = (m->squares_ns2 == 0 && m->squares_top == 0) || squares < f->count;
    bool parts_fit = f->nested_ns <= (f->self_unknown < f->count ? m->total_ns : 0) &&
                     f->suspended_ns <= (f->active_unknown < f->count ? m->total_ns : 0);
    if (!total_fits || !squares_fit || !parts_fit) {
        return "an impossible sum";
    }
    if (key->sums == NULL) {
        return NULL;
    }
    static const cprof_snapshot_sums zero;
    bool fits = fixed_fits(key->sums->total, SAMPLE_BITS, f->count) &&
                fixed_fits(key->sums->squares, 2 * SAMPLE_BITS, f->count) && memcmp(key->sums, &zero, sizeof zero) != 0;
    return fits ? NULL : "an impossible fractional sum";
}

/* Whether the histogram ends where the samples do, to a bucket, as milliseconds are rounded. */
static bool buckets_are_of_range(const cprof_snapshot_key *key)
{
    const cprof_buckets *buckets = &key->buckets;
    if (buckets->filled == 0) {
        return true;
    }
    unsigned lowest = cprof_histogram_index_ms(key->figures.min_ms);
    unsigned highest = cprof_histogram_index_ms(key->figures.max_ms);
    unsigned first = buckets->indices[0];
    unsigned last = buckets->indices[buckets->filled - 1];
    bool is_whole = key->figures.histogram_lost > 0 || (first <= lowest + 1 && last + 1 >= highest);
    return is_whole && first + 1 >= lowest && last <= highest + 1;
}

const char *cprof_snapshot_key_fault(cprof_snapshot_key *key, bool is_merged, bool has_p2)
{
    const cprof_figures *f = &key->figures;
    const char *reason = counts_fault(key);
    reason = reason == NULL ? times_fault(f, is_merged, has_p2) : reason;
    reason = reason == NULL ? sums_fault(key) : reason;
    reason = reason == NULL ? cprof_buckets_fault(&key->buckets, f->count - f->histogram_lost) : reason;
    if (reason != NULL) {
        return reason;
    }
    set_pairs(key);
    if (!cprof_moments_are_possible(&f->moments, f->count, f->min_ms, f->max_ms)) {
        return "sums that no such samples have";
    }
    return buckets_are_of_range(key) ? NULL : "a histogram of other samples";
}
