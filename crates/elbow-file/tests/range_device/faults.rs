//! Doubles whose faults come at completion, and what a power cut leaves.

use std::collections::BTreeSet;

use elbow_file::Errno;
use elbow_file::range_device::{
    Blocking, CutImage, Done, FileDevice, MemoryDevice, RangeDevice, RangeError, Request, TearingDevice,
    VolatileDevice, contract,
};
use elbow_ranges::RangeSet;
use elbow_testkit::cases::seeds;

use crate::{CASES, file, io};

fn tearing(
    torn: u64,
    written: u64,
) -> Blocking<TearingDevice<MemoryDevice, impl FnMut(u64, &Request<'_>) -> Option<u64>>> {
    let device = MemoryDevice::new(512, 64);
    Blocking::new(TearingDevice::new(device, Errno::IO, move |number, _| {
        (number == torn).then_some(written)
    }))
}

#[test]
fn doubles_that_do_nothing_keep_the_contract() {
    let mut seed = 0;
    let mut make = || {
        seed += 1;
        let device = TearingDevice::new(MemoryDevice::capricious(512, 128, seed), Errno::IO, |_, _| None);
        VolatileDevice::new(device)
    };
    contract::check(&mut make, seeds(CASES));
}

#[test]
fn a_torn_write_has_its_first_sectors_on_the_medium() {
    for written in 0..=4 {
        let mut device = tearing(2, written);
        device.write(10, &[1; 4 * 512]).unwrap();
        let failed = device.write(10, &[2; 4 * 512]);
        assert_eq!(failed, Err(io(Errno::IO, 10 + written..14)));
        let (new, old) = (written as usize * 512, (4 - written as usize) * 512);
        assert_eq!(device.read(10, 4), Ok([vec![2; new], vec![1; old]].concat()));
        assert_eq!(device.device().fired(), 1);
    }
}

/// The double used to name a place that an outstanding write was given: a log that leaves bad places out lost that record.
#[test]
fn a_place_at_which_a_range_write_failed_is_nobody_elses() {
    for seed in seeds(CASES) {
        let device = MemoryDevice::capricious(512, 8, seed);
        let mut device = TearingDevice::new(device, Errno::IO, |number, _| (number == 2).then_some(0));
        let targets: RangeSet = std::iter::once(0..8).collect();
        let request = Request::WriteRange {
            targets: &targets,
            alignment: 2,
            data: &[1; 2 * 512],
        };
        for _ in 0..4 {
            device.submit(request).unwrap();
        }
        let completions = std::iter::from_fn(|| device.wait());
        let places = completions.map(|completion| match completion.result {
            Ok(Done::Written(place)) => place,
            Err(RangeError::Io { place: Some(place), .. }) => place,
            other => panic!("{other:?}"),
        });
        let places: RangeSet = places.collect();
        assert_eq!(
            (places.total_bytes(), device.fired()),
            (8, 1),
            "SEED={seed}: {places:?}"
        );
    }
}

/// The first sectors lie where the whole write could.
#[test]
fn a_torn_range_write_lies_within_its_targets() {
    let targets: RangeSet = [3..9, 21..30].into_iter().collect();
    for (written, place) in [(0, 4..8), (1, 5..8), (3, 7..8), (4, 8..8)] {
        let mut device = tearing(1, written);
        let failed = device.write_range(&targets, 4, &[2; 4 * 512]);
        assert_eq!(failed, Err(io(Errno::IO, place)));
        let written = written.max(1) as usize; // One gives it its place.
        let content = [vec![2; written * 512], vec![0; (4 - written) * 512]].concat();
        assert_eq!(device.read(4, 4), Ok(content));
    }
    let mut device = tearing(1, 2);
    let failed = device.write_range(&[2..5, 20..24].into_iter().collect(), 1, &[2; 4 * 512]);
    assert_eq!(
        failed,
        Err(io(Errno::IO, 22..24)),
        "two sectors fit at 2, the whole does not"
    );
    let mut device = tearing(1, 2);
    let no_place = device.write_range(&targets, 4, &[2; 7 * 512]);
    assert!(
        matches!(no_place, Err(RangeError::NoPlace { .. })),
        "its first sectors would fit at 4, the whole does not: {no_place:?}"
    );
    assert_eq!(device.device().fired(), 0);
}

#[test]
fn reads_and_flushes_fail_when_they_complete() {
    let mut device = tearing(1, 0);
    assert_eq!(device.read(5, 3), Err(io(Errno::IO, 5..8)));
    let mut device = tearing(2, 0);
    device.write(0, &[1; 512]).unwrap();
    assert_eq!(device.flush(), Err(RangeError::from(Errno::IO)));
    assert_eq!(device.flush(), Ok(()));
}

fn volatile() -> Blocking<VolatileDevice<MemoryDevice>> {
    Blocking::new(VolatileDevice::new(MemoryDevice::new(512, 32)))
}

/// First bytes of some sectors of all images of a cut now.
fn found<const N: usize>(device: &mut Blocking<VolatileDevice<MemoryDevice>>, sectors: [u64; N]) -> BTreeSet<[u8; N]> {
    let now = device.device().now();
    let cut = device.device().cut_at(now);
    let first = |image: CutImage| sectors.map(|sector| image.read(sector..sector + 1)[0]);
    cut.images(7).map(first).collect()
}

#[test]
fn a_flush_makes_durable_and_a_barrier_does_not_order() {
    let mut device = volatile();
    device.write(0, &[1; 512]).unwrap();
    device.flush().unwrap();
    device.write(1, &[1; 512]).unwrap();
    device.barrier().unwrap();
    device.write(2, &[1; 512]).unwrap();
    let all = BTreeSet::from([[1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]]);
    assert_eq!(
        found(&mut device, [0, 1, 2]),
        all,
        "what is behind the barrier may survive alone"
    );
    device.flush().unwrap();
    assert_eq!(found(&mut device, [0, 1, 2]), BTreeSet::from([[1, 1, 1]]));
}

/// At each moment: only when the flush has completed is what was before it durable.
#[test]
fn each_moment_has_its_own_cut() {
    let mut device = volatile();
    device.write(0, &[1; 512]).unwrap();
    device.flush().unwrap();
    device.write(0, &[2; 512]).unwrap();
    let pending: Vec<usize> = device.device().cuts().map(|cut| cut.pending()).collect();
    //                         nothing, submitted, completed, flush, flushed, submitted, completed
    assert_eq!(pending, [0, 1, 1, 1, 0, 1, 1]);
    let mut values = Vec::new();
    for cut in device.device().cuts() {
        let found: BTreeSet<u8> = cut.images(1).map(|image| image.read(0..1)[0]).collect();
        values.push(found.into_iter().collect::<Vec<_>>());
    }
    assert_eq!(
        values,
        [
            vec![0],
            vec![0, 1],
            vec![0, 1],
            vec![0, 1],
            vec![1],
            vec![1, 2],
            vec![1, 2]
        ]
    );
}

#[test]
fn a_write_is_torn_in_any_of_its_pieces() {
    let mut device = volatile();
    device.write(4, &[1; 3 * 512]).unwrap();
    assert_eq!(found(&mut device, [4, 5, 6]).len(), 8, "all subsets");
    let mut device = Blocking::new(VolatileDevice::new(MemoryDevice::new(4096, 4)));
    device.write(1, &[1; 4096]).unwrap();
    let now = device.device().now();
    let cut = device.device().cut_at(now);
    assert_eq!(
        cut.images(1).count(),
        256,
        "a sector of 4096 bytes is written in pieces of 512"
    );
    // Of many: whole ones, and torn ones among others.
    let mut device = volatile();
    for at in 0..20 {
        device.write(at, &[1; 2 * 512]).unwrap();
    }
    let now = device.device().now();
    let cut = device.device().cut_at(now);
    let images: Vec<String> = cut.images(3).map(|image| image.to_string()).collect();
    assert_eq!((cut.pending(), images.len()), (20, 256 + 64));
    assert!(
        images.iter().any(|image| image.contains(&"1".repeat(20))) && images.iter().any(|image| image.contains('~'))
    );
    let again: Vec<String> = cut.images(3).map(|image| image.to_string()).collect();
    assert_eq!(images, again, "equal seeds, equal images");
}

/// A range write that is under way when the power goes is where its completion says later.
#[test]
fn what_is_under_way_may_survive_where_it_will_lie() {
    let mut device = volatile();
    let targets: RangeSet = [6..8].into_iter().collect();
    let request = Request::WriteRange {
        targets: &targets,
        alignment: 1,
        data: &[5; 512],
    };
    let written = device.submit(request).unwrap();
    let cancelled = device.submit(request).unwrap();
    let under_way = device.device().now();
    device.cancel(cancelled).unwrap();
    assert_eq!(device.wait_for(cancelled), Err(RangeError::Cancelled));
    assert_eq!(device.wait_for(written), Ok(Done::Written(6..7)));
    let cut = device.device().cut_at(under_way);
    let images: BTreeSet<Vec<u8>> = cut.images(1).map(|image| image.read(6..8)).collect();
    let expected = [vec![0; 1024], [[5; 512], [0; 512]].concat()];
    assert_eq!(images, BTreeSet::from(expected), "what was cancelled is nowhere");
}

/// Of a write that failed nobody knows what is there, a flush later or not; until another one has been written over it.
#[test]
fn a_write_that_failed_stays_unknown() {
    let tearing = TearingDevice::new(MemoryDevice::new(512, 32), Errno::IO, |number, _| {
        (number == 1).then_some(1)
    });
    let mut device = Blocking::new(VolatileDevice::new(tearing));
    assert_eq!(device.write(3, &[1; 2 * 512]), Err(io(Errno::IO, 4..5)));
    device.flush().unwrap();
    let pending = |device: &mut Blocking<VolatileDevice<_>>| {
        let now = device.device().now();
        let cut: Vec<Vec<u8>> = device
            .device()
            .cut_at(now)
            .images(1)
            .map(|image| image.read(3..5))
            .collect();
        cut.len()
    };
    assert_eq!(pending(&mut device), 4);
    device.write(3, &[2; 2 * 512]).unwrap();
    device.flush().unwrap();
    assert_eq!(pending(&mut device), 1);
}

/// What was there before counts as durable, and an image is a device again.
#[test]
fn an_image_is_a_device_again() {
    let mut device: FileDevice = file();
    Blocking::new(&mut device).write(190, &[9; 512]).unwrap();
    let mut device = Blocking::new(VolatileDevice::holding(device).unwrap());
    device.write(2, &[8; 512]).unwrap();
    device.flush().unwrap();
    let now = device.device().now();
    let cut = device.device().cut_at(now);
    let images: Vec<CutImage> = cut.images(1).collect();
    assert_eq!((images.len(), cut.pending()), (1, 0));
    let mut found = Blocking::new(images[0].to_memory());
    assert_eq!(found.shape(), device.shape());
    assert_eq!(
        (found.read(190, 1), found.read(2, 1)),
        (Ok(vec![9; 512]), Ok(vec![8; 512]))
    );
    assert_eq!(found.read(3, 1), Ok(vec![0; 512]));
}
