//! `elbow lock hold|status|top` and the end of `elbow lockd`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use elbow_lock::{LockMode, Wait};
use elbow_ranges::Footprint;
use rustix::process::Signal;

use super::lockd::{Lockd, until};

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_command_runs_under_its_lock_and_its_exit_code_is_ours() {
    let lockd = Lockd::start(&[]);
    let (code, out, _) =
        run(&mut lockd.elbow(&["lock", "hold", "f", "--", "sh", "-c", "echo $ELBOW_LOCK_TOKEN; exit 7"]));
    assert_eq!(code, Some(7));
    assert!(out.trim().parse::<u64>().unwrap() > 0);
    let (code, _, error) = run(&mut lockd.elbow(&["lock", "hold", "f", "--", "./not-there"]));
    assert_eq!(code, Some(127), "{error}");
    let (code, ..) = run(&mut lockd.elbow(&["lock", "hold", "f", "--", "sh", "-c", "kill -9 $$"]));
    assert_eq!(code, Some(137));
}

/// A command that locks more found no service, or another one, when ours was named by `--server`.
#[test]
fn a_command_under_a_lock_finds_the_same_service() {
    let lockd = Lockd::start(&[]);
    let mut command = lockd.elbow(&["lock", "hold", "--server"]);
    let address = command
        .get_envs()
        .find(|(name, _)| *name == "ELBOW_LOCKS")
        .and_then(|(_, value)| value);
    let address = address.expect("the address of the service").to_owned();
    command.arg(&address).env_remove("ELBOW_LOCKS");
    command.args([
        "f",
        "--",
        "sh",
        "-c",
        "echo $ELBOW_LOCKS; cd /; \"$0\" lock hold -n g -- true",
        env!("CARGO_BIN_EXE_elbow"),
    ]);
    let (code, out, error) = run(&mut command);
    assert_eq!((code, out.trim()), (Some(0), address.to_str().unwrap()), "{error}");
}

#[test]
fn only_the_bytes_that_were_named_are_locked() {
    let lockd = Lockd::start(&[]);
    let file = lockd.directory.path().join("f");
    let client = lockd.client();
    let held = Footprint::from_list([(0, 4096), (8192, 4096)]).unwrap();
    let _hold = client.lock(&file, held, LockMode::Exclusive, Wait::Try).unwrap();
    for (range, code) in [
        ("4096:4096", 0),
        ("4095:1", 1),
        ("8192:1", 1),
        ("12288:1", 0),
        ("0:1M", 1),
    ] {
        let words = ["lock", "hold", "-n", "f", "--range", range, "--", "true"];
        assert_eq!(run(&mut lockd.elbow(&words)).0, Some(code), "{range}");
    }
    let words = ["lock", "hold", "f", "--timeout", "50ms", "-E", "9", "--", "true"];
    let (code, _, error) = run(&mut lockd.elbow(&words));
    assert_eq!(code, Some(9));
    assert!(error.contains("for as long as this request could wait"), "{error}");
}

#[test]
fn shared_locks_go_together_and_a_writer_waits_for_them() {
    let lockd = Lockd::start(&[]);
    let mut reader = lockd
        .elbow(&["lock", "hold", "--shared", "f", "--", "sleep", "30"])
        .spawn()
        .unwrap();
    until("the reader holds", || lockd.total("holds") == 1);
    assert_eq!(
        run(&mut lockd.elbow(&["lock", "hold", "--shared", "-n", "f", "--", "true"])).0,
        Some(0)
    );
    assert_eq!(
        run(&mut lockd.elbow(&["lock", "hold", "-n", "f", "--", "true"])).0,
        Some(1)
    );
    let mut writer = lockd.elbow(&["lock", "hold", "f", "--", "true"]).spawn().unwrap();
    until("the writer waits", || lockd.total("queued") == 1);
    let (_, lines, _) = run(&mut lockd.elbow(&["lock", "status"]));
    assert!(
        lines.contains("f: 1 held, 1 waiting") && lines.contains("held  shared"),
        "{lines}"
    );
    let (_, lines, _) = run(&mut lockd.elbow(&["lock", "top", "--looks", "2", "--interval", "10ms"]));
    assert_eq!(lines.matches("grants/s").count(), 2, "{lines}");

    // Killed, and its `sleep` with it or not: the lock is the process's that asked for it.
    reader.kill().unwrap();
    assert_eq!(writer.wait().unwrap().code(), Some(0));
    reader.wait().unwrap();
}

#[test]
fn a_command_that_loses_its_lock_is_told_to_end() {
    let lockd = Lockd::start(&["--ttl", "1s"]);
    let words = [
        "lock",
        "hold",
        "f",
        "--",
        "sh",
        "-c",
        "trap 'exit 0' TERM; while :; do sleep 0.05; done",
    ];
    let command = lockd.elbow(&words).spawn().unwrap();
    until("it holds", || lockd.total("holds") == 1);
    lockd.signal(Signal::KILL);
    let output = command.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn a_service_told_to_end_waits_for_locks_and_the_next_one_has_no_grace_period() {
    let lockd = Lockd::start(&["--drain", "20s"]);
    let client = lockd.client();
    let hold = client
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .unwrap();
    let token = hold.token();
    lockd.signal(Signal::TERM);
    let other = lockd.client();
    until("it refuses new ones", || {
        other
            .lock("/g", Footprint::whole(), LockMode::Shared, Wait::Try)
            .is_err()
    });
    hold.finish().unwrap();
    let state = lockd.directory.path().join("socket.state");
    let kept = lockd
        .directory
        .path()
        .join("..")
        .canonicalize()
        .unwrap()
        .join(format!("elbow-kept-{}", std::process::id()));
    until("it has ended", || !lockd.directory.path().join("socket").exists());
    std::fs::copy(&state, &kept).unwrap();
    assert_eq!(lockd.end(), Some(0));

    let next = Lockd::start(&["--state", kept.to_str().unwrap()]);
    let hold = next
        .client()
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .unwrap();
    assert!(hold.token() > token, "{:?} after {token:?}", hold.token());
    std::fs::remove_file(kept).unwrap();
}

#[test]
fn a_service_that_cannot_begin_says_why() {
    let lockd = Lockd::start(&[]);
    let again = ["lockd", "serve", "--listen", &lockd.address()];
    let (code, _, error) = run(&mut lockd.elbow(&again));
    assert_eq!(code, Some(125));
    assert!(error.contains("another lock service runs with it"), "{error}");

    std::fs::write(lockd.directory.path().join("precious"), "data").unwrap();
    let onto = format!("unix:{}/precious", lockd.directory.path().display());
    let (code, ..) = run(&mut lockd.elbow(&["lockd", "serve", "--listen", &onto]));
    assert_eq!(code, Some(125));
    assert_eq!(std::fs::read(lockd.directory.path().join("precious")).unwrap(), b"data");

    let open = ["lockd", "serve", "--listen", "tcp:0.0.0.0:0", "--state", "open.state"];
    let (code, _, error) = run(&mut lockd.elbow(&open));
    assert_eq!(code, Some(125));
    assert!(error.contains("needs a key file"), "{error}");

    let (code, _, error) = run(lockd
        .elbow(&["lock", "status"])
        .env("ELBOW_LOCKS", "unix:/nowhere/socket"));
    assert_eq!(code, Some(125));
    assert!(
        error.contains("cannot reach the lock service at unix:/nowhere/socket"),
        "{error}"
    );
    let (code, _, error) = run(lockd.elbow(&["lock", "status"]).env_remove("ELBOW_LOCKS"));
    assert_eq!(code, Some(125));
    assert!(error.contains("--server"), "{error}");
    assert_eq!(lockd.total("holds"), 0, "the first one still serves");
}

/// What cannot begin has had no clients. It left a state, and the next service took it for one that had crashed.
#[test]
fn a_service_that_could_not_begin_leaves_the_next_one_nothing_to_wait_for() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap().to_string();
    let listen = format!("tcp:{busy}");
    for wrong in [
        &["--metrics", "foo"][..],
        &["--metrics", &busy],
        &["--first", "--listen", &listen],
    ] {
        let directory = tempfile::tempdir().unwrap();
        let socket = format!("unix:{}/socket", directory.path().display());
        let mut elbow = Command::new(env!("CARGO_BIN_EXE_elbow"));
        let (code, _, error) = run(elbow.args(["lockd", "serve", "--listen", &socket]).args(wrong));
        assert_eq!(code, Some(125), "{wrong:?}: {error}");
        let left = |name: &str| directory.path().join(name).exists();
        assert!(!left("socket.state") && !left("socket"), "{wrong:?}");
    }
    // What a crash has left is as it was, too.
    let mut crashed = Lockd::start(&["--ttl", "1m"]);
    crashed.kill();
    let file = crashed.directory.path().join("socket.state");
    let before = std::fs::read(&file).unwrap();
    let (socket, wrong) = (crashed.address(), ["--metrics", "foo"]);
    let (code, ..) = run(crashed.elbow(&["lockd", "serve", "--listen", &socket]).args(wrong));
    assert_eq!((code, std::fs::read(&file).unwrap()), (Some(125), before));
}

/// Where its state is lost, the socket of a service that has died is all that tells of it, and one that could not begin has replaced that.
#[test]
fn a_service_that_could_not_begin_leaves_word_of_the_one_before_it() {
    let mut lockd = Lockd::start(&["--ttl", "1m"]);
    lockd.kill();
    std::fs::remove_file(lockd.directory.path().join("socket.state")).unwrap();
    let again = ["lockd", "serve", "--listen", &lockd.address(), "--metrics", "foo"];
    let (code, ..) = run(&mut lockd.elbow(&again));
    assert_eq!(code, Some(125));
    lockd.start_again();
    assert!(lockd.grace_left_ms() > 0, "nobody was waited for");
}

/// With `--ttl 0s` a lock over TCP was another's at once, and its holder was told nothing of it.
#[test]
fn leases_that_nobody_can_renew_are_refused() {
    for short in ["0s", "99ms"] {
        let directory = tempfile::tempdir().unwrap();
        let socket = format!("unix:{}/socket", directory.path().display());
        for command in [&["serve"][..], &["proxy", "--server", "unix:/nowhere"]] {
            let mut elbow = Command::new(env!("CARGO_BIN_EXE_elbow"));
            let words = ["--listen", &socket, "--ttl", short];
            let (code, _, error) = run(elbow.arg("lockd").args(command).args(words));
            assert_eq!(code, Some(125), "{command:?}: {error}");
            assert!(error.contains(short) && error.contains("100ms or more"), "{error}");
        }
    }
}

/// It went on for ever, in a pipe that nobody read.
#[test]
fn top_ends_when_nobody_reads_it_any_more() {
    let lockd = Lockd::start(&[]);
    let mut top = lockd.elbow(&["lock", "top", "--interval", "50ms"]);
    let mut top = top.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(top.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("lock service"), "{line}");
    let mut ended = None;
    until("it ends", || {
        ended = top.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.code()), Some(0));
}

/// "path must be shorter than SUN_LEN".
#[test]
fn a_path_that_no_socket_can_have_is_told_so() {
    let long = format!("unix:/tmp/{}", "x".repeat(120));
    for words in [
        &["lockd", "serve", "--listen", &long][..],
        &["lock", "status", "--server", &long],
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut elbow = Command::new(env!("CARGO_BIN_EXE_elbow"));
        elbow.args(words).current_dir(&directory);
        if words.contains(&"serve") {
            elbow.args(["--state", "state"]);
        }
        let (code, _, error) = run(&mut elbow);
        assert_eq!(code, Some(125));
        assert!(error.contains("107 bytes at most, and this one has 125"), "{error}");
    }
}

/// A request with a time-out made the service's timer wake itself without end, on the thread that served its client.
#[test]
fn a_service_with_a_request_that_times_out_sleeps_until_then() {
    let lockd = Lockd::start(&[]);
    let (holder, waiter) = (lockd.client(), lockd.client());
    let hold = holder
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::Try)
        .unwrap();
    let before = lockd.processor_seconds();
    let error = waiter
        .lock("/f", Footprint::whole(), LockMode::Exclusive, Wait::For(2_000))
        .unwrap_err();
    assert!(error.to_string().contains("for as long as"), "{error}");
    let took = lockd.processor_seconds() - before;
    assert!(took < 0.5, "waiting took {took} s of a processor");
    hold.finish().unwrap();
}

/// "Address already in use", and what the service remembers was left beside it.
#[test]
fn a_service_listens_at_no_file_of_somebody() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "x").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_elbow"));
    command
        .current_dir(&directory)
        .args(["lockd", "serve", "--listen", "unix:./file"]);
    let (code, _, error) = run(&mut command);
    assert_eq!(code, Some(125));
    assert!(error.contains("file: it is there, and no socket"), "{error}");
    let names = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["file"]);
}
