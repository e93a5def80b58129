#include "cprofiling/base/alloc.h"
#include "cprofiling/base/checksum.h"
#include "cprofiling/files/snapshot.h"
#include "cprofiling/files/snapshot_layout.h"
#include "cprofiling/files/snapshot_shapes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FLAG_MERGED = 1,     /* of a snapshot */
    FLAG_FRACTIONAL = 1, /* of a key */
    FLAG_EXTRA = 2,
    FLAG_SHAPES = 4,
    MAGIC_BYTES = CPROF_SNAPSHOT_LAYOUT_MAGIC,
    HEADER_BYTES = CPROF_SNAPSHOT_LAYOUT_HEADER,
    SOURCE_BYTES = CPROF_SNAPSHOT_LAYOUT_SOURCE,
    NOTE_BYTES = CPROF_SNAPSHOT_LAYOUT_NOTE,
    KEY_BYTES = CPROF_SNAPSHOT_LAYOUT_KEY,
    BUCKET_BYTES = CPROF_SNAPSHOT_LAYOUT_BUCKET,
    EXTRA_HEAD_BYTES = CPROF_SNAPSHOT_LAYOUT_EXTRA_HEAD,
    EXTRA_BYTES = CPROF_SNAPSHOT_LAYOUT_EXTRA,
    CHECKSUM_BYTES = CPROF_SNAPSHOT_LAYOUT_CHECKSUM,
};

static const char magic[MAGIC_BYTES] = {'C', 'P', 'R', 'O', 'F', 'S', 'N', 'P'};

typedef cprof_snapshot_stream stream;
typedef cprof_snapshot_header header;

static void write_bytes(stream *s, const void *bytes, size_t length)
{
    memcpy(s->out + s->at, bytes, length);
    s->at += length;
}

static size_t key_size(const cprof_snapshot_key *key)
{
    size_t sum_bytes = key->sums != NULL ? sizeof *key->sums : 0;
    size_t extra_bytes = key->extra != NULL ? EXTRA_BYTES + key->extra->gpu_buckets.filled * BUCKET_BYTES : 0;
    size_t shape_bytes = key->shapes != NULL ? cprof_snapshot_shapes_size(key->shapes) : 0;
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

static void write_extra(stream *s, cprof_snapshot_resources *extra)
{
    cprof_snapshot_resources_head head = {
        .causes = CPROF_GPU_CAUSES,
        .counters = CPROF_COUNTER_COUNT,
        .filled = extra->gpu_buckets.filled,
        .asked = extra->figures.asked,
    };
    cprof_snapshot_layout_pass_extra_head(s, &head);
    cprof_snapshot_layout_pass_extra(s, extra);
}

static void write_key(stream *s, cprof_snapshot_key *key)
{
    cprof_snapshot_key_fields fields = {
        .stage_length = key->names.stage.length,
        .node_length = key->names.node.length,
        .filled = key->buckets.filled,
        .flags = (key->sums != NULL ? FLAG_FRACTIONAL : 0u) | (key->extra != NULL ? FLAG_EXTRA : 0u) |
                 (key->shapes != NULL ? FLAG_SHAPES : 0u),
        .place = key->place,
        .last_taken_ns = key->last_taken_ns,
        .figures = key->figures,
    };
    cprof_snapshot_layout_pass_key_fields(s, &fields);
    write_bytes(s, key->names.stage.bytes, key->names.stage.length);
    write_bytes(s, key->names.node.bytes, key->names.node.length);
    cprof_snapshot_layout_pass_key_tail(s, key);
    if (key->extra != NULL) {
        write_extra(s, key->extra);
    }
    if (key->shapes != NULL) {
        cprof_snapshot_shapes_write(s, key->shapes);
    }
}

/* The least that says all: bytes without what came later stay as they have been from the first version on. */
static uint64_t version_of(const cprof_snapshot *snapshot)
{
    uint64_t version = CPROF_SNAPSHOT_VERSION;
    for (size_t i = 0; i < snapshot->key_count; i++) {
        if (snapshot->keys[i]->shapes != NULL) {
            return CPROF_SNAPSHOT_VERSION_SHAPES;
        }
        version = snapshot->keys[i]->extra != NULL ? CPROF_SNAPSHOT_VERSION_EXTRA : version;
    }
    return version;
}

void cprof_snapshot_encode(const cprof_snapshot *snapshot, uint8_t *bytes)
{
    stream s = {.out = bytes};
    cprof_snapshot facts = *snapshot;
    header head = {
        .version = version_of(snapshot),
        .flags = snapshot->is_merged ? FLAG_MERGED : 0,
        .length = cprof_snapshot_size(snapshot),
        .source_count = snapshot->source_count,
        .note_count = snapshot->note_count,
        .key_count = snapshot->key_count,
    };
    write_bytes(&s, magic, sizeof magic);
    cprof_snapshot_layout_pass_header(&s, &head, &facts);
    for (size_t i = 0; i < snapshot->source_count; i++) {
        cprof_snapshot_layout_pass_source(&s, &snapshot->sources[i]);
    }
    write_bytes(&s, snapshot->notes, snapshot->note_bytes);
    for (size_t i = 0; i < snapshot->key_count; i++) {
        write_key(&s, snapshot->keys[i]);
    }
    uint64_t crc = cprof_checksum(bytes, s.at);
    cprof_snapshot_layout_pass(&s, &crc, CHECKSUM_BYTES);
}

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

/* Refuses all bytes that are not those of one snapshot of a known version, unchanged. */
static cprof_status check_envelope(stream *s, const header *head)
{
    if (head->version < CPROF_SNAPSHOT_VERSION || head->version > CPROF_SNAPSHOT_VERSION_SHAPES) {
        (void)snprintf(s->fault->text, sizeof s->fault->text,
                       "schema version %u at byte %d, where this program reads versions %d to %d", (unsigned)head->version,
                       MAGIC_BYTES, CPROF_SNAPSHOT_VERSION, CPROF_SNAPSHOT_VERSION_SHAPES);
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
    cprof_snapshot_layout_pass(&tail, &crc, CHECKSUM_BYTES);
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
    cprof_snapshot_layout_pass_header(s, head, snapshot);
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
        cprof_snapshot_layout_pass_source(s, &snapshot->sources[i]);
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
        cprof_snapshot_layout_pass(s, &length, NOTE_BYTES);
    }
    if (s->at == begin || !can_hold(s, length, 1)) {
        return refuse(s, begin, BEHIND_THE_END);
    }
    cprof_name previous = *note;
    *note = take_name(s, length);
    if (!cprof_snapshot_key_name_is_legal(*note)) {
        return refuse(s, begin, "a note that is too long or no UTF-8");
    }
    return previous.bytes == NULL || cprof_snapshot_key_compare_name(previous, *note) < 0
               ? CPROF_OK
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
    int order = cprof_snapshot_key_compare_names(snapshot->keys[snapshot->key_count - 1]->names, key->names);
    return order == 0 ? "the same key twice" : order > 0 ? "keys that do not ascend" : NULL;
}

/* Where a key lies, and what is known of it before there is room for it. */
typedef struct {
    size_t begin;
    size_t extra_begin;
    cprof_snapshot_key_fields fields;
    cprof_snapshot_resources_head extra_head; /* all zero without flag 2 */
} key_place;

/* What follows then, with flag 2. */
static cprof_status read_extra(stream *s, const key_place *place, cprof_snapshot_resources *extra, bool is_merged)
{
    if (extra == NULL) {
        return CPROF_OK;
    }
    s->at += EXTRA_HEAD_BYTES;
    extra->figures.asked = (unsigned)place->extra_head.asked;
    cprof_snapshot_layout_pass_extra(s, extra);
    const char *reason = cprof_snapshot_resources_fault(extra, is_merged);
    return reason == NULL ? CPROF_OK : refuse(s, place->extra_begin, reason);
}

/* What a key ends with, with flag 4. */
static cprof_status read_shapes(stream *s, const key_place *place, cprof_snapshot_key *key)
{
    if ((place->fields.flags & FLAG_SHAPES) == 0) {
        return CPROF_OK;
    }
    size_t begin = s->at;
    const char *reason;
    cprof_status status = cprof_snapshot_shapes_read(s, &key->figures, &key->shapes, &reason);
    return status == CPROF_BAD_FORMAT ? refuse(s, begin, reason) : status;
}

/* What follows the names of a key. */
static cprof_status read_key_tail(stream *s, const key_place *place, const cprof_snapshot *snapshot, cprof_snapshot_key *key)
{
    key->figures = place->fields.figures;
    key->place = place->fields.place;
    key->last_taken_ns = place->fields.last_taken_ns;
    cprof_snapshot_layout_pass_key_tail(s, key);
    const char *reason = cprof_snapshot_key_fault(key, snapshot->is_merged);
    reason = reason == NULL ? order_fault(snapshot, key) : reason;
    cprof_status status =
        reason == NULL ? read_extra(s, place, key->extra, snapshot->is_merged) : refuse(s, place->begin, reason);
    return status == CPROF_OK ? read_shapes(s, place, key) : status;
}

/* What follows the fields of a key. */
static cprof_status read_key_rest(stream *s, const key_place *place, cprof_snapshot *snapshot)
{
    cprof_names names;
    names.stage = take_name(s, place->fields.stage_length);
    names.node = take_name(s, place->fields.node_length);
    if (!cprof_snapshot_key_name_is_legal(names.stage) || !cprof_snapshot_key_name_is_legal(names.node)) {
        return refuse(s, place->begin, "a name that is too long or no UTF-8");
    }
    cprof_snapshot_room room = {
        .filled = place->fields.filled,
        .gpu_filled = place->extra_head.filled,
        .is_fractional = (place->fields.flags & FLAG_FRACTIONAL) != 0,
        .has_extra = (place->fields.flags & FLAG_EXTRA) != 0,
    };
    cprof_snapshot_key *key = cprof_snapshot_key_new(names, &room);
    if (key == NULL) {
        return CPROF_NO_MEMORY;
    }
    cprof_status status = read_key_tail(s, place, snapshot, key);
    if (status != CPROF_OK) {
        cprof_snapshot_key_destroy(key);
        return status;
    }
    cprof_snapshot_key_complete(key);
    snapshot->keys[snapshot->key_count++] = key;
    return CPROF_OK;
}

/* Looks ahead at what a key ends with, with flag 2; the stream stays where it is. */
static cprof_status look_at_extra(stream *s, key_place *place)
{
    stream ahead = *s;
    ahead.at = place->extra_begin;
    if (!can_hold(&ahead, 1, EXTRA_HEAD_BYTES)) {
        return refuse(s, place->extra_begin, BEHIND_THE_END);
    }
    cprof_snapshot_resources_head *head = &place->extra_head;
    cprof_snapshot_layout_pass_extra_head(&ahead, head);
    if (head->causes != CPROF_GPU_CAUSES || head->counters != CPROF_COUNTER_COUNT) {
        return refuse(s, place->extra_begin, "another number of causes or counters");
    }
    bool fits = can_hold(&ahead, EXTRA_BYTES - EXTRA_HEAD_BYTES + head->filled * BUCKET_BYTES, 1);
    return fits ? CPROF_OK : refuse(s, place->extra_begin, BEHIND_THE_END);
}

static cprof_status read_key(stream *s, unsigned known_flags, cprof_snapshot *snapshot)
{
    key_place place = {.begin = s->at};
    cprof_snapshot_key_fields *fields = &place.fields;
    if (!can_hold(s, 1, KEY_BYTES)) {
        return refuse(s, place.begin, BEHIND_THE_END);
    }
    cprof_snapshot_layout_pass_key_fields(s, fields);
    if ((fields->flags & ~(uint64_t)known_flags) != 0) {
        return refuse(s, place.begin, "unknown flags");
    }
    size_t sum_bytes = (fields->flags & FLAG_FRACTIONAL) != 0 ? sizeof(cprof_snapshot_sums) : 0;
    size_t rest = fields->stage_length + fields->node_length + sum_bytes + fields->filled * BUCKET_BYTES;
    if (!can_hold(s, rest, 1)) {
        return refuse(s, place.begin, BEHIND_THE_END);
    }
    place.extra_begin = s->at + rest;
    cprof_status status = (fields->flags & FLAG_EXTRA) != 0 ? look_at_extra(s, &place) : CPROF_OK;
    return status == CPROF_OK ? read_key_rest(s, &place, snapshot) : status;
}

static cprof_status read_keys(stream *s, const header *head, cprof_snapshot *snapshot)
{
    uint64_t count = head->key_count;
    unsigned known_flags = FLAG_FRACTIONAL | (head->version >= CPROF_SNAPSHOT_VERSION_EXTRA ? FLAG_EXTRA : 0U) |
                           (head->version >= CPROF_SNAPSHOT_VERSION_SHAPES ? FLAG_SHAPES : 0U);
    if (!can_hold(s, count, KEY_BYTES)) {
        return refuse(s, s->at, BEHIND_THE_END);
    }
    snapshot->keys = cprof_snapshot_key_table(count, sizeof *snapshot->keys);
    cprof_status status = snapshot->keys != NULL ? CPROF_OK : CPROF_NO_MEMORY;
    for (size_t i = 0; status == CPROF_OK && i < count; i++) {
        status = read_key(s, known_flags, snapshot);
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
    status = status == CPROF_OK ? read_keys(&s, &head, fresh) : status;
    if (status == CPROF_OK && s.at != s.end) {
        status = refuse(&s, s.at, "more bytes than the counts say");
    }
    if (status == CPROF_OK && version_of(fresh) != head.version) {
        status = refuse(&s, MAGIC_BYTES,
                        head.version == CPROF_SNAPSHOT_VERSION_EXTRA ? "version 2 without figures beyond times"
                                                                     : "version 3 without figures by signature");
    }
    status = status == CPROF_OK ? cprof_snapshot_put_in_order(fresh) : status;
    if (status != CPROF_OK) {
        cprof_snapshot_destroy(fresh);
        return status;
    }
    *snapshot = fresh;
    return CPROF_OK;
}
