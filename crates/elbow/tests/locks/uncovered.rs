//! Programs that the redirect of `elbow lock exec` does not reach, and that lock below its prefix all the same.
//!
//! They ran without a word, took locks of the kernel that excluded nobody, and the run ended with 0: of 8,000 counts of eight programs in Go 2 were left, and
//! of a hundred rounds under a launcher that dropped the environment 11 were torn.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

use super::lockd::{Lockd, until};
use crate::preload::{self, said};

/// A service, with `dynamic` and `static` in its directory (`tests/locks/c/locker.c`), and a directory `below`, whose locks it has.
struct Testbed(Lockd);

impl Testbed {
    fn new() -> Option<Self> {
        preload::library("libelbow_fcntl.so")?;
        let lockd = Lockd::start(&[]);
        let here = lockd.directory.path();
        std::fs::create_dir(here.join("below")).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks/c/locker.c");
        for (program, option) in [("dynamic", "-O1"), ("static", "-static")] {
            let mut compiler = Command::new("cc");
            compiler
                .args(["-Wall", "-Wextra", "-Werror", option, "-o"])
                .arg(here.join(program))
                .arg(&source);
            assert!(compiler.status().unwrap().success());
        }
        Some(Self(lockd))
    }

    fn exec(&self, options: &[&str], script: &str) -> Command {
        let mut elbow = self.0.elbow(&["lock", "exec", "--prefix", "below"]);
        elbow
            .args(options)
            .args(["--", "sh", "-c", script])
            .env_remove("LD_PRELOAD");
        elbow
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        self.exec(options, script).output().unwrap()
    }

    /// What stands in messages about a file in its directory.
    fn shown(&self, name: &str) -> String {
        self.0
            .directory
            .path()
            .canonicalize()
            .unwrap()
            .join(name)
            .display()
            .to_string()
    }
}

/// What a locker said: its process, and the errno.
fn answers(output: &Output) -> Vec<(String, i32)> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    words
        .map(|words| (words[0].to_owned(), words[2].parse().unwrap()))
        .collect()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn who_locks_past_the_service_is_named_refused_and_fails_the_run() {
    let Some(testbed) = Testbed::new() else { return };
    let mut ways = vec![
        ("./static fcntl below/f; true", "static", "is linked statically"),
        ("./static ofd below/f; true", "static", "is linked statically"),
        ("./static flock below/f; true", "static", "is linked statically"),
        ("env -i ./dynamic flock below/f; true", "dynamic", "LD_PRELOAD was lost"),
        (
            "unset LD_PRELOAD; ./dynamic fcntl below/f; true",
            "dynamic",
            "LD_PRELOAD was lost",
        ),
        ("./dynamic raw below/f; true", "dynamic", "without libc"),
        ("(./dynamic raw below/f); true", "dynamic", "without libc"),
    ];
    if cfg!(target_arch = "x86_64") {
        ways.push(("./dynamic x32 below/f; true", "dynamic", "without libc"));
        ways.push(("./dynamic int80 below/f; true", "dynamic", "without libc"));
    }
    for (script, program, why) in ways {
        let output = testbed.run(&[], script);
        let told = complaint(&output);
        let [(process, errno)] = &answers(&output)[..] else {
            panic!("{script}: {}", said(&output))
        };
        assert_eq!(
            (*errno, output.status.code()),
            (libc::ENOLCK, Some(125)),
            "{script}: {told}"
        );
        let (program, file) = (testbed.shown(program), testbed.shown("below/f"));
        let line = format!("elbow: process {process} ({program}) locks {file} past the lock service");
        let line = told
            .lines()
            .find(|told| told.starts_with(&line))
            .unwrap_or_else(|| panic!("{script}: {told}"));
        assert!(line.contains(why), "{script}: {line}");
        assert!(told.contains("locks of one process"), "{script}: {told}");
    }
    assert_eq!(testbed.0.total("grants"), 0);
}

/// A lock of the whole file by syscall.FcntlFlock, and what the C program here says of it.
const IN_GO: &str = r#"package main

import (
	"fmt"
	"os"
	"syscall"
)

func main() {
	file, err := os.OpenFile(os.Args[1], os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK}
	number := syscall.Errno(0)
	if err := syscall.FcntlFlock(file.Fd(), syscall.F_SETLK, &lock); err != nil {
		number = err.(syscall.Errno)
	}
	fmt.Println(os.Getpid(), os.Args[1], int(number))
}
"#;

/// Builds a program in Go in the bed's directory, without a network. No: there is no Go here.
fn build_in_go(testbed: &Testbed, name: &str, source: &str, options: &[&str], cgo: &str) -> bool {
    let place = testbed.0.directory.path();
    let module = place.join(format!("{name}.module"));
    std::fs::create_dir(&module).unwrap();
    std::fs::write(module.join("go.mod"), "module locker\n\ngo 1.18\n").unwrap();
    std::fs::write(module.join("main.go"), source).unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(place.join(name)).args(options);
    go.current_dir(&module).env("HOME", place).env("CGO_ENABLED", cgo);
    for (variable, value) in [
        ("GOFLAGS", "-mod=mod"),
        ("GOPROXY", "off"),
        ("GOTOOLCHAIN", "local"),
        ("GOWORK", "off"),
    ] {
        go.env(variable, value);
    }
    for (variable, directory) in [("GOCACHE", "go.cache"), ("GOPATH", "go.path")] {
        go.env(variable, place.join(directory));
    }
    match go.output() {
        Ok(built) => assert!(built.status.success(), "{name}: {}", said(&built)),
        Err(error) => {
            // Nothing of ours brings it along, so this is no failure where CI is set either.
            println!("SKIPPED: no program in Go can be built here ({error})");
            return false;
        }
    }
    true
}

/// The heads of programs were made up, and the programs that damaged files were real.
#[test]
fn programs_in_go_are_refused_at_the_start_and_found_when_a_shell_runs_them() {
    let Some(testbed) = Testbed::new() else { return };
    let with_c = IN_GO.replace("package main\n", "package main\n\nimport \"C\"\n");
    let external = ["-ldflags", "-linkmode=external"];
    let programs: [(&str, &str, &[&str], &str, &str); 3] = [
        ("static", IN_GO, &[], "0", "is linked statically"),
        ("dynamic", IN_GO, &external, "1", "is written in Go"),
        ("with-c", &with_c, &[], "1", "is written in Go"),
    ];
    for (kind, source, options, cgo, why) in programs {
        let name = format!("go-{kind}");
        if !build_in_go(&testbed, &name, source, options, cgo) {
            return;
        }
        let mut elbow = testbed.0.elbow(&["lock", "exec", "--prefix", "below", "--"]);
        let output = elbow.args([&*format!("./{name}"), "below/f"]).output().unwrap();
        let told = complaint(&output);
        assert_eq!(output.status.code(), Some(125), "{name}: {told}");
        assert!(
            told.contains(why) && output.stdout.is_empty(),
            "{name}: {}",
            said(&output)
        );
        let output = testbed.run(&[], &format!("./{name} below/f; true"));
        let told = complaint(&output);
        let [(process, errno)] = &answers(&output)[..] else {
            panic!("{name}: {}", said(&output))
        };
        let refused = (*errno, output.status.code());
        assert_eq!(refused, (libc::ENOLCK, Some(125)), "{name}: {told}");
        let (program, file) = (testbed.shown(&name), testbed.shown("below/f"));
        let line = format!("elbow: process {process} ({program}) locks {file} past the lock service");
        assert!(told.contains(&line) && told.contains(why), "{name}: {told}");
        // The lock itself is one that the kernel grants.
        let output = testbed.run(&[], &format!("./{name} other"));
        assert_eq!((answers(&output)[0].1, output.status.code()), (0, Some(0)), "{name}");
    }
    assert_eq!(testbed.0.total("grants"), 0);
}

#[test]
fn the_same_through_the_service_is_no_mistake() {
    let Some(testbed) = Testbed::new() else { return };
    for how in ["fcntl", "ofd", "flock"] {
        let output = testbed.run(&[], &format!("./dynamic {how} below/f; exit 3"));
        assert_eq!((complaint(&output).as_str(), output.status.code()), ("", Some(3)));
        assert_eq!(answers(&output)[0].1, 0, "{how}");
    }
    assert_eq!(testbed.0.total("grants"), 3);
}

#[test]
fn who_locks_other_files_or_none_is_left_alone() {
    let Some(testbed) = Testbed::new() else { return };
    // The directory itself is locked by the kernel whoever asks.
    let script = "./static flock other; ./static fcntl other; ./dynamic raw other; env -i ./dynamic ofd other; \
                  env -i flock below true; env -i sh -c 'echo text >below/f'";
    let output = testbed.run(&[], script);
    assert_eq!((complaint(&output).as_str(), output.status.code()), ("", Some(0)));
    assert!(
        answers(&output).iter().all(|(_, errno)| *errno == 0),
        "{}",
        said(&output)
    );
    // A bad descriptor is the kernel's to tell.
    let output = testbed.run(&[], "env -i python3 -c 'import fcntl; fcntl.flock(77, fcntl.LOCK_EX)'");
    assert!(complaint(&output).contains("Bad file descriptor"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn each_process_is_told_once() {
    let Some(testbed) = Testbed::new() else { return };
    let output = testbed.run(&[], "./static fcntl below/a below/b below/c; ./static flock below/a");
    let told = complaint(&output);
    assert_eq!(told.matches("past the lock service").count(), 2, "{told}");
    assert!(told.contains("locks of 2 processes"), "{told}");
}

#[test]
fn with_warn_they_are_told_and_go_on_and_with_ignore_nobody_looks() {
    let Some(testbed) = Testbed::new() else { return };
    for (choice, told) in [("warn", true), ("ignore", false)] {
        let output = testbed.run(&["--uncovered", choice], "./static flock below/f; exit 3");
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert_eq!(answers(&output)[0].1, 0, "{}", said(&output));
        assert_eq!(
            complaint(&output).contains("a lock of the kernel alone"),
            told,
            "{}",
            said(&output)
        );
        // What is known before the start is treated alike.
        let mut elbow = testbed
            .0
            .elbow(&["lock", "exec", "--prefix", "below", "--uncovered", choice]);
        let output = elbow.args(["--", "./static", "flock", "below/f"]).output().unwrap();
        assert_eq!((output.status.code(), answers(&output)[0].1), (Some(0), 0));
        assert_eq!(
            complaint(&output).contains("is linked statically: its locks"),
            told,
            "{}",
            said(&output)
        );
    }
}

/// Without `CAP_SYS_ADMIN` the filter needs `no_new_privs`.
#[test]
fn it_needs_no_rights() {
    let Some(testbed) = Testbed::new() else { return };
    let mut setpriv = Command::new("setpriv");
    let is_root = rustix::process::geteuid().is_root();
    let without = ["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];
    setpriv.args(without.iter().filter(|_| is_root)).arg("--");
    let exec = testbed.exec(
        &[],
        "grep NoNewPrivs: /proc/self/status >below/rights; ./static flock below/f; true",
    );
    setpriv.arg(exec.get_program()).args(exec.get_args());
    setpriv.envs(exec.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = setpriv.current_dir(testbed.0.directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    assert!(
        complaint(&output).contains("past the lock service"),
        "{}",
        said(&output)
    );
    let rights = std::fs::read_to_string(testbed.0.directory.path().join("below/rights")).unwrap();
    assert_eq!(rights, "NoNewPrivs:\t1\n", "it was run without rights");
}

#[test]
fn within_another_run_for_the_same_directories_the_outer_one_looks() {
    let Some(testbed) = Testbed::new() else { return };
    let inner = |prefix: &str, options: &str| {
        format!(
            "'{}' lock exec --prefix {prefix} {options} -- sh -c './static flock below/f'",
            env!("CARGO_BIN_EXE_elbow")
        )
    };
    let output = testbed.run(&[], &inner("below", ""));
    let told = complaint(&output);
    assert_eq!(
        (output.status.code(), answers(&output)[0].1),
        (Some(125), libc::ENOLCK),
        "{told}"
    );
    assert!(!told.contains("cannot be seen"), "{told}");
    let output = testbed.run(&["--uncovered", "warn"], &inner(".", ""));
    assert!(
        complaint(&output).contains("cannot be seen here: somebody else looks"),
        "{}",
        said(&output)
    );
    let output = testbed.run(&[], &inner(".", "--uncovered fail"));
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(125), &b""[..]),
        "{}",
        said(&output)
    );
}

/// Starts a run whose command says `ready`.
fn start(testbed: &Testbed, script: &str) -> Child {
    let mut run = testbed
        .exec(&[], script)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = run.stdout.as_mut().unwrap();
    // Byte for byte: what comes later is not ours.
    let mut bytes = std::io::Read::bytes(output);
    while !line.ends_with('\n') {
        line.push(bytes.next().expect("the command is ready").unwrap().into());
    }
    assert_eq!(line, "ready\n");
    run
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// A process of that name that a process has started.
fn child_of(parent: u32, name: &str) -> Option<u32> {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has_name = |process: &u32| {
        let found = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        found.trim() == name && parent_of(*process) == Some(parent)
    };
    processes.into_iter().find(has_name)
}

/// Nobody waits for it before the command begins, so it may not have its name yet.
fn lookout_of(run: &Child) -> u32 {
    let lookout = || child_of(run.id(), "elbow-lookout");
    until("there is a lookout", || lookout().is_some());
    lookout().unwrap()
}

fn kill(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal).unwrap();
}

fn is_there(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

#[test]
fn when_the_lookout_dies_no_lock_is_taken_in_secret_and_the_run_fails() {
    let Some(testbed) = Testbed::new() else { return };
    let run = start(
        &testbed,
        "echo ready; while [ ! -e go ]; do sleep 0.01; done; ./static flock below/f; ./dynamic flock below/f",
    );
    kill(lookout_of(&run), Signal::KILL);
    std::fs::write(testbed.0.directory.path().join("go"), "").unwrap();
    let output = run.wait_with_output().unwrap();
    let errors: Vec<i32> = answers(&output).into_iter().map(|(_, errno)| errno).collect();
    assert_eq!(
        (errors, output.status.code()),
        (vec![libc::ENOSYS, 0], Some(125)),
        "{}",
        said(&output)
    );
    assert!(complaint(&output).contains("has died"), "{}", said(&output));
}

#[test]
fn what_the_command_leaves_behind_is_looked_at_and_nobody_waits_for_it() {
    let Some(testbed) = Testbed::new() else { return };
    let here = testbed.0.directory.path();
    let script = "(exec >later 2>&1 </dev/null; while [ ! -e go ]; do sleep 0.01; done; ./static flock below/f other; \
                  ./dynamic flock below/f; echo done) & echo ready; while [ ! -e end ]; do sleep 0.01; done";
    let run = start(&testbed, script);
    let lookout = lookout_of(&run);
    std::fs::write(here.join("end"), "").unwrap();
    // Its standard error is closed by all: nobody holds the pipe.
    let output = run.wait_with_output().unwrap();
    assert_eq!((output.status.code(), complaint(&output).as_str()), (Some(0), ""));
    assert!(is_there(lookout));
    std::fs::write(here.join("go"), "").unwrap();
    let later = || std::fs::read_to_string(here.join("later")).unwrap_or_default();
    until("it has locked", || later().ends_with("done\n"));
    let errors: Vec<_> = later()
        .lines()
        .filter_map(|line| Some(line.split(' ').nth(2)?.to_owned()))
        .collect();
    assert_eq!(errors, [libc::ENOLCK.to_string(), "0".into(), "0".into()]);
    until("the lookout ends with the last process", || !is_there(lookout));
}

#[test]
fn signals_reach_the_command_and_its_end_is_ours() {
    let Some(testbed) = Testbed::new() else { return };
    let run = start(
        &testbed,
        "trap 'echo told; exit 5' USR1 TERM; echo ready; while :; do sleep 0.05; done",
    );
    kill(run.id(), Signal::USR1);
    let output = run.wait_with_output().unwrap();
    assert_eq!(
        (output.stdout.as_slice(), output.status.code()),
        (&b"told\n"[..], Some(5)),
        "{}",
        said(&output)
    );
    let mut run = start(&testbed, "echo ready; exec sleep 600");
    until("it sleeps", || child_of(run.id(), "sleep").is_some());
    let command = child_of(run.id(), "sleep").unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    until("the command dies with elbow", || !is_there(command));
}

#[test]
fn many_processes_that_lock_at_once_are_all_answered() {
    let Some(testbed) = Testbed::new() else { return };
    let output = testbed.run(
        &[],
        "for i in 1 2 3 4 5 6 7 8; do ./static flock below/f$i other$i & done; wait",
    );
    let answers = answers(&output);
    let refused = answers.iter().filter(|(_, errno)| *errno == libc::ENOLCK).count();
    let granted = answers.iter().filter(|(_, errno)| *errno == 0).count();
    assert_eq!((refused, granted), (8, 8), "{}", said(&output));
    assert!(complaint(&output).contains("locks of 8 processes"), "{}", said(&output));
}

/// The story: the lookout waited for the reader of standard error, and whoever locked waited for the lookout.
#[test]
fn nobody_who_locks_waits_for_who_reads_the_messages() {
    let Some(testbed) = Testbed::new() else { return };
    let (mut messages, mut full) = std::io::pipe().unwrap();
    fcntl_setfl(&full, OFlags::NONBLOCK).unwrap();
    while full.write(&[b'.'; 4096]).is_ok() {}
    fcntl_setfl(&full, OFlags::empty()).unwrap();
    let mut elbow = testbed.exec(
        &[],
        "./static flock below/a; ./static flock other below/b; echo >done; while [ ! -e read ]; do sleep 0.01; done",
    );
    let mut run = elbow.stdout(Stdio::null()).stderr(full).spawn().unwrap();
    drop(elbow);
    let here = testbed.0.directory.path();
    until("all have been answered", || here.join("done").exists());
    std::fs::write(here.join("read"), "").unwrap();
    let mut told = String::new();
    messages.read_to_string(&mut told).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(125));
    assert_eq!(told.matches("past the lock service").count(), 2, "{told}");
}

/// Looks at the lookout of a run by strace(1), which ends with it; what it saw is in `seen`.
fn trace(testbed: &Testbed, lookout: u32, options: &[&str]) -> Child {
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-o"])
        .arg(testbed.0.directory.path().join("seen"))
        .args(options);
    let child = strace.args(["-p", &lookout.to_string()]).spawn().unwrap();
    until("it is traced", || {
        let tasks = std::fs::read_dir(format!("/proc/{lookout}/task")).unwrap();
        let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        tasks.flatten().all(|task| !status(task).contains("TracerPid:\t0\n"))
    });
    child
}

/// The story: the file of the program was read before each answer. On a mount that does not answer all locks of the run waited for it.
#[test]
fn a_program_is_looked_at_once_and_after_its_call_was_answered() {
    let Some(testbed) = Testbed::new() else { return };
    let mut run = start(
        &testbed,
        // What ends while it is looked at is looked at once more, by its path.
        "echo ready; while [ ! -e go ]; do sleep 0.01; done; ./static flock below/a below/b below/c looked=",
    );
    let mut strace = trace(&testbed, lookout_of(&run), &["-e", "trace=ioctl,openat"]);
    std::fs::write(testbed.0.directory.path().join("go"), "").unwrap();
    let messages = BufReader::new(run.stderr.take().unwrap());
    let mut told = messages.lines().map(Result::unwrap);
    assert!(told.any(|line| line.contains("is linked statically")));
    std::fs::write(testbed.0.directory.path().join("looked"), "").unwrap();
    told.for_each(drop);
    run.wait().unwrap();
    strace.wait().unwrap();
    let seen = std::fs::read_to_string(testbed.0.directory.path().join("seen")).unwrap();
    let lines_with = |words: [&str; 2]| {
        let is_one = |line: &&str| words.iter().any(|word| line.contains(word));
        seen.lines().filter(is_one).count()
    };
    let program = [&*format!("{}\"", testbed.shown("static")), "/exe\""];
    assert_eq!(lines_with(program), 1, "{seen}");
    assert_eq!(lines_with(["/maps\"", "/maps\""]), 1, "{seen}");
    assert_eq!(lines_with(["NOTIF_SEND,", "NOTIF_SEND,"]), 3, "{seen}");
    let first = |word: &str| seen.lines().position(|line| line.contains(word));
    let looked = program.iter().filter_map(|word| first(word)).min();
    assert!(first("NOTIF_SEND,") < looked, "{seen}");
}

/// fcntl(2) with `F_SETLK` waits for nobody, so no program reckons with EINTR.
#[test]
fn a_signal_ends_no_lock_call_that_is_looked_at() {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(5), Some(19)) {
        return println!("SKIPPED: Linux {release} ends them");
    }
    let Some(testbed) = Testbed::new() else { return };
    let run = start(
        &testbed,
        "echo ready; while [ ! -e go ]; do sleep 0.01; done; ./static alarm other",
    );
    let slow = ["-e", "trace=readlink,readlinkat", "-e"];
    let inject = ["inject=readlink,readlinkat:delay_enter=3000000"];
    let mut strace = trace(&testbed, lookout_of(&run), &[slow.as_slice(), &inject].concat());
    std::fs::write(testbed.0.directory.path().join("go"), "").unwrap();
    let output = run.wait_with_output().unwrap();
    strace.wait().unwrap();
    let seen = std::fs::read_to_string(testbed.0.directory.path().join("seen")).unwrap();
    assert!(seen.contains("(DELAYED)"), "nobody waited: {seen}");
    assert_eq!(answers(&output)[0].1, 0, "{}", said(&output));
}

/// The story: what cannot be looked at was run all the same, and without the rights that set-user-ID programs have.
#[test]
fn who_is_not_looked_at_keeps_its_rights() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: needs root, to have a listener that takes no rights");
    }
    let Some(testbed) = Testbed::new() else { return };
    let script = format!(
        "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin -- '{}' lock exec --prefix . -- \
         grep NoNewPrivs: /proc/self/status",
        env!("CARGO_BIN_EXE_elbow")
    );
    let output = testbed.run(&[], &script);
    let told = complaint(&output);
    assert!(told.contains("cannot be seen here: somebody else looks"), "{told}");
    assert_eq!(output.stdout, b"NoNewPrivs:\t0\n", "{}", said(&output));
}
