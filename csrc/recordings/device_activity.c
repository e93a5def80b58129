#include "csrc/types.h"

#include "csrc/convert.h"
#include "csrc/recordings/recording.h"

#include "cprofiling/devices/cupti.h"

static PyObject *start_trace(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    bool is_on;
    EXT_WITHOUT_GIL(is_on = cprof_cupti_start(CPROF_CUPTI_TRACE));
    return PyBool_FromLong(is_on);
}

static PyObject *stop_trace(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    EXT_WITHOUT_GIL(cprof_cupti_stop(CPROF_CUPTI_TRACE));
    Py_RETURN_NONE;
}

static cprof_status collect(cprof_table *table)
{
    cprof_status status;
    EXT_WITHOUT_GIL(status = cprof_cupti_collect(table));
    return status;
}

static PyObject *add_trace(PyObject *module, PyObject *recording)
{
    ext_state *state = ext_state_of_module(module);
    cprof_status status;
    if (recording == Py_None) {
        status = collect(NULL);
    } else if (state->recording_type == NULL || !PyObject_TypeCheck(recording, state->recording_type)) {
        ext_convert_refuse_type("recording", "a Recording or None", recording);
        return NULL;
    } else {
        ext_recording *self = (ext_recording *)recording;
        bool can_change;
        status = CPROF_OK;
        EXT_ALONE(recording, {
            can_change = ext_recording_can_change(self);
            if (can_change) {
                self->phase = EXT_RECORDING_BUSY;
                status = collect(self->table);
                self->phase = EXT_RECORDING_OPEN;
            }
        });
        if (!can_change) {
            return NULL;
        }
    }
    return ext_convert_status(status, "what devices did");
}

static PyObject *set_folders(PyObject *Py_UNUSED(module), PyObject *folders)
{
    const char *paths[32];
    size_t count = 0;
    if (!PyTuple_Check(folders)) {
        ext_convert_refuse_type("folders", "a tuple of bytes", folders);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(folders) && count < sizeof paths / sizeof paths[0]; i++) {
        paths[count] = PyBytes_AsString(PyTuple_GET_ITEM(folders, i));
        if (paths[count++] == NULL) {
            return NULL;
        }
    }
    bool is_set;
    EXT_WITHOUT_GIL(is_set = cprof_cupti_set_folders(paths, count));
    return is_set ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

static PyMethodDef functions[] = {
    {"cupti_start_trace", start_trace, METH_NOARGS, PyDoc_STR("Begins to record what devices do. False: it cannot be.")},
    {"cupti_stop_trace", stop_trace, METH_NOARGS, PyDoc_STR("Ends it. What was recorded is kept for cupti_add_trace().")},
    {"cupti_add_trace", add_trace, METH_O, PyDoc_STR("Moves what was recorded to a Recording; None: forgets it.")},
    {"cupti_set_folders", set_folders, METH_O, PyDoc_STR("Sets where an installed CUPTI is looked for: at most 32 bytes.")},
    {NULL, NULL, 0, NULL},
};

bool ext_device_activity_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions) == 0;
}
