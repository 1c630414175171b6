//! Figure 12 as it is called here: what a write to a log costs by skip distance and think time (*Range Writes*, section 6, Log-Performance Modeling), and
//! what it is worth to know that.

use std::sync::Arc;

use elbow_disk::device::{ModelledDevice, Setup};
use elbow_disk::profile::{self, DeviceProbe, Identity, Kind, Predictor, Profile};
use elbow_disk::workload::Overheads;
use elbow_disk::{Drive, SECTOR_BYTES};
use elbow_file::range_device::FirstSectors;

use super::claim::Claim;
use super::panel::{Column, Panel, PanelKind, Scale};
use super::plan::{Figure, Plan, StudyError};

/// Of the region that is measured.
const REGION_BYTES: u64 = 16 << 20;
/// Think times, in turns.
const THINK_TURNS: [f64; 4] = [0.0, 0.25, 0.5, 0.75];
/// Skips of so many turns are shown: the pattern comes again.
const SHOWN_TURNS: f64 = 1.3;
const SECTORS_PER_KIB: f64 = 1024.0 / SECTOR_BYTES as f64;

/// The figure.
pub(super) fn skips(plan: &Plan) -> Result<Figure, StudyError> {
    let profile = measured(&plan.drive)?;
    let predictor = Predictor::new(&profile)?;
    let rotation = profile.rotation.as_ref().ok_or(profile::ProfileError::NoRotation)?;
    let most = (rotation.turn_sectors * SHOWN_TURNS) as i64;
    let shown = profile
        .rows
        .iter()
        .map(|row| row.skip)
        .filter(|skip| (0..=most).contains(skip));
    let skips: Vec<i64> = shown.collect();
    let kib: Vec<f64> = skips.iter().map(|&skip| skip as f64 / SECTORS_PER_KIB).collect();
    let columns = THINK_TURNS.map(|turns| {
        let think_ms = turns * rotation.period_ms;
        let costs = skips.iter().map(|&skip| predictor.cost_ms(skip, think_ms)).collect();
        Column::exact(format!("after {think_ms:.1} ms"), costs)
    });
    let panel = Panel {
        scale: Scale::Linear,
        ..Panel::new(
            "",
            PanelKind::Lines,
            ("skip distance (KiB)", &kib),
            "time of a write (ms)",
        )
        .with(columns.into())
    };
    let trial = &rotation.trial;
    let worth = Claim::ours(
        "A write that goes where this says waits for no rotation",
        format!(
            "{:.2} ms, and {:.2} for one behind the other; {} of {} too late; a turn is {:.2} ms",
            trial.mean_ms, trial.in_order_ms, trial.missed, trial.writes, rotation.period_ms
        ),
        trial.mean_ms < trial.in_order_ms / 2.0,
        [
            "By the time the next write comes the sector behind the last one has passed, and nearly a turn is left to wait",
            "The drive that was measured does not turn between two writes",
        ],
    );
    Ok(Figure {
        name: "12",
        title: "What a write costs by skip distance",
        caption: format!(
            "The profile that places of log records are chosen by, measured as on a real drive but in the model's own time: {} sectors a write, {} KiB of region. The paper measured skips from 0 to 600 KB \
             and think times from 0 to 80 ms (section 6, Log-Performance Modeling), which is many turns; what repeats each turn is measured once here.",
            profile.write_sectors,
            REGION_BYTES >> 10,
        ),
        panels: vec![panel],
        claims: vec![worth],
    })
}

fn measured(drive: &Arc<Drive>) -> Result<Profile, StudyError> {
    let setup = Setup {
        overheads: Overheads::Controller,
        ..Setup::default()
    };
    let sectors = REGION_BYTES / SECTOR_BYTES;
    let device = FirstSectors::of(ModelledDevice::new(drive, setup), sectors);
    let mut probe = DeviceProbe::new(device)?;
    let identity = Identity {
        kind: Kind::Model,
        model: Some(drive.name().to_owned()),
        serial: None,
        partition_start_bytes: None,
        bytes: REGION_BYTES,
    };
    let plan = profile::Plan::new(0..sectors);
    Ok(profile::measure(&mut probe, &plan, identity, &mut |_| true)?)
}
