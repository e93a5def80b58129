/* Counters of the calling thread: CPU time and what the kernel counts for it (getrusage), and hardware events
 * (perf_event_open).
 *
 * Hardware events are opened for each thread at its first reading that wants one, as one group, so that they are counted at the
 * same times, and scaled where the kernel had to share the counters among groups. They count what the thread does in user
 * space. What the kernel refuses for good has no value, is never asked for again, and has a reason; where a thread lacks
 * descriptors or memory, it tries again later.
 *
 * Thread rule: a reading is of the calling thread; any number of threads may read at once. What a thread has open is closed
 * when it ends.
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
