/*
 * Is atomic mode atomic? Every rank writes its own number into a noncontiguous pattern that overlaps those of others; then
 * rank 0 reads the file. If each access was atomic there is an order of the ranks such that every byte was written last by
 * the last rank of those that wrote it: so "who lost a byte -> who won it" is a graph without a cycle.
 *
 *     overlap FILE METHOD ROUNDS [SEED [until-torn]]
 *
 * METHOD is one of the data access functions, see `methods`, or "all". Each round has its own pattern, by SEED. Prints
 * "METHOD: torn T of R rounds, gaps lost in L" for each and exits with 0; anything that is wrong in another way (a byte of nobody, a byte that was nobody's
 * and changed, a wrong count in a status, a failed call) is printed and exits with 1.
 *
 * Beside it, "METHOD: W writes" says how many writes the writers have made, where delay.so is preloaded. With MIXED in the
 * environment the writers with odd numbers sieve (ELBOW_MPI_SIEVING=always) and the others never do.
 *
 * Besides, one rank more than the pattern has writes into the gaps between the pieces, one piece at a time, atomically and
 * with a file handle of its own: a library that fills the gaps of other accesses by writing back what it has read (data
 * sieving, two-phase I/O) loses some of these: "gaps lost".
 */
#define _GNU_SOURCE
#include "fail.h"

#include <dlfcn.h>
#include <string.h>

enum { PIECES = 48, PIECE = 96, GAP = 32, RANKS_MAX = 64, FILL = 0 };

static int ranks;

static unsigned long long state;

static unsigned below(unsigned limit) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(state >> 33) % limit;
}

/* Where the writers' data goes. With `shared` methods all ranks have one view and write one after another. */
struct pattern {
    int piece, stride, shift;
};

static MPI_Datatype comb(int pieces, int piece, int stride) {
    MPI_Datatype type, resized;
    CHECK(MPI_Type_vector(pieces, piece, stride, MPI_BYTE, &type));
    CHECK(MPI_Type_create_resized(type, 0, (MPI_Aint)pieces * stride, &resized));
    CHECK(MPI_Type_commit(&resized));
    CHECK(MPI_Type_free(&type));
    return resized;
}

static void wait_for(MPI_Request *request, int bytes) {
    MPI_Status status;
    int count;
    CHECK(MPI_Wait(request, &status));
    CHECK(MPI_Get_count(&status, MPI_BYTE, &count));
    if (count != bytes)
        fail("the status of a request says %d of %d bytes", count, bytes);
}

static void wrote(MPI_Status *status, int bytes) {
    int count;
    CHECK(MPI_Get_count(status, MPI_BYTE, &count));
    if (count != bytes)
        fail("a status says %d of %d bytes", count, bytes);
}

static void write_at(MPI_File f, const char *b, int n) { MPI_Status s; CHECK(MPI_File_write_at(f, 0, b, n, MPI_BYTE, &s)); wrote(&s, n); }
static void write_at_all(MPI_File f, const char *b, int n) { MPI_Status s; CHECK(MPI_File_write_at_all(f, 0, b, n, MPI_BYTE, &s)); wrote(&s, n); }
static void write_own(MPI_File f, const char *b, int n) { MPI_Status s; CHECK(MPI_File_write(f, b, n, MPI_BYTE, &s)); wrote(&s, n); }
static void write_all(MPI_File f, const char *b, int n) { MPI_Status s; CHECK(MPI_File_write_all(f, b, n, MPI_BYTE, &s)); wrote(&s, n); }
static void iwrite_at(MPI_File f, const char *b, int n) { MPI_Request r; CHECK(MPI_File_iwrite_at(f, 0, b, n, MPI_BYTE, &r)); wait_for(&r, n); }
static void iwrite(MPI_File f, const char *b, int n) { MPI_Request r; CHECK(MPI_File_iwrite(f, b, n, MPI_BYTE, &r)); wait_for(&r, n); }
static void iwrite_at_all(MPI_File f, const char *b, int n) { MPI_Request r; CHECK(MPI_File_iwrite_at_all(f, 0, b, n, MPI_BYTE, &r)); wait_for(&r, n); }
static void iwrite_all(MPI_File f, const char *b, int n) { MPI_Request r; CHECK(MPI_File_iwrite_all(f, b, n, MPI_BYTE, &r)); wait_for(&r, n); }
static void split_at_all(MPI_File f, const char *b, int n) { MPI_Status s; CHECK(MPI_File_write_at_all_begin(f, 0, b, n, MPI_BYTE)); CHECK(MPI_File_write_at_all_end(f, b, &s)); wrote(&s, n); }
static void split_all(MPI_File f, const char *b, int n) { MPI_Status s; CHECK(MPI_File_write_all_begin(f, b, n, MPI_BYTE)); CHECK(MPI_File_write_all_end(f, b, &s)); wrote(&s, n); }
static void write_shared(MPI_File f, const char *b, int n) { MPI_Status s; CHECK(MPI_File_write_shared(f, b, n, MPI_BYTE, &s)); wrote(&s, n); }
static void iwrite_shared(MPI_File f, const char *b, int n) { MPI_Request r; CHECK(MPI_File_iwrite_shared(f, b, n, MPI_BYTE, &r)); wait_for(&r, n); }
static void write_ordered(MPI_File f, const char *b, int n) { MPI_Status s; CHECK(MPI_File_write_ordered(f, b, n, MPI_BYTE, &s)); wrote(&s, n); }
static void split_ordered(MPI_File f, const char *b, int n) { MPI_Status s; CHECK(MPI_File_write_ordered_begin(f, b, n, MPI_BYTE)); CHECK(MPI_File_write_ordered_end(f, b, &s)); wrote(&s, n); }

static const struct method {
    const char *name;
    void (*write)(MPI_File, const char *, int);
    int shared, collective;
} methods[] = {
    {"write_at", write_at, 0, 0}, {"write_at_all", write_at_all, 0, 1}, {"write", write_own, 0, 0}, {"write_all", write_all, 0, 1},
    {"iwrite_at", iwrite_at, 0, 0}, {"iwrite", iwrite, 0, 0}, {"iwrite_at_all", iwrite_at_all, 0, 1}, {"iwrite_all", iwrite_all, 0, 1},
    {"write_at_all_begin", split_at_all, 0, 1}, {"write_all_begin", split_all, 0, 1},
    {"write_shared", write_shared, 1, 0}, {"iwrite_shared", iwrite_shared, 1, 0},
    {"write_ordered", write_ordered, 1, 1}, {"write_ordered_begin", split_ordered, 1, 1},
};

static MPI_File open_atomic(MPI_Comm comm, const char *path) {
    MPI_File file;
    int flag = -1;
    CHECK(MPI_File_open(comm, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    CHECK(MPI_File_set_atomicity(file, 1));
    CHECK(MPI_File_get_atomicity(file, &flag));
    if (flag != 1)
        fail("atomic mode reads as %d", flag);
    return file;
}

/* Depth first over "loser before winner": 1 if there is a cycle. */
static int cyclic(int at, int n, unsigned char edges[][RANKS_MAX], char *seen) {
    seen[at] = 1;
    for (int next = 0; next < n; next++)
        if (edges[at][next] && (seen[next] == 1 || (seen[next] == 0 && cyclic(next, n, edges, seen))))
            return 1;
    seen[at] = 2;
    return 0;
}

static int covers(const struct pattern *p, long byte) {
    long at = byte - p->shift;
    return at >= 0 && at / p->stride < PIECES && at % p->stride < p->piece;
}

/* 1 if the bytes of the writers can not have come about by whole accesses, one after another. */
static int torn(const unsigned char *bytes, long length, const struct pattern *patterns, int writers, long round) {
    unsigned char edges[RANKS_MAX][RANKS_MAX] = {{0}};
    char seen[RANKS_MAX] = {0};
    for (long byte = 0; byte < length; byte++) {
        int winner = bytes[byte] - 1, covered = 0;
        for (int loser = 0; loser < writers; loser++) {
            if (!covers(&patterns[loser], byte))
                continue;
            covered = 1;
            if (winner >= 0 && winner != loser)
                edges[loser][winner] = 1;
        }
        if (covered && (winner < 0 || winner >= writers || !covers(&patterns[winner], byte)))
            fail("round %ld, byte %ld: %d, which is nobody's who wrote there", round, byte, bytes[byte]);
    }
    for (int start = 0; start < writers; start++)
        if (seen[start] == 0 && cyclic(start, writers, edges, seen))
            return 1;
    return 0;
}

/* At a shared pointer each rank's data has a place of its own: all must be there, one after another in some order. */
static int torn_shared(const unsigned char *bytes, const struct pattern *all, int writers, int collective, long round) {
    char seen[RANKS_MAX] = {0};
    int wrong = 0;
    for (int place = 0; place < writers; place++) {
        int first = -1;
        for (int i = 0; i < PIECES * all->piece && !wrong; i++) {
            long data = (long)place * PIECES * all->piece + i;
            long byte = all->shift + data / all->piece * all->stride + data % all->piece;
            if (first < 0)
                first = bytes[byte] - 1;
            wrong |= bytes[byte] - 1 != first;
        }
        if (first < 0 || first >= writers || seen[first])
            wrong = 1;
        else
            seen[first] = 1;
        if (collective && !wrong && first != place)
            fail("round %ld: rank %d is at place %d of the order", round, first, place);
    }
    return wrong;
}

/* One round; the counts are the last rank's. */
static void run(const struct method *method, MPI_File file, long round, long *torn_rounds, long *lost_rounds) {
    int writers = ranks - 1, is_writer = rank < writers;
    struct pattern patterns[RANKS_MAX];
    int stride = PIECE + GAP, piece = PIECE / 2 + (int)below(PIECE / 2);
    for (int writer = 0; writer < writers; writer++) {
        patterns[writer].stride = stride;
        patterns[writer].piece = method->shared ? piece : PIECE / 3 + (int)below(PIECE / 3);
        /* A writer's pieces begin somewhere in the first third, or a piece later: so that not all overlap all. */
        patterns[writer].shift = method->shared ? 0 : (int)below(PIECE / 3);
    }
    long length = (long)(method->shared ? writers : 1) * PIECES * stride;
    int gap_from = stride - GAP / 2, gap_bytes = GAP / 2;
    if (length <= 0)
        fail("it takes a writer and a reader");

    if (is_writer)
        CHECK(MPI_File_set_size(file, 0));
    MPI_Barrier(MPI_COMM_WORLD);

    int bytes = 0;
    char *data = NULL;
    MPI_Datatype view = MPI_DATATYPE_NULL;
    if (is_writer) {
        const struct pattern *mine = &patterns[rank];
        bytes = PIECES * mine->piece;
        data = malloc((size_t)bytes);
        memset(data, rank + 1, (size_t)bytes);
        view = comb(PIECES, mine->piece, mine->stride);
        CHECK(MPI_File_set_view(file, mine->shift, MPI_BYTE, view, "native", MPI_INFO_NULL));
        if (method->shared)
            CHECK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_writer) {
        method->write(file, data, bytes);
    } else {
        char in_gap[GAP];
        memset(in_gap, 0xee, sizeof in_gap);
        for (long at = gap_from; at < length; at += stride)
            CHECK(MPI_File_write_at(file, at, in_gap, gap_bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (!is_writer) {
        unsigned char *got = calloc((size_t)length, 1);
        MPI_Status status;
        CHECK(MPI_File_read_at(file, 0, got, (int)length, MPI_BYTE, &status));
        int lost = 0;
        for (long at = gap_from; at < length; at += stride)
            for (int i = 0; i < gap_bytes; i++)
                lost |= got[at + i] != 0xee;
        *lost_rounds += lost;
        *torn_rounds += method->shared ? torn_shared(got, patterns, writers, method->collective, round)
                                      : torn(got, length, patterns, writers, round);
        free(got);
    } else {
        MPI_Type_free(&view);
        free(data);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static long writes_until_now(void) {
    long (*writes)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "delay_writes");
    return writes ? writes() : 0;
}

int main(int argc, char **argv) {
    CHECK(MPI_Init(&argc, &argv));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 4 || ranks < 3 || ranks > RANKS_MAX)
        fail("usage: overlap FILE METHOD ROUNDS [SEED], on 3 to %d ranks", RANKS_MAX);
    long rounds = atol(argv[3]), methods_run = 0;
    if (getenv("MIXED"))
        setenv("ELBOW_MPI_SIEVING", rank % 2 ? "always" : "never", 1);
    state = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, rank < ranks - 1, rank, &comm); /* the last rank writes into the gaps */
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (strcmp(methods[i].name, argv[2]) != 0 && strcmp("all", argv[2]) != 0)
            continue;
        long torn_rounds = 0, lost_rounds = 0, before = writes_until_now(), writes = 0, all_writes = 0;
        MPI_File file = open_atomic(comm, argv[1]);
        for (long round = 0; round < rounds; round++) {
            run(&methods[i], file, round, &torn_rounds, &lost_rounds);
            long found = torn_rounds + lost_rounds;
            MPI_Bcast(&found, 1, MPI_LONG, ranks - 1, MPI_COMM_WORLD);
            if (found > 0 && argc > 5)
                break;
        }
        CHECK(MPI_File_close(&file));
        writes = rank < ranks - 1 ? writes_until_now() - before : 0;
        MPI_Reduce(&writes, &all_writes, 1, MPI_LONG, MPI_SUM, ranks - 1, MPI_COMM_WORLD);
        if (rank == ranks - 1)
            printf("%s: %ld writes\n", methods[i].name, all_writes);
        if (rank == ranks - 1)
            printf("%s: torn %ld of %ld rounds, gaps lost in %ld\n", methods[i].name, torn_rounds, rounds, lost_rounds);
        methods_run++;
    }
    if (methods_run == 0)
        fail("no method %s", argv[2]);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}
