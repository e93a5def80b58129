#include "csrc/probes/describe.h"

#include "csrc/convert.h"
#include "csrc/fault.h"

/* A text of the finder's as a label of the recording; 0 for None. False with an exception. */
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

static bool ask_for_texts(PyObject *finder, PyObject *const *args, size_t nargs, PyObject *kwnames,
                          struct cprof_recording_detail *detail)
{
    PyObject *arguments = ext_convert_arguments(args, nargs, kwnames);
    PyObject *texts = arguments != NULL ? PyObject_CallOneArg(finder, arguments) : NULL;
    Py_XDECREF(arguments);
    detail->serial = atomic_load(&cprof_recording.serial); /* it may be another recording by now */
    PyObject *shapes, *types, *stack;
    bool known = texts != NULL && PyArg_ParseTuple(texts, "OOO", &shapes, &types, &stack) &&
                 label_of_text(shapes, detail->serial, &detail->shapes) &&
                 label_of_text(types, detail->serial, &detail->types) && label_of_text(stack, detail->serial, &detail->stack);
    Py_XDECREF(texts);
    return known;
}

/* The figures of the framework's allocator: (bytes in use, the most there were), or None. */
static bool ask_for_device_memory(PyObject *finder, cprof_memory *memory)
{
    long long in_use, peak;
    PyObject *answer = PyObject_CallNoArgs(finder);
    bool known = answer != NULL && (answer == Py_None || PyArg_ParseTuple(answer, "LL", &in_use, &peak));
    if (known && answer != Py_None) {
        memory->device_memory = in_use;
        memory->device_memory_peak = peak;
    }
    Py_XDECREF(answer);
    return known;
}

/* All that is asked runs code of the package's, and of the user's, whose exceptions are not the user's call's. */
static bool ask_for_memory(ext_state *state, cprof_memory *memory)
{
    *memory = cprof_memory_now();
    PyObject *finder = Py_XNewRef(state->device_memory_finder);
    bool known = finder == NULL || ask_for_device_memory(finder, memory);
    Py_XDECREF(finder);
    return known;
}

static bool describe(ext_state *state, PyObject *const *args, size_t nargs, PyObject *kwnames,
                     struct cprof_recording_detail *detail)
{
    PyObject *finder = Py_XNewRef(state->describer);
    bool known = finder == NULL || ask_for_texts(finder, args, nargs, kwnames, detail);
    Py_XDECREF(finder);
    if (!known) {
        return false;
    }
    return !state->wants_memory || ask_for_memory(state, &detail->memory);
}

void ext_describe(ext_state *state, PyObject *const *args, size_t nargs, PyObject *kwnames,
                  struct cprof_recording_detail *detail)
{
    ext_compat_error error = ext_compat_take_error();
    if (!describe(state, args, nargs, kwnames, detail)) {
        ext_fault_forget();
        state->internal_errors++;
    }
    ext_compat_restore_error(error);
}

void ext_describe_end(ext_state *state, cprof_span *span)
{
    if (span->detail == NULL || !state->wants_memory) {
        return;
    }
    ext_compat_error error = ext_compat_take_error();
    cprof_memory now;
    if (!ask_for_memory(state, &now)) {
        ext_fault_forget();
        state->internal_errors++;
    }
    cprof_recording_end_detail(span, &now);
    ext_compat_restore_error(error);
}
