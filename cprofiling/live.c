#define _GNU_SOURCE
#include "cprofiling/live.h"

#include "cprofiling/alloc.h"
#include "cprofiling/checksum.h"
#include "cprofiling/process.h"
#include "cprofiling/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    COMMIT_WORDS = 8,
    PART_HEAD = 2 * 4 + 2 * 8, /* bytes */
    PAGE = 4096,
    SHARE = 20, /* of the time, what the thread may take at most: one of so many */
    STACK = 256 * 1024,
};

/* A registry, and what is known of it. */
typedef struct {
    cprof_registry *registry; /* borrowed: it is taken out before it goes */
    cprof_name *texts;        /* owned, with what they point to: the label, and the notes */
    size_t note_count;
    double cost_ns;
    const _Atomic uint64_t *errors[2];
} source;

typedef struct {
    uint64_t offset;
    uint64_t room;
} area;

struct cprof_live {
    pthread_mutex_t lock; /* guards all below but the first two */
    pid_t process;        /* whose file it is */
    pthread_t thread;
    int descriptor; /* negative: the file is still to be made, of */
    char *path;     /* owned, as the next; NULL where it was made by the caller */
    uint8_t *head;
    pthread_cond_t wake;
    bool is_ending;
    uint64_t interval_ns;
    source *sources;
    size_t source_count;
    size_t source_capacity;
    cprof_snapshot *gone; /* of registries that are no more; NULL: none has counted anything */
    cprof_snapshot_source id;
    uint8_t *bytes; /* of the statistics to be written */
    size_t size;
    size_t capacity;
    size_t keys; /* in them */
    area areas[2];
    unsigned latest; /* the area that the last commit refers to */
    uint64_t end;    /* of the file */
    uint64_t length; /* of the statistics committed last, */
    uint64_t checksum;
    cprof_live_state state;
};

static void store(uint8_t *at, uint64_t value, unsigned width)
{
    for (unsigned i = 0; i < width; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint64_t time_of_day_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- Statistics as bytes */

static uint8_t *more(cprof_live *live, size_t size)
{
    if (size > live->capacity - live->size) {
        size_t capacity = (live->size + size) * 2;
        uint8_t *bytes = cprof_alloc_resize(live->bytes, capacity);
        if (bytes == NULL) {
            return NULL;
        }
        live->bytes = bytes;
        live->capacity = capacity;
    }
    uint8_t *at = live->bytes + live->size;
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
    store(at, label.length, 4);
    store(at + 4, flags, 4);
    store(at + 8, refused, 8);
    store(at + 16, size, 8);
    memcpy(at + PART_HEAD, label.bytes, label.length);
    cprof_snapshot_encode(snapshot, at + PART_HEAD + label.length);
    return CPROF_OK;
}

static cprof_status collect(const source *from, cprof_snapshot **snapshot)
{
    uint64_t errors = 0;
    for (size_t i = 0; i < 2; i++) {
        errors += from->errors[i] != NULL ? atomic_load_explicit(from->errors[i], memory_order_relaxed) : 0;
    }
    cprof_snapshot_remarks remarks = {
        .taken_ns = time_of_day_ns(),
        .internal_errors = errors,
        .cost_ns = from->cost_ns,
        .notes = from->texts + 1,
        .note_count = from->note_count,
    };
    return cprof_snapshot_collect(from->registry, &remarks, snapshot);
}

static cprof_status put_source(cprof_live *live, const source *from)
{
    cprof_snapshot *snapshot;
    cprof_status status = collect(from, &snapshot);
    if (status != CPROF_OK) {
        return status;
    }
    bool is_on = (cprof_registry_state(from->registry) & CPROF_FLAG_STATS) != 0;
    uint64_t refused = atomic_load_explicit(&from->registry->refused_keys, memory_order_relaxed);
    status = put_part(live, from->texts[0], is_on ? CPROF_LIVE_ON : 0, refused, snapshot);
    cprof_snapshot_destroy(snapshot);
    return status;
}

static cprof_status put_all(cprof_live *live)
{
    live->size = live->keys = 0;
    uint8_t *count = more(live, 8);
    cprof_status status = count != NULL ? CPROF_OK : CPROF_NO_MEMORY;
    if (status == CPROF_OK) {
        store(count, live->source_count + (live->gone != NULL), 8);
    }
    for (size_t i = 0; status == CPROF_OK && i < live->source_count; i++) {
        status = put_source(live, &live->sources[i]);
    }
    if (status == CPROF_OK && live->gone != NULL) {
        status = put_part(live, (cprof_name){"", 0}, CPROF_LIVE_GONE, 0, live->gone);
    }
    return status;
}

/* ---- The file */

static int write_at(const cprof_live *live, const uint8_t *bytes, size_t size, uint64_t offset)
{
    while (size > 0) {
        ssize_t written = pwrite(live->descriptor, bytes, size, (off_t)offset);
        if (written <= 0) {
            return written < 0 ? errno : EIO;
        }
        bytes += written;
        size -= (size_t)written;
        offset += (uint64_t)written;
    }
    return 0;
}

/* Sees to it that the area which does not hold the latest statistics is large enough. */
static int make_room(cprof_live *live, area *room)
{
    if (live->size <= room->room) {
        return 0;
    }
    uint64_t wanted = (live->size * 2 + PAGE - 1) / PAGE * PAGE;
    int error = posix_fallocate(live->descriptor, (off_t)live->end, (off_t)wanted);
    if (error == 0) {
        *room = (area){live->end, wanted};
        live->end += wanted;
    }
    return error;
}

/* Says which statistics are the latest: the place of the commit before the last is overwritten. */
static int write_commit(cprof_live *live, uint64_t flags, int error)
{
    uint8_t bytes[COMMIT_WORDS * 8];
    const uint64_t words[COMMIT_WORDS - 1] = {
        live->state.commits + 1, time_of_day_ns(), live->areas[live->latest].offset, live->length, flags,
        (uint64_t)error,         live->checksum};
    for (size_t i = 0; i < COMMIT_WORDS - 1; i++) {
        store(bytes + i * 8, words[i], 8);
    }
    store(bytes + sizeof bytes - 8, cprof_checksum(bytes, sizeof bytes - 8), 8);
    uint64_t place = (live->state.commits + 1) % 2;
    error = write_at(live, bytes, sizeof bytes, CPROF_LIVE_HEAD + place * CPROF_LIVE_PLACE);
    live->state.commits += error == 0;
    return error;
}

static int write_statistics(cprof_live *live)
{
    unsigned next = 1 - live->latest;
    int error = make_room(live, &live->areas[next]);
    if (error == 0) {
        error = write_at(live, live->bytes, live->size, live->areas[next].offset);
    }
    if (error == 0) {
        live->latest = next;
        live->length = live->size;
        live->checksum = cprof_checksum(live->bytes, live->size);
    }
    return error;
}

static int errno_of(cprof_status status)
{
    return status == CPROF_OK ? 0 : status == CPROF_NO_MEMORY ? ENOMEM : EBUSY;
}

/* What fails is told to the reader, as far as that can be written, and tried again at the next commit. */
static void write_all(cprof_live *live, int error, uint64_t flags)
{
    if (error == 0) {
        error = write_statistics(live);
    }
    int unsaid = write_commit(live, flags | (error != 0 ? CPROF_LIVE_STALE : 0), error);
    live->state.error = error != 0 ? error : unsaid;
    live->state.bytes = live->length;
}

static void unmake_file(cprof_live *live, const char *temporary)
{
    (void)unlink(temporary);
    (void)close(live->descriptor);
    live->descriptor = -1;
}

/* It gets its name when it is whole. A name with this process's number is this process's, whatever an earlier one of that
 * number has left there. */
static void make_file(cprof_live *live, uint64_t flags)
{
    char temporary[PATH_MAX];
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp", live->path) >= sizeof temporary) {
        live->state.error = ENAMETOOLONG;
        return;
    }
    live->descriptor = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (live->descriptor < 0) {
        live->state.error = errno;
        return;
    }
    (void)flock(live->descriptor, LOCK_EX | LOCK_NB);
    live->state.error = posix_fallocate(live->descriptor, 0, (off_t)live->end);
    if (live->state.error == 0) {
        live->state.error = write_at(live, live->head, CPROF_LIVE_HEAD, 0);
    }
    if (live->state.error == 0) {
        write_all(live, 0, flags);
    }
    if (live->state.error == 0 && rename(temporary, live->path) != 0) {
        live->state.error = errno;
    }
    if (live->state.error != 0) {
        unmake_file(live, temporary);
    }
}

static void commit_lock_held(cprof_live *live, uint64_t flags)
{
    int error = errno_of(put_all(live));
    if (live->descriptor >= 0) {
        write_all(live, error, flags);
    } else if (error == 0 && live->keys > 0) {
        make_file(live, flags);
    } else {
        live->state.error = error;
    }
}

/* ---- The thread */

static struct timespec after(uint64_t ns)
{
    struct timespec when;
    (void)clock_gettime(CLOCK_MONOTONIC, &when);
    ns += (uint64_t)when.tv_nsec;
    when.tv_sec += (time_t)(ns / 1000000000u);
    when.tv_nsec = (long)(ns % 1000000000u);
    return when;
}

static void *run(void *context)
{
    cprof_live *live = context;
    (void)prctl(PR_SET_NAME, "cprofiling-live");
    uint64_t pause_ns = live->interval_ns;
    (void)pthread_mutex_lock(&live->lock);
    while (!live->is_ending) {
        struct timespec when = after(pause_ns);
        while (!live->is_ending && pthread_cond_timedwait(&live->wake, &live->lock, &when) != ETIMEDOUT) {
        }
        if (!live->is_ending) {
            int64_t began_ns = cprof_clock_monotonic_ns();
            commit_lock_held(live, 0);
            uint64_t least_ns = (uint64_t)(cprof_clock_monotonic_ns() - began_ns) * (SHARE - 1);
            pause_ns = least_ns > live->interval_ns ? least_ns : live->interval_ns;
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
    cprof_snapshot_destroy(live->gone);
    cprof_alloc_release(live->bytes);
    cprof_alloc_release(live->path);
    cprof_alloc_release(live->head);
    cprof_alloc_release(live);
}

static void init_waiting(cprof_live *live)
{
    pthread_condattr_t attributes;
    (void)pthread_mutex_init(&live->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&live->wake, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

static bool take_over_plan(cprof_live *live, const cprof_live_plan *plan)
{
    live->process = getpid();
    live->descriptor = plan->descriptor;
    live->interval_ns = plan->interval_ns;
    live->areas[0] = (area){CPROF_LIVE_AREAS, plan->room};
    live->areas[1] = (area){CPROF_LIVE_AREAS + plan->room, plan->room};
    live->end = CPROF_LIVE_AREAS + 2 * plan->room;
    if (plan->descriptor >= 0) {
        return true;
    }
    live->path = cprof_alloc_zeroed(strlen(plan->path) + 1);
    live->head = cprof_alloc_zeroed(CPROF_LIVE_HEAD);
    if (live->path == NULL || live->head == NULL) {
        return false;
    }
    memcpy(live->path, plan->path, strlen(plan->path));
    memcpy(live->head, plan->head, CPROF_LIVE_HEAD);
    return true;
}

int cprof_live_open(const cprof_live_plan *plan, cprof_live **live)
{
    cprof_live *made = cprof_alloc_zeroed(sizeof *made);
    if (made == NULL) {
        return ENOMEM;
    }
    int error = take_over_plan(made, plan) ? 0 : ENOMEM;
    if (error == 0) {
        cprof_process_random(made->id.id, sizeof made->id.id);
        init_waiting(made);
        commit_lock_held(made, 0);
        error = made->state.error != 0 ? made->state.error : start(made);
    }
    if (error != 0) {
        release(made);
        return error;
    }
    *live = made;
    return 0;
}

static bool is_own(const cprof_live *live)
{
    return live->process == getpid();
}

/* ---- Registries */

static const cprof_name *text_of(const cprof_live_about *about, size_t i)
{
    return i == 0 ? &about->label : &about->notes[i - 1];
}

/* One allocation with label and notes. NULL without memory. */
static cprof_name *copy_texts(const cprof_live_about *about)
{
    size_t count = about->note_count + 1;
    size_t size = count * sizeof(cprof_name) + 1;
    for (size_t i = 0; i < count; i++) {
        size += text_of(about, i)->length;
    }
    cprof_name *texts = cprof_alloc_zeroed(size);
    char *at = (char *)(texts + count);
    for (size_t i = 0; texts != NULL && i < count; i++) {
        size_t length = text_of(about, i)->length;
        memcpy(at, text_of(about, i)->bytes, length);
        texts[i] = (cprof_name){at, length};
        at += length;
    }
    return texts;
}

static cprof_status add_lock_held(cprof_live *live, cprof_registry *registry, const cprof_live_about *about)
{
    if (live->source_count == live->source_capacity) {
        size_t capacity = live->source_capacity == 0 ? 4 : live->source_capacity * 2;
        source *sources = cprof_alloc_resize(live->sources, capacity * sizeof *sources);
        if (sources == NULL) {
            return CPROF_NO_MEMORY;
        }
        live->sources = sources;
        live->source_capacity = capacity;
    }
    cprof_name *texts = copy_texts(about);
    if (texts == NULL) {
        return CPROF_NO_MEMORY;
    }
    live->sources[live->source_count++] = (source){
        .registry = registry,
        .texts = texts,
        .note_count = about->note_count,
        .cost_ns = about->cost_ns,
        .errors = {about->errors[0], about->errors[1]},
    };
    registry->live = live;
    return CPROF_OK;
}

cprof_status cprof_live_add(cprof_live *live, cprof_registry *registry, const cprof_live_about *about)
{
    if (registry->live != NULL) {
        return CPROF_IN_USE;
    }
    (void)pthread_mutex_lock(&live->lock);
    cprof_status status = add_lock_held(live, registry, about);
    (void)pthread_mutex_unlock(&live->lock);
    return status;
}

/* Whose statistics are merged is told for so many; then they are the file's, or lists of sources would grow for ever. */
static void bound_sources(cprof_live *live)
{
    if (live->gone->source_count > CPROF_LIVE_SOURCES) {
        live->gone->sources[0] = live->id;
        live->gone->source_count = 1;
    }
}

/* Adds what a registry has counted to what is gone; lost where there is no memory. */
static void keep(cprof_live *live, const source *from)
{
    cprof_snapshot *snapshot;
    if (collect(from, &snapshot) != CPROF_OK) {
        return;
    }
    if (snapshot->key_count == 0) {
        cprof_snapshot_destroy(snapshot);
        return;
    }
    const cprof_snapshot *both[] = {snapshot, live->gone};
    cprof_snapshot *merged;
    cprof_snapshot_clash clash;
    if (cprof_snapshot_merge(both, live->gone != NULL ? 2 : 1, &merged, &clash) == CPROF_OK) {
        cprof_snapshot_destroy(live->gone);
        live->gone = merged;
        bound_sources(live);
    }
    cprof_snapshot_destroy(snapshot);
}

static void remove_lock_held(cprof_live *live, const cprof_registry *registry)
{
    size_t i = 0;
    while (live->sources[i].registry != registry) {
        i++;
    }
    keep(live, &live->sources[i]);
    cprof_alloc_release(live->sources[i].texts);
    live->source_count--;
    memmove(&live->sources[i], &live->sources[i + 1], (live->source_count - i) * sizeof *live->sources);
}

void cprof_live_remove(cprof_registry *registry)
{
    cprof_live *live = registry->live;
    if (live == NULL) {
        return;
    }
    registry->live = NULL;
    (void)pthread_mutex_lock(&live->lock);
    remove_lock_held(live, registry);
    (void)pthread_mutex_unlock(&live->lock);
}

void cprof_live_commit(cprof_live *live, cprof_live_state *state)
{
    *state = (cprof_live_state){.error = 0};
    if (is_own(live)) {
        (void)pthread_mutex_lock(&live->lock);
        commit_lock_held(live, 0);
        *state = live->state;
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
        (void)pthread_mutex_unlock(&live->lock);
        (void)pthread_join(live->thread, NULL);
        (void)pthread_mutex_lock(&live->lock);
        commit_lock_held(live, CPROF_LIVE_LAST);
        *state = live->state;
        (void)pthread_mutex_unlock(&live->lock);
    }
}

/* A forked child finds it in whatever state that was: it is let go of, as it is. */
void cprof_live_close(cprof_live *live)
{
    if (live->descriptor >= 0) {
        (void)close(live->descriptor);
    }
    if (is_own(live)) {
        for (size_t i = 0; i < live->source_count; i++) {
            live->sources[i].registry->live = NULL;
        }
        (void)pthread_cond_destroy(&live->wake);
        (void)pthread_mutex_destroy(&live->lock);
        release(live);
    }
}
