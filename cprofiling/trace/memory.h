/* How much memory the process has in use. Any thread. */
#ifndef CPROF_MEMORY_H
#define CPROF_MEMORY_H

#include "cprofiling/trace/table.h"

/* Bytes in use, and the most that ever were; CPROF_TABLE_UNKNOWN where that is not known. */
typedef struct {
    int64_t memory; /* resident, of the process */
    int64_t memory_peak;
    int64_t device_memory; /* of the framework's allocator */
    int64_t device_memory_peak;
} cprof_memory;

#define CPROF_MEMORY_UNKNOWN {CPROF_TABLE_UNKNOWN, CPROF_TABLE_UNKNOWN, CPROF_TABLE_UNKNOWN, CPROF_TABLE_UNKNOWN}

/* The present figures of the process; the device's are not known here. */
cprof_memory cprof_memory_now(void);

#endif
