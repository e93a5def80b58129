/* Tables that a test makes, kept until its end. */
#ifndef TESTS_CORE_KEPT_TABLES_H
#define TESTS_CORE_KEPT_TABLES_H

#include "cprofiling/trace/table.h"

#include "tests/core/check.h"

static cprof_table **kept_tables;
static size_t kept_count;

static inline cprof_table *new_table(void)
{
    cprof_table *table = cprof_table_create();
    cprof_table **grown = realloc(kept_tables, (kept_count + 1) * sizeof *kept_tables);
    CHECK(table != NULL && grown != NULL);
    kept_tables = grown;
    kept_tables[kept_count++] = table;
    return table;
}

static inline void drop_tables(void)
{
    while (kept_count > 0) {
        cprof_table_destroy(kept_tables[--kept_count]);
    }
    free(kept_tables);
    kept_tables = NULL;
}

#endif
