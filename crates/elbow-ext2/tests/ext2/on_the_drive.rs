//! The model on the modelled drive, which picks places by its arm: what results has to be a file system still.

use std::sync::Arc;

use elbow_disk::device::Setup;
use elbow_disk::{Drive, Ps};
use elbow_ext2::{
    Action, Ext2, ModelledDisk, Options, Policy, PostMark, Purpose, Region, Run, SmallFiles, Trace, Writeback,
};

use crate::judges;

/// A cache that writes behind at once, so that allocation, writing and removing overlap.
fn behind(policy: Policy) -> Options {
    let options = Options::new(200_000);
    let writeback = Writeback {
        interval: Ps::from_ms(100.0),
        age: Ps::ZERO,
        background_blocks: 0,
        limit_blocks: 32,
    };
    Options {
        policy,
        writeback,
        ..options
    }
}

fn replay(policy: Policy, full: f64, trace: &Trace) -> (Run<ModelledDisk<'static>>, u64) {
    let drive: &'static Arc<Drive> = Box::leak(Box::new(Arc::new(Drive::named("hp-c2247a").unwrap())));
    let mut fs = Ext2::new(behind(policy)).unwrap();
    fs.apply(0, &Action::Mkdir("/small".into())).unwrap();
    let group = fs.group_of("/small").unwrap();
    fs.occupy(group, full, 3).unwrap();
    let mut run = Run::new(fs, ModelledDisk::new(drive, Setup::default()));
    let report = run.replay(trace).unwrap();
    (run, report.statistics.range_writes)
}

#[test]
fn what_lies_on_the_drive_is_a_whole_file_system() {
    let small = SmallFiles {
        files: 400,
        bytes: 9000,
        processes: 16,
    };
    let traces = [small.trace("/small"), PostMark::default().trace("/small/mail")];
    for policy in [
        Policy::Classic,
        Policy::Range(Region::MiniGroup),
        Policy::Range(Region::Group),
    ] {
        for (trace, full) in traces.iter().flat_map(|trace| [(trace, 0.1), (trace, 0.93)]) {
            let (run, range_writes) = replay(policy, full, trace);
            let (mut fs, disk) = run.into_parts();
            assert_eq!(range_writes > 0, policy != Policy::Classic);
            assert!(disk.writes(Purpose::Data).requests >= range_writes);
            if judges::are_there() {
                judges::e2fsck(&judges::image(&mut fs))
                    .unwrap_or_else(|said| panic!("{policy:?}, {full} full: {said}"));
            }
        }
    }
}
