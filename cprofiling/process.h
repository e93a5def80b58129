/* Actions of the whole process: the handlers of fork, in their order, and the end of a Profiler. */
#ifndef CPROF_PROCESS_H
#define CPROF_PROCESS_H

#include "cprofiling/nodes/registry.h"

/* Registers the fork handlers, before the first registry is made. Idempotent, any thread. */
void cprof_process_start(void);

/* Ends a registry (NULL: none) that no call is open in, or may be finished in: live files keep what it counted, devices forget
 * it, and it is freed. */
void cprof_process_end_registry(cprof_registry *registry);

#endif
