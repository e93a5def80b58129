#include "cprofiling/trace/table.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/hash.h"
#include "cprofiling/base/random.h"
#include "cprofiling/base/vector.h"

#include <stddef.h>
#include <string.h>

enum {
    FIRST_ROWS = 256,
    FIRST_ITEMS = 16, /* of other lists */
    FIRST_BYTES = 1024,
};

/* What is the same for all tables. */
typedef struct {
    const char *name;
    char format;
    uint8_t item_size;
    uint16_t in_table; /* offset of the pointer to its array */
    uint16_t in_row;
    int64_t none;
} column_kind;

#define FORMAT_OF(type) _Generic((type)0, int64_t: 'q', uint64_t: 'Q', int32_t: 'i', uint32_t: 'I', uint16_t: 'H', uint8_t: 'B')

static const column_kind kinds[CPROF_COLUMN_COUNT] = {
#define COLUMN_KIND(name, type, none) \
    {#name, FORMAT_OF(type), sizeof(type), offsetof(cprof_table, name), offsetof(cprof_row, name), none},
    CPROF_TABLE_COLUMNS(COLUMN_KIND)
#undef COLUMN_KIND
};

/* There whenever there are rows. */
static const uint64_t always = UINT64_C(1) << CPROF_COLUMN_start_ns | UINT64_C(1) << CPROF_COLUMN_end_ns |
                               UINT64_C(1) << CPROF_COLUMN_track | UINT64_C(1) << CPROF_COLUMN_name |
                               UINT64_C(1) << CPROF_COLUMN_cat | UINT64_C(1) << CPROF_COLUMN_kind |
                               UINT64_C(1) << CPROF_COLUMN_parent;

const cprof_row cprof_row_none = {
#define ROW_NONE(name, type, none) .name = (none),
    CPROF_TABLE_COLUMNS(ROW_NONE)
#undef ROW_NONE
};

/* Columns are reached by their number; copied, as pointers of different types are no `void *` to C. */
static void *items_of(const cprof_table *table, size_t column)
{
    void *items;
    memcpy(&items, (const char *)table + kinds[column].in_table, sizeof items);
    return items;
}

static void set_items(cprof_table *table, size_t column, void *items)
{
    memcpy((char *)table + kinds[column].in_table, &items, sizeof items);
}

cprof_column cprof_table_column(const cprof_table *table, cprof_column_number number)
{
    const column_kind *kind = &kinds[number];
    return (cprof_column){kind->name, kind->format, kind->item_size, items_of(table, number), kind->none};
}

cprof_table *cprof_table_create(void)
{
    cprof_table *table = cprof_alloc_zeroed(sizeof *table);
    if (table != NULL) {
        cprof_random_bytes(&table->seed, sizeof table->seed);
    }
    return table;
}

cprof_table *cprof_table_share(cprof_table *table)
{
    atomic_fetch_add_explicit(&table->shares, 1, memory_order_relaxed);
    return table;
}

void cprof_table_destroy(cprof_table *table)
{
    if (table == NULL || atomic_fetch_sub_explicit(&table->shares, 1, memory_order_acq_rel) > 0) {
        return;
    }
    for (size_t i = 0; i < CPROF_COLUMN_COUNT; i++) {
        cprof_alloc_release(items_of(table, i));
    }
    cprof_names_dispose(&table->texts);
    cprof_alloc_release(table->tracks);
    cprof_alloc_release(table->flows);
    cprof_alloc_release(table->facts);
    cprof_alloc_release(table->kept);
    cprof_alloc_release(table->track_slots.slots);
    cprof_alloc_release(table->fact_slots.slots);
    cprof_alloc_release(table->process_slots.slots);
    cprof_alloc_release(table);
}

cprof_status cprof_table_text(cprof_table *table, cprof_name string, cprof_text *text)
{
    if (string.length == 0) {
        *text = 0;
        return CPROF_OK;
    }
    cprof_names key = {{"", 0}, string};
    size_t index = cprof_names_find(&table->texts, key);
    if (index == CPROF_NAMES_ABSENT) {
        index = table->texts.count;
        if (index >= UINT32_MAX - 1 || cprof_names_add(&table->texts, key) != CPROF_OK) {
            return CPROF_NO_MEMORY;
        }
    }
    *text = (cprof_text)(index + 1);
    return CPROF_OK;
}

cprof_name cprof_table_string(const cprof_table *table, cprof_text text)
{
    return text == 0 ? (cprof_name){"", 0} : cprof_names_at(&table->texts, text - 1).node;
}

static uint64_t hash_process(uint64_t seed, const cprof_track *track)
{
    return cprof_hash_mix(cprof_hash_mix(seed, (uint64_t)track->pid), track->pid_text);
}

static uint64_t hash_track(uint64_t seed, const cprof_track *track)
{
    return cprof_hash_mix(cprof_hash_mix(hash_process(seed, track), (uint64_t)track->tid), track->tid_text);
}

static bool same_process(const cprof_track *a, const cprof_track *b)
{
    return a->pid == b->pid && a->pid_text == b->pid_text;
}

static bool same_track(const cprof_track *a, const cprof_track *b)
{
    return same_process(a, b) && a->tid == b->tid && a->tid_text == b->tid_text;
}

/* The slot of the track that is `same` as the one wanted, or the empty slot where it belongs. There is one. */
static uint32_t *slot_of_track(const cprof_table *table, const cprof_table_slots *slots, uint64_t hash,
                               bool (*same)(const cprof_track *, const cprof_track *), const cprof_track *wanted)
{
    size_t slot = hash & (slots->count - 1);
    while (slots->slots[slot] != 0 && !same(&table->tracks[slots->slots[slot] - 1], wanted)) {
        slot = (slot + 1) & (slots->count - 1);
    }
    return &slots->slots[slot];
}

static uint32_t *slot_of_fact(const cprof_table *table, const cprof_table_slots *slots, cprof_text key)
{
    size_t slot = cprof_hash_mix(table->seed, key) & (slots->count - 1);
    while (slots->slots[slot] != 0 && table->facts[slots->slots[slot] - 1].key != key) {
        slot = (slot + 1) & (slots->count - 1);
    }
    return &slots->slots[slot];
}

/* Twice as many empty slots, where `count` items and one more would fill more than half of them; else `fresh` is the old. */
static cprof_status larger_slots(const cprof_table_slots *old, size_t count, cprof_table_slots *fresh)
{
    *fresh = *old;
    if (count < old->count / 2) {
        return CPROF_OK;
    }
    fresh->count = old->count == 0 ? 2 * (size_t)FIRST_ITEMS : old->count * 2;
    fresh->slots = cprof_alloc_zeroed(fresh->count * sizeof *fresh->slots);
    return fresh->slots != NULL ? CPROF_OK : CPROF_NO_MEMORY;
}

static void replace_slots(cprof_table_slots *old, cprof_table_slots fresh)
{
    if (old->slots != fresh.slots) {
        cprof_alloc_release(old->slots);
    }
    *old = fresh;
}

/* Room for one more in both tables of slots: there are at most as many processes as tracks. */
static cprof_status make_track_slots(cprof_table *table)
{
    cprof_table_slots tracks;
    cprof_table_slots processes;
    if (larger_slots(&table->track_slots, table->track_count, &tracks) != CPROF_OK) {
        return CPROF_NO_MEMORY;
    }
    if (tracks.slots == table->track_slots.slots) {
        return CPROF_OK;
    }
    if (larger_slots(&table->process_slots, table->track_count, &processes) != CPROF_OK) {
        cprof_alloc_release(tracks.slots);
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < table->track_count; i++) {
        const cprof_track *track = &table->tracks[i];
        *slot_of_track(table, &tracks, hash_track(table->seed, track), same_track, track) = (uint32_t)(i + 1);
        if (track->process == i) {
            *slot_of_track(table, &processes, hash_process(table->seed, track), same_process, track) = (uint32_t)(i + 1);
        }
    }
    replace_slots(&table->track_slots, tracks);
    replace_slots(&table->process_slots, processes);
    return CPROF_OK;
}

static cprof_status add_track(cprof_table *table, cprof_track track)
{
    size_t number = table->track_count;
    cprof_track *tracks = number < UINT32_MAX - 1
                              ? cprof_vector_grow(table->tracks, &table->track_capacity, number, sizeof *tracks, FIRST_ITEMS)
                              : NULL;
    if (tracks == NULL) {
        return CPROF_NO_MEMORY;
    }
    table->tracks = tracks;
    if (make_track_slots(table) != CPROF_OK) {
        return CPROF_NO_MEMORY;
    }
    uint32_t *process = slot_of_track(table, &table->process_slots, hash_process(table->seed, &track), same_process, &track);
    if (*process == 0) {
        *process = (uint32_t)(number + 1);
    }
    track.process = *process - 1;
    *slot_of_track(table, &table->track_slots, hash_track(table->seed, &track), same_track, &track) = (uint32_t)(number + 1);
    tracks[number] = track;
    table->track_count++;
    return CPROF_OK;
}

static cprof_track new_track(int64_t pid, cprof_text pid_text, int64_t tid, cprof_text tid_text)
{
    return (cprof_track){
        .pid = pid_text == 0 ? pid : 0,
        .tid = tid_text == 0 ? tid : 0,
        .pid_text = pid_text,
        .tid_text = tid_text,
        .process_sort = CPROF_TABLE_UNKNOWN,
        .thread_sort = CPROF_TABLE_UNKNOWN,
    };
}

bool cprof_table_find_track(const cprof_table *table, int64_t pid, cprof_text pid_text, int64_t tid, cprof_text tid_text,
                            uint32_t *track)
{
    cprof_track wanted = new_track(pid, pid_text, tid, tid_text);
    uint32_t found = table->track_count > 0
                         ? *slot_of_track(table, &table->track_slots, hash_track(table->seed, &wanted), same_track, &wanted)
                         : 0;
    *track = found - 1;
    return found != 0;
}

bool cprof_table_find_process(const cprof_table *table, int64_t pid, cprof_text pid_text, uint32_t *track)
{
    cprof_track wanted = new_track(pid, pid_text, 0, 0);
    uint32_t found = table->track_count > 0 ? *slot_of_track(table, &table->process_slots, hash_process(table->seed, &wanted),
                                                             same_process, &wanted)
                                            : 0;
    *track = found - 1;
    return found != 0;
}

cprof_status cprof_table_track(cprof_table *table, int64_t pid, cprof_text pid_text, int64_t tid, cprof_text tid_text,
                               uint32_t *track)
{
    if (cprof_table_find_track(table, pid, pid_text, tid, tid_text, track)) {
        return CPROF_OK;
    }
    *track = (uint32_t)table->track_count;
    return add_track(table, new_track(pid, pid_text, tid, tid_text));
}

cprof_status cprof_table_keep(cprof_table *table, cprof_name bytes, uint64_t *at)
{
    uint64_t wanted = table->kept_count + bytes.length;
    if (wanted > table->kept_capacity) {
        uint64_t larger = table->kept_capacity == 0 ? FIRST_BYTES : table->kept_capacity * 2;
        larger = larger < wanted ? wanted : larger;
        char *resized = cprof_alloc_resize(table->kept, larger);
        if (resized == NULL) {
            return CPROF_NO_MEMORY;
        }
        table->kept = resized;
        table->kept_capacity = larger;
    }
    if (bytes.length > 0) {
        memcpy(table->kept + table->kept_count, bytes.bytes, bytes.length);
    }
    *at = table->kept_count;
    table->kept_count = wanted;
    return CPROF_OK;
}

/* A new column, in which all rows so far have "none". */
static cprof_status make_column(cprof_table *table, size_t column)
{
    size_t item_size = kinds[column].item_size;
    char *items = cprof_alloc_resize(NULL, table->capacity * item_size);
    if (items == NULL) {
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < table->count; i++) {
        memcpy(items + i * item_size, (const char *)&cprof_row_none + kinds[column].in_row, item_size);
    }
    set_items(table, column, items);
    return CPROF_OK;
}

static bool is_none(const cprof_row *row, size_t column)
{
    size_t at = kinds[column].in_row;
    return memcmp((const char *)row + at, (const char *)&cprof_row_none + at, kinds[column].item_size) == 0;
}

/* Some columns may have been lengthened when this fails, which nobody sees. */
static cprof_status make_longer(cprof_table *table)
{
    size_t longer = table->capacity == 0 ? FIRST_ROWS : table->capacity * 2;
    for (size_t i = 0; i < CPROF_COLUMN_COUNT; i++) {
        void *items = items_of(table, i);
        if (items == NULL) {
            continue;
        }
        items = cprof_alloc_resize(items, longer * kinds[i].item_size);
        if (items == NULL) {
            return CPROF_NO_MEMORY;
        }
        set_items(table, i, items);
    }
    table->capacity = longer;
    return CPROF_OK;
}

static cprof_status make_room_for(cprof_table *table, const cprof_row *row)
{
    if (table->count >= CPROF_TABLE_MAX_ROWS) {
        return CPROF_OUT_OF_RANGE;
    }
    if (table->count == table->capacity && make_longer(table) != CPROF_OK) {
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < CPROF_COLUMN_COUNT; i++) {
        bool wanted = (always >> i & 1) != 0 || !is_none(row, i);
        if (wanted && items_of(table, i) == NULL && make_column(table, i) != CPROF_OK) {
            return CPROF_NO_MEMORY;
        }
    }
    return CPROF_OK;
}

/* Writes a row behind the last one. False when it needs a column that is not there yet. */
static inline bool put_row(cprof_table *table, const cprof_row *row)
{
    size_t at = table->count;
#define PUT_ITEM(name, type, none)    \
    if (table->name != NULL) {        \
        table->name[at] = row->name;  \
    } else if (row->name != (none)) { \
        return false;                 \
    }
    CPROF_TABLE_COLUMNS(PUT_ITEM)
#undef PUT_ITEM
    table->count = at + 1;
    return true;
}

cprof_status cprof_table_add(cprof_table *table, const cprof_row *row)
{
    if (table->count > 0 && table->count < table->capacity && put_row(table, row)) {
        return CPROF_OK;
    }
    cprof_status status = make_room_for(table, row);
    if (status == CPROF_OK) {
        (void)put_row(table, row);
    }
    return status;
}

cprof_status cprof_table_add_flow(cprof_table *table, const cprof_flow *flow)
{
    cprof_flow *flows = cprof_vector_grow(table->flows, &table->flow_capacity, table->flow_count, sizeof *flows, FIRST_ITEMS);
    if (flows == NULL) {
        return CPROF_NO_MEMORY;
    }
    table->flows = flows;
    flows[table->flow_count++] = *flow;
    return CPROF_OK;
}

static cprof_status make_room_for_fact(cprof_table *table)
{
    cprof_table_slots slots;
    cprof_fact *facts = cprof_vector_grow(table->facts, &table->fact_capacity, table->fact_count, sizeof *facts, FIRST_ITEMS);
    if (facts == NULL) {
        return CPROF_NO_MEMORY;
    }
    table->facts = facts;
    if (larger_slots(&table->fact_slots, table->fact_count, &slots) != CPROF_OK) {
        return CPROF_NO_MEMORY;
    }
    if (slots.slots != table->fact_slots.slots) {
        for (size_t i = 0; i < table->fact_count; i++) {
            *slot_of_fact(table, &slots, table->facts[i].key) = (uint32_t)(i + 1);
        }
    }
    replace_slots(&table->fact_slots, slots);
    return CPROF_OK;
}

cprof_status cprof_table_set_fact(cprof_table *table, cprof_name key, cprof_name value)
{
    cprof_fact fact = {.length = value.length};
    if (make_room_for_fact(table) != CPROF_OK || cprof_table_text(table, key, &fact.key) != CPROF_OK ||
        cprof_table_keep(table, value, &fact.at) != CPROF_OK) {
        return CPROF_NO_MEMORY;
    }
    uint32_t *slot = slot_of_fact(table, &table->fact_slots, fact.key);
    if (*slot == 0) {
        *slot = (uint32_t)++table->fact_count;
    }
    table->facts[*slot - 1] = fact;
    return CPROF_OK;
}

bool cprof_table_fact(const cprof_table *table, cprof_name key, cprof_name *value)
{
    size_t index = key.length > 0 ? cprof_names_find(&table->texts, (cprof_names){{"", 0}, key}) + 1 : 0;
    if (table->fact_count == 0 || (key.length > 0 && index == 0)) {
        return false;
    }
    uint32_t slot = *slot_of_fact(table, &table->fact_slots, (cprof_text)index);
    if (slot == 0) {
        return false;
    }
    const cprof_fact *fact = &table->facts[slot - 1];
    *value = (cprof_name){table->kept + fact->at, fact->length};
    return true;
}
