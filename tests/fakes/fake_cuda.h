/* Controls of fake_cuda.c, a libcuda.so.1 with a virtual clock, a call log, and rules that it watches.
 *
 * Build (the soname is what lets it be found as a driver that is loaded already):
 *
 *     cc -std=c11 -I. -shared -fPIC -pthread -Wl,-soname,libcuda.so.1 -o libcuda.so.1 tests/fakes/fake_cuda.c
 *
 * With -DFAKE_CUDA_OLD_DRIVER it is a driver older than CUDA 12, without cuGetProcAddress_v2 and cuCtxGetId.
 *
 * The controls are plain functions of int, int64_t, uint64_t and const char *, to be called through dlsym or ctypes
 * (which must be told the types, as it takes every result for an int), from any thread. They stand for what the user's
 * program and the CUDA runtime do, and never appear in the call log.
 *
 * Functions of the driver are named without a version: "cuCtxPushCurrent" stands for cuCtxPushCurrent_v2. A device is
 * an ordinal below the number of devices, a stream a result of fake_new_stream() since the last reset; a control that
 * is given anything else, or cannot do what it should, aborts the program.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdint.h>

enum {
    FAKE_CUDA_MAX_DEVICES = 64,
    FAKE_CUDA_MAX_STREAMS = 256,
};

/* Forgets everything: two unused devices, the driver initialised, the clock at 0, no thread has a current context, and
 * this process is the one in which calls are allowed. Only while no thread is in the driver. */
void fake_reset(void);

/* 1 when built with FAKE_CUDA_OLD_DRIVER, else 0. */
int fake_is_old_driver(void);

/* `count`: 1 to FAKE_CUDA_MAX_DEVICES. */
void fake_set_device_count(int count);

/* 0: as before cuInit, the functions answer CUDA_ERROR_NOT_INITIALIZED. */
void fake_set_initialized(int initialized);

/* The runtime begins to use the device: its primary context is active, with one reference. */
void fake_activate(int device);

/* cudaDeviceReset: the primary context is destroyed, with its streams. Where it is current, it stays so. */
void fake_device_reset(int device);

/* The references that are held to the primary context, the runtime's included. */
int fake_references(int device);

/* Makes the primary context current to the calling thread, in place of the one that is; -1: none. */
void fake_bind(int device);

/* The same with another context of the device, not the primary one. */
void fake_bind_own(int device);

/* The device of the calling thread's current context; -1 without one. */
int fake_current_device(void);

/* Contexts that were pushed and not popped yet, over all threads. */
int64_t fake_open_pushes(void);

/* A new stream in the primary context, which must be active. */
uint64_t fake_new_stream(int device, int non_blocking);

/* Gives the stream work that takes `ns`, from when its earlier work is done. */
void fake_launch(uint64_t stream, int64_t ns);

/* The same for the legacy default stream of the device's primary context, or (-1) of the thread's current context. */
void fake_launch_default(int device, int64_t ns);

/* The stream is none any more. */
void fake_destroy_stream(uint64_t stream);

/* Destroys the context of fake_bind_own(), with its streams and events; and makes a new one, with the same handle. */
void fake_destroy_own(int device);
void fake_create_own(int device);

/* Begins a capture on the stream, by whatever thread, in the global mode. */
void fake_begin_capture(uint64_t stream);

/* 1 when the capture yielded a graph, 0 when it was invalidated. */
int fake_end_capture(uint64_t stream);

/* Invalidates the capture, as an illegal call by the user would. */
void fake_invalidate_capture(uint64_t stream);

/* 1: cuStreamIsCapturing answers for streams of other contexts than the current one, too; 0: it refuses them as invalid, as
 * cuEventRecord always does. */
void fake_answer_for_foreign_streams(int answers);

/* The virtual clock, in ns. It moves by fake_advance(), and by waits, which end when the work does. */
int64_t fake_now(void);
void fake_advance(int64_t ns);

/* 1: who waits for a context stays in the wait, until 0 is given. */
void fake_hold(int hold);

/* 1: who records an event stays in that, as when the device's queue is full, until 0 is given. */
void fake_hold_records(int hold);

/* The threads that stay in a wait, or in recording. */
int fake_held(void);

/* The nth call of `function` from now (1 is the next) answers the CUresult `code` and does nothing. One such order per
 * function, the last one counts. */
void fake_fail(const char *function, int code, uint64_t nth);

/* A sticky error: every function that concerns a device or a context answers `code`; 0 ends it. */
void fake_break_driver(int code);

/* A sticky error of the device's primary context: what concerns it answers `code`; 0 ends it. */
void fake_break_context(int device, int code);

/* Events that are neither destroyed nor gone with their context. */
int64_t fake_open_events(void);

/* With as many events open, no further one can be made: CUDA_ERROR_OUT_OF_MEMORY. */
void fake_set_event_limit(int64_t limit);

/* The next answer of cuEventElapsedTime, in ms, as strtof() reads it: "nan", "-1". */
void fake_next_elapsed(const char *ms);

/* What cuMemGetInfo answers: 60 and 80 GiB after the reset. */
void fake_set_memory(int device, int64_t free_bytes, int64_t total_bytes);

/* The successful calls of cuProfilerStart (1) and cuProfilerStop (0) in order, by number from 0; -1 behind the last, and beyond
 * 64. */
int fake_profiler_log(uint64_t index);

/* The calling thread's capture mode: 0 (global) after the reset. */
int fake_capture_mode(void);

/* The calls of a function since the reset; UINT64_MAX when there is no such function. */
uint64_t fake_calls(const char *function);

/* The calls of all functions since the reset. */
uint64_t fake_total_calls(void);

/* The function called as number `index`, from 0, since the reset; NULL from the last call on, and beyond 4,096 calls.
 */
const char *fake_log(uint64_t index);

/* Broken rules since the reset: a capture invalidated by a wait or a query, or recorded into, a context made, cuInit called, a
 * call in a forked child, an outdated version of a function, a pop or a release too many, a handle that is none. */
uint64_t fake_violations(void);

/* The text of the broken rule number `index`, from 0; NULL from the last one on, and beyond 64. */
const char *fake_violation(uint64_t index);

#endif
