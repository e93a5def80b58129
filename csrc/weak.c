#include "csrc/weak.h"

static const char capsule_name[] = "cprofiling._core.watch";

/* Called with the dead reference; `self` is the capsule that has the entry as its context. Without one, the watch was ended in
 * the meantime: others may keep a reference, and call it, although we have let it go. */
static PyObject *call_watcher(PyObject *self, PyObject *Py_UNUSED(reference))
{
    ext_weak *entry = PyCapsule_GetContext(self);
    if (entry != NULL) {
        (void)ext_ptrmap_take(entry->map, entry->object);
        entry->drop(entry);
    }
    Py_RETURN_NONE;
}

static PyMethodDef watcher = {"watcher", call_watcher, METH_O, NULL};

/* The weak reference, and the capsule of its callback. */
static PyObject *make_watch(PyObject *object, PyObject *capsule)
{
    PyObject *callback = PyCFunction_New(&watcher, capsule);
    PyObject *reference = callback != NULL ? PyWeakref_NewRef(object, callback) : NULL;
    PyObject *watch = reference != NULL ? PyTuple_Pack(2, reference, capsule) : NULL;
    Py_XDECREF(callback);
    Py_XDECREF(reference);
    return watch;
}

bool ext_weak_watch(ext_weak *entry, ext_ptrmap *map, PyObject *object, void (*drop)(void *entry))
{
    *entry = (ext_weak){map, object, drop, NULL};
    if (!ext_compat_can_be_referenced(object)) {
        return true;
    }
    PyObject *capsule = PyCapsule_New(entry, capsule_name, NULL);
    entry->watch = capsule != NULL ? make_watch(object, capsule) : NULL;
    if (entry->watch != NULL) {
        (void)PyCapsule_SetContext(capsule, entry); /* fails for no capsule only */
    }
    Py_XDECREF(capsule);
    return entry->watch != NULL;
}

void ext_weak_forget(ext_weak *entry)
{
    if (entry->watch != NULL) {
        (void)PyCapsule_SetContext(PyTuple_GET_ITEM(entry->watch, 1), NULL);
        Py_CLEAR(entry->watch);
    }
}
