/* Actions of the whole process: the handlers of fork, in their order, and the end of a Profiler. */
#ifndef CPROF_PROCESS_H
#define CPROF_PROCESS_H

#include "cprofiling/nodes/registry.h"

/* Registers the fork handlers, before the first registry is made. Idempotent, any thread. */
void cprof_process_start(void);

/* Something that is called in forked children. The caller's, who leaves it where it is until the end of the watch. */
typedef struct cprof_process_watch {
    void (*act)(void *context);
    void *context;
    struct cprof_process_watch *next; /* private */
} cprof_process_watch;

/* Has `watch->act` called in each child, in the thread that forked, before any other code runs there. Any thread. */
void cprof_process_begin_watch(cprof_process_watch *watch);

/* Ends a watch that was begun. */
void cprof_process_end_watch(cprof_process_watch *watch);

/* Ends a registry (NULL: none) that no call is open in, or may be finished in: live files keep what it counted, devices forget
 * it, and it is freed. */
void cprof_process_end_registry(cprof_registry *registry);

#endif
