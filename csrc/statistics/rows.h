/* Named tuples (struct sequences) of figures, as the package reads them. */
#ifndef EXT_ROWS_H
#define EXT_ROWS_H

#include "csrc/state.h"

#include "cprofiling/stats/resources.h"

/* Makes the types of EXT_STATE_ROWS. False with an exception. */
bool ext_rows_add(ext_state *state);

/* A row of a type, or NULL with an exception, of as many values as the type has fields, each a new reference or NULL; they
 * are taken over in any case. NULL for a type: the interpreter is ending. */
PyObject *ext_rows_new(PyTypeObject *type, PyObject **values, size_t count);

/* The same of a new tuple with the values, or of NULL with an exception. */
PyObject *ext_rows_of_tuple(PyTypeObject *type, PyObject *values);

/* Milliseconds as a float; negative stands for unknown, and becomes None. */
PyObject *ext_rows_ms(double milliseconds);

/* What a node used beyond time. `gpu_ms`: the 50th and the 99th percentile; negative: not known. */
PyObject *ext_rows_of_resources(const ext_state *state, const cprof_resources_figures *figures, const double gpu_ms[2]);

#endif
