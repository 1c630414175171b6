//! Several devices as one: who gets a range write, who is heard first, and members that begin anywhere.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use elbow_file::double::{Delaying, Gated, Interposed, Operation};
use elbow_file::range_device::{
    Blocking, Clock, CountingDevice, Done, FaultyDevice, Members, MemoryDevice, RangeDevice, RangeError, Request,
    TearingDevice, ThreadedDevice,
};
use elbow_file::{Errno, RealStorage, Storage};
use elbow_ranges::RangeSet;

use crate::OpenOnDrop;

#[test]
fn the_emptiest_member_takes_a_range_write() {
    let devices = [100, 100, 50].map(|sectors| MemoryDevice::new(512, sectors));
    let mut device = Members::new(devices.into());
    let targets: RangeSet = [90..110, 200..250].into_iter().collect();
    let mut take = |sectors: usize| {
        let data = vec![1; sectors * 512];
        let request = Request::WriteRange {
            targets: &targets,
            alignment: 1,
            data: &data,
        };
        device.submit(request).unwrap();
    };
    take(20); // most targets: the third member
    take(2); // then the first
    take(1); // then the second
    take(1); // the second again: 1 outstanding against 2 and 20
    let mut places: Vec<_> = std::iter::from_fn(|| device.wait())
        .map(|done| done.result.unwrap())
        .collect();
    places.sort_by_key(|place| match place {
        Done::Written(place) => place.start,
        _ => 0,
    });
    assert_eq!(places, [90..92, 100..101, 101..102, 200..220].map(Done::Written));
}

#[test]
fn a_fixed_write_may_cross_members() {
    let mut device = Blocking::new(Members::new(vec![
        MemoryDevice::new(512, 10),
        MemoryDevice::new(512, 10),
    ]));
    let data: Vec<u8> = (0..4 * 512_u32).map(|byte| (byte % 251) as u8).collect();
    device.write(8, &data).unwrap();
    assert_eq!(device.read(8, 4).unwrap(), data);
    assert_eq!(device.read(10, 1).unwrap(), data[1024..1536]);
}

#[test]
fn a_member_that_fails_does_not_lose_the_other_part() {
    let member = |bad: bool| FaultyDevice::new(MemoryDevice::new(512, 10), Errno::IO, move |_, _| bad);
    let mut device = Members::new(vec![member(false), member(true)]);
    let ticket = device
        .submit(Request::Write {
            at: 8,
            data: &[1; 2048],
        })
        .unwrap();
    let result = Err(RangeError::from(Errno::IO));
    let completion = device.wait().unwrap();
    assert_eq!((completion.ticket, completion.result), (ticket, result));
    assert_eq!(device.wait(), None);
}

/// "0 taken; name more targets", with twelve free places: a member whose start was not aligned was never used.
#[test]
fn a_member_that_is_not_aligned_takes_range_writes() {
    let mut device = Blocking::new(Members::new(vec![
        MemoryDevice::new(512, 5),
        MemoryDevice::new(512, 60),
    ]));
    let targets: RangeSet = [6..60].into_iter().collect();
    for (sectors, expected) in [
        (4, vec![8, 16, 24, 32, 40, 48, 56]),
        (9, vec![16, 32, 48]),
        (4, vec![8]),
    ] {
        let data = vec![7; sectors * 512];
        let mut places = Vec::new();
        while let Ok(at) = device.write_range(&targets, 8, &data) {
            places.push(at);
        }
        places.sort_unstable();
        assert_eq!(places, expected, "{sectors} sectors");
        if sectors == 4 {
            device.barrier().unwrap();
        }
    }
}

/// A member that begins at a sector that is no multiple of the alignment was never used: "0 of which are taken; name
/// more targets", with 12 free places.
#[test]
fn a_member_that_begins_anywhere_gives_all_its_places() {
    for (sectors, alignment, first) in [(4, 4, 18), (1, 4, 18), (3, 2, 5), (9, 4, 1), (4, 4, 16)] {
        let members = [first, 48].map(|sectors| MemoryDevice::new(512, sectors));
        let mut device = Blocking::new(Members::new(members.into()));
        let targets: RangeSet = std::iter::once(first..first + 48).collect();
        let data = vec![7; sectors as usize * 512];
        let mut places = Vec::new();
        while let Ok(at) = device.write_range(&targets, alignment, &data) {
            assert!(at.is_multiple_of(alignment) && targets.covers(at, at + sectors), "{at}");
            places.push(at);
        }
        // First fits of each class in turn: no more than that can be left over.
        let per_write = sectors.next_multiple_of(alignment);
        let most = 48 / per_write;
        let least = if first.is_multiple_of(alignment) {
            most
        } else {
            most * 2 / 3
        };
        let found = places.len() as u64;
        assert!(
            least <= found && found <= most,
            "{sectors} aligned to {alignment} from {first}: {places:?}"
        );
        let left = (first..first + 48 - sectors).filter(|at| at.is_multiple_of(alignment));
        let is_free = |at: u64| {
            places
                .iter()
                .all(|&other| at + sectors <= other || other + sectors <= at)
        };
        assert_eq!(
            left.filter(|&at| is_free(at)).count(),
            0,
            "refused, and there was a place"
        );
    }
}

/// The first member refuses when it carries the write out, since another got its only place meanwhile: the next one is
/// asked.
#[test]
fn a_member_that_is_full_in_the_end_is_not_the_last_word() {
    let members = [8, 8].map(|sectors| MemoryDevice::new(512, sectors));
    let mut device = Members::new(members.into());
    let both: RangeSet = [0..2, 8..9].into_iter().collect();
    let request = Request::WriteRange {
        targets: &both,
        alignment: 1,
        data: &[1; 512],
    };
    for _ in 0..3 {
        device.submit(request).unwrap();
    }
    let mut places: Vec<_> = std::iter::from_fn(|| device.wait())
        .map(|done| done.result.unwrap())
        .collect();
    places.sort_by_key(|place| format!("{place:?}"));
    assert_eq!(places, [0..1, 1..2, 8..9].map(Done::Written));
}

/// `wait` waited for the first busy member, whoever else was done.
#[test]
fn whoever_is_done_first_is_heard_first() {
    let gated = Gated::new(|call| call.operation == Operation::Read);
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), gated));
    let slow = {
        let file = RealStorage::temporary(std::env::temp_dir().as_path()).unwrap();
        RealStorage.truncate(&file, 16 * 512).unwrap();
        ThreadedDevice::new(storage.clone(), file, 512, 16 * 512, 2).unwrap()
    };
    let quick = {
        let file = RealStorage::temporary(std::env::temp_dir().as_path()).unwrap();
        RealStorage.truncate(&file, 16 * 512).unwrap();
        ThreadedDevice::new(Arc::new(RealStorage), file, 512, 16 * 512, 2).unwrap()
    };
    let mut device = Members::new(vec![slow, quick]);
    let _opens = OpenOnDrop(storage.hook());
    storage.hook().close();
    let held = device.submit(Request::Read { at: 0, sectors: 1 }).unwrap();
    storage.hook().wait_for_held(1);
    for _ in 0..3 {
        let passes = device.submit(Request::Read { at: 16, sectors: 1 }).unwrap();
        assert_eq!(device.wait().unwrap().ticket, passes);
    }
    assert_eq!(device.poll(), None);
    storage.hook().open();
    assert_eq!(device.wait().unwrap().ticket, held);
    assert_eq!(device.wait(), None);
}

/// Modelled members are one modelled device: their clocks go together, and what is done first is heard first.
#[test]
fn modelled_members_are_kept_in_step() {
    let members = [8, 8].map(|sectors| MemoryDevice::new(512, sectors));
    let mut device = Members::new(members.into());
    device.pass_until(Duration::from_millis(5));
    assert_eq!(device.clock(), Clock::Modelled(Duration::from_millis(5)));
    let early = device.submit(Request::Read { at: 12, sectors: 1 }).unwrap();
    let completion = device.wait().unwrap();
    assert_eq!(
        (completion.ticket, device.clock()),
        (early, Clock::Modelled(completion.at))
    );
    let begin_by = Duration::from_millis(4);
    let late = device.submit_by(Request::Read { at: 0, sectors: 1 }, begin_by).unwrap();
    let completion = device.wait().unwrap();
    assert_eq!(
        (completion.ticket, completion.result),
        (late, Err(RangeError::Late { begin_by }))
    );
}

/// Nothing runs ahead past a barrier, and submitting one does not wait.
#[test]
fn a_barrier_holds_all_members() {
    let gated = Gated::new(|call| call.operation == Operation::Write);
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), gated));
    let make = |storage: Arc<dyn Storage>| {
        let file = RealStorage::temporary(std::env::temp_dir().as_path()).unwrap();
        RealStorage.truncate(&file, 16 * 512).unwrap();
        ThreadedDevice::new(storage, file, 512, 16 * 512, 2).unwrap()
    };
    let mut device = Members::new(vec![make(storage.clone()), make(Arc::new(RealStorage))]);
    let _opens = OpenOnDrop(storage.hook());
    storage.hook().close();
    let before = device.submit(Request::Write { at: 0, data: &[1; 512] }).unwrap();
    let barrier = device.submit(Request::Barrier).unwrap();
    let after = device
        .submit(Request::Write {
            at: 16,
            data: &[2; 512],
        })
        .unwrap();
    storage.hook().wait_for_held(1);
    assert_eq!(
        device.poll(),
        None,
        "the write behind the barrier waits, though its member is idle"
    );
    storage.hook().open();
    let order: Vec<_> = std::iter::from_fn(|| device.wait()).map(|done| done.ticket).collect();
    assert_eq!(order, [before, barrier, after]);
}

/// A file whose calls take so long, with a count of what it was asked.
fn delayed(delay: Duration) -> CountingDevice<ThreadedDevice> {
    // In memory, where there is such a place: what a busy disk takes for a flush would be the times of both.
    let in_memory = RealStorage::temporary(Path::new("/dev/shm"));
    let file = in_memory.or_else(|_| RealStorage::temporary(&std::env::temp_dir()));
    let file = file.unwrap();
    RealStorage.truncate(&file, 1 << 20).unwrap();
    let storage = Interposed::new(Arc::new(RealStorage), Delaying::new(delay, 8));
    CountingDevice::new(ThreadedDevice::new(Arc::new(storage), file, 512, 1 << 20, 4).unwrap())
}

/// Of a log's appends, each with its flush, a slow member gets those by which it is tried; flushes do not wait for it.
#[test]
fn a_slow_member_gets_few_writes_and_is_not_waited_for() {
    // So slow that a quick one on a busy machine still is quick beside it.
    let delays = [Duration::from_millis(150), Duration::from_millis(1)];
    let (mut slow, mut quick) = (delayed(delays[0]), delayed(delays[1]));
    let (mut times, mut tried) = (Vec::new(), 0);
    {
        let members: Vec<&mut dyn RangeDevice> = vec![&mut slow, &mut quick];
        let mut device = Blocking::new(Members::new(members));
        for at in 0..200 {
            let begun = std::time::Instant::now();
            let targets: RangeSet = [at * 8..at * 8 + 8, 2048 + at * 8..2048 + at * 8 + 8]
                .into_iter()
                .collect();
            let place = device.write_range(&targets, 1, &[1; 4096]).unwrap();
            device.flush().unwrap();
            tried += usize::from(place < 2048);
            times.push(begun.elapsed());
        }
    }
    times.sort();
    println!("{tried} of 200 on the slow one, median {:?}", times[100]);
    assert!((1..40).contains(&tried), "{tried} of 200 on the slow one");
    assert!(times[100] < delays[0], "{:?}", times[100]);
    assert!(slow.counts().flushes <= tried as u64 + 1, "{:?}", slow.counts());
}

/// What a member had in memory before it was ours is flushed with the first flush.
#[test]
fn the_first_flush_is_one_of_all_members() {
    let mut devices = [0, 1].map(|_| CountingDevice::new(MemoryDevice::new(512, 8)));
    let mut device = Blocking::new(Members::new(devices.iter_mut().collect()));
    device.flush().unwrap();
    device.flush().unwrap();
    device.write(9, &[1; 512]).unwrap();
    device.flush().unwrap();
    drop(device);
    assert_eq!(devices.map(|device| device.counts().flushes), [1, 2]);
}

/// A flush that a member refuses, or that fails there, is asked for again.
#[test]
fn a_member_whose_flush_has_failed_is_flushed_again() {
    let mut flushes = 0;
    let refuses = FaultyDevice::new(MemoryDevice::new(512, 8), Errno::IO, move |_, request: &Request<'_>| {
        flushes += u32::from(matches!(request, Request::Flush));
        matches!(request, Request::Flush) && flushes == 1
    });
    let mut flushes = 0;
    let fails = TearingDevice::new(MemoryDevice::new(512, 8), Errno::IO, move |_, request: &Request<'_>| {
        flushes += u32::from(matches!(request, Request::Flush));
        (matches!(request, Request::Flush) && flushes == 1).then_some(0)
    });
    let (mut refuses, mut fails) = (CountingDevice::new(refuses), CountingDevice::new(fails));
    let members: Vec<&mut dyn RangeDevice> = vec![&mut refuses, &mut fails];
    let mut device = Blocking::new(Members::new(members));
    assert!(device.flush().is_err());
    device.flush().unwrap();
    device.flush().unwrap();
    drop(device);
    assert_eq!(fails.counts().flushes, 2);
    assert_eq!(refuses.counts().flushes, 2);
}
