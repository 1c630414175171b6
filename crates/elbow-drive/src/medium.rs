//! The bytes of the drive: a backing file, and over it what was not flushed.
//!
//! Always: a read gives what was written last. What is durable is in the backing file: written by write(2), so that it outlives this
//! process, and made safe from a crash of this machine only when the drive is detached.

#![allow(clippy::disallowed_methods, reason = "the backing file is the medium itself")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use elbow_disk::SECTOR_BYTES;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};

use crate::unflushed::{Content, Unflushed, Write};

/// More than any drive of the model caches: an older write is on the medium by then.
const UNFLUSHED_BYTES_MAX: u64 = 64 << 20;
/// A trim takes no bytes, and still has to be remembered.
const UNFLUSHED_WRITES_MAX: usize = 1 << 17;
/// Where zeros have to be written.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// What a power cut did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutReport {
    /// By which it is done again.
    pub seed: u64,
    /// Writes that were not flushed, those under way among them.
    pub unflushed: usize,
    /// Of those, found whole on the medium.
    pub kept: usize,
    /// Not found at all.
    pub lost: usize,
    /// Found in part: some of their sectors.
    pub torn: usize,
}

/// A drive's bytes.
#[derive(Debug)]
pub(crate) struct Medium {
    file: File,
    unflushed: Unflushed,
}

impl Medium {
    pub(crate) fn new(file: File) -> Self {
        let unflushed = Unflushed::default();
        Self { file, unflushed }
    }

    pub(crate) fn unflushed(&self) -> &Unflushed {
        &self.unflushed
    }

    pub(crate) fn read(&self, place: Range<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; ((place.end - place.start) * SECTOR_BYTES) as usize];
        self.file.read_exact_at(&mut bytes, place.start * SECTOR_BYTES)?;
        for (piece, content) in self.unflushed.within(place.clone()) {
            let [from, to] = [piece.start, piece.end].map(|at| ((at - place.start) * SECTOR_BYTES) as usize);
            match content {
                Content::Bytes(part) => bytes[from..to].copy_from_slice(&part),
                Content::Zeros(_) => bytes[from..to].fill(0),
            }
        }
        Ok(bytes)
    }

    /// Where the backing file takes no more, this write fails, and nothing of older ones is lost.
    pub(crate) fn write(&mut self, write: Write) -> io::Result<()> {
        self.make_room_for(write.content.bytes())?;
        if write.durable {
            self.store(write.at, &write.content)?;
        }
        if !(write.durable && self.unflushed.is_empty()) {
            self.unflushed.add(write);
        }
        Ok(())
    }

    fn make_room_for(&mut self, bytes: u64) -> io::Result<()> {
        let is_full = |unflushed: &Unflushed| {
            unflushed.bytes() + bytes > UNFLUSHED_BYTES_MAX || unflushed.len() >= UNFLUSHED_WRITES_MAX
        };
        while !self.unflushed.is_empty() && is_full(&self.unflushed) {
            self.settle_oldest()?;
        }
        Ok(())
    }

    /// All that was written is durable from now on. What could not be stored is kept, and stored by the next flush.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.unflushed.is_empty() {
            self.settle_oldest()?;
        }
        Ok(())
    }

    /// And safe from a crash of this machine.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_data()
    }

    /// Loses some of what was not flushed, and of the writes under way: each by itself, and if `torn` each of their sectors. Where the backing
    /// file takes no more, nothing is forgotten.
    pub(crate) fn power_cut(&mut self, under_way: Vec<Write>, torn: bool, seed: u64) -> io::Result<CutReport> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut report = CutReport {
            seed,
            unflushed: 0,
            kept: 0,
            lost: 0,
            torn: 0,
        };
        for (number, write) in self.unflushed.writes().filter(|(_, write)| !write.durable) {
            let kept = survivors(write.content.sectors(), torn, &mut random);
            report.count(&kept, write.content.sectors());
            for part in kept {
                self.store_part(number, write, write.at + part.start..write.at + part.end)?;
            }
        }
        for write in under_way {
            let kept = survivors(write.content.sectors(), torn, &mut random);
            report.count(&kept, write.content.sectors());
            for part in kept {
                self.store(write.at + part.start, &write.content.part(part.clone()))?;
            }
        }
        self.unflushed = Unflushed::default();
        Ok(report)
    }

    fn settle_oldest(&mut self) -> io::Result<()> {
        if let Some((number, write)) = self.unflushed.writes().next()
            && !write.durable
        {
            self.store_part(number, write, write.range())?;
        }
        self.unflushed.forget_oldest();
        Ok(())
    }

    /// Stores some sectors of a write, but none that a later durable one has taken.
    fn store_part(&self, number: u64, write: &Write, place: Range<u64>) -> io::Result<()> {
        for part in self.unflushed.not_forced(number, place) {
            let content = write.content.part(part.start - write.at..part.end - write.at);
            self.store(part.start, &content)?;
        }
        Ok(())
    }

    fn store(&self, at: u64, content: &Content) -> io::Result<()> {
        match content {
            Content::Bytes(bytes) => self.file.write_all_at(bytes, at * SECTOR_BYTES),
            Content::Zeros(sectors) => self.store_zeros(at * SECTOR_BYTES, sectors * SECTOR_BYTES),
        }
    }

    /// Frees them, where the file system below can do that.
    fn store_zeros(&self, from: u64, bytes: u64) -> io::Result<()> {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&self.file, punch, from, bytes).is_ok() {
            return Ok(());
        }
        let mut at = from;
        while at < from + bytes {
            let part = (from + bytes - at).min(ZEROS.len() as u64);
            self.file.write_all_at(&ZEROS[..part as usize], at)?;
            at += part;
        }
        Ok(())
    }
}

impl CutReport {
    fn count(&mut self, kept: &[Range<u64>], sectors: u64) {
        self.unflushed += 1;
        match kept.iter().map(|part| part.end - part.start).sum::<u64>() {
            0 => self.lost += 1,
            all if all == sectors => self.kept += 1,
            _ => self.torn += 1,
        }
    }
}

/// The sectors of a write that a power cut leaves. Of a long one stretches, not sectors, are torn, so that it ends.
fn survivors(sectors: u64, torn: bool, random: &mut impl Rng) -> Vec<Range<u64>> {
    /// Pieces in which a write is torn at most.
    const PIECES_MAX: u64 = 1 << 11;
    let is_torn = torn && sectors > 1 && random.random_ratio(1, 3);
    let each = if is_torn { sectors.div_ceil(PIECES_MAX) } else { sectors };
    let pieces = (0..sectors).step_by(each as usize);
    pieces
        .filter(|_| random.random())
        .map(|start| start..(start + each).min(sectors))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE_SECTORS: u64 = 64;

    fn medium() -> Medium {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(DEVICE_SECTORS * SECTOR_BYTES).expect("it grows");
        Medium::new(file)
    }

    fn write(at: u64, sectors: u64, byte: u8, durable: bool) -> Write {
        Write {
            at,
            content: Content::Bytes(vec![byte; (sectors * SECTOR_BYTES) as usize]),
            durable,
        }
    }

    /// The first byte of each sector.
    fn image(medium: &Medium) -> Vec<u8> {
        let bytes = medium.read(0..DEVICE_SECTORS).expect("it reads");
        bytes.chunks(SECTOR_BYTES as usize).map(|sector| sector[0]).collect()
    }

    #[test]
    fn a_power_cut_loses_any_of_what_was_not_flushed_and_nothing_else() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let mut medium = medium();
            medium.write(write(0, 1, 1, false)).expect("written");
            medium.flush().expect("flushed");
            medium.write(write(1, 2, 2, false)).expect("written");
            medium.write(write(3, 2, 3, false)).expect("written");
            medium.write(write(9, 1, 4, true)).expect("written");
            let report = medium.power_cut(vec![write(5, 1, 5, false)], false, seed).expect("cut");
            assert_eq!((report.unflushed, report.torn, report.kept + report.lost), (3, 0, 3));
            let image = image(&medium);
            assert_eq!((image[0], image[9]), (1, 4), "what is durable stays");
            assert!(image[1] == image[2] && image[3] == image[4], "whole writes");
            seen.insert((image[1], image[3], image[5]));
        }
        assert_eq!(seen.len(), 8, "every subset is found");
    }

    #[test]
    fn torn_writes_leave_some_sectors() {
        let torn = (0..64).filter(|&seed| {
            let mut medium = medium();
            medium.write(write(0, 8, 7, false)).expect("written");
            let report = medium.power_cut(Vec::new(), true, seed).expect("cut");
            let found = image(&medium)[..8].iter().filter(|&&byte| byte == 7).count();
            assert_eq!(report.torn == 1, (1..8).contains(&found), "{report:?}, {found} found");
            report.torn == 1
        });
        assert!(torn.count() > 5);
    }

    #[test]
    fn an_older_write_does_not_come_back_over_a_durable_one() {
        for seed in 0..16 {
            let mut medium = medium();
            medium.write(write(0, 4, 1, false)).expect("written");
            medium.write(write(1, 1, 2, true)).expect("written");
            medium.power_cut(Vec::new(), true, seed).expect("cut");
            assert_eq!(image(&medium)[1], 2, "seed {seed}");
        }
    }

    /// What a flush stores of an older write must not hide it either, not even for a moment: the backing file is looked at alone.
    #[test]
    fn a_flush_stores_nothing_over_a_later_durable_write() {
        let mut medium = medium();
        medium.write(write(0, 4, 1, false)).expect("written");
        medium.write(write(1, 1, 2, true)).expect("written");
        medium.write(write(2, 1, 3, false)).expect("written");
        medium.settle_oldest().expect("settled");
        let mut stored = vec![0; 4 * SECTOR_BYTES as usize];
        medium.file.read_exact_at(&mut stored, 0).expect("read");
        let firsts: Vec<_> = stored.chunks(SECTOR_BYTES as usize).map(|sector| sector[0]).collect();
        assert_eq!(firsts, [1, 2, 1, 1]);
        medium.flush().expect("flushed");
        assert_eq!(image(&medium)[..4], [1, 2, 3, 1]);
    }

    #[test]
    fn random_writes_and_flushes_leave_what_an_array_has() {
        for seed in 0..200 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut medium = medium();
            let mut expected = vec![0; DEVICE_SECTORS as usize];
            for byte in 1..60 {
                let at = random.random_range(0..DEVICE_SECTORS - 8);
                let sectors = random.random_range(1..=8);
                let is_zero = random.random_ratio(1, 5);
                let content = match is_zero {
                    true => Content::Zeros(sectors),
                    false => Content::Bytes(vec![byte; (sectors * SECTOR_BYTES) as usize]),
                };
                let durable = random.random_ratio(1, 3);
                medium.write(Write { at, content, durable }).expect("written");
                expected[at as usize..(at + sectors) as usize].fill(if is_zero { 0 } else { byte });
                match random.random_range(0..12) {
                    0 => medium.flush().expect("flushed"),
                    1 | 2 => medium.settle_oldest().expect("settled"),
                    _ => {}
                }
                assert_eq!(image(&medium), expected, "seed {seed}");
            }
            medium.flush().expect("flushed");
            assert_eq!(image(&medium), expected, "seed {seed}");
        }
    }

    /// A file that is open for reading alone refuses every write; here it stands for one on a full file system.
    #[test]
    fn what_cannot_be_stored_is_kept_for_the_next_flush() {
        let place = tempfile::NamedTempFile::new().expect("a temporary file");
        place
            .as_file()
            .set_len(DEVICE_SECTORS * SECTOR_BYTES)
            .expect("it grows");
        let refusing = File::open(place.path()).expect("it opens");
        let mut medium = Medium::new(refusing);
        for at in 0..8 {
            medium.write(write(at, 1, 7, false)).expect("in memory");
        }
        medium.write(write(9, 1, 8, true)).expect_err("not stored");
        medium.flush().expect_err("not stored");
        medium.flush().expect_err("and not forgotten");
        medium
            .power_cut(Vec::new(), false, 3)
            .expect_err("a survivor cannot be stored");
        assert_eq!(image(&medium)[..8], [7; 8]);
        medium.file = place.reopen().expect("it opens");
        medium.flush().expect("stored");
        let again = Medium::new(place.reopen().expect("it opens"));
        assert_eq!(image(&again)[..10], [7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
    }

    #[test]
    fn the_same_seed_leaves_the_same() {
        let left = |seed| {
            let mut medium = medium();
            (0..20).for_each(|at| medium.write(write(at * 3, 3, 9, false)).expect("written"));
            medium.power_cut(Vec::new(), true, seed).expect("cut");
            image(&medium)
        };
        assert_eq!(left(5), left(5));
        assert_ne!(left(5), left(6));
    }

    #[test]
    fn zeros_are_read_before_and_after_they_are_flushed() {
        let mut medium = medium();
        medium.write(write(0, 8, 1, true)).expect("written");
        let zeros = Write {
            at: 2,
            content: Content::Zeros(3),
            durable: false,
        };
        medium.write(zeros).expect("written");
        let expected = [1, 1, 0, 0, 0, 1, 1, 1];
        assert_eq!(image(&medium)[..8], expected);
        medium.flush().expect("flushed");
        assert_eq!(image(&medium)[..8], expected);
    }

    #[test]
    fn what_is_not_flushed_has_a_bound() {
        let mut medium = medium();
        for _ in 0..(UNFLUSHED_BYTES_MAX / (32 * SECTOR_BYTES) + 10) {
            medium.write(write(0, 32, 3, false)).expect("written");
        }
        assert!(medium.unflushed().bytes() <= UNFLUSHED_BYTES_MAX);
        assert_eq!(image(&medium)[31], 3);
    }
}
