//! Attached regions: what programs read and write in each way, what a dead server or a power cut below leaves.

mod refused;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use elbow_testkit::program::write_program;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::drive::{fio, has_fuse, is_root, program, run_guide, same_fields, succeeds};
use super::{elbow, elbow_of, refusal, takes_loop_devices, text, unmount, when_free};

fn bark(args: &[&str]) -> Output {
    elbow_of("bark", args, b"")
}

fn refused(args: &[&str]) -> String {
    let output = bark(args);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{args:?}");
    text(&output.stderr)
}

/// A region that is taken away with the test.
struct Region {
    device: String,
    /// The first file or device that it lies on.
    on: String,
    is_there: bool,
}

impl Region {
    fn attach(args: &[&str]) -> Region {
        let taking = takes_loop_devices();
        let output = bark(&[&["attach"], args].concat());
        drop(taking);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let device = text(&output.stdout).trim().to_owned();
        let on = args.first().copied().unwrap_or_default().to_owned();
        Region {
            device,
            on,
            is_there: true,
        }
    }

    fn status(&self) -> Value {
        let output = bark(&["status", &self.device, "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one JSON object")
    }

    fn count(&self, field: &str) -> u64 {
        self.status()[field].as_u64().expect("a number")
    }

    fn detach(mut self) -> Output {
        self.is_there = false;
        when_free(|| bark(&["detach", &self.device, "--json"]))
    }

    /// Kills its server, waits until that is known to be dead, and takes away what it left.
    fn kill(self) -> Value {
        kill_process(self.pid(), Signal::KILL).expect("it is killed");
        while !refused(&["status", &self.device]).contains("has died") {
            std::thread::yield_now();
        }
        let output = self.detach();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn pid(&self) -> Pid {
        let pid = self.status()["pid"].as_i64().expect("a process");
        Pid::from_raw(pid as i32).expect("not 0")
    }

    /// Waits until it is attached no more, by itself.
    fn wait_until_it_is_gone(mut self) {
        self.is_there = false;
        while text(&bark(&["status"]).stdout).contains(&self.on) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        // A number of a block device that is free again is the first that a test beside this one is given.
        let output = bark(&["status", &self.device, "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let is_anothers = status["on"].is_array() && !status["on"].to_string().contains(&self.on);
        assert!(
            is_anothers || refusal(&output).contains("is attached"),
            "{status}: {}",
            text(&output.stderr)
        );
    }

    fn open(&self) -> File {
        let opened = OpenOptions::new().read(true).write(true).open(&self.device);
        opened.expect("it opens")
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.is_there {
            bark(&["detach", &self.device]);
        }
    }
}

struct TestDirectory(TempDir);

impl TestDirectory {
    fn new() -> TestDirectory {
        TestDirectory(tempfile::tempdir().expect("a temporary directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn nbd(&self) -> String {
        format!("unix:{}", self.name("socket"))
    }
}

#[test]
fn a_file_is_written_checked_trimmed_and_found_again() {
    if has_fuse().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let (on, door) = (directory.name("region"), directory.name("journal"));
    let region = Region::attach(&[&on, "--size", "4M", "--file", &door]);
    assert_eq!(std::fs::metadata(&region.device).expect("a file").len(), 4 << 20);
    assert_eq!(region.count("region_bytes"), 16 << 20);
    let _ = fio(&[format!("--filename={door}")]);
    let file = region.open();
    file.write_all_at(&[5; 64 << 10], 8192).expect("it writes");
    file.sync_data().expect("it flushes");
    let free = region.count("free_sectors");
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, hole, 8192, 32 << 10).expect("a hole is a trim");
    file.sync_data().expect("it flushes");
    let mut read = [1; 512];
    file.read_exact_at(&mut read, 8192).expect("it reads");
    assert_eq!(read, [0; 512]);
    rustix::fs::fallocate(&file, hole, 0, 4 << 20).expect("a hole is a trim");
    file.sync_data().expect("it flushes");
    assert!(region.count("free_sectors") > free + 64, "{}", region.status());
    file.write_all_at(b"found again", 1000).expect("it writes");
    file.sync_data().expect("it flushes");
    assert!(refused(&["detach", &door]).contains("in use"));
    drop(file);
    let output = region.detach();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!Path::new(&door).exists(), "it was made by attach");
    let region = Region::attach(&[&on, "--file", &door]);
    let mut read = [0; 11];
    region.open().read_exact_at(&mut read, 1000).expect("it reads");
    assert_eq!(&read, b"found again");
    assert!(region.count("found_records") > 0);
}

#[test]
fn clients_of_nbd_write_force_trim_and_read() {
    let directory = TestDirectory::new();
    let region = Region::attach(&[&directory.name("region"), "--size", "4M", "--nbd", &directory.nbd()]);
    let uri = format!("nbd+unix:///?socket={}", directory.name("socket"));
    if let Some(mut qemu) = program("qemu-io") {
        let commands = [
            "write -P 7 0 64k",
            "write -f -P 9 1M 4k",
            "flush",
            "discard 0 32k",
            "write -z 32k 4k",
        ];
        let checks = ["read -P 0 0 36k", "read -P 7 36k 28k", "read -P 9 1M 4k"];
        for command in commands.iter().chain(&checks) {
            qemu.args(["-c", command]);
        }
        let said = succeeds(qemu.args(["-f", "raw", &uri]));
        assert!(!said.contains("failed"), "{said}");
        assert!(region.count("trims") >= 2, "{}", region.status());
    }
    if let Some(mut info) = program("nbdinfo") {
        let said = succeeds(info.args(["--json", &uri]));
        let info: Value = serde_json::from_str(&said).expect("JSON");
        let export = &info["exports"][0];
        assert_eq!(
            (&export["can_trim"], &export["is_rotational"]),
            (&true.into(), &false.into())
        );
    }
    let _ = fio(&["--ioengine=nbd".to_owned(), format!("--uri={uri}")]);
    same_fields("elbow bark status", &region.status());
    let output = region.detach();
    assert!(output.status.success(), "{}", text(&output.stderr));
    same_fields(
        "elbow bark status",
        &serde_json::from_slice(&output.stdout).expect("JSON"),
    );
}

#[test]
fn what_was_flushed_is_there_after_the_server_was_killed() {
    if has_fuse().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let (on, door) = (directory.name("region"), directory.name("journal"));
    for round in 1..4_u8 {
        let region = Region::attach(&[&on, "--size", "1M", "--file", &door]);
        let file = region.open();
        let mut found = [0; 512];
        file.read_exact_at(&mut found, 512).expect("it reads");
        assert_eq!(found, [round - 1; 512]);
        file.write_all_at(&[round; 1024], 0).expect("it writes");
        file.sync_data().expect("it flushes");
        let tidied = region.kill();
        assert!(file.sync_data().is_err(), "nobody answers, and nobody waits");
        same_fields("elbow bark detach", &tidied);
    }
    assert!(refused(&["status", &door]).contains("is attached"));
}

/// A drive below a region, which is detached with the test.
struct EmulatedDrive(String);

impl EmulatedDrive {
    fn attach(backing: &str, file: &str, size: &str) -> EmulatedDrive {
        let model = [
            "attach",
            "--model",
            "generic-7200",
            "--cache",
            "write-back",
            "--size",
            size,
        ];
        let attached = elbow(&[&model[..], &["--backing", backing, "--file", file]].concat(), b"");
        assert!(attached.status.success(), "{}", text(&attached.stderr));
        EmulatedDrive(file.to_owned())
    }
}

impl Drop for EmulatedDrive {
    fn drop(&mut self) {
        elbow(&["detach", &self.0], b"");
    }
}

/// An ext4 with its data in an ordinary file and its journal on a region; unmounted with the test.
struct Ext4 {
    data: String,
    point: String,
    is_mounted: bool,
}

impl Ext4 {
    fn make(directory: &TestDirectory, journal: &str) -> Ext4 {
        let (data, point) = (directory.name("data"), directory.name("mounted"));
        std::fs::create_dir(&point).expect("a directory");
        let sized = File::create(&data).and_then(|file| file.set_len(64 << 20));
        sized.expect("a file");
        succeeds(e2fs("mke2fs").args(["-q", "-b", "4096", "-O", "journal_dev", journal]));
        let on_journal = format!("device={journal}");
        succeeds(e2fs("mkfs.ext4").args(["-q", "-b", "4096", "-J", &on_journal, &data]));
        let is_mounted = false;
        Ext4 {
            data,
            point,
            is_mounted,
        }
    }

    fn mount(&mut self, journal: &str) {
        let options = format!("loop,journal_path={journal}");
        let _taking = takes_loop_devices();
        succeeds(Command::new("mount").args(["-o", &options, &self.data, &self.point]));
        self.is_mounted = true;
    }

    fn unmount(&mut self) {
        self.is_mounted = false;
        unmount(Path::new(&self.point));
    }

    /// Whether what was written is there for sure.
    fn save(&self, name: &str, content: &str) -> std::io::Result<()> {
        let file = File::create(Path::new(&self.point).join(name))?;
        file.write_all_at(content.as_bytes(), 0)?;
        file.sync_all()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(Path::new(&self.point).join(name)).expect("it reads")
    }

    fn check(&self, journal: &str) {
        succeeds(e2fs("e2fsck").args(["-fn", "-j", journal, &self.data]));
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").args(["-l", &self.point]).status();
        }
    }
}

fn e2fs(name: &str) -> Command {
    program(name).expect("e2fsprogs")
}

#[test]
fn ext4_replays_its_journal_from_a_region_whose_server_was_killed() {
    if is_root().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let on = directory.name("region");
    let mut region = Region::attach(&[&on, "--size", "8M"]);
    let mut ext4 = Ext4::make(&directory, &region.device);
    ext4.mount(&region.device);
    for round in 0..3 {
        let name = |number| format!("{round}-{number}");
        for number in 0..20 {
            ext4.save(&name(number), &name(number)).expect("it is saved");
        }
        region.kill();
        assert!(ext4.save("lost", "no journal").is_err(), "no commit without a journal");
        ext4.unmount();
        region = Region::attach(&[&on]);
        // Nothing but the journal is replayed, so that what is checked then is what the journal left.
        let replayed = e2fs("e2fsck")
            .args(["-y", "-E", "journal_only", "-j", &region.device, &ext4.data])
            .output();
        let replayed = replayed.expect("it runs");
        let said = text(&replayed.stdout) + &text(&replayed.stderr);
        assert!(matches!(replayed.status.code(), Some(0 | 1)), "{said}");
        assert!(said.contains("recovering journal"), "{said}");
        ext4.check(&region.device);
        ext4.mount(&region.device);
        for number in 0..20 {
            assert_eq!(ext4.read(&name(number)), name(number));
        }
    }
    let _ = fio(&[format!("--directory={}", ext4.point)]);
    assert!(refused(&["detach", &region.device]).contains("in use"), "it is mounted");
    ext4.unmount();
    ext4.check(&region.device);
    let output = region.detach();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// The region lies on an emulated drive, so that what is not flushed is lost in truth.
#[test]
fn ext4_replays_its_journal_after_a_power_cut_below_the_region() {
    if is_root().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let (backing, disk) = (directory.name("backing"), directory.name("disk"));
    let _drive = EmulatedDrive::attach(&backing, &disk, "32M");
    let mut region = Region::attach(&[&disk, "--size", "8M"]);
    let mut ext4 = Ext4::make(&directory, &region.device);
    let mut lost = 0;
    for round in 0..20 {
        // Whether something is on its way just then is chance.
        if round >= 4 && lost > 0 {
            break;
        }
        ext4.mount(&region.device);
        let name = |number| format!("{round}-{number}");
        for number in 0..3 {
            ext4.save(&name(number), &name(number)).expect("it is saved");
        }
        // What is on its way when the power goes.
        for number in 0..100 {
            let directory = Path::new(&ext4.point).join(format!("{round}-not-synced-{number}"));
            std::fs::create_dir(directory).expect("it is made");
        }
        let file = File::open(&ext4.point).expect("it opens");
        let syncing = std::thread::spawn(move || rustix::fs::syncfs(&file));
        std::thread::sleep(std::time::Duration::from_millis(round * 7 % 23));
        let cut = elbow(
            &["powercut", &disk, "--torn", "--seed", &round.to_string(), "--json"],
            b"",
        );
        let cut: Value = serde_json::from_slice(&cut.stdout).expect("JSON");
        lost += cut["lost"].as_u64().expect("a number") + cut["torn"].as_u64().expect("a number");
        let _ = syncing.join().expect("it ends"); // It may have failed, too.
        assert!(ext4.save("lost", "no journal").is_err(), "no commit without a journal");
        ext4.unmount();
        let output = region.detach();
        assert_eq!(output.status.code(), Some(125), "a flush has failed");
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let message = told["error"]["message"].as_str().expect("what is wrong");
        assert!(message.contains("what was flushed before is there"), "{told}");
        region = Region::attach(&[&disk]);
        let replayed = e2fs("e2fsck")
            .args(["-y", "-E", "journal_only", "-j", &region.device, &ext4.data])
            .output();
        let replayed = replayed.expect("it runs");
        let said = text(&replayed.stdout) + &text(&replayed.stderr);
        assert!(matches!(replayed.status.code(), Some(0 | 1)), "{said}");
        ext4.check(&region.device);
        ext4.mount(&region.device);
        for number in 0..3 {
            assert_eq!(ext4.read(&name(number)), name(number));
        }
        ext4.unmount();
    }
    println!("{lost} writes lost or torn");
    assert!(lost > 0, "nothing was lost: the test tests nothing");
    assert!(region.detach().status.success());
}

fn saved(region: &Region, byte: u8) {
    let file = region.open();
    file.write_all_at(&[byte; 4096], 0).expect("it writes");
    file.sync_data().expect("it flushes");
}

fn found(region: &Region) -> u8 {
    let mut read = [0; 4096];
    region.open().read_exact_at(&mut read, 0).expect("it reads");
    assert!(read.iter().all(|byte| *byte == read[0]), "one write");
    read[0]
}

#[test]
fn either_of_two_copies_has_what_was_flushed() {
    if has_fuse().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let (a, b, door) = (directory.name("a"), directory.name("b"), directory.name("journal"));
    let attach = |more: &[&str]| Region::attach(&[&[&a, &b, "--copies", "2", "--file", &door], more].concat());
    let region = attach(&["--size", "1M"]);
    same_fields("elbow bark status", &region.status());
    let _ = fio(&[format!("--filename={door}")]);
    saved(&region, 1);
    region.kill();
    std::fs::rename(&a, directory.path("away")).expect("moved");
    let said = refused(&["attach", &a, &b, "--copies", "2", "--file", &door]);
    assert!(said.contains("--degraded"), "{said}");
    let region = attach(&["--degraded"]);
    assert_eq!((found(&region), region.count("whole_copies")), (1, 1));
    saved(&region, 2);
    assert!(region.detach().status.success());
    // What was away is older, and does not come back.
    std::fs::rename(directory.path("away"), &a).expect("moved");
    let region = attach(&[]);
    assert_eq!((found(&region), region.count("whole_copies")), (2, 2));
    assert!(region.detach().status.success());
    std::fs::remove_file(&b).expect("removed");
    let region = attach(&["--size", "1M"]); // It is made, and gets a copy.
    assert_eq!(found(&region), 2);
    assert!(region.detach().status.success());
    std::fs::remove_file(&a).expect("removed");
    let region = attach(&["--degraded"]);
    assert_eq!(found(&region), 2);
    assert!(region.detach().status.success());
    let said = refused(&["attach", &b, "--file", &door]);
    assert!(said.contains("--copies 2"), "{said}");
}

#[test]
fn devices_that_share_a_region_are_one() {
    if has_fuse().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let (a, b, door) = (directory.name("a"), directory.name("b"), directory.name("journal"));
    let attach = |more: &[&str]| Region::attach(&[&[&a, &b, "--file", &door], more].concat());
    let region = attach(&["--size", "4M"]);
    assert_eq!(std::fs::metadata(&a).expect("a file").len(), 8 << 20);
    let _ = fio(&[format!("--filename={door}")]);
    for byte in 1..40 {
        saved(&region, byte);
    }
    region.kill();
    let region = attach(&[]);
    assert_eq!(found(&region), 39);
    assert!(region.detach().status.success());
    let said = refused(&["attach", &a, &b, &a, "--copies", "2", "--file", &door]);
    assert!(said.contains("shared out"), "{said}");
}

/// A device that dies while the region is in use: nothing is acknowledged any more, and what was flushed is read.
#[test]
fn a_copy_whose_disk_dies_loses_nothing_that_was_flushed() {
    if has_fuse().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let [a, backing, disk, door] = ["a", "backing", "disk", "journal"].map(|name| directory.name(name));
    let _drive = EmulatedDrive::attach(&backing, &disk, "8M");
    let copies = ["--copies", "2", "--file", &door];
    let region = Region::attach(&[&[&a, &disk, "--size", "1M"], &copies[..]].concat());
    saved(&region, 1);
    assert!(elbow(&["powercut", &disk], b"").status.success());
    let file = region.open();
    let late = file.write_all_at(&[2; 4096], 8192).and_then(|()| file.sync_data());
    assert!(late.is_err(), "one copy is no two");
    drop(file);
    assert_eq!(found(&region), 1);
    let status = region.status();
    assert!(status["whole_copies"] == 1 && status["failure"].is_string(), "{status}");
    assert_eq!(region.detach().status.code(), Some(125));
    let region = Region::attach(&[&[&a, &directory.name("none"), "--degraded"], &copies[..]].concat());
    assert_eq!(found(&region), 1);
    saved(&region, 3);
    assert!(region.detach().status.success());
    // The other was away meanwhile.
    let region = Region::attach(&[&[a.as_str(), &disk], &copies[..]].concat());
    assert_eq!(found(&region), 3);
    assert!(region.detach().status.success());
}

/// The guide's commands.
#[test]
fn the_guide_to_journals_runs() {
    if is_root().and(program("fio").map(drop)).is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let said = run_guide(include_str!("../../../../docs/src/guide/bark.md"), directory.0.path());
    assert!(said.contains("range writes"), "{said}");
}

/// The first signal used to tear the journal off its file system.
#[test]
fn a_signal_does_not_end_the_journal_of_a_mounted_file_system() {
    if is_root().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let on = directory.name("region");
    let region = Region::attach(&[&on, "--size", "8M"]);
    let mut ext4 = Ext4::make(&directory, &region.device);
    ext4.mount(&region.device);
    kill_process(region.pid(), Signal::TERM).expect("it is told");
    for number in 0..50 {
        let name = format!("after-{number}");
        ext4.save(&name, &name).expect("the journal is there");
    }
    assert!(region.count("flushes") > 0, "it answers");
    ext4.unmount();
    region.wait_until_it_is_gone();
    let region = Region::attach(&[&on]);
    ext4.check(&region.device);
    ext4.mount(&region.device);
    for number in 0..50 {
        let name = format!("after-{number}");
        assert_eq!(ext4.read(&name), name);
    }
    ext4.unmount();
}

#[test]
fn a_second_signal_ends_a_region_that_is_in_use() {
    if has_fuse().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let (on, offered) = (directory.name("region"), directory.name("journal"));
    let region = Region::attach(&[&on, "--size", "1M", "--file", &offered]);
    let (file, pid) = (region.open(), region.pid());
    kill_process(pid, Signal::TERM).expect("it is told");
    for byte in 0..50 {
        file.write_all_at(&[byte; 512], 0).expect("it writes");
        file.sync_data().expect("it flushes");
    }
    kill_process(pid, Signal::INT).expect("it is told");
    region.wait_until_it_is_gone();
    assert!(file.write_all_at(&[1; 512], 0).is_err() || file.sync_data().is_err());
    drop(file);
    let region = Region::attach(&[&on, "--file", &offered]);
    let mut found = [0; 512];
    region.open().read_exact_at(&mut found, 0).expect("it reads");
    assert_eq!(found, [49; 512]);
}

/// Field 9 of proc_pid_stat(5) of each thread; PF_MEMALLOC_NOIO is what PR_SET_IO_FLUSHER sets.
fn allocates_without_io(pid: Pid) -> Vec<bool> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let flags = threads.map(|thread| {
        let stat = std::fs::read_to_string(thread.expect("a thread").path().join("stat")).expect("it reads");
        let fields = stat.rsplit_once(')').expect("a name").1;
        let flags = fields.split_whitespace().nth(6).expect("flags");
        flags.parse::<u64>().expect("a number") & 0x0008_0000 != 0
    });
    flags.collect()
}

/// The kernel writes to our device to free memory: a thread that waits for memory on the way would wait for itself.
#[test]
fn a_server_never_waits_for_memory_that_it_has_to_free() {
    // Root in a container may lack CAP_SYS_RESOURCE.
    if rustix::process::configure_io_flusher_behavior(true).is_err() {
        eprintln!("SKIPPED: this process lacks CAP_SYS_RESOURCE");
        return;
    }
    // The server has to do it itself, and not have it from us.
    rustix::process::configure_io_flusher_behavior(false).expect("as it was");
    let directory = TestDirectory::new();
    let region = Region::attach(&[&directory.name("region"), "--size", "1M", "--nbd", &directory.nbd()]);
    let threads = allocates_without_io(region.pid());
    assert!(threads.len() > 2 && threads.iter().all(|&is| is), "{threads:?}");
}

#[test]
fn a_new_region_is_for_its_user_alone_and_has_all_its_blocks() {
    let directory = TestDirectory::new();
    let (on, sparse) = (directory.path("region"), directory.path("sparse"));
    let made = |on: &Path| {
        let output = bark(&["format", &on.display().to_string(), "--size", "1M"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let told = text(&output.stderr);
        let metadata = on.metadata().expect("a file");
        // Where its file system sets no room aside, that is told.
        assert!(
            metadata.blocks() * 512 >= metadata.len() || told.contains("sets no room aside"),
            "{told}"
        );
        metadata
    };
    assert_eq!(made(&on).permissions().mode() & 0o777, 0o600);
    let sized = File::create(&sparse).and_then(|file| file.set_len(16 << 20));
    sized.expect("a file");
    assert_eq!(sparse.metadata().expect("a file").blocks(), 0, "all of it is a hole");
    assert_eq!(made(&sparse).len(), 16 << 20);
}

/// A region of twice its size had no room for its size in single sectors, however long one waited.
#[test]
fn a_region_takes_its_whole_size_in_single_sectors_again_and_again() {
    if has_fuse().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let (on, offered) = (directory.name("region"), directory.name("journal"));
    let least = (2 * 128 + 3 * 129 + 3) * 512;
    let told = refused(&["attach", &on, "--size", "64k", "--factor", "2", "--file", &offered]);
    assert!(told.contains(&format!("at least {least}")), "{told}");
    assert!(!Path::new(&on).exists(), "nothing was made");
    let sized = |bytes| File::create(&on).and_then(|file| file.set_len(bytes)).expect("a file");
    sized(least - 512);
    assert!(refused(&["attach", &on, "--size", "64k", "--file", &offered]).contains("at least"));
    sized(least);
    let region = Region::attach(&[&on, "--size", "64k", "--file", &offered]);
    let file = region.open();
    for round in 1..4_u8 {
        for sector in 0..128 {
            file.write_all_at(&[round; 512], sector * 512).expect("there is room");
            file.sync_data().expect("there is room");
        }
    }
    assert_eq!(region.count("refused_full"), 0, "{}", region.status());
}

/// What `blkid` would still have called a swap, a RAID member or a partition table.
#[test]
fn a_forced_format_leaves_no_trace_of_what_was_there() {
    let directory = TestDirectory::new();
    let (on, bytes) = (directory.name("region"), vec![0xEE_u8; 8 << 20]);
    let formatted = |options: &[&str]| {
        std::fs::write(&on, &bytes).expect("it writes");
        let output = bark(&[&["format", &on, "--size", "1M", "--force"], options].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        std::fs::read(&on).expect("it reads")
    };
    let zeros = |part: &[u8]| part.iter().all(|&byte| byte == 0);
    let whole = formatted(&[]);
    assert!(
        zeros(&whole[1024..1 << 20]) && zeros(&whole[7 << 20..]),
        "first and last MiB"
    );
    let part = formatted(&["--factor", "4"]);
    assert!(zeros(&part[1024..1 << 20]));
    assert!(
        part[4 << 20..] == bytes[4 << 20..],
        "what is behind the region is not its own"
    );
}

/// The second device kept its first two sectors: a partition table and the header of another region, which `attach` found there.
#[test]
fn a_forced_format_leaves_no_trace_on_any_of_its_devices() {
    let directory = TestDirectory::new();
    let (a, b) = (directory.name("a"), directory.name("b"));
    for path in [&a, &b] {
        std::fs::write(path, vec![0xEE_u8; 8 << 20]).expect("it writes");
    }
    assert!(bark(&["format", &b, "--size", "1M", "--force"]).status.success());
    let header = std::fs::read(&b).expect("it reads");
    assert!(bark(&["format", &a, &b, "--size", "1M", "--force"]).status.success());
    let shared = std::fs::read(&b).expect("it reads");
    assert!(shared[..8] != header[..8], "the header of the region that lay there");
    assert!(
        shared[512..1 << 20].iter().all(|&byte| byte == 0),
        "all of the first MiB but the label"
    );
    let told = refused(&["attach", &b, "--nbd", &directory.nbd()]);
    assert!(
        told.contains("--size makes one") || told.contains("not empty"),
        "{told}"
    );
}

/// Whoever had it was newer then, or wrote to it at the same time.
#[test]
fn a_copy_that_another_process_has_is_not_missing() {
    let directory = TestDirectory::new();
    let (a, b) = (directory.name("a"), directory.name("b"));
    assert!(
        bark(&["format", &a, &b, "--copies", "2", "--size", "1M"])
            .status
            .success()
    );
    let has_it = File::open(&b).expect("it opens");
    rustix::fs::flock(&has_it, rustix::fs::FlockOperation::LockExclusive).expect("nobody has it");
    let degraded = [
        "attach",
        &a,
        &b,
        "--copies",
        "2",
        "--degraded",
        "--nbd",
        &directory.nbd(),
    ];
    let told = refused(&degraded);
    assert!(told.contains("another process has it"), "{told}");
    drop(has_it);
    std::fs::remove_file(&b).expect("it is removed");
    std::fs::create_dir(&b).expect("a directory");
    let told = refused(&degraded);
    assert!(!told.contains("missing"), "{told}");
    std::fs::remove_dir(&b).expect("it is removed");
    let region = Region::attach(&degraded[1..]);
    assert_eq!((region.count("copies"), region.count("whole_copies")), (2, 1));
}

/// It was written over: nothing said which devices share a region.
#[test]
fn a_device_that_shares_a_region_is_not_replaced_by_another() {
    let directory = TestDirectory::new();
    let [a, b, other] = ["a", "b", "other"].map(|name| directory.name(name));
    assert!(bark(&["format", &a, &b, "--size", "4M"]).status.success());
    let bytes = vec![7_u8; 8 << 20];
    std::fs::write(&other, &bytes).expect("it writes");
    for path in [&a, &b] {
        assert_eq!(std::fs::metadata(path).expect("a file").len(), 8 << 20);
    }
    let told = refused(&["attach", &a, &other, "--nbd", &directory.nbd()]);
    assert!(
        told.contains(&other) && told.contains("device 2 is not the one"),
        "{told}"
    );
    assert!(std::fs::read(&other).expect("it reads") == bytes);
    let region = Region::attach(&[&a, &b, "--nbd", &directory.nbd()]);
    assert!(region.detach().status.success());
}

/// A block device over a file that goes with the test.
struct LoopDevice(String);

impl LoopDevice {
    fn over(file: &Path) -> LoopDevice {
        let mut losetup = program("losetup").expect("util-linux");
        let _taking = takes_loop_devices();
        LoopDevice(succeeds(losetup.args(["--find", "--show"]).arg(file)).trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// A dead disk can mostly still be opened: `--degraded` refused it, and its name had to be replaced by one that is not there.
#[test]
fn a_disk_that_opens_and_cannot_be_read_is_a_missing_copy() {
    if is_root().is_none() {
        return;
    }
    // Nothing of it can be read, or its header and nothing behind.
    for left in [0, 4096] {
        let directory = TestDirectory::new();
        let (a, below) = (directory.name("a"), directory.path("below"));
        let sized = |bytes| {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&below)
                .and_then(|file| file.set_len(bytes))
                .expect("a file");
        };
        sized(8 << 20);
        let disk = LoopDevice::over(&below);
        for devices in [[&a, &disk.0], [&disk.0, &a]] {
            sized(8 << 20);
            assert!(
                bark(
                    &[
                        &["format"],
                        &devices.map(String::as_str)[..],
                        &["--copies", "2", "--size", "1M", "--force"]
                    ]
                    .concat()
                )
                .status
                .success()
            );
            sized(left);
            let mut byte = [0; 1];
            let dead = File::open(&disk.0).and_then(|file| file.read_exact_at(&mut byte, 1 << 20));
            assert!(dead.is_err(), "it is dead");
            let offered = directory.nbd();
            let attach = [
                &["attach"],
                &devices.map(String::as_str)[..],
                &["--copies", "2", "--nbd", &offered],
            ]
            .concat();
            refused(&attach);
            let output = bark(&[&attach[..], &["--degraded"]].concat());
            let told = text(&output.stderr);
            assert!(output.status.success() && told.contains("a copy is missing"), "{told}");
            let device = text(&output.stdout).trim().to_owned();
            let (on, is_there) = (devices[0].clone(), true);
            let region = Region { device, on, is_there };
            assert_eq!((region.count("copies"), region.count("whole_copies")), (2, 1));
            assert!(region.detach().status.success());
        }
    }
}

#[test]
fn an_attach_that_fails_leaves_no_file_and_no_entry() {
    let directory = TestDirectory::new();
    let (first, second) = (directory.name("first"), directory.name("second"));
    let region = Region::attach(&[&first, "--size", "1M", "--nbd", &directory.nbd()]);
    let told = refused(&["attach", &second, "--size", "1M", "--nbd", &directory.nbd()]);
    assert!(told.contains("cannot listen"), "{told}");
    assert!(!Path::new(&second).exists());
    assert!(refused(&["attach", &second, "--size", "1000", "--nbd", &directory.nbd()]).contains("no whole number"));
    assert!(!Path::new(&second).exists());
    // It has told nobody that it is ready: its parent's pipe is one that is only read.
    let late = format!("unix:{}", directory.name("late"));
    let args = [
        "attach",
        &second,
        "--size",
        "1M",
        "--nbd",
        &late,
        "--foreground",
        "--ready-fd=0",
    ];
    let output = bark(&args);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    let listed = text(&bark(&["status"]).stdout);
    assert!(listed.contains(&region.device) && !listed.contains(&late), "{listed}");
    assert!(!Path::new(&second).exists() && !directory.path("late").exists());
}

/// Between the file of a block device and the block device there used to be nothing that `detach` could find.
#[test]
fn what_a_server_leaves_that_is_killed_while_it_starts_is_taken_away() {
    if is_root().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let on = directory.name("region");
    let losetup = directory.path("losetup");
    let real = if Path::new("/usr/sbin/losetup").exists() {
        "/usr/sbin/losetup"
    } else {
        "/sbin/losetup"
    };
    let dies = format!("#!/bin/sh\n{real} \"$@\" >/dev/null\nkill -9 $PPID\n");
    write_program(&losetup, &dies).expect("a program");
    let path = format!(
        "{}:{}",
        directory.0.path().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let taking = takes_loop_devices();
    let attach = Command::new(env!("CARGO_BIN_EXE_elbow"))
        .args(["bark", "attach", &on, "--size", "1M"])
        .env("PATH", path)
        .stdin(Stdio::null())
        .output();
    drop(taking);
    assert_eq!(attach.expect("it runs").status.code(), Some(125));
    let listed = text(&bark(&["status"]).stdout);
    let line = listed.lines().find(|line| line.contains(&on)).expect("it is known");
    assert!(line.ends_with("its process has died"), "{line}");
    let hidden = line.split_whitespace().next().expect("a name");
    let leads_there = |table: &str| succeeds(&mut Command::new(table)).contains(hidden);
    assert!(leads_there("losetup") && leads_there("mount"), "it was killed between");
    assert!(bark(&["detach", hidden]).status.success());
    assert!(!leads_there("losetup") && !leads_there("mount") && !Path::new(hidden).exists());
    assert!(!text(&bark(&["status"]).stdout).contains(&on));
    assert!(
        Region::attach(&[&on, "--nbd", &directory.nbd()])
            .detach()
            .status
            .success()
    );
}

#[test]
fn a_server_that_is_stopped_keeps_nobody_waiting() {
    let directory = TestDirectory::new();
    let region = Region::attach(&[&directory.name("region"), "--size", "1M", "--nbd", &directory.nbd()]);
    let pid = region.pid();
    kill_process(pid, Signal::STOP).expect("it is stopped");
    let told = [
        refused(&["status", &region.device]),
        refused(&["detach", &region.device]),
    ];
    kill_process(pid, Signal::CONT).expect("it goes on");
    for told in told {
        assert!(told.contains(&format!("does not answer (PID {pid})")), "{told}");
    }
}
