/*
 * Writes of many small pieces to a storage that becomes slow between two of them.
 *
 *     slower FILE      one process; ELBOW_MPI_SIEVING=automatic
 *
 * The first accesses, of pieces that are far apart, are written piece by piece, because that is quicker. Then each request takes MICROSECONDS. Prints how
 * many writes the next access makes, and the one after it.
 */
#define _GNU_SOURCE
#include "fail.h"

#include <dlfcn.h>

enum { PIECE = 8, STRIDE = 320 << 10, PIECES = 150, MICROSECONDS = 20000, BEFORE = 4, AFTER = 2 };

int main(int argc, char **argv) {
    CHECK(MPI_Init(&argc, &argv));
    long (*writes)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "delay_writes");
    void (*delay)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "delay_from_now");
    if (argc != 2 || !writes || !delay)
        fail("usage: slower FILE, with delay.so preloaded");
    static char data[PIECES * PIECE];
    MPI_File file;
    MPI_Datatype type;
    CHECK(MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    CHECK(MPI_File_set_size(file, (MPI_Offset)PIECES * STRIDE));
    CHECK(MPI_Type_vector(PIECES, PIECE, STRIDE, MPI_BYTE, &type));
    CHECK(MPI_Type_commit(&type));
    CHECK(MPI_File_set_atomicity(file, 1));
    CHECK(MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL));
    for (int access = 0; access < BEFORE + AFTER; access++) {
        if (access == BEFORE)
            delay(MICROSECONDS);
        long before = writes();
        CHECK(MPI_File_write_at(file, 0, data, PIECES * PIECE, MPI_BYTE, MPI_STATUS_IGNORE));
        printf("%s: %ld writes\n", access < BEFORE ? "fast" : "slow", writes() - before);
    }
    CHECK(MPI_File_close(&file));
    CHECK(MPI_Type_free(&type));
    MPI_Finalize();
    return 0;
}
