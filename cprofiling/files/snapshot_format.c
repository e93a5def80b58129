#include "cprofiling/files/snapshot.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/bytes.h"
#include "cprofiling/base/checksum.h"
#include "cprofiling/files/snapshot_merge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FLAG_MERGED = 1,     /* of a snapshot */
    FLAG_FRACTIONAL = 1, /* of a key */
    FLAG_EXTRA = 2,
    FLAG_SHAPES = 4,
    FLAGS = FLAG_FRACTIONAL | FLAG_EXTRA | FLAG_SHAPES,
    MAGIC_BYTES = 8,
    HEADER_BYTES = MAGIC_BYTES + 2 * 4 + 8 * 8,
    SOURCE_BYTES = CPROF_REGISTRY_ID_BYTES + 8,
    NOTE_BYTES = 2,             /* and its text */
    KEY_BYTES = 4 * 2 + 24 * 8, /* and its names, sums, buckets, and figures beyond times */
    BUCKET_BYTES = 2 + 8,
    EXTRA_HEAD_BYTES = 4 * 2,
    EXTRA_BYTES = EXTRA_HEAD_BYTES + (36 + CPROF_GPU_CAUSES + 3 * CPROF_COUNTER_COUNT) * 8, /* and its buckets */
    SHAPE_BYTES = 2 * 2 + 8 * 8,                                                            /* and its signature and buckets */
    COUNT_BYTES = 4,                                                                        /* of signatures */
    CHECKSUM_BYTES = 8,
};

static const char magic[MAGIC_BYTES] = {'C', 'P', 'R', 'O', 'F', 'S', 'N', 'P'};

typedef struct {
    uint8_t *out;      /* where to write; NULL: read instead, */
    const uint8_t *in; /* from here */
    size_t at;
    size_t end; /* of what there is to read */
    cprof_snapshot_fault *fault;
} stream;

/* What stands before the sources. */
typedef struct {
    uint64_t version;
    uint64_t flags;
    uint64_t length;
    uint64_t source_count;
    uint64_t note_count;
    uint64_t key_count;
} header;

/* What stands before a key's names. */
typedef struct {
    uint64_t stage_length;
    uint64_t node_length;
    uint64_t filled;
    uint64_t flags;
    uint64_t place;
    uint64_t last_taken_ns;
    cprof_figures figures;
} key_fields;

/* What stands before a key's figures beyond times. */
typedef struct {
    uint64_t causes;
    uint64_t counters;
    uint64_t filled;
    uint64_t asked;
} resources_head;

/* What stands before a key's signatures, for each of them. */
typedef struct {
    uint64_t length;
    uint64_t filled;
    cprof_shape_figures figures;
} shape_head;

/* ---- The layout, written down once for both directions: each function writes what it is given to where the stream stands, or
 * sets it to what is read there, and moves the stream on. The caller checks that enough bytes are left.
 */

static void pass(stream *s, uint64_t *value, unsigned width)
{
    if (s->out != NULL) {
        cprof_bytes_store(s->out + s->at, *value, width);
    } else {
        *value = cprof_bytes_load(s->in + s->at, width);
    }
    s->at += width;
}

/* Numbers of 16 bits. */
static void pass_small(stream *s, uint64_t *const *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pass(s, values[i], 2);
    }
}

/* Numbers of 64 bits of any kind. */
static void pass_words(stream *s, void *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, words[i], sizeof word);
        pass(s, &word, sizeof word);
        if (s->out == NULL) {
            memcpy(words[i], &word, sizeof word);
        }
    }
}

#define ARRAY_OF(type, ...) (type[]){__VA_ARGS__}, sizeof((type[]){__VA_ARGS__}) / sizeof(type)
#define PASS_SMALL(s, ...) pass_small(s, ARRAY_OF(uint64_t *const, __VA_ARGS__))
#define PASS(s, ...) pass_words(s, ARRAY_OF(void *const, __VA_ARGS__))

static void pass_run(stream *s, uint64_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pass(s, &words[i], sizeof *words);
    }
}

/* A number of 128 bits of any kind. */
static void pass_wide(stream *s, void *value)
{
    cprof_u128 bits;
    memcpy(&bits, value, sizeof bits);
    uint64_t low = (uint64_t)bits;
    uint64_t high = (uint64_t)(bits >> 64);
    PASS(s, &low, &high);
    if (s->out == NULL) {
        bits = (cprof_u128)high << 64 | low;
        memcpy(value, &bits, sizeof bits);
    }
}

static void pass_header(stream *s, header *head, cprof_snapshot *snapshot)
{
    pass(s, &head->version, 4);
    pass(s, &head->flags, 4);
    PASS(s, &head->length, &snapshot->skip_least, &snapshot->skip_most, &snapshot->internal_errors, &snapshot->cost_ns,
         &head->source_count, &head->note_count, &head->key_count);
}

static void pass_source(stream *s, cprof_snapshot_source *source)
{
    for (size_t i = 0; i < sizeof source->id; i++) {
        uint64_t byte = source->id[i];
        pass(s, &byte, 1);
        if (s->out == NULL) {
            source->id[i] = (uint8_t)byte;
        }
    }
    PASS(s, &source->generation);
}

static void pass_key_fields(stream *s, key_fields *fields)
{
    cprof_figures *figures = &fields->figures;
    PASS_SMALL(s, &fields->stage_length, &fields->node_length, &fields->filled, &fields->flags);
    PASS(s, &fields->place, &fields->last_taken_ns);
    PASS(s, &figures->count, &figures->error_count, &figures->cancelled_count, &figures->skipped_count, &figures->dropped_count,
         &figures->self_unknown, &figures->active_unknown, &figures->histogram_lost, &figures->min_ms, &figures->max_ms,
         &figures->last_ms, &figures->first_ms, &figures->median_ms);
    pass_wide(s, &figures->moments.total_ns);
    pass_wide(s, &figures->moments.squares_ns2);
    PASS(s, &figures->moments.squares_top);
    pass_wide(s, &figures->nested_ns);
    pass_wide(s, &figures->suspended_ns);
}

static void pass_buckets(stream *s, const cprof_buckets *buckets)
{
    for (size_t i = 0; i < buckets->filled; i++) {
        uint64_t index = buckets->indices[i];
        PASS_SMALL(s, &index);
        if (s->out == NULL) {
            buckets->indices[i] = (uint16_t)index;
        }
    }
    pass_run(s, buckets->counts, buckets->filled);
}

static void pass_sums_and_buckets(stream *s, cprof_snapshot_key *key)
{
    if (key->sums != NULL) {
        pass_run(s, key->sums->total, CPROF_SNAPSHOT_KEY_WORDS);
        pass_run(s, key->sums->squares, CPROF_SNAPSHOT_KEY_WORDS);
    }
    pass_buckets(s, &key->buckets);
}

static void pass_extra_head(stream *s, resources_head *head)
{
    PASS_SMALL(s, &head->causes, &head->counters, &head->filled, &head->asked);
}

static void pass_memory(stream *s, cprof_resources_memory *figures, cprof_snapshot_memory *memory)
{
    PASS(s, &memory->taken_ns, &figures->calls, &figures->entry, &figures->exit);
    pass_wide(s, &memory->change);
    PASS(s, &figures->peak);
}

static void pass_extra(stream *s, cprof_snapshot_resources *extra)
{
    cprof_resources_figures *figures = &extra->figures;
    PASS(s, &figures->gpu_count);
    pass_wide(s, &figures->gpu_ns);
    PASS(s, &figures->gpu_min_ns, &figures->gpu_max_ns, &figures->gpu_lost, &figures->queue_count);
    pass_wide(s, &figures->queue_ns);
    PASS(s, &figures->multi_stream);
    pass_run(s, figures->missed, CPROF_GPU_CAUSES);
#define PASS_LAUNCHES(name) PASS(s, &figures->launched.name);
    CPROF_LAUNCH_COUNTS(PASS_LAUNCHES)
#undef PASS_LAUNCHES
    for (int i = 0; i < CPROF_COUNTER_COUNT; i++) {
        PASS(s, &figures->counted[i]);
        pass_wide(s, &figures->counters[i]);
    }
    PASS(s, &figures->estimated);
    pass_memory(s, &figures->device_memory, &extra->device_memory);
    pass_memory(s, &figures->host_memory, &extra->host_memory);
    PASS(s, &figures->waits);
    pass_wide(s, &figures->wait_ns);
    pass_buckets(s, &extra->gpu_buckets);
}

static void pass_shape_head(stream *s, shape_head *head)
{
    cprof_shape_figures *figures = &head->figures;
    PASS_SMALL(s, &head->length, &head->filled);
    PASS(s, &figures->count, &figures->error_count, &figures->cancelled_count, &figures->lost, &figures->least_ns,
         &figures->most_ns);
    pass_wide(s, &figures->total_ns);
}

/* ---- Writing, and reading what may come from anywhere */

static void write_bytes(stream *s, const void *bytes, size_t length)
{
    memcpy(s->out + s->at, bytes, length);
    s->at += length;
}

static size_t shapes_size(const cprof_snapshot_shapes *shapes)
{
    size_t size = COUNT_BYTES;
    for (size_t i = 0; i < shapes->view.count; i++) {
        const cprof_shape_copy *item = &shapes->items[i];
        size += SHAPE_BYTES + item->signature.length + item->buckets.filled * BUCKET_BYTES;
    }
    return size;
}

static void write_shapes(stream *s, const cprof_snapshot_shapes *shapes)
{
    uint64_t count = shapes->view.count;
    pass(s, &count, COUNT_BYTES);
    for (size_t i = 0; i < count; i++) {
        const cprof_shape_copy *item = &shapes->items[i];
        shape_head head = {item->signature.length, item->buckets.filled, item->figures};
        pass_shape_head(s, &head);
    }
    for (size_t i = 0; i < count; i++) {
        cprof_name signature = shapes->items[i].signature;
        memcpy(s->out + s->at, signature.bytes, signature.length);
        s->at += signature.length;
    }
    for (size_t i = 0; i < count; i++) {
        pass_buckets(s, &shapes->items[i].buckets);
    }
}

/* Whether the stream holds what the heads of `count` items, which it does hold, say. What they need room for. */
static bool measure(const stream *s, size_t count, cprof_snapshot_shapes_room *room)
{
    stream ahead = *s;
    *room = (cprof_snapshot_shapes_room){.count = count};
    for (size_t i = 0; i < count; i++) {
        shape_head head = {.length = 0};
        pass_shape_head(&ahead, &head);
        room->text += head.length;
        room->filled += head.filled;
    }
    return room->text + room->filled * BUCKET_BYTES <= ahead.end - ahead.at;
}

static void read_items(stream *s, cprof_snapshot_shapes_builder *builder, size_t count)
{
    stream texts = *s;
    texts.at += count * SHAPE_BYTES;
    for (size_t i = 0; i < count; i++) {
        shape_head head = {.length = 0};
        pass_shape_head(s, &head);
        cprof_shape_copy *item =
            cprof_snapshot_shapes_begin_item(builder, (cprof_name){(const char *)texts.in + texts.at, head.length});
        item->figures = head.figures;
        item->buckets.filled = head.filled;
        cprof_snapshot_shapes_finish_item(builder, item);
        texts.at += head.length;
    }
    s->at = texts.at;
    for (size_t i = 0; i < count; i++) {
        pass_buckets(s, &builder->table->items[i].buckets);
    }
}

static cprof_status read_table(stream *s, const cprof_figures *figures, cprof_snapshot_shapes **shapes, const char **reason)
{
    uint64_t count = 0;
    cprof_snapshot_shapes_room room;
    cprof_snapshot_shapes_builder builder;
    if (s->end - s->at >= COUNT_BYTES) {
        pass(s, &count, COUNT_BYTES);
    }
    if (count == 0 || count > (s->end - s->at) / SHAPE_BYTES || !measure(s, count, &room)) {
        *reason = "a number of signatures that points behind the end, or is 0";
        return CPROF_BAD_FORMAT;
    }
    if (!cprof_snapshot_shapes_begin(&builder, &room)) {
        return CPROF_NO_MEMORY;
    }
    read_items(s, &builder, count);
    *reason = cprof_snapshot_shapes_fault(builder.table, figures);
    if (*reason != NULL) {
        cprof_alloc_release(builder.table);
        return CPROF_BAD_FORMAT;
    }
    *shapes = builder.table;
    return CPROF_OK;
}

static size_t key_size(const cprof_snapshot_key *key)
{
    size_t sum_bytes = key->sums != NULL ? sizeof *key->sums : 0;
    size_t extra_bytes = key->extra != NULL ? EXTRA_BYTES + key->extra->gpu_buckets.filled * BUCKET_BYTES : 0;
    size_t shape_bytes = key->shapes != NULL ? shapes_size(key->shapes) : 0;
    return KEY_BYTES + key->names.stage.length + key->names.node.length + sum_bytes + key->buckets.filled * BUCKET_BYTES +
           extra_bytes + shape_bytes;
}

size_t cprof_snapshot_size(const cprof_snapshot *snapshot)
{
    size_t size = HEADER_BYTES + snapshot->source_count * SOURCE_BYTES + snapshot->note_bytes + CHECKSUM_BYTES;
    for (size_t i = 0; i < snapshot->key_count; i++) {
        size += key_size(snapshot->keys[i]);
    }
    return size;
}

static void write_key(stream *s, cprof_snapshot_key *key)
{
    key_fields fields = {
        .stage_length = key->names.stage.length,
        .node_length = key->names.node.length,
        .filled = key->buckets.filled,
        .flags = (key->sums != NULL ? FLAG_FRACTIONAL : 0u) | (key->extra != NULL ? FLAG_EXTRA : 0u) |
                 (key->shapes != NULL ? FLAG_SHAPES : 0u),
        .place = key->place,
        .last_taken_ns = key->last_taken_ns,
        .figures = key->figures,
    };
    pass_key_fields(s, &fields);
    write_bytes(s, key->names.stage.bytes, key->names.stage.length);
    write_bytes(s, key->names.node.bytes, key->names.node.length);
    pass_sums_and_buckets(s, key);
    if (key->extra != NULL) {
        resources_head head = {CPROF_GPU_CAUSES, CPROF_COUNTER_COUNT, key->extra->gpu_buckets.filled,
                               key->extra->figures.asked};
        pass_extra_head(s, &head);
        pass_extra(s, key->extra);
    }
    if (key->shapes != NULL) {
        write_shapes(s, key->shapes);
    }
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
    uint64_t crc = cprof_checksum(bytes, s.at);
    pass(&s, &crc, CHECKSUM_BYTES);
}

static cprof_status refuse(const stream *s, size_t offset, const char *reason)
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

/* Refuses all bytes that are not those of one snapshot of a known version, unchanged. */
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
    uint64_t crc = 0;
    stream tail = {.in = s->in, .at = s->end};
    pass(&tail, &crc, CHECKSUM_BYTES);
    return crc == cprof_checksum(s->in, s->end) ? CPROF_OK : refuse(s, s->end, "changed bytes: wrong checksum");
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
    if (snapshot->skip_most >= CPROF_SNAPSHOT_KEY_COUNT_LIMIT || snapshot->internal_errors >= CPROF_SNAPSHOT_KEY_COUNT_LIMIT) {
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
    snapshot->sources = cprof_snapshot_key_table(count, sizeof *snapshot->sources);
    if (snapshot->sources == NULL) {
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        pass_source(s, &snapshot->sources[i]);
        if (i > 0 && cprof_snapshot_compare_sources(&snapshot->sources[i - 1], &snapshot->sources[i]) >= 0) {
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
    if (!cprof_name_is_legal(*note)) {
        return refuse(s, begin, "a note that is too long or no UTF-8");
    }
    return previous.bytes == NULL || cprof_name_compare(previous, *note) < 0 ? CPROF_OK
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
    snapshot->notes = cprof_snapshot_key_table(s->at - begin, 1);
    if (snapshot->notes == NULL) {
        return CPROF_NO_MEMORY;
    }
    memcpy(snapshot->notes, s->in + begin, s->at - begin);
    snapshot->note_bytes = s->at - begin;
    snapshot->note_count = count;
    return CPROF_OK;
}

static const char *order_fault(const cprof_snapshot *snapshot, const cprof_snapshot_key *key)
{
    if (snapshot->key_count == 0) {
        return NULL;
    }
    int order = cprof_names_compare(snapshot->keys[snapshot->key_count - 1]->names, key->names);
    return order == 0 ? "the same key twice" : order > 0 ? "keys that do not ascend" : NULL;
}

/* The head of a key's figures beyond times, which begin at `begin`; the stream stays where it is. */
static cprof_status look_at_extra(const stream *s, size_t begin, resources_head *head)
{
    stream ahead = *s;
    ahead.at = begin;
    if (!can_hold(&ahead, 1, EXTRA_HEAD_BYTES)) {
        return refuse(s, begin, BEHIND_THE_END);
    }
    pass_extra_head(&ahead, head);
    if (head->causes != CPROF_GPU_CAUSES || head->counters != CPROF_COUNTER_COUNT) {
        return refuse(s, begin, "another number of causes or counters");
    }
    bool fits = can_hold(&ahead, EXTRA_BYTES - EXTRA_HEAD_BYTES + head->filled * BUCKET_BYTES, 1);
    return fits ? CPROF_OK : refuse(s, begin, BEHIND_THE_END);
}

/* The rest of a key that begins at `begin`, into the room that has been made for it. */
static cprof_status fill_key(stream *s, size_t begin, bool has_shapes, const cprof_snapshot *snapshot, cprof_snapshot_key *key)
{
    pass_sums_and_buckets(s, key);
    const char *reason = cprof_snapshot_key_fault(key, snapshot->is_merged);
    reason = reason == NULL ? order_fault(snapshot, key) : reason;
    if (reason == NULL && key->extra != NULL) {
        begin = s->at;
        s->at += EXTRA_HEAD_BYTES;
        pass_extra(s, key->extra);
        reason = cprof_snapshot_resources_fault(key->extra, snapshot->is_merged);
    }
    cprof_status status = reason == NULL ? CPROF_OK : CPROF_BAD_FORMAT;
    if (status == CPROF_OK && has_shapes) {
        begin = s->at;
        status = read_table(s, &key->figures, &key->shapes, &reason);
    }
    return status == CPROF_BAD_FORMAT ? refuse(s, begin, reason) : status;
}

static cprof_status read_key(stream *s, cprof_snapshot *snapshot)
{
    size_t begin = s->at;
    key_fields fields = {.filled = 0};
    resources_head extra = {.asked = 0};
    if (!can_hold(s, 1, KEY_BYTES)) {
        return refuse(s, begin, BEHIND_THE_END);
    }
    pass_key_fields(s, &fields);
    if ((fields.flags & ~(uint64_t)FLAGS) != 0) {
        return refuse(s, begin, "unknown flags");
    }
    bool is_fractional = (fields.flags & FLAG_FRACTIONAL) != 0;
    bool has_extra = (fields.flags & FLAG_EXTRA) != 0;
    size_t rest = fields.stage_length + fields.node_length + (is_fractional ? sizeof(cprof_snapshot_sums) : 0) +
                  fields.filled * BUCKET_BYTES;
    if (!can_hold(s, rest, 1)) {
        return refuse(s, begin, BEHIND_THE_END);
    }
    cprof_status status = has_extra ? look_at_extra(s, s->at + rest, &extra) : CPROF_OK;
    if (status != CPROF_OK) {
        return status;
    }
    cprof_name stage = take_name(s, fields.stage_length);
    cprof_name node = take_name(s, fields.node_length);
    if (!cprof_name_is_legal(stage) || !cprof_name_is_legal(node)) {
        return refuse(s, begin, "a name that is too long or no UTF-8");
    }
    cprof_snapshot_room room = {
        .filled = fields.filled, .gpu_filled = extra.filled, .is_fractional = is_fractional, .has_extra = has_extra};
    cprof_snapshot_key *key = cprof_snapshot_key_new((cprof_names){stage, node}, &room);
    if (key == NULL) {
        return CPROF_NO_MEMORY;
    }
    key->figures = fields.figures;
    key->place = fields.place;
    key->last_taken_ns = fields.last_taken_ns;
    if (has_extra) {
        key->extra->figures.asked = (unsigned)extra.asked;
    }
    status = fill_key(s, begin, (fields.flags & FLAG_SHAPES) != 0, snapshot, key);
    if (status != CPROF_OK) {
        cprof_snapshot_key_destroy(key);
        return status;
    }
    cprof_snapshot_key_complete(key);
    snapshot->keys[snapshot->key_count++] = key;
    return CPROF_OK;
}

static cprof_status read_keys(stream *s, const header *head, cprof_snapshot *snapshot)
{
    uint64_t count = head->key_count;
    if (!can_hold(s, count, KEY_BYTES)) {
        return refuse(s, s->at, BEHIND_THE_END);
    }
    snapshot->keys = cprof_snapshot_key_table(count, sizeof *snapshot->keys);
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
    header head = {.version = 0};
    cprof_status status = read_header(&s, &head, fresh);
    status = status == CPROF_OK ? read_sources(&s, head.source_count, fresh) : status;
    status = status == CPROF_OK ? read_notes(&s, head.note_count, fresh) : status;
    status = status == CPROF_OK ? read_keys(&s, &head, fresh) : status;
    if (status == CPROF_OK && s.at != s.end) {
        status = refuse(&s, s.at, "more bytes than the counts say");
    }
    status = status == CPROF_OK ? cprof_snapshot_put_in_order(fresh) : status;
    if (status != CPROF_OK) {
        cprof_snapshot_destroy(fresh);
        return status;
    }
    *snapshot = fresh;
    return CPROF_OK;
}