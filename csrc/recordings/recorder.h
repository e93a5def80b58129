/* The handle of a recording that runs. */
#ifndef EXT_RECORDER_H
#define EXT_RECORDER_H

#include "csrc/state.h"

extern PyType_Spec ext_recorder_spec;

#endif
