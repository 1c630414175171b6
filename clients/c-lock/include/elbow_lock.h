/* libelbow_lock: locks on lists and patterns of byte ranges, from a lock service. See elbow_lock(3).
 *
 * Calls that fail give -1, or a null pointer, and set errno; elbow_lock_error() then says in words what is wrong. Clients,
 * holds and what was asked for may be used from several threads at once, until they are given up.
 *
 * A structure with a field `size` grows at its end in later versions, to no more than 4096 bytes: set it to sizeof, and all that is
 * not used to 0. The others never change.
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

/* A lock that was asked for. */
typedef struct elbow_lock_asked elbow_lock_asked_t;
/* The locks of a file at one moment. */
typedef struct elbow_lock_status elbow_lock_status_t;

/* A level of a pattern: count times what is below it, stride bytes apart. */
typedef struct {
    uint64_t count;
    uint64_t stride;
} elbow_lock_vector_t;
/* block bytes at start + i1 * stride1 + i2 * stride2 + ..., for every i1 < count1, i2 < count2 and so on, as the derived
 * datatypes of MPI have it; at most 16 levels, the outermost first. It is sent, kept and compared as it is, however many blocks it has. */
typedef struct {
    uint64_t start;
    uint64_t block;
    const elbow_lock_vector_t *vectors;
    size_t vectors_count;
} elbow_lock_pattern_t;

/* What elbow_lock_ask asks for: all of the ranges and patterns together, all of the file without any. */
typedef struct {
    size_t size;         /* sizeof(elbow_lock_request_t) */
    const char *path;    /* of a file, which need not exist; or null */
    const char *name;    /* of what is no file, taken as it is: "dataset/7"; or null */
    unsigned int flags;  /* ELBOW_LOCK_EXCLUSIVE or ELBOW_LOCK_SHARED */
    int wait_ms;         /* how long the service lets it wait; ELBOW_LOCK_TRY, ELBOW_LOCK_FOREVER */
    uint64_t owner;      /* who waits, for the detection of deadlocks: 0 for the calling thread, or a number below 2^63 */
    const elbow_lock_range_t *ranges;
    size_t ranges_count;
    const elbow_lock_pattern_t *patterns;
    size_t patterns_count;
} elbow_lock_request_t;

/* What elbow_lock_status_get gives: a lock that is held or waited for. */
typedef struct {
    size_t size;         /* sizeof(elbow_lock_seen_t) */
    uint64_t session;    /* whose: the service's number for one connection */
    uint64_t owner;      /* who in that session */
    uint64_t token;      /* its fencing token; 0 while it waits */
    uint64_t age_ms;     /* since it was granted; since it was asked for, if it waits */
    uint64_t start;      /* its first byte */
    uint64_t end;        /* past its last one */
    unsigned int flags;  /* ELBOW_LOCK_SHARED, ELBOW_LOCK_POSIX, ELBOW_LOCK_BROKEN */
    const char *client;  /* program, process, user or address, for people; until the status is given up */
    const char *pattern; /* what it covers, for people; as long */
} elbow_lock_seen_t;

/* Flags of elbow_lock_hold and of a request. */
#define ELBOW_LOCK_EXCLUSIVE 0u /* no other lock may cover a byte: for writing */
#define ELBOW_LOCK_SHARED 1u    /* other shared locks may cover it too: for reading */

/* Flags of a lock that was looked at, beside ELBOW_LOCK_SHARED. */
#define ELBOW_LOCK_POSIX 2u  /* it follows fcntl(2) */
#define ELBOW_LOCK_BROKEN 4u /* its holder was told that it is lost, and has not given it back */

/* Times to wait, in milliseconds. */
#define ELBOW_LOCK_TRY 0
#define ELBOW_LOCK_FOREVER (-1)

/* Connects to unix:PATH or tcp:HOST:PORT; without a url to what ELBOW_LOCKS names. */
elbow_lock_client_t *elbow_lock_connect(const char *url);
/* Gives a client up; its holds go on. */
int elbow_lock_disconnect(elbow_lock_client_t *client);
/* Waits until all of the ranges of a file are held, together; no ranges stand for all of the file. */
elbow_lock_hold_t *elbow_lock_hold(elbow_lock_client_t *client, const char *path, const elbow_lock_range_t *ranges, size_t count, unsigned int flags, int wait_ms);
/* Asks for a lock and does not wait for it; elbow_lock_forget must follow, sooner or later. A path and a name are given one at a time. */
elbow_lock_asked_t *elbow_lock_ask(elbow_lock_client_t *client, const elbow_lock_request_t *request);
/* Waits until what was asked for is held, wait_ms at most (0: looks). While it is still waited for errno is EINPROGRESS, and one can
 * wait again. It gives its hold, or an error for good, once; the hold is one of its own, and outlives what was asked. */
elbow_lock_hold_t *elbow_lock_wait(elbow_lock_asked_t *asked, int wait_ms);
/* Gives up what was asked for, unless it has been granted: who waits for it gets ECANCELED. From any thread. */
int elbow_lock_cancel(elbow_lock_asked_t *asked);
/* Gives up what was asked for, its place in the queue and its memory; a lock that was granted and not taken is released. No other
 * thread may use it meanwhile. */
int elbow_lock_forget(elbow_lock_asked_t *asked);
/* Looks who holds locks of a file or a name, and who waits for them: of up to 200 each. */
elbow_lock_status_t *elbow_lock_look(elbow_lock_client_t *client, const char *path, const char *name);
/* Gives the lock of this index, those that are held first: 1; 0 when there are no more. */
int elbow_lock_status_get(const elbow_lock_status_t *status, size_t index, elbow_lock_seen_t *seen);
/* Gives a status up, with the texts of its locks. */
int elbow_lock_status_free(elbow_lock_status_t *status);
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
