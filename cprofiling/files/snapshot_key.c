#include "cprofiling/files/snapshot_key.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/files/snapshot.h"
#include "cprofiling/files/snapshot_shapes.h"

#include <math.h>
#include <string.h>

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

static void place_extra(cprof_snapshot_key *key, cprof_buckets buckets)
{
    key->extra = (cprof_snapshot_resources *)(key + 1); /* aligned as the key itself */
    key->extra->gpu_buckets = buckets;
    cprof_snapshot_resources_clear(key->extra);
}

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
        place_extra(key, (cprof_buckets){counts + room->filled, indices + room->filled, room->gpu_filled});
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

/* The length of the character that begins `text`; 0 when it is no UTF-8 (surrogates are), or NUL. */
static size_t character_length(const uint8_t *text, size_t left)
{
    uint8_t lead = text[0];
    if (lead < 0x80) {
        return lead != 0;
    }
    size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || length > left) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (lead == 0xe0 && text[1] < 0xa0) || (lead == 0xf0 && text[1] < 0x90);
    bool too_large = lead == 0xf4 && text[1] > 0x8f;
    return overlong || too_large ? 0 : length;
}

bool cprof_snapshot_key_name_is_legal(cprof_name name)
{
    bool is_legal = name.length <= CPROF_SNAPSHOT_NAME_LIMIT;
    for (size_t at = 0; is_legal && at < name.length;) {
        size_t length = character_length((const uint8_t *)name.bytes + at, name.length - at);
        is_legal = length != 0;
        at += length;
    }
    return is_legal;
}

int cprof_snapshot_key_compare_name(cprof_name a, cprof_name b)
{
    int order = memcmp(a.bytes, b.bytes, a.length < b.length ? a.length : b.length);
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

int cprof_snapshot_key_compare_names(cprof_names a, cprof_names b)
{
    int order = cprof_snapshot_key_compare_name(a.stage, b.stage);
    return order != 0 ? order : cprof_snapshot_key_compare_name(a.node, b.node);
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

static void negate_fixed(uint64_t *term)
{
    static const uint64_t one[WORDS] = {1};
    for (int i = 0; i < WORDS; i++) {
        term[i] = ~term[i];
    }
    add_fixed(term, one);
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
        negate_fixed(term);
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
    cprof_snapshot_dense times;
    cprof_snapshot_dense gpu_times;
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
    if (key->extra != NULL) {
        cprof_snapshot_resources_set(key->extra, &figures->extra->figures, taken_ns);
    }
}

static bool set_shapes(cprof_snapshot_key *key, const cprof_shapes_view *shapes)
{
    if (shapes == NULL || shapes->count == 0) {
        return true;
    }
    key->shapes = cprof_snapshot_shapes_of(shapes);
    return key->shapes != NULL;
}

static cprof_snapshot_key *destroyed(cprof_snapshot_key *key)
{
    cprof_snapshot_key_destroy(key);
    return NULL;
}

cprof_snapshot_key *cprof_snapshot_key_of_figures(cprof_names names, const cprof_figures *figures, const uint64_t *counts,
                                                  uint64_t taken_ns)
{
    const cprof_moments *moments = &figures->moments;
    contents all = {
        .is_fractional = moments->total_ms.high != 0.0 || moments->squares_ms2.high != 0.0,
        .has_extra = figures->extra != NULL && cprof_snapshot_resources_is_worth(&figures->extra->figures),
        .times = {counts, figures->rows},
    };
    if (all.has_extra) {
        all.gpu_times = (cprof_snapshot_dense){figures->extra->gpu_counts, figures->extra->figures.gpu_rows};
    }
    cprof_snapshot_key *key = key_of_contents(names, &all);
    if (key != NULL) {
        set_figures(key, figures, taken_ns);
        cprof_snapshot_key_complete(key);
    }
    return key != NULL && set_shapes(key, figures->shapes) ? key : destroyed(key);
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
    bool fits = part->extra == NULL || cprof_snapshot_resources_merge(sum->extra, part->extra);
    return add_counts(&sum->figures, &part->figures) && fits;
}

static void unspread(cprof_snapshot_key *const *parts, size_t count, uint64_t *counts, uint64_t *gpu_counts)
{
    for (size_t i = 0; i < count; i++) {
        cprof_buckets_unspread(&parts[i]->buckets, counts);
        if (parts[i]->extra != NULL) {
            cprof_buckets_unspread(&parts[i]->extra->gpu_buckets, gpu_counts);
        }
    }
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
    unspread(parts, count, counts, gpu_counts);
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
    cprof_status status = any ? cprof_snapshot_shapes_merge(tables, count, counts, &sum->shapes) : CPROF_OK;
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
