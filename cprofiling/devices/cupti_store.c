#include "cprofiling/devices/cupti_store.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/devices/cupti_calls.h"
#include "cprofiling/nodes/registry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* The remembered call of exactly this number. */
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

void cprof_cupti_launches_forget(cprof_cupti_launches *launches, const cprof_registry *registry)
{
    if (!atomic_load(&registry->has_launched) || atomic_load(&launches->places) == NULL) {
        return;
    }
    for (uint32_t block = 0; block < CPROF_CUPTI_LAUNCH_BLOCKS; block++) {
        if (atomic_load(&launches->has_nodes[block])) {
            uint32_t first = block * CPROF_CUPTI_LAUNCH_BLOCK;
            for (uint32_t i = first; i < first + CPROF_CUPTI_LAUNCH_BLOCK; i++) {
                struct cprof_cupti_launch_place *place = lock_place(launches, i);
                if (place->node.accum != NULL && place->node.accum->registry == registry) {
                    place->node.accum = NULL;
                }
                cprof_lock_release(&place->lock);
            }
        }
    }
}

void cprof_cupti_launches_dispose(cprof_cupti_launches *launches)
{
    cprof_alloc_unmap_pages(atomic_exchange(&launches->places, NULL), all_bytes);
}

enum { CHUNK = 4096 }; /* items, which take whole pages */

/* A record of a device, kept. */
typedef struct {
    cprof_cupti_record record; /* without a name; the kind is 0 once it is left out */
    uint32_t name;             /* a number of the trace's names + 1; 0: it has none */
    uint32_t correlation;      /* that of the outermost call */
} traced_work;

#define OVERFLOW_NAME "__overflow__"

/* The place for one more item; NULL without room or memory. */
static void *add_item_lock_held(cprof_cupti_items *items, size_t size, size_t capacity)
{
    size_t in_chunk = items->count % CHUNK;
    if (items->count >= capacity) {
        return NULL;
    }
    if (items->count / CHUNK == items->chunk_count) {
        char **chunks = cprof_alloc_grow(items->chunks, &items->chunk_capacity, items->chunk_count, sizeof *chunks, 8);
        if (chunks == NULL) {
            return NULL;
        }
        items->chunks = chunks;
        char *chunk = cprof_alloc_map_pages(CHUNK * size);
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
        cprof_alloc_unmap_pages(items->chunks[i], CHUNK * size);
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
    traced_work *item =
        record->name != NULL && name == 0 ? NULL : add_item_lock_held(&trace->records, sizeof *item, trace->capacity);
    if (item != NULL) {
        *item = (traced_work){.record = *record, .name = name, .correlation = correlation};
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

/* An item by its number. */
static cprof_cupti_traced_call *call_at(const cprof_cupti_items *calls, size_t index)
{
    void *chunk = calls->chunks[index / CHUNK];
    return (cprof_cupti_traced_call *)chunk + index % CHUNK;
}

static traced_work *work_at(const cprof_cupti_items *records, size_t index)
{
    void *chunk = records->chunks[index / CHUNK];
    return (traced_work *)chunk + index % CHUNK;
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
        cprof_cupti_traced_call *call = call_at(&trace->calls, trace->calls.settled);
        call->start = (cprof_ticks)(cprof_cupti_clock_ours(line, call->start) + since_epoch_ns);
        call->stop = (cprof_ticks)(cprof_cupti_clock_ours(line, call->stop) + since_epoch_ns);
    }
    for (; trace->records.settled < trace->records.count; trace->records.settled++) {
        settle_record(&work_at(&trace->records, trace->records.settled)->record, line, since_epoch_ns, begin_ns);
    }
    cprof_lock_release(&trace->lock);
}

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
    cprof_status status; /* the first that is not CPROF_OK */
} adder;

static bool is_fine(adder *to, cprof_status status)
{
    to->status = to->status == CPROF_OK ? status : to->status;
    return to->status == CPROF_OK;
}

/* The slot of a correlation: that of its call, or an empty one. */
static uint32_t *slot_of(const adder *to, uint32_t correlation)
{
    size_t at = correlation;
    for (;; at++) {
        uint32_t *slot = &to->calls[at & (to->slot_count - 1)];
        if (*slot == 0 || call_at(&to->trace->calls, *slot - 1)->correlation == correlation) {
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
        *slot_of(to, call_at(&to->trace->calls, i)->correlation) = (uint32_t)i + 1;
    }
    return to->calls != NULL && to->names != NULL;
}

static cprof_text text_of(adder *to, const char *text)
{
    cprof_text number = 0;
    (void)is_fine(to, cprof_table_text(to->table, cprof_name_of(text), &number));
    return number;
}

static void add_call(adder *to, const cprof_cupti_traced_call *call)
{
    cprof_row row = cprof_row_none;
    row.kind = CPROF_KIND_HOST;
    row.start_ns = (int64_t)call->start;
    row.end_ns = (int64_t)call->stop;
    row.correlation = call->correlation;
    row.name = text_of(to, cprof_cupti_call_of(call->domain, call->number)->name);
    row.cat = text_of(to, call->domain == CPROF_CUPTI_DRIVER ? "cuda_driver" : "cuda_runtime");
    if (is_fine(to, cprof_table_track(to->table, getpid(), 0, call->thread, 0, &row.track))) {
        (void)is_fine(to, cprof_table_add(to->table, &row));
    }
}

/* The track of a stream, with its and its device's names as Kineto gives them. */
static void set_track(adder *to, const cprof_cupti_record *record, cprof_row *row)
{
    char text[TEXT_SIZE];
    if (to->has_last && to->last_device == record->device && to->last_stream == record->stream) {
        row->track = to->last_track;
        return;
    }
    if (!is_fine(to, cprof_table_track(to->table, record->device, 0, record->stream, 0, &row->track))) {
        return;
    }
    cprof_track *made = &to->table->tracks[row->track];
    made->process_name = text_of(to, "CUDA device");
    (void)snprintf(text, sizeof text, "GPU %" PRIu32, record->device);
    made->process_labels = text_of(to, text);
    made->process_sort = FIRST_DEVICE_SORT + (int64_t)record->device;
    (void)snprintf(text, sizeof text, "stream %" PRIu32, record->stream);
    made->thread_name = text_of(to, text);
    made->thread_sort = record->stream;
    to->has_last = true;
    to->last_track = row->track;
    to->last_device = record->device;
    to->last_stream = record->stream;
}

/* The name of a kernel as it is read; of C++'s, that of the function. */
static cprof_text kernel_text(adder *to, const char *name)
{
    int status;
    char *readable = NULL;
    if (to->demangler != NULL && strncmp(name, CXX_PREFIX, sizeof CXX_PREFIX - 1) == 0) {
        readable = to->demangler(name, NULL, NULL, &status);
    }
    cprof_text text = text_of(to, readable != NULL ? readable : name);
    free(readable); /* it is not from our allocator */
    return text;
}

static void set_kernel(adder *to, uint32_t name, cprof_row *row)
{
    cprof_text *known = &to->names[name];
    if (*known == 0) {
        /* The other name of the entry is empty, so that there is a NUL behind this one. */
        *known = kernel_text(to, name != 0 ? cprof_names_at(&to->trace->names, name - 1).stage.bytes : "unknown kernel");
    }
    row->name = *known;
    row->cat = text_of(to, "kernel");
}

static void set_memory(adder *to, const cprof_cupti_record *record, cprof_row *row)
{
    char text[TEXT_SIZE];
    cprof_cupti_record_describe(record, text, sizeof text);
    row->bytes = record->bytes < INT64_MAX ? (int64_t)record->bytes : INT64_MAX;
    row->name = text_of(to, text);
    row->cat = text_of(to, record->kind == CPROF_CUPTI_MEMSET ? "gpu_memset" : "gpu_memcpy");
}

/* The arrow from a call, with its row on an existing track, to its work. */
static void add_arrow(adder *to, const cprof_cupti_traced_call *call, const cprof_row *work)
{
    cprof_flow flow = {.id = call->correlation, .phase = 's', .at_ns = (int64_t)call->start};
    (void)cprof_table_find_track(to->table, getpid(), 0, call->thread, 0, &flow.track);
    flow.name = flow.cat = text_of(to, "ac2g");
    if (to->status != CPROF_OK || !is_fine(to, cprof_table_add_flow(to->table, &flow))) {
        return;
    }
    flow.phase = 'f';
    flow.at_ns = work->start_ns;
    flow.track = work->track;
    flow.binds_enclosing = true;
    (void)is_fine(to, cprof_table_add_flow(to->table, &flow));
}

static void add_work(adder *to, const traced_work *work)
{
    const cprof_cupti_record *record = &work->record;
    cprof_row row = cprof_row_none;
    row.kind = CPROF_KIND_DEVICE;
    row.start_ns = (int64_t)record->start;
    row.end_ns = (int64_t)record->end;
    row.device = (int32_t)record->device;
    row.stream = record->stream;
    row.correlation = work->correlation;
    if (record->kind == CPROF_CUPTI_KERNEL) {
        set_kernel(to, work->name, &row);
    } else {
        set_memory(to, record, &row);
    }
    set_track(to, record, &row);
    uint32_t call = *slot_of(to, work->correlation);
    if (to->status == CPROF_OK && is_fine(to, cprof_table_add(to->table, &row)) && call != 0) {
        add_arrow(to, call_at(&to->trace->calls, call - 1), &row);
    }
}

/* Adds all settled items, with the arrows from calls to their work, and names devices and streams. */
static cprof_status add_rows(const cprof_cupti_store *trace, cprof_cupti_demangler demangler, cprof_table *table)
{
    adder to = {.trace = trace, .table = table, .demangler = demangler};
    (void)is_fine(&to, prepare(&to) ? CPROF_OK : CPROF_NO_MEMORY);
    for (size_t i = 0; to.status == CPROF_OK && i < trace->calls.settled; i++) {
        add_call(&to, call_at(&trace->calls, i));
    }
    for (size_t i = 0; to.status == CPROF_OK && i < trace->records.settled; i++) {
        const traced_work *work = work_at(&trace->records, i);
        if (work->record.kind != 0) {
            add_work(&to, work);
        }
    }
    table->dropped += trace->dropped;
    cprof_alloc_release(to.calls);
    cprof_alloc_release(to.names);
    return to.status;
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
    cprof_status status = table != NULL ? add_rows(&taken, demangler, table) : CPROF_OK;
    dispose_items(&taken.calls, sizeof(cprof_cupti_traced_call));
    dispose_items(&taken.records, sizeof(traced_work));
    cprof_names_dispose(&taken.names);
    return status;
}
