//! A modelled drive as a range device: its contract, and what time it takes.

use std::sync::Arc;

use elbow_disk::device::{ModelledDevice, QueuedDrive, QueuedRequest, Setup};
use elbow_disk::workload::{Moment, Overheads};
use elbow_disk::{Drive, Lbn, Ps};
use elbow_file::range_device::{
    Blocking, Clock, Done, Members, MemoryDevice, RangeDevice, RangeError, Request, contract,
};
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
            contract::check(
                &mut || ModelledDevice::new(&drive, setup),
                seeds.start..seeds.start + part,
            );
        }
    }
}

/// What came while it was busy was let in after the next pick only: with few outstanding, one request too late.
#[test]
fn what_comes_while_a_request_is_served_is_picked_if_it_is_nearer() {
    let drive = hp();
    for pick in [Moment::Before, Moment::After] {
        let mut queued = QueuedDrive::new(
            &drive,
            Setup {
                pick,
                ..mechanical("sstf", 4)
            },
            1,
        );
        let at = |lbn| QueuedRequest::At {
            lbn: Lbn(lbn),
            sectors: 8,
            write: false,
        };
        for (id, lbn) in [(1, 1_000_000), (2, 100)] {
            queued.submit(Ps::ZERO, id, &at(lbn)).expect("it has its place");
        }
        let (first, end) = queued.serving().expect("there is one");
        let far = if first == 1 { 1_000_000 } else { 100 };
        queued
            .submit(Ps(end.0 / 2), 3, &at(far + 1000))
            .expect("it has its place");
        let order = [0; 3].map(|_: u32| queued.complete().expect("it is outstanding").id);
        assert_eq!(order, [first, 3, 3 - first], "{pick:?}");
    }
}

/// A range write costs less time than a write to a place, and says where it went.
#[test]
fn time_goes_by_while_one_waits() {
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
                0 => Request::Write { at, data },
                _ => Request::WriteRange {
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
    let drive = hp();
    let mut device = ModelledDevice::new(&drive, Setup::default());
    let reads: Vec<_> = [80_000, 1_000_000]
        .into_iter()
        .map(|at| {
            device
                .submit(Request::Read { at, sectors: 8 })
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
    let drive = hp();
    let end = drive.sectors();
    let devices = [(); 2].map(|()| ModelledDevice::new(&drive, mechanical("fcfs", 4)));
    let mut device = Members::new(devices.into());
    let far = device
        .submit(Request::Read {
            at: end - 8,
            sectors: 8,
        })
        .expect("on the first");
    let near = device
        .submit(Request::Read { at: end, sectors: 8 })
        .expect("on the second");
    let order = std::iter::from_fn(|| device.wait()).map(|completion| completion.ticket);
    assert_eq!(order.collect::<Vec<_>>(), [near, far]);
}

/// Behind a member of three sectors no place of the drive is where its own alignment would have it.
#[test]
fn a_drive_among_others_keeps_the_contract() {
    let drive = hp();
    for depth in [1, 16] {
        let make = || -> Members<Box<dyn RangeDevice + '_>> {
            let setup = mechanical("hrs", depth);
            Members::new(vec![
                Box::new(MemoryDevice::new(512, 3)),
                Box::new(ModelledDevice::new(&drive, setup)),
                Box::new(ModelledDevice::new(&drive, setup)),
            ])
        };
        contract::check(&mut { make }, seeds(CASES));
    }
}

/// `poll` never gave a completion, not even after ten seconds.
#[test]
fn poll_hands_out_what_is_done_by_now() {
    let drive = hp();
    let mut device = ModelledDevice::new(&drive, mechanical("hrs", 2));
    let read = |at| Request::Read { at, sectors: 8 };
    let mut tickets = Vec::new();
    for at in [1_000_000, 0, 2_000_000] {
        tickets.push(device.submit(read(at)).expect("it is on the drive"));
    }
    tickets.push(device.submit(Request::Barrier).expect("a barrier"));
    tickets.push(device.submit(read(500_000)).expect("it is on the drive"));
    assert_eq!(device.poll(), None, "no time has gone by");
    device.pass(Ps::from_ms(0.001));
    assert_eq!(device.poll(), None, "nothing is done in a microsecond");
    let first = device.next_completion_at().expect("one is being served");
    device.pass_until(first);
    let done = device.poll().expect("it is done now");
    assert_eq!((done.at, device.clock()), (first, Clock::Modelled(first)));
    device.pass(Ps::from_ms(10_000.0));
    let rest: Vec<_> = std::iter::from_fn(|| device.poll()).collect();
    assert_eq!(rest.len(), 4, "the drive went on by itself, past the barrier, too");
    let times: Vec<_> = rest.iter().map(|done| done.at).collect();
    assert!(
        times.is_sorted() && times[3].as_millis() < 200,
        "as they were done: {times:?}"
    );
    assert_eq!(rest[2].ticket, tickets[3]);
    assert_eq!((device.wait(), device.next_completion_at()), (None, None));
}

/// Whether it is asked again and again or waited for: the drive does the same at the same times.
#[test]
fn polling_and_waiting_see_the_same_drive() {
    let drive = hp();
    let run = |polls: bool| {
        let mut device = ModelledDevice::new(&drive, mechanical("hrs", 4));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut seen = Vec::new();
        for _ in 0..20 {
            for _ in 0..random.random_range(1..8) {
                let at = random.random_range(0..2_000_000);
                device
                    .submit(Request::Read { at, sectors: 8 })
                    .expect("it is on the drive");
            }
            loop {
                let completion = match polls {
                    false => device.wait(),
                    true => {
                        let next = device.next_completion_at();
                        next.into_iter().for_each(|next| device.pass_until(next));
                        device.poll()
                    }
                };
                let Some(completion) = completion else { break };
                seen.push((completion.ticket, completion.at));
            }
        }
        seen
    };
    // Rounded to nanoseconds, a pass may end some picoseconds after what it waits for, and the next request begins
    // there.
    let (waited, polled) = (run(false), run(true));
    assert_eq!(waited.len(), polled.len());
    for (waited, polled) in waited.iter().zip(&polled) {
        assert_eq!(waited.0, polled.0);
        assert!(waited.1.abs_diff(polled.1).as_micros() < 1, "{waited:?}, {polled:?}");
    }
}

/// A drive that knows one request: the others have not begun.
#[test]
fn what_the_drive_does_not_know_yet_can_be_cancelled_and_comes_too_late() {
    let drive = hp();
    let mut device = Blocking::new(ModelledDevice::new(&drive, mechanical("hrs", 1)));
    let read = Request::Read {
        at: 1_000_000,
        sectors: 8,
    };
    let (targets, alignment, data) = (&std::iter::once(80..88).collect(), 8, &[5; 4096]);
    let write = Request::WriteRange {
        targets,
        alignment,
        data,
    };
    let begun = device.submit(read).expect("it is on the drive");
    device.device().pass(Ps::from_ms(0.1));
    let cancelled = device.submit(write).expect("a place");
    device.cancel(cancelled).expect("it waits");
    assert_eq!(device.wait_for(cancelled), Err(RangeError::Cancelled));
    assert_eq!(device.cancel(begun), Err(RangeError::Begun { ticket: begun }));
    let begin_by = device.device().clock().time() + std::time::Duration::from_millis(1);
    let late = device.submit_by(write, begin_by).expect("a place");
    let in_time = device.submit(write).expect("the place is still free");
    let late = device.complete(late);
    assert_eq!(late.result, Err(RangeError::Late { begin_by }));
    assert_eq!(
        late.at, begin_by,
        "it is known at its deadline, and not when the drive comes to it"
    );
    assert_eq!(device.wait_for(begun), Ok(Done::Read(vec![0; 4096])));
    assert_eq!(device.wait_for(in_time), Ok(Done::Written(80..88)));
    assert_eq!(device.read(80, 8), Ok(data.to_vec()));
}

/// What the drive's queue knew was served in any case.
#[test]
fn all_but_the_request_that_is_served_can_be_cancelled() {
    let drive = hp();
    let targets: RangeSet = std::iter::once(80..104).collect();
    for scheduler in ["hrs", "ecs:4", "sptf", "fcfs"] {
        let mut device = Blocking::new(ModelledDevice::new(&drive, mechanical(scheduler, 16)));
        let read = |at| Request::Read { at, sectors: 8 };
        let (alignment, data) = (8, &[5; 4096][..]);
        let (targets, write) = (
            &targets,
            Request::Write {
                at: 120,
                data: &[6; 512],
            },
        );
        let anywhere = Request::WriteRange {
            targets,
            alignment,
            data,
        };
        let served = device.submit(read(2_000_000)).expect("it is on the drive");
        device.device().pass(Ps::from_ms(0.1)); // it is picked before the others come
        let waiting = [read(0), anywhere, write, anywhere, anywhere]
            .map(|request| device.submit(request).expect("it is on the drive"));
        device.device().pass(Ps::from_ms(0.1));
        let now = device.device().clock().time();
        for ticket in waiting {
            device.cancel(ticket).expect("it waits");
            let completion = device.complete(ticket);
            assert_eq!(
                (completion.result, completion.at),
                (Err(RangeError::Cancelled), now),
                "at once"
            );
            assert!(device.cancel(ticket).is_err(), "once");
        }
        assert_eq!(
            device.cancel(served),
            Err(RangeError::Begun { ticket: served }),
            "{scheduler}"
        );
        let mut places: Vec<u64> = (0..3)
            .map(|_| device.write_range(targets, 8, data).expect("all three are free"))
            .collect();
        places.sort_unstable();
        assert_eq!(places, [80, 88, 96]);
        assert_eq!(device.read(120, 1), Ok(vec![0; 512]), "it was not written");
        assert_eq!(device.wait_for(served), Ok(Done::Read(vec![0; 4096])));
    }
}

/// A request that the others stood in the way of for so long that its deadline passed was served all the same.
#[test]
fn a_deadline_counts_in_the_queue_of_the_drive() {
    let drive = hp();
    let mut device = Blocking::new(ModelledDevice::new(&drive, mechanical("fcfs", 16)));
    let read = |at| Request::Read { at, sectors: 8 };
    let begin_by = std::time::Duration::from_millis(1);
    let first = device.submit(read(2_000_000)).expect("it is on the drive");
    let late = device.submit_by(read(0), begin_by).expect("it is on the drive");
    let completion = device.complete(late);
    assert_eq!(
        (completion.result, completion.at),
        (Err(RangeError::Late { begin_by }), begin_by)
    );
    assert!(device.wait_for(first).is_ok());
}

/// The clock of the drive wrapped, and the device panicked.
#[test]
fn nothing_begins_after_the_end_of_the_clock() {
    let drive = hp();
    let day = std::time::Duration::from_secs(24 * 3600);
    for overheads in [Overheads::None, Overheads::Controller] {
        let setup = Setup {
            overheads,
            ..mechanical("hrs", 4)
        };
        let make = || ModelledDevice::new(&drive, setup);
        let read = Request::Read {
            at: 1_000_000,
            sectors: 8,
        };
        let mut device = Blocking::new(make());
        device.device().pass_until(53 * day);
        assert!(device.read(0, 8).is_ok());
        for days in [54, 107, 250, 100_000] {
            device.device().pass_until(days * day);
            let error = device.submit(read).expect_err("the clock has ended");
            assert!(matches!(error, RangeError::ClockEnded { .. }));
            assert!(error.to_string().contains("passed 53.4 days"), "{error}");
        }
        let Err(RangeError::ClockEnded { end }) = device.submit(read) else {
            unreachable!("it has ended")
        };
        let mut device = make();
        device.pass_until(end - std::time::Duration::from_millis(30));
        for _ in 0..8 {
            device.submit(read).expect("before the end");
        }
        let barrier = device.submit(Request::Barrier).expect("before the end");
        let mut done: Vec<_> = std::iter::from_fn(|| device.wait()).collect();
        let last = done.pop().expect("a barrier");
        assert_eq!((last.ticket, last.result), (barrier, Ok(Done::Passed)));
        let ended = |done: &elbow_file::range_device::Completion| done.result == Err(RangeError::ClockEnded { end });
        let count = done.iter().filter(|done| ended(done)).count();
        assert!(
            done.len() == 8 && (1..8).contains(&count),
            "some are served, some are not: {done:?}"
        );
    }
}
