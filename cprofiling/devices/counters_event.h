/* The hardware events of a thread, by perf_event_open(2): counters_linux.c uses them.
 *
 * A thread opens its events at the first reading that wants one, as one group. What the kernel refuses for good is remembered
 * for the process and never asked for again; where a thread lacks descriptors or memory, it tries again later. The events are
 * closed when the thread ends, after which it has none any more.
 *
 * Thread rule: any thread, for itself.
 */
#ifndef CPROF_COUNTERS_EVENT_H
#define CPROF_COUNTERS_EVENT_H

#include "cprofiling/devices/counters.h"

/* Adds to the reading what is known of the `wanted` ones (CPROF_COUNTER_BITs, of which those in CPROF_COUNTER_HARDWARE count).
 * May change errno. */
void cprof_counters_event_read(unsigned wanted, cprof_counters_reading *reading);

/* 0 when the event (one in CPROF_COUNTER_HARDWARE) was ever opened; else the errno for which it was not. It is tried in the
 * calling thread when no thread has. */
int cprof_counters_event_refusal(cprof_counter counter);

/* Whether the calling thread reads its events without a system call; they are opened if need be. */
bool cprof_counters_event_in_user_space(void);

/* In the child of a fork: closes what the parent's threads have open. Calls nothing but what a signal handler may. */
void cprof_counters_event_after_fork_in_child(void);

#endif
