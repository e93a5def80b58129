/* Waiting for CUDA devices, through the driver library that the process has loaded already.
 *
 * Nothing here loads the driver, initialises it, or makes a context: a process without CUDA, and a device that nobody
 * uses, stay as they are.
 *
 * The state is the process's: absent (no driver found yet), ready, or off. An error of the driver turns waiting off for
 * the rest of the process, because such errors are final for their context and belong to the user's program, which will
 * meet them itself: the first one is kept as a reason, and no further call is made.
 *
 * Thread rule: every function but the *_for_test ones may be called from any number of threads at once; no lock is held
 * while a thread waits for a device. Nothing is allocated once a driver was found.
 */
#ifndef CPROF_WAIT_H
#define CPROF_WAIT_H

#include "cprofiling/devices/context.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPROF_GPU_NOT_CALLED (-1) /* no CUresult is negative */

/* What cprof_wait_synchronize() did; a negative value is a CUresult of the driver, negated. */
enum {
    CPROF_GPU_WAITED = 0,
    CPROF_GPU_IDLE = 1,      /* nothing to wait for: no CUDA in the process, no such device, no active context */
    CPROF_GPU_CAPTURING = 2, /* not waited: a stream capture is in progress */
    CPROF_GPU_OFF = 3,       /* not waited: waiting is off, cprof_wait_reason() says why */
};

/* Calls since the start of the process (in a forked child: since the fork), each counted under at most one. */
typedef struct {
    uint64_t waited;
    uint64_t captured; /* that answered CPROF_GPU_CAPTURING */
    uint64_t failed;   /* that answered a negative value; above 1 only when threads met the error together */
} cprof_gpu_counters;

/* Whether a driver is there and waiting is not off. As long as none is there, it is looked for at most every 100 ms, in
 * between the answer costs one read of the clock; so CUDA is noticed at most 100 ms after its loading.
 *
 * Found is what is already loaded under the name libcuda.so.1. For tests, a library named by the environment variable
 * CPROFILING_LIBCUDA is loaded instead (not in a setuid program; read once, at the first search). A library that cannot
 * be loaded or lacks a function that is needed turns waiting off.
 *
 * May wait for the dynamic loader's lock: not to be called with the GIL held. */
bool cprof_wait_probe(void);

/* Blocks until the work given to `device` before this call is done, however long that takes; not to be called with the
 * GIL held. Includes cprof_wait_probe().
 *
 * `device`: the ordinal as CUDA_VISIBLE_DEVICES leaves it, from 0, or CPROF_GPU_CURRENT_DEVICE. Waited for is the
 * calling thread's current context when it is one of that device, as the CUDA runtime does, else the device's primary
 * context, and that only while it is active. The thread's current context is the same afterwards.
 *
 * `stream`: the CUstream on which the thread works on that device, or CPROF_GPU_UNKNOWN_STREAM; it must not have been
 * destroyed. It is not waited for in particular, but asked for a capture: a wait would be illegal then, and spoil the
 * capture. Seen are captures of that stream, and those of any blocking stream of the context or the thread's current
 * context, by whatever thread. Not seen, for the driver cannot be asked, are captures of another non-blocking stream
 * (by another thread, or with an unknown stream), and those that begin during the call: the driver spoils these. It
 * tells, as CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and that, like every error, turns waiting off.
 *
 * Returns CPROF_GPU_WAITED, CPROF_GPU_IDLE, CPROF_GPU_CAPTURING, CPROF_GPU_OFF, or, when this call met an error of the
 * driver, its CUresult negated (-700 for CUDA_ERROR_ILLEGAL_ADDRESS); this call has turned waiting off then. The error
 * is not cleared by that: the user's next call of CUDA gets it too. */
int cprof_wait_synchronize(int device, uint64_t stream);

/* Why something was not waited for: waiting is off (`CUDA_ERROR_ILLEGAL_ADDRESS (700) from cuCtxSynchronize:
 * synchronisation is off`, `off(fork): ...`), else how many waits were left out because of a capture. Writes at most
 * `size` bytes to `buffer`, with the NUL, cut if need be; nothing when `size` is 0. False, and an empty text, when
 * there is no reason. */
bool cprof_wait_reason(char *buffer, size_t size);

/* The memory of a device, in bytes, as its driver tells: that of all processes. Looked at through the calling thread's current
 * context when it is one of that device, else through the device's primary context while it is active. False, and nothing
 * written, when there is none, during a stream capture that is seen, and when the driver does not say. */
bool cprof_wait_memory(int device, int64_t *free_bytes, int64_t *total_bytes);

/* cuProfilerStart() and cuProfilerStop(): the window of a tool that records only what is between. They answer the CUresult,
 * 0 when it was done; CPROF_GPU_NOT_CALLED when no call was made: no driver in the process, one without these functions, one
 * that has shut down, or after a fork. Includes cprof_wait_probe(). */
int cprof_wait_profiler_start(void);
int cprof_wait_profiler_stop(void);

/* Copies the counters; each is exact, together they are of one moment only while no thread waits. */
void cprof_wait_get_counters(cprof_gpu_counters *counters);

/* To be called in the child of a fork, before its other threads exist: CUDA does not survive a fork. If a driver was
 * found before, waiting is off(fork) for good, and no call of the driver is ever made. If none was, the search begins
 * anew, and a child that starts CUDA itself is served; should the parent have started CUDA unnoticed, the driver
 * answers that it is not initialised, which is CPROF_GPU_IDLE. Calls nothing but what a signal handler may. */
void cprof_wait_after_fork_in_child(void);

/* Back to the state at the start of the process. Only while no other thread is in these functions. */
void cprof_wait_reset_for_test(void);

#endif
