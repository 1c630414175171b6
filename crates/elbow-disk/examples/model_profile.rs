//! The profile of an emulated drive, from its model: measured in the model's own time, so in a second and exactly, and with the identity of the device that
//! `elbow disk attach` made of it. For benches and trials that are not to wait for `elbow bark profile`; the profile of a real drive is measured.
//!
//! ```sh
//! elbow disk attach --model generic-7200 --backing disk.img --size 16M --file disk
//! cargo run -p elbow-disk --example model_profile -- generic-7200 disk 0.2 > disk.profile.toml
//! ```
//!
//! The last number is by how many ms the way to the drive and back is uneven: a place that has to be reached more exactly is given up.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use elbow_disk::device::{ModelledDevice, Setup};
use elbow_disk::profile::{DeviceProbe, Identity, Plan, Profile, measure};
use elbow_disk::workload::Overheads;
use elbow_disk::{Drive, SECTOR_BYTES};
use elbow_file::range_device::FirstSectors;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [model, device, jitter_ms] = &words[..] else {
        return Err("usage: model_profile MODEL DEVICE JITTER_MS".into());
    };
    let profile = profile(model, Path::new(device), jitter_ms.parse()?)?;
    print!("{}", profile.to_toml());
    Ok(())
}

fn profile(model: &str, device: &Path, jitter_ms: f64) -> Result<Profile, Box<dyn Error>> {
    let drive = Arc::new(Drive::named(model)?);
    let identity = Identity::of(device)?;
    // As `elbow disk attach` has it.
    let setup = Setup {
        overheads: Overheads::Controller,
        ..Setup::default()
    };
    let sectors = identity.bytes / SECTOR_BYTES;
    let mut probe = DeviceProbe::new(FirstSectors::of(ModelledDevice::new(&drive, setup), sectors))?;
    let mut profile = measure(&mut probe, &Plan::new(0..sectors), identity, &mut |_| true)?;
    let rotation = profile.rotation.as_mut().ok_or("the model does not turn")?;
    rotation.jitter_ms += jitter_ms;
    Ok(profile)
}
