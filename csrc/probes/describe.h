/* What a recording wants to know of a call beyond its times: the shapes of its arguments, the Python stack, memory in use. */
#ifndef EXT_DESCRIBE_H
#define EXT_DESCRIBE_H

#include "csrc/state.h"

#include "cprofiling/trace/recording.h"

/* Fills a detail in which all is unknown. Goes before the span is opened, as it runs code of the user's. A pending exception is
 * kept; a fault is counted, and leaves the detail unknown. */
void ext_describe(ext_state *state, PyObject *const *args, size_t nargs, PyObject *kwnames,
                  struct cprof_recording_detail *detail);

/* Goes before a span that has a detail is closed: what memory has changed. As above. */
void ext_describe_end(ext_state *state, cprof_span *span);

#endif
