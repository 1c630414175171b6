//! A lock service that goes away: nobody goes on as if nothing had happened.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::ground::{Ground, complained, said};

const HOLDER: &str = r#"
import fcntl, sys, time
f = open("f", "w"); fcntl.lockf(f, fcntl.LOCK_EX); print("held", flush=True)
for _ in range(600):
    time.sleep(0.1)
    try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error: print(error.strerror, flush=True); sys.exit(7)
"#;

fn lose(ground: &mut Ground, program: &str) -> (Option<i32>, String, String) {
    let mut child = ground
        .command("python3")
        .args(["-c", program])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    ground.service.as_mut().unwrap().end();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(said(&ended), "");
    (ended.status.code(), rest, complained(&ended))
}

#[test]
fn the_process_ends_and_says_why() {
    let mut ground = Ground::redirected();
    let (code, output, complaint) = lose(&mut ground, HOLDER);
    assert_eq!((code, &*output), (Some(125), ""), "{complaint}");
    assert!(complaint.contains("were lost"), "{complaint}");
    assert!(complaint.contains("/data/f"), "{complaint}");
}

#[test]
fn with_warn_the_next_lock_call_fails() {
    let mut ground = Ground::redirected();
    ground.set("ELBOW_FCNTL_ON_LOSS", "warn");
    let (code, output, complaint) = lose(&mut ground, HOLDER);
    assert_eq!((code, &*output), (Some(7), "No locks available\n"), "{complaint}");
    assert!(complaint.contains("the next lock call fails"), "{complaint}");
}

#[test]
fn flock_is_lost_as_loudly() {
    let mut ground = Ground::redirected();
    let (code, _, complaint) = lose(&mut ground, &HOLDER.replace("lockf", "flock"));
    assert_eq!(code, Some(125), "{complaint}");
    assert!(complaint.contains("were lost"), "{complaint}");
}

#[test]
fn a_process_that_holds_nothing_goes_on_with_the_next_service() {
    let mut ground = Ground::redirected();
    let program = HOLDER.replace(
        "print(\"held\", flush=True)",
        "fcntl.lockf(f, fcntl.LOCK_UN); print(\"held\", flush=True); time.sleep(1)\n\
         fcntl.lockf(f, fcntl.LOCK_EX); print(\"again\"); sys.exit(0)",
    );
    let mut child = ground
        .command("python3")
        .args(["-c", &program])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    ground.restart();
    line.clear();
    output.read_line(&mut line).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(
        (ended.status.code(), &*line),
        (Some(0), "again\n"),
        "{}",
        complained(&ended)
    );
}

#[test]
fn without_a_service_a_lock_call_fails() {
    let mut ground = Ground::redirected();
    ground.service.as_mut().unwrap().end();
    let output = ground.python("import fcntl\nfcntl.lockf(open('f', 'w'), fcntl.LOCK_EX)");
    let complaint = complained(&output);
    assert!(complaint.contains("cannot reach the lock service"), "{complaint}");
    assert!(complaint.contains("No locks available"), "{complaint}");
}

/// Over TCP a session lives as long as its lease, which the redirect renews.
#[test]
fn leases_are_renewed_while_locks_are_held() {
    const TTL_MS: u32 = 3000;
    let ground = Ground::redirected_over_tcp(TTL_MS);
    let program = r#"
import fcntl, os, subprocess, sys, time
f = open("f", "w"); fcntl.lockf(f, fcntl.LOCK_EX); g = open("g", "w"); fcntl.flock(g, fcntl.LOCK_EX)
code = """
import fcntl
def tries(lock, name):
    try: lock(open(name, "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB); return 'free'
    except OSError as error: return error.errno
print(tries(fcntl.lockf, 'f'), tries(fcntl.flock, 'g'))
"""
time.sleep(6)
subprocess.run([sys.executable, "-c", code])
f.close(); g.close()
subprocess.run([sys.executable, "-c", code])
"#;
    let output = ground.python(program);
    assert_eq!(said(&output), "11 11\nfree free\n", "{}", complained(&output));
}
