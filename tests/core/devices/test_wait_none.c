/* wait.h and event.h where there is no CUDA: linked with wait_none.c and event_none.c in place of the others. */
#include "cprofiling/devices/wait.h"

#include "cprofiling/devices/event.h"
#include "cprofiling/nodes/registry.h"
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
    CHECK(!cprof_wait_probe());
    CHECK(cprof_wait_synchronize(CPROF_GPU_CURRENT_DEVICE, CPROF_GPU_UNKNOWN_STREAM) == CPROF_GPU_OFF);
    CHECK(cprof_wait_synchronize(0, 77) == CPROF_GPU_OFF);
    CHECK(cprof_wait_profiler_start() == CPROF_GPU_NOT_CALLED);
    CHECK(cprof_wait_profiler_stop() == CPROF_GPU_NOT_CALLED);
    int64_t size = 7;
    CHECK(!cprof_wait_memory(0, &size, &size) && size == 7);
    cprof_wait_get_counters(&counters);
    CHECK_EQUAL(counters.waited + counters.captured + counters.failed, 0);
}

static void check_nothing_is_timed(void)
{
    char reason[100];
    cprof_gpu_cause cause = CPROF_GPU_KNOWN;
    cprof_gpu_place place = {0, 0};
    cprof_registry *registry = cprof_registry_create(0);
    CHECK(registry != NULL);
    cprof_accum *accum = cprof_registry_accum(registry, (cprof_names){{"test", 4}, {"node", 4}});
    CHECK(accum != NULL);
    CHECK(cprof_event_begin(place, &cause) == NULL && cause == CPROF_GPU_UNSUPPORTED);
    cprof_event_end(NULL, place, accum, 1);
    CHECK_EQUAL(accum->extra->figures.missed[CPROF_GPU_UNSUPPORTED], 1);
    cprof_event_cancel(NULL);
    cprof_event_poll();
    CHECK_EQUAL(cprof_event_pending(registry), 0);
    cprof_registry_destroy(registry);
    cprof_event_after_fork_in_child();
    cprof_event_reset_for_test();
    CHECK(cprof_event_reason(reason, sizeof reason));
    CHECK(strcmp(reason, "CUDA is unavailable on this platform: no GPU time") == 0);
}

static void test_the_reason_is_given(void)
{
    char reason[sizeof REASON];
    char cut[5];
    CHECK(cprof_wait_reason(reason, sizeof reason));
    CHECK(strcmp(reason, REASON) == 0);
    CHECK(cprof_wait_reason(cut, sizeof cut));
    CHECK(strcmp(cut, "CUDA") == 0);
    cut[0] = 'x';
    CHECK(cprof_wait_reason(cut, 0));
    CHECK(cut[0] == 'x');
}

int main(void)
{
    cprof_wait_set_clock_for_test(fail_to_read);
    check_nothing_is_waited_for();
    check_nothing_is_timed();
    test_the_reason_is_given();
    cprof_wait_after_fork_in_child();
    check_nothing_is_waited_for();
    cprof_wait_reset_for_test();
    check_nothing_is_waited_for();
    cprof_wait_set_clock_for_test(NULL);
    return EXIT_SUCCESS;
}
