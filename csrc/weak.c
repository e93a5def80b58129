#include "csrc/weak.h"

static const char capsule_name[] = "cprofiling._core.watch";

/* Called with the dead reference; `self` is the capsule that holds `data`, and in its context the function to call. Without
 * one, the watch was ended in the meantime: others may keep a reference, and call it, although we have let it go. */
static PyObject *call_watcher(PyObject *self, PyObject *reference)
{
    (void)reference;
    void *died = PyCapsule_GetContext(self);
    if (died != NULL) {
        ((void (*)(void *))died)(PyCapsule_GetPointer(self, capsule_name));
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

bool ext_weak_watch(PyObject *object, void (*died)(void *data), void *data, PyObject **watch)
{
    *watch = NULL;
    if (!ext_compat_can_be_referenced(object)) {
        return true;
    }
    PyObject *capsule = PyCapsule_New(data, capsule_name, NULL);
    *watch = capsule != NULL ? make_watch(object, capsule) : NULL;
    if (*watch != NULL) {
        (void)PyCapsule_SetContext(capsule, (void *)died); /* fails for no capsule only */
    }
    Py_XDECREF(capsule);
    return *watch != NULL;
}

void ext_weak_forget(PyObject **watch)
{
    if (*watch != NULL) {
        (void)PyCapsule_SetContext(PyTuple_GET_ITEM(*watch, 1), NULL);
        Py_CLEAR(*watch);
    }
}
