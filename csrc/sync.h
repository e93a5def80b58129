/* Waiting for the device that a node uses, before and after its call. Nothing here leaves an exception. */
#ifndef EXT_SYNC_H
#define EXT_SYNC_H

#include "csrc/profiler.h"

enum { EXT_SYNC_NONE = -2 }; /* no device: nothing to wait for */

/* The CUDA device that a call uses: that of its first argument's parameters or buffers, else of its tensor arguments;
 * EXT_SYNC_NONE where there is none, or no CUDA in the process. */
int ext_sync_device(ext_state *state, ext_profiler *profiler, PyObject *const *args, size_t nargs, PyObject *kwnames);

/* Waits with the GIL released until the device's work is done; for a block, which has no arguments, EXT_SYNC_CURRENT is the
 * device that the thread uses. Keeps a pending exception. */
enum { EXT_SYNC_CURRENT = -1 };
void ext_sync_wait(ext_state *state, int device);

#endif
