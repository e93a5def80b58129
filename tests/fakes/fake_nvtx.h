/* Controls of fake_nvtx.c, a tool that NVTX loads: it keeps a log of what it hears, and watches the rules.
 *
 * Build, with the folder of NVTX's headers, and run the program with NVTX_INJECTION64_PATH set to the library:
 *
 *     cc -std=c11 -I. -isystem NVTX_INCLUDE -shared -fPIC -pthread -o fake_nvtx.so tests/fakes/fake_nvtx.c
 *
 * With FAKE_NVTX_REFUSES in the environment it does not start, and with FAKE_NVTX_IS_DEAF it hears nothing. The controls are to
 * be called through dlsym or ctypes (which must be told the types), from any thread, and are in no log.
 */
#ifndef FAKE_NVTX_H
#define FAKE_NVTX_H

#include <stdint.h>

/* What was heard as number `index`, from 0; NULL from the last one on. One of
 *
 *     domain NAME                    a domain was made
 *     name DOMAIN NAME               a string was registered
 *     push DOMAIN THREAD NAME N      a range was opened in a thread (its id for the system), with its payload;
 *                                    NAME is ? when it has no registered string
 *     pop DOMAIN THREAD NAME         the thread's innermost range was ended
 */
const char *fake_nvtx_log(uint64_t index);

/* Broken rules so far: a pop without a push, a handle that is none, an attribute that is not as NVTX asks for. */
uint64_t fake_nvtx_violations(void);

/* The ranges that the calling thread has open. */
uint64_t fake_nvtx_open(void);

/* Has this function called while the next domain is made. */
void fake_nvtx_on_domain(void (*hook)(void));

#endif
