/* The module's functions about what measures beyond the clock: how it stands with devices, tools and counters here. */
#ifndef EXT_INSTRUMENTS_H
#define EXT_INSTRUMENTS_H

#include "csrc/state.h"

/* Adds the functions to the module. False with an exception. */
bool ext_instruments_add(PyObject *module);

#endif
