//! A modelled drive under the file system: places, order, times.

use std::collections::BTreeMap;
use std::sync::Arc;

use elbow_disk::device::Setup;
use elbow_disk::sched::Scheduler;
use elbow_disk::workload::{Moment, Overheads};
use elbow_disk::{Controller, Drive, Lbn, Ps};
use elbow_ext2::{Disk, ModelledDisk, Purpose, Request, RequestId, RequestTarget};
use elbow_ranges::RangeSet;
use elbow_testkit::cases::seeds;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Random cases without `SEED` or `ROUNDS`.
const CASES: u64 = 30;

fn hp() -> Arc<Drive> {
    Arc::new(Drive::named("hp-c2247a").expect("built in"))
}

fn request(id: u64, target: RequestTarget, blocks: u32) -> Request {
    Request {
        id: RequestId(id),
        target,
        blocks,
        purpose: Purpose::Data,
    }
}

fn mechanical(scheduler: &str, depth: usize) -> Setup {
    Setup {
        scheduler: scheduler.parse().expect("a scheduler"),
        depth,
        overheads: Overheads::None,
        ..Setup::default()
    }
}

/// What is outstanding, with what went to others meanwhile.
struct Out {
    targets: RangeSet,
    blocks: u32,
    others: RangeSet,
}

/// Range writes whose targets overlap, some of them made while others were under way, never share a block.
#[test]
fn outstanding_range_writes_never_share_a_place() {
    let drive = hp();
    for seed in seeds(CASES) {
        println!("SEED={seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let scheduler = ["hrs", "ecs", "ecs:4", "sptf", "fcfs"][random.random_range(0..5)];
        let setup = Setup {
            depth: random.random_range(1..20),
            pick: [Moment::Before, Moment::After][random.random_range(0..2)],
            overheads: [Overheads::None, Overheads::Controller][random.random_range(0..2)],
            ..mechanical(scheduler, 1)
        };
        let mut disk = ModelledDisk::new(&drive, setup);
        disk.first_choice = seed % 3 == 0;
        let (mut now, mut out) = (Ps::ZERO, BTreeMap::new());
        // What the file system knows to be free.
        let mut free: RangeSet = (0..40).map(|run| run * 200..run * 200 + 150).collect();
        for id in 0..150 {
            let blocks = random.random_range(1..4);
            let targets = match random.random_range(0..3) {
                0 => free.intersection(&std::iter::once(2000..5000).collect()),
                _ => free.clone(),
            };
            disk.submit(
                now,
                &request(id, RequestTarget::WriteRange(Arc::new(targets.clone())), blocks),
            );
            let others = RangeSet::new();
            out.insert(
                id,
                Out {
                    targets,
                    blocks,
                    others,
                },
            );
            while random.random_bool(0.5) || out.len() > 60 {
                let Some(done) = disk.complete() else { break };
                assert!(done.at >= now, "time goes forward");
                now = done.at;
                placed(&mut out, &mut free, done.id.0, u64::from(done.place));
            }
            let until = now + Ps::from_ms(random.random_range(0.0..3.0));
            while disk.next_at().is_some_and(|at| at <= until) {
                let done = disk.complete().expect("it said when");
                placed(&mut out, &mut free, done.id.0, u64::from(done.place));
            }
            now = until;
        }
        while let Some(done) = disk.complete() {
            placed(&mut out, &mut free, done.id.0, u64::from(done.place));
        }
        assert!(out.is_empty(), "each request completes");
    }
}

fn placed(out: &mut BTreeMap<u64, Out>, free: &mut RangeSet, id: u64, place: u64) {
    let write = out.remove(&id).expect("it was outstanding");
    let end = place + u64::from(write.blocks);
    assert!(write.targets.covers(place, end), "{place} is in its targets");
    assert!(!write.others.overlaps(place, end), "{place} went to another");
    for other in out.values_mut() {
        other.others.insert(place, end);
    }
    free.remove(place, end);
}

/// One at a time, it takes just what the drive takes.
#[test]
fn single_requests_take_the_drives_own_time() {
    let drive = hp();
    for (overheads, mut controller) in [
        (Overheads::None, Controller::mechanical(&drive)),
        (Overheads::Controller, Controller::new(&drive)),
    ] {
        let setup = Setup {
            overheads,
            ..mechanical("sptf", 16)
        };
        let mut disk = ModelledDisk::new(&drive, setup);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut now = Ps::ZERO;
        for id in 0..300 {
            let (block, blocks, write) = (
                random.random_range(0..200_000),
                random.random_range(1..9),
                random.random(),
            );
            let target = if write {
                RequestTarget::Write(block)
            } else {
                RequestTarget::Read(block)
            };
            let (lbn, sectors) = (Lbn(u64::from(block) * 8), blocks * 8);
            let expected = controller.serve(now, elbow_disk::Request { lbn, sectors, write }).end;
            disk.submit(now, &request(id, target, blocks));
            assert_eq!(disk.next_at(), Some(expected));
            let done = disk.complete().expect("it was submitted");
            assert_eq!((done.id, done.at, done.place), (RequestId(id), expected, block));
            now = expected + Ps::from_ms(random.random_range(0.0..20.0));
        }
    }
}

/// Serves writes to these blocks, submitted together, and gives the order.
fn order(setup: Setup, blocks: &[u32]) -> Vec<u64> {
    let drive = hp();
    let mut disk = ModelledDisk::new(&drive, setup);
    for (id, &block) in (0..).zip(blocks) {
        disk.submit(Ps::ZERO, &request(id, RequestTarget::Write(block), 1));
    }
    std::iter::from_fn(|| disk.complete()).map(|done| done.id.0).collect()
}

#[test]
fn the_drive_chooses_among_as_many_as_it_knows() {
    let far_and_near = [200_000, 10, 100_000, 30, 150_000, 50];
    let by_seek = |depth| order(mechanical("sstf", depth), &far_and_near);
    assert_eq!(by_seek(1), [0, 1, 2, 3, 4, 5], "the host's order");
    assert_eq!(by_seek(6), [1, 3, 5, 2, 4, 0]);
    // With two, and the replacement after the pick, there is never a choice but at first.
    assert_eq!(by_seek(2), [1, 0, 2, 3, 4, 5]);
    let after = Setup {
        pick: Moment::After,
        ..mechanical("sstf", 2)
    };
    assert_eq!(
        order(after, &far_and_near),
        [1, 2, 3, 4, 0, 5],
        "the first is far away until the arm is half-way"
    );
}

/// However far away it is, and not what another has that is on its way.
#[test]
fn the_simplest_disk_takes_the_first_place() {
    let drive = hp();
    let mut disk = ModelledDisk::new(&drive, mechanical("hrs", 4));
    disk.first_choice = true;
    let targets: Arc<RangeSet> = Arc::new([10..11, 5_000..5_004, 200_000..200_008].into_iter().collect());
    for (id, blocks) in [(0, 2), (1, 1), (2, 2), (3, 3)] {
        disk.submit(
            Ps::ZERO,
            &request(id, RequestTarget::WriteRange(Arc::clone(&targets)), blocks),
        );
    }
    let mut places: Vec<(u64, u32)> = std::iter::from_fn(|| disk.complete())
        .map(|done| (done.id.0, done.place))
        .collect();
    places.sort_unstable();
    assert_eq!(places, [(0, 5_000), (1, 10), (2, 5_002), (3, 200_000)]);
    disk.submit(Ps::from_ms(1e4), &request(9, RequestTarget::WriteRange(targets), 2));
    assert_eq!(
        disk.complete().map(|done| done.place),
        Some(5_000),
        "free again when it is complete"
    );
}

/// A place that becomes known too late is not given twice, and one that is given back is used again.
#[test]
fn a_set_of_places_is_followed_through_its_changes() {
    let drive = hp();
    let mut disk = ModelledDisk::new(&drive, mechanical("hrs", 4));
    let targets: Arc<RangeSet> = Arc::new(std::iter::once(100..103).collect());
    for id in 0..3 {
        disk.submit(
            Ps::ZERO,
            &request(id, RequestTarget::WriteRange(Arc::clone(&targets)), 1),
        );
    }
    let mut places: Vec<u32> = std::iter::from_fn(|| disk.complete()).map(|done| done.place).collect();
    places.sort_unstable();
    assert_eq!(places, [100, 101, 102]);
    // The file system has freed one of them meanwhile: its set is the same as at first, but not what the disk kept.
    let again: Arc<RangeSet> = Arc::new(std::iter::once(101..102).collect());
    disk.submit(Ps::from_ms(100.0), &request(3, RequestTarget::WriteRange(again), 1));
    assert_eq!(disk.complete().map(|done| done.place), Some(101));
}

#[test]
fn what_it_did_adds_up() {
    let drive = hp();
    let setup = Setup {
        scheduler: Scheduler::Sptf,
        ..Setup::default()
    };
    let mut disk = ModelledDisk::new(&drive, setup);
    for id in 0..20 {
        let target = if id % 2 == 0 {
            RequestTarget::Read(id * 3000)
        } else {
            RequestTarget::Write(id * 3000)
        };
        disk.submit(Ps::ZERO, &request(u64::from(id), target, 2));
    }
    let last = std::iter::from_fn(|| disk.complete()).last().expect("twenty");
    assert_eq!(disk.busy(), last.at, "without a pause");
    let (reads, writes) = (disk.reads(), disk.writes(Purpose::Data));
    assert_eq!((reads.requests, reads.blocks, writes.requests), (10, 20, 10));
    assert_eq!(reads.time() + writes.time(), disk.busy());
    assert_eq!(writes.overhead, Ps(Ps::from_ms(1.07).0 * 10));
}
