/* Waiting for the device that a node uses, before and after its call. Nothing here leaves an exception.
 *
 * The core waits for CUDA's devices; for another kind (a process uses one at most) the package does, through the
 * framework (python/cprofiling/devices/wait.py). While neither is in use, next to nothing is done but to read the clock. */
#ifndef EXT_SYNC_H
#define EXT_SYNC_H

#include "csrc/profiler.h"

enum { EXT_SYNC_NONE = -2 };  /* no device: nothing to wait for */
enum { EXT_SYNC_OTHER = -3 }; /* less the index of a device that is not CUDA's */

/* The device that a call uses: that of its first argument's parameters or buffers, else of its tensor arguments: an ordinal of
 * CUDA's, or EXT_SYNC_OTHER less another device's index; EXT_SYNC_NONE if it uses none. */
int ext_sync_device(ext_state *state, ext_profiler *profiler, PyObject *const *args, size_t nargs, PyObject *kwnames);

/* Waits with the GIL released (by the framework, where the device is not CUDA's) until the device's work is done; for a block,
 * which has no arguments, EXT_SYNC_CURRENT is the device that the thread uses. True if anything was waited for. Keeps a
 * pending exception. */
enum { EXT_SYNC_CURRENT = -1 };
bool ext_sync_wait(ext_state *state, int device);

#endif
