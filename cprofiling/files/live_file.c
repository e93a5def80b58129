#define _GNU_SOURCE
#include "cprofiling/files/live_file.h"

#include "cprofiling/base/alloc.h"
#include "cprofiling/base/bytes.h"
#include "cprofiling/base/checksum.h"
#include "cprofiling/base/clock.h"
#include "cprofiling/base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WORDS = 8, /* of a commit */
    MAGIC = 8, /* bytes that the head begins with */
    PAGE = 4096,
};

static void remember(cprof_live_file *file)
{
    struct stat opened;
    if (fstat(file->descriptor, &opened) == 0) {
        file->device = opened.st_dev;
        file->inode = opened.st_ino;
    }
}

/* EBADF where the program has closed the descriptor, also if another file of its own has the number now. */
static int find(const cprof_live_file *file, struct stat *found)
{
    if (fstat(file->descriptor, found) != 0) {
        return errno;
    }
    return found->st_dev == file->device && found->st_ino == file->inode ? 0 : EBADF;
}

bool cprof_live_file_init(cprof_live_file *file, const cprof_live_plan *plan)
{
    file->descriptor = plan->descriptor;
    file->areas[0] = (cprof_live_area){CPROF_LIVE_AREAS, plan->room};
    file->areas[1] = (cprof_live_area){CPROF_LIVE_AREAS + plan->room, plan->room};
    file->end = CPROF_LIVE_AREAS + 2 * plan->room;
    if (plan->descriptor >= 0) {
        remember(file);
        return true;
    }
    file->path = cprof_alloc_zeroed(strlen(plan->path) + 1);
    file->head = cprof_alloc_zeroed(CPROF_LIVE_HEAD);
    if (file->path == NULL || file->head == NULL) {
        return false;
    }
    memcpy(file->path, plan->path, strlen(plan->path));
    memcpy(file->head, plan->head, CPROF_LIVE_HEAD);
    return true;
}

void cprof_live_file_close(const cprof_live_file *file)
{
    struct stat found;
    if (find(file, &found) != EBADF) { /* also where the disk does not answer */
        (void)close(file->descriptor);
    }
}

void cprof_live_file_dispose(cprof_live_file *file)
{
    cprof_alloc_release(file->path);
    cprof_alloc_release(file->head);
}

/* ---- Writing */

static int write_at(const cprof_live_file *file, const uint8_t *bytes, size_t size, uint64_t offset)
{
    while (size > 0) {
        ssize_t written = pwrite(file->descriptor, bytes, size, (off_t)offset);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return written < 0 ? errno : EIO;
        }
        bytes += written;
        size -= (size_t)written;
        offset += (uint64_t)written;
    }
    return 0;
}

static int reserve(const cprof_live_file *file, uint64_t offset, uint64_t size)
{
    int error = EINTR;
    while (error == EINTR) {
        error = posix_fallocate(file->descriptor, (off_t)offset, (off_t)size);
    }
    return error;
}

/* Sees to it that the area which does not hold the latest statistics is large enough. */
static int make_room(cprof_live_file *file, cprof_live_area *room, size_t size)
{
    if (size <= room->room) {
        return 0;
    }
    uint64_t wanted = (size * 2 + PAGE - 1) / PAGE * PAGE;
    int error = reserve(file, file->end, wanted);
    if (error == 0) {
        *room = (cprof_live_area){file->end, wanted};
        file->end += wanted;
    }
    return error;
}

/* Says which statistics are the latest: the place of the commit before the last is overwritten. */
static int say_latest(cprof_live_file *file)
{
    uint8_t bytes[WORDS * 8];
    const uint64_t words[WORDS - 1] = {file->commits + 1, file->taken_ns, file->areas[file->latest].offset,
                                       file->length,      file->flags,    (uint64_t)file->error,
                                       file->checksum};
    for (size_t i = 0; i < WORDS - 1; i++) {
        cprof_bytes_store(bytes + i * 8, words[i], 8);
    }
    cprof_bytes_store(bytes + sizeof bytes - 8, cprof_checksum(bytes, sizeof bytes - 8), 8);
    uint64_t place = (file->commits + 1) % 2;
    int error = write_at(file, bytes, sizeof bytes, CPROF_LIVE_HEAD + place * CPROF_LIVE_PLACE);
    file->commits += error == 0;
    return error;
}

int cprof_live_file_beat(cprof_live_file *file)
{
    struct stat found;
    int error = find(file, &found);
    return error != 0 ? error : say_latest(file);
}

static int write_statistics(cprof_live_file *file, const cprof_live_statistics *statistics)
{
    unsigned next = 1 - file->latest;
    int error = make_room(file, &file->areas[next], statistics->size);
    if (error == 0) {
        error = write_at(file, statistics->bytes, statistics->size, file->areas[next].offset);
    }
    if (error == 0) {
        file->latest = next;
        file->length = statistics->size;
        file->checksum = statistics->checksum;
    }
    return error;
}

/* Tried again at the next commit. A file without a name is written for its open readers. */
int cprof_live_file_commit(cprof_live_file *file, const cprof_live_statistics *statistics)
{
    struct stat found;
    int error = find(file, &found);
    if (error != 0) {
        return error;
    }
    if (S_ISREG(found.st_mode) && (uint64_t)found.st_size < file->end) {
        return ESTALE; /* it was cut: writing would make holes without reserved room */
    }
    error = statistics->error;
    cprof_live_file before = *file;
    if (error == 0 && statistics->bytes != NULL) {
        error = write_statistics(file, statistics);
    }
    file->taken_ns = (uint64_t)cprof_clock_time_of_day();
    file->flags = statistics->flags | (error != 0 ? CPROF_LIVE_STALE : 0);
    file->error = error;
    int unsaid = say_latest(file);
    if (unsaid != 0) { /* what readers are referred to is where it was: the next statistics must not go there */
        file->latest = before.latest;
        file->length = before.length;
        file->checksum = before.checksum;
    }
    error = error != 0 ? error : unsaid;
    return error != 0 || found.st_nlink > 0 ? error : ESTALE;
}

/* ---- How it comes to be */

/* Whether the last commit says that it is the last. */
static bool has_ended(int descriptor)
{
    uint64_t number = 0;
    uint64_t flags = 0;
    for (off_t place = 0; place < 2; place++) {
        uint8_t bytes[WORDS * 8];
        bool is_whole =
            pread(descriptor, bytes, sizeof bytes, CPROF_LIVE_HEAD + place * CPROF_LIVE_PLACE) == (ssize_t)sizeof bytes &&
            cprof_bytes_load(bytes + sizeof bytes - 8, 8) == cprof_checksum(bytes, sizeof bytes - 8);
        if (is_whole && cprof_bytes_load(bytes, 8) > number) {
            number = cprof_bytes_load(bytes, 8);
            flags = cprof_bytes_load(bytes + 32, 8);
        }
    }
    return (flags & CPROF_LIVE_LAST) != 0;
}

/* Whether it is a live file that nobody writes, which is locked then; with `spares` only if its process has ended well. */
static bool may_go(const cprof_live_file *file, int descriptor, bool spares)
{
    struct stat found;
    uint8_t magic[MAGIC];
    return fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode) &&
           (flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
           pread(descriptor, magic, sizeof magic, 0) == MAGIC && memcmp(magic, file->head, MAGIC) == 0 &&
           (!spares || has_ended(descriptor));
}

static int replace(const cprof_live_file *file, const char *temporary, const char *name, bool spares)
{
    int descriptor = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (descriptor < 0) {
        return EEXIST;
    }
    int error = EEXIST;
    struct stat opened, present;
    if (may_go(file, descriptor, spares) && fstat(descriptor, &opened) == 0 && lstat(name, &present) == 0 &&
        opened.st_dev == present.st_dev && opened.st_ino == present.st_ino) {
        error = rename(temporary, name) == 0 ? 0 : errno;
    }
    (void)close(descriptor);
    return error;
}

/* Where there are no hard links, a file that takes the name first. */
static int give_free_name(const char *temporary, const char *name)
{
    if (link(temporary, name) == 0) {
        (void)unlink(temporary);
        return 0;
    }
    if (errno == EEXIST) {
        return EEXIST;
    }
    int placeholder = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (placeholder < 0) {
        return errno;
    }
    (void)close(placeholder);
    int error = rename(temporary, name) == 0 ? 0 : errno;
    if (error != 0) {
        (void)unlink(name);
    }
    return error;
}

/* At first files of processes that were killed are spared. */
static int give_name(const cprof_live_file *file, const char *temporary)
{
    int error = EEXIST;
    for (int spares = 1; error == EEXIST && spares >= 0; spares--) {
        for (unsigned number = 1; error == EEXIST && number <= CPROF_LIVE_NAMES; number++) {
            char name[PATH_MAX];
            /* `live.cprof`, then `live-2.cprof` and so on; ENAMETOOLONG, or 0. */
            const char *slash = strrchr(file->path, '/');
            const char *base = slash != NULL ? slash + 1 : file->path;
            const char *end = strrchr(base, '.');
            end = end != NULL && end != base ? end : base + strlen(base);
            int length = number == 1 ? snprintf(name, PATH_MAX, "%s", file->path)
                                     : snprintf(name, PATH_MAX, "%.*s-%u%s", (int)(end - file->path), file->path, number, end);
            error = length >= 0 && length < PATH_MAX ? 0 : ENAMETOOLONG;
            error = error == 0 ? give_free_name(temporary, name) : error;
            error = error == EEXIST ? replace(file, temporary, name, spares != 0) : error;
        }
    }
    return error;
}

int cprof_live_file_make(cprof_live_file *file, const cprof_live_statistics *statistics)
{
    char temporary[PATH_MAX];
    uint64_t random;
    cprof_random_bytes(&random, sizeof random);
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.%016" PRIx64 ".tmp", file->path, random) >= sizeof temporary) {
        return ENAMETOOLONG;
    }
    file->descriptor = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (file->descriptor < 0) {
        return errno;
    }
    remember(file);
    (void)flock(file->descriptor, LOCK_EX | LOCK_NB); /* nobody else knows the name; some file systems have no locks */
    int error = reserve(file, 0, file->end);
    error = error == 0 ? write_at(file, file->head, CPROF_LIVE_HEAD, 0) : error;
    error = error == 0 ? cprof_live_file_commit(file, statistics) : error;
    error = error == 0 ? give_name(file, temporary) : error;
    if (error != 0) {
        (void)unlink(temporary);
        (void)close(file->descriptor);
        file->descriptor = -1;
    }
    return error;
}
