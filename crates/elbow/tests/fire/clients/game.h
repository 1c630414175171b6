/* What every client of the fire test plays: it asks for some bytes of one of three files, holds them for a moment, gives them back, and
 * writes down what it was told and when, as elbow-testkit's module `oracle::log` wants it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PIECES 12
#define PIECE 100

struct wish {
    const char *file;
    int shared, count;
    uint64_t start[PIECES], length[PIECES];
    int wait_ms; /* -1: for ever */
    int looks, look_us;
    int pause_us;
};

static int log_fd;
static uint64_t state;
static const char *stop_file;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* One write(2): a death leaves no half of it. */
static void note(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (write(log_fd, line, (size_t)length) != length)
        abort();
}

static unsigned draw(unsigned below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 11) % below;
}

static void nap(int us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000L};
    nanosleep(&t, NULL);
}

static void cover(struct wish *wish, uint64_t start, uint64_t length)
{
    wish->start[wish->count] = start;
    wish->length[wish->count++] = length;
}

static struct wish dream(int with_lists)
{
    static const char *const files[] = {"a", "a", "b", "c"};
    struct wish wish = {.file = files[draw(4)], .shared = draw(4) == 0};
    unsigned first = draw(PIECES), kind = draw(100), patience = draw(10), length = draw(100);
    if (kind < 75 || (kind < 85 && !with_lists))
        cover(&wish, first * PIECE, PIECE);
    else if (kind < 85)
        for (unsigned piece = first % 4; piece < PIECES; piece += 4)
            cover(&wish, piece * PIECE, PIECE / 2);
    else if (kind < 98)
        cover(&wish, first * PIECE / 2 + 30, PIECE + draw(PIECE));
    else
        cover(&wish, 0, PIECES * PIECE);
    /* Who waits for much keeps those back who come after, as long as somebody who has a piece of it is stopped. */
    int is_modest = wish.count == 1 && wish.length[0] <= 2 * PIECE;
    wish.wait_ms = is_modest && patience < 5 ? -1 : patience < 9 ? 300 : 0;
    wish.looks = 1 + (int)draw(6);
    wish.look_us = length < 70 ? (int)draw(800) : length < 90 ? 4000 + (int)draw(4000) : 40000;
    wish.pause_us = (int)draw(4000);
    return wish;
}

static void note_ask(const struct wish *wish)
{
    char ranges[256] = "";
    for (int i = 0; i < wish->count; i++)
        sprintf(ranges + strlen(ranges), "%s%" PRIu64 ":%" PRIu64, i ? "," : "", wish->start[i], wish->start[i] + wish->length[i]);
    note("ask %" PRIu64 " %s %s %s\n", now(), wish->file, wish->shared ? "s" : "x", ranges);
}

static int goes_on(void) { return access(stop_file, F_OK) != 0; }

/* LOG SEED STOPFILE are the first arguments of each client. */
static void begin(char **argv)
{
    log_fd = open(argv[1], O_RDWR | O_CREAT | O_APPEND, 0600);
    state = strtoull(argv[2], NULL, 10) * 2654435761u + 88172645463325252u;
    stop_file = argv[3];
    if (log_fd == -1)
        abort();
}
