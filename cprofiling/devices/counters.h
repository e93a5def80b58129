/* Counters of the calling thread: CPU time, the kernel's (getrusage), and hardware events in user space (perf_event_open).
 *
 * Hardware events are opened at a thread's first reading that wants one, as one group, and scaled where the kernel shared the
 * counters among groups. Events that the kernel refuses for good have a reason and are not asked for again; without descriptors
 * or memory a thread tries again later.
 *
 * Thread rule: a reading is of the calling thread; any number may read at once. A thread's events are closed at its end.
 */
#ifndef CPROF_COUNTERS_H
#define CPROF_COUNTERS_H

#include "cprofiling/stats/counter.h"

#include <stddef.h>

/* Reads the counters named in `wanted` (CPROF_COUNTER_BITs) for the calling thread. errno is kept. */
void cprof_counters_read(unsigned wanted, cprof_counter_reading *reading);

/* Why a counter has no value here: refused by the kernel, the container or the virtual machine. Tries it in the calling thread
 * if nobody did. Writes at most `size` bytes with the NUL. False, and an empty text, when it has values. */
bool cprof_counters_reason(cprof_counter counter, char *buffer, size_t size);

/* In the child of a fork: what the parent's threads had open counts for them, and is closed. Calls nothing but what a signal
 * handler may. */
void cprof_counters_after_fork_in_child(void);

#endif
