#include "cprofiling/base/hash.h"

#include <string.h>

enum { WORD = sizeof(uint64_t), WORD_BITS = 64 };

/* The state so far. */
typedef struct {
    uint64_t v0, v1, v2, v3;
    uint64_t word; /* the bytes that wait until there are eight */
    size_t length; /* of all */
} state;

static inline uint64_t rotate(uint64_t word, int bits)
{
    return word << bits | word >> (WORD_BITS - bits);
}

static inline void do_round(state *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v2 += s->v1;
    s->v0 = rotate(s->v0, 32) + s->v3;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 = rotate(s->v2, 32);
}

static inline void add_word(state *s, uint64_t word)
{
    s->v3 ^= word;
    do_round(s);
    s->v0 ^= word;
}

static inline void add_byte(state *s, unsigned char byte)
{
    s->word |= (uint64_t)byte << s->length % WORD * 8;
    s->length++;
    if (s->length % WORD == 0) {
        add_word(s, s->word);
        s->word = 0;
    }
}

static inline void add_bytes(state *s, cprof_name bytes)
{
    size_t waiting = s->length % WORD * 8; /* bits */
    size_t at = 0;
    for (; bytes.length - at >= WORD; at += WORD) {
        uint64_t eight;
        memcpy(&eight, bytes.bytes + at, sizeof eight);
        add_word(s, s->word | eight << waiting);
        s->word = waiting != 0 ? eight >> (WORD_BITS - waiting) : 0;
    }
    s->length += at;
    for (; at < bytes.length; at++) {
        add_byte(s, (unsigned char)bytes.bytes[at]);
    }
}

uint64_t cprof_hash_names(const uint64_t seed[2], cprof_names names)
{
    state s = {
        .v0 = seed[0] ^ UINT64_C(0x736f6d6570736575),
        .v1 = seed[1] ^ UINT64_C(0x646f72616e646f6d),
        .v2 = seed[0] ^ UINT64_C(0x6c7967656e657261),
        .v3 = seed[1] ^ UINT64_C(0x7465646279746573),
    };
    add_bytes(&s, names.stage);
    add_byte(&s, 0xff);
    add_bytes(&s, names.node);
    add_word(&s, s.word | (uint64_t)s.length << (WORD_BITS - 8));
    s.v2 ^= 0xff;
    do_round(&s);
    do_round(&s);
    do_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
