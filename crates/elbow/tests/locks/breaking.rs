//! `elbow lock status FILE` and `elbow lock break`: who holds a file, and an end to that which lets nobody in too early.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use elbow_lock::{Client, FileName, Hold, LockError, LockMode, Owner, Wait, file_name};
use elbow_ranges::Footprint;
use rustix::process::{Pid, Signal, kill_process};

use super::lockd::{Lockd, until};
use super::proxy::Proxy;

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn name(lockd: &Lockd) -> FileName {
    file_name(&lockd.directory.path().join("f")).unwrap()
}

fn hold(client: &Client, file: &FileName, wait: Wait) -> Result<Hold, LockError> {
    client.lock_as(
        Owner::of_this_thread(),
        file.clone(),
        Footprint::whole(),
        LockMode::Exclusive,
        wait,
    )
}

/// Waits for the lock in a thread, and gives it when it is granted.
fn waiting(lockd: &Lockd, file: &FileName) -> Receiver<Hold> {
    let queued = lockd.total("queued");
    let (client, file, (granted, is_granted)) = (lockd.client(), file.clone(), channel());
    std::thread::spawn(move || granted.send(hold(&client, &file, Wait::Forever).unwrap()));
    until("it waits", || lockd.total("queued") > queued);
    is_granted
}

fn granted(is_granted: &Receiver<Hold>) -> Hold {
    is_granted
        .recv_timeout(Duration::from_secs(30))
        .expect("granted within 30 s")
}

#[test]
fn who_holds_one_file_and_who_waits_is_told() {
    let lockd = Lockd::start(&[]);
    let (_, out, _) = run(&mut lockd.elbow(&["lock", "status", "f"]));
    assert!(
        out.ends_with("/f: nobody holds a lock on it, and nobody waits for one\n"),
        "{out}"
    );

    let (client, file) = (lockd.client(), name(&lockd));
    let rows = Footprint::from_list((0..2_500).map(|i| (i * 400, 100))).unwrap();
    let held = client
        .lock_as(Owner(5), file.clone(), rows, LockMode::Shared, Wait::Try)
        .unwrap();
    let elsewhere = hold(&client, &FileName::new(b"dataset/7").unwrap(), Wait::Try).unwrap();
    let _waits = waiting(&lockd, &file);
    let (code, out, _) = run(&mut lockd.elbow(&["lock", "status", "f"]));
    let me = format!(
        "process {0} (uid {1} pid {0})",
        std::process::id(),
        rustix::process::geteuid().as_raw()
    );
    assert_eq!(code, Some(0));
    for part in [
        "/f: 1 held, 1 waiting",
        "held   shared",
        "0 + 2500 x 400 + [0, 100)",
        "waits  exclusive",
        "all  ",
        &me,
    ] {
        assert!(out.contains(part), "no {part:?} in {out}");
    }
    let token = format!("owner 5, token {}, holds 1 of other files", held.token().0);
    assert!(out.contains(&token), "no {token:?} in {out}");

    let (_, out, _) = run(&mut lockd.elbow(&["lock", "status", "--json", "--name", "dataset/7"]));
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&told["schema"], &told["file"], &told["held"]),
        (&1.into(), &"dataset/7".into(), &1.into())
    );
    let lock = &told["locks"][0];
    assert_eq!(
        (&lock["state"], &lock["token"]),
        (&"held".into(), &elsewhere.token().0.into())
    );
    assert_eq!(
        (&lock["exclusive"], &lock["posix"], &lock["elsewhere"]),
        (&true.into(), &false.into(), &1.into())
    );
    assert!(
        lock["client"].as_str().unwrap().contains(&me) && lock["since_unix_ms"].as_u64().unwrap() > 1_600_000_000_000
    );
}

/// A program that runs cannot be stopped by taking its lock away: others get it when it has given it back, and not when it was told.
#[test]
fn what_is_broken_is_granted_to_others_when_its_holder_has_given_it_back() {
    let lockd = Lockd::start(&[]);
    let (client, file) = (lockd.client(), name(&lockd));
    let held = hold(&client, &file, Wait::Try).unwrap();
    let waits = waiting(&lockd, &file);
    let (code, out, error) = run(&mut lockd.elbow(&["lock", "break", "f", "--wait", "200ms"]));
    assert_eq!(code, Some(1), "{out}{error}");
    assert!(
        out.contains("is told that its locks are lost") && error.contains("has not given back all, token "),
        "{out}{error}"
    );

    let lost = held.check().unwrap_err();
    assert!(
        matches!(&lost, LockError::Lost { .. }) && lost.to_string().contains("broke it"),
        "{lost}"
    );
    let (_, out, _) = run(&mut lockd.elbow(&["lock", "status", "f"]));
    assert!(
        out.contains("broken exclusive") && out.contains("waits  exclusive"),
        "{out}"
    );
    assert_eq!(
        waits.try_recv().unwrap_err(),
        TryRecvError::Empty,
        "granted while its holder may still write"
    );

    // It knows, and goes on without: a new session, beside the one that ends.
    let other = hold(&client, &FileName::new(b"dataset/7").unwrap(), Wait::Try).unwrap();
    other.check().unwrap();
    let token = held.token();
    drop(held);
    let next = granted(&waits);
    assert!(next.token() > token, "{:?} after {token:?}", next.token());
    next.finish().unwrap();
    other.finish().unwrap();
    until("they are given back", || lockd.total("holds") == 0); // The service may hear of it later than of what follows.
    let (code, out, _) = run(&mut lockd.elbow(&["lock", "break", "f"]));
    assert_eq!(code, Some(0));
    assert!(out.contains("nobody holds a lock on it"), "{out}");
    // It said 125.
    let (_, help, _) = run(&mut lockd.elbow(&["lock", "break", "--help"]));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains("0 when nothing of what was broken is held any more, or nobody held FILE;"),
        "{help}"
    );
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Also when it was stopped meanwhile: a stopped writer goes on where it was.
#[test]
fn a_command_whose_lock_is_broken_ends_before_others_get_it() {
    let lockd = Lockd::start(&[]);
    let log = lockd.directory.path().join("log");
    let script = "trap 'sleep 0.3; echo ended >> log; exit 0' TERM; touch begun; while :; do sleep 0.05; done";
    let words = ["lock", "hold", "f", "--", "sh", "-c", script];
    let holder = lockd.elbow(&words).stderr(Stdio::piped()).spawn().unwrap();
    // One that was granted it and does not know that yet would ask again.
    until("its command runs", || lockd.directory.path().join("begun").exists());
    signal(&holder, Signal::STOP);
    let (code, ..) = run(&mut lockd.elbow(&["lock", "break", "f", "--wait", "300ms"]));
    assert_eq!(code, Some(1), "a process that is stopped has given nothing back");
    assert_eq!(lockd.total("holds"), 1);
    signal(&holder, Signal::CONT);
    let next = lockd
        .elbow(&["lock", "hold", "f", "--", "sh", "-c", "echo next >> log"])
        .status()
        .unwrap();
    assert!(next.success());
    assert_eq!(std::fs::read_to_string(log).unwrap(), "ended\nnext\n");
    let Output { status, stderr, .. } = holder.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(125));
    assert!(String::from_utf8_lossy(&stderr).contains("broke it"), "{stderr:?}");
}

#[test]
fn with_force_what_is_broken_is_granted_at_once_with_a_larger_token() {
    let lockd = Lockd::start(&[]);
    let file = name(&lockd);
    let held = hold(&lockd.client(), &file, Wait::Try).unwrap();
    let (code, ..) = run(&mut lockd.elbow(&["lock", "break", "f", "--force"]));
    assert_eq!(code, Some(0));
    let next = hold(&lockd.client(), &file, Wait::Try).unwrap();
    assert!(next.token() > held.token());
    // Others are told at the same time.
    until("it hears of it", || matches!(held.check(), Err(LockError::Lost { .. })));
    drop(held); // Its farewell ends nothing of others.
    next.finish().unwrap();
}

#[test]
fn a_session_that_holds_other_files_is_broken_only_by_its_number() {
    let lockd = Lockd::start(&[]);
    let (client, file) = (lockd.client(), name(&lockd));
    let held = hold(&client, &file, Wait::Try).unwrap();
    let other = hold(&client, &FileName::new(b"dataset/7").unwrap(), Wait::Try).unwrap();
    let (code, _, error) = run(&mut lockd.elbow(&["lock", "break", "f"]));
    assert_eq!(code, Some(125));
    assert!(error.contains("holds 1 locks of other files too"), "{error}");
    held.check().unwrap();
    let session = client.look(&file).unwrap().locks[0].session.0.to_string();
    let (code, _, error) = run(&mut lockd.elbow(&["lock", "break", "f", "--session", "9999"]));
    assert_eq!(code, Some(125));
    assert!(error.contains("session 9999 holds nothing of it"), "{error}");
    let (code, ..) = run(&mut lockd.elbow(&["lock", "break", "f", "--session", &session, "--wait", "100ms"]));
    assert_eq!(code, Some(1));
    assert!(
        held.check().is_err() && other.check().is_err(),
        "both are of the session that ends"
    );
    drop(held);
    assert!(
        hold(&lockd.client(), &file, Wait::Try).is_err(),
        "all of the session is in use until all is given back"
    );
    drop(other);
    hold(&lockd.client(), &file, Wait::For(20_000))
        .unwrap()
        .finish()
        .unwrap();
}

/// Whose lease is over believes in nothing any more, and whose connection ends may.
#[test]
fn over_tcp_what_a_stopped_holder_had_is_free_when_its_lease_is_over() {
    let lockd = Lockd::start(&["--listen", "tcp:127.0.0.1:0", "--ttl", "2s"]);
    let tcp = lockd.addresses[1].to_string();
    let script = "touch begun; exec sleep 60";
    let words = ["lock", "hold", "--server", &tcp, "f", "--", "sh", "-c", script];
    let mut holder = lockd.elbow(&words).stderr(Stdio::null()).spawn().unwrap();
    // One that was granted it and does not know that yet would ask again.
    until("its command runs", || lockd.directory.path().join("begun").exists());
    signal(&holder, Signal::STOP);
    let (code, out, error) = run(&mut lockd.elbow(&["lock", "break", "f", "--wait", "20s"]));
    assert_eq!(code, Some(0), "{out}{error}");
    hold(&lockd.client(), &name(&lockd), Wait::Try)
        .unwrap()
        .finish()
        .unwrap();
    signal(&holder, Signal::CONT);
    assert_eq!(holder.wait().unwrap().code(), Some(125));

    let held = hold(&lockd.client(), &name(&lockd), Wait::Try).unwrap();
    let (code, _, error) = run(&mut lockd.elbow(&["lock", "break", "f", "--server", &tcp]));
    assert_eq!(code, Some(125));
    assert!(error.contains("who comes over TCP may break no locks"), "{error}");
    held.finish().unwrap();
}

/// What a proxy holds for its clients ends as a whole, and others get it when none of them can believe in it any more.
#[test]
fn what_a_proxy_holds_is_free_when_its_clients_know() {
    let lockd = Lockd::start(&["--ttl", "2s"]);
    let proxy = Proxy::start(&lockd, &lockd.address());
    let (client, file) = (proxy.client(), name(&lockd));
    let held = hold(&client, &file, Wait::Try).unwrap();
    let (code, _, error) = run(lockd.elbow(&["lock", "break", "f"]).env("ELBOW_LOCKS", proxy.address()));
    assert_eq!(code, Some(125));
    assert!(error.contains("a proxy breaks no locks"), "{error}");
    let (_, out, _) = run(lockd
        .elbow(&["lock", "status", "f"])
        .env("ELBOW_LOCKS", proxy.address()));
    assert!(out.contains("1 held") && out.contains("elbow lockd proxy"), "{out}");

    let (code, out, error) = run(&mut lockd.elbow(&["lock", "break", "f", "--wait", "20s"]));
    assert_eq!(code, Some(0), "{out}{error}");
    assert!(matches!(held.check(), Err(LockError::Lost { .. })));
    let next = hold(&lockd.client(), &file, Wait::Try).unwrap();
    assert!(next.token() > held.token());
    next.finish().unwrap();
    // It has a new session by now, and serves on.
    hold(&client, &file, Wait::For(20_000)).unwrap().finish().unwrap();
}

/// Another user's locks are not ours to break, and our own are; of a service that serves all users.
#[test]
fn another_users_locks_cannot_be_broken() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: needs root, to be two other users");
    }
    let lockd = Lockd::start(&["--users", "any"]);
    std::fs::set_permissions(lockd.directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = name(&lockd);
    // Where another user reaches it, wherever this was built.
    let program = lockd.directory.path().join("elbow");
    // Not by this process: what another test forks meanwhile would have it open for writing, and nobody could start it.
    let copy = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_elbow"))
        .arg(&program)
        .status();
    assert!(copy.unwrap().success());
    let as_user = |uid: u32, words: &[&str]| {
        let mut command = Command::new(&program);
        command
            .args(words)
            .env("ELBOW_LOCKS", lockd.address())
            .current_dir(lockd.directory.path())
            .uid(uid);
        command
    };
    let held = hold(&lockd.client(), &file, Wait::Try).unwrap();
    let (code, _, error) = run(&mut as_user(4242, &["lock", "break", "f"]));
    assert_eq!(code, Some(125));
    assert!(error.contains("uid 4242 may not break the locks of session"), "{error}");
    held.finish().unwrap();
    until("it is given back", || lockd.total("holds") == 0); // The service may hear of it later than of what follows.

    let mut theirs = as_user(4242, &["lock", "hold", "f", "--", "sh", "-c", "echo; exec sleep 60"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Its command says so; one that was granted it and does not know that yet would ask again.
    let said = theirs.stdout.as_mut().unwrap().read(&mut [0]);
    assert_eq!(said.unwrap(), 1, "it holds");
    let (code, _, error) = run(&mut as_user(4243, &["lock", "break", "f"]));
    assert_eq!(code, Some(125));
    assert!(error.contains("uid 4242, whose lock it is"), "{error}");
    let (code, out, error) = run(&mut as_user(4242, &["lock", "break", "f"]));
    assert_eq!(code, Some(0), "{out}{error}");
    assert_eq!(theirs.wait().unwrap().code(), Some(125));
}

/// A service of before: it would end the connection of who asks for what it does not know.
#[test]
fn an_older_service_is_not_asked_and_the_message_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("old");
    let listener = UnixListener::bind(&place).unwrap();
    let old = std::thread::spawn(move || {
        let mut heard = Vec::new();
        // Each command comes twice: as a client, and with what an older service may not know.
        (0..4).for_each(|_| welcome(next_of(&listener), &mut heard));
        heard
    });
    for words in [["lock", "status", "f"], ["lock", "break", "f"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_elbow"));
        let address = format!("unix:{}", place.display());
        let (code, _, error) = run(command
            .args(words)
            .env("ELBOW_LOCKS", address)
            .current_dir(directory.path()));
        assert_eq!(code, Some(125), "{words:?}");
        assert!(
            error.contains("older than this program and cannot look at one file"),
            "{error}"
        );
    }
    assert!(!old.join().unwrap().contains(&0x1a), "it was asked");
}

/// Who comes next; it fails where nobody does.
fn next_of(listener: &UnixListener) -> UnixStream {
    listener.set_nonblocking(true).unwrap();
    let mut stream = None;
    until("a client comes", || {
        stream = listener.accept().ok().map(|(stream, _)| stream);
        stream.is_some()
    });
    let stream = stream.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
}

/// Lets a client in as version 1 does; `heard` gets the types of what it says afterwards.
fn welcome(mut stream: UnixStream, heard: &mut Vec<u8>) {
    let frame = |stream: &mut UnixStream| {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        let mut payload = vec![0; u32::from_le_bytes(length) as usize];
        stream.read_exact(&mut payload).ok()?;
        Some(payload[0])
    };
    assert_eq!(frame(&mut stream), Some(0x01));
    let mut payload = vec![0x82, 1, 1, 0, 1, 0, 0]; // version 1, session 1, no lease, epoch 1, no grace
    payload.extend([0; 32]);
    let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
    bytes.extend(payload);
    stream.write_all(&bytes).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    heard.extend(std::iter::from_fn(|| frame(&mut stream)));
}
