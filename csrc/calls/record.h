/* record(): a labelled block of a recording, as a context manager and, by way of a node that is no Profiler's, as a decorator.
 */
#ifndef EXT_RECORD_H
#define EXT_RECORD_H

#include "csrc/state.h"

/* Makes `type`, of the specification below, quick to call. */
void ext_record_prepare(PyTypeObject *type);

extern PyType_Spec ext_record_spec;

#endif
