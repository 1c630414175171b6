//! What must hold of descriptions of drives and of traces, whatever the bytes.
//!
//! Used twice: by the fuzz targets, which search for bytes, and by a test of `elbow-disk`, which takes random ones.

use std::sync::LazyLock;

use elbow_disk::trace::{Format, Trace};
use elbow_disk::{Controller, Drive, Lbn, Ps, Request, replay};

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

/// A trace is replayed or has an error with its line; the first byte chooses the format.
pub fn trace(bytes: &[u8]) {
    let [choice, text @ ..] = bytes else { return };
    let formats = [
        Format::DiskSim,
        Format::Validate,
        Format::Blktrace,
        Format::Fio,
        Format::Csv,
    ];
    let format = formats[usize::from(*choice) % formats.len()];
    static DRIVE: LazyLock<Drive> = LazyLock::new(|| Drive::named("hp-c2247a").expect("built in"));
    let drive = &*DRIVE;
    let trace = Trace::new("fuzz", format, text, drive.sectors());
    match replay(trace, Controller::new(drive), |_, _, _| ()) {
        Ok(report) => assert!(report.all.requests as usize <= text.len()),
        Err(error) => assert!(error.to_string().starts_with("fuzz:"), "{error}"),
    }
}
