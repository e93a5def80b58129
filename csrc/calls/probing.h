/* The work around a call that is asked for more than its time. Never leaves an exception. */
#ifndef EXT_PROBING_H
#define EXT_PROBING_H

#include "csrc/calls/node.h"
#include "csrc/probes/probe.h"

#include "cprofiling/trace/recording.h"

typedef struct {
    cprof_probe *probe; /* until the call begins or is given up; NULL: none */
    bool is_described;
    struct cprof_recording_detail detail;
} ext_probing;

/* Asks the questions of the beginning of a call with these arguments; `skips_self`: see ext_probe_prepare(). A recording asks
 * nothing of calls inside which nothing is recorded, and of those that describing another one makes. Runs code of the
 * user's: the view is to be renewed. */
void ext_probing_prepare(ext_probing *self, ext_view *view, const ext_target *target, PyObject *const *args, size_t nargs,
                         PyObject *kwnames, bool skips_self);

/* Goes when the span is open, last of all before the call; or gives up, with `span` NULL. `call`: that of the span, if it is
 * one that can be suspended. In EXT_ALONE() of the state's guard, as is, of such a span, all that suspends, continues and
 * closes it: the probes that run in a thread are a list, which others change, too, when they leave blocks that were entered
 * there. */
void ext_probing_begin(ext_probing *self, cprof_thread *thread, cprof_span *span, cprof_resumable *call);

/* Goes before the span is closed: waits for a device (see sync.h), and asks what is to be asked at the end. Code of the user's,
 * which runs here, may leave the span. */
void ext_probing_end(ext_state *state, cprof_span *span, int device);

#endif
