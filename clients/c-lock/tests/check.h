/* What the programs of these tests expect of a call. */
#ifndef ELBOW_LOCK_TESTS_CHECK_H
#define ELBOW_LOCK_TESTS_CHECK_H

#include <elbow_lock.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: %s; errno %d, %s\n", __FILE__, __LINE__, #condition, errno,            \
                    elbow_lock_error());                                                                   \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

/* The call fails with that errno, and says something of that in words. */
#define FAILS(call, number, words)                                                                         \
    do {                                                                                                   \
        errno = 0;                                                                                         \
        CHECK(call);                                                                                       \
        CHECK(errno == (number));                                                                          \
        CHECK(strstr(elbow_lock_error(), (words)) != NULL);                                                \
    } while (0)

#endif
