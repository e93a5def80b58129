/* Lets calls of the system fail, or do less than they were asked for, where they concern a folder or sockets.
 *
 * To be loaded before the C library (LD_PRELOAD). In the environment, or by failing_calls_order():
 *
 * - FAILING_CALLS_UNDER: the folder, for its files and what has them open; "sockets": those; "connections": but for accept
 * - FAILING_CALLS_NTH: which call fails, counted from 1; 0: none
 * - FAILING_CALLS_CODE: the errno; 0: it does the half of what it was asked for
 * - FAILING_CALLS_LASTING: 1: all later calls of that kind fail, too; 2: all later calls of any kind
 * - FAILING_CALLS_LOG: a file, which gets a line for each call: its name, and 1 where it failed, else 0
 *
 * A call that cannot fail in this way is counted, and does what it always does. close() closes and then fails, as Linux does.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { LONGEST = 4096, SHORT = 0, NAME = 32 };

static char under[LONGEST]; /* empty: nothing is watched */
static char failed_name[NAME];
static _Atomic int64_t fails_at;
static _Atomic int64_t calls;
static _Atomic int64_t failures;
static int code;
static int lasts; /* as FAILING_CALLS_LASTING; else 0 */
static const char *log_path;

EXPORT void failing_calls_order(const char *folder, int64_t nth, int error, int lasting)
{
    under[0] = 0;
    atomic_store(&calls, 0);
    atomic_store(&failures, 0);
    atomic_store(&fails_at, nth);
    code = error;
    lasts = lasting;
    failed_name[0] = 0;
    (void)snprintf(under, sizeof under, "%s", folder);
}

/* Ends it. The calls that were counted. */
EXPORT int64_t failing_calls_end(void)
{
    under[0] = 0;
    return atomic_load(&calls);
}

EXPORT int64_t failing_calls_failures(void)
{
    return atomic_load(&failures);
}

/* The function that failed first. */
EXPORT const char *failing_calls_name(void)
{
    return failed_name;
}

__attribute__((constructor)) static void start(void)
{
    const char *folder = getenv("FAILING_CALLS_UNDER");
    const char *nth = getenv("FAILING_CALLS_NTH");
    const char *error = getenv("FAILING_CALLS_CODE");
    const char *lasting = getenv("FAILING_CALLS_LASTING");
    log_path = getenv("FAILING_CALLS_LOG");
    if (folder != NULL && nth != NULL && error != NULL) {
        failing_calls_order(folder, strtol(nth, NULL, 10), (int)strtol(error, NULL, 10),
                            lasting != NULL ? (int)strtol(lasting, NULL, 10) : 0);
    }
}

static bool is_below(const char *path)
{
    size_t length = strlen(under);
    return strncmp(path, under, length) == 0 && (path[length] == 0 || path[length] == '/');
}

/* Not one end of a pair that a program keeps for itself. */
static bool is_socket_with_name(int file)
{
    struct sockaddr_storage name = {.ss_family = AF_UNSPEC};
    socklen_t own = sizeof name;
    socklen_t other = sizeof name;
    bool is_socket = getsockname(file, (struct sockaddr *)&name, &own) == 0;
    if (!is_socket || name.ss_family != AF_UNIX || own > sizeof name.ss_family) {
        return is_socket && name.ss_family != AF_NETLINK;
    }
    return getpeername(file, (struct sockaddr *)&name, &other) == 0 && other > sizeof name.ss_family;
}

static bool concerns_link(const char *link)
{
    char path[LONGEST];
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length <= 0) {
        return false;
    }
    path[length] = 0;
    return is_below(path);
}

static bool concerns(int descriptor)
{
    char link[64];
    if (under[0] == 0 || descriptor < 0) {
        return false;
    }
    int before = errno;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    bool is_file = strcmp(under, "sockets") != 0 && strcmp(under, "connections") != 0;
    bool does = is_file ? concerns_link(link) : is_socket_with_name(descriptor);
    errno = before;
    return does;
}

static bool concerns_path(int folder, const char *path)
{
    if (under[0] == 0 || path == NULL) {
        return false;
    }
    if (strncmp(path, "/proc/self/fd/", 14) == 0) {
        return concerns_link(path);
    }
    return path[0] == '/' ? is_below(path) : folder == AT_FDCWD ? concerns_link("/proc/self/cwd") : concerns(folder);
}

static void note(const char *name, bool has_failed)
{
    char line[NAME + 32];
    int length = snprintf(line, sizeof line, "%s %d\n", name, has_failed);
    int before = errno;
    long log = syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_APPEND | O_CREAT, S_IRUSR | S_IWUSR);
    (void)!syscall(SYS_write, log, line, (size_t)length);
    (void)syscall(SYS_close, log);
    errno = before;
}

/* Whether a call that concerns us is to fail now, or to do less, which not all can. */
static bool fails(const char *name, bool can_be_short)
{
    int64_t number = atomic_fetch_add(&calls, 1) + 1;
    int64_t wanted = atomic_load(&fails_at);
    bool is_later = number > wanted && (lasts == 2 || (lasts == 1 && strcmp(failed_name, name) == 0));
    bool does = wanted > 0 && (number == wanted || is_later);
    does = does && (code != SHORT || can_be_short);
    if (log_path != NULL) {
        note(name, does);
    }
    if (!does) {
        return false;
    }
    if (atomic_fetch_add(&failures, 1) == 0) {
        (void)snprintf(failed_name, sizeof failed_name, "%s", name);
    }
    errno = code;
    return true;
}

/* The function of the same name in the C library. */
#define REAL(name)                                        \
    static __typeof__(&name) real_##name;                 \
    if (real_##name == NULL) {                            \
        *(void **)&real_##name = dlsym(RTLD_NEXT, #name); \
    }

/* One that has no part of what it was asked for: parameters, their names, whether it concerns us, what it answers. */
#define WHOLE(type, name, parameters, arguments, is_ours, failure) \
    EXPORT type name parameters                                    \
    {                                                              \
        REAL(name)                                                 \
        if ((is_ours) && fails(#name, false)) {                    \
            return failure;                                        \
        }                                                          \
        return real_##name arguments;                              \
    }

/* One that takes or gives an `amount`, of bytes or pieces, of which the half is enough. */
#define PARTIAL(name, parameters, amount, arguments)   \
    EXPORT ssize_t name parameters                     \
    {                                                  \
        REAL(name)                                     \
        if (concerns(file) && fails(#name, true)) {    \
            if (code != SHORT) {                       \
                return -1;                             \
            }                                          \
            amount = amount > 1 ? amount / 2 : amount; \
        }                                              \
        return real_##name arguments;                  \
    }

PARTIAL(write, (int file, const void *bytes, size_t size), size, (file, bytes, size))
PARTIAL(read, (int file, void *bytes, size_t size), size, (file, bytes, size))
PARTIAL(pwrite, (int file, const void *bytes, size_t size, off_t at), size, (file, bytes, size, at))
PARTIAL(pwrite64, (int file, const void *bytes, size_t size, off64_t at), size, (file, bytes, size, at))
PARTIAL(pread, (int file, void *bytes, size_t size, off_t at), size, (file, bytes, size, at))
PARTIAL(pread64, (int file, void *bytes, size_t size, off64_t at), size, (file, bytes, size, at))
PARTIAL(send, (int file, const void *bytes, size_t size, int flags), size, (file, bytes, size, flags))
PARTIAL(recv, (int file, void *bytes, size_t size, int flags), size, (file, bytes, size, flags))
PARTIAL(writev, (int file, const struct iovec *pieces, int count), count, (file, pieces, count))
PARTIAL(readv, (int file, const struct iovec *pieces, int count), count, (file, pieces, count))

EXPORT ssize_t sendmsg(int file, const struct msghdr *message, int flags)
{
    REAL(sendmsg)
    struct msghdr less = *message;
    if (concerns(file) && fails("sendmsg", true)) {
        if (code != SHORT) {
            return -1;
        }
        less.msg_iovlen = less.msg_iovlen > 1 ? 1 : less.msg_iovlen;
    }
    return real_sendmsg(file, &less, flags);
}

WHOLE(ssize_t, recvmsg, (int file, struct msghdr *message, int flags), (file, message, flags), concerns(file), -1)
static bool concerns_listener(int file)
{
    return strcmp(under, "connections") != 0 && concerns(file);
}

WHOLE(int, accept, (int file, struct sockaddr *from, socklen_t *size), (file, from, size), concerns_listener(file), -1)
WHOLE(int, accept4, (int file, struct sockaddr *from, socklen_t *size, int flags), (file, from, size, flags),
      concerns_listener(file), -1)
WHOLE(int, socket, (int domain, int type, int protocol), (domain, type, protocol),
      strcmp(under, "sockets") == 0 && domain != AF_NETLINK, -1)
WHOLE(int, bind, (int file, const struct sockaddr *name, socklen_t size), (file, name, size), concerns(file), -1)
WHOLE(int, listen, (int file, int most), (file, most), concerns(file), -1)
WHOLE(int, setsockopt, (int file, int level, int name, const void *value, socklen_t size), (file, level, name, value, size),
      concerns(file), -1)
WHOLE(int, fsync, (int file), (file), concerns(file), -1)
WHOLE(int, fdatasync, (int file), (file), concerns(file), -1)
WHOLE(int, ftruncate, (int file, off_t size), (file, size), concerns(file), -1)
WHOLE(int, ftruncate64, (int file, off64_t size), (file, size), concerns(file), -1)
WHOLE(int, posix_fallocate, (int file, off_t at, off_t size), (file, at, size), concerns(file), errno)
WHOLE(int, posix_fallocate64, (int file, off64_t at, off64_t size), (file, at, size), concerns(file), errno)
WHOLE(void *, mmap, (void *at, size_t size, int access, int flags, int file, off_t from), (at, size, access, flags, file, from),
      concerns(file), MAP_FAILED)
WHOLE(void *, mmap64, (void *at, size_t size, int access, int flags, int file, off64_t from),
      (at, size, access, flags, file, from), concerns(file), MAP_FAILED)
WHOLE(int, rename, (const char *from, const char *to), (from, to), concerns_path(AT_FDCWD, to), -1)
WHOLE(int, renameat, (int from_folder, const char *from, int folder, const char *to), (from_folder, from, folder, to),
      concerns_path(folder, to), -1)
WHOLE(int, link, (const char *from, const char *to), (from, to), concerns_path(AT_FDCWD, to), -1)
WHOLE(int, linkat, (int from_folder, const char *from, int folder, const char *to, int flags),
      (from_folder, from, folder, to, flags), concerns_path(folder, to), -1)
WHOLE(int, fstat, (int file, struct stat *found), (file, found), concerns(file), -1)
WHOLE(int, fstat64, (int file, struct stat64 *found), (file, found), concerns(file), -1)
WHOLE(int, stat, (const char *path, struct stat *found), (path, found), concerns_path(AT_FDCWD, path), -1)
WHOLE(int, stat64, (const char *path, struct stat64 *found), (path, found), concerns_path(AT_FDCWD, path), -1)
WHOLE(int, lstat, (const char *path, struct stat *found), (path, found), concerns_path(AT_FDCWD, path), -1)
WHOLE(int, lstat64, (const char *path, struct stat64 *found), (path, found), concerns_path(AT_FDCWD, path), -1)
WHOLE(int, fstatat, (int folder, const char *path, struct stat *found, int flags), (folder, path, found, flags),
      concerns_path(folder, path), -1)
WHOLE(int, fstatat64, (int folder, const char *path, struct stat64 *found, int flags), (folder, path, found, flags),
      concerns_path(folder, path), -1)
WHOLE(int, mkdir, (const char *path, mode_t mode), (path, mode), concerns_path(AT_FDCWD, path), -1)
WHOLE(int, mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode), concerns_path(folder, path), -1)
WHOLE(int, unlink, (const char *path), (path), concerns_path(AT_FDCWD, path), -1)
WHOLE(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags), concerns_path(folder, path), -1)
WHOLE(int, rmdir, (const char *path), (path), concerns_path(AT_FDCWD, path), -1)
WHOLE(int, chmod, (const char *path, mode_t mode), (path, mode), concerns_path(AT_FDCWD, path), -1)
WHOLE(int, fchmod, (int file, mode_t mode), (file, mode), concerns(file), -1)
WHOLE(int, flock, (int file, int operation), (file, operation), concerns(file), -1)
WHOLE(DIR *, opendir, (const char *path), (path), concerns_path(AT_FDCWD, path), NULL)
WHOLE(DIR *, fdopendir, (int folder), (folder), concerns(folder), NULL)

EXPORT int close(int file)
{
    REAL(close)
    bool does_fail = concerns(file) && fails("close", false);
    int result = real_close(file);
    if (does_fail) {
        errno = code;
    }
    return does_fail ? -1 : result;
}

/* With the mode where there is one. */
#define OPENS(name, parameters, last, folder, path, flags, ...)           \
    EXPORT int name parameters                                            \
    {                                                                     \
        REAL(name)                                                        \
        mode_t mode = 0;                                                  \
        if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) { \
            va_list rest;                                                 \
            va_start(rest, last);                                         \
            mode = va_arg(rest, mode_t);                                  \
            va_end(rest);                                                 \
        }                                                                 \
        if (concerns_path(folder, path) && fails(#name, false)) {         \
            return -1;                                                    \
        }                                                                 \
        return real_##name(__VA_ARGS__, mode);                            \
    }

OPENS(open, (const char *path, int flags, ...), flags, AT_FDCWD, path, flags, path, flags)
OPENS(open64, (const char *path, int flags, ...), flags, AT_FDCWD, path, flags, path, flags)
OPENS(openat, (int folder, const char *path, int flags, ...), flags, folder, path, flags, folder, path, flags)
OPENS(openat64, (int folder, const char *path, int flags, ...), flags, folder, path, flags, folder, path, flags)
