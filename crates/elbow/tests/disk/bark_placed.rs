//! `elbow bark attach --profile`: where records go on a drive that was measured, and which drives are refused.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Arc, OnceLock};

use elbow_disk::device::{ModelledDevice, Setup};
use elbow_disk::profile::{DeviceProbe, Identity, Plan, Profile, measure};
use elbow_disk::workload::Overheads;
use elbow_disk::{Drive, SECTOR_BYTES};
use elbow_file::range_device::FirstSectors;
use serde_json::Value;
use tempfile::TempDir;

use super::drive::{has_fuse, same_fields};
use super::{elbow, elbow_of, text, when_free};

const MODEL: &str = "generic-7200";
const BYTES: u64 = 16 << 20;
/// What the way from the region to the drive and back adds.
const JITTER_MS: f64 = 0.2;
const COMMITS: u64 = 40;
/// A machine that is busy comes too late for any place.
const TRIES: usize = 10;

fn bark(args: &[&str]) -> Output {
    elbow_of("bark", args, b"")
}

fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

fn refused(args: &[&str]) -> String {
    let output = bark(args);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{args:?}");
    text(&output.stderr)
}

/// An emulated drive in real time, as a file.
struct EmulatedDrive {
    directory: TempDir,
    file: String,
}

impl EmulatedDrive {
    fn attach(bytes: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = |name: &str| directory.path().join(name).display().to_string();
        let (backing, file, size) = (place("backing"), place("disk"), bytes.to_string());
        let model = ["attach", "--model", MODEL, "--size", &size];
        succeeds(&elbow(
            &[&model[..], &["--backing", &backing, "--file", &file]].concat(),
            b"",
        ));
        Self { directory, file }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Its model measured in its own time, and as that of this file.
    fn profile(&self) -> String {
        static MEASURED: OnceLock<Profile> = OnceLock::new();
        let identity = Identity::of(Path::new(&self.file)).expect("it is there");
        let measured = MEASURED.get_or_init(|| measured(identity.clone()));
        let profile = Profile {
            device: identity,
            ..measured.clone()
        };
        let path = self.path("profile.toml");
        fs::write(&path, profile.to_toml()).expect("it is written");
        path.display().to_string()
    }

    /// What all requests took, in ms of the model's own time.
    fn busy_ms(&self) -> f64 {
        let said = succeeds(&elbow(&["status", &self.file, "--json"], b""));
        let status: Value = serde_json::from_str(&said).expect("JSON");
        let number = |value: &Value| value.as_f64().expect("a number");
        number(&status["response_ms"]["mean"]) * number(&status["served"])
    }

    /// How many pieces there are of what is not zero.
    fn pieces(&self) -> usize {
        let bytes = fs::read(self.path("backing")).expect("it is there");
        let sectors = bytes.chunks(SECTOR_BYTES as usize);
        let used: Vec<bool> = sectors.map(|sector| sector.iter().any(|&byte| byte != 0)).collect();
        used.windows(2).filter(|pair| !pair[0] && pair[1]).count() + usize::from(used[0])
    }
}

impl Drop for EmulatedDrive {
    fn drop(&mut self) {
        elbow(&["detach", &self.file], b"");
    }
}

fn measured(identity: Identity) -> Profile {
    let drive = Arc::new(Drive::named(MODEL).expect("built in"));
    let setup = Setup {
        overheads: Overheads::Controller,
        ..Setup::default()
    };
    let sectors = BYTES / SECTOR_BYTES;
    let device = FirstSectors::of(ModelledDevice::new(&drive, setup), sectors);
    let mut probe = DeviceProbe::new(device).expect("it has a clock");
    let profile = measure(&mut probe, &Plan::new(0..sectors), identity, &mut |_| true);
    let mut profile = profile.expect("nothing fails");
    let rotation = profile.rotation.as_mut().expect("it turns");
    rotation.jitter_ms += JITTER_MS;
    profile
}

/// Commits into a new region on these drives; returns its last status, and what each commit took in the drives' own time.
fn commits(drives: &[&EmulatedDrive], options: &[&str]) -> (Value, f64) {
    let offered = drives[0].name("journal");
    let on: Vec<&str> = drives.iter().map(|drive| drive.file.as_str()).collect();
    let region = succeeds(&bark(
        &[&["attach"], &on[..], &["--size", "1M", "--file", &offered], options].concat(),
    ));
    let busy_ms = || drives.iter().map(|drive| drive.busy_ms()).sum::<f64>();
    let before = busy_ms();
    let file = OpenOptions::new().write(true).open(&region).expect("it opens");
    for number in 0..COMMITS {
        file.write_all_at(&[7; SECTOR_BYTES as usize], number * SECTOR_BYTES)
            .expect("it writes");
        file.sync_data().expect("it flushes");
    }
    let commit_ms = (busy_ms() - before) / COMMITS as f64;
    drop(file);
    let status = succeeds(&when_free(|| bark(&["detach", &region, "--json"])));
    (serde_json::from_str(&status).expect("JSON"), commit_ms)
}

/// The places are those of the profile: each record has a part of the turn before it, and the drive's own time says that it was not waited for.
#[test]
fn records_go_where_the_platter_comes_next_by_the_profile() {
    if has_fuse().is_none() {
        return;
    }
    let in_order = EmulatedDrive::attach(BYTES);
    let (status, in_order_ms) = commits(&[&in_order], &[]);
    assert!(status["profiles"].as_array().is_some_and(Vec::is_empty), "{status}");
    // The headers, and all records one behind the other.
    assert!(in_order.pieces() <= 3, "{} pieces", in_order.pieces());
    let mut by_profile_ms = Vec::new();
    for _ in 0..TRIES {
        let placed = EmulatedDrive::attach(BYTES);
        let profile = placed.profile();
        let (status, commit_ms) = commits(&[&placed], &["--profile", &profile]);
        same_fields("elbow bark status", &status);
        assert_eq!(status["profiles"][0].as_str(), Some(profile.as_str()));
        assert!(placed.pieces() as u64 > COMMITS / 2, "{} pieces", placed.pieces());
        by_profile_ms.push(commit_ms);
        if commit_ms < in_order_ms / 2.0 {
            println!("{in_order_ms:.3} ms in order, {by_profile_ms:.3?} by the profile");
            return;
        }
    }
    panic!("{in_order_ms} ms in order, {by_profile_ms:?} by the profile");
}

#[test]
fn each_of_two_disks_that_share_a_region_has_a_profile() {
    if has_fuse().is_none() {
        return;
    }
    let (a, b) = (EmulatedDrive::attach(BYTES), EmulatedDrive::attach(BYTES));
    let (of_a, of_b) = (a.profile(), b.profile());
    let options = ["--profile", &of_a, "--profile", &of_b];
    let (status, _) = commits(&[&a, &b], &options);
    assert_eq!(status["profiles"].as_array().map(Vec::len), Some(2));
    let pieces = a.pieces() + b.pieces();
    assert!(pieces as u64 > COMMITS / 2, "{pieces} pieces");
    let told = refused(&[
        "attach",
        &a.file,
        &b.file,
        "--profile",
        &of_a,
        "--file",
        &a.name("journal"),
    ]);
    assert!(told.contains("2 device(s) and 1 profile(s)"), "{told}");
}

#[test]
fn a_profile_of_another_drive_is_refused_with_what_differs() {
    if has_fuse().is_none() {
        return;
    }
    let drive = EmulatedDrive::attach(BYTES);
    let profile = drive.profile();
    let attach = |on: &str, profile: &str| {
        let journal = drive.name("journal");
        refused(&["attach", on, "--size", "1M", "--profile", profile, "--file", &journal])
    };
    let other = EmulatedDrive::attach(BYTES / 2);
    let told = attach(&other.file, &profile);
    let differs = format!("its size is {BYTES} bytes, and that of this one {} bytes", BYTES / 2);
    assert!(told.contains(&differs) && told.contains("elbow bark profile"), "{told}");
    assert!(told.contains(&other.file) && told.contains(&profile), "{told}");
    assert_eq!(other.pieces(), 0, "nothing was written");
    // What was measured was there before.
    let new = drive.name("new");
    assert!(attach(&new, &profile).contains("the profile is of another drive"));
    assert!(!Path::new(&new).exists(), "what was made for it is gone");

    let mut still = Profile::load(Path::new(&profile)).expect("it is whole");
    (still.rotation, still.row_count) = (None, 0);
    still.rows.clear();
    still.tracks.clear();
    let nothing = drive.name("nothing.toml");
    fs::write(&nothing, still.to_toml()).expect("it is written");
    assert!(attach(&drive.file, &nothing).contains("found no period"));
    assert!(attach(&drive.file, &drive.name("none")).contains("cannot read"));
    fs::write(&nothing, "format = 1").expect("it is written");
    assert!(attach(&drive.file, &nothing).contains("nothing.toml: "));
}
