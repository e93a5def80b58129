/* The numbers and places that cprofiling takes from CUPTI's interface, against its headers: compiled where these are installed,
 * never run. */
#include <stddef.h>

#include <cuda.h>
#include <cupti.h>

#include "cprofiling/devices/cupti_calls.h"
#include "cprofiling/devices/cupti_records.h"
#include "cprofiling/devices/cupti_library.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)

#define SAME_CALL(domain, cupti_name, number, is_launch, name) SAME(number, CUPTI_##domain##_TRACE_CBID_##cupti_name);
CPROF_CUPTI_RUNTIME_CALLS(SAME_CALL)
CPROF_CUPTI_DRIVER_CALLS(SAME_CALL)

SAME(CPROF_CUPTI_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API);
SAME(CPROF_CUPTI_RUNTIME, CUPTI_CB_DOMAIN_RUNTIME_API);
SAME(CPROF_CUPTI_SUCCESS, CUPTI_SUCCESS);
SAME(CPROF_CUPTI_INVALID_PARAMETER, CUPTI_ERROR_INVALID_PARAMETER);
SAME(CPROF_CUPTI_MAX_LIMIT_REACHED, CUPTI_ERROR_MAX_LIMIT_REACHED);
SAME(CPROF_CUPTI_INVALID_KIND, CUPTI_ERROR_INVALID_KIND);
SAME(CPROF_CUPTI_MULTIPLE_SUBSCRIBERS, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
SAME(CPROF_CUPTI_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY);
SAME(CPROF_CUPTI_MEMSET, CUPTI_ACTIVITY_KIND_MEMSET);
SAME(CPROF_CUPTI_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME(CPROF_CUPTI_PEER_COPY, CUPTI_ACTIVITY_KIND_MEMCPY2);
SAME(CPROF_CUPTI_HTOD, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
SAME(CPROF_CUPTI_DTOH, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
SAME(CPROF_CUPTI_HTOA, CUPTI_ACTIVITY_MEMCPY_KIND_HTOA);
SAME(CPROF_CUPTI_ATOH, CUPTI_ACTIVITY_MEMCPY_KIND_ATOH);
SAME(CPROF_CUPTI_ATOA, CUPTI_ACTIVITY_MEMCPY_KIND_ATOA);
SAME(CPROF_CUPTI_ATOD, CUPTI_ACTIVITY_MEMCPY_KIND_ATOD);
SAME(CPROF_CUPTI_DTOA, CUPTI_ACTIVITY_MEMCPY_KIND_DTOA);
SAME(CPROF_CUPTI_DTOD, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD);
SAME(CPROF_CUPTI_HTOH, CUPTI_ACTIVITY_MEMCPY_KIND_HTOH);
SAME(CPROF_CUPTI_PTOP, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP);

/* As cupti_records.c and cupti_events.c read them. */
#define AT(type, field, place) SAME(place, offsetof(type, field))
AT(CUpti_CallbackData, callbackSite, 0);
AT(CUpti_CallbackData, correlationId, 64);
AT(CUpti_ActivityKernel10, start, 16);
AT(CUpti_ActivityKernel10, end, 24);
AT(CUpti_ActivityKernel10, deviceId, 40);
AT(CUpti_ActivityKernel10, streamId, 48);
AT(CUpti_ActivityKernel10, correlationId, 92);
AT(CUpti_ActivityKernel10, name, 104);
AT(CUpti_ActivityKernel5, start, 16);
AT(CUpti_ActivityKernel5, deviceId, 40);
AT(CUpti_ActivityKernel5, streamId, 48);
AT(CUpti_ActivityKernel5, correlationId, 92);
AT(CUpti_ActivityKernel5, name, 104);
AT(CUpti_ActivityMemcpy6, copyKind, 4);
AT(CUpti_ActivityMemcpy6, srcKind, 5);
AT(CUpti_ActivityMemcpy6, dstKind, 6);
AT(CUpti_ActivityMemcpy6, bytes, 8);
AT(CUpti_ActivityMemcpy6, start, 16);
AT(CUpti_ActivityMemcpy6, end, 24);
AT(CUpti_ActivityMemcpy6, deviceId, 32);
AT(CUpti_ActivityMemcpy6, streamId, 40);
AT(CUpti_ActivityMemcpy6, correlationId, 44);
AT(CUpti_ActivityMemcpy4, correlationId, 44);
AT(CUpti_ActivityMemcpyPtoP4, copyKind, 4);
AT(CUpti_ActivityMemcpyPtoP4, bytes, 8);
AT(CUpti_ActivityMemcpyPtoP4, start, 16);
AT(CUpti_ActivityMemcpyPtoP4, deviceId, 32);
AT(CUpti_ActivityMemcpyPtoP4, streamId, 40);
AT(CUpti_ActivityMemcpyPtoP4, correlationId, 60);
AT(CUpti_ActivityMemset4, bytes, 8);
AT(CUpti_ActivityMemset4, start, 16);
AT(CUpti_ActivityMemset4, end, 24);
AT(CUpti_ActivityMemset4, deviceId, 32);
AT(CUpti_ActivityMemset4, streamId, 40);
AT(CUpti_ActivityMemset4, correlationId, 44);
AT(CUpti_ActivityMemset4, memoryKind, 50);
