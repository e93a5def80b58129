#include "csrc/calls/probing.h"

#include "csrc/convert.h"
#include "csrc/probes/sync.h"

/* A text of the describer's as a label of the recording; 0 for None. False with an exception. */
static bool label_of_text(PyObject *text, uint32_t serial, uint32_t *label)
{
    cprof_name utf8;
    PyObject *owner;
    *label = 0;
    if (text == Py_None) {
        return true;
    }
    if (!PyUnicode_Check(text)) {
        ext_convert_refuse_type("description", "a str or None", text);
        return false;
    }
    if (!ext_convert_utf8(text, &utf8, &owner)) {
        return false;
    }
    *label = cprof_recording_text(serial, utf8);
    Py_DECREF(owner);
    return true;
}

static bool ask_for_texts(ext_state *state, PyObject *const *args, size_t nargs, PyObject *kwnames,
                          struct cprof_recording_detail *detail)
{
    PyObject *describer = Py_XNewRef(state->describer);
    if (describer == NULL) {
        return true;
    }
    PyObject *arguments = ext_convert_arguments(args, nargs, kwnames);
    PyObject *texts = arguments != NULL ? PyObject_CallOneArg(describer, arguments) : NULL;
    PyObject *shapes, *types, *stack;
    detail->serial = atomic_load(&cprof_recording.serial); /* it may be another recording by now */
    bool known = texts != NULL && PyArg_ParseTuple(texts, "OOO", &shapes, &types, &stack) &&
                 label_of_text(shapes, detail->serial, &detail->shapes) &&
                 label_of_text(types, detail->serial, &detail->types) && label_of_text(stack, detail->serial, &detail->stack);
    Py_XDECREF(texts);
    Py_XDECREF(arguments);
    Py_DECREF(describer);
    return known;
}

/* The process's memory, and the figures of the framework's allocator: (bytes in use, the most there were), or None. */
static bool ask_for_memory(ext_state *state, cprof_memory *memory)
{
    *memory = cprof_memory_now();
    PyObject *finder = Py_XNewRef(state->device_memory_finder);
    if (finder == NULL) {
        return true;
    }
    long long in_use, peak;
    PyObject *answer = PyObject_CallNoArgs(finder);
    bool known = answer != NULL && (answer == Py_None || PyArg_ParseTuple(answer, "LL", &in_use, &peak));
    if (known && answer != Py_None) {
        memory->device_memory = in_use;
        memory->device_memory_peak = peak;
    }
    Py_XDECREF(answer);
    Py_DECREF(finder);
    return known;
}

/* Ends a pending exception of what was asked, and gives back that of the user's call. */
static void end_asking(ext_state *state, bool known, ext_compat_error error)
{
    if (!known) {
        ext_state_forget_error();
        state->internal_errors++;
    }
    ext_compat_restore_error(error);
}

static void prepare(ext_probing *self, ext_view *view, const ext_target *target, PyObject *const *args, size_t nargs,
                    PyObject *kwnames, bool skips_self)
{
    static const int64_t none = CPROF_TABLE_UNKNOWN;
    ext_state *state = view->state;
    self->is_described = (target->state & CPROF_FLAG_DETAIL) != 0;
    self->detail = (struct cprof_recording_detail){.memory = {none, none, none, none}};
    if (self->is_described && !view->describing && !cprof_recording_is_muted(cprof_chain_top(&view->chain))) {
        ext_compat_error error = ext_compat_take_error();
        view->describing = true;
        bool known = ask_for_texts(state, args, nargs, kwnames, &self->detail) &&
                     (!state->wants_memory || ask_for_memory(state, &self->detail.memory));
        view->describing = false;
        end_asking(state, known, error);
    }
    self->probe = ext_probe_prepare(target->profiler, target->accum, target->state, args, nargs, kwnames, skips_self);
}

void ext_probing_prepare(ext_probing *self, ext_view *view, const ext_target *target, PyObject *const *args, size_t nargs,
                         PyObject *kwnames, bool skips_self)
{
    EXT_ALONE(view->state->guard, prepare(self, view, target, args, nargs, kwnames, skips_self));
}

void ext_probing_begin(ext_probing *self, cprof_thread *thread, cprof_span *span, cprof_resumable *call)
{
    if (span == NULL) {
        if (self->probe != NULL) {
            cprof_probe_finish(self->probe, false, true);
            cprof_probe_settle();
        }
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

static void end(ext_state *state, cprof_span *span, int device)
{
    uint64_t serial = span->serial;
    ext_probe_wait_alone(state, span->probe, device);
    if (span->serial == serial) {
        ext_probe_end(state, span);
    }
    if (span->detail != NULL && state->wants_memory) {
        cprof_memory now;
        ext_compat_error error = ext_compat_take_error();
        bool known = ask_for_memory(state, &now);
        cprof_recording_end_detail(span, &now);
        end_asking(state, known, error);
    }
}

void ext_probing_end(ext_state *state, cprof_span *span, int device)
{
    EXT_ALONE(state->guard, end(state, span, device));
}
