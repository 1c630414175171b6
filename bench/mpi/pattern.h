/*
 * Where the ranks' data goes: one nested pattern for each, as `cargo run -p elbow-lock --example workloads` prints them and
 * bench/harness/mpis.py writes them down: a line per rank, "START BYTES [COUNT STRIDE]...", outermost first.
 */
#ifndef PATTERN_H
#define PATTERN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS_MAX = 4, RANKS_MAX = 64 };

struct pattern {
    long start, piece; /* bytes */
    int dims;
    long count[DIMS_MAX], stride[DIMS_MAX];
};

static long pieces_of(const struct pattern *p) {
    long pieces = 1;
    for (int dim = 0; dim < p->dims; dim++)
        pieces *= p->count[dim];
    return pieces;
}

static long offset_of(const struct pattern *p, long piece) {
    long offset = p->start;
    for (int dim = p->dims - 1; dim >= 0; dim--) {
        offset += piece % p->count[dim] * p->stride[dim];
        piece /= p->count[dim];
    }
    return offset;
}

/* How many there are in the file of this name; 0 if it cannot be read as said above. */
static int read_patterns(const char *path, struct pattern *patterns) {
    char line[512];
    int ranks = 0;
    FILE *file = fopen(path, "r");
    while (file && ranks < RANKS_MAX && fgets(line, sizeof line, file)) {
        struct pattern *p = &patterns[ranks++];
        char *rest = line;
        p->start = strtol(rest, &rest, 10);
        p->piece = strtol(rest, &rest, 10);
        for (p->dims = 0; p->dims < DIMS_MAX && *rest == ' '; p->dims++) {
            p->count[p->dims] = strtol(rest, &rest, 10);
            p->stride[p->dims] = strtol(rest, &rest, 10);
        }
        if (*rest != '\n' || p->piece <= 0 || pieces_of(p) <= 0)
            ranks = 0, fseek(file, 0, SEEK_END);
    }
    if (file)
        fclose(file);
    return ranks;
}

#endif
