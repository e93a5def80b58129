#include "cprofiling/trace/table_lanes.h"

#include "cprofiling/base/alloc.h"

enum { FIRST_OPEN = 64 };

#define TO_BE_MOVED UINT32_MAX

/* A row that is open at the moment at which the work is; rows + 1 and places in the pool + 1, so that 0 is none. */
typedef struct {
    cprof_ns end;
    uint32_t row;
    uint32_t below; /* in its lane; of a free one: the next */
} open_row;

/* The work on one track: a stack of open rows for each lane. */
typedef struct {
    cprof_table *table;
    open_row *pool;
    size_t capacity;
    size_t used;
    uint32_t free;
    uint32_t tops[CPROF_TABLE_MAX_LANES];
    unsigned lanes;
    /* NULL where no row is suspendable. For each row, and at the end for the track: its children that may share their time
     * with a sibling (row + 1, the last one first); and for each such child the one before it. */
    uint32_t *last_child;
    uint32_t *sibling;
} track_sweep;

static bool has_lane(const cprof_table *table, size_t row)
{
    uint8_t kind = table->kind[row];
    return kind != CPROF_KIND_INSTANT && kind != CPROF_KIND_COUNTER;
}

static bool is_suspendable(const cprof_table *table, size_t row)
{
    return table->flags != NULL && (table->flags[row] & CPROF_ROW_SUSPENDABLE) != 0;
}

/* The parent where it is on the same track, or -1. */
static int32_t parent_here(const cprof_table *table, size_t row)
{
    int32_t parent = table->parent[row];
    return parent >= 0 && table->track[parent] == table->track[row] ? parent : -1;
}

/* Whether a row may lie within any other: it is a step, or on a device, or nothing is known of its parent. */
static bool is_anybodys(const cprof_table *table, size_t row)
{
    return table->kind[row] == CPROF_KIND_STEP || table->kind[row] == CPROF_KIND_DEVICE ||
           !cprof_table_lanes_has_ids(table, row) ||
           (table->parent[row] < 0 && table->parent_span != NULL && table->parent_span[row] != 0);
}

/* Rows with lanes overlap others of the same parent on this track, or others without a parent here. */
static void find_sharing(track_sweep *sweep, const uint32_t *rows, size_t count)
{
    cprof_table *table = sweep->table;
    sweep->last_child[table->count] = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t row = rows[i];
        if (!has_lane(table, row) || table->kind[row] == CPROF_KIND_STEP) {
            continue;
        }
        int32_t parent = parent_here(table, row);
        uint32_t *last = &sweep->last_child[parent >= 0 ? (size_t)parent : table->count];
        if (is_suspendable(table, row)) {
            sweep->sibling[row] = *last;
            *last = row + 1;
            continue;
        }
        while (*last != 0) {
            uint32_t sibling = *last - 1;
            *last = sweep->sibling[sibling];
            sweep->sibling[sibling] = table->end_ns[sibling] > table->start_ns[row] ? TO_BE_MOVED : 0;
        }
    }
}

static cprof_status prepare_sharing(track_sweep *sweep)
{
    const cprof_table *table = sweep->table;
    size_t row = 0;
    while (row < table->count && !is_suspendable(table, row)) {
        row++;
    }
    if (row == table->count) {
        return CPROF_OK;
    }
    sweep->last_child = cprof_alloc_zeroed((table->count + 1) * sizeof *sweep->last_child);
    sweep->sibling = cprof_alloc_zeroed(table->count * sizeof *sweep->sibling);
    return sweep->last_child != NULL && sweep->sibling != NULL ? CPROF_OK : CPROF_NO_MEMORY;
}

static void pop(track_sweep *sweep, unsigned lane)
{
    uint32_t place = sweep->tops[lane];
    open_row *top = &sweep->pool[place - 1];
    sweep->tops[lane] = top->below;
    top->below = sweep->free;
    sweep->free = place;
}

static cprof_status take_place(track_sweep *sweep, uint32_t *place)
{
    if (sweep->free != 0) {
        *place = sweep->free;
        sweep->free = sweep->pool[*place - 1].below;
        return CPROF_OK;
    }
    open_row *resized = cprof_alloc_grow(sweep->pool, &sweep->capacity, sweep->used, sizeof *resized, FIRST_OPEN);
    if (resized == NULL) {
        return CPROF_NO_MEMORY;
    }
    sweep->pool = resized;
    *place = (uint32_t)++sweep->used;
    return CPROF_OK;
}

static cprof_status push(track_sweep *sweep, unsigned lane, uint32_t row)
{
    uint32_t place;
    if (take_place(sweep, &place) != CPROF_OK) {
        return CPROF_NO_MEMORY;
    }
    uint32_t below = sweep->tops[lane];
    cprof_ns end_ns = sweep->table->end_ns[row];
    if (below != 0 && sweep->pool[below - 1].end < end_ns) {
        end_ns = sweep->pool[below - 1].end;
    }
    sweep->pool[place - 1] = (open_row){end_ns, row, below};
    sweep->tops[lane] = place;
    return CPROF_OK;
}

/* Whether a row lies within an open one that began before it, and may. */
static bool lies_within(const cprof_table *table, uint32_t row, const open_row *open)
{
    cprof_ns end_ns = table->end_ns[row];
    /* What takes no time, where this one begins: its parent may have ended just before. */
    bool is_at_the_border = end_ns == table->start_ns[open->row];
    if (!is_at_the_border && !is_anybodys(table, row) && table->parent[row] != (int32_t)open->row &&
        table->kind[open->row] != CPROF_KIND_STEP) {
        return false;
    }
    return end_ns <= open->end || (!cprof_table_lanes_has_ids(table, row) && table->start_ns[row] < open->end &&
                                   (uint64_t)end_ns - (uint64_t)open->end <= CPROF_TABLE_LANES_ROUNDING_NS);
}

/* Whether an open row that does not have this one inside has ended before it begins. */
static bool has_ended(const cprof_table *table, const open_row *open, uint32_t row)
{
    cprof_ns start_ns = table->start_ns[row];
    return open->end <= start_ns || (!cprof_table_lanes_has_ids(table, row) &&
                                     (uint64_t)open->end - (uint64_t)start_ns <= CPROF_TABLE_LANES_ROUNDING_NS);
}

/* Whether a row can go to the top of a lane; removes ended rows there. */
static bool fits(track_sweep *sweep, unsigned lane, uint32_t row)
{
    while (sweep->tops[lane] != 0) {
        const open_row *top = &sweep->pool[sweep->tops[lane] - 1];
        if (lies_within(sweep->table, row, top)) {
            return true;
        }
        if (!has_ended(sweep->table, top, row)) {
            return false;
        }
        pop(sweep, lane);
    }
    return true;
}

/* The parent's lane, where the row fits into it; else the next one into which it fits, or the last one of all. */
static unsigned choose_lane(track_sweep *sweep, uint32_t row)
{
    const cprof_table *table = sweep->table;
    int32_t parent = parent_here(table, row);
    unsigned home = parent >= 0 && table->lane != NULL ? table->lane[parent] : 0;
    bool moves = sweep->sibling != NULL && sweep->sibling[row] == TO_BE_MOVED;
    for (unsigned lane = moves ? home + 1 : home; lane < sweep->lanes; lane++) {
        if (fits(sweep, lane, row)) {
            return lane;
        }
    }
    for (unsigned lane = 0; !moves && lane < home; lane++) {
        if (fits(sweep, lane, row)) {
            return lane;
        }
    }
    if (sweep->lanes < CPROF_TABLE_MAX_LANES) {
        sweep->tops[sweep->lanes++] = 0;
    }
    return sweep->lanes - 1;
}

static cprof_status set_lane(cprof_table *table, uint32_t row, unsigned lane)
{
    if (lane == 0) {
        return CPROF_OK;
    }
    if (table->lane == NULL) {
        table->lane = cprof_alloc_zeroed(table->count * sizeof *table->lane);
        if (table->lane == NULL) {
            return CPROF_NO_MEMORY;
        }
    }
    table->lane[row] = (uint16_t)lane;
    return CPROF_OK;
}

static cprof_status lay_track(track_sweep *sweep, const uint32_t *rows, size_t count)
{
    sweep->used = 0;
    sweep->free = 0;
    sweep->lanes = 1;
    sweep->tops[0] = 0;
    if (sweep->sibling != NULL) {
        find_sharing(sweep, rows, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (!has_lane(sweep->table, rows[i])) {
            continue;
        }
        unsigned lane = choose_lane(sweep, rows[i]);
        if (push(sweep, lane, rows[i]) != CPROF_OK || set_lane(sweep->table, rows[i], lane) != CPROF_OK) {
            return CPROF_NO_MEMORY;
        }
    }
    return CPROF_OK;
}

cprof_status cprof_table_lanes_assign(cprof_table *table, const cprof_table_lanes_index *index)
{
    track_sweep sweep = {.table = table};
    cprof_status status = prepare_sharing(&sweep);
    for (size_t i = 0; status == CPROF_OK && i < table->track_count; i++) {
        size_t first = index->first[i];
        status = lay_track(&sweep, index->rows + first, index->first[i + 1] - first);
        table->tracks[i].lanes = (uint16_t)(sweep.lanes - 1);
    }
    cprof_alloc_release(sweep.pool);
    cprof_alloc_release(sweep.last_child);
    cprof_alloc_release(sweep.sibling);
    return status;
}
