/* text.h */
#include "cprofiling/base/text.h"

#include "tests/core/check.h"

#include <string.h>

/* A copy of exactly these bytes, so that reading beyond them is noticed. */
static char *copy_of(const char *bytes, size_t length)
{
    char *copy = malloc(length > 0 ? length : 1);
    CHECK(copy != NULL);
    memcpy(copy, bytes, length);
    return copy;
}

static void check(const char *bytes, size_t length, const char *repaired, size_t repaired_length)
{
    char out[200];
    char *copy = copy_of(bytes, length);
    bool valid = length == repaired_length && memcmp(bytes, repaired, length) == 0;
    CHECK(cprof_text_is_valid((cprof_name){copy, length}) == valid);
    CHECK_EQUAL(cprof_text_repair((cprof_name){copy, length}, NULL), repaired_length);
    CHECK_EQUAL(cprof_text_repair((cprof_name){copy, length}, out), repaired_length);
    CHECK(memcmp(out, repaired, repaired_length) == 0);
    CHECK(cprof_text_is_valid((cprof_name){out, repaired_length}));
    free(copy);
}

#define CHECK_REPAIR(bytes, repaired) check(bytes, sizeof(bytes) - 1, repaired, sizeof(repaired) - 1)
#define CHECK_VALID(bytes) CHECK_REPAIR(bytes, bytes)
#define BAD "\xef\xbf\xbd"

TEST(characters)
{
    CHECK_VALID("");
    CHECK_VALID("a\0\x7f");
    CHECK_VALID("a text that is longer than a word");
    CHECK_VALID("a text that has, late, a caf\xc3\xa9 and more behind it");
    CHECK_VALID("\xc2\x80\xdf\xbf");
    CHECK_VALID("\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf");
    CHECK_VALID("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
}

TEST(what_is_no_character)
{
    CHECK_REPAIR("\x80", BAD);
    CHECK_REPAIR("\xff"
                 "a",
                 BAD "a");
    CHECK_REPAIR("\xc0\x80", BAD BAD);
    CHECK_REPAIR("\xc1\xbf", BAD BAD);
    CHECK_REPAIR("\xc3", BAD);
    CHECK_REPAIR("\xc3"
                 "a",
                 BAD "a");
    CHECK_REPAIR("\xe0\x9f\xbf", BAD BAD BAD);
    CHECK_REPAIR("\xe2\x82", BAD BAD);
    CHECK_REPAIR("\xe2\x82\xc3\xa9", BAD BAD "\xc3\xa9");
    CHECK_REPAIR("\xf0\x8f\xbf\xbf", BAD BAD BAD BAD);
    CHECK_REPAIR("\xf4\x90\x80\x80", BAD BAD BAD BAD);
    CHECK_REPAIR("\xf5\x80\x80\x80", BAD BAD BAD BAD);
    CHECK_REPAIR("\xf0\x9f\x98", BAD BAD BAD);
    CHECK_REPAIR("long enough for a word \xff and so on", "long enough for a word " BAD " and so on");
}

/* A surrogate is one thing, and no character. */
TEST(surrogates)
{
    uint32_t code = 0;
    CHECK_REPAIR("\xed\xa0\x80", BAD);
    CHECK_REPAIR("\xed\xbf\xbf\xed\xa0\xbd!", BAD BAD "!");
    CHECK_EQUAL(cprof_text_decode("\xed\xbf\xbf", 3, &code), 3);
    CHECK_EQUAL(code, 0xdfff);
}

/* All codes there are, by the definition of their bytes. */
TEST(all_codes)
{
    for (uint32_t wanted = 0; wanted <= 0x10ffff; wanted++) {
        unsigned char bytes[4] = {(unsigned char)wanted};
        size_t length = wanted < 0x80 ? 1 : wanted < 0x800 ? 2 : wanted < 0x10000 ? 3 : 4;
        static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
        uint32_t rest = wanted;
        for (size_t i = length; length > 1 && i-- > 1; rest >>= 6) {
            bytes[i] = (unsigned char)(0x80 | (rest & 0x3f));
        }
        bytes[0] = (unsigned char)(marks[length] | rest);
        uint32_t code = 0;
        CHECK_EQUAL(cprof_text_decode((const char *)bytes, length, &code), length);
        CHECK_EQUAL(code, wanted);
        CHECK(length == 1 || cprof_text_decode((const char *)bytes, length - 1, &code) == 0);
    }
}

TEST_MAIN(NULL, NULL)
