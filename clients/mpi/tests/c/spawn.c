/*
 * A program that starts two more processes and writes a file together with them, in atomic mode.
 *
 *     spawn FILE COMMAND [WORD]
 *
 * starts COMMAND WORD FILE, where COMMAND comes to this program again, with the library or without. Prints "all wrote".
 */
#include "fail.h"

#include <string.h>

int main(int argc, char **argv) {
    MPI_Comm between, all;
    MPI_File file;
    int processes, written = 0;
    char got[64] = {0};
    CHECK(MPI_Init(&argc, &argv));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CHECK(MPI_Comm_get_parent(&between));
    const char *path = argv[1];
    int is_parent = between == MPI_COMM_NULL;
    if (is_parent) {
        char *words[] = {argc > 3 ? argv[3] : argv[1], argc > 3 ? argv[1] : NULL, NULL};
        CHECK(MPI_Comm_spawn(argv[2], words, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE));
    }
    CHECK(MPI_Intercomm_merge(between, !is_parent, &all));
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &processes);
    CHECK(MPI_File_open(all, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    CHECK(MPI_File_set_atomicity(file, 1));
    CHECK(MPI_File_write_at(file, rank, "x", 1, MPI_CHAR, MPI_STATUS_IGNORE));
    MPI_Barrier(all);
    CHECK(MPI_File_read_at(file, 0, got, processes, MPI_CHAR, MPI_STATUS_IGNORE));
    while (got[written] == 'x')
        written++;
    if (written != processes)
        fail("%d of %d bytes", written, processes);
    CHECK(MPI_File_close(&file));
    if (rank == 0)
        printf("all wrote\n");
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&between);
    MPI_Finalize();
    return 0;
}
