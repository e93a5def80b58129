/* What is kept of CUPTI: calls of CUDA, to which devices' records, which come later, are joined; and, for a recording, calls
 * and records until they become rows of a table. Thread rule: any thread, any number at once; locks are held for one item, or
 * while times are settled. */
#ifndef CPROF_CUPTI_STORE_H
#define CPROF_CUPTI_STORE_H

#include "cprofiling/base/names.h"
#include "cprofiling/devices/cupti_clock.h"
#include "cprofiling/devices/cupti_records.h"
#include "cprofiling/nodes/accum.h"
#include "cprofiling/trace/table.h"

#include <sys/types.h>

enum {
    CPROF_CUPTI_LAUNCHES = 1 << 17,     /* that are remembered: those of the latest so many numbers, */
    CPROF_CUPTI_LAUNCH_BLOCK = 1 << 10, /* in blocks of so many places, which take whole pages */
    CPROF_CUPTI_LAUNCH_BLOCKS = CPROF_CUPTI_LAUNCHES / CPROF_CUPTI_LAUNCH_BLOCK,
};

/* The owner of a thread's work; `accum` NULL: none. */
typedef struct {
    cprof_accum *accum;
    uint64_t generation;
} cprof_cupti_node;

/* All zero: an empty table, in which nothing is found and into which nothing is put. */
typedef struct {
    _Atomic(struct cprof_cupti_launch_place *) places; /* made once */
    _Atomic bool has_nodes[CPROF_CUPTI_LAUNCH_BLOCKS]; /* by block: some have, or had, a node */
} cprof_cupti_launches;

/* A call of CUDA. */
typedef struct {
    uint32_t outer;    /* the number of the outermost call that it is in, or its own */
    cprof_ticks start; /* of that */
} cprof_cupti_launch;

/* Makes the places, once; they take memory as they are used. False without memory. */
bool cprof_cupti_launches_create(cprof_cupti_launches *launches);

/* Remembers a call that is in no other; node.accum may be NULL. */
void cprof_cupti_launches_put(cprof_cupti_launches *launches, uint32_t number, cprof_cupti_node node, cprof_ticks start);

/* Remembers a call inside another. */
void cprof_cupti_launches_put_inner(cprof_cupti_launches *launches, uint32_t number, uint32_t outer);

/* Finds a call. False: it was not seen, or is forgotten. */
bool cprof_cupti_launches_find(const cprof_cupti_launches *launches, uint32_t number, cprof_cupti_launch *launch);

/* Adds what came of a call, by the number of the outermost, to its node, if it has one and is still known. */
void cprof_cupti_launches_count(cprof_cupti_launches *launches, uint32_t outer, const cprof_launch_counts *counts);

/* Takes their node from all calls that have one of this registry, in which no call is open any more. Quick for a registry that
 * was not seen here. */
void cprof_cupti_launches_forget(cprof_cupti_launches *launches, const cprof_registry *registry);

/* Gives the places back; the table is empty afterwards. Only while no other thread uses it. */
void cprof_cupti_launches_dispose(cprof_cupti_launches *launches);

enum {
    CPROF_CUPTI_STORE_CAPACITY = 1 << 21,       /* calls, and records; later ones are dropped, and counted */
    CPROF_CUPTI_STORE_MAX_NAMES = 1 << 20,      /* of kernels, of these bytes in all; */
    CPROF_CUPTI_STORE_MAX_NAME_BYTES = 1 << 28, /* further ones are called __overflow__ */
};

/* Makes the name of a C++ function readable, as the Itanium C++ ABI's __cxa_demangle: the answer is from malloc; NULL: it is no
 * such name, or no memory. */
typedef char *(*cprof_cupti_demangler)(const char *name, char *buffer, size_t *length, int *status);

/* A call of CUDA. */
typedef struct {
    cprof_ticks start;
    cprof_ticks stop;
    uint32_t correlation;
    uint32_t number; /* of the call in its domain */
    uint32_t domain;
    pid_t thread;
} cprof_cupti_traced_call;

/* Pages of items of one kind, in the order of their coming. */
typedef struct {
    char **chunks;
    size_t chunk_count;
    size_t chunk_capacity;
    size_t count;   /* items */
    size_t settled; /* of them, with times of our clock */
} cprof_cupti_items;

/* All zero but the capacity: an empty one. */
typedef struct {
    cprof_lock lock; /* guards: */
    size_t capacity; /* of calls, and of records */
    cprof_cupti_items calls;
    cprof_cupti_items records;
    cprof_names_table names; /* of kernels, as the stage; the node's name is empty */
    size_t name_bytes;
    uint64_t dropped;
} cprof_cupti_store;

/* Adds a call, or a record under a number that is that of its call where this is known. Without memory or room they are counted
 * as dropped. */
void cprof_cupti_store_add_call(cprof_cupti_store *trace, const cprof_cupti_traced_call *call);
void cprof_cupti_store_add_record(cprof_cupti_store *trace, const cprof_cupti_record *record, uint32_t correlation);

/* Counts records missing for another reason. */
void cprof_cupti_store_drop(cprof_cupti_store *trace, uint64_t count);

/* Makes the times of what was added since the last call of this into those of a table: ours, moved by `since_epoch_ns`. Work
 * that had ended by `begin` is left out. */
void cprof_cupti_store_settle(cprof_cupti_store *trace, const cprof_cupti_clock *line, cprof_ns since_epoch_ns,
                              cprof_ticks begin);

/* Takes all out: adds what is settled to a table as rows and arrows, unless that is NULL, and gives it back. `demangler` may be
 * NULL: names stay as they are. CPROF_NO_MEMORY, CPROF_OUT_OF_RANGE: rows are missing. */
cprof_status cprof_cupti_store_collect(cprof_cupti_store *trace, cprof_cupti_demangler demangler, cprof_table *table);

#endif
