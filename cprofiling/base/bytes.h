/* Integers in bytes, little-endian and unaligned, as all files of this package have them. */
#ifndef CPROF_BYTES_H
#define CPROF_BYTES_H

#include <stdint.h>

/* Writes the lowest `width` bytes (1 to 8) of a value. */
static inline void cprof_bytes_store(uint8_t *at, uint64_t value, unsigned width)
{
    for (unsigned i = 0; i < width; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

/* Reads a value of `width` bytes (1 to 8). */
static inline uint64_t cprof_bytes_load(const uint8_t *at, unsigned width)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < width; i++) {
        value |= (uint64_t)at[i] << 8 * i;
    }
    return value;
}

#endif
