#include "csrc/calls/label.h"

#include "csrc/convert.h"
#include "csrc/fault.h"

#include "cprofiling/trace/recording.h"

static size_t label_place(const PyObject *stage, const PyObject *name)
{
    return (((uintptr_t)name >> 4) ^ ((uintptr_t)stage >> 3)) % EXT_LABEL_PLACES;
}

ext_label_number ext_label_find(ext_state *state, PyObject *stage, PyObject *name)
{
    uint32_t serial = atomic_load_explicit(&cprof_recording.open_serial, memory_order_relaxed);
    ext_label *place = &state->labels[label_place(stage, name)];
    if (place->name == name && place->stage == stage && place->serial == serial) {
        return (ext_label_number){serial, place->label};
    }
    cprof_names names;
    PyObject *owners[2];
    uint32_t label = 0;
    if (ext_convert_names(stage, name, &names, owners)) {
        label = cprof_recording_label(serial, names);
    }
    Py_XDECREF(owners[0]);
    Py_XDECREF(owners[1]);
    ext_fault_forget();
    if (label == 0 && serial != 0 && serial == atomic_load(&cprof_recording.serial)) {
        state->internal_errors++; /* the recording goes on: there was no memory */
    }
    if (label != 0) {
        place->serial = serial;
        place->label = label;
        Py_XSETREF(place->name, Py_NewRef(name));
        Py_XSETREF(place->stage, Py_NewRef(stage));
    }
    return (ext_label_number){serial, label};
}
