/* Times that a device of another kind than CUDA's takes itself, through the framework: an object of the package's
 * (python/cprofiling/device_events.py) that was begun with the call, is ended or cancelled with it, and tells the time later.
 */
#ifndef EXT_DEVICE_MARK_H
#define EXT_DEVICE_MARK_H

#include "csrc/profiler.h"

#include "cprofiling/calls/probe.h"

/* Gives a probe such an object, with the methods end(sink) and cancel(); sink(elapsed_ms, None), or sink(None, cause,
 * reason=None) is to be called once. False with MemoryError. */
bool ext_device_mark_set(cprof_probe *probe, ext_profiler *profiler, PyObject *mark);

/* The cause that the package calls so (CPROF_GPU_FAILED, where it is none); a reason that is a str becomes what a device has
 * said to the Profiler. */
cprof_gpu_cause ext_device_mark_cause(ext_profiler *profiler, PyObject *name, PyObject *reason);

#endif
