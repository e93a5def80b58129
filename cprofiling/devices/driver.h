/* The CUDA driver library that the process has loaded: found, bound, and given up. For this room only.
 *
 * It is absent (not found yet), ready, or of no use for good: refused (cannot be loaded, or lacks a needed function), shut down
 * (it said so), or forked (this is the child of a process that had it). It is called only while it is ready. Functions that
 * came later, or serve one purpose, are NULL in a driver without them.
 *
 * Thread rule: any thread, any number at once, but for the functions for tests.
 */
#ifndef CPROF_DRIVER_H
#define CPROF_DRIVER_H

#include "cprofiling/base/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The driver's ABI, as far as it is used here; the numbers are the same in every version. */
typedef int cu_result;
typedef int cu_device;
typedef struct cu_context_opaque *cu_context;
typedef struct cu_stream_opaque *cu_stream;
typedef struct cu_event_opaque *cu_event;

enum {
    CU_SUCCESS = 0,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_DEINITIALIZED = 4,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_CONTEXT = 201,
    CU_INVALID_HANDLE = 400,
    CU_NOT_READY = 600,
    CU_CONTEXT_IS_DESTROYED = 709,
    CU_FIRST_CAPTURE_ERROR = 900,
    CU_LAST_CAPTURE_ERROR = 908,
};

enum { CU_CAPTURE_NONE = 0 };
enum { CU_CAPTURE_MODE_RELAXED = 2 };
enum { CU_LEGACY_STREAM = 1 }; /* the default stream, by its explicit handle */

typedef struct {
    cu_result (*get_error_name)(cu_result code, const char **name);
    cu_result (*device_get)(cu_device *device, int ordinal);
    cu_result (*ctx_get_device)(cu_device *device);
    cu_result (*ctx_push_current)(cu_context context);
    cu_result (*ctx_pop_current)(cu_context *context);
    cu_result (*ctx_synchronize)(void);
    cu_result (*primary_ctx_get_state)(cu_device device, unsigned *flags, int *active);
    cu_result (*primary_ctx_retain)(cu_context *context, cu_device device);
    cu_result (*primary_ctx_release)(cu_device device);
    cu_result (*stream_is_capturing)(cu_stream stream, int *status);
    /* From here on they may be NULL. */
    cu_result (*ctx_get_current)(cu_context *context);
    cu_result (*ctx_get_id)(cu_context context, unsigned long long *id); /* CUDA 12.0 */
    cu_result (*thread_exchange_capture_mode)(int *mode);                /* CUDA 10.1 */
    cu_result (*event_create)(cu_event *event, unsigned flags);
    cu_result (*event_destroy)(cu_event event);
    cu_result (*event_record)(cu_event event, cu_stream stream);
    cu_result (*event_query)(cu_event event);
    cu_result (*event_elapsed_time)(float *ms, cu_event first, cu_event last);
    cu_result (*mem_get_info)(size_t *free_bytes, size_t *total_bytes);
    cu_result (*profiler_start)(void);
    cu_result (*profiler_stop)(void);
} cprof_driver_functions;

typedef enum {
    CPROF_DRIVER_ABSENT,
    CPROF_DRIVER_READY,
    CPROF_DRIVER_REFUSED,
    CPROF_DRIVER_SHUT_DOWN,
    CPROF_DRIVER_FORKED,
} cprof_driver_state;

/* The state, after a search if one is due: wait.h says how, and how often. May wait for the dynamic loader's lock. */
cprof_driver_state cprof_driver_look(void);

/* The state, without a search. */
cprof_driver_state cprof_driver_present(void);

/* The functions; meaningful from the first time on that the driver is ready. They never change again. */
extern const cprof_driver_functions *const cprof_driver;

/* The name of a function without which there are no events; NULL: the driver has them all. Only while it is ready. */
const char *cprof_driver_lacks_for_events(void);

/* To be told when a call answered CU_DEINITIALIZED: no further one is made. */
void cprof_driver_has_shut_down(void);

/* Writes why the driver is of no use, and `effect`: at most `size` bytes with the NUL. False, and nothing written: it is not.
 */
bool cprof_driver_reason(char *buffer, size_t size, const char *effect);

/* The name of an error: a static string. A call of the driver, unless the error is that it shuts down. */
const char *cprof_driver_error_name(cu_result code);

/* CLOCK_MONOTONIC, or a test's clock. */
cprof_ns cprof_driver_now(void);

/* As wait.h says of the functions of these names. */
void cprof_driver_after_fork_in_child(void);
void cprof_driver_reset_for_test(void);

/* Replaces the clock that spaces the searches; NULL: CLOCK_MONOTONIC again. Only while no other thread is in this room. */
void cprof_driver_set_clock_for_test(cprof_ns (*now)(void));

#endif
