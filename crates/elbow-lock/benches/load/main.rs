//! One client load on one lock service: cycles of lock and unlock per second, and how long each takes.
//!
//! ```text
//!   load serve-echo SOCKET                                  answers each request with an answer as long as a grant
//!   load run PEER --address A --connections N --segments S --seconds T [--in-flight K]
//!        PEER: elbow, echo, ofd, redis, etcd
//! ```
//!
//! Each connection has a thread of its own and locks its own segments: the S pieces of its rank in a file that all
//! connections interleave, so that nobody waits for anybody and every request is compared with those that others hold.
//! With `--in-flight` a thread writes K cycles before it reads their answers. Prints one JSON object. It is driven by
//! `bench/locks.py`, which starts the services.

#![allow(clippy::disallowed_methods, missing_docs, clippy::unwrap_used)] // a bench: what fails ends it

mod echo;
mod elbow;
mod others;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};

/// Bytes of a segment. Segments of the same rank are `connections` segments apart.
pub(crate) const SEGMENT_BYTES: u64 = 400;

#[derive(Parser)]
enum Words {
    /// Answers like a service that does nothing.
    ServeEcho { socket: std::path::PathBuf },
    /// Loads a service.
    Run(Load),
}

#[derive(Parser)]
pub(crate) struct Load {
    peer: Peer,
    #[arg(long, default_value = "")]
    pub(crate) address: String,
    #[arg(long, default_value_t = 1)]
    pub(crate) connections: u64,
    #[arg(long, default_value_t = 1)]
    pub(crate) segments: u64,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    #[arg(long, default_value_t = 1)]
    pub(crate) in_flight: u64,
    /// cargo bench says so.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Peer {
    Elbow,
    Echo,
    Ofd,
    Redis,
    Etcd,
}

/// A client that can do one round of cycles; says how many they were.
pub(crate) type Client = Box<dyn FnMut() -> u64>;

fn main() {
    match Words::parse() {
        Words::ServeEcho { socket } => echo::serve(&socket),
        Words::Run(load) => println!("{}", run(&load)),
    }
}

fn run(load: &Load) -> serde_json::Value {
    let ready = &Barrier::new(load.connections as usize);
    let duration = Duration::from_secs_f64(load.seconds);
    let each: Vec<(u64, Vec<u32>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.connections)
            .map(|rank| scope.spawn(move || turn(load, rank, ready, duration)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let cycles: u64 = each.iter().map(|(cycles, _)| cycles).sum();
    let mut microseconds: Vec<u32> = each.into_iter().flat_map(|(_, times)| times).collect();
    microseconds.sort_unstable();
    let at = |part: f64| f64::from(microseconds[((microseconds.len() - 1) as f64 * part) as usize]) / 1e3;
    serde_json::json!({
        "cycles": cycles,
        "cycles_per_s": cycles as f64 / load.seconds,
        "p50_us": at(0.5),
        "p99_us": at(0.99),
    })
}

/// One connection's work: cycles, and the time of each round in nanoseconds.
fn turn(load: &Load, rank: u64, ready: &Barrier, duration: Duration) -> (u64, Vec<u32>) {
    let mut client: Client = match load.peer {
        Peer::Elbow if load.in_flight > 1 => elbow::pipelined(load, rank),
        Peer::Elbow => elbow::one_by_one(load, rank),
        Peer::Echo => echo::client(load),
        Peer::Ofd => others::ofd(load, rank),
        Peer::Redis => others::redis(load, rank),
        Peer::Etcd => others::etcd(load, rank),
    };
    client(); // The first one connects, fills caches and finds its file.
    ready.wait();
    let (mut cycles, mut times) = (0, Vec::new());
    let began = Instant::now();
    while began.elapsed() < duration {
        let at = Instant::now();
        cycles += client();
        times.push(u32::try_from(at.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }
    (cycles, times)
}

/// Where the segments of a rank are: offsets.
pub(crate) fn segments(load: &Load, rank: u64) -> impl Iterator<Item = u64> + use<> {
    let apart = load.connections * SEGMENT_BYTES;
    (0..load.segments).map(move |number| number * apart + rank * SEGMENT_BYTES)
}
