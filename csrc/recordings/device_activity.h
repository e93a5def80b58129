/* What devices do, through CUPTI: the module's functions for it. */
#ifndef EXT_DEVICE_ACTIVITY_H
#define EXT_DEVICE_ACTIVITY_H

#include "csrc/state.h"

/* Adds the functions to the module. False with an exception. */
bool ext_device_activity_add(PyObject *module);

#endif
