/* The checksum of the files of this package: CRC-64 with the polynomial of ECMA-182 (1992), reflected, as in .xz files. */
#ifndef CPROF_CHECKSUM_H
#define CPROF_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of `size` bytes. Any thread. */
uint64_t cprof_checksum(const uint8_t *bytes, size_t size);

/* The checksum of two runs of bytes together, of both of theirs; `size` is that of the second. */
uint64_t cprof_checksum_join(uint64_t first, uint64_t second, uint64_t size);

#endif
