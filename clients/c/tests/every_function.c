/* Uses every function of libba, and every error that a program can bring about. Argument: an empty directory. */
#include <ba.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(truth)                                                                                       \
    do {                                                                                                   \
        if (!(truth)) {                                                                                    \
            fprintf(stderr, "%s:%d: not so: %s (errno %d, %s)\n", __FILE__, __LINE__, #truth, errno,       \
                    ba_error());                                                                           \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

/* The call fails with that errno, and says something of that in words. */
#define FAILS(call, number, words)                                                                         \
    do {                                                                                                   \
        errno = 0;                                                                                         \
        CHECK(call);                                                                                       \
        CHECK(errno == (number));                                                                          \
        CHECK(strstr(ba_error(), (words)) != NULL);                                                        \
    } while (0)

static char path[4096], other[4096];

static void write_and_read(unsigned int flags)
{
    ba_t *ba = ba_create(path, 4096, flags);
    CHECK(ba != NULL);
    ssize_t size = ba_size(ba);
    CHECK(size == ((flags & BA_CHECKSUMS) ? 4088 : 4096));

    unsigned char *out = malloc((size_t)size), *in = malloc((size_t)size);
    CHECK(out != NULL && in != NULL);
    for (int64_t block = 0; block < 20; block++) {
        CHECK(ba_alloc(ba) == block);
        memset(out, (int)block, (size_t)size);
        CHECK(ba_write(ba, block, out) == 0);
    }
    CHECK(ba_alloc(ba) == 20);
    CHECK(ba_free(ba, 3) == 0);
    CHECK(ba_free(ba, 11) == 0);
    CHECK(ba_sync(ba) == 0);

    FAILS(ba_free(ba, 3) == -1, ENXIO, "block 3 of");
    FAILS(ba_read(ba, 11, in) == -1, ENXIO, "is free");
    FAILS(ba_write(ba, 21, out) == -1, ENXIO, "has no block 21");
    FAILS(ba_write(ba, -1, out) == -1, ENXIO, "negative");
    FAILS(ba_write(ba, 0, NULL) == -1, EFAULT, "buffer");
    FAILS(ba_read(ba, 0, NULL) == -1, EFAULT, "buffer");
    CHECK(ba_read(ba, 20, in) == 0 && in[0] == 0 && memcmp(in, in + 1, (size_t)size - 1) == 0);
    CHECK(ba_close(ba) == 0);

    ba = ba_open(path);
    CHECK(ba != NULL && ba_size(ba) == size);
    for (int64_t block = 0; block < 20; block++) {
        if (block == 3 || block == 11)
            continue;
        memset(out, (int)block, (size_t)size);
        CHECK(ba_read(ba, block, in) == 0);
        CHECK(memcmp(in, out, (size_t)size) == 0);
    }
    CHECK(ba_alloc(ba) == 3 && ba_alloc(ba) == 11 && ba_alloc(ba) == 20);
    CHECK(ba_close(ba) == 0);
    free(out);
    free(in);
    CHECK(remove(path) == 0);
}

static void refusals(void)
{
    FAILS(ba_create(NULL, 0, 0) == NULL, EFAULT, "path");
    FAILS(ba_open(NULL) == NULL, EFAULT, "path");
    FAILS(ba_create(path, 1000, 0) == NULL, EINVAL, "1000 bytes");
    FAILS(ba_create(path, 0, 64) == NULL, EINVAL, "flags");
    FAILS(ba_create(path, 0, BA_HOLES | BA_BITMAP) == NULL, EINVAL, "flags");
    FAILS(ba_create(path, 512, BA_HOLES) == NULL, EOPNOTSUPP, "holes of 512 bytes");
    FAILS(ba_create("/", 0, 0) == NULL, EISDIR, "/");
    FAILS(ba_create("/none/such", 0, 0) == NULL, ENOENT, "/none/such");
    FAILS(ba_open(path) == NULL, ENOENT, "cannot open");

    FILE *file = fopen(other, "w");
    CHECK(file != NULL && fputs("#!/bin/sh\nexec echo not a store of blocks\n", file) >= 0 && fclose(file) == 0);
    FAILS(ba_open(other) == NULL, EINVAL, "is not a block store");
    FAILS(ba_create(other, 0, 0) == NULL, EEXIST, "cannot create");

    unsigned char buffer[1];
    FAILS(ba_size(NULL) == -1, EINVAL, "store");
    FAILS(ba_alloc(NULL) == -1, EINVAL, "store");
    FAILS(ba_free(NULL, 0) == -1, EINVAL, "store");
    FAILS(ba_read(NULL, 0, buffer) == -1, EINVAL, "store");
    FAILS(ba_write(NULL, 0, buffer) == -1, EINVAL, "store");
    FAILS(ba_sync(NULL) == -1, EINVAL, "store");
    FAILS(ba_close(NULL) == -1, EINVAL, "store");
}

static void damage(void)
{
    ba_t *ba = ba_create(path, 4096, BA_HOLES | BA_CHECKSUMS);
    CHECK(ba != NULL);
    char block[4088] = "content";
    CHECK(ba_alloc(ba) == 0 && ba_write(ba, 0, block) == 0 && ba_close(ba) == 0);
    FILE *file = fopen(path, "r+");
    CHECK(file != NULL && fseek(file, 2 * 4096 + 9, SEEK_SET) == 0 && fputc('x', file) == 'x' && fclose(file) == 0);
    ba = ba_open(path);
    CHECK(ba != NULL);
    FAILS(ba_read(ba, 0, block) == -1, EIO, "block 0 of");
    CHECK(ba_close(ba) == 0);
    CHECK(remove(path) == 0);
}

static void *hammer(void *argument)
{
    ba_t *ba = argument;
    unsigned char out[4096], in[4096];
    for (int round = 0; round < 200; round++) {
        int64_t block = ba_alloc(ba);
        CHECK(block >= 0);
        memset(out, (int)(block * 7 + round), sizeof out);
        CHECK(ba_write(ba, block, out) == 0);
        CHECK(ba_read(ba, block, in) == 0 && memcmp(in, out, sizeof out) == 0);
        CHECK(ba_free(ba, block) == 0);
    }
    /* Errors are of the thread that made them. */
    CHECK(ba_free(ba, 1000000) == -1 && errno == ENXIO);
    return (void *)(intptr_t)(strstr(ba_error(), "1000000") != NULL);
}

static void threads(void)
{
    ba_t *ba = ba_create(path, 0, 0);
    CHECK(ba != NULL);
    CHECK(ba_size(ba) == 4096);
    CHECK(ba_free(ba, 7) == -1);
    CHECK(ba_open(path) == NULL && errno == EBUSY);
    CHECK(ba_free(ba, 7) == -1);
    pthread_t ids[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&ids[i], NULL, hammer, ba) == 0);
    for (int i = 0; i < 4; i++) {
        void *told = NULL;
        CHECK(pthread_join(ids[i], &told) == 0 && told != NULL);
    }
    CHECK(strstr(ba_error(), "no block 7") != NULL);
    CHECK(ba_alloc(ba) == 0);
    CHECK(ba_close(ba) == 0);
    CHECK(remove(path) == 0);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    snprintf(path, sizeof path, "%s/blocks", argv[1]);
    snprintf(other, sizeof other, "%s/other", argv[1]);
    CHECK(ba_error()[0] == '\0');
    write_and_read(0);
    write_and_read(BA_HOLES);
    write_and_read(BA_BITMAP);
    write_and_read(BA_CHECKSUMS);
    write_and_read(BA_BITMAP | BA_CHECKSUMS);
    refusals();
    damage();
    threads();
    puts("every function was used");
    return 0;
}
