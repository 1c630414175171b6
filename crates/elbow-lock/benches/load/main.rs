//! One client load on one lock service: cycles of lock and unlock per second, and how long each takes.
//!
//! ```text
//!   load serve-echo SOCKET                                  answers each request with an answer as long as a grant
//!   load serve-elbow SOCKET                                 our service, without the program around it
//!   load run PEER --address A --connections N --segments S --seconds T [--in-flight K] [--patience P] [--irregular]
//!            [--beside-lists S]
//!        PEER: elbow, echo, ofd, redis, etcd
//! ```
//!
//! Each connection has a thread of its own and locks its own segments: the S pieces of its rank in a file that all
//! connections interleave, so that nobody waits for anybody and every request is compared with those that others hold.
//! With `--irregular` the segments have lengths and places without a pattern, and each cycle begins with the list of them, as that of a program
//! would whose list is another one each time. With `--beside-lists` another client of our service holds fifteen such lists of S segments and
//! asks for a sixteenth all the time, which is compared with them. With `--in-flight` a thread writes K cycles before it reads their answers. Prints one JSON object; of a peer that has not
//! done with P seconds, how many cycles per second it does at most: as if those under way were done. It is driven by
//! `bench/locks.py`, which starts the services.

#![allow(clippy::disallowed_methods, missing_docs, clippy::unwrap_used)] // a bench: what fails ends it

mod echo;
mod elbow;
mod others;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};

/// Bytes of a segment. Segments of the same rank are `connections` segments apart.
pub(crate) const SEGMENT_BYTES: u64 = 400;

#[derive(Parser)]
enum Words {
    /// Answers like a service that does nothing.
    ServeEcho { socket: std::path::PathBuf },
    /// Serves locks as `elbow lockd serve` does.
    ServeElbow { socket: std::path::PathBuf },
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
    #[arg(long, default_value_t = 30.0)]
    patience: f64,
    #[arg(long)]
    pub(crate) irregular: bool,
    #[arg(long)]
    beside_lists: Option<u64>,
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
        Words::ServeElbow { socket } => elbow::serve(&socket),
        Words::Run(load) => println!("{}", run(&load)),
    }
}

fn run(load: &Load) -> serde_json::Value {
    let Some(segments) = load.beside_lists else {
        return measure(load);
    };
    let lists = elbow::LongLists::ask(&load.address, segments);
    let mut measured = measure(load);
    measured["lists_granted"] = lists.granted().into();
    measured
}

fn measure(load: &Load) -> serde_json::Value {
    let ready = &Barrier::new(load.connections as usize);
    let done: &Vec<Done> = &(0..load.connections).map(|_| Done::default()).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.connections)
            .zip(done)
            .map(|(rank, done)| scope.spawn(move || turn(load, rank, ready, done)))
            .collect();
        let began = Instant::now();
        while threads.iter().any(|thread| !thread.is_finished()) {
            if began.elapsed().as_secs_f64() > load.seconds + load.patience {
                give_up(
                    load,
                    done.iter().map(|done| done.0.load(Ordering::Relaxed)).sum(),
                    began.elapsed(),
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        summary(threads.into_iter().map(|thread| thread.join().unwrap()))
    })
}

fn summary(each: impl Iterator<Item = Turn>) -> serde_json::Value {
    let (mut cycles, mut cycles_per_s, mut times) = (0, 0.0, Vec::new());
    for turn in each {
        cycles += turn.cycles;
        cycles_per_s += turn.cycles as f64 / turn.took.as_secs_f64();
        times.extend(turn.times);
    }
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    serde_json::json!({
        "cycles": cycles,
        "cycles_per_s": cycles_per_s,
        "p50_us": at(0.5),
        "p99_us": at(0.99),
    })
}

/// Ends the process amid its calls, some of which may take minutes.
fn give_up(load: &Load, cycles: u64, took: Duration) -> ! {
    let at_most = (cycles + load.connections * load.in_flight) as f64 / took.as_secs_f64();
    println!(
        "{}",
        serde_json::json!({ "cycles": cycles, "cycles_per_s_at_most": at_most })
    );
    std::process::exit(0);
}

/// Cycles that a connection has done so far, the first included.
#[derive(Default)]
#[repr(align(64))] // on a cache line of its own
struct Done(AtomicU64);

/// What a connection did.
struct Turn {
    cycles: u64,
    took: Duration,
    /// Of each round.
    times: Vec<Duration>,
}

/// One connection's work.
fn turn(load: &Load, rank: u64, ready: &Barrier, done: &Done) -> Turn {
    let mut client: Client = match load.peer {
        Peer::Elbow if load.irregular => elbow::irregular(load, rank),
        Peer::Elbow if load.in_flight > 1 => elbow::pipelined(load, rank),
        Peer::Elbow => elbow::one_by_one(load, rank),
        Peer::Echo => echo::client(load),
        Peer::Ofd => others::ofd(load, rank),
        Peer::Redis => others::redis(load, rank),
        Peer::Etcd => others::etcd(load, rank),
    };
    let first = client(); // Connects, fills caches and finds its file.
    done.0.store(first, Ordering::Relaxed);
    ready.wait();
    let (mut cycles, mut times) = (0, Vec::new());
    let began = Instant::now();
    while began.elapsed().as_secs_f64() < load.seconds {
        let at = Instant::now();
        cycles += client();
        times.push(at.elapsed());
        done.0.store(first + cycles, Ordering::Relaxed);
    }
    Turn {
        cycles,
        took: began.elapsed(),
        times,
    }
}

/// Where the segments of a rank are: offsets.
pub(crate) fn segments(load: &Load, rank: u64) -> impl Iterator<Item = u64> + use<> {
    let apart = load.connections * SEGMENT_BYTES;
    (0..load.segments).map(move |number| number * apart + rank * SEGMENT_BYTES)
}
