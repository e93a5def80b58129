#define _GNU_SOURCE
#include "cprofiling/files/live.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/bytes.h"
#include "cprofiling/base/checksum.h"
#include "cprofiling/base/random.h"
#include "cprofiling/files/snapshot.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    PART_HEAD = 2 * 4 + 2 * 8, /* bytes */
    SHARE = 100,               /* of a processor's time, what commits may take at most: one of so many, */
    IDLE_SHARE = 4000,         /* and where they find nothing new */
    STACK = 256 * 1024,
    MAY_RETURN = 16, /* so many that left last may come back to what they had counted; others are merged, as many at a time */
};

#define BEAT_NS INT64_C(1000000000) /* readers see at least so often that the process lives */

/* A registry, and what its file has of it. */
struct cprof_live_part {
    cprof_live *live;
    cprof_live_part *next; /* in the list of all, guarded by the file's lock, as all up to */
    cprof_live_part *previous;
    cprof_live_part *next_ended;
    const _Atomic uint64_t *errors; /* NULL: there are none, or the registry is the file's, with */
    uint64_t last_errors;
    cprof_registry *registry; /* borrowed, until it is the file's. Guarded by `writing`: */
    cprof_snapshot_kept kept;
    bool has_joined; /* it was looked at */
    bool is_shown;   /* its snapshot, and the next two, are part of the statistics */
    bool is_on;
    uint64_t refused;
    uint64_t merged; /* the generation with statistics merged already; 0: none */
    double cost_ns;
    size_t note_count;
    cprof_name texts[]; /* the label, and the notes, and what they point to */
};

/* Who commits has `writing` from the beginning to the end, and `lock` for moments only: who adds a registry, or gives one to
 * the file, waits for neither copying nor the disk. */
struct cprof_live {
    pid_t process;         /* that has opened the file, */
    uint32_t epoch;        /* and after which fork */
    cprof_live *next_open; /* guarded by `open_lock` */
    pthread_t thread;
    uint64_t interval_ns;
    const _Atomic uint64_t *errors; /* that belong to no registry; or NULL */
    pthread_mutex_t writing;        /* taken before `lock`; guards */
    cprof_live_file file;
    bool keeps_ended;   /* parts with registries that nobody uses any more stay as they are */
    int heard;          /* the error of the preparation for the end, which its caller knows */
    bool has_news;      /* the file does not have the newest statistics */
    int64_t written_ns; /* when the last commit was, on the monotonic clock */
    uint8_t *bytes;     /* of the statistics to be written */
    size_t size;
    size_t capacity;
    uint64_t checksum; /* of the parts among them */
    size_t keys;       /* in them */
    uint64_t told;     /* errors that belong to no registry, and are in them */
    cprof_live_state state;
    cprof_snapshot **left; /* owned, with the statistics of registries that have left: who left last comes last */
    size_t left_count;
    size_t left_capacity;
    cprof_snapshot *merged;   /* owned, as the next: of those who left before; NULL: none has counted anything */
    cprof_snapshot *shown;    /* with those left; NULL: it is `merged`, or there is something new */
    uint64_t folded;          /* keys for which there was no room */
    uint64_t lost;            /* statistics that could not be kept */
    cprof_snapshot_source id; /* the file's own, for where there are too many sources */
    pthread_mutex_t lock;     /* guards */
    pthread_cond_t wake;
    bool is_ending;
    cprof_live_part *first; /* in the order in which they were added. Those who have `writing` take parts out, others add */
    cprof_live_part *last;
    cprof_live_part *ended; /* those with a registry that is the file's */
};

static atomic_flag was_asked = ATOMIC_FLAG_INIT;
static cprof_lock open_lock;
static cprof_live *open_files; /* that have not been stopped; in a forked child also the parent's */

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

static void join_checksum(cprof_live *live, uint64_t checksum, size_t size)
{
    live->checksum = cprof_checksum_join(live->checksum, checksum, size);
}

static cprof_status put_part(cprof_live *live, cprof_name label, unsigned flags, uint64_t refused,
                             const cprof_snapshot *snapshot)
{
    size_t size = cprof_snapshot_size(snapshot);
    size_t head = PART_HEAD + label.length;
    live->keys += snapshot->key_count;
    uint8_t *at = more(live, head + size);
    if (at == NULL) {
        return CPROF_NO_MEMORY;
    }
    cprof_bytes_store(at, label.length, 4);
    cprof_bytes_store(at + 4, flags, 4);
    cprof_bytes_store(at + 8, refused, 8);
    cprof_bytes_store(at + 16, size, 8);
    memcpy(at + PART_HEAD, label.bytes, label.length);
    cprof_snapshot_encode(snapshot, at + head);
    const uint8_t *end = at + head + size - 8; /* of the snapshot, but for its own checksum */
    join_checksum(live, cprof_checksum(at, head), head);
    join_checksum(live, cprof_bytes_load(end, 8), size - 8);
    join_checksum(live, cprof_checksum(end, 8), 8);
    return CPROF_OK;
}

static uint64_t count_of(const _Atomic uint64_t *errors)
{
    return errors != NULL ? atomic_load_explicit(errors, memory_order_relaxed) : 0;
}

static uint64_t generation_of(const cprof_registry *registry)
{
    return cprof_registry_state(registry) >> CPROF_STATE_GENERATION_SHIFT;
}

/* Brings a part's snapshot up to date. `errors`: others than the registry's own. */
static cprof_status refresh(cprof_live_part *part, uint64_t errors, bool *has_changed)
{
    (void)pthread_mutex_lock(&part->live->lock);
    errors += part->errors != NULL ? count_of(part->errors) : part->last_errors;
    (void)pthread_mutex_unlock(&part->live->lock);
    cprof_snapshot_remarks remarks = {
        .taken_ns = (uint64_t)cprof_clock_time_of_day(),
        .internal_errors = errors,
        .cost_ns = part->cost_ns,
        .notes = part->texts + 1,
        .note_count = part->note_count,
    };
    return cprof_snapshot_refresh(&part->kept, part->registry, &remarks, has_changed);
}

/* ---- Statistics of registries that have left */

static void forget_shown(cprof_live *live)
{
    cprof_snapshot_destroy(live->shown);
    live->shown = NULL;
    live->has_news = true;
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

/* Drops the same statistics from those left when a registry is added again, as it is part of the file itself. Remembers its
 * generation where they are merged with others. */
static void take_back(cprof_live *live, cprof_live_part *part)
{
    cprof_snapshot_source wanted = {.generation = generation_of(part->registry)};
    memcpy(wanted.id, part->registry->id, sizeof wanted.id);
    part->has_joined = live->has_news = true;
    for (size_t i = 0; i < live->left_count; i++) {
        if (cprof_snapshot_compare_sources(&live->left[i]->sources[0], &wanted) == 0) {
            drop_left(live, i, 1);
            return;
        }
    }
    for (size_t i = 0; live->merged != NULL && i < live->merged->source_count; i++) {
        if (cprof_snapshot_compare_sources(&live->merged->sources[i], &wanted) == 0) {
            part->merged = wanted.generation;
        }
    }
}

/* Keeps the statistics of a registry that leaves; counts those for which there is no memory as lost. */
static void keep(cprof_live *live, cprof_live_part *part)
{
    bool has_changed = false;
    if (!part->has_joined) {
        take_back(live, part);
    }
    if (refresh(part, 0, &has_changed) != CPROF_OK) {
        live->lost++;
        return;
    }
    cprof_snapshot *snapshot = part->kept.snapshot;
    if (snapshot->key_count == 0 || snapshot->sources[0].generation == part->merged) {
        return;
    }
    cprof_snapshot **left =
        cprof_alloc_grow(live->left, &live->left_capacity, live->left_count, sizeof *left, 2 * (size_t)MAY_RETURN);
    if (left == NULL) {
        live->lost++;
        return;
    }
    live->left = left;
    left[live->left_count++] = snapshot;
    part->kept.snapshot = NULL;
    forget_shown(live);
    merge_those_before(live);
}

static void part_release(cprof_live_part *part)
{
    cprof_snapshot_drop(&part->kept);
    cprof_alloc_release(part);
}

/* Keeps the statistics of a part, and takes it out of the list. */
static void take_out(cprof_live *live, cprof_live_part *part)
{
    keep(live, part);
    live->has_news = true;
    (void)pthread_mutex_lock(&live->lock);
    *(part->previous != NULL ? &part->previous->next : &live->first) = part->next;
    *(part->next != NULL ? &part->next->previous : &live->last) = part->previous;
    (void)pthread_mutex_unlock(&live->lock);
    part_release(part);
}

static cprof_live_part *next_ended(cprof_live *live)
{
    (void)pthread_mutex_lock(&live->lock);
    cprof_live_part *part = live->ended;
    live->ended = part != NULL ? part->next_ended : NULL;
    (void)pthread_mutex_unlock(&live->lock);
    return part;
}

static void take_out_ended(cprof_live *live)
{
    for (cprof_live_part *part; !live->keeps_ended && (part = next_ended(live)) != NULL;) {
        cprof_registry *registry = part->registry;
        take_out(live, part);
        cprof_registry_destroy(registry);
    }
}

/* ---- Commits */

/* The part behind one, or the first. */
static cprof_live_part *part_after(cprof_live *live, const cprof_live_part *part)
{
    (void)pthread_mutex_lock(&live->lock);
    cprof_live_part *next = part != NULL ? part->next : live->first;
    (void)pthread_mutex_unlock(&live->lock);
    return next;
}

/* Brings all snapshots up to date. Faults that belong to no registry are the first part's, as there is nothing else that could
 * tell them. */
static cprof_status refresh_all(cprof_live *live)
{
    take_out_ended(live);
    cprof_status status = CPROF_OK;
    uint64_t errors = count_of(live->errors) + live->lost;
    live->has_news |= errors != live->told;
    live->told = errors;
    for (cprof_live_part *part = part_after(live, NULL); status == CPROF_OK && part != NULL; part = part_after(live, part)) {
        if (!part->has_joined) {
            take_back(live, part);
        }
        bool is_on = (cprof_registry_state(part->registry) & CPROF_FLAG_STATS) != 0;
        uint64_t refused = atomic_load_explicit(&part->registry->refused_keys, memory_order_relaxed);
        live->has_news |= is_on != part->is_on || refused != part->refused;
        part->is_on = is_on;
        part->refused = refused;
        part->is_shown = part->merged != generation_of(part->registry);
        if (part->is_shown) {
            status = refresh(part, errors, &live->has_news);
            errors = 0;
        }
    }
    if (status == CPROF_OK && live->left_count > 0 && live->shown == NULL) {
        status = merge_left(live, live->left_count, &live->shown);
    }
    return status;
}

static cprof_status put_all(cprof_live *live)
{
    uint64_t parts = 0;
    live->size = live->keys = live->checksum = 0;
    cprof_status status = more(live, 8) != NULL ? CPROF_OK : CPROF_NO_MEMORY;
    for (cprof_live_part *part = part_after(live, NULL); status == CPROF_OK && part != NULL; part = part_after(live, part)) {
        if (part->is_shown) {
            status = put_part(live, part->texts[0], part->is_on ? CPROF_LIVE_ON : 0, part->refused, part->kept.snapshot);
            parts++;
        }
    }
    const cprof_snapshot *gone = live->shown != NULL ? live->shown : live->merged;
    if (status == CPROF_OK && gone != NULL) {
        cprof_snapshot with_errors = *gone;
        with_errors.internal_errors += parts++ == 0 ? live->told : 0;
        status = put_part(live, (cprof_name){"", 0}, CPROF_LIVE_GONE, live->folded, &with_errors);
    }
    if (status == CPROF_OK) {
        cprof_bytes_store(live->bytes, parts, 8);
        live->checksum = cprof_checksum_join(cprof_checksum(live->bytes, 8), live->checksum, live->size - 8);
    }
    return status;
}

/* Writes what is new, if there is anything, or if so asked, or if the last time was long ago. Whether there was. */
static bool commit(cprof_live *live, uint64_t flags, bool is_asked, cprof_live_state *state)
{
    (void)pthread_mutex_lock(&live->writing);
    cprof_status status = refresh_all(live);
    if (status == CPROF_OK && live->has_news) {
        status = put_all(live);
    }
    bool had_news = live->has_news || status != CPROF_OK;
    int64_t now_ns = cprof_clock_monotonic_ns();
    if (had_news || is_asked || now_ns - live->written_ns >= BEAT_NS) {
        const cprof_live_statistics statistics = {
            .bytes = live->has_news ? live->bytes : NULL,
            .size = live->size,
            .checksum = live->checksum,
            .error = status == CPROF_OK          ? 0
                     : status == CPROF_NO_MEMORY ? ENOMEM
                                                 : EBUSY,
            .flags = flags,
        };
        if (live->file.descriptor >= 0) {
            live->state.error = cprof_live_file_commit(&live->file, &statistics);
        } else if (statistics.error == 0 && live->keys > 0) {
            live->state.error = cprof_live_file_make(&live->file, &statistics);
        } else {
            live->state.error = statistics.error;
        }
        live->has_news = live->state.error != 0;
        live->written_ns = now_ns;
    }
    live->state.commits = live->file.commits;
    live->state.bytes = live->file.length;
    *state = live->state;
    (void)pthread_mutex_unlock(&live->writing);
    return had_news;
}

/* Between two commits that are far apart: takes out registries that are the file's, and shows that the process lives. */
static void look_after(cprof_live *live)
{
    (void)pthread_mutex_lock(&live->writing);
    take_out_ended(live);
    int64_t now_ns = cprof_clock_monotonic_ns();
    if (now_ns - live->written_ns >= BEAT_NS && live->file.descriptor >= 0) {
        (void)cprof_live_file_beat(&live->file); /* the next commit tells what is wrong */
        live->written_ns = now_ns;
    }
    (void)pthread_mutex_unlock(&live->writing);
}

/* ---- The thread */

static int64_t own_processor_ns(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void *run(void *context)
{
    cprof_live *live = context;
    (void)prctl(PR_SET_NAME, "cprofiling-live");
    int64_t now_ns = cprof_clock_monotonic_ns();
    int64_t commit_ns = now_ns + (int64_t)live->interval_ns;
    (void)pthread_mutex_lock(&live->lock);
    while (!live->is_ending) {
        int64_t when_ns = commit_ns < now_ns + BEAT_NS ? commit_ns : now_ns + BEAT_NS;
        struct timespec when = {(time_t)(when_ns / 1000000000), (long)(when_ns % 1000000000)};
        while (!live->is_ending && live->ended == NULL &&
               pthread_cond_timedwait(&live->wake, &live->lock, &when) != ETIMEDOUT) {
        }
        if (!live->is_ending) {
            (void)pthread_mutex_unlock(&live->lock);
            if (cprof_clock_monotonic_ns() < commit_ns) {
                look_after(live);
            } else {
                cprof_live_state state;
                int64_t began_ns = own_processor_ns();
                bool has_written = commit(live, 0, false, &state);
                int64_t spent_ns = own_processor_ns() - began_ns;
                int64_t least_ns = spent_ns * SHARE;
                if (!has_written && least_ns < BEAT_NS) { /* what is counted then is not to wait for longer */
                    least_ns = spent_ns * IDLE_SHARE < BEAT_NS ? spent_ns * IDLE_SHARE : BEAT_NS;
                }
                int64_t interval_ns = (int64_t)live->interval_ns;
                commit_ns = cprof_clock_monotonic_ns() + (least_ns > interval_ns ? least_ns : interval_ns);
            }
            now_ns = cprof_clock_monotonic_ns();
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

/* Gives all statistics back. */
static void forget_statistics(cprof_live *live)
{
    for (cprof_live_part *part = part_after(live, NULL); part != NULL; part = part_after(live, part)) {
        cprof_snapshot_drop(&part->kept);
    }
    if (live->left_count > 0) {
        drop_left(live, 0, live->left_count);
    }
    cprof_snapshot_destroy(live->merged);
    cprof_alloc_release(live->bytes);
    live->merged = NULL;
    live->bytes = NULL;
    live->capacity = 0;
}

static void release(cprof_live *live)
{
    cprof_alloc_release(live->left);
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
    live->has_news = true;
    cprof_random_bytes(live->id.id, sizeof live->id.id);
    pthread_condattr_t attributes;
    (void)pthread_mutex_init(&live->writing, NULL);
    (void)pthread_mutex_init(&live->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&live->wake, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    cprof_live_state state;
    (void)commit(live, 0, true, &state);
    int error = state.error != 0 ? state.error : start(live);
    if (error != 0) {
        release(live);
        return error;
    }
    cprof_lock_acquire(&open_lock);
    live->next_open = open_files;
    open_files = live;
    cprof_lock_release(&open_lock);
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
static cprof_live_part *part_new(const cprof_live_about *about)
{
    size_t count = about->note_count + 1;
    size_t size = sizeof(cprof_live_part) + count * sizeof(cprof_name) + 1;
    for (size_t i = 0; i < count; i++) {
        size += i == 0 ? about->label.length : about->notes[i - 1].length;
    }
    cprof_live_part *part = cprof_alloc_zeroed(size);
    if (part == NULL) {
        return NULL;
    }
    char *at = (char *)(part->texts + count);
    for (size_t i = 0; i < count; i++) {
        cprof_name text = i == 0 ? about->label : about->notes[i - 1];
        memcpy(at, text.bytes, text.length);
        part->texts[i] = (cprof_name){at, text.length};
        at += text.length;
    }
    part->note_count = about->note_count;
    part->cost_ns = about->cost_ns;
    part->errors = about->errors;
    return part;
}

cprof_status cprof_live_add(cprof_live *live, cprof_registry *registry, const cprof_live_about *about)
{
    if (!is_own(live)) {
        return CPROF_ABSENT;
    }
    if (registry->live != NULL) {
        return CPROF_IN_USE;
    }
    cprof_live_part *part = part_new(about);
    if (part == NULL) {
        return CPROF_NO_MEMORY;
    }
    part->live = live;
    part->registry = registry;
    registry->live = part;
    (void)pthread_mutex_lock(&live->lock);
    part->previous = live->last;
    *(live->last != NULL ? &live->last->next : &live->first) = part;
    live->last = part;
    (void)pthread_mutex_unlock(&live->lock);
    return CPROF_OK;
}

bool cprof_live_has(const cprof_live *live, const cprof_registry *registry)
{
    return registry->live != NULL && registry->live->live == live;
}

void cprof_live_remove(cprof_registry *registry)
{
    cprof_live_part *part = registry->live;
    if (part != NULL) {
        cprof_live *live = part->live;
        (void)pthread_mutex_lock(&live->writing);
        take_out(live, part);
        registry->live = NULL;
        (void)pthread_mutex_unlock(&live->writing);
    }
}

bool cprof_live_take_over(cprof_registry *registry)
{
    cprof_live_part *part = registry->live;
    if (part != NULL) {
        cprof_live *live = part->live;
        (void)pthread_mutex_lock(&live->lock);
        part->last_errors = count_of(part->errors);
        part->errors = NULL;
        part->next_ended = live->ended;
        live->ended = part;
        (void)pthread_cond_signal(&live->wake);
        (void)pthread_mutex_unlock(&live->lock);
    }
    return part != NULL;
}

void cprof_live_commit(cprof_live *live, cprof_live_state *state)
{
    *state = (cprof_live_state){.error = 0};
    if (is_own(live)) {
        (void)commit(live, 0, true, state);
    }
}

void cprof_live_prepare_end(cprof_live *live, cprof_live_state *state)
{
    if (is_own(live)) {
        (void)pthread_mutex_lock(&live->writing);
        take_out_ended(live);
        live->keeps_ended = true;
        (void)pthread_mutex_unlock(&live->writing);
    }
    cprof_live_commit(live, state);
    live->heard = state->error;
}

/* Whether a file was among the open ones, of which it is none any more. */
static bool take_from_open(const cprof_live *live)
{
    cprof_lock_acquire(&open_lock);
    cprof_live **place = &open_files;
    while (*place != NULL && *place != live) {
        place = &(*place)->next_open;
    }
    bool is_open = *place != NULL;
    if (is_open) {
        *place = live->next_open;
    }
    cprof_lock_release(&open_lock);
    return is_open;
}

void cprof_live_stop(cprof_live *live, cprof_live_state *state)
{
    *state = (cprof_live_state){.error = 0};
    if (take_from_open(live) && is_own(live)) {
        (void)pthread_mutex_lock(&live->lock);
        live->is_ending = true;
        (void)pthread_cond_signal(&live->wake);
        (void)pthread_mutex_unlock(&live->lock);
        (void)pthread_join(live->thread, NULL);
        (void)commit(live, CPROF_LIVE_LAST, true, state);
        forget_statistics(live);
    }
}

bool cprof_live_is_first(void)
{
    return !atomic_flag_test_and_set(&was_asked);
}

int cprof_live_stop_all(void)
{
    int error = 0;
    for (cprof_live *live = open_files; live != NULL; live = open_files) {
        cprof_live_state state;
        cprof_live_stop(live, &state);
        error = state.error != 0 && state.error != live->heard ? state.error : error;
    }
    return error;
}

/* A forked child finds it in whatever state that was: it is let go of, as it is. */
void cprof_live_close(cprof_live *live)
{
    if (live->file.descriptor >= 0) {
        cprof_live_file_close(&live->file);
    }
    if (is_own(live)) {
        for (cprof_live_part *part = live->ended; part != NULL; part = part->next_ended) { /* since the last commit */
            cprof_registry_destroy(part->registry);
            part->registry = NULL;
        }
        for (cprof_live_part *part = live->first, *next; part != NULL; part = next) {
            next = part->next;
            if (part->registry != NULL) {
                part->registry->live = NULL;
            }
            part_release(part);
        }
        (void)pthread_cond_destroy(&live->wake);
        (void)pthread_mutex_destroy(&live->lock);
        (void)pthread_mutex_destroy(&live->writing);
        release(live);
    }
}
