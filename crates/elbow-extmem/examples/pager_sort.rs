//! Sorts an array four times as large as the memory it may take, with the sort of the standard library.
//!
//! ```sh
//! cargo run --release -p elbow-extmem --example pager_sort -- [RESIDENT_MIB [DIR]]
//! ```
//!
//! An example of memory larger than memory, not of a fast sort: `elbow sort` reads and writes in order.

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use elbow_extmem::pager::{PagedMemory, PagerStats};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let resident_mib = arguments.next().map_or(Ok(64), |text| text.parse::<usize>())?;
    let dir = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let mut memory = PagedMemory::new_in(&dir, resident_mib << 22, resident_mib << 20)?;
    sort(&mut memory)
}

/// Fills memory with random numbers, sorts them, and gives it all back; tells what each part took.
pub(crate) fn sort(memory: &mut PagedMemory) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let mut state = 1_u64;
    for number in bytemuck::cast_slice_mut::<u8, u64>(memory) {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        *number = state;
    }
    tell("filled", begin, memory)?;

    let begin = Instant::now();
    bytemuck::cast_slice_mut::<u8, u64>(memory).sort_unstable();
    tell("sorted", begin, memory)?;
    assert!(bytemuck::cast_slice::<u8, u64>(memory).is_sorted());

    let begin = Instant::now();
    memory.discard(0..memory.len())?;
    tell("dropped", begin, memory)
}

fn tell(what: &str, begin: Instant, memory: &PagedMemory) -> Result<(), Box<dyn Error>> {
    let seconds = begin.elapsed().as_secs_f64();
    let PagerStats {
        resident_bytes,
        read_bytes,
        written_bytes,
        ..
    } = memory.stats();
    let [resident, read, written, file] =
        [resident_bytes, read_bytes, written_bytes, memory.file_bytes()?].map(|bytes| bytes >> 20);
    println!("{what:<8} {seconds:6.2} s  MiB: {resident} resident, {file} in the file, {read} read, {written} written");
    Ok(())
}
