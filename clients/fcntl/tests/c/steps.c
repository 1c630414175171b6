/* Does what its standard input says with file locks, one line a step, and prints what the calls gave.
 *
 *   o SLOT FILE MODE CLOEXEC    open(argv[FILE])          d FROM TO  dup        D FROM TO  dup2 over an open slot
 *   c SLOT  close               C SLOT  fclose            s SLOT POSITION  lseek
 *   l SLOT OFD COMMAND TYPE WHENCE START LENGTH           fcntl; command 0 F_SETLK, 1 F_SETLKW, 2 F_GETLK
 *   f SLOT OPERATION  flock     k SLOT COMMAND LENGTH  lockf
 *   F  a child of fork closes everything and ends         p  getpid
 *   a MS  an alarm later, without SA_RESTART
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static int slots[8] = {-1, -1, -1, -1, -1, -1, -1, -1};

static void nothing(int signal) { (void)signal; }

static long locking(long *a)
{
    static const int commands[2][3] = {{F_SETLK, F_SETLKW, F_GETLK}, {F_OFD_SETLK, F_OFD_SETLKW, F_OFD_GETLK}};
    struct flock lock = {.l_type = (short)a[3], .l_whence = (short)a[4], .l_start = a[5], .l_len = a[6]};
    int result = fcntl(slots[a[0]], commands[a[1]][a[2]], &lock);
    printf("%d %d", result, result ? errno : 0);
    if (a[2] == 2 && result == 0) {
        printf(" %d", lock.l_type);
        if (lock.l_type != F_UNLCK)
            printf(" %d %ld %ld %d", lock.l_whence, (long)lock.l_start, (long)lock.l_len, lock.l_pid);
    }
    puts("");
    return -2;
}

static long forked(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 8; i++)
            if (slots[i] != -1)
                close(slots[i]);
        _exit(0);
    }
    return waitpid(child, &status, 0) == child ? status : -1;
}

/* The next line. A signal that came too late to end a wait ends none of this. */
static char *next_line(char *line, int size)
{
    char *got;
    while (!(got = fgets(line, size, stdin)) && ferror(stdin) && errno == EINTR)
        clearerr(stdin);
    return got;
}

static long step(char what, long *a, char **files)
{
    struct itimerval timer = {{0, 0}, {a[0] / 1000, a[0] % 1000 * 1000}};
    int fd;
    switch (what) {
    case 'o':
        fd = open(files[a[1]], (int)a[2] | O_CREAT | (a[3] ? O_CLOEXEC : 0), 0600);
        slots[a[0]] = fd;
        return fd == -1 ? -1 : 0;
    case 'd':
        slots[a[1]] = dup(slots[a[0]]);
        return slots[a[1]] == -1 ? -1 : 0;
    case 'D':
        return dup2(slots[a[0]], slots[a[1]]) == -1 ? -1 : 0;
    case 'c':
        fd = slots[a[0]];
        slots[a[0]] = -1;
        return close(fd);
    case 'C': {
        FILE *file = fdopen(slots[a[0]], "r");
        slots[a[0]] = -1;
        return file ? fclose(file) : -1;
    }
    case 's':
        return lseek(slots[a[0]], a[1], SEEK_SET) == -1 ? -1 : 0;
    case 'l':
        return locking(a);
    case 'f':
        return flock(slots[a[0]], (int)a[1]);
    case 'k':
        return lockf(slots[a[0]], (int)a[1], a[2]);
    case 'F':
        return forked();
    case 'p':
        return getpid();
    case 'a':
        return setitimer(ITIMER_REAL, &timer, NULL);
    }
    return -1;
}

int main(int argc, char **argv)
{
    char line[256];
    struct sigaction action;
    if (argc < 2)
        return 2;
    memset(&action, 0, sizeof action);
    action.sa_handler = nothing;
    sigaction(SIGALRM, &action, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (next_line(line, sizeof line)) {
        char what = 0;
        long a[7] = {0}, result;
        if (sscanf(line, "%c %ld %ld %ld %ld %ld %ld %ld", &what, a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6) < 1)
            return 2;
        errno = 0;
        result = step(what, a, argv);
        if (result != -2)
            printf("%ld %d\n", result, result == -1 ? errno : 0);
    }
    return 0;
}
