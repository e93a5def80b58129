#include "cprofiling/files/snapshot_merge.h"

#include "cprofiling/base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NS ((uint64_t)INT64_MAX)
#define PEAK_UNKNOWN (-1)

static void clear_resources(cprof_snapshot_resources *extra)
{
    extra->figures = (cprof_resources_figures){.gpu_min_ns = UINT64_MAX};
    extra->figures.device_memory.peak = extra->figures.host_memory.peak = PEAK_UNKNOWN;
    extra->device_memory = extra->host_memory = (cprof_snapshot_memory){.taken_ns = 0};
}

static uint64_t any_launch(const cprof_launch_counts *launched)
{
    uint64_t any = 0;
#define INCLUDE(name) any |= launched->name;
    CPROF_LAUNCH_COUNTS(INCLUDE)
#undef INCLUDE
    return any;
}

static uint64_t any_miss(const cprof_resources_figures *f)
{
    uint64_t any = 0;
    for (int i = 0; i < CPROF_GPU_CAUSES; i++) {
        any |= f->missed[i];
    }
    return any;
}

static uint64_t any_counter(const cprof_resources_figures *f)
{
    uint64_t any = f->estimated;
    for (int i = 0; i < CPROF_COUNTER_COUNT; i++) {
        any |= f->counted[i];
    }
    return any;
}

/* What there are figures of: CPROF_RESOURCES_ bits. */
static unsigned known_of(const cprof_resources_figures *f)
{
    unsigned known = 0;
    known |= f->gpu_count != 0 || any_miss(f) != 0 ? CPROF_RESOURCES_GPU : 0;
    known |= any_launch(&f->launched) != 0 ? CPROF_RESOURCES_LAUNCHES : 0;
    known |= any_counter(f) != 0 ? CPROF_RESOURCES_COUNTERS : 0;
    known |= f->device_memory.calls != 0 || f->host_memory.calls != 0 ? CPROF_RESOURCES_MEMORY : 0;
    return known | (f->waits != 0 ? CPROF_RESOURCES_WAITS : 0);
}

/* Whether all counts are below 2^63, apart from the parts of gpu_count. */
static bool resource_counts_fit(const cprof_resources_figures *f)
{
    uint64_t any = f->gpu_count | any_miss(f) | any_launch(&f->launched) | any_counter(f) | f->device_memory.calls |
                   f->host_memory.calls | f->waits;
    return any < CPROF_SNAPSHOT_KEY_COUNT_LIMIT;
}

static void set_memory(cprof_resources_memory *figures, cprof_snapshot_memory *memory, uint64_t taken_ns)
{
    if (figures->calls == 0) {
        *figures = (cprof_resources_memory){.peak = PEAK_UNKNOWN};
        return;
    }
    memory->taken_ns = taken_ns;
    memory->change = figures->change;
}

void cprof_snapshot_resources_set(cprof_snapshot_resources *extra, const cprof_resources_figures *figures, uint64_t taken_ns)
{
    clear_resources(extra);
    extra->figures = *figures;
    extra->figures.missed[CPROF_GPU_KNOWN] = 0;
    extra->figures.asked |= known_of(&extra->figures);
    set_memory(&extra->figures.device_memory, &extra->device_memory, taken_ns);
    set_memory(&extra->figures.host_memory, &extra->host_memory, taken_ns);
}

/* Of equal times, the larger bytes. */
static bool memory_is_later(const cprof_resources_memory *figures, uint64_t taken_ns, const cprof_resources_memory *other,
                            uint64_t other_ns)
{
    if (taken_ns != other_ns) {
        return taken_ns > other_ns;
    }
    return figures->exit != other->exit ? figures->exit > other->exit : figures->entry > other->entry;
}

/* To be called before the figures are merged: sets the bytes at entry and exit to the later ones. Without a call they are of
 * the time 0. */
static void merge_memory(cprof_resources_memory *figures, cprof_snapshot_memory *memory,
                         const cprof_resources_memory *part_figures, const cprof_snapshot_memory *part)
{
    if (part_figures->calls == 0) {
        return;
    }
    if (memory_is_later(part_figures, part->taken_ns, figures, memory->taken_ns)) {
        figures->entry = part_figures->entry;
        figures->exit = part_figures->exit;
        memory->taken_ns = part->taken_ns;
    }
    memory->change += part->change;
}

/* Adds what another key knew, but for its buckets. False when a count would reach 2^63. */
static bool merge_resources(cprof_snapshot_resources *extra, const cprof_snapshot_resources *part)
{
    cprof_resources_figures *figures = &extra->figures;
    const cprof_resources_figures *more = &part->figures;
    merge_memory(&figures->device_memory, &extra->device_memory, &more->device_memory, &part->device_memory);
    merge_memory(&figures->host_memory, &extra->host_memory, &more->host_memory, &part->host_memory);
    cprof_resources_merge(figures, more, false); /* the two kinds may be of different times */
    return resource_counts_fit(figures);
}

static int64_t within_64_bits(cprof_i128 sum)
{
    return sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : (int64_t)sum;
}

void cprof_snapshot_resources_complete(cprof_snapshot_resources *extra)
{
    extra->figures.gpu_rows = cprof_buckets_rows(&extra->gpu_buckets);
    extra->figures.device_memory.change = within_64_bits(extra->device_memory.change);
    extra->figures.host_memory.change = within_64_bits(extra->host_memory.change);
}

static const char *resource_counts_fault(const cprof_resources_figures *f)
{
    if (!resource_counts_fit(f)) {
        return "a count of 2^63 or more";
    }
    if (f->asked == 0 || (f->asked & ~(unsigned)CPROF_RESOURCES_ALL) != 0 || (known_of(f) & ~f->asked) != 0) {
        return "figures that were not asked for";
    }
    if (f->missed[CPROF_GPU_KNOWN] != 0) {
        return "GPU times that are known and missed";
    }
    bool is_part = f->gpu_lost <= f->gpu_count && f->queue_count <= f->gpu_count && f->multi_stream <= f->gpu_count;
    return is_part ? NULL : "more samples in part than in all";
}

static const char *gpu_fault(const cprof_snapshot_resources *extra)
{
    const cprof_resources_figures *f = &extra->figures;
    if (!cprof_buckets_sum_is_of(f->gpu_ns, f->gpu_count, f->gpu_min_ns, f->gpu_max_ns)) {
        return "an impossible GPU time";
    }
    const char *reason = cprof_buckets_fault(&extra->gpu_buckets, f->gpu_count - f->gpu_lost);
    if (reason == NULL && !cprof_buckets_are_of(&extra->gpu_buckets, f->gpu_min_ns, f->gpu_max_ns, f->gpu_lost)) {
        reason = "a histogram of other GPU times";
    }
    return reason;
}

static const char *resource_sums_fault(const cprof_resources_figures *f)
{
    bool fits = f->queue_ns <= (cprof_u128)f->queue_count * LONGEST_NS && f->wait_ns <= (cprof_u128)f->waits * LONGEST_NS;
    for (int i = 0; i < CPROF_COUNTER_COUNT; i++) {
        fits = fits && f->counters[i] <= (cprof_u128)f->counted[i] * UINT64_MAX;
    }
    return fits ? NULL : "an impossible sum";
}

static bool memory_is_possible(const cprof_resources_memory *f, const cprof_snapshot_memory *memory, bool is_merged)
{
    if (f->entry < 0 || f->exit < 0 || f->peak < PEAK_UNKNOWN || memory->taken_ns >= CPROF_SNAPSHOT_KEY_COUNT_LIMIT) {
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
    const char *reason = resource_counts_fault(f);
    reason = reason == NULL ? gpu_fault(extra) : reason;
    reason = reason == NULL ? resource_sums_fault(f) : reason;
    if (reason == NULL && (!memory_is_possible(&f->device_memory, &extra->device_memory, is_merged) ||
                           !memory_is_possible(&f->host_memory, &extra->host_memory, is_merged))) {
        reason = "impossible bytes of memory";
    }
    return reason;
}

bool cprof_snapshot_shapes_begin(cprof_snapshot_shapes_builder *builder, const cprof_snapshot_shapes_room *room)
{
    size_t item_bytes = sizeof(cprof_snapshot_shapes) + room->count * sizeof(cprof_shape_copy);
    size_t bucket_bytes = room->filled * (sizeof(uint64_t) + sizeof(uint16_t));
    cprof_snapshot_shapes *table = cprof_alloc_zeroed(item_bytes + bucket_bytes + room->text);
    if (table == NULL) {
        return false;
    }
    table->view.items = table->items;
    uint64_t *counts = (uint64_t *)((char *)table + item_bytes);
    *builder = (cprof_snapshot_shapes_builder){
        .table = table,
        .free = {counts, (uint16_t *)(counts + room->filled), 0},
        .text = (char *)counts + bucket_bytes,
    };
    return true;
}

cprof_shape_copy *cprof_snapshot_shapes_begin_item(cprof_snapshot_shapes_builder *builder, cprof_name signature)
{
    cprof_shape_copy *item = &builder->table->items[builder->table->view.count++];
    memcpy(builder->text, signature.bytes, signature.length);
    item->signature = (cprof_name){builder->text, signature.length};
    item->buckets = builder->free;
    builder->text += signature.length;
    return item;
}

void cprof_snapshot_shapes_finish_item(cprof_snapshot_shapes_builder *builder, const cprof_shape_copy *item)
{
    builder->free.counts += item->buckets.filled;
    builder->free.indices += item->buckets.filled;
}

static int by_signature(const void *left, const void *right)
{
    return cprof_name_compare((*(const cprof_shape_copy *const *)left)->signature,
                              (*(const cprof_shape_copy *const *)right)->signature);
}

/* Adds the figures of another; false when a count would reach 2^63. */
static bool add_shape_figures(cprof_shape_figures *sum, const cprof_shape_figures *part)
{
    sum->count += part->count;
    sum->error_count += part->error_count;
    sum->cancelled_count += part->cancelled_count;
    sum->lost += part->lost;
    sum->least_ns = part->least_ns < sum->least_ns ? part->least_ns : sum->least_ns;
    sum->most_ns = part->most_ns > sum->most_ns ? part->most_ns : sum->most_ns;
    sum->total_ns += part->total_ns;
    return (sum->count | sum->error_count | sum->cancelled_count) < CPROF_SNAPSHOT_KEY_COUNT_LIMIT;
}

/* Adds one item for all of the `count` that have its signature. */
static bool add_run(cprof_snapshot_shapes_builder *builder, const cprof_shape_copy *const *run, size_t count, uint64_t *counts)
{
    cprof_shape_copy *item = cprof_snapshot_shapes_begin_item(builder, run[0]->signature);
    item->figures = (cprof_shape_figures){.least_ns = UINT64_MAX};
    bool fits = true;
    uint64_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        fits = add_shape_figures(&item->figures, &run[i]->figures) && fits;
        rows |= cprof_buckets_rows(&run[i]->buckets);
        cprof_buckets_spread(&run[i]->buckets, counts);
    }
    cprof_histogram_dense dense = {counts, rows};
    item->buckets.filled = cprof_buckets_count(dense);
    cprof_buckets_take(&item->buckets, dense);
    cprof_buckets_unspread(&item->buckets, counts);
    cprof_snapshot_shapes_finish_item(builder, item);
    return fits;
}

/* Makes a table of all items, those of one signature together. They are sorted in their table. */
static cprof_status build(const cprof_shape_copy **items, size_t count, uint64_t *counts, cprof_snapshot_shapes **table)
{
    cprof_snapshot_shapes_room room = {.count = count};
    for (size_t i = 0; i < count; i++) {
        room.filled += items[i]->buckets.filled;
        room.text += items[i]->signature.length;
    }
    cprof_snapshot_shapes_builder builder;
    if (!cprof_snapshot_shapes_begin(&builder, &room)) {
        return CPROF_NO_MEMORY;
    }
    qsort(items, count, sizeof *items, by_signature);
    bool fits = true;
    size_t end;
    for (size_t at = 0; at < count; at = end) {
        end = at + 1;
        while (end < count && by_signature(&items[at], &items[end]) == 0) {
            end++;
        }
        fits = add_run(&builder, items + at, end - at, counts) && fits;
    }
    if (!fits) {
        cprof_alloc_release(builder.table);
        return CPROF_OUT_OF_RANGE;
    }
    *table = builder.table;
    return CPROF_OK;
}

/* Makes *merged of those of `count` keys; some, not all, may be NULL. `counts` is a dense histogram of zeros,
 * before and after. CPROF_OUT_OF_RANGE: a count would reach 2^63. CPROF_NO_MEMORY. */
static cprof_status merge_shape_tables(const cprof_snapshot_shapes *const *parts, size_t count, uint64_t *counts,
                                       cprof_snapshot_shapes **merged)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += parts[i] != NULL ? parts[i]->view.count : 0;
    }
    const cprof_shape_copy **items = cprof_snapshot_key_table(total, sizeof *items);
    if (items == NULL) {
        return CPROF_NO_MEMORY;
    }
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; parts[i] != NULL && k < parts[i]->view.count; k++) {
            items[at++] = &parts[i]->items[k];
        }
    }
    cprof_status status = build(items, total, counts, merged);
    cprof_alloc_release(items);
    return status;
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
    if (any == 0 || any >= CPROF_SNAPSHOT_KEY_COUNT_LIMIT || f->lost > f->count) {
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

/* A key has all the calls that its signatures have. */
static const char *sum_fault(const cprof_snapshot_shapes *table, const cprof_figures *figures)
{
    cprof_u128 count = 0, errors = 0, cancelled = 0, total_ns = 0;
    for (size_t i = 0; i < table->view.count; i++) {
        const cprof_shape_figures *f = &table->items[i].figures;
        count += f->count;
        errors += f->error_count;
        cancelled += f->cancelled_count;
        total_ns += f->total_ns;
    }
    bool fits = count <= figures->count && errors <= figures->error_count && cancelled <= figures->cancelled_count &&
                total_ns <= figures->moments.total_ns;
    return fits ? NULL : "more calls of signatures than of their node";
}

const char *cprof_snapshot_shapes_fault(const cprof_snapshot_shapes *table, const cprof_figures *figures)
{
    const char *reason = NULL;
    for (size_t i = 0; reason == NULL && i < table->view.count; i++) {
        reason = item_fault(&table->items[i], i > 0 ? &table->items[i - 1] : NULL);
    }
    return reason == NULL ? sum_fault(table, figures) : reason;
}

enum {
    WORDS = CPROF_SNAPSHOT_KEY_WORDS,
    POINT = 17 * 64,  /* bits of a fixed-point sum behind the point, of which doubles use 1,074; before it are 192 */
    SAMPLE_BITS = 40, /* a fractional sample is below 2^40 ms, its square below 2^80 ms² */
};

/* Values of first_ms that are no durations. */
#define FIRST_NONE (-1.0)
#define FIRST_UNKNOWN (-2.0)

#define MEDIAN_UNKNOWN CPROF_SNAPSHOT_KEY_MEDIAN_UNKNOWN
#define MAX_MS (0x1p63 / 1e6)
#define COUNT_LIMIT CPROF_SNAPSHOT_KEY_COUNT_LIMIT

cprof_snapshot_key *cprof_snapshot_key_new(cprof_names names, const cprof_snapshot_room *room)
{
    size_t extra_bytes = room->has_extra ? sizeof(cprof_snapshot_resources) : 0;
    size_t sum_bytes = room->is_fractional ? sizeof(cprof_snapshot_sums) : 0;
    size_t filled = room->filled + room->gpu_filled;
    size_t bytes = sizeof(cprof_snapshot_key) + extra_bytes + sum_bytes + filled * (sizeof(uint64_t) + sizeof(uint16_t));
    cprof_snapshot_key *key = cprof_alloc_zeroed(bytes + names.stage.length + names.node.length);
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
        clear_resources(key->extra);
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
        cprof_alloc_release(key->shapes);
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

/* Adds a double of less than 2^190, exactly; a negative one only to a larger sum. */
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
    uint64_t term[WORDS] = {0};
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
    key->figures.rows = cprof_buckets_rows(&key->buckets);
    set_pairs(key);
    if (key->extra != NULL) {
        cprof_snapshot_resources_complete(key->extra);
    }
}

/* What a key is made of: the sums that it has, and its histograms. */
typedef struct {
    bool is_fractional;
    bool has_extra;
    cprof_histogram_dense times;
    cprof_histogram_dense gpu_times;
} contents;

/* A key with the filled buckets. */
static cprof_snapshot_key *key_of_contents(cprof_names names, const contents *all)
{
    cprof_snapshot_room room = {
        .filled = cprof_buckets_count(all->times),
        .gpu_filled = cprof_buckets_count(all->gpu_times),
        .is_fractional = all->is_fractional,
        .has_extra = all->has_extra,
    };
    cprof_snapshot_key *key = cprof_snapshot_key_new(names, &room);
    if (key == NULL) {
        return NULL;
    }
    cprof_buckets_take(&key->buckets, all->times);
    if (key->extra != NULL) {
        cprof_buckets_take(&key->extra->gpu_buckets, all->gpu_times);
    }
    return key;
}

static void set_figures(cprof_snapshot_key *key, const cprof_figures *figures, uint64_t taken_ns)
{
    key->figures = *figures;
    key->figures.extra = NULL;
    key->figures.shapes = NULL;
    if (figures->count > 0) {
        key->last_taken_ns = taken_ns;
    } else {
        key->figures.min_ms = key->figures.max_ms = key->figures.last_ms = key->figures.median_ms = 0.0;
    }
    if (key->sums != NULL) {
        const cprof_moments *moments = &figures->moments;
        add_double(key->sums->total, moments->total_ms.high);
        add_double(key->sums->total, moments->total_ms.low);
        add_double(key->sums->squares, moments->squares_ms2.high);
        add_double(key->sums->squares, moments->squares_ms2.low);
    }
    if (key->extra != NULL && figures->extra != NULL) {
        cprof_snapshot_resources_set(key->extra, &figures->extra->figures, taken_ns);
    }
}

static bool set_shapes(cprof_snapshot_key *key, const cprof_shapes_view *shapes)
{
    if (shapes == NULL || shapes->count == 0) {
        return true;
    }
    /* A copy of a key's. NULL without memory. */
    uint64_t *counts = cprof_snapshot_key_table(CPROF_HISTOGRAM_BUCKETS, sizeof *counts);
    const cprof_shape_copy **items = cprof_snapshot_key_table(shapes->count, sizeof *items);
    cprof_snapshot_shapes *table = NULL;
    if (counts != NULL && items != NULL) {
        for (size_t i = 0; i < shapes->count; i++) {
            items[i] = &shapes->items[i];
        }
        (void)build(items, shapes->count, counts, &table); /* one part alone has no count that could grow */
    }
    cprof_alloc_release(items);
    cprof_alloc_release(counts);
    key->shapes = table;
    return key->shapes != NULL;
}

cprof_snapshot_key *cprof_snapshot_key_of_figures(cprof_names names, const cprof_figures *figures, const uint64_t *counts,
                                                  uint64_t taken_ns)
{
    const cprof_moments *moments = &figures->moments;
    contents all = {
        .is_fractional = moments->total_ms.high != 0.0 || moments->squares_ms2.high != 0.0,
        .has_extra = figures->extra != NULL && (figures->extra->figures.asked | known_of(&figures->extra->figures)) != 0,
        .times = {counts, figures->rows},
    };
    if (all.has_extra) {
        all.gpu_times = (cprof_histogram_dense){figures->extra->gpu_counts, figures->extra->figures.gpu_rows};
    }
    cprof_snapshot_key *key = key_of_contents(names, &all);
    if (key == NULL) {
        return NULL;
    }
    set_figures(key, figures, taken_ns);
    cprof_snapshot_key_complete(key);
    if (!set_shapes(key, figures->shapes)) {
        cprof_snapshot_key_destroy(key);
        return NULL;
    }
    return key;
}

/* Both are below 2^63; false when the sum is not. */
static bool add_count(uint64_t *sum, uint64_t count)
{
    *sum += count;
    return *sum < COUNT_LIMIT;
}

static bool add_counts(cprof_figures *sum, const cprof_figures *part)
{
    sum->self_unknown += part->self_unknown;
    sum->active_unknown += part->active_unknown;
    sum->histogram_lost += part->histogram_lost;
    return add_count(&sum->count, part->count) && add_count(&sum->error_count, part->error_count) &&
           add_count(&sum->cancelled_count, part->cancelled_count) && add_count(&sum->skipped_count, part->skipped_count) &&
           add_count(&sum->dropped_count, part->dropped_count);
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
    figures->median_ms = MEDIAN_UNKNOWN;
}

static bool merge_key(cprof_snapshot_key *sum, const cprof_snapshot_key *part)
{
    merge_times(sum, part);
    sum->place = part->place < sum->place ? part->place : sum->place;
    cprof_moments_merge(&sum->figures.moments, &part->figures.moments);
    sum->figures.nested_ns += part->figures.nested_ns;
    sum->figures.suspended_ns += part->figures.suspended_ns;
    if (part->sums != NULL) {
        add_fixed(sum->sums->total, part->sums->total);
        add_fixed(sum->sums->squares, part->sums->squares);
    }
    bool fits = part->extra == NULL || merge_resources(sum->extra, part->extra);
    return add_counts(&sum->figures, &part->figures) && fits;
}

/* A key with the filled buckets of all parts, and nothing else yet. `counts`: zeros, before and after. */
static cprof_snapshot_key *key_of_buckets(cprof_snapshot_key *const *parts, size_t count, uint64_t *counts)
{
    uint64_t *gpu_counts = counts + CPROF_HISTOGRAM_BUCKETS;
    contents all = {.times.counts = counts, .gpu_times.counts = gpu_counts};
    for (size_t i = 0; i < count; i++) {
        const cprof_snapshot_key *part = parts[i];
        cprof_buckets_spread(&part->buckets, counts);
        all.times.rows |= part->figures.rows;
        all.is_fractional |= part->sums != NULL;
        if (part->extra != NULL) {
            cprof_buckets_spread(&part->extra->gpu_buckets, gpu_counts);
            all.gpu_times.rows |= part->extra->figures.gpu_rows;
            all.has_extra = true;
        }
    }
    cprof_snapshot_key *key = key_of_contents(parts[0]->names, &all);
    for (size_t i = 0; i < count; i++) {
        cprof_buckets_unspread(&parts[i]->buckets, counts);
        if (parts[i]->extra != NULL) {
            cprof_buckets_unspread(&parts[i]->extra->gpu_buckets, gpu_counts);
        }
    }
    return key;
}

static cprof_status merge_shapes(cprof_snapshot_key *sum, cprof_snapshot_key *const *parts, size_t count, uint64_t *counts)
{
    const cprof_snapshot_shapes **tables = cprof_snapshot_key_table(count, sizeof *tables);
    if (tables == NULL) {
        return CPROF_NO_MEMORY;
    }
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        tables[i] = parts[i]->shapes;
        any = any || tables[i] != NULL;
    }
    cprof_status status = any ? merge_shape_tables(tables, count, counts, &sum->shapes) : CPROF_OK;
    cprof_alloc_release(tables);
    return status;
}

cprof_status cprof_snapshot_key_merge(cprof_snapshot_key *const *parts, size_t count, uint64_t *counts,
                                      cprof_snapshot_key **merged)
{
    cprof_snapshot_key *sum = key_of_buckets(parts, count, counts);
    if (sum == NULL) {
        return CPROF_NO_MEMORY;
    }
    sum->figures.first_ms = FIRST_NONE;
    sum->place = UINT64_MAX;
    bool fits = true;
    for (size_t i = 0; fits && i < count; i++) {
        fits = merge_key(sum, parts[i]);
    }
    cprof_status status = fits ? merge_shapes(sum, parts, count, counts) : CPROF_OUT_OF_RANGE;
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

static bool is_zero(const uint64_t *sum)
{
    static const uint64_t zero[WORDS] = {0};
    return memcmp(sum, zero, sizeof zero) == 0;
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

static const char *times_fault(const cprof_figures *f, bool is_merged)
{
    if (!is_duration(f->min_ms) || !is_duration(f->max_ms) || !is_within(f->last_ms, f) ||
        (f->count == 0 && f->max_ms != 0.0)) {
        return "an impossible duration";
    }
    if (is_merged && f->count > 0 ? f->median_ms != MEDIAN_UNKNOWN : !is_within(f->median_ms, f)) {
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
    bool fits =
        fixed_fits(key->sums->total, SAMPLE_BITS, f->count) && fixed_fits(key->sums->squares, 2 * SAMPLE_BITS, f->count);
    return !fits || (is_zero(key->sums->total) && is_zero(key->sums->squares)) ? "an impossible fractional sum" : NULL;
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

/* Of a key that has no fault otherwise. */
static const char *samples_fault(cprof_snapshot_key *key)
{
    const cprof_figures *f = &key->figures;
    set_pairs(key);
    if (!cprof_moments_are_possible(&f->moments, f->count, f->min_ms, f->max_ms)) {
        return "sums that no such samples have";
    }
    return buckets_are_of_range(key) ? NULL : "a histogram of other samples";
}

const char *cprof_snapshot_key_fault(cprof_snapshot_key *key, bool is_merged)
{
    const char *reason = counts_fault(key);
    reason = reason == NULL ? times_fault(&key->figures, is_merged) : reason;
    reason = reason == NULL ? sums_fault(key) : reason;
    uint64_t in_histogram = key->figures.count - key->figures.histogram_lost;
    reason = reason == NULL ? cprof_buckets_fault(&key->buckets, in_histogram) : reason;
    return reason == NULL ? samples_fault(key) : reason;
}
