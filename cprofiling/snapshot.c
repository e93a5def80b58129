#include "cprofiling/snapshot.h"

#include "cprofiling/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORDS = 20,       /* of a fixed-point sum: 192 bits before the point, */
    POINT = 17 * 64,  /* and 1,088 behind it, of which doubles use 1,074 */
    SAMPLE_BITS = 40, /* a fractional sample is below 2^40 ms, its square below 2^80 ms² */
    BUCKETS = CPROF_HISTOGRAM_BUCKETS,
    NAME_LIMIT = CPROF_SNAPSHOT_NAME_LIMIT,
    FLAG_MERGED = 1,     /* of a snapshot */
    FLAG_FRACTIONAL = 1, /* of a key */
    MAGIC_BYTES = 8,
    HEADER_BYTES = MAGIC_BYTES + 2 * 4 + 8 * 8,
    SOURCE_BYTES = CPROF_REGISTRY_ID_BYTES + 8,
    NOTE_BYTES = 2,             /* and its text */
    KEY_BYTES = 4 * 2 + 24 * 8, /* and its names, sums and buckets */
    BUCKET_BYTES = 2 + 8,
    CHECKSUM_BYTES = 8,
};

static const char magic[MAGIC_BYTES] = {'C', 'P', 'R', 'O', 'F', 'S', 'N', 'P'};

/* Values of first_ms that are no durations. */
#define FIRST_NONE (-1.0)
#define FIRST_UNKNOWN (-2.0)

#define MEDIAN_UNKNOWN (-1.0)
#define MAX_MS (0x1p63 / 1e6)
#define COUNT_LIMIT (UINT64_C(1) << 63)

/* The exact sums of fractional samples, in ms and ms²; least significant word first. */
typedef struct {
    uint64_t total[WORDS];
    uint64_t squares[WORDS];
} fixed_sums;

/* One allocation, with everything that it points to behind it. Times that mean nothing without a sample are 0 then. */
typedef struct cprof_snapshot_key {
    cprof_figures figures; /* the sums of fractional samples follow from `sums` */
    cprof_names names;
    uint64_t place;
    uint64_t last_taken_ns; /* when the snapshot was taken that last_ms comes from */
    fixed_sums *sums;       /* NULL: there is no fractional sample */
    uint64_t *counts;       /* of the filled buckets, */
    uint16_t *indices;      /* whose numbers ascend */
    size_t filled;
} snapshot_key;

static snapshot_key *key_new(cprof_names names, size_t filled, bool is_fractional)
{
    size_t sum_bytes = is_fractional ? sizeof(fixed_sums) : 0;
    size_t bytes = sizeof(snapshot_key) + sum_bytes + filled * (sizeof(uint64_t) + sizeof(uint16_t));
    snapshot_key *key = cprof_alloc_zeroed(bytes + names.stage.length + names.node.length);
    if (key == NULL) {
        return NULL;
    }
    char *tail = (char *)(key + 1);
    key->sums = is_fractional ? (fixed_sums *)tail : NULL;
    key->counts = (uint64_t *)(tail + sum_bytes);
    key->indices = (uint16_t *)(key->counts + filled);
    key->filled = filled;
    char *stage = (char *)key + bytes;
    char *node = stage + names.stage.length;
    memcpy(stage, names.stage.bytes, names.stage.length);
    memcpy(node, names.node.bytes, names.node.length);
    key->names = (cprof_names){{stage, names.stage.length}, {node, names.node.length}};
    return key;
}

void cprof_snapshot_destroy(cprof_snapshot *snapshot)
{
    if (snapshot == NULL) {
        return;
    }
    for (size_t i = 0; i < snapshot->key_count; i++) {
        cprof_alloc_release(snapshot->keys[i]);
    }
    cprof_alloc_release(snapshot->keys);
    cprof_alloc_release(snapshot->in_order);
    cprof_alloc_release(snapshot->notes);
    cprof_alloc_release(snapshot->sources);
    cprof_alloc_release(snapshot);
}

/* Names and orders */

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

static bool name_is_legal(cprof_name name)
{
    bool is_legal = name.length <= NAME_LIMIT;
    for (size_t at = 0; is_legal && at < name.length;) {
        size_t length = character_length((const uint8_t *)name.bytes + at, name.length - at);
        is_legal = length != 0;
        at += length;
    }
    return is_legal;
}

static int compare_name(cprof_name a, cprof_name b)
{
    int order = memcmp(a.bytes, b.bytes, a.length < b.length ? a.length : b.length);
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

static int compare_names(cprof_names a, cprof_names b)
{
    int order = compare_name(a.stage, b.stage);
    return order != 0 ? order : compare_name(a.node, b.node);
}

static int compare_sources(const cprof_snapshot_source *a, const cprof_snapshot_source *b)
{
    int order = memcmp(a->id, b->id, sizeof a->id);
    return order != 0 ? order : (a->generation > b->generation) - (a->generation < b->generation);
}

static int by_text(const void *left, const void *right)
{
    return compare_name(*(const cprof_name *)left, *(const cprof_name *)right);
}

static int by_names(const void *left, const void *right)
{
    return compare_names((*(snapshot_key *const *)left)->names, (*(snapshot_key *const *)right)->names);
}

static int by_place(const void *left, const void *right)
{
    const snapshot_key *a = *(snapshot_key *const *)left;
    const snapshot_key *b = *(snapshot_key *const *)right;
    return a->place != b->place ? (a->place > b->place) - (a->place < b->place) : compare_names(a->names, b->names);
}

static void sort(void *items, size_t count, size_t width, int (*compare)(const void *, const void *))
{
    if (count > 1) {
        qsort(items, count, width, compare);
    }
}

/* A table of `count` items; for none, one that must not be used. */
static void *table_new(size_t count, size_t width)
{
    return count <= SIZE_MAX / width - 1 ? cprof_alloc_zeroed((count + 1) * width) : NULL;
}

/* Fills `in_order` of complete keys. */
static cprof_status put_in_order(cprof_snapshot *snapshot)
{
    snapshot->in_order = table_new(snapshot->key_count, sizeof *snapshot->in_order);
    if (snapshot->in_order == NULL) {
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < snapshot->key_count; i++) {
        snapshot->in_order[i] = snapshot->keys[i];
    }
    sort(snapshot->in_order, snapshot->key_count, sizeof *snapshot->in_order, by_place);
    return CPROF_OK;
}

cprof_name cprof_snapshot_next_note(const cprof_snapshot *snapshot, size_t *at)
{
    const uint8_t *note = snapshot->notes + *at;
    size_t length = note[0] | (size_t)note[1] << 8;
    *at += NOTE_BYTES + length;
    return (cprof_name){(const char *)note + NOTE_BYTES, length};
}

static void append_note(cprof_snapshot *snapshot, cprof_name note)
{
    uint8_t *end = snapshot->notes + snapshot->note_bytes;
    end[0] = (uint8_t)note.length;
    end[1] = (uint8_t)(note.length >> 8);
    memcpy(end + NOTE_BYTES, note.bytes, note.length);
    snapshot->note_bytes += NOTE_BYTES + note.length;
    snapshot->note_count++;
}

/* Copies each of the notes once. They are sorted in their table. */
static cprof_status set_notes(cprof_snapshot *snapshot, cprof_name *notes, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += NOTE_BYTES + notes[i].length;
    }
    snapshot->notes = table_new(bytes, 1);
    if (snapshot->notes == NULL) {
        return CPROF_NO_MEMORY;
    }
    sort(notes, count, sizeof *notes, by_text);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || compare_name(notes[i - 1], notes[i]) != 0) {
            append_note(snapshot, notes[i]);
        }
    }
    return CPROF_OK;
}

/* Fixed-point sums */

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
static void set_pairs(snapshot_key *key)
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

/* What follows from the rest of a key, and is left out of its encoding. */
static void complete(snapshot_key *key)
{
    key->figures.rows = 0;
    for (size_t i = 0; i < key->filled; i++) {
        key->figures.rows |= UINT64_C(1) << (key->indices[i] / CPROF_HISTOGRAM_ROW);
    }
    set_pairs(key);
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

/* Collecting */

typedef struct {
    cprof_snapshot *snapshot;
    size_t capacity;
    uint64_t taken_ns;
} collector;

static bool make_room(collector *all)
{
    cprof_snapshot *snapshot = all->snapshot;
    if (snapshot->key_count < all->capacity) {
        return true;
    }
    size_t capacity = all->capacity == 0 ? 16 : all->capacity * 2;
    snapshot_key **keys = cprof_alloc_resize(snapshot->keys, capacity * sizeof *keys);
    if (keys == NULL) {
        return false;
    }
    snapshot->keys = keys;
    all->capacity = capacity;
    return true;
}

/* A key with the filled buckets of a dense histogram, of which the rows named in figures->rows are set. */
static snapshot_key *key_of_dense(cprof_names names, const cprof_figures *figures, const uint64_t *counts, bool is_fractional)
{
    unsigned first = figures->rows != 0 ? (unsigned)__builtin_ctzll(figures->rows) * CPROF_HISTOGRAM_ROW : 0;
    unsigned end = figures->rows != 0 ? (64u - (unsigned)__builtin_clzll(figures->rows)) * CPROF_HISTOGRAM_ROW : 0;
    size_t filled = 0;
    for (unsigned i = first; i < end; i++) {
        filled += counts[i] != 0;
    }
    snapshot_key *key = key_new(names, filled, is_fractional);
    if (key == NULL) {
        return NULL;
    }
    key->figures = *figures;
    size_t at = 0;
    for (unsigned i = first; i < end; i++) {
        if (counts[i] != 0) {
            key->indices[at] = (uint16_t)i;
            key->counts[at++] = counts[i];
        }
    }
    return key;
}

static snapshot_key *key_of_figures(cprof_names names, const cprof_figures *figures, const uint64_t *counts)
{
    const cprof_moments *moments = &figures->moments;
    bool is_fractional = moments->total_ms.high != 0.0 || moments->squares_ms2.high != 0.0;
    snapshot_key *key = key_of_dense(names, figures, counts, is_fractional);
    if (key == NULL) {
        return NULL;
    }
    if (figures->count == 0) {
        key->figures.min_ms = key->figures.max_ms = key->figures.last_ms = key->figures.median_ms = 0.0;
    }
    if (is_fractional) {
        add_double(key->sums->total, moments->total_ms.high);
        add_double(key->sums->total, moments->total_ms.low);
        add_double(key->sums->squares, moments->squares_ms2.high);
        add_double(key->sums->squares, moments->squares_ms2.low);
    }
    complete(key);
    return key;
}

static cprof_status collect(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                            const uint64_t *counts)
{
    collector *all = context;
    if (!name_is_legal(names.stage) || !name_is_legal(names.node)) {
        return CPROF_OUT_OF_RANGE;
    }
    snapshot_key *key = make_room(all) ? key_of_figures(names, figures, counts) : NULL;
    if (key == NULL) {
        return CPROF_NO_MEMORY;
    }
    key->place = order;
    key->last_taken_ns = figures->count > 0 ? all->taken_ns : 0;
    all->snapshot->keys[all->snapshot->key_count++] = key;
    return CPROF_OK;
}

static cprof_status collect_keys(cprof_snapshot *snapshot, cprof_registry *registry, uint64_t taken_ns)
{
    collector all = {.snapshot = snapshot, .taken_ns = taken_ns};
    cprof_registry_epoch epoch;
    cprof_status status = cprof_registry_visit(registry, collect, &all, &epoch);
    if (status != CPROF_OK) {
        return status;
    }
    memcpy(snapshot->sources[0].id, registry->id, sizeof registry->id);
    snapshot->sources[0].generation = epoch.generation;
    snapshot->skip_least = snapshot->skip_most = epoch.skip_first_n;
    sort(snapshot->keys, snapshot->key_count, sizeof *snapshot->keys, by_names);
    status = put_in_order(snapshot);
    for (size_t i = 0; status == CPROF_OK && i < snapshot->key_count; i++) {
        snapshot->in_order[i]->place = i;
    }
    return status;
}

static cprof_status collect_notes(cprof_snapshot *snapshot, const cprof_snapshot_remarks *remarks)
{
    cprof_name *notes = table_new(remarks->note_count, sizeof *notes);
    if (notes == NULL) {
        return CPROF_NO_MEMORY;
    }
    cprof_status status = CPROF_OK;
    for (size_t i = 0; i < remarks->note_count; i++) {
        notes[i] = remarks->notes[i];
        status = name_is_legal(notes[i]) ? status : CPROF_OUT_OF_RANGE;
    }
    status = status == CPROF_OK ? set_notes(snapshot, notes, remarks->note_count) : status;
    cprof_alloc_release(notes);
    return status;
}

/* Gives the snapshot out, or destroys it. */
static cprof_status deliver(cprof_status status, cprof_snapshot *snapshot, cprof_snapshot **result)
{
    if (status == CPROF_OK) {
        *result = snapshot;
    } else {
        cprof_snapshot_destroy(snapshot);
    }
    return status;
}

/* A snapshot with room for the sources. */
static cprof_snapshot *snapshot_new(size_t source_count)
{
    cprof_snapshot *snapshot = cprof_alloc_zeroed(sizeof *snapshot);
    if (snapshot != NULL) {
        snapshot->source_count = source_count;
        snapshot->sources = table_new(source_count, sizeof *snapshot->sources);
        if (snapshot->sources == NULL) {
            cprof_snapshot_destroy(snapshot);
            snapshot = NULL;
        }
    }
    return snapshot;
}

cprof_status cprof_snapshot_collect(cprof_registry *registry, const cprof_snapshot_remarks *remarks, cprof_snapshot **snapshot)
{
    cprof_snapshot *fresh = snapshot_new(1);
    if (fresh == NULL) {
        return CPROF_NO_MEMORY;
    }
    fresh->internal_errors = remarks->internal_errors;
    fresh->cost_ns = remarks->cost_ns;
    cprof_status status = collect_notes(fresh, remarks);
    status = status == CPROF_OK ? collect_keys(fresh, registry, remarks->taken_ns) : status;
    return deliver(status, fresh, snapshot);
}

/* Merging */

typedef struct {
    cprof_snapshot_source source;
    size_t snapshot; /* its place among the snapshots */
} origin;

static int by_source(const void *left, const void *right)
{
    const origin *a = left;
    const origin *b = right;
    int order = compare_sources(&a->source, &b->source);
    return order != 0 ? order : (a->snapshot > b->snapshot) - (a->snapshot < b->snapshot);
}

/* `origins` is sorted. */
static cprof_status take_origins(cprof_snapshot *merged, const origin *origins, cprof_snapshot_clash *clash)
{
    for (size_t i = 0; i < merged->source_count; i++) {
        if (i > 0 && compare_sources(&origins[i - 1].source, &origins[i].source) == 0) {
            *clash = (cprof_snapshot_clash){origins[i].source, origins[i - 1].snapshot, origins[i].snapshot};
            return CPROF_DUPLICATE;
        }
        merged->sources[i] = origins[i].source;
    }
    return CPROF_OK;
}

static cprof_status merge_sources(cprof_snapshot *merged, const cprof_snapshot *const *snapshots, size_t count,
                                  cprof_snapshot_clash *clash)
{
    origin *origins = table_new(merged->source_count, sizeof *origins);
    if (origins == NULL) {
        return CPROF_NO_MEMORY;
    }
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < snapshots[i]->source_count; k++) {
            origins[at++] = (origin){snapshots[i]->sources[k], i};
        }
    }
    sort(origins, at, sizeof *origins, by_source);
    cprof_status status = take_origins(merged, origins, clash);
    cprof_alloc_release(origins);
    return status;
}

static cprof_status merge_notes(cprof_snapshot *merged, const cprof_snapshot *const *snapshots, size_t count)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += snapshots[i]->note_count;
    }
    cprof_name *notes = table_new(total, sizeof *notes);
    if (notes == NULL) {
        return CPROF_NO_MEMORY;
    }
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < snapshots[i]->note_bytes;) {
            notes[at++] = cprof_snapshot_next_note(snapshots[i], &k);
        }
    }
    cprof_status status = set_notes(merged, notes, total);
    cprof_alloc_release(notes);
    return status;
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
static void merge_times(snapshot_key *sum, const snapshot_key *part)
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

static bool merge_key(snapshot_key *sum, const snapshot_key *part)
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
    return add_counts(&sum->figures, &part->figures);
}

static void spread(const snapshot_key *key, uint64_t *counts)
{
    for (size_t i = 0; i < key->filled; i++) {
        counts[key->indices[i]] += key->counts[i];
    }
}

static void unspread(const snapshot_key *key, uint64_t *counts)
{
    for (size_t i = 0; i < key->filled; i++) {
        counts[key->indices[i]] = 0;
    }
}

/* Merges `count` keys of the same names. `counts` is a dense histogram of zeros, before and after. */
static cprof_status merge_run(cprof_snapshot *merged, snapshot_key *const *parts, size_t count, uint64_t *counts)
{
    cprof_figures nothing = {.first_ms = FIRST_NONE};
    bool is_fractional = false;
    for (size_t i = 0; i < count; i++) {
        spread(parts[i], counts);
        nothing.rows |= parts[i]->figures.rows;
        is_fractional |= parts[i]->sums != NULL;
    }
    snapshot_key *sum = key_of_dense(parts[0]->names, &nothing, counts, is_fractional);
    if (sum == NULL) {
        return CPROF_NO_MEMORY;
    }
    unspread(sum, counts);
    merged->keys[merged->key_count++] = sum;
    sum->place = UINT64_MAX;
    bool fits = true;
    for (size_t i = 0; fits && i < count; i++) {
        fits = merge_key(sum, parts[i]);
    }
    complete(sum);
    return fits ? CPROF_OK : CPROF_OUT_OF_RANGE;
}

/* `parts` is sorted by names. */
static cprof_status merge_runs(cprof_snapshot *merged, snapshot_key *const *parts, size_t count)
{
    uint64_t *counts = table_new(BUCKETS, sizeof *counts);
    cprof_status status = counts != NULL ? CPROF_OK : CPROF_NO_MEMORY;
    size_t end;
    for (size_t begin = 0; status == CPROF_OK && begin < count; begin = end) {
        end = begin + 1;
        while (end < count && compare_names(parts[begin]->names, parts[end]->names) == 0) {
            end++;
        }
        status = merge_run(merged, parts + begin, end - begin, counts);
    }
    cprof_alloc_release(counts);
    return status;
}

static cprof_status merge_keys(cprof_snapshot *merged, const cprof_snapshot *const *snapshots, size_t count)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += snapshots[i]->key_count;
    }
    snapshot_key **parts = table_new(total, sizeof *parts);
    merged->keys = table_new(total, sizeof *merged->keys);
    cprof_status status = CPROF_NO_MEMORY;
    if (parts != NULL && merged->keys != NULL) {
        size_t at = 0;
        for (size_t i = 0; i < count; i++) {
            for (size_t k = 0; k < snapshots[i]->key_count; k++) {
                parts[at++] = snapshots[i]->keys[k];
            }
        }
        sort(parts, total, sizeof *parts, by_names);
        status = merge_runs(merged, parts, total);
    }
    cprof_alloc_release(parts);
    return status == CPROF_OK ? put_in_order(merged) : status;
}

static cprof_status merge_remarks(cprof_snapshot *merged, const cprof_snapshot *const *snapshots, size_t count)
{
    bool fits = true;
    merged->is_merged = true;
    merged->skip_least = UINT64_MAX;
    merged->cost_ns = snapshots[0]->cost_ns;
    for (size_t i = 0; fits && i < count; i++) {
        const cprof_snapshot *part = snapshots[i];
        merged->skip_least = part->skip_least < merged->skip_least ? part->skip_least : merged->skip_least;
        merged->skip_most = part->skip_most > merged->skip_most ? part->skip_most : merged->skip_most;
        merged->cost_ns = part->cost_ns > merged->cost_ns ? part->cost_ns : merged->cost_ns;
        fits = add_count(&merged->internal_errors, part->internal_errors);
    }
    return fits ? merge_notes(merged, snapshots, count) : CPROF_OUT_OF_RANGE;
}

cprof_status cprof_snapshot_merge(const cprof_snapshot *const *snapshots, size_t count, cprof_snapshot **merged,
                                  cprof_snapshot_clash *clash)
{
    size_t source_count = 0;
    for (size_t i = 0; i < count; i++) {
        source_count += snapshots[i]->source_count;
    }
    cprof_snapshot *fresh = snapshot_new(source_count);
    if (fresh == NULL) {
        return CPROF_NO_MEMORY;
    }
    cprof_status status = merge_sources(fresh, snapshots, count, clash);
    status = status == CPROF_OK ? merge_remarks(fresh, snapshots, count) : status;
    status = status == CPROF_OK ? merge_keys(fresh, snapshots, count) : status;
    return deliver(status, fresh, merged);
}

/* Reading by key */

cprof_status cprof_snapshot_visit(const cprof_snapshot *snapshot, cprof_visitor visitor, void *context)
{
    static const double half = 0.5;
    uint64_t *counts = table_new(BUCKETS, sizeof *counts);
    cprof_status status = counts != NULL ? CPROF_OK : CPROF_NO_MEMORY;
    for (size_t i = 0; status == CPROF_OK && i < snapshot->key_count; i++) {
        const snapshot_key *key = snapshot->in_order[i];
        cprof_figures figures = key->figures;
        spread(key, counts);
        if (figures.median_ms == MEDIAN_UNKNOWN) {
            cprof_figures_quantiles_ms(&figures, counts, &half, 1, &figures.median_ms);
            figures.median_ms = fmax(figures.median_ms, figures.min_ms); /* when the histogram lost all */
        }
        status = visitor(context, key->names, i, &figures, counts);
        unspread(key, counts);
    }
    cprof_alloc_release(counts);
    return status;
}

/* Bytes: the layout is written down once, for both directions */

typedef struct {
    uint8_t *out;      /* where to write; NULL: read instead, */
    const uint8_t *in; /* from here */
    size_t at;
    size_t end; /* of what there is to read */
    cprof_snapshot_fault *fault;
} stream;

static void pass(stream *s, uint64_t *value, unsigned width)
{
    if (s->out != NULL) {
        for (unsigned i = 0; i < width; i++) {
            s->out[s->at + i] = (uint8_t)(*value >> (8 * i));
        }
    } else {
        *value = 0;
        for (unsigned i = 0; i < width; i++) {
            *value |= (uint64_t)s->in[s->at + i] << (8 * i);
        }
    }
    s->at += width;
}

static void pass_double(stream *s, double *value)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    pass(s, &bits, 8);
    memcpy(value, &bits, sizeof bits);
}

static void pass_u128(stream *s, cprof_u128 *value)
{
    uint64_t low = (uint64_t)*value;
    uint64_t high = (uint64_t)(*value >> 64);
    pass(s, &low, 8);
    pass(s, &high, 8);
    *value = (cprof_u128)high << 64 | low;
}

static void write_bytes(stream *s, const void *bytes, size_t length)
{
    memcpy(s->out + s->at, bytes, length);
    s->at += length;
}

/* What stands before the sources. */
typedef struct {
    uint64_t version;
    uint64_t flags;
    uint64_t length;
    uint64_t source_count;
    uint64_t note_count;
    uint64_t key_count;
} header;

static void pass_header(stream *s, header *head, cprof_snapshot *snapshot)
{
    pass(s, &head->version, 4);
    pass(s, &head->flags, 4);
    pass(s, &head->length, 8);
    pass(s, &snapshot->skip_least, 8);
    pass(s, &snapshot->skip_most, 8);
    pass(s, &snapshot->internal_errors, 8);
    pass_double(s, &snapshot->cost_ns);
    pass(s, &head->source_count, 8);
    pass(s, &head->note_count, 8);
    pass(s, &head->key_count, 8);
}

static void pass_source(stream *s, cprof_snapshot_source *source)
{
    for (size_t i = 0; i < sizeof source->id; i++) {
        uint64_t byte = source->id[i];
        pass(s, &byte, 1);
        source->id[i] = (uint8_t)byte;
    }
    pass(s, &source->generation, 8);
}

/* What stands before a key's names. */
struct key_fields {
    uint64_t stage_length;
    uint64_t node_length;
    uint64_t filled;
    uint64_t flags;
    uint64_t place;
    uint64_t last_taken_ns;
    cprof_figures figures;
};

static void pass_figures(stream *s, cprof_figures *figures)
{
    pass(s, &figures->count, 8);
    pass(s, &figures->error_count, 8);
    pass(s, &figures->cancelled_count, 8);
    pass(s, &figures->skipped_count, 8);
    pass(s, &figures->dropped_count, 8);
    pass(s, &figures->self_unknown, 8);
    pass(s, &figures->active_unknown, 8);
    pass(s, &figures->histogram_lost, 8);
    pass_double(s, &figures->min_ms);
    pass_double(s, &figures->max_ms);
    pass_double(s, &figures->last_ms);
    pass_double(s, &figures->first_ms);
    pass_double(s, &figures->median_ms);
    pass_u128(s, &figures->moments.total_ns);
    pass_u128(s, &figures->moments.squares_ns2);
    pass(s, &figures->moments.squares_top, 8);
    pass_u128(s, &figures->nested_ns);
    pass_u128(s, &figures->suspended_ns);
}

static void pass_key_fields(stream *s, struct key_fields *fields)
{
    pass(s, &fields->stage_length, 2);
    pass(s, &fields->node_length, 2);
    pass(s, &fields->filled, 2);
    pass(s, &fields->flags, 2);
    pass(s, &fields->place, 8);
    pass(s, &fields->last_taken_ns, 8);
    pass_figures(s, &fields->figures);
}

/* What follows a key's names. */
static void pass_key_tail(stream *s, snapshot_key *key)
{
    for (int i = 0; key->sums != NULL && i < WORDS; i++) {
        pass(s, &key->sums->total[i], 8);
    }
    for (int i = 0; key->sums != NULL && i < WORDS; i++) {
        pass(s, &key->sums->squares[i], 8);
    }
    for (size_t i = 0; i < key->filled; i++) {
        uint64_t index = key->indices[i];
        pass(s, &index, 2);
        key->indices[i] = (uint16_t)index;
    }
    for (size_t i = 0; i < key->filled; i++) {
        pass(s, &key->counts[i], 8);
    }
}

/* CRC-64 as in .xz files: the polynomial of ECMA-182, annex B, bits reversed. */
static uint64_t checksum(const uint8_t *bytes, size_t size)
{
    const uint64_t polynomial = UINT64_C(0xc96c5795d7870f42);
    uint64_t table[256];
    for (unsigned i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) {
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? polynomial : 0);
        }
    }
    uint64_t crc = UINT64_MAX;
    for (size_t i = 0; i < size; i++) {
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 0xff];
    }
    return ~crc;
}

/* Writing */

static size_t key_size(const snapshot_key *key)
{
    size_t sum_bytes = key->sums != NULL ? sizeof *key->sums : 0;
    return KEY_BYTES + key->names.stage.length + key->names.node.length + sum_bytes + key->filled * BUCKET_BYTES;
}

size_t cprof_snapshot_size(const cprof_snapshot *snapshot)
{
    size_t size = HEADER_BYTES + snapshot->source_count * SOURCE_BYTES + snapshot->note_bytes + CHECKSUM_BYTES;
    for (size_t i = 0; i < snapshot->key_count; i++) {
        size += key_size(snapshot->keys[i]);
    }
    return size;
}

static void write_key(stream *s, snapshot_key *key)
{
    struct key_fields fields = {
        .stage_length = key->names.stage.length,
        .node_length = key->names.node.length,
        .filled = key->filled,
        .flags = key->sums != NULL ? FLAG_FRACTIONAL : 0,
        .place = key->place,
        .last_taken_ns = key->last_taken_ns,
        .figures = key->figures,
    };
    pass_key_fields(s, &fields);
    write_bytes(s, key->names.stage.bytes, key->names.stage.length);
    write_bytes(s, key->names.node.bytes, key->names.node.length);
    pass_key_tail(s, key);
}

void cprof_snapshot_encode(const cprof_snapshot *snapshot, uint8_t *bytes)
{
    stream s = {.out = bytes};
    cprof_snapshot facts = *snapshot;
    header head = {
        .version = CPROF_SNAPSHOT_VERSION,
        .flags = snapshot->is_merged ? FLAG_MERGED : 0,
        .length = cprof_snapshot_size(snapshot),
        .source_count = snapshot->source_count,
        .note_count = snapshot->note_count,
        .key_count = snapshot->key_count,
    };
    write_bytes(&s, magic, sizeof magic);
    pass_header(&s, &head, &facts);
    for (size_t i = 0; i < snapshot->source_count; i++) {
        pass_source(&s, &snapshot->sources[i]);
    }
    write_bytes(&s, snapshot->notes, snapshot->note_bytes);
    for (size_t i = 0; i < snapshot->key_count; i++) {
        write_key(&s, snapshot->keys[i]);
    }
    uint64_t crc = checksum(bytes, s.at);
    pass(&s, &crc, CHECKSUM_BYTES);
}

/* Reading untrusted bytes */

static cprof_status refuse(stream *s, size_t offset, const char *reason)
{
    (void)snprintf(s->fault->text, sizeof s->fault->text, "%s at byte %zu", reason, offset);
    return CPROF_BAD_FORMAT;
}

/* Whether `count` items of at least `width` bytes can follow. */
static bool can_hold(const stream *s, uint64_t count, size_t width)
{
    return count <= (s->end - s->at) / width;
}

#define BEHIND_THE_END "a length that points behind the end"

/* Refuses all bytes that are not those of one snapshot of this version, unchanged. */
static cprof_status check_envelope(stream *s, const header *head)
{
    if (head->version != CPROF_SNAPSHOT_VERSION) {
        (void)snprintf(s->fault->text, sizeof s->fault->text,
                       "schema version %u at byte %d, where this program reads version %d", (unsigned)head->version,
                       MAGIC_BYTES, CPROF_SNAPSHOT_VERSION);
        return CPROF_BAD_FORMAT;
    }
    if (head->length != s->end) {
        (void)snprintf(s->fault->text, sizeof s->fault->text,
                       "cut or extended: %zu bytes, where the length at byte %d says %llu", s->end, MAGIC_BYTES + 8,
                       (unsigned long long)head->length);
        return CPROF_BAD_FORMAT;
    }
    s->end -= CHECKSUM_BYTES;
    uint64_t crc;
    stream tail = {.in = s->in, .at = s->end};
    pass(&tail, &crc, CHECKSUM_BYTES);
    return crc == checksum(s->in, s->end) ? CPROF_OK : refuse(s, s->end, "changed bytes: wrong checksum");
}

static const char *header_fault(const header *head, const cprof_snapshot *snapshot)
{
    bool is_merged = head->flags == FLAG_MERGED;
    if (head->flags > FLAG_MERGED) {
        return "unknown flags";
    }
    if (head->source_count == 0 || (!is_merged && head->source_count != 1)) {
        return "an impossible number of sources";
    }
    if (snapshot->skip_most >= COUNT_LIMIT || snapshot->internal_errors >= COUNT_LIMIT) {
        return "a count of 2^63 or more";
    }
    if (snapshot->skip_least > snapshot->skip_most || (!is_merged && snapshot->skip_least != snapshot->skip_most)) {
        return "an impossible skip_first_n";
    }
    bool is_negative_zero = snapshot->cost_ns == 0.0 && signbit(snapshot->cost_ns);
    return !isfinite(snapshot->cost_ns) || is_negative_zero ? "an impossible cost" : NULL;
}

static cprof_status read_header(stream *s, header *head, cprof_snapshot *snapshot)
{
    if (memcmp(s->in, magic, s->end < MAGIC_BYTES ? s->end : MAGIC_BYTES) != 0) {
        return refuse(s, 0, "wrong magic: no snapshot of cprofiling");
    }
    if (s->end < HEADER_BYTES + CHECKSUM_BYTES) {
        return refuse(s, s->end, "cut short: it ends");
    }
    s->at = MAGIC_BYTES;
    pass_header(s, head, snapshot);
    cprof_status status = check_envelope(s, head);
    if (status != CPROF_OK) {
        return status;
    }
    const char *reason = header_fault(head, snapshot);
    snapshot->is_merged = head->flags == FLAG_MERGED;
    return reason == NULL ? CPROF_OK : refuse(s, MAGIC_BYTES, reason);
}

static cprof_status read_sources(stream *s, uint64_t count, cprof_snapshot *snapshot)
{
    if (!can_hold(s, count, SOURCE_BYTES)) {
        return refuse(s, s->at, BEHIND_THE_END);
    }
    snapshot->sources = table_new(count, sizeof *snapshot->sources);
    if (snapshot->sources == NULL) {
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        pass_source(s, &snapshot->sources[i]);
        if (i > 0 && compare_sources(&snapshot->sources[i - 1], &snapshot->sources[i]) >= 0) {
            return refuse(s, s->at - SOURCE_BYTES, "sources that do not ascend");
        }
    }
    snapshot->source_count = count;
    return CPROF_OK;
}

/* A name or note where the stream stands, which has been found to hold it. */
static cprof_name take_name(stream *s, uint64_t length)
{
    cprof_name name = {(const char *)s->in + s->at, length};
    s->at += length;
    return name;
}

/* The note where the stream stands, which must come after the previous one. */
static cprof_status read_note(stream *s, cprof_name *note)
{
    size_t begin = s->at;
    uint64_t length = 0;
    if (can_hold(s, 1, NOTE_BYTES)) {
        pass(s, &length, NOTE_BYTES);
    }
    if (s->at == begin || !can_hold(s, length, 1)) {
        return refuse(s, begin, BEHIND_THE_END);
    }
    cprof_name previous = *note;
    *note = take_name(s, length);
    if (!name_is_legal(*note)) {
        return refuse(s, begin, "a note that is too long or no UTF-8");
    }
    return previous.bytes == NULL || compare_name(previous, *note) < 0 ? CPROF_OK
                                                                       : refuse(s, begin, "notes that do not ascend");
}

static cprof_status read_notes(stream *s, uint64_t count, cprof_snapshot *snapshot)
{
    size_t begin = s->at;
    cprof_name note = {.bytes = NULL};
    for (uint64_t i = 0; i < count; i++) {
        cprof_status status = read_note(s, &note);
        if (status != CPROF_OK) {
            return status;
        }
    }
    snapshot->notes = table_new(s->at - begin, 1);
    if (snapshot->notes == NULL) {
        return CPROF_NO_MEMORY;
    }
    memcpy(snapshot->notes, s->in + begin, s->at - begin);
    snapshot->note_bytes = s->at - begin;
    snapshot->note_count = count;
    return CPROF_OK;
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

static const char *counts_fault(const snapshot_key *key)
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
    bool is_known = is_duration(f->first_ms) && successes > 0;
    return is_none || is_unknown || is_known ? NULL : "an impossible first duration";
}

/* No sum is larger than that of `count` samples can be; so sums of merged keys never overflow. */
static const char *sums_fault(const snapshot_key *key)
{
    const cprof_figures *f = &key->figures;
    const cprof_moments *m = &f->moments;
    cprof_u128 squares = (cprof_u128)m->squares_top << 2 | m->squares_ns2 >> 126;
    bool total_fits = m->total_ns == 0 || m->total_ns >> 63 < f->count;
    bool squares_fit = (m->squares_ns2 == 0 && m->squares_top == 0) || squares < f->count;
    if (!total_fits || !squares_fit || f->nested_ns > m->total_ns || f->suspended_ns > m->total_ns) {
        return "an impossible sum";
    }
    if (key->sums == NULL) {
        return NULL;
    }
    bool fits =
        fixed_fits(key->sums->total, SAMPLE_BITS, f->count) && fixed_fits(key->sums->squares, 2 * SAMPLE_BITS, f->count);
    return !fits || (is_zero(key->sums->total) && is_zero(key->sums->squares)) ? "an impossible fractional sum" : NULL;
}

static const char *buckets_fault(const snapshot_key *key)
{
    uint64_t left = key->figures.count - key->figures.histogram_lost;
    for (size_t i = 0; i < key->filled; i++) {
        if (key->indices[i] >= BUCKETS || (i > 0 && key->indices[i - 1] >= key->indices[i])) {
            return "an impossible bucket";
        }
        if (key->counts[i] == 0 || key->counts[i] > left) {
            return "a histogram of another number of samples";
        }
        left -= key->counts[i];
    }
    return left != 0 ? "a histogram of another number of samples" : NULL;
}

static const char *key_fault(const cprof_snapshot *snapshot, const snapshot_key *key)
{
    const char *reason = counts_fault(key);
    reason = reason == NULL ? times_fault(&key->figures, snapshot->is_merged) : reason;
    reason = reason == NULL ? sums_fault(key) : reason;
    reason = reason == NULL ? buckets_fault(key) : reason;
    if (reason == NULL && snapshot->key_count > 0) {
        int order = compare_names(snapshot->keys[snapshot->key_count - 1]->names, key->names);
        reason = order == 0 ? "the same key twice" : order > 0 ? "keys that do not ascend" : NULL;
    }
    return reason;
}

/* The rest of a key whose fields begin at `begin`. */
static cprof_status read_key_tail(stream *s, size_t begin, const struct key_fields *fields, cprof_snapshot *snapshot)
{
    cprof_names names;
    names.stage = take_name(s, fields->stage_length);
    names.node = take_name(s, fields->node_length);
    if (!name_is_legal(names.stage) || !name_is_legal(names.node)) {
        return refuse(s, begin, "a name that is too long or no UTF-8");
    }
    snapshot_key *key = key_new(names, fields->filled, fields->flags == FLAG_FRACTIONAL);
    if (key == NULL) {
        return CPROF_NO_MEMORY;
    }
    key->figures = fields->figures;
    key->place = fields->place;
    key->last_taken_ns = fields->last_taken_ns;
    pass_key_tail(s, key);
    const char *reason = key_fault(snapshot, key);
    if (reason != NULL) {
        cprof_alloc_release(key);
        return refuse(s, begin, reason);
    }
    complete(key);
    snapshot->keys[snapshot->key_count++] = key;
    return CPROF_OK;
}

static cprof_status read_key(stream *s, cprof_snapshot *snapshot)
{
    size_t begin = s->at;
    struct key_fields fields = {.flags = 0};
    if (!can_hold(s, 1, KEY_BYTES)) {
        return refuse(s, begin, BEHIND_THE_END);
    }
    pass_key_fields(s, &fields);
    if (fields.flags > FLAG_FRACTIONAL) {
        return refuse(s, begin, "unknown flags");
    }
    size_t sum_bytes = fields.flags == FLAG_FRACTIONAL ? sizeof(fixed_sums) : 0;
    if (!can_hold(s, fields.stage_length + fields.node_length + sum_bytes + fields.filled * BUCKET_BYTES, 1)) {
        return refuse(s, begin, BEHIND_THE_END);
    }
    return read_key_tail(s, begin, &fields, snapshot);
}

static cprof_status read_keys(stream *s, uint64_t count, cprof_snapshot *snapshot)
{
    if (!can_hold(s, count, KEY_BYTES)) {
        return refuse(s, s->at, BEHIND_THE_END);
    }
    snapshot->keys = table_new(count, sizeof *snapshot->keys);
    cprof_status status = snapshot->keys != NULL ? CPROF_OK : CPROF_NO_MEMORY;
    for (size_t i = 0; status == CPROF_OK && i < count; i++) {
        status = read_key(s, snapshot);
    }
    return status;
}

cprof_status cprof_snapshot_decode(const uint8_t *bytes, size_t size, cprof_snapshot **snapshot, cprof_snapshot_fault *fault)
{
    cprof_snapshot *fresh = cprof_alloc_zeroed(sizeof *fresh);
    if (fresh == NULL) {
        return CPROF_NO_MEMORY;
    }
    stream s = {.in = bytes, .end = size, .fault = fault};
    header head;
    cprof_status status = read_header(&s, &head, fresh);
    status = status == CPROF_OK ? read_sources(&s, head.source_count, fresh) : status;
    status = status == CPROF_OK ? read_notes(&s, head.note_count, fresh) : status;
    status = status == CPROF_OK ? read_keys(&s, head.key_count, fresh) : status;
    if (status == CPROF_OK && s.at != s.end) {
        status = refuse(&s, s.at, "more bytes than the counts say");
    }
    status = status == CPROF_OK ? put_in_order(fresh) : status;
    return deliver(status, fresh, snapshot);
}
