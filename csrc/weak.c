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

static bool can_be_referenced(PyObject *object)
{
    return Py_TYPE(object)->tp_weaklistoffset != 0
#ifdef Py_TPFLAGS_MANAGED_WEAKREF
           || (Py_TYPE(object)->tp_flags & Py_TPFLAGS_MANAGED_WEAKREF) != 0
#endif
        ;
}

bool ext_weak_watch(PyObject *object, void (*died)(void *data), void *data, PyObject **reference)
{
    *reference = NULL;
    if (!can_be_referenced(object)) {
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
