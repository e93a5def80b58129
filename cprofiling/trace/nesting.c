#include "cprofiling/trace/nesting.h"

#include "cprofiling/base/alloc.h"

#include <string.h>

enum { LONGEST_CLIMB = 100 };

/* The row that a row's parent says is around it. Of spans of one time, that may be a row after it: then one further up. */
static int32_t earlier_parent(const cprof_table *table, size_t row)
{
    int32_t parent = table->parent[row];
    for (int climbed = 1; parent >= 0 && (size_t)parent >= row; climbed++) {
        parent = climbed < LONGEST_CLIMB ? table->parent[parent] : -1;
    }
    return parent;
}

cprof_status cprof_nesting_parents(const cprof_table *table, const uint8_t *counted, int32_t *parents)
{
    if (table->count == 0) {
        return CPROF_OK;
    }
    int32_t *around = cprof_alloc_zeroed(table->count * sizeof *around); /* of rows that do not count, too */
    if (around == NULL) {
        return CPROF_NO_MEMORY;
    }
    for (size_t row = 0; row < table->count; row++) {
        int32_t parent = earlier_parent(table, row);
        if (parent >= 0 && counted[parent] == 0) {
            parent = around[parent];
        }
        bool has_id = table->span != NULL && table->span[row] != 0;
        while (parent >= 0 && !has_id && table->start_ns[row] >= table->end_ns[parent]) {
            parent = around[parent];
        }
        around[row] = parent;
        parents[row] = counted[row] != 0 ? parent : CPROF_NESTING_LEFT_OUT;
    }
    cprof_alloc_release(around);
    return CPROF_OK;
}

/* The work on one track. */
typedef struct {
    int64_t done;  /* up to where its time is given to rows */
    uint32_t open; /* the innermost open row + 1, or 0 */
    bool takes_turns;
} open_track;

static bool is_suspendable(const cprof_table *table, size_t row)
{
    return table->flags != NULL && (table->flags[row] & CPROF_ROW_SUSPENDABLE) != 0;
}

/* Gives the innermost open row the time up to a moment. */
static void give(open_track *track, int64_t until, uint64_t *own_ns)
{
    if (until > track->done) {
        own_ns[track->open - 1] += (uint64_t)until - (uint64_t)track->done;
        track->done = until;
    }
}

static void close_innermost(const cprof_table *table, open_track *track, const uint32_t *around, uint64_t *own_ns)
{
    give(track, table->end_ns[track->open - 1], own_ns);
    track->open = around[track->open - 1];
}

static void sweep(const cprof_table *table, const int32_t *parents, open_track *tracks, uint32_t *around, uint64_t *own_ns)
{
    for (size_t row = 0; row < table->count; row++) {
        tracks[table->track[row]].takes_turns |= is_suspendable(table, row);
    }
    for (size_t row = 0; row < table->count; row++) {
        open_track *track = &tracks[table->track[row]];
        if (parents[row] == CPROF_NESTING_LEFT_OUT || track->takes_turns) {
            continue;
        }
        int64_t start_ns = table->start_ns[row];
        while (track->open != 0 && table->end_ns[track->open - 1] <= start_ns) {
            close_innermost(table, track, around, own_ns);
        }
        if (track->open != 0) {
            give(track, start_ns, own_ns);
        } else {
            track->done = start_ns;
        }
        around[row] = track->open;
        track->open = (uint32_t)row + 1;
    }
    for (size_t i = 0; i < table->track_count; i++) {
        while (tracks[i].open != 0) {
            close_innermost(table, &tracks[i], around, own_ns);
        }
    }
}

cprof_status cprof_nesting_own_times(const cprof_table *table, const int32_t *parents, uint64_t *own_ns)
{
    if (table->count == 0) {
        return CPROF_OK;
    }
    open_track *tracks = cprof_alloc_zeroed(table->track_count * sizeof *tracks);
    uint32_t *around = cprof_alloc_zeroed(table->count * sizeof *around);
    cprof_status status = tracks != NULL && around != NULL ? CPROF_OK : CPROF_NO_MEMORY;
    memset(own_ns, 0, table->count * sizeof *own_ns);
    if (status == CPROF_OK) {
        sweep(table, parents, tracks, around, own_ns);
    }
    cprof_alloc_release(tracks);
    cprof_alloc_release(around);
    return status;
}
