#define _GNU_SOURCE
#include "cprofiling/base/environment.h"

#include "tests/core/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static unsigned long is_secure;
static uid_t user;
static gid_t group;

WRAP(unsigned long, getauxval, unsigned long type)
{
    return type == AT_SECURE ? is_secure : 0;
}

WRAP(uid_t, geteuid, void)
{
    return user;
}

WRAP(gid_t, getegid, void)
{
    return group;
}

int main(void)
{
    user = getuid();
    group = getgid();
    CHECK(setenv("CPROFILING_TEST", "value", 1) == 0);
    CHECK(strcmp(cprof_environment_get("CPROFILING_TEST"), "value") == 0);
    CHECK(cprof_environment_get("CPROFILING_NONE") == NULL);
    is_secure = 1;
    CHECK(!cprof_environment_is_trusted() && cprof_environment_get("CPROFILING_TEST") == NULL);
    is_secure = 0;
    user++;
    CHECK(!cprof_environment_is_trusted());
    user--;
    group++;
    CHECK(!cprof_environment_is_trusted());
    group--;
    CHECK(cprof_environment_is_trusted());
    cprof_environment_distrust();
    CHECK(!cprof_environment_is_trusted() && cprof_environment_get("CPROFILING_TEST") == NULL);
    return EXIT_SUCCESS;
}
