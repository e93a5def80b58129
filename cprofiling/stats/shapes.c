#include "cprofiling/stats/shapes.h"

#include "cprofiling/base/alloc.h"

#include <string.h>

#define UNKNOWN (-1.0)
#define NS_PER_MS 1e6

enum { ROW = CPROF_HISTOGRAM_ROW, LEAST_TAIL = 10 };

static const cprof_shape_figures nothing = {.least_ns = UINT64_MAX};

static void dispose(cprof_shapes *shapes)
{
    unsigned count = shapes->count;
    shapes->count = shapes->last = 0; /* first: a child forked meanwhile must not see freed memory */
    for (unsigned i = 0; i < count; i++) {
        cprof_shape *shape = shapes->kept[i];
        shapes->kept[i] = NULL;
        if (shape != NULL) { /* else it was being added at a fork */
            cprof_histogram_dispose(&shape->histogram);
            cprof_alloc_release(shape);
        }
    }
}

void cprof_shapes_begin(cprof_shapes *shapes, uint64_t generation)
{
    dispose(shapes);
    cprof_histogram_clear(&shapes->rest.histogram);
    shapes->rest.figures = nothing;
    shapes->rest.signature = cprof_name_of(CPROF_SHAPES_REST);
    shapes->generation = generation;
}

static bool is_of(const cprof_shape *shape, cprof_name signature)
{
    return shape->signature.length == signature.length &&
           memcmp(shape->signature.bytes, signature.bytes, signature.length) == 0;
}

static cprof_shape *add_shape(cprof_shapes *shapes, cprof_name signature)
{
    cprof_shape *shape = shapes->count < CPROF_SHAPES_KEPT ? cprof_alloc_zeroed(sizeof *shape + signature.length) : NULL;
    if (shape == NULL) {
        return &shapes->rest;
    }
    char *text = (char *)(shape + 1);
    memcpy(text, signature.bytes, signature.length);
    shape->signature = (cprof_name){text, signature.length};
    shape->figures = nothing;
    shapes->kept[shapes->count] = shape;
    shapes->last = shapes->count++;
    return shape;
}

cprof_shape *cprof_shapes_find(cprof_shapes *shapes, cprof_name signature)
{
    if (shapes->count > 0 && is_of(shapes->kept[shapes->last], signature)) {
        return shapes->kept[shapes->last];
    }
    for (unsigned i = 0; i < shapes->count; i++) {
        if (is_of(shapes->kept[i], signature)) {
            shapes->last = i;
            return shapes->kept[i];
        }
    }
    return is_of(&shapes->rest, signature) ? &shapes->rest : add_shape(shapes, signature);
}

void cprof_shape_add(cprof_shape *shape, cprof_ns elapsed_ns)
{
    cprof_shape_figures *figures = &shape->figures;
    uint64_t ns = (uint64_t)elapsed_ns;
    figures->count++;
    figures->total_ns += ns;
    figures->least_ns = ns < figures->least_ns ? ns : figures->least_ns;
    figures->most_ns = ns > figures->most_ns ? ns : figures->most_ns;
    cprof_histogram_add(&shape->histogram, cprof_histogram_index_ns(elapsed_ns), &figures->lost);
}

static void copy_shape(const cprof_shape *shape, cprof_shapes_room *room, size_t *used)
{
    const cprof_shape_figures *figures = &shape->figures;
    if ((figures->count | figures->error_count | figures->cancelled_count) == 0) {
        return;
    }
    cprof_buckets buckets = {room->counts + *used, room->indices + *used, 0};
    buckets.filled = cprof_histogram_fill(&shape->histogram, buckets.indices, buckets.counts);
    *used += buckets.filled;
    room->items[room->view.count++] = (cprof_shape_copy){shape->signature, *figures, buckets};
}

void cprof_shapes_copy(const cprof_shapes *shapes, cprof_shapes_room *room)
{
    size_t used = 0;
    room->view = (cprof_shapes_view){0, room->items};
    for (unsigned i = 0; i < shapes->count; i++) {
        copy_shape(shapes->kept[i], room, &used);
    }
    copy_shape(&shapes->rest, room, &used);
}

void cprof_shape_quantiles_ms(const cprof_shape_copy *shape, uint64_t *scratch, const double *fractions, size_t count,
                              double *quantiles_ms)
{
    const cprof_shape_figures *f = &shape->figures;
    cprof_histogram_dense dense = {scratch, cprof_buckets_rows(&shape->buckets)};
    cprof_buckets_spread(&shape->buckets, scratch);
    cprof_histogram_quantiles_ms(dense, f->count - f->lost, (double)f->least_ns / NS_PER_MS, (double)f->most_ns / NS_PER_MS,
                                 UNKNOWN, fractions, count, quantiles_ms);
    cprof_buckets_unspread(&shape->buckets, scratch);
}

/* The first bucket of the slowest samples. */
static unsigned first_of_tail(const uint64_t *counts, uint64_t total)
{
    uint64_t allowed = total / 100 > LEAST_TAIL ? total / 100 : LEAST_TAIL;
    uint64_t seen = 0;
    unsigned first = CPROF_HISTOGRAM_BUCKETS;
    for (unsigned i = CPROF_HISTOGRAM_BUCKETS; i > 0 && (seen == 0 || seen + counts[i - 1] <= allowed); i--) {
        seen += counts[i - 1];
        first = i - 1;
    }
    return first;
}

uint64_t cprof_shapes_tails(const cprof_shapes_view *view, uint64_t *scratch, uint64_t *tails)
{
    uint64_t total = 0;
    uint64_t slowest = 0;
    for (size_t i = 0; i < view->count; i++) {
        cprof_buckets_spread(&view->items[i].buckets, scratch);
        total += view->items[i].figures.count - view->items[i].figures.lost;
    }
    unsigned first = first_of_tail(scratch, total);
    for (size_t i = 0; i < view->count; i++) {
        const cprof_buckets *buckets = &view->items[i].buckets;
        tails[i] = 0;
        for (size_t k = buckets->filled; k > 0 && buckets->indices[k - 1] >= first; k--) {
            tails[i] += buckets->counts[k - 1];
        }
        slowest += tails[i];
        cprof_buckets_unspread(buckets, scratch);
    }
    return slowest;
}

void cprof_shapes_destroy(cprof_shapes *shapes)
{
    if (shapes != NULL) {
        dispose(shapes);
        cprof_histogram_dispose(&shapes->rest.histogram);
        cprof_alloc_release(shapes);
    }
}
