#include "csrc/calls/key.h"

#include "csrc/calls/stage.h"
#include "csrc/convert.h"

#include "cprofiling/trace/recording.h"

void ext_key_clear(ext_key *key)
{
    Py_CLEAR(key->name);
    for (size_t i = 0; i < EXT_KEY_PLACES; i++) {
        key->places[i].profiler_uid = 0;
        Py_CLEAR(key->places[i].stage);
    }
}

void ext_key_warn_of_overflow(ext_profiler *profiler)
{
    if (atomic_load(&profiler->registry->refused_keys) == 0) {
        return;
    }
    if (atomic_exchange(&profiler->overflow_warned, true)) {
        return;
    }
    if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1,
                         "a Profiler keeps %d keys (stage, node name); calls of further ones are counted under the name "
                         "__overflow__ of their stage",
                         CPROF_REGISTRY_MAX_KEYS) < 0) {
        PyErr_WriteUnraisable(NULL);
    }
}

cprof_accum *ext_key_accum(ext_profiler *profiler, PyObject *stage, PyObject *name)
{
    cprof_names names;
    PyObject *owners[2];
    cprof_accum *accum = NULL;
    if (ext_convert_names(stage, name, &names, owners)) {
        accum = cprof_registry_accum(profiler->registry, names);
    }
    Py_XDECREF(owners[0]);
    Py_XDECREF(owners[1]);
    return accum;
}

static void remember(const ext_profiler *profiler, ext_key *key, PyObject *stage, cprof_accum *accum)
{
    size_t first = ext_key_place(profiler, stage);
    size_t moved = 0; /* the newest comes first, the others move on to a free place; without one the last of them goes */
    while (moved < EXT_KEY_PLACES - 1 && key->places[(first + moved) % EXT_KEY_PLACES].profiler_uid != 0) {
        moved++;
    }
    PyObject *gone = key->places[(first + moved) % EXT_KEY_PLACES].stage;
    EXT_KEY_TAKE_TURN(key);
    for (size_t i = moved; i > 0; i--) {
        size_t to = (first + i) % EXT_KEY_PLACES;
        size_t from = (first + i - 1) % EXT_KEY_PLACES;
        key->places[to].profiler_uid = key->places[from].profiler_uid;
        key->places[to].stage = key->places[from].stage;
        key->places[to].accum = key->places[from].accum;
    }
    key->places[first].profiler_uid = profiler->uid;
    key->places[first].stage = Py_NewRef(stage);
    key->places[first].accum = accum;
    EXT_KEY_TAKE_TURN(key);
    Py_XDECREF(gone);
}

cprof_accum *ext_key_find(ext_profiler *profiler, ext_key *key, PyObject *stage)
{
    cprof_accum *accum = ext_key_known(key, profiler, stage);
    if (accum != NULL) {
        return accum;
    }
    const PyObject *name = key->name;
    accum = ext_key_accum(profiler, stage, key->name);
    if (accum == NULL) {
        ext_state_forget_error();
        profiler->internal_errors++;
        return NULL;
    }
    if (key->name == name) { /* else others came in between, and it is that of another instance */
        remember(profiler, key, stage, accum);
    }
    ext_stage_note_node(profiler->state, stage);
    ext_key_warn_of_overflow(profiler);
    return accum;
}

static ext_label_number find_label(ext_state *state, uint32_t serial, PyObject *stage, PyObject *name)
{
    ext_label *place = &state->labels[(((uintptr_t)name >> 4) ^ ((uintptr_t)stage >> 3)) % EXT_LABEL_PLACES];
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
    ext_state_forget_error();
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

ext_label_number ext_key_label(ext_state *state, PyObject *stage, PyObject *name)
{
    uint32_t serial = atomic_load_explicit(&cprof_recording.open_serial, memory_order_relaxed);
    ext_label_number number;
    EXT_ALONE(state->guard, number = find_label(state, serial, stage, name));
    return number;
}
