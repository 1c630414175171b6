/*
 * A sieved write whose lock is lost before it is through: what was read of the gaps is not written back any more.
 *
 *     lost FILE BROKEN        one process; ELBOW_MPI_SIEVING=always, and writes that take a while
 *
 * Makes a file of zeros, and writes CHUNKS chunks of pieces with gaps in one access in atomic mode; of what follows the first of them nothing is
 * written before there is a file BROKEN. Prints "lost as it should be" when that fails, and how many writes it made.
 */
#define _GNU_SOURCE
#include "fail.h"

#include <dlfcn.h>
#include <string.h>

enum { PIECE = 3 << 10, STRIDE = 4 << 10, CHUNK = 4 << 20, CHUNKS = 10, PIECES = CHUNKS * (CHUNK / STRIDE) };

int main(int argc, char **argv) {
    CHECK(MPI_Init(&argc, &argv));
    long (*writes)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "delay_writes");
    void (*delay_until)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "delay_until");
    if (argc != 3 || !writes || !delay_until)
        fail("usage: lost FILE BROKEN, with delay.so preloaded");
    char *data = calloc(CHUNKS, CHUNK), text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_File file;
    MPI_Datatype type;
    CHECK(MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    CHECK(MPI_File_set_size(file, CHUNKS * CHUNK));
    CHECK(MPI_Type_vector(PIECES, PIECE, STRIDE, MPI_BYTE, &type));
    CHECK(MPI_Type_commit(&type));
    CHECK(MPI_File_set_atomicity(file, 1));
    CHECK(MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL));
    memset(data, 'n', (size_t)PIECES * PIECE);
    long before = writes();
    delay_until(argv[2]);
    int code = MPI_File_write_at(file, 0, data, PIECES * PIECE, MPI_BYTE, MPI_STATUS_IGNORE);
    printf("%ld writes\n", writes() - before);
    if (code == MPI_SUCCESS)
        fail("nothing was lost");
    CHECK(MPI_Error_string(code, text, &length));
    printf("%s: %s\n", strstr(text, "the lock was lost") ? "lost as it should be" : "another error", text);
    MPI_File_close(&file);
    CHECK(MPI_Type_free(&type));
    free(data);
    MPI_Finalize();
    return 0;
}
