#include "cprofiling/perf_rdpmc.h"

#if defined(__x86_64__)
bool cprof_perf_rdpmc_exists(void)
{
    return true;
}

uint64_t cprof_perf_rdpmc(uint32_t number)
{
    return __builtin_ia32_rdpmc((int)number);
}
#else
/* aarch64 could, where the administrator allows it (kernel.perf_user_access), with an event opened for that. */
bool cprof_perf_rdpmc_exists(void)
{
    return false;
}

uint64_t cprof_perf_rdpmc(uint32_t number)
{
    (void)number;
    return 0;
}
#endif
