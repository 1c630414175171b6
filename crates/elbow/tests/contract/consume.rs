//! `elbow consume`: what a reader has confirmed it gets once, whenever `elbow` dies, and nobody ever gets zeros.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use elbow_testkit::cases::seed;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::stage::{ELBOW, Said, Stage};

const MIB: usize = 1 << 20;

/// A file without a block of zeros, on a file system of ours.
struct Scene {
    directory: TempDir,
    content: Vec<u8>,
}

impl Scene {
    fn on(parent: &Path, bytes: usize) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("elbow-consume-")
            .tempdir_in(parent)
            .expect("a directory");
        let mut state = 1_u64;
        let mut content = vec![0; bytes];
        for chunk in content.chunks_mut(8) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let word = (state ^ state >> 29 | 0x0101_0101_0101_0101).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        fs::write(directory.path().join("file"), &content).expect("room");
        Self { directory, content }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn blocks(&self) -> u64 {
        fs::metadata(self.path("file")).expect("a file").blocks()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(ELBOW);
        command
            .args(["consume", "file"])
            .args(words)
            .current_dir(self.directory.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn start(&self, words: &[&str]) -> (Child, ChildStdout) {
        let mut child = self.command(words).spawn().expect("elbow");
        let pipe = child.stdout.take().expect("a pipe");
        (child, pipe)
    }

    /// Where a run that is started now begins.
    fn begin(&self) -> usize {
        let said = Said::of(&self.command(&["--where"]).output().expect("elbow"));
        said.assert_code(0).out.trim().parse().expect("a number")
    }

    /// Waits for the end of a run whose pipe has been closed.
    fn end(child: Child) -> Said {
        Said::of(&child.wait_with_output().expect("an end"))
    }

    /// The other end of `--confirm done`, when elbow has opened its own.
    fn confirmations(&self) -> File {
        File::options().write(true).open(self.path("done")).expect("a FIFO")
    }

    /// A new one: in a FIFO that somebody has open still (a process that another test is just starting), what was written before would stay.
    fn make_channel(&self) {
        let _ = fs::remove_file(self.path("done"));
        let made = Command::new("mkfifo").arg(self.path("done")).status().expect("mkfifo");
        assert!(made.success());
    }
}

/// Real file systems that free parts of files.
fn parents() -> Vec<PathBuf> {
    ["/dev/shm", "/var/tmp"]
        .iter()
        .map(PathBuf::from)
        .filter(|path| path.is_dir())
        .collect()
}

/// When a run is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    /// After the reader has got so many bytes, and some microseconds.
    After(usize, u64),
    /// As soon as a part of the file is freed: it has to be recorded by then.
    AtTheFirstFree,
    Never,
}

/// A reader that keeps what it has confirmed until a run ends; how that ended.
fn read_and_confirm(scene: &Scene, output: &mut Vec<u8>, kill: Kill) -> Said {
    let at_first = scene.blocks();
    let (child, mut pipe) = scene.start(&["--confirm", "done"]);
    let process = Pid::from_child(&child);
    // It has not been waited for, so the number is still its own.
    let die = || kill_process(process, Signal::KILL).expect("a process");
    let mut confirm = scene.confirmations();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            while kill == Kill::AtTheFirstFree && !is_over.load(Ordering::Relaxed) {
                if scene.blocks() < at_first {
                    die();
                    break;
                }
            }
        });
        let (mut piece, mut given) = (vec![0; 100_000], 0);
        loop {
            let length = pipe.read(&mut piece).expect("a pipe");
            output.extend_from_slice(&piece[..length]);
            given += length;
            // Whoever is dead hears nothing.
            if length == 0 || writeln!(confirm, "{given}").is_err() {
                break;
            }
            // No more than is enough to have a part of it freed.
            while kill == Kill::AtTheFirstFree && given > 6 * MIB && !killer.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            if let Kill::After(bytes, microseconds) = kill
                && (bytes..bytes + length).contains(&given)
            {
                std::thread::sleep(Duration::from_micros(microseconds));
                die();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop((confirm, pipe));
    Scene::end(child)
}

/// The channel as a descriptor, which the shell has open as long as it lives.
#[test]
fn a_descriptor_takes_confirmations() {
    let stage = Stage::new();
    let script = "head -c 3000000 /dev/urandom > f; mkfifo d; exec 3<>d; $ELBOW consume -q f --confirm 3 | \
        { wc -c >&3; cat >/dev/null; }; $ELBOW consume --where f; stat -c %b f";
    let said = stage.apart(script);
    let numbers: Vec<u64> = said
        .assert_code(0)
        .out
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert!(numbers[0] == 3_000_000 && numbers[1] <= 16, "{numbers:?}");
}

/// What is confirmed is kept, and after a crash the reader goes on where it is told to.
#[test]
fn what_is_confirmed_comes_once_whenever_elbow_is_killed() {
    const KILLS: u32 = 20;
    let mut random = StdRng::seed_from_u64(seed());
    for parent in parents() {
        let scene = Scene::on(&parent, 120 * MIB + 12_345);
        let (mut output, mut highest, at_first) = (Vec::new(), 0, scene.blocks());
        for number in 0..=KILLS {
            scene.make_channel();
            let begin = scene.begin();
            assert!(
                (highest..=output.len()).contains(&begin),
                "it went back or ahead: {begin}"
            );
            highest = begin;
            output.truncate(begin);
            let kill = match number {
                KILLS => Kill::Never,
                _ if number % 2 == 0 => Kill::AtTheFirstFree,
                _ => Kill::After(random.random_range(1..5 * MIB), random.random_range(0..20_000)),
            };
            let said = read_and_confirm(&scene, &mut output, kill);
            said.assert_code(if kill == Kill::Never { 0 } else { 128 + 9 });
            if number == KILLS / 2 {
                let blocks = scene.blocks();
                assert!(
                    blocks < at_first,
                    "nothing is freed after {highest} bytes: {blocks} of {at_first}"
                );
            }
        }
        assert!(output == scene.content, "{}: other bytes", parent.display());
        assert_eq!(scene.begin(), scene.content.len());
        assert!(scene.blocks() <= 16, "{} blocks are left", scene.blocks());
        // All is consumed: there is nothing more to be given.
        let (child, mut pipe) = scene.start(&[]);
        let mut more = Vec::new();
        pipe.read_to_end(&mut more).expect("a pipe");
        drop(pipe);
        Scene::end(child).assert_code(0);
        assert!(more.is_empty());
    }
}

#[test]
fn the_file_shrinks_while_it_is_confirmed() {
    let scene = Scene::on(Path::new("/dev/shm"), 40 * MIB);
    scene.make_channel();
    let (child, mut pipe) = scene.start(&["--confirm", "done", "--quiet"]);
    let mut confirm = scene.confirmations();
    let mut piece = vec![0; 8 * MIB];
    let mut before = scene.blocks();
    for round in 1..=5 {
        pipe.read_exact(&mut piece).expect("a piece");
        writeln!(confirm, "{}", round * 8 * MIB).expect("a FIFO");
        crate::stage::wait_for("the file to shrink", || {
            scene.blocks() < before - 8 * MIB as u64 / 512 * 9 / 10
        });
        before = scene.blocks();
    }
    drop((pipe, confirm));
    let said = Scene::end(child);
    assert!(said.assert_code(0).err.is_empty(), "{said:#?}");
}

#[test]
fn without_confirmations_all_is_freed_when_the_reader_has_taken_all() {
    let scene = Scene::on(Path::new("/dev/shm"), 10 * MIB);
    let whole = scene.blocks();
    // A reader that stops early, and one that leaves the end in the pipe.
    for bytes in [3 * MIB, 10 * MIB - 100] {
        let (child, mut pipe) = scene.start(&[]);
        pipe.read_exact(&mut vec![0; bytes]).expect("a part");
        drop(pipe);
        let said = Scene::end(child);
        said.assert_code(141).assert_says(&[" of ", " consumed; it takes"]);
        assert_eq!((scene.blocks(), scene.begin()), (whole, 0), "nothing is freed");
    }
    let (child, mut pipe) = scene.start(&[]);
    let mut all = Vec::new();
    pipe.read_to_end(&mut all).expect("a pipe");
    assert_eq!(scene.blocks(), whole, "the reader may still fail");
    drop(pipe);
    Scene::end(child).assert_code(0).assert_says(&["all consumed"]);
    assert!(all == scene.content && scene.blocks() == 0);
}

#[test]
fn on_read_frees_what_has_left_the_pipe() {
    let scene = Scene::on(Path::new("/dev/shm"), 30 * MIB);
    let whole = scene.blocks();
    let (child, mut pipe) = scene.start(&["--on-read"]);
    let mut taken = vec![0; 20 * MIB];
    pipe.read_exact(&mut taken).expect("a part");
    drop(pipe);
    Scene::end(child).assert_code(141);
    let begin = scene.begin();
    assert!(
        (16 * MIB..=20 * MIB).contains(&begin) && scene.blocks() < whole / 2,
        "{begin}"
    );
    let (child, mut pipe) = scene.start(&["--on-read"]);
    let mut rest = Vec::new();
    pipe.read_to_end(&mut rest).expect("a pipe");
    drop(pipe);
    Scene::end(child).assert_code(0);
    assert!(rest == scene.content[begin..] && scene.blocks() == 0);
}

#[test]
fn what_a_reader_confirms_wrongly_frees_nothing_more() {
    for (line, words) in [
        ("much", "`much` is no number of bytes"),
        ("99999999", "only 2097152 were given"),
        ("", "is no number"),
    ] {
        let scene = Scene::on(Path::new("/dev/shm"), 2 * MIB);
        scene.make_channel();
        let (child, mut pipe) = scene.start(&["--confirm", "done"]);
        let mut confirm = scene.confirmations();
        pipe.read_exact(&mut vec![0; 2 * MIB]).expect("all of it");
        writeln!(confirm, "1048576\n{line}").expect("a FIFO");
        let said = Scene::end(child);
        said.assert_code(125)
            .assert_says(&["line 2 of what the reader confirms", words]);
        drop((pipe, confirm));
        assert!(scene.begin() <= MIB);
    }
    // One that goes away has confirmed what it has.
    let scene = Scene::on(Path::new("/dev/shm"), 2 * MIB);
    scene.make_channel();
    let (child, mut pipe) = scene.start(&["--confirm", "done"]);
    let mut confirm = scene.confirmations();
    pipe.read_exact(&mut vec![0; 100_000]).expect("a part");
    writeln!(confirm, "{}", 65_536).expect("a FIFO");
    drop((pipe, confirm));
    Scene::end(child).assert_code(141);
    assert_eq!(scene.begin(), 65_536);
}

/// The story: a log that was consumed, emptied and filled again by who has it open (copytruncate) has its inode still, so the
/// checkpoint was taken for its own, and what was written since was freed without having been given to anybody.
#[test]
fn a_file_that_was_emptied_and_filled_again_is_refused_and_kept() {
    for parent in parents() {
        for (bytes, words) in [(10 * MIB, &[][..]), (9 * MIB + 4321, &["--on-read"]), (300, &[])] {
            let scene = Scene::on(&parent, bytes);
            let (child, mut pipe) = scene.start(words);
            pipe.read_exact(&mut vec![0; bytes * 9 / 10]).expect("a part");
            if words.is_empty() {
                pipe.read_to_end(&mut Vec::new()).expect("the rest");
            }
            drop(pipe);
            Scene::end(child).assert_code(if words.is_empty() { 0 } else { 141 });
            let new: Vec<u8> = scene.content.iter().rev().chain(b"and more").copied().collect();
            let refill = |begin: usize| {
                let file = File::options().write(true).open(scene.path("file")).expect("a file");
                file.set_len(0).expect("a file");
                file.write_all_at(&new[begin..], begin as u64).expect("room");
            };
            // Also where nothing lies in what is certainly freed, as if it had died before it freed anything.
            for begin in [0, scene.begin().saturating_sub(100)] {
                refill(begin);
                for words in [words, &["--where"]] {
                    let said = Said::of(&scene.command(words).output().expect("elbow"));
                    said.assert_code(125).assert_says(&[
                        "file: what was consumed has content again at byte",
                        "remove file.consumed",
                    ]);
                    assert!(said.out.is_empty(), "something was given");
                }
                let found = fs::read(scene.path("file")).expect("a file");
                assert!(found[begin..] == new[begin..], "{bytes} bytes, from {begin}");
            }
            refill(0);
            fs::remove_file(scene.path("file.consumed")).expect("a checkpoint");
            let (child, mut pipe) = scene.start(&[]);
            let mut all = Vec::new();
            pipe.read_to_end(&mut all).expect("a pipe");
            drop(pipe);
            Scene::end(child).assert_code(0);
            assert!(all == new, "as it says, all of it is given without the checkpoint");
        }
    }
}

#[test]
fn what_cannot_be_consumed_is_refused_before_anything_is_given() {
    let stage = Stage::new();
    let told = |script: &str| stage.apart(&format!("mkdir -p m; {script}"));
    let refused = told("mount -t ramfs none m; echo x > m/f; $ELBOW consume m/f | cat; umount m");
    refused.assert_says(&["m/f: its file system cannot free parts of it: Operation not supported"]);
    assert_eq!(refused.out, "");
    told("echo x > f; $ELBOW consume f > out")
        .assert_code(125)
        .assert_says(&["standard output is no pipe"]);
    told("truncate -s 1M s; echo x >> s; $ELBOW consume s | cat").assert_says(&["begins with a hole", "--sparse"]);
    let sparse = told("$ELBOW consume --sparse s | wc -c").assert_code(0).out.clone();
    assert_eq!(sparse.trim(), "1048578");
    told("cp s t; cp s.consumed t.consumed; $ELBOW consume t | cat")
        .assert_says(&["t.consumed: is of another file than t"]);
    told("echo x > u; echo y > u.consumed; $ELBOW consume u | cat").assert_says(&["u.consumed: is no checkpoint"]);
    told("echo x > v; $ELBOW consume v | cat; echo z > v; truncate -s 0 v; $ELBOW consume v | cat")
        .assert_says(&["v: has 0 bytes, and 2 of it were consumed"]);
    told("echo x > w; exec 9< w; flock 9; $ELBOW consume w | cat").assert_says(&["another elbow consumes it just now"]);
    told("echo 123 > x; $ELBOW consume x --confirm 1 | cat")
        .assert_says(&["--confirm 1: that is the standard output, where the file goes"]);
    told("cat x").assert_says(&[]).assert_code(0);
    let mixed = told("echo 123 > z; $ELBOW consume z 2>&1 | cat; ls z*");
    assert!(
        mixed.out.contains("standard error goes into the same pipe") && mixed.out.ends_with("z\n"),
        "{mixed:?}"
    );
    let unpiped = told("echo 123 > n; $ELBOW consume n > out || true; ls n*");
    assert!(unpiped.out == "n\n", "no checkpoint is left: {unpiped:?}");
    told("echo x > y; touch plain; $ELBOW consume y --confirm plain | cat").assert_says(&["--confirm plain: no pipe"]);
}
