#include "cprofiling/files/snapshot.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/bytes.h"
#include "cprofiling/base/checksum.h"
#include "cprofiling/files/snapshot_merge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FLAG_MERGED = 1, /* of a snapshot, as the next; never both */
    FLAG_P2 = 2,
    FLAG_FRACTIONAL = 1, /* of a key */
    FLAG_EXTRA = 2,
    FLAG_SHAPES = 4,
    FLAGS = FLAG_FRACTIONAL | FLAG_EXTRA | FLAG_SHAPES,
    MAGIC_BYTES = 8,
    LENGTH_AT = MAGIC_BYTES + 2 * 4,
    HEADER_BYTES = LENGTH_AT + 8 * 8,
    SOURCE_BYTES = CPROF_REGISTRY_ID_BYTES + 8,
    NOTE_BYTES = 2, /* and its text */
    KEY_HEAD_BYTES = 4 * 2,
    KEY_BYTES = KEY_HEAD_BYTES + (24 + CPROF_FIGURES_EXACT) * 8, /* and its names, sums, buckets, and figures beyond times */
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

/* The numbers before the sources. */
typedef struct {
    uint64_t version;
    uint64_t flags;
    uint64_t length;
    uint64_t source_count;
    uint64_t note_count;
    uint64_t key_count;
} header;

/* ---- The layout, written down once for both directions: each function writes what it is given to where the stream stands, or
 * sets it to the bytes there, and moves the stream on. The caller checks that enough bytes are left.
 */

static inline void pass(stream *s, uint64_t *value, unsigned width)
{
    if (s->out != NULL) {
        cprof_bytes_store(s->out + s->at, *value, width);
    } else {
        *value = cprof_bytes_load(s->in + s->at, width);
    }
    s->at += width;
}

/* Bytes as they are, of numbers in particular; reading may find them in place already. */
static inline void pass_bytes(stream *s, void *bytes, size_t length)
{
    if (s->in != NULL) {
        memcpy(bytes, s->in + s->at, length);
    } else {
        memcpy(s->out + s->at, bytes, length);
    }
    s->at += length;
}

/* Numbers of 16 bits. */
static inline void pass_small(stream *s, uint64_t *const *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pass(s, values[i], 2);
    }
}

/* Numbers of 64 bits of any kind. */
static inline void pass_words(stream *s, void *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        pass_bytes(s, words[i], 8);
    }
}

#define ARRAY_OF(type, ...) (type[]){__VA_ARGS__}, sizeof((type[]){__VA_ARGS__}) / sizeof(type)
#define PASS_SMALL(s, ...) pass_small(s, ARRAY_OF(uint64_t *const, __VA_ARGS__))
#define PASS(s, ...) pass_words(s, ARRAY_OF(void *const, __VA_ARGS__))

/* A number of 128 bits of any kind. */
static inline void pass_wide(stream *s, void *value)
{
    pass_bytes(s, value, sizeof(cprof_u128));
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
    pass_bytes(s, source->id, sizeof source->id);
    PASS(s, &source->generation);
}

static void pass_buckets(stream *s, const cprof_buckets *buckets)
{
    pass_bytes(s, buckets->indices, buckets->filled * sizeof *buckets->indices);
    pass_bytes(s, buckets->counts, buckets->filled * sizeof *buckets->counts);
}

/* A key behind its head, but for the figures beyond times and by signature. */
static void pass_key(stream *s, cprof_snapshot_key *key)
{
    cprof_figures *figures = &key->figures;
    PASS(s, &key->place, &key->last_taken_ns);
    PASS(s, &figures->count, &figures->error_count, &figures->cancelled_count, &figures->skipped_count, &figures->dropped_count,
         &figures->self_unknown, &figures->active_unknown, &figures->histogram_lost, &figures->min_ms, &figures->max_ms,
         &figures->last_ms, &figures->first_ms, &figures->median_ms);
    pass_bytes(s, figures->exact_ms, sizeof figures->exact_ms);
    pass_wide(s, &figures->moments.total_ns);
    pass_wide(s, &figures->moments.squares_ns2);
    PASS(s, &figures->moments.squares_top);
    pass_wide(s, &figures->nested_ns);
    pass_wide(s, &figures->suspended_ns);
    pass_bytes(s, (char *)key->names.stage.bytes, key->names.stage.length);
    pass_bytes(s, (char *)key->names.node.bytes, key->names.node.length);
    if (key->sums != NULL) {
        pass_bytes(s, key->sums->total, sizeof key->sums->total);
        pass_bytes(s, key->sums->squares, sizeof key->sums->squares);
    }
    pass_buckets(s, &key->buckets);
}

static void pass_memory(stream *s, cprof_resources_memory *figures, cprof_snapshot_memory *memory)
{
    PASS(s, &memory->taken_ns, &figures->calls, &figures->entry, &figures->exit);
    pass_wide(s, &memory->change);
    PASS(s, &figures->peak);
}

/* The reader has seen the head: there is room for the buckets, and only `asked` is news. */
static void pass_extra(stream *s, cprof_snapshot_resources *extra)
{
    cprof_resources_figures *figures = &extra->figures;
    uint64_t causes = CPROF_GPU_CAUSES, counters = CPROF_COUNTER_COUNT, filled = extra->gpu_buckets.filled;
    uint64_t asked = figures->asked;
    PASS_SMALL(s, &causes, &counters, &filled, &asked);
    if (s->out == NULL) {
        figures->asked = (unsigned)asked;
    }
    PASS(s, &figures->gpu_count);
    pass_wide(s, &figures->gpu_ns);
    PASS(s, &figures->gpu_min_ns, &figures->gpu_max_ns, &figures->gpu_lost, &figures->queue_count);
    pass_wide(s, &figures->queue_ns);
    PASS(s, &figures->multi_stream);
    pass_bytes(s, figures->missed, sizeof figures->missed);
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

/* The figures of a signature; the lengths of its text and its buckets are set, too. */
static void pass_shape_head(stream *s, cprof_shape_copy *item)
{
    cprof_shape_figures *figures = &item->figures;
    uint64_t length = item->signature.length;
    uint64_t filled = item->buckets.filled;
    PASS_SMALL(s, &length, &filled);
    PASS(s, &figures->count, &figures->error_count, &figures->cancelled_count, &figures->lost, &figures->least_ns,
         &figures->most_ns);
    pass_wide(s, &figures->total_ns);
    if (s->out == NULL) {
        item->signature.length = length;
        item->buckets.filled = filled;
    }
}

/* ---- Writing, and reading what may come from anywhere */

static size_t key_size(const cprof_snapshot_key *key)
{
    const cprof_shapes_view *shapes = key->figures.shapes;
    size_t size = KEY_BYTES + key->names.stage.length + key->names.node.length + key->buckets.filled * BUCKET_BYTES;
    size += key->sums != NULL ? sizeof *key->sums : 0;
    size += key->extra != NULL ? EXTRA_BYTES + key->extra->gpu_buckets.filled * BUCKET_BYTES : 0;
    size += shapes != NULL ? COUNT_BYTES : 0;
    for (size_t i = 0; shapes != NULL && i < shapes->count; i++) {
        const cprof_shape_copy *item = &shapes->items[i];
        size += SHAPE_BYTES + item->signature.length + item->buckets.filled * BUCKET_BYTES;
    }
    return size;
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
    const cprof_shapes_view *shapes = key->figures.shapes;
    uint64_t lengths[] = {key->names.stage.length, key->names.node.length};
    uint64_t filled = key->buckets.filled;
    uint64_t flags = (key->sums != NULL ? FLAG_FRACTIONAL : 0u) | (key->extra != NULL ? FLAG_EXTRA : 0u) |
                     (shapes != NULL ? FLAG_SHAPES : 0u);
    PASS_SMALL(s, &lengths[0], &lengths[1], &filled, &flags);
    pass_key(s, key);
    if (key->extra != NULL) {
        pass_extra(s, key->extra);
    }
    if (shapes != NULL) {
        uint64_t count = shapes->count;
        pass(s, &count, COUNT_BYTES);
        for (size_t i = 0; i < count; i++) {
            cprof_shape_copy head = shapes->items[i];
            pass_shape_head(s, &head);
        }
        for (size_t i = 0; i < count; i++) {
            pass_bytes(s, (char *)shapes->items[i].signature.bytes, shapes->items[i].signature.length);
        }
        for (size_t i = 0; i < count; i++) {
            pass_buckets(s, &shapes->items[i].buckets);
        }
    }
}

void cprof_snapshot_encode(const cprof_snapshot *snapshot, uint8_t *bytes)
{
    stream s = {.out = bytes};
    cprof_snapshot fields = *snapshot;
    header head = {
        .version = CPROF_SNAPSHOT_VERSION,
        .flags = (snapshot->is_merged ? FLAG_MERGED : 0U) | (snapshot->has_p2 ? FLAG_P2 : 0U),
        .source_count = snapshot->source_count,
        .note_count = snapshot->note_count,
        .key_count = snapshot->key_count,
    };
    pass_bytes(&s, (char *)magic, sizeof magic);
    pass_header(&s, &head, &fields);
    for (size_t i = 0; i < snapshot->source_count; i++) {
        pass_source(&s, &snapshot->sources[i]);
    }
    pass_bytes(&s, snapshot->notes, snapshot->note_bytes);
    for (size_t i = 0; i < snapshot->key_count; i++) {
        write_key(&s, snapshot->keys[i]);
    }
    cprof_bytes_store(bytes + LENGTH_AT, s.at + CHECKSUM_BYTES, 8);
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
                       "cut or extended: %zu bytes, where the length at byte %d says %llu", s->end, LENGTH_AT,
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
    if (head->flags > FLAG_P2) {
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
    snapshot->has_p2 = head->flags == FLAG_P2;
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

static cprof_status read_notes(stream *s, uint64_t count, cprof_snapshot *snapshot)
{
    size_t first = s->at;
    cprof_name note = {.bytes = NULL};
    for (uint64_t i = 0; i < count; i++) {
        size_t begin = s->at;
        uint64_t length = 0;
        if (can_hold(s, 1, NOTE_BYTES)) {
            pass(s, &length, NOTE_BYTES);
        }
        if (s->at == begin || !can_hold(s, length, 1)) {
            return refuse(s, begin, BEHIND_THE_END);
        }
        cprof_name previous = note;
        note = (cprof_name){(const char *)s->in + s->at, length};
        s->at += length;
        if (!cprof_name_is_legal(note)) {
            return refuse(s, begin, "a note that is too long or no UTF-8");
        }
        if (i > 0 && cprof_name_compare(previous, note) >= 0) {
            return refuse(s, begin, "notes that do not ascend");
        }
    }
    snapshot->notes = cprof_snapshot_key_table(s->at - first, 1);
    if (snapshot->notes == NULL) {
        return CPROF_NO_MEMORY;
    }
    memcpy(snapshot->notes, s->in + first, s->at - first);
    snapshot->note_bytes = s->at - first;
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

/* Looks at the head of a key's figures beyond times, at `begin`, for the number of their buckets. */
static cprof_status look_at_extra(const stream *s, size_t begin, size_t *filled)
{
    stream ahead = *s;
    uint64_t causes = 0, counters = 0, all = 0, asked = 0;
    ahead.at = begin;
    if (!can_hold(&ahead, 1, EXTRA_HEAD_BYTES)) {
        return refuse(s, begin, BEHIND_THE_END);
    }
    PASS_SMALL(&ahead, &causes, &counters, &all, &asked);
    if (causes != CPROF_GPU_CAUSES || counters != CPROF_COUNTER_COUNT) {
        return refuse(s, begin, "another number of causes or counters");
    }
    *filled = all;
    bool fits = can_hold(&ahead, EXTRA_BYTES - EXTRA_HEAD_BYTES + all * BUCKET_BYTES, 1);
    return fits ? CPROF_OK : refuse(s, begin, BEHIND_THE_END);
}

static cprof_status read_shapes(stream *s, cprof_figures *figures)
{
    size_t begin = s->at;
    uint64_t count = 0;
    if (can_hold(s, 1, COUNT_BYTES)) {
        pass(s, &count, COUNT_BYTES);
    }
    bool fits = count > 0 && can_hold(s, count, SHAPE_BYTES);
    stream texts = *s;
    size_t text = 0, filled = 0;
    for (uint64_t i = 0; i < count && fits; i++) {
        cprof_shape_copy head = {.buckets.filled = 0};
        pass_shape_head(&texts, &head);
        text += head.signature.length;
        filled += head.buckets.filled;
    }
    if (!fits || !can_hold(&texts, text + filled * BUCKET_BYTES, 1)) {
        return refuse(s, begin, "a number of signatures that points behind the end, or is 0");
    }
    cprof_snapshot_shapes builder;
    if (!cprof_snapshot_shapes_begin(NULL, &builder, count, filled, text)) {
        return CPROF_NO_MEMORY;
    }
    for (uint64_t i = 0; i < count; i++) {
        cprof_shape_copy head = {.buckets.filled = 0};
        pass_shape_head(s, &head);
        head.signature.bytes = (const char *)texts.in + texts.at;
        texts.at += head.signature.length;
        cprof_snapshot_shapes_add(&builder, head.signature, head.buckets.filled)->figures = head.figures;
    }
    s->at = texts.at;
    for (uint64_t i = 0; i < count; i++) {
        pass_buckets(s, &builder.items[i].buckets);
    }
    const char *reason = cprof_snapshot_shapes_fault(builder.view, figures);
    figures->shapes = builder.view;
    return reason == NULL ? CPROF_OK : refuse(s, begin, reason);
}

/* The rest of a key that begins at `begin`, into the room that has been made for it. */
static cprof_status fill_key(stream *s, size_t begin, bool has_shapes, const cprof_snapshot *snapshot, cprof_snapshot_key *key)
{
    pass_key(s, key);
    const char *reason = cprof_snapshot_key_fault(key, snapshot->is_merged, snapshot->has_p2);
    reason = reason == NULL ? order_fault(snapshot, key) : reason;
    if (reason == NULL && key->extra != NULL) {
        begin = s->at;
        pass_extra(s, key->extra);
        reason = cprof_snapshot_resources_fault(key->extra, snapshot->is_merged);
    }
    if (reason != NULL) {
        return refuse(s, begin, reason);
    }
    return has_shapes ? read_shapes(s, &key->figures) : CPROF_OK;
}

static cprof_status read_key(stream *s, cprof_snapshot *snapshot)
{
    size_t begin = s->at;
    cprof_name stage = {.length = 0}, node = {.length = 0};
    uint64_t filled = 0, flags = 0;
    if (!can_hold(s, 1, KEY_BYTES)) {
        return refuse(s, begin, BEHIND_THE_END);
    }
    PASS_SMALL(s, &stage.length, &node.length, &filled, &flags);
    if ((flags & ~(uint64_t)FLAGS) != 0) {
        return refuse(s, begin, "unknown flags");
    }
    cprof_snapshot_room room = {
        .filled = filled,
        .is_fractional = (flags & FLAG_FRACTIONAL) != 0,
        .has_extra = (flags & FLAG_EXTRA) != 0,
    };
    size_t size = KEY_BYTES - KEY_HEAD_BYTES + stage.length + node.length + filled * BUCKET_BYTES +
                  (room.is_fractional ? sizeof(cprof_snapshot_sums) : 0);
    if (!can_hold(s, size, 1)) {
        return refuse(s, begin, BEHIND_THE_END);
    }
    cprof_status status = room.has_extra ? look_at_extra(s, s->at + size, &room.gpu_filled) : CPROF_OK;
    if (status != CPROF_OK) {
        return status;
    }
    stage.bytes = (const char *)s->in + begin + KEY_BYTES;
    node.bytes = stage.bytes + stage.length;
    if (!cprof_name_is_legal(stage) || !cprof_name_is_legal(node)) {
        return refuse(s, begin, "a name that is too long or no UTF-8");
    }
    cprof_snapshot_key *key = cprof_snapshot_key_new(NULL, (cprof_names){stage, node}, &room);
    if (key == NULL) {
        return CPROF_NO_MEMORY;
    }
    status = fill_key(s, begin, (flags & FLAG_SHAPES) != 0, snapshot, key);
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