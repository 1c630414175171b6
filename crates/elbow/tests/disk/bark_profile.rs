//! `elbow bark profile`: what it refuses, what it says of something that does not turn, and what is left when it is interrupted.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use elbow_disk::profile::{Identity, Profile};
use elbow_testkit::slowfs::{SlowFs, SlowOptions};
use serde_json::Value;
use tempfile::TempDir;

use super::drive::{is_root, program, same_fields, succeeds};
use super::text;

const MIB: u64 = 1 << 20;

fn command(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elbow"));
    command.args(["bark", "profile"]).args(args).current_dir(directory);
    command
}

fn profile(directory: &Path, args: &[&str]) -> Output {
    command(directory, args).output().expect("elbow runs")
}

fn refused(directory: &Path, args: &[&str]) -> String {
    let output = profile(directory, args);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{args:?}");
    text(&output.stderr)
}

fn directory_with(name: &str, bytes: u64) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let file = File::create(directory.path().join(name)).expect("a file");
    file.set_len(bytes).expect("it grows");
    directory
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    names.sort();
    names
}

#[test]
fn what_cannot_be_measured_is_refused_and_left_alone() {
    let directory = directory_with("file", 8 * MIB);
    let path = directory.path();
    let file = File::options()
        .write(true)
        .open(path.join("file"))
        .expect("it is there");
    file.write_all_at(b"mine", 5 * MIB).expect("it is written");
    let said = refused(path, &["file"]);
    assert!(said.contains("file has content, at byte 5242880"), "{said}");
    assert!(said.contains("--overwrite"), "{said}");
    // It lies in the last MiB of a device of 5 MiB and 4 bytes, outside of what would be written.
    file.set_len(5 * MIB + 4).expect("it gets shorter");
    assert!(refused(path, &["file", "--size", "4M"]).contains("at byte 5242880"));

    let few = refused(path, &["file", "--size", "3M"]);
    assert!(few.contains("cannot measure file: 3145728 bytes are too few"), "{few}");
    assert!(refused(path, &["file", "--size", "1G"]).contains("has 5242884 bytes, fewer than"));
    assert!(refused(path, &["none"]).contains("cannot read none: No such file or directory"));
    assert!(refused(path, &["."]).contains("neither a regular file nor a block device"));
    file.set_len(5 * MIB).expect("it gets shorter");
    let output = refused(path, &["file", "--output", "none/profile"]);
    assert!(output.contains("cannot write none/profile"), "{output}");
    fs::create_dir(path.join("taken")).expect("a directory");
    assert!(refused(path, &["file", "--output", "taken"]).contains("no regular file"));
    let own = refused(path, &["file", "--output", "file"]);
    assert!(own.contains("cannot write file: that is what is measured"), "{own}");
    assert!(refused(path, &["file", "--sector-bytes", "5000"]).contains("a power of two from 512 to 65536"));
    file.lock().expect("nobody has it");
    let locked = refused(path, &["file", "--overwrite"]);
    assert!(
        locked.contains("file is in use: another process has it locked"),
        "{locked}"
    );
    assert_eq!(names(path), ["file", "taken"], "nothing was written");
}

/// On whatever this machine has: the file says the same as the answer, and is of this file and no other.
#[test]
fn a_file_is_profiled_and_stays_zeros() {
    let directory = directory_with("region", 4 * MIB);
    let path = directory.path();
    let output = profile(path, &["--json", "region"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let file = path.join("region.profile.toml");
    let profile = Profile::load(&file).expect("it is whole");
    assert_eq!(said["sector_bytes"], 4096);
    assert_eq!(said["recommended"], profile.is_recommended());
    assert_eq!(said["rotation"].is_null(), profile.rotation.is_none());
    assert_eq!(said["anywhere"]["p50_ms"], profile.anywhere.p50_ms);
    let pictures = said["pictures"].as_array().expect("a list").len();
    assert_eq!(pictures == 0, profile.rotation.is_none(), "a picture is of a rotation");
    if profile.rotation.is_some() {
        same_fields("elbow bark profile", &said);
    }
    let identity = |name: &str| Identity::of(&path.join(name)).expect("it is there");
    profile.device.check(&identity("region")).expect("it is of this file");
    assert!(profile.device.check(&identity("region.profile.toml")).is_err());
    let bytes = fs::read(path.join("region")).expect("it is there");
    assert!(bytes.len() as u64 == 4 * MIB && bytes.iter().all(|&byte| byte == 0));
}

#[test]
fn an_interrupted_profile_leaves_none() {
    let directory = directory_with("region", 4 * MIB);
    let path = directory.path();
    fs::write(path.join("region.profile.toml"), "an old one").expect("it is written");
    let mut child = command(path, &["region"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("elbow runs");
    std::thread::sleep(Duration::from_secs(1));
    assert!(child.try_wait().expect("it is ours").is_none(), "it is still measuring");
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it is there");
    assert!(!child.wait().expect("it ends").success());
    assert_eq!(names(path), ["region", "region.profile.toml"]);
    let old = fs::read_to_string(path.join("region.profile.toml")).expect("it is there");
    assert_eq!(old, "an old one");
}

#[test]
fn what_is_mounted_is_refused_whatever_is_said() {
    if is_root().and(program("mkfs.ext4").map(drop)).is_none() {
        return;
    }
    let directory = directory_with("image", 16 * MIB);
    let path = directory.path();
    succeeds(Command::new("mkfs.ext4").args(["-q", "image"]).current_dir(path));
    fs::create_dir(path.join("mount")).expect("a directory");
    let taking = crate::takes_loop_devices();
    let mounted = Command::new("mount")
        .args(["-o", "loop", "image", "mount"])
        .current_dir(path)
        .status();
    drop(taking);
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: this machine lacks loop devices");
        return;
    }
    let behind = Command::new("losetup")
        .args(["-n", "-O", "NAME", "-j", "image"])
        .current_dir(path)
        .output();
    let device = text(&behind.expect("losetup runs").stdout).trim().to_owned();
    let said = refused(path, &["--overwrite", &device]);
    let of_file = refused(path, &["--overwrite", "image"]);
    succeeds(Command::new("umount").arg("mount").current_dir(path));
    assert!(
        said.contains(&format!("{device} is in use: it is mounted at ")),
        "{said}"
    );
    assert!(
        of_file.contains(&format!("image is in use: it is the content of {device}")),
        "{of_file}"
    );
}

/// A loop device over a file; `None`, said aloud, where they cannot be had.
struct LoopDevice(String);

impl LoopDevice {
    fn over(file: &Path) -> Option<Self> {
        is_root()?;
        let _taking = crate::takes_loop_devices();
        let mut losetup = program("losetup")?;
        let output = losetup.args(["--find", "--show"]).arg(file).output().expect("it runs");
        if !output.status.success() {
            eprintln!("SKIPPED: this machine lacks loop devices");
            return None;
        }
        Some(Self(text(&output.stdout).trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// Its name was all that was looked at, and led to nothing, or to another file.
#[test]
fn the_content_of_a_loop_device_is_refused_when_its_name_is_gone() {
    let directory = directory_with("image", 8 * MIB);
    let path = directory.path();
    let Some(device) = LoopDevice::over(&path.join("image")) else {
        return;
    };
    fs::rename(path.join("image"), path.join("renamed")).expect("a rename");
    fs::hard_link(path.join("renamed"), path.join("other")).expect("a link");
    fs::remove_file(path.join("renamed")).expect("it goes");
    let said = refused(path, &["--overwrite", "other"]);
    let expected = format!("other is in use: it is the content of {}", device.0);
    assert!(said.contains(&expected), "{said}");
}

/// A loop device over a file of a server that has died: the look at that file did not end, whatever was to be measured.
#[test]
fn a_loop_device_of_a_dead_file_system_holds_nobody_up() {
    if is_root().is_none() {
        return;
    }
    let (source, directory) = (directory_with("image", 8 * MIB), directory_with("file", 8 * MIB));
    let mountpoint = tempfile::tempdir().expect("a directory");
    let mounted = SlowFs::mount(source.path(), mountpoint.path(), &SlowOptions::default());
    let Ok(mounted) = mounted else {
        eprintln!("SKIPPED: this machine lacks FUSE");
        return;
    };
    let Some(device) = LoopDevice::over(&mountpoint.path().join("image")) else {
        return;
    };
    let file = File::options().write(true).open(directory.path().join("file"));
    file.expect("it is there")
        .write_all_at(b"mine", 0)
        .expect("it is written");
    // The kernel believes attributes for a second.
    std::thread::sleep(Duration::from_secs(2));
    mounted.pause();
    let mut child = command(directory.path(), &["file"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("elbow runs");
    let deadline = Instant::now() + Duration::from_secs(60);
    let has_ended = loop {
        match child.try_wait().expect("it is ours") {
            Some(_) => break true,
            None if Instant::now() > deadline => break false,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let was_asked = mounted.waiting() > 0;
    mounted.resume();
    let output = child.wait_with_output().expect("it ends");
    drop(device);
    assert!(has_ended, "it waited for another file system");
    let said = text(&output.stderr);
    assert!(was_asked && said.contains("file has content, at byte 0"), "{said}");
}
