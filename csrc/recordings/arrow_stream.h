/* Arrow streams as Python's capsules, and columns of Python's values as such a stream. */
#ifndef EXT_ARROW_STREAM_H
#define EXT_ARROW_STREAM_H

#include "csrc/state.h"

#include "cprofiling/files/arrow.h"

/* A capsule that owns a stream, as the Arrow PyCapsule interface has it. Takes the stream over in any case. NULL with an
 * exception. */
PyObject *ext_arrow_stream_capsule(cprof_arrow_stream stream);

#endif
