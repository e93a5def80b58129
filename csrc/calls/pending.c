#include "csrc/calls/pending.h"

void ext_pending_push(ext_view *view, ext_pending *pending)
{
    pending->outer = view->pending;
    view->pending = pending;
}

/* Mostly the first; greenlets may take turns. */
void ext_pending_pop(ext_view *view, ext_pending *pending)
{
    ext_pending **at = &view->pending;
    while (*at != NULL && *at != pending) {
        at = &(*at)->outer;
    }
    if (*at != NULL) {
        *at = pending->outer;
    }
}
