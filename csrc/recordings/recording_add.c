#include "csrc/convert.h"
#include "csrc/recordings/recording.h"

#include "cprofiling/nodes/accum.h"

/* What stands for a process or a thread: a number, or a text instead. */
typedef struct {
    int64_t number;
    cprof_text text;
} id;

/* The UTF-8 of a str, NULL being the empty one. False with an exception; else *owner is to be given back. */
static bool utf8_of(PyObject *value, const char *parameter, cprof_name *utf8, PyObject **owner)
{
    *owner = NULL;
    *utf8 = (cprof_name){"", 0};
    if (value == NULL) {
        return true;
    }
    if (!PyUnicode_Check(value)) {
        ext_convert_refuse_type(parameter, "a str", value);
        return false;
    }
    return ext_convert_utf8(value, utf8, owner);
}

static bool is_fine(cprof_status status)
{
    if (status != CPROF_OK) {
        (void)ext_convert_status(status, "adding to a recording");
    }
    return status == CPROF_OK;
}

static bool take_text(ext_recording *self, PyObject *value, const char *parameter, cprof_text *text)
{
    cprof_name utf8;
    PyObject *owner;
    if (!utf8_of(value, parameter, &utf8, &owner)) {
        return false;
    }
    cprof_status status = cprof_table_text(self->table, utf8, text);
    Py_XDECREF(owner);
    return is_fine(status);
}

static bool take_id(ext_recording *self, PyObject *value, const char *parameter, id *taken)
{
    *taken = (id){0, 0};
    if (PyUnicode_Check(value)) {
        return take_text(self, value, parameter, &taken->text);
    }
    if (!PyLong_Check(value)) {
        ext_convert_refuse_type(parameter, "an int or a str", value);
        return false;
    }
    taken->number = PyLong_AsLongLong(value);
    return taken->number != -1 || !PyErr_Occurred();
}

static bool take_args(ext_recording *self, PyObject *value, cprof_row *row)
{
    cprof_name utf8;
    PyObject *owner;
    if (!utf8_of(value, "args", &utf8, &owner)) {
        return false;
    }
    if (utf8.length > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "args must be at most %lu bytes of UTF-8, got %zu", (unsigned long)UINT32_MAX,
                     utf8.length);
        Py_XDECREF(owner);
        return false;
    }
    row->args_length = (uint32_t)utf8.length;
    cprof_status status = utf8.length > 0 ? cprof_table_keep(self->table, utf8, &row->args_at) : CPROF_OK;
    Py_XDECREF(owner);
    return is_fine(status);
}

static bool is_sound(const cprof_row *row)
{
    const char *reason = NULL;
    if (row->start_ns > row->end_ns) {
        reason = "end_ns must not be before start_ns";
    } else if (row->kind > CPROF_KIND_COUNTER) {
        reason = "kind must be 0 to 6";
    } else if (row->outcome > CPROF_OUTCOME_CANCELLED) {
        reason = "outcome must be 0 to 2";
    } else if (row->flags > (CPROF_ROW_UNFINISHED | CPROF_ROW_CUT | CPROF_ROW_SUSPENDABLE)) {
        reason = "flags must be 0 to 7";
    }
    if (reason != NULL) {
        PyErr_SetString(PyExc_ValueError, reason);
    }
    return reason == NULL;
}

/* Nothing here runs Python code but the parsing, after which the phase is looked at. */
PyObject *ext_recording_add(PyObject *object, PyObject *args, PyObject *kwargs)
{
    /* clang-format off */
    static char *keywords[] = {
        "name", "kind", "start_ns", "end_ns", "pid", "tid", "cat", "stage", "trace_high", "trace_low", "span", "parent_span",
        "outcome", "flags", "device", "stream", "correlation", "external_id", "bytes", "shapes", "types", "stack",
        "memory_change", "memory_peak", "device_memory_change", "device_memory_peak", "suspended_ns", "args", NULL
    };
    /* clang-format on */
    ext_recording *self = (ext_recording *)object;
    PyObject *name, *cat = NULL, *stage = NULL, *shapes = NULL, *types = NULL, *stack = NULL, *json = NULL, *process, *thread;
    cprof_row row = cprof_row_none;
    id pid, tid;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ObLLOO|$OOKKKKbbiLLLLOOOLLLLLO:_add", keywords, &name, &row.kind,
                                     &row.start_ns, &row.end_ns, &process, &thread, &cat, &stage, &row.trace_high,
                                     &row.trace_low, &row.span, &row.parent_span, &row.outcome, &row.flags, &row.device,
                                     &row.stream, &row.correlation, &row.external_id, &row.bytes, &shapes, &types, &stack,
                                     &row.memory_change, &row.memory_peak, &row.device_memory_change, &row.device_memory_peak,
                                     &row.suspended_ns, &json) ||
        !ext_recording_can_change(self) || !is_sound(&row) || !take_text(self, name, "name", &row.name) ||
        !take_text(self, cat, "cat", &row.cat) || !take_text(self, stage, "stage", &row.stage) ||
        !take_text(self, shapes, "shapes", &row.shapes) || !take_text(self, types, "types", &row.types) ||
        !take_text(self, stack, "stack", &row.stack) || !take_id(self, process, "pid", &pid) ||
        !take_id(self, thread, "tid", &tid) ||
        !is_fine(cprof_table_track(self->table, pid.number, pid.text, tid.number, tid.text, &row.track)) ||
        !take_args(self, json, &row) || !is_fine(cprof_table_add(self->table, &row))) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *ext_recording_set_fact(PyObject *object, PyObject *args)
{
    ext_recording *self = (ext_recording *)object;
    PyObject *key, *json;
    cprof_name key_utf8, json_utf8;
    PyObject *key_owner = NULL, *json_owner = NULL;
    if (!PyArg_ParseTuple(args, "UU:_set_fact", &key, &json) || !ext_recording_can_change(self)) {
        return NULL;
    }
    bool fine = ext_convert_utf8(key, &key_utf8, &key_owner) && ext_convert_utf8(json, &json_utf8, &json_owner) &&
                is_fine(cprof_table_set_fact(self->table, key_utf8, json_utf8));
    Py_XDECREF(key_owner);
    Py_XDECREF(json_owner);
    return fine ? Py_NewRef(Py_None) : NULL;
}

/* None leaves a text, and in the next function a number, as it is. */
static bool take_optional_text(ext_recording *self, PyObject *value, const char *parameter, cprof_text *text)
{
    return value == Py_None || take_text(self, value, parameter, text);
}

static bool take_sort(PyObject *value, int64_t *sort)
{
    if (value != Py_None) {
        *sort = PyLong_AsLongLong(value);
    }
    return value == Py_None || *sort != -1 || !PyErr_Occurred();
}

PyObject *ext_recording_name_process(PyObject *object, PyObject *args)
{
    ext_recording *self = (ext_recording *)object;
    PyObject *pid_value, *name_value, *labels_value, *sort_value;
    id pid;
    cprof_text name = 0, labels = 0;
    int64_t sort = CPROF_TABLE_UNKNOWN;
    uint32_t track;
    if (!PyArg_ParseTuple(args, "OOOO:_name_process", &pid_value, &name_value, &labels_value, &sort_value) ||
        !take_sort(sort_value, &sort) || !ext_recording_can_change(self) || !take_id(self, pid_value, "pid", &pid) ||
        !take_optional_text(self, name_value, "name", &name) || !take_optional_text(self, labels_value, "labels", &labels)) {
        return NULL;
    }
    if (cprof_table_find_process(self->table, pid.number, pid.text, &track)) {
        cprof_track *process = &self->table->tracks[track];
        process->process_name = name != 0 ? name : process->process_name;
        process->process_labels = labels != 0 ? labels : process->process_labels;
        process->process_sort = sort != CPROF_TABLE_UNKNOWN ? sort : process->process_sort;
    }
    Py_RETURN_NONE;
}

PyObject *ext_recording_renumber(PyObject *object, PyObject *pids)
{
    ext_recording *self = (ext_recording *)object;
    cprof_table *table = self->table;
    PyObject *numbers = PySequence_Tuple(pids);
    if (numbers == NULL || !ext_recording_can_change(self)) {
        Py_XDECREF(numbers);
        return NULL;
    }
    if ((size_t)PyTuple_GET_SIZE(numbers) != table->track_count) {
        PyErr_Format(PyExc_ValueError, "pids must be %zu integers, got %zd", table->track_count, PyTuple_GET_SIZE(numbers));
    }
    for (size_t i = 0; i < table->track_count && !PyErr_Occurred(); i++) {
        PyObject *number = PyTuple_GET_ITEM(numbers, (Py_ssize_t)i);
        if (!PyLong_Check(number)) { /* others run code to tell their value */
            ext_convert_refuse_type("pids", "integers", number);
        } else {
            table->tracks[i].pid = PyLong_AsLongLong(number);
            table->tracks[i].pid_text = 0;
        }
    }
    Py_DECREF(numbers);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyObject *ext_recording_name_thread(PyObject *object, PyObject *args)
{
    ext_recording *self = (ext_recording *)object;
    PyObject *pid_value, *tid_value, *name_value, *sort_value;
    id pid, tid;
    cprof_text name = 0;
    int64_t sort = CPROF_TABLE_UNKNOWN;
    uint32_t track;
    if (!PyArg_ParseTuple(args, "OOOO:_name_thread", &pid_value, &tid_value, &name_value, &sort_value) ||
        !take_sort(sort_value, &sort) || !ext_recording_can_change(self) || !take_id(self, pid_value, "pid", &pid) ||
        !take_id(self, tid_value, "tid", &tid) || !take_optional_text(self, name_value, "name", &name)) {
        return NULL;
    }
    if (cprof_table_find_track(self->table, pid.number, pid.text, tid.number, tid.text, &track)) {
        cprof_track *thread = &self->table->tracks[track];
        thread->thread_name = thread->thread_name == 0 ? name : thread->thread_name;
        thread->thread_sort = sort != CPROF_TABLE_UNKNOWN ? sort : thread->thread_sort;
    }
    Py_RETURN_NONE;
}
