/* LOG SEED STOPFILE ELBOW: a client by `elbow lock hold`, whose command is this program again: LOG HOLD_US. */
#include "game.h"

#include <sys/wait.h>

/* What was written down since. */
static const char *since(off_t start)
{
    static char text[512];
    ssize_t length = pread(log_fd, text, sizeof text - 1, start);
    text[length < 0 ? 0 : length] = 0;
    return text;
}

static int run(const char *elbow, const char *self, const struct wish *wish, const char *log)
{
    char ranges[PIECES][64], us[32];
    const char *words[64] = {elbow, "lock", "hold", wish->file};
    int count = 4;
    for (int i = 0; i < wish->count; i++) {
        sprintf(ranges[i], "%" PRIu64 ":%" PRIu64, wish->start[i], wish->length[i]);
        words[count++] = "--range";
        words[count++] = ranges[i];
    }
    if (wish->shared)
        words[count++] = "--shared";
    if (wish->wait_ms == 0)
        words[count++] = "--try";
    if (wish->wait_ms > 0) {
        words[count++] = "--timeout";
        words[count++] = "300ms";
    }
    sprintf(us, "%d", wish->look_us);
    words[count++] = "--";
    words[count++] = self;
    words[count++] = log;
    words[count++] = us;
    pid_t child = fork();
    if (child == 0) {
        execv(elbow, (char **)words);
        _exit(127);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void play(const char *elbow, char **argv)
{
    struct wish wish = dream(1);
    off_t start = lseek(log_fd, 0, SEEK_END);
    note_ask(&wish);
    int code = run(elbow, argv[0], &wish, argv[1]);
    const char *said = since(start);
    uint64_t at = now();
    if (!strstr(said, "\ngot "))
        note("not %" PRIu64 " exit-%d\n", at, code);
    else if (strstr(said, "\nback "))
        note("done %" PRIu64 " %s\n", at, code == 0 ? "ours" : code == 125 ? "lost" : "unknown");
    else if (code == 125)
        note("lost %" PRIu64 " %" PRIu64 "\n", at, at);
    nap(wish.pause_us);
}

/* The command: it holds the lock as long as it runs. */
static int hold(char **argv)
{
    log_fd = open(argv[1], O_RDWR | O_APPEND);
    if (log_fd == -1)
        return 2;
    note("got %" PRIu64 " %s\n", now(), getenv("ELBOW_LOCK_TOKEN"));
    nap(atoi(argv[2]));
    note("back %" PRIu64 "\n", now());
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return hold(argv);
    if (argc != 5)
        return 2;
    begin(argv);
    while (goes_on())
        play(argv[4], argv);
    return 0;
}
