//! What the interface gives to who writes a log or a file system: times, deadlines, cancelling, where an error is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use elbow_file::double::{Counting, Faulty, Gated, Interposed, Operation, Plan};
use elbow_file::range_device::{Blocking, Done, FileDevice, RangeDevice, RangeError, Request, ThreadedDevice};
use elbow_file::{Errno, Handle, RealStorage, Storage};

use crate::{OpenOnDrop, io};

fn sectors(sectors: u64) -> Handle {
    let file = RealStorage::temporary(std::env::temp_dir().as_path()).unwrap();
    RealStorage.truncate(&file, sectors * 512).unwrap();
    file
}

/// Each barrier was an fsync: 200 writes with one between each took 173 ms where 0.14 would do.
#[test]
fn a_barrier_does_not_sync_and_a_flush_does() {
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Counting::default()));
    let syncs = || storage.hook().count(Operation::Sync);
    let mut file = Blocking::new(FileDevice::new(storage.clone(), sectors(16), 512, 16 * 512));
    let threads = ThreadedDevice::new(storage.clone(), sectors(16), 512, 16 * 512, 2);
    let mut threads = Blocking::new(threads.unwrap());
    for at in 0..8 {
        file.write(at, &[1; 512]).unwrap();
        file.barrier().unwrap();
        threads.write(at, &[1; 512]).unwrap();
        threads.barrier().unwrap();
    }
    assert_eq!(syncs(), 0);
    file.flush().unwrap();
    assert_eq!(syncs(), 1);
    threads.flush().unwrap();
    assert_eq!(syncs(), 2);
}

/// fsync(2) tells an error once, and what it could not write may be gone then: a second flush must not succeed.
#[test]
fn after_a_flush_that_failed_all_fail() {
    let storage = || Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
    let (first, second) = (storage(), storage());
    let mut file = Blocking::new(FileDevice::new(first.clone(), sectors(16), 512, 16 * 512));
    let threads = ThreadedDevice::new(second.clone(), sectors(16), 512, 16 * 512, 2);
    let mut threads = Blocking::new(threads.unwrap());
    file.flush().unwrap();
    threads.flush().unwrap();
    for storage in [&first, &second] {
        storage.hook().arm(Plan::fail(Errno::NOSPC).on(Operation::Sync));
    }
    for _ in 0..3 {
        assert_eq!(file.flush(), Err(RangeError::from(Errno::NOSPC)));
        assert_eq!(threads.flush(), Err(RangeError::from(Errno::NOSPC)));
    }
    assert_eq!((first.hook().fired(), second.hook().fired()), (1, 1));
}

/// Whether the system has the first page of a file in memory; `None` where it does not say.
#[expect(clippy::disallowed_methods, reason = "no other call says it")]
fn is_in_memory(file: &std::fs::File) -> Option<bool> {
    let mut page = [0; 4096];
    let mut into = [std::io::IoSliceMut::new(&mut page)];
    match rustix::io::preadv2(file, &mut into, 0, rustix::io::ReadWriteFlags::NOWAIT) {
        Ok(bytes) => Some(bytes > 0),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

/// Whether an act makes the system forget a file that it has in memory. It is tried several times: a page that the kernel
/// has in use at the moment stays.
#[expect(clippy::disallowed_methods, reason = "it looks at what the system keeps in memory")]
fn is_forgotten_by(file: &tempfile::NamedTempFile, act: &dyn Fn()) -> bool {
    (0..100).any(|_| {
        std::fs::read(file.path()).unwrap();
        let was_in_memory = is_in_memory(file.as_file()) == Some(true);
        act();
        was_in_memory && is_in_memory(file.as_file()) == Some(false)
    })
}

/// What is clean in memory may not be on the medium: an fsync(2) failed.
#[test]
#[expect(clippy::disallowed_methods, reason = "it looks at what the system keeps in memory")]
fn an_opened_device_is_read_from_its_medium() {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(file.path(), [1; 64 * 1024]).unwrap();
    file.as_file().sync_all().unwrap();
    let advise = || rustix::fs::fadvise(file.as_file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if !is_forgotten_by(&file, &advise) {
        let message = "this file system forgets nothing, or does not say so";
        assert!(std::env::var_os("CI").is_none(), "{message}");
        return println!("SKIPPED: {message}");
    }
    assert!(is_forgotten_by(&file, &|| drop(
        FileDevice::open(file.path(), 512).unwrap()
    )));
    let open_threaded = || drop(ThreadedDevice::open(file.path(), 512, 1).unwrap());
    assert!(is_forgotten_by(&file, &open_threaded));
}

#[test]
fn requests_are_really_in_flight_and_no_more_than_threads() {
    let gated = Gated::new(|call| call.operation == Operation::Write);
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), gated));
    let mut device = ThreadedDevice::new(storage.clone(), sectors(64), 512, 64 * 512, 4).unwrap();
    let _opens = OpenOnDrop(storage.hook());
    storage.hook().close();
    let targets = std::iter::once(0..64).collect();
    for _ in 0..32 {
        let request = Request::WriteRange {
            targets: &targets,
            alignment: 1,
            data: &[1; 512],
        };
        device.submit(request).unwrap();
    }
    storage.hook().wait_for_held(4);
    for _ in 0..20 {
        assert_eq!(storage.hook().held(), 4);
        std::thread::sleep(Duration::from_millis(5));
    }
    storage.hook().open();
    let done = std::iter::from_fn(|| device.wait()).filter(|done| done.result.is_ok());
    assert_eq!(done.count(), 32);
}

/// One thread, which is kept busy: what waits can be cancelled, comes too late, and leaves its place to others.
#[test]
fn what_waits_for_a_thread_can_be_cancelled_and_comes_too_late() {
    let gated = Gated::new(|call| call.operation == Operation::Read);
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), gated));
    let mut device = Blocking::new(ThreadedDevice::new(storage.clone(), sectors(16), 512, 16 * 512, 1).unwrap());
    let _opens = OpenOnDrop(storage.hook());
    storage.hook().close();
    let held = device.submit(Request::Read { at: 0, sectors: 1 }).unwrap();
    storage.hook().wait_for_held(1);
    let (targets, alignment, data) = (&std::iter::once(8..9).collect(), 1, &[5; 512]);
    let write = Request::WriteRange {
        targets,
        alignment,
        data,
    };
    let cancelled = device.submit(write).unwrap();
    assert!(matches!(
        device.submit(write),
        Err(RangeError::NoPlace { taken: 1, .. })
    ));
    device.cancel(cancelled).unwrap();
    assert_eq!(device.wait_for(cancelled), Err(RangeError::Cancelled));
    let begin_by = device.device().clock().time() + Duration::from_millis(20);
    let late = device.submit_by(write, begin_by).unwrap();
    let completion = device.complete(late);
    assert_eq!(
        completion.result,
        Err(RangeError::Late { begin_by }),
        "told while the thread is busy"
    );
    assert!(completion.at > begin_by);
    let written = device.submit(write).unwrap();
    assert_eq!(device.cancel(held), Err(RangeError::Begun { ticket: held }));
    storage.hook().open();
    assert_eq!(device.wait_for(held), Ok(Done::Read(vec![0; 512])));
    assert_eq!(device.wait_for(written), Ok(Done::Written(8..9)));
}

/// A reactor is told, and need not wait or ask again and again.
#[test]
fn a_waker_is_called_for_each_completion() {
    struct Count(AtomicU64);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let count = Arc::new(Count(AtomicU64::new(0)));
    let mut device = ThreadedDevice::new(Arc::new(RealStorage), sectors(16), 512, 16 * 512, 2).unwrap();
    assert!(device.wake(&Waker::from(count.clone())));
    device.submit(Request::Read { at: 0, sectors: 1 }).unwrap();
    device.submit(Request::Read { at: 1, sectors: 1 }).unwrap();
    while count.0.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    assert!(device.poll().is_some() && device.poll().is_some());
    assert_eq!(device.poll(), None);
}

/// Of a read of several sectors the error begins with the one that is bad.
#[test]
fn an_error_says_where() {
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
    let bad = 5 * 512;
    let plan = Plan::fail(Errno::IO).on(Operation::Read).times(u64::MAX);
    let plan = plan.when(move |call| call.offset <= bad && bad < call.offset + call.bytes);
    storage.hook().arm(plan);
    let mut device = Blocking::new(FileDevice::new(storage.clone(), sectors(16), 512, 16 * 512));
    assert_eq!(device.read(2, 8), Err(io(Errno::IO, 5..10)));
    assert_eq!(device.read(2, 3), Ok(vec![0; 3 * 512]));
    assert_eq!(device.read(5, 1), Err(io(Errno::IO, 5..6)));
    let mut device = Blocking::new(ThreadedDevice::new(storage, sectors(16), 512, 16 * 512, 2).unwrap());
    assert_eq!(device.read(2, 8), Err(io(Errno::IO, 5..10)));
    assert_eq!(
        device.read(5, 1).unwrap_err().to_string(),
        "the storage below, at sectors 5 to 6: Input/output error (os error 5)"
    );
}
