/* CUPTI's library: where it is found, and the functions of it that are used. Stateless; any thread.
 *
 * The types are those of CUPTI's interface, as far as it is used; the numbers are the same in every version. A library that was
 * found is never closed: others use it too.
 */
#ifndef CPROF_CUPTI_LIBRARY_H
#define CPROF_CUPTI_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int cprof_cupti_result;

enum {
    CPROF_CUPTI_SUCCESS = 0,
    CPROF_CUPTI_INVALID_PARAMETER = 1,
    CPROF_CUPTI_MAX_LIMIT_REACHED = 12, /* of subscribers, in old versions; of records: there are no more */
    CPROF_CUPTI_INVALID_KIND = 21,      /* of records: this one is not complete, and the last */
    CPROF_CUPTI_MULTIPLE_SUBSCRIBERS = 39,
};

typedef void (*cprof_cupti_callback)(void *context, int domain, uint32_t number, const void *data);
typedef void (*cprof_cupti_request)(uint8_t **buffer, size_t *size, size_t *most_records);
typedef void (*cprof_cupti_complete)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size);

/* The functions, by their names without "cupti". X(field, name, arguments) */
#define CPROF_CUPTI_FUNCTIONS(X)                                                                                        \
    X(get_version, cuptiGetVersion, (uint32_t *version))                                                                \
    X(get_result_string, cuptiGetResultString, (cprof_cupti_result result, const char **text))                          \
    X(get_timestamp, cuptiGetTimestamp, (uint64_t *timestamp))                                                          \
    X(subscribe, cuptiSubscribe, (void **subscriber, cprof_cupti_callback callback, void *context))                     \
    X(unsubscribe, cuptiUnsubscribe, (void *subscriber))                                                                \
    X(enable_callback, cuptiEnableCallback, (uint32_t enable, void *subscriber, int domain, uint32_t number))           \
    X(register_callbacks, cuptiActivityRegisterCallbacks, (cprof_cupti_request request, cprof_cupti_complete complete)) \
    X(enable, cuptiActivityEnable, (int kind))                                                                          \
    X(disable, cuptiActivityDisable, (int kind))                                                                        \
    X(flush_all, cuptiActivityFlushAll, (uint32_t flag))                                                                \
    X(get_next_record, cuptiActivityGetNextRecord, (uint8_t *buffer, size_t valid_size, void **record))                 \
    X(get_num_dropped_records, cuptiActivityGetNumDroppedRecords, (void *context, uint32_t stream, size_t *dropped))

typedef struct {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): in a declaration there are none */
#define CPROF_CUPTI_FIELD(field, name, arguments) cprof_cupti_result(*field) arguments;
    CPROF_CUPTI_FUNCTIONS(CPROF_CUPTI_FIELD)
#undef CPROF_CUPTI_FIELD
} cprof_cupti_library;

/* Where to look. Texts are borrowed; NULL: none. */
typedef struct {
    const char *path;    /* the one library to take */
    const char *folders; /* searched after loaded ones: one after another, each with its NUL, an empty one at the end */
    const char *home;    /* CUDA's folder */
} cprof_cupti_places;

/* Finds the library and all of its functions: the one that is loaded already, whichever that is; else in the folders, in
 * CUDA's, and where the loader looks. Never loads a second one. False: no usable one, `reason` (of `size`
 * bytes) says why. */
bool cprof_cupti_library_find(const cprof_cupti_places *places, cprof_cupti_library *library, char *reason, size_t size);

/* The file that the library is from: static; NULL when it is not known. */
const char *cprof_cupti_library_path(const cprof_cupti_library *library);

/* The function that makes names of C++ readable, __cxa_demangle, where the process has it; else NULL. */
char *(*cprof_cupti_library_demangler(void))(const char *name, char *buffer, size_t *length, int *status);

/* What the library calls a result; a text of its own when it does not say. */
const char *cprof_cupti_library_result(const cprof_cupti_library *library, cprof_cupti_result result);

#endif
