#include "csrc/ptrmap.h"

#include "csrc/compat.h"

enum { FIRST_SLOTS = 8 };

static void put(ext_ptrmap *map, const void *key, void *value)
{
    size_t i = ext_ptrmap_place(map, key);
    while (map->slots[i].key != NULL) {
        i = (i + 1) & map->mask;
    }
    map->slots[i] = (ext_ptrmap_slot){key, value};
}

static bool grow(ext_ptrmap *map)
{
    size_t slot_count = map->slots == NULL ? FIRST_SLOTS : (map->mask + 1) * 2;
    ext_ptrmap_slot *slots = PyMem_Calloc(slot_count, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    ext_ptrmap bigger = {slots, slot_count - 1, map->count};
    for (size_t i = 0; map->slots != NULL && i <= map->mask; i++) {
        if (map->slots[i].key != NULL) {
            put(&bigger, map->slots[i].key, map->slots[i].value);
        }
    }
    PyMem_Free(map->slots);
    *map = bigger;
    return true;
}

bool ext_ptrmap_add(ext_ptrmap *map, const void *key, void *value)
{
    if ((map->slots == NULL || map->count * 2 > map->mask) && !grow(map)) {
        return false;
    }
    put(map, key, value);
    map->count++;
    return true;
}

/* Closes the gap that a removed slot leaves, so that no search ends early at it. */
static void close_gap(ext_ptrmap *map, size_t gap)
{
    for (size_t i = (gap + 1) & map->mask; map->slots[i].key != NULL; i = (i + 1) & map->mask) {
        size_t home = ext_ptrmap_place(map, map->slots[i].key);
        if (((i - home) & map->mask) >= ((i - gap) & map->mask)) {
            map->slots[gap] = map->slots[i];
            gap = i;
        }
    }
    map->slots[gap] = (ext_ptrmap_slot){NULL, NULL};
}

static void *take_slot(ext_ptrmap *map, size_t i)
{
    void *value = map->slots[i].value;
    map->count--;
    close_gap(map, i);
    return value;
}

void *ext_ptrmap_take(ext_ptrmap *map, const void *key)
{
    if (map->count == 0) {
        return NULL;
    }
    for (size_t i = ext_ptrmap_place(map, key); map->slots[i].key != NULL; i = (i + 1) & map->mask) {
        if (map->slots[i].key == key) {
            return take_slot(map, i);
        }
    }
    return NULL;
}

void ext_ptrmap_clear(ext_ptrmap *map, void (*drop)(void *value))
{
    for (size_t i = 0; map->count > 0; i = (i + 1) & map->mask) {
        if (map->slots[i].key != NULL) {
            drop(take_slot(map, i));
            i = map->mask; /* dropping may have changed the table */
        }
    }
    PyMem_Free(map->slots);
    *map = (ext_ptrmap){NULL, 0, 0};
}
