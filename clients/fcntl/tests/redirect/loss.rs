//! A lock service that goes away: nobody goes on as if nothing had happened.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use elbow_lock::{Client, FileName, LockMode, Owner, Wait, file_name};
use elbow_ranges::Footprint;

use crate::test_dir::{TestDir, complained, eventually, said};

const HOLDER: &str = r#"
import fcntl, sys, time
f = open("f", "w"); fcntl.lockf(f, fcntl.LOCK_EX); print("held", flush=True)
for _ in range(600):
    time.sleep(0.1)
    try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error: print(error.strerror, flush=True); sys.exit(7)
"#;

fn lose(test_dir: &mut TestDir, program: &str) -> (Option<i32>, String, String) {
    let mut child = test_dir
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
    test_dir.service.as_mut().unwrap().end();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(said(&ended), "");
    (ended.status.code(), rest, complained(&ended))
}

#[test]
fn the_process_ends_and_says_why() {
    let mut test_dir = TestDir::redirected();
    let (code, output, complaint) = lose(&mut test_dir, HOLDER);
    assert_eq!((code, &*output), (Some(125), ""), "{complaint}");
    assert!(complaint.contains("were lost"), "{complaint}");
    assert!(complaint.contains("/data/f"), "{complaint}");
}

#[test]
fn with_warn_the_next_lock_call_fails() {
    let mut test_dir = TestDir::redirected();
    test_dir.set("ELBOW_FCNTL_ON_LOSS", "warn");
    let (code, output, complaint) = lose(&mut test_dir, HOLDER);
    assert_eq!((code, &*output), (Some(7), "No locks available\n"), "{complaint}");
    assert!(complaint.contains("the next lock call fails"), "{complaint}");
}

#[test]
fn flock_is_lost_as_loudly() {
    let mut test_dir = TestDir::redirected();
    let (code, _, complaint) = lose(&mut test_dir, &HOLDER.replace("lockf", "flock"));
    assert_eq!(code, Some(125), "{complaint}");
    assert!(complaint.contains("were lost"), "{complaint}");
}

/// What a program does with what it holds, once its reader has seen the end of the session and before that could tell of it.
const BEFORE_THE_READER: &str = r#"
import fcntl, os, sys, time
f = open("f", "w"); CALL(f, fcntl.LOCK_EX); print("held", flush=True)
sys.stdin.readline()
NEXT
print("went on", flush=True); os._exit(0)
"#;

/// The reader is kept for a while where it has seen the end of the session; strace waits that while, also when the process has ended before.
fn start_with_a_slow_reader(test_dir: &TestDir, program: &str) -> Child {
    let mut command = test_dir.command("strace");
    command.args(["-f", "-qq", "-o", "strace.out", "-e", "trace=shutdown"]);
    command.args(["-e", "inject=shutdown:delay_enter=20000000", "python3", "-c", program]);
    piped(&mut command)
}

fn piped(command: &mut std::process::Command) -> Child {
    let pipes = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let mut held = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut held).unwrap();
    assert_eq!(&held, b"held\n");
    child
}

fn go_on(mut child: Child) -> Output {
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child.wait_with_output().unwrap()
}

/// The story: a thread that asked once more, after the session had ended and before the reader told of it, got a new session and the lock anew.
/// Others had had it in between, and nobody was told.
#[test]
fn who_comes_before_the_reader_learns_of_the_loss() {
    let again = "CALL(f, fcntl.LOCK_EX | fcntl.LOCK_NB)";
    let exec = "os.execlp('true', 'true')";
    // At once: each takes as long as a reader is kept.
    let cases = [
        ("fcntl.lockf", again),
        ("fcntl.lockf", "f.close()"),
        ("fcntl.lockf", exec),
        ("fcntl.flock", again),
        ("fcntl.flock", "f.close()"),
    ];
    let lose_it_first = &|call: &str, next: &str| {
        let mut test_dir = TestDir::redirected();
        let program = BEFORE_THE_READER.replace("NEXT", next).replace("CALL", call);
        let child = start_with_a_slow_reader(&test_dir, &program);
        test_dir.restart();
        let mut looks = 0;
        eventually("the reader has seen the end and is kept there", || {
            looks = if is_reader_kept(child.id()) { looks + 1 } else { 0 };
            looks > 10
        });
        let ended = go_on(child);
        let complaint = complained(&ended);
        assert_eq!(
            (ended.status.code(), &*said(&ended)),
            (Some(125), ""),
            "{call}, {next}: {complaint}"
        );
        assert_eq!(complaint.matches("were lost").count(), 1, "{call}, {next}: {complaint}");
    };
    std::thread::scope(|scope| {
        for (call, next) in cases {
            scope.spawn(move || lose_it_first(call, next));
        }
    });
}

/// A thread that writes on under its lock, whatever others do. Nobody reads what the process complains of.
const WRITER: &str = r#"
import fcntl, os, time
f = open("f", "a"); CALL(f, fcntl.LOCK_EX)
os.set_blocking(2, False)
try:
    while True: os.write(2, b"." * 4096)
except BlockingIOError: pass
os.set_blocking(2, True)
print("held", flush=True)
while True: os.write(f.fileno(), b"w"); time.sleep(0.001)
"#;

/// The story: the reader closed the socket when it heard that the locks were broken, and ended the process when it had said so. Others got the
/// lock in between.
#[test]
fn what_was_broken_is_nobody_elses_before_the_process_has_ended() {
    for call in ["fcntl.lockf", "fcntl.flock"] {
        let test_dir = TestDir::redirected();
        let holder = piped(test_dir.command("python3").args(["-c", &WRITER.replace("CALL", call)]));
        let client = Client::connect(&test_dir.service.as_ref().unwrap().url).unwrap();
        let path = test_dir.data.join("f");
        let mut file = file_name(&path).unwrap();
        if call == "fcntl.flock" {
            file = FileName::new(&[file.as_bytes(), b"//flock"].concat()).unwrap();
        }
        assert_eq!(client.break_locks(&file, None, false).unwrap().len(), 1, "{call}");
        let (owner, whole) = (Owner::of_this_thread(), Footprint::whole());
        let next = client.lock_as(owner, file, whole, LockMode::Exclusive, Wait::For(60_000));
        let written = || std::fs::metadata(&path).unwrap().len();
        let next = next.unwrap_or_else(|error| panic!("{call}: {error}"));
        let before = written();
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(written(), before, "{call}: two have it");
        assert!(before > 0, "{call}: nothing was written");
        next.finish().unwrap();
        let ended = holder.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(125), "{call}");
        assert!(!complained(&ended).contains("were lost"), "{call}: it could say so");
    }
}

/// What its child has locked for it, a shell writes under for as long as it has the file open; it is told, but does not know that it holds anything.
#[test]
fn what_a_child_locked_for_a_shell_is_nobody_elses_before_the_shell_has_ended() {
    let test_dir = TestDir::redirected();
    let script = "exec 9>f; flock 9; echo held; while [ ! -e end ]; do sleep 0.01; done";
    let shell = piped(test_dir.command("sh").args(["-c", script]));
    let client = Client::connect(&test_dir.service.as_ref().unwrap().url).unwrap();
    let path = file_name(&test_dir.data.join("f")).unwrap();
    let file = FileName::new(&[path.as_bytes(), b"//flock"].concat()).unwrap();
    assert_eq!(client.break_locks(&file, None, false).unwrap().len(), 1);
    let lock = |wait_ms| {
        client.lock_as(
            Owner::of_this_thread(),
            file.clone(),
            Footprint::whole(),
            LockMode::Exclusive,
            Wait::For(wait_ms),
        )
    };
    assert!(lock(1_000).is_err(), "two have it");
    std::fs::write(test_dir.data.join("end"), "").unwrap();
    lock(60_000).unwrap().finish().unwrap();
    let ended = shell.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    let complaint = complained(&ended);
    assert!(
        complaint.contains("if children have taken any, were lost"),
        "{complaint}"
    );
}

/// Whether the reader of the program that strace runs is stopped at a system call just now.
fn is_reader_kept(strace: u32) -> bool {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let programs = read(format!("/proc/{strace}/task/{strace}/children"));
    programs.split_whitespace().any(|program| {
        let threads = std::fs::read_dir(format!("/proc/{program}/task")).into_iter().flatten();
        threads
            .flatten()
            .map(|thread| read(format!("{}/stat", thread.path().display())))
            .any(|stat| stat.contains("(elbow-fcntl) t "))
    })
}

/// The story: flock of what is held already was answered without a look at the lease.
#[test]
fn who_was_stopped_past_the_lease_does_not_hold_by_asking_again() {
    const TTL_MS: u32 = 5000;
    let stopped_holders = ["fcntl.lockf", "fcntl.flock"].map(|call| {
        let test_dir = TestDir::redirected_over_tcp(TTL_MS);
        let stopped = "import signal; os.kill(os.getpid(), signal.SIGSTOP); CALL(f, fcntl.LOCK_EX | fcntl.LOCK_NB)";
        let program = BEFORE_THE_READER.replace("NEXT", stopped).replace("CALL", call);
        let mut child = piped(test_dir.command("python3").args(["-c", &program]));
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        eventually("it is stopped", || state().contains(") T "));
        (call, test_dir, child)
    });
    std::thread::sleep(std::time::Duration::from_millis(u64::from(TTL_MS) * 3 / 2)); // Past their leases.
    for (call, _test_dir, child) in stopped_holders {
        let pid = child.id().to_string();
        assert!(
            std::process::Command::new("kill")
                .args(["-CONT", &pid])
                .status()
                .unwrap()
                .success()
        );
        let ended = child.wait_with_output().unwrap();
        let complaint = complained(&ended);
        assert_eq!(
            (ended.status.code(), &*said(&ended)),
            (Some(125), ""),
            "{call}: {complaint}"
        );
    }
}

#[test]
fn a_process_that_holds_nothing_goes_on_with_the_next_service() {
    let mut test_dir = TestDir::redirected();
    let program = HOLDER.replace(
        "print(\"held\", flush=True)",
        "fcntl.lockf(f, fcntl.LOCK_UN); print(\"held\", flush=True); time.sleep(1)\n\
         fcntl.lockf(f, fcntl.LOCK_EX); print(\"again\"); sys.exit(0)",
    );
    let mut child = test_dir
        .command("python3")
        .args(["-c", &program])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    test_dir.restart();
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
    let mut test_dir = TestDir::redirected();
    test_dir.service.as_mut().unwrap().end();
    let output = test_dir.python("import fcntl\nfcntl.lockf(open('f', 'w'), fcntl.LOCK_EX)");
    let complaint = complained(&output);
    assert!(complaint.contains("cannot reach the lock service"), "{complaint}");
    assert!(complaint.contains("No locks available"), "{complaint}");
}

/// Over TCP a session lasts as long as its lease, which the redirect renews.
#[test]
fn leases_are_renewed_while_locks_are_held() {
    const TTL_MS: u32 = 10_000;
    let test_dir = TestDir::redirected_over_tcp(TTL_MS);
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
time.sleep(15) # Longer than a lease lasts that is not renewed.
subprocess.run([sys.executable, "-c", code])
f.close(); g.close()
subprocess.run([sys.executable, "-c", code])
"#;
    let output = test_dir.python(program);
    assert_eq!(said(&output), "11 11\nfree free\n", "{}", complained(&output));
}

/// Stands before a service, whose answers come through byte by byte, and over the first connection only so many of them.
struct ThrottledProxy {
    url: String,
    connections: Arc<AtomicUsize>,
    /// Whether the first connection has ended before a byte that was to come.
    has_withheld: Arc<AtomicBool>,
}

impl ThrottledProxy {
    fn before(service: &str, place: &std::path::Path, bytes_of_first: usize) -> Self {
        let listener = UnixListener::bind(place).unwrap();
        let service = service.strip_prefix("unix:").unwrap().to_owned();
        let (connections, has_withheld) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let noted = (Arc::clone(&connections), Arc::clone(&has_withheld));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let is_first = noted.0.fetch_add(1, Ordering::SeqCst) == 0;
                let at_most = if is_first { bytes_of_first } else { usize::MAX };
                let server = UnixStream::connect(&service).unwrap();
                let (mut up, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut up, &mut to);
                    to.shutdown(Shutdown::Both)
                });
                let has_withheld = Arc::clone(&noted.1);
                std::thread::spawn(move || forward(&server, &client, at_most, &has_withheld));
            }
        });
        let url = format!("unix:{}", place.display());
        Self {
            url,
            connections,
            has_withheld,
        }
    }
}

fn forward(server: &UnixStream, mut client: &UnixStream, at_most: usize, has_withheld: &AtomicBool) {
    let mut bytes = BufReader::new(server).bytes().map_while(Result::ok);
    for byte in bytes.by_ref().take(at_most) {
        if client.write_all(&[byte]).is_err() {
            break;
        }
    }
    if bytes.next().is_some() {
        has_withheld.store(true, Ordering::SeqCst);
    }
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

/// A link that ends within an answer, at each of its bytes: the call fails, and the next one is answered over another link from its beginning. How
/// long the answers are, each run has to see for itself: they name the process by its number.
#[test]
fn half_an_answer_ends_with_its_connection() {
    let program = r#"
import errno, fcntl, os, time
f = open("f", "w")
for _ in range(100):
    try: fcntl.lockf(f, fcntl.LOCK_EX); print("held", flush=True); os._exit(0)
    except OSError as error: assert error.errno == errno.ENOLCK, error
    time.sleep(0.02)
"#;
    let run = |bytes_of_first| {
        let mut test_dir = TestDir::redirected();
        let service = test_dir.service.as_ref().unwrap().url.clone();
        let between = ThrottledProxy::before(&service, &test_dir.data.with_file_name("between"), bytes_of_first);
        test_dir.set("ELBOW_LOCKS", &between.url);
        let output = test_dir.python(program);
        assert_eq!(
            said(&output),
            "held\n",
            "{bytes_of_first} bytes: {}",
            complained(&output)
        );
        between
    };
    for cut in 0.. {
        let between = run(cut);
        let connections = between.connections.load(Ordering::SeqCst);
        if !between.has_withheld.load(Ordering::SeqCst) {
            assert_eq!(connections, 1, "nothing was cut after {cut} bytes");
            assert!(cut > 20, "a welcome and a grant in {cut} bytes");
            break;
        }
        assert!(connections > 1, "cut after {cut} bytes");
    }
}
