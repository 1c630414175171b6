/* What storage.c tells the program that it is preloaded under. */
#ifndef STORAGE_H
#define STORAGE_H

/* Reads and writes of the file by this process since storage_begin. */
struct storage_counts {
    long calls;
    long long bytes;
    unsigned long long order; /* of offsets and lengths */
    double busy_s;            /* spent in the calls, the delay included */
};

/* From now on each read and write of `path`, which is there, takes `delay_us` more; 0 unless it is not there. */
int storage_begin(const char *path, long delay_us);

/* No more; says what there was. */
void storage_end(struct storage_counts *out);

#endif
