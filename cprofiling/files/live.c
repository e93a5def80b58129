#define _GNU_SOURCE
#include "cprofiling/files/live.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/files/live_file.h"
#include "cprofiling/base/bytes.h"
#include "cprofiling/files/snapshot.h"
#include "cprofiling/base/random.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    PART_HEAD = 2 * 4 + 2 * 8, /* bytes */
    SHARE = 20,                /* of the time, what the thread may take at most: one of so many */
    STACK = 256 * 1024,
    MAY_RETURN = 16, /* so many that left last may come back to what they had counted; others are merged, as many at a time */
};

/* A registry and its state. */
typedef struct {
    cprof_registry *registry; /* borrowed: it is taken out before it goes */
    cprof_name *texts;        /* owned, with what they point to: the label, and the notes */
    size_t note_count;
    double cost_ns;
    const _Atomic uint64_t *errors;
    uint64_t kept; /* the generation with statistics merged already; 0: none */
} source;

/* Who commits has `writing` from the beginning to the end, and `lock` only while the statistics are copied: who adds or takes
 * out a registry does not wait for the disk. */
struct cprof_live {
    pid_t process;  /* that has opened the file, */
    uint32_t epoch; /* and after which fork */
    pthread_t thread;
    uint64_t interval_ns;
    const _Atomic uint64_t *errors; /* that belong to no registry; or NULL */
    pthread_mutex_t writing;        /* taken before `lock`; guards */
    cprof_live_file file;
    uint8_t *bytes; /* of the statistics to be written */
    size_t size;
    size_t capacity;
    size_t keys; /* in them */
    cprof_live_state state;
    pthread_mutex_t lock; /* guards */
    pthread_cond_t wake;
    pthread_cond_t idle;
    size_t held; /* by those who are about to commit */
    bool is_ending;
    source *sources;
    size_t source_count;
    size_t source_capacity;
    cprof_snapshot **left; /* owned, with the statistics of registries that have left: who left last comes last */
    size_t left_count;
    size_t left_capacity;
    cprof_snapshot *merged;   /* owned, as the next: of those who left before; NULL: none has counted anything */
    cprof_snapshot *shown;    /* with those left; NULL: it is `merged`, or there is something new */
    uint64_t folded;          /* keys for which there was no room */
    uint64_t lost;            /* statistics that could not be kept */
    cprof_snapshot_source id; /* the file's own, for where there are too many sources */
};

/* ---- Statistics as bytes */

static uint8_t *more(cprof_live *live, size_t size)
{
    uint8_t *bytes = cprof_alloc_reserve(live->bytes, &live->capacity, live->size + size);
    if (bytes == NULL) {
        return NULL;
    }
    live->bytes = bytes;
    uint8_t *at = bytes + live->size;
    live->size += size;
    return at;
}

static cprof_status put_part(cprof_live *live, cprof_name label, unsigned flags, uint64_t refused,
                             const cprof_snapshot *snapshot)
{
    size_t size = cprof_snapshot_size(snapshot);
    live->keys += snapshot->key_count;
    uint8_t *at = more(live, PART_HEAD + label.length + size);
    if (at == NULL) {
        return CPROF_NO_MEMORY;
    }
    cprof_bytes_store(at, label.length, 4);
    cprof_bytes_store(at + 4, flags, 4);
    cprof_bytes_store(at + 8, refused, 8);
    cprof_bytes_store(at + 16, size, 8);
    memcpy(at + PART_HEAD, label.bytes, label.length);
    cprof_snapshot_encode(snapshot, at + PART_HEAD + label.length);
    return CPROF_OK;
}

static uint64_t count_of(const _Atomic uint64_t *errors)
{
    return errors != NULL ? atomic_load_explicit(errors, memory_order_relaxed) : 0;
}

/* `errors`: others than the registry's own. */
static cprof_status collect(const source *from, uint64_t errors, cprof_snapshot **snapshot)
{
    cprof_snapshot_remarks remarks = {
        .taken_ns = (uint64_t)cprof_clock_time_of_day(),
        .internal_errors = count_of(from->errors) + errors,
        .cost_ns = from->cost_ns,
        .notes = from->texts + 1,
        .note_count = from->note_count,
    };
    return cprof_snapshot_collect(from->registry, &remarks, snapshot);
}

static cprof_status put_source(cprof_live *live, const source *from, uint64_t errors)
{
    cprof_snapshot *snapshot;
    cprof_status status = collect(from, errors, &snapshot);
    if (status != CPROF_OK) {
        return status;
    }
    bool is_on = (cprof_registry_state(from->registry) & CPROF_FLAG_STATS) != 0;
    uint64_t refused = atomic_load_explicit(&from->registry->refused_keys, memory_order_relaxed);
    status = put_part(live, from->texts[0], is_on ? CPROF_LIVE_ON : 0, refused, snapshot);
    cprof_snapshot_destroy(snapshot);
    return status;
}

/* ---- Statistics of registries that have left */

static void forget_shown(cprof_live *live)
{
    cprof_snapshot_destroy(live->shown);
    live->shown = NULL;
}

/* Merges the statistics merged before with the first `count` of those left. */
static cprof_status merge_left(const cprof_live *live, size_t count, cprof_snapshot **merged)
{
    const cprof_snapshot **all = cprof_alloc_zeroed((1 + count) * sizeof *all);
    if (all == NULL) {
        return CPROF_NO_MEMORY;
    }
    all[0] = live->merged;
    size_t known = live->merged != NULL;
    for (size_t i = 0; i < count; i++) {
        all[known + i] = live->left[i];
    }
    cprof_snapshot_clash clash;
    cprof_status status = cprof_snapshot_merge(all, known + count, merged, &clash);
    cprof_alloc_release(all);
    return status;
}

/* Takes some of those left out of the list, and destroys them. */
static void drop_left(cprof_live *live, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        cprof_snapshot_destroy(live->left[i]);
    }
    live->left_count -= count;
    memmove(live->left + first, live->left + first + count, (live->left_count - first) * sizeof *live->left);
    forget_shown(live);
}

/* Merges all but those that left last, once there are enough of them. Without memory they wait. */
static void merge_those_before(cprof_live *live)
{
    if (live->left_count < 2 * (size_t)MAY_RETURN) {
        return;
    }
    size_t count = live->left_count - MAY_RETURN;
    cprof_snapshot *merged;
    cprof_status status = merge_left(live, count, &merged);
    if (status == CPROF_NO_MEMORY) {
        return;
    }
    if (status == CPROF_OK) {
        cprof_snapshot_destroy(live->merged);
        live->merged = merged;
        /* So many merged sources are told apart; then they are the file's, or their list would grow for ever.
         * So would keys; without memory for less of them, there are more until the next time. */
        (void)cprof_snapshot_bound(live->merged, CPROF_REGISTRY_MAX_KEYS, CPROF_REGISTRY_MAX_OVERFLOW_STAGES, &live->folded);
        if (live->merged->source_count > CPROF_LIVE_SOURCES) {
            live->merged->sources[0] = live->id;
            live->merged->source_count = 1;
        }
    } else { /* nor would they fit the next time */
        live->lost += count;
    }
    drop_left(live, 0, count);
}

/* Keeps the statistics of a registry that leaves; counts those for which there is no memory as lost. */
static void keep(cprof_live *live, const source *from)
{
    cprof_snapshot *snapshot;
    if (collect(from, 0, &snapshot) != CPROF_OK) {
        live->lost++;
        return;
    }
    bool is_new = snapshot->key_count > 0 && snapshot->sources[0].generation != from->kept;
    cprof_snapshot **left =
        is_new ? cprof_alloc_grow(live->left, &live->left_capacity, live->left_count, sizeof *left, 2 * (size_t)MAY_RETURN)
               : NULL;
    if (left == NULL) {
        live->lost += is_new;
        cprof_snapshot_destroy(snapshot);
        return;
    }
    live->left = left;
    left[live->left_count++] = snapshot;
    forget_shown(live);
    merge_those_before(live);
}

/* Drops the same statistics from those left when a registry is added again, as it is part of the file itself. Returns its
 * generation where they are merged with others. */
static uint64_t take_back(cprof_live *live, const cprof_registry *registry)
{
    cprof_snapshot_source wanted = {.generation = cprof_registry_state(registry) >> CPROF_STATE_GENERATION_SHIFT};
    memcpy(wanted.id, registry->id, sizeof wanted.id);
    for (size_t i = 0; i < live->left_count; i++) {
        if (cprof_snapshot_compare_sources(&live->left[i]->sources[0], &wanted) == 0) {
            drop_left(live, i, 1);
            return 0;
        }
    }
    for (size_t i = 0; live->merged != NULL && i < live->merged->source_count; i++) {
        if (cprof_snapshot_compare_sources(&live->merged->sources[i], &wanted) == 0) {
            return wanted.generation;
        }
    }
    return 0;
}

/* Faults that belong to no registry are the first part's, as there is nothing else that could tell them. */
static cprof_status put_all(cprof_live *live)
{
    live->size = live->keys = 0;
    cprof_status status =
        live->left_count > 0 && live->shown == NULL ? merge_left(live, live->left_count, &live->shown) : CPROF_OK;
    if (status != CPROF_OK || more(live, 8) == NULL) {
        return status != CPROF_OK ? status : CPROF_NO_MEMORY;
    }
    const cprof_snapshot *gone = live->shown != NULL ? live->shown : live->merged;
    uint64_t errors = count_of(live->errors) + live->lost;
    uint64_t parts = 0;
    for (size_t i = 0; status == CPROF_OK && i < live->source_count; i++) {
        if (live->sources[i].kept != cprof_registry_state(live->sources[i].registry) >> CPROF_STATE_GENERATION_SHIFT) {
            status = put_source(live, &live->sources[i], parts++ == 0 ? errors : 0);
        }
    }
    if (status == CPROF_OK && gone != NULL) {
        cprof_snapshot with_errors = *gone;
        with_errors.internal_errors += parts++ == 0 ? errors : 0;
        status = put_part(live, (cprof_name){"", 0}, CPROF_LIVE_GONE, live->folded, &with_errors);
    }
    cprof_bytes_store(live->bytes, parts, 8);
    return status;
}

/* ---- Commits */

static void commit(cprof_live *live, uint64_t flags, cprof_live_state *state)
{
    (void)pthread_mutex_lock(&live->writing);
    (void)pthread_mutex_lock(&live->lock);
    cprof_status status = put_all(live);
    (void)pthread_mutex_unlock(&live->lock);
    const cprof_live_statistics statistics = {live->bytes, live->size,
                                              status == CPROF_OK          ? 0
                                              : status == CPROF_NO_MEMORY ? ENOMEM
                                                                          : EBUSY,
                                              flags};
    if (live->file.descriptor >= 0) {
        live->state.error = cprof_live_file_commit(&live->file, &statistics);
    } else if (statistics.error == 0 && live->keys > 0) {
        live->state.error = cprof_live_file_make(&live->file, &statistics);
    } else {
        live->state.error = statistics.error;
    }
    live->state.commits = live->file.commits;
    live->state.bytes = live->file.length;
    *state = live->state;
    (void)pthread_mutex_unlock(&live->writing);
}

/* ---- The thread */

static void *run(void *context)
{
    cprof_live *live = context;
    (void)prctl(PR_SET_NAME, "cprofiling-live");
    uint64_t pause_ns = live->interval_ns;
    (void)pthread_mutex_lock(&live->lock);
    while (!live->is_ending) {
        uint64_t when_ns = (uint64_t)cprof_clock_monotonic_ns() + pause_ns;
        struct timespec when = {(time_t)(when_ns / 1000000000u), (long)(when_ns % 1000000000u)};
        while (!live->is_ending && pthread_cond_timedwait(&live->wake, &live->lock, &when) != ETIMEDOUT) {
        }
        if (!live->is_ending) {
            (void)pthread_mutex_unlock(&live->lock);
            cprof_live_state state;
            int64_t began_ns = cprof_clock_monotonic_ns();
            commit(live, 0, &state);
            uint64_t least_ns = (uint64_t)(cprof_clock_monotonic_ns() - began_ns) * (SHARE - 1);
            pause_ns = least_ns > live->interval_ns ? least_ns : live->interval_ns;
            (void)pthread_mutex_lock(&live->lock);
        }
    }
    (void)pthread_mutex_unlock(&live->lock);
    return NULL;
}

/* Signals are the program's own: its handlers do not run here. */
static int start(cprof_live *live)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    (void)sigfillset(&all);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, STACK);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = pthread_create(&live->thread, &attributes, run, live);
    if (error == EINVAL) { /* libraries with much data of each thread's own need more of a stack */
        error = pthread_create(&live->thread, NULL, run, live);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return error;
}

static void release(cprof_live *live)
{
    for (size_t i = 0; i < live->source_count; i++) {
        cprof_alloc_release(live->sources[i].texts);
    }
    cprof_alloc_release(live->sources);
    for (size_t i = 0; i < live->left_count; i++) {
        cprof_snapshot_destroy(live->left[i]);
    }
    cprof_alloc_release(live->left);
    cprof_snapshot_destroy(live->merged);
    cprof_snapshot_destroy(live->shown);
    cprof_alloc_release(live->bytes);
    cprof_live_file_dispose(&live->file);
    cprof_alloc_release(live);
}

int cprof_live_open(const cprof_live_plan *plan, cprof_live **opened)
{
    cprof_live *live = cprof_alloc_zeroed(sizeof *live);
    if (live == NULL) {
        return ENOMEM;
    }
    if (!cprof_live_file_init(&live->file, plan)) {
        release(live);
        return ENOMEM;
    }
    live->process = getpid();
    live->epoch = atomic_load(&cprof_lock_epoch);
    live->interval_ns = plan->interval_ns;
    live->errors = plan->errors;
    cprof_random_bytes(live->id.id, sizeof live->id.id);
    pthread_condattr_t attributes;
    (void)pthread_mutex_init(&live->writing, NULL);
    (void)pthread_mutex_init(&live->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&live->wake, &attributes);
    (void)pthread_cond_init(&live->idle, NULL);
    (void)pthread_condattr_destroy(&attributes);
    cprof_live_state state;
    commit(live, 0, &state);
    int error = state.error != 0 ? state.error : start(live);
    if (error != 0) {
        release(live);
        return error;
    }
    *opened = live;
    return 0;
}

/* A child in a namespace of its own may have its parent's number; one that was not forked by the C library, its epoch. */
static bool is_own(const cprof_live *live)
{
    return live->epoch == atomic_load(&cprof_lock_epoch) && live->process == getpid();
}

/* ---- Registries */

/* One allocation with label and notes. NULL without memory. */
static cprof_name *copy_texts(const cprof_live_about *about)
{
    size_t count = about->note_count + 1;
    size_t size = count * sizeof(cprof_name) + 1;
    for (size_t i = 0; i < count; i++) {
        size += i == 0 ? about->label.length : about->notes[i - 1].length;
    }
    cprof_name *texts = cprof_alloc_zeroed(size);
    char *at = (char *)(texts + count);
    for (size_t i = 0; texts != NULL && i < count; i++) {
        cprof_name text = i == 0 ? about->label : about->notes[i - 1];
        memcpy(at, text.bytes, text.length);
        texts[i] = (cprof_name){at, text.length};
        at += text.length;
    }
    return texts;
}

static cprof_status add_lock_held(cprof_live *live, cprof_registry *registry, const cprof_live_about *about)
{
    source *sources = cprof_alloc_grow(live->sources, &live->source_capacity, live->source_count, sizeof *sources, 4);
    if (sources == NULL) {
        return CPROF_NO_MEMORY;
    }
    live->sources = sources;
    cprof_name *texts = copy_texts(about);
    if (texts == NULL) {
        return CPROF_NO_MEMORY;
    }
    live->sources[live->source_count++] = (source){
        .registry = registry,
        .texts = texts,
        .note_count = about->note_count,
        .cost_ns = about->cost_ns,
        .errors = about->errors,
        .kept = take_back(live, registry),
    };
    registry->live = live;
    return CPROF_OK;
}

cprof_status cprof_live_add(cprof_live *live, cprof_registry *registry, const cprof_live_about *about)
{
    if (!is_own(live)) {
        return CPROF_ABSENT;
    }
    if (registry->live != NULL) {
        return CPROF_IN_USE;
    }
    (void)pthread_mutex_lock(&live->lock);
    cprof_status status = add_lock_held(live, registry, about);
    (void)pthread_mutex_unlock(&live->lock);
    return status;
}

void cprof_live_remove(cprof_registry *registry)
{
    cprof_live *live = registry->live;
    if (live == NULL) {
        return;
    }
    registry->live = NULL;
    (void)pthread_mutex_lock(&live->lock);
    size_t i = 0;
    while (live->sources[i].registry != registry) {
        i++;
    }
    keep(live, &live->sources[i]);
    cprof_alloc_release(live->sources[i].texts);
    live->source_count--;
    memmove(&live->sources[i], &live->sources[i + 1], (live->source_count - i) * sizeof *live->sources);
    (void)pthread_mutex_unlock(&live->lock);
}

void cprof_live_hold(cprof_live *live)
{
    if (is_own(live)) {
        (void)pthread_mutex_lock(&live->lock);
        live->held++;
        (void)pthread_mutex_unlock(&live->lock);
    }
}

void cprof_live_commit(cprof_live *live, cprof_live_state *state)
{
    *state = (cprof_live_state){.error = 0};
    if (is_own(live)) {
        commit(live, 0, state);
        (void)pthread_mutex_lock(&live->lock);
        live->held--;
        (void)pthread_cond_broadcast(&live->idle);
        (void)pthread_mutex_unlock(&live->lock);
    }
}

void cprof_live_stop(cprof_live *live, cprof_live_state *state)
{
    *state = (cprof_live_state){.error = 0};
    if (is_own(live)) {
        (void)pthread_mutex_lock(&live->lock);
        live->is_ending = true;
        (void)pthread_cond_signal(&live->wake);
        while (live->held > 0) { /* what comes last is to be the last */
            (void)pthread_cond_wait(&live->idle, &live->lock);
        }
        (void)pthread_mutex_unlock(&live->lock);
        (void)pthread_join(live->thread, NULL);
        commit(live, CPROF_LIVE_LAST, state);
    }
}

/* A forked child finds it in whatever state that was: it is let go of, as it is. */
void cprof_live_close(cprof_live *live)
{
    if (live->file.descriptor >= 0) {
        (void)close(live->file.descriptor);
    }
    if (is_own(live)) {
        for (size_t i = 0; i < live->source_count; i++) {
            live->sources[i].registry->live = NULL;
        }
        (void)pthread_cond_destroy(&live->wake);
        (void)pthread_cond_destroy(&live->idle);
        (void)pthread_mutex_destroy(&live->lock);
        (void)pthread_mutex_destroy(&live->writing);
        release(live);
    }
}
