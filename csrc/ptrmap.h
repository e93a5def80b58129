/* A hash table from pointers to pointers. All zero: an empty table. Not locked: used with
 * the GIL held, or by one thread at a time. */
#ifndef EXT_PTRMAP_H
#define EXT_PTRMAP_H

#include "csrc/compat.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const void *key; /* NULL: free */
    void *value;
} ext_ptrmap_slot;

typedef struct {
    ext_ptrmap_slot *slots; /* a power of two of them, at most half taken; NULL while empty */
    size_t mask;            /* number of slots - 1 */
    EXT_SHARED size_t count;
    EXT_SHARED size_t changes; /* how often a key was added or taken out */
} ext_ptrmap;

/* The slot where the search for `key` begins. */
static inline size_t ext_ptrmap_place(const ext_ptrmap *map, const void *key)
{
    return (size_t)(((uintptr_t)key >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & map->mask;
}

/* The value of `key`, or NULL. */
static inline void *ext_ptrmap_get(const ext_ptrmap *map, const void *key)
{
    if (map->count == 0) {
        return NULL;
    }
    for (size_t i = ext_ptrmap_place(map, key); map->slots[i].key != NULL; i = (i + 1) & map->mask) {
        if (map->slots[i].key == key) {
            return map->slots[i].value;
        }
    }
    return NULL;
}

/* Sets the value of `key`, which is not in the table, to `value` (not NULL). False without memory: nothing was changed. */
bool ext_ptrmap_add(ext_ptrmap *map, const void *key, void *value);

/* Takes `key` out and returns its value; NULL when it is not there. */
void *ext_ptrmap_take(ext_ptrmap *map, const void *key);

/* Empties the table: takes out value by value, gives each to `drop` (NULL: none is left), and gives back the memory. */
void ext_ptrmap_clear(ext_ptrmap *map, void (*drop)(void *value));

/* An entry that goes with the object that is its key: the first field of a struct. */
typedef struct {
    ext_ptrmap *map;           /* borrowed */
    PyObject *object;          /* borrowed, never followed */
    void (*drop)(void *entry); /* ends the watch, and frees the entry */
    PyObject *watch;           /* NULL: the object takes no weak references. Owned */
} ext_ptrmap_entry;

/* Takes the entry out of the map, if it is in it, and drops it when the object dies, until the watch is ended. To take no weak
 * references is no error. The map is used in EXT_ALONE() of the guard. False with an exception. */
bool ext_ptrmap_watch(ext_ptrmap_entry *entry, ext_ptrmap *map, PyObject *object, PyObject *guard, void (*drop)(void *entry));

/* Ends the watch, if there is one. */
void ext_ptrmap_forget(ext_ptrmap_entry *entry);

#endif
