/* The layout of a snapshot's bytes, written down once for both directions: each function writes what it is given to where the
 * stream stands, or sets it to what is read there, and moves the stream on.
 *
 * For snapshot_format.c only; what the bytes mean is said in snapshot.h. Nothing is checked here: that there are as many bytes
 * as are read is for the caller to know. What is written is not changed.
 */
#ifndef CPROF_SNAPSHOT_LAYOUT_H
#define CPROF_SNAPSHOT_LAYOUT_H

#include "cprofiling/files/snapshot.h"
#include "cprofiling/files/snapshot_key.h"

enum {
    CPROF_SNAPSHOT_LAYOUT_MAGIC = 8, /* bytes, as are all that follow */
    CPROF_SNAPSHOT_LAYOUT_HEADER = CPROF_SNAPSHOT_LAYOUT_MAGIC + 2 * 4 + 8 * 8,
    CPROF_SNAPSHOT_LAYOUT_SOURCE = CPROF_REGISTRY_ID_BYTES + 8,
    CPROF_SNAPSHOT_LAYOUT_NOTE = 2,             /* and its text */
    CPROF_SNAPSHOT_LAYOUT_KEY = 4 * 2 + 24 * 8, /* and its names, sums, buckets, and extra */
    CPROF_SNAPSHOT_LAYOUT_BUCKET = 2 + 8,
    CPROF_SNAPSHOT_LAYOUT_EXTRA_HEAD = 4 * 2,
    CPROF_SNAPSHOT_LAYOUT_EXTRA = /* and its buckets */
        CPROF_SNAPSHOT_LAYOUT_EXTRA_HEAD +
        (36 + CPROF_GPU_CAUSES + 3 * CPROF_COUNTER_COUNT) * 8,
    CPROF_SNAPSHOT_LAYOUT_SHAPE = 2 * 2 + 8 * 8, /* and its signature and buckets */
    CPROF_SNAPSHOT_LAYOUT_CHECKSUM = 8,
};

typedef struct {
    uint8_t *out;      /* where to write; NULL: read instead, */
    const uint8_t *in; /* from here */
    size_t at;
    size_t end; /* of what there is to read */
    cprof_snapshot_fault *fault;
} cprof_snapshot_stream;

/* What stands before the sources. */
typedef struct {
    uint64_t version;
    uint64_t flags;
    uint64_t length;
    uint64_t source_count;
    uint64_t note_count;
    uint64_t key_count;
} cprof_snapshot_header;

/* What stands before a key's names. */
typedef struct {
    uint64_t stage_length;
    uint64_t node_length;
    uint64_t filled;
    uint64_t flags;
    uint64_t place;
    uint64_t last_taken_ns;
    cprof_figures figures;
} cprof_snapshot_key_fields;

/* What stands before a key's figures beyond times. */
typedef struct {
    uint64_t causes;
    uint64_t counters;
    uint64_t filled;
    uint64_t asked;
} cprof_snapshot_resources_head;

/* What stands before a key's signatures, for each of them. */
typedef struct {
    uint64_t length;
    uint64_t filled;
    cprof_shape_figures figures;
} cprof_snapshot_shape_head;

/* An unsigned number of 1 to 8 bytes. */
void cprof_snapshot_layout_pass(cprof_snapshot_stream *s, uint64_t *value, unsigned width);

/* All between the magic and the sources; a source. */
void cprof_snapshot_layout_pass_header(cprof_snapshot_stream *s, cprof_snapshot_header *head, cprof_snapshot *snapshot);
void cprof_snapshot_layout_pass_source(cprof_snapshot_stream *s, cprof_snapshot_source *source);

/* What stands before a key's names, and behind them: the sums and buckets that the key has room for. */
void cprof_snapshot_layout_pass_key_fields(cprof_snapshot_stream *s, cprof_snapshot_key_fields *fields);
void cprof_snapshot_layout_pass_key_tail(cprof_snapshot_stream *s, cprof_snapshot_key *key);

/* What follows then, with flag 2: the head, and all behind it. */
void cprof_snapshot_layout_pass_extra_head(cprof_snapshot_stream *s, cprof_snapshot_resources_head *head);
void cprof_snapshot_layout_pass_extra(cprof_snapshot_stream *s, cprof_snapshot_resources *extra);

/* Of what follows with flag 4: the head of a signature, and any buckets. */
void cprof_snapshot_layout_pass_shape_head(cprof_snapshot_stream *s, cprof_snapshot_shape_head *head);
void cprof_snapshot_layout_pass_buckets(cprof_snapshot_stream *s, const cprof_buckets *buckets);

#endif
