//! What must hold of descriptions of drives and of traces, whatever the bytes.
//!
//! Used twice: by the fuzz targets, which search for bytes, and by a test of `elbow-disk`, which takes random ones.

use std::sync::{Arc, LazyLock};

use elbow_disk::sched::Scheduler;
use elbow_disk::trace::{Format, Trace};
use elbow_disk::workload::Overheads;
use elbow_disk::{Controller, Drive, Lbn, Ps, QueuedReplay, Request, replay};

/// A drive that is taken works: its first and last sectors come back from their places, and it serves requests.
pub fn drive(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let drive = match Drive::parse("fuzz", text) {
        Ok(drive) => drive,
        Err(error) => return assert!(error.to_string().starts_with("fuzz:"), "{error}"),
    };
    let last = Lbn(drive.sectors() - 1);
    for lbn in [Lbn(0), last] {
        assert_eq!(drive.lbn_at(drive.locate(lbn)), Some(lbn));
    }
    let mut controller = Controller::new(&drive);
    let mut now = Ps::ZERO;
    for (lbn, write) in [(last, true), (Lbn(0), false), (last, true), (Lbn(0), false)] {
        let sectors = (drive.sectors() - lbn.0).min(100) as u32;
        let served = controller.serve(now, Request { lbn, sectors, write });
        assert_eq!(
            served.seek + served.rotation + served.transfer + served.overhead,
            served.end - now
        );
        now = served.end;
    }
}

/// A trace is replayed or has an error with its line, one request at a time and several; the first byte chooses the format.
pub fn trace(bytes: &[u8]) {
    let [choice, text @ ..] = bytes else { return };
    static DRIVE: LazyLock<Arc<Drive>> = LazyLock::new(|| Arc::new(Drive::named("hp-c2247a").expect("built in")));
    let drive = &*DRIVE;
    // One more than there are: the text itself says which it is.
    let format = Format::ALL.get(usize::from(*choice) % (Format::ALL.len() + 1)).copied();
    let read = || match format {
        Some(format) => Ok(Trace::new("fuzz", format, text, drive.sectors())),
        None => Trace::detect("fuzz", text, drive.sectors()),
    };
    let queued = QueuedReplay {
        scheduler: SCHEDULERS[text.len() % SCHEDULERS.len()],
        depth: 1 + text.len() as u32 % 5,
        overheads: Overheads::Controller,
    };
    let one = read().and_then(|trace| replay(trace, Controller::new(drive), |_, _, _| ()));
    let several = read().and_then(|trace| queued.run(drive, trace, |_, _, _| ()));
    match (one, several) {
        (Ok(one), Ok(several)) => {
            assert!(one.all.requests as usize <= text.len());
            assert_eq!(
                (one.all.requests, one.writes.requests, one.lost),
                (several.all.requests, several.writes.requests, several.lost)
            );
        }
        (one, several) => {
            // A clock that runs over for one may not for the other; all else is wrong for both.
            for error in [one.err(), several.err()].into_iter().flatten() {
                assert!(error.to_string().starts_with("fuzz:"), "{error}");
            }
        }
    }
}

const SCHEDULERS: [Scheduler; 5] = [
    Scheduler::Fcfs,
    Scheduler::Sstf,
    Scheduler::Sptf,
    Scheduler::Scan,
    Scheduler::CLook,
];
