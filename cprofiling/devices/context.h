/* Short visits to contexts, which are put back and never made, for wait.c and event.c.
 *
 * The driver must be ready. Nothing is judged here: each function gives back the driver's last answer, and from which call. A
 * visit belongs to its thread.
 */
#ifndef CPROF_CONTEXT_H
#define CPROF_CONTEXT_H

#include "cprofiling/devices/driver.h"

#include <stdatomic.h>

#define CPROF_GPU_CURRENT_DEVICE (-1)        /* the device of the calling thread's current context */
#define CPROF_GPU_UNKNOWN_STREAM UINT64_C(0) /* also what the legacy default stream is called */

typedef struct {
    cu_result code;
    const char *function; /* a static string; meaningful unless the code is CU_SUCCESS */
} cprof_gpu_answer;

typedef struct {
    cu_context context; /* the thread's current one, during the visit */
    cu_device device;
    bool is_pushed;   /* it was not current before */
    bool is_retained; /* a reference to it is held */
} cprof_context_visit;

/* Why something failed first: written by one thread, once. All zero: nothing has. */
typedef struct {
    _Atomic int state;
    char text[160];
} cprof_gpu_reason;

/* Keeps a text, or an answer (`CUDA_ERROR_ILLEGAL_ADDRESS (700) from cuEventQuery: <effect>`), if nothing was kept before. */
void cprof_gpu_reason_keep(cprof_gpu_reason *reason, const char *text);
void cprof_gpu_reason_keep_answer(cprof_gpu_reason *reason, cprof_gpu_answer answer, const char *effect);

/* Whether anything was, or is being, kept; and the text, NULL until it is there. */
bool cprof_gpu_reason_is_kept(const cprof_gpu_reason *reason);
const char *cprof_gpu_reason_text(const cprof_gpu_reason *reason);

/* Begins a visit to the context in which the thread works on the device: its current one if it is of the device (or `ordinal`
 * is CPROF_GPU_CURRENT_DEVICE), else the primary one while that is active. CU_INVALID_CONTEXT: none. Only a visit that began is
 * ended. Needs ctx_get_current. */
cprof_gpu_answer cprof_context_visit_begin(cprof_context_visit *visit, int ordinal);

/* The same to the device's primary context, with a reference for as long as the visit: one kept would outlive a reset of the
 * device, and keep its memory. */
cprof_gpu_answer cprof_context_visit_primary(cprof_context_visit *visit, cu_device device);

/* The same to a context of an earlier visit, which may have been destroyed since, by the `id` of then. CU_INVALID_CONTEXT: it
 * is gone. CU_NOT_READY: nobody can tell, and nothing was done. */
cprof_gpu_answer cprof_context_visit_again(cprof_context_visit *visit, cu_context context, unsigned long long id,
                                           cu_device device, bool is_primary);

/* What tells a context from one that had the handle before it; 0 where the driver has no such thing. */
cprof_gpu_answer cprof_context_visit_id(cu_context context, unsigned long long *id);

/* Whether the context is its device's primary one. */
cprof_gpu_answer cprof_context_visit_is_primary(cu_context context, cu_device device, bool *is_primary);

/* Puts things back. The first error counts, but all is tried. */
cprof_gpu_answer cprof_context_visit_end(const cprof_context_visit *visit);

/* The code is CU_FIRST_CAPTURE_ERROR to CU_LAST_CAPTURE_ERROR while the stream, one of the current context, is captured; the
 * legacy stream (0 or CU_LEGACY_STREAM) answers so while any blocking stream of its context is. */
cprof_gpu_answer cprof_context_visit_ask_capture(uint64_t stream);

/* Of two answers, the second one later: the first error; success when both are. */
cprof_gpu_answer cprof_gpu_answer_first_error(cprof_gpu_answer one, cprof_gpu_answer other);

/* Whether the code means a capture. */
bool cprof_gpu_answer_is_capture(cu_result code);

/* Frees the thread from the ban on queries while a stream that cannot be asked is captured; and back. `mode` keeps its own
 * mode. Nothing with a driver that knows no modes. */
cprof_gpu_answer cprof_context_visit_relax(int *mode);
cprof_gpu_answer cprof_context_visit_unrelax(int *mode);

#endif
