/* LOG SEED STOPFILE URL: a client by libelbow_lock. */
#include "game.h"

#include <elbow_lock.h>

static elbow_lock_client_t *connected(const char *url)
{
    elbow_lock_client_t *client = NULL;
    while (goes_on() && !(client = elbow_lock_connect(url)))
        nap(20000);
    return client;
}

static void play(elbow_lock_client_t *client)
{
    struct wish wish = dream(1);
    elbow_lock_range_t ranges[PIECES];
    for (int i = 0; i < wish.count; i++)
        ranges[i] = (elbow_lock_range_t){wish.start[i], wish.length[i]};
    note_ask(&wish);
    elbow_lock_hold_t *hold = elbow_lock_hold(client, wish.file, ranges, (size_t)wish.count,
                                              wish.shared ? ELBOW_LOCK_SHARED : ELBOW_LOCK_EXCLUSIVE, wish.wait_ms);
    uint64_t at = now();
    if (!hold) {
        note("not %" PRIu64 " %s\n", at, strerrorname_np(errno));
        nap(5000);
        return;
    }
    note("got %" PRIu64 " %" PRIu64 "\n", at, elbow_lock_token(hold));
    for (int look = 0; look < wish.looks; look++) {
        uint64_t before = now();
        int result = elbow_lock_check(hold);
        note("%s %" PRIu64 " %" PRIu64 "\n", result ? "lost" : "ours", before, now());
        nap(wish.look_us);
    }
    note("back %" PRIu64 "\n", now());
    int result = elbow_lock_release(hold);
    note("done %" PRIu64 " %s\n", now(), result ? "lost" : "ours");
    nap(wish.pause_us);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    begin(argv);
    elbow_lock_client_t *client = connected(argv[4]);
    while (client && goes_on())
        play(client);
    return 0;
}
