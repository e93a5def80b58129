/* Integers in bytes, little-endian as all supported machines, and unaligned, as all files of this package have them. */
#ifndef CPROF_BYTES_H
#define CPROF_BYTES_H

#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "integers are copied as they are");

/* Writes the lowest `width` bytes (1 to 8) of a value. */
static inline void cprof_bytes_store(uint8_t *at, uint64_t value, unsigned width)
{
    memcpy(at, &value, width);
}

/* Reads a value of `width` bytes (1 to 8). */
static inline uint64_t cprof_bytes_load(const uint8_t *at, unsigned width)
{
    uint64_t value = 0;
    memcpy(&value, at, width);
    return value;
}

#endif
