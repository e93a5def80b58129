#include "csrc/probes/launches.h"

#include "csrc/probes/callbacks.h"

#include "cprofiling/devices/cupti.h"
#include "cprofiling/devices/wait.h"

/* The GIL is given up for that: seldom, as others may want it. */
bool ext_launches_see_cuda(ext_profiler *profiler)
{
    if (!profiler->has_cuda && !cprof_probe_rests(&profiler->cuda_rest)) {
        Py_BEGIN_ALLOW_THREADS
        profiler->has_cuda = cprof_wait_probe();
        Py_END_ALLOW_THREADS
        if (!profiler->has_cuda) {
            cprof_probe_begin_rest(&profiler->cuda_rest);
        }
    }
    return profiler->has_cuda;
}

/* The package knows where CUPTI may be installed, and when the interpreter ends: it is to be given back while the driver is
 * there. */
static void announce_launches(ext_profiler *profiler)
{
    PyObject *told = ext_callback_get(profiler->state, EXT_CALLBACK_LAUNCHES);
    PyObject *answer = told != NULL ? PyObject_CallOneArg(told, (PyObject *)profiler) : Py_NewRef(Py_None);
    if (answer == NULL) {
        ext_callback_fail(profiler);
    }
    Py_XDECREF(answer);
}

static void release_launches(void)
{
    Py_BEGIN_ALLOW_THREADS
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    Py_END_ALLOW_THREADS
}

/* Others may come here meanwhile: they leave the start to this thread, and only say what they want. */
static void start_launches(ext_profiler *profiler)
{
    bool has_cuda, started;
    profiler->launches = EXT_LAUNCHES_STARTING;
    announce_launches(profiler);
    Py_BEGIN_ALLOW_THREADS
    has_cuda = cprof_wait_probe();
    started = cprof_cupti_start(CPROF_CUPTI_COUNTS);
    Py_END_ALLOW_THREADS
    profiler->launches = started && profiler->wants_launches ? EXT_LAUNCHES_ON : EXT_LAUNCHES_OFF;
    profiler->seeks_cuda = !has_cuda && profiler->wants_launches;
    if (started && profiler->launches == EXT_LAUNCHES_OFF) {
        release_launches();
    }
}

void ext_launches_want(ext_profiler *profiler, bool wanted)
{
    profiler->wants_launches = wanted;
    profiler->seeks_cuda = false;
    if (wanted && profiler->launches == EXT_LAUNCHES_OFF) {
        start_launches(profiler);
    } else if (!wanted && profiler->launches == EXT_LAUNCHES_ON) {
        profiler->launches = EXT_LAUNCHES_OFF;
        release_launches();
    }
}
