/* names.h */
#include "cprofiling/base/names.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <stdbool.h>
#include <string.h>

enum { MANY = 70000, LONGEST = 4096, BLOCKS = 9, BLOCK = 10 };

static cprof_names key(const char *stage, const char *node)
{
    return (cprof_names){cprof_name_of(stage), cprof_name_of(node)};
}

static void add(cprof_names_table *table, cprof_names names)
{
    size_t index = table->count;
    CHECK_EQUAL(cprof_names_find(table, names), CPROF_NAMES_ABSENT);
    CHECK(cprof_names_add(table, names) == CPROF_OK);
    CHECK_EQUAL(table->count, index + 1);
    CHECK_EQUAL(cprof_names_find(table, names), index);
    CHECK(cprof_names_compare(cprof_names_at(table, index), names) == 0);
}

TEST(empty_table)
{
    cprof_names_table table = {.slots = NULL};
    CHECK_EQUAL(cprof_names_find(&table, key("train", "a")), CPROF_NAMES_ABSENT);
    cprof_names_dispose(&table);
    CHECK_EQUAL(table.count, 0);
}

/* F3: any bytes, and where the stage ends and the node begins counts. */
TEST(unlike_keys)
{
    static const cprof_names keys[] = {
        {{"train", 5}, {"resize", 6}},
        {{"train", 5}, {"Resize", 6}},
        {{"val", 3}, {"resize", 6}},
        {{"trainr", 6}, {"esize", 5}},
        {{"trainresize", 11}, {"", 0}},
        {{"", 0}, {"trainresize", 11}},
        {{"", 0}, {"", 0}},
        {{" ", 1}, {"", 0}},
        {{"", 0}, {" ", 1}},
        {{"resize", 6}, {"train", 5}},
        {{"\xed\xa0\x80", 3}, {"\xff", 1}},
        {{"caf\xc3\xa9", 5}, {"cafe\xcc\x81", 6}},
    };
    enum { KEYS = COUNT_OF(keys) };
    cprof_names_table table = {.slots = NULL};
    for (size_t i = 0; i < KEYS; i++) {
        add(&table, keys[i]);
    }
    for (size_t i = 0; i < KEYS; i++) {
        CHECK_EQUAL(cprof_names_find(&table, keys[i]), i);
    }
    cprof_names_dispose(&table);
}

/* Names are copied, and stay where they are while others are added. */
TEST(names_are_copied)
{
    char stage[] = "test";
    char *node = malloc(LONGEST);
    CHECK(node != NULL);
    memset(node, 'x', LONGEST);
    cprof_names_table table = {.slots = NULL};
    add(&table, (cprof_names){cprof_name_of(stage), {node, LONGEST}});
    stage[0] = '-';
    free(node);
    const char *bytes = cprof_names_at(&table, 0).node.bytes;
    for (int i = 0; i < 100; i++) {
        char number[16];
        (void)snprintf(number, sizeof number, "%d", i);
        add(&table, key("test", number));
    }
    cprof_names kept = cprof_names_at(&table, 0);
    CHECK(kept.node.bytes == bytes);
    CHECK_EQUAL(kept.node.length, LONGEST);
    CHECK(kept.node.bytes[0] == 'x' && kept.node.bytes[LONGEST - 1] == 'x');
    CHECK(cprof_name_is(kept.stage, "test"));
    cprof_names_dispose(&table);
}

/* F5: more keys than a registry ever holds. */
TEST(many_keys)
{
    static char numbers[MANY][8];
    cprof_names_table table = {.slots = NULL};
    for (size_t i = 0; i < MANY; i++) {
        (void)snprintf(numbers[i], sizeof numbers[i], "%zu", i);
        add(&table, key(i % 2 == 0 ? "train" : "val", numbers[i]));
    }
    for (size_t i = 0; i < MANY; i++) {
        CHECK_EQUAL(cprof_names_find(&table, key(i % 2 == 0 ? "train" : "val", numbers[i])), i);
        CHECK_EQUAL(cprof_names_find(&table, key(i % 2 != 0 ? "train" : "val", numbers[i])), CPROF_NAMES_ABSENT);
    }
    cprof_names_dispose(&table);
    CHECK_EQUAL(table.count, 0);
    CHECK_EQUAL(cprof_names_find(&table, key("train", "0")), CPROF_NAMES_ABSENT);
}

/* Of blocks in this order FNV-1a ends in the same 32 bits and more, whichever of two each is. */
static size_t put_colliding(char *name, unsigned which)
{
    static const char blocks[BLOCKS][2][BLOCK + 1] = {
        {"GqoxRMqagq", "puLKLE74zP"}, {"EkKG9vq6xA", "GcNEFn6_Gj"}, {"dKEqFwfuMv", "yTi_j_nEZa"},
        {"6uZFXHg-Hj", "07Nu_qL1cy"}, {"1ng3eTH34W", "3jPAP90bKt"}, {"dQv8OEdEqi", "TUo7iM00Ch"},
        {"mdvSF3SP5s", "AFYU2fof8n"}, {"0OAuFUqU50", "cqz1oL_8MK"}, {"sSQdSogbHt", "wUwnUuKHxH"},
    };
    for (size_t i = 0; i < BLOCKS; i++) {
        memcpy(name + i * BLOCK, blocks[i][which >> i & 1], BLOCK);
    }
    return (size_t)BLOCKS * BLOCK;
}

/* Nobody can make names that are slow to find: tables hash as no other does. */
TEST(crafted_names)
{
    enum { NAMES = 1 << BLOCKS };
    char name[BLOCKS * BLOCK];
    cprof_names_table table = {.slots = NULL};
    cprof_names_table other = {.slots = NULL};
    for (unsigned i = 0; i < NAMES; i++) {
        cprof_names names = {{"", 0}, {name, put_colliding(name, i)}};
        add(&table, names);
        add(&other, names);
    }
    CHECK_EQUAL(table.slot_count, other.slot_count);
    CHECK(check_longest_run(table.slots, table.slot_count) < NAMES / 4);
    CHECK(memcmp(table.slots, other.slots, table.slot_count * sizeof *table.slots) != 0);
    cprof_names_dispose(&table);
    cprof_names_dispose(&other);
}

/* G7: each allocation of each addition fails once; nothing is changed by that. */
TEST(without_memory)
{
    cprof_names_table table = {.slots = NULL};
    uint64_t refusals = 0;
    for (size_t count = 0; count < 100; count++) {
        char number[16];
        (void)snprintf(number, sizeof number, "%zu", count);
        uint64_t nth = 0;
        while (fake_alloc_fail_next(&nth)) {
            cprof_status status = cprof_names_add(&table, key("stage", number));
            bool failed = fake_alloc_has_failed();
            CHECK(status == (failed ? CPROF_NO_MEMORY : CPROF_OK));
            CHECK_EQUAL(table.count, failed ? count : count + 1);
            CHECK_EQUAL(cprof_names_find(&table, key("stage", number)), failed ? CPROF_NAMES_ABSENT : count);
            CHECK(count == 0 || cprof_names_find(&table, key("stage", "0")) == 0);
        }
        refusals += nth - 1;
    }
    CHECK(refusals > 100); /* the names always need memory, and the table when it grows */
    cprof_names_dispose(&table);
}

FAKE_ALLOC_MAIN(NULL, NULL)
