#include "cprofiling/files/snapshot.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/bytes.h"
#include "cprofiling/files/snapshot_merge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    NOTE_BYTES = 2, /* and its text */
    CACHE_LINE = 64,
};

static void release_keys(cprof_snapshot *snapshot)
{
    for (size_t i = 0; snapshot->pool.newest == NULL && i < snapshot->key_count; i++) {
        cprof_snapshot_key_destroy(snapshot->keys[i]);
    }
    cprof_alloc_release_pool(&snapshot->pool);
    cprof_alloc_release(snapshot->keys);
    cprof_alloc_release(snapshot->in_order);
}

void cprof_snapshot_destroy(cprof_snapshot *snapshot)
{
    if (snapshot == NULL) {
        return;
    }
    release_keys(snapshot);
    cprof_alloc_release(snapshot->notes);
    cprof_alloc_release(snapshot->sources);
    cprof_alloc_release(snapshot);
}

int cprof_snapshot_compare_sources(const cprof_snapshot_source *a, const cprof_snapshot_source *b)
{
    int order = memcmp(a->id, b->id, sizeof a->id);
    return order != 0 ? order : (a->generation > b->generation) - (a->generation < b->generation);
}

static int by_text(const void *left, const void *right)
{
    return cprof_name_compare(*(const cprof_name *)left, *(const cprof_name *)right);
}

static int by_names(const void *left, const void *right)
{
    return cprof_names_compare((*(cprof_snapshot_key *const *)left)->names, (*(cprof_snapshot_key *const *)right)->names);
}

static int by_place(const void *left, const void *right)
{
    const cprof_snapshot_key *a = *(cprof_snapshot_key *const *)left;
    const cprof_snapshot_key *b = *(cprof_snapshot_key *const *)right;
    return a->place != b->place ? (a->place > b->place) - (a->place < b->place) : cprof_names_compare(a->names, b->names);
}

static void sort(void *items, size_t count, size_t width, int (*compare)(const void *, const void *))
{
    if (count > 1) {
        qsort(items, count, width, compare);
    }
}

cprof_status cprof_snapshot_put_in_order(cprof_snapshot *snapshot)
{
    snapshot->in_order = cprof_snapshot_key_table(snapshot->key_count, sizeof *snapshot->in_order);
    if (snapshot->in_order == NULL) {
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < snapshot->key_count; i++) {
        snapshot->in_order[i] = snapshot->keys[i];
    }
    sort(snapshot->in_order, snapshot->key_count, sizeof *snapshot->in_order, by_place);
    return CPROF_OK;
}

cprof_name cprof_snapshot_next_note(const cprof_snapshot *snapshot, size_t *at)
{
    const uint8_t *note = snapshot->notes + *at;
    size_t length = cprof_bytes_load(note, NOTE_BYTES);
    *at += NOTE_BYTES + length;
    return (cprof_name){(const char *)note + NOTE_BYTES, length};
}

/* Copies each of the notes once, and gives their table back; NULL: there was no memory for it. */
static cprof_status take_notes(cprof_snapshot *snapshot, cprof_name *notes, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; notes != NULL && i < count; i++) {
        bytes += NOTE_BYTES + notes[i].length;
    }
    snapshot->notes = notes != NULL ? cprof_snapshot_key_table(bytes, 1) : NULL;
    if (snapshot->notes == NULL) {
        cprof_alloc_release(notes);
        return CPROF_NO_MEMORY;
    }
    sort(notes, count, sizeof *notes, by_text);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || cprof_name_compare(notes[i - 1], notes[i]) != 0) {
            uint8_t *end = snapshot->notes + snapshot->note_bytes;
            cprof_bytes_store(end, notes[i].length, NOTE_BYTES);
            memcpy(end + NOTE_BYTES, notes[i].bytes, notes[i].length);
            snapshot->note_bytes += NOTE_BYTES + notes[i].length;
            snapshot->note_count++;
        }
    }
    cprof_alloc_release(notes);
    return CPROF_OK;
}

/* Keys that are being brought up to date. */
typedef struct {
    cprof_snapshot_kept *kept;
    cprof_generation generation;
    size_t known; /* keys that are in order; others are behind them */
    uint64_t taken_ns;
    bool has_changed;
} collector;

static void forget_older_generation(collector *all)
{
    cprof_snapshot *snapshot = all->kept->snapshot;
    if (snapshot->sources[0].generation != all->generation.generation || snapshot->has_p2 != all->generation.has_p2) {
        release_keys(snapshot);
        snapshot->keys = snapshot->in_order = NULL;
        snapshot->key_count = all->kept->capacity = all->known = 0;
        snapshot->sources[0].generation = all->generation.generation;
        snapshot->has_p2 = all->generation.has_p2;
        snapshot->skip_least = snapshot->skip_most = all->generation.skip_first_n;
        all->has_changed = true;
    }
}

static cprof_status collect(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                            const uint64_t *counts)
{
    collector *all = context;
    cprof_snapshot *snapshot = all->kept->snapshot;
    forget_older_generation(all);
    if (!cprof_name_is_legal(names.stage) || !cprof_name_is_legal(names.node)) {
        return CPROF_OUT_OF_RANGE;
    }
    cprof_snapshot_key **keys = cprof_alloc_grow(snapshot->keys, &all->kept->capacity, snapshot->key_count, sizeof *keys, 16);
    snapshot->keys = keys != NULL ? keys : snapshot->keys;
    cprof_alloc_pool *pool = all->kept->is_for_once ? &snapshot->pool : NULL;
    cprof_snapshot_key *key = keys != NULL ? cprof_snapshot_key_of_figures(pool, names, figures, counts, all->taken_ns) : NULL;
    if (key == NULL) {
        return CPROF_NO_MEMORY;
    }
    key->order = order;
    all->has_changed = true;
    cprof_snapshot_key **older = all->known > 0 ? bsearch(&key, keys, all->known, sizeof *keys, by_names) : NULL;
    if (older == NULL) {
        keys[snapshot->key_count++] = key;
    } else {
        key->place = (*older)->place;
        snapshot->in_order[key->place] = key;
        cprof_snapshot_key_destroy(*older);
        *older = key;
    }
    return CPROF_OK;
}

/* A snapshot with room for the sources. */
static cprof_snapshot *snapshot_new(size_t source_count)
{
    cprof_snapshot *snapshot = cprof_alloc_zeroed(sizeof *snapshot);
    if (snapshot != NULL) {
        snapshot->source_count = source_count;
        snapshot->sources = cprof_snapshot_key_table(source_count, sizeof *snapshot->sources);
        if (snapshot->sources == NULL) {
            cprof_snapshot_destroy(snapshot);
            snapshot = NULL;
        }
    }
    return snapshot;
}

static cprof_status start_snapshot(cprof_snapshot *snapshot, const cprof_registry *registry,
                                   const cprof_snapshot_remarks *remarks)
{
    memcpy(snapshot->sources[0].id, registry->id, sizeof registry->id);
    snapshot->cost_ns = remarks->cost_ns;
    cprof_name *notes = cprof_snapshot_key_table(remarks->note_count, sizeof *notes);
    for (size_t i = 0; notes != NULL && i < remarks->note_count; i++) {
        notes[i] = remarks->notes[i];
        if (!cprof_name_is_legal(notes[i])) {
            cprof_alloc_release(notes);
            return CPROF_OUT_OF_RANGE;
        }
    }
    return take_notes(snapshot, notes, remarks->note_count);
}

static cprof_status sort_collected(cprof_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->key_count; i++) {
        snapshot->keys[i]->place = snapshot->keys[i]->order;
    }
    sort(snapshot->keys, snapshot->key_count, sizeof *snapshot->keys, by_names);
    cprof_alloc_release(snapshot->in_order);
    cprof_status status = cprof_snapshot_put_in_order(snapshot);
    for (size_t i = 0; status == CPROF_OK && i < snapshot->key_count; i++) {
        snapshot->in_order[i]->place = i;
    }
    return status;
}

void cprof_snapshot_drop(cprof_snapshot_kept *kept)
{
    cprof_snapshot_destroy(kept->snapshot);
    cprof_alloc_release(kept->seen.changes);
    *kept = (cprof_snapshot_kept){.snapshot = NULL};
}

cprof_status cprof_snapshot_refresh(cprof_snapshot_kept *kept, cprof_registry *registry, const cprof_snapshot_remarks *remarks,
                                    bool *has_changed)
{
    cprof_status status = CPROF_OK;
    if (kept->snapshot == NULL) {
        kept->snapshot = snapshot_new(1);
        status = kept->snapshot != NULL ? start_snapshot(kept->snapshot, registry, remarks) : CPROF_NO_MEMORY;
    }
    collector all = {.kept = kept, .taken_ns = remarks->taken_ns};
    if (status == CPROF_OK) {
        all.known = kept->snapshot->key_count;
        status = cprof_registry_visit_changed(registry, &kept->seen, collect, &all, &all.generation);
        status = status == CPROF_OK && all.generation.unread != 0 ? CPROF_BUSY : status; /* what is stored must be whole */
    }
    if (status == CPROF_OK) {
        forget_older_generation(&all);
        bool is_in_order = kept->snapshot->in_order != NULL && kept->snapshot->key_count == all.known;
        status = is_in_order ? CPROF_OK : sort_collected(kept->snapshot);
    }
    if (status != CPROF_OK) {
        cprof_snapshot_drop(kept);
        return status;
    }
    *has_changed |= all.has_changed || kept->snapshot->internal_errors != remarks->internal_errors;
    kept->snapshot->internal_errors = remarks->internal_errors;
    return CPROF_OK;
}

cprof_status cprof_snapshot_collect(cprof_registry *registry, const cprof_snapshot_remarks *remarks, cprof_snapshot **snapshot)
{
    cprof_snapshot_kept kept = {.is_for_once = true};
    bool has_changed = false;
    cprof_status status = cprof_snapshot_refresh(&kept, registry, remarks, &has_changed);
    if (status == CPROF_OK) {
        *snapshot = kept.snapshot;
        cprof_alloc_release(kept.seen.changes);
    }
    return status;
}

typedef struct {
    cprof_snapshot_source source;
    size_t snapshot; /* its place among the snapshots */
} origin;

static int by_source(const void *left, const void *right)
{
    const origin *a = left;
    const origin *b = right;
    int order = cprof_snapshot_compare_sources(&a->source, &b->source);
    return order != 0 ? order : (a->snapshot > b->snapshot) - (a->snapshot < b->snapshot);
}

static cprof_status merge_sources(cprof_snapshot *merged, const cprof_snapshot *const *snapshots, size_t count,
                                  cprof_snapshot_clash *clash)
{
    origin *origins = cprof_snapshot_key_table(merged->source_count, sizeof *origins);
    if (origins == NULL) {
        return CPROF_NO_MEMORY;
    }
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < snapshots[i]->source_count; k++) {
            origins[at++] = (origin){snapshots[i]->sources[k], i};
        }
    }
    sort(origins, at, sizeof *origins, by_source);
    cprof_status status = CPROF_OK;
    for (size_t i = 0; status == CPROF_OK && i < at; i++) {
        merged->sources[i] = origins[i].source;
        if (i > 0 && cprof_snapshot_compare_sources(&origins[i - 1].source, &origins[i].source) == 0) {
            *clash = (cprof_snapshot_clash){origins[i].source, origins[i - 1].snapshot, origins[i].snapshot};
            status = CPROF_DUPLICATE;
        }
    }
    cprof_alloc_release(origins);
    return status;
}

/* Keys that ascend by names, at least one. */
typedef struct {
    cprof_snapshot_key *const *next;
    cprof_snapshot_key *const *end;
} queue;

static int by_next(const void *left, const void *right)
{
    return by_names(((const queue *)left)->next, ((const queue *)right)->next);
}

/* Makes a heap again of queues, by their next keys, after the first of them has changed. */
static void sink(queue *heap, size_t count)
{
    queue first = heap[0];
    size_t place = 0;
    for (size_t child = 1; child < count; child = 2 * place + 1) {
        child += child + 1 < count && by_next(&heap[child + 1], &heap[child]) < 0;
        if (by_next(&first, &heap[child]) <= 0) {
            break;
        }
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = first;
}

/* Has the processor fetch a key that is wanted soon: there may be more keys than caches hold. */
static void fetch(const cprof_snapshot_key *key)
{
    for (size_t at = 0; at < sizeof *key + (size_t)2 * CACHE_LINE; at += CACHE_LINE) { /* a few buckets are behind it */
        __builtin_prefetch((const char *)key + at);
    }
}

/* Merges keys of the same names in queues; `run` has room for all that have the same. */
static cprof_status merge_queues(cprof_snapshot *merged, queue *queues, size_t count, cprof_snapshot_key **run)
{
    uint64_t *counts = cprof_snapshot_key_table((size_t)2 * CPROF_HISTOGRAM_BUCKETS, sizeof *counts);
    cprof_status status = counts != NULL ? CPROF_OK : CPROF_NO_MEMORY;
    sort(queues, count, sizeof *queues, by_next); /* what is sorted is a heap */
    while (status == CPROF_OK && count > 0) {
        size_t length = 0;
        do {
            run[length++] = *queues[0].next++;
            if (queues[0].end - queues[0].next > 1) {
                fetch(queues[0].next[1]);
            } else if (queues[0].next == queues[0].end) {
                queues[0] = queues[--count];
            }
            sink(queues, count);
        } while (count > 0 && by_names(run, queues[0].next) == 0);
        cprof_snapshot_key *key;
        status = cprof_snapshot_key_merge(run, length, counts, &key);
        if (status == CPROF_OK) {
            merged->keys[merged->key_count++] = key;
        }
    }
    cprof_alloc_release(counts);
    return status;
}

static cprof_status merge_keys(cprof_snapshot *merged, const cprof_snapshot *const *snapshots, size_t count)
{
    queue *queues = cprof_snapshot_key_table(count, sizeof *queues);
    cprof_snapshot_key **run = cprof_snapshot_key_table(count, sizeof *run);
    size_t filled = 0;
    size_t total = 0;
    for (size_t i = 0; queues != NULL && i < count; i++) {
        cprof_snapshot_key **keys = snapshots[i]->keys;
        queues[filled] = (queue){keys, keys + snapshots[i]->key_count};
        filled += snapshots[i]->key_count > 0;
        total += snapshots[i]->key_count;
    }
    merged->keys = cprof_snapshot_key_table(total, sizeof *merged->keys);
    bool has_memory = queues != NULL && run != NULL && merged->keys != NULL;
    cprof_status status = has_memory ? merge_queues(merged, queues, filled, run) : CPROF_NO_MEMORY;
    cprof_alloc_release(queues);
    cprof_alloc_release(run);
    return status == CPROF_OK ? cprof_snapshot_put_in_order(merged) : status;
}

static cprof_status merge_remarks(cprof_snapshot *merged, const cprof_snapshot *const *snapshots, size_t count)
{
    size_t note_count = 0;
    merged->is_merged = true;
    merged->skip_least = UINT64_MAX;
    merged->cost_ns = snapshots[0]->cost_ns;
    for (size_t i = 0; i < count; i++) {
        const cprof_snapshot *part = snapshots[i];
        merged->skip_least = part->skip_least < merged->skip_least ? part->skip_least : merged->skip_least;
        merged->skip_most = part->skip_most > merged->skip_most ? part->skip_most : merged->skip_most;
        merged->cost_ns = part->cost_ns > merged->cost_ns ? part->cost_ns : merged->cost_ns;
        merged->internal_errors += part->internal_errors; /* both are below 2^63 */
        if (merged->internal_errors >= CPROF_SNAPSHOT_KEY_COUNT_LIMIT) {
            return CPROF_OUT_OF_RANGE;
        }
        note_count += part->note_count;
    }
    cprof_name *notes = cprof_snapshot_key_table(note_count, sizeof *notes);
    size_t taken = 0;
    for (size_t i = 0; notes != NULL && i < count; i++) {
        for (size_t at = 0; at < snapshots[i]->note_bytes;) {
            notes[taken++] = cprof_snapshot_next_note(snapshots[i], &at);
        }
    }
    return take_notes(merged, notes, note_count);
}

cprof_status cprof_snapshot_merge(const cprof_snapshot *const *snapshots, size_t count, cprof_snapshot **merged,
                                  cprof_snapshot_clash *clash)
{
    size_t source_count = 0;
    for (size_t i = 0; i < count; i++) {
        source_count += snapshots[i]->source_count;
    }
    cprof_snapshot *fresh = snapshot_new(source_count);
    if (fresh == NULL) {
        return CPROF_NO_MEMORY;
    }
    cprof_status status = merge_sources(fresh, snapshots, count, clash);
    status = status == CPROF_OK ? merge_remarks(fresh, snapshots, count) : status;
    status = status == CPROF_OK ? merge_keys(fresh, snapshots, count) : status;
    if (status != CPROF_OK) {
        cprof_snapshot_destroy(fresh);
        return status;
    }
    *merged = fresh;
    return CPROF_OK;
}

/* Lets a visitor see one key. `counts`: two dense histograms of zeros, before and after. */
static cprof_status show_key(const cprof_snapshot_key *key, uint64_t place, uint64_t *counts, cprof_visitor visitor,
                             void *context)
{
    cprof_figures figures = key->figures;
    cprof_resources_copy extra = {.gpu_counts = counts + CPROF_HISTOGRAM_BUCKETS};
    cprof_buckets_spread(&key->buckets, counts);
    if (key->extra != NULL) {
        extra.figures = key->extra->figures;
        figures.extra = &extra;
        cprof_buckets_spread(&key->extra->gpu_buckets, extra.gpu_counts);
    }
    cprof_status status = visitor(context, key->names, place, &figures, counts);
    cprof_buckets_unspread(&key->buckets, counts);
    if (key->extra != NULL) {
        cprof_buckets_unspread(&key->extra->gpu_buckets, extra.gpu_counts);
    }
    return status;
}

cprof_buckets cprof_snapshot_histogram(const cprof_snapshot *snapshot, size_t place, bool of_gpu)
{
    const cprof_snapshot_key *key = snapshot->in_order[place];
    cprof_buckets none = {.filled = 0};
    return !of_gpu ? key->buckets : key->extra != NULL ? key->extra->gpu_buckets : none;
}

cprof_status cprof_snapshot_visit(const cprof_snapshot *snapshot, cprof_visitor visitor, void *context)
{
    uint64_t *counts = cprof_snapshot_key_table((size_t)2 * CPROF_HISTOGRAM_BUCKETS, sizeof *counts);
    cprof_status status = counts != NULL ? CPROF_OK : CPROF_NO_MEMORY;
    for (size_t i = 0; status == CPROF_OK && i < snapshot->key_count; i++) {
        status = show_key(snapshot->in_order[i], i, counts, visitor, context);
    }
    cprof_alloc_release(counts);
    return status;
}

/* Merges the keys behind the first `most` into one for each stage, or for all. */
static cprof_status fold(cprof_snapshot *snapshot, size_t most, bool keeps_stages)
{
    static const cprof_name overflow = {CPROF_REGISTRY_OVERFLOW, sizeof CPROF_REGISTRY_OVERFLOW - 1};
    size_t count = snapshot->key_count;
    cprof_snapshot folded = {.keys = cprof_snapshot_key_table(count, sizeof *folded.keys)};
    cprof_snapshot_key *copies = cprof_snapshot_key_table(count - most, sizeof *copies); /* with the names that they share */
    cprof_snapshot_key **parts = cprof_snapshot_key_table(count, sizeof *parts);
    cprof_status status = CPROF_NO_MEMORY;
    if (folded.keys != NULL && copies != NULL && parts != NULL) {
        for (size_t i = 0; i < count; i++) {
            parts[i] = snapshot->in_order[i];
            if (i >= most) {
                cprof_snapshot_key *copy = &copies[i - most];
                *copy = *parts[i];
                copy->names.node = overflow;
                copy->names.stage = keeps_stages ? copy->names.stage : overflow;
                parts[i] = copy;
            }
        }
        sort(parts, count, sizeof *parts, by_names);
        queue all = {parts, parts + count};
        status = merge_queues(&folded, &all, 1, parts); /* a run takes the place of keys that were taken */
        status = status == CPROF_OK ? cprof_snapshot_put_in_order(&folded) : status;
    }
    cprof_alloc_release(copies);
    cprof_alloc_release(parts);
    cprof_snapshot gone = folded;
    if (status == CPROF_OK) {
        gone = *snapshot;
        snapshot->pool = folded.pool;
        snapshot->keys = folded.keys;
        snapshot->in_order = folded.in_order;
        snapshot->key_count = folded.key_count;
    }
    release_keys(&gone);
    return status;
}

cprof_status cprof_snapshot_bound(cprof_snapshot *snapshot, size_t most, size_t most_stages, uint64_t *folded)
{
    cprof_status status = CPROF_OK;
    for (int keeps_stages = 1; keeps_stages >= 0 && snapshot->key_count > most + most_stages; keeps_stages--) {
        size_t beyond = snapshot->key_count - most;
        status = fold(snapshot, most, keeps_stages != 0);
        if (status != CPROF_OK) {
            break;
        }
        *folded += keeps_stages != 0 ? beyond : 0;
    }
    return status;
}
