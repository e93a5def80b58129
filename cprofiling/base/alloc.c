#define _GNU_SOURCE
#include "cprofiling/base/alloc.h"

#include <stdalign.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static void *system_zeroed(size_t size)
{
    return calloc(1, size);
}

static void *system_map_pages(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    /* A huge page would make 2 MiB of a sparse table resident at the first touch. */
    (void)madvise(memory, size, MADV_NOHUGEPAGE);
    return memory;
}

static void system_unmap_pages(void *memory, size_t size)
{
    (void)munmap(memory, size);
}

const cprof_alloc_hooks cprof_alloc_system = {
    .zeroed = system_zeroed,
    .resize = realloc,
    .release = free,
    .map_pages = system_map_pages,
    .unmap_pages = system_unmap_pages,
};

const cprof_alloc_hooks *cprof_alloc_hooks_in_use = &cprof_alloc_system;

void *cprof_alloc_zeroed(size_t size)
{
    return cprof_alloc_hooks_in_use->zeroed(size);
}

void *cprof_alloc_resize(void *memory, size_t size)
{
    return cprof_alloc_hooks_in_use->resize(memory, size);
}

void cprof_alloc_release(void *memory)
{
    cprof_alloc_hooks_in_use->release(memory);
}

void *cprof_alloc_map_pages(size_t size)
{
    return cprof_alloc_hooks_in_use->map_pages(size);
}

void cprof_alloc_touch_pages(void *memory, size_t size)
{
    /* Linux before 5.14 refuses; then they are touched one by one. */
    (void)madvise(memory, size, MADV_POPULATE_WRITE);
}

void cprof_alloc_unmap_pages(void *memory, size_t size)
{
    if (memory != NULL) {
        cprof_alloc_hooks_in_use->unmap_pages(memory, size);
    }
}

void cprof_alloc_set_hooks(const cprof_alloc_hooks *hooks)
{
    cprof_alloc_hooks_in_use = hooks != NULL ? hooks : &cprof_alloc_system;
}

void *cprof_alloc_grow(void *items, size_t *capacity, size_t count, size_t width, size_t first)
{
    if (count < *capacity) {
        return items;
    }
    size_t more = *capacity == 0 ? first : *capacity * 2;
    void *grown = cprof_alloc_resize(items, more * width);
    *capacity = grown != NULL ? more : *capacity;
    return grown;
}

void *cprof_alloc_reserve(void *bytes, size_t *capacity, size_t size)
{
    if (size <= *capacity) {
        return bytes;
    }
    size_t more = size < 2 * *capacity ? 2 * *capacity : size;
    void *grown = cprof_alloc_resize(bytes, more);
    *capacity = grown != NULL ? more : *capacity;
    return grown;
}

enum {
    PAGE = 4096,
    MOST_ALLOCATED = 64 * 1024, /* bytes of a pool's block; larger ones are mapped */
    MOST_DOUBLED = 1024 * 1024,
};

struct cprof_alloc_block {
    alignas(max_align_t) struct cprof_alloc_block *before;
    size_t size; /* with this head */
    size_t used;
};

static struct cprof_alloc_block *add_block(cprof_alloc_pool *pool, size_t least)
{
    struct cprof_alloc_block *before = pool->newest;
    size_t size = before == NULL ? PAGE : before->size < MOST_DOUBLED ? before->size * 2 : MOST_DOUBLED;
    size = size < least ? (least + PAGE - 1) / PAGE * PAGE : size;
    struct cprof_alloc_block *block = size <= MOST_ALLOCATED ? cprof_alloc_zeroed(size) : cprof_alloc_map_pages(size);
    if (block != NULL) {
        if (size > MOST_ALLOCATED) {
            cprof_alloc_touch_pages(block, size);
        }
        *block = (struct cprof_alloc_block){.before = before, .size = size, .used = sizeof *block};
        pool->newest = block;
    }
    return block;
}

void *cprof_alloc_from(cprof_alloc_pool *pool, size_t size)
{
    if (pool == NULL) {
        return cprof_alloc_zeroed(size);
    }
    size = (size + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    struct cprof_alloc_block *block = pool->newest;
    if (block == NULL || size > block->size - block->used) {
        block = add_block(pool, sizeof *block + size);
    }
    if (block == NULL) {
        return NULL;
    }
    void *memory = (char *)block + block->used;
    block->used += size;
    return memory;
}

void cprof_alloc_release_pool(cprof_alloc_pool *pool)
{
    for (struct cprof_alloc_block *block = pool->newest; block != NULL; block = pool->newest) {
        pool->newest = block->before;
        if (block->size <= MOST_ALLOCATED) {
            cprof_alloc_release(block);
        } else {
            cprof_alloc_unmap_pages(block, block->size);
        }
    }
}
