/* Snapshots: what decodes has one encoding and figures within their bounds, and merges in either order to what decodes. */
#include "tests/fuzz/fuzz.h"

#include "cprofiling/stats/figures.h"
#include "tests/core/snapshots.h"

enum { LENGTH_AT = 16, CHECKSUM_BYTES = 8, MOST_KEYS = 2, GENERATION_AT = HEADER_BYTES + SOURCE_BYTES - 8 };

static const double fractions[] = {0.0, 0.5, 0.99, 1.0};

static void check_quantiles(const double *quantiles_ms, double least_ms, double most_ms)
{
    for (size_t i = 0; i < COUNT_OF(fractions); i++) {
        CHECK(least_ms <= quantiles_ms[i] && quantiles_ms[i] <= most_ms);
        CHECK(i == 0 || quantiles_ms[i - 1] <= quantiles_ms[i]);
    }
}

/* What a reader shows of a key. */
static cprof_status show(void *context, cprof_names names, uint64_t order, const cprof_figures *figures, const uint64_t *counts)
{
    double quantiles_ms[COUNT_OF(fractions)];
    uint64_t *keys = context;
    CHECK(cprof_name_is_legal(names.stage) && cprof_name_is_legal(names.node) && order == (*keys)++);
    cprof_figures_quantiles_ms(figures, counts, fractions, COUNT_OF(fractions), quantiles_ms);
    double mean_ms = cprof_moments_mean_ms(&figures->moments, figures->count);
    if (figures->count > 0) { /* sums are held to a part in 2^40, their squares to the root of that */
        double slack = figures->max_ms * 0x1p-38;
        CHECK(figures->min_ms - slack <= mean_ms && mean_ms <= figures->max_ms + slack);
        double std_ms = cprof_figures_std_ms(figures);
        CHECK(std_ms >= 0.0 && std_ms <= figures->max_ms - figures->min_ms + figures->max_ms * 0x1p-19 + 0x1p-500);
    }
    if (figures->count > figures->histogram_lost) {
        check_quantiles(quantiles_ms, figures->min_ms, figures->max_ms);
    }
    if (figures->extra != NULL) {
        const cprof_resources_figures *f = &figures->extra->figures;
        cprof_resources_gpu_quantiles_ms(figures->extra, fractions, COUNT_OF(fractions), quantiles_ms);
        if (f->gpu_count > f->gpu_lost) {
            check_quantiles(quantiles_ms, cprof_moments_ns_to_ms(f->gpu_min_ns), cprof_moments_ns_to_ms(f->gpu_max_ns));
        }
    }
    for (size_t i = 0; figures->shapes != NULL && i < figures->shapes->count; i++) {
        uint64_t scratch[CPROF_HISTOGRAM_BUCKETS] = {0};
        const cprof_shape_copy *item = &figures->shapes->items[i];
        const cprof_shape_figures *f = &item->figures;
        cprof_shape_quantiles_ms(item, scratch, fractions, COUNT_OF(fractions), quantiles_ms);
        if (f->count > f->lost) {
            check_quantiles(quantiles_ms, cprof_moments_ns_to_ms(f->least_ns), cprof_moments_ns_to_ms(f->most_ns));
        }
    }
    return CPROF_OK;
}

static void check_figures(const cprof_snapshot *snapshot)
{
    uint64_t keys = 0;
    CHECK(cprof_snapshot_visit(snapshot, show, &keys) == CPROF_OK && keys == snapshot->key_count);
}

/* A snapshot with the sources of another generation. */
static cprof_snapshot *sibling_of(const cprof_snapshot *snapshot)
{
    cprof_snapshot *sibling;
    byte_string bytes = encode(snapshot);
    for (size_t i = 0; i < snapshot->source_count; i++) {
        bytes.data[GENERATION_AT + i * SOURCE_BYTES] ^= 1;
    }
    seal(bytes.data, bytes.size);
    return decode(bytes.data, bytes.size, &sibling, NULL) == CPROF_OK ? sibling : NULL;
}

static void check_merges(const cprof_snapshot *snapshot, const cprof_snapshot *other)
{
    cprof_snapshot *merged[2] = {NULL, NULL};
    cprof_snapshot_clash clash;
    const cprof_snapshot *const parts[] = {snapshot, other, snapshot};
    cprof_status status = cprof_snapshot_merge(parts, 2, &merged[0], &clash);
    CHECK(cprof_snapshot_merge(parts + 1, 2, &merged[1], &clash) == status);
    keep(NULL, merged[0], NULL);
    keep(NULL, merged[1], NULL);
    CHECK(status == CPROF_OK || status == CPROF_OUT_OF_RANGE || status == CPROF_DUPLICATE);
    if (status == CPROF_OK) {
        CHECK(equal(merged[0], merged[1]));
        check_figures(round_trip(merged[0]));
        uint64_t folded = 0;
        status = cprof_snapshot_bound(merged[0], MOST_KEYS, 1, &folded);
        CHECK(status == CPROF_OK ? merged[0]->key_count <= MOST_KEYS + 1 : status == CPROF_OUT_OF_RANGE);
        check_figures(round_trip(merged[0]));
    }
}

/* Decodes bytes as they are, or else with the right length and checksum; NULL: they are refused. */
static cprof_snapshot *decoded(uint8_t *bytes, size_t size)
{
    cprof_snapshot *snapshot;
    cprof_status status = decode(bytes, size, &snapshot, NULL);
    if (status != CPROF_OK && size >= LENGTH_AT + 8 + CHECKSUM_BYTES) {
        put(bytes + LENGTH_AT, size, 8);
        seal(bytes, size);
        status = decode(bytes, size, &snapshot, NULL);
    }
    if (status != CPROF_OK) {
        return NULL;
    }
    byte_string again = encode(snapshot);
    CHECK(again.size == size && memcmp(again.data, bytes, size) == 0);
    check_figures(snapshot);
    return snapshot;
}

/* An input is one snapshot, or two, of which the first tells its length. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t first = size;
    uint8_t *bytes = malloc(size + 1);
    CHECK(bytes != NULL);
    keep(NULL, NULL, bytes);
    memcpy(bytes, data, size);
    if (size >= LENGTH_AT + 8) {
        memcpy(&first, data + LENGTH_AT, 8);
        first = first < size ? first : size;
    }
    cprof_snapshot *snapshot = decoded(bytes, first);
    if (snapshot != NULL) {
        cprof_snapshot *other = first < size ? decoded(bytes + first, size - first) : sibling_of(snapshot);
        if (other != NULL) {
            check_merges(snapshot, other);
        }
    }
    drop_all();
    return 0;
}
