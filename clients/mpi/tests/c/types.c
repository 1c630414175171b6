/*
 * Is what would be locked what MPI writes? Builds random nested datatypes, makes them file types, has the library cover some
 * bytes (elbow_mpi_cover, found in the preloaded library), writes the same without locks into an empty file, and
 * compares with the bytes of the file that have changed: MPI itself says what the access is. What is refused is counted; it must be what the
 * library itself places elsewhere than the standard says (ROMIO has such types).
 *
 *     types FILE CASES SEED [SKIPPED...]      on one process; prints "N cases agree, X refused, P patterns for R ranges"
 *
 * MPICH 5.0 ends the program at some types (an assertion in ADIOI_Flatten_datatype, when they become a file type), of which the generator
 * below leaves out those that are known; then it prints "aborted in case N", and can be told to skip that one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Types with large counts; ROMIO of MPICH 4.0 cannot have one as a file type. */
#if MPI_VERSION >= 4 && !(defined MPICH_NUMVERSION && MPICH_NUMVERSION < 40100000)
#define LARGE_COUNTS 1
#else
#define LARGE_COUNTS 0
#endif

/* File types with empty blocks among others: MPICH 5.0 ends the program (an assertion in ADIOI_Flatten_datatype), MPICH 4.0
   writes elsewhere than its own MPI_File_get_byte_offset says. */
#if defined MPICH_NUMVERSION || defined MPI_ABI
#define EMPTY_BLOCKS 0
#else
#define EMPTY_BLOCKS 1
#endif

enum { EXTENT_MAX = 3000, ROOM = 1 << 20, RANGES_MAX = 1 << 16, STORY = 4096 };

static unsigned long long state;
static char story[STORY];
static long current;

static unsigned below(unsigned limit) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(state >> 33) % limit;
}

static void tell(const char *what) { strncat(story, what, STORY - strlen(story) - 1); }

#define TELL(...) do { char text[200]; snprintf(text, sizeof text, __VA_ARGS__); tell(text); } while (0)
#define CHECK(call) do { if ((call) != MPI_SUCCESS) { printf("FAILED case %ld: %s\n  %s\n", current, #call, story); MPI_Abort(MPI_COMM_WORLD, 1); } } while (0)

static MPI_Aint extent_of(MPI_Datatype type) {
    MPI_Aint lower, extent;
    CHECK(MPI_Type_get_extent(type, &lower, &extent));
    return extent;
}

static MPI_Datatype basic(void) {
    const MPI_Datatype all[] = {MPI_BYTE, MPI_CHAR, MPI_SHORT, MPI_INT, MPI_DOUBLE, MPI_SHORT_INT, MPI_FLOAT, MPI_LONG_LONG};
    unsigned which = below(8);
    TELL("basic%u", which);
    return all[which];
}

/* Ascending displacements with gaps, in units of the old type's extent; `lengths` in old types. */
static int list(int *lengths, int *places, int equal) {
    int count = 1 + (int)below(8), at = (int)below(3), same = 1 + (int)below(3);
    for (int i = 0; i < count; i++) {
        lengths[i] = equal ? same : (int)below(4) + !EMPTY_BLOCKS;
        places[i] = at;
        at += lengths[i] + (below(3) ? 1 : (int)below(4));
    }
    return count;
}

static MPI_Datatype grown(MPI_Datatype old) {
    MPI_Datatype new;
    MPI_Aint extent = extent_of(old), addresses[8];
    int lengths[8], places[8], count;
    switch (below(13)) {
    case 0:
        count = 1 + (int)below(5);
        TELL(" contiguous(%d)", count);
        CHECK(MPI_Type_contiguous(count, old, &new));
        return new;
    case 1: {
        int n = 1 + (int)below(5), length = 1 + (int)below(3), stride = length + (int)below(4);
        TELL(" vector(%d,%d,%d)", n, length, stride);
#if LARGE_COUNTS
        if (below(2)) {
            tell("_c");
            CHECK(MPI_Type_vector_c(n, length, stride, old, &new));
            return new;
        }
#endif
        CHECK(MPI_Type_vector(n, length, stride, old, &new));
        return new;
    }
    case 2: {
        int n = 1 + (int)below(5), length = 1 + (int)below(3);
        MPI_Aint stride = length * extent + (MPI_Aint)below(9);
        TELL(" hvector(%d,%d,%ld)", n, length, (long)stride);
#if LARGE_COUNTS
        if (below(2)) {
            tell("_c");
            CHECK(MPI_Type_create_hvector_c(n, length, stride, old, &new));
            return new;
        }
#endif
        CHECK(MPI_Type_create_hvector(n, length, stride, old, &new));
        return new;
    }
    case 3:
        count = list(lengths, places, 0);
        TELL(" indexed(%d)", count);
        CHECK(MPI_Type_indexed(count, lengths, places, old, &new));
        return new;
    case 4:
        count = list(lengths, places, 0);
        for (int i = 0; i < count; i++)
            addresses[i] = places[i] * extent + 3;
        TELL(" hindexed(%d)", count);
#if LARGE_COUNTS
        if (below(2)) {
            MPI_Count large[8], far[8];
            for (int i = 0; i < count; i++)
                large[i] = lengths[i], far[i] = addresses[i];
            tell("_c");
            CHECK(MPI_Type_create_hindexed_c(count, large, far, old, &new));
            return new;
        }
#endif
        CHECK(MPI_Type_create_hindexed(count, lengths, addresses, old, &new));
        return new;
    case 5:
        count = list(lengths, places, 1);
        TELL(" indexed_block(%d,%d)", count, lengths[0]);
        CHECK(MPI_Type_create_indexed_block(count, lengths[0], places, old, &new));
        return new;
    case 6:
        count = list(lengths, places, 1);
        for (int i = 0; i < count; i++)
            addresses[i] = places[i] * extent + 1;
        TELL(" hindexed_block(%d,%d)", count, lengths[0]);
        CHECK(MPI_Type_create_hindexed_block(count, lengths[0], addresses, old, &new));
        return new;
    case 7: {
        MPI_Datatype types[3] = {old, MPI_INT, old};
        int blocks[3] = {1 + (int)below(2), 1 + (int)below(3), EMPTY_BLOCKS ? (int)below(2) : 1};
        MPI_Aint at[3] = {(MPI_Aint)below(5), 0, 0}, lower, true_extent;
        CHECK(MPI_Type_get_true_extent(old, &lower, &true_extent));
        at[1] = at[0] + (blocks[0] - 1) * extent + lower + true_extent + 4 * (MPI_Aint)below(3);
        at[2] = at[1] + blocks[1] * 4 + (MPI_Aint)below(7);
        /* Parts of different types without any gap, in an array of an array: MPICH 5.0 ends the program, as above. */
        if (!EMPTY_BLOCKS && at[2] == at[0] + (blocks[0] - 1) * extent + lower + true_extent + blocks[1] * 4)
            at[2]++;
        TELL(" struct(%d@%ld,%d@%ld,%d@%ld)", blocks[0], (long)at[0], blocks[1], (long)at[1], blocks[2], (long)at[2]);
        CHECK(MPI_Type_create_struct(3, blocks, at, types, &new));
        return new;
    }
    case 8:
    case 9: {
        int dims = 1 + (int)below(3), sizes[3], parts[3], starts[3], fortran = (int)below(2);
        for (int i = 0; i < dims; i++) {
            sizes[i] = 1 + (int)below(5);
            parts[i] = 1 + (int)below((unsigned)sizes[i]);
            starts[i] = (int)below((unsigned)(sizes[i] - parts[i] + 1));
            TELL(" sub%s(%d of %d at %d)", fortran ? "F" : "C", parts[i], sizes[i], starts[i]);
        }
#if LARGE_COUNTS
        if (below(2)) {
            MPI_Count s[3], p[3], b[3];
            for (int i = 0; i < dims; i++)
                s[i] = sizes[i], p[i] = parts[i], b[i] = starts[i];
            tell("_c");
            CHECK(MPI_Type_create_subarray_c(dims, s, p, b, fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C, old, &new));
            return new;
        }
#endif
        CHECK(MPI_Type_create_subarray(dims, sizes, parts, starts, fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C, old, &new));
        return new;
    }
    case 10: {
        int dims = 1 + (int)below(2), sizes[2], kinds[2], arguments[2], grid[2], processes = 1, fortran = (int)below(2);
        for (int i = 0; i < dims; i++) {
            const int all[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};
            unsigned which = below(3);
            sizes[i] = 2 + (int)below(7);
            kinds[i] = all[which];
            grid[i] = which == 2 ? 1 : 1 + (int)below(2);
            arguments[i] = which == 1 && below(2) ? 1 + (int)below(2) : MPI_DISTRIBUTE_DFLT_DARG;
            processes *= grid[i];
            TELL(" dist%s(%d kind %u arg %d on %d)", fortran ? "F" : "C", sizes[i], which, arguments[i], grid[i]);
        }
        /* Open MPI fails on some shares, such as an empty one. */
        if (MPI_Type_create_darray(processes, (int)below((unsigned)processes), dims, sizes, kinds, arguments, grid,
                                   fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C, old, &new) != MPI_SUCCESS)
            CHECK(MPI_Type_dup(old, &new));
        return new;
    }
    case 11: {
        MPI_Aint lower, true_extent, more = (MPI_Aint)below(20);
        CHECK(MPI_Type_get_true_extent(old, &lower, &true_extent));
        TELL(" resized(+%ld)", (long)more);
        CHECK(MPI_Type_create_resized(old, 0, lower + true_extent + more, &new));
        return new;
    }
    default:
        tell(" dup");
        CHECK(MPI_Type_dup(old, &new));
        return new;
    }
}

static MPI_Datatype random_type(void) {
    MPI_Datatype type;
    story[0] = 0;
    CHECK(MPI_Type_dup(basic(), &type));
    for (unsigned depth = below(5); depth > 0 && extent_of(type) < EXTENT_MAX / 20; depth--) {
        MPI_Datatype new = grown(type);
        MPI_Aint lower, extent, true_lower, true_extent;
        CHECK(MPI_Type_get_extent(new, &lower, &extent));
        CHECK(MPI_Type_get_true_extent(new, &true_lower, &true_extent));
        /* A copy that begins before the last has ended is no file type. */
        if (extent < true_extent || extent > EXTENT_MAX || true_lower < 0) {
            tell("!");
            CHECK(MPI_Type_free(&new));
            continue;
        }
        CHECK(MPI_Type_free(&type));
        type = new;
    }
    CHECK(MPI_Type_commit(&type));
    return type;
}

static void show(const char *name, const unsigned char *bytes) {
    int shown = 0;
    printf("%s", name);
    for (long at = 0; at < ROOM && shown < 20; at++)
        if (bytes[at] && (at == 0 || !bytes[at - 1])) {
            long end = at;
            while (end < ROOM && bytes[end])
                end++;
            printf(" %ld..%ld", at, end);
            shown++;
        }
    printf("\n");
}

static void on_abort(int signal) {
    char text[60];
    int length = snprintf(text, sizeof text, "aborted in case %ld\n", current);
    if (write(STDOUT_FILENO, text, (size_t)length) < 0)
        _exit(1);
    _exit(128 + signal);
}

static int is_skipped(int argc, char **argv) {
    for (int i = 4; i < argc; i++)
        if (atol(argv[i]) == current)
            return 1;
    return 0;
}

typedef long long cover_function(MPI_File, MPI_Offset, long long, unsigned long long *, long long, long long *);

int main(int argc, char **argv) {
    static unsigned char changed[ROOM], data[ROOM], expected[ROOM];
    static unsigned long long ranges[2 * RANGES_MAX];
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    signal(SIGABRT, on_abort);
    cover_function *cover = (cover_function *)dlsym(RTLD_DEFAULT, "elbow_mpi_cover");
    if (argc < 4 || cover == NULL) {
        printf("FAILED: %s\n", cover ? "usage: types FILE CASES SEED" : "no elbow_mpi_cover: is the library preloaded?");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_File file;
    MPI_Info info;
    CHECK(MPI_Info_create(&info));
    CHECK(MPI_Info_set(info, "romio_ds_write", "disable"));
    CHECK(MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    CHECK(MPI_Info_free(&info));
    int raw = open(argv[1], O_RDWR);
    unsigned long long seed = strtoull(argv[3], NULL, 10);
    long cases = atol(argv[2]), agreed = 0, refused = 0, all_patterns = 0, all_ranges = 0;
    memset(data, 0xff, sizeof data);
    for (current = 0; current < cases; current++) {
        if (is_skipped(argc, argv))
            continue;
        state = seed + (unsigned long long)current * 7919;
        MPI_Datatype type = random_type();
        int size;
        CHECK(MPI_Type_size(type, &size));
        if (size == 0) {
            MPI_Type_free(&type);
            continue;
        }
        MPI_Offset displacement = below(40), offset = below(2 * (unsigned)size + 1);
        int bytes = 1 + (int)below(3 * (unsigned)size);
        TELL("; displacement %lld, %d bytes at %lld", (long long)displacement, bytes, (long long)offset);
        if (getenv("VERBOSE"))
            fprintf(stderr, "case %ld: %s\n", current, story);
        CHECK(MPI_File_set_view(file, displacement, MPI_BYTE, type, "native", MPI_INFO_NULL));
        CHECK(MPI_Type_free(&type)); /* the view has it still */

        long long patterns, count = cover(file, offset, bytes, ranges, RANGES_MAX, &patterns);
        refused += count < 0;
        if (count < 0) {
            if (getenv("VERBOSE"))
                fprintf(stderr, "refused: %s\n", story);
            continue;
        }
        memset(expected, 0, sizeof expected);
        for (long long i = 0; i < count; i++)
            memset(expected + ranges[2 * i], 0xff, ranges[2 * i + 1] - ranges[2 * i]);
        all_patterns += patterns;
        all_ranges += count;

        if (ftruncate(raw, 0) != 0)
            return 1;
        MPI_Status status;
        CHECK(MPI_File_write_at(file, offset, data, bytes, MPI_BYTE, &status));
        memset(changed, 0, sizeof changed);
        if (pread(raw, changed, sizeof changed, 0) < 0)
            return 1;
        for (long at = 0; at < ROOM; at++)
            if (changed[at] != expected[at]) {
                MPI_Offset first;
                MPI_File_get_byte_offset(file, offset, &first);
                show("covered", expected);
                show("written", changed);
                printf("the library says that it begins at byte %lld\n", (long long)first);
                printf("FAILED seed %llu case %ld: byte %ld is %s\n  %s\n", seed, current, at, changed[at] ? "written but not covered" : "covered but not written", story);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        agreed++;
    }
    printf("%ld cases agree, %ld refused, %ld patterns for %ld ranges\n", agreed, refused, all_patterns, all_ranges);
    close(raw);
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
