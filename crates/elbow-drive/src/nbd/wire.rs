//! What crosses the wire, byte by byte. Pure: nothing here reads or writes, and nothing that a client says makes it panic.
//!
//! Source: the NBD protocol, `doc/proto.md` of the NetworkBlockDevice project, fixed newstyle negotiation and simple replies.

/// The server's first bytes: two magic numbers, and that it speaks fixed newstyle without the zeros of old.
pub(super) const GREETING: [u8; 18] = *b"NBDMAGICIHAVEOPT\x00\x03";
pub(super) const FIXED_NEWSTYLE: u32 = 1;
pub(super) const NO_ZEROES: u32 = 2;

const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

/// No option of ours is longer: a name has at most 4096 bytes.
pub(super) const OPTION_BYTES_MAX: u32 = 8192;
/// What a request may carry, as clients expect of a server that says nothing else.
pub(super) const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

pub(super) mod option {
    pub(in crate::nbd) const EXPORT_NAME: u32 = 1;
    pub(in crate::nbd) const ABORT: u32 = 2;
    pub(in crate::nbd) const LIST: u32 = 3;
    pub(in crate::nbd) const INFO: u32 = 6;
    pub(in crate::nbd) const GO: u32 = 7;
}

pub(super) mod option_reply {
    pub(in crate::nbd) const ACK: u32 = 1;
    pub(in crate::nbd) const SERVER: u32 = 2;
    pub(in crate::nbd) const INFO: u32 = 3;
    pub(in crate::nbd) const UNSUPPORTED: u32 = 1 << 31 | 1;
    pub(in crate::nbd) const INVALID: u32 = 1 << 31 | 3;
    pub(in crate::nbd) const UNKNOWN: u32 = 1 << 31 | 6;
}

/// Has flags, flush, forced unit access, trim, zeros, and a flush on one connection is one of all.
const TRANSMISSION_FLAGS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8;
const ROTATIONAL: u16 = 1 << 4;

/// What is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) bytes: u64,
    pub(super) is_rotational: bool,
}

/// What precedes an option's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OptionHeader {
    pub(super) option: u32,
    pub(super) bytes: u32,
}

impl OptionHeader {
    pub(super) const BYTES: usize = 16;

    /// `None` for what is no option, or too long.
    pub(super) fn decode(from: &[u8; Self::BYTES]) -> Option<Self> {
        let mut at = Fields(from);
        let magic = at.u64()?;
        let header = Self {
            option: at.u32()?,
            bytes: at.u32()?,
        };
        (magic == OPTION_MAGIC && header.bytes <= OPTION_BYTES_MAX).then_some(header)
    }
}

/// The export that the data of INFO and GO names; what it wants to know is told anyway. `None` where it is not well formed.
pub(super) fn named_export(data: &[u8]) -> Option<&[u8]> {
    let mut at = Fields(data);
    let length = at.u32()?;
    let name = at.bytes(length as usize)?;
    let wishes = at.u16()?;
    at.bytes(usize::from(wishes) * 2)?;
    at.0.is_empty().then_some(name)
}

pub(super) fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut reply = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    for field in [option, kind, data.len() as u32] {
        reply.extend(field.to_be_bytes());
    }
    reply.extend(data);
    reply
}

/// Information 0: size and flags.
pub(super) fn export_info(of: Export) -> Vec<u8> {
    let mut info = 0_u16.to_be_bytes().to_vec();
    info.extend(export(of));
    info
}

pub(super) fn export(of: Export) -> Vec<u8> {
    let mut export = of.bytes.to_be_bytes().to_vec();
    let rotational = if of.is_rotational { ROTATIONAL } else { 0 };
    export.extend((TRANSMISSION_FLAGS | rotational).to_be_bytes());
    export
}

/// Information 3: least, preferred and largest block.
pub(super) fn block_info(least: u32, preferred: u32) -> Vec<u8> {
    let mut info = 3_u16.to_be_bytes().to_vec();
    for field in [least, preferred, PAYLOAD_BYTES_MAX] {
        info.extend(field.to_be_bytes());
    }
    info
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
    /// One that was not offered.
    Other,
}

/// A request of a client, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) command: Command,
    pub(super) through: bool,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

impl Request {
    pub(super) const BYTES: usize = 28;

    /// `None` for what is no request, or carries more than may be: where the next one begins is not known then.
    pub(super) fn decode(from: &[u8; Self::BYTES]) -> Option<Self> {
        let mut at = Fields(from);
        let magic = at.u32()?;
        let flags = at.u16()?;
        let command = match at.u16()? {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            6 => Command::WriteZeroes,
            _ => Command::Other,
        };
        let request = Self {
            command,
            through: flags & 1 != 0,
            cookie: at.u64()?,
            offset: at.u64()?,
            bytes: at.u32()?,
        };
        let fits = command != Command::Write || request.bytes <= PAYLOAD_BYTES_MAX;
        (magic == REQUEST_MAGIC && fits).then_some(request)
    }
}

pub(super) fn reply(cookie: u64, error: u32, data: &[u8]) -> Vec<u8> {
    let mut reply = REPLY_MAGIC.to_be_bytes().to_vec();
    reply.extend(error.to_be_bytes());
    reply.extend(cookie.to_be_bytes());
    reply.extend(data);
    reply
}

/// Big-endian fields from the front of some bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (these, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(these)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn a_request_is_read_and_what_is_none_is_refused() {
        let mut bytes = [0; Request::BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        (bytes[5], bytes[7], bytes[15], bytes[23], bytes[26]) = (1, 1, 9, 8, 2);
        let request = Request {
            command: Command::Write,
            through: true,
            cookie: 9,
            offset: 8,
            bytes: 512,
        };
        assert_eq!(Request::decode(&bytes), Some(request));
        bytes[24] = 0xff;
        assert_eq!(Request::decode(&bytes), None, "too much data");
        bytes[7] = 3;
        assert!(Request::decode(&bytes).is_some(), "no data");
        bytes[0] = 0;
        assert_eq!(Request::decode(&bytes), None, "no magic number");
    }

    #[test]
    fn an_export_is_named() {
        assert_eq!(named_export(&[0, 0, 0, 1, b'x', 0, 1, 0, 3]), Some(&b"x"[..]));
        for wrong in [
            &[][..],
            &[0, 0, 0, 9, b'x', 0, 0],
            &[0, 0, 0, 0, 0, 2, 0, 3],
            &[0, 0, 0, 0, 0, 0, 1],
        ] {
            assert_eq!(named_export(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn no_bytes_break_it() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
        for _ in 0..20_000 {
            let length = random.random_range(0..64);
            let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
            if let Some(name) = named_export(&bytes) {
                assert!(name.len() < bytes.len());
            }
            let mut header = [0; OptionHeader::BYTES];
            random.fill(&mut header);
            header[..8].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
            assert!(OptionHeader::decode(&header).is_none_or(|header| header.bytes <= OPTION_BYTES_MAX));
            let mut request = [0; Request::BYTES];
            random.fill(&mut request);
            request[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
            Request::decode(&request);
        }
    }
}
