//! Times freeing: a whole file by `zero`, by the fallocate(2) in it alone and by ftruncate(2), and a part in the middle
//! by `zero` and by writing zeros.
//!
//! ```sh
//! cargo run --release -p elbow-file --example hole_timing -- DIR [LARGEST_MIB [REPETITIONS]]
//! ```
//!
//! Prints CSV: `figure,way,bytes,repetition,seconds,synced_seconds`; the second time has an fsync(2) in it. Before each call
//! the file is written, synced and out of the page cache. The ways take turns. `bench/figures_holes.py` draws it.

#![allow(clippy::disallowed_methods, reason = "the system calls themselves are what is timed")]

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{Advice, FallocateFlags};

const SMALLEST_BYTES: u64 = 64 << 10;
const PIECE_BYTES: u64 = 1 << 20;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir: PathBuf = arguments.next().ok_or("DIR [LARGEST_MIB [REPETITIONS]]")?.into();
    let largest_bytes = arguments.next().map_or(Ok(256), |text| text.parse::<u64>())? << 20;
    let repetitions = arguments.next().map_or(Ok(5), |text| text.parse::<u32>())?;
    println!("figure,way,bytes,repetition,seconds,synced_seconds");
    for repetition in 0..repetitions {
        let sizes = std::iter::successors(Some(SMALLEST_BYTES), |size| Some(size * 4));
        for bytes in sizes.take_while(|size| *size <= largest_bytes) {
            whole(&dir, bytes, repetition)?;
            middle(&dir, bytes, repetition)?;
        }
    }
    Ok(())
}

/// Figure 1: everything in a file; which way comes first changes with the repetition.
fn whole(dir: &Path, bytes: u64, repetition: u32) -> Outcome<()> {
    let mut ways = ["zero", "ftruncate", "punch"];
    ways.rotate_left(repetition as usize % 3);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for way in ways {
        let file = file(dir)?;
        write(&file, 0, bytes, 0x5a)?;
        forget(&file)?;
        let timed = timed(&file, || match way {
            "zero" => free(&file, 0, bytes),
            "punch" => Ok(rustix::fs::fallocate(&file, punch, 0, bytes)?),
            _ => Ok(file.set_len(0)?),
        })?;
        say(1, way, bytes, repetition, timed);
    }
    Ok(())
}

/// Figure 2: the second of three equal parts.
fn middle(dir: &Path, bytes: u64, repetition: u32) -> Outcome<()> {
    let mut ways = ["zero", "write"];
    ways.rotate_left(repetition as usize % 2);
    let file = file(dir)?;
    write(&file, 0, 3 * bytes, 0x5a)?;
    for way in ways {
        write(&file, bytes, bytes, 0x5a)?;
        forget(&file)?;
        let timed = timed(&file, || match way {
            "zero" => free(&file, bytes, bytes),
            _ => write(&file, bytes, bytes, 0),
        })?;
        say(2, way, bytes, repetition, timed);
    }
    Ok(())
}

/// A new file without a name: it is gone when it is closed.
fn file(dir: &Path) -> Outcome<File> {
    let path = dir.join("hole-timing");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn write(file: &File, offset: u64, bytes: u64, byte: u8) -> Outcome<()> {
    let piece = vec![byte; usize::try_from(PIECE_BYTES.min(bytes))?];
    for at in (offset..offset + bytes).step_by(piece.len()) {
        let now = (offset + bytes - at).min(piece.len() as u64);
        file.write_all_at(&piece[..usize::try_from(now)?], at)?;
    }
    Ok(())
}

/// To the disk, and out of memory (not on tmpfs, which is memory).
fn forget(file: &File) -> Outcome<()> {
    file.sync_all()?;
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

fn free(file: &File, offset: u64, bytes: u64) -> Outcome<()> {
    let zeroed = elbow_file::zero_at(file, offset, bytes)?;
    if zeroed.punched_bytes < bytes {
        return Err(format!("only {} of {bytes} bytes were freed", zeroed.punched_bytes).into());
    }
    Ok(())
}

fn timed(file: &File, work: impl FnOnce() -> Outcome<()>) -> Outcome<(f64, f64)> {
    let begin = Instant::now();
    work()?;
    let seconds = begin.elapsed().as_secs_f64();
    file.sync_all()?;
    Ok((seconds, begin.elapsed().as_secs_f64()))
}

fn say(figure: u32, way: &str, bytes: u64, repetition: u32, (seconds, synced): (f64, f64)) {
    println!("{figure},{way},{bytes},{repetition},{seconds:.9},{synced:.9}");
}
