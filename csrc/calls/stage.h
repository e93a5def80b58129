/* The context manager that puts an execution stage in force. */
#ifndef EXT_STAGE_H
#define EXT_STAGE_H

#include "csrc/state.h"

/* Notes that a node ran in a stage, and gives those that were entered after an entry of a number, and in which none ever did: a
 * list of str, NULL with an exception. */
void ext_stage_note_node(ext_state *state, PyObject *stage);
PyObject *ext_stage_without_nodes(ext_state *state, uint64_t since);

#endif
