/* Hashes that are seeded: where a seed is random, nobody can make keys that are slow to find in a table. */
#ifndef CPROF_HASH_H
#define CPROF_HASH_H

#include "cprofiling/base/text.h"

/* Two numbers as one, told from its neighbours in all bits, and, of one seed, from that of all other numbers: the finaliser of
 * SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t cprof_hash_mix(uint64_t seed, uint64_t number)
{
    number ^= seed;
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

/* The hash of both names of a key: SipHash-1-3 (Aumasson, Bernstein 2012) of the stage, a byte 0xff and the node's name. */
uint64_t cprof_hash_names(const uint64_t seed[2], cprof_names names);

#endif
