#include "cprofiling/alloc.h"
#include "cprofiling/snapshot.h"
#include "cprofiling/snapshot_key.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
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

/* The layout is written down once, for both directions. */
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
static void pass_key_tail(stream *s, cprof_snapshot_key *key)
{
    for (int i = 0; key->sums != NULL && i < CPROF_SNAPSHOT_KEY_WORDS; i++) {
        pass(s, &key->sums->total[i], 8);
    }
    for (int i = 0; key->sums != NULL && i < CPROF_SNAPSHOT_KEY_WORDS; i++) {
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

static size_t key_size(const cprof_snapshot_key *key)
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

static void write_key(stream *s, cprof_snapshot_key *key)
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

/* The rest of a key whose fields begin at `begin`. */
static cprof_status read_key_tail(stream *s, size_t begin, const struct key_fields *fields, cprof_snapshot *snapshot)
{
    cprof_names names;
    names.stage = take_name(s, fields->stage_length);
    names.node = take_name(s, fields->node_length);
    if (!cprof_snapshot_key_name_is_legal(names.stage) || !cprof_snapshot_key_name_is_legal(names.node)) {
        return refuse(s, begin, "a name that is too long or no UTF-8");
    }
    cprof_snapshot_key *key = cprof_snapshot_key_new(names, fields->filled, fields->flags == FLAG_FRACTIONAL);
    if (key == NULL) {
        return CPROF_NO_MEMORY;
    }
    key->figures = fields->figures;
    key->place = fields->place;
    key->last_taken_ns = fields->last_taken_ns;
    pass_key_tail(s, key);
    const char *reason = cprof_snapshot_key_fault(key, snapshot->is_merged);
    reason = reason == NULL ? order_fault(snapshot, key) : reason;
    if (reason != NULL) {
        cprof_alloc_release(key);
        return refuse(s, begin, reason);
    }
    cprof_snapshot_key_complete(key);
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
    size_t sum_bytes = fields.flags == FLAG_FRACTIONAL ? sizeof(cprof_snapshot_sums) : 0;
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
    header head;
    cprof_status status = read_header(&s, &head, fresh);
    status = status == CPROF_OK ? read_sources(&s, head.source_count, fresh) : status;
    status = status == CPROF_OK ? read_notes(&s, head.note_count, fresh) : status;
    status = status == CPROF_OK ? read_keys(&s, head.key_count, fresh) : status;
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
