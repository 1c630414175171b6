//! Zeros, to write and to compare with.

#[repr(align(4096))] // as O_DIRECT wants it
pub(crate) struct Zeros(pub(super) [u8; 64 << 10]);

/// Zeros to write and to compare with.
pub(crate) static ZEROS: Zeros = Zeros([0; 64 << 10]);

impl Zeros {
    /// So many zeros, or as many as there are.
    pub(crate) fn first(&self, n: u64) -> &[u8] {
        let all = self.0.len() as u64;
        &self.0[..n.min(all) as usize]
    }

    /// Whether all bytes are zeros.
    pub(crate) fn equal(&self, bytes: &[u8]) -> bool {
        bytes.chunks(self.0.len()).all(|chunk| *chunk == self.0[..chunk.len()])
    }
}
