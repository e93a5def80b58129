/* One record of CUPTI's about work of a device, read by offsets that are the same from CUDA 11 on. Nothing here locks. */
#ifndef CPROF_CUPTI_RECORDS_H
#define CPROF_CUPTI_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of records that are asked for, by CUPTI's numbers. */
enum {
    CPROF_CUPTI_MEMCPY = 1,
    CPROF_CUPTI_MEMSET = 2,
    CPROF_CUPTI_KERNEL = 10,    /* without making kernels wait for one another */
    CPROF_CUPTI_PEER_COPY = 22, /* between devices */
};

/* Directions of copies, by CUPTI's numbers; H: host, A: array on a device, D: device, P: two devices. */
enum {
    CPROF_CUPTI_HTOD = 1,
    CPROF_CUPTI_DTOH = 2,
    CPROF_CUPTI_HTOA = 3,
    CPROF_CUPTI_ATOH = 4,
    CPROF_CUPTI_ATOA = 5,
    CPROF_CUPTI_ATOD = 6,
    CPROF_CUPTI_DTOA = 7,
    CPROF_CUPTI_DTOD = 8,
    CPROF_CUPTI_HTOH = 9,
    CPROF_CUPTI_PTOP = 10,
};

/* Times are stamps of CUPTI's clock; fields that a kind does not have are 0. */
typedef struct {
    int32_t kind; /* a CPROF_CUPTI_ kind */
    uint8_t direction;
    uint8_t from; /* kinds of memory, by CUPTI's numbers; a fill has the second only */
    uint8_t to;
    uint64_t start;
    uint64_t end;
    uint64_t bytes;
    uint32_t device;
    uint32_t stream;
    uint32_t correlation;
    const char *name; /* of a kernel: borrowed from CUPTI as long as the buffer is held; NULL: not known */
} cprof_cupti_record;

/* Reads the record that begins at `bytes`, aligned to 8. False: it is of another kind. */
bool cprof_cupti_record_read(const void *bytes, cprof_cupti_record *record);

/* Writes what traces of Kineto call a copy or a fill: `Memcpy HtoD (Pinned -> Device)`, `Memset (Device)`. */
void cprof_cupti_record_describe(const cprof_cupti_record *record, char *text, size_t size);

/* The calls of CUDA that give work to a device: their numbers in CUPTI's callbacks, which are the same in every version.
 *
 * A call that is newer than the CUPTI in use never comes there. Of the driver's copies and fills, those from before CUDA 3.2
 * are left out.
 */

/* CUPTI's domains with such calls, by its numbers. */
enum {
    CPROF_CUPTI_DRIVER = 1,
    CPROF_CUPTI_RUNTIME = 2,
};

typedef enum {
    CPROF_CUPTI_CALL_NONE,
    CPROF_CUPTI_CALL_LAUNCH, /* of a kernel, or of a graph of them */
    CPROF_CUPTI_CALL_COPY,
    CPROF_CUPTI_CALL_FILL,
} cprof_cupti_call_kind;

/* What a number of a domain stands for: the name is without a version, static. */
typedef struct {
    const char *name;
    cprof_cupti_call_kind kind;
} cprof_cupti_call;

/* X(domain, name in CUPTI, number, kind, name) */
#define CPROF_CUPTI_RUNTIME_CALLS(X)                                                                                \
    X(RUNTIME, cudaLaunch_v3020, 13, LAUNCH, "cudaLaunch")                                                          \
    X(RUNTIME, cudaMemcpy_v3020, 31, COPY, "cudaMemcpy")                                                            \
    X(RUNTIME, cudaMemcpy2D_v3020, 32, COPY, "cudaMemcpy2D")                                                        \
    X(RUNTIME, cudaMemcpyToArray_v3020, 33, COPY, "cudaMemcpyToArray")                                              \
    X(RUNTIME, cudaMemcpy2DToArray_v3020, 34, COPY, "cudaMemcpy2DToArray")                                          \
    X(RUNTIME, cudaMemcpyFromArray_v3020, 35, COPY, "cudaMemcpyFromArray")                                          \
    X(RUNTIME, cudaMemcpy2DFromArray_v3020, 36, COPY, "cudaMemcpy2DFromArray")                                      \
    X(RUNTIME, cudaMemcpyArrayToArray_v3020, 37, COPY, "cudaMemcpyArrayToArray")                                    \
    X(RUNTIME, cudaMemcpy2DArrayToArray_v3020, 38, COPY, "cudaMemcpy2DArrayToArray")                                \
    X(RUNTIME, cudaMemcpyToSymbol_v3020, 39, COPY, "cudaMemcpyToSymbol")                                            \
    X(RUNTIME, cudaMemcpyFromSymbol_v3020, 40, COPY, "cudaMemcpyFromSymbol")                                        \
    X(RUNTIME, cudaMemcpyAsync_v3020, 41, COPY, "cudaMemcpyAsync")                                                  \
    X(RUNTIME, cudaMemcpyToArrayAsync_v3020, 42, COPY, "cudaMemcpyToArrayAsync")                                    \
    X(RUNTIME, cudaMemcpyFromArrayAsync_v3020, 43, COPY, "cudaMemcpyFromArrayAsync")                                \
    X(RUNTIME, cudaMemcpy2DAsync_v3020, 44, COPY, "cudaMemcpy2DAsync")                                              \
    X(RUNTIME, cudaMemcpy2DToArrayAsync_v3020, 45, COPY, "cudaMemcpy2DToArrayAsync")                                \
    X(RUNTIME, cudaMemcpy2DFromArrayAsync_v3020, 46, COPY, "cudaMemcpy2DFromArrayAsync")                            \
    X(RUNTIME, cudaMemcpyToSymbolAsync_v3020, 47, COPY, "cudaMemcpyToSymbolAsync")                                  \
    X(RUNTIME, cudaMemcpyFromSymbolAsync_v3020, 48, COPY, "cudaMemcpyFromSymbolAsync")                              \
    X(RUNTIME, cudaMemset_v3020, 49, FILL, "cudaMemset")                                                            \
    X(RUNTIME, cudaMemset2D_v3020, 50, FILL, "cudaMemset2D")                                                        \
    X(RUNTIME, cudaMemsetAsync_v3020, 51, FILL, "cudaMemsetAsync")                                                  \
    X(RUNTIME, cudaMemset2DAsync_v3020, 52, FILL, "cudaMemset2DAsync")                                              \
    X(RUNTIME, cudaMemset3D_v3020, 142, FILL, "cudaMemset3D")                                                       \
    X(RUNTIME, cudaMemset3DAsync_v3020, 143, FILL, "cudaMemset3DAsync")                                             \
    X(RUNTIME, cudaMemcpy3D_v3020, 144, COPY, "cudaMemcpy3D")                                                       \
    X(RUNTIME, cudaMemcpy3DAsync_v3020, 145, COPY, "cudaMemcpy3DAsync")                                             \
    X(RUNTIME, cudaMemcpyPeer_v4000, 160, COPY, "cudaMemcpyPeer")                                                   \
    X(RUNTIME, cudaMemcpyPeerAsync_v4000, 161, COPY, "cudaMemcpyPeerAsync")                                         \
    X(RUNTIME, cudaMemcpy3DPeer_v4000, 162, COPY, "cudaMemcpy3DPeer")                                               \
    X(RUNTIME, cudaMemcpy3DPeerAsync_v4000, 163, COPY, "cudaMemcpy3DPeerAsync")                                     \
    X(RUNTIME, cudaLaunchKernel_v7000, 211, LAUNCH, "cudaLaunchKernel")                                             \
    X(RUNTIME, cudaLaunch_ptsz_v7000, 213, LAUNCH, "cudaLaunch")                                                    \
    X(RUNTIME, cudaLaunchKernel_ptsz_v7000, 214, LAUNCH, "cudaLaunchKernel")                                        \
    X(RUNTIME, cudaMemcpy_ptds_v7000, 215, COPY, "cudaMemcpy")                                                      \
    X(RUNTIME, cudaMemcpy2D_ptds_v7000, 216, COPY, "cudaMemcpy2D")                                                  \
    X(RUNTIME, cudaMemcpyToArray_ptds_v7000, 217, COPY, "cudaMemcpyToArray")                                        \
    X(RUNTIME, cudaMemcpy2DToArray_ptds_v7000, 218, COPY, "cudaMemcpy2DToArray")                                    \
    X(RUNTIME, cudaMemcpyFromArray_ptds_v7000, 219, COPY, "cudaMemcpyFromArray")                                    \
    X(RUNTIME, cudaMemcpy2DFromArray_ptds_v7000, 220, COPY, "cudaMemcpy2DFromArray")                                \
    X(RUNTIME, cudaMemcpyArrayToArray_ptds_v7000, 221, COPY, "cudaMemcpyArrayToArray")                              \
    X(RUNTIME, cudaMemcpy2DArrayToArray_ptds_v7000, 222, COPY, "cudaMemcpy2DArrayToArray")                          \
    X(RUNTIME, cudaMemcpyToSymbol_ptds_v7000, 223, COPY, "cudaMemcpyToSymbol")                                      \
    X(RUNTIME, cudaMemcpyFromSymbol_ptds_v7000, 224, COPY, "cudaMemcpyFromSymbol")                                  \
    X(RUNTIME, cudaMemcpyAsync_ptsz_v7000, 225, COPY, "cudaMemcpyAsync")                                            \
    X(RUNTIME, cudaMemcpyToArrayAsync_ptsz_v7000, 226, COPY, "cudaMemcpyToArrayAsync")                              \
    X(RUNTIME, cudaMemcpyFromArrayAsync_ptsz_v7000, 227, COPY, "cudaMemcpyFromArrayAsync")                          \
    X(RUNTIME, cudaMemcpy2DAsync_ptsz_v7000, 228, COPY, "cudaMemcpy2DAsync")                                        \
    X(RUNTIME, cudaMemcpy2DToArrayAsync_ptsz_v7000, 229, COPY, "cudaMemcpy2DToArrayAsync")                          \
    X(RUNTIME, cudaMemcpy2DFromArrayAsync_ptsz_v7000, 230, COPY, "cudaMemcpy2DFromArrayAsync")                      \
    X(RUNTIME, cudaMemcpyToSymbolAsync_ptsz_v7000, 231, COPY, "cudaMemcpyToSymbolAsync")                            \
    X(RUNTIME, cudaMemcpyFromSymbolAsync_ptsz_v7000, 232, COPY, "cudaMemcpyFromSymbolAsync")                        \
    X(RUNTIME, cudaMemset_ptds_v7000, 233, FILL, "cudaMemset")                                                      \
    X(RUNTIME, cudaMemset2D_ptds_v7000, 234, FILL, "cudaMemset2D")                                                  \
    X(RUNTIME, cudaMemsetAsync_ptsz_v7000, 235, FILL, "cudaMemsetAsync")                                            \
    X(RUNTIME, cudaMemset2DAsync_ptsz_v7000, 236, FILL, "cudaMemset2DAsync")                                        \
    X(RUNTIME, cudaMemset3D_ptds_v7000, 243, FILL, "cudaMemset3D")                                                  \
    X(RUNTIME, cudaMemset3DAsync_ptsz_v7000, 244, FILL, "cudaMemset3DAsync")                                        \
    X(RUNTIME, cudaMemcpy3D_ptds_v7000, 245, COPY, "cudaMemcpy3D")                                                  \
    X(RUNTIME, cudaMemcpy3DAsync_ptsz_v7000, 246, COPY, "cudaMemcpy3DAsync")                                        \
    X(RUNTIME, cudaMemcpy3DPeer_ptds_v7000, 249, COPY, "cudaMemcpy3DPeer")                                          \
    X(RUNTIME, cudaMemcpy3DPeerAsync_ptsz_v7000, 250, COPY, "cudaMemcpy3DPeerAsync")                                \
    X(RUNTIME, cudaLaunchCooperativeKernel_v9000, 269, LAUNCH, "cudaLaunchCooperativeKernel")                       \
    X(RUNTIME, cudaLaunchCooperativeKernel_ptsz_v9000, 270, LAUNCH, "cudaLaunchCooperativeKernel")                  \
    X(RUNTIME, cudaLaunchCooperativeKernelMultiDevice_v9000, 272, LAUNCH, "cudaLaunchCooperativeKernelMultiDevice") \
    X(RUNTIME, cudaGraphLaunch_v10000, 311, LAUNCH, "cudaGraphLaunch")                                              \
    X(RUNTIME, cudaGraphLaunch_ptsz_v10000, 312, LAUNCH, "cudaGraphLaunch")                                         \
    X(RUNTIME, cudaLaunchKernelExC_v11060, 430, LAUNCH, "cudaLaunchKernelExC")                                      \
    X(RUNTIME, cudaLaunchKernelExC_ptsz_v11060, 431, LAUNCH, "cudaLaunchKernelExC")                                 \
    X(RUNTIME, cudaMemcpyBatchAsync_v12080, 482, COPY, "cudaMemcpyBatchAsync")                                      \
    X(RUNTIME, cudaMemcpyBatchAsync_ptsz_v12080, 483, COPY, "cudaMemcpyBatchAsync")                                 \
    X(RUNTIME, cudaMemcpy3DBatchAsync_v12080, 484, COPY, "cudaMemcpy3DBatchAsync")                                  \
    X(RUNTIME, cudaMemcpy3DBatchAsync_ptsz_v12080, 485, COPY, "cudaMemcpy3DBatchAsync")                             \
    X(RUNTIME, __cudaLaunchKernel_v13000, 505, LAUNCH, "cudaLaunchKernel")                                          \
    X(RUNTIME, __cudaLaunchKernel_ptsz_v13000, 506, LAUNCH, "cudaLaunchKernel")                                     \
    X(RUNTIME, cudaMemcpyBatchAsync_v13000, 509, COPY, "cudaMemcpyBatchAsync")                                      \
    X(RUNTIME, cudaMemcpyBatchAsync_ptsz_v13000, 510, COPY, "cudaMemcpyBatchAsync")                                 \
    X(RUNTIME, cudaMemcpy3DBatchAsync_v13000, 511, COPY, "cudaMemcpy3DBatchAsync")                                  \
    X(RUNTIME, cudaMemcpy3DBatchAsync_ptsz_v13000, 512, COPY, "cudaMemcpy3DBatchAsync")

#define CPROF_CUPTI_DRIVER_CALLS(X)                                                                      \
    X(DRIVER, cuLaunch, 115, LAUNCH, "cuLaunch")                                                         \
    X(DRIVER, cuLaunchGrid, 116, LAUNCH, "cuLaunchGrid")                                                 \
    X(DRIVER, cuLaunchGridAsync, 117, LAUNCH, "cuLaunchGridAsync")                                       \
    X(DRIVER, cuMemsetD8Async, 216, FILL, "cuMemsetD8Async")                                             \
    X(DRIVER, cuMemsetD16Async, 218, FILL, "cuMemsetD16Async")                                           \
    X(DRIVER, cuMemsetD32Async, 220, FILL, "cuMemsetD32Async")                                           \
    X(DRIVER, cuMemsetD2D8Async, 222, FILL, "cuMemsetD2D8Async")                                         \
    X(DRIVER, cuMemsetD2D16Async, 224, FILL, "cuMemsetD2D16Async")                                       \
    X(DRIVER, cuMemsetD2D32Async, 226, FILL, "cuMemsetD2D32Async")                                       \
    X(DRIVER, cuMemcpy_v2, 248, COPY, "cuMemcpy")                                                        \
    X(DRIVER, cuMemsetD8_v2, 249, FILL, "cuMemsetD8")                                                    \
    X(DRIVER, cuMemsetD16_v2, 250, FILL, "cuMemsetD16")                                                  \
    X(DRIVER, cuMemsetD32_v2, 251, FILL, "cuMemsetD32")                                                  \
    X(DRIVER, cuMemsetD2D8_v2, 252, FILL, "cuMemsetD2D8")                                                \
    X(DRIVER, cuMemsetD2D16_v2, 253, FILL, "cuMemsetD2D16")                                              \
    X(DRIVER, cuMemsetD2D32_v2, 254, FILL, "cuMemsetD2D32")                                              \
    X(DRIVER, cuMemcpyHtoD_v2, 276, COPY, "cuMemcpyHtoD")                                                \
    X(DRIVER, cuMemcpyHtoDAsync_v2, 277, COPY, "cuMemcpyHtoDAsync")                                      \
    X(DRIVER, cuMemcpyDtoH_v2, 278, COPY, "cuMemcpyDtoH")                                                \
    X(DRIVER, cuMemcpyDtoHAsync_v2, 279, COPY, "cuMemcpyDtoHAsync")                                      \
    X(DRIVER, cuMemcpyDtoD_v2, 280, COPY, "cuMemcpyDtoD")                                                \
    X(DRIVER, cuMemcpyDtoDAsync_v2, 281, COPY, "cuMemcpyDtoDAsync")                                      \
    X(DRIVER, cuMemcpyAtoH_v2, 282, COPY, "cuMemcpyAtoH")                                                \
    X(DRIVER, cuMemcpyAtoHAsync_v2, 283, COPY, "cuMemcpyAtoHAsync")                                      \
    X(DRIVER, cuMemcpyAtoD_v2, 284, COPY, "cuMemcpyAtoD")                                                \
    X(DRIVER, cuMemcpyDtoA_v2, 285, COPY, "cuMemcpyDtoA")                                                \
    X(DRIVER, cuMemcpyAtoA_v2, 286, COPY, "cuMemcpyAtoA")                                                \
    X(DRIVER, cuMemcpy2D_v2, 287, COPY, "cuMemcpy2D")                                                    \
    X(DRIVER, cuMemcpy2DUnaligned_v2, 288, COPY, "cuMemcpy2DUnaligned")                                  \
    X(DRIVER, cuMemcpy2DAsync_v2, 289, COPY, "cuMemcpy2DAsync")                                          \
    X(DRIVER, cuMemcpy3D_v2, 290, COPY, "cuMemcpy3D")                                                    \
    X(DRIVER, cuMemcpy3DAsync_v2, 291, COPY, "cuMemcpy3DAsync")                                          \
    X(DRIVER, cuMemcpyHtoA_v2, 292, COPY, "cuMemcpyHtoA")                                                \
    X(DRIVER, cuMemcpyHtoAAsync_v2, 293, COPY, "cuMemcpyHtoAAsync")                                      \
    X(DRIVER, cuMemcpy, 305, COPY, "cuMemcpy")                                                           \
    X(DRIVER, cuMemcpyAsync, 306, COPY, "cuMemcpyAsync")                                                 \
    X(DRIVER, cuLaunchKernel, 307, LAUNCH, "cuLaunchKernel")                                             \
    X(DRIVER, cuMemcpyPeer, 318, COPY, "cuMemcpyPeer")                                                   \
    X(DRIVER, cuMemcpyPeerAsync, 319, COPY, "cuMemcpyPeerAsync")                                         \
    X(DRIVER, cuMemcpy3DPeer, 320, COPY, "cuMemcpy3DPeer")                                               \
    X(DRIVER, cuMemcpy3DPeerAsync, 321, COPY, "cuMemcpy3DPeerAsync")                                     \
    X(DRIVER, cuMemcpyHtoD_v2_ptds, 397, COPY, "cuMemcpyHtoD")                                           \
    X(DRIVER, cuMemcpyDtoH_v2_ptds, 398, COPY, "cuMemcpyDtoH")                                           \
    X(DRIVER, cuMemcpyDtoD_v2_ptds, 399, COPY, "cuMemcpyDtoD")                                           \
    X(DRIVER, cuMemcpyDtoA_v2_ptds, 400, COPY, "cuMemcpyDtoA")                                           \
    X(DRIVER, cuMemcpyAtoD_v2_ptds, 401, COPY, "cuMemcpyAtoD")                                           \
    X(DRIVER, cuMemcpyHtoA_v2_ptds, 402, COPY, "cuMemcpyHtoA")                                           \
    X(DRIVER, cuMemcpyAtoH_v2_ptds, 403, COPY, "cuMemcpyAtoH")                                           \
    X(DRIVER, cuMemcpyAtoA_v2_ptds, 404, COPY, "cuMemcpyAtoA")                                           \
    X(DRIVER, cuMemcpy2D_v2_ptds, 405, COPY, "cuMemcpy2D")                                               \
    X(DRIVER, cuMemcpy2DUnaligned_v2_ptds, 406, COPY, "cuMemcpy2DUnaligned")                             \
    X(DRIVER, cuMemcpy3D_v2_ptds, 407, COPY, "cuMemcpy3D")                                               \
    X(DRIVER, cuMemcpy_ptds, 408, COPY, "cuMemcpy")                                                      \
    X(DRIVER, cuMemcpyPeer_ptds, 409, COPY, "cuMemcpyPeer")                                              \
    X(DRIVER, cuMemcpy3DPeer_ptds, 410, COPY, "cuMemcpy3DPeer")                                          \
    X(DRIVER, cuMemsetD8_v2_ptds, 411, FILL, "cuMemsetD8")                                               \
    X(DRIVER, cuMemsetD16_v2_ptds, 412, FILL, "cuMemsetD16")                                             \
    X(DRIVER, cuMemsetD32_v2_ptds, 413, FILL, "cuMemsetD32")                                             \
    X(DRIVER, cuMemsetD2D8_v2_ptds, 414, FILL, "cuMemsetD2D8")                                           \
    X(DRIVER, cuMemsetD2D16_v2_ptds, 415, FILL, "cuMemsetD2D16")                                         \
    X(DRIVER, cuMemsetD2D32_v2_ptds, 416, FILL, "cuMemsetD2D32")                                         \
    X(DRIVER, cuMemcpyAsync_ptsz, 418, COPY, "cuMemcpyAsync")                                            \
    X(DRIVER, cuMemcpyHtoAAsync_v2_ptsz, 419, COPY, "cuMemcpyHtoAAsync")                                 \
    X(DRIVER, cuMemcpyAtoHAsync_v2_ptsz, 420, COPY, "cuMemcpyAtoHAsync")                                 \
    X(DRIVER, cuMemcpyHtoDAsync_v2_ptsz, 421, COPY, "cuMemcpyHtoDAsync")                                 \
    X(DRIVER, cuMemcpyDtoHAsync_v2_ptsz, 422, COPY, "cuMemcpyDtoHAsync")                                 \
    X(DRIVER, cuMemcpyDtoDAsync_v2_ptsz, 423, COPY, "cuMemcpyDtoDAsync")                                 \
    X(DRIVER, cuMemcpy2DAsync_v2_ptsz, 424, COPY, "cuMemcpy2DAsync")                                     \
    X(DRIVER, cuMemcpy3DAsync_v2_ptsz, 425, COPY, "cuMemcpy3DAsync")                                     \
    X(DRIVER, cuMemcpyPeerAsync_ptsz, 426, COPY, "cuMemcpyPeerAsync")                                    \
    X(DRIVER, cuMemcpy3DPeerAsync_ptsz, 427, COPY, "cuMemcpy3DPeerAsync")                                \
    X(DRIVER, cuMemsetD8Async_ptsz, 428, FILL, "cuMemsetD8Async")                                        \
    X(DRIVER, cuMemsetD16Async_ptsz, 429, FILL, "cuMemsetD16Async")                                      \
    X(DRIVER, cuMemsetD32Async_ptsz, 430, FILL, "cuMemsetD32Async")                                      \
    X(DRIVER, cuMemsetD2D8Async_ptsz, 431, FILL, "cuMemsetD2D8Async")                                    \
    X(DRIVER, cuMemsetD2D16Async_ptsz, 432, FILL, "cuMemsetD2D16Async")                                  \
    X(DRIVER, cuMemsetD2D32Async_ptsz, 433, FILL, "cuMemsetD2D32Async")                                  \
    X(DRIVER, cuLaunchKernel_ptsz, 442, LAUNCH, "cuLaunchKernel")                                        \
    X(DRIVER, cuLaunchCooperativeKernel, 477, LAUNCH, "cuLaunchCooperativeKernel")                       \
    X(DRIVER, cuLaunchCooperativeKernel_ptsz, 478, LAUNCH, "cuLaunchCooperativeKernel")                  \
    X(DRIVER, cuLaunchCooperativeKernelMultiDevice, 480, LAUNCH, "cuLaunchCooperativeKernelMultiDevice") \
    X(DRIVER, cuGraphLaunch, 514, LAUNCH, "cuGraphLaunch")                                               \
    X(DRIVER, cuGraphLaunch_ptsz, 515, LAUNCH, "cuGraphLaunch")                                          \
    X(DRIVER, cuLaunchKernelEx, 652, LAUNCH, "cuLaunchKernelEx")                                         \
    X(DRIVER, cuLaunchKernelEx_ptsz, 653, LAUNCH, "cuLaunchKernelEx")                                    \
    X(DRIVER, cuMemcpyBatchAsync, 776, COPY, "cuMemcpyBatchAsync")                                       \
    X(DRIVER, cuMemcpyBatchAsync_ptsz, 777, COPY, "cuMemcpyBatchAsync")                                  \
    X(DRIVER, cuMemcpy3DBatchAsync, 778, COPY, "cuMemcpy3DBatchAsync")                                   \
    X(DRIVER, cuMemcpy3DBatchAsync_ptsz, 779, COPY, "cuMemcpy3DBatchAsync")                              \
    X(DRIVER, cuMemcpyBatchAsync_v2, 796, COPY, "cuMemcpyBatchAsync")                                    \
    X(DRIVER, cuMemcpyBatchAsync_v2_ptsz, 797, COPY, "cuMemcpyBatchAsync")                               \
    X(DRIVER, cuMemcpy3DBatchAsync_v2, 798, COPY, "cuMemcpy3DBatchAsync")                                \
    X(DRIVER, cuMemcpy3DBatchAsync_v2_ptsz, 799, COPY, "cuMemcpy3DBatchAsync")

/* The call of a number, 0 and up; NULL: unknown. */
const cprof_cupti_call *cprof_cupti_call_of(unsigned domain, uint32_t number);

/* Above all numbers of a domain. */
uint32_t cprof_cupti_call_end(unsigned domain);

#endif
