/* From the core's figures to plain rows. */
#ifndef EXT_SUMMARY_H
#define EXT_SUMMARY_H

#include "csrc/profiler.h"

#include "cprofiling/files/snapshot.h"

/* Makes the types of EXT_STATE_ROWS, named tuples (struct sequences). False with an exception. */
bool ext_summary_add_rows(ext_state *state);

/* The name of how medians are found, as set_profiling() takes it. */
static inline const char *ext_summary_median(bool has_p2)
{
    return has_p2 ? "p2" : "histogram";
}

/* A row of a type, of a new tuple with as many values as the type has fields, or of NULL with an exception. NULL for a type:
 * the interpreter is ending. */
PyObject *ext_summary_row_of(PyTypeObject *type, PyObject *values);

/* A summary row of a registry, or of a snapshot where that is not NULL: a list with a node row for each key of `stage` (None:
 * of all stages), in the order in which their first calls finished; the (largest) skip_first_n that they were gathered with;
 * how medians are found; how many histogram counts were lost, and how many keys could not be read; a list with a shape row for
 * each signature of each key. The GIL is released meanwhile. NULL with an exception. */
PyObject *ext_summary_rows(ext_state *state, cprof_registry *registry, const cprof_snapshot *snapshot, PyObject *stage);

/* fill_row(values, row): gives the first keys of a dict the values of the row but its last. */
PyObject *ext_summary_fill(PyObject *module, PyObject *args);

#endif
