#include "cprofiling/devices/event_pool.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/nodes/registry.h"

enum {
    PAGE = 4096,
    BASE_LIFE_NS = 1000 * 1000 * 1000, /* of device time, so that times from it keep the device's resolution */
};

static struct {
    cprof_lock lock; /* guards all of it */
    cprof_gpu_context *contexts;
    uint64_t last_number;
    size_t context_count;
    cprof_gpu_mark *marks; /* CPROF_EVENT_MOST_PENDING, of which */
    size_t made;           /* were ever used */
    cprof_gpu_mark *spare;
} pool;

static size_t pages(size_t size)
{
    return (size + PAGE - 1) / PAGE * PAGE;
}

static void lock_pool(void)
{
    cprof_lock_acquire(&pool.lock);
}

static void unlock_pool(void)
{
    cprof_lock_release(&pool.lock);
}

/* Contexts. */

static void leave_lock_held(cprof_gpu_context *context)
{
    if (--context->users == 0 && context->life == CPROF_GPU_CONTEXT_GONE) {
        cprof_alloc_unmap_pages(context, pages(sizeof *context));
    }
}

static void release_lock_held(cprof_gpu_mark *mark)
{
    cprof_gpu_context *context = mark->context;
    if (context->life == CPROF_GPU_CONTEXT_LIVE) {
        const cu_event events[] = {mark->first, mark->last};
        for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
            context->idle[context->idle_count] = events[i];
            context->idle_count += events[i] != NULL;
        }
    }
    *mark = (cprof_gpu_mark){.next = pool.spare};
    pool.spare = mark;
    leave_lock_held(context);
}

static void miss_lock_held(const cprof_gpu_mark *mark, cprof_gpu_cause cause)
{
    if (mark->accum != NULL) {
        cprof_accum_miss_gpu(mark->accum, mark->generation, cause);
    }
}

static cprof_gpu_mark *pop_lock_held(cprof_gpu_context *context, cprof_gpu_stream *stream)
{
    cprof_gpu_mark *mark = stream->oldest;
    stream->oldest = mark->next;
    context->pending--;
    return mark;
}

/* The caller uses the context, or it is not to be used any more. */
static void end_life_lock_held(cprof_gpu_context *context, cprof_gpu_context_life life, cprof_gpu_cause cause)
{
    context->life = life;
    context->idle_count = 0;
    context->users++;
    for (size_t i = 0; i < context->stream_count; i++) {
        while (context->streams[i].oldest != NULL) {
            cprof_gpu_mark *mark = pop_lock_held(context, &context->streams[i]);
            miss_lock_held(mark, cause);
            release_lock_held(mark);
        }
    }
    leave_lock_held(context);
}

static void drop_lock_held(cprof_gpu_context *context)
{
    cprof_gpu_context **link = &pool.contexts;
    while (*link != NULL && *link != context) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = context->next;
        pool.context_count--;
        end_life_lock_held(context, CPROF_GPU_CONTEXT_GONE, CPROF_GPU_LOST);
    }
}

static cprof_gpu_context *find_lock_held(cu_context handle, unsigned long long id)
{
    cprof_gpu_context *context = pool.contexts;
    while (context != NULL && (context->handle != handle || context->id != id)) {
        context = context->next;
    }
    if (context != NULL) {
        context->users++;
    }
    return context;
}

cprof_gpu_context *cprof_event_pool_find(cu_context handle, unsigned long long id)
{
    lock_pool();
    cprof_gpu_context *context = find_lock_held(handle, id);
    unlock_pool();
    return context;
}

static void drop_former_lock_held(cu_context handle, cu_device device, bool is_primary)
{
    cprof_gpu_context *next = pool.contexts;
    while (next != NULL) {
        cprof_gpu_context *context = next;
        next = context->next;
        if (context->handle == handle || (is_primary && context->is_primary && context->device == device)) {
            drop_lock_held(context);
        }
    }
}

static cprof_gpu_context *add_lock_held(cu_context handle, unsigned long long id, cu_device device, bool is_primary)
{
    drop_former_lock_held(handle, device, is_primary);
    if (pool.context_count == CPROF_EVENT_POOL_CONTEXTS) {
        return NULL;
    }
    cprof_gpu_context *context = cprof_alloc_map_pages(pages(sizeof *context));
    if (context == NULL) {
        return NULL;
    }
    context->handle = handle;
    context->id = id;
    context->device = device;
    context->is_primary = is_primary;
    context->number = ++pool.last_number;
    context->users = 1;
    cprof_gpu_context **link = &pool.contexts;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = context;
    pool.context_count++;
    return context;
}

cprof_gpu_context *cprof_event_pool_add(cu_context handle, unsigned long long id, cu_device device, bool is_primary)
{
    lock_pool();
    cprof_gpu_context *context = find_lock_held(handle, id);
    if (context == NULL) {
        context = add_lock_held(handle, id, device, is_primary);
    }
    unlock_pool();
    return context;
}

cprof_gpu_context *cprof_event_pool_next_pending(uint64_t after)
{
    lock_pool();
    cprof_gpu_context *context = pool.contexts;
    while (context != NULL && (context->number <= after || context->pending == 0)) {
        context = context->next;
    }
    if (context != NULL) {
        context->users++;
    }
    unlock_pool();
    return context;
}

void cprof_event_pool_leave(cprof_gpu_context *context)
{
    lock_pool();
    leave_lock_held(context);
    unlock_pool();
}

static cprof_gpu_cause cause_of_life(cprof_gpu_context_life life)
{
    return life == CPROF_GPU_CONTEXT_LIVE ? CPROF_GPU_KNOWN
                                          : (life == CPROF_GPU_CONTEXT_OFF ? CPROF_GPU_FAILED : CPROF_GPU_LOST);
}

cprof_gpu_cause cprof_event_pool_life(cprof_gpu_context *context)
{
    lock_pool();
    cprof_gpu_cause cause = cause_of_life(context->life);
    unlock_pool();
    return cause;
}

void cprof_event_pool_drop(cprof_gpu_context *context)
{
    lock_pool();
    drop_lock_held(context);
    unlock_pool();
}

void cprof_event_pool_turn_off(cprof_gpu_context *context)
{
    lock_pool();
    if (context->life == CPROF_GPU_CONTEXT_LIVE) {
        end_life_lock_held(context, CPROF_GPU_CONTEXT_OFF, CPROF_GPU_FAILED);
    }
    unlock_pool();
}

void cprof_event_pool_drop_all(void)
{
    lock_pool();
    while (pool.contexts != NULL) {
        drop_lock_held(pool.contexts);
    }
    unlock_pool();
}

/* Marks. */

static cprof_gpu_mark *spare_lock_held(cprof_gpu_cause *cause)
{
    cprof_gpu_mark *mark = pool.spare;
    if (mark != NULL) {
        pool.spare = mark->next;
        return mark;
    }
    if (pool.marks == NULL) {
        pool.marks = cprof_alloc_map_pages(pages(CPROF_EVENT_MOST_PENDING * sizeof *mark));
    }
    if (pool.marks == NULL || pool.made == CPROF_EVENT_MOST_PENDING) {
        *cause = CPROF_GPU_FULL;
        return NULL;
    }
    return &pool.marks[pool.made++];
}

static cu_event idle_lock_held(cprof_gpu_context *context)
{
    return context->idle_count > 0 ? context->idle[--context->idle_count] : NULL;
}

cprof_gpu_mark *cprof_event_pool_take(cprof_gpu_context *context, cprof_gpu_cause *cause)
{
    lock_pool();
    *cause = cause_of_life(context->life);
    cprof_gpu_mark *mark = *cause == CPROF_GPU_KNOWN ? spare_lock_held(cause) : NULL;
    if (mark != NULL) {
        *mark = (cprof_gpu_mark){
            .context = context,
            .first = idle_lock_held(context),
            .last = idle_lock_held(context),
        };
        context->users++;
    }
    unlock_pool();
    return mark;
}

void cprof_event_pool_give_back(cprof_gpu_mark *mark)
{
    lock_pool();
    release_lock_held(mark);
    unlock_pool();
}

/* A stream that nobody waits for makes place for another one. */
static cprof_gpu_stream *place_lock_held(cprof_gpu_context *context)
{
    if (context->stream_count < CPROF_EVENT_POOL_STREAMS) {
        return &context->streams[context->stream_count++];
    }
    for (size_t i = 0; i < CPROF_EVENT_POOL_STREAMS; i++) {
        cprof_gpu_stream *stream = &context->streams[i];
        if (stream->oldest == NULL) {
            context->idle[context->idle_count] = stream->base;
            context->idle_count += stream->base != NULL;
            return stream;
        }
    }
    return NULL;
}

static cprof_gpu_stream *stream_lock_held(cprof_gpu_context *context, cu_stream handle)
{
    for (size_t i = 0; i < context->stream_count; i++) {
        if (context->streams[i].handle == handle) {
            return &context->streams[i];
        }
    }
    cprof_gpu_stream *stream = place_lock_held(context);
    if (stream != NULL) {
        stream->handle = handle;
        stream->base = NULL;
        stream->base_ns = 0;
        stream->delay = (cprof_event_delay){0};
    }
    return stream;
}

cprof_gpu_cause cprof_event_pool_push(cprof_gpu_mark *mark, cu_stream end_stream)
{
    lock_pool();
    cprof_gpu_cause cause = cause_of_life(mark->context->life);
    if (cause == CPROF_GPU_KNOWN) {
        cprof_gpu_stream *stream = stream_lock_held(mark->context, end_stream);
        mark->is_multi_stream = mark->stream != end_stream;
        if (stream != NULL) {
            mark->next = NULL;
            mark->is_pending = true;
            if (stream->oldest == NULL) {
                stream->oldest = mark;
            } else {
                stream->newest->next = mark;
            }
            stream->newest = mark;
            mark->context->pending++;
        } else {
            cause = CPROF_GPU_FULL;
        }
    }
    unlock_pool();
    return cause;
}

cprof_gpu_stream *cprof_event_pool_turn(cprof_gpu_context *context)
{
    cprof_gpu_stream *found = NULL;
    lock_pool();
    for (size_t i = 0; i < context->stream_count && context->pending > 0 && found == NULL; i++) {
        context->turn = (context->turn + 1) % context->stream_count;
        cprof_gpu_stream *stream = &context->streams[context->turn];
        found = stream->oldest != NULL ? stream : NULL;
    }
    unlock_pool();
    return found;
}

cprof_gpu_stream *cprof_event_pool_stream(cprof_gpu_context *context, size_t *index)
{
    cprof_gpu_stream *found = NULL;
    lock_pool();
    while (*index < context->stream_count && found == NULL) {
        cprof_gpu_stream *stream = &context->streams[(*index)++];
        found = stream->oldest != NULL ? stream : NULL;
    }
    unlock_pool();
    return found;
}

bool cprof_event_pool_oldest(const cprof_gpu_stream *stream, cprof_gpu_pair *pair)
{
    lock_pool();
    const cprof_gpu_mark *mark = stream->oldest;
    if (mark != NULL) {
        *pair = (cprof_gpu_pair){mark->first, mark->last, mark->is_multi_stream ? NULL : stream->base};
    }
    unlock_pool();
    return mark != NULL;
}

/* The mark's first event becomes the base, and the old base is the mark's. */
static void rebase_lock_held(cprof_gpu_stream *stream, cprof_gpu_mark *mark, cprof_ns device_ns)
{
    cu_event old = stream->base;
    stream->base = mark->first;
    stream->base_ns = device_ns;
    mark->first = old;
}

/* Negative when it is not known: the pair is of two streams, or the driver did not tell. */
static cprof_ns queue_ns_lock_held(cprof_gpu_stream *stream, cprof_gpu_mark *mark, const cprof_gpu_times *times)
{
    if (mark->is_multi_stream) {
        return -1;
    }
    if (stream->base == NULL || !times->is_based) {
        bool is_first = stream->base == NULL;
        rebase_lock_held(stream, mark, 0);
        stream->delay = (cprof_event_delay){0};
        cprof_ns queue_ns = cprof_event_pool_delay_of(&stream->delay, mark->host_ns, 0);
        return is_first ? queue_ns : -1;
    }
    cprof_ns device_ns = stream->base_ns + times->from_base_ns;
    if (times->from_base_ns >= BASE_LIFE_NS) {
        rebase_lock_held(stream, mark, device_ns);
    }
    return cprof_event_pool_delay_of(&stream->delay, mark->host_ns, device_ns);
}

void cprof_event_pool_resolve(cprof_gpu_context *context, cprof_gpu_stream *stream, const cprof_gpu_times *times)
{
    lock_pool();
    if (context->life == CPROF_GPU_CONTEXT_LIVE) {
        cprof_gpu_mark *mark = pop_lock_held(context, stream);
        if (times->cause != CPROF_GPU_KNOWN) {
            miss_lock_held(mark, times->cause);
        } else {
            cprof_ns queue_ns = queue_ns_lock_held(stream, mark, times);
            if (mark->accum != NULL) {
                cprof_accum_add_gpu(mark->accum, mark->generation, times->gpu_ns, queue_ns, mark->is_multi_stream);
            }
        }
        release_lock_held(mark);
    }
    unlock_pool();
}

cu_event cprof_event_pool_surplus(cprof_gpu_context *context)
{
    lock_pool();
    cu_event event = context->idle_count > CPROF_EVENT_POOL_IDLE ? idle_lock_held(context) : NULL;
    unlock_pool();
    return event;
}

static bool waits_for(const cprof_gpu_mark *mark, const cprof_registry *registry)
{
    return mark->is_pending && mark->accum != NULL && mark->accum->registry == registry;
}

uint64_t cprof_event_pool_pending(const cprof_registry *registry)
{
    uint64_t count = 0;
    lock_pool();
    for (size_t i = 0; i < pool.made; i++) {
        count += waits_for(&pool.marks[i], registry);
    }
    unlock_pool();
    return count;
}

void cprof_event_pool_forget(const cprof_registry *registry)
{
    lock_pool();
    for (size_t i = 0; i < pool.made; i++) {
        if (waits_for(&pool.marks[i], registry)) {
            pool.marks[i].accum = NULL;
        }
    }
    unlock_pool();
}

static void forget_all(void)
{
    pool.contexts = NULL;
    pool.context_count = 0;
    pool.marks = NULL;
    pool.made = 0;
    pool.spare = NULL;
}

/* Pools in use when the other threads vanished may be half-written, and calls still hold marks: they stay
 * as they are. */
void cprof_event_pool_after_fork_in_child(void)
{
    pool.lock = (cprof_lock){0};
    forget_all();
}

void cprof_event_pool_reset_for_test(void)
{
    while (pool.contexts != NULL) {
        cprof_gpu_context *context = pool.contexts;
        pool.contexts = context->next;
        cprof_alloc_unmap_pages(context, pages(sizeof *context));
    }
    cprof_alloc_unmap_pages(pool.marks, pages(CPROF_EVENT_MOST_PENDING * sizeof *pool.marks));
    forget_all();
}

static void begin_window(cprof_event_delay *delay, cprof_ns host_ns, cprof_ns offset_ns, cprof_ns previous_offset_ns)
{
    *delay = (cprof_event_delay){
        .is_begun = true,
        .window_ns = host_ns,
        .offset_ns = offset_ns,
        .previous_offset_ns = previous_offset_ns,
    };
}

cprof_ns cprof_event_pool_delay_of(cprof_event_delay *delay, cprof_ns host_ns, cprof_ns device_ns)
{
    cprof_ns offset_ns = host_ns - device_ns;
    cprof_ns age_ns = host_ns - delay->window_ns;
    if (!delay->is_begun || age_ns >= 2 * CPROF_EVENT_DELAY_WINDOW_NS) {
        begin_window(delay, host_ns, offset_ns, offset_ns);
    } else if (age_ns >= CPROF_EVENT_DELAY_WINDOW_NS) {
        begin_window(delay, host_ns, offset_ns, delay->offset_ns);
    } else if (offset_ns > delay->offset_ns) {
        delay->offset_ns = offset_ns;
    }
    cprof_ns best_ns = delay->offset_ns > delay->previous_offset_ns ? delay->offset_ns : delay->previous_offset_ns;
    return best_ns - offset_ns;
}

bool cprof_event_pool_ns_of_ms(float ms, cprof_ns *ns)
{
    double exact = (double)ms * 1e6;           /* 24 bits times 14: nothing is lost */
    const double most = 4611686018427387904.0; /* 2^62 */
    if (!(exact > -most && exact < most)) {
        return false;
    }
    *ns = (cprof_ns)(exact < 0 ? exact - 0.5 : exact + 0.5);
    return true;
}
