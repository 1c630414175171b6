//! The log of an emulated drive: what was asked of it in real time is served in the same order, and takes as long, when it is simulated.

#![allow(clippy::disallowed_methods, reason = "backing files of tests")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use elbow_disk::trace::{Format, Trace};
use elbow_disk::workload::Overheads;
use elbow_disk::{Drive, QueuedReplay};
use elbow_drive::{Answer, Ask, Driving, EmulatedDrive, Link, Settings};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const MODEL: &str = "generic-7200";
const SECTORS: u64 = 1 << 15;
const REQUESTS: u32 = 800;
const DEPTH: u32 = 32;
/// A request that is timed, and then waits for a processor before it is sent, comes too late to be known; it changes what others wait.
const SAME_MIN: f64 = 0.99;
/// A busy machine may keep that processor from more of them.
const TRIES: u32 = 5;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Requests that come at random moments, whatever the drive does: some while another is about to be answered.
fn log_of_an_open_load(drive: &Arc<Drive>) -> Vec<u8> {
    let written = Written::default();
    let driving = Driving {
        scheduler: "sptf".parse().expect("a scheduler"),
        depth: DEPTH as usize,
        write_through: true,
    };
    let settings = Settings {
        drive: Arc::clone(drive),
        driving,
        sectors: SECTORS,
        lateness_max: None,
    };
    let backing = tempfile::tempfile().expect("a temporary file");
    backing.set_len(SECTORS * 512).expect("it grows");
    let emulated = EmulatedDrive::start_logged(settings, backing, Box::new(written.clone())).expect("it starts");
    let link = emulated.link();
    let (tell, told) = mpsc::channel();
    // A thread of its own: what it starts would be woken first too.
    let submitting = std::thread::spawn(move || submit_at_random(&link, &tell));
    let answered = (0..REQUESTS)
        .filter(|_| told.recv().is_ok_and(|answer| answer.is_ok()))
        .count();
    assert_eq!(answered, REQUESTS as usize);
    submitting.join().expect("it submits");
    let last = emulated.stop().expect("it ends");
    assert_eq!((last.served, last.log_rows_lost), (REQUESTS.into(), 0));
    let written = written.0.lock().unwrap_or_else(PoisonError::into_inner);
    written.clone()
}

fn submit_at_random(link: &Link, tell: &mpsc::Sender<Answer>) {
    let _is_first = elbow_drive::wake_first();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    for _ in 0..REQUESTS {
        let at = random.random_range(0..SECTORS / 8) * 8;
        let tell = tell.clone();
        let ask = Ask::Read { at, sectors: 8 };
        link.submit(ask, move |answer| drop(tell.send(answer)));
        std::thread::sleep(Duration::from_micros(random.random_range(0..8000)));
    }
}

/// How many requests of a log take as long when it is simulated.
fn same_of(drive: &Arc<Drive>, log: &[u8]) -> u32 {
    let replay = QueuedReplay {
        scheduler: "sptf".parse().expect("a scheduler"),
        depth: DEPTH,
        overheads: Overheads::Controller,
    };
    let trace = Trace::new("log", Format::Csv, log, drive.sectors());
    let mut same = 0_u32;
    let report = replay.run(drive, trace, |record, arrival, served| {
        let apart = (served.end - arrival).ms() - record.measured.expect("it is in the log").ms();
        same += u32::from(apart.abs() < 1e-6);
    });
    let report = report.expect("it is a trace");
    println!("{same} of {REQUESTS} took as long; {report:?}");
    assert_eq!(report.all.requests, u64::from(REQUESTS));
    same
}

#[test]
fn what_came_before_a_request_ended_was_known_to_the_drive() {
    let drive = Arc::new(Drive::named(MODEL).expect("built in"));
    let mut tries = (0..TRIES).map(|_| same_of(&drive, &log_of_an_open_load(&drive)));
    assert!(
        tries.any(|same| f64::from(same) >= SAME_MIN * f64::from(REQUESTS)),
        "of {REQUESTS} never as many as {SAME_MIN} of them"
    );
}
