/* What a recording keeps of CUPTI's, and the rows that it becomes. */
#define _GNU_SOURCE
#include "cprofiling/devices/cupti_store.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/devices/cupti_records.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <string.h>
#include <unistd.h>

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
        uint64_t live = fake_alloc_live();
        cprof_cupti_store trace = {.capacity = 100};
        cprof_table *table = cprof_table_create();
        CHECK(table != NULL);
        fake_alloc_fail(nth);
        fill_some(&trace);
        settle(&trace);
        cprof_status status = cprof_cupti_store_collect(&trace, NULL, table);
        failed = fake_alloc_has_failed();
        CHECK(status == CPROF_OK || (failed && status == CPROF_NO_MEMORY));
        CHECK(status != CPROF_OK || table->count + (size_t)table->dropped == 5 + 3);
        cprof_table_destroy(table);
        CHECK_EQUAL(fake_alloc_live(), live);
    }
    CHECK(nth > 20);
}

TEST(many_are_kept_in_their_order)
{
    cprof_cupti_store trace = {.capacity = MANY};
    cprof_table *table = cprof_table_create();
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
    cprof_table_destroy(table);
}

TEST(what_was_not_settled_is_not_added)
{
    cprof_cupti_store trace = {.capacity = 100};
    cprof_table *table = cprof_table_create();
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
    cprof_table_destroy(table);
}

TEST(work_that_had_ended_before_is_left_out)
{
    cprof_cupti_store trace = {.capacity = 100};
    cprof_table *table = cprof_table_create();
    add_kernel(&trace, 1, 100, "before"); /* to 110 */
    add_kernel(&trace, 1, 101, "into");
    cprof_cupti_store_settle(&trace, &line, 0, 110);
    CHECK(cprof_cupti_store_collect(&trace, NULL, table) == CPROF_OK);
    CHECK_EQUAL(table->count, 1);
    CHECK_EQUAL(table->dropped, 0);
    CHECK(cprof_name_is(cprof_table_string(table, table->name[0]), "into"));
    cprof_table_destroy(table);
}

/* Names are bounded: what has no room goes by another name, the known ones stay. */
TEST(too_many_names)
{
    cprof_cupti_store trace = {.capacity = 100};
    cprof_table *table = cprof_table_create();
    add_kernel(&trace, 1, 100, "known");
    trace.name_bytes = CPROF_CUPTI_STORE_MAX_NAME_BYTES;
    add_kernel(&trace, 1, 110, "unknown");
    add_kernel(&trace, 1, 120, "unknown, too");
    add_kernel(&trace, 1, 130, "known");
    settle(&trace);
    CHECK(cprof_cupti_store_collect(&trace, NULL, table) == CPROF_OK);
    static const char *const names[] = {"known", "__overflow__", "__overflow__", "known"};
    CHECK_EQUAL(table->count, 4);
    for (size_t i = 0; i < 4; i++) {
        CHECK(cprof_name_is(cprof_table_string(table, table->name[i]), names[i]));
    }
    cprof_table_destroy(table);
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
    cprof_table *table = cprof_table_create();
    for (size_t i = 0; i < 3; i++) {
        add_kernel(&trace, 1, 100 + i, names[i]);
    }
    settle(&trace);
    CHECK(cprof_cupti_store_collect(&trace, read_name, table) == CPROF_OK);
    for (size_t i = 0; i < 3; i++) {
        CHECK(cprof_name_is(cprof_table_string(table, table->name[i]), expected[i]));
    }
    cprof_table_destroy(table);
}

int main(void)
{
    cprof_clock_set_test(no_ticks); /* a tick is a nanosecond */
    fake_alloc_install();
    check_run(NULL, NULL);
    CHECK_EQUAL(fake_alloc_live(), 0);
    return EXIT_SUCCESS;
}
