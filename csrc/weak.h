/* Tables of what goes with objects, each entry of which goes when its object dies. */
#ifndef EXT_WEAK_H
#define EXT_WEAK_H

#include "csrc/compat.h"
#include "csrc/ptrmap.h"

/* The first field of an entry. */
typedef struct {
    ext_ptrmap *map;           /* borrowed */
    PyObject *object;          /* borrowed, never followed */
    void (*drop)(void *entry); /* ends the watch, and frees the entry */
    PyObject *watch;           /* NULL: the object takes no weak references. Owned */
} ext_weak;

/* Takes the entry out of the map, if it is in it, and drops it when the object dies, until the watch is ended. To take no weak
 * references is no error. False with an exception. */
bool ext_weak_watch(ext_weak *entry, ext_ptrmap *map, PyObject *object, void (*drop)(void *entry));

/* Ends the watch, if there is one. */
void ext_weak_forget(ext_weak *entry);

#endif
