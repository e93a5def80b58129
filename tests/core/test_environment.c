#define _GNU_SOURCE
#include "cprofiling/environment.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static unsigned long is_secure;
static uid_t user;
static gid_t group;

unsigned long __wrap_getauxval(unsigned long type);
uid_t __wrap_geteuid(void);
gid_t __wrap_getegid(void);

unsigned long __wrap_getauxval(unsigned long type)
{
    return type == AT_SECURE ? is_secure : 0;
}

uid_t __wrap_geteuid(void)
{
    return user;
}

gid_t __wrap_getegid(void)
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
