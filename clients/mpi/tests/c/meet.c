/*
 * Processes that come together in other ways than by MPI_Init.
 *
 *     meet FILE connect [silent]    the second of two ranks connects to the first one, and both write a file in atomic mode
 *     meet FILE session [silent]    two ranks make a communicator of a session (MPI 4), without MPI_Init; ROMIO writes no files then
 *
 * With "silent" the second one is as if it had no library: it gives no sign, and the first one does not wait long for it. Prints "all met".
 */
#define _GNU_SOURCE
#include "fail.h"

#include <string.h>

static int is_silent;

static void hush(void) {
    if (is_silent && rank == 1)
        setenv("ELBOW_MPI_UNCOVERED", "ignore", 1);
    else if (is_silent)
        setenv("ELBOW_MPI_PATIENCE", "2", 1);
}

static void write_with(MPI_Comm comm, const char *path) {
    MPI_File file;
    char got[2] = {0};
    int place;
    MPI_Comm_rank(comm, &place);
    CHECK(MPI_File_open(comm, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    CHECK(MPI_File_set_atomicity(file, 1));
    CHECK(MPI_File_write_at(file, place, "x", 1, MPI_CHAR, MPI_STATUS_IGNORE));
    MPI_Barrier(comm);
    CHECK(MPI_File_read_at(file, 0, got, 2, MPI_CHAR, MPI_STATUS_IGNORE));
    if (got[0] != 'x' || got[1] != 'x')
        fail("somebody has not written");
    CHECK(MPI_File_close(&file));
    if (rank == 0)
        printf("all met\n");
}

static void connect_them(int *argc, char ***argv, const char *path) {
    char port[MPI_MAX_PORT_NAME] = {0};
    MPI_Comm between, both;
    CHECK(MPI_Init(argc, argv));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    hush();
    if (rank == 0)
        CHECK(MPI_Open_port(MPI_INFO_NULL, port));
    MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0)
        CHECK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &between));
    else
        CHECK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &between));
    CHECK(MPI_Intercomm_merge(between, rank, &both));
    write_with(both, path);
    MPI_Comm_free(&both);
    MPI_Comm_disconnect(&between);
    MPI_Finalize();
}

static void make_session(void) {
#if MPI_VERSION >= 4
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    CHECK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    MPI_Group_rank(group, &rank);
    hush();
    CHECK(MPI_Comm_create_from_group(group, "elbow-meet", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    MPI_Barrier(comm);
    if (rank == 0)
        printf("all met\n");
    MPI_Group_free(&group);
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
#else
    printf("no sessions\n");
#endif
}

int main(int argc, char **argv) {
    is_silent = argc > 3 && strcmp(argv[3], "silent") == 0;
    if (strcmp(argv[2], "session") == 0)
        make_session();
    else
        connect_them(&argc, &argv, argv[1]);
    return 0;
}
