/* alloc.h, and the failing allocator that the other programs put in its place. */
#define _GNU_SOURCE
#include "cprofiling/base/alloc.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 600 };

static bool is_zero(const void *memory, size_t size)
{
    const unsigned char *bytes = memory;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* More than any machine has; not a constant, or the compiler would warn of it. */
static size_t too_much(void)
{
    volatile size_t half = SIZE_MAX / 2;
    return half / PAGE * PAGE;
}

TEST(zeroed)
{
    for (size_t size = 1; size <= 100000; size *= 10) {
        unsigned char *memory = cprof_alloc_zeroed(size);
        CHECK(memory != NULL);
        CHECK((uintptr_t)memory % alignof(max_align_t) == 0);
        CHECK(is_zero(memory, size));
        memset(memory, 0xa5, size);
        cprof_alloc_release(memory);
    }
}

TEST(resize_keeps_the_contents)
{
    char *memory = cprof_alloc_resize(NULL, 6);
    CHECK(memory != NULL);
    memcpy(memory, "five.", 6);
    memory = cprof_alloc_resize(memory, 100000);
    CHECK(memory != NULL);
    CHECK(strcmp(memory, "five.") == 0);
    CHECK(cprof_alloc_resize(memory, too_much()) == NULL);
    CHECK(strcmp(memory, "five.") == 0);
    cprof_alloc_release(memory);
}

TEST(refusal)
{
    CHECK(cprof_alloc_zeroed(too_much()) == NULL);
    CHECK(cprof_alloc_map_pages(too_much()) == NULL);
}

TEST(null_is_ignored)
{
    cprof_alloc_release(NULL);
    cprof_alloc_unmap_pages(NULL, PAGE);
}

static size_t resident_pages(void *memory)
{
    unsigned char in_core[PAGES];
    size_t count = 0;
    CHECK(mincore(memory, sizeof in_core * PAGE, in_core) == 0);
    for (size_t i = 0; i < PAGES; i++) {
        count += in_core[i] & 1;
    }
    return count;
}

TEST(pages_cost_nothing_until_written)
{
    char *memory = cprof_alloc_map_pages((size_t)PAGES * PAGE);
    CHECK(memory != NULL);
    CHECK((uintptr_t)memory % PAGE == 0);
    CHECK_EQUAL(resident_pages(memory), 0);
    memory[PAGES / 2 * PAGE] = 1;
    CHECK_EQUAL(resident_pages(memory), 1);
    memory[PAGES / 2 * PAGE] = 0;
    CHECK(is_zero(memory, (size_t)PAGES * PAGE));
    cprof_alloc_unmap_pages(memory, (size_t)PAGES * PAGE);
}

TEST(pools)
{
    cprof_alloc_pool pool = {.newest = NULL};
    unsigned char *pieces[100];
    for (size_t i = 0; i < 100; i++) {
        size_t size = 1 + i * i * i; /* the largest have a million bytes */
        pieces[i] = cprof_alloc_from(&pool, size);
        CHECK(pieces[i] != NULL && (uintptr_t)pieces[i] % alignof(max_align_t) == 0);
        CHECK(is_zero(pieces[i], size));
        memset(pieces[i], (int)i, size);
    }
    for (size_t i = 0; i < 100; i++) {
        CHECK(pieces[i][0] == i && pieces[i][i * i * i] == i);
    }
    CHECK(cprof_alloc_from(&pool, too_much()) == NULL);
    CHECK_EQUAL(pieces[99][0], 99);
    cprof_alloc_release_pool(&pool);
    CHECK(pool.newest == NULL);
    cprof_alloc_release_pool(&pool);
    void *alone = cprof_alloc_from(NULL, 10);
    CHECK(alone != NULL && is_zero(alone, 10));
    cprof_alloc_release(alone);
}

/* What a pool takes beyond a little is mapped, and so is nothing that the C library could keep. */
TEST(large_pools_are_pages)
{
    cprof_alloc_pool pool = {.newest = NULL};
    fake_alloc_install();
    uint64_t mapped = fake_alloc_mapped_bytes();
    for (int i = 0; i < 100; i++) {
        CHECK(cprof_alloc_from(&pool, 10) != NULL);
    }
    CHECK_EQUAL(fake_alloc_mapped_bytes(), mapped);
    for (int i = 0; i < 1000; i++) {
        CHECK(cprof_alloc_from(&pool, 1000) != NULL);
    }
    CHECK(fake_alloc_live_bytes() > 1000 * 1000);
    CHECK(fake_alloc_live_bytes() - (fake_alloc_mapped_bytes() - mapped) < 200000);
    fake_alloc_fail(1);
    CHECK(cprof_alloc_from(&pool, 2000000) == NULL);
    cprof_alloc_release_pool(&pool);
    CHECK_EQUAL(fake_alloc_live(), 0);
    cprof_alloc_set_hooks(NULL);
}

static void check_refused_once(uint64_t nth)
{
    fake_alloc_fail(nth);
    for (uint64_t i = 1; i <= 3; i++) {
        void *memory = cprof_alloc_zeroed(8);
        CHECK((memory == NULL) == (i == nth));
        cprof_alloc_release(memory);
    }
    CHECK(fake_alloc_has_failed() == (nth >= 1 && nth <= 3));
}

TEST(hooks_replace_every_function)
{
    uint64_t made = fake_alloc_made();
    fake_alloc_install();
    void *zeroed = cprof_alloc_zeroed(10);
    void *resized = cprof_alloc_resize(NULL, 10);
    resized = cprof_alloc_resize(resized, 20);
    void *pages = cprof_alloc_map_pages(PAGE);
    CHECK(zeroed != NULL && resized != NULL && pages != NULL);
    CHECK_EQUAL(fake_alloc_made(), made + 3);
    CHECK_EQUAL(fake_alloc_live(), 3);
    cprof_alloc_release(zeroed);
    cprof_alloc_release(resized);
    cprof_alloc_unmap_pages(pages, PAGE);
    cprof_alloc_release(NULL);
    CHECK_EQUAL(fake_alloc_live(), 0);
    for (uint64_t nth = 0; nth <= 4; nth++) {
        check_refused_once(nth);
    }
    fake_alloc_fail(1);
    CHECK(cprof_alloc_resize(NULL, 10) == NULL);
    fake_alloc_fail(1);
    CHECK(cprof_alloc_map_pages(PAGE) == NULL);
}

TEST(null_restores_the_system)
{
    uint64_t made = fake_alloc_made();
    cprof_alloc_set_hooks(NULL);
    void *memory = cprof_alloc_zeroed(10);
    CHECK(memory != NULL);
    cprof_alloc_release(memory);
    CHECK_EQUAL(fake_alloc_made(), made);
}

TEST(arrays_grow)
{
    fake_alloc_install();
    size_t capacity = 0;
    uint64_t *items = NULL;
    for (size_t i = 0; i < 100; i++) {
        items = cprof_alloc_grow(items, &capacity, i, sizeof *items, 3);
        CHECK(items != NULL && capacity > i && (capacity % 3) == 0);
        items[i] = i;
    }
    CHECK_EQUAL(items[99], 99);
    CHECK_EQUAL(capacity, 192);
    fake_alloc_fail(1);
    CHECK(cprof_alloc_grow(items, &capacity, 192, sizeof *items, 3) == NULL);
    CHECK_EQUAL(capacity, 192);
    CHECK_EQUAL(items[99], 99);
    cprof_alloc_release(items);
}

TEST_MAIN(NULL, NULL)
