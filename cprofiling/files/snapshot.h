/* A snapshot: the statistics of one generation of a registry as they were at one moment, or several such merged. Immutable.
 *
 * Merging is associative and commutative to the bit: its result does not show the order. Spans are integer sums. Fractional
 * samples are summed as fixed-point numbers that hold every finite double, so nothing is ever rounded (the long accumulator of
 * U. Kulisch, "Computer Arithmetic and Validity", de Gruyter 2008). The other figures:
 *   median_ms      exact of up to CPROF_FIGURES_EXACT samples, which are kept; else unknown: P² cannot be merged
 *   last_ms        that of the snapshot taken last, by the time of day; of equal times, the larger value
 *   first_ms       kept while one of the snapshots has it; unknown once two have
 *   place          keys are ordered by the smallest place that they had, then by stage and node name
 *   beyond times   sums, as above; bytes of memory at the entry and exit as last_ms, of equal times the larger at the exit,
 *                  then at the entry; the change of memory is summed in 128 bits, and limited to 64 for visitors; the highest
 *                  peak; sums of launches stay below 2^63
 *   by signature   sums; all signatures are kept, even more than one Profiler keeps
 *   skip_first_n   the least and the most of all
 *   remarks        errors are added, the largest cost is kept, equal notes are kept once
 *
 * The byte format (integers little-endian, doubles as their IEEE 754 bits; nothing is aligned; text is UTF-8):
 *   head: "CPROFSNP", u32 version (CPROF_SNAPSHOT_VERSION), u32 flags (1: merged, 2: medians by P²), u64 length of
 *      everything, u64 least and u64 most skip_first_n, u64 internal errors, f64 cost, u64 counts of sources, of notes, of keys
 *   each source, ascending: 16 bytes of id, u64 generation
 *   each note, ascending: u16 length, text
 *   each key, ascending by stage, then node:
 *      u16 lengths of stage and node, u16 filled buckets, u16 flags (1: fractional samples, 2: figures beyond times, 4: figures
 *      by signature), then as pass_key() of snapshot_format.c has it: u64 place, u64 time at which last_ms was taken, figures,
 *      both names, with flag 1 the two fixed-point sums of 20 u64, buckets
 *      with flag 2: u16 CPROF_GPU_CAUSES, u16 CPROF_COUNTER_COUNT, u16 filled buckets of GPU times, u16 what was asked for
 *      (CPROF_RESOURCES_ bits, not 0), then as pass_extra() has it, with -1 for a peak that is unknown
 *      with flag 4: u32 number of signatures, at least 1; of each, ascending: u16 length, u16 filled buckets, then as
 *      pass_shape_head() has it; the texts of all; the buckets of each
 *   u64 checksum of all bytes before, that of checksum.h
 * Buckets are their u16 numbers, ascending, then their u64 counts. Without a sample least ns are 2^64-1 and most ns are 0.
 * Each snapshot has exactly one encoding: equal bytes mean equal snapshots.
 *
 * Thread rule: a snapshot does not change; any number of threads may read it at once.
 */
#ifndef CPROF_SNAPSHOT_H
#define CPROF_SNAPSHOT_H

#include "cprofiling/base/alloc.h"
#include "cprofiling/nodes/registry.h"
#include "cprofiling/stats/histogram.h"

enum {
    CPROF_SNAPSHOT_VERSION = 5, /* the causes and counters of figures beyond times are part of it */
    CPROF_SNAPSHOT_FAULT_TEXT = 160,
};

/* The source of statistics: one generation of one registry. */
typedef struct {
    uint8_t id[CPROF_REGISTRY_ID_BYTES];
    uint64_t generation;
} cprof_snapshot_source;

/* Facts about a snapshot beside its registry's statistics. */
typedef struct {
    uint64_t taken_ns;        /* the time of day, in ns since 1970 */
    uint64_t internal_errors; /* faults inside the profiler */
    double cost_ns;           /* of one profiled call; finite */
    const cprof_name *notes;  /* what a reader should know, UTF-8 */
    size_t note_count;
} cprof_snapshot_remarks;

/* All fields are for reading; what they point to is owned by the snapshot. */
typedef struct {
    bool is_merged;
    bool has_p2;         /* medians are estimated by P²; false of merged ones */
    uint64_t skip_least; /* skip_first_n, the smallest and the largest of the sources' */
    uint64_t skip_most;
    uint64_t internal_errors;
    double cost_ns;
    cprof_snapshot_source *sources; /* ascending, at least one */
    size_t source_count;
    uint8_t *notes; /* as encoded: ascending, each once; see cprof_snapshot_next_note() */
    size_t note_bytes;
    size_t note_count;
    cprof_alloc_pool pool;                /* owned, of all keys; empty: each is an allocation of its own */
    struct cprof_snapshot_key **keys;     /* ascending by stage, then node */
    struct cprof_snapshot_key **in_order; /* the same keys by place: the summary's order */
    size_t key_count;
} cprof_snapshot;

/* Statistics that two of the snapshots to be merged have in common. */
typedef struct {
    cprof_snapshot_source source;
    size_t first; /* places among the snapshots, first < second */
    size_t second;
} cprof_snapshot_clash;

/* The reason why bytes are no snapshot. */
typedef struct {
    char text[CPROF_SNAPSHOT_FAULT_TEXT]; /* ASCII, with the offset */
} cprof_snapshot_fault;

/* Copies the present statistics of `registry`, key by key, into *snapshot, which the caller destroys.
 * CPROF_NO_MEMORY. CPROF_OUT_OF_RANGE: a name or note is not UTF-8 (surrogates are), has a NUL or more than 4,096 bytes. */
cprof_status cprof_snapshot_collect(cprof_registry *registry, const cprof_snapshot_remarks *remarks, cprof_snapshot **snapshot);

/* A snapshot of one registry that is kept up to date. All zero: none yet. */
typedef struct {
    cprof_snapshot *snapshot; /* owned, as the next */
    cprof_registry_seen seen;
    size_t capacity;  /* of the snapshot's keys */
    bool is_for_once; /* no keys are replaced, so that they can be of a pool */
} cprof_snapshot_kept;

/* Brings a snapshot up to date, always with the same registry and notes; only keys that have changed are copied. *has_changed
 * is set if its encoding is another now. CPROF_NO_MEMORY and CPROF_OUT_OF_RANGE as above, CPROF_BUSY as a visit: then there is
 * none any more. */
cprof_status cprof_snapshot_refresh(cprof_snapshot_kept *kept, cprof_registry *registry, const cprof_snapshot_remarks *remarks,
                                    bool *has_changed);

/* Gives it back; then there is none. */
void cprof_snapshot_drop(cprof_snapshot_kept *kept);

/* Merges `count` snapshots, at least one, into *merged, which the caller destroys; the inputs are left as they are.
 * CPROF_DUPLICATE: two have a source in common, told in *clash. CPROF_OUT_OF_RANGE: a count would reach 2^63. CPROF_NO_MEMORY.
 */
cprof_status cprof_snapshot_merge(const cprof_snapshot *const *snapshots, size_t count, cprof_snapshot **merged,
                                  cprof_snapshot_clash *clash);

/* Bounds the keys of a merged snapshot that nobody else has: where there are more than `most` and `most_stages`, those beyond
 * the first `most` become one for each stage, or one for all stages where these are too many. *folded grows by how many that
 * are. CPROF_OUT_OF_RANGE and CPROF_NO_MEMORY, as merging; then there are more than that. */
cprof_status cprof_snapshot_bound(cprof_snapshot *snapshot, size_t most, size_t most_stages, uint64_t *folded);

/* The note at offset *at of snapshot->notes, borrowed; *at goes to the next, or to note_bytes behind the last. */
cprof_name cprof_snapshot_next_note(const cprof_snapshot *snapshot, size_t *at);

/* By id, then by generation: negative, 0 or positive. For snapshot_format.c, as the next. */
int cprof_snapshot_compare_sources(const cprof_snapshot_source *a, const cprof_snapshot_source *b);

/* Fills `in_order` of complete keys. CPROF_NO_MEMORY. */
cprof_status cprof_snapshot_put_in_order(cprof_snapshot *snapshot);

/* The length of the encoding in bytes. */
size_t cprof_snapshot_size(const cprof_snapshot *snapshot);

/* Writes the cprof_snapshot_size() bytes of the encoding. */
void cprof_snapshot_encode(const cprof_snapshot *snapshot, uint8_t *bytes);

/* Makes *snapshot, which the caller destroys, of `size` untrusted bytes. Takes less than 2 * size bytes of memory, whatever
 * they say; the time is size * log(number of keys).
 * CPROF_BAD_FORMAT: they are no encoding, for the reason in *fault. CPROF_NO_MEMORY. */
cprof_status cprof_snapshot_decode(const uint8_t *bytes, size_t size, cprof_snapshot **snapshot, cprof_snapshot_fault *fault);

/* Visits the keys in the summary's order, as cprof_registry_visit() does, with all their figures; a key's `order` is its place
 * from 0 on. CPROF_NO_MEMORY, or the status that the visitor returned. */
cprof_status cprof_snapshot_visit(const cprof_snapshot *snapshot, cprof_visitor visitor, void *context);

/* The filled buckets of the times, or of the GPU times, of a key; `place` counts from 0 in the summary's order. Borrowed. */
cprof_buckets cprof_snapshot_histogram(const cprof_snapshot *snapshot, size_t place, bool of_gpu);

/* Gives everything back. NULL is ignored. */
void cprof_snapshot_destroy(cprof_snapshot *snapshot);

#endif
