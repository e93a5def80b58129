/* gpu.h where there is no CUDA: linked with gpu_none.c in place of gpu_cuda.c. */
#include "cprofiling/gpu.h"

#include "tests/core/check.h"

#include <string.h>

#define REASON "CUDA is unavailable on this platform: synchronisation is off"

static cprof_ns fail_to_read(void)
{
    CHECK(!"nothing is timed");
    return 0;
}

static void check_nothing_is_waited_for(void)
{
    cprof_gpu_counters counters = {1, 1, 1};
    CHECK(!cprof_gpu_probe());
    CHECK(cprof_gpu_synchronize(CPROF_GPU_CURRENT_DEVICE, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_OFF);
    CHECK(cprof_gpu_synchronize(0, 77) == CPROF_GPU_OFF);
    cprof_gpu_get_counters(&counters);
    CHECK_EQUAL(counters.waited + counters.captured + counters.failed, 0);
}

static void test_the_reason_is_given(void)
{
    char reason[sizeof REASON];
    char cut[5];
    CHECK(cprof_gpu_reason(reason, sizeof reason));
    CHECK(strcmp(reason, REASON) == 0);
    CHECK(cprof_gpu_reason(cut, sizeof cut));
    CHECK(strcmp(cut, "CUDA") == 0);
    cut[0] = 'x';
    CHECK(cprof_gpu_reason(cut, 0));
    CHECK(cut[0] == 'x');
}

int main(void)
{
    cprof_gpu_set_clock_for_test(fail_to_read);
    check_nothing_is_waited_for();
    test_the_reason_is_given();
    cprof_gpu_after_fork_in_child();
    check_nothing_is_waited_for();
    cprof_gpu_reset_for_test();
    check_nothing_is_waited_for();
    cprof_gpu_set_clock_for_test(NULL);
    return EXIT_SUCCESS;
}
