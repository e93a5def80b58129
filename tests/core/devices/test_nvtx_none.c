/* nvtx.h where NVTX's headers are not: linked with nvtx_none.c in place of nvtx.c. */
#include "cprofiling/devices/nvtx.h"

#include "tests/core/check.h"

int main(void)
{
    CHECK(!cprof_nvtx_is_heard());
    void *message = cprof_nvtx_register(cprof_name_of("node"));
    CHECK(message == NULL);
    cprof_nvtx_push(message, 1);
    cprof_nvtx_pop();
    CHECK(!cprof_nvtx_is_heard());
    CHECK(strcmp(cprof_nvtx_reason(), "built without NVTX's headers") == 0);
    return EXIT_SUCCESS;
}
