/* status.h */
#include "cprofiling/base/status.h"

#include "tests/core/check.h"

#include <string.h>

static const cprof_status all[] = {
#define STATUS(code, text) CPROF_##code,
    CPROF_STATUS_MAP(STATUS)
#undef STATUS
};

enum { COUNT = COUNT_OF(all) };

TEST(success_is_zero)
{
    CHECK(CPROF_OK == 0);
    CHECK(strcmp(cprof_status_text(CPROF_OK), "success") == 0);
    CHECK(strcmp(cprof_status_text(CPROF_NO_MEMORY), "out of memory") == 0);
}

TEST(each_code_has_its_own_text)
{
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQUAL(all[i], i);
        CHECK(cprof_status_text(all[i])[0] != '\0');
        for (int k = 0; k < i; k++) {
            CHECK(strcmp(cprof_status_text(all[i]), cprof_status_text(all[k])) != 0);
        }
    }
}

/* Such as a program may have that was built with another version of the header. */
TEST(other_values_are_unknown)
{
    static const unsigned others[] = {COUNT, COUNT + 1, 1000, UINT32_MAX};
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        cprof_status status;
        memcpy(&status, &others[i], sizeof status);
        CHECK(strcmp(cprof_status_text(status), "unknown status") == 0);
    }
}

TEST_MAIN(NULL, NULL)
