#include "cprofiling/devices/cupti_calls.h"

#include "tests/core/check.h"

static void check_call(unsigned domain, uint32_t number, const char *name, bool is_launch)
{
    const cprof_cupti_call *call = cprof_cupti_call_of(domain, number);
    CHECK(call != NULL && strcmp(call->name, name) == 0 && call->is_launch == is_launch);
}

TEST(calls_by_their_numbers)
{
    check_call(CPROF_CUPTI_RUNTIME, 211, "cudaLaunchKernel", true);
    check_call(CPROF_CUPTI_RUNTIME, 214, "cudaLaunchKernel", true);
    check_call(CPROF_CUPTI_RUNTIME, 311, "cudaGraphLaunch", true);
    check_call(CPROF_CUPTI_RUNTIME, 41, "cudaMemcpyAsync", false);
    check_call(CPROF_CUPTI_RUNTIME, 51, "cudaMemsetAsync", false);
    check_call(CPROF_CUPTI_DRIVER, 307, "cuLaunchKernel", true);
    check_call(CPROF_CUPTI_DRIVER, 277, "cuMemcpyHtoDAsync", false);
    CHECK(cprof_cupti_call_of(CPROF_CUPTI_RUNTIME, 0) == NULL);
    CHECK(cprof_cupti_call_of(CPROF_CUPTI_RUNTIME, cprof_cupti_call_end(CPROF_CUPTI_RUNTIME)) == NULL);
    CHECK(cprof_cupti_call_of(CPROF_CUPTI_DRIVER, UINT32_MAX) == NULL);
    CHECK(cprof_cupti_call_of(3, 211) == NULL);
    CHECK_EQUAL(cprof_cupti_call_end(0), 0);
}

TEST_MAIN(NULL, NULL)
