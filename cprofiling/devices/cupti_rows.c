#include "cprofiling/devices/cupti_rows.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/devices/cupti_calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CXX_PREFIX "_Z" /* of C++'s names */

enum {
    FIRST_DEVICE_SORT = 0x1000000, /* devices come below processes, as in Kineto's traces */
    TEXT_SIZE = 96,
    FIRST_SLOTS = 64,
};

/* What the rows of one table have in common while they are added. */
typedef struct {
    const cprof_cupti_store *trace;
    cprof_table *table;
    cprof_cupti_demangler demangler; /* NULL: none */
    cprof_text *names;               /* of kernels, by their numbers + 1; 0: not asked for yet */
    uint32_t *calls;                 /* by correlation: a hash table of calls' numbers + 1 */
    size_t slot_count;               /* of it, a power of two */
    uint32_t last_track;             /* of the last row of a device, to be found again without a search; */
    uint32_t last_device;            /* where that was: */
    uint32_t last_stream;
    bool has_last;
} adder;

cprof_cupti_traced_call *cprof_cupti_rows_call(const cprof_cupti_items *calls, size_t index)
{
    void *chunk = calls->chunks[index / CPROF_CUPTI_CHUNK];
    return (cprof_cupti_traced_call *)chunk + index % CPROF_CUPTI_CHUNK;
}

cprof_cupti_traced_work *cprof_cupti_rows_work(const cprof_cupti_items *records, size_t index)
{
    void *chunk = records->chunks[index / CPROF_CUPTI_CHUNK];
    return (cprof_cupti_traced_work *)chunk + index % CPROF_CUPTI_CHUNK;
}

/* The slot of a correlation: that of its call, or an empty one. */
static uint32_t *slot_of(const adder *to, uint32_t correlation)
{
    size_t at = correlation;
    for (;; at++) {
        uint32_t *slot = &to->calls[at & (to->slot_count - 1)];
        if (*slot == 0 || cprof_cupti_rows_call(&to->trace->calls, *slot - 1)->correlation == correlation) {
            return slot;
        }
    }
}

static bool prepare(adder *to)
{
    to->slot_count = FIRST_SLOTS;
    while (to->slot_count < 2 * to->trace->calls.settled) {
        to->slot_count *= 2;
    }
    to->calls = cprof_alloc_zeroed(to->slot_count * sizeof *to->calls);
    to->names = cprof_alloc_zeroed((to->trace->names.count + 1) * sizeof *to->names);
    for (size_t i = 0; to->calls != NULL && i < to->trace->calls.settled; i++) {
        *slot_of(to, cprof_cupti_rows_call(&to->trace->calls, i)->correlation) = (uint32_t)i + 1;
    }
    return to->calls != NULL && to->names != NULL;
}

static cprof_status text_of(const adder *to, const char *text, cprof_text *number)
{
    return cprof_table_text(to->table, cprof_name_of(text), number);
}

static cprof_status add_call(const adder *to, const cprof_cupti_traced_call *call)
{
    cprof_row row = cprof_row_none;
    row.kind = CPROF_KIND_HOST;
    row.start_ns = (int64_t)call->start;
    row.end_ns = (int64_t)call->stop;
    row.correlation = call->correlation;
    cprof_status status = text_of(to, cprof_cupti_call_of(call->domain, call->number)->name, &row.name);
    if (status == CPROF_OK) {
        status = text_of(to, call->domain == CPROF_CUPTI_DRIVER ? "cuda_driver" : "cuda_runtime", &row.cat);
    }
    if (status == CPROF_OK) {
        status = cprof_table_track(to->table, getpid(), 0, call->thread, 0, &row.track);
    }
    return status == CPROF_OK ? cprof_table_add(to->table, &row) : status;
}

/* Names of a stream and its device, as Kineto gives them. */
static cprof_status name_track(const adder *to, uint32_t track, const cprof_cupti_record *record)
{
    char text[TEXT_SIZE];
    cprof_text label, process, thread;
    (void)snprintf(text, sizeof text, "GPU %" PRIu32, record->device);
    cprof_status status = text_of(to, text, &label);
    if (status == CPROF_OK) {
        status = text_of(to, "CUDA device", &process);
    }
    (void)snprintf(text, sizeof text, "stream %" PRIu32, record->stream);
    if (status == CPROF_OK) {
        status = text_of(to, text, &thread);
    }
    if (status == CPROF_OK) {
        cprof_track *made = &to->table->tracks[track];
        made->process_name = process;
        made->process_labels = label;
        made->process_sort = FIRST_DEVICE_SORT + (int64_t)record->device;
        made->thread_name = thread;
        made->thread_sort = record->stream;
    }
    return status;
}

static cprof_status set_track(adder *to, const cprof_cupti_record *record, cprof_row *row)
{
    bool is_last = to->has_last && to->last_device == record->device && to->last_stream == record->stream;
    if (is_last) {
        row->track = to->last_track;
        return CPROF_OK;
    }
    cprof_status status = cprof_table_track(to->table, record->device, 0, record->stream, 0, &row->track);
    if (status == CPROF_OK) {
        status = name_track(to, row->track, record);
    }
    to->has_last = status == CPROF_OK;
    to->last_track = row->track;
    to->last_device = record->device;
    to->last_stream = record->stream;
    return status;
}

/* The name of a kernel as it is read; of C++'s, that of the function. */
static cprof_status kernel_text(const adder *to, const char *name, cprof_text *text)
{
    int status;
    char *readable = NULL;
    if (to->demangler != NULL && strncmp(name, CXX_PREFIX, sizeof CXX_PREFIX - 1) == 0) {
        readable = to->demangler(name, NULL, NULL, &status);
    }
    cprof_status added = text_of(to, readable != NULL ? readable : name, text);
    free(readable); /* it is not from our allocator */
    return added;
}

static cprof_status set_kernel(const adder *to, uint32_t name, cprof_row *row)
{
    cprof_text *known = &to->names[name];
    cprof_status status = text_of(to, "kernel", &row->cat);
    if (status == CPROF_OK && *known == 0) {
        /* The other name of the entry is empty, so that there is a NUL behind this one. */
        status = kernel_text(to, name != 0 ? cprof_names_at(&to->trace->names, name - 1).stage.bytes : "unknown kernel", known);
    }
    row->name = *known;
    return status;
}

static cprof_status set_memory(const adder *to, const cprof_cupti_record *record, cprof_row *row)
{
    char text[TEXT_SIZE];
    cprof_cupti_record_describe(record, text, sizeof text);
    row->bytes = record->bytes < INT64_MAX ? (int64_t)record->bytes : INT64_MAX;
    cprof_status status = text_of(to, text, &row->name);
    return status == CPROF_OK ? text_of(to, record->kind == CPROF_CUPTI_MEMSET ? "gpu_memset" : "gpu_memcpy", &row->cat)
                              : status;
}

/* The arrow from a call, whose row is on a track that is there, to its work. */
static cprof_status add_arrow(const adder *to, const cprof_cupti_traced_call *call, const cprof_row *work)
{
    cprof_flow flow = {.id = call->correlation, .phase = 's', .at_ns = (int64_t)call->start};
    (void)cprof_table_find_track(to->table, getpid(), 0, call->thread, 0, &flow.track);
    cprof_status status = text_of(to, "ac2g", &flow.name);
    flow.cat = flow.name;
    if (status == CPROF_OK) {
        status = cprof_table_add_flow(to->table, &flow);
    }
    flow.phase = 'f';
    flow.at_ns = work->start_ns;
    flow.track = work->track;
    flow.binds_enclosing = true;
    return status == CPROF_OK ? cprof_table_add_flow(to->table, &flow) : status;
}

static cprof_status add_work(adder *to, const cprof_cupti_traced_work *work)
{
    const cprof_cupti_record *record = &work->record;
    cprof_row row = cprof_row_none;
    row.kind = CPROF_KIND_DEVICE;
    row.start_ns = (int64_t)record->start;
    row.end_ns = (int64_t)record->end;
    row.device = (int32_t)record->device;
    row.stream = record->stream;
    row.correlation = work->correlation;
    bool is_kernel = record->kind == CPROF_CUPTI_KERNEL;
    cprof_status status = is_kernel ? set_kernel(to, work->name, &row) : set_memory(to, record, &row);
    if (status == CPROF_OK) {
        status = set_track(to, record, &row);
    }
    if (status == CPROF_OK) {
        status = cprof_table_add(to->table, &row);
    }
    uint32_t call = *slot_of(to, work->correlation);
    if (status != CPROF_OK || call == 0) {
        return status;
    }
    return add_arrow(to, cprof_cupti_rows_call(&to->trace->calls, call - 1), &row);
}

cprof_status cprof_cupti_rows_add(const cprof_cupti_store *trace, cprof_cupti_demangler demangler, cprof_table *table)
{
    adder to = {.trace = trace, .table = table, .demangler = demangler};
    cprof_status status = prepare(&to) ? CPROF_OK : CPROF_NO_MEMORY;
    for (size_t i = 0; status == CPROF_OK && i < trace->calls.settled; i++) {
        status = add_call(&to, cprof_cupti_rows_call(&trace->calls, i));
    }
    for (size_t i = 0; status == CPROF_OK && i < trace->records.settled; i++) {
        const cprof_cupti_traced_work *work = cprof_cupti_rows_work(&trace->records, i);
        status = work->record.kind != 0 ? add_work(&to, work) : CPROF_OK;
    }
    table->dropped += trace->dropped;
    cprof_alloc_release(to.calls);
    cprof_alloc_release(to.names);
    return status;
}
