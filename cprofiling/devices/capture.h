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

#include "cprofiling/base/status.h"
#include "cprofiling/base/text.h"

#include <pthread.h>
#include <stdatomic.h>

typedef enum {
    CPROF_CAPTURE_NONE,
    CPROF_CAPTURE_SET,
    CPROF_CAPTURE_OVER,
    CPROF_CAPTURE_FORKED, /* it was the parent's */
} cprof_capture_phase;

/* Worked by capture.c. */
typedef struct {
    _Atomic int phase;
    _Atomic uint64_t seen; /* calls of the node that began while the window was set */
    pthread_mutex_t lock;  /* held while the driver starts or stops; guards what follows, of which the next three are final */
    cprof_name name;       /* owned */
    uint64_t skip;
    uint64_t count;
    uint64_t begun; /* captured calls, */
    uint64_t ended; /* and those of them that are over */
    bool started;   /* the driver has, and is to stop */
    int refusal;    /* the driver's first answer that was no success */
    const char *refused;
} cprof_capture_state;

extern cprof_capture_state cprof_capture;

/* Sets the window; the name is copied. CPROF_OUT_OF_RANGE: count is 0; CPROF_IN_USE: there is one already;
 * CPROF_NO_MEMORY. */
cprof_status cprof_capture_set(cprof_name name, uint64_t skip, uint64_t count);

/* Whether there is a window that is not over. */
static inline bool cprof_capture_is_set(void)
{
    return atomic_load_explicit(&cprof_capture.phase, memory_order_acquire) == CPROF_CAPTURE_SET;
}

/* Whether there is a window that is not over, for calls of this node. */
bool cprof_capture_is_of(cprof_name name);

/* Counts a call that begins now, if it is one of the node. True when it is to be captured: then it is, and must be ended. May
 * wait for the driver: not with the GIL held. */
bool cprof_capture_begin(cprof_name name);

/* Ends a call for which cprof_capture_begin() said true, in any thread. May wait as that. */
void cprof_capture_end(void);

/* What became of the window (`2 of 2 calls captured after 1 that was passed by`), and the driver's first answer that was no
 * success. Calls after the window are not counted. Writes at most `size` bytes with the NUL. False, and an empty text: no
 * window was set in this process. */
bool cprof_capture_report(char *buffer, size_t size);

/* In the child of a fork: the window is the parent's. */
void cprof_capture_after_fork_in_child(void);

/* Back to the state at the start of the process. Only while no other thread is in these functions. */
void cprof_capture_reset_for_test(void);

#endif
