#include "cprofiling/devices/cupti_store.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/nodes/registry.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <sys/mman.h>

static cprof_cupti_launches launches;

TEST(an_empty_table_knows_nothing)
{
    cprof_cupti_launch launch;
    cprof_cupti_launches_put(&launches, 5, (cprof_cupti_node){.accum = NULL}, 7);
    cprof_cupti_launches_count(&launches, 5, &(cprof_launch_counts){.kernels = 1});
    CHECK(!cprof_cupti_launches_find(&launches, 5, &launch));
    cprof_registry *registry = cprof_registry_create(1);
    CHECK(registry != NULL);
    atomic_store(&registry->has_launched, true);
    cprof_cupti_launches_forget(&launches, registry);
    cprof_registry_destroy(registry);
}

TEST(without_memory_there_is_none)
{
    fake_alloc_fail(1);
    CHECK(!cprof_cupti_launches_create(&launches));
    CHECK(fake_alloc_has_failed());
    CHECK(cprof_cupti_launches_create(&launches));
    CHECK(cprof_cupti_launches_create(&launches)); /* again: the same */
    CHECK_EQUAL(fake_alloc_live(), 1);
}

TEST(calls_are_found_until_another_takes_their_place)
{
    cprof_cupti_launch launch;
    cprof_cupti_launches_put(&launches, 5, (cprof_cupti_node){.accum = NULL}, 70);
    cprof_cupti_launches_put_inner(&launches, 6, 5);
    CHECK(cprof_cupti_launches_find(&launches, 5, &launch) && launch.outer == 5 && launch.start == 70);
    CHECK(cprof_cupti_launches_find(&launches, 6, &launch) && launch.outer == 5 && launch.start == 70);
    CHECK(!cprof_cupti_launches_find(&launches, 7, &launch));
    CHECK(!cprof_cupti_launches_find(&launches, 0, &launch));
    cprof_cupti_launches_put(&launches, 5 + CPROF_CUPTI_LAUNCHES, (cprof_cupti_node){.accum = NULL}, 80);
    CHECK(!cprof_cupti_launches_find(&launches, 5, &launch));
    CHECK(!cprof_cupti_launches_find(&launches, 6, &launch));
    cprof_cupti_launches_put(&launches, UINT32_MAX, (cprof_cupti_node){.accum = NULL}, 90);
    CHECK(cprof_cupti_launches_find(&launches, UINT32_MAX, &launch) && launch.start == 90);
}

TEST(what_comes_of_a_call_goes_to_its_node)
{
    cprof_registry *registry = cprof_registry_create(1);
    cprof_registry *other = cprof_registry_create(1);
    cprof_accum *accum = cprof_registry_accum(registry, (cprof_names){cprof_name_of("inference"), cprof_name_of("node")});
    uint64_t generation = cprof_registry_state(registry) >> CPROF_STATE_GENERATION_SHIFT;
    const cprof_launch_counts one = {.kernels = 1, .kernel_ns = 50};
    cprof_cupti_launches_put(&launches, 100, (cprof_cupti_node){accum, generation}, 0);
    cprof_cupti_launches_put(&launches, 101, (cprof_cupti_node){.accum = NULL}, 0);
    cprof_cupti_launches_count(&launches, 100, &one);
    cprof_cupti_launches_count(&launches, 101, &one);
    cprof_cupti_launches_count(&launches, 100 + CPROF_CUPTI_LAUNCHES, &one);
    cprof_cupti_launches_forget(&launches, other);
    cprof_cupti_launches_count(&launches, 100, &one);
    CHECK_EQUAL(accum->extra->figures.launched.kernels, 2);
    cprof_cupti_launches_forget(&launches, registry);
    cprof_cupti_launches_count(&launches, 100, &one);
    CHECK_EQUAL(accum->extra->figures.launched.kernel_ns, 100);
    cprof_registry_destroy(other);
    cprof_registry_destroy(registry);
}

static void protect(char *from, const char *to, int protection)
{
    CHECK(mprotect(from, (size_t)(to - from), protection) == 0);
}

/* Who looks at a place that is protected is killed. */
TEST(what_has_nothing_to_forget_looks_at_nothing)
{
    cprof_cupti_launches_dispose(&launches);
    launches = (cprof_cupti_launches){.places = NULL};
    CHECK(cprof_cupti_launches_create(&launches));
    char *first = (char *)atomic_load(&launches.places);
    const char *end = first + (size_t)CPROF_CUPTI_LAUNCHES * 40;
    char *block = first + (size_t)3 * CPROF_CUPTI_LAUNCH_BLOCK * 40;
    char *behind = block + (size_t)CPROF_CUPTI_LAUNCH_BLOCK * 40;
    cprof_registry *registry = cprof_registry_create(1);
    cprof_registry *other = cprof_registry_create(1);
    cprof_accum *accum = cprof_registry_accum(registry, (cprof_names){cprof_name_of("inference"), cprof_name_of("node")});
    uint64_t generation = cprof_registry_state(registry) >> CPROF_STATE_GENERATION_SHIFT;
    uint32_t number = 4 * CPROF_CUPTI_LAUNCH_BLOCK - 1; /* the last one of the block */
    cprof_cupti_launches_put(&launches, 5, (cprof_cupti_node){.accum = NULL}, 0);
    cprof_cupti_launches_put(&launches, number, (cprof_cupti_node){accum, generation}, 0);
    protect(first, end, PROT_NONE);
    cprof_cupti_launches_forget(&launches, other);
    protect(block, behind, PROT_READ | PROT_WRITE);
    cprof_cupti_launches_forget(&launches, registry);
    protect(first, end, PROT_READ | PROT_WRITE);
    cprof_cupti_launches_count(&launches, number, &(cprof_launch_counts){.kernels = 1});
    CHECK(accum->extra == NULL);
    cprof_registry_destroy(other);
    cprof_registry_destroy(registry);
}

int main(void)
{
    fake_alloc_install();
    check_run(NULL, NULL);
    cprof_cupti_launches_dispose(&launches);
    CHECK_EQUAL(fake_alloc_live(), 0);
    return EXIT_SUCCESS;
}
