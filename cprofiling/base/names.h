/* The keys of a registry: a hash table from (stage, node name) to a place in the order of their making.
 *
 * Names are bytes (UTF-8; the core does not look into them) of any length, without NUL. No function here locks.
 */
#ifndef CPROF_NAMES_H
#define CPROF_NAMES_H

#include "cprofiling/base/status.h"
#include "cprofiling/base/text.h"

/* All zero: an empty table. */
typedef struct {
    uint32_t *slots; /* index + 1 of a key, or 0; a power of two of them */
    size_t slot_count;
    struct cprof_names_entry *entries;
    size_t capacity;
    size_t count;
    uint64_t seed[2]; /* of the hashes; random, once there are slots */
} cprof_names_table;

#define CPROF_NAMES_ABSENT SIZE_MAX

/* The index of a key, 0 to count - 1; CPROF_NAMES_ABSENT when it is not in the table. */
size_t cprof_names_find(const cprof_names_table *table, cprof_names names);

/* Adds a key that is not in the table; its index is the old count. The names are copied.
 * CPROF_NO_MEMORY: nothing was changed. */
cprof_status cprof_names_add(cprof_names_table *table, cprof_names names);

/* The names of key `index`, borrowed from the table, where they stay as long as it lives. */
cprof_names cprof_names_at(const cprof_names_table *table, size_t index);

/* Gives everything back; the table is empty afterwards. */
void cprof_names_dispose(cprof_names_table *table);

#endif
