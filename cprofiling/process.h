/* What exists once in a process: the fork handler, the list of registries that it needs, and the shared state of clock, threads
 * and allocator, which is declared where it is used. */
#ifndef CPROF_PROCESS_H
#define CPROF_PROCESS_H

#include "cprofiling/nodes/registry.h"

/* Prepares the process: registers the fork handler. Idempotent, any thread. */
void cprof_process_start(void);

/* A number that no other call in this process returns: 1, 2, ... Any thread. */
uint64_t cprof_process_next_number(void);

/* Fills `bytes`: random where the system has it; else at least different from process to process and from call to call. */
void cprof_process_random(void *bytes, size_t size);

/* Gives all registries of `owner`, and those made later, the flags of a recording; 0: it has ended, or pauses. */
void cprof_process_record(uint64_t owner, unsigned flags);

/* Gives all registries of `owner`, and those made later, flags beside those of a recording; 0: none any more. */
void cprof_process_capture(uint64_t owner, unsigned flags);

/* Adds a registry to the list, and takes it out again. Any thread. */
void cprof_process_add(cprof_registry *registry);
void cprof_process_remove(cprof_registry *registry);

#endif
