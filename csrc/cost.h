/* What the profiler itself costs. */
#ifndef EXT_COST_H
#define EXT_COST_H

#include "csrc/state.h"

/* The median cost in ns of one profiled call more than of an unprofiled one, measured at the first use on a Profiler of its
 * own, as a new float. Takes some hundred microseconds then. NULL with an exception. */
PyObject *ext_cost_ns(ext_state *state);

#endif
