/* cupti.h where there is no CUDA: linked with cupti_none.c in place of cupti.c. */
#include "cprofiling/devices/cupti.h"

#include "tests/core/check.h"

#include <string.h>

int main(void)
{
    char reason[80];
    cprof_cupti_state state = {.launched = 5};
    cprof_accum *nobody = NULL;
    cprof_cupti_node before = {.generation = 5};
    const char *const folders[] = {"/no/such/folder"};
    CHECK(!cprof_cupti_start(CPROF_CUPTI_COUNTS));
    CHECK(!cprof_cupti_start(CPROF_CUPTI_STORE));
    CHECK(cprof_cupti_reason(reason, sizeof reason));
    CHECK(strcmp(reason, "CUPTI is unavailable on this platform") == 0);
    CHECK(cprof_cupti_set_folders(folders, 1));
    cprof_cupti_set_node((cprof_cupti_node){nobody, 7}, &before);
    CHECK(before.accum == NULL && before.generation == 0);
    cprof_cupti_flush();
    cprof_cupti_forget(NULL);
    CHECK(cprof_cupti_collect(NULL) == CPROF_OK);
    cprof_cupti_stop(CPROF_CUPTI_COUNTS);
    cprof_cupti_after_fork_in_child();
    cprof_cupti_reset_for_test();
    cprof_cupti_get_state(&state);
    CHECK(!state.has_library && state.launched == 0);
    return EXIT_SUCCESS;
}
