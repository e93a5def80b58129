#include "cprofiling/base/environment.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

static atomic_bool is_ignored;

bool cprof_environment_is_trusted(void)
{
    return !atomic_load(&is_ignored) && getauxval(AT_SECURE) == 0 && getuid() == geteuid() && getgid() == getegid();
}

void cprof_environment_distrust(void)
{
    atomic_store(&is_ignored, true);
}

const char *cprof_environment_get(const char *name)
{
    return cprof_environment_is_trusted() ? getenv(name) : NULL; /* NOLINT(concurrency-mt-unsafe) */
}
