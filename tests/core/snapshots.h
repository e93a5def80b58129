/* Snapshots made, merged, and as bytes that are changed by hand. */
#ifndef TESTS_CORE_SNAPSHOTS_H
#define TESTS_CORE_SNAPSHOTS_H

#include "cprofiling/files/snapshot.h"
#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <string.h>

enum {
    HEADER_BYTES = 80,
    SOURCE_BYTES = 24,
    KEY_BYTES = 240,
    FIRST_KEY = HEADER_BYTES + SOURCE_BYTES, /* in a snapshot without notes */
};

/* The place of the fields of a key. */
enum {
    AT_FILLED = 4,
    AT_FLAGS = 6,
    AT_PLACE = 8,
    AT_TAKEN = 16,
    AT_COUNT = 24,
    AT_ERRORS = 32,
    AT_SKIPPED = 48,
    AT_SELF_UNKNOWN = 64,
    AT_LOST = 80,
    AT_MIN = 88,
    AT_MAX = 96,
    AT_LAST = 104,
    AT_FIRST = 112,
    AT_MEDIAN = 120,
    AT_EXACT = 128,
    AT_TOTAL = 168,
    AT_SQUARES = 184,
    AT_SQUARES_TOP = 200,
    AT_NESTED = 208,
    AT_SUSPENDED = 224,
    AT_NAMES = KEY_BYTES,
};

#define TWO_63 (UINT64_C(1) << 63)
#define MS INT64_C(1000000) /* in ns */

/* What a test makes by these functions is kept until its end. */
static struct {
    cprof_registry *registry;
    cprof_snapshot *snapshot;
    void *bytes;
} *kept;
static size_t kept_count;
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;

static inline void keep(cprof_registry *registry, cprof_snapshot *snapshot, void *bytes)
{
    CHECK(pthread_mutex_lock(&keeping) == 0);
    void *grown = realloc(kept, (kept_count + 1) * sizeof *kept);
    CHECK(grown != NULL);
    kept = grown;
    kept[kept_count].registry = registry;
    kept[kept_count].snapshot = snapshot;
    kept[kept_count++].bytes = bytes;
    CHECK(pthread_mutex_unlock(&keeping) == 0);
}

static inline void drop_all(void)
{
    for (size_t i = 0; i < kept_count; i++) {
        cprof_registry_destroy(kept[i].registry);
        cprof_snapshot_destroy(kept[i].snapshot);
        free(kept[i].bytes);
    }
    free(kept);
    kept = NULL;
    kept_count = 0;
}

/* Not kept. */
static inline cprof_registry *registry_made(uint64_t skip_first_n)
{
    cprof_registry *registry = cprof_registry_create(0);
    CHECK(registry != NULL);
    cprof_registry_configure(registry, CPROF_FLAG_STATS, skip_first_n, false);
    return registry;
}

static inline cprof_registry *registry_new(uint64_t skip_first_n)
{
    cprof_registry *registry = registry_made(skip_first_n);
    keep(registry, NULL, NULL);
    return registry;
}

static inline cprof_snapshot *collected(cprof_registry *registry, cprof_snapshot_remarks remarks)
{
    cprof_snapshot *snapshot;
    CHECK(cprof_snapshot_collect(registry, &remarks, &snapshot) == CPROF_OK);
    keep(NULL, snapshot, NULL);
    return snapshot;
}

static inline cprof_accum *accum_of(cprof_registry *registry, const char *stage, const char *node)
{
    cprof_accum *accum = cprof_registry_accum(registry, (cprof_names){{stage, strlen(stage)}, {node, strlen(node)}});
    CHECK(accum != NULL);
    return accum;
}

static inline cprof_snapshot *merge(const cprof_snapshot *const *snapshots, size_t count)
{
    cprof_snapshot *merged;
    cprof_snapshot_clash clash;
    CHECK(cprof_snapshot_merge(snapshots, count, &merged, &clash) == CPROF_OK);
    keep(NULL, merged, NULL);
    return merged;
}

static inline cprof_snapshot *merge_two(const cprof_snapshot *a, const cprof_snapshot *b)
{
    return merge((const cprof_snapshot *const[]){a, b}, 2);
}

typedef struct {
    uint8_t *data;
    size_t size;
} byte_string;

static inline byte_string encode(const cprof_snapshot *snapshot)
{
    byte_string bytes = {.size = cprof_snapshot_size(snapshot)};
    bytes.data = malloc(bytes.size + 1);
    CHECK(bytes.data != NULL);
    keep(NULL, NULL, bytes.data);
    bytes.data[bytes.size] = 0xa5;
    cprof_snapshot_encode(snapshot, bytes.data);
    CHECK(bytes.data[bytes.size] == 0xa5); /* no byte more than was said */
    return bytes;
}

static inline bool equal(const cprof_snapshot *a, const cprof_snapshot *b)
{
    byte_string x = encode(a);
    byte_string y = encode(b);
    return x.size == y.size && memcmp(x.data, y.data, x.size) == 0;
}

static inline cprof_status decode(const uint8_t *bytes, size_t size, cprof_snapshot **snapshot, char *text)
{
    cprof_snapshot_fault fault = {.text = ""};
    cprof_snapshot *decoded = NULL;
    /* A block of exactly this size, so that a sanitizer sees every byte read behind it. */
    uint8_t *copy = malloc(size + (size == 0));
    CHECK(copy != NULL);
    memcpy(copy, bytes, size);
    cprof_status status = cprof_snapshot_decode(copy, size, &decoded, &fault);
    free(copy);
    keep(NULL, decoded, NULL);
    *snapshot = decoded;
    CHECK((status == CPROF_BAD_FORMAT) == (strlen(fault.text) > 0));
    if (text != NULL) {
        memcpy(text, fault.text, sizeof fault.text);
    }
    return status;
}

static inline cprof_snapshot *round_trip(const cprof_snapshot *snapshot)
{
    byte_string bytes = encode(snapshot);
    cprof_snapshot *copy;
    CHECK(decode(bytes.data, bytes.size, &copy, NULL) == CPROF_OK);
    CHECK(equal(snapshot, copy));
    return copy;
}

/* A visitor's view of one key. */
typedef struct {
    const char *node; /* which is looked for */
    uint64_t order;
    cprof_figures figures;
    uint64_t counts[CPROF_HISTOGRAM_BUCKETS];
    bool is_found, has_extra;
    cprof_resources_figures resources;
    double gpu_median_ms;
    uint64_t gpu_counts[CPROF_HISTOGRAM_BUCKETS];
} seen;

static inline void copy_rows(uint64_t *to, const uint64_t *counts, uint64_t rows)
{
    for (unsigned i = 0; i < CPROF_HISTOGRAM_BUCKETS; i++) {
        to[i] = (rows >> (i / CPROF_HISTOGRAM_ROW) & 1) != 0 ? counts[i] : 0;
    }
}

static inline cprof_status look(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                                const uint64_t *counts)
{
    seen *key = context;
    if (!cprof_name_is(names.node, key->node)) {
        return CPROF_OK;
    }
    key->is_found = true;
    key->order = order;
    key->figures = *figures;
    copy_rows(key->counts, counts, figures->rows);
    key->has_extra = figures->extra != NULL;
    if (key->has_extra) {
        key->resources = figures->extra->figures;
        cprof_resources_gpu_quantiles_ms(figures->extra, (const double[]){0.5}, 1, &key->gpu_median_ms);
        copy_rows(key->gpu_counts, figures->extra->gpu_counts, key->resources.gpu_rows);
    }
    return CPROF_OK;
}

static inline seen see(const cprof_snapshot *snapshot, const char *node)
{
    seen key = {.node = node};
    CHECK(cprof_snapshot_visit(snapshot, look, &key) == CPROF_OK && key.is_found);
    return key;
}

static inline seen see_live(cprof_registry *registry, const char *node)
{
    seen key = {.node = node};
    cprof_generation epoch;
    CHECK(cprof_registry_visit(registry, look, &key, &epoch) == CPROF_OK && key.is_found);
    return key;
}

/* What an operation of which allocations fail works on. */
typedef struct {
    cprof_registry *registry;
    const cprof_snapshot *const *inputs;
    byte_string bytes;
} material;

static inline cprof_status fail_collect(const material *m, cprof_snapshot **snapshot)
{
    cprof_name note = {"note", 4};
    cprof_snapshot_remarks remarks = {.notes = &note, .note_count = 1};
    return cprof_snapshot_collect(m->registry, &remarks, snapshot);
}

static inline cprof_status fail_merge(const material *m, cprof_snapshot **snapshot)
{
    cprof_snapshot_clash clash;
    return cprof_snapshot_merge(m->inputs, 2, snapshot, &clash);
}

static inline cprof_status fail_decode(const material *m, cprof_snapshot **snapshot)
{
    cprof_snapshot_fault fault;
    return cprof_snapshot_decode(m->bytes.data, m->bytes.size, snapshot, &fault);
}

/* Lets each allocation fail in turn, until the operation needs no more. */
static inline void expect_no_leak(cprof_status (*operation)(const material *, cprof_snapshot **), const material *m,
                                  uint64_t least)
{
    uint64_t nth = 0;
    uint64_t before = fake_alloc_live();
    while (fake_alloc_fail_next(&nth)) {
        cprof_snapshot *snapshot = NULL;
        cprof_status status = operation(m, &snapshot);
        CHECK_EQUAL(status, fake_alloc_has_failed() ? CPROF_NO_MEMORY : CPROF_OK);
        cprof_snapshot_destroy(snapshot);
        CHECK_EQUAL(fake_alloc_live(), before);
    }
    CHECK(nth > least);
}

static inline uint64_t random_bits(void)
{
    static uint64_t state = 5;
    return check_random(&state);
}

enum { MOST_PARTS = 5, MERGE_ORDERS = 50 };

/* Merges in a random order, in random groups. */
static inline cprof_snapshot *merge_at_random(cprof_snapshot *const *parts, size_t count)
{
    cprof_snapshot *left[MOST_PARTS];
    CHECK(count <= MOST_PARTS);
    for (size_t i = 0; i < count; i++) {
        left[i] = round_trip(parts[i]);
    }
    while (count > 1) {
        size_t a = random_bits() % count;
        cprof_snapshot *one = left[a];
        left[a] = left[--count];
        size_t b = random_bits() % count;
        left[b] = merge_two(one, left[b]);
    }
    return left[0];
}

/* The one result of merging in any order. */
static inline cprof_snapshot *merge_in_all_orders(cprof_snapshot *const *parts, size_t count)
{
    cprof_snapshot *merged = merge((const cprof_snapshot *const *)parts, count);
    for (int i = 0; i < MERGE_ORDERS; i++) {
        CHECK(equal(merged, merge_at_random(parts, count)));
    }
    return merged;
}

/* By so many bits, as ECMA-182 defines the polynomial. */
static inline uint64_t divided(uint64_t crc, unsigned bits)
{
    for (unsigned i = 0; i < bits; i++) {
        crc = crc >> 1 ^ (crc & 1 ? UINT64_C(0xc96c5795d7870f42) : 0);
    }
    return crc;
}

/* Bit by bit, and so unlike the table of checksum.c. */
static inline uint64_t slow_checksum(const uint8_t *bytes, size_t size)
{
    uint64_t crc = UINT64_MAX;
    for (size_t i = 0; i < size * 8; i++) {
        crc = divided(crc ^ (uint64_t)(bytes[i / 8] >> (i % 8) & 1), 1);
    }
    return ~crc;
}

/* The same by the byte, for where many are asked for. */
static inline uint64_t checksum_of(const uint8_t *bytes, size_t size)
{
    static uint64_t steps[256];
    for (unsigned i = 1; steps[255] == 0; i++) {
        steps[i] = divided(i, 8);
    }
    uint64_t crc = UINT64_MAX;
    for (size_t i = 0; i < size; i++) {
        crc = crc >> 8 ^ steps[(crc ^ bytes[i]) & 0xff];
    }
    return ~crc;
}

static inline void put(uint8_t *bytes, uint64_t value, unsigned width)
{
    for (unsigned i = 0; i < width; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline void seal(uint8_t *bytes, size_t size)
{
    put(bytes + size - 8, checksum_of(bytes, size - 8), 8);
}

static inline void expect_refused(const uint8_t *bytes, size_t size)
{
    cprof_snapshot *snapshot = NULL;
    CHECK(decode(bytes, size, &snapshot, NULL) == CPROF_BAD_FORMAT && snapshot == NULL);
}

/* Every cut and every changed bit of `bytes`, and one byte more. */
static inline void expect_damage_refused(uint8_t *bytes, size_t size)
{
    for (size_t cut = 0; cut < size; cut++) {
        expect_refused(bytes, cut);
    }
    expect_refused(bytes, size + 1);
    for (size_t bit = 0; bit < size * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        expect_refused(bytes, size);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

/* Puts `value` into an encoding, and expects that the result is refused for a reason that begins with `text`. */
static inline void expect_reason(const byte_string *bytes, size_t at, uint64_t value, unsigned width, const char *text)
{
    uint8_t *changed = malloc(bytes->size);
    CHECK(changed != NULL);
    memcpy(changed, bytes->data, bytes->size);
    put(changed + at, value, width);
    seal(changed, bytes->size);
    char reason[CPROF_SNAPSHOT_FAULT_TEXT];
    cprof_snapshot *snapshot;
    CHECK(decode(changed, bytes->size, &snapshot, reason) == CPROF_BAD_FORMAT);
    if (strncmp(reason, text, strlen(text)) != 0) {
        (void)fprintf(stderr, "byte %zu: \"%s\" where \"%s\" was expected\n", at, reason, text);
        exit(EXIT_FAILURE);
    }
    free(changed);
}

/* A change of one field, and the reason for which it is refused. `at` counts from the first key, or from the beginning. */
typedef struct {
    size_t at;
    uint64_t value;
    unsigned width;
    const char *text;
} change;

static inline void expect_reasons(const byte_string *bytes, size_t begin, const change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        expect_reason(bytes, begin + changes[i].at, changes[i].value, changes[i].width, changes[i].text);
    }
}

#endif
