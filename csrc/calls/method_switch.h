/* What stands in a class for a method of which some instances are instrumented. */
#ifndef EXT_METHOD_SWITCH_H
#define EXT_METHOD_SWITCH_H

#include "csrc/state.h"

extern PyType_Spec ext_method_switch_spec;

#endif
