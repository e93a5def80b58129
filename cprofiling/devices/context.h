/* A short stay in a context: of the calling thread, balanced, and none that would make a context. What wait.c and event.c
 * share.
 *
 * Functions here call the driver, which must be ready. They judge nothing: each gives back what the driver answered last, and
 * from which call. A visit belongs to the thread that began it.
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

/* Begins a visit to the context in which the thread works on the device: its current one when that is one of the device (or
 * when `ordinal` is CPROF_GPU_CURRENT_DEVICE), else the primary one, while that is active. CU_INVALID_CONTEXT: none.
 * A visit that did not begin must not be ended. Needs ctx_get_current. */
cprof_gpu_answer cprof_context_visit_begin(cprof_context_visit *visit, int ordinal);

/* The same to the device's primary context. The reference lasts as long as the visit only: one kept would outlive a reset of
 * the device, and keep the context, with all of its memory, from its owner's last release. */
cprof_gpu_answer cprof_context_visit_primary(cprof_context_visit *visit, cu_device device);

/* The same to a context that was visited before, and may have been destroyed since: `id` is what cprof_context_visit_id() told
 * then. CU_INVALID_CONTEXT: it is gone. CU_NOT_READY: it cannot be told whether it is, and nothing was done. */
cprof_gpu_answer cprof_context_visit_again(cprof_context_visit *visit, cu_context context, unsigned long long id,
                                           cu_device device, bool is_primary);

/* What tells a context from one that had the handle before it; 0 where the driver has no such thing. */
cprof_gpu_answer cprof_context_visit_id(cu_context context, unsigned long long *id);

/* Whether the context is its device's primary one. */
cprof_gpu_answer cprof_context_visit_is_primary(cu_context context, cu_device device, bool *is_primary);

/* Puts things back. The first error counts, but all is tried. */
cprof_gpu_answer cprof_context_visit_end(const cprof_context_visit *visit);

/* The code is CU_FIRST_CAPTURE_ERROR to CU_LAST_CAPTURE_ERROR when the stream, one of the current context, is being captured.
 * The legacy stream (0 or CU_LEGACY_STREAM) answers so while any blocking stream of its context is captured, the per-thread
 * default streams included; asking these by name might create one. */
cprof_gpu_answer cprof_context_visit_ask_capture(uint64_t stream);

/* Of two answers, the second one later: the first error; success when both are. */
cprof_gpu_answer cprof_gpu_answer_first_error(cprof_gpu_answer one, cprof_gpu_answer other);

/* Whether the code means a capture. */
bool cprof_gpu_answer_is_capture(cu_result code);

/* Frees the calling thread from the ban on queries while another stream, which cannot be asked, is being captured; and back.
 * `mode` keeps the thread's own mode. Nothing with a driver that knows no modes. */
cprof_gpu_answer cprof_context_visit_relax(int *mode);
cprof_gpu_answer cprof_context_visit_unrelax(int *mode);

#endif
