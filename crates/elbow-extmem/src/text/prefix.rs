//! What texts begin with: most comparisons are decided there.

/// How many bytes two texts have in common in front.
pub(super) fn common_length(a: &[u8], b: &[u8]) -> usize {
    const STRIDE: usize = 16;
    let strides = a.chunks_exact(STRIDE).zip(b.chunks_exact(STRIDE));
    let same = STRIDE * strides.take_while(|(a, b)| a == b).count();
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

/// The first eight bytes as a number, zeros after the last.
#[inline]
pub(super) fn first_bytes(content: &[u8]) -> u64 {
    if let Some(eight) = content.first_chunk() {
        return u64::from_be_bytes(*eight);
    }
    let mut bytes = [0; 8];
    bytes[..content.len()].copy_from_slice(content);
    u64::from_be_bytes(bytes)
}
