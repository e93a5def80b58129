/* As much of a libcuda and a libcupti, in one library, as cuda_probe.py asks. The environment says what they answer:
 *
 *     FAKE_NVIDIA_INIT       the CUresult of cuInit (default: 0)
 *     FAKE_NVIDIA_DEVICES    how many devices there are (default: 2); -1: the question is refused
 *     FAKE_NVIDIA_SUBSCRIBE  the CUptiResult of cuptiSubscribe (default: 0)
 *     FAKE_NVIDIA_CRASHES    the function that ends the process: cuInit or cuptiGetVersion
 *     FAKE_NVIDIA_HANGS      the function that does not return: one of these, too
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { INVALID_VALUE = 1, MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76 };

static int answer_of(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? (int)strtol(text, NULL, 10) : otherwise;
}

static void meet_fate(const char *function)
{
    const char *crashing = getenv("FAKE_NVIDIA_CRASHES");
    const char *hanging = getenv("FAKE_NVIDIA_HANGS");
    if (crashing != NULL && strcmp(crashing, function) == 0) {
        abort();
    }
    while (hanging != NULL && strcmp(hanging, function) == 0) {
        (void)pause();
    }
}

EXPORT int cuInit(unsigned flags)
{
    (void)printf("the driver's own words\n[]\n");
    (void)fflush(stdout);
    meet_fate("cuInit");
    return flags == 0 ? answer_of("FAKE_NVIDIA_INIT", 0) : INVALID_VALUE;
}

EXPORT int cuDriverGetVersion(int *version)
{
    *version = 13020;
    return 0;
}

EXPORT int cuGetErrorName(int code, const char **name)
{
    *name = code == 0 ? "CUDA_SUCCESS" : code == 100 ? "CUDA_ERROR_NO_DEVICE" : NULL;
    return *name != NULL ? 0 : INVALID_VALUE;
}

EXPORT int cuDeviceGetCount(int *count)
{
    *count = answer_of("FAKE_NVIDIA_DEVICES", 2);
    return *count >= 0 ? 0 : INVALID_VALUE;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal + 40; /* a handle, which no ordinal is taken for */
    return 0;
}

EXPORT int cuDeviceGetName(char *name, int size, int device)
{
    (void)snprintf(name, (size_t)size, "Fake GPU %d \xff\x1b[31m", device - 40);
    return 0;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = (size_t)(device - 39) << 33;
    return 0;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == MULTIPROCESSORS ? 132 + device - 40 : attribute == MAJOR ? 9 : attribute == MINOR ? 0 : -1;
    return 0;
}

EXPORT int cuptiGetVersion(uint32_t *version)
{
    meet_fate("cuptiGetVersion");
    *version = 130000;
    return 0;
}

static void *subscriber;

EXPORT int cuptiSubscribe(void **handle, void (*callback)(void *, int, uint32_t, const void *), void *data)
{
    int code = answer_of("FAKE_NVIDIA_SUBSCRIBE", 0);
    if (code == 0 && (subscriber != NULL || callback == NULL || data != NULL)) {
        abort();
    }
    *handle = subscriber = code == 0 ? &subscriber : NULL;
    return code;
}

EXPORT int cuptiUnsubscribe(void *handle)
{
    if (handle != subscriber || handle == NULL) {
        abort();
    }
    subscriber = NULL;
    return 0;
}

EXPORT int cuptiGetResultString(int code, const char **text)
{
    *text = code == 0 ? "CUPTI_SUCCESS" : code == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : NULL;
    return *text != NULL ? 0 : INVALID_VALUE;
}

/* What is only looked for. */
#define NOT_CALLED(name)   \
    EXPORT int name(void); \
    EXPORT int name(void)  \
    {                      \
        abort();           \
    }

NOT_CALLED(cuptiGetTimestamp)
NOT_CALLED(cuptiEnableCallback)
NOT_CALLED(cuptiActivityRegisterCallbacks)
NOT_CALLED(cuptiActivityEnable)
NOT_CALLED(cuptiActivityDisable)
NOT_CALLED(cuptiActivityFlushAll)
NOT_CALLED(cuptiActivityGetNextRecord)
NOT_CALLED(cuptiActivityGetNumDroppedRecords)
