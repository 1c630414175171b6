/* A program of several ranks that ends, saying why, as soon as a rank finds something wrong. */
#ifndef ELBOW_FAIL_H
#define ELBOW_FAIL_H

#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int rank;

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("FAILED rank %d: ", rank);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void check(int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code != MPI_SUCCESS) {
        MPI_Error_string(code, text, &length);
        fail("%s: %s", what, text);
    }
}

#define CHECK(call) check(call, #call)

#endif
