#include "csrc/weak.h"

static const char capsule_name[] = "cprofiling._core.watch";

/* Called with the dead reference; `self` is the capsule that holds `data`, and in its context the function to call. */
static PyObject *call_watcher(PyObject *self, PyObject *reference)
{
    (void)reference;
    void *data = PyCapsule_GetPointer(self, capsule_name);
    void *died = PyCapsule_GetContext(self);
    if (data == NULL || died == NULL) {
        return NULL;
    }
    ((void (*)(void *))died)(data);
    Py_RETURN_NONE;
}

static PyMethodDef watcher = {"watcher", call_watcher, METH_O, NULL};

bool ext_weak_watch(PyObject *object, void (*died)(void *data), void *data, PyObject **reference)
{
    *reference = NULL;
    if (!ext_compat_can_be_referenced(object)) {
        return true;
    }
    PyObject *capsule = PyCapsule_New(data, capsule_name, NULL);
    if (capsule == NULL || PyCapsule_SetContext(capsule, (void *)died) < 0) {
        Py_XDECREF(capsule);
        return false;
    }
    PyObject *callback = PyCFunction_New(&watcher, capsule);
    Py_DECREF(capsule);
    if (callback == NULL) {
        return false;
    }
    *reference = PyWeakref_NewRef(object, callback);
    Py_DECREF(callback);
    return *reference != NULL;
}
