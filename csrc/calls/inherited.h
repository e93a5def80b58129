/* A method that a class inherits, as a callable and descriptor that always finds the one of now. */
#ifndef EXT_INHERITED_H
#define EXT_INHERITED_H

#include "csrc/state.h"

extern PyType_Spec ext_inherited_spec;

/* What the class inherited when this was made; borrowed. */
PyObject *ext_inherited_found(PyObject *inherited);

#endif
