//! Attached regions: what programs read and write through each door, what a dead server or a power cut below leaves, and what is refused.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use super::drive::{fio, has_fuse, is_root, program, run_guide, same_fields, succeeds};
use super::{elbow, elbow_of, text};

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
    is_there: bool,
}

impl Region {
    fn attach(args: &[&str]) -> Region {
        let output = bark(&[&["attach"], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let device = text(&output.stdout).trim().to_owned();
        Region { device, is_there: true }
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
        bark(&["detach", &self.device, "--json"])
    }

    /// Kills its server, waits until that is known to be dead, and takes away what it left.
    fn kill(self) -> Value {
        let pid = rustix::process::Pid::from_raw(self.status()["pid"].as_i64().expect("a process") as i32);
        rustix::process::kill_process(pid.expect("not 0"), rustix::process::Signal::KILL).expect("it is killed");
        while !refused(&["status", &self.device]).contains("has died") {
            std::thread::yield_now();
        }
        let output = self.detach();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
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
        succeeds(Command::new("mount").args(["-o", &options, &self.data, &self.point]));
        self.is_mounted = true;
    }

    fn unmount(&mut self) {
        self.is_mounted = false;
        succeeds(Command::new("umount").arg(&self.point));
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
        assert!(
            text(&output.stderr).contains("what was flushed before is there"),
            "{}",
            text(&output.stderr)
        );
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

#[test]
fn what_lies_there_is_not_written_over() {
    if has_fuse().is_none() {
        return;
    }
    let directory = TestDirectory::new();
    let (on, door) = (directory.name("region"), directory.name("journal"));
    assert!(refused(&["attach", &on]).contains("--size makes a region"));
    assert!(!Path::new(&on).exists());
    let mut bytes = vec![0; 8 << 20];
    bytes[(8 << 20) - 1] = 1;
    std::fs::write(&on, &bytes).expect("it writes");
    for args in [
        &["attach", &on, "--size", "1M", "--file", &door][..],
        &["format", &on, "--size", "1M"],
    ] {
        assert!(refused(args).contains("not empty"), "{args:?}");
    }
    assert_eq!(std::fs::read(&on).expect("it reads"), bytes);
    assert!(bark(&["format", &on, "--size", "1M", "--force"]).status.success());
    assert!(refused(&["format", &on, "--size", "1M"]).contains("a region lies there"));
    assert!(refused(&["attach", &on, "--size", "2M", "--file", &door]).contains("1048576"));
    let region = Region::attach(&[&on, "--size", "1M", "--file", &door]);
    assert_eq!(region.count("region_bytes"), 8 << 20, "all of the file");
    let other = directory.name("other");
    assert!(refused(&["attach", &on, "--file", &other]).contains("another process has it"));
    assert!(refused(&["format", &on, "--size", "1M", "--force"]).contains("another process has it"));
    drop(region);
    assert!(refused(&["format", &on, "--size", "5M", "--force"]).contains("at least"));
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
