/* The Python object around a registry. */
#ifndef EXT_PROFILER_H
#define EXT_PROFILER_H

#include "csrc/state.h"

#include "cprofiling/calls/probe.h"

/* How a Profiler stands with CUPTI. */
typedef enum {
    EXT_LAUNCHES_OFF,
    EXT_LAUNCHES_STARTING, /* a thread is at it */
    EXT_LAUNCHES_ON,       /* it is a user of CUPTI's */
} ext_launches;

typedef struct ext_profiler {
    PyObject_HEAD
    cprof_registry *registry;         /* owned */
    uint64_t uid;                     /* unique among the Profilers of the process, and never used again */
    ext_state *state;                 /* held */
    _Atomic uint64_t internal_errors; /* faults inside the profiler, none of which reached the user */
    PyObject *weakrefs;
    PyObject *entries;          /* where it is bound: see context.h; NULL: it never was. Owned */
    PyObject *gpu_stream;       /* the caller's, or what gives it at each call; NULL: the framework's. Owned */
    PyObject *device_note;      /* str: why a device cannot time nodes; NULL: none has said. Owned */
    PyObject *label;            /* str: the name of the class of the pipeline that it is of; NULL: of none. Owned */
    cprof_probe_rest rest;      /* no device was in use: it is not asked for until this is over */
    cprof_probe_rest cuda_rest; /* no driver was found: likewise */
    bool has_cuda;              /* a driver was found */
    ext_launches launches;      /* is a user of CUPTI's, */
    bool wants_launches;        /* as it was asked for last */
    bool seeks_cuda;            /* or wants to be, as soon as there is CUDA */
    bool is_on;                 /* counted in state->profilers_on */
    bool counts_no_nodes;       /* and never is: only record() is called */
    _Atomic bool overflow_warned;
    uint64_t stages_before; /* the number of the last entry of a stage before the present statistics */
} ext_profiler;

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
    ext_state_forget_error();
    profiler->internal_errors++;
}

#endif
