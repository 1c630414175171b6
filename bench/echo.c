/* A service that does nothing, as plainly as Linux lets one be written: one thread, epoll(7), answers as long as a grant.
 *
 *     cc -O2 -o echo bench/echo.c && ./echo SOCKET
 *
 * It is the bound that any lock service on a Unix socket has, whatever it is written in: `bench/locks.py` measures it in the same run as
 * `elbow lockd`, with messages as long as its own (benches/load/echo.rs in crates/elbow-lock, whose numbers these are).
 *
 * Source: epoll(7), unix(7). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { REQUEST_BYTES = 36, GRANT_BYTES = 12, READ_BYTES = 64 << 10, EVENTS = 64, CLIENTS_MAX = 4096 };

/* Bytes of a request that are there already, by descriptor. */
static size_t had[CLIENTS_MAX];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof address.sun_path) {
        fprintf(stderr, "%s: longer than a socket's name may be\n", path);
        exit(1);
    }
    strcpy(address.sun_path, path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1024))
        die(path);
    return listener;
}

static void watch(int epoll, int fd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
        die("epoll_ctl");
}

/* Answers what is there; 0 when the client has gone. */
static int answer(int fd)
{
    static char requests[READ_BYTES], grants[READ_BYTES];
    ssize_t got = read(fd, requests, sizeof requests);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    had[fd] += (size_t)got;
    size_t left = had[fd] / REQUEST_BYTES * GRANT_BYTES;
    had[fd] %= REQUEST_BYTES;
    while (left > 0) {
        ssize_t sent = send(fd, grants, left, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return 0;
        left -= sent > 0 ? (size_t)sent : 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s SOCKET\n", argv[0]);
        return 2;
    }
    int listener = listen_at(argv[1]), epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0)
        die("epoll_create1");
    watch(epoll, listener);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                if (client >= CLIENTS_MAX)
                    close(client);
                else if (client >= 0) {
                    had[client] = 0;
                    watch(epoll, client);
                }
            } else if (!answer(fd))
                close(fd);
        }
    }
}
