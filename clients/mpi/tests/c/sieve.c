/*
 * Does a write that is sieved leave what an ordinary one leaves? One process; ELBOW_MPI_SIEVING=always says that all are.
 *
 *     sieve FILE CASES SEED
 *
 * Each case: a file of random length with something in it, twice; a random ascending file type, random memory types (in a
 * row or not), and two writes at the file's own pointer and one at an offset, in atomic mode into the one file and in
 * nonatomic mode into the other. The files, their lengths, the statuses and the pointers must be the same, and the atomic
 * ones must have made fewer writes in all. Prints "N cases are the same, A writes instead of B".
 */
#define _GNU_SOURCE
#include "fail.h"

#include <dlfcn.h>
#include <string.h>

enum { BLOCKS_MAX = 40, ELEMENTS = 300, FILE_BYTES = 1 << 16 };

static unsigned long long state;

static int below(int limit) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((unsigned)(state >> 33) % (unsigned)limit);
}

static MPI_Datatype file_type(void) {
    int lengths[BLOCKS_MAX], count = 8 + below(BLOCKS_MAX - 8);
    MPI_Aint places[BLOCKS_MAX], at = below(20);
    MPI_Datatype type, resized;
    for (int i = 0; i < count; i++) {
        lengths[i] = 1 + below(5);
        places[i] = at;
        at += 4 * lengths[i] + (below(10) ? below(30) : below(2000));
    }
    CHECK(MPI_Type_create_hindexed(count, lengths, places, MPI_INT, &type));
    CHECK(MPI_Type_create_resized(type, 0, at + below(9), &resized));
    CHECK(MPI_Type_commit(&resized));
    CHECK(MPI_Type_free(&type));
    return resized;
}

static MPI_Datatype memory_type(void) {
    MPI_Datatype type;
    if (below(3) == 0)
        CHECK(MPI_Type_contiguous(2, MPI_INT, &type));
    else
        CHECK(MPI_Type_vector(2, 1, 1 + below(3), MPI_INT, &type));
    CHECK(MPI_Type_commit(&type));
    return type;
}

static MPI_File made(const char *path, int atomic, int bytes, MPI_Offset displacement, MPI_Datatype view) {
    MPI_File file;
    char *before = malloc(FILE_BYTES);
    memset(before, 0xaa, FILE_BYTES);
    MPI_Info info;
    CHECK(MPI_Info_create(&info));
    if (!atomic) /* MPICH 4.0 itself, when it sieves beyond the end of a file, leaves there what was in its memory */
        CHECK(MPI_Info_set(info, "romio_ds_write", "disable"));
    CHECK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    CHECK(MPI_Info_free(&info));
    CHECK(MPI_File_set_size(file, 0));
    CHECK(MPI_File_write_at(file, 0, before, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(MPI_File_set_atomicity(file, atomic));
    CHECK(MPI_File_set_view(file, displacement, MPI_INT, view, "native", MPI_INFO_NULL));
    free(before);
    return file;
}

struct outcome {
    int counts[3];
    MPI_Offset position, size;
    char *bytes;
};

static void wrote(MPI_Status *status, int *count) {
    CHECK(MPI_Get_count(status, MPI_INT, count));
}

static struct outcome outcome(MPI_File file, const int *data, const int counts[3], MPI_Datatype type) {
    struct outcome o;
    MPI_Status status;
    CHECK(MPI_File_seek(file, counts[2], MPI_SEEK_SET));
    CHECK(MPI_File_write(file, data, counts[0], type, &status));
    wrote(&status, &o.counts[0]);
    CHECK(MPI_File_write(file, data + 7, counts[1], type, &status));
    wrote(&status, &o.counts[1]);
    CHECK(MPI_File_write_at(file, 3, data + 3, counts[2], type, &status));
    wrote(&status, &o.counts[2]);
    CHECK(MPI_File_write_at(file, 5, data + 5, counts[0], type, MPI_STATUS_IGNORE));
    CHECK(MPI_File_get_position(file, &o.position));
    CHECK(MPI_File_get_size(file, &o.size));
    CHECK(MPI_File_set_atomicity(file, 0));
    CHECK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    o.bytes = calloc((size_t)o.size, 1);
    CHECK(MPI_File_read_at(file, 0, o.bytes, (int)o.size, MPI_BYTE, MPI_STATUS_IGNORE));
    CHECK(MPI_File_close(&file));
    return o;
}

static void compare(long number, const struct outcome *one, const struct outcome *other) {
    for (int i = 0; i < 3; i++)
        if (one->counts[i] != other->counts[i])
            fail("case %ld: a status says %d, not %d", number, one->counts[i], other->counts[i]);
    if (one->position != other->position)
        fail("case %ld: the pointer is at %lld, not %lld", number, (long long)one->position, (long long)other->position);
    if (one->size != other->size)
        fail("case %ld: %lld bytes, not %lld", number, (long long)one->size, (long long)other->size);
    for (MPI_Offset at = 0; at < one->size; at++)
        if (one->bytes[at] != other->bytes[at])
            fail("case %ld: byte %lld of %lld is %d, not %d", number, (long long)at, (long long)one->size, one->bytes[at], other->bytes[at]);
}

int main(int argc, char **argv) {
    CHECK(MPI_Init(&argc, &argv));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    long (*writes)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "delay_writes");
    if (argc != 4 || !writes)
        fail("usage: sieve FILE CASES SEED, with delay.so preloaded");
    long cases = atol(argv[2]), sieved = 0, exact = 0;
    state = strtoull(argv[3], NULL, 10);
    char beside[4096];
    snprintf(beside, sizeof beside, "%s.beside", argv[1]);
    static int data[4 * 3 * ELEMENTS];
    for (int i = 0; i < 4 * 3 * ELEMENTS; i++)
        data[i] = (int)((unsigned)i * 0x01030507u + 1);
    for (long number = 0; number < cases; number++) {
        MPI_Datatype view = file_type(), type = memory_type();
        int bytes = below(4) ? below(FILE_BYTES) : 0, counts[3];
        MPI_Offset displacement = below(50);
        for (int i = 0; i < 3; i++)
            counts[i] = below(ELEMENTS / 2);
        MPI_File one = made(argv[1], 1, bytes, displacement, view), other = made(beside, 0, bytes, displacement, view);
        long before = writes();
        struct outcome atomic = outcome(one, data, counts, type);
        long between = writes();
        struct outcome nonatomic = outcome(other, data, counts, type);
        sieved += between - before;
        exact += writes() - between;
        compare(number, &atomic, &nonatomic);
        free(atomic.bytes);
        free(nonatomic.bytes);
        CHECK(MPI_Type_free(&view));
        CHECK(MPI_Type_free(&type));
    }
    if (sieved >= exact)
        fail("%ld writes instead of %ld: nothing was sieved", sieved, exact);
    printf("%ld cases are the same, %ld writes instead of %ld\n", cases, sieved, exact);
    MPI_Finalize();
    return 0;
}
