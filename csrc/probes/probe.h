/* What a call is asked beyond its time: the part of it that only Python can answer, and the order in which it is done.
 *
 * The device and the stream that the call uses, and what the framework's allocator holds, are asked of the package before the
 * span is opened, and again after its clock was stopped; the rest is cprofiling/probe.c's. Nothing here leaves an exception,
 * and a pending one is kept; faults are counted.
 *
 * Events are recorded with the GIL held, as the frameworks' own are: giving it up twice for each call would cost more, where
 * other threads want it, than all the rest. They block only while a device's queue is full, when the next launch would, too.
 */
#ifndef EXT_PROBE_H
#define EXT_PROBE_H

#include "csrc/calls/function.h"

#include "cprofiling/calls/probe.h"

/* What the package answers, as a tuple of callables in this order. */
typedef enum {
    EXT_PROBER_OPTIONS,      /* (gpu_stream, memory, counters) -> (stream, whether peaks are reset, mask), or raises */
    EXT_PROBER_PLACE,        /* (arguments, stream) -> (device, stream), a mark of the device's own, (cause, reason), or None */
    EXT_PROBER_PLACE_AFTER,  /* ((device, stream), stream) -> the same at the end, or None */
    EXT_PROBER_MEMORY,       /* (arguments, reset) -> (device, bytes in use, the most since the last reset), or None */
    EXT_PROBER_MEMORY_AFTER, /* (device, reset) -> (bytes in use, the most), or None */
    EXT_PROBER_LAUNCHES,     /* (profiler): it will hold CUPTI, which the package looks for, and gives back at exit */
    EXT_PROBER_WAIT_DEVICE,  /* (arguments) -> a device that is not CUDA's, -1: it is on none, or None: none is in use */
    EXT_PROBER_WAIT,         /* (device), or (-1) for the current one -> whether one that is not CUDA's is in use */
    EXT_PROBERS,
} ext_prober;

/* A probe for a call of `function` (NULL: a block), to be begun when its span is open, or dropped; NULL where nothing beyond
 * the time is asked for, or without memory. Runs code of the user's. */
cprof_probe *ext_probe_prepare(ext_state *state, ext_function *function, const ext_target *target, PyObject *const *args,
                               size_t nargs, PyObject *kwnames);

/* Gives up a probe that was not begun. NULL is ignored. */
void ext_probe_drop(cprof_probe *probe);

/* Waits for a device as ext_sync_wait(), and counts the wait for the probe, if there is one. */
void ext_probe_wait(ext_state *state, cprof_probe *probe, int device);

/* Stops the clock of a span that has a probe, and asks what is to be asked at the end; goes before the span is closed, with
 * code of the user's in between. */
void ext_probe_end(ext_state *state, cprof_span *span);

/* Becomes, and ceases to be, one of CUPTI's users for a Profiler; a Profiler that wants to, but found no CUDA, tries again when
 * its calls find some. */
void ext_probe_want_launches(ext_profiler *profiler, bool wanted);

#endif
