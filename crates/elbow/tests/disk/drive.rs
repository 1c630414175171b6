//! Emulated drives: what programs read and write through each attachment, what a power cut leaves, and what a dead server leaves.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::{alone_with_loop_devices, elbow, elbow_of, json, refused, takes_loop_devices, text, unmount, when_free};

/// A drive that is taken away with the test.
struct Attached {
    device: String,
    directory: TempDir,
    is_there: bool,
}

impl Attached {
    fn new(options: &[&str]) -> Option<Attached> {
        Self::offered(options, |_| Vec::new())
    }

    fn file(options: &[&str]) -> Option<Attached> {
        has_fuse()?;
        Self::offered(options, |directory| {
            vec!["--file".into(), directory.join("disk").display().to_string()]
        })
    }

    fn nbd(options: &[&str]) -> Option<Attached> {
        Self::offered(options, |directory| {
            vec!["--nbd".into(), format!("unix:{}", directory.join("socket").display())]
        })
    }

    fn offered(options: &[&str], attachment: impl FnOnce(&Path) -> Vec<String>) -> Option<Attached> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let backing = directory.path().join("backing").display().to_string();
        let attachment = attachment(directory.path());
        let mut args = vec!["attach", "--backing", &backing];
        args.extend(options.iter().copied().chain(attachment.iter().map(String::as_str)));
        let taking = takes_loop_devices();
        let output = elbow(&args, b"");
        drop(taking);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let device = text(&output.stdout).trim().to_owned();
        let is_there = true;
        Some(Attached {
            device,
            directory,
            is_there,
        })
    }

    fn status(&self) -> Value {
        json(&["status", &self.device, "--json"], b"")
    }

    /// To be read and written.
    fn open(&self) -> File {
        let file = OpenOptions::new().read(true).write(true).open(&self.device);
        file.expect("it opens")
    }

    fn detach(mut self) -> Output {
        self.is_there = false;
        when_free(|| elbow(&["detach", &self.device, "--json"], b""))
    }

    fn uri(&self) -> String {
        let socket = self.device.strip_prefix("unix:").expect("a socket");
        format!("nbd+unix:///?socket={socket}")
    }

    fn pid(&self) -> rustix::process::Pid {
        let pid = self.status()["pid"].as_i64().expect("a process");
        rustix::process::Pid::from_raw(pid as i32).expect("not 0")
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.is_there {
            elbow(&["detach", &self.device], b"");
        }
    }
}

/// Where the continuous integration runs, nothing is skipped.
pub(super) fn skip(what: &str) -> Option<()> {
    assert!(std::env::var_os("CI").is_none(), "CI, and this machine lacks {what}");
    eprintln!("SKIPPED: this machine lacks {what}");
    None
}

pub(super) fn has_fuse() -> Option<()> {
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Some(()),
        Err(_) => skip("FUSE"),
    }
}

pub(super) fn is_root() -> Option<()> {
    match rustix::process::geteuid().is_root() {
        true => has_fuse(),
        false => skip("root"),
    }
}

pub(super) fn program(name: &str) -> Option<Command> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let is_there = path.split(':').any(|place| Path::new(place).join(name).exists());
    match is_there {
        true => {
            let mut command = Command::new("timeout");
            command.args(["120", name]).env("PATH", path);
            Some(command)
        }
        false => skip(name).map(|()| Command::new(name)),
    }
}

pub(super) fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// Random writes, checked; by fio's own engine for NBD, or through a file.
pub(super) fn fio(to: &[String]) -> Option<()> {
    let mut fio = program("fio")?;
    fio.args([
        "--name=verify",
        "--rw=randwrite",
        "--bs=4k",
        "--size=1M",
        "--verify=crc32c",
        "--verify_state_save=0", // Which would lie in the current directory, the source tree.
        "--iodepth=8",
    ]);
    succeeds(fio.args(["--fsync=32", "--minimal"]).args(to));
    Some(())
}

const FAST: [&str; 6] = ["--model", "generic-7200", "--cache", "write-back", "--size", "16M"];

#[test]
fn a_file_is_written_checked_and_counted() {
    let Some(drive) = Attached::file(&FAST) else { return };
    assert_eq!(std::fs::metadata(&drive.device).expect("a file").len(), 16 << 20);
    fio(&[format!("--filename={}", drive.device)]);
    let file = drive.open();
    file.write_all_at(b"within a sector", 1000).expect("it writes");
    file.sync_data().expect("it flushes");
    let mut read = [0; 15];
    file.read_exact_at(&mut read, 1000).expect("it reads");
    assert_eq!(&read, b"within a sector");
    let status = drive.status();
    for key in ["p50", "p99", "max"] {
        assert!(status["lateness_us"][key].is_number(), "{status}");
    }
    println!("{status}");
    assert!(
        status["served"].as_u64() >= Some(2) && status["flushes"].as_u64() >= Some(1),
        "{status}"
    );
    assert!(refused(&["detach", &drive.device], b"").contains("in use"));
    drop(file);
    let backing = drive.directory.path().join("backing");
    let device = drive.device.clone();
    let directory = drive.directory.path().to_owned();
    assert!(backing.exists() && directory.exists());
    let mut held = File::open(&backing).expect("it opens");
    let output = drive.detach();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!Path::new(&device).exists(), "it was made by attach");
    let mut stored = Vec::new();
    held.read_to_end(&mut stored).expect("it reads");
    assert_eq!(&stored[1000..1015], b"within a sector");
}

/// Mean response in the model's time of random reads, so many at once.
fn mean_response_ms(drive: &Attached, at_once: u32) -> Option<f64> {
    let sum = |status: &Value| status["response_ms"]["mean"].as_f64().map(|mean| mean * served(status));
    let before = drive.status();
    let mut fio = program("fio")?;
    fio.args([
        "--name=deep",
        "--rw=randread",
        "--bs=4k",
        "--size=16M",
        "--number_ios=100",
    ]);
    fio.args(["--direct=1", "--ioengine=libaio", "--minimal"]);
    succeeds(fio.args([format!("--iodepth={at_once}"), format!("--filename={}", drive.device)]));
    let after = drive.status();
    Some((sum(&after)? - sum(&before)?) / (served(&after) - served(&before)))
}

fn served(status: &Value) -> f64 {
    status["served"].as_f64().expect("a number")
}

/// The kernel used to wait for each of them, so that the drive had nothing to pick from.
#[test]
fn many_requests_are_under_way_at_once() {
    let write_through = ["--model", "generic-7200", "--cache", "write-through", "--size", "16M"];
    let block_device = || is_root().and_then(|()| Attached::new(&write_through));
    for attach in [&block_device as &dyn Fn() -> _, &|| Attached::file(&write_through)] {
        let Some(drive) = attach() else { continue };
        let Some(alone) = mean_response_ms(&drive, 1) else {
            return;
        };
        let together = mean_response_ms(&drive, 16).expect("fio is there");
        println!("{}: {alone:.2} ms alone, {together:.2} ms of 16", drive.device);
        assert!(together > 2.0 * alone, "{alone} ms alone, {together} ms of 16");
    }
}

/// As a block device does: two at once within one sector would each write back what it was.
#[test]
fn a_part_of_a_sector_is_not_written_directly() {
    let Some(drive) = Attached::file(&FAST) else { return };
    let direct = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&drive.device);
    let direct = direct.expect("it opens");
    let refused = direct.write_at(b"within a sector", 1000).expect_err("refused");
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn a_power_cut_takes_what_was_not_flushed() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..8 {
        let Some(drive) = Attached::file(&FAST) else { return };
        let file = drive.open();
        file.write_all_at(&[1; 512], 0).expect("it writes");
        file.sync_data().expect("it flushes");
        file.write_all_at(&[2; 512], 4096).expect("it writes");
        let report = json(&["powercut", &drive.device, "--seed", &seed.to_string(), "--json"], b"");
        assert_eq!(report["unflushed"], 1, "{report}");
        assert!(file.write_all_at(&[3; 512], 0).is_err(), "of before the power cut");
        let file = OpenOptions::new().read(true).open(&drive.device).expect("it opens");
        let mut found = [0; 4608];
        file.read_exact_at(&mut found, 0).expect("it reads");
        assert_eq!(found[0], 1, "what was flushed is there");
        assert_eq!(found[4096], if report["kept"] == 1 { 2 } else { 0 });
        (kept, lost) = (
            kept + report["kept"].as_i64().unwrap_or(0),
            lost + report["lost"].as_i64().unwrap_or(0),
        );
    }
    assert!(kept > 0 && lost > 0, "{kept} kept, {lost} lost");
}

#[test]
fn clients_of_nbd_read_what_they_wrote() {
    let Some(drive) = Attached::nbd(&FAST) else { return };
    if let Some(mut qemu) = program("qemu-io") {
        for command in [
            "write -P 7 0 64k",
            "write -f -P 9 1M 4k",
            "flush",
            "read -P 7 0 64k",
            "read -P 9 1M 4k",
            "write -z 4k 8k",
            "read -P 0 4k 8k",
            "discard 32k 4k",
            "read -P 0 32k 4k",
        ] {
            qemu.args(["-c", command]);
        }
        let said = succeeds(qemu.args(["-f", "raw", &drive.uri()]));
        assert!(!said.contains("failed"), "{said}");
    }
    if let Some(mut info) = program("nbdinfo") {
        let said = succeeds(info.args(["--json", &drive.uri()]));
        let info: Value = serde_json::from_str(&said).expect("JSON");
        let export = &info["exports"][0];
        assert_eq!(export["export-size"], 16 << 20);
        for can in [
            "can_flush",
            "can_fua",
            "can_trim",
            "can_zero",
            "can_multi_conn",
            "is_rotational",
        ] {
            assert_eq!(export[can], true, "{can}: {export}");
        }
    }
    fio(&["--ioengine=nbd".to_owned(), format!("--uri={}", drive.uri())]);
    let output = drive.detach();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_file_system_on_the_block_device_survives_a_power_cut() {
    if is_root().is_none() {
        return;
    }
    let Some(drive) = Attached::new(&[&FAST[..4], &["--size", "64M"]].concat()) else {
        return;
    };
    let point = drive.directory.path().join("mounted");
    std::fs::create_dir(&point).expect("a directory");
    let mut mkfs = program("mkfs.ext4").expect("e2fsprogs");
    succeeds(mkfs.args(["-q", &drive.device]));
    let mount = || succeeds(Command::new("mount").arg(&drive.device).arg(&point));
    mount();
    std::fs::write(point.join("synced"), "here").expect("it writes");
    File::open(&point)
        .and_then(|directory| rustix::fs::syncfs(&directory).map_err(Into::into))
        .expect("synced");
    std::fs::write(point.join("not"), "perhaps").expect("it writes");
    assert!(
        refused(&["detach", &drive.device], b"").contains("in use"),
        "it is mounted"
    );
    let report = json(&["powercut", &drive.device, "--json"], b"");
    println!("{report}");
    assert!(!point.join("synced").exists(), "it is not mounted any more");
    mount();
    assert_eq!(std::fs::read_to_string(point.join("synced")).expect("it reads"), "here");
    fio(&[format!("--directory={}", point.display())]);
    println!("{}", json(&["powercut", &drive.device, "--torn", "--json"], b""));
    // A superblock of which one sector is new is mended here.
    let mended = program("e2fsck")
        .expect("e2fsprogs")
        .args(["-fy", &drive.device])
        .output()
        .expect("it runs");
    assert!(matches!(mended.status.code(), Some(0 | 1)), "{}", text(&mended.stdout));
    mount();
    assert_eq!(std::fs::read_to_string(point.join("synced")).expect("it reads"), "here");
    unmount(&point);
    succeeds(program("e2fsck").expect("e2fsprogs").args(["-fn", &drive.device]));
    fio(&[format!("--filename={}", drive.device), "--direct=1".to_owned()]);
    let output = drive.detach();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Random reads, writes, mappings, truncations and holes of one file, each read compared with what was written.
const FSX: &str = "[opsize]
max = 65536
[weights]
close_open = 2
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 4
fsync = 1
fdatasync = 1
punch_hole = 2
";

fn fsx() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures");
    let fixtures = std::env::var_os("ELBOW_FIXTURES").map_or(root, PathBuf::from);
    let path = fixtures.join("suites/bin/fsx");
    match path.exists() {
        true => Some(path),
        false => skip("fsx (scripts/setup.sh test)").map(|()| path),
    }
}

#[test]
fn fsx_on_a_file_system_on_the_block_device_reads_what_it_wrote() {
    let (Some(()), Some(fsx)) = (is_root(), fsx()) else {
        return;
    };
    let Some(drive) = Attached::new(&[&FAST[..4], &["--size", "64M"]].concat()) else {
        return;
    };
    let (point, configuration) = (
        drive.directory.path().join("mounted"),
        drive.directory.path().join("fsx.toml"),
    );
    std::fs::create_dir(&point).expect("a directory");
    std::fs::write(&configuration, FSX).expect("a configuration");
    succeeds(program("mkfs.ext4").expect("e2fsprogs").args(["-q", &drive.device]));
    succeeds(Command::new("mount").arg(&drive.device).arg(&point));
    let mut run = Command::new("timeout");
    run.arg("300")
        .arg(fsx)
        .arg("-f")
        .arg(&configuration)
        .arg("-P")
        .arg(drive.directory.path());
    succeeds(run.args(["-S", "16", "-N", "2000", "file"]).current_dir(&point));
    let before = std::fs::read(point.join("file")).expect("the file of fsx");
    // What is read after a mount comes from the drive.
    unmount(&point);
    succeeds(program("e2fsck").expect("e2fsprogs").args(["-fn", &drive.device]));
    succeeds(Command::new("mount").arg(&drive.device).arg(&point));
    let after = std::fs::read(point.join("file")).expect("the file of fsx");
    unmount(&point);
    assert!(
        !before.is_empty() && before == after,
        "{} bytes, then {}",
        before.len(),
        after.len()
    );
    let output = drive.detach();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Blocks that several threads write, each once and flushed, until the drive is gone.
#[derive(Default)]
struct Flushed {
    blocks: Mutex<Vec<u64>>,
    stop: AtomicBool,
}

const BLOCK_BYTES: u64 = 4096;
const WRITERS: u64 = 4;
/// More than is written before the drive is gone.
const LARGE: [&str; 2] = ["--size", "256M"];
const LARGE_BYTES: u64 = 256 << 20;

impl Flushed {
    /// Writes each fourth block, from the `writer`-th one on. Each opens the drive anew: nobody has it open all the time.
    fn write(&self, device: &str, writer: u64) {
        for block in (writer..LARGE_BYTES / BLOCK_BYTES).step_by(WRITERS as usize) {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            match write_flushed(device, block) {
                Ok(()) => self.blocks.lock().expect("no panic").push(block),
                // The drive is gone, and all blocks would soon have been refused; of those nothing is promised.
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        panic!("all has been written before the drive was gone");
    }

    fn count(&self) -> usize {
        self.blocks.lock().expect("no panic").len()
    }
}

/// A block device takes five seconds to be refused, in which some thousand blocks are written.
const AT_WORK_MAX: Duration = Duration::from_secs(30);

/// What a block holds once it is written.
fn of_block(block: u64) -> Vec<u8> {
    (block + 1).to_le_bytes().repeat(BLOCK_BYTES as usize / 8)
}

fn write_flushed(device: &str, block: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(device)?;
    // Under the file that a drive is offered over there is the empty one of before.
    if file.seek(SeekFrom::End(0))? != LARGE_BYTES {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    file.write_all_at(&of_block(block), block * BLOCK_BYTES)?;
    file.sync_data()
}

/// Detaches while threads write and flush; then each block of which a flush succeeded has to be in the backing file.
fn is_detached_under_load(drive: &Attached) {
    let flushed = Flushed::default();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (flushed, device) = (&flushed, &drive.device);
            scope.spawn(move || flushed.write(device, writer));
        }
        while flushed.count() < 20 {
            std::thread::yield_now();
        }
        // It is refused while somebody has it open at that moment.
        let (mut refused, begin) = (0, Instant::now());
        let mut output = elbow(&["detach", &drive.device], b"");
        while !output.status.success() {
            let said = text(&output.stderr);
            assert!(said.contains("in use") || said.contains("open"), "{said}");
            refused += 1;
            // In the end by itself, when the writers have let go: a busy drive may never be free at the right moment, and they have only so many blocks.
            if refused == 20 || begin.elapsed() > AT_WORK_MAX {
                flushed.stop.store(true, Ordering::SeqCst);
            }
            output = elbow(&["detach", &drive.device], b"");
        }
        let was_at_work = !flushed.stop.swap(true, Ordering::SeqCst);
        println!(
            "at work until the end: {was_at_work}; refused {refused} times while it was open, {} flushed",
            flushed.count()
        );
    });
    let backing = File::open(drive.directory.path().join("backing")).expect("it opens");
    for block in flushed.blocks.into_inner().expect("no panic") {
        let mut stored = of_block(0);
        backing
            .read_exact_at(&mut stored, block * BLOCK_BYTES)
            .expect("it reads");
        assert!(stored == of_block(block), "block {block} was flushed and is not there");
    }
}

#[test]
fn a_file_that_is_detached_under_load_loses_nothing_that_was_flushed() {
    let Some(mut drive) = Attached::file(&[&FAST[..4], &LARGE].concat()) else {
        return;
    };
    is_detached_under_load(&drive);
    drive.is_there = false;
}

#[test]
fn a_block_device_that_is_detached_under_load_loses_nothing_that_was_flushed() {
    if is_root().is_none() {
        return;
    }
    let Some(mut drive) = Attached::new(&[&FAST[..4], &LARGE].concat()) else {
        return;
    };
    is_detached_under_load(&drive);
    drive.is_there = false;
}

#[test]
fn a_server_that_was_killed_leaves_what_was_flushed_and_nothing_that_hangs() {
    let Some(drive) = Attached::file(&FAST) else { return };
    let mut file = drive.open();
    file.write_all(&[5; 4096]).expect("it writes");
    file.sync_data().expect("it flushes");
    rustix::process::kill_process(drive.pid(), rustix::process::Signal::KILL).expect("it is killed");
    assert!(file.sync_data().is_err(), "nobody answers, and nobody waits");
    drop(file);
    // It is dead when its socket is closed.
    while !refused(&["status", &drive.device], b"").contains("has died") {
        std::thread::yield_now();
    }
    let backing = std::fs::read(drive.directory.path().join("backing")).expect("it reads");
    assert_eq!(backing[..4096], [5; 4096]);
    let device = drive.device.clone();
    let output = drive.detach();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(refused(&["status", &device], b"").contains("attached"));
}

#[test]
fn a_server_that_was_stopped_was_late_and_says_so() {
    let slow = ["--model", "hp-c2247a", "--size", "16M", "--max-lateness", "50ms"];
    let Some(drive) = Attached::file(&slow) else { return };
    let (pid, device) = (drive.pid(), drive.device.clone());
    // Long on its way: eight thousand sectors, at about two megabytes a second.
    let writer = std::thread::spawn(move || {
        let file = OpenOptions::new().write(true).open(device).expect("it opens");
        file.write_all_at(&[1; 8 << 20], 0).expect("it writes");
    });
    while drive.status()["writes"] == 0 {
        std::thread::yield_now();
    }
    // Mostly a write is under way then; where the next one has not come yet, it is stopped again.
    while drive.status()["too_late"] == 0 && !writer.is_finished() {
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is stopped");
        std::thread::sleep(std::time::Duration::from_millis(300)); // More than a write takes, and 50 ms.
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it goes on");
    }
    writer.join().expect("it writes");
    let output = drive.detach();
    assert_eq!(output.status.code(), Some(125));
    let last: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(
        last["lateness_us"]["max"].as_f64() > Some(50_000.0),
        "it was late: {last}"
    );
    assert!(
        text(&output.stderr).contains("--max-lateness"),
        "{}",
        text(&output.stderr)
    );
}

impl Attached {
    /// Kills its server, and waits until it is known to be dead.
    fn kill(&self) {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::KILL).expect("it is killed");
        while !refused(&["status", &self.device], b"").contains("has died") {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_drive_whose_socket_or_mount_was_removed_by_hand_is_detached() {
    let Some(drive) = Attached::nbd(&FAST) else { return };
    if let Some(mut qemu) = program("qemu-io") {
        succeeds(qemu.args(["-f", "raw", "-c", "write -P 7 0 4k", &drive.uri()]));
        std::fs::remove_file(drive.directory.path().join("socket")).expect("removed");
        let mut held = File::open(drive.directory.path().join("backing")).expect("it opens");
        let output = drive.detach();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut stored = [0; 4096];
        held.read_exact(&mut stored).expect("it reads");
        assert_eq!(stored, [7; 4096]);
    }
    let Some(drive) = Attached::file(&FAST) else { return };
    succeeds(Command::new("fusermount3").args(["-u", "--", &drive.device]));
    std::fs::write(&drive.device, "of its user").expect("the mount point is a file again");
    std::fs::rename(&drive.device, drive.directory.path().join("other")).expect("moved");
    let output = drive.detach();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// The device was gone, and what it had in memory with it, before it was known that the backing file could not take that.
#[test]
fn a_drive_that_cannot_be_stored_stays_until_it_can_be() {
    let Some(drive) = Attached::file(&FAST) else { return };
    let file = drive.open();
    file.write_all_at(&[7; 4096], 8 << 20).expect("it writes");
    drop(file);
    let limit = |current| {
        let limit = rustix::process::Rlimit { current, maximum: None };
        rustix::process::prlimit(Some(drive.pid()), rustix::process::Resource::Fsize, limit).expect("it is limited");
    };
    limit(Some(1 << 20));
    let output = when_free(|| elbow(&["detach", &drive.device], b""));
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0));
    let said = text(&output.stderr);
    assert!(said.contains("so it stays") && said.contains("backing"), "{said}");
    assert_eq!(drive.status()["unflushed_writes"], 1, "it is there, and has it");
    limit(None);
    let held = File::open(drive.directory.path().join("backing")).expect("it opens");
    let output = drive.detach();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut stored = [0; 4096];
    held.read_exact_at(&mut stored, 8 << 20).expect("it reads");
    assert_eq!(stored, [7; 4096]);
}

#[test]
fn a_dead_drive_hides_no_living_one_and_takes_nothing_from_it() {
    let Some(first) = Attached::nbd(&FAST) else { return };
    let socket = first.directory.path().join("socket");
    // The order in which entries are read is not known: among so many it is not the last.
    first.kill();
    for number in 0..6 {
        std::fs::remove_file(&socket).expect("nobody listens there");
        let backing = first.directory.path().join(number.to_string()).display().to_string();
        let output = elbow(
            &[&["attach", "--backing", &backing, "--nbd", &first.device], &FAST[..]].concat(),
            b"",
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(first.status()["backing"], backing, "the living one");
        if number < 5 {
            first.kill();
        } else {
            let last = json(&["detach", &first.device, "--json"], b"");
            assert_eq!(last["backing"], backing);
        }
    }
    let _listener = UnixListener::bind(&socket).expect("it is free");
    for _ in 0..6 {
        let tidied = json(&["detach", &first.device, "--json"], b"");
        assert_eq!(
            (&tidied["died"], &tidied["schema"]),
            (&Value::Bool(true), &Value::from(1))
        );
    }
    assert!(socket.exists(), "somebody else listens there");
    assert!(refused(&["status", &first.device], b"").contains("attached"));
}

#[test]
fn a_block_device_that_is_another_file_s_by_now_is_left_alone() {
    if is_root().is_none() {
        return;
    }
    for kill in [false, true] {
        let Some(drive) = Attached::new(&FAST) else { return };
        let other = drive.directory.path().join("other");
        std::fs::write(&other, vec![0; 1 << 20]).expect("a file");
        if kill {
            drive.kill();
        }
        let _alone = alone_with_loop_devices();
        let mut losetup = program("losetup").expect("util-linux");
        succeeds(losetup.args(["--detach", &drive.device]));
        let mut losetup = program("losetup").expect("util-linux");
        // Where another process was quicker, the device is another's all the same.
        let _ = losetup.arg(&drive.device).arg(&other).output().expect("it runs");
        let reads = || elbow_drive::file_of_loop_device(Path::new(&drive.device));
        let before = reads();
        let detached = elbow(&["detach", &drive.device], b"");
        assert!(detached.status.success(), "{}", text(&detached.stderr));
        if before.as_ref() == Some(&other) {
            assert_eq!(reads(), before);
            let mut losetup = program("losetup").expect("util-linux");
            succeeds(losetup.args(["--detach", &drive.device]));
        }
    }
}

#[test]
fn a_file_is_offered_over_nothing_but_an_empty_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (backing, pipe) = (directory.path().join("backing"), directory.path().join("pipe"));
    succeeds(Command::new("mkfifo").arg(&pipe));
    let (backing, pipe) = (backing.display().to_string(), pipe.display().to_string());
    let said = refused(
        &[&["attach", "--backing", &backing, "--file", &pipe], &FAST[..]].concat(),
        b"",
    );
    assert!(said.contains("regular file"), "{said}");
}

#[test]
fn an_address_that_others_reach_is_told() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let backing = directory.path().join("backing").display().to_string();
    for (address, is_told) in [("tcp:0.0.0.0:0", true), ("tcp:127.0.0.1:0", false)] {
        let output = elbow(
            &[&["attach", "--backing", &backing, "--nbd", address], &FAST[..]].concat(),
            b"",
        );
        assert!(elbow(&["detach", text(&output.stdout).trim()], b"").status.success());
        let said = text(&output.stderr);
        assert_eq!(said.contains("whoever reaches"), is_told, "{said}");
    }
}

/// Its two drives would write over each other.
#[test]
fn a_backing_file_has_one_drive() {
    let Some(drive) = Attached::nbd(&FAST) else { return };
    let backing = drive.directory.path().join("backing").display().to_string();
    let other = drive.directory.path().join("other").display().to_string();
    let said = refused(
        &["attach", "--backing", &backing, "--nbd", &format!("unix:{other}")],
        b"",
    );
    assert!(said.contains("another drive has it"), "{said}");
    assert_eq!(drive.status()["backing"], backing);
}

/// Compares an object with the one that is documented: the names of its fields, and of those below.
pub(super) fn same_fields(section: &str, real: &Value) {
    let document = include_str!("../../../../docs/src/reference/json.md");
    let (_, rest) = document.split_once(&format!("\n## `{section}`\n")).expect(section);
    let example = blocks(rest.split("\n## ").next().expect("its end"), "json");
    let example: Value = serde_json::from_str(&example).expect(section);
    let pairs = |of: &Value| {
        let fields = of.as_object().expect("an object").iter();
        let named = fields.map(|(name, value)| {
            let below = value.as_object().map(|below| below.keys().cloned().collect());
            (name.clone(), below.unwrap_or_default())
        });
        named.collect::<std::collections::BTreeMap<String, Vec<String>>>()
    };
    assert_eq!(pairs(&example), pairs(real), "{section}");
}

#[test]
fn the_documented_objects_of_drives_have_the_fields_of_real_ones() {
    let Some(drive) = Attached::nbd(&FAST) else { return };
    same_fields("elbow disk status", &drive.status());
    same_fields(
        "elbow disk powercut",
        &json(&["powercut", &drive.device, "--json"], b""),
    );
    let detached = drive.detach();
    same_fields(
        "elbow disk status",
        &serde_json::from_slice(&detached.stdout).expect("JSON"),
    );
    let Some(drive) = Attached::nbd(&FAST) else { return };
    drive.kill();
    let tidied = drive.detach();
    same_fields(
        "elbow disk detach",
        &serde_json::from_slice(&tidied.stdout).expect("JSON"),
    );
}

/// Without a drive, `--json` was wrong usage, and nothing was said where there was none.
#[test]
fn all_drives_are_listed_for_people_and_for_programs() {
    let drive = Attached::nbd(&["--size", "4M"]).expect("a drive");
    let all = json(&["status", "--json"], b"");
    same_fields("elbow disk status` without `DEVICE", &all);
    let drives = all["drives"].as_array().expect("a list");
    let own = drives
        .iter()
        .find(|each| each["device"] == *drive.device)
        .expect("our drive");
    assert_eq!((&own["bytes"], &own["died"]), (&4_194_304.into(), &false.into()));
    let status = text(&elbow(&["status", &drive.device], b"").stdout);
    assert!(status.contains("4.2 MB in "), "{status}");
    assert!(text(&elbow(&["status"], b"").stdout).contains(", 4.2 MB, "));
    let built_in = json(&["describe", "--json"], b"");
    let first = &built_in["drives"][0];
    assert_eq!(
        (&first["disk"], &first["sectors"]),
        (&"hp-c2247a".into(), &2_054_864.into())
    );
    let regions = text(&elbow_of("bark", &["status", "--json"], b"").stdout);
    assert!(regions.contains("\"regions\":["), "{regions}");
}

#[test]
fn mistakes_are_told() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let backing = directory.path().join("backing").display().to_string();
    let attach = |options: &[&str]| refused(&[&["attach", "--backing", &backing], options].concat(), b"");
    assert!(attach(&["--nbd", "disk"]).contains("unix:SOCKET"));
    assert!(
        attach(&["--model", "hp-c2247a", "--size", "2G", "--nbd", "tcp:127.0.0.1:0"])
            .contains("more than the drive has")
    );
    assert!(attach(&["--size", "1000", "--nbd", "tcp:127.0.0.1:0"]).contains("sectors"));
    // It advised `--size` to who had said that, and left an empty file.
    let said = attach(&["--size", "1000", "--nbd", "tcp:127.0.0.1:0"]);
    assert!(
        said.contains("--size: 1000 bytes") && said.contains("1024") && !said.contains("say --size"),
        "{said}"
    );
    assert!(!Path::new(&backing).exists());
    std::fs::write(&backing, [0; 1000]).expect("room");
    let said = attach(&["--nbd", "tcp:127.0.0.1:0"]);
    assert!(
        said.contains("backing: 1000 bytes") && said.ends_with("say --size\n"),
        "{said}"
    );
    assert!(refused(&["status", "/dev/none"], b"").contains("/dev/none"));
}

/// The guide's commands, with its program.
#[test]
fn the_guide_finds_the_fsync_that_is_missing() {
    if is_root().is_none() {
        return;
    }
    let guide = include_str!("../../../../docs/src/guide/power-cut.md");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let save = blocks(guide, "python");
    std::fs::write(directory.path().join("save.py"), save).expect("it writes");
    run_guide(guide, directory.path());
    let found = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("it reads");
    assert_eq!(
        (found("found").as_str(), found("found-synced").as_str()),
        ("first", "third")
    );
}

#[test]
fn the_guide_to_slow_disks_runs() {
    if has_fuse().and(program("fio")).is_none() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let said = run_guide(
        include_str!("../../../../docs/src/guide/emulated-drive.md"),
        directory.path(),
    );
    assert!(said.contains("50 writes") && said.contains("lateness"), "{said}");
}

pub(super) fn blocks(guide: &str, language: &str) -> String {
    let fence = format!("```{language}\n");
    let blocks = guide.split(&fence).skip(1);
    blocks.map(|rest| rest.split("```").next().expect("its end")).collect()
}

pub(super) fn run_guide(guide: &str, directory: &Path) -> String {
    let elbow = Path::new(env!("CARGO_BIN_EXE_elbow")).parent().expect("a directory");
    let path = format!(
        "{}:{}:/usr/sbin:/sbin",
        elbow.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut shell = Command::new("timeout");
    let script = format!("set -e\n{}", blocks(guide, "sh"));
    let _taking = takes_loop_devices();
    succeeds(
        shell
            .args(["120", "bash", "-c", &script])
            .env("PATH", path)
            .current_dir(directory),
    )
}
