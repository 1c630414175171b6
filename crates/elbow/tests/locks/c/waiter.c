/* URL FILE RAN: waits for a lock on FILE, and then makes RAN. With LIBRARY by libelbow_lock, else by fcntl(2), which knows of no URL. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef LIBRARY
#include <elbow_lock.h>

static int locked(char **argv, elbow_lock_hold_t **hold)
{
    elbow_lock_client_t *client = elbow_lock_connect(argv[1]);
    *hold = client ? elbow_lock_hold(client, argv[2], NULL, 0, ELBOW_LOCK_EXCLUSIVE, ELBOW_LOCK_FOREVER) : NULL;
    return *hold ? 0 : -1;
}

static int released(elbow_lock_hold_t *hold) { return elbow_lock_release(hold); }
#else
typedef int elbow_lock_hold_t;

static int locked(char **argv, elbow_lock_hold_t **hold)
{
    static int fd;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    fd = open(argv[2], O_RDWR | O_CREAT, 0600);
    *hold = &fd;
    return fcntl(fd, F_SETLKW, &lock);
}

static int released(elbow_lock_hold_t *hold) { return close(*hold); }
#endif

int main(int argc, char **argv)
{
    elbow_lock_hold_t *hold;
    if (argc != 4)
        return 2;
    if (locked(argv, &hold)) {
        fprintf(stderr, "not locked: %s\n", strerror(errno));
        return 3;
    }
    close(open(argv[3], O_WRONLY | O_CREAT, 0600));
    return released(hold) ? 4 : 0;
}
