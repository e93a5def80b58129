/* live.h: what another process finds in the file, at each moment (D5), on a full disk (D7), after the registries are gone, and
 * in a forked child (D1). Argument: for how many commits threads record and are read, 300 by default. */
#define _GNU_SOURCE
#include "cprofiling/files/live.h"

#include "cprofiling/base/bytes.h"
#include "cprofiling/base/checksum.h"
#include "cprofiling/files/snapshot.h"
#include "cprofiling/process.h"

#include "tests/core/check.h"
#include "tests/core/fake_alloc.h"
#include "tests/core/snapshots.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ROOM = 64 * 1024,
    SMALL_ROOM = 4096,
    PART_HEAD = 24,
    THREADS = 4,
    MANY_KEYS = 200,
    MANY_GONE = CPROF_LIVE_SOURCES + 10,
    MANY_LEFT = 40,
    MOST_ALLOCATIONS = 500,
};

#define NEVER_NS (UINT64_C(1000000000) * 3600)
#define OFTEN_NS UINT64_C(100000)

static uint64_t wanted_commits = 300;
static char path[] = "/tmp/cprof_live_XXXXXX";
static cprof_live_state state;

/* ---- A disk that is full, or broken */

static _Atomic int refuses_writes, refuses_records, refuses_room, cuts_writes, refuses_links, refuses_renames;
static _Atomic int interruptions; /* that are to come */

enum { RECORD = 64 }; /* bytes */

WRAP_REAL(int, posix_fallocate, int descriptor, off_t offset, off_t size)
{
    if (interruptions > 0 && interruptions-- > 0) {
        return EINTR;
    }
    return refuses_room ? ENOSPC : real_posix_fallocate(descriptor, offset, size);
}

WRAP_REAL(ssize_t, pwrite, int descriptor, const void *bytes, size_t size, off_t offset)
{
    if (interruptions > 0 && interruptions-- > 0) {
        errno = EINTR;
        return -1;
    }
    if (refuses_writes || (refuses_records && size == RECORD)) {
        errno = EIO;
        return -1;
    }
    return real_pwrite(descriptor, bytes, cuts_writes && size > 1 ? size / 2 : size, offset);
}

WRAP_REAL(int, link, const char *from, const char *to)
{
    if (refuses_links) {
        errno = EPERM;
        return -1;
    }
    return real_link(from, to);
}

WRAP_REAL(int, rename, const char *from, const char *to)
{
    if (refuses_renames) {
        errno = EACCES;
        return -1;
    }
    return real_rename(from, to);
}

static bool refuses_threads, refuses_stacks, fakes_threads;

WRAP_REAL(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
    if (fakes_threads) {
        return 0;
    }
    if (refuses_stacks && attributes != NULL) {
        return EINVAL;
    }
    return refuses_threads ? EAGAIN : real_pthread_create(thread, attributes, run, context);
}

/* ---- A reader of our own */

typedef struct {
    uint64_t number, taken_ns, offset, length, flags, error, checksum;
} commit;

/* Of the file that was read last. */
static commit latest;
static size_t part_count;

static commit commit_at(int descriptor, uint64_t place)
{
    uint8_t bytes[64] = {0};
    (void)pread(descriptor, bytes, sizeof bytes, (off_t)place);
    if (cprof_bytes_load(bytes + 56, 8) != cprof_checksum(bytes, 56)) {
        return (commit){0};
    }
    return (commit){cprof_bytes_load(bytes, 8),      cprof_bytes_load(bytes + 8, 8),  cprof_bytes_load(bytes + 16, 8),
                    cprof_bytes_load(bytes + 24, 8), cprof_bytes_load(bytes + 32, 8), cprof_bytes_load(bytes + 40, 8),
                    cprof_bytes_load(bytes + 48, 8)};
}

static commit latest_of(int descriptor)
{
    commit a = commit_at(descriptor, CPROF_LIVE_HEAD);
    commit b = commit_at(descriptor, CPROF_LIVE_HEAD + CPROF_LIVE_PLACE);
    return a.number > b.number ? a : b;
}

/* The statistics of the latest commit, which may be overwritten while they are read. */
static uint8_t *read_statistics(const char *file)
{
    int descriptor = open(file, O_RDONLY);
    CHECK(descriptor >= 0);
    for (int i = 0; i < 1000; i++) {
        latest = latest_of(descriptor);
        CHECK(latest.number > 0);
        uint8_t *bytes = malloc(latest.length);
        CHECK(bytes != NULL);
        CHECK_EQUAL(pread(descriptor, bytes, latest.length, (off_t)latest.offset), latest.length);
        if (cprof_checksum(bytes, latest.length) == latest.checksum) {
            (void)close(descriptor);
            return bytes;
        }
        free(bytes);
    }
    check_failed("the file is whole at each moment", __FILE__, __LINE__);
}

typedef struct {
    char label[32];
    uint64_t flags, refused;
    cprof_snapshot *snapshot;
} part;

static void read_parts(const char *file, part *parts, size_t most)
{
    uint8_t *bytes = read_statistics(file);
    part_count = cprof_bytes_load(bytes, 8);
    size_t at = 8;
    for (size_t i = 0; i < part_count; i++) {
        part found = {.flags = cprof_bytes_load(bytes + at + 4, 4), .refused = cprof_bytes_load(bytes + at + 8, 8)};
        size_t label = cprof_bytes_load(bytes + at, 4);
        size_t size = cprof_bytes_load(bytes + at + 16, 8);
        CHECK(label < sizeof found.label);
        memcpy(found.label, bytes + at + PART_HEAD, label);
        cprof_snapshot_fault fault;
        CHECK_EQUAL(cprof_snapshot_decode(bytes + at + PART_HEAD + label, size, &found.snapshot, &fault), CPROF_OK);
        at += PART_HEAD + label + size;
        if (i < most) {
            parts[i] = found;
        } else {
            cprof_snapshot_destroy(found.snapshot);
        }
    }
    CHECK_EQUAL(at, latest.length);
    free(bytes);
}

static cprof_status add_count(void *context, cprof_names names, uint64_t order, const cprof_figures *figures,
                              const uint64_t *counts)
{
    (void)names;
    (void)order;
    (void)counts;
    *(uint64_t *)context += figures->count;
    return CPROF_OK;
}

static uint64_t samples_in(const cprof_snapshot *snapshot)
{
    uint64_t samples = 0;
    CHECK_EQUAL(cprof_snapshot_visit(snapshot, add_count, &samples), CPROF_OK);
    return samples;
}

/* The samples of all parts of the file. */
static uint64_t samples_of(const char *file)
{
    part parts[8];
    uint64_t samples = 0;
    read_parts(file, parts, COUNT_OF(parts));
    for (size_t i = 0; i < part_count && i < COUNT_OF(parts); i++) {
        samples += samples_in(parts[i].snapshot);
        cprof_snapshot_destroy(parts[i].snapshot);
    }
    return samples;
}

/* ---- Tests */

static cprof_live *opened_by(cprof_live_plan plan)
{
    cprof_live *live;
    CHECK_EQUAL(cprof_live_open(&plan, &live), 0);
    return live;
}

static cprof_live *opened_at(const char *file, uint64_t room, uint64_t interval_ns, const _Atomic uint64_t *errors)
{
    int descriptor = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(descriptor >= 0);
    CHECK_EQUAL(real_posix_fallocate(descriptor, 0, (off_t)(CPROF_LIVE_AREAS + 2 * room)), 0);
    return opened_by((cprof_live_plan){.descriptor = descriptor, .room = room, .interval_ns = interval_ns, .errors = errors});
}

static cprof_live *opened(uint64_t room)
{
    return opened_at(path, room, NEVER_NS, NULL);
}

static int committed(cprof_live *live)
{
    cprof_live_commit(live, &state);
    return state.error;
}

static void closed(cprof_live *live)
{
    cprof_live_stop(live, &state);
    cprof_live_close(live);
}

static void add(cprof_live *live, cprof_registry *registry, const char *label)
{
    const cprof_name note = {"a note", 6};
    const cprof_live_about about = {.label = {label, strlen(label)}, .notes = &note, .note_count = 1, .cost_ns = 42};
    CHECK_EQUAL(cprof_live_add(live, registry, &about), CPROF_OK);
}

static cprof_registry *registry_in(cprof_live *live, const char *label)
{
    cprof_registry *registry = registry_made(0);
    add(live, registry, label);
    return registry;
}

static void record_one(cprof_registry *registry)
{
    cprof_accum_record_ms(accum_of(registry, "train", "node"), 1);
}

static void end(cprof_live *live, cprof_registry *registry)
{
    closed(live);
    cprof_process_end_registry(registry);
}

TEST(what_was_counted_is_in_the_file)
{
    cprof_live *live = opened(ROOM);
    CHECK_EQUAL(samples_of(path), 0);
    CHECK_EQUAL(part_count, 0);
    cprof_registry *registry = registry_made(0);
    cprof_registry *other = registry_made(0);
    _Atomic uint64_t errors = 3;
    const cprof_live_about about = {.label = {"first", 5}, .cost_ns = 42, .errors = &errors};
    CHECK_EQUAL(cprof_live_add(live, registry, &about), CPROF_OK);
    CHECK_EQUAL(cprof_live_add(live, registry, &about), CPROF_IN_USE);
    add(live, other, "second");
    record_one(registry);
    cprof_registry_configure(other, 0, 0, false);
    (void)committed(live);
    CHECK_EQUAL(state.commits, 2);
    CHECK_EQUAL(state.error, 0);
    part parts[2];
    read_parts(path, parts, 2);
    CHECK_EQUAL(part_count, 2);
    CHECK_EQUAL(latest.flags, 0);
    CHECK_EQUAL(state.bytes, latest.length);
    CHECK(strcmp(parts[0].label, "first") == 0 && strcmp(parts[1].label, "second") == 0);
    CHECK_EQUAL(parts[0].flags, CPROF_LIVE_ON);
    CHECK_EQUAL(parts[1].flags, 0);
    CHECK_EQUAL(samples_in(parts[0].snapshot), 1);
    CHECK_EQUAL(parts[0].snapshot->internal_errors, 3);
    CHECK_NEAR(parts[0].snapshot->cost_ns, 42, 0);
    CHECK_EQUAL(parts[1].snapshot->note_count, 1);
    cprof_snapshot_destroy(parts[0].snapshot);
    cprof_snapshot_destroy(parts[1].snapshot);
    record_one(registry);
    closed(live);
    CHECK_EQUAL(samples_of(path), 2);
    CHECK_EQUAL(latest.flags, CPROF_LIVE_LAST);
    cprof_process_end_registry(registry);
    cprof_process_end_registry(other);
}

TEST(what_has_gone_stays)
{
    cprof_live *live = opened(ROOM);
    for (int i = 0; i < MANY_GONE; i++) {
        cprof_registry *registry = registry_in(live, "a pipeline");
        if (i % 2 == 0) {
            record_one(registry);
        }
        cprof_process_end_registry(registry);
    }
    cprof_registry *registry = registry_made(0);
    for (int i = 0; i < MANY_GONE; i++) {
        add(live, registry, "again");
        record_one(registry);
        cprof_live_remove(registry);
        cprof_registry_reset(registry);
    }
    cprof_live_remove(registry);
    closed(live);
    part parts[1];
    read_parts(path, parts, 1);
    CHECK_EQUAL(part_count, 1);
    CHECK_EQUAL(parts[0].flags, CPROF_LIVE_GONE);
    CHECK(parts[0].snapshot->is_merged && parts[0].snapshot->source_count <= CPROF_LIVE_SOURCES);
    cprof_snapshot_destroy(parts[0].snapshot);
    CHECK_EQUAL(samples_of(path), MANY_GONE / 2 + MANY_GONE);
    cprof_process_end_registry(registry);
}

/* Out, back with what it has counted, out again; anew; into another file and back. */
TEST(who_comes_back_is_counted_once)
{
    cprof_live *live = opened(ROOM);
    char second[64];
    (void)snprintf(second, sizeof second, "%s.second", path);
    cprof_live *other = opened_at(second, ROOM, NEVER_NS, NULL);
    cprof_registry *stays = registry_made(0);
    cprof_registry *registry = registry_made(0);
    add(live, stays, "stays");
    record_one(stays);
    for (uint64_t i = 1; i <= 3; i++) {
        add(live, registry, "comes and goes");
        record_one(registry);
        CHECK_EQUAL(committed(live), 0);
        CHECK_EQUAL(samples_of(path), 1 + i);
        CHECK_EQUAL(part_count, 2);
        cprof_live_remove(registry);
        add(other, registry, "elsewhere");
        CHECK_EQUAL(committed(live), 0);
        CHECK_EQUAL(committed(other), 0);
        CHECK_EQUAL(samples_of(path), 1 + i);
        CHECK_EQUAL(samples_of(second), i);
        cprof_live_remove(registry);
    }
    cprof_registry_reset(registry);
    add(live, registry, "anew");
    record_one(registry);
    cprof_live_remove(registry);
    CHECK_EQUAL(committed(live), 0);
    CHECK_EQUAL(samples_of(path), 1 + 3 + 1);
    cprof_process_end_registry(registry);
    CHECK_EQUAL(committed(live), 0);
    CHECK_EQUAL(samples_of(path), 1 + 3 + 1);
    cprof_live_remove(stays);
    closed(live); /* while a registry is there that has left it */
    cprof_process_end_registry(stays);
    CHECK_EQUAL(samples_of(path), 1 + 3 + 1);
    CHECK_EQUAL(part_count, 1);
    closed(other);
    CHECK_EQUAL(samples_of(second), 3);
    CHECK_EQUAL(unlink(second), 0);
}

/* The next commit has it, as it has samples. */
TEST(what_changes_beside_samples_is_news)
{
    cprof_live *live = opened(ROOM);
    cprof_registry *registry = registry_in(live, "news");
    part found;
    record_one(registry);
    CHECK_EQUAL(committed(live), 0);
    cprof_registry_configure(registry, 0, 0, false);
    CHECK_EQUAL(committed(live), 0);
    read_parts(path, &found, 1);
    CHECK(found.flags == 0 && found.refused == 0);
    cprof_snapshot_destroy(found.snapshot);
    atomic_store(&registry->refused_keys, 7);
    CHECK_EQUAL(committed(live), 0);
    read_parts(path, &found, 1);
    CHECK(found.flags == 0 && found.refused == 7);
    cprof_snapshot_destroy(found.snapshot);
    end(live, registry);
}

/* Has so many registries leave that those which left before are merged. */
static void have_many_leave(cprof_live *live)
{
    for (int i = 0; i < MANY_LEFT; i++) {
        cprof_registry *registry = registry_in(live, "passes");
        record_one(registry);
        cprof_live_remove(registry);
        cprof_process_end_registry(registry);
    }
}

/* Its statistics can no longer be told from the others': they stay as they were, until it counts anew. */
TEST(who_comes_back_late_is_counted_once)
{
    cprof_live *live = opened(ROOM);
    cprof_registry *registry = registry_in(live, "late");
    record_one(registry);
    cprof_live_remove(registry);
    have_many_leave(live);
    for (int i = 0; i < 2; i++) {
        add(live, registry, "late");
        record_one(registry);
        CHECK_EQUAL(committed(live), 0);
        CHECK_EQUAL(samples_of(path), 1 + MANY_LEFT);
        CHECK_EQUAL(part_count, 1);
        cprof_live_remove(registry);
        CHECK_EQUAL(committed(live), 0);
        CHECK_EQUAL(samples_of(path), 1 + MANY_LEFT);
    }
    add(live, registry, "late");
    CHECK_EQUAL(committed(live), 0);
    cprof_registry_reset(registry);
    record_one(registry);
    CHECK_EQUAL(committed(live), 0);
    CHECK_EQUAL(samples_of(path), 1 + MANY_LEFT + 1);
    CHECK_EQUAL(part_count, 2);
    end(live, registry);
    CHECK_EQUAL(samples_of(path), 1 + MANY_LEFT + 1);
}

/* The samples of the file, and the errors that it tells. */
static uint64_t samples_and_errors(uint64_t *errors)
{
    part parts[2];
    uint64_t samples = 0;
    read_parts(path, parts, COUNT_OF(parts));
    CHECK(part_count <= COUNT_OF(parts));
    *errors = 0;
    for (size_t i = 0; i < part_count; i++) {
        samples += samples_in(parts[i].snapshot);
        *errors += parts[i].snapshot->internal_errors;
        cprof_snapshot_destroy(parts[i].snapshot);
    }
    return samples;
}

/* A thread that was stopped in the middle of a call: readers are told that there is something newer; what leaves is lost. */
TEST(a_key_that_cannot_be_read)
{
    cprof_live *live = opened(ROOM);
    cprof_registry *stays = registry_in(live, "stays");
    cprof_registry *leaves = registry_in(live, "leaves");
    record_one(stays);
    record_one(leaves);
    CHECK_EQUAL(committed(live), 0);
    record_one(stays);
    cprof_accum *accum = accum_of(stays, "train", "node");
    cprof_lock_acquire(&accum->lock);
    CHECK_EQUAL(committed(live), EBUSY);
    CHECK_EQUAL(samples_of(path), 2);
    CHECK(latest.flags == CPROF_LIVE_STALE && latest.error == EBUSY);
    cprof_lock_release(&accum->lock);
    CHECK_EQUAL(committed(live), 0);
    CHECK_EQUAL(samples_of(path), 3);
    CHECK_EQUAL(latest.flags, 0);
    accum = accum_of(leaves, "train", "node");
    cprof_lock_acquire(&accum->lock);
    cprof_live_remove(leaves);
    cprof_lock_release(&accum->lock);
    CHECK_EQUAL(committed(live), 0);
    uint64_t errors;
    CHECK_EQUAL(samples_and_errors(&errors), 2);
    CHECK_EQUAL(errors, 1);
    end(live, stays);
    cprof_process_end_registry(leaves);
}

/* Those of the module are counted once for the file, and so are statistics that could not be kept. */
TEST(faults_are_counted_once)
{
    _Atomic uint64_t of_module = 5;
    cprof_live *live = opened_at(path, ROOM, NEVER_NS, &of_module);
    cprof_registry *registries[3];
    _Atomic uint64_t errors[3] = {1, 10, 100};
    for (int i = 0; i < 3; i++) {
        registries[i] = registry_made(0);
        const cprof_live_about about = {.label = {"label", 5}, .errors = &errors[i]};
        CHECK_EQUAL(cprof_live_add(live, registries[i], &about), CPROF_OK);
        record_one(registries[i]);
    }
    for (uint64_t i = 0; i < 4; i++) {
        part parts[3];
        CHECK_EQUAL(committed(live), 0);
        read_parts(path, parts, 3);
        uint64_t sum = 0;
        for (size_t k = 0; k < part_count; k++) {
            sum += parts[k].snapshot->internal_errors;
            cprof_snapshot_destroy(parts[k].snapshot);
        }
        CHECK_EQUAL(sum, 116);
        if (i < 3) {
            cprof_process_end_registry(registries[i]);
        }
    }
    closed(live);
}

static void record_keys(cprof_registry *registry, int count)
{
    char node[32];
    for (int i = 0; i < count; i++) {
        (void)snprintf(node, sizeof node, "node %d", i);
        cprof_accum_record_ms(accum_of(registry, "train", node), 1 + i);
    }
}

TEST(it_grows_with_what_is_counted)
{
    cprof_live *live = opened(SMALL_ROOM);
    cprof_registry *registry = registry_in(live, "many keys");
    for (int keys = 1; keys <= MANY_KEYS; keys += MANY_KEYS / 8) {
        record_keys(registry, keys);
        (void)committed(live);
        CHECK_EQUAL(committed(live), 0);
        uint64_t samples = samples_of(path);
        CHECK(samples >= (uint64_t)keys);
    }
    struct stat file;
    CHECK_EQUAL(stat(path, &file), 0);
    CHECK((uint64_t)file.st_size >= 2 * latest.length && (uint64_t)file.st_blocks * 512 >= 2 * latest.length);
    end(live, registry);
}

TEST(a_full_disk_leaves_the_latest)
{
    cprof_live *live = opened(SMALL_ROOM);
    cprof_registry *registry = registry_in(live, "a full disk");
    record_keys(registry, 1);
    (void)committed(live);
    refuses_room = 1;
    record_keys(registry, MANY_KEYS);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(committed(live), ENOSPC);
        CHECK_EQUAL(samples_of(path), 1);
        CHECK_EQUAL(latest.flags, CPROF_LIVE_STALE);
        CHECK_EQUAL(latest.error, ENOSPC);
    }
    refuses_room = 0;
    refuses_writes = 1;
    CHECK_EQUAL(committed(live), EIO);
    refuses_writes = 0;
    CHECK_EQUAL(samples_of(path), 1);
    cuts_writes = 1;
    closed(live);
    cuts_writes = 0;
    CHECK_EQUAL(state.error, 0);
    CHECK_EQUAL(samples_of(path), MANY_KEYS + 1);
    CHECK_EQUAL(latest.flags, CPROF_LIVE_LAST);
    cprof_process_end_registry(registry);
}

/* The disk takes the statistics, but not which ones are the latest: those that it refers to must stay. */
TEST(without_its_record_nothing_is_overwritten)
{
    cprof_live *live = opened(ROOM);
    cprof_registry *registry = registry_in(live, "a broken disk");
    record_one(registry);
    CHECK_EQUAL(committed(live), 0);
    refuses_records = 1;
    for (int i = 0; i < 4; i++) {
        record_one(registry);
        CHECK_EQUAL(committed(live), EIO);
        CHECK_EQUAL(samples_of(path), 1);
    }
    refuses_records = 0;
    CHECK_EQUAL(committed(live), 0);
    CHECK_EQUAL(samples_of(path), 5);
    end(live, registry);
}

TEST(signals_interrupt_nothing)
{
    cprof_live *live = opened(SMALL_ROOM);
    cprof_registry *registry = registry_in(live, "signals");
    record_keys(registry, MANY_KEYS);
    interruptions = 2; /* of the room */
    CHECK_EQUAL(committed(live), 0);
    interruptions = 2; /* and of a write */
    CHECK_EQUAL(committed(live), 0);
    CHECK_EQUAL(interruptions, 0);
    end(live, registry);
}

/* A program that closes descriptors which are not its own. */
TEST(a_descriptor_that_was_closed)
{
    const cprof_live_plan plan = {.descriptor = open(path, O_RDWR), .room = ROOM, .interval_ns = NEVER_NS};
    cprof_live *live = opened_by(plan);
    cprof_registry *registry = registry_in(live, "closed");
    record_one(registry);
    CHECK_EQUAL(committed(live), 0);
    CHECK_EQUAL(close(plan.descriptor), 0);
    record_one(registry);
    CHECK_EQUAL(committed(live), EBADF);
    CHECK_EQUAL(samples_of(path), 1);
    end(live, registry);
    CHECK_EQUAL(state.error, EBADF);
}

/* Then one of the program's own has the number; it is neither written nor closed. */
TEST(a_file_of_the_programs_own)
{
    char own[64];
    (void)snprintf(own, sizeof own, "%s.own", path);
    const cprof_live_plan plan = {.descriptor = open(path, O_RDWR), .room = ROOM, .interval_ns = NEVER_NS};
    cprof_live *live = opened_by(plan);
    cprof_registry *registry = registry_in(live, "own");
    record_one(registry);
    CHECK_EQUAL(close(plan.descriptor), 0);
    CHECK_EQUAL(open(own, O_RDWR | O_CREAT | O_TRUNC, 0600), plan.descriptor);
    CHECK_EQUAL(ftruncate(plan.descriptor, CPROF_LIVE_AREAS + 4 * ROOM), 0);
    CHECK_EQUAL(committed(live), EBADF);
    end(live, registry);
    CHECK_EQUAL(state.error, EBADF);
    static uint8_t found[CPROF_LIVE_AREAS + 4 * ROOM], zeros[sizeof found];
    CHECK_EQUAL(pread(plan.descriptor, found, sizeof found, 0), sizeof found);
    CHECK(memcmp(found, zeros, sizeof found) == 0);
    CHECK_EQUAL(close(plan.descriptor), 0);
    CHECK_EQUAL(unlink(own), 0);
}

/* Somebody deletes the file, which those go on to read that have it open; or cuts it. */
TEST(what_others_do_to_it_is_noticed)
{
    cprof_live *live = opened(ROOM);
    char other[64];
    (void)snprintf(other, sizeof other, "%s.other", path);
    cprof_registry *registry = registry_in(live, "deleted");
    CHECK_EQUAL(link(path, other), 0);
    CHECK_EQUAL(unlink(path), 0);
    record_one(registry);
    CHECK_EQUAL(committed(live), 0);
    int descriptor = open(other, O_RDWR);
    CHECK(descriptor >= 0);
    CHECK_EQUAL(unlink(other), 0);
    CHECK_EQUAL(committed(live), ESTALE);
    CHECK_EQUAL(latest_of(descriptor).number, 3);
    CHECK_EQUAL(ftruncate(descriptor, CPROF_LIVE_HEAD), 0);
    CHECK_EQUAL(committed(live), ESTALE);
    struct stat file;
    CHECK_EQUAL(fstat(descriptor, &file), 0);
    CHECK_EQUAL(file.st_size, CPROF_LIVE_HEAD);
    closed(live);
    CHECK_EQUAL(state.error, ESTALE);
    CHECK_EQUAL(close(descriptor), 0);
    cprof_process_end_registry(registry);
}

TEST(a_small_stack_is_asked_for_only)
{
    refuses_stacks = true;
    cprof_live *live = opened(ROOM);
    refuses_stacks = false;
    closed(live);
}

TEST(a_file_of_its_own_comes_with_the_first_sample)
{
    char own[64];
    uint8_t head[CPROF_LIVE_HEAD] = "the head";
    (void)snprintf(own, sizeof own, "%s.own", path);
    const cprof_live_plan plan = {.descriptor = -1, .path = own, .head = head, .room = ROOM, .interval_ns = NEVER_NS};
    cprof_live *live = opened_by(plan);
    cprof_registry *registry = registry_in(live, "later");
    CHECK_EQUAL(committed(live), 0);
    CHECK(access(own, F_OK) != 0);
    record_one(registry);
    refuses_room = 1;
    CHECK_EQUAL(committed(live), ENOSPC);
    refuses_room = 0;
    refuses_writes = 1;
    CHECK_EQUAL(committed(live), EIO);
    CHECK(access(own, F_OK) != 0);
    refuses_writes = 0;
    CHECK_EQUAL(committed(live), 0);
    CHECK_EQUAL(samples_of(own), 1);
    int descriptor = open(own, O_RDONLY);
    uint8_t found[CPROF_LIVE_HEAD];
    CHECK_EQUAL(pread(descriptor, found, sizeof found, 0), sizeof found);
    CHECK(memcmp(found, head, sizeof head) == 0);
    (void)close(descriptor);
    closed(live);
    CHECK_EQUAL(unlink(own), 0);
    closed(opened_by(plan));
    CHECK(access(own, F_OK) != 0);
    cprof_process_end_registry(registry);
}

/* Another live file of one registry, at `file`; open. */
static cprof_live *beside(const char *file, cprof_registry *registry)
{
    uint8_t head[CPROF_LIVE_HEAD] = "the head";
    const cprof_live_plan plan = {.descriptor = -1, .path = file, .head = head, .room = ROOM, .interval_ns = NEVER_NS};
    cprof_live *live = opened_by(plan);
    add(live, registry, "beside");
    return live;
}

/* As `kill -9` leaves it: the commits are there, none is the last, and nobody has the lock. */
static void leave_killed(const char *file)
{
    IN_CHILD
    {
        fakes_threads = true; /* it commits itself, and the sanitizer knows no thread of a forked child */
        cprof_registry *registry = registry_made(0);
        cprof_live *live = beside(file, registry);
        record_one(registry);
        CHECK_EQUAL(committed(live), 0);
        _exit(EXIT_SUCCESS);
    }
}

/* Names that other processes have, which may have had this one's number, are left to them; links are not followed (D11, D13).
 */
TEST(a_file_of_its_own_is_nobody_elses)
{
    char folder[] = "/tmp/cprof_live_names_XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    char own[80], names[CPROF_LIVE_NAMES + 1][80], target[80];
    (void)snprintf(own, sizeof own, "%s/live.cprof", folder);
    (void)snprintf(target, sizeof target, "%s/target", folder);
    (void)snprintf(names[1], sizeof names[1], "%s", own);
    for (int i = 2; i <= CPROF_LIVE_NAMES; i++) {
        (void)snprintf(names[i], sizeof names[i], "%s/live-%d.cprof", folder, i);
    }
    leave_killed(names[1]);
    cprof_registry *registries[] = {registry_made(0), registry_made(0), registry_made(0)};
    cprof_live *writer = beside(own, registries[0]);
    record_one(registries[0]);
    CHECK_EQUAL(committed(writer), 0); /* live-2 */
    CHECK_EQUAL(mkdir(names[3], 0700), 0);
    CHECK_EQUAL(symlink(target, names[4]), 0);
    int foreign = open(names[5], O_RDWR | O_CREAT, 0600);
    CHECK_EQUAL(write(foreign, "mine", 4), 4);
    refuses_links = 1;
    cprof_live *next = beside(own, registries[1]);
    record_one(registries[1]);
    record_one(registries[1]);
    CHECK_EQUAL(committed(next), 0); /* live-6 */
    refuses_links = 0;
    CHECK_EQUAL(samples_of(names[1]), 1);
    CHECK_EQUAL(samples_of(names[2]), 1);
    CHECK_EQUAL(samples_of(names[6]), 2);
    CHECK(access(target, F_OK) != 0);
    closed(next);
    leave_killed(own); /* live-6, which has ended well, makes room */
    CHECK_EQUAL(samples_of(names[6]), 1);
    for (int i = 7; i <= CPROF_LIVE_NAMES; i++) {
        leave_killed(own);
        CHECK_EQUAL(samples_of(names[i]), 1);
    }
    next = beside(own, registries[2]); /* all names are taken: the first that nobody writes to goes */
    record_keys(registries[2], 3);
    CHECK_EQUAL(committed(next), 0);
    CHECK_EQUAL(samples_of(own), 3);
    CHECK_EQUAL(samples_of(names[2]), 1);
    char text[5] = "";
    CHECK_EQUAL(pread(foreign, text, 4, 0), 4);
    CHECK(strcmp(text, "mine") == 0);
    CHECK_EQUAL(close(foreign), 0);
    closed(next);
    closed(writer);
    for (int i = 1; i <= CPROF_LIVE_NAMES; i++) {
        CHECK_EQUAL(remove(names[i]), 0);
    }
    CHECK_EQUAL(rmdir(folder), 0); /* nothing else was left */
    next = beside(own, registries[2]);
    CHECK_EQUAL(committed(next), ENOENT);
    closed(next);
    for (int i = 0; i < 3; i++) {
        cprof_process_end_registry(registries[i]);
    }
}

/* The number stands before what follows the last dot of the name, which no folder and no first letter is. */
TEST(other_names)
{
    static const char *const names[][2] = {
        {"l.cprof", "l-2.cprof"}, {"live", "live-2"}, {".live", ".live-2"}, {"a.b.live", "a.b-2.live"}};
    char folder[] = "/tmp/cprof.live_names_XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    cprof_registry *registry = registry_made(0);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char own[80], second[80];
        (void)snprintf(own, sizeof own, "%s/%s", folder, names[i][0]);
        (void)snprintf(second, sizeof second, "%s/%s", folder, names[i][1]);
        CHECK_EQUAL(mkdir(own, 0700), 0);
        cprof_live *live = beside(own, registry);
        record_one(registry);
        CHECK_EQUAL(committed(live), 0);
        closed(live);
        CHECK_EQUAL(unlink(second), 0);
        CHECK_EQUAL(rmdir(own), 0);
    }
    char name[80];
    for (int i = 1; i <= CPROF_LIVE_NAMES; i++) {
        (void)snprintf(name, sizeof name, i == 1 ? "%s/live" : "%s/live-%d", folder, i);
        CHECK_EQUAL(mkdir(name, 0700), 0);
    }
    (void)snprintf(name, sizeof name, "%s/live", folder);
    cprof_live *live = beside(name, registry);
    record_one(registry);
    CHECK_EQUAL(committed(live), EEXIST);
    (void)snprintf(name, sizeof name, "%s/live-%d", folder, CPROF_LIVE_NAMES);
    CHECK_EQUAL(rmdir(name), 0);
    CHECK_EQUAL(committed(live), 0);
    end(live, registry);
    CHECK_EQUAL(unlink(name), 0);
    for (int i = 1; i < CPROF_LIVE_NAMES; i++) {
        (void)snprintf(name, sizeof name, i == 1 ? "%s/live" : "%s/live-%d", folder, i);
        CHECK_EQUAL(rmdir(name), 0);
    }
    CHECK_EQUAL(rmdir(folder), 0); /* nothing else was left */
}

/* Neither a file nor a name that was to be its own stays behind, and the next commit tries again. */
TEST(a_folder_without_links_and_renames)
{
    char folder[] = "/tmp/cprof_live_folder_XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    char own[80];
    (void)snprintf(own, sizeof own, "%s/live.cprof", folder);
    cprof_registry *registry = registry_made(0);
    refuses_links = refuses_renames = 1;
    cprof_live *live = beside(own, registry);
    record_one(registry);
    CHECK_EQUAL(committed(live), EACCES);
    CHECK_EQUAL(rmdir(folder), 0);
    CHECK_EQUAL(mkdir(folder, 0700), 0);
    refuses_links = refuses_renames = 0;
    CHECK_EQUAL(committed(live), 0);
    CHECK_EQUAL(samples_of(own), 1);
    end(live, registry);
    registry = registry_made(0);
    live = beside(own, registry);
    record_one(registry);
    refuses_renames = 1; /* of a name that somebody else's file has */
    CHECK_EQUAL(committed(live), EACCES);
    refuses_renames = 0;
    CHECK_EQUAL(committed(live), 0);
    end(live, registry);
    CHECK_EQUAL(unlink(own), 0);
    CHECK_EQUAL(rmdir(folder), 0);
}

TEST(a_path_that_is_too_long)
{
    char longest[PATH_MAX];
    uint8_t head[CPROF_LIVE_HEAD] = {0};
    (void)memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    const cprof_live_plan plan = {.descriptor = -1, .path = longest, .head = head, .room = ROOM, .interval_ns = NEVER_NS};
    cprof_live *live = opened_by(plan);
    cprof_registry *registry = registry_in(live, "nowhere");
    record_one(registry);
    closed(live);
    CHECK_EQUAL(state.error, ENAMETOOLONG);
    cprof_process_end_registry(registry);
}

/* ---- Threads */

static _Atomic bool is_over;
static _Atomic uint64_t recorded;

static void *record_on(void *context)
{
    cprof_accum *accum = context;
    while (!atomic_load(&is_over)) {
        cprof_accum_record_ms(accum, 1);
        atomic_fetch_add(&recorded, 1);
        (void)sched_yield();
    }
    return NULL;
}

TEST(it_is_whole_while_threads_record)
{
    cprof_live *live = opened_at(path, SMALL_ROOM, OFTEN_NS, NULL);
    cprof_registry *registry = registry_in(live, "threads");
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        threads[i] = check_thread(record_on, accum_of(registry, "train", "node"));
    }
    uint64_t last = 0;
    uint64_t last_samples = 0;
    while (last < wanted_commits) {
        uint64_t samples = samples_of(path);
        CHECK(latest.number >= last && samples >= last_samples);
        CHECK(samples <= atomic_load(&recorded) + THREADS);
        last = latest.number;
        last_samples = samples;
        cprof_registry *passing = registry_in(live, "passing");
        cprof_process_end_registry(passing);
        (void)sched_yield();
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < THREADS; i++) {
        check_join(threads[i]);
    }
    closed(live);
    CHECK_EQUAL(samples_of(path), recorded);
    cprof_process_end_registry(registry);
}

static void *commit_once(void *live)
{
    CHECK_EQUAL(committed(live), 0);
    return NULL;
}

static _Atomic bool has_left;

static void *leave(void *registry)
{
    cprof_live_remove(registry);
    has_left = true;
    return NULL;
}

TEST(who_joins_or_ends_does_not_wait_for_a_commit)
{
    cprof_live *live = opened(ROOM);
    cprof_registry *leaves = registry_in(live, "leaves");
    cprof_registry *ends = registry_in(live, "ends");
    record_one(leaves);
    record_one(ends);
    cprof_lock_acquire(&leaves->read_lock); /* its statistics cannot be copied now */
    pthread_t writer = check_thread(commit_once, live);
    (void)usleep(20000);
    cprof_registry *joins = registry_in(live, "joins");
    record_one(joins);
    record_one(ends);
    cprof_process_end_registry(ends);
    CHECK(cprof_live_has(live, joins));
    pthread_t leaver = check_thread(leave, leaves);
    (void)usleep(20000);
    CHECK(!has_left);
    cprof_lock_release(&leaves->read_lock);
    check_join(writer);
    check_join(leaver);
    CHECK(!cprof_live_has(live, leaves));
    record_one(leaves); /* which is too late */
    CHECK_EQUAL(committed(live), 0);
    part parts[2];
    read_parts(path, parts, 2);
    CHECK_EQUAL(part_count, 2);
    CHECK(strcmp(parts[0].label, "joins") == 0 && parts[1].flags == CPROF_LIVE_GONE);
    CHECK_EQUAL(samples_in(parts[0].snapshot), 1);
    CHECK_EQUAL(samples_in(parts[1].snapshot), 1 + 2);
    cprof_snapshot_destroy(parts[0].snapshot);
    cprof_snapshot_destroy(parts[1].snapshot);
    cprof_live_stop(live, &state);
    cprof_process_end_registry(joins); /* after the last commit */
    cprof_live_close(live);
    CHECK_EQUAL(samples_of(path), 1 + 3);
    cprof_process_end_registry(leaves);
}

static commit wait_for_commit(int descriptor, uint64_t number)
{
    commit found = latest_of(descriptor);
    while (found.number < number) {
        (void)usleep(1000);
        found = latest_of(descriptor);
    }
    return found;
}

/* Nothing changes but what says that the process lives. */
TEST(it_rests_while_nothing_is_counted)
{
    enum { SIZE = CPROF_LIVE_AREAS + 2 * ROOM };
    static uint8_t before[SIZE], after[SIZE];
    cprof_live *live = opened_at(path, ROOM, OFTEN_NS, NULL);
    cprof_registry *registry = registry_in(live, "rests");
    record_keys(registry, 20);
    CHECK_EQUAL(committed(live), 0);
    int descriptor = open(path, O_RDONLY);
    CHECK_EQUAL(pread(descriptor, before, SIZE, 0), SIZE);
    commit first = latest_of(descriptor);
    int64_t began_ns = cprof_clock_monotonic_ns();
    commit last = wait_for_commit(descriptor, first.number + 2);
    CHECK(cprof_clock_monotonic_ns() - began_ns >= 1000000000);
    CHECK_EQUAL(pread(descriptor, after, SIZE, 0), SIZE);
    CHECK(memcmp(before, after, CPROF_LIVE_HEAD) == 0);
    CHECK(memcmp(before + CPROF_LIVE_AREAS, after + CPROF_LIVE_AREAS, SIZE - CPROF_LIVE_AREAS) == 0);
    CHECK_EQUAL(last.offset, first.offset);
    CHECK(last.taken_ns >= first.taken_ns + 1000000000);
    CHECK_EQUAL(samples_of(path), 20);
    record_one(registry);
    while (samples_of(path) != 21) {
        (void)usleep(1000);
    }
    CHECK(latest.offset != first.offset);
    (void)close(descriptor);
    end(live, registry);
}

/* Where commits are far apart, readers see that the process lives, and how old the statistics are. */
TEST(it_lives_between_two_commits)
{
    cprof_live *live = opened(ROOM);
    cprof_registry *registry = registry_in(live, "lives");
    record_one(registry);
    CHECK_EQUAL(committed(live), 0);
    refuses_room = 1;
    record_keys(registry, MANY_KEYS * 4);
    CHECK_EQUAL(committed(live), ENOSPC);
    refuses_room = 0;
    int descriptor = open(path, O_RDONLY);
    commit first = latest_of(descriptor);
    commit last = wait_for_commit(descriptor, first.number + 1);
    CHECK_EQUAL(last.taken_ns, first.taken_ns);
    CHECK_EQUAL(last.flags, CPROF_LIVE_STALE);
    CHECK_EQUAL(last.error, ENOSPC);
    CHECK_EQUAL(samples_of(path), 1);
    (void)close(descriptor);
    end(live, registry);
    CHECK_EQUAL(samples_of(path), MANY_KEYS * 4 + 1);
}

TEST(a_child_lets_go_of_it)
{
    cprof_live *live = opened(ROOM);
    cprof_registry *registry = registry_in(live, "a parent's");
    record_one(registry);
    IN_CHILD
    {
        CHECK(registry->live == NULL);
        (void)committed(live);
        CHECK_EQUAL(state.commits, 0);
        cprof_live_remove(registry);
        const cprof_live_about about = {.label = {"a child's", 9}};
        CHECK_EQUAL(cprof_live_add(live, registry, &about), CPROF_ABSENT);
        closed(live);
        CHECK_EQUAL(state.commits, 0);
        _exit(EXIT_SUCCESS);
    }
    CHECK(cprof_live_has(live, registry));
    closed(live);
    CHECK_EQUAL(samples_of(path), 1);
    CHECK_EQUAL(latest.number, 2);
    CHECK(registry->live == NULL);
    cprof_process_end_registry(registry);
}

/* ---- What cannot be had */

TEST(it_does_not_open_where_nothing_can_be_written)
{
    cprof_live *live;
    cprof_live_plan plan = {.descriptor = open("/dev/full", O_WRONLY), .room = ROOM, .interval_ns = NEVER_NS};
    CHECK_EQUAL(cprof_live_open(&plan, &live), ENOSPC);
    CHECK_EQUAL(close(plan.descriptor), 0);
    plan.descriptor = open(path, O_RDWR);
    refuses_threads = true;
    CHECK_EQUAL(cprof_live_open(&plan, &live), EAGAIN);
    refuses_threads = false;
    CHECK_EQUAL(close(plan.descriptor), 0);
}

/* Whatever is refused: what was committed before stays, and the next commit has all. */
TEST(without_memory_nothing_is_lost)
{
    fake_alloc_install(); /* in the last tests, so that all that it counts is given back */
    uint8_t head[CPROF_LIVE_HEAD] = {0};
    const cprof_live_plan plan = {.descriptor = -1, .path = path, .head = head, .room = ROOM, .interval_ns = NEVER_NS};
    for (uint64_t nth = 0; fake_alloc_fail_next(&nth);) {
        cprof_live *live;
        int error = cprof_live_open(&plan, &live);
        CHECK(error == (fake_alloc_has_failed() ? ENOMEM : 0));
        if (error == 0) {
            closed(live);
        }
    }
    bool passes = false;
    for (uint64_t nth = 1; !passes; nth++) {
        CHECK(nth < MOST_ALLOCATIONS);
        cprof_live *live = opened(ROOM);
        cprof_registry *registry = registry_made(0);
        cprof_registry *other = registry_made(0);
        const cprof_live_about about = {.label = {"label", 5}};
        record_keys(registry, 3);
        record_keys(other, 1);
        fake_alloc_fail(nth);
        cprof_status added = cprof_live_add(live, registry, &about);
        if (added == CPROF_OK) {
            added = cprof_live_add(live, other, &about);
        }
        (void)committed(live);
        CHECK(state.error == 0 || state.error == ENOMEM);
        cprof_live_remove(other);
        passes = !fake_alloc_has_failed();
        fake_alloc_fail(0);
        CHECK(added == CPROF_OK || added == CPROF_NO_MEMORY);
        closed(live);
        CHECK_EQUAL(state.error, 0);
        CHECK(samples_of(path) == 4 || !passes);
        cprof_process_end_registry(registry);
        cprof_process_end_registry(other);
    }
}

/* Whatever is refused: those who left before are there, and one who leaves is, or is told to be lost. */
TEST(without_memory_what_has_left_stays)
{
    bool passes = false;
    for (uint64_t nth = 1; !passes; nth++) {
        CHECK(nth < MOST_ALLOCATIONS);
        cprof_live *live = opened(ROOM);
        have_many_leave(live);
        cprof_registry *registries[MANY_LEFT];
        for (int i = 0; i < MANY_LEFT; i++) {
            registries[i] = registry_in(live, "leaves");
            record_one(registries[i]);
        }
        fake_alloc_fail(nth);
        for (int i = 0; i < MANY_LEFT; i++) {
            cprof_live_remove(registries[i]);
        }
        CHECK(committed(live) == 0 || state.error == ENOMEM);
        passes = !fake_alloc_has_failed();
        fake_alloc_fail(0);
        closed(live);
        uint64_t lost;
        uint64_t samples = samples_and_errors(&lost);
        CHECK_EQUAL(samples + lost, 2 * MANY_LEFT);
        CHECK(lost <= (passes ? 0 : 1));
        for (int i = 0; i < MANY_LEFT; i++) {
            cprof_process_end_registry(registries[i]);
        }
    }
}

int main(int count, char **arguments)
{
    cprof_process_start();
    wanted_commits = check_argument(count, arguments, wanted_commits);
    int descriptor = mkstemp(path);
    CHECK(descriptor >= 0);
    CHECK_EQUAL(close(descriptor), 0);
    check_run(NULL, NULL);
    CHECK_EQUAL(fake_alloc_live(), 0);
    CHECK_EQUAL(unlink(path), 0);
    return EXIT_SUCCESS;
}
