//! A modelled drive as a range device: its contract, and what time it takes.

use std::sync::Arc;

use elbow_disk::device::{ModelledDevice, Setup};
use elbow_disk::workload::{Moment, Overheads};
use elbow_disk::{Drive, Ps};
use elbow_ranges::RangeSet;
use elbow_testkit::cases::seeds;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Random cases without `SEED` or `ROUNDS`.
const CASES: u64 = 30;

fn hp() -> Arc<Drive> {
    Arc::new(Drive::named("hp-c2247a").expect("built in"))
}

fn mechanical(scheduler: &str, depth: usize) -> Setup {
    Setup {
        scheduler: scheduler.parse().expect("a scheduler"),
        depth,
        overheads: Overheads::None,
        ..Setup::default()
    }
}

/// The contract of range devices, by every kind of scheduler.
#[test]
fn the_modelled_device_keeps_the_contract() {
    let drive = hp();
    for (at, scheduler) in (0..).zip(["hrs", "ecs", "ecs:4", "sptf", "sstf", "fcfs"]) {
        for depth in [1, 4, 64] {
            let setup = Setup {
                pick: [Moment::Before, Moment::After][at % 2],
                overheads: [Overheads::None, Overheads::Controller][at / 2 % 2],
                ..mechanical(scheduler, depth)
            };
            let seeds = seeds(CASES);
            let part = (seeds.end - seeds.start).div_ceil(10);
            println!("{scheduler}, a depth of {depth}");
            elbow_file::range_device::contract::check(
                &mut || ModelledDevice::new(&drive, setup),
                seeds.start..seeds.start + part,
            );
        }
    }
}

/// A range write costs less time than a write to a place, and says where it went.
#[test]
fn time_goes_by_while_one_waits() {
    use elbow_file::range_device::{Done, RangeDevice, Request as Asked};
    let drive = hp();
    let mut device = ModelledDevice::new(&drive, Setup::default());
    let group: RangeSet = std::iter::once(0..32_768).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut took = [Ps::ZERO; 2];
    for _ in 0..50 {
        for (free, took) in took.iter_mut().enumerate() {
            device.pass(Ps::from_ms(random.random_range(0.0..10.0)));
            let before = device.now();
            let at = random.random_range(5000..7000) * 8;
            let (targets, alignment, data) = (&group, 8, &[1; 4096]);
            let request = match free {
                0 => Asked::Write { at, data },
                _ => Asked::WriteRange {
                    targets,
                    alignment,
                    data,
                },
            };
            device.submit(request).expect("it is on the drive");
            let done = device.wait().expect("one is outstanding").result;
            let Ok(Done::Written(place)) = done else {
                panic!("{done:?}")
            };
            assert!(if free == 0 {
                place.start == at
            } else {
                group.covers(place.start, place.end)
            });
            *took += device.now() - before;
        }
    }
    assert!(took[1].ms() < took[0].ms() * 0.8, "{took:?}");
}

/// Completions came by `wait` alone, after any time.
#[test]
fn what_is_complete_by_now_is_handed_out_without_waiting() {
    use elbow_file::range_device::{Done, RangeDevice, Request as Asked};
    let drive = hp();
    let mut device = ModelledDevice::new(&drive, Setup::default());
    let reads: Vec<_> = [80_000, 1_000_000]
        .into_iter()
        .map(|at| {
            device
                .submit(Asked::Read { at, sectors: 8 })
                .expect("it is on the drive")
        })
        .collect();
    assert_eq!(device.poll(), None, "nothing takes no time");
    device.pass(Ps::from_ms(10_000.0));
    let mut done: Vec<_> = std::iter::from_fn(|| device.poll())
        .inspect(|completion| assert_eq!(completion.result, Ok(Done::Read(vec![0; 4096]))))
        .map(|completion| completion.ticket)
        .collect();
    done.sort_unstable();
    assert_eq!((done, device.now()), (reads, Ps::from_ms(10_000.0)));
}

/// `wait` waited for the first member that had something to do.
#[test]
fn the_member_that_is_done_first_is_waited_for() {
    use elbow_file::range_device::{Members, RangeDevice, Request as Asked};
    let drive = hp();
    let end = drive.sectors();
    let devices = [(); 2].map(|()| ModelledDevice::new(&drive, mechanical("fcfs", 4)));
    let mut device = Members::new(devices.into());
    let far = device
        .submit(Asked::Read {
            at: end - 8,
            sectors: 8,
        })
        .expect("on the first");
    let near = device
        .submit(Asked::Read { at: end, sectors: 8 })
        .expect("on the second");
    let order = std::iter::from_fn(|| device.wait()).map(|completion| completion.ticket);
    assert_eq!(order.collect::<Vec<_>>(), [near, far]);
}
