#include "cprofiling/base/checksum.h"

#include "cprofiling/base/bytes.h"

#include <pthread.h>

enum { SLICES = 8 };

#define POLYNOMIAL UINT64_C(0xc96c5795d7870f42) /* the lowest bit is the coefficient of x^63, as in all sums */

static uint64_t tables[SLICES][256]; /* table k: of a byte with k bytes of zeros behind it */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (unsigned i = 0; i < 256; i++) {
        uint64_t crc = i;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        }
        tables[0][i] = crc;
    }
    for (int k = 1; k < SLICES; k++) {
        for (unsigned i = 0; i < 256; i++) {
            uint64_t crc = tables[k - 1][i];
            tables[k][i] = crc >> 8 ^ tables[0][crc & 0xff];
        }
    }
}

/* Eight bytes at a time: M. E. Kounavis and F. L. Berry, "Novel Table Lookup-Based Algorithms for High-Performance CRC
 * Generation", IEEE Transactions on Computers 57(11), 2008. */
uint64_t cprof_checksum(const uint8_t *bytes, size_t size)
{
    (void)pthread_once(&once, make_tables);
    uint64_t crc = UINT64_MAX;
    for (; size >= SLICES; bytes += SLICES, size -= SLICES) {
        uint64_t word = crc ^ cprof_bytes_load(bytes, SLICES);
        crc = 0;
        for (int k = 0; k < SLICES; k++) {
            crc ^= tables[SLICES - 1 - k][word >> (8 * k) & 0xff];
        }
    }
    for (; size > 0; bytes++, size--) {
        crc = crc >> 8 ^ tables[0][(crc ^ *bytes) & 0xff];
    }
    return ~crc;
}

/* The product of two polynomials, modulo that of the checksum. */
static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    for (; a != 0; a <<= 1) {
        product ^= a >> 63 ? b : 0;
        b = b >> 1 ^ (b & 1 ? POLYNOMIAL : 0);
    }
    return product;
}

/* Zeros behind the first run multiply its sum by x^8 each. */
uint64_t cprof_checksum_join(uint64_t first, uint64_t second, uint64_t size)
{
    uint64_t power = UINT64_C(1) << (63 - 8);
    for (; size > 0; size >>= 1) {
        first = size & 1 ? multiply(power, first) : first;
        power = multiply(power, power);
    }
    return first ^ second;
}
