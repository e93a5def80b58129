/* The context-manager half of profile_node. */
#ifndef EXT_BLOCK_H
#define EXT_BLOCK_H

#include "csrc/state.h"

extern PyType_Spec ext_block_spec;

#endif
