//! Deaths: of the service while clients work, of clients that hold.
//!
//! What is asserted of the clients is what an MPI program or a database needs: whoever has just been told by
//! [`Hold::check`] that a lock is its own is alone on those bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elbow_lock::{Client, Hold, LockError, LockMode, Wait};
use elbow_ranges::Footprint;
use rustix::process::Signal;

use super::lockd::{Lockd, until};

const CLIENTS: u64 = 8;
/// Pieces of the file that they fight for: fewer than clients.
const PIECES: u64 = 3;

/// What the clients did.
#[derive(Default)]
struct Tally {
    inside: [AtomicBool; PIECES as usize],
    worked: AtomicU64,
    lost: AtomicU64,
    stop: AtomicBool,
}

/// Locks a piece, works on it and gives it back, again and again. A lost lock is an answer, not a failure.
fn work(client: &Client, tally: &Tally, seed: u64) {
    let mut turn = seed;
    while !tally.stop.load(Ordering::Relaxed) {
        turn = turn
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let piece = (turn >> 33) % PIECES;
        let footprint = Footprint::from_list((0..10).map(|i| (i * 1000 + piece * 100, 100))).unwrap();
        match client.lock("/grid", footprint, LockMode::Exclusive, Wait::Forever) {
            Ok(hold) => work_on(&hold, tally, piece as usize),
            Err(error) => panic!("a request was not served and not lost: {error}"),
        }
    }
}

fn work_on(hold: &Hold, tally: &Tally, piece: usize) {
    for _ in 0..20 {
        match hold.check() {
            Ok(()) => {}
            Err(LockError::Lost { .. }) => {
                tally.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Err(error) => panic!("neither ours nor lost: {error}"),
        }
        // The I/O: much shorter than any lease.
        assert!(
            !tally.inside[piece].swap(true, Ordering::SeqCst),
            "two clients on one piece"
        );
        std::thread::sleep(Duration::from_micros(200));
        assert!(
            tally.inside[piece].swap(false, Ordering::SeqCst),
            "two clients on one piece"
        );
        tally.worked.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lets eight clients fight while `kill` kills the service, so many times; returns the sum of the locks that it saw asserted again.
pub(crate) fn fight_while(connect: impl Fn() -> Client, kills: u64, mut kill: impl FnMut() -> u64) -> u64 {
    // Those who fight may all end their work before they come back, and assert nothing: this one does not give its lock back.
    let bystander = connect();
    let lock = || bystander.lock("/held", Footprint::whole(), LockMode::Exclusive, Wait::Forever);
    let mut held = lock().unwrap();
    let tally = Arc::new(Tally::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|seed| {
            let (client, tally) = (connect(), Arc::clone(&tally));
            std::thread::spawn(move || work(&client, &tally, seed))
        })
        .collect();
    let mut counted = 0;
    for number in 0..kills {
        let before = tally.worked.load(Ordering::Relaxed);
        until("they work", || tally.worked.load(Ordering::Relaxed) > before + 200);
        let count = kill();
        match held.check() {
            Ok(()) => {}
            // Its lease may end before a busy machine has started the service again.
            Err(LockError::Lost { .. }) => held = lock().unwrap(),
            Err(error) => panic!("neither ours nor lost: {error}"),
        }
        let before = tally.worked.load(Ordering::Relaxed);
        until("they work again", || tally.worked.load(Ordering::Relaxed) > before + 50);
        counted += count;
        assert!(
            clients.iter().all(|client| !client.is_finished()),
            "a client died after kill {number}"
        );
    }
    tally.stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    counted
}

#[test]
fn no_two_clients_work_on_the_same_bytes_while_the_service_is_killed_and_restarted() {
    // On a busy machine it takes longer than half a second to start it again, and to come back.
    let mut lockd = Lockd::start(&["--ttl", "2s"]);
    let address = lockd.address();
    let reasserted = fight_while(
        || Client::connect(&address).unwrap(),
        5,
        || {
            lockd.kill_and_start_again();
            until("the grace period is over", || lockd.grace_left_ms() == 0);
            lockd.total("reasserted")
        },
    );
    assert!(
        reasserted > 0,
        "no lock was held when the service died: the test has tested nothing"
    );
}

#[test]
fn a_service_that_does_not_come_back_is_an_error_for_holders_and_for_those_who_wait() {
    let mut lockd = Lockd::start(&["--ttl", "300ms"]);
    let (holder, waiter) = (lockd.client(), lockd.client());
    let hold = holder
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .unwrap();
    let waits = std::thread::spawn(move || {
        waiter
            .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Forever)
            .map(|_| ())
    });
    until("one waits", || lockd.total("queued") == 1);
    lockd.kill();
    let began = Instant::now();
    let error = hold.check().unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5), "a holder must know soon");
    assert!(waits.join().unwrap().is_err());
}

#[test]
fn a_killed_holder_over_a_unix_socket_lets_the_next_one_in_at_once() {
    let lockd = Lockd::start(&[]);
    let file = lockd.directory.path().join("f");
    let mut holder = lockd
        .elbow(&["lock", "hold", "f", "--", "sleep", "60"])
        .spawn()
        .unwrap();
    until("it holds", || lockd.total("holds") == 1);
    let client = lockd.client();
    assert!(
        client
            .lock(&file, Footprint::whole(), LockMode::Exclusive, Wait::Try)
            .is_err()
    );
    holder.kill().unwrap();
    holder.wait().unwrap();
    client
        .lock(&file, Footprint::whole(), LockMode::Exclusive, Wait::For(1_000))
        .unwrap();
}

#[test]
fn a_killed_holder_over_tcp_lets_the_next_one_in_when_its_lease_is_over() {
    let lockd = Lockd::start(&["--listen", "tcp:127.0.0.1:0"]);
    let tcp = lockd.addresses[1].to_string();
    let file = lockd.directory.path().join("f");
    let words = [
        "lock", "hold", "f", "--ttl", "5s", "--server", &tcp, "--", "sleep", "60",
    ];
    let mut holder = lockd.elbow(&words).spawn().unwrap();
    until("it holds", || lockd.total("holds") == 1);
    holder.kill().unwrap();
    holder.wait().unwrap();
    let client = lockd.client();
    let early = client.lock(&file, Footprint::whole(), LockMode::Exclusive, Wait::For(50));
    assert!(
        early.is_err(),
        "the service cannot know yet whether the holder still writes"
    );
    client
        .lock(&file, Footprint::whole(), LockMode::Exclusive, Wait::For(30_000))
        .unwrap();
}

#[test]
fn a_stopped_client_has_lost_its_lock_before_anybody_else_gets_it() {
    let lockd = Lockd::start(&[]);
    let words = ["lock", "hold", "f", "--ttl", "600ms", "--", "sh", "-c", UNTIL_TOLD];
    let holder = lockd.elbow(&words).spawn().unwrap();
    until_command_runs(&lockd);
    let process = rustix::process::Pid::from_child(&holder);
    rustix::process::kill_process(process, Signal::STOP).unwrap();
    let file = lockd.directory.path().join("f");
    lockd
        .client()
        .lock(&file, Footprint::whole(), LockMode::Exclusive, Wait::For(30_000))
        .unwrap();
    rustix::process::kill_process(process, Signal::CONT).unwrap();
    let output = holder.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125), "it found out, and ended its command");
}

/// It is granted while it sleeps, and its lease ends before it wakes: it began its command beside the next holder.
#[test]
fn a_waiter_that_is_stopped_past_its_lease_asks_again() {
    let lockd = Lockd::start(&[]);
    let (file, ran) = (lockd.directory.path().join("f"), lockd.directory.path().join("ran"));
    let whole = |wait| {
        lockd
            .client()
            .lock(&file, Footprint::whole(), LockMode::Exclusive, wait)
            .unwrap()
    };
    let first = whole(Wait::Try);
    let words = ["lock", "hold", "f", "--ttl", "4s", "--", "touch", "ran"]; // It must not be over before it is granted.
    let mut waiter = lockd.elbow(&words).spawn().unwrap();
    until("it waits", || lockd.total("waits") == 1);
    let process = rustix::process::Pid::from_child(&waiter);
    rustix::process::kill_process(process, Signal::STOP).unwrap();
    first.release();
    until("it is granted", || lockd.total("grants") == 2);
    let second = whole(Wait::For(30_000));
    let waits = lockd.total("waits"); // The second has not waited if it came late.
    rustix::process::kill_process(process, Signal::CONT).unwrap();
    until("it has asked again", || {
        ran.exists() || lockd.total("waits") == waits + 1
    });
    assert!(!ran.exists(), "two hold it");
    second.finish().unwrap();
    assert!(waiter.wait().unwrap().success() && ran.exists());
}

/// A command that ended within a fifth of a second of the loss, before the next look, had "worked".
#[test]
fn a_command_that_ends_right_after_its_lock_was_lost_has_not_worked() {
    let lockd = Lockd::start(&["--ttl", "300ms"]);
    let process = lockd.process();
    // It is dead when the command ends: nobody has waited for it yet. Its first thread may be so before the others, which still hold its connections.
    let kill = format!(
        "kill -9 {process}; until grep -q '^State:.Z' /proc/{process}/status && [ /proc/{process}/task/* = /proc/{process}/task/{process} ] 2> /dev/null; do :; done"
    );
    let words = ["lock", "hold", "f", "--", "sh", "-c", &kill];
    let ended = lockd.elbow(&words).output().unwrap();
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(125), "{complaint}");
    assert!(complaint.contains("may have run without its lock"), "{complaint}");
}

const UNTIL_TOLD: &str = "trap 'exit 3' TERM; touch began; while :; do sleep 0.02; done";

/// Its grace period was as long as its own leases: then the lock was another's, while its holder, who was told of longer ones, went on.
#[test]
fn a_service_with_shorter_leases_waits_for_those_of_the_one_before() {
    let mut lockd = Lockd::start(&["--listen", "tcp:127.0.0.1:0", "--ttl", "5m"]);
    let holder = Client::connect(&lockd.addresses[1].to_string()).unwrap();
    let hold = holder
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .unwrap();
    let token = hold.token();
    for _ in 0..2 {
        lockd.kill();
        lockd.start_again_with("--ttl", "500ms");
        let left_ms = lockd.grace_left_ms();
        assert!(left_ms > 200_000, "{left_ms} ms of five minutes");
    }
    std::thread::sleep(Duration::from_secs(1)); // Its own leases would be over.
    let refused = lockd
        .client()
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Try);
    assert!(refused.is_err(), "granted with a token after {}", token.0);
    drop((hold, holder));
}

/// The service says that it is held before who asked has heard of it: stopped then, that one would ask again.
fn until_command_runs(lockd: &Lockd) {
    until("its command runs", || lockd.directory.path().join("began").exists());
}

/// Who slept while the service was restarted and granted, and was restarted once more, comes back to that one: meanwhile another may have had the lock. Over a Unix socket it has
/// no lease by which it would know.
#[test]
fn who_was_stopped_through_two_restarts_of_the_service_has_lost_its_lock() {
    let mut lockd = Lockd::start(&["--ttl", "5s"]); // Within that time all must come back to a service that was restarted.
    let mut sleeper = lockd
        .elbow(&["lock", "hold", "f", "--", "sh", "-c", UNTIL_TOLD])
        .spawn()
        .unwrap();
    until_command_runs(&lockd);
    let process = rustix::process::Pid::from_child(&sleeper);
    rustix::process::kill_process(process, Signal::STOP).unwrap();
    lockd.kill_and_start_again();
    let client = lockd.client();
    let file = lockd.directory.path().join("f");
    let hold = client
        .lock(&file, Footprint::whole(), LockMode::Exclusive, Wait::Forever)
        .unwrap();
    hold.check().unwrap();
    lockd.kill_and_start_again();
    rustix::process::kill_process(process, Signal::CONT).unwrap();
    until("it has come back", || {
        lockd.total("refused_not_reasserted") + lockd.total("reasserted") > 0
    });
    hold.check().unwrap();
    assert_eq!(sleeper.wait().unwrap().code(), Some(125), "it was told that it is lost");
    hold.finish().unwrap();
}

/// The address has moved to another machine, or somebody has removed the file.
#[test]
fn a_service_without_its_memory_grants_nothing_until_all_is_over() {
    let mut lockd = Lockd::start(&["--listen", "tcp:127.0.0.1:0", "--ttl", "5s"]);
    let (tcp, file) = (lockd.addresses[1].to_string(), lockd.directory.path().join("f"));
    let client = Client::connect(&tcp).unwrap();
    let whole = || client.lock(&file, Footprint::whole(), LockMode::Exclusive, Wait::Forever);
    let hold = whole().unwrap();
    let token = hold.token();
    lockd.kill();
    let spare = Lockd::start(&["--listen", &tcp, "--ttl", "5s"]);
    assert!(spare.grace_left_ms() > 0);
    let early = spare
        .client()
        .lock(&file, Footprint::whole(), LockMode::Exclusive, Wait::Try);
    assert!(early.is_err(), "the holder cannot know yet that its service is gone");
    assert!(matches!(hold.check(), Err(LockError::Lost { .. })));
    assert!(spare.epoch() > u64::from(token.epoch()) + 1);
    let first = Lockd::start(&["--listen", "tcp:127.0.0.1:0", "--first"]);
    assert_eq!(first.grace_left_ms(), 0);
}

/// Time stood still for all once the grace period was over and could not be noted: nobody who waited was told.
#[test]
fn who_waits_is_told_in_time_while_the_memory_cannot_be_written() {
    let place = tempfile::tempdir().unwrap();
    let [memory, away] = ["memory", "away"].map(|name| place.path().join(name));
    std::fs::create_dir(&memory).unwrap();
    let mut lockd = Lockd::start(&["--ttl", "5s", "--state", memory.join("state").to_str().unwrap()]);
    let hold = lockd
        .client()
        .lock("f", Footprint::whole(), LockMode::Exclusive, Wait::Forever)
        .unwrap();
    lockd.kill_and_start_again();
    std::fs::rename(&memory, &away).unwrap();
    assert!(lockd.grace_left_ms() > 0, "its end was noted before");
    drop(hold);
    let client = lockd.client();
    let ask = move |wait| client.lock("g", Footprint::whole(), LockMode::Exclusive, wait);
    let (told, answer) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let refused = ask(Wait::For(8_000)); // Longer than the grace period would be.
        told.send(refused.err().map(|error| error.to_string())).unwrap();
        ask(Wait::For(60_000)).unwrap().finish().unwrap();
    });
    let refused = answer
        .recv_timeout(Duration::from_secs(30))
        .expect("it is told in time");
    assert!(
        refused.is_some(),
        "granted, and the next incarnation would not know of it"
    );
    std::fs::rename(&away, &memory).unwrap();
    waiter.join().unwrap();
}

/// As the kernel's are: of 300 shells that locked what a child had held, 84 were refused.
#[test]
fn a_lock_is_free_when_its_process_has_been_waited_for() {
    let lockd = Lockd::start(&[]);
    holders_are_killed_and_waited_for(&lockd, &lockd.address(), &lockd.client(), |_| {});
}

/// Of 100 processes that hold a file by the lock service (or proxy) at `server`, each is killed and waited for; what it held is then tried for by
/// `client`. `signal` stops who serves them meanwhile, so that it finds both when it goes on: an end, and a question.
pub(crate) fn holders_are_killed_and_waited_for(lockd: &Lockd, server: &str, client: &Client, signal: impl Fn(Signal)) {
    let [file, began] = ["f", "began"].map(|name| lockd.directory.path().join(name));
    let script = ["sh", "-c", "touch began; exec sleep 60"];
    let command = [["lock", "hold", "f", "--server", server, "--"].as_slice(), &script].concat();
    for round in 0..100 {
        let mut holder = lockd.elbow(&command).spawn().unwrap();
        // Until then the command has a copy of the connection.
        until("it holds", || began.exists());
        std::fs::remove_file(&began).unwrap();
        signal(Signal::STOP);
        holder.kill().unwrap();
        holder.wait().unwrap();
        let hold = std::thread::scope(|scope| {
            let trying = scope.spawn(|| client.lock(&file, Footprint::whole(), LockMode::Exclusive, Wait::Try));
            std::thread::sleep(Duration::from_millis(3)); // So that it is likely to have asked; it must work otherwise, too.
            signal(Signal::CONT);
            trying.join().unwrap()
        });
        hold.unwrap_or_else(|error| panic!("round {round}: {error}"))
            .finish()
            .unwrap();
    }
}
