/* One node of one registry, made anew for each test. */
#ifndef TESTS_CORE_NODE_H
#define TESTS_CORE_NODE_H

#include "cprofiling/nodes/registry.h"

#include "tests/core/check.h"

#include <string.h>

static cprof_registry *registry;
static cprof_accum *accum;
static uint64_t all_counts[CPROF_HISTOGRAM_BUCKETS];

static inline void set_up(void)
{
    registry = cprof_registry_create(0);
    CHECK(registry != NULL);
    cprof_registry_configure(registry, CPROF_FLAG_STATS, 0, false);
    accum = cprof_registry_accum(registry, (cprof_names){{"train", 5}, {"node", 4}});
    CHECK(accum != NULL);
}

static inline void tear_down(void)
{
    cprof_registry_destroy(registry);
}

static inline void skip_first(uint64_t calls)
{
    cprof_registry_configure(registry, (unsigned)cprof_registry_state(registry) & CPROF_FLAG_ALL, calls, false);
}

static inline uint64_t generation(void)
{
    return cprof_epoch_present(&registry->epoch).generation;
}

/* The figures of now, with the histogram in `all_counts`. */
static inline cprof_figures figures_now(void)
{
    cprof_figures figures;
    uint64_t order;
    memset(all_counts, 0, sizeof all_counts);
    cprof_generation now = cprof_epoch_present(&registry->epoch);
    CHECK(cprof_accum_copy(accum, &now, INT64_MAX, &figures, all_counts, &order, NULL) == CPROF_OK);
    return figures;
}

#endif
