/* The labels of a recording, by their numbers: names, and texts of details. No function here locks. */
#ifndef CPROF_LABELS_H
#define CPROF_LABELS_H

#include "cprofiling/base/names.h"

/* All zero: none. */
typedef struct {
    cprof_names_table names; /* label 1 is the first */
    size_t bytes;            /* of all of them */
} cprof_labels;

/* The number of a name, or, past the limits (recording.h), of the label that stands for all further ones; 0: there is none yet.
 */
uint32_t cprof_labels_find(const cprof_labels *labels, cprof_names names);

/* The same; it is made where there is none. 0 without memory. */
uint32_t cprof_labels_make(cprof_labels *labels, cprof_names names);

/* The number of a text that nothing else may stand for; 0 past the limits, or without memory. */
uint32_t cprof_labels_make_text(cprof_labels *labels, cprof_name text);

#endif
