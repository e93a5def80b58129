/* Everything that a call is asked beyond its time: what only Python can answer, and the order of all of it.
 *
 * The device and the stream that the call uses, and what the framework's allocator holds, are asked of the package before the
 * span is opened, and again after its clock was stopped; the rest is cprofiling/calls/probe.c's. Nothing here leaves an
 * exception, and a pending one is kept; faults are counted.
 *
 * Events are recorded with the GIL held, as the frameworks' own are: giving it up twice for each call would cost more, where
 * other threads want it, than all the rest. They block only while a device's queue is full, when the next launch would, too.
 */
#ifndef EXT_PROBE_H
#define EXT_PROBE_H

#include "csrc/profiler.h"

#include "cprofiling/calls/probe.h"

/* A probe for a call that is counted so, to be begun when its span is open, or finished; NULL where nothing beyond the time is
 * asked for, or without memory. `flags`: the registry's word as read at entry; `skips_self`: the first argument has no part in
 * the call's signature. Runs code of the user's. */
cprof_probe *ext_probe_prepare(ext_profiler *profiler, cprof_accum *accum, uint64_t flags, PyObject *const *args, size_t nargs,
                               PyObject *kwnames, bool skips_self);

/* Waits for a device as ext_sync_wait(), and counts the wait for the probe, if there is one. */
void ext_probe_wait(ext_state *state, cprof_probe *probe, int device);

/* The same, as all functions here but that one, in EXT_ALONE() of the state's guard. */
void ext_probe_wait_alone(ext_state *state, cprof_probe *probe, int device);

/* Stops the clock of a span that has a probe, and asks the questions of its end; goes before the span is closed, with
 * code of the user's in between. */
void ext_probe_end(ext_state *state, cprof_span *span);

/* Becomes, and ceases to be, one of CUPTI's users for a Profiler; a Profiler that wants to, but found no CUDA, tries again when
 * its calls find some. */
void ext_probe_want_launches(ext_profiler *profiler, bool wanted);

#endif
