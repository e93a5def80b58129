#include "csrc/statistics/cost.h"

#include "csrc/calls/function.h"

#include "cprofiling/base/clock.h"

#include <stdlib.h>

enum { BATCHES = 15, CALLS = 100 };

static PyObject *do_nothing(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    Py_RETURN_NONE;
}

static PyMethodDef nothing = {"nothing", do_nothing, METH_NOARGS, NULL};

static bool time_batch(PyObject *callable, cprof_ns *elapsed_ns)
{
    cprof_ns start_ns = cprof_clock_monotonic_ns();
    for (int i = 0; i < CALLS; i++) {
        PyObject *result = PyObject_CallNoArgs(callable);
        if (result == NULL) {
            return false;
        }
        Py_DECREF(result);
    }
    *elapsed_ns = cprof_clock_monotonic_ns() - start_ns;
    return true;
}

static int by_value(const void *left, const void *right)
{
    cprof_ns a = *(const cprof_ns *)left;
    cprof_ns b = *(const cprof_ns *)right;
    return (a > b) - (a < b);
}

/* Profiled and bare batches in turn, so that both meet the same machine. */
static bool measure(PyObject *bare, PyObject *profiled, double *cost_ns)
{
    cprof_ns differences_ns[BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        cprof_ns bare_ns, profiled_ns;
        if (!time_batch(bare, &bare_ns) || !time_batch(profiled, &profiled_ns)) {
            return false;
        }
        differences_ns[i] = profiled_ns - bare_ns;
    }
    qsort(differences_ns, BATCHES, sizeof differences_ns[0], by_value);
    cprof_ns median_ns = differences_ns[BATCHES / 2];
    *cost_ns = (double)median_ns / CALLS;
    return true;
}

/* On a chain of its own, so that the calls are not taken for children of the caller's node. */
static bool measure_apart(ext_state *state, PyObject *bare, PyObject *profiled, double *cost_ns)
{
    cprof_thread *thread = cprof_thread_get();
    ext_view *view = thread != NULL ? ext_view_get(state, thread) : NULL;
    if (view == NULL) {
        PyErr_NoMemory();
        return false;
    }
    cprof_chain chain = view->chain;
    cprof_chain_begin(&view->chain, NULL);
    bool measured = measure(bare, profiled, cost_ns);
    uint64_t moment = view->chain.moment;
    view->chain = chain;
    view->chain.moment = moment;
    return measured;
}

static PyObject *profiled_nothing(ext_state *state, PyObject *bare, const ext_cost *asked)
{
    PyObject *profiler = state->serial != 0 ? PyObject_CallNoArgs((PyObject *)state->profiler_type) : NULL;
    if (profiler == NULL) {
        return NULL;
    }
    cprof_registry *registry = ((ext_profiler *)profiler)->registry;
    cprof_registry_leave_recording(registry); /* these calls are no part of a recording */
    cprof_registry_set_probing(registry, asked->probing);
    cprof_registry_configure(registry, CPROF_FLAG_STATS | asked->flags, 0, false);
    PyObject *function = PyObject_CallFunction((PyObject *)state->function_type, "OiOsOOOiii", bare, (int)EXT_KIND_CALL,
                                               Py_None, nothing.ml_name, Py_None, profiler, Py_None, 0, 0, 0);
    Py_DECREF(profiler);
    return function;
}

static bool measure_cost(ext_state *state, ext_cost *cost)
{
    PyObject *bare = PyCFunction_New(&nothing, NULL);
    PyObject *profiled = bare != NULL ? profiled_nothing(state, bare, cost) : NULL;
    bool measured = profiled != NULL && measure_apart(state, bare, profiled, &cost->cost_ns);
    Py_XDECREF(bare);
    Py_XDECREF(profiled);
    return measured;
}

/* Devices and tools are left out: measuring them would make them work. */
static ext_cost asked_of(const ext_profiler *profiler)
{
    uint64_t state = profiler != NULL ? cprof_registry_state(profiler->registry) : 0;
    ext_cost asked = {.flags = (unsigned)(state & (CPROF_FLAG_COUNTERS | CPROF_FLAG_MEMORY | CPROF_FLAG_SHAPES))};
    asked.probing = asked.flags != 0 ? cprof_registry_probing(profiler->registry) & ~(uint32_t)CPROF_REGISTRY_RESETS_PEAK : 0;
    return asked;
}

PyObject *ext_cost_ns(ext_state *state, const ext_profiler *profiler)
{
    ext_cost asked = asked_of(profiler);
    ext_cost *place = &state->costs[asked.flags != 0];
    ext_cost known;
    EXT_ALONE(state->guard, known = *place);
    if (known.cost_ns == 0.0 || known.flags != asked.flags || known.probing != asked.probing) {
        if (!measure_cost(state, &asked)) {
            return NULL;
        }
        EXT_ALONE(state->guard, *place = asked);
        known = asked;
    }
    return PyFloat_FromDouble(known.cost_ns);
}
