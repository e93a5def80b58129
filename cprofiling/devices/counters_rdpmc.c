#include "cprofiling/devices/counters_rdpmc.h"

#if defined(__x86_64__)
bool cprof_counters_rdpmc_exists(void)
{
    return true;
}

uint64_t cprof_counters_rdpmc(uint32_t number)
{
    return __builtin_ia32_rdpmc((int)number);
}
#else
/* aarch64 could, where the administrator allows it (kernel.perf_user_access), with an event opened for that. */
bool cprof_counters_rdpmc_exists(void)
{
    return false;
}

uint64_t cprof_counters_rdpmc(uint32_t number)
{
    (void)number;
    return 0;
}
#endif
