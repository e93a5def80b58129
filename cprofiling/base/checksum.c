#include "cprofiling/base/checksum.h"

uint64_t cprof_checksum(const uint8_t *bytes, size_t size)
{
    const uint64_t polynomial = UINT64_C(0xc96c5795d7870f42);
    uint64_t table[256];
    for (unsigned i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) {
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? polynomial : 0);
        }
    }
    uint64_t crc = UINT64_MAX;
    for (size_t i = 0; i < size; i++) {
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 0xff];
    }
    return ~crc;
}
