/* Locks on patterns and names, asked for and waited for in two steps, and looked at; argv[1] is the service, argv[2] a directory. */
#define _GNU_SOURCE
#include "check.h"
#include <elbow_lock.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

_Static_assert(sizeof(elbow_lock_request_t) == REQUEST_BYTES, "a request is as large for the library");
_Static_assert(sizeof(elbow_lock_pattern_t) == PATTERN_BYTES, "a pattern is as large for the library");
_Static_assert(sizeof(elbow_lock_seen_t) == SEEN_BYTES, "a lock that was looked at is as large for the library");

static const char *url;
static char path[4096];

static elbow_lock_request_t on_name(const char *name, int wait_ms)
{
    elbow_lock_request_t request = {.size = sizeof request, .name = name, .wait_ms = wait_ms};
    return request;
}

/* Asks, waits and forgets. */
static elbow_lock_hold_t *take(elbow_lock_client_t *client, const elbow_lock_request_t *request)
{
    elbow_lock_asked_t *asked = elbow_lock_ask(client, request);
    if (asked == NULL)
        return NULL;
    elbow_lock_hold_t *hold = elbow_lock_wait(asked, ELBOW_LOCK_FOREVER);
    int number = errno;
    CHECK(elbow_lock_forget(asked) == 0);
    errno = number;
    return hold;
}

static elbow_lock_hold_t *try_pattern(elbow_lock_client_t *client, const elbow_lock_pattern_t *pattern)
{
    elbow_lock_request_t request = {
        .size = sizeof request, .path = path, .wait_ms = ELBOW_LOCK_TRY, .patterns = pattern, .patterns_count = 1};
    return take(client, &request);
}

/* Two of the million interleaved blocks of a matrix: granted side by side, and neither is ever expanded. */
static void patterns(elbow_lock_client_t *a, elbow_lock_client_t *b)
{
    elbow_lock_vector_t blocks[] = {{1000, 16000}, {1000, 8}};
    elbow_lock_pattern_t even = {0, 4, blocks, 2}, odd = {4, 4, blocks, 2}, one = {999 * 16000 + 999 * 8 + 3, 1, NULL, 0};
    elbow_lock_hold_t *hold = try_pattern(a, &even), *other = try_pattern(b, &odd);
    CHECK(hold != NULL && other != NULL);
    FAILS(try_pattern(b, &one) == NULL, EAGAIN, "no lock on");
    one.start++; /* The last byte of a block was held by the other side; this one is its own. */
    FAILS(try_pattern(a, &one) == NULL, EAGAIN, "no lock on");
    CHECK(elbow_lock_check(hold) == 0 && elbow_lock_release(hold) == 0 && elbow_lock_release(other) == 0);

    /* A header, a tail and a pattern together. */
    elbow_lock_range_t ends[] = {{0, 512}, {1000000, 1}};
    elbow_lock_pattern_t rows = {4096, 100, &(elbow_lock_vector_t){50, 400}, 1}, gap = {4196, 300, NULL, 0};
    /* It waits: a release is not answered, and the one above went over another connection. */
    elbow_lock_request_t request = {.size = sizeof request, .path = path, .wait_ms = ELBOW_LOCK_FOREVER, .ranges = ends,
                                    .ranges_count = 2, .patterns = &rows, .patterns_count = 1};
    hold = take(a, &request);
    other = try_pattern(b, &gap);
    CHECK(hold != NULL && other != NULL && elbow_lock_release(other) == 0);
    elbow_lock_pattern_t parts[] = {{511, 1, NULL, 0}, {1000000, 1, NULL, 0}, {4096 + 49 * 400 + 99, 1, NULL, 0}};
    for (int i = 0; i < 3; i++)
        FAILS(try_pattern(b, &parts[i]) == NULL, EAGAIN, "no lock on");
    CHECK(elbow_lock_release(hold) == 0);
}

static void refusals(elbow_lock_client_t *client)
{
    elbow_lock_vector_t deep[17], none = {0, 8};
    for (int i = 0; i < 17; i++)
        deep[i] = (elbow_lock_vector_t){2, 3ull << (2 * (17 - i))};
    elbow_lock_pattern_t bad[] = {{0, 4, &none, 1}, {0, 0, NULL, 0}, {0, 1, deep, 17}, {UINT64_MAX, 4, NULL, 0}};
    for (int i = 0; i < 4; i++)
        FAILS(try_pattern(client, &bad[i]) == NULL, EINVAL, "pattern 0: ");
    bad[0].vectors = NULL;
    FAILS(try_pattern(client, &bad[0]) == NULL, EFAULT, "no vectors");
    elbow_lock_request_t request = on_name("x", 0);
    FAILS(elbow_lock_ask(NULL, &request) == NULL, EINVAL, "client");
    FAILS(elbow_lock_ask(client, NULL) == NULL, EFAULT, "request");
    request.path = "x";
    FAILS(elbow_lock_ask(client, &request) == NULL, EINVAL, "one of them");
    request.path = request.name = NULL;
    FAILS(elbow_lock_ask(client, &request) == NULL, EFAULT, "no path");
    request.name = "";
    FAILS(elbow_lock_ask(client, &request) == NULL, ENAMETOOLONG, "1 to 4096 bytes");
    request = on_name("x", 0);
    request.patterns_count = 1;
    FAILS(elbow_lock_ask(client, &request) == NULL, EFAULT, "no patterns");
    request = on_name("x", -2);
    FAILS(elbow_lock_ask(client, &request) == NULL, EINVAL, "-2 ms");
    request.size = 8;
    FAILS(elbow_lock_ask(client, &request) == NULL, EINVAL, "request of 8 bytes");
    /* A size that was never set is what lay on the stack. */
    request.size = 4097;
    FAILS(elbow_lock_ask(client, &request) == NULL, EINVAL, "request of 4097 bytes");
    request.size = SIZE_MAX;
    FAILS(elbow_lock_ask(client, &request) == NULL, EINVAL, "to 4096");
    /* A program of a later version: what we do not know must not be asked for. */
    struct {
        elbow_lock_request_t known;
        uint64_t later;
    } next = {on_name("x", 0), 0};
    next.known.size = sizeof next;
    elbow_lock_hold_t *hold = take(client, &next.known);
    CHECK(hold != NULL && elbow_lock_release(hold) == 0);
    next.later = 1;
    FAILS(elbow_lock_ask(client, &next.known) == NULL, E2BIG, "does not know");
    FAILS(elbow_lock_wait(NULL, 0) == NULL, EINVAL, "nothing was asked");
    FAILS(elbow_lock_cancel(NULL) == -1, EINVAL, "nothing was asked");
    FAILS(elbow_lock_forget(NULL) == -1, EINVAL, "nothing was asked");
    FAILS(elbow_lock_look(NULL, NULL, "x") == NULL, EINVAL, "client");
    FAILS(elbow_lock_look(client, NULL, NULL) == NULL, EFAULT, "no path");
    FAILS(elbow_lock_status_get(NULL, 0, NULL) == -1, EINVAL, "no status");
    FAILS(elbow_lock_status_free(NULL) == -1, EINVAL, "no status");
}

/* A name is not the path of the same words. */
static void names(elbow_lock_client_t *a, elbow_lock_client_t *b)
{
    elbow_lock_request_t name = on_name(path, ELBOW_LOCK_TRY), dataset = on_name("dataset/7", ELBOW_LOCK_TRY);
    elbow_lock_hold_t *hold = take(a, &dataset);
    CHECK(hold != NULL);
    FAILS(take(b, &dataset) == NULL, EAGAIN, "dataset/7");
    dataset.flags = ELBOW_LOCK_SHARED;
    FAILS(take(b, &dataset) == NULL, EAGAIN, "dataset/7");
    dataset.flags = 2;
    FAILS(take(b, &dataset) == NULL, EINVAL, "flags 0x2");
    dataset.name = "dataset/8";
    dataset.flags = 0;
    elbow_lock_hold_t *other = take(b, &dataset);
    CHECK(other != NULL && elbow_lock_release(other) == 0 && elbow_lock_release(hold) == 0);
    /* The whole path of a file is its name for the service. */
    hold = elbow_lock_hold(a, path, NULL, 0, 0, 0);
    CHECK(hold != NULL);
    FAILS(take(b, &name) == NULL, EAGAIN, "no lock on");
    CHECK(elbow_lock_release(hold) == 0);
}

static void *cancel_soon(void *asked)
{
    usleep(20000);
    CHECK(elbow_lock_cancel(asked) == 0);
    return NULL;
}

static void requests(elbow_lock_client_t *a, elbow_lock_client_t *b)
{
    elbow_lock_request_t request = on_name("dataset/9", ELBOW_LOCK_FOREVER), patient = on_name("dataset/9", 30);
    elbow_lock_hold_t *hold = take(a, &request), *next;
    CHECK(hold != NULL);
    elbow_lock_asked_t *first = elbow_lock_ask(b, &request), *second = elbow_lock_ask(b, &request), *third;
    CHECK(first != NULL && second != NULL);
    FAILS(elbow_lock_wait(first, 0) == NULL, EINPROGRESS, "still waited for");
    FAILS(elbow_lock_wait(first, 30) == NULL, EINPROGRESS, "still waited for");
    FAILS(elbow_lock_wait(first, -2) == NULL, EINVAL, "-2 ms");
    FAILS(take(b, &patient) == NULL, ETIMEDOUT, "for as long as");
    /* The wait is ended by another thread, and the place in the queue is free. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, cancel_soon, first) == 0);
    FAILS(elbow_lock_wait(first, ELBOW_LOCK_FOREVER) == NULL, ECANCELED, "cancelled");
    CHECK(pthread_join(thread, NULL) == 0 && elbow_lock_forget(first) == 0);
    /* One that is forgotten leaves the queue. */
    third = elbow_lock_ask(b, &request);
    CHECK(elbow_lock_forget(second) == 0 && elbow_lock_release(hold) == 0);
    next = elbow_lock_wait(third, ELBOW_LOCK_FOREVER);
    CHECK(next != NULL && elbow_lock_check(next) == 0);
    FAILS(elbow_lock_wait(third, 0) == NULL, ESTALE, "already");
    CHECK(elbow_lock_cancel(third) == 0); /* Too late, and harmless. */
    CHECK(elbow_lock_forget(third) == 0);
    CHECK(elbow_lock_check(next) == 0);
    /* What was granted and never taken is released with what was asked. */
    first = elbow_lock_ask(a, &request);
    CHECK(elbow_lock_release(next) == 0);
    second = elbow_lock_ask(b, &request);
    CHECK(elbow_lock_forget(first) == 0);
    next = elbow_lock_wait(second, ELBOW_LOCK_FOREVER);
    CHECK(next != NULL && elbow_lock_forget(second) == 0 && elbow_lock_release(next) == 0);
}

static void looks(elbow_lock_client_t *a, elbow_lock_client_t *b)
{
    elbow_lock_pattern_t rows = {10, 3, &(elbow_lock_vector_t){5, 20}, 1};
    elbow_lock_request_t shared = on_name("dataset/10", 0), all = on_name("dataset/10", ELBOW_LOCK_FOREVER);
    shared.flags = ELBOW_LOCK_SHARED;
    shared.owner = 77;
    shared.patterns = &rows;
    shared.patterns_count = 1;
    elbow_lock_hold_t *hold = take(a, &shared);
    elbow_lock_asked_t *asked = elbow_lock_ask(b, &all);
    CHECK(hold != NULL && asked != NULL);
    elbow_lock_seen_t seen = {.size = sizeof seen}, waits = {.size = sizeof waits}, more = {.size = 3};
    elbow_lock_status_t *status;
    for (;;) { /* The request may be under way. */
        status = elbow_lock_look(a, NULL, "dataset/10");
        CHECK(status != NULL);
        if (elbow_lock_status_get(status, 1, &waits) == 1)
            break;
        CHECK(elbow_lock_status_free(status) == 0);
    }
    CHECK(elbow_lock_status_get(status, 0, &seen) == 1 && elbow_lock_status_get(status, 2, &seen) == 0);
    FAILS(elbow_lock_status_get(status, 0, &more) == -1, EINVAL, "3 bytes");
    FAILS(elbow_lock_status_get(status, 0, NULL) == -1, EFAULT, "nothing");
    /* A size that was never set is what lay on the stack, and nothing behind the structure is touched for it. */
    union {
        elbow_lock_seen_t seen;
        unsigned char bytes[8192];
    } large;
    memset(&large, 0xaa, sizeof large);
    large.seen.size = 4097;
    FAILS(elbow_lock_status_get(status, 0, &large.seen) == -1, EINVAL, "to 4096");
    for (size_t i = sizeof(size_t); i < sizeof large; i++)
        CHECK(large.bytes[i] == 0xaa);
    large.seen.size = 4096;
    CHECK(elbow_lock_status_get(status, 0, &large.seen) == 1 && large.bytes[4095] == 0 && large.bytes[4096] == 0xaa);
    char process[64];
    snprintf(process, sizeof process, "pid %d", (int)getpid());
    CHECK(seen.token == elbow_lock_token(hold) && seen.flags == ELBOW_LOCK_SHARED && seen.session > 0);
    CHECK((seen.owner & ~(1ull << 63)) == 77 && seen.start == 10 && seen.end == 10 + 4 * 20 + 3);
    CHECK(strcmp(seen.pattern, "10 + 5 x 20 + [0, 3)") == 0 && strstr(seen.client, process) != NULL);
    CHECK(waits.token == 0 && waits.flags == 0 && waits.session != seen.session && strcmp(waits.pattern, "all") == 0);
    CHECK(elbow_lock_status_free(status) == 0);
    CHECK(elbow_lock_forget(asked) == 0 && elbow_lock_release(hold) == 0);
    CHECK((status = elbow_lock_look(b, path, NULL)) != NULL);
    CHECK(elbow_lock_status_get(status, 0, &seen) == 0 && elbow_lock_status_free(status) == 0);
}

static void after_fork(elbow_lock_client_t *client)
{
    elbow_lock_request_t request = on_name("dataset/11", ELBOW_LOCK_FOREVER);
    elbow_lock_asked_t *asked = elbow_lock_ask(client, &request);
    int status = -1;
    CHECK(asked != NULL);
    pid_t child = fork();
    if (child == 0) {
        FAILS(elbow_lock_ask(client, &request) == NULL, ENOTCONN, "connect again");
        FAILS(elbow_lock_wait(asked, 0) == NULL, ENOTCONN, "connect again");
        FAILS(elbow_lock_cancel(asked) == -1, ENOTCONN, "connect again");
        FAILS(elbow_lock_forget(asked) == -1, ENOTCONN, "connect again");
        FAILS(elbow_lock_look(client, NULL, "x") == NULL, ENOTCONN, "connect again");
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    elbow_lock_hold_t *hold = elbow_lock_wait(asked, ELBOW_LOCK_FOREVER);
    CHECK(hold != NULL && elbow_lock_forget(asked) == 0 && elbow_lock_release(hold) == 0);
}

static long counter;

/* Each thread asks for two at once, each of an owner of its own, and takes them in any order. */
static void *count(void *client)
{
    static uint64_t owners;
    for (int round = 0; round < 50; round++) {
        elbow_lock_request_t request = on_name("dataset/12", ELBOW_LOCK_FOREVER);
        elbow_lock_asked_t *asked[2];
        for (int i = 0; i < 2; i++) {
            request.owner = __atomic_add_fetch(&owners, 1, __ATOMIC_RELAXED);
            CHECK((asked[i] = elbow_lock_ask(client, &request)) != NULL);
        }
        for (int i = 0; i < 2; i++) {
            elbow_lock_hold_t *hold;
            while ((hold = elbow_lock_wait(asked[i], round % 3)) == NULL)
                CHECK(errno == EINPROGRESS);
            long before = *(volatile long *)&counter;
            CHECK(elbow_lock_check(hold) == 0);
            *(volatile long *)&counter = before + 1;
            CHECK(elbow_lock_release(hold) == 0 && elbow_lock_forget(asked[i]) == 0);
        }
    }
    return NULL;
}

static void threads(elbow_lock_client_t *a, elbow_lock_client_t *b)
{
    pthread_t ids[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&ids[i], NULL, count, i % 2 ? a : b) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(ids[i], NULL) == 0);
    CHECK(counter == 400);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s URL DIRECTORY\n", argv[0]);
        return 2;
    }
    url = argv[1];
    snprintf(path, sizeof path, "%s/file", argv[2]);
    elbow_lock_client_t *a = elbow_lock_connect(url), *b = elbow_lock_connect(url);
    CHECK(a != NULL && b != NULL);
    patterns(a, b);
    refusals(a);
    names(a, b);
    requests(a, b);
    looks(a, b);
    after_fork(a);
    threads(a, b);
    CHECK(elbow_lock_disconnect(a) == 0 && elbow_lock_disconnect(b) == 0);
    puts("every function was used");
    return 0;
}
