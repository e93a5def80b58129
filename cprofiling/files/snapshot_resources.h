/* What a snapshot knows of one key beyond times: resources.h's figures, and the filled buckets of the GPU times.
 *
 * For snapshot_key.c and snapshot_format.c only. It lies in the key's allocation, and does not change once that is complete.
 */
#ifndef CPROF_SNAPSHOT_RESOURCES_H
#define CPROF_SNAPSHOT_RESOURCES_H

#include "cprofiling/stats/resources.h"
#include "cprofiling/stats/buckets.h"

typedef __int128 cprof_i128;

/* What merging needs of one kind of memory beside its figures. Zero without a call. */
typedef struct {
    uint64_t taken_ns; /* when the snapshot was taken that the bytes at entry and exit come from */
    cprof_i128 change; /* of all calls. In 64 bits the order of merging would show where a sum stays at its end */
} cprof_snapshot_memory;

typedef struct cprof_snapshot_resources {
    cprof_resources_figures figures; /* gpu_rows and both changes of memory follow from the rest */
    cprof_snapshot_memory device_memory;
    cprof_snapshot_memory host_memory;
    cprof_buckets gpu_buckets;
} cprof_snapshot_resources;

/* Whether there is anything to keep. */
bool cprof_snapshot_resources_is_worth(const cprof_resources_figures *figures);

/* Sets all but the buckets: to nothing known; to what an accumulator knew at `taken_ns`. */
void cprof_snapshot_resources_clear(cprof_snapshot_resources *extra);
void cprof_snapshot_resources_set(cprof_snapshot_resources *extra, const cprof_resources_figures *figures, uint64_t taken_ns);

/* Adds what another key knew, but for its buckets. False when a count would reach 2^63. */
bool cprof_snapshot_resources_merge(cprof_snapshot_resources *extra, const cprof_snapshot_resources *part);

/* Sets what follows from the rest, and is left out of the encoding. */
void cprof_snapshot_resources_complete(cprof_snapshot_resources *extra);

/* Why no key can know this; a static string, or NULL when one can. */
const char *cprof_snapshot_resources_fault(const cprof_snapshot_resources *extra, bool is_merged);

#endif
