#include "cprofiling/trace/table.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/hash.h"
#include "cprofiling/base/random.h"

#include <stddef.h>
#include <string.h>

enum {
    FIRST_ROWS = 256,
    FIRST_ITEMS = 16, /* of other lists */
};

/* Shared by all tables. */
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
    cprof_names_dispose(&table->fact_keys);
    cprof_alloc_release(table->tracks);
    cprof_alloc_release(table->flows);
    cprof_alloc_release(table->facts);
    cprof_alloc_release(table->kept);
    cprof_alloc_release(table->slots.slots);
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

/* Enters track `number` under itself, and under its process unless a track of that is there. An entry may be met by both kinds
 * of search: it is right for either. */
static void enter_track(cprof_table *table, const cprof_table_slots *slots, size_t number)
{
    cprof_track *track = &table->tracks[number];
    uint32_t *process = slot_of_track(table, slots, hash_process(table->seed, track), same_process, track);
    track->process = *process == 0 ? (uint32_t)number : table->tracks[*process - 1].process;
    *process = *process == 0 ? (uint32_t)(number + 1) : *process;
    *slot_of_track(table, slots, hash_track(table->seed, track), same_track, track) = (uint32_t)(number + 1);
}

/* Keeps at least half of the slots empty when there is one more track. */
static cprof_status make_room_for_track(cprof_table *table)
{
    cprof_table_slots fresh = {.count = table->slots.count == 0 ? 4 * (size_t)FIRST_ITEMS : table->slots.count * 2};
    if (table->track_count < table->slots.count / 4) {
        return CPROF_OK;
    }
    fresh.slots = cprof_alloc_zeroed(fresh.count * sizeof *fresh.slots);
    if (fresh.slots == NULL) {
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < table->track_count; i++) {
        enter_track(table, &fresh, i);
    }
    cprof_alloc_release(table->slots.slots);
    table->slots = fresh;
    return CPROF_OK;
}

static cprof_status add_track(cprof_table *table, cprof_track track)
{
    size_t number = table->track_count;
    cprof_track *tracks = number < UINT32_MAX - 1
                              ? cprof_alloc_grow(table->tracks, &table->track_capacity, number, sizeof *tracks, FIRST_ITEMS)
                              : NULL;
    if (tracks == NULL) {
        return CPROF_NO_MEMORY;
    }
    table->tracks = tracks;
    if (make_room_for_track(table) != CPROF_OK) {
        return CPROF_NO_MEMORY;
    }
    tracks[number] = track;
    enter_track(table, &table->slots, number);
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
                         ? *slot_of_track(table, &table->slots, hash_track(table->seed, &wanted), same_track, &wanted)
                         : 0;
    *track = found - 1;
    return found != 0;
}

bool cprof_table_find_process(const cprof_table *table, int64_t pid, cprof_text pid_text, uint32_t *track)
{
    cprof_track wanted = new_track(pid, pid_text, 0, 0);
    uint32_t found = table->track_count > 0
                         ? *slot_of_track(table, &table->slots, hash_process(table->seed, &wanted), same_process, &wanted)
                         : 0;
    *track = found != 0 ? table->tracks[found - 1].process : 0;
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
    if (bytes.length > 0) {
        char *kept = cprof_alloc_reserve(table->kept, &table->kept_capacity, wanted);
        if (kept == NULL) {
            return CPROF_NO_MEMORY;
        }
        table->kept = kept;
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
        size_t at = kinds[i].in_row;
        bool is_none = memcmp((const char *)row + at, (const char *)&cprof_row_none + at, kinds[i].item_size) == 0;
        bool wanted = (always >> i & 1) != 0 || !is_none;
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
    cprof_flow *flows = cprof_alloc_grow(table->flows, &table->flow_capacity, table->flow_count, sizeof *flows, FIRST_ITEMS);
    if (flows == NULL) {
        return CPROF_NO_MEMORY;
    }
    table->flows = flows;
    flows[table->flow_count++] = *flow;
    return CPROF_OK;
}

cprof_status cprof_table_set_fact(cprof_table *table, cprof_name key, cprof_name value)
{
    cprof_fact fact = {.length = value.length};
    cprof_fact *facts = cprof_alloc_grow(table->facts, &table->fact_capacity, table->fact_count, sizeof *facts, FIRST_ITEMS);
    if (facts == NULL) {
        return CPROF_NO_MEMORY;
    }
    table->facts = facts;
    if (cprof_table_text(table, key, &fact.key) != CPROF_OK || cprof_table_keep(table, value, &fact.at) != CPROF_OK) {
        return CPROF_NO_MEMORY;
    }
    size_t index = cprof_names_find(&table->fact_keys, (cprof_names){{"", 0}, key});
    if (index == CPROF_NAMES_ABSENT) {
        if (cprof_names_add(&table->fact_keys, (cprof_names){{"", 0}, key}) != CPROF_OK) {
            return CPROF_NO_MEMORY;
        }
        index = table->fact_count++;
    }
    facts[index] = fact;
    return CPROF_OK;
}

bool cprof_table_fact(const cprof_table *table, cprof_name key, cprof_name *value)
{
    size_t index = cprof_names_find(&table->fact_keys, (cprof_names){{"", 0}, key});
    if (index == CPROF_NAMES_ABSENT) {
        return false;
    }
    *value = (cprof_name){table->kept + table->facts[index].at, table->facts[index].length};
    return true;
}
