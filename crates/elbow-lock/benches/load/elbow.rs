//! Our own service.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use elbow_lock::server::{Server, Settings, Users};
use elbow_lock::wire::{append_request, decode_reply};
use elbow_lock::{Address, FileName, Limits, LockId, LockMode, LockRequest, Owner, Reply, Request, Wait};
use elbow_ranges::Footprint;

use super::{Client, Load, SEGMENT_BYTES, segments};

fn footprint(load: &Load, rank: u64) -> Footprint {
    Footprint::from_list(segments(load, rank).map(|offset| (offset, SEGMENT_BYTES))).unwrap()
}

fn file() -> FileName {
    FileName::new(b"/scratch/project/grid.h5").unwrap()
}

pub(super) fn serve(socket: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let settings = Settings {
        listen: vec![Address::Unix(socket.to_owned())],
        users: Users::Same,
        credentials: None,
        ttl_ms_max: 10_000,
        memory: socket.with_extension("state"),
        first: true,
        metrics: None,
        shards: 2,
        clients_max: 10_000,
        limits: Limits::default(),
        drain_ms_max: 0,
        warn: |trouble| eprintln!("{trouble}"),
        give_back: || {},
    };
    let server = runtime.block_on(Server::open(settings)).unwrap();
    println!("listening");
    runtime.block_on(server.run(std::future::pending())).unwrap();
}

/// The client library as programs use it: lock, then drop the hold.
pub(super) fn one_by_one(load: &Load, rank: u64) -> Client {
    let client = elbow_lock::Client::connect(&load.address).unwrap();
    let (footprint, file) = (footprint(load, rank), file());
    Box::new(move || {
        let hold = client
            .lock_as(
                Owner(1),
                file.clone(),
                footprint.clone(),
                LockMode::Exclusive,
                Wait::Forever,
            )
            .unwrap();
        hold.release();
        1
    })
}

/// As programs do whose ranges have no pattern: from the list, each time.
pub(super) fn irregular(load: &Load, rank: u64) -> Client {
    let client = elbow_lock::Client::connect(&load.address).unwrap();
    let list = odd_segments(load, rank);
    let file = file();
    Box::new(move || {
        let footprint = Footprint::from_list(list.iter().copied()).unwrap();
        let hold = client.lock_as(Owner(1), file.clone(), footprint, LockMode::Exclusive, Wait::Forever);
        hold.unwrap().release();
        1
    })
}

/// Within each regular segment of a rank, some of its bytes.
fn odd_segments(load: &Load, rank: u64) -> Vec<(u64, u64)> {
    odd_parts(segments(load, rank), rank)
}

fn odd_parts(segments: impl Iterator<Item = u64>, seed: u64) -> Vec<(u64, u64)> {
    let mut state = seed + 1;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let half = SEGMENT_BYTES / 2;
    segments
        .map(|offset| (offset + random(half), 1 + random(half)))
        .collect()
}

/// Another client of the same file: it holds long lists, and asks for one more and releases it until the process ends.
pub(super) struct LongLists {
    granted: Arc<AtomicU64>,
}

impl LongLists {
    const HELD: u64 = 15;

    /// Returns when the lists are held and the first one more has been granted.
    pub(super) fn ask(address: &str, segments: u64) -> Self {
        let client = elbow_lock::Client::connect(address).unwrap();
        let granted = Arc::new(AtomicU64::new(0));
        let (asked, ready) = (granted.clone(), Arc::new(Barrier::new(2)));
        let first = ready.clone();
        std::thread::spawn(move || {
            let lock = |number| {
                let footprint = Footprint::from_list(long_list(segments, number)).unwrap();
                let hold = client.lock_as(Owner(number), file(), footprint, LockMode::Exclusive, Wait::Forever);
                hold.unwrap()
            };
            let _held: Vec<_> = (0..Self::HELD).map(lock).collect();
            loop {
                lock(Self::HELD).release();
                if asked.fetch_add(1, Ordering::Relaxed) == 0 {
                    first.wait();
                }
            }
        });
        ready.wait();
        Self { granted }
    }

    pub(super) fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }
}

/// Behind all that is measured, and interleaved with the others.
fn long_list(segments: u64, number: u64) -> Vec<(u64, u64)> {
    const BEHIND: u64 = 1 << 40;
    let apart = (LongLists::HELD + 1) * SEGMENT_BYTES;
    let places = (0..segments).map(|segment| BEHIND + segment * apart + number * SEGMENT_BYTES);
    odd_parts(places, number)
}

/// Many requests before the first answer: the protocol without a library.
pub(super) fn pipelined(load: &Load, rank: u64) -> Client {
    let mut stream = UnixStream::connect(load.address.strip_prefix("unix:").unwrap()).unwrap();
    stream.write_all(b"\x1c\x00\x00\x00\x01ELBOWLCK\x01\x00\x00").unwrap();
    stream.write_all(&[0; 16]).unwrap();
    let mut answers = Answers {
        stream: stream.try_clone().unwrap(),
        bytes: Vec::new(),
    };
    answers.next(|_| ()); // The welcome.
    let round = load.in_flight;
    let mut requests = Vec::new();
    for id in 0..round {
        let request = Request::Lock(LockRequest {
            id: LockId(id),
            owner: Owner(1),
            file: file(),
            mode: LockMode::Exclusive,
            footprint: footprint(load, rank),
            wait: Wait::Forever,
            recall: false,
        });
        append_request(&mut requests, &request);
        append_request(&mut requests, &Request::Unlock { id: LockId(id) });
    }
    Box::new(move || {
        stream.write_all(&requests).unwrap();
        for _ in 0..round {
            answers.next(|payload| assert!(matches!(decode_reply(payload), Ok(Reply::Granted { .. }))));
        }
        round
    })
}

struct Answers {
    stream: UnixStream,
    bytes: Vec<u8>,
}

impl Answers {
    fn next(&mut self, take: impl FnOnce(&[u8])) {
        loop {
            if let Some(length) = self.bytes.first_chunk::<4>() {
                let end = 4 + u32::from_le_bytes(*length) as usize;
                if self.bytes.len() >= end {
                    take(&self.bytes[4..end]);
                    self.bytes.drain(..end);
                    return;
                }
            }
            let mut more = [0; 16 << 10];
            let got = self.stream.read(&mut more).unwrap();
            assert!(got > 0, "the service closed the connection");
            self.bytes.extend_from_slice(&more[..got]);
        }
    }
}
