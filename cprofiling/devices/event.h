/* How long a node's work takes on a device, without waiting for it: pairs of CUDA events, resolved later.
 *
 * A mark is a pair of pooled events, recorded at the node's beginning and end; when the device has passed both, the time
 * between them goes to the node's accumulator, gaps in the device's queue included. Nothing here waits for a device,
 * initialises the driver or makes a context, and streams are left alone while they are captured. At most
 * CPROF_EVENT_MOST_PENDING pairs wait at a time; further ones are left out.
 *
 * Events go with their context. A sticky error turns the marks of its context off; the driver's shutdown turns all off. The
 * delay in the queue is relative to the least one of late (event_pool.h).
 *
 * Calls of the driver here block only when a device's queue is full. Thread rule: any thread, any number at once, but for one
 * mark; another thread may end it.
 */
#ifndef CPROF_EVENT_H
#define CPROF_EVENT_H

#include "cprofiling/nodes/accum.h"
#include "cprofiling/devices/wait.h"

/* Where a thread works: the device's ordinal, or CPROF_GPU_CURRENT_DEVICE, and the CUstream there (0: its default stream). */
typedef struct {
    int device;
    uint64_t stream;
} cprof_gpu_place;

typedef struct cprof_gpu_mark cprof_gpu_mark;

/* Records the first event of a mark in the place. NULL: nothing was recorded, for the reason in *cause. */
cprof_gpu_mark *cprof_event_begin(cprof_gpu_place place, cprof_gpu_cause *cause);

/* Records the second event, and gives the mark up: it is resolved later, into cprof_accum_add_gpu() of `accum` for
 * `generation`. The place may be of another stream than at the beginning (that is noted), but not of another device. What
 * fails, now or later, is told by cprof_accum_miss_gpu(). */
void cprof_event_end(cprof_gpu_mark *mark, cprof_gpu_place place, cprof_accum *accum, uint64_t generation);

/* Gives a mark up that is not to count. NULL is ignored. */
void cprof_event_cancel(cprof_gpu_mark *mark);

/* Resolves what the devices have passed by now. Marks that are begun and ended do a little of that, too. */
void cprof_event_poll(void);

/* Why marks failed: the first error (`CUDA_ERROR_ILLEGAL_ADDRESS (700) from cuEventQuery: no GPU time from this context any
 * more`), or `off(fork): ...`. Writes at most `size` bytes with the NUL. False, and an empty text: no reason. */
bool cprof_event_reason(char *buffer, size_t size);

/* In the child of a fork: forgets everything without a call of the driver. Calls nothing but what a signal handler may. */
void cprof_event_after_fork_in_child(void);

/* Back to the state at the start of the process. Only while no other thread is in these functions. */
void cprof_event_reset_for_test(void);

#endif
