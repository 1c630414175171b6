//! Random steps of several processes, with the kernel's locks and with the service's: the same answers, errno for errno.
//!
//! Where an answer depends on what the kernel does not promise, the steps keep away from it: which of several locks in
//! the way F_GETLK tells of (two processes here, and their fcntl locks only), and who passes whom in a queue (while
//! somebody waits, the others only give locks up). `SEED=n` repeats a case, `ROUNDS=n` runs so many.

use std::time::{Duration, Instant};

use elbow_testkit::cases::seeds;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::test_dir::{PATIENCE, Stepper, TestDir, compile};

const STEPS: usize = 150;
/// The end of a session by the end of its last socket reaches the service a moment later.
const CATCH_UP: Duration = Duration::from_millis(10);
const CATCH_UP_TRIES: u32 = 500;
/// Between two signals to somebody who may not have begun to wait when the first one came.
const AGAIN: Duration = Duration::from_millis(50);

/// What a case may do.
#[derive(Clone, Copy)]
struct CaseOptions {
    processes: usize,
    /// flock and F_OFD_*.
    descriptions: bool,
    /// fork, and descriptors that exec keeps.
    forks: bool,
}

struct Comparison<'a> {
    /// Where the kernel's locks are.
    native_dir: &'a TestDir,
    native: Vec<Stepper>,
    redirected: Vec<Stepper>,
    options: CaseOptions,
}

fn check(options: CaseOptions, few: u64) {
    seeds(few).for_each(|seed| check_seed(options, seed));
}

fn check_seed(options: CaseOptions, seed: u64) {
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (native, redirected) = (TestDir::native(), TestDir::redirected());
    let program = compile("steps", native.data.parent().unwrap());
    let start = |test_dir: &TestDir| -> Vec<Stepper> {
        std::fs::write(test_dir.data.join("a"), [0; 100]).unwrap();
        (0..options.processes)
            .map(|_| Stepper::start(test_dir, &program))
            .collect()
    };
    let mut comparison = Comparison {
        native_dir: &native,
        native: start(&native),
        redirected: start(&redirected),
        options,
    };
    let mut kernel_saw_locks = false;
    for _ in 0..STEPS {
        let process = rng.random_range(0..options.processes);
        let step = random_step(&mut rng, options);
        comparison.both(process, &step, &mut rng);
        kernel_saw_locks |= !native.kernel_locks().is_empty();
        redirected.expect_no_kernel_locks();
    }
    assert!(kernel_saw_locks, "a case without any lock shows nothing");
}

fn random_step(rng: &mut StdRng, options: CaseOptions) -> String {
    let slot = rng.random_range(0..4);
    let other = rng.random_range(0..4);
    match rng.random_range(0..100) {
        0..18 => {
            let mode = [2, 2, 2, 0, 1][rng.random_range(0..5)];
            let cloexec = i32::from(!options.forks || rng.random());
            format!("o {slot} {} {mode} {cloexec}", rng.random_range(1..3))
        }
        18..22 => format!("d {slot} {other}"),
        22..24 => format!("D {slot} {other}"),
        24..30 => format!("c {slot}"),
        30..32 => format!("C {slot}"),
        32..36 => format!("s {slot} {}", rng.random_range(0..60)),
        36..40 if options.forks => "F".to_owned(),
        40..45 => {
            let command = [libc::F_TEST, libc::F_ULOCK, libc::F_TLOCK, libc::F_LOCK, 77][rng.random_range(0..5)];
            format!("k {slot} {command} {}", rng.random_range(-20..20))
        }
        45..58 if options.descriptions => {
            let operation = [libc::LOCK_SH, libc::LOCK_EX, libc::LOCK_UN][rng.random_range(0..3)];
            format!("f {slot} {}", operation | libc::LOCK_NB)
        }
        _ => random_lock(rng, slot, options),
    }
}

fn random_lock(rng: &mut StdRng, slot: i32, options: CaseOptions) -> String {
    let of_description = i32::from(options.descriptions && rng.random_range(0..3) == 0);
    let command = [0, 0, 0, 1, 2][rng.random_range(0..5)];
    let l_type = match rng.random_range(0..20) {
        0 => 9,
        1..7 => libc::F_UNLCK,
        7..13 => libc::F_RDLCK,
        _ => libc::F_WRLCK,
    };
    let whence = [0, 0, 0, 1, 2, 5][rng.random_range(0..6)];
    let edge = |rng: &mut StdRng, ordinary: i64| match rng.random_range(0..30) {
        0 => i64::MAX,
        1 => i64::MIN,
        2 => i64::MAX - rng.random_range(0..50),
        _ => ordinary,
    };
    let start = rng.random_range(-5..60);
    let length = rng.random_range(-20..40);
    let (start, length) = (edge(rng, start), edge(rng, length));
    // F_OFD_GETLK with F_UNLCK is of Linux 6.6 only.
    let l_type = if command == 2 && l_type == libc::F_UNLCK && of_description == 1 {
        libc::F_RDLCK
    } else {
        l_type
    };
    format!("l {slot} {of_description} {command} {l_type} {whence} {start} {length}")
}

impl Comparison<'_> {
    fn both(&mut self, process: usize, step: &str, rng: &mut StdRng) {
        let native = match waits(step) {
            true => self.wait(process, step, rng),
            false => Some(self.native[process].run(step)),
        };
        let Some(native) = native else { return };
        let expected = self.without_pids(&self.native, &native, step);
        let mut found = String::new();
        for _ in 0..CATCH_UP_TRIES {
            let answer = self.redirected[process].run(step);
            found = self.without_pids(&self.redirected, &answer, step);
            let may_catch_up = self.options.forks && (found.ends_with(" 11") || step.contains("l "));
            if found == expected || !may_catch_up {
                break;
            }
            std::thread::sleep(CATCH_UP);
        }
        assert_eq!(found, expected, "process {process}: {step}");
    }

    /// A step that may wait: until nobody waits any more, the other processes close what they have.
    fn wait(&mut self, process: usize, step: &str, rng: &mut StdRng) -> Option<String> {
        self.native[process].send(step);
        if let Some(answer) = self.native[process].answer(Duration::from_millis(30)) {
            return Some(answer);
        }
        self.redirected[process].send(step);
        let others = (0..self.options.processes).filter(|&other| other != process);
        for other in others {
            for slot in 0..4 {
                let close = format!("{} {slot}", if rng.random() { 'c' } else { 'C' });
                let expected = self.native[other].run(&close);
                assert_eq!(self.redirected[other].run(&close), expected, "process {other}: {close}");
            }
        }
        let Some(expected) = self.answer_unless_waiting(process) else {
            return self.end_waiting(process);
        };
        let found = self.redirected[process].answer(PATIENCE);
        assert_eq!(
            found.as_deref(),
            Some(&*expected),
            "process {process}, after a wait: {step}"
        );
        None
    }

    /// The kernel's answer to the only one who may wait, when the others have nothing any more. None: a lock of one of its own descriptions is in its way,
    /// which only it could give up.
    fn answer_unless_waiting(&self, process: usize) -> Option<String> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let answer = self.native[process].answer(CATCH_UP);
            if answer.is_some() || self.native_dir.kernel_locks().iter().any(|line| line.contains("->")) {
                return answer;
            }
            assert!(Instant::now() < give_up, "process {process} neither answers nor waits");
        }
    }

    fn end_waiting(&mut self, process: usize) -> Option<String> {
        for world in [&self.native, &self.redirected] {
            let give_up = Instant::now() + PATIENCE;
            let answer = loop {
                #[allow(unsafe_code)]
                // SAFETY: sends a signal, which the program handles, to a child of ours.
                unsafe {
                    libc::kill(world[process].pid.parse().unwrap(), libc::SIGALRM);
                }
                match world[process].answer(AGAIN) {
                    None if Instant::now() < give_up => {}
                    answer => break answer,
                }
            };
            assert_eq!(answer.as_deref(), Some("-1 4"), "EINTR");
        }
        None
    }

    /// Process ids as numbers of processes; and nothing of a lock in the way where it may be one of several.
    fn without_pids(&self, world: &[Stepper], answer: &str, step: &str) -> String {
        let mut words: Vec<String> = answer.split(' ').map(str::to_owned).collect();
        if !step.starts_with('l') || words.len() < 7 {
            return answer.to_owned();
        }
        if self.options.descriptions || self.options.processes > 2 {
            return "blocked".to_owned();
        }
        let of = |stepper: &Stepper| stepper.pid == words[6];
        words[6] = format!("process {:?}", world.iter().position(of));
        words.join(" ")
    }
}

/// Whether a step may wait for other processes.
fn waits(step: &str) -> bool {
    let words: Vec<&str> = step.split(' ').collect();
    match words[0] {
        "l" => words[3] == "1",
        "k" => words[2] == libc::F_LOCK.to_string(),
        _ => false,
    }
}

#[test]
fn fcntl_of_two_processes_is_the_same() {
    check(
        CaseOptions {
            processes: 2,
            descriptions: false,
            forks: false,
        },
        6,
    );
}

#[test]
fn fcntl_flock_and_descriptions_of_three_processes_are_the_same() {
    check(
        CaseOptions {
            processes: 3,
            descriptions: true,
            forks: false,
        },
        6,
    );
}

#[test]
fn forks_change_nothing() {
    check(
        CaseOptions {
            processes: 2,
            descriptions: true,
            forks: true,
        },
        4,
    );
}
