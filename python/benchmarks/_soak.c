/* What the soak's service runs upon: clocks that step, and disks that are full for a while. Preloaded by soak.py. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

long long soak_steps_ns[8]; /* by clock: 0 is that of the day, 1 the monotonic one, 7 also counts suspensions */
int soak_full;
static int (*read_clock)(clockid_t, struct timespec *);
static ssize_t (*write_on)(int, const void *, size_t);
static ssize_t (*write_at)(int, const void *, size_t, off_t);
static int (*allocate)(int, off_t, off_t);

__attribute__((constructor)) static void find(void)
{
    read_clock = dlsym(RTLD_NEXT, "clock_gettime");
    write_on = dlsym(RTLD_NEXT, "write");
    write_at = dlsym(RTLD_NEXT, "pwrite64");
    allocate = dlsym(RTLD_NEXT, "posix_fallocate64");
}

static int is_full(int fd)
{
    struct stat status;
    return soak_full && fd > 2 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    if (read_clock == NULL) {
        find();
    }
    int result = read_clock(id, now);
    if (result == 0 && id >= 0 && id < 8 && soak_steps_ns[id] != 0) {
        long long ns = now->tv_sec * 1000000000LL + now->tv_nsec + soak_steps_ns[id];
        now->tv_sec = ns / 1000000000;
        now->tv_nsec = ns % 1000000000;
    }
    return result;
}

static bool is_refused(int fd)
{
    bool refused = is_full(fd);
    errno = refused ? ENOSPC : errno;
    return refused;
}

ssize_t write(int fd, const void *data, size_t size)
{
    return is_refused(fd) ? -1 : write_on(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    return is_refused(fd) ? -1 : write_at(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) __attribute__((alias("pwrite")));

int posix_fallocate(int fd, off_t at, off_t size)
{
    return is_full(fd) ? ENOSPC : allocate(fd, at, size);
}

int posix_fallocate64(int fd, off_t at, off_t size) __attribute__((alias("posix_fallocate")));
