/* A table of events, made anew for each test. */
#ifndef TESTS_CORE_TABLES_H
#define TESTS_CORE_TABLES_H

#include "cprofiling/nodes/accum.h"
#include "cprofiling/trace/table.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"

#include <string.h>

static cprof_table *table;

/* In a loop: the next table. */
static inline void set_up(void)
{
    cprof_table_destroy(table);
    table = cprof_table_create();
    CHECK(table != NULL);
}

static inline void tear_down(void)
{
    cprof_table_destroy(table);
    table = NULL;
}

static inline cprof_text text_of(const char *string)
{
    cprof_text text;
    CHECK(cprof_table_text(table, cprof_name_of(string), &text) == CPROF_OK);
    return text;
}

static inline bool is_text(cprof_name name, const char *text)
{
    return name.length == strlen(text) && memcmp(name.bytes, text, name.length) == 0;
}

static inline uint32_t track_of(int64_t pid, int64_t tid)
{
    uint32_t track;
    CHECK(cprof_table_track(table, pid, 0, tid, 0, &track) == CPROF_OK);
    return track;
}

static inline void add(const cprof_row *row)
{
    CHECK(cprof_table_add(table, row) == CPROF_OK);
}

static inline void finish(void)
{
    CHECK(cprof_table_finish(table) == CPROF_OK);
    CHECK(table->finished);
}

#endif
