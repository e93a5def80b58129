/* Whether a Profiler counts what its nodes launch, as one of CUPTI's users. */
#ifndef EXT_LAUNCHES_H
#define EXT_LAUNCHES_H

#include "csrc/profiler.h"

/* Becomes, and ceases to be, one of CUPTI's users for a Profiler; a Profiler that wants to, but found no CUDA, tries again when
 * its calls find some. */
void ext_launches_want(ext_profiler *profiler, bool wanted);

/* Whether the process has loaded CUDA. Found out with the GIL released, and seldom while it has not. */
bool ext_launches_see_cuda(ext_profiler *profiler);

#endif
