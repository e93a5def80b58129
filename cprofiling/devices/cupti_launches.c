#include "cprofiling/devices/cupti_launches.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/nodes/registry.h"

struct cprof_cupti_launch_place {
    cprof_lock lock; /* guards the rest */
    uint32_t number; /* 0: nothing was put here */
    uint32_t outer;
    cprof_cupti_node node; /* of an outermost call */
    cprof_ticks start;
};

static const size_t all_bytes = CPROF_CUPTI_LAUNCHES * sizeof(struct cprof_cupti_launch_place);

_Static_assert(CPROF_CUPTI_LAUNCH_BLOCK * sizeof(struct cprof_cupti_launch_place) % 4096 == 0, "whole pages");

bool cprof_cupti_launches_create(cprof_cupti_launches *launches)
{
    if (atomic_load(&launches->places) == NULL) {
        atomic_store(&launches->places, cprof_alloc_map_pages(all_bytes));
    }
    return atomic_load(&launches->places) != NULL;
}

/* Where a number has its place, locked; NULL in an empty table. */
static struct cprof_cupti_launch_place *lock_place(const cprof_cupti_launches *launches, uint32_t number)
{
    struct cprof_cupti_launch_place *places = atomic_load_explicit(&launches->places, memory_order_acquire);
    if (places == NULL) {
        return NULL;
    }
    struct cprof_cupti_launch_place *place = &places[number % CPROF_CUPTI_LAUNCHES];
    cprof_lock_acquire(&place->lock);
    return place;
}

static void put(cprof_cupti_launches *launches, uint32_t number, uint32_t outer, cprof_cupti_node node, cprof_ticks start)
{
    struct cprof_cupti_launch_place *place = lock_place(launches, number);
    if (place != NULL) {
        place->number = number;
        place->outer = outer;
        place->node = node;
        place->start = start;
        cprof_lock_release(&place->lock);
    }
}

static void set_once(_Atomic bool *flag)
{
    if (!atomic_load_explicit(flag, memory_order_relaxed)) {
        atomic_store(flag, true);
    }
}

void cprof_cupti_launches_put(cprof_cupti_launches *launches, uint32_t number, cprof_cupti_node node, cprof_ticks start)
{
    if (node.accum != NULL) {
        set_once(&launches->has_nodes[number % CPROF_CUPTI_LAUNCHES / CPROF_CUPTI_LAUNCH_BLOCK]);
        set_once(&node.accum->registry->has_launched);
    }
    put(launches, number, number, node, start);
}

void cprof_cupti_launches_put_inner(cprof_cupti_launches *launches, uint32_t number, uint32_t outer)
{
    put(launches, number, outer, (cprof_cupti_node){.accum = NULL}, 0);
}

/* What is remembered of exactly this number. */
static bool find(const cprof_cupti_launches *launches, uint32_t number, cprof_cupti_launch *launch)
{
    struct cprof_cupti_launch_place *place = lock_place(launches, number);
    if (place == NULL) {
        return false;
    }
    bool is_there = number != 0 && place->number == number;
    *launch = (cprof_cupti_launch){place->outer, place->start};
    cprof_lock_release(&place->lock);
    return is_there;
}

bool cprof_cupti_launches_find(const cprof_cupti_launches *launches, uint32_t number, cprof_cupti_launch *launch)
{
    return find(launches, number, launch) && (launch->outer == number || find(launches, launch->outer, launch));
}

void cprof_cupti_launches_count(cprof_cupti_launches *launches, uint32_t outer, const cprof_launch_counts *counts)
{
    struct cprof_cupti_launch_place *place = lock_place(launches, outer);
    if (place != NULL) {
        if (place->number == outer && place->node.accum != NULL) {
            cprof_accum_add_launches(place->node.accum, place->node.generation, counts);
        }
        cprof_lock_release(&place->lock);
    }
}

static void forget_block(cprof_cupti_launches *launches, uint32_t block, const cprof_registry *registry)
{
    uint32_t first = block * CPROF_CUPTI_LAUNCH_BLOCK;
    for (uint32_t i = first; i < first + CPROF_CUPTI_LAUNCH_BLOCK; i++) {
        struct cprof_cupti_launch_place *place = lock_place(launches, i);
        if (place->node.accum != NULL && place->node.accum->registry == registry) {
            place->node.accum = NULL;
        }
        cprof_lock_release(&place->lock);
    }
}

void cprof_cupti_launches_forget(cprof_cupti_launches *launches, const cprof_registry *registry)
{
    if (!atomic_load(&registry->has_launched) || atomic_load(&launches->places) == NULL) {
        return;
    }
    for (uint32_t block = 0; block < CPROF_CUPTI_LAUNCH_BLOCKS; block++) {
        if (atomic_load(&launches->has_nodes[block])) {
            forget_block(launches, block, registry);
        }
    }
}

void cprof_cupti_launches_dispose(cprof_cupti_launches *launches)
{
    cprof_alloc_unmap_pages(atomic_exchange(&launches->places, NULL), all_bytes);
}
