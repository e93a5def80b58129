#include "cprofiling/devices/cupti_records.h"

#include "tests/core/check.h"

#include <string.h>

static _Alignas(8) unsigned char bytes[216];

static void put(size_t at, const void *value, size_t size)
{
    memcpy(bytes + at, value, size);
}

static void put_32(size_t at, uint32_t value)
{
    put(at, &value, sizeof value);
}

static void put_64(size_t at, uint64_t value)
{
    put(at, &value, sizeof value);
}

static void begin(uint32_t kind)
{
    memset(bytes, 0, sizeof bytes);
    put_32(0, kind);
    put_64(16, 1000);
    put_64(24, 2000);
}

static void check_common(const cprof_cupti_record *record, int32_t kind, uint32_t device, uint32_t stream, uint32_t correlation)
{
    CHECK_EQUAL(record->kind, kind);
    CHECK_EQUAL(record->start, 1000);
    CHECK_EQUAL(record->end, 2000);
    CHECK_EQUAL(record->device, device);
    CHECK_EQUAL(record->stream, stream);
    CHECK_EQUAL(record->correlation, correlation);
}

TEST(kernels)
{
    const char *name = "a kernel";
    cprof_cupti_record record;
    begin(CPROF_CUPTI_KERNEL);
    put_32(40, 1);
    put_32(48, 7);
    put_32(92, 4711);
    put(104, &name, sizeof(const char *)); /* NOLINT(bugprone-sizeof-expression): the pointer */
    CHECK(cprof_cupti_record_read(bytes, &record));
    check_common(&record, CPROF_CUPTI_KERNEL, 1, 7, 4711);
    CHECK(record.name == name);
}

static void check_described(const cprof_cupti_record *record, const char *expected)
{
    char text[80];
    cprof_cupti_record_describe(record, text, sizeof text);
    CHECK(strcmp(text, expected) == 0);
}

TEST(copies)
{
    cprof_cupti_record record;
    begin(CPROF_CUPTI_MEMCPY);
    bytes[4] = CPROF_CUPTI_HTOD;
    bytes[5] = 1;
    bytes[6] = 3;
    put_64(8, 4096);
    put_32(32, 2);
    put_32(40, 8);
    put_32(44, 12);
    CHECK(cprof_cupti_record_read(bytes, &record));
    check_common(&record, CPROF_CUPTI_MEMCPY, 2, 8, 12);
    CHECK_EQUAL(record.bytes, 4096);
    check_described(&record, "Memcpy HtoD (Pageable -> Device)");
    put_32(0, CPROF_CUPTI_PEER_COPY);
    put_32(60, 13);
    CHECK(cprof_cupti_record_read(bytes, &record));
    check_common(&record, CPROF_CUPTI_PEER_COPY, 2, 8, 13);
    check_described(&record, "Memcpy PtoP (Pageable -> Device)");
    record.direction = 11;
    record.from = 7;
    record.to = 8;
    check_described(&record, "Memcpy Unknown (Managed Static -> Unknown)");
}

TEST(fills)
{
    cprof_cupti_record record;
    begin(CPROF_CUPTI_MEMSET);
    put_64(8, 64);
    put_32(32, 3);
    put_32(40, 9);
    put_32(44, 14);
    bytes[50] = 3;
    CHECK(cprof_cupti_record_read(bytes, &record));
    check_common(&record, CPROF_CUPTI_MEMSET, 3, 9, 14);
    CHECK_EQUAL(record.bytes, 64);
    check_described(&record, "Memset (Device)");
}

TEST(other_kinds)
{
    cprof_cupti_record record;
    begin(17);
    CHECK(!cprof_cupti_record_read(bytes, &record));
}

TEST_MAIN(NULL, NULL)
