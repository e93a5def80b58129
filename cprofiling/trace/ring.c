#include "cprofiling/trace/ring.h"

#include "cprofiling/base/alloc.h"

enum {
    FIRST_CHUNK = 64, /* events, a page of them: a thread may come for one */
    MOST_IN_CHUNK = 4096,
};

/* The bytes of whole pages in which so many fit. */
static size_t page_bytes(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

void cprof_ring_free_chunk(const cprof_ring_chunk *old)
{
    cprof_alloc_unmap_pages(old->events, page_bytes(old->size * sizeof *old->events));
    cprof_alloc_unmap_pages(old->details, page_bytes(old->size * sizeof *old->details));
}

static bool make_chunk(const struct cprof_ring *ring, cprof_ring_chunk *made)
{
    bool details = ring->has_details;
    size_t size = ring->chunk_count < 6 ? (size_t)FIRST_CHUNK << ring->chunk_count : MOST_IN_CHUNK;
    *made = (cprof_ring_chunk){.size = size < ring->room ? size : (size_t)ring->room};
    made->events = cprof_alloc_map_pages(page_bytes(made->size * sizeof *made->events));
    made->details = details ? cprof_alloc_map_pages(page_bytes(made->size * sizeof *made->details)) : NULL;
    if (made->events == NULL || (details && made->details == NULL)) {
        cprof_ring_free_chunk(made);
        return false;
    }
    cprof_alloc_touch_pages(made->events, page_bytes(made->size * sizeof *made->events));
    return true;
}

static bool add_chunk(struct cprof_ring *ring)
{
    cprof_ring_chunk *chunks = cprof_alloc_grow(ring->chunks, &ring->chunk_capacity, ring->chunk_count, sizeof *chunks, 8);
    if (chunks == NULL) {
        return false;
    }
    ring->chunks = chunks;
    if (!make_chunk(ring, &ring->chunks[ring->chunk_count])) {
        return false;
    }
    ring->room -= ring->chunks[ring->chunk_count].size;
    ring->chunk_count++;
    return true;
}

bool cprof_ring_advance(struct cprof_ring *ring)
{
    size_t next = ring->at != NULL ? ring->current + 1 : 0;
    if (next == ring->chunk_count && (ring->room == 0 || !add_chunk(ring))) {
        ring->room = 0;
        if (ring->drop_newest || ring->chunk_count == 0) {
            return false;
        }
        next = 0;
    }
    ring->current = next;
    ring->at = ring->chunks[next].events;
    ring->end = ring->at + ring->chunks[next].size;
    return true;
}

void cprof_ring_free(struct cprof_ring *ring)
{
    for (size_t i = 0; i < ring->chunk_count; i++) {
        cprof_ring_free_chunk(&ring->chunks[i]);
    }
    cprof_alloc_release(ring->chunks);
    cprof_alloc_release(ring);
}
