#include "csrc/plain_known.h"

#include "csrc/fault.h"
/* Whether the class leaves it to `object` how attributes are found; what __getattr__ adds is asked for no attribute that is
 * there. */
static bool finds_as_usual(PyTypeObject *type)
{
    PyObject *own = PyObject_GetAttrString((PyObject *)type, "__getattribute__");
    PyObject *usual = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__getattribute__");
    ext_fault_forget();
    Py_XDECREF(own); /* compared only, as is: */
    Py_XDECREF(usual);
    return own != NULL && own == usual;
}

bool ext_plain_known_in_dict(PyTypeObject *type, PyObject *attributes)
{
    bool fine = finds_as_usual(type);
    for (Py_ssize_t i = 0; fine && i < PyTuple_GET_SIZE(attributes); i++) {
        PyObject *found = PyObject_GetAttr((PyObject *)type, PyTuple_GET_ITEM(attributes, i));
        ext_fault_forget();
        fine = found == NULL;
        Py_XDECREF(found);
    }
    return fine;
}
