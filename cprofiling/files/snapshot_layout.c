#include "cprofiling/files/snapshot_layout.h"

#include <string.h>

typedef cprof_snapshot_stream stream;

void cprof_snapshot_layout_pass(stream *s, uint64_t *value, unsigned width)
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

static void pass_u16(stream *s, uint64_t *value)
{
    cprof_snapshot_layout_pass(s, value, 2);
}

static void pass_u64(stream *s, uint64_t *value)
{
    cprof_snapshot_layout_pass(s, value, 8);
}

static void pass_double(stream *s, double *value)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    pass_u64(s, &bits);
    if (s->out == NULL) {
        memcpy(value, &bits, sizeof bits);
    }
}

static void pass_i64(stream *s, int64_t *value)
{
    uint64_t bits = (uint64_t)*value;
    pass_u64(s, &bits);
    if (s->out == NULL) {
        *value = (int64_t)bits;
    }
}

static void pass_u128(stream *s, cprof_u128 *value)
{
    uint64_t low = (uint64_t)*value;
    uint64_t high = (uint64_t)(*value >> 64);
    pass_u64(s, &low);
    pass_u64(s, &high);
    if (s->out == NULL) {
        *value = (cprof_u128)high << 64 | low;
    }
}

static void pass_i128(stream *s, cprof_i128 *value)
{
    cprof_u128 bits = (cprof_u128)*value;
    pass_u128(s, &bits);
    if (s->out == NULL) {
        *value = (cprof_i128)bits;
    }
}

void cprof_snapshot_layout_pass_header(stream *s, cprof_snapshot_header *head, cprof_snapshot *snapshot)
{
    cprof_snapshot_layout_pass(s, &head->version, 4);
    cprof_snapshot_layout_pass(s, &head->flags, 4);
    pass_u64(s, &head->length);
    pass_u64(s, &snapshot->skip_least);
    pass_u64(s, &snapshot->skip_most);
    pass_u64(s, &snapshot->internal_errors);
    pass_double(s, &snapshot->cost_ns);
    pass_u64(s, &head->source_count);
    pass_u64(s, &head->note_count);
    pass_u64(s, &head->key_count);
}

void cprof_snapshot_layout_pass_source(stream *s, cprof_snapshot_source *source)
{
    for (size_t i = 0; i < sizeof source->id; i++) {
        uint64_t byte = source->id[i];
        cprof_snapshot_layout_pass(s, &byte, 1);
        if (s->out == NULL) {
            source->id[i] = (uint8_t)byte;
        }
    }
    pass_u64(s, &source->generation);
}

static void pass_figures(stream *s, cprof_figures *figures)
{
    pass_u64(s, &figures->count);
    pass_u64(s, &figures->error_count);
    pass_u64(s, &figures->cancelled_count);
    pass_u64(s, &figures->skipped_count);
    pass_u64(s, &figures->dropped_count);
    pass_u64(s, &figures->self_unknown);
    pass_u64(s, &figures->active_unknown);
    pass_u64(s, &figures->histogram_lost);
    pass_double(s, &figures->min_ms);
    pass_double(s, &figures->max_ms);
    pass_double(s, &figures->last_ms);
    pass_double(s, &figures->first_ms);
    pass_double(s, &figures->median_ms);
    pass_u128(s, &figures->moments.total_ns);
    pass_u128(s, &figures->moments.squares_ns2);
    pass_u64(s, &figures->moments.squares_top);
    pass_u128(s, &figures->nested_ns);
    pass_u128(s, &figures->suspended_ns);
}

void cprof_snapshot_layout_pass_key_fields(stream *s, cprof_snapshot_key_fields *fields)
{
    pass_u16(s, &fields->stage_length);
    pass_u16(s, &fields->node_length);
    pass_u16(s, &fields->filled);
    pass_u16(s, &fields->flags);
    pass_u64(s, &fields->place);
    pass_u64(s, &fields->last_taken_ns);
    pass_figures(s, &fields->figures);
}

void cprof_snapshot_layout_pass_buckets(stream *s, const cprof_buckets *buckets)
{
    for (size_t i = 0; i < buckets->filled; i++) {
        uint64_t index = buckets->indices[i];
        pass_u16(s, &index);
        if (s->out == NULL) {
            buckets->indices[i] = (uint16_t)index;
        }
    }
    for (size_t i = 0; i < buckets->filled; i++) {
        pass_u64(s, &buckets->counts[i]);
    }
}

void cprof_snapshot_layout_pass_key_tail(stream *s, cprof_snapshot_key *key)
{
    for (int i = 0; key->sums != NULL && i < CPROF_SNAPSHOT_KEY_WORDS; i++) {
        pass_u64(s, &key->sums->total[i]);
    }
    for (int i = 0; key->sums != NULL && i < CPROF_SNAPSHOT_KEY_WORDS; i++) {
        pass_u64(s, &key->sums->squares[i]);
    }
    cprof_snapshot_layout_pass_buckets(s, &key->buckets);
}

void cprof_snapshot_layout_pass_extra_head(stream *s, cprof_snapshot_resources_head *head)
{
    pass_u16(s, &head->causes);
    pass_u16(s, &head->counters);
    pass_u16(s, &head->filled);
    pass_u16(s, &head->asked);
}

static void pass_gpu(stream *s, cprof_resources_figures *figures)
{
    pass_u64(s, &figures->gpu_count);
    pass_u128(s, &figures->gpu_ns);
    pass_u64(s, &figures->gpu_min_ns);
    pass_u64(s, &figures->gpu_max_ns);
    pass_u64(s, &figures->gpu_lost);
    pass_u64(s, &figures->queue_count);
    pass_u128(s, &figures->queue_ns);
    pass_u64(s, &figures->multi_stream);
    for (int i = 0; i < CPROF_GPU_CAUSES; i++) {
        pass_u64(s, &figures->missed[i]);
    }
}

static void pass_launches(stream *s, cprof_launch_counts *launched)
{
#define PASS(name) pass_u64(s, &launched->name);
    CPROF_LAUNCH_COUNTS(PASS)
#undef PASS
}

static void pass_counters(stream *s, cprof_resources_figures *figures)
{
    for (int i = 0; i < CPROF_COUNTER_COUNT; i++) {
        pass_u64(s, &figures->counted[i]);
        pass_u128(s, &figures->counters[i]);
    }
    pass_u64(s, &figures->estimated);
}

static void pass_memory(stream *s, cprof_resources_memory *figures, cprof_snapshot_memory *memory)
{
    pass_u64(s, &memory->taken_ns);
    pass_u64(s, &figures->calls);
    pass_i64(s, &figures->entry);
    pass_i64(s, &figures->exit);
    pass_i128(s, &memory->change);
    pass_i64(s, &figures->peak);
}

void cprof_snapshot_layout_pass_extra(stream *s, cprof_snapshot_resources *extra)
{
    cprof_resources_figures *figures = &extra->figures;
    pass_gpu(s, figures);
    pass_launches(s, &figures->launched);
    pass_counters(s, figures);
    pass_memory(s, &figures->device_memory, &extra->device_memory);
    pass_memory(s, &figures->host_memory, &extra->host_memory);
    pass_u64(s, &figures->waits);
    pass_u128(s, &figures->wait_ns);
    cprof_snapshot_layout_pass_buckets(s, &extra->gpu_buckets);
}

void cprof_snapshot_layout_pass_shape_head(stream *s, cprof_snapshot_shape_head *head)
{
    cprof_shape_figures *figures = &head->figures;
    pass_u16(s, &head->length);
    pass_u16(s, &head->filled);
    pass_u64(s, &figures->count);
    pass_u64(s, &figures->error_count);
    pass_u64(s, &figures->cancelled_count);
    pass_u64(s, &figures->lost);
    pass_u64(s, &figures->least_ns);
    pass_u64(s, &figures->most_ns);
    pass_u128(s, &figures->total_ns);
}
