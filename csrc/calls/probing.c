#include "csrc/calls/probing.h"

#include "csrc/probes/describe.h"
#include "csrc/probes/sync.h"

void ext_probing_prepare(ext_probing *self, ext_view *view, const ext_target *target, PyObject *const *args, size_t nargs,
                         PyObject *kwnames, bool skips_self)
{
    static const int64_t none = CPROF_TABLE_UNKNOWN;
    self->is_described = (target->state & CPROF_FLAG_DETAIL) != 0;
    self->detail = (struct cprof_recording_detail){.memory = {none, none, none, none}};
    if (self->is_described && !view->describing && !cprof_recording_is_muted(cprof_chain_top(&view->chain))) {
        view->describing = true;
        ext_describe(view->state, args, nargs, kwnames, &self->detail);
        view->describing = false;
    }
    self->probe = ext_probe_prepare(target->profiler, target->accum, target->state, args, nargs, kwnames, skips_self);
}

void ext_probing_begin(ext_probing *self, cprof_thread *thread, cprof_span *span, cprof_resumable *call)
{
    if (span == NULL) {
        ext_probe_drop(self->probe);
        return;
    }
    if (self->is_described) {
        cprof_recording_begin_detail(span, &self->detail);
    }
    if (self->probe != NULL && call != NULL) {
        cprof_call_resumable_begin_probe(call, thread, self->probe);
    } else if (self->probe != NULL) {
        cprof_probe_begin(self->probe, thread, span);
    }
}

void ext_probing_end(ext_state *state, cprof_span *span, int device)
{
    uint64_t serial = span->serial;
    ext_probe_wait(state, span->probe, device);
    if (span->serial == serial) {
        ext_probe_end(state, span);
    }
    ext_describe_end(state, span);
}
