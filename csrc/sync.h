/* Waiting for the device that a node uses, before and after its call. */
#ifndef EXT_SYNC_H
#define EXT_SYNC_H

#include "csrc/profiler.h"

enum { EXT_SYNC_NONE = -2 }; /* no device: nothing to wait for */

/* The CUDA device that a call uses: that of its first argument's parameters or buffers, else of its tensor arguments;
 * EXT_SYNC_NONE where there is none, or no CUDA in the process. Never leaves an exception. */
int ext_sync_device(ext_state *state, ext_profiler *profiler, PyObject *const *args, size_t nargs, PyObject *kwnames);

/* The device of the calling thread's current context, for a block, which has no arguments. */
int ext_sync_current_device(void);

/* Waits with the GIL released until the device's work is done. Keeps a pending exception. */
void ext_sync_wait(int device);

#endif
