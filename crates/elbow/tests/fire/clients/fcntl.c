/* LOG SEED STOPFILE: a client by fcntl(2), as a program is that knows of no lock service. To ask once more for what it holds is its check: the service answers. */
#include "game.h"

static int ask(int fd, const struct wish *wish, int command, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)wish->start[0], .l_len = (off_t)wish->length[0]};
    return fcntl(fd, command, &lock);
}

static void play(const int *files)
{
    struct wish wish = dream(0);
    int fd = files[wish.file[0] - 'a'];
    short type = wish.shared ? F_RDLCK : F_WRLCK;
    note_ask(&wish);
    int result = ask(fd, &wish, wish.wait_ms ? F_SETLKW : F_SETLK, type);
    uint64_t at = now();
    if (result) {
        note("not %" PRIu64 " %s\n", at, strerrorname_np(errno));
        nap(5000);
        return;
    }
    note("got %" PRIu64 " -\n", at);
    for (int look = 0; look < wish.looks; look++) {
        uint64_t before = now();
        if (ask(fd, &wish, F_SETLK, type))
            break; /* Not granted once more is not lost: then the process would have been ended. */
        note("ours %" PRIu64 " %" PRIu64 "\n", before, now());
        nap(wish.look_us);
    }
    note("back %" PRIu64 "\n", now());
    ask(fd, &wish, F_SETLK, F_UNLCK);
    note("done %" PRIu64 " unknown\n", now());
    nap(wish.pause_us);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    begin(argv);
    int files[3] = {open("a", O_RDWR), open("b", O_RDWR), open("c", O_RDWR)};
    if (files[0] == -1 || files[1] == -1 || files[2] == -1)
        return 2;
    while (goes_on())
        play(files);
    return 0;
}
