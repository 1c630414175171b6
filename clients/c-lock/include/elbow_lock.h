/* libelbow_lock: locks on lists of byte ranges, from a lock service. See elbow_lock(3).
 *
 * Calls that fail give -1, or a null pointer, and set errno; elbow_lock_error() then says in words what is wrong. Clients
 * and holds may be used from several threads at once, until they are given up.
 */
#ifndef ELBOW_LOCK_H
#define ELBOW_LOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A session with a lock service. */
typedef struct elbow_lock_client elbow_lock_client_t;
/* A lock that is held. */
typedef struct elbow_lock_hold elbow_lock_hold_t;
/* Bytes of a file: length of them, more than 0, from start. */
typedef struct {
    uint64_t start;
    uint64_t length;
} elbow_lock_range_t;

/* Flags of elbow_lock_hold. */
#define ELBOW_LOCK_EXCLUSIVE 0u /* no other lock may cover a byte: for writing */
#define ELBOW_LOCK_SHARED 1u    /* other shared locks may cover it too: for reading */

/* Times to wait, in milliseconds. */
#define ELBOW_LOCK_TRY 0
#define ELBOW_LOCK_FOREVER (-1)

/* Connects to unix:PATH or tcp:HOST:PORT; without a url to what ELBOW_LOCKS names. */
elbow_lock_client_t *elbow_lock_connect(const char *url);
/* Gives a client up; its holds go on. */
int elbow_lock_disconnect(elbow_lock_client_t *client);
/* Waits until all of the ranges of a file are held, together; no ranges stand for all of the file. */
elbow_lock_hold_t *elbow_lock_hold(elbow_lock_client_t *client, const char *path, const elbow_lock_range_t *ranges, size_t count, unsigned int flags, int wait_ms);
/* Whether the lock is still ours: call it just before each read or write under it. No round trip. */
int elbow_lock_check(const elbow_lock_hold_t *hold);
/* The fencing token: larger than that of any grant before that excluded this one; 0 without a hold. */
uint64_t elbow_lock_token(const elbow_lock_hold_t *hold);
/* Releases a lock, and says whether it was ours to the end; it is released even if not. */
int elbow_lock_release(elbow_lock_hold_t *hold);
/* The last failure of this thread in words, never a null pointer. */
const char *elbow_lock_error(void);

#ifdef __cplusplus
}
#endif

#endif
