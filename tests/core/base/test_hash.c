/* hash.h */
#include "cprofiling/base/hash.h"

#include "tests/core/check.h"

enum { LETTERS = 20, CRAFTED = 1000, SLOTS = 4096 };

/* Those of CPython 3.11 with PYTHONHASHSEED=1, where the hash of bytes is SipHash-1-3. */
static const uint64_t seed[2] = {UINT64_C(0xaed66ce184be2329), UINT64_C(0xebe9bbf1f1499052)};

static cprof_names key(const char *stage, const char *node)
{
    return (cprof_names){cprof_name_of(stage), cprof_name_of(node)};
}

TEST(names)
{
    static char many[301];
    CHECK_EQUAL(cprof_hash_names(seed, key("", "")), UINT64_C(0xf35a902b13e5b892));
    CHECK_EQUAL(cprof_hash_names(seed, key("train", "resize")), UINT64_C(0x5e832a7795fb157f));
    CHECK_EQUAL(cprof_hash_names(seed, key("trainr", "esize")), UINT64_C(0x7c444e9816442e74));
    CHECK_EQUAL(cprof_hash_names(seed, key("inference", "ProfilerStep#17")), UINT64_C(0x64dc0ec4c5431c43));
    memset(many, 'x', sizeof many - 1);
    CHECK_EQUAL(cprof_hash_names(seed, key("", many)), UINT64_C(0xeadacb28d795a673));
}

/* Both names may end anywhere in a word. */
TEST(lengths)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    uint64_t all = 0;
    for (size_t i = 0; i < LETTERS; i++) {
        for (size_t j = 0; j < LETTERS; j++) {
            cprof_names names = {{letters, i}, {letters, j}};
            all = (all << 1 | all >> 63) ^ cprof_hash_names(seed, names);
        }
    }
    CHECK_EQUAL(all, UINT64_C(0x18d2812fc4883bf1));
}

/* The first numbers that SplitMix64 makes from 0. */
TEST(mix)
{
    CHECK_EQUAL(cprof_hash_mix(0, UINT64_C(0x9e3779b97f4a7c15)), UINT64_C(0xe220a8397b1dcdaf));
    CHECK_EQUAL(cprof_hash_mix(0, 2 * UINT64_C(0x9e3779b97f4a7c15)), UINT64_C(0x6e789e6aa1b965f4));
    CHECK_EQUAL(cprof_hash_mix(5, 5), 0);
}

/* Of these numbers, (x ^ x >> 32) * 0x9e37...7c15, folded once, ends in the same 32 bits. */
static uint64_t crafted(uint64_t i)
{
    uint64_t folded = (i << 32 | (i ^ 12345)) * UINT64_C(0xf1de83e19937733d);
    return folded ^ folded >> 32;
}

/* How many slots of a table they take, and how many are in the one that they were in with another seed. */
TEST(crafted_numbers_are_spread)
{
    static uint8_t taken[SLOTS];
    int slots = 0;
    int stay = 0;
    for (uint64_t i = 1; i <= CRAFTED; i++) {
        size_t slot = cprof_hash_mix(seed[0], crafted(i)) % SLOTS;
        slots += taken[slot]++ == 0;
        stay += slot == cprof_hash_mix(seed[1], crafted(i)) % SLOTS;
    }
    CHECK(slots > CRAFTED * 3 / 4);
    CHECK(stay < CRAFTED / 20);
}

TEST_MAIN(NULL, NULL)
