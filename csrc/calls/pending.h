/* Calls decorated twice, which count once. */
#ifndef EXT_PENDING_H
#define EXT_PENDING_H

#include "csrc/calls/view.h"

struct ext_function;

/* The next call of `inner`, or of a wrapped function inside that, is counted already for `owner`. Kept on the heap, as a C
 * stack may be moved away under a greenlet. */
typedef struct ext_pending {
    struct ext_pending *outer;
    struct ext_function *inner; /* borrowed; NULL once it was called */
    const void *owner;          /* Profiler; compared only */
} ext_pending;

/* Puts a pending call in force while the wrapper around it runs, and ends that. */
void ext_pending_push(ext_view *view, ext_pending *pending);
void ext_pending_pop(ext_view *view, ext_pending *pending);

#endif
