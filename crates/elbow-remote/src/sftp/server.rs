//! What a server can beyond the protocol, and how much it takes at once.

use super::wire::{Fields, Malformed};

/// What every server takes and gives with one request, says the protocol, with room for the rest of the packet.
const PIECE_BYTES_USUAL: usize = 32 << 10;
/// More at once saves nothing, and a packet has to fit.
const PIECE_BYTES_MAX: usize = 256 << 10;

/// See the module's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// A rename can replace.
    pub(crate) renames: bool,
    /// Hard links.
    pub(crate) links: bool,
    pub(crate) fsyncs: bool,
    pub(crate) tells_space: bool,
    /// Attributes are set without following a link.
    pub(crate) sets_links: bool,
    pub(crate) tells_limits: bool,
    /// A part of one file is copied to another one.
    pub(crate) copies: bool,
    pub(crate) read_bytes_max: usize,
    pub(crate) write_bytes_max: usize,
    /// Handles that may be open; 0: it does not say.
    pub(crate) handles_max: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            renames: false,
            links: false,
            fsyncs: false,
            tells_space: false,
            sets_links: false,
            tells_limits: false,
            copies: false,
            read_bytes_max: PIECE_BYTES_USUAL,
            write_bytes_max: PIECE_BYTES_USUAL,
            handles_max: 0,
        }
    }
}

impl Server {
    pub(crate) const RENAME: &str = "posix-rename@openssh.com";
    pub(crate) const LINK: &str = "hardlink@openssh.com";
    pub(crate) const FSYNC: &str = "fsync@openssh.com";
    pub(crate) const SPACE: &str = "statvfs@openssh.com";
    pub(crate) const SET_LINK: &str = "lsetstat@openssh.com";
    pub(crate) const LIMITS: &str = "limits@openssh.com";
    pub(crate) const COPY: &str = "copy-data";

    /// It offers an extension.
    pub(crate) fn note(&mut self, name: &[u8], version: &[u8]) {
        let known = [
            (Self::RENAME, &b"1"[..], &mut self.renames),
            (Self::LINK, b"1", &mut self.links),
            (Self::FSYNC, b"1", &mut self.fsyncs),
            (Self::SPACE, b"2", &mut self.tells_space),
            (Self::SET_LINK, b"1", &mut self.sets_links),
            (Self::LIMITS, b"1", &mut self.tells_limits),
            (Self::COPY, b"1", &mut self.copies),
        ];
        for (_, _, is_offered) in known
            .into_iter()
            .filter(|known| known.0.as_bytes() == name && known.1 == version)
        {
            *is_offered = true;
        }
    }

    /// It takes and gives so much at once.
    ///
    /// # Errors
    /// The limits are none.
    pub(crate) fn note_limits(&mut self, limits: &[u8]) -> Result<(), Malformed> {
        let mut fields = Fields(limits);
        let _packet = fields.u64()?;
        let piece = |said: u64| match usize::try_from(said) {
            // Nothing is said by a zero.
            Ok(0) => PIECE_BYTES_USUAL,
            Ok(bytes) => bytes.min(PIECE_BYTES_MAX),
            Err(_) => PIECE_BYTES_MAX,
        };
        self.read_bytes_max = piece(fields.u64()?);
        self.write_bytes_max = piece(fields.u64()?);
        self.handles_max = fields.u64()?;
        Ok(())
    }
}
