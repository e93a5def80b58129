#include "cprofiling/devices/cupti_store.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/devices/cupti_rows.h"

#include <string.h>

#define OVERFLOW_NAME "__overflow__"

/* The place for one more item; NULL without room or memory. */
static void *add_item_lock_held(cprof_cupti_items *items, size_t size, size_t capacity)
{
    size_t in_chunk = items->count % CPROF_CUPTI_CHUNK;
    if (items->count >= capacity) {
        return NULL;
    }
    if (items->count / CPROF_CUPTI_CHUNK == items->chunk_count) {
        if (items->chunk_count == items->chunk_capacity) {
            size_t larger = items->chunk_capacity == 0 ? 8 : items->chunk_capacity * 2;
            char **chunks = cprof_alloc_resize(items->chunks, larger * sizeof *chunks);
            if (chunks == NULL) {
                return NULL;
            }
            items->chunks = chunks;
            items->chunk_capacity = larger;
        }
        char *chunk = cprof_alloc_map_pages(CPROF_CUPTI_CHUNK * size);
        if (chunk == NULL) {
            return NULL;
        }
        items->chunks[items->chunk_count++] = chunk;
    }
    items->count++;
    return items->chunks[items->chunk_count - 1] + in_chunk * size;
}

static void dispose_items(cprof_cupti_items *items, size_t size)
{
    for (size_t i = 0; i < items->chunk_count; i++) {
        cprof_alloc_unmap_pages(items->chunks[i], CPROF_CUPTI_CHUNK * size);
    }
    cprof_alloc_release(items->chunks);
}

void cprof_cupti_store_add_call(cprof_cupti_store *trace, const cprof_cupti_traced_call *call)
{
    cprof_lock_acquire(&trace->lock);
    cprof_cupti_traced_call *item = add_item_lock_held(&trace->calls, sizeof *item, trace->capacity);
    if (item != NULL) {
        *item = *call;
    } else {
        trace->dropped++;
    }
    cprof_lock_release(&trace->lock);
}

/* The number of a kernel's name, from 1 on; 0: not known, or without memory. */
static uint32_t name_lock_held(cprof_cupti_store *trace, const char *text)
{
    if (text == NULL) {
        return 0;
    }
    cprof_names names = {cprof_name_of(text), {"", 0}};
    size_t index = cprof_names_find(&trace->names, names);
    bool is_full = trace->names.count >= CPROF_CUPTI_STORE_MAX_NAMES ||
                   trace->name_bytes + names.stage.length > CPROF_CUPTI_STORE_MAX_NAME_BYTES;
    if (index == CPROF_NAMES_ABSENT && is_full) {
        names.stage = cprof_name_of(OVERFLOW_NAME);
        index = cprof_names_find(&trace->names, names);
    }
    if (index == CPROF_NAMES_ABSENT && cprof_names_add(&trace->names, names) == CPROF_OK) {
        index = trace->names.count - 1;
        trace->name_bytes += names.stage.length;
    }
    return index != CPROF_NAMES_ABSENT ? (uint32_t)index + 1 : 0;
}

void cprof_cupti_store_add_record(cprof_cupti_store *trace, const cprof_cupti_record *record, uint32_t correlation)
{
    cprof_lock_acquire(&trace->lock);
    uint32_t name = name_lock_held(trace, record->name);
    cprof_cupti_traced_work *item =
        record->name != NULL && name == 0 ? NULL : add_item_lock_held(&trace->records, sizeof *item, trace->capacity);
    if (item != NULL) {
        *item = (cprof_cupti_traced_work){.record = *record, .name = name, .correlation = correlation};
        item->record.name = NULL; /* it is CUPTI's */
    } else {
        trace->dropped++;
    }
    cprof_lock_release(&trace->lock);
}

void cprof_cupti_store_drop(cprof_cupti_store *trace, uint64_t count)
{
    cprof_lock_acquire(&trace->lock);
    trace->dropped += count;
    cprof_lock_release(&trace->lock);
}

static void settle_call(cprof_cupti_traced_call *call, const cprof_cupti_clock *line, cprof_ns since_epoch_ns)
{
    call->start = (cprof_ticks)(cprof_cupti_clock_ours(line, call->start) + since_epoch_ns);
    call->stop = (cprof_ticks)(cprof_cupti_clock_ours(line, call->stop) + since_epoch_ns);
}

static void settle_record(cprof_cupti_record *record, const cprof_cupti_clock *line, cprof_ns since_epoch_ns, cprof_ns begin_ns)
{
    cprof_ns start = cprof_cupti_clock_theirs(line, record->start);
    cprof_ns end = cprof_cupti_clock_theirs(line, record->end); /* where what follows on it starts */
    if (end <= begin_ns) {
        record->kind = 0;
    }
    record->start = (uint64_t)(start + since_epoch_ns);
    record->end = (uint64_t)(end + since_epoch_ns);
}

void cprof_cupti_store_settle(cprof_cupti_store *trace, const cprof_cupti_clock *line, cprof_ns since_epoch_ns,
                              cprof_ticks begin)
{
    cprof_ns begin_ns = cprof_cupti_clock_ours(line, begin);
    cprof_lock_acquire(&trace->lock);
    for (; trace->calls.settled < trace->calls.count; trace->calls.settled++) {
        settle_call(cprof_cupti_rows_call(&trace->calls, trace->calls.settled), line, since_epoch_ns);
    }
    for (; trace->records.settled < trace->records.count; trace->records.settled++) {
        settle_record(&cprof_cupti_rows_work(&trace->records, trace->records.settled)->record, line, since_epoch_ns, begin_ns);
    }
    cprof_lock_release(&trace->lock);
}

cprof_status cprof_cupti_store_collect(cprof_cupti_store *trace, cprof_cupti_demangler demangler, cprof_table *table)
{
    cprof_lock_acquire(&trace->lock);
    cprof_cupti_store taken = {
        .calls = trace->calls,
        .records = trace->records,
        .names = trace->names,
        .dropped = trace->dropped,
    }; /* not the lock, for which others wait */
    trace->calls = trace->records = (cprof_cupti_items){.chunks = NULL};
    trace->names = (cprof_names_table){.slots = NULL};
    trace->name_bytes = 0;
    trace->dropped = 0;
    cprof_lock_release(&trace->lock);
    cprof_status status = table != NULL ? cprof_cupti_rows_add(&taken, demangler, table) : CPROF_OK;
    dispose_items(&taken.calls, sizeof(cprof_cupti_traced_call));
    dispose_items(&taken.records, sizeof(cprof_cupti_traced_work));
    cprof_names_dispose(&taken.names);
    return status;
}
