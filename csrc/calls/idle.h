/* What stands for a stage's context where stages are not measured: it does nothing. */
#ifndef EXT_IDLE_H
#define EXT_IDLE_H

#include "csrc/state.h"

extern PyType_Spec ext_idle_spec;

/* Makes `type`, of the specification above, quick to call. */
void ext_idle_prepare(PyTypeObject *type);

#endif
