/* What the profiler itself costs. */
#ifndef EXT_COST_H
#define EXT_COST_H

#include "csrc/profiler.h"

/* The median cost in ns of one profiled call more than of an unprofiled one, as a new float: measured at the first use on a
 * Profiler of its own, which is asked for the counters and the memory that `profiler` (or NULL) is asked for. What that costs
 * on devices and with tools is not in it. Takes some hundred microseconds then, or milliseconds. NULL with an exception. */
PyObject *ext_cost_ns(ext_state *state, const ext_profiler *profiler);

#endif
