//! Forced unit access over NBD: what it was answered for is there after a power cut of the device below the region.

#![allow(clippy::disallowed_methods, reason = "a socket of tests")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use elbow_disk::region::Region;
use elbow_drive::{Attachment, AttachmentKind, NbdAddress, ServedRegion};
use elbow_file::range_device::{
    Completion, MemoryDevice, PowerCut, RangeDevice, RangeError, Request, Shape, Ticket, VolatileDevice,
};

const SECTORS: u64 = 128;
const REGION_SECTORS: u64 = 1000;
/// All that there are of so few writes, or nearly.
const IMAGES: usize = 64;

#[derive(Clone)]
struct SharedDisk(Arc<Mutex<VolatileDevice<MemoryDevice>>>);

impl SharedDisk {
    fn lock(&self) -> MutexGuard<'_, VolatileDevice<MemoryDevice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut_now(&self) -> PowerCut {
        let disk = self.lock();
        disk.cut_at(disk.now())
    }

    /// The first byte of a sector of the region, in each of the images that a power cut may leave now.
    fn found(&self, sector: u64) -> Vec<u8> {
        let images = self.cut_now();
        let images = images.images(1).take(IMAGES);
        let first = |mut region: Region<_>| region.read(sector, 1).expect("it reads")[0];
        let regions = images.map(|image| Region::open(image.to_memory()).expect("a region"));
        regions.map(first).collect()
    }
}

impl RangeDevice for SharedDisk {
    fn shape(&self) -> Shape {
        self.lock().shape()
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.lock().submit(request)
    }

    fn poll(&mut self) -> Option<Completion> {
        self.lock().poll()
    }

    fn wait(&mut self) -> Option<Completion> {
        self.lock().wait()
    }
}

const READ: u16 = 0;
const WRITE: u16 = 1;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const FORCED: u16 = 1;

/// A client as small as may be.
struct Client(UnixStream);

impl Client {
    fn connect(socket: &Path) -> Client {
        let mut stream = UnixStream::connect(socket).expect("it listens");
        stream.read_exact(&mut [0; 18]).expect("a greeting");
        let choice = [&3_u32.to_be_bytes()[..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
        stream.write_all(&choice).expect("it takes that");
        stream.read_exact(&mut [0; 10]).expect("size and flags");
        Client(stream)
    }

    /// One sector, of one byte where it is written; returns when it is answered.
    fn ask(&mut self, command: u16, flags: u16, sector: u64, byte: u8) {
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(7_u64.to_be_bytes());
        request.extend((sector * 512).to_be_bytes());
        request.extend(512_u32.to_be_bytes());
        if command == WRITE {
            request.extend([byte; 512]);
        }
        self.0.write_all(&request).expect("it takes that");
        let mut reply = [1; 16];
        self.0.read_exact(&mut reply).expect("an answer");
        assert_eq!(reply[4..8], [0; 4], "no error");
        if command == READ {
            self.0.read_exact(&mut [0; 512]).expect("a sector");
        }
    }

    /// Without force; the disk below has it then, since what is read has to be there.
    fn ask_unforced(&mut self, command: u16, sector: u64, byte: u8) {
        self.ask(command, 0, sector, byte);
        self.ask(READ, 0, sector, 0);
    }
}

#[test]
fn what_is_forced_over_nbd_survives_a_power_cut_and_what_is_not_may_be_lost() {
    let disk = VolatileDevice::new(MemoryDevice::new(512, REGION_SECTORS));
    let disk = SharedDisk(Arc::new(Mutex::new(disk)));
    let region = Region::format(disk.clone(), SECTORS, 1).expect("there is room");
    let served = ServedRegion::start(region).expect("it starts");
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket");
    let kind = AttachmentKind::Nbd(NbdAddress::Unix(socket.clone()));
    let _attachment = Attachment::open(&kind, served.link()).expect("it listens");
    let mut client = Client::connect(&socket);
    let all = |found: &[u8], byte| !found.is_empty() && found.iter().all(|&is| is == byte);
    for (sector, zeros) in [(3, TRIM), (5, WRITE_ZEROES)] {
        client.ask_unforced(WRITE, sector, 7);
        let found = disk.found(sector);
        assert!(found.contains(&0) && found.contains(&7), "not forced: {found:?}");
        client.ask(WRITE, FORCED, sector, 8);
        let found = disk.found(sector);
        assert!(all(&found, 8), "a write: {found:?}");
        client.ask_unforced(zeros, sector, 0);
        let found = disk.found(sector);
        assert!(found.contains(&8) && found.contains(&0), "not forced: {found:?}");
        client.ask(WRITE, FORCED, sector, 9);
        client.ask(zeros, FORCED, sector, 0);
        let found = disk.found(sector);
        assert!(all(&found, 0), "command {zeros}: {found:?}");
    }
}
