/*
 * One access of each rank, again and again: how long it takes until all are done, and whether what is left is whole.
 *
 *     access FILE PATTERNS write|write_all|read nonatomic|atomic exact|free plain|guarded DELAY_US SECONDS
 *
 * PATTERNS: see pattern.h. Each rank's data goes by one MPI_File_write_at (or _write_at_all, or _read_at) with its pattern as
 * file type. "exact": piece by piece, the library is told not to sieve, so every mode makes the same requests, and each round
 * must; "free": as the library likes. "guarded": the data comes from mesh blocks with guard cells, which stay in memory, as
 * FLASH I/O has it.
 *
 * A round begins at one instant for all and ends with the last of them; waiting for others sleeps, as a process that polls
 * would take the processor from those at work. Rounds go on for SECONDS, at least one; one before them, without a delay, is
 * not counted. After each the file is checked. Rank 0 prints one line of JSON; whatever is wrong is printed, and exits with 1.
 */
#define _GNU_SOURCE
#include "../../clients/mpi/tests/c/fail.h"
#include "check.h"
#include "storage.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* From the instant at which rank 0 says when to begin: longer than any rank takes to hear of it. */
static const double SOON_S = 0.01;
static const useconds_t POLL_US = 1000;

enum { ROUNDS_MAX = 10000 };

/* FLASH: cells of a mesh block on each side, and guard cells before and after them. */
enum { SIDE = 8, GUARD = 4, WITH_GUARD = SIDE + 2 * GUARD, CELL = 8, ROW = SIDE * CELL, BLOCK = SIDE * SIDE * ROW };

static int ranks;

static __typeof__(&storage_begin) begin_storage;
static __typeof__(&storage_end) end_storage;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void sleep_until(double instant) {
    struct timespec time = {(time_t)instant, (long)((instant - (double)(time_t)instant) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0)
        ;
}

static void wait_gently(MPI_Request *request) {
    for (int done = 0; !done;) {
        CHECK(MPI_Test(request, &done, MPI_STATUS_IGNORE));
        if (!done)
            usleep(POLL_US);
    }
}

static void meet(void) {
    MPI_Request request;
    CHECK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
    wait_gently(&request);
}

static double agree(double number) {
    MPI_Request request;
    CHECK(MPI_Ibcast(&number, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD, &request));
    wait_gently(&request);
    return number;
}

static MPI_Datatype file_type(const struct pattern *p) {
    MPI_Datatype type, inner;
    CHECK(MPI_Type_contiguous((int)p->piece, MPI_BYTE, &type));
    for (int dim = p->dims - 1; dim >= 0; dim--) {
        inner = type;
        CHECK(MPI_Type_create_hvector((int)p->count[dim], 1, p->stride[dim], inner, &type));
        CHECK(MPI_Type_free(&inner));
    }
    CHECK(MPI_Type_commit(&type));
    return type;
}

static MPI_File open_file(const char *path, const struct pattern *mine, int atomic, int exact) {
    MPI_File file;
    MPI_Info hints;
    CHECK(MPI_Info_create(&hints));
    if (exact) {
        CHECK(MPI_Info_set(hints, "romio_ds_write", "disable"));
        CHECK(MPI_Info_set(hints, "romio_ds_read", "disable"));
    }
    CHECK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, hints, &file));
    if (atomic)
        CHECK(MPI_File_set_atomicity(file, 1));
    MPI_Datatype type = file_type(mine);
    CHECK(MPI_File_set_view(file, mine->start, MPI_BYTE, type, "native", hints));
    CHECK(MPI_Type_free(&type));
    CHECK(MPI_Info_free(&hints));
    return file;
}

static void fill(char *data, const struct pattern *p, int writer, long round) {
    for (long piece = 0; piece < pieces_of(p); piece++)
        for (long at = offset_of(p, piece), end = at + p->piece; at < end; at++)
            *data++ = (char)byte_of(writer, ranks, at, round);
}

/* Puts the data into the cells of mesh blocks in memory, and packs these without their guard cells. */
static void through_mesh(char *data, long bytes) {
    static char block[WITH_GUARD][WITH_GUARD][WITH_GUARD * CELL];
    for (char *cells = data; cells < data + bytes; cells += BLOCK) {
        memset(block, 0, sizeof block); /* nobody's byte: found where a guard cell is written */
        for (int row = 0; row < SIDE * SIDE; row++)
            memcpy(&block[GUARD + row / SIDE][GUARD + row % SIDE][GUARD * CELL], cells + row * ROW, ROW);
        for (int row = 0; row < SIDE * SIDE; row++)
            memcpy(cells + row * ROW, &block[GUARD + row / SIDE][GUARD + row % SIDE][GUARD * CELL], ROW);
    }
}

static unsigned char *mapped(const char *path, long bytes) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0 || (status.st_size < bytes && ftruncate(fd, bytes) != 0))
        fail("%s cannot be made %ld bytes long", path, bytes);
    void *map = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        fail("%s cannot be mapped", path);
    close(fd);
    return map;
}

struct job {
    const char *path;
    const struct pattern *patterns;
    long bytes, file_bytes;
    int is_write, collective, exact, guarded;
    MPI_File file;
    char *data;
    unsigned char *map; /* of the file, on rank 0 */
};

struct round {
    double seconds;
    struct storage_counts sum; /* over the ranks */
    int is_torn;
};

static void prepare(struct job *job, long round) {
    if (job->is_write)
        fill(job->data, &job->patterns[rank], rank, round);
    else
        memset(job->data, 0, (size_t)job->bytes);
    if (job->is_write && job->guarded)
        through_mesh(job->data, job->bytes);
    if (!job->is_write && rank == 0)
        for (long at = 0; at < job->file_bytes; at++)
            job->map[at] = byte_of(-1, ranks, at, round);
}

static void transfer(struct job *job) {
    MPI_Status status;
    int count;
    if (job->collective)
        CHECK(MPI_File_write_at_all(job->file, 0, job->data, (int)job->bytes, MPI_BYTE, &status));
    else if (job->is_write)
        CHECK(MPI_File_write_at(job->file, 0, job->data, (int)job->bytes, MPI_BYTE, &status));
    else
        CHECK(MPI_File_read_at(job->file, 0, job->data, (int)job->bytes, MPI_BYTE, &status));
    CHECK(MPI_Get_count(&status, MPI_BYTE, &count));
    if (count != job->bytes)
        fail("the status says %d of %ld bytes", count, job->bytes);
}

/* 1 if it is torn; what is wrong otherwise ends the program. */
static int examine(struct job *job, long round) {
    if (!job->is_write) {
        char *expected = malloc((size_t)job->bytes);
        fill(expected, &job->patterns[rank], -1, round);
        if (memcmp(expected, job->data, (size_t)job->bytes) != 0)
            fail("round %ld: what was read is not what is there", round);
        free(expected);
    }
    int found = job->is_write && rank == 0 ? verdict(job->map, job->patterns, ranks, round) : WHOLE;
    if (found == WRONG)
        fail("round %ld: the file is wrong", round);
    return found == TORN;
}

/* On rank 0: from the first begin to the last end, and the sums. */
static struct round gather(double begin, double end, const struct storage_counts *mine) {
    double span[2] = {begin, end}, spans[2 * RANKS_MAX];
    struct storage_counts all[RANKS_MAX];
    CHECK(MPI_Gather(span, 2, MPI_DOUBLE, spans, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD));
    CHECK(MPI_Gather(mine, sizeof *mine, MPI_BYTE, all, sizeof *mine, MPI_BYTE, 0, MPI_COMM_WORLD));
    struct round round = {0};
    for (int other = 0; rank == 0 && other < ranks; other++) {
        begin = spans[2 * other] < begin ? spans[2 * other] : begin;
        end = spans[2 * other + 1] > end ? spans[2 * other + 1] : end;
        round.sum.calls += all[other].calls;
        round.sum.bytes += all[other].bytes;
        round.sum.busy_s += all[other].busy_s;
        round.sum.order = round.sum.order * 31 + all[other].order;
    }
    round.seconds = end - begin;
    return round;
}

static struct round run(struct job *job, long number, long delay_us) {
    struct storage_counts mine;
    prepare(job, number);
    meet();
    sleep_until(agree(now() + SOON_S));
    if (begin_storage(job->path, delay_us) != 0)
        fail("%s is not there", job->path);
    double begin = now();
    transfer(job);
    double end = now();
    end_storage(&mine);
    meet();
    struct round round = gather(begin, end, &mine);
    round.is_torn = examine(job, number);
    meet();
    return round;
}

/* Whether two rounds made the same requests. */
static int is_same(const struct storage_counts *one, const struct storage_counts *other) {
    return one->calls == other->calls && one->bytes == other->bytes && one->order == other->order;
}

static void measure(struct job *job, long delay_us, double seconds) {
    static struct round all[ROUNDS_MAX]; /* printed at the end: what the launcher does with it would be in the way */
    struct storage_counts first;
    long rounds = 0, torn = 0;
    run(job, 0, 0);
    double busy = 0, took = 0, until = now() + seconds;
    do {
        struct round round = all[rounds] = run(job, rounds + 1, delay_us);
        first = all[0].sum;
        rounds++;
        if (rank == 0 && job->exact && !is_same(&round.sum, &first))
            fail("round %ld made other requests than round 1", rounds);
        torn += round.is_torn;
        busy += round.sum.busy_s;
        took += round.seconds;
    } while (agree(rounds < ROUNDS_MAX && now() < until));
    if (rank != 0)
        return;
    printf("{\"seconds\": [");
    for (long round = 0; round < rounds; round++)
        printf("%s%.6f", round > 0 ? ", " : "", all[round].seconds);
    printf("], \"torn\": %ld, \"calls\": %ld, \"bytes\": %lld, \"order\": \"%016llx\", \"at_once\": %.3f}\n", torn, first.calls, first.bytes,
           first.order, busy / took);
}

static int is(const char *argument, const char *word) {
    return strcmp(argument, word) == 0;
}

static struct job job_of(char **argv, const struct pattern *patterns) {
    struct job job = {.path = argv[1], .patterns = patterns, .is_write = !is(argv[3], "read"), .collective = is(argv[3], "write_all"),
                      .exact = is(argv[5], "exact"), .guarded = is(argv[6], "guarded"),
                      .bytes = patterns[rank].piece * pieces_of(&patterns[rank])};
    for (int other = 0; other < ranks; other++) {
        long end = offset_of(&patterns[other], pieces_of(&patterns[other]) - 1) + patterns[other].piece;
        job.file_bytes = end > job.file_bytes ? end : job.file_bytes;
    }
    job.data = malloc((size_t)job.bytes);
    if (rank == 0)
        job.map = mapped(job.path, job.file_bytes);
    return job;
}

int main(int argc, char **argv) {
    struct pattern patterns[RANKS_MAX];
    CHECK(MPI_Init(&argc, &argv));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    begin_storage = (__typeof__(&storage_begin))dlsym(RTLD_DEFAULT, "storage_begin");
    end_storage = (__typeof__(&storage_end))dlsym(RTLD_DEFAULT, "storage_end");
    if (argc != 9 || !begin_storage || !end_storage)
        fail("usage: access FILE PATTERNS write|write_all|read nonatomic|atomic exact|free plain|guarded DELAY_US SECONDS, "
             "with storage.so preloaded");
    if (read_patterns(argv[2], patterns) != ranks)
        fail("%s holds no patterns for %d ranks", argv[2], ranks);
    struct job job = job_of(argv, patterns);
    meet(); /* the file is there, and long enough */
    job.file = open_file(job.path, &patterns[rank], is(argv[4], "atomic"), job.exact);
    measure(&job, atol(argv[7]), atof(argv[8]));
    CHECK(MPI_File_close(&job.file));
    free(job.data);
    MPI_Finalize();
    return 0;
}
