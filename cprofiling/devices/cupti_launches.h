/* The calls of CUDA that were seen, by the number that CUPTI gives each (its correlation id), until later ones take their
 * places: what a device's record, which comes later, is joined to.
 *
 * Thread rule: any thread, any number at once; each place has a lock of its own, held for some instructions, and while figures
 * are added to an accumulator.
 */
#ifndef CPROF_CUPTI_LAUNCHES_H
#define CPROF_CUPTI_LAUNCHES_H

#include "cprofiling/nodes/accum.h"
#include "cprofiling/devices/cupti.h"

enum {
    CPROF_CUPTI_LAUNCHES = 1 << 17,     /* that are remembered: those of the latest so many numbers, */
    CPROF_CUPTI_LAUNCH_BLOCK = 1 << 10, /* in blocks of so many places, which take whole pages */
    CPROF_CUPTI_LAUNCH_BLOCKS = CPROF_CUPTI_LAUNCHES / CPROF_CUPTI_LAUNCH_BLOCK,
};

/* All zero: an empty table, in which nothing is found and into which nothing is put. */
typedef struct {
    _Atomic(struct cprof_cupti_launch_place *) places; /* made once */
    _Atomic bool has_nodes[CPROF_CUPTI_LAUNCH_BLOCKS]; /* by block: some have, or had, a node */
} cprof_cupti_launches;

/* What is known of a call. */
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

#endif
