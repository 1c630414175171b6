/*
 * What cannot be locked is refused with an MPI error, and no byte is written.
 *
 *     refusals FILE without-service    there is no lock service: atomic mode is refused on all ranks, nonatomic mode works
 *     refusals FILE with-service       there is one: a view whose file type cannot be locked exactly is refused
 *     refusals FILE service-gone       it goes away, after FILE.ready was made and before FILE.gone is there: no I/O
 *     refusals FILE long-description   there is one; of what rank 1 would write more has to be said than may be (ELBOW_MPI_GATHERED): refused on all ranks
 *     refusals FILE started-past       MPI_Init never came to the library: atomic mode is refused on all ranks
 *
 * Prints "refused as it should be", or what is wrong.
 */
#define _GNU_SOURCE
#include "fail.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

static void must_be_refused(int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING];
    int length, class;
    if (code == MPI_SUCCESS)
        fail("%s", what);
    CHECK(MPI_Error_string(code, text, &length));
    CHECK(MPI_Error_class(code, &class));
    if (strstr(text, "elbow: ") == NULL || class == MPI_SUCCESS)
        fail("%s", text);
}

static void must_be_empty(MPI_File file) {
    MPI_Offset size = -1;
    CHECK(MPI_File_get_size(file, &size));
    if (size != 0)
        fail("something was written");
    MPI_Barrier(MPI_COMM_WORLD);
}

static void without_service(MPI_File file) {
    int flag = -1;
    must_be_refused(MPI_File_set_atomicity(file, 1), "atomic mode without a lock service");
    CHECK(MPI_File_get_atomicity(file, &flag));
    if (flag)
        fail("atomic mode reads as on");
    CHECK(MPI_File_set_atomicity(file, 0));
    CHECK(MPI_File_write_at_all(file, rank, "x", 1, MPI_CHAR, MPI_STATUS_IGNORE));
}

static void with_service(MPI_File file) {
    MPI_Status status;
    MPI_Request request;
    int count = -1;
    char got = 0;
    CHECK(MPI_File_set_atomicity(file, 1));
    if (MPI_File_set_view(file, 0, MPI_CHAR, MPI_CHAR, "external32", MPI_INFO_NULL) == MPI_SUCCESS) {
        must_be_refused(MPI_File_write_at(file, rank, "x", 1, MPI_CHAR, &status), "write_at with another data representation");
        must_be_refused(MPI_File_iwrite_at(file, rank, "x", 1, MPI_CHAR, &request), "iwrite_at with another data representation");
        must_be_refused(MPI_File_write_at_all(file, rank, "x", 1, MPI_CHAR, &status), "write_at_all with another data representation");
        must_be_refused(MPI_File_write_at_all_begin(file, rank, "x", 1, MPI_CHAR), "write_at_all_begin with another data representation");
        must_be_empty(file);
        CHECK(MPI_File_set_view(file, 0, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL));
    }
    /* Afterwards the file is as good as before; and what moves no data takes part in collective accesses. */
    CHECK(MPI_File_write_at_all(file, 2 * rank, "yy", rank == 1 ? 0 : 2, MPI_CHAR, &status));
    CHECK(MPI_Get_count(&status, MPI_CHAR, &count));
    if (count != (rank == 1 ? 0 : 2))
        fail("a wrong count");
    CHECK(MPI_File_iread_at_all(file, 0, &got, 1, MPI_CHAR, &request));
    CHECK(MPI_Wait(&request, &status));
    CHECK(MPI_Get_count(&status, MPI_CHAR, &count));
    if (got != 'y' || count != 1)
        fail("read something else");
    CHECK(MPI_File_read_at_all_begin(file, 4, &got, 1, MPI_CHAR));
    CHECK(MPI_File_read_at_all_end(file, &got, &status));
    if (got != 'y')
        fail("read something else by a split access");
    if (MPI_File_write_at(file, -1, "z", 1, MPI_CHAR, &status) == MPI_SUCCESS)
        fail("a negative offset");
    if (MPI_File_write_at(file, 0, "z", -1, MPI_CHAR, &status) == MPI_SUCCESS)
        fail("a negative count");
    CHECK(MPI_File_set_atomicity(file, 0));
}

static void service_gone(MPI_File file, const char *path) {
    char ready[1024], gone[1024];
    MPI_Status status;
    CHECK(MPI_File_set_atomicity(file, 1));
    snprintf(ready, sizeof ready, "%s.ready", path);
    snprintf(gone, sizeof gone, "%s.gone", path);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        fclose(fopen(ready, "w"));
    while (access(gone, F_OK) != 0)
        usleep(10000);
    must_be_refused(MPI_File_write_at(file, rank, "x", 1, MPI_CHAR, &status), "write_at without the service");
    must_be_refused(MPI_File_write_at_all(file, rank, "x", 1, MPI_CHAR, &status), "write_at_all without the service");
    must_be_empty(file);
}

static void long_description(MPI_File file) {
    enum { BLOCKS = 200 };
    int begins[BLOCKS], lengths[BLOCKS], bytes = 0;
    static char data[3 * BLOCKS];
    MPI_Datatype type;
    MPI_Status status;
    for (int block = 0; block < BLOCKS; block++) {
        begins[block] = 16 * block + block * block % 7;
        lengths[block] = 1 + block % 3;
        bytes += lengths[block];
    }
    CHECK(MPI_Type_indexed(BLOCKS, lengths, begins, MPI_CHAR, &type));
    CHECK(MPI_Type_commit(&type));
    CHECK(MPI_File_set_atomicity(file, 1));
    CHECK(MPI_File_set_view(file, 0, MPI_CHAR, rank == 1 ? type : MPI_CHAR, "native", MPI_INFO_NULL));
    must_be_refused(MPI_File_write_at_all(file, 0, data, rank == 1 ? bytes : 1, MPI_CHAR, &status), "write_at_all with a long description");
    must_be_empty(file);
    CHECK(MPI_File_set_view(file, 0, MPI_CHAR, MPI_CHAR, "native", MPI_INFO_NULL));
    CHECK(MPI_File_write_at_all(file, 2 * rank, "yy", 2, MPI_CHAR, &status));
    CHECK(MPI_File_set_atomicity(file, 0));
    CHECK(MPI_Type_free(&type));
}

/* MPI_Init of the MPI library itself. */
static int init_past(int *argc, char ***argv) {
    Dl_info mpi;
    int (*init)(int *, char ***) = NULL;
    if (dladdr((void *)MPI_Comm_rank, &mpi) != 0)
        init = (int (*)(int *, char ***))dlsym(dlopen(mpi.dli_fname, RTLD_NOW | RTLD_NOLOAD), "PMPI_Init");
    return init == NULL ? MPI_ERR_OTHER : init(argc, argv);
}

int main(int argc, char **argv) {
    MPI_File file;
    int is_past = strcmp(argv[2], "started-past") == 0;
    CHECK(is_past ? init_past(&argc, &argv) : MPI_Init(&argc, &argv));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CHECK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    if (is_past)
        must_be_refused(MPI_File_set_atomicity(file, 1), "atomic mode of who was started past the library");
    else if (strcmp(argv[2], "without-service") == 0)
        without_service(file);
    else if (strcmp(argv[2], "long-description") == 0)
        long_description(file);
    else if (strcmp(argv[2], "service-gone") == 0)
        service_gone(file, argv[1]);
    else
        with_service(file);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_File_close(&file));
    if (rank == 0)
        printf("refused as it should be\n");
    MPI_Finalize();
    return 0;
}
