/* What stands in a peer's pipeline for the two methods that are called before and after each node. */
#ifndef EXT_PLAIN_TIMER_H
#define EXT_PLAIN_TIMER_H

#include "csrc/plain_profiler.h"

extern PyType_Spec ext_plain_timer_spec;

#endif
