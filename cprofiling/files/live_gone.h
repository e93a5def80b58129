/* What a live file keeps of registries that are not in it any more.
 *
 * A registry that leaves a file while it lives may come back with all that it has counted: its statistics are apart then, and
 * dropped when it does, so that nothing is in the file twice. Once it is destroyed, or has begun anew, they are merged with
 * those of others, several at a time, or each would cost what all before it have.
 *
 * Thread rule: as live.h says of registries, and under the lock of the file that these are in.
 */
#ifndef CPROF_LIVE_GONE_H
#define CPROF_LIVE_GONE_H

#include "cprofiling/files/snapshot.h"

/* Of one registry. */
struct cprof_live_left {
    struct cprof_live *live;         /* the file that it is in, borrowed, as the next */
    cprof_registry *registry;        /* NULL: it does not come back to these statistics */
    struct cprof_live_left *sibling; /* the same registry's in another file; the list begins in the registry */
    struct cprof_live_left *next;    /* in this file */
    cprof_snapshot *snapshot;        /* owned */
};

typedef struct {
    cprof_snapshot *merged;       /* owned, as the next: of those that do not come back; NULL: none has counted anything */
    cprof_snapshot *shown;        /* with those that may; NULL: it is `merged`, or there is something new */
    struct cprof_live_left *left; /* owned */
    size_t may_return;            /* how many of those left do, */
    size_t settled;               /* and do not */
    uint64_t folded;              /* keys for which there was no room */
    uint64_t lost;                /* statistics that could not be kept */
    cprof_snapshot_source id;     /* the file's own, for where there are too many sources */
} cprof_live_gone;

/* Keeps the statistics of a registry that leaves `live`; takes the snapshot over. */
void cprof_live_gone_keep(cprof_live_gone *gone, struct cprof_live *live, cprof_registry *registry, cprof_snapshot *snapshot);

/* Sees to what there is of a registry that is about to be added again. */
void cprof_live_gone_return(cprof_live_gone *gone, cprof_registry *registry);

/* The registry of `left` is about to go: it is taken out of that one's list. */
void cprof_live_gone_settle(cprof_live_gone *gone, struct cprof_live_left *left);

/* *shown receives all of it as one, borrowed until something changes; NULL: there is nothing. CPROF_NO_MEMORY, or another
 * status of cprof_snapshot_merge(). */
cprof_status cprof_live_gone_show(cprof_live_gone *gone, const cprof_snapshot **shown);

/* Gives everything back. */
void cprof_live_gone_dispose(cprof_live_gone *gone);

#endif
