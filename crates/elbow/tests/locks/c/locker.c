/* locker HOW FILE...: locks each file, without waiting, and says "PID FILE ERRNO", 0 if it has it.
 *
 * A FILE that ends in "=" is none: it waits until there is one of the name before that.
 *
 * HOW is fcntl, ofd or flock (through libc), alarm (as fcntl, with a signal a second later), or one of the ways past it: raw (what a program in Go does), x32, and int80 (what a 32-bit program does).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

static void handle(int number)
{
    (void)number;
}

static int lock(const char *how, int file)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (!strcmp(how, "fcntl"))
        return fcntl(file, F_SETLK, &all) ? errno : 0;
    if (!strcmp(how, "alarm")) {
        struct sigaction interrupts = {.sa_handler = handle};
        sigaction(SIGALRM, &interrupts, NULL);
        alarm(1);
        return fcntl(file, F_SETLK, &all) ? errno : 0;
    }
    if (!strcmp(how, "ofd"))
        return fcntl(file, F_OFD_SETLK, &all) ? errno : 0;
    if (!strcmp(how, "flock"))
        return flock(file, LOCK_EX | LOCK_NB) ? errno : 0;
    if (!strcmp(how, "raw"))
        return syscall(SYS_fcntl, file, F_SETLK, &all) ? errno : 0;
#ifdef __x86_64__
    if (!strcmp(how, "x32"))
        return syscall(0x40000000 | SYS_flock, file, LOCK_EX | LOCK_NB) ? errno : 0;
    if (!strcmp(how, "int80")) {
        long result = 143;
        __asm__ volatile("int $0x80" : "+a"(result) : "b"(file), "c"(LOCK_EX | LOCK_NB) : "memory", "r8", "r9", "r10", "r11");
        return result < 0 ? (int)-result : 0;
    }
#endif
    return EINVAL;
}

int main(int count, char **words)
{
    for (int i = 2; i < count; i++) {
        char *end = words[i] + strlen(words[i]) - 1;
        if (*end == '=') {
            for (*end = 0; access(words[i], F_OK);)
                usleep(10000);
            continue;
        }
        int file = open(words[i], O_RDWR | O_CREAT, 0644);
        printf("%d %s %d\n", (int)getpid(), words[i], file < 0 ? errno : lock(words[1], file));
    }
    return 0;
}
