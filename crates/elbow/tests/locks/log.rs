//! `ELBOW_LOG` of a service: sessions, requests and answers.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

use super::lockd::until;

fn elbow(words: &[&str], address: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elbow"));
    command.args(words).env("ELBOW_LOCKS", address).env_remove("ELBOW_LOG");
    command
}

/// A service that writes a log until it has ended well, and what somebody does with it meanwhile.
fn logged(level: &str, act: impl FnOnce(&str)) -> String {
    let directory = tempfile::tempdir().unwrap();
    let (socket, log) = (directory.path().join("socket"), directory.path().join("log"));
    let address = format!("unix:{}", socket.display());
    let mut serve = elbow(&["lockd", "serve", "--listen", &address], &address);
    serve.env("ELBOW_LOG", level).env("ELBOW_LOG_FILE", &log);
    let service = serve.stdout(std::process::Stdio::null()).spawn().unwrap();
    until("the service", || socket.exists());
    act(&address);
    end(service);
    read(&log)
}

fn end(mut service: Child) {
    kill_process(Pid::from_child(&service), Signal::TERM).unwrap();
    assert!(service.wait().unwrap().success());
}

fn read(log: &Path) -> String {
    fs::read_to_string(log).unwrap()
}

fn hold(address: &str, words: &[&str]) -> Option<i32> {
    let words = [&["lock", "hold"][..], words].concat();
    elbow(&words, address).status().unwrap().code()
}

#[test]
fn a_service_tells_sessions_requests_and_answers() {
    let log = logged("elbow_lock=debug", |address| {
        let program = env!("CARGO_BIN_EXE_elbow");
        let taken = ["/f", "--", program, "lock", "hold", "-n", "/f", "--", "true"];
        assert_ne!(hold(address, &taken), Some(0), "the inner one finds it taken");
    });
    let tells = |words: &[&str]| log.lines().any(|line| words.iter().all(|word| line.contains(word)));
    for words in [
        &["INFO", "a service begins", "epoch="][..],
        &["INFO", "a session begins", "session=1"],
        &[
            "DEBUG",
            "asks for a lock",
            "session=1",
            "Exclusive",
            "file=\"/f\"",
            "pieces=1",
        ],
        &["DEBUG", "is answered", "session=1", "Granted"],
        &["DEBUG", "is answered", "session=2", "Refused"],
        &["DEBUG", "Unlock"],
        &["INFO", "a session ends", "session=2"],
        &["INFO", "nothing new is granted any more"],
    ] {
        assert!(tells(words), "no line with {words:?}:\n{log}");
    }
}

#[test]
fn what_is_not_asked_for_is_not_told() {
    let log = logged("info", |address| {
        assert_eq!(hold(address, &["/f", "--", "true"]), Some(0));
    });
    assert!(
        log.contains("a session begins") && !log.contains("asks for a lock"),
        "{log}"
    );
}
