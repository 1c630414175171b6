//! What must hold of patterns, lists, bitmaps and footprints, whatever the bytes.
//!
//! Used twice: by the fuzz targets, which search for bytes, and by a test of `elbow-ranges`, which takes random ones.

use std::ops::Range;

use elbow_ranges::encoding::{DecodeError, Reader, Writer};
use elbow_ranges::{BlockBitmap, Dim, Footprint, Mode, RangeSet, Strided, compress};

/// Most ranges of one footprint that are expanded for a comparison.
const EXPANDED_MAX: u64 = 2_000;

fn decode_all<'a, T>(bytes: &'a [u8], decode: impl Fn(&mut Reader<'a>) -> Result<T, DecodeError>) -> Option<T> {
    let mut reader = Reader::new(bytes);
    let value = decode(&mut reader).ok()?;
    reader.finish().ok()?;
    Some(value)
}

fn encoded(encode: impl Fn(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::new();
    encode(&mut writer);
    writer.finish()
}

fn assert_sorted(ranges: &[Range<u64>]) {
    assert!(ranges.iter().all(|range| range.start < range.end));
    assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
}

/// Decoding takes one form of each value, and no value makes a question panic or run away.
pub fn footprint(bytes: &[u8]) {
    let Some(footprint) = decode_all(bytes, Footprint::decode) else {
        return;
    };
    assert_eq!(encoded(|writer| footprint.encode(writer)), bytes, "{footprint}");
    // Every member stands in the input, except that few bytes can stand for the containers of a long run of blocks.
    assert!(
        footprint.heap_bytes() < 200 * bytes.len() + (1 << 18),
        "{} of {footprint}",
        footprint.heap_bytes()
    );
    let bounds = footprint.bounds();
    assert!(
        bounds.start < bounds.end && footprint.total_bytes() <= bounds.end - bounds.start || footprint.segments() > 1
    );
    assert!(footprint.overlaps(&footprint), "{footprint}");
    assert!(footprint.overlaps_range(bounds.start..bounds.start + 1));
    assert!(!footprint.overlaps_range(0..bounds.start) && !footprint.overlaps_range(bounds.end..u64::MAX));
    if footprint.segments() <= EXPANDED_MAX {
        let ranges: Vec<_> = footprint.iter().collect();
        assert_sorted(&ranges);
        assert_eq!(bounds, ranges[0].start..ranges[ranges.len() - 1].end);
        for block_bytes in [3, 4096] {
            let coarse = footprint.coarsen(Mode::Blocks(block_bytes));
            assert!(
                ranges
                    .iter()
                    .all(|range| coarse.overlaps_range(range.start..range.start + 1))
            );
        }
    }
}

/// Two footprints, the length of the first in the first byte: overlap is the same both ways, and right.
pub fn overlap(bytes: &[u8]) {
    let Some((&length, rest)) = bytes.split_first() else {
        return;
    };
    let Some((a, b)) = rest.split_at_checked(length.into()) else {
        return;
    };
    let (Some(a), Some(b)) = (decode_all(a, Footprint::decode), decode_all(b, Footprint::decode)) else {
        return;
    };
    let overlap = a.overlaps(&b);
    assert_eq!(overlap, b.overlaps(&a), "{a} and {b}");
    assert!(a.union(&b).overlaps(&a) && b.overlaps(&b.union(&a)));
    if a.segments() <= EXPANDED_MAX && b.segments() <= EXPANDED_MAX {
        let (a_set, b_set): (RangeSet, RangeSet) = (a.iter().collect(), b.iter().collect());
        assert_eq!(overlap, a_set.intersects(&b_set), "{a} and {b}");
    }
}

/// Any numbers are a canonical pattern or are refused.
pub fn strided(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let Ok((start, len)) = reader.varint().and_then(|start| Ok((start, reader.varint()?))) else {
        return;
    };
    let mut dims = Vec::new();
    while let Ok(dim) = reader.varint().and_then(|count| {
        Ok(Dim {
            count,
            stride: reader.varint()?,
        })
    }) {
        dims.push(dim);
    }
    dims.truncate(Strided::DEPTH_MAX + 2);
    let Ok(pattern) = Strided::new(start, &dims, len) else {
        return;
    };
    let again: Vec<Dim> = pattern.dims().collect();
    assert_eq!(
        Strided::new(start, &again, pattern.piece_bytes()).as_ref(),
        Ok(&pattern)
    );
    let first: Vec<Range<u64>> = pattern.pieces().take(100).collect();
    assert!(first.windows(2).all(|pair| pair[0].start < pair[1].start), "{pattern}");
    assert!(
        first.iter().all(|piece| pattern.overlaps_range(piece.clone())),
        "{pattern}"
    );
    let bounds = pattern.bounds();
    assert!(pattern.piece_after(bounds.end).is_none() && pattern.piece_after(bounds.end - 1).is_some());
    assert_ne!(pattern.try_overlaps(&pattern), Some(false));
}

/// A list of distances and lengths, a byte each, is compressed without loss.
pub fn compression(bytes: &[u8]) {
    let mut end = 0_u64;
    let list = bytes.chunks_exact(2).map(|pair| {
        let start = end + u64::from(pair[0] >> 4);
        end = start + u64::from(pair[1] >> 5);
        start..end
    });
    let list: Vec<Range<u64>> = list.collect();
    let patterns = compress(list.iter().cloned());
    assert_eq!(
        patterns.iter().flat_map(Strided::iter).collect::<RangeSet>(),
        list.iter().cloned().collect::<RangeSet>()
    );
}

/// As for footprints.
pub fn blocks(bytes: &[u8]) {
    let Some(blocks) = decode_all(bytes, BlockBitmap::decode) else {
        return;
    };
    assert_eq!(encoded(|writer| blocks.encode(writer)), bytes, "{blocks}");
    let ranges: Vec<_> = blocks.iter().take(1000).collect();
    assert_sorted(&ranges);
    assert!(ranges.iter().all(|range| blocks.overlaps_range(range.clone())));
    assert_eq!(blocks.is_empty(), ranges.is_empty());
}
