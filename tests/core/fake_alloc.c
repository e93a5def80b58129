#include "tests/core/fake_alloc.h"

#include "cprofiling/base/alloc.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

static _Atomic int64_t until_failure; /* 1: the next allocation fails; 0 and below: none does */
static _Atomic bool goes_on_failing;
static _Atomic bool has_failed;
static _Atomic uint64_t made;
static _Atomic uint64_t live;
static _Atomic uint64_t live_bytes;
static _Atomic uint64_t peak_bytes;
static _Atomic uint64_t mapped_bytes;

static bool is_refused(void)
{
    if (atomic_load(&until_failure) > 0 && atomic_fetch_sub(&until_failure, 1) == 1) {
        atomic_store(&has_failed, true);
        return true;
    }
    return atomic_load(&goes_on_failing) && atomic_load(&has_failed);
}

static void count_bytes(void *memory)
{
    uint64_t now = atomic_fetch_add(&live_bytes, malloc_usable_size(memory)) + malloc_usable_size(memory);
    uint64_t peak = atomic_load(&peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {
    }
}

static void *count(void *memory)
{
    if (memory != NULL) {
        atomic_fetch_add(&made, 1);
        atomic_fetch_add(&live, 1);
        count_bytes(memory);
    }
    return memory;
}

static void *fake_zeroed(size_t size)
{
    return is_refused() ? NULL : count(calloc(1, size));
}

static void *fake_resize(void *memory, size_t size)
{
    if (is_refused()) {
        return NULL;
    }
    if (memory == NULL) {
        return count(malloc(size));
    }
    size_t before = malloc_usable_size(memory);
    void *resized = realloc(memory, size);
    if (resized != NULL) {
        atomic_fetch_sub(&live_bytes, before);
        count_bytes(resized);
    }
    return resized;
}

static void fake_release(void *memory)
{
    if (memory != NULL) {
        atomic_fetch_sub(&live, 1);
        atomic_fetch_sub(&live_bytes, malloc_usable_size(memory));
        free(memory);
    }
}

static void *fake_map_pages(size_t size)
{
    void *memory = is_refused() ? NULL : count(aligned_alloc(PAGE, size));
    if (memory == NULL) {
        return NULL;
    }
    atomic_fetch_add(&mapped_bytes, size);
    return memset(memory, 0, size);
}

static void fake_unmap_pages(void *memory, size_t size)
{
    (void)size;
    fake_release(memory);
}

static const cprof_alloc_hooks hooks = {
    .zeroed = fake_zeroed,
    .resize = fake_resize,
    .release = fake_release,
    .map_pages = fake_map_pages,
    .unmap_pages = fake_unmap_pages,
};

void fake_alloc_install(void)
{
    cprof_alloc_set_hooks(&hooks);
}

void fake_alloc_fail(uint64_t nth)
{
    atomic_store(&goes_on_failing, false);
    atomic_store(&has_failed, false);
    atomic_store(&until_failure, (int64_t)nth);
}

void fake_alloc_fail_from(uint64_t nth)
{
    fake_alloc_fail(nth);
    atomic_store(&goes_on_failing, true);
}

bool fake_alloc_has_failed(void)
{
    atomic_store(&until_failure, 0);
    atomic_store(&goes_on_failing, false);
    return atomic_load(&has_failed);
}

bool fake_alloc_fail_next(uint64_t *nth)
{
    static bool with_later;
    bool goes_on = *nth == 0 || fake_alloc_has_failed();
    with_later = *nth > 0 && !with_later;
    if (goes_on && with_later) {
        fake_alloc_fail_from(*nth);
    } else {
        fake_alloc_fail(goes_on ? ++*nth : 0);
    }
    return goes_on;
}

uint64_t fake_alloc_made(void)
{
    return atomic_load(&made);
}

uint64_t fake_alloc_live(void)
{
    return atomic_load(&live);
}

uint64_t fake_alloc_live_bytes(void)
{
    return atomic_load(&live_bytes);
}

uint64_t fake_alloc_peak_bytes(void)
{
    return atomic_exchange(&peak_bytes, atomic_load(&live_bytes));
}

uint64_t fake_alloc_mapped_bytes(void)
{
    return atomic_load(&mapped_bytes);
}
