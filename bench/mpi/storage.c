/*
 * Preloaded under every mode alike: makes each read and write of one file take a while, and counts them.
 *
 * A call on the file first sleeps, then is done. So the storage behind it has a latency per request and serves requests of
 * different processes at once, as a parallel file system with a server for each does. Locks cost nothing extra, in no mode.
 *
 * The order of a process's requests is a number made of their offsets and lengths, one after another: two runs that did
 * the same have the same. Processes with several threads that do I/O are not for this.
 */
#define _GNU_SOURCE
#include "storage.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static struct stat slow;
static int is_set;
static struct timespec delay;
static struct storage_counts counts;

int storage_begin(const char *path, long delay_us) {
    counts = (struct storage_counts){0};
    delay = (struct timespec){delay_us / 1000000, delay_us % 1000000 * 1000};
    prctl(PR_SET_TIMERSLACK, 1); /* otherwise sleeps are 50 us longer than asked for */
    is_set = stat(path, &slow) == 0;
    return is_set ? 0 : -1;
}

void storage_end(struct storage_counts *out) {
    *out = counts;
    is_set = 0;
}

static int is_ours(int fd) {
    struct stat status;
    int error = errno, ours = is_set && fstat(fd, &status) == 0 && status.st_ino == slow.st_ino && status.st_dev == slow.st_dev;
    errno = error;
    return ours;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static unsigned long long mixed(unsigned long long order, unsigned long long number) {
    order = (order ^ number) * 0x9e3779b97f4a7c15ULL;
    return order ^ order >> 32;
}

static void enter(size_t bytes, off_t offset) {
    counts.calls++;
    counts.bytes += (long long)bytes;
    counts.order = mixed(mixed(counts.order, (unsigned long long)offset), bytes);
    counts.busy_s -= now();
    if (delay.tv_sec > 0 || delay.tv_nsec > 0)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &delay, NULL);
}

static size_t total(const struct iovec *list, int count) {
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += list[i].iov_len;
    return bytes;
}

/* The body of a wrapper: what it transfers, where, and how it was called. */
#define SLOWED(name, bytes, offset, arguments)                  \
    {                                                           \
        static __typeof__(&name) next;                          \
        if (!next)                                              \
            next = (__typeof__(&name))dlsym(RTLD_NEXT, #name);  \
        if (!is_ours(fd))                                       \
            return next arguments;                              \
        enter(bytes, offset);                                   \
        ssize_t done = next arguments;                          \
        counts.busy_s += now();                                 \
        return done;                                            \
    }

#define HERE lseek(fd, 0, SEEK_CUR)

ssize_t write(int fd, const void *data, size_t length) SLOWED(write, length, HERE, (fd, data, length))
ssize_t pwrite(int fd, const void *data, size_t length, off_t at) SLOWED(pwrite, length, at, (fd, data, length, at))
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) SLOWED(pwrite64, length, at, (fd, data, length, at))
ssize_t writev(int fd, const struct iovec *list, int count) SLOWED(writev, total(list, count), HERE, (fd, list, count))
ssize_t pwritev(int fd, const struct iovec *list, int count, off_t at)
    SLOWED(pwritev, total(list, count), at, (fd, list, count, at))
ssize_t pwritev64(int fd, const struct iovec *list, int count, off64_t at)
    SLOWED(pwritev64, total(list, count), at, (fd, list, count, at))
ssize_t read(int fd, void *data, size_t length) SLOWED(read, length, HERE, (fd, data, length))
ssize_t pread(int fd, void *data, size_t length, off_t at) SLOWED(pread, length, at, (fd, data, length, at))
ssize_t pread64(int fd, void *data, size_t length, off64_t at) SLOWED(pread64, length, at, (fd, data, length, at))
ssize_t readv(int fd, const struct iovec *list, int count) SLOWED(readv, total(list, count), HERE, (fd, list, count))
ssize_t preadv(int fd, const struct iovec *list, int count, off_t at)
    SLOWED(preadv, total(list, count), at, (fd, list, count, at))
ssize_t preadv64(int fd, const struct iovec *list, int count, off64_t at)
    SLOWED(preadv64, total(list, count), at, (fd, list, count, at))
