//! An emulated drive: its times are those of the simulation, its bytes those that were written.

#![allow(clippy::disallowed_methods, reason = "backing files of tests")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use elbow_disk::workload::{Arrivals, Moment, Workload, simulate};
use elbow_disk::{Drive, Ps};
use elbow_drive::{Ask, DriveFault, DriveModel, Driving, EmulatedDrive, Motion, Settings};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SECTORS: u64 = 2048;

fn driving(write_through: bool) -> Driving {
    Driving {
        scheduler: "sptf".parse().expect("a scheduler"),
        depth: 16,
        write_through,
    }
}

fn settings(name: &str, write_through: bool) -> Settings {
    Settings {
        drive: Arc::new(Drive::named(name).expect("built in").caching_writes()),
        driving: driving(write_through),
        sectors: SECTORS,
        lateness_max: None,
    }
}

fn started(settings: Settings) -> EmulatedDrive {
    let backing = tempfile::tempfile().expect("a temporary file");
    backing.set_len(settings.sectors * 512).expect("it grows");
    EmulatedDrive::start(settings, backing).expect("it starts")
}

fn write(at: u64, byte: u8) -> Ask {
    Ask::Write {
        at,
        data: vec![byte; 512],
        through: false,
    }
}

fn read(drive: &EmulatedDrive, at: u64) -> u8 {
    drive.link().ask(Ask::Read { at, sectors: 1 }).expect("it reads")[0]
}

/// What `elbow disk simulate` says of random requests, and what the emulated drive does with as many of its own in its own time.
#[test]
fn a_random_load_takes_as_long_as_in_the_simulation() {
    for (depth, reads) in [(1, 0.0), (1, 1.0), (8, 0.5)] {
        let drive = Arc::new(Drive::named("hp-c2247a").expect("built in"));
        let load = Workload {
            reads,
            arrivals: Arrivals::Closed {
                depth,
                pick: Moment::Before,
            },
            ..Workload::default()
        };
        let simulated = simulate(&drive, "sptf".parse().expect("a scheduler"), &load, |_| {}).expect("it runs");
        let emulated = mean_ms(&drive, depth, reads);
        let apart = emulated / simulated.response_ms.mean - 1.0;
        println!(
            "depth {depth}, reads {reads}: {emulated:.3} ms, simulated {:.3} ms",
            simulated.response_ms.mean
        );
        assert!(apart.abs() < 0.03, "{apart}");
    }
}

fn mean_ms(drive: &Arc<Drive>, depth: u32, reads: f64) -> f64 {
    const REQUESTS: u64 = 20_000;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut model = DriveModel::new(drive, driving(true));
    let mut motion = || {
        let at = random.random_range(0..drive.sectors() / 8) * 8;
        match random.random_bool(reads) {
            true => Motion::Read { at, sectors: 8 },
            false => Motion::Write {
                at,
                sectors: 8,
                through: false,
            },
        }
    };
    let mut submitted = vec![Ps::ZERO; depth as usize];
    (0..depth).for_each(|id| model.submit(Ps::ZERO, id.into(), motion()));
    let mut sum = 0.0;
    for _ in 0..REQUESTS {
        let (id, end) = model.complete().expect("some are outstanding");
        sum += (end - submitted[id as usize]).ms();
        submitted[id as usize] = end;
        model.serving(); // a drive in real time goes on before whoever was answered can ask again
        model.submit(end, id, motion());
    }
    sum / REQUESTS as f64
}

#[test]
fn no_answer_comes_before_its_moment() {
    let drive = started(settings("hp-c2247a", true));
    let began = Instant::now();
    let requests = 20;
    for at in 0..requests {
        drive.link().ask(write(at * 97, 1)).expect("it writes");
    }
    let took_ms = began.elapsed().as_secs_f64() * 1e3;
    let status = drive.stop().expect("it ends");
    println!("{status:?}");
    assert_eq!(
        (status.served, status.writes, status.lateness_us.served),
        (requests, requests, requests)
    );
    assert!(status.response_ms.mean > 1.0, "it has to turn");
    assert!(
        took_ms >= status.response_ms.mean * requests as f64 * 0.999,
        "{took_ms} ms"
    );
}

#[test]
fn a_power_cut_leaves_what_was_flushed_and_any_of_the_rest() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..32 {
        let drive = started(settings("generic-7200", false));
        let link = drive.link();
        link.ask(write(1, 1)).expect("it writes");
        link.ask(Ask::Flush).expect("it flushes");
        link.ask(write(1, 2)).expect("it writes");
        link.ask(write(900, 3)).expect("it writes");
        let through = Ask::Write {
            at: 5,
            data: vec![4; 512],
            through: true,
        };
        link.ask(through).expect("it writes");
        assert_eq!(drive.status().expect("it answers").unflushed_writes, 2);
        let report = drive.power_cut(false, seed).expect("cut");
        assert_eq!((report.unflushed, report.seed), (2, seed));
        assert_eq!(
            link.ask(Ask::Flush),
            Err(DriveFault::NoPower),
            "who had it open has lost it"
        );
        assert_eq!(read(&drive, 5), 4, "forced unit access");
        let left = (read(&drive, 1), read(&drive, 900));
        assert!([1, 2].contains(&left.0) && [0, 3].contains(&left.1), "{left:?}");
        seen.insert(left);
    }
    assert_eq!(seen.len(), 4, "each subset");
}

/// Wherever they go, writes to a shingled drive that has nothing else to do take a turn and no long seek, also after a power cut; and nothing that was flushed is lost.
#[test]
fn a_shingled_drive_takes_random_writes_and_keeps_what_was_flushed() {
    let drive = started(Settings {
        sectors: 1 << 20,
        ..settings("archive-8tb", false)
    });
    for (byte, round) in [(1, 0_u64), (2, 1)] {
        let link = drive.link();
        for at in 0..20 {
            link.ask(write(at * 50_021 % (1 << 20), byte)).expect("it writes");
            link.ask(Ask::Flush).expect("it flushes");
        }
        drive.power_cut(false, round).expect("cut");
        assert!((0..20).all(|at| read(&drive, at * 50_021 % (1 << 20)) == byte));
    }
    let status = drive.stop().expect("it ends");
    assert_eq!(status.power_cuts, 2);
    assert!(status.response_ms.mean < 30.0, "{status:?}");
}

#[test]
fn with_write_through_nothing_complete_is_lost() {
    let drive = started(settings("generic-7200", true));
    drive.link().ask(write(1, 1)).expect("it writes");
    let report = drive.power_cut(true, 1).expect("cut");
    assert_eq!((report.unflushed, read(&drive, 1)), (0, 1));
}

/// As NBD asks for it with forced unit access.
#[test]
fn a_trim_that_is_forced_is_durable() {
    for through in [false, true] {
        let drive = started(settings("generic-7200", false));
        let trim = Ask::Trim {
            at: 1,
            sectors: 1,
            through,
        };
        drive.link().ask(trim).expect("it trims");
        let unflushed = drive.power_cut(false, 1).expect("cut").unflushed;
        assert_eq!(unflushed, usize::from(!through), "forced: {through}");
    }
}

/// Until a thread waits, which one that cuts the power does when it has asked for it.
fn wait_until_it_sleeps(thread: &Path) {
    let sleeps = || {
        fs::read_to_string(thread.join("stat"))
            .expect("a thread")
            .contains(") S ")
    };
    while !sleeps() {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_under_way_at_a_power_cut_fails_and_may_be_there() {
    let found = (0..16).filter(|&seed| {
        let drive = started(settings("hp-c2247a", true));
        let (tell, told) = mpsc::channel();
        // The drive's thread goes on when both writes and the cut have been asked for.
        let (go_on, wait) = mpsc::channel::<()>();
        drive
            .link()
            .submit(write(3000, 1), move |_| wait.recv().expect("it is told to go on"));
        let zeros = Ask::WriteZeros {
            at: 0,
            sectors: 1000,
            through: true,
        };
        drive.link().submit(zeros, drop);
        drive
            .link()
            .submit(write(1500, 9), move |answer| drop(tell.send(answer)));
        let report = std::thread::scope(|scope| {
            let (say, said) = mpsc::channel();
            let drive = &drive;
            let cut = scope.spawn(move || {
                say.send(fs::read_link("/proc/thread-self").expect("procfs"))
                    .expect("a receiver");
                drive.power_cut(false, seed).expect("cut")
            });
            wait_until_it_sleeps(&Path::new("/proc").join(said.recv().expect("its number")));
            go_on.send(()).expect("it waits");
            cut.join().expect("it is cut")
        });
        assert_eq!(report.unflushed, 2);
        assert_eq!(told.recv().expect("an answer"), Err(DriveFault::NoPower));
        read(&drive, 1500) == 9
    });
    let found = found.count();
    assert!((1..16).contains(&found), "{found} of 16");
}

#[test]
fn what_is_not_on_the_drive_is_refused() {
    let drive = started(settings("generic-7200", true));
    let link = drive.link();
    for ask in [
        Ask::Read {
            at: SECTORS,
            sectors: 1,
        },
        Ask::Read { at: 0, sectors: 0 },
        Ask::Read {
            at: u64::MAX,
            sectors: 2,
        },
        Ask::Write {
            at: 0,
            data: vec![0; 100],
            through: false,
        },
        Ask::Trim {
            at: 1,
            sectors: u32::MAX,
            through: false,
        },
    ] {
        assert_eq!(link.ask(ask.clone()), Err(DriveFault::NoSuchSectors), "{ask:?}");
    }
}

#[test]
fn a_late_answer_is_counted() {
    let drive = started(Settings {
        lateness_max: Some(Duration::from_millis(20)),
        ..settings("generic-7200", true)
    });
    // Its thread cannot go on before this reply has returned, so what is next is late.
    let (go_on, wait) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let hold = move |_| wait.recv().expect("it is told to go on");
    drive.link().submit(write(1, 1), hold);
    drive
        .link()
        .submit(write(700, 1), move |answer| drop(tell.send(answer)));
    std::thread::sleep(Duration::from_millis(150)); // More than the second write takes.
    go_on.send(()).expect("it waits");
    told.recv().expect("an answer").expect("it writes");
    let status = drive.status().expect("it answers");
    // On a busy machine the first may be late, too.
    assert!((1..=2).contains(&status.too_late), "{status:?}");
    assert!(status.lateness_us.max > 20_000.0, "{status:?}");
}

#[test]
fn a_flush_waits_for_what_came_before_it_and_what_comes_after_waits_for_it() {
    let drive = Arc::new(Drive::named("generic-7200").expect("built in").caching_writes());
    let mut model = DriveModel::new(&drive, driving(false));
    let far = Motion::Write {
        at: 1_000_000_000,
        sectors: 8,
        through: false,
    };
    model.submit(Ps::ZERO, 1, far);
    model.submit(Ps::ZERO, 2, Motion::Flush);
    model.submit(
        Ps::ZERO,
        3,
        Motion::Write {
            at: 8,
            sectors: 8,
            through: false,
        },
    );
    let ended: Vec<_> = std::iter::from_fn(|| model.complete()).collect();
    assert_eq!(ended.iter().map(|&(id, _)| id).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(ended[0].1 < Ps::from_ms(1.0), "the cache takes it");
    assert!(ended[1].1 > Ps::from_ms(5.0), "the medium takes it");
    assert!(ended[2].1 > ended[1].1);
}
