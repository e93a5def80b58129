/* Ranges for NVIDIA's tools: each node as a push and a pop in the NVTX domain `cprofiling`, its name a registered string.
 *
 * NVTX is a set of headers, taken at build time where they are found; without them no tool ever listens. At the first
 * call they look for a tool (NVTX_INJECTION64_PATH); without one every call is a test of a pointer. Push and pop are of the
 * calling thread, and must be balanced in it.
 *
 * Thread rule: any thread, any number at once.
 */
#ifndef CPROF_NVTX_H
#define CPROF_NVTX_H

#include "cprofiling/base/text.h"

/* Whether a tool listens; makes the domain at the first call, which may load the tool, and wait for the dynamic loader: not
 * with the GIL held. The answer is final, also in a forked child. */
bool cprof_nvtx_is_heard(void);

/* A node's name as a registered string, to be kept: it is never given back. NULL when no tool listens, or without memory. Names
 * are cut at a NUL; bytes that are not UTF-8 (surrogates) are passed as they are. */
void *cprof_nvtx_register(cprof_name name);

/* Opens a range with this message (NULL: without one) in the calling thread; `payload` is the number of the call. */
void cprof_nvtx_push(void *message, uint64_t payload);

/* Ends the calling thread's innermost range of the domain. */
void cprof_nvtx_pop(void);

/* Why there are no ranges: built without the headers. NULL when there may be some. */
const char *cprof_nvtx_reason(void);

#endif
