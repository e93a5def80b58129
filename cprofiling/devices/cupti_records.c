#include "cprofiling/devices/cupti_records.h"

#include <stdio.h>
#include <string.h>

/* Where the fields are, in bytes. */
enum {
    KIND_AT = 0,
    DIRECTION_AT = 4,
    FROM_AT = 5,
    TO_AT = 6,
    BYTES_AT = 8,
    START_AT = 16,
    END_AT = 24,
    DEVICE_AT = 32, /* and the stream 8 behind it, in all kinds */
    STREAM_BEHIND = 8,
    CORRELATION_AT = 44,
    FILL_MEMORY_AT = 50,
    PEER_CORRELATION_AT = 60,
    KERNEL_DEVICE_AT = 40,
    KERNEL_CORRELATION_AT = 92,
    KERNEL_NAME_AT = 104,
};

static uint32_t read_32(const char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t read_64(const char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void read_place(const char *at, int device_at, int correlation_at, cprof_cupti_record *record)
{
    record->device = read_32(at + device_at);
    record->stream = read_32(at + device_at + STREAM_BEHIND);
    record->correlation = read_32(at + correlation_at);
}

static void read_copy(const char *at, int correlation_at, cprof_cupti_record *record)
{
    record->direction = (uint8_t)at[DIRECTION_AT];
    record->from = (uint8_t)at[FROM_AT];
    record->to = (uint8_t)at[TO_AT];
    record->bytes = read_64(at + BYTES_AT);
    read_place(at, DEVICE_AT, correlation_at, record);
}

bool cprof_cupti_record_read(const void *bytes, cprof_cupti_record *record)
{
    const char *at = bytes;
    *record = (cprof_cupti_record){.kind = (int32_t)read_32(at + KIND_AT)};
    switch (record->kind) {
    case CPROF_CUPTI_KERNEL:
        read_place(at, KERNEL_DEVICE_AT, KERNEL_CORRELATION_AT, record);
        memcpy((void *)&record->name, at + KERNEL_NAME_AT, sizeof record->name);
        break;
    case CPROF_CUPTI_MEMCPY:
        read_copy(at, CORRELATION_AT, record);
        break;
    case CPROF_CUPTI_PEER_COPY:
        read_copy(at, PEER_CORRELATION_AT, record);
        record->direction = CPROF_CUPTI_PTOP;
        break;
    case CPROF_CUPTI_MEMSET:
        record->bytes = read_64(at + BYTES_AT);
        record->to = (uint8_t)at[FILL_MEMORY_AT];
        read_place(at, DEVICE_AT, CORRELATION_AT, record);
        break;
    default:
        return false;
    }
    record->start = read_64(at + START_AT);
    record->end = read_64(at + END_AT);
    return true;
}

static const char *memory_name(uint8_t kind)
{
    static const char *const known[] = {"Unknown", "Pageable", "Pinned",        "Device",
                                        "Array",   "Managed",  "Device Static", "Managed Static"};
    return kind < sizeof known / sizeof known[0] ? known[kind] : known[0];
}

static const char *direction_name(uint8_t direction)
{
    static const char *const known[] = {"Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                        "AtoD",    "DtoA", "DtoD", "HtoH", "PtoP"};
    return direction < sizeof known / sizeof known[0] ? known[direction] : known[0];
}

void cprof_cupti_record_describe(const cprof_cupti_record *record, char *text, size_t size)
{
    if (record->kind == CPROF_CUPTI_MEMSET) {
        (void)snprintf(text, size, "Memset (%s)", memory_name(record->to));
    } else {
        (void)snprintf(text, size, "Memcpy %s (%s -> %s)", direction_name(record->direction), memory_name(record->from),
                       memory_name(record->to));
    }
}
