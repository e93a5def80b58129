#include "cprofiling/trace/table_lanes.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/hash.h"

#include <string.h>

enum {
    BLOCK = 16,       /* rows that are sorted by insertion */
    FIRST_DEPTH = 64, /* of a stack */
    WIDEST_ITEM = 8,  /* bytes of a column's items */
};

typedef struct {
    cprof_ns end;
    uint32_t row;
} enclosing_row;

/* Without memory for a column of "none" there are none: this cannot fail. */
static void forget_what_was_found(cprof_table *table)
{
    cprof_alloc_release(table->lane);
    table->lane = NULL;
    for (size_t i = 0; i < table->track_count; i++) {
        table->tracks[i].lanes = 0;
    }
    for (size_t i = 0; i < table->count; i++) {
        table->parent[i] = -1;
    }
}

/* Fills in unknown values. */
static void complete_process(cprof_track *track, const cprof_track *from)
{
    track->process_name = track->process_name != 0 ? track->process_name : from->process_name;
    track->process_labels = track->process_labels != 0 ? track->process_labels : from->process_labels;
    track->process_sort = track->process_sort != CPROF_TABLE_UNKNOWN ? track->process_sort : from->process_sort;
}

/* Whether row a has to come before row b; of equal rows neither has. */
static inline bool precedes(const cprof_table *table, size_t a, size_t b)
{
    cprof_ns start_a = table->start_ns[a];
    cprof_ns start_b = table->start_ns[b];
    return start_a < start_b || (start_a == start_b && table->end_ns[a] > table->end_ns[b]);
}

/* The slot of a span's row + 1, or the empty slot where it belongs. */
static uint32_t *slot_of_span(const cprof_table *table, uint32_t *slots, size_t slot_count, uint64_t span)
{
    size_t slot = cprof_hash_mix(table->seed, span) & (slot_count - 1);
    while (slots[slot] != 0 && table->span[slots[slot] - 1] != span) {
        slot = (slot + 1) & (slot_count - 1);
    }
    return &slots[slot];
}

/* Finds parents by ids; rows are still numbered in the order of their adding. True when a parent does not precede its child: it
 * may be after it in the sorted order, or even be its descendant. */
static bool look_up_parents(cprof_table *table, uint32_t *slots, size_t slot_count)
{
    bool is_odd = false;
    for (size_t i = 0; i < table->count; i++) {
        if (table->parent_span[i] == 0) {
            continue;
        }
        uint32_t found = *slot_of_span(table, slots, slot_count, table->parent_span[i]);
        if (found != 0) {
            table->parent[i] = (int32_t)(found - 1);
            is_odd = is_odd || !precedes(table, found - 1, i);
        }
    }
    return is_odd;
}

/* Cuts circles of parents, which only damaged data has. */
static cprof_status cut_circles(cprof_table *table)
{
    uint32_t *visits = cprof_alloc_zeroed(table->count * sizeof *visits);
    if (visits == NULL) {
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < table->count; i++) {
        int32_t last = -1;
        int32_t at = (int32_t)i;
        for (; at >= 0 && visits[at] == 0; at = table->parent[at]) {
            visits[at] = (uint32_t)(i + 1);
            last = at;
        }
        if (at >= 0 && last >= 0 && visits[at] == i + 1) {
            table->parent[last] = -1;
        }
    }
    cprof_alloc_release(visits);
    return CPROF_OK;
}

/* *is_odd: a parent may come after its child in the sorted order. */
static cprof_status link_by_ids(cprof_table *table, bool *is_odd)
{
    *is_odd = false;
    if (table->parent_span == NULL || table->span == NULL) {
        return CPROF_OK;
    }
    size_t slot_count = 2;
    while (slot_count < 2 * table->count) {
        slot_count *= 2;
    }
    uint32_t *slots = cprof_alloc_zeroed(slot_count * sizeof *slots);
    if (slots == NULL) {
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < table->count; i++) {
        if (table->span[i] != 0) {
            uint32_t *slot = slot_of_span(table, slots, slot_count, table->span[i]);
            *slot = *slot != 0 ? *slot : (uint32_t)(i + 1);
        }
    }
    *is_odd = look_up_parents(table, slots, slot_count);
    cprof_alloc_release(slots);
    return *is_odd ? cut_circles(table) : CPROF_OK;
}

static bool is_in_order(const cprof_table *table)
{
    for (size_t i = 1; i < table->count; i++) {
        if (precedes(table, i, i - 1)) {
            return false;
        }
    }
    return true;
}

static void sort_block(const cprof_table *table, uint32_t *order, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        uint32_t row = order[i];
        size_t at = i;
        for (; at > 0 && precedes(table, row, order[at - 1]); at--) {
            order[at] = order[at - 1];
        }
        order[at] = row;
    }
}

/* The number of sorted rows before `row`, with or without equal ones. */
static size_t count_before(const cprof_table *table, const uint32_t *order, size_t count, uint32_t row, bool equal_too)
{
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        bool before = equal_too ? !precedes(table, row, order[middle]) : precedes(table, order[middle], row);
        low = before ? middle + 1 : low;
        count = before ? count : middle;
    }
    return low;
}

/* Merges two sorted runs that lie side by side. What is in its place already is not moved: most of it, in what a few threads
 * have recorded. */
static void merge_runs(const cprof_table *table, uint32_t *order, size_t left, size_t right, uint32_t *scratch)
{
    if (!precedes(table, order[left], order[left - 1])) {
        return;
    }
    size_t stays = count_before(table, order, left, order[left], true);
    size_t end = left + count_before(table, order + left, right, order[left - 1], false);
    size_t moved = left - stays;
    memcpy(scratch, order + stays, moved * sizeof *scratch);
    size_t from = 0;
    size_t at = stays;
    for (size_t next = left; from < moved; at++) {
        bool takes_next = next < end && precedes(table, order[next], scratch[from]);
        order[at] = takes_next ? order[next++] : scratch[from++];
    }
}

static void sort(const cprof_table *table, uint32_t *order, uint32_t *scratch)
{
    size_t count = table->count;
    for (size_t i = 0; i < count; i++) {
        order[i] = (uint32_t)i;
    }
    for (size_t at = 0; at < count; at += BLOCK) {
        sort_block(table, order + at, count - at < BLOCK ? count - at : BLOCK);
    }
    for (size_t width = BLOCK; width < count; width *= 2) {
        for (size_t at = 0; at + width < count; at += 2 * width) {
            size_t right = count - at - width < width ? count - at - width : width;
            merge_runs(table, order + at, width, right, scratch);
        }
    }
}

/* Puts parents before their children where both have the same interval and the child was added first, as it is by those who
 * add the ended rows. `fresh` has room for the rows, `is_placed` a zero for each. */
static void put_parents_first(const cprof_table *table, uint32_t *order, uint32_t *fresh, uint8_t *is_placed)
{
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++) {
        size_t begin = count;
        int32_t row = (int32_t)order[i];
        while (row >= 0 && !is_placed[row] && table->start_ns[row] == table->start_ns[order[i]] &&
               table->end_ns[row] == table->end_ns[order[i]]) {
            is_placed[row] = 1;
            fresh[count++] = (uint32_t)row;
            row = table->parent[row];
        }
        for (size_t end = count; begin + 1 < end; begin++, end--) {
            uint32_t first = fresh[begin];
            fresh[begin] = fresh[end - 1];
            fresh[end - 1] = first;
        }
    }
    memcpy(order, fresh, count * sizeof *order);
}

/* Moves the rows; then parents, which are numbers of rows, are translated. */
static void reorder(cprof_table *table, const uint32_t *order, void *scratch)
{
#define REORDER_COLUMN(name, type, none)                                \
    if (table->name != NULL) {                                          \
        type *moved = scratch; /* NOLINT(bugprone-macro-parentheses) */ \
        for (size_t i = 0; i < table->count; i++) {                     \
            moved[i] = table->name[order[i]];                           \
        }                                                               \
        memcpy(table->name, moved, table->count * sizeof *moved);       \
    }
    CPROF_TABLE_COLUMNS(REORDER_COLUMN)
#undef REORDER_COLUMN
    int32_t *places = scratch;
    for (size_t i = 0; i < table->count; i++) {
        places[order[i]] = (int32_t)i;
    }
    for (size_t i = 0; i < table->count; i++) {
        table->parent[i] = table->parent[i] >= 0 ? places[table->parent[i]] : -1;
    }
}

static cprof_status put_in_order(cprof_table *table)
{
    bool is_odd;
    if (link_by_ids(table, &is_odd) != CPROF_OK) {
        return CPROF_NO_MEMORY;
    }
    if (!is_odd && is_in_order(table)) {
        return CPROF_OK;
    }
    size_t count = table->count;
    uint32_t *order = cprof_alloc_resize(NULL, count * sizeof *order);
    char *scratch = cprof_alloc_resize(NULL, count * WIDEST_ITEM);
    if (order != NULL && scratch != NULL) {
        sort(table, order, (uint32_t *)scratch);
        if (is_odd) {
            uint8_t *is_placed = (uint8_t *)scratch + count * sizeof *order;
            memset(is_placed, 0, count);
            put_parents_first(table, order, (uint32_t *)scratch, is_placed);
        }
        reorder(table, order, scratch);
    }
    cprof_status status = order != NULL && scratch != NULL ? CPROF_OK : CPROF_NO_MEMORY;
    cprof_alloc_release(order);
    cprof_alloc_release(scratch);
    return status;
}

static void dispose_index(cprof_table_lanes_index *index)
{
    cprof_alloc_release(index->rows);
    cprof_alloc_release(index->first);
}

static cprof_status make_index(const cprof_table *table, cprof_table_lanes_index *index)
{
    *index = (cprof_table_lanes_index){
        cprof_alloc_resize(NULL, table->count * sizeof *index->rows),
        cprof_alloc_zeroed((table->track_count + 1) * sizeof *index->first),
    };
    if (index->rows == NULL || index->first == NULL) {
        dispose_index(index);
        return CPROF_NO_MEMORY;
    }
    uint32_t *first = index->first;
    for (size_t i = 0; i < table->count; i++) {
        first[table->track[i]]++;
    }
    uint32_t before = 0;
    for (size_t i = 0; i <= table->track_count; i++) {
        uint32_t here = first[i];
        first[i] = before;
        before += here;
    }
    for (size_t i = 0; i < table->count; i++) {
        index->rows[first[table->track[i]]++] = (uint32_t)i;
    }
    memmove(first + 1, first, table->track_count * sizeof *first);
    first[0] = 0;
    return CPROF_OK;
}

static bool may_nest(const cprof_table *table, size_t row)
{
    uint8_t kind = table->kind[row];
    return kind != CPROF_KIND_INSTANT && kind != CPROF_KIND_COUNTER && kind != CPROF_KIND_STEP;
}

/* Where a row must end at least that began before this one, to have it inside. */
static cprof_ns least_end_around(cprof_ns start_ns, cprof_ns end_ns)
{
    if ((uint64_t)end_ns - (uint64_t)start_ns > CPROF_TABLE_LANES_ROUNDING_NS) {
        return end_ns - CPROF_TABLE_LANES_ROUNDING_NS;
    }
    return start_ns < end_ns ? start_ns + 1 : end_ns;
}

/* The ends on the stack fall towards its top: a row takes the place of those that began before it and end no later, as whatever
 * comes later and lies within one of them lies within it. */
static cprof_status nest_track(cprof_table *table, const uint32_t *rows, size_t count, enclosing_row **stack, size_t *capacity)
{
    size_t depth = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t row = rows[i];
        if (!may_nest(table, row)) {
            continue;
        }
        cprof_ns end_ns = table->end_ns[row];
        cprof_ns least_ns = least_end_around(table->start_ns[row], end_ns);
        while (depth > 0 && (*stack)[depth - 1].end < least_ns) {
            depth--;
        }
        if (depth > 0 && !cprof_table_lanes_has_ids(table, row)) {
            table->parent[row] = (int32_t)(*stack)[depth - 1].row;
            end_ns = end_ns < (*stack)[depth - 1].end ? end_ns : (*stack)[depth - 1].end;
        }
        while (depth > 0 && (*stack)[depth - 1].end <= end_ns) {
            depth--;
        }
        enclosing_row *resized = cprof_alloc_grow(*stack, capacity, depth, sizeof *resized, FIRST_DEPTH);
        if (resized == NULL) {
            return CPROF_NO_MEMORY;
        }
        *stack = resized;
        (*stack)[depth++] = (enclosing_row){end_ns, row};
    }
    return CPROF_OK;
}

static bool any_without_ids(const cprof_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        if (!cprof_table_lanes_has_ids(table, i) && may_nest(table, i)) {
            return true;
        }
    }
    return false;
}

static cprof_status link_by_time(cprof_table *table, const cprof_table_lanes_index *index)
{
    enclosing_row *stack = NULL;
    size_t capacity = 0;
    cprof_status status = CPROF_OK;
    if (!any_without_ids(table)) {
        return CPROF_OK;
    }
    for (size_t i = 0; status == CPROF_OK && i < table->track_count; i++) {
        size_t first = index->first[i];
        status = nest_track(table, index->rows + first, index->first[i + 1] - first, &stack, &capacity);
    }
    cprof_alloc_release(stack);
    return status;
}

static cprof_status finish_rows(cprof_table *table)
{
    cprof_table_lanes_index index;
    if (put_in_order(table) != CPROF_OK || make_index(table, &index) != CPROF_OK) {
        return CPROF_NO_MEMORY;
    }
    cprof_status status = link_by_time(table, &index);
    status = status == CPROF_OK ? cprof_table_lanes_assign(table, &index) : status;
    dispose_index(&index);
    return status;
}

cprof_status cprof_table_finish(cprof_table *table)
{
    if (table->finished) {
        return CPROF_OK;
    }
    forget_what_was_found(table);
    if (table->count > 0 && finish_rows(table) != CPROF_OK) {
        forget_what_was_found(table);
        return CPROF_NO_MEMORY;
    }
    /* All tracks of a process share its facts. */
    for (size_t i = 0; i < table->track_count; i++) {
        complete_process(&table->tracks[table->tracks[i].process], &table->tracks[i]);
    }
    for (size_t i = 0; i < table->track_count; i++) {
        complete_process(&table->tracks[i], &table->tracks[table->tracks[i].process]);
    }
    table->finished = true;
    return CPROF_OK;
}
