/* The allocator seam: every byte of the core comes through here, so that tests can make any allocation fail.
 *
 * Thread rule: all functions may be called from any thread; cprof_alloc_set_hooks only while no other thread is in the core.
 */
#ifndef CPROF_ALLOC_H
#define CPROF_ALLOC_H

#include <stddef.h>

typedef struct {
    void *(*zeroed)(size_t size);               /* like calloc(1, size); NULL on failure */
    void *(*resize)(void *memory, size_t size); /* like realloc */
    void (*release)(void *memory);              /* like free; NULL is allowed */
    void *(*map_pages)(size_t size);            /* zero pages that cost nothing until touched; NULL on failure */
    void (*unmap_pages)(void *memory, size_t size);
} cprof_alloc_hooks;

/* `size` zeroed bytes, aligned for any type, owned by the caller; NULL without memory. */
void *cprof_alloc_zeroed(size_t size);

/* Resizes as realloc does: on failure NULL, and `memory` is still valid and owned by the caller. */
void *cprof_alloc_resize(void *memory, size_t size);

/* Gives back what the two functions above returned. NULL is ignored. */
void cprof_alloc_release(void *memory);

/* The items of an array, with room for one more than `count` of `width` bytes: where *capacity of them are taken it is resized,
 * and *capacity doubled, or `first` where it was 0. NULL without memory: then nothing was changed. */
void *cprof_alloc_grow(void *items, size_t *capacity, size_t count, size_t width, size_t first);

/* `bytes` with room for `size`: where *capacity is less it is resized, at least to twice that. NULL without memory: nothing was
 * changed. */
void *cprof_alloc_reserve(void *bytes, size_t *capacity, size_t size);

/* Memory that is given back all at once. Where it is much it is pages, which go back to the system: of what the C library is
 * given back it may keep tens of MB, for each of its arenas, of which threads have different ones. All zero: none yet. */
typedef struct {
    struct cprof_alloc_block *newest;
} cprof_alloc_pool;

/* `size` zeroed bytes of a pool, aligned for any type, or without one as cprof_alloc_zeroed() does; NULL without memory. */
void *cprof_alloc_from(cprof_alloc_pool *pool, size_t size);

/* Gives everything of a pool back. */
void cprof_alloc_release_pool(cprof_alloc_pool *pool);

/* `size` bytes (a multiple of 4,096) of zero pages, which take no memory until written; NULL when refused. */
void *cprof_alloc_map_pages(size_t size);

/* Makes such pages take memory now, all at once, which costs less than each page's first touch. */
void cprof_alloc_touch_pages(void *memory, size_t size);

/* Gives back what cprof_alloc_map_pages(size) returned. NULL is ignored. */
void cprof_alloc_unmap_pages(void *memory, size_t size);

/* The functions in use. */
extern const cprof_alloc_hooks *cprof_alloc_hooks_in_use;

/* The system's functions. */
extern const cprof_alloc_hooks cprof_alloc_system;

/* Replaces the functions above; NULL restores the system's. `hooks` must outlive its use. For tests. */
void cprof_alloc_set_hooks(const cprof_alloc_hooks *hooks);

#endif
