//! The real HP C2247A: 5,000 requests measured on one, against the model.

#![allow(clippy::disallowed_methods, reason = "reads the data of tests")]

mod support;

use elbow_disk::trace::{Format, RecordKind, Trace};
use elbow_disk::{Controller, Drive, replay};
use support::shared;

#[test]
fn response_times_are_distributed_as_on_the_real_drive() {
    let Some(path) = shared("c2247a/hardware_validate_first5000.trace.gz") else {
        return;
    };
    let drive = Drive::named("hp-c2247a").expect("built in");
    let file = std::fs::File::open(path).expect("the data can be read");
    let trace = Trace::new("hardware", Format::Validate, file, drive.sectors());
    let report = replay(trace, Controller::new(&drive), |_, _, _| ()).expect("a sound trace");
    println!("{report:#?}");
    let of = |figures: &elbow_disk::Figures| figures.rms_demerit_ms.expect("measured");
    assert_eq!(report.all.requests, 5000);
    assert!(of(&report.all) <= 0.25, "all: {} ms", of(&report.all));
    for kind in [&report.reads, &report.hits, &report.writes] {
        assert!(of(kind) <= 0.25, "{kind:?}");
    }
}

/// Kinds of request are told apart as the drive told them: nearly every measured hit is one here, and no other.
#[test]
fn hits_are_those_of_the_real_drive() {
    let Some(path) = shared("c2247a/hardware_validate_first5000.trace.gz") else {
        return;
    };
    let drive = Drive::named("hp-c2247a").expect("built in");
    let file = std::fs::File::open(path).expect("the data can be read");
    let trace = Trace::new("hardware", Format::Validate, file, drive.sectors());
    let mut different = 0;
    replay(trace, Controller::new(&drive), |record, _, served| {
        different += u32::from(served.hit != (record.kind == Some(RecordKind::Hit)));
    })
    .expect("a sound trace");
    println!("{different} of 5,000 are hits here or there only");
    assert!(different <= 25, "{different}");
}
