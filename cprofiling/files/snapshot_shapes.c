#include "cprofiling/files/snapshot_shapes.h"

#include "cprofiling/base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = CPROF_SNAPSHOT_LAYOUT_SHAPE, COUNT_BYTES = 4, BUCKET_BYTES = CPROF_SNAPSHOT_LAYOUT_BUCKET };

typedef cprof_snapshot_shapes shapes_table;
typedef cprof_snapshot_stream stream;

/* What a table needs room for: no more than this. */
typedef struct {
    size_t count;
    size_t filled; /* buckets of all */
    size_t text;   /* bytes of all signatures */
} shapes_room;

/* A table that is being filled, and what is still free behind its items. */
typedef struct {
    shapes_table *table;
    cprof_buckets free;
    char *text;
} shapes_builder;

static bool begin(shapes_builder *builder, const shapes_room *room)
{
    size_t item_bytes = sizeof(shapes_table) + room->count * sizeof(cprof_shape_copy);
    size_t bucket_bytes = room->filled * (sizeof(uint64_t) + sizeof(uint16_t));
    shapes_table *table = cprof_alloc_zeroed(item_bytes + bucket_bytes + room->text);
    if (table == NULL) {
        return false;
    }
    table->view.items = table->items;
    uint64_t *counts = (uint64_t *)((char *)table + item_bytes);
    *builder = (shapes_builder){
        .table = table,
        .free = {counts, (uint16_t *)(counts + room->filled), 0},
        .text = (char *)counts + bucket_bytes,
    };
    return true;
}

/* The next item, with a copy of the signature, and with room for what is free of buckets, until finish_item(). */
static cprof_shape_copy *begin_item(shapes_builder *builder, cprof_name signature)
{
    cprof_shape_copy *item = &builder->table->items[builder->table->view.count++];
    memcpy(builder->text, signature.bytes, signature.length);
    item->signature = (cprof_name){builder->text, signature.length};
    item->buckets = builder->free;
    builder->text += signature.length;
    return item;
}

static void finish_item(shapes_builder *builder, const cprof_shape_copy *item)
{
    builder->free.counts += item->buckets.filled;
    builder->free.indices += item->buckets.filled;
}

static int by_signature(const void *left, const void *right)
{
    return cprof_snapshot_key_compare_name((*(const cprof_shape_copy *const *)left)->signature,
                                           (*(const cprof_shape_copy *const *)right)->signature);
}

/* Adds the figures of another; false when a count would reach 2^63. */
static bool add_figures(cprof_shape_figures *sum, const cprof_shape_figures *part)
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
static bool add_run(shapes_builder *builder, const cprof_shape_copy *const *run, size_t count, uint64_t *counts)
{
    cprof_shape_copy *item = begin_item(builder, run[0]->signature);
    item->figures = (cprof_shape_figures){.least_ns = UINT64_MAX};
    bool fits = true;
    uint64_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        fits = add_figures(&item->figures, &run[i]->figures) && fits;
        rows |= cprof_buckets_rows(&run[i]->buckets);
        cprof_buckets_spread(&run[i]->buckets, counts);
    }
    cprof_snapshot_dense dense = {counts, rows};
    item->buckets.filled = cprof_buckets_count(dense);
    cprof_buckets_take(&item->buckets, dense);
    cprof_buckets_unspread(&item->buckets, counts);
    finish_item(builder, item);
    return fits;
}

/* Makes a table of all items, those of one signature together. They are sorted in their table. */
static cprof_status build(const cprof_shape_copy **items, size_t count, uint64_t *counts, shapes_table **table)
{
    shapes_room room = {.count = count};
    for (size_t i = 0; i < count; i++) {
        room.filled += items[i]->buckets.filled;
        room.text += items[i]->signature.length;
    }
    shapes_builder builder;
    if (!begin(&builder, &room)) {
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

cprof_status cprof_snapshot_shapes_merge(const cprof_snapshot_shapes *const *parts, size_t count, uint64_t *counts,
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

cprof_snapshot_shapes *cprof_snapshot_shapes_of(const cprof_shapes_view *view)
{
    uint64_t *counts = cprof_snapshot_key_table(CPROF_HISTOGRAM_BUCKETS, sizeof *counts);
    const cprof_shape_copy **items = cprof_snapshot_key_table(view->count, sizeof *items);
    shapes_table *table = NULL;
    if (counts != NULL && items != NULL) {
        for (size_t i = 0; i < view->count; i++) {
            items[i] = &view->items[i];
        }
        (void)build(items, view->count, counts, &table); /* one part alone has no count that could grow */
    }
    cprof_alloc_release(items);
    cprof_alloc_release(counts);
    return table;
}

size_t cprof_snapshot_shapes_size(const cprof_snapshot_shapes *shapes)
{
    size_t size = COUNT_BYTES;
    for (size_t i = 0; i < shapes->view.count; i++) {
        const cprof_shape_copy *item = &shapes->items[i];
        size += HEAD_BYTES + item->signature.length + item->buckets.filled * BUCKET_BYTES;
    }
    return size;
}

void cprof_snapshot_shapes_write(cprof_snapshot_stream *s, const cprof_snapshot_shapes *shapes)
{
    uint64_t count = shapes->view.count;
    cprof_snapshot_layout_pass(s, &count, COUNT_BYTES);
    for (size_t i = 0; i < count; i++) {
        const cprof_shape_copy *item = &shapes->items[i];
        cprof_snapshot_shape_head head = {item->signature.length, item->buckets.filled, item->figures};
        cprof_snapshot_layout_pass_shape_head(s, &head);
    }
    for (size_t i = 0; i < count; i++) {
        cprof_name signature = shapes->items[i].signature;
        memcpy(s->out + s->at, signature.bytes, signature.length);
        s->at += signature.length;
    }
    for (size_t i = 0; i < count; i++) {
        cprof_snapshot_layout_pass_buckets(s, &shapes->items[i].buckets);
    }
}

/* ---- Reading what may come from anywhere */

/* Whether the stream holds what the heads of `count` items, which it does hold, say. What they need room for. */
static bool measure(const stream *s, size_t count, shapes_room *room)
{
    stream ahead = *s;
    *room = (shapes_room){.count = count};
    for (size_t i = 0; i < count; i++) {
        cprof_snapshot_shape_head head;
        cprof_snapshot_layout_pass_shape_head(&ahead, &head);
        room->text += head.length;
        room->filled += head.filled;
    }
    return room->text + room->filled * BUCKET_BYTES <= ahead.end - ahead.at;
}

static const char *item_fault(const cprof_shape_copy *item, const cprof_shape_copy *previous)
{
    const cprof_shape_figures *f = &item->figures;
    uint64_t any = f->count | f->error_count | f->cancelled_count;
    if (!cprof_snapshot_key_name_is_legal(item->signature)) {
        return "a signature that is too long or no UTF-8";
    }
    if (previous != NULL && cprof_snapshot_key_compare_name(previous->signature, item->signature) >= 0) {
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
static const char *sum_fault(const shapes_table *table, const cprof_figures *figures)
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

static const char *table_fault(const shapes_table *table, const cprof_figures *figures)
{
    const char *reason = NULL;
    for (size_t i = 0; reason == NULL && i < table->view.count; i++) {
        reason = item_fault(&table->items[i], i > 0 ? &table->items[i - 1] : NULL);
    }
    return reason == NULL ? sum_fault(table, figures) : reason;
}

static void read_items(stream *s, shapes_builder *builder, size_t count)
{
    stream texts = *s;
    texts.at += count * HEAD_BYTES;
    for (size_t i = 0; i < count; i++) {
        cprof_snapshot_shape_head head;
        cprof_snapshot_layout_pass_shape_head(s, &head);
        cprof_shape_copy *item = begin_item(builder, (cprof_name){(const char *)texts.in + texts.at, head.length});
        item->figures = head.figures;
        item->buckets.filled = head.filled;
        finish_item(builder, item);
        texts.at += head.length;
    }
    s->at = texts.at;
    for (size_t i = 0; i < count; i++) {
        cprof_snapshot_layout_pass_buckets(s, &builder->table->items[i].buckets);
    }
}

cprof_status cprof_snapshot_shapes_read(cprof_snapshot_stream *s, const cprof_figures *figures, cprof_snapshot_shapes **shapes,
                                        const char **reason)
{
    uint64_t count = 0;
    shapes_room room;
    shapes_builder builder;
    if (s->end - s->at >= COUNT_BYTES) {
        cprof_snapshot_layout_pass(s, &count, COUNT_BYTES);
    }
    if (count == 0 || count > (s->end - s->at) / HEAD_BYTES || !measure(s, count, &room)) {
        *reason = "a number of signatures that points behind the end, or is 0";
        return CPROF_BAD_FORMAT;
    }
    if (!begin(&builder, &room)) {
        return CPROF_NO_MEMORY;
    }
    read_items(s, &builder, count);
    *reason = table_fault(builder.table, figures);
    if (*reason != NULL) {
        cprof_alloc_release(builder.table);
        return CPROF_BAD_FORMAT;
    }
    *shapes = builder.table;
    return CPROF_OK;
}
