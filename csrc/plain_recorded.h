/* The nodes of a peer's pipelines in a recording: nobody tells when an exception leaves one, so that they cannot be open spans.
 */
#ifndef EXT_PLAIN_RECORDED_H
#define EXT_PLAIN_RECORDED_H

#include "csrc/plain_profiler.h"

/* Notes that a node begins, of which the peer has this int. Leaves no exception. */
void ext_plain_recorded_begin(const ext_state *state, PyObject *start);

/* Ends it: with the arguments of the method that ends the timing: pipeline, start, node, inputs, stage. Leaves no exception. */
void ext_plain_recorded_end(ext_state *state, PyObject *const *args);

#endif
