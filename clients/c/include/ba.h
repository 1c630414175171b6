/* libba: blocks of one size in one file, whose holes are the free blocks. See ba(3).
 *
 * Calls that fail give -1, or a null pointer, and set errno; ba_error() then says in words what is wrong. A store may
 * be used from several threads at once, until it is closed.
 */
#ifndef ELBOW_BA_H
#define ELBOW_BA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A store. */
typedef struct ba ba_t;

/* Flags of ba_create. */
#define BA_HOLES 1u     /* holes are the free map, or there is no store */
#define BA_BITMAP 2u    /* a bitmap in the file is the free map */
#define BA_CHECKSUMS 4u /* blocks carry a checksum, in 8 of their bytes */

/* Makes a store in a new file; blocks of 0 bytes have the size that suits the file system. */
ba_t *ba_create(const char *path, size_t block_bytes, unsigned int flags);
/* Opens a store: its allocated blocks are those that were written. */
ba_t *ba_open(const char *path);
/* Bytes that a block holds: what ba_read and ba_write take. */
ssize_t ba_size(const ba_t *ba);
/* Allocates the lowest free block; gives its number, from 0. */
int64_t ba_alloc(ba_t *ba);
/* Frees a block. Its content is gone; a crash cannot bring it back after the next ba_sync. */
int ba_free(ba_t *ba, int64_t block);
/* Reads a block; zeros if it was not written since it was allocated. */
int ba_read(ba_t *ba, int64_t block, void *buffer);
/* Writes a block. */
int ba_write(ba_t *ba, int64_t block, const void *buffer);
/* Makes all that was written and freed durable. */
int ba_sync(ba_t *ba);
/* Syncs and closes a store; it is closed even if that fails. */
int ba_close(ba_t *ba);
/* The last failure of this thread in words, never a null pointer. */
const char *ba_error(void);

#ifdef __cplusplus
}
#endif

#endif
