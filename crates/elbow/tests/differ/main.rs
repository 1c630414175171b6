//! Random system calls in a job answer, show and leave what they do without one: the gate of the differential fuzzer (`elbow_testkit::differ`), which
//! says what is compared. `cargo xtask differ` is the same with options.
//!
//! The seeds are always the same in the gate, so that it is red for what was changed and for nothing else; `SEED=n` runs that one, `ROUNDS=n`
//! so many on each storage, and `SOAK=1` fifty times as many from a random one on. A difference that is known and not fixed yet stands in
//! `crates/elbow-testkit/corpus/differ/known`.
//!
//! The tests need root, `/dev/fuse`, loop devices, an sshd and OpenSSH's sftp-server.

#![allow(clippy::disallowed_methods)] // It looks at scripts, and at what lies on storages.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use elbow_testkit::cases;
use elbow_testkit::differ::actor::{self, ActorInput};
use elbow_testkit::differ::campaign::{Summary, TrialContext};
use elbow_testkit::differ::case::Case;
use elbow_testkit::differ::draw::Length;
use elbow_testkit::differ::ground::{Storage, StorageHost, enter_own_mounts};
use elbow_testkit::differ::known::KnownList;
use elbow_testkit::differ::plant::Bug;
use elbow_testkit::differ::trial::Programs;

/// Where found cases are kept.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../elbow-testkit/corpus/differ");

/// How many seeds each storage has in the gate: the cheap ones more; together 2,000.
const SEEDS: [(Storage, u64); 9] = [
    (Storage::Tmpfs, 650),
    (Storage::Ext4, 500),
    (Storage::Xfs, 200),
    (Storage::Btrfs, 200),
    (Storage::Overlayfs, 200),
    (Storage::Slowfs, 130),
    (Storage::Sshfs, 40),
    (Storage::SshfsUser, 40),
    (Storage::SshfsOther, 40),
];

/// The same where the directory is reached by ssh: what the storage is like matters less there.
const SEEDS_BY_SSH: [(Storage, u64); 3] = [(Storage::Tmpfs, 120), (Storage::Ext4, 120), (Storage::Overlayfs, 40)];

/// The same where a job goes over SFTP, and the native run does not.
const SEEDS_BY_SFTP: [(Storage, u64); 2] = [(Storage::SftpTmpfs, 120), (Storage::Sftp, 100)];

/// How many times as many under `SOAK`: 100,000.
const SOAK: u64 = 50;

/// One case in so many has up to 400 calls, and the others some 20; in a soak every second.
const LONG: u64 = 10;
const LONG_OF_SOAK: u64 = 2;

/// Cases at a time; more in a soak, which mostly waits for disks.
const THREADS: usize = 2;
const THREADS_OF_SOAK: usize = 4;

/// What the cases start: this program, with orders in the environment.
#[test]
#[ignore = "the cases start it"]
fn actor() {
    if ActorInput::of_environment().is_some() {
        actor::play();
    }
}

fn length() -> Length {
    Length::Mixed(if is_soak() { LONG_OF_SOAK } else { LONG })
}

fn threads() -> usize {
    if is_soak() { THREADS_OF_SOAK } else { THREADS }
}

fn is_soak() -> bool {
    std::env::var_os("SOAK").is_some()
}

fn programs(bug: Option<Bug>) -> Programs {
    let own = std::env::current_exe().expect("this program");
    let arguments = ["--ignored", "--exact", "actor", "--nocapture", "--test-threads=1"];
    let mut programs =
        Programs::new(Path::new(env!("CARGO_BIN_EXE_elbow")), &own, &arguments).expect("programs for all");
    programs.bug = bug;
    programs
}

fn known() -> KnownList {
    KnownList::with_file(&Path::new(CORPUS).join("known")).expect("the known differences")
}

/// Whether there are mounts of this test's own; said aloud where there are none.
fn has_mounts() -> bool {
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    match enter_own_mounts() {
        Ok(()) => {
            // Old trees get their modes from their scripts. Only this thread, and those that it starts, share it.
            rustix::process::umask(rustix::fs::Mode::empty());
            true
        }
        Err(error) => {
            assert!(!is_ci, "CI=true, and it lacks mounts ({error})");
            eprintln!("SKIPPED: this machine lacks mounts of a test's own ({error})");
            false
        }
    }
}

/// What was found that is not known, with how to see it again; what is known is told on stderr.
fn news(storage: Storage, summary: &Summary) -> Vec<String> {
    for (why, count) in summary.known_by_why() {
        eprintln!("{}: {count} times in {} cases: {why}", storage.name(), summary.cases);
    }
    let found = summary.found.iter().map(|((_, signature), found)| {
        let calls = if length().of_seed(found.seed) == Length::Any {
            "any"
        } else {
            "short"
        };
        let again = format!(
            "cargo xtask differ --storage {} --calls {calls} --seeds {}",
            storage.name(),
            found.seed
        );
        let (count, name) = (found.count, storage.name());
        format!(
            "{name}: {signature}, {count} times\n{}\n  {again} --minimise",
            found.detail
        )
    });
    found.collect()
}

fn assert_same_on(storages_of_layer: &[Storage]) {
    let layer = SEEDS
        .into_iter()
        .filter(|(storage, _)| storages_of_layer.contains(storage));
    assert_same(layer, false);
}

fn assert_same(layer: impl Iterator<Item = (Storage, u64)>, is_by_ssh: bool) {
    if !has_mounts() {
        return;
    }
    let mut programs = programs(None);
    let (known, mut new) = (known(), Vec::new());
    for (storage, usual) in layer {
        if let Some(missing) = storage.missing() {
            assert!(
                std::env::var_os("CI").is_none_or(|value| value != "true"),
                "CI=true, and {missing}"
            );
            eprintln!("SKIPPED: {missing}");
            continue;
        }
        let test_storage = StorageHost::new(storage).unwrap_or_else(|error| panic!("{}: {error}", storage.name()));
        if is_by_ssh {
            programs.by_ssh(&test_storage.path("as-ssh")).expect("a script");
        }
        let trial_context = TrialContext {
            test_storage: &test_storage,
            programs: &programs,
            known: &known,
        };
        let summary = trial_context
            .run(cases::seeds_of(usual, SOAK), length(), threads(), &|_| true)
            .expect("running cases");
        new.extend(news(storage, &summary));
    }
    assert!(new.is_empty(), "{}", new.join("\n"));
}

#[test]
fn random_calls_on_local_storage_are_what_they_are_without_a_job() {
    assert_same_on(&[
        Storage::Tmpfs,
        Storage::Ext4,
        Storage::Xfs,
        Storage::Btrfs,
        Storage::Overlayfs,
    ]);
}

#[test]
fn random_calls_on_slow_storage_are_what_they_are_without_a_job() {
    assert_same_on(&[Storage::Slowfs, Storage::Sshfs, Storage::SshfsUser, Storage::SshfsOther]);
}

#[test]
fn random_calls_by_ssh_are_what_they_are_without_a_job() {
    assert_same(SEEDS_BY_SSH.into_iter(), true);
}

#[test]
fn random_calls_over_sftp_are_what_they_are_without_a_job() {
    assert_same(SEEDS_BY_SFTP.into_iter(), false);
}

/// Each was found once, made small, and is fixed or known.
#[test]
fn cases_of_the_corpus_show_nothing_new() {
    if !has_mounts() {
        return;
    }
    let programs = programs(None);
    let known = known();
    for storage in Storage::ALL {
        let scripts = scripts_on(storage);
        if scripts.is_empty() || storage.missing().is_some() {
            continue;
        }
        let test_storage = StorageHost::new(storage).unwrap_or_else(|error| panic!("{}: {error}", storage.name()));
        let trial_context = TrialContext {
            test_storage: &test_storage,
            programs: &programs,
            known: &known,
        };
        for (path, case) in scripts {
            let examined = trial_context.examine(&case, "corpus").expect("running a case");
            let new: Vec<String> = examined
                .findings
                .iter()
                .map(|finding| format!("{}\n{}", finding.signature, finding.detail))
                .collect();
            assert!(new.is_empty(), "{}\n{}", path.display(), new.join("\n"));
        }
    }
}

fn scripts_on(storage: Storage) -> Vec<(PathBuf, Case)> {
    let paths = fs::read_dir(CORPUS)
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path());
    let mut scripts: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "script"))
        .collect();
    scripts.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a script");
        let case = Case::decode(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (case.storage == storage.name()).then_some((path, case))
    };
    scripts.into_iter().filter_map(read).collect()
}

/// What a worker of the job does wrong on purpose is found within 200 seeds, and by the same seed not where it is not planted.
#[test]
fn planted_bugs_are_found() {
    if !has_mounts() {
        return;
    }
    let test_storage = StorageHost::new(Storage::Tmpfs).expect("a tmpfs");
    for (bug, expected) in [
        (Bug::ForgetMode, " mode"),
        (Bug::WrongErrno, "answer rename ENOTEMPTY/EEXIST"),
        (Bug::StaleName, "answer list ok/ok"),
    ] {
        let found = |bug, seeds: Range<u64>| {
            let (programs, known) = (programs(bug), known());
            let trial_context = TrialContext {
                test_storage: &test_storage,
                programs: &programs,
                known: &known,
            };
            let summary = trial_context.run(seeds, Length::Of(60), THREADS, &|case| {
                case.options.clear();
                true
            });
            let found = summary.expect("running cases").found.into_iter();
            let seeds = found
                .filter(|((_, signature), _)| signature.contains(expected))
                .map(|(_, found)| found.seed);
            seeds.min()
        };
        let chunks = (0..200).step_by(20).map(|first| first..first + 20);
        let honest = |seed: &u64| found(None, *seed..seed + 1).is_none();
        let seed = chunks.filter_map(|seeds| found(Some(bug), seeds)).find(honest);
        assert!(seed.is_some(), "{bug:?} is not found as \"{expected}\"");
    }
}
