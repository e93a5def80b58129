/* The capture window: cuProfilerStart() before, and cuProfilerStop() after, chosen calls of one node, for tools that record
 * only what is between (ncu --profile-from-start off, nsys -c cudaProfilerApi).
 *
 * There is one window in a process: of the calls of node `name` (in any stage), the first `skip` that begin are passed by, the
 * `count` next ones are captured. Calls that overlap, in threads or inside each other, share one start and one stop. When the
 * last one has ended the window is over, and never opens again. Without a driver in the process its calls are left out, and
 * the window goes by.
 *
 * Thread rule: any thread, any number at once.
 */
#ifndef CPROF_CAPTURE_H
#define CPROF_CAPTURE_H

#include "cprofiling/names.h"

/* Sets the window; the name is copied. CPROF_OUT_OF_RANGE: count is 0; CPROF_IN_USE: there is one already;
 * CPROF_NO_MEMORY. */
cprof_status cprof_capture_set(cprof_name name, uint64_t skip, uint64_t count);

/* Whether there is a window that is not over. */
bool cprof_capture_is_set(void);

/* Whether a call of the node, which begins now, is one that is looked for: then it is counted, and captured when its turn has
 * come; it must be ended. */
bool cprof_capture_begin(cprof_name name);

/* Ends a call for which cprof_capture_begin() said true. */
void cprof_capture_end(void);

/* What became of the window: calls seen and captured, and the driver's answer where it refused. Writes at most `size` bytes
 * with the NUL. False, and an empty text, when no window was set. */
bool cprof_capture_report(char *buffer, size_t size);

/* In the child of a fork: the window is the parent's. */
void cprof_capture_after_fork_in_child(void);

/* Back to the state at the start of the process. Only while no other thread is in these functions. */
void cprof_capture_reset_for_test(void);

#endif
