/* The Python type around a table of events: a recording, which is added to until it is finished, and only read from then on.
 * Its methods are in several files, and declared here. */
#ifndef EXT_RECORDING_H
#define EXT_RECORDING_H

#include "csrc/state.h"

#include "cprofiling/trace/table.h"

typedef enum {
    EXT_RECORDING_OPEN,     /* rows are added, by one thread at a time */
    EXT_RECORDING_BUSY,     /* a thread works on it without the GIL */
    EXT_RECORDING_FINISHED, /* it never changes any more */
    EXT_RECORDING_GIVEN_UP, /* loading has failed: it is good for nothing */
} ext_recording_phase;

typedef struct {
    PyObject_HEAD
    cprof_table *table; /* owned */
    ext_recording_phase phase;
    PyObject *strings; /* list, made at the first use; NULL: not yet. Owned, as are the tracks */
    PyObject *tracks;  /* list likewise */
    Py_ssize_t rows;   /* the shape of the columns' views */
    int exporting;     /* the column that a view is being made of; -1: none */
} ext_recording;

/* An instance of `type`, the Recording or a subclass, around a table that it takes over, also when this fails. NULL with an
 * exception. */
PyObject *ext_recording_new(PyTypeObject *type, cprof_table *table);

/* Whether the recording is in a phase to be added to, to be read, or at least to be asked what does not depend on the order of
 * its rows. False with RuntimeError. */
bool ext_recording_can_change(const ext_recording *self);
bool ext_recording_can_read(const ext_recording *self);
bool ext_recording_can_look(const ext_recording *self);

/* _add(...): a row, by keywords. */
PyObject *ext_recording_add(PyObject *object, PyObject *args, PyObject *kwargs);

/* _set_fact(key, json) */
PyObject *ext_recording_set_fact(PyObject *object, PyObject *args);

/* _name_process(pid, name, labels, sort), _name_thread(pid, tid, name, sort): ignored when it is not in the recording.
 * A thread keeps the name that it has. */
PyObject *ext_recording_name_process(PyObject *object, PyObject *args);
PyObject *ext_recording_name_thread(PyObject *object, PyObject *args);

/* _renumber(pids): a process's number for each track; nothing can be found by its numbers any more. */
PyObject *ext_recording_renumber(PyObject *object, PyObject *pids);

/* write_chrome(write), _write_events(write, base_ns, is_first), _chrome_base */
PyObject *ext_recording_write_chrome(PyObject *object, PyObject *write);
PyObject *ext_recording_write_events(PyObject *object, PyObject *args);
PyObject *ext_recording_chrome_base(PyObject *object, void *unused);

/* _load(read, shift_ns, id_offset=0): read(size) gives the next bytes of a Chrome trace, none at its end. FormatError with the
 * reason and the byte; the recording is of no use after any error. Returns counts by words, and the greatest id. */
PyObject *ext_recording_load(PyObject *object, PyObject *args);

/* _arrow_stream(*, spans, execution_index, operator_index): a capsule. */
PyObject *ext_recording_arrow(PyObject *object, PyObject *args, PyObject *kwargs);

/* _own_times(parents): bytes of one uint64 for each row, in ns. */
PyObject *ext_recording_own_times(PyObject *object, PyObject *parents);

/* _parents(counted): bytes of one int32 for each row, from a byte for each. */
PyObject *ext_recording_parents(PyObject *object, PyObject *counted);

#endif
