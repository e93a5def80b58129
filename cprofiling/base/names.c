#include "cprofiling/base/names.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/hash.h"
#include "cprofiling/base/random.h"

enum { FIRST_SLOTS = 32 };

struct cprof_names_entry {
    uint64_t hash;
    char *bytes; /* stage, then node; owned */
    size_t stage_length;
    size_t node_length;
};

static bool same(const struct cprof_names_entry *entry, uint64_t hash, cprof_names names)
{
    return entry->hash == hash && entry->stage_length == names.stage.length && entry->node_length == names.node.length &&
           memcmp(entry->bytes, names.stage.bytes, names.stage.length) == 0 &&
           memcmp(entry->bytes + names.stage.length, names.node.bytes, names.node.length) == 0;
}

size_t cprof_names_find(const cprof_names_table *table, cprof_names names)
{
    if (table->slot_count == 0) {
        return CPROF_NAMES_ABSENT;
    }
    uint64_t hash = cprof_hash_names(table->seed, names);
    for (size_t slot = hash & (table->slot_count - 1);; slot = (slot + 1) & (table->slot_count - 1)) {
        uint32_t taken = table->slots[slot];
        if (taken == 0) {
            return CPROF_NAMES_ABSENT;
        }
        if (same(&table->entries[taken - 1], hash, names)) {
            return taken - 1;
        }
    }
}

static void put_slot(uint32_t *slots, size_t slot_count, uint64_t hash, size_t index)
{
    size_t slot = hash & (slot_count - 1);
    while (slots[slot] != 0) {
        slot = (slot + 1) & (slot_count - 1);
    }
    slots[slot] = (uint32_t)(index + 1);
}

/* Room for one more key, at most half of the slots taken. */
static cprof_status grow(cprof_names_table *table)
{
    if (table->count < table->capacity) {
        return CPROF_OK;
    }
    size_t slot_count = table->slot_count == 0 ? FIRST_SLOTS : table->slot_count * 2;
    struct cprof_names_entry *entries = cprof_alloc_resize(table->entries, slot_count / 2 * sizeof *entries);
    if (entries == NULL) {
        return CPROF_NO_MEMORY;
    }
    table->entries = entries;
    uint32_t *slots = cprof_alloc_zeroed(slot_count * sizeof *slots);
    if (slots == NULL) {
        return CPROF_NO_MEMORY;
    }
    for (size_t i = 0; i < table->count; i++) {
        put_slot(slots, slot_count, entries[i].hash, i);
    }
    cprof_alloc_release(table->slots);
    if (table->slot_count == 0) {
        cprof_random_bytes(table->seed, sizeof table->seed);
    }
    table->slots = slots;
    table->slot_count = slot_count;
    table->capacity = slot_count / 2;
    return CPROF_OK;
}

cprof_status cprof_names_add(cprof_names_table *table, cprof_names names)
{
    if (grow(table) != CPROF_OK) {
        return CPROF_NO_MEMORY;
    }
    char *bytes = cprof_alloc_zeroed(names.stage.length + names.node.length + 1);
    if (bytes == NULL) {
        return CPROF_NO_MEMORY;
    }
    memcpy(bytes, names.stage.bytes, names.stage.length);
    memcpy(bytes + names.stage.length, names.node.bytes, names.node.length);
    struct cprof_names_entry *entry = &table->entries[table->count];
    *entry = (struct cprof_names_entry){cprof_hash_names(table->seed, names), bytes, names.stage.length, names.node.length};
    put_slot(table->slots, table->slot_count, entry->hash, table->count);
    table->count++;
    return CPROF_OK;
}

cprof_names cprof_names_at(const cprof_names_table *table, size_t index)
{
    const struct cprof_names_entry *entry = &table->entries[index];
    return (cprof_names){{entry->bytes, entry->stage_length}, {entry->bytes + entry->stage_length, entry->node_length}};
}

void cprof_names_dispose(cprof_names_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        cprof_alloc_release(table->entries[i].bytes);
    }
    cprof_alloc_release(table->entries);
    cprof_alloc_release(table->slots);
    *table = (cprof_names_table){.slots = NULL};
}
