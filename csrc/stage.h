/* The context manager that puts an execution stage in force. */
#ifndef EXT_STAGE_H
#define EXT_STAGE_H

#include "csrc/state.h"

extern PyType_Spec ext_stage_spec;

#endif
