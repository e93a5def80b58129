/* vector.h, bytes.h */
#include "cprofiling/base/bytes.h"
#include "cprofiling/base/vector.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include "cprofiling/base/alloc.h"

TEST(arrays_grow)
{
    size_t capacity = 0;
    uint64_t *items = NULL;
    for (size_t i = 0; i < 100; i++) {
        items = cprof_vector_grow(items, &capacity, i, sizeof *items, 3);
        CHECK(items != NULL && capacity > i && (capacity % 3) == 0);
        items[i] = i;
    }
    CHECK_EQUAL(items[99], 99);
    CHECK_EQUAL(capacity, 192);
    fake_alloc_fail(1);
    CHECK(cprof_vector_grow(items, &capacity, 192, sizeof *items, 3) == NULL);
    CHECK_EQUAL(capacity, 192);
    CHECK_EQUAL(items[99], 99);
    cprof_alloc_release(items);
}

TEST(bytes_are_little_endian)
{
    uint8_t bytes[11] = {0};
    cprof_bytes_store(bytes + 1, UINT64_C(0x0123456789abcdef), 8);
    CHECK(bytes[1] == 0xef && bytes[8] == 0x01 && bytes[0] == 0 && bytes[9] == 0);
    CHECK_EQUAL(cprof_bytes_load(bytes + 1, 8), UINT64_C(0x0123456789abcdef));
    CHECK_EQUAL(cprof_bytes_load(bytes + 1, 3), 0xabcdef);
    cprof_bytes_store(bytes, UINT64_MAX, 2);
    CHECK(bytes[1] == 0xff && bytes[2] == 0xcd);
}

FAKE_ALLOC_MAIN(NULL, NULL)
