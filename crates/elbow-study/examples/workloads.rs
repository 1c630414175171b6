//! The three workloads of *Scalable Approaches for Supporting MPI-IO Atomicity* (section 4), and interleaved pieces,
//! large and small, in each mode of locking: `cargo run -p elbow-study --example workloads`.
//!
//! With `--json` as `bench/mpi.py` reads it: with each rank's patterns, which the MPI program makes its file types of, and with
//! the bytes that a lock and its end take on the wire, of real frames about the file `--file`.
//!
//! Bandwidth is not here: it takes a service and ranks that write.

use clap::Parser;
use elbow_lock::{FileName, LockId, LockMode, LockRequest, Owner, Reply, Request, Token, Wait, wire};
use elbow_ranges::{Footprint, Mode, Strided, compress};
use elbow_study::access_patterns::{Cost, Workload};
use serde_json::{Value, json};

const MODES: [(&str, Mode); 4] = [
    ("file", Mode::File),
    ("extent", Mode::Extent),
    ("list", Mode::List),
    ("blocks of 64 KiB", Mode::Blocks(1 << 16)),
];

#[derive(Parser)]
struct Arguments {
    /// One JSON array
    #[arg(long)]
    json: bool,
    /// The path of the file that the locks are on
    #[arg(long, default_value = "/scratch/data")]
    file: String,
    /// Ranks of FLASH I/O and of the interleaved pieces
    #[arg(long, default_value_t = 8)]
    ranks: u64,
    /// Interleaved pieces of each rank
    #[arg(long, default_value_t = 256)]
    pieces: u64,
    /// Bytes of each
    #[arg(long, default_value_t = 4096)]
    piece_bytes: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let mut workloads = Workload::all();
    workloads.push(Workload::interleaved(
        arguments.ranks,
        arguments.pieces,
        arguments.piece_bytes,
    ));
    workloads.push(Workload {
        name: "small-4".into(),
        ..Workload::interleaved(4, 625, 200)
    });
    if workloads
        .iter()
        .all(|known| known.name != format!("flash-{}", arguments.ranks))
    {
        workloads.push(Workload::flash(arguments.ranks));
    }
    if arguments.json {
        let file = FileName::new(arguments.file.as_bytes()).ok_or("a path has 1 to 4096 bytes")?;
        let all: Vec<Value> = workloads.iter().map(|workload| described(workload, &file)).collect();
        println!("{}", json!(all));
    } else {
        print(&workloads);
    }
    Ok(())
}

fn print(workloads: &[Workload]) {
    println!(
        "{:<18} {:<18} {:>13} {:>9} {:>13}",
        "workload", "mode", "locks/client", "at once", "wire bytes"
    );
    for workload in workloads {
        for (name, mode) in MODES {
            let Cost {
                locks,
                at_once,
                wire_bytes,
            } = workload.cost(mode);
            let locks = match (locks.start(), locks.end()) {
                (least, most) if least == most => most.to_string(),
                (least, most) => format!("{least} to {most}"),
            };
            println!(
                "{:<18} {name:<18} {locks:>13} {at_once:>9} {wire_bytes:>13}",
                workload.name
            );
        }
    }
}

fn described(workload: &Workload, file: &FileName) -> Value {
    let modes = MODES.map(|(name, mode)| (name.to_owned(), in_mode(workload, mode, file)));
    json!({
        "name": workload.name,
        "exclusive": workload.mode == LockMode::Exclusive,
        "disjoint": workload.cost(Mode::List).at_once == workload.requests.len() && workload.mode == LockMode::Exclusive,
        "ranks": workload.requests.iter().map(patterns).collect::<Vec<_>>(),
        "modes": modes.into_iter().collect::<serde_json::Map<_, _>>(),
    })
}

fn patterns(request: &Footprint) -> Vec<Value> {
    compress(request.iter()).iter().map(pattern).collect()
}

fn pattern(pattern: &Strided) -> Value {
    let dims: Vec<_> = pattern.dims().map(|dim| [dim.count, dim.stride]).collect();
    json!({"start": pattern.bounds().start, "dims": dims, "bytes": pattern.piece_bytes()})
}

fn in_mode(workload: &Workload, mode: Mode, file: &FileName) -> Value {
    let cost = workload.cost(mode);
    let lock = |request: &Footprint| frame_bytes(&lock(request.coarsen(mode), workload.mode, file));
    let mut end = Vec::new();
    wire::append_request(&mut end, &Request::Unlock { id: LockId(1) });
    json!({
        "locks": [cost.locks.start(), cost.locks.end()],
        "at_once": cost.at_once,
        "footprint_bytes": cost.wire_bytes,
        "request_bytes": workload.requests.iter().map(lock).max(),
        "answer_bytes": granted_bytes(),
        "unlock_bytes": end.len(),
    })
}

/// What a client of the MPI library asks for.
fn lock(footprint: Footprint, mode: LockMode, file: &FileName) -> Request {
    Request::Lock(LockRequest {
        id: LockId(1),
        owner: Owner(u64::from(std::process::id())),
        file: file.clone(),
        mode,
        footprint,
        wait: Wait::Forever,
        recall: false,
    })
}

fn frame_bytes(request: &Request) -> usize {
    let mut frame = Vec::new();
    wire::append_request(&mut frame, request);
    frame.len()
}

fn granted_bytes() -> usize {
    let (id, token) = (LockId(1), Token::first_of(1));
    let mut frame = Vec::new();
    wire::append_reply(&mut frame, &Reply::Granted { id, token });
    frame.len()
}
