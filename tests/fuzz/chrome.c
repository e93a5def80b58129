/* Chrome traces: what is read can be written and read again, and is the same file from then on. */
#include "tests/fuzz/fuzz.h"

#include "cprofiling/files/chrome_read.h"
#include "cprofiling/files/chrome_write.h"
#include "tests/core/stream.h"

enum { NEVER = INT32_MAX, MOVED_IDS = 1000, MOVED_NS = -5000 };

/* A finished table; NULL: the text is no trace. */
static cprof_table *load(cprof_name text, int64_t shift_ns, int64_t id_offset)
{
    stream s = {text, 0, SIZE_MAX, NEVER};
    cprof_chrome_read_report report;
    cprof_table *table = cprof_table_create();
    CHECK(table != NULL);
    cprof_status status = cprof_chrome_read(table, shift_ns, id_offset, stream_read, &s, &report);
    CHECK(status == CPROF_OK || status == CPROF_BAD_FORMAT);
    CHECK((status == CPROF_BAD_FORMAT) == (report.reason != NULL) && report.bytes <= text.length);
    if (status != CPROF_OK) {
        cprof_table_destroy(table);
        return NULL;
    }
    CHECK(report.bytes == text.length && cprof_table_finish(table) == CPROF_OK);
    for (size_t i = 0; i < table->count; i++) {
        CHECK(table->start_ns[i] <= table->end_ns[i] && table->track[i] < table->track_count);
        size_t above = 0;
        for (int64_t row = table->parent[i]; row >= 0; row = table->parent[row]) { /* parents are no circle */
            CHECK(row < (int64_t)table->count && ++above < table->count);
        }
    }
    return table;
}

static sink write_and_destroy(cprof_table *table)
{
    sink out = {.bytes = NULL};
    CHECK(cprof_chrome_write(table, sink_write, &out) == CPROF_OK);
    cprof_table_destroy(table);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cprof_name text = {(const char *)data, size};
    cprof_table *table = load(text, 0, 0);
    cprof_table_destroy(load(text, MOVED_NS, MOVED_IDS));
    if (table != NULL) {
        size_t rows = table->count;
        sink first = write_and_destroy(table);
        table = load((cprof_name){first.bytes, first.length}, 0, 0);
        CHECK(table != NULL && table->count == rows);
        sink second = write_and_destroy(table);
        table = load((cprof_name){second.bytes, second.length}, 0, 0);
        CHECK(table != NULL && table->count == rows);
        sink third = write_and_destroy(table);
        CHECK(third.length == second.length && memcmp(third.bytes, second.bytes, third.length) == 0);
        free(first.bytes);
        free(second.bytes);
        free(third.bytes);
    }
    return 0;
}
