/* Waiting for CUDA devices through the driver library that the process has loaded.
 *
 * Nothing here loads or initialises the driver, or makes a context. The first error of the driver turns waiting off for the
 * rest of the process and is kept as the reason: such errors are final for their context, and the user's program will meet
 * them.
 *
 * Thread rule: any thread, any number at once, but for *_for_test; no lock is held while a thread waits for a device.
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

/* Whether a driver is there and waiting is not off. A missing one is looked for at most every 100 ms; in between the answer
 * costs one read of the clock. Found is a library that is loaded under the name libcuda.so.1; for tests, the one named by the
 * environment variable CPROFILING_LIBCUDA is loaded (read once, not in a setuid program). One that cannot be loaded or lacks a
 * needed function turns waiting off. May wait for the dynamic loader's lock: not with the GIL held. */
bool cprof_wait_probe(void);

/* Blocks until the work given to `device` before this call is done; not with the GIL held. Includes cprof_wait_probe().
 *
 * `device`: an ordinal from 0, as CUDA_VISIBLE_DEVICES leaves it, or CPROF_GPU_CURRENT_DEVICE. Waited for is the thread's
 * current context if it is of that device, else the device's primary context while that is active. The current context stays.
 *
 * `stream`: the CUstream on which the thread works there, or CPROF_GPU_UNKNOWN_STREAM. It is only asked whether it is being
 * captured, as a wait would spoil that. Captures of blocking streams of the context or the current context are seen, too. The
 * driver cannot be asked for those of other streams: it spoils them, and its error turns waiting off.
 *
 * Returns CPROF_GPU_WAITED, IDLE, CAPTURING or OFF, or the CUresult of an error, negated (-700 for
 * CUDA_ERROR_ILLEGAL_ADDRESS), which the user's next call of CUDA gets, too. */
int cprof_wait_synchronize(int device, uint64_t stream);

/* Why something was not waited for: `CUDA_ERROR_ILLEGAL_ADDRESS (700) from cuCtxSynchronize: synchronisation is off`,
 * `off(fork): ...`, or the number of waits left out because of captures. Writes at most `size` bytes with the NUL. False, and
 * an empty text: no reason. */
bool cprof_wait_reason(char *buffer, size_t size);

/* The memory of a device in bytes, of all processes, by the context that cprof_wait_synchronize() would wait for. False, and
 * nothing written: there is none, a capture goes on, or the driver does not say. */
bool cprof_wait_memory(int device, int64_t *free_bytes, int64_t *total_bytes);

/* cuProfilerStart() and cuProfilerStop(). The CUresult, 0 when done; CPROF_GPU_NOT_CALLED without a driver that has them, after
 * it has shut down, or after a fork. Include cprof_wait_probe(). */
int cprof_wait_profiler_start(void);
int cprof_wait_profiler_stop(void);

/* Copies the counters: each is exact; together they are of one moment only while no thread waits. */
void cprof_wait_get_counters(cprof_gpu_counters *counters);

/* In the child of a fork, before it has other threads. If a driver was found, waiting is off(fork) for good, and no call of it
 * is ever made; if not, the search begins anew for a child that starts CUDA itself. Calls nothing but what a signal handler
 * may. */
void cprof_wait_after_fork_in_child(void);

/* Back to the state at the start of the process. Only while no other thread is in these functions. */
void cprof_wait_reset_for_test(void);

#endif
