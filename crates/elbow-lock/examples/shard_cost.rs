//! What a shard's steps cost, without sockets: `cargo run --release -p elbow-lock --example shard_cost`.
//!
//! Each line is the best of several runs, in nanoseconds per lock and unlock.

use std::time::Instant;

use elbow_lock::{Action, FileName, Limits, LockId, LockMode, LockRequest, Owner, Request, SessionId, Shard, Wait};
use elbow_ranges::{Dim, Footprint, Strided};

const RUNS: usize = 15;

fn main() {
    println!("{:>9} ns  lock + unlock, nobody else", cycle(&[], &extent(0)));
    let block = |rank: u64| block_of_64(rank);
    let others: Vec<Footprint> = (1..64).map(block).collect();
    println!(
        "{:>9} ns  625 pieces, beside the 63 other ranks of a block of 100^3 integers",
        cycle(&others, &block(0))
    );
    for holders in [1_000, 10_000, 60_000] {
        let others: Vec<Footprint> = (1..=holders).map(extent).collect();
        println!("{:>9} ns  4 KiB, beside {holders} others", cycle(&others, &extent(0)));
    }
    for waiters in [10, 100, 1000] {
        println!("{:>9} ns  whole file, exclusive, {waiters} in the queue", hot(waiters));
    }
    for waiters in [100, 1000] {
        println!(
            "{:>9} ns  the same, and all of them hold another lock that nobody wants",
            hot_holding(waiters)
        );
    }
}

fn extent(number: u64) -> Footprint {
    Footprint::extent(number * 4096..number * 4096 + 4096).expect("a range")
}

/// One of 64 ranks of a cube of 100 x 100 x 100 integers of 4 bytes.
fn block_of_64(rank: u64) -> Footprint {
    let (x, y, z) = (rank % 4, rank / 4 % 4, rank / 16);
    let start = z * 25 * 40_000 + y * 25 * 400 + x * 100;
    let dims = [
        Dim {
            count: 25,
            stride: 40_000,
        },
        Dim { count: 25, stride: 400 },
    ];
    Strided::new(start, &dims, 100).expect("a pattern").into()
}

struct Load {
    shard: Shard,
    out: Vec<Action>,
    last_id: u64,
    file: FileName,
}

impl Load {
    fn new(sessions: u64) -> Self {
        let limits = Limits {
            locks_per_session: 1 << 20,
            ..Limits::default()
        };
        let mut shard = Shard::new(1, 0, limits);
        (0..=sessions).for_each(|session| shard.open(SessionId(session)));
        Self {
            shard,
            out: Vec::new(),
            last_id: 0,
            file: FileName::new(b"/scratch/run/checkpoint.h5").expect("a name"),
        }
    }

    fn lock(&mut self, session: u64, footprint: &Footprint) -> LockId {
        let file = self.file.clone();
        self.lock_in(session, file, footprint)
    }

    fn lock_in(&mut self, session: u64, file: FileName, footprint: &Footprint) -> LockId {
        self.last_id += 1;
        let id = LockId(self.last_id);
        let request = Request::Lock(LockRequest {
            id,
            owner: Owner(0),
            file,
            mode: LockMode::Exclusive,
            footprint: footprint.clone(),
            wait: Wait::Forever,
            recall: false,
        });
        self.shard.handle(0, SessionId(session), request, &mut self.out);
        id
    }

    fn unlock(&mut self, session: u64, id: LockId) {
        self.shard
            .handle(0, SessionId(session), Request::Unlock { id }, &mut self.out);
    }
}

fn best(mut run: impl FnMut() -> u64) -> u64 {
    (0..RUNS).map(|_| run()).min().unwrap_or(0)
}

fn nanos_each(count: u64, mut work: impl FnMut()) -> u64 {
    let begin = Instant::now();
    (0..count).for_each(|_| work());
    begin.elapsed().as_nanos() as u64 / count
}

fn cycle(others: &[Footprint], mine: &Footprint) -> u64 {
    let mut load = Load::new(1);
    for other in others {
        load.lock(1, other);
    }
    assert_eq!(load.shard.totals().holds, others.len() as u64);
    best(|| {
        nanos_each(20_000, || {
            let id = load.lock(0, mine);
            load.unlock(0, id);
            load.out.clear();
        })
    })
}

/// Everybody wants the whole file: who is done asks again.
fn hot(waiters: u64) -> u64 {
    let mut load = Load::new(waiters);
    queue_up(&mut load, waiters)
}

fn hot_holding(waiters: u64) -> u64 {
    let mut load = Load::new(waiters);
    for session in 0..=waiters {
        load.lock(session, &extent(1_000_000 + session));
    }
    // The queue wants what lies before.
    queue_up(&mut load, waiters)
}

fn queue_up(load: &mut Load, waiters: u64) -> u64 {
    let region = Footprint::extent(0..4096 * 1_000_000).expect("a range");
    let mut ids: Vec<LockId> = (0..=waiters).map(|session| load.lock(session, &region)).collect();
    let mut next = 0;
    best(|| {
        nanos_each(2_000, || {
            load.unlock(next, ids[next as usize]);
            ids[next as usize] = load.lock(next, &region);
            next = (next + 1) % (waiters + 1);
            load.out.clear();
        })
    })
}
