//! `sortable make KIND BYTES FILE` and `sortable check KIND FILE`: inputs of sorts, and what came out. Both print one JSON object.

#![allow(clippy::disallowed_methods)] // See the library: what is measured must not depend on what measures.

use std::fs::File;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, Subcommand};
use elbow_testkit::sortable::{RecordKind, check, make};

/// Makes inputs for sorts and checks what came out.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Makes a file of random records and syncs it
    Make {
        kind: RecordKind,
        /// How large; the last record is a whole one
        bytes: u64,
        file: PathBuf,
        /// Another seed gives other records
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Tells whether a file is sorted, and the checksum of its records
    Check { kind: RecordKind, file: PathBuf },
}

fn main() -> anyhow::Result<()> {
    let found = match Arguments::parse().what {
        What::Make {
            kind,
            bytes,
            file,
            seed,
        } => {
            let shown = || format!("making {}", file.display());
            let mut to = File::create(&file).with_context(shown)?;
            let made = make(kind, bytes, seed, &mut to).with_context(shown)?;
            to.sync_all().with_context(shown)?;
            made
        }
        What::Check { kind, file } => {
            let shown = || format!("checking {}", file.display());
            let from = File::open(&file).with_context(shown)?;
            check(kind, from).with_context(shown)?
        }
    };
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}
