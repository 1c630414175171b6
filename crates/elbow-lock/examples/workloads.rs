//! The paper's three workloads in each mode of locking: `cargo run -p elbow-lock --example workloads`.
//!
//! Bandwidth is not here: it takes a service and ranks that write.

use elbow_lock::workload::{Cost, Workload};
use elbow_ranges::Mode;

const MODES: [(&str, Mode); 4] = [
    ("file", Mode::File),
    ("extent", Mode::Extent),
    ("list", Mode::List),
    ("blocks of 64 KiB", Mode::Blocks(1 << 16)),
];

fn main() {
    println!(
        "{:<18} {:<18} {:>13} {:>9} {:>13}",
        "workload", "mode", "locks/client", "at once", "wire bytes"
    );
    for workload in Workload::all() {
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
