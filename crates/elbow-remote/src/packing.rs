//! Content that travels compressed (LZ4), unless the line is faster than compressing it.
//!
//! Whether it is shows in how long writes take: the pipe to ssh(1) is full as long as the line takes less than comes. On a fast line nothing is
//! compressed. Of long content the beginning is compressed first: where that does not become shorter, the rest is not tried.
//!
//! Not here: how a frame says that its content is compressed (`frame`).

use std::borrow::Cow;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lz4_flex::block::compress_prepend_size;
use parking_lot::Mutex;

use crate::frame::{CONTENT_BYTES_MAX, Content};

/// Shorter content costs more than it saves.
const WORTH_BYTES: usize = 512;
/// A line that takes as many bytes a second is left alone: LZ4 makes some hundred million a second on one processor. Network cards take less.
const FAST_LINE: u64 = 250_000_000;
/// So many bytes have to be written before a line is known to be fast, because buffers take the first ones at once; and what was written
/// long before these is forgotten.
const KNOWN_BYTES: u64 = 32 << 20;
const REMEMBERED_BYTES: u64 = 64 << 20;
/// So much of a content says whether it can be made shorter.
const SAMPLE_BYTES: usize = 64 << 10;

/// When what one end sends is compressed.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    is_allowed: AtomicBool,
    seen: Mutex<Seen>,
}

/// What is known of the line and of what goes over it.
#[derive(Debug, Default)]
struct Seen {
    bytes: u64,
    took: Duration,
}

impl Packing {
    /// The other end can unpack, and wants it.
    pub(crate) fn allow(&self) {
        self.is_allowed.store(true, Ordering::Release);
    }

    /// The content as it is to be sent: packed if that is worth it.
    pub(crate) fn pack<'a>(&self, content: &'a [IoSlice<'a>]) -> Content<'a> {
        let packed = self.packed(content);
        packed.map_or(Content::Plain(content), Content::Packed)
    }

    fn packed(&self, content: &[IoSlice<'_>]) -> Option<Vec<u8>> {
        let bytes = Content::Plain(content).bytes();
        // What is too long stays so: the other end bounds what it unpacks.
        if !(WORTH_BYTES..=CONTENT_BYTES_MAX).contains(&bytes)
            || !self.is_allowed.load(Ordering::Acquire)
            || self.seen.lock().is_fast()
        {
            return None;
        }
        let whole = match content {
            [whole] => Cow::Borrowed(&**whole),
            pieces => Cow::Owned(pieces.iter().map(|piece| &**piece).collect::<Vec<_>>().concat()),
        };
        if bytes > SAMPLE_BYTES && !is_shorter(&compress_prepend_size(&whole[..SAMPLE_BYTES]), SAMPLE_BYTES) {
            return None;
        }
        Some(compress_prepend_size(&whole)).filter(|packed| is_shorter(packed, bytes))
    }

    /// Writes so many bytes to the line, and sees how long that takes.
    pub(crate) fn watch<T>(&self, bytes: usize, write: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let written = write();
        self.note_written(bytes, begun.elapsed());
        written
    }

    fn note_written(&self, bytes: usize, took: Duration) {
        self.seen.lock().note_written(bytes as u64, took);
    }
}

/// By so much that it is worth unpacking it.
fn is_shorter(packed: &[u8], bytes: usize) -> bool {
    packed.len() < bytes - bytes / 8
}

impl Seen {
    fn is_fast(&self) -> bool {
        self.bytes >= KNOWN_BYTES && u128::from(self.bytes) * 1_000_000 > u128::from(FAST_LINE) * self.took.as_micros()
    }

    fn note_written(&mut self, bytes: u64, took: Duration) {
        self.bytes += bytes;
        self.took += took;
        if self.bytes > REMEMBERED_BYTES {
            (self.bytes, self.took) = (self.bytes / 2, self.took / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Packing {
        let packing = Packing::default();
        packing.allow();
        packing
    }

    fn text(bytes: usize) -> Vec<u8> {
        b"the same words, over and over; "
            .iter()
            .copied()
            .cycle()
            .take(bytes)
            .collect()
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    }

    #[test]
    fn what_is_sent_is_made_shorter() {
        let packing = allowed();
        let whole = text(4096);
        let content = [IoSlice::new(&whole[..1000]), IoSlice::new(&whole[1000..])];
        let packed = packing.packed(&content).expect("nothing is known of the line");
        assert!(packed.len() < 200, "{} bytes", packed.len());
        assert_eq!(lz4_flex::block::decompress_size_prepended(&packed).unwrap(), whole);
        assert!(packing.packed(&[IoSlice::new(&whole[..100])]).is_none(), "too short");
        let too_long = vec![0; CONTENT_BYTES_MAX + 1];
        assert!(
            packing.packed(&[IoSlice::new(&too_long)]).is_none(),
            "it cannot be unpacked"
        );
    }

    #[test]
    fn a_fast_line_is_left_alone() {
        let packing = allowed();
        let is_packed = || packing.packed(&[IoSlice::new(&text(4096))]).is_some();
        packing.note_written(16 << 20, Duration::from_millis(16));
        assert!(is_packed(), "so much may be in buffers");
        packing.note_written(16 << 20, Duration::from_millis(16));
        assert!(!is_packed());
        packing.note_written(16 << 20, Duration::from_secs(1));
        assert!(is_packed(), "it has become slow");
    }

    #[test]
    fn without_leave_nothing_is_packed() {
        let packing = Packing::default();
        assert!(packing.packed(&[IoSlice::new(&text(4096))]).is_none());
    }

    #[test]
    fn what_does_not_become_shorter_goes_as_it_is() {
        let packing = allowed();
        for bytes in [WORTH_BYTES, SAMPLE_BYTES, SAMPLE_BYTES + 1, 1 << 20] {
            assert!(packing.packed(&[IoSlice::new(&noise(bytes))]).is_none(), "{bytes}");
        }
        let begins_well = [text(SAMPLE_BYTES), noise(1 << 20)].concat();
        assert!(packing.packed(&[IoSlice::new(&begins_well)]).is_none());
    }
}
