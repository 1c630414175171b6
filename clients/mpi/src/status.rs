//! Room for a status of any library.

/// Room for a status of any library.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
pub(crate) struct Status(pub(crate) [u8; 64]);

impl Default for Status {
    fn default() -> Self {
        Self([0; 64])
    }
}
