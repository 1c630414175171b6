/* Uses every function of libelbow_lock, rightly and wrongly; argv[1] is the service, argv[2] a directory. */
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

static const char *url;
static char path[4096];

static elbow_lock_hold_t *try_range(elbow_lock_client_t *client, uint64_t start, uint64_t length, unsigned int flags)
{
    elbow_lock_range_t range = {start, length};
    return elbow_lock_hold(client, path, &range, 1, flags, ELBOW_LOCK_TRY);
}

static void hold_and_release(elbow_lock_client_t *a, elbow_lock_client_t *b)
{
    /* Overlapping, in any order. */
    elbow_lock_range_t rows[] = {{8192, 100}, {0, 50}, {25, 50}, {65536, 1}};
    elbow_lock_hold_t *hold = elbow_lock_hold(a, path, rows, 4, ELBOW_LOCK_EXCLUSIVE, ELBOW_LOCK_FOREVER), *other;
    CHECK(hold != NULL);
    CHECK(elbow_lock_check(hold) == 0);
    uint64_t token = elbow_lock_token(hold);
    CHECK(token > 0);
    FAILS(try_range(b, 74, 1, ELBOW_LOCK_SHARED) == NULL, EAGAIN, "no lock on");
    FAILS(elbow_lock_hold(b, path, rows, 1, ELBOW_LOCK_SHARED, 20) == NULL, ETIMEDOUT, "for as long as");
    other = try_range(b, 75, 8192 - 75, ELBOW_LOCK_EXCLUSIVE); /* Between the ranges. */
    CHECK(other != NULL && elbow_lock_token(other) > token);
    CHECK(elbow_lock_release(other) == 0);
    CHECK(elbow_lock_release(hold) == 0);

    /* All of the file. It waits: a release is not answered, and one of those above went over another connection. */
    hold = elbow_lock_hold(a, path, NULL, 0, ELBOW_LOCK_SHARED, ELBOW_LOCK_FOREVER);
    other = try_range(b, 1000000, 1, ELBOW_LOCK_SHARED);
    CHECK(hold != NULL && other != NULL);
    FAILS(try_range(b, UINT64_MAX - 1, 1, ELBOW_LOCK_EXCLUSIVE) == NULL, EAGAIN, "no lock on");
    CHECK(elbow_lock_release(hold) == 0 && elbow_lock_release(other) == 0);
}

static void refusals(elbow_lock_client_t *client)
{
    elbow_lock_range_t empty[] = {{5, 5}, {7, 0}}, beyond = {UINT64_MAX, 2};
    FAILS(elbow_lock_connect("nowhere") == NULL, EINVAL, "no address");
    FAILS(elbow_lock_connect("unix:/none/such") == NULL, ENOENT, "/none/such");
    unsetenv("ELBOW_LOCKS");
    FAILS(elbow_lock_connect(NULL) == NULL, EINVAL, "no address");
    FAILS(elbow_lock_disconnect(NULL) == -1, EINVAL, "client");
    FAILS(elbow_lock_hold(NULL, path, NULL, 0, 0, 0) == NULL, EINVAL, "client");
    FAILS(elbow_lock_hold(client, NULL, NULL, 0, 0, 0) == NULL, EFAULT, "path");
    FAILS(elbow_lock_hold(client, path, NULL, 3, 0, 0) == NULL, EFAULT, "ranges");
    FAILS(elbow_lock_hold(client, path, empty, 2, 0, 0) == NULL, EINVAL, "range 1 is empty");
    FAILS(elbow_lock_hold(client, path, &beyond, 1, 0, 0) == NULL, EINVAL, "");
    FAILS(elbow_lock_hold(client, path, NULL, 0, 2, 0) == NULL, EINVAL, "flags 0x2");
    FAILS(elbow_lock_hold(client, path, NULL, 0, 0, -2) == NULL, EINVAL, "-2 ms");
    FAILS(elbow_lock_hold(client, "/none/such", NULL, 0, 0, 0) == NULL, ENOENT, "/none/such");
    FAILS(elbow_lock_check(NULL) == -1, EINVAL, "hold");
    FAILS(elbow_lock_release(NULL) == -1, EINVAL, "hold");
    FAILS(elbow_lock_token(NULL) == 0, EINVAL, "hold");
}

static void after_fork(elbow_lock_client_t *client)
{
    elbow_lock_hold_t *hold = try_range(client, 0, 1, ELBOW_LOCK_EXCLUSIVE);
    int status = -1;
    CHECK(hold != NULL);
    pid_t child = fork();
    if (child == 0) {
        FAILS(try_range(client, 5, 1, ELBOW_LOCK_EXCLUSIVE) == NULL, ENOTCONN, "connect again");
        FAILS(elbow_lock_check(hold) == -1, ENOTCONN, "connect again");
        FAILS(elbow_lock_release(hold) == -1, ENOTCONN, "connect again");
        elbow_lock_client_t *own = elbow_lock_connect(url);
        FAILS(try_range(own, 0, 1, ELBOW_LOCK_SHARED) == NULL, EAGAIN, "no lock on");
        CHECK(elbow_lock_disconnect(own) == 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(elbow_lock_check(hold) == 0 && elbow_lock_release(hold) == 0);
}

static long counter;

static void *count(void *client)
{
    for (int round = 0; round < 100; round++) {
        elbow_lock_range_t range = {7, 7};
        elbow_lock_hold_t *hold =
            elbow_lock_hold(client, path, &range, 1, ELBOW_LOCK_EXCLUSIVE, ELBOW_LOCK_FOREVER);
        CHECK(hold != NULL);
        long before = *(volatile long *)&counter;
        CHECK(elbow_lock_check(hold) == 0);
        *(volatile long *)&counter = before + 1;
        CHECK(elbow_lock_release(hold) == 0);
    }
    /* Errors are of the thread that made them. */
    CHECK(elbow_lock_check(NULL) == -1);
    return (void *)(intptr_t)(strstr(elbow_lock_error(), "hold") != NULL);
}

static void threads(elbow_lock_client_t *a, elbow_lock_client_t *b)
{
    pthread_t ids[4];
    CHECK(elbow_lock_disconnect(NULL) == -1);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&ids[i], NULL, count, i % 2 ? a : b) == 0);
    for (int i = 0; i < 4; i++) {
        void *told = NULL;
        CHECK(pthread_join(ids[i], &told) == 0 && told != NULL);
    }
    CHECK(counter == 400);
    CHECK(strstr(elbow_lock_error(), "client") != NULL);
}

static void a_hold_outlives_its_client(elbow_lock_client_t *other)
{
    elbow_lock_client_t *client = elbow_lock_connect(url);
    elbow_lock_hold_t *hold = try_range(client, 0, 1, ELBOW_LOCK_EXCLUSIVE);
    CHECK(hold != NULL && elbow_lock_disconnect(client) == 0);
    CHECK(elbow_lock_check(hold) == 0);
    FAILS(try_range(other, 0, 1, ELBOW_LOCK_SHARED) == NULL, EAGAIN, "no lock on");
    CHECK(elbow_lock_release(hold) == 0);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s URL DIRECTORY\n", argv[0]);
        return 2;
    }
    url = argv[1];
    snprintf(path, sizeof path, "%s/file", argv[2]);
    CHECK(elbow_lock_error()[0] == '\0');
    CHECK(setenv("ELBOW_LOCKS", url, 1) == 0);
    elbow_lock_client_t *a = elbow_lock_connect(NULL), *b = elbow_lock_connect(url);
    CHECK(a != NULL && b != NULL);
    hold_and_release(a, b);
    refusals(a);
    after_fork(a);
    threads(a, b);
    a_hold_outlives_its_client(b);
    CHECK(elbow_lock_disconnect(a) == 0 && elbow_lock_disconnect(b) == 0);
    puts("every function was used");
    return 0;
}
