//! The drives that DiskSim ships, each on the requests that were measured on it: imported from DiskSim's files, replayed, and set beside
//! DiskSim's own distance from what was measured.
//!
//! `DISKSIM` names DiskSim's tree, which is not here: its licence asks for more than ours. Without it this says `SKIPPED`.

#![allow(clippy::disallowed_methods, reason = "reads the data of tests")]

use std::io::Write;
use std::path::{Path, PathBuf};

use elbow_disk::trace::{Format, Trace};
use elbow_disk::{Controller, Drive, Report, import, replay};

/// Name of parameters and trace, and the rms demerit of DiskSim 4.0 on it, in ms.
#[allow(clippy::approx_constant, reason = "one of them is a measured 0.318")]
const DRIVES: [(&str, f64); 10] = [
    ("hp_c2247a", 0.093),
    ("hp_c2490a", 0.255),
    ("hp_c3323a", 0.288),
    ("dec_rz26", 0.341),
    ("barracuda", 0.348),
    ("cheetah4LP", 0.318),
    ("cheetah9LP", 0.108),
    ("ibm18es", 0.136),
    ("atlas10k", 0.268),
    ("atlas_III", 0.378),
];
/// Built in, with another history.
const NOT_OF_DISKSIM: [&str; 4] = ["hp-c2247a", "generic-7200", "ultrastar-he12", "archive-8tb"];
/// Ours may be so many times as far off.
const SLACK: f64 = 1.05;

/// `valid` of the tree.
fn validation() -> Option<PathBuf> {
    let tree = std::env::var_os("DISKSIM").map(PathBuf::from);
    let found = tree.map(|tree| tree.join("valid")).filter(|valid| valid.is_dir());
    if found.is_none() {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: the drives of DiskSim: name its tree in DISKSIM, with the parameters and traces in `valid`"
        );
    }
    found
}

fn imported(valid: &Path, name: &str) -> Drive {
    // The one drive that is built in by its own name says in its description what was found on which half of its trace.
    if name == "hp_c2247a" {
        return Drive::named("hp-c2247a").expect("built in");
    }
    let file = format!("{name}.parv");
    let text = std::fs::read_to_string(valid.join(&file)).expect("its parameters");
    let mut read = |name: &str| std::fs::read_to_string(valid.join(name));
    let imported = import::disksim(&file, &text, None, &mut read).unwrap_or_else(|error| panic!("{error}"));
    Drive::parse(&file, &imported.toml).unwrap_or_else(|error| panic!("{error}"))
}

fn replayed(valid: &Path, name: &str, drive: &Drive) -> Report {
    let trace = std::fs::File::open(valid.join(format!("{name}.trace"))).expect("its trace");
    let trace = Trace::new(name, Format::Validate, trace, drive.sectors());
    replay(trace, Controller::new(drive), |_, _, _| ()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_drive_is_as_near_to_what_was_measured_as_disksim_is() {
    let Some(valid) = validation() else { return };
    println!("drive        requests  measured ms  simulated ms  rms demerit ms  DiskSim's  of writes");
    let mut further = Vec::new();
    for (name, disksim) in DRIVES {
        let report = replayed(&valid, name, &imported(&valid, name));
        let rms = report.all.rms_demerit_ms.expect("measured");
        println!(
            "{name:<12} {:>8} {:>12.3} {:>13.3} {rms:>15.3} {disksim:>10.3} {:>10.3}",
            report.all.requests,
            report.all.mean_measured_ms.unwrap_or_default(),
            report.all.mean_simulated_ms,
            report.writes.rms_demerit_ms.unwrap_or_default(),
        );
        if rms > disksim * SLACK {
            further.push(format!("{name}: {rms:.3} ms, DiskSim {disksim:.3}"));
        }
    }
    assert!(further.is_empty(), "further off than DiskSim: {further:#?}");
}

/// The model's own words for the built-in drives that were taken over are those that the import gives today.
#[test]
fn the_drives_that_are_built_in_are_those_of_disksim() {
    let Some(valid) = validation() else { return };
    for name in Drive::built_in().filter(|name| !NOT_OF_DISKSIM.contains(name)) {
        let built_in = Drive::named(name).expect("built in");
        let imported = imported(&valid, &name_there(name));
        assert_eq!(built_in.sectors(), imported.sectors(), "{name}");
        let summary = |drive: &Drive| format!("{:?}", drive.summary()).replace(drive.name(), "");
        assert_eq!(summary(&built_in), summary(&imported), "{name}");
    }
}

/// DiskSim's name of a built-in drive.
fn name_there(name: &str) -> String {
    let there = DRIVES
        .iter()
        .find(|(there, _)| there.to_lowercase().replace('_', "-") == name);
    there.map_or_else(
        || panic!("{name} is none of DiskSim's"),
        |(there, _)| (*there).to_owned(),
    )
}
