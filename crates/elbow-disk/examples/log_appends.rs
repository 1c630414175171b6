//! Appends to a log on one device or several, each with its sync, and prints the ms of each. What is on the devices is lost.
//!
//! ```sh
//! cargo run --release -p elbow-disk --example log_appends -- 200 200 disk disk.profile.toml    # entries, their bytes, each device and its profile
//! ```
//!
//! On several devices an entry goes to the one that will be done first (`Members`), there to the place that the profile says (`ProfiledDevice`).

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use elbow_disk::profile::{Identity, Profile, ProfiledDevice};
use elbow_disk::region::Log;
use elbow_file::range_device::{Members, ThreadedDevice};

/// As many as `elbow bark attach` has for each of several devices.
const THREADS: usize = 4;
const SECTOR_BYTES: u32 = 512;
const ID: u64 = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [entries, bytes, devices @ ..] = &words[..] else {
        return Err("usage: log_appends ENTRIES BYTES DEVICE PROFILE [DEVICE PROFILE]...".into());
    };
    let (entries, entry): (usize, _) = (entries.parse()?, vec![5; bytes.parse()?]);
    let devices = devices
        .chunks_exact(2)
        .map(|pair| device(Path::new(&pair[0]), Path::new(&pair[1])));
    let mut log = Log::format(Members::new(devices.collect::<Result<_, _>>()?), ID)?;
    let mut lsns = Vec::new();
    for _ in 0..entries {
        let began = Instant::now();
        lsns.push(log.append(&entry)?);
        log.sync()?;
        println!("{}", began.elapsed().as_secs_f64() * 1000.0);
    }
    let found = log
        .iter_from(lsns[0])
        .filter(|found| found.as_ref().is_ok_and(|(_, content)| *content == entry));
    match found.count() == entries {
        true => Ok(()),
        false => Err("an entry was not found again".into()),
    }
}

fn device(path: &Path, profile: &Path) -> Result<ProfiledDevice<ThreadedDevice>, Box<dyn Error>> {
    let profile = Profile::load(profile)?;
    profile.device.check(&Identity::of(path)?)?;
    let device = ThreadedDevice::open(path, SECTOR_BYTES, THREADS)?;
    Ok(ProfiledDevice::new(device, &profile)?)
}
