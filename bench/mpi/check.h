/*
 * Whether a file is what whole accesses, one after another, leave behind.
 *
 * Each byte says who wrote it and, in the bits that are left, where and in which round: so a byte of another round, at another
 * place, or of somebody who had no business there is found. Where several wrote the same byte one of them won it. If each
 * access was whole there is an order of the ranks by which the last of those that wrote a byte won it: so "who lost a byte ->
 * who won it" is a graph without a cycle.
 */
#ifndef CHECK_H
#define CHECK_H

#include "pattern.h"

enum { WHOLE, TORN, WRONG };

static unsigned code_bits(int ranks) {
    unsigned bits = 1;
    while (1 << bits <= ranks)
        bits++;
    return bits; /* of 0, nobody, and ranks + 1 */
}

static unsigned char byte_of(int rank, int ranks, long offset, long round) {
    unsigned bits = code_bits(ranks);
    unsigned long mixed = ((unsigned long)offset + 1) * 0x9e3779b97f4a7c15UL + (unsigned long)round * 0xd6e8feb86659fd93UL;
    return (unsigned char)((unsigned)(rank + 1) | (unsigned)(mixed >> 56) << bits);
}

struct edge {
    long at;
    int rank, opens;
};

static int by_place(const void *a, const void *b) {
    const struct edge *one = a, *other = b;
    return one->at != other->at ? (one->at > other->at) - (one->at < other->at) : one->opens - other->opens;
}

static struct edge *edges_of(const struct pattern *patterns, int ranks, long *count) {
    long total = 0;
    for (int rank = 0; rank < ranks; rank++)
        total += 2 * pieces_of(&patterns[rank]);
    struct edge *edges = malloc((size_t)total * sizeof *edges);
    *count = 0;
    for (int rank = 0; rank < ranks; rank++)
        for (long piece = 0; piece < pieces_of(&patterns[rank]); piece++) {
            long begin = offset_of(&patterns[rank], piece);
            edges[(*count)++] = (struct edge){begin, rank, 1};
            edges[(*count)++] = (struct edge){begin + patterns[rank].piece, rank, 0};
        }
    qsort(edges, (size_t)total, sizeof *edges, by_place);
    return edges;
}

/* Depth first over "loser before winner": 1 if there is a cycle. */
static int cyclic(int at, int ranks, const unsigned long long *won_from, char *seen) {
    seen[at] = 1;
    for (int next = 0; next < ranks; next++)
        if (won_from[at] >> next & 1 && (seen[next] == 1 || (seen[next] == 0 && cyclic(next, ranks, won_from, seen))))
            return 1;
    seen[at] = 2;
    return 0;
}

/* Who won bytes between two edges, where those of `writers` wrote; 0 if a byte is none of theirs. */
static unsigned long long winners(const unsigned char *bytes, long from, long to, unsigned long long writers, int ranks, long round) {
    unsigned code = (1u << code_bits(ranks)) - 1;
    unsigned long long found = 0;
    for (long at = from; at < to; at++) {
        int rank = (int)(bytes[at] & code) - 1;
        if (rank < 0 || rank >= ranks || !(writers >> rank & 1) || bytes[at] != byte_of(rank, ranks, at, round)) {
            printf("byte %ld of round %ld is %d, which is nobody's who wrote there\n", at, round, bytes[at]);
            return 0;
        }
        found |= 1ULL << rank;
    }
    return found;
}

/* What the writes of all ranks in a round have left. */
static int verdict(const unsigned char *bytes, const struct pattern *patterns, int ranks, long round) {
    unsigned long long won_from[RANKS_MAX] = {0}, writers = 0;
    char seen[RANKS_MAX] = {0};
    long count;
    struct edge *edges = edges_of(patterns, ranks, &count);
    for (long edge = 0; edge + 1 < count; edge++) {
        unsigned long long mine = 1ULL << edges[edge].rank;
        writers = edges[edge].opens ? writers | mine : writers & ~mine;
        if (!writers || edges[edge].at == edges[edge + 1].at)
            continue;
        unsigned long long won = winners(bytes, edges[edge].at, edges[edge + 1].at, writers, ranks, round);
        for (int loser = 0; loser < ranks; loser++)
            if (writers >> loser & 1)
                won_from[loser] |= won & ~(1ULL << loser);
        if (!won) {
            free(edges);
            return WRONG;
        }
    }
    free(edges);
    for (int start = 0; start < ranks; start++)
        if (seen[start] == 0 && cyclic(start, ranks, won_from, seen))
            return TORN;
    return WHOLE;
}

#endif
