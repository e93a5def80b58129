/* The handle of a recording that runs, and what it asks the package for each call when more than times is wanted. */
#ifndef EXT_RECORDER_H
#define EXT_RECORDER_H

#include "csrc/calls/function.h"

#include "cprofiling/trace/recording.h"

/* What the recording wants to know of a call beyond its times: the shapes of its arguments, the Python stack, memory in use.
 * Goes before the span is opened, as it runs code of the user's. A pending exception is kept; a fault is counted, and leaves
 * the detail unknown. So it is left where nothing is recorded, and for calls that describing another one makes. */
void ext_recorder_describe(ext_view *view, PyObject *const *args, size_t nargs, PyObject *kwnames,
                           struct cprof_recording_detail *detail);

/* Goes before a span that has a detail is closed: what memory has changed. As above. */
void ext_recorder_end_detail(ext_state *state, cprof_span *span);

extern PyType_Spec ext_recorder_spec;

#endif
