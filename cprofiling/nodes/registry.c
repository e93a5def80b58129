#define _GNU_SOURCE
#include "cprofiling/nodes/registry.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/random.h"

enum { SHARE = 14, PAGE = 4096 };

/* Accumulators that never move: as many as two pages hold. */
struct cprof_slab {
    cprof_accum accums[SHARE];
};

static size_t slab_bytes(void)
{
    return (sizeof(struct cprof_slab) + PAGE - 1) / PAGE * PAGE;
}

static cprof_lock list_lock;
static cprof_registry *first_registry;

/* Flags added to those of an owner's registries. */
typedef struct {
    uint64_t owner;
    unsigned flags;
} added;

static added recording;
static added capture;

static void set_added_list_lock_held(cprof_registry *registry)
{
    unsigned flags = recording.owner == registry->owner ? recording.flags : 0;
    cprof_epoch_set_added(&registry->epoch, flags | (capture.owner == registry->owner ? capture.flags : 0));
}

void cprof_registry_leave_recording(cprof_registry *registry)
{
    cprof_epoch_set_added(&registry->epoch, 0);
}

static void add_flags(added *kind, uint64_t owner, unsigned flags)
{
    cprof_lock_acquire(&list_lock);
    *kind = (added){owner, flags};
    for (cprof_registry *registry = first_registry; registry != NULL; registry = registry->next) {
        if (registry->owner == owner) {
            set_added_list_lock_held(registry);
        }
    }
    cprof_lock_release(&list_lock);
}

void cprof_registry_record_owner(uint64_t owner, unsigned flags)
{
    add_flags(&recording, owner, flags);
}

void cprof_registry_capture_owner(uint64_t owner, unsigned flags)
{
    add_flags(&capture, owner, flags);
}

cprof_registry *cprof_registry_create(uint64_t owner)
{
    cprof_registry *registry = cprof_alloc_zeroed(sizeof *registry);
    if (registry == NULL) {
        return NULL;
    }
    cprof_random_bytes(registry->id, sizeof registry->id);
    cprof_epoch_begin(&registry->epoch);
    registry->owner = owner;
    cprof_lock_acquire(&list_lock);
    set_added_list_lock_held(registry);
    registry->next = first_registry;
    if (first_registry != NULL) {
        first_registry->previous = registry;
    }
    first_registry = registry;
    cprof_lock_release(&list_lock);
    return registry;
}

static cprof_accum *accum_at(const cprof_registry *registry, size_t index)
{
    return &registry->slabs[index / SHARE]->accums[index % SHARE];
}

void cprof_registry_destroy(cprof_registry *registry)
{
    if (registry == NULL) {
        return;
    }
    cprof_lock_acquire(&list_lock);
    if (registry->previous != NULL) {
        registry->previous->next = registry->next;
    } else {
        first_registry = registry->next;
    }
    if (registry->next != NULL) {
        registry->next->previous = registry->previous;
    }
    cprof_lock_release(&list_lock);
    for (size_t i = 0; i < registry->names.count; i++) {
        cprof_accum_dispose(accum_at(registry, i));
    }
    for (size_t i = 0; i < registry->slab_count; i++) {
        cprof_alloc_unmap_pages(registry->slabs[i], slab_bytes());
    }
    cprof_alloc_release(registry->slabs);
    cprof_names_dispose(&registry->names);
    cprof_alloc_release(registry);
}

void cprof_registry_configure(cprof_registry *registry, unsigned flags, uint64_t skip_first_n, bool reset)
{
    cprof_lock_acquire(&registry->read_lock);
    if ((flags & CPROF_FLAG_SHAPES) != 0) {
        atomic_store(&registry->has_shapes, true);
    }
    cprof_epoch_configure(&registry->epoch, flags, skip_first_n, reset);
    cprof_lock_release(&registry->read_lock);
}

void cprof_registry_reset(cprof_registry *registry)
{
    cprof_lock_acquire(&registry->read_lock);
    cprof_epoch_reset(&registry->epoch);
    cprof_lock_release(&registry->read_lock);
}

static bool add_slab_table_lock_held(cprof_registry *registry)
{
    struct cprof_slab **slabs =
        cprof_alloc_grow(registry->slabs, &registry->slab_capacity, registry->slab_count, sizeof *slabs, 4);
    if (slabs == NULL) {
        return false;
    }
    registry->slabs = slabs;
    struct cprof_slab *slab = cprof_alloc_map_pages(slab_bytes());
    if (slab == NULL) {
        return false;
    }
    registry->slabs[registry->slab_count++] = slab;
    return true;
}

static cprof_accum *add_key_table_lock_held(cprof_registry *registry, cprof_names names)
{
    size_t index = registry->names.count;
    if (index / SHARE == registry->slab_count && !add_slab_table_lock_held(registry)) {
        return NULL;
    }
    if (cprof_names_add(&registry->names, names) != CPROF_OK) {
        return NULL;
    }
    cprof_accum *accum = accum_at(registry, index);
    accum->registry = registry;
    accum->epoch = &registry->epoch;
    accum->index = (uint32_t)index;
    return accum;
}

static const cprof_name overflow_name = {CPROF_REGISTRY_OVERFLOW, sizeof CPROF_REGISTRY_OVERFLOW - 1};

static cprof_accum *find_or_add_table_lock_held(cprof_registry *registry, cprof_names names)
{
    size_t index = cprof_names_find(&registry->names, names);
    if (index == CPROF_NAMES_ABSENT && registry->names.count >= CPROF_REGISTRY_MAX_KEYS) {
        atomic_fetch_add(&registry->refused_keys, 1);
        /* The key that stands for `names` once all keys are taken. Stages are bounded, too: past that all go to one key. */
        names.node = overflow_name;
        if (registry->names.count >= CPROF_REGISTRY_MAX_KEYS + CPROF_REGISTRY_MAX_OVERFLOW_STAGES &&
            cprof_names_find(&registry->names, names) == CPROF_NAMES_ABSENT) {
            names.stage = overflow_name;
        }
        index = cprof_names_find(&registry->names, names);
    }
    return index != CPROF_NAMES_ABSENT ? accum_at(registry, index) : add_key_table_lock_held(registry, names);
}

cprof_accum *cprof_registry_accum(cprof_registry *registry, cprof_names names)
{
    cprof_lock_acquire(&registry->table_lock);
    cprof_accum *accum = find_or_add_table_lock_held(registry, names);
    cprof_lock_release(&registry->table_lock);
    return accum;
}

cprof_names cprof_registry_names(const cprof_accum *accum)
{
    cprof_registry *registry = accum->registry;
    cprof_lock_acquire(&registry->table_lock);
    cprof_names names = cprof_names_at(&registry->names, accum->index);
    cprof_lock_release(&registry->table_lock);
    return names;
}

/* How a visit reads. */
typedef struct {
    cprof_registry *registry;
    cprof_visitor visitor;
    void *context;
    cprof_generation *generation;
    cprof_registry_seen *seen; /* NULL: all keys are shown */
    int64_t deadline_ns;
    uint64_t *counts; /* owned, as the room for shapes; NULL until the first key is shown */
    cprof_resources_copy extra;
} visit;

static cprof_status make_room(visit *how)
{
    if (how->counts == NULL) {
        how->counts = cprof_alloc_zeroed((size_t)2 * CPROF_HISTOGRAM_BUCKETS * sizeof *how->counts);
        how->extra.gpu_counts = how->counts + CPROF_HISTOGRAM_BUCKETS;
    }
    bool has_shapes = atomic_load(&how->registry->has_shapes);
    if (has_shapes && how->extra.shapes == NULL) {
        how->extra.shapes = cprof_alloc_zeroed(sizeof *how->extra.shapes);
    }
    return how->counts != NULL && (how->extra.shapes != NULL || !has_shapes) ? CPROF_OK : CPROF_NO_MEMORY;
}

/* Whether a key has changed since it was seen, and what is to be remembered of it: CPROF_ABSENT where it has not. */
static cprof_status look_for_changes(const visit *how, cprof_accum *accum, uint64_t *changes)
{
    cprof_registry_seen *seen = how->seen;
    if (accum->index == seen->count) {
        uint64_t *grown = cprof_alloc_grow(seen->changes, &seen->capacity, seen->count, sizeof *grown, SHARE);
        if (grown == NULL) {
            return CPROF_NO_MEMORY;
        }
        seen->changes = grown;
        seen->changes[seen->count++] = 0;
    }
    cprof_status status = cprof_accum_changes(accum, seen->generation, how->deadline_ns, changes);
    return status == CPROF_OK && seen->changes[accum->index] == *changes ? CPROF_ABSENT : status;
}

static cprof_status names_before(const visit *how, const cprof_accum *accum, cprof_names *names)
{
    if (!cprof_lock_acquire_before(&how->registry->table_lock, how->deadline_ns)) {
        return CPROF_BUSY;
    }
    *names = cprof_names_at(&how->registry->names, accum->index);
    cprof_lock_release(&how->registry->table_lock);
    return CPROF_OK;
}

static cprof_status visit_key(visit *how, cprof_accum *accum)
{
    cprof_names names;
    cprof_figures figures;
    uint64_t order, changes = 0;
    cprof_status status = how->seen != NULL ? look_for_changes(how, accum, &changes) : CPROF_OK;
    status = status == CPROF_OK ? make_room(how) : status;
    status = status == CPROF_OK ? names_before(how, accum, &names) : status;
    if (status == CPROF_OK) {
        status = cprof_accum_copy(accum, how->generation, how->deadline_ns, &figures, how->counts, &order, &how->extra);
    }
    how->generation->unread += status == CPROF_BUSY;
    if (status != CPROF_OK) {
        return status == CPROF_NO_MEMORY ? status : CPROF_OK;
    }
    status = how->visitor(how->context, names, order, &figures, how->counts);
    if (how->seen != NULL && status == CPROF_OK) {
        how->seen->changes[accum->index] = changes;
    }
    return status;
}

/* Slab pointers may move while keys are added, so each look takes the lock. */
static cprof_status visit_read_lock_held(visit *how)
{
    cprof_registry *registry = how->registry;
    cprof_status status = CPROF_OK;
    size_t count = SHARE;
    for (size_t first = 0; status == CPROF_OK && count == SHARE; first += SHARE) {
        if (!cprof_lock_acquire_before(&registry->table_lock, how->deadline_ns)) {
            how->generation->unread++;
            return CPROF_OK;
        }
        count = registry->names.count - first < SHARE ? registry->names.count - first : SHARE;
        struct cprof_slab *slab = count > 0 ? registry->slabs[first / SHARE] : NULL;
        cprof_lock_release(&registry->table_lock);
        for (size_t i = 0; status == CPROF_OK && i < count; i++) {
            status = visit_key(how, &slab->accums[i]);
        }
    }
    return status;
}

cprof_status cprof_registry_visit_changed(cprof_registry *registry, cprof_registry_seen *seen, cprof_visitor visitor,
                                          void *context, cprof_generation *generation)
{
    visit how = {
        .registry = registry,
        .visitor = visitor,
        .context = context,
        .generation = generation,
        .seen = seen,
    };
    cprof_lock_acquire(&registry->read_lock);
    how.deadline_ns = cprof_clock_monotonic_ns() + (int64_t)CPROF_REGISTRY_PATIENCE_MS * 1000000;
    cprof_status status = CPROF_BUSY;
    if (cprof_epoch_present_before(&registry->epoch, how.deadline_ns, generation)) {
        if (seen != NULL && (seen->generation != generation->generation || seen->has_p2 != generation->has_p2)) {
            seen->generation = generation->generation;
            seen->has_p2 = generation->has_p2;
            seen->count = 0;
        }
        status = visit_read_lock_held(&how);
    }
    cprof_lock_release(&registry->read_lock);
    cprof_alloc_release(how.extra.shapes);
    cprof_alloc_release(how.counts);
    return status;
}

cprof_status cprof_registry_visit(cprof_registry *registry, cprof_visitor visitor, void *context, cprof_generation *generation)
{
    return cprof_registry_visit_changed(registry, NULL, visitor, context, generation);
}

void cprof_registry_keep_at_fork(cprof_registry *registry)
{
    atomic_store(&registry->keeps, true);
}

void cprof_registry_before_fork(void)
{
    cprof_lock_acquire(&list_lock);
    for (cprof_registry *registry = first_registry; registry != NULL; registry = registry->next) {
        cprof_lock_acquire(&registry->table_lock);
        cprof_lock_acquire(&registry->epoch.lock);
    }
}

void cprof_registry_after_fork_in_parent(void)
{
    for (cprof_registry *registry = first_registry; registry != NULL; registry = registry->next) {
        cprof_lock_release(&registry->epoch.lock);
        cprof_lock_release(&registry->table_lock);
    }
    cprof_lock_release(&list_lock);
}

void cprof_registry_after_fork_in_child(void)
{
    recording.flags = capture.flags = 0;
    for (cprof_registry *registry = first_registry; registry != NULL; registry = registry->next) {
        cprof_random_bytes(registry->id, sizeof registry->id);
        registry->live = NULL; /* it is the parent's */
        cprof_epoch_restart_lock_held(&registry->epoch, !atomic_load(&registry->keeps));
        cprof_lock_release(&registry->epoch.lock);
        cprof_lock_release(&registry->table_lock);
    }
    cprof_lock_release(&list_lock);
}
