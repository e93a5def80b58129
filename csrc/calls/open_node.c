#include "csrc/types.h"

#include "csrc/convert.h"
#include "csrc/calls/view.h"

/* The accumulator of the innermost span that is a node's: others are labelled blocks, or only name an owner. */
static const cprof_accum *innermost(ext_state *state)
{
    /* Where no node ever ran in a thread there is nothing to look up, and no record of the thread is made for that. */
    cprof_thread *thread = cprof_thread_self;
    ext_view *view = thread != NULL ? ext_view_get(state, thread) : NULL;
    cprof_span *span = view != NULL ? ext_view_around(view, cprof_chain_top(&view->chain)) : NULL;
    while (span != NULL && span->accum == NULL) {
        span = span->parent != NULL && span->parent->serial == span->parent_serial ? span->parent : NULL;
        span = ext_view_around(view, span);
    }
    return span != NULL ? span->accum : NULL;
}

PyObject *ext_open_node(PyObject *module, PyObject *Py_UNUSED(unused))
{
    const cprof_accum *accum = innermost(ext_state_of_module(module));
    if (accum == NULL) {
        Py_RETURN_NONE;
    }
    cprof_names names = cprof_registry_names(accum);
    PyObject *stage = ext_convert_to_str(names.stage);
    PyObject *node = stage != NULL ? ext_convert_to_str(names.node) : NULL;
    PyObject *found = node != NULL ? PyTuple_Pack(2, stage, node) : NULL;
    Py_XDECREF(stage);
    Py_XDECREF(node);
    return found;
}
