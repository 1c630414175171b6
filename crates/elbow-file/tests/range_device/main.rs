//! Every range device of this crate keeps the contract, and the contract finds devices that do not.
#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;

use elbow_file::double::{Faulty, Gated, Interposed, Operation, Plan};
use elbow_file::range_device::{
    Blocking, Completion, CountingDevice, Done, FaultyDevice, FileDevice, Members, MemoryDevice, RangeDevice,
    RangeError, Request, Shape, ThreadedDevice, Ticket, contract,
};
use elbow_file::{Access, Errno, RealStorage, Storage};
use elbow_ranges::RangeSet;
use elbow_testkit::cases::seeds;

mod faults;
mod interface;
mod members;

/// Random cases per device without `SEED` or `ROUNDS`.
const CASES: u64 = 30;

fn io(errno: Errno, place: Range<u64>) -> RangeError {
    let place = Some(place);
    RangeError::Io { errno, place }
}

/// A test that fails behind a closed gate would wait for ever for the threads that it holds.
struct OpenOnDrop<'a>(&'a Gated);

impl Drop for OpenOnDrop<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A file of 200 sectors of 512 bytes and a bit, which is gone when the device is.
fn file() -> FileDevice {
    let file = RealStorage::temporary(std::env::temp_dir().as_path()).unwrap();
    RealStorage.truncate(&file, 200 * 512 + 100).unwrap();
    FileDevice::new(Arc::new(RealStorage), file, 512, 200 * 512 + 100)
}

#[test]
fn memory_in_order_keeps_the_contract() {
    contract::check(&mut || MemoryDevice::new(512, 128), seeds(CASES));
}

#[test]
fn capricious_memory_keeps_the_contract() {
    let mut seed = 0;
    let mut make = || {
        seed += 1;
        MemoryDevice::capricious(16, 300, seed)
    };
    contract::check(&mut make, seeds(CASES));
}

#[test]
fn a_file_keeps_the_contract() {
    contract::check(&mut file, seeds(CASES));
}

#[test]
fn a_file_with_threads_keeps_the_contract() {
    let make = |threads: usize| {
        let file = RealStorage::temporary(std::env::temp_dir().as_path()).unwrap();
        RealStorage.truncate(&file, 200 * 512).unwrap();
        ThreadedDevice::new(Arc::new(RealStorage), file, 512, 200 * 512, threads).unwrap()
    };
    for threads in [1, 2, 8] {
        contract::check(&mut || make(threads), seeds(CASES));
    }
    contract::check(&mut || Members::new(vec![make(2), make(1)]), seeds(CASES));
}

/// Members whose first sectors are no multiples of the alignments: 3, 93 and 143.
#[test]
fn members_that_begin_anywhere_keep_the_contract() {
    let mut seed = 300;
    let mut make = || {
        seed += 1;
        let devices = [3, 90, 50, 37].map(|sectors| MemoryDevice::capricious(512, sectors, seed));
        Members::new(devices.into())
    };
    contract::check(&mut make, seeds(CASES));
}

#[test]
fn members_keep_the_contract() {
    let files = || Members::new(vec![file(), file()]);
    assert_eq!(files().shape().sectors, 400);
    let mut seed = 100;
    let mut mixed = || {
        seed += 1;
        let devices: [Box<dyn RangeDevice>; 3] = [
            Box::new(MemoryDevice::new(512, 16)),
            Box::new(MemoryDevice::capricious(512, 16, seed)),
            Box::new(file()),
        ];
        Members::new(devices.into())
    };
    contract::check(
        &mut || Members::new(vec![MemoryDevice::new(512, 96), MemoryDevice::new(512, 96)]),
        seeds(CASES),
    );
    contract::check(&mut mixed, seeds(CASES));
    let mut askew = || {
        seed += 1;
        let devices: [Box<dyn RangeDevice>; 4] = [
            Box::new(MemoryDevice::new(512, 13)),
            Box::new(MemoryDevice::capricious(512, 21, seed)),
            Box::new(MemoryDevice::new(512, 7)),
            Box::new(file()),
        ];
        Members::new(devices.into())
    };
    contract::check(&mut askew, seeds(CASES));
}

/// Each barrier was an fsync(2).
#[test]
fn a_barrier_syncs_no_file_and_a_flush_does() {
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
    let handle = RealStorage::temporary(std::env::temp_dir().as_path()).unwrap();
    let mut device = Blocking::new(FileDevice::new(storage.clone(), handle, 512, 100 * 512));
    storage.hook().arm(Plan::fail(Errno::IO).on(Operation::Sync));
    device.barrier().unwrap();
    assert_eq!(storage.hook().fired(), 0);
    assert_eq!(device.flush(), Err(RangeError::from(Errno::IO)));
    assert_eq!(storage.hook().fired(), 1);
}

/// What the device has handed out, and the caller has not asked for yet, is not known to the caller.
#[test]
fn a_barrier_says_nothing_of_what_nobody_has_asked_for() {
    let mut device = Blocking::new(MemoryDevice::new(512, 16));
    let targets: RangeSet = [8..10].into_iter().collect();
    let write = Request::WriteRange {
        targets: &targets,
        alignment: 1,
        data: &[1; 512],
    };
    let first = device.submit(write).unwrap();
    device.barrier().unwrap();
    assert_eq!(device.write_range(&targets, 1, &[2; 512]), Ok(9));
    assert_eq!(device.wait_for(first), Ok(Done::Written(8..9)));
    let all_given = device.write_range(&targets, 1, &[3; 512]);
    assert!(matches!(all_given, Err(RangeError::NoPlace { .. })), "{all_given:?}");
    device.barrier().unwrap();
    assert_eq!(device.write_range(&targets, 1, &[3; 512]), Ok(8));
}

#[test]
fn doubles_keep_the_contract() {
    let mut make = || CountingDevice::new(FaultyDevice::new(MemoryDevice::new(64, 128), Errno::IO, |_, _| false));
    contract::check(&mut make, seeds(CASES));
}

/// Root and a loop device, which the continuous integration has.
#[test]
fn a_block_device_keeps_the_contract() {
    let image = tempfile::NamedTempFile::new().unwrap();
    let file = RealStorage::open_file(image.path(), Access::ReadWrite).unwrap();
    RealStorage.truncate(&file, 1 << 20).unwrap();
    let made = Command::new("losetup")
        .args(["--find", "--show"])
        .arg(image.path())
        .output();
    let Some(made) = made.ok().filter(|made| made.status.success()) else {
        assert!(
            std::env::var_os("CI").is_none(),
            "the continuous integration has loop devices"
        );
        eprintln!("SKIPPED: no loop device to be had");
        return;
    };
    let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let checked = catch_unwind(|| {
        let mut make = || FileDevice::open(device.as_ref(), 512).unwrap();
        assert_eq!(
            make().shape(),
            Shape {
                sector_bytes: 512,
                sectors: 2048
            }
        );
        contract::check(&mut make, 0..3);
    });
    assert!(
        Command::new("losetup")
            .args(["-d", &device])
            .status()
            .unwrap()
            .success()
    );
    checked.unwrap();
}

#[test]
fn a_failed_call_of_the_storage_is_the_result_of_its_request() {
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
    let handle = RealStorage::temporary(std::env::temp_dir().as_path()).unwrap();
    let mut device = Blocking::new(FileDevice::new(storage.clone(), handle, 512, 100 * 512));
    storage.hook().arm(Plan::fail(Errno::NOSPC).on(Operation::Write));
    let free = [0..9].into_iter().collect();
    assert_eq!(device.write_range(&free, 1, &[1; 512]), Err(io(Errno::NOSPC, 0..1)));
    assert_eq!(storage.hook().fired(), 1);
    assert_eq!(device.write_range(&free, 1, &[1; 512]), Ok(0));
    let short = device.read(50, 1);
    assert_eq!(short, Err(io(Errno::IO, 50..51)), "the file ends before the device");
}

#[test]
fn what_is_no_file_or_block_device_is_refused() {
    assert_eq!(FileDevice::open("/dev/null".as_ref(), 512).err(), Some(Errno::INVAL));
    assert_eq!(
        FileDevice::open("/dev/no such thing".as_ref(), 512).err(),
        Some(Errno::NOENT)
    );
}

#[test]
fn an_error_says_what_was_asked_and_what_there_is() {
    let mut device = Blocking::new(MemoryDevice::new(512, 100));
    let error = device
        .write_range(&[3..8].into_iter().collect(), 8, &[0; 512])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "no place for 1 contiguous sectors aligned to 8 among 5 target sectors, 0 of which were given away \
         since the last barrier or are being written; name more targets, or submit a barrier once what was given away is no \
         target any more"
    );
}

/// A device that is wrong in one way.
struct BrokenDevice {
    device: MemoryDevice,
    fault: Fault,
    tickets: u64,
    /// Requests of its own.
    hidden: Vec<Ticket>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Every range write gets the first place, whoever has it.
    Shares,
    /// Says a place next to the right one.
    Lies,
    /// Ignores the alignment.
    Askew,
    /// Forgets barriers.
    Unordered,
    /// Writes the sectors of a write backwards.
    Backwards,
    /// Remembers nothing of what was given and completed.
    Forgets,
}

impl RangeDevice for BrokenDevice {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.tickets += 1;
        match (self.fault, request) {
            (
                Fault::Shares,
                Request::WriteRange {
                    targets,
                    alignment,
                    data,
                },
            ) => {
                self.device.shape().check(&request)?;
                let at = elbow_file::range_device::first_aligned_fit(targets, data.len() as u64 / 512, alignment);
                self.device.submit(Request::Write { at: at.unwrap(), data })
            }
            (Fault::Askew, Request::WriteRange { targets, data, .. }) => self.device.submit(Request::WriteRange {
                targets,
                alignment: 1,
                data,
            }),
            (
                Fault::Backwards,
                Request::WriteRange {
                    targets,
                    alignment,
                    data,
                },
            ) => {
                let data: Vec<u8> = data.chunks(512).rev().flatten().copied().collect();
                self.device.submit(Request::WriteRange {
                    targets,
                    alignment,
                    data: &data,
                })
            }
            (Fault::Unordered, Request::Barrier | Request::Flush) => {
                self.device.submit(Request::Read { at: 60, sectors: 1 })
            }
            (Fault::Forgets, Request::WriteRange { .. }) => {
                self.hidden.push(self.device.submit(Request::Barrier)?);
                self.device.submit(request)
            }
            _ => self.device.submit(request),
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        let mut completion = self.device.poll()?;
        if self.hidden.contains(&completion.ticket) {
            return self.poll();
        }
        match &mut completion.result {
            Ok(Done::Written(place)) if self.fault == Fault::Lies => *place = place.start + 1..place.end + 1,
            Ok(done @ Done::Read(_)) if self.fault == Fault::Unordered && completion.ticket.0 % 5 == 0 => {
                *done = Done::Passed;
            }
            _ => {}
        }
        Some(completion)
    }

    fn wait(&mut self) -> Option<Completion> {
        self.poll()
    }
}

#[test]
fn the_contract_finds_devices_that_break_it() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {})); // these panics are what is wanted
    let faults = [
        Fault::Shares,
        Fault::Lies,
        Fault::Askew,
        Fault::Unordered,
        Fault::Backwards,
        Fault::Forgets,
    ];
    let passed = faults.map(|fault| {
        let mut seed = 0;
        let mut make = || {
            seed += 1;
            let device = MemoryDevice::capricious(512, 64, seed);
            BrokenDevice {
                device,
                fault,
                tickets: 0,
                hidden: Vec::new(),
            }
        };
        catch_unwind(AssertUnwindSafe(|| contract::check(&mut make, 0..3))).is_ok()
    });
    std::panic::set_hook(hook);
    assert_eq!(
        faults
            .into_iter()
            .zip(passed)
            .filter(|(_, passed)| *passed)
            .collect::<Vec<_>>(),
        []
    );
}
