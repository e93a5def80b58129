/* Status codes of the core: one list, from which the enum and the texts are made. */
#ifndef CPROF_STATUS_H
#define CPROF_STATUS_H

#define CPROF_STATUS_MAP(X)                                    \
    X(OK, "success")                                           \
    X(NO_MEMORY, "out of memory")                              \
    X(OUT_OF_RANGE, "value out of range")                      \
    X(BAD_FORMAT, "damaged or foreign data")                   \
    X(DUPLICATE, "the same data twice")                        \
    X(ABSENT, "there are no such figures")                     \
    X(BUSY, "a thread has stopped in the middle of an update") \
    X(IN_USE, "there is one already")

typedef enum {
#define CPROF_STATUS_ENUM(code, text) CPROF_##code,
    CPROF_STATUS_MAP(CPROF_STATUS_ENUM)
#undef CPROF_STATUS_ENUM
} cprof_status;

/* A static English text for `status`; "unknown status" for any other value. */
const char *cprof_status_text(cprof_status status);

#endif
