/* checksum.h, bytes.h */
#include "cprofiling/base/bytes.h"
#include "cprofiling/base/checksum.h"

#include "tests/core/check.h"

enum { SIZE = 300 };

/* What catalogues of CRCs give for CRC-64/XZ, of the nine digits; and, made bit by bit in Python, of other texts. */
TEST(known_values)
{
    CHECK_EQUAL(cprof_checksum((const uint8_t *)"123456789", 9), UINT64_C(0x995dc9bbdf1939fa));
    CHECK_EQUAL(cprof_checksum((const uint8_t *)"", 0), 0);
    CHECK_EQUAL(cprof_checksum((const uint8_t *)"\0", 1), UINT64_C(0x1fada17364673f59));
}

/* No single bit, and no two bits that are exchanged, go unseen. */
TEST(each_bit_counts)
{
    uint8_t bytes[SIZE];
    uint64_t state = 1;
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = (uint8_t)check_random(&state);
    }
    uint64_t whole = cprof_checksum(bytes, SIZE);
    for (size_t bit = 0; bit < SIZE * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(cprof_checksum(bytes, SIZE) != whole);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t i = 1; i < SIZE; i++) {
        CHECK(cprof_checksum(bytes, i) != cprof_checksum(bytes, i - 1));
    }
    CHECK_EQUAL(cprof_checksum(bytes, SIZE), whole);
}

TEST(two_runs_are_one)
{
    uint8_t bytes[SIZE];
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = (uint8_t)(i * i);
    }
    for (size_t i = 0; i <= SIZE; i++) {
        uint64_t joined = cprof_checksum_join(cprof_checksum(bytes, i), cprof_checksum(bytes + i, SIZE - i), SIZE - i);
        CHECK_EQUAL(joined, cprof_checksum(bytes, SIZE));
    }
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

TEST_MAIN(NULL, NULL)
