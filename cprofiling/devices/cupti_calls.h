/* The calls of CUDA that give work to a device, by their numbers in CUPTI's callbacks: the same in every version.
 *
 * A call newer than the CUPTI in use never comes there. The driver's copies and fills from before CUDA 3.2 are left out.
 */
#ifndef CPROF_CUPTI_CALLS_H
#define CPROF_CUPTI_CALLS_H

#include <stdbool.h>
#include <stdint.h>

/* CUPTI's domains with such calls, by its numbers. */
enum {
    CPROF_CUPTI_DRIVER = 1,
    CPROF_CUPTI_RUNTIME = 2,
};

typedef struct {
    const char *name; /* without a version, static */
    bool is_launch;   /* of a kernel or a graph of them; else a copy or a fill */
} cprof_cupti_call;

/* A call and its variant for the default stream of a thread: the ends of their names in CUPTI, and their numbers. */
#define CPROF_CUPTI_BOTH(X, domain, is_launch, name, version, number, of_thread, number_of_thread) \
    X(domain, name##version, number, is_launch, #name) X(domain, name##of_thread, number_of_thread, is_launch, #name)

/* X(domain, name in CUPTI, number, is_launch, name) */
#define CPROF_CUPTI_RUNTIME_CALLS(X)                                                                              \
    CPROF_CUPTI_BOTH(X, RUNTIME, true, cudaLaunch, _v3020, 13, _ptsz_v7000, 213)                                  \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy, _v3020, 31, _ptds_v7000, 215)                                 \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy2D, _v3020, 32, _ptds_v7000, 216)                               \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpyToArray, _v3020, 33, _ptds_v7000, 217)                          \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy2DToArray, _v3020, 34, _ptds_v7000, 218)                        \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpyFromArray, _v3020, 35, _ptds_v7000, 219)                        \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy2DFromArray, _v3020, 36, _ptds_v7000, 220)                      \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpyArrayToArray, _v3020, 37, _ptds_v7000, 221)                     \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy2DArrayToArray, _v3020, 38, _ptds_v7000, 222)                   \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpyToSymbol, _v3020, 39, _ptds_v7000, 223)                         \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpyFromSymbol, _v3020, 40, _ptds_v7000, 224)                       \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpyAsync, _v3020, 41, _ptsz_v7000, 225)                            \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpyToArrayAsync, _v3020, 42, _ptsz_v7000, 226)                     \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpyFromArrayAsync, _v3020, 43, _ptsz_v7000, 227)                   \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy2DAsync, _v3020, 44, _ptsz_v7000, 228)                          \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy2DToArrayAsync, _v3020, 45, _ptsz_v7000, 229)                   \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy2DFromArrayAsync, _v3020, 46, _ptsz_v7000, 230)                 \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpyToSymbolAsync, _v3020, 47, _ptsz_v7000, 231)                    \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpyFromSymbolAsync, _v3020, 48, _ptsz_v7000, 232)                  \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemset, _v3020, 49, _ptds_v7000, 233)                                 \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemset2D, _v3020, 50, _ptds_v7000, 234)                               \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemsetAsync, _v3020, 51, _ptsz_v7000, 235)                            \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemset2DAsync, _v3020, 52, _ptsz_v7000, 236)                          \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemset3D, _v3020, 142, _ptds_v7000, 243)                              \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemset3DAsync, _v3020, 143, _ptsz_v7000, 244)                         \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy3D, _v3020, 144, _ptds_v7000, 245)                              \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy3DAsync, _v3020, 145, _ptsz_v7000, 246)                         \
    X(RUNTIME, cudaMemcpyPeer_v4000, 160, false, "cudaMemcpyPeer")                                                \
    X(RUNTIME, cudaMemcpyPeerAsync_v4000, 161, false, "cudaMemcpyPeerAsync")                                      \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy3DPeer, _v4000, 162, _ptds_v7000, 249)                          \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy3DPeerAsync, _v4000, 163, _ptsz_v7000, 250)                     \
    CPROF_CUPTI_BOTH(X, RUNTIME, true, cudaLaunchKernel, _v7000, 211, _ptsz_v7000, 214)                           \
    CPROF_CUPTI_BOTH(X, RUNTIME, true, cudaLaunchCooperativeKernel, _v9000, 269, _ptsz_v9000, 270)                \
    X(RUNTIME, cudaLaunchCooperativeKernelMultiDevice_v9000, 272, true, "cudaLaunchCooperativeKernelMultiDevice") \
    CPROF_CUPTI_BOTH(X, RUNTIME, true, cudaGraphLaunch, _v10000, 311, _ptsz_v10000, 312)                          \
    CPROF_CUPTI_BOTH(X, RUNTIME, true, cudaLaunchKernelExC, _v11060, 430, _ptsz_v11060, 431)                      \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpyBatchAsync, _v12080, 482, _ptsz_v12080, 483)                    \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy3DBatchAsync, _v12080, 484, _ptsz_v12080, 485)                  \
    X(RUNTIME, __cudaLaunchKernel_v13000, 505, true, "cudaLaunchKernel")                                          \
    X(RUNTIME, __cudaLaunchKernel_ptsz_v13000, 506, true, "cudaLaunchKernel")                                     \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpyBatchAsync, _v13000, 509, _ptsz_v13000, 510)                    \
    CPROF_CUPTI_BOTH(X, RUNTIME, false, cudaMemcpy3DBatchAsync, _v13000, 511, _ptsz_v13000, 512)

#define CPROF_CUPTI_DRIVER_CALLS(X)                                                                    \
    X(DRIVER, cuLaunch, 115, true, "cuLaunch")                                                         \
    X(DRIVER, cuLaunchGrid, 116, true, "cuLaunchGrid")                                                 \
    X(DRIVER, cuLaunchGridAsync, 117, true, "cuLaunchGridAsync")                                       \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemsetD8Async, , 216, _ptsz, 428)                             \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemsetD16Async, , 218, _ptsz, 429)                            \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemsetD32Async, , 220, _ptsz, 430)                            \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemsetD2D8Async, , 222, _ptsz, 431)                           \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemsetD2D16Async, , 224, _ptsz, 432)                          \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemsetD2D32Async, , 226, _ptsz, 433)                          \
    X(DRIVER, cuMemcpy_v2, 248, false, "cuMemcpy")                                                     \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemsetD8, _v2, 249, _v2_ptds, 411)                            \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemsetD16, _v2, 250, _v2_ptds, 412)                           \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemsetD32, _v2, 251, _v2_ptds, 413)                           \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemsetD2D8, _v2, 252, _v2_ptds, 414)                          \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemsetD2D16, _v2, 253, _v2_ptds, 415)                         \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemsetD2D32, _v2, 254, _v2_ptds, 416)                         \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyHtoD, _v2, 276, _v2_ptds, 397)                          \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyHtoDAsync, _v2, 277, _v2_ptsz, 421)                     \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyDtoH, _v2, 278, _v2_ptds, 398)                          \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyDtoHAsync, _v2, 279, _v2_ptsz, 422)                     \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyDtoD, _v2, 280, _v2_ptds, 399)                          \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyDtoDAsync, _v2, 281, _v2_ptsz, 423)                     \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyAtoH, _v2, 282, _v2_ptds, 403)                          \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyAtoHAsync, _v2, 283, _v2_ptsz, 420)                     \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyAtoD, _v2, 284, _v2_ptds, 401)                          \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyDtoA, _v2, 285, _v2_ptds, 400)                          \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyAtoA, _v2, 286, _v2_ptds, 404)                          \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpy2D, _v2, 287, _v2_ptds, 405)                            \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpy2DUnaligned, _v2, 288, _v2_ptds, 406)                   \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpy2DAsync, _v2, 289, _v2_ptsz, 424)                       \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpy3D, _v2, 290, _v2_ptds, 407)                            \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpy3DAsync, _v2, 291, _v2_ptsz, 425)                       \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyHtoA, _v2, 292, _v2_ptds, 402)                          \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyHtoAAsync, _v2, 293, _v2_ptsz, 419)                     \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpy, , 305, _ptds, 408)                                    \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyAsync, , 306, _ptsz, 418)                               \
    CPROF_CUPTI_BOTH(X, DRIVER, true, cuLaunchKernel, , 307, _ptsz, 442)                               \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyPeer, , 318, _ptds, 409)                                \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyPeerAsync, , 319, _ptsz, 426)                           \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpy3DPeer, , 320, _ptds, 410)                              \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpy3DPeerAsync, , 321, _ptsz, 427)                         \
    CPROF_CUPTI_BOTH(X, DRIVER, true, cuLaunchCooperativeKernel, , 477, _ptsz, 478)                    \
    X(DRIVER, cuLaunchCooperativeKernelMultiDevice, 480, true, "cuLaunchCooperativeKernelMultiDevice") \
    CPROF_CUPTI_BOTH(X, DRIVER, true, cuGraphLaunch, , 514, _ptsz, 515)                                \
    CPROF_CUPTI_BOTH(X, DRIVER, true, cuLaunchKernelEx, , 652, _ptsz, 653)                             \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyBatchAsync, , 776, _ptsz, 777)                          \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpy3DBatchAsync, , 778, _ptsz, 779)                        \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpyBatchAsync, _v2, 796, _v2_ptsz, 797)                    \
    CPROF_CUPTI_BOTH(X, DRIVER, false, cuMemcpy3DBatchAsync, _v2, 798, _v2_ptsz, 799)

/* The call of a number, 0 and up; NULL: unknown. */
const cprof_cupti_call *cprof_cupti_call_of(unsigned domain, uint32_t number);

/* Above all numbers of a domain. */
uint32_t cprof_cupti_call_end(unsigned domain);

#endif
