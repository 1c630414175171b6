/*
 * Preloaded in tests: makes every write to a file take a while and in pieces, as storage far away does, so that accesses
 * that are not atomic tear in every run and not in one of ten. WRITE_DELAY_US: how long to sleep in each. With NO_LOCKS set
 * there are no locks on files either, as on many file systems: fcntl says ENOLCK. delay_writes() is how many writes there were. From
 * delay_from_now(microseconds) on each write takes that long, and each read. From delay_until(path) on each write to a file whose first byte
 * is no zero waits, before that, until there is a file of that name.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int is_file(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

static long writes;

long delay_writes(void) {
    return writes;
}

static int delay = -1, read_delay;

void delay_from_now(int microseconds) {
    delay = read_delay = microseconds;
}

static const char *awaited;

void delay_until(const char *path) {
    awaited = path;
}

static void dawdle_reading(int fd) {
    if (read_delay > 0 && is_file(fd))
        usleep((useconds_t)read_delay);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int has_begun(int fd) {
    char first = 0;
    return is_file(fd) && NEXT(pread)(fd, &first, 1, 0) == 1 && first != 0;
}

static void dawdle(int fd) {
    writes += is_file(fd);
    while (awaited && has_begun(fd) && access(awaited, F_OK) != 0)
        usleep(1000);
    if (delay < 0) {
        const char *text = getenv("WRITE_DELAY_US");
        delay = text ? atoi(text) : 0;
    }
    if (delay > 0 && is_file(fd))
        usleep((useconds_t)delay);
}

ssize_t write(int fd, const void *data, size_t length) {
    dawdle(fd);
    return NEXT(write)(fd, data, length);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    dawdle(fd);
    return NEXT(pwrite)(fd, data, length, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    dawdle(fd);
    return NEXT(pwrite64)(fd, data, length, offset);
}

ssize_t pwritev(int fd, const struct iovec *list, int count, off_t offset) {
    dawdle(fd);
    return NEXT(pwritev)(fd, list, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *list, int count, off64_t offset) {
    dawdle(fd);
    return NEXT(pwritev64)(fd, list, count, offset);
}

ssize_t writev(int fd, const struct iovec *list, int count) {
    dawdle(fd);
    return NEXT(writev)(fd, list, count);
}

ssize_t read(int fd, void *data, size_t length) {
    dawdle_reading(fd);
    return NEXT(read)(fd, data, length);
}

ssize_t pread(int fd, void *data, size_t length, off_t offset) {
    dawdle_reading(fd);
    return NEXT(pread)(fd, data, length, offset);
}

ssize_t pread64(int fd, void *data, size_t length, off64_t offset) {
    dawdle_reading(fd);
    return NEXT(pread64)(fd, data, length, offset);
}

ssize_t preadv(int fd, const struct iovec *list, int count, off_t offset) {
    dawdle_reading(fd);
    return NEXT(preadv)(fd, list, count, offset);
}

ssize_t preadv64(int fd, const struct iovec *list, int count, off64_t offset) {
    dawdle_reading(fd);
    return NEXT(preadv64)(fd, list, count, offset);
}

static int is_lock(int command) {
    switch (command) {
    case F_SETLK:
    case F_SETLKW:
    case F_GETLK:
    case F_OFD_SETLK:
    case F_OFD_SETLKW:
    case F_OFD_GETLK:
        return 1;
    default:
        return 0;
    }
}

int fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (is_lock(command) && getenv("NO_LOCKS") && is_file(fd)) {
        errno = ENOLCK;
        return -1;
    }
    return NEXT(fcntl)(fd, command, argument);
}

int fcntl64(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return fcntl(fd, command, argument);
}
