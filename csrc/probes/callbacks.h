/* What the package is asked for calls that are measured beyond their time. */
#ifndef EXT_CALLBACKS_H
#define EXT_CALLBACKS_H

#include "csrc/fault.h"
#include "csrc/profiler.h"

/* What the package answers, as a tuple of callables in this order. */
typedef enum {
    EXT_CALLBACK_OPTIONS, /* (gpu_stream, memory, counters) -> (stream, whether peaks are reset, mask), or raises */
    EXT_CALLBACK_PLACE,   /* (arguments, stream) -> (device, stream), a mark of the device's own, (cause, reason), or None */
    EXT_CALLBACK_PLACE_AFTER,  /* ((device, stream), stream) -> the same at the end, or None */
    EXT_CALLBACK_MEMORY,       /* (arguments, reset) -> (device, bytes in use, the most since the last reset), or None */
    EXT_CALLBACK_MEMORY_AFTER, /* (device, reset) -> (bytes in use, the most), or None */
    EXT_CALLBACK_LAUNCHES,     /* (profiler): it will hold CUPTI, which the package looks for, and gives back at exit */
    EXT_CALLBACK_WAIT_DEVICE,  /* (arguments) -> a device that is not CUDA's, -1: it is on none, or None: none is in use */
    EXT_CALLBACK_WAIT,         /* (device), or (-1) for the current one -> whether one that is not CUDA's is in use */
    EXT_CALLBACKS,
} ext_callback;

/* Borrowed; NULL: the package is not set up. */
static inline PyObject *ext_callback_get(const ext_state *state, ext_callback which)
{
    return state->probers != NULL ? PyTuple_GET_ITEM(state->probers, which) : NULL;
}

/* Ends the pending exception of a callback, and counts the fault. */
static inline void ext_callback_fail(ext_profiler *profiler)
{
    ext_fault_forget();
    profiler->internal_errors++;
}

#endif
