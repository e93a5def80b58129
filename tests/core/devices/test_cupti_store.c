/* What is kept of CUPTI's calls and records, and the rows that it becomes. */
#define _GNU_SOURCE
#include "cprofiling/devices/cupti_store.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/devices/cupti_calls.h"
#include "cprofiling/nodes/registry.h"

#include "tests/core/tables.h"

#include <sys/mman.h>
#include <unistd.h>

/* ---- Recordings ---- */

enum { MANY = 40000 };

static const cprof_cupti_clock line = {.origin = {0, 0}, .first = {0, 0}, .last = {1000, 1000}};

static cprof_ticks no_ticks(void)
{
    return 0;
}

static void add_call(cprof_cupti_store *trace, uint32_t correlation, cprof_ticks start)
{
    cprof_cupti_store_add_call(trace, &(cprof_cupti_traced_call){.start = start,
                                                                 .stop = start + 5,
                                                                 .correlation = correlation,
                                                                 .number = 211,
                                                                 .domain = CPROF_CUPTI_RUNTIME,
                                                                 .thread = 77});
}

static void add_kernel(cprof_cupti_store *trace, uint32_t correlation, uint64_t start, const char *name)
{
    const cprof_cupti_record record = {
        .kind = CPROF_CUPTI_KERNEL, .start = start, .end = start + 10, .device = 1, .stream = 7, .name = name};
    cprof_cupti_store_add_record(trace, &record, correlation);
}

static void settle(cprof_cupti_store *trace)
{
    cprof_cupti_store_settle(trace, &line, 1000000, 0);
}

static void check_names(const char *const *names)
{
    for (size_t i = 0; i < table->count; i++) {
        CHECK(is_text(cprof_table_string(table, table->name[i]), names[i]));
    }
}

static void fill_some(cprof_cupti_store *trace)
{
    add_call(trace, 1, 100);
    add_kernel(trace, 1, 110, "gemm");
    add_kernel(trace, 1, 130, NULL);
    add_kernel(trace, 9, 150, "gemm"); /* whose call is not there */
    const cprof_cupti_record copy = {.kind = CPROF_CUPTI_MEMCPY, .start = 200, .end = 210, .bytes = UINT64_MAX, .stream = 8};
    cprof_cupti_store_add_record(trace, &copy, 1);
    cprof_cupti_store_drop(trace, 3);
}

TEST(any_allocation_may_fail)
{
    uint64_t nth = 1;
    for (bool failed = true; failed; nth++) {
        tear_down();
        uint64_t live = fake_alloc_live();
        cprof_cupti_store trace = {.capacity = 100};
        set_up();
        fake_alloc_fail(nth);
        fill_some(&trace);
        settle(&trace);
        cprof_status status = cprof_cupti_store_collect(&trace, NULL, table);
        failed = fake_alloc_has_failed();
        CHECK(status == CPROF_OK || (failed && status == CPROF_NO_MEMORY));
        CHECK(status != CPROF_OK || table->count + (size_t)table->dropped == 5 + 3);
        tear_down();
        CHECK_EQUAL(fake_alloc_live(), live);
    }
    CHECK(nth > 20);
}

TEST(many_are_kept_in_their_order)
{
    cprof_cupti_store trace = {.capacity = MANY};
    char name[32];
    for (uint32_t i = 1; i <= MANY + 5; i++) {
        add_call(&trace, i, 10 * (cprof_ticks)i);
        (void)snprintf(name, sizeof name, "kernel %u", i % 100);
        add_kernel(&trace, i, 10 * (uint64_t)i + 1, name);
    }
    settle(&trace);
    CHECK(cprof_cupti_store_collect(&trace, NULL, table) == CPROF_OK);
    CHECK_EQUAL(table->count, 2 * MANY);
    CHECK_EQUAL(table->dropped, 10);
    CHECK_EQUAL(table->flow_count, 2 * MANY);
    for (size_t i = 0; i < MANY; i++) {
        CHECK_EQUAL(table->start_ns[i], 1000000 + 10 * (i + 1));
        CHECK_EQUAL(table->start_ns[MANY + i], 1000000 + 10 * (i + 1) + 1);
        (void)snprintf(name, sizeof name, "kernel %zu", (i + 1) % 100);
        CHECK(cprof_name_is(cprof_table_string(table, table->name[MANY + i]), name));
        CHECK_EQUAL(table->flows[2 * i].id, i + 1);
    }
}

TEST(what_was_not_settled_is_not_added)
{
    cprof_cupti_store trace = {.capacity = 100};
    add_call(&trace, 1, 100);
    settle(&trace);
    add_call(&trace, 2, 200);
    add_kernel(&trace, 2, 200, "late");
    CHECK(cprof_cupti_store_collect(&trace, NULL, table) == CPROF_OK);
    CHECK_EQUAL(table->count, 1);
    add_kernel(&trace, 3, 300, "next");
    settle(&trace);
    CHECK(cprof_cupti_store_collect(&trace, NULL, NULL) == CPROF_OK);
    CHECK(cprof_cupti_store_collect(&trace, NULL, table) == CPROF_OK);
    CHECK_EQUAL(table->count, 1);
}

TEST(work_that_had_ended_before_is_left_out)
{
    cprof_cupti_store trace = {.capacity = 100};
    add_kernel(&trace, 1, 100, "before"); /* to 110 */
    add_kernel(&trace, 1, 101, "into");
    cprof_cupti_store_settle(&trace, &line, 0, 110);
    CHECK(cprof_cupti_store_collect(&trace, NULL, table) == CPROF_OK);
    CHECK_EQUAL(table->count, 1);
    CHECK_EQUAL(table->dropped, 0);
    CHECK(cprof_name_is(cprof_table_string(table, table->name[0]), "into"));
}

/* Names are bounded: what has no room goes by another name, the known ones stay. */
TEST(too_many_names)
{
    cprof_cupti_store trace = {.capacity = 100};
    add_kernel(&trace, 1, 100, "known");
    trace.name_bytes = CPROF_CUPTI_STORE_MAX_NAME_BYTES;
    add_kernel(&trace, 1, 110, "unknown");
    add_kernel(&trace, 1, 120, "unknown, too");
    add_kernel(&trace, 1, 130, "known");
    settle(&trace);
    CHECK(cprof_cupti_store_collect(&trace, NULL, table) == CPROF_OK);
    static const char *const names[] = {"known", "__overflow__", "__overflow__", "known"};
    CHECK_EQUAL(table->count, 4);
    check_names(names);
}

/* As __cxa_demangle, of which it knows one name. */
static char *read_name(const char *name, char *buffer, size_t *length, int *status)
{
    CHECK(buffer == NULL && length == NULL);
    *status = strcmp(name, "_Z4gemmPf") == 0 ? 0 : -2;
    return *status == 0 ? strdup("gemm(float*)") : NULL;
}

TEST(names_of_cxx_are_read)
{
    static const char *const names[] = {"_Z4gemmPf", "_Zwhat", "plain"};
    static const char *const expected[] = {"gemm(float*)", "_Zwhat", "plain"};
    cprof_cupti_store trace = {.capacity = 100};
    for (size_t i = 0; i < 3; i++) {
        add_kernel(&trace, 1, 100 + i, names[i]);
    }
    settle(&trace);
    CHECK(cprof_cupti_store_collect(&trace, read_name, table) == CPROF_OK);
    CHECK_EQUAL(table->count, 3);
    check_names(expected);
}

/* ---- Calls that are remembered ---- */

static cprof_cupti_launches launches;
static cprof_registry *registry, *other;
static cprof_accum *accum;
static uint64_t generation;

static void set_up_node(void)
{
    registry = cprof_registry_create(1);
    other = cprof_registry_create(1);
    accum = cprof_registry_accum(registry, (cprof_names){cprof_name_of("inference"), cprof_name_of("node")});
    CHECK(other != NULL && accum != NULL);
    generation = cprof_registry_state(registry) >> CPROF_STATE_GENERATION_SHIFT;
}

static void tear_down_node(void)
{
    cprof_registry_destroy(other);
    cprof_registry_destroy(registry);
}

TEST(an_empty_table_knows_nothing)
{
    cprof_cupti_launch launch;
    cprof_cupti_launches_put(&launches, 5, (cprof_cupti_node){.accum = NULL}, 7);
    cprof_cupti_launches_count(&launches, 5, &(cprof_launch_counts){.kernels = 1});
    CHECK(!cprof_cupti_launches_find(&launches, 5, &launch));
    set_up_node();
    atomic_store(&registry->has_launched, true);
    cprof_cupti_launches_forget(&launches, registry);
    tear_down_node();
}

TEST(without_memory_there_is_none)
{
    uint64_t live = fake_alloc_live();
    fake_alloc_fail(1);
    CHECK(!cprof_cupti_launches_create(&launches));
    CHECK(fake_alloc_has_failed());
    CHECK(cprof_cupti_launches_create(&launches));
    CHECK(cprof_cupti_launches_create(&launches)); /* again: the same */
    CHECK_EQUAL(fake_alloc_live(), live + 1);
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
    set_up_node();
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
    tear_down_node();
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
    set_up_node();
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
    tear_down_node();
}

int main(void)
{
    cprof_clock_set_test(no_ticks); /* a tick is a nanosecond */
    fake_alloc_install();
    check_run(set_up, tear_down);
    cprof_cupti_launches_dispose(&launches);
    CHECK_EQUAL(fake_alloc_live(), 0);
    return EXIT_SUCCESS;
}
