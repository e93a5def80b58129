#include "cprofiling/trace/recording_rows.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cprof_names overflow = {{"", 0}, {"__overflow__", sizeof "__overflow__" - 1}};

static size_t bytes_of(cprof_names names)
{
    return names.stage.length + names.node.length;
}

static bool has_room(const cprof_labels *labels, cprof_names names)
{
    return labels->names.count < CPROF_RECORDING_MAX_LABELS &&
           labels->bytes + bytes_of(names) <= CPROF_RECORDING_MAX_LABEL_BYTES;
}

static uint32_t number_of(const cprof_labels *labels, cprof_names names)
{
    size_t index = cprof_names_find(&labels->names, names);
    return index != CPROF_NAMES_ABSENT ? (uint32_t)index + 1 : 0;
}

uint32_t cprof_labels_make(cprof_labels *labels, cprof_names names, bool may_overflow)
{
    uint32_t number = number_of(labels, names);
    if (number == 0 && !has_room(labels, names)) {
        if (!may_overflow) {
            return 0;
        }
        names = overflow;
        number = number_of(labels, names);
    }
    if (number == 0 && cprof_names_add(&labels->names, names) == CPROF_OK) {
        labels->bytes += bytes_of(names);
        number = (uint32_t)labels->names.count;
    }
    return number;
}

/* The number of a name, or, past the limits, of the label that stands for all further ones; 0: none yet. */
static uint32_t find_label(const cprof_labels *labels, cprof_names names)
{
    uint32_t number = number_of(labels, names);
    return number != 0 || has_room(labels, names) ? number : number_of(labels, overflow);
}

/* What all rows of one recording have in common while they are made. */
typedef struct {
    const cprof_recording_session *session;
    cprof_table *table;
    cprof_text cat_of[CPROF_KIND_STEP + 1];
    cprof_ns base_ns;
    cprof_text *texts; /* of labels: the name, then the stage; UINT32_MAX: not asked for yet */
    uint32_t *tracks;  /* of threads; UINT32_MAX likewise */
    int64_t *tids;     /* of threads */
    cprof_status status;
} collector;

static bool is_fine(collector *to, cprof_status status)
{
    to->status = to->status == CPROF_OK ? status : to->status;
    return to->status == CPROF_OK;
}

static cprof_ns moment_of(const collector *from, cprof_ticks ticks)
{
    return from->base_ns + cprof_clock_between(from->session->begin.ticks, ticks);
}

static uint64_t id_of(const collector *from, uint64_t number)
{
    return number != 0 ? cprof_hash_mix(from->session->seeds[1], number) : 0;
}

static void set_names(collector *to, uint32_t label, cprof_row *row)
{
    cprof_text *texts = &to->texts[2 * (size_t)(label - 1)];
    if (texts[0] == UINT32_MAX) {
        cprof_names names = cprof_names_at(&to->session->labels.names, label - 1);
        if (!is_fine(to, cprof_table_text(to->table, names.node, &texts[0])) ||
            !is_fine(to, cprof_table_text(to->table, names.stage, &texts[1]))) {
            texts[0] = UINT32_MAX;
            return;
        }
    }
    row->name = texts[0];
    row->stage = texts[1];
}

static cprof_text text_of(collector *to, uint32_t label)
{
    cprof_text text = 0;
    if (label != 0) {
        (void)is_fine(to, cprof_table_text(to->table, cprof_names_at(&to->session->labels.names, label - 1).node, &text));
    }
    return text;
}

static void set_track(collector *to, uint32_t thread, cprof_row *row)
{
    uint32_t *track = &to->tracks[thread - 1];
    if (*track == UINT32_MAX) {
        if (!is_fine(to, cprof_table_track(to->table, getpid(), 0, to->tids[thread - 1], 0, track))) {
            *track = UINT32_MAX;
            return;
        }
        cprof_track *made = &to->table->tracks[*track];
        made->thread_name = text_of(to, to->session->threads[thread - 1].name);
        made->thread_sort = made->tid == made->pid ? 0 : made->tid; /* the main thread is the first */
    }
    row->track = *track;
}

static void set_detail(collector *to, const struct cprof_recording_detail *detail, cprof_row *row)
{
    row->shapes = text_of(to, detail->shapes);
    row->types = text_of(to, detail->types);
    row->stack = text_of(to, detail->stack);
    if ((row->flags & CPROF_ROW_UNFINISHED) != 0) {
        return; /* the memory is still that at the start */
    }
    row->memory_change = detail->memory.memory;
    row->memory_peak = detail->memory.memory_peak;
    row->device_memory_change = detail->memory.device_memory;
    row->device_memory_peak = detail->memory.device_memory_peak;
}

/* The memory in use when a span ended, for a curve over time. */
static void add_counter(collector *to, const cprof_row *of, const char *name, int64_t in_use)
{
    char json[40];
    cprof_row row = cprof_row_none;
    if (in_use == CPROF_TABLE_UNKNOWN || to->status != CPROF_OK) {
        return;
    }
    row.start_ns = row.end_ns = of->end_ns;
    row.kind = CPROF_KIND_COUNTER;
    row.track = of->track;
    row.args_length = (uint32_t)snprintf(json, sizeof json, "{\"bytes\":%" PRId64 "}", in_use);
    if (is_fine(to, cprof_table_text(to->table, cprof_name_of(name), &row.name)) &&
        is_fine(to, cprof_table_keep(to->table, (cprof_name){json, row.args_length}, &row.args_at))) {
        (void)is_fine(to, cprof_table_add(to->table, &row));
    }
}

static void add_row(collector *to, const cprof_ring_event *event, const struct cprof_recording_detail *detail)
{
    if (to->status != CPROF_OK) {
        return;
    }
    cprof_row row = cprof_row_none;
    row.start_ns = moment_of(to, event->start);
    row.end_ns = moment_of(to, event->stop > event->start ? event->stop : event->start);
    row.trace_high = cprof_hash_mix(to->session->seeds[0], 0);
    row.trace_low = cprof_hash_mix(to->session->seeds[0], event->root);
    row.span = id_of(to, event->span);
    row.parent_span = id_of(to, event->parent);
    row.kind = event->kind;
    row.cat = to->cat_of[event->kind];
    row.outcome = event->outcome;
    row.flags = event->flags;
    row.suspended_ns = cprof_clock_between(0, event->suspended);
    set_names(to, event->label, &row);
    set_track(to, event->thread, &row);
    if (detail != NULL) {
        set_detail(to, detail, &row);
    }
    if (to->status == CPROF_OK) {
        (void)is_fine(to, cprof_table_add(to->table, &row));
    }
    if (detail != NULL) {
        add_counter(to, &row, "resident memory", detail->in_use);
        add_counter(to, &row, "device memory", detail->device_in_use);
    }
}

static void add_chunk_rows(collector *to, const cprof_ring_chunk *from, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        add_row(to, &from->events[i], from->details != NULL ? &from->details[i] : NULL);
    }
}

/* Oldest first; chunks are freed on the way, so that ring and table are never there together. */
static void collect_ring(collector *to, struct cprof_ring *ring)
{
    uint64_t places = 0;
    for (size_t i = 0; i < ring->chunk_count; i++) {
        places += ring->chunks[i].size;
    }
    bool wrapped = ring->written > places;
    to->table->dropped += ring->refused + (wrapped ? ring->written - places : 0);
    size_t used = ring->chunk_count == 0 ? 0 : (size_t)(ring->at - ring->chunks[ring->current].events);
    if (wrapped) {
        add_chunk_rows(to, &ring->chunks[ring->current], used, ring->chunks[ring->current].size);
    }
    for (size_t i = 1; i < ring->chunk_count; i++) {
        size_t index = (ring->current + i) % ring->chunk_count;
        if (wrapped || index < ring->current) {
            add_chunk_rows(to, &ring->chunks[index], 0, ring->chunks[index].size);
            cprof_ring_free_chunk(&ring->chunks[index]);
            ring->chunks[index] = (cprof_ring_chunk){.events = NULL};
        }
    }
    if (ring->chunk_count > 0) {
        add_chunk_rows(to, &ring->chunks[ring->current], 0, used);
    }
}

/* A step goes on to the next, the last one to the end. */
static void collect_steps(collector *to, cprof_ticks stop)
{
    const cprof_recording_session *session = to->session;
    for (size_t i = 0; i < session->step_count; i++) {
        const cprof_recording_begun_step *from = &session->steps[i];
        cprof_ring_event event = {
            .start = from->start,
            .stop = i + 1 < session->step_count ? from[1].start : stop,
            .span = from->span,
            .root = from->span,
            .label = from->label,
            .thread = from->thread,
            .kind = CPROF_KIND_STEP,
        };
        add_row(to, &event, NULL);
    }
}

typedef struct {
    collector *to;
    cprof_ticks stop;
} open_spans;

/* A span that is open when the recording ends is as long as that. */
static void collect_open(void *context, cprof_span *span)
{
    open_spans *from = context;
    collector *to = from->to;
    if (span->trace == 0 || span->trace == CPROF_RECORDING_MUTED || span->trace_serial != to->session->serial) {
        return;
    }
    uint32_t label = span->label;
    if (span->accum != NULL) {
        label = find_label(&to->session->labels, cprof_registry_names(span->accum));
    }
    if (label == 0) { /* there was no memory for it */
        to->table->dropped++;
        return;
    }
    cprof_ring_event event = {
        .start = span->start,
        .stop = from->stop,
        .span = span->trace,
        .parent = span->trace_parent,
        .root = span->trace_root,
        .label = label,
        .thread = (uint32_t)(span->trace >> CPROF_RECORDING_NUMBER_SHIFT),
        .kind = span->accum != NULL ? CPROF_KIND_NODE : CPROF_KIND_RECORD,
        .flags = CPROF_ROW_UNFINISHED,
    };
    const cprof_resumable *call = cprof_resumable_of(span);
    if (call != NULL) {
        event.suspended = cprof_resumable_suspended(call, from->stop);
        event.flags |= CPROF_ROW_SUSPENDABLE;
    }
    add_row(to, &event, span->detail);
}

static int in_order(const void *left, const void *right)
{
    uint64_t one = *(const uint64_t *)left, other = *(const uint64_t *)right;
    return (one > other) - (one < other);
}

/* Tells threads apart that had one number of the kernel in turn: the later ones get higher numbers than it gives. */
static bool number_threads(collector *to)
{
    size_t count = to->session->thread_count;
    uint64_t *order = cprof_alloc_zeroed(count * sizeof *order + 1);
    to->tids = cprof_alloc_zeroed(count * sizeof *to->tids + 1);
    if (order == NULL || to->tids == NULL) {
        cprof_alloc_release(order);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        order[i] = (uint64_t)to->session->threads[i].tid << 32 | i;
    }
    qsort(order, count, sizeof *order, in_order);
    for (size_t i = 0; i < count; i++) {
        bool is_again = i > 0 && order[i] >> 32 == order[i - 1] >> 32;
        int64_t tid = is_again ? to->tids[(uint32_t)order[i - 1]] + CPROF_RECORDING_MOST_TIDS : (int64_t)(order[i] >> 32);
        to->tids[(uint32_t)order[i]] = tid;
    }
    cprof_alloc_release(order);
    return true;
}

static bool prepare(collector *to)
{
    const cprof_recording_session *session = to->session;
    size_t text_bytes = 2 * session->labels.names.count * sizeof *to->texts;
    size_t track_bytes = session->thread_count * sizeof *to->tracks;
    to->texts = cprof_alloc_zeroed(text_bytes + 1);
    to->tracks = cprof_alloc_zeroed(track_bytes + 1);
    if (to->texts == NULL || to->tracks == NULL || !number_threads(to)) {
        to->status = CPROF_NO_MEMORY;
        return false;
    }
    memset(to->texts, 0xff, text_bytes);
    memset(to->tracks, 0xff, track_bytes);
    bool fine = is_fine(to, cprof_table_text(to->table, cprof_name_of("cpu_op"), &to->cat_of[CPROF_KIND_NODE])) &&
                is_fine(to, cprof_table_text(to->table, cprof_name_of("user_annotation"), &to->cat_of[CPROF_KIND_RECORD]));
    to->cat_of[CPROF_KIND_STEP] = to->cat_of[CPROF_KIND_RECORD];
    return fine;
}

/* The keys of spans that are still open may not have a label yet. */
static void label_open(void *context, cprof_span *span)
{
    cprof_recording_session *session = context;
    if (span->trace != 0 && span->trace_serial == session->serial && span->accum != NULL) {
        (void)cprof_labels_make(&session->labels, cprof_registry_names(span->accum), true);
    }
}

cprof_status cprof_recording_rows(cprof_recording_session *session, cprof_table *table, cprof_ticks stop, bool with_open)
{
    collector to = {.session = session, .table = table, .base_ns = session->begin.ns + session->since_epoch};
    if (with_open) {
        cprof_span_visit_all(label_open, session);
    }
    if (prepare(&to)) {
        for (struct cprof_ring *ring = session->rings; ring != NULL; ring = ring->next) {
            collect_ring(&to, ring);
        }
        collect_steps(&to, stop);
        open_spans open = {&to, stop};
        if (with_open) {
            cprof_span_visit_all(collect_open, &open);
        }
    }
    cprof_alloc_release(to.texts);
    cprof_alloc_release(to.tracks);
    cprof_alloc_release(to.tids);
    return to.status;
}
