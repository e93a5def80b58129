#include "cprofiling/base/status.h"

#include <stddef.h>

const char *cprof_status_text(cprof_status status)
{
    static const char *const texts[] = {
#define CPROF_STATUS_TEXT(code, text) text,
        CPROF_STATUS_MAP(CPROF_STATUS_TEXT)
#undef CPROF_STATUS_TEXT
    };
    return (size_t)status < sizeof texts / sizeof texts[0] ? texts[status] : "unknown status";
}
