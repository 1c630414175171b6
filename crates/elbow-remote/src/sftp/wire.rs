//! Messages of SFTP, version 3: what is asked, and a checked decoding of what is answered.
//!
//! ```text
//!   packet    length (u32), kind (u8), number of the request (u32), fields;  all numbers are big-endian
//!   string    length (u32), bytes: a name is bytes, and need not be UTF-8
//!   attrs     flags (u32), then of size, owner and group, mode, times those that the flags name
//! ```
//!
//! Invariant: no bytes make a decoder panic, or take more memory than they are long.
//!
//! Source: draft-ietf-secsh-filexfer-02; OpenSSH's `PROTOCOL`, section 4, for its extensions and the order of the two names in SYMLINK.

use std::io::{self, Read};

use thiserror::Error;

/// The version of the protocol that all servers speak.
pub(crate) const VERSION: u32 = 3;
/// A packet that is longer is no answer to anything that is asked here.
const PACKET_BYTES_MAX: usize = 1 << 20;
/// Handles are shorter, says the protocol.
const HANDLE_BYTES_MAX: usize = 256;
/// What is left away in an answer takes at least so much: two lengths and the flags.
const NAME_BYTES_MIN: usize = 12;

/// Bits of OPEN.
pub(crate) mod open_flags {
    pub(crate) const READ: u32 = 0x01;
    pub(crate) const WRITE: u32 = 0x02;
    pub(crate) const APPEND: u32 = 0x04;
    pub(crate) const CREATE: u32 = 0x08;
    pub(crate) const EXCLUSIVE: u32 = 0x20;
}

mod attr_flags {
    pub(super) const SIZE: u32 = 0x01;
    pub(super) const OWNER: u32 = 0x02;
    pub(super) const MODE: u32 = 0x04;
    pub(super) const TIMES: u32 = 0x08;
    pub(super) const EXTENDED: u32 = 0x8000_0000;
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ask {
    Init = 1,
    Open = 3,
    Close = 4,
    Read = 5,
    Write = 6,
    Lstat = 7,
    Fstat = 8,
    Setstat = 9,
    Fsetstat = 10,
    Opendir = 11,
    Readdir = 12,
    Remove = 13,
    Mkdir = 14,
    Rmdir = 15,
    Realpath = 16,
    Rename = 18,
    Readlink = 19,
    Symlink = 20,
    Extended = 200,
}

/// A request without its number, which it gets when it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Request(Vec<u8>);

/// Where the number of a request is.
const NUMBER_AT: usize = 5;
const HEAD_BYTES: usize = 9;

impl Request {
    pub(crate) fn new(ask: Ask) -> Self {
        Self(vec![0, 0, 0, 0, ask as u8, 0, 0, 0, 0])
    }

    /// An extension by its name.
    pub(crate) fn extended(name: &str) -> Self {
        Self::new(Ask::Extended).string(name.as_bytes())
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(crate) fn string(self, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).expect("names and pieces are bounded");
        let mut with = self.u32(length);
        with.0.extend_from_slice(bytes);
        with
    }

    pub(crate) fn attrs(self, attrs: &Attrs) -> Self {
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let flags = flag(attrs.size.is_some(), attr_flags::SIZE)
            | flag(attrs.owner.is_some(), attr_flags::OWNER)
            | flag(attrs.mode.is_some(), attr_flags::MODE)
            | flag(attrs.times.is_some(), attr_flags::TIMES);
        let mut with = self.u32(flags);
        if let Some(size) = attrs.size {
            with = with.u64(size);
        }
        if let Some((uid, gid)) = attrs.owner {
            with = with.u32(uid).u32(gid);
        }
        if let Some(mode) = attrs.mode {
            with = with.u32(mode);
        }
        if let Some((atime, mtime)) = attrs.times {
            with = with.u32(atime).u32(mtime);
        }
        with
    }

    /// The packet.
    pub(crate) fn numbered(mut self, number: u32) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - 4).expect("names and pieces are bounded");
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0[NUMBER_AT..HEAD_BYTES].copy_from_slice(&number.to_be_bytes());
        self.0
    }
}

/// Attributes, as far as they are told or set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attrs {
    pub(crate) size: Option<u64>,
    /// User and group.
    pub(crate) owner: Option<(u32, u32)>,
    /// With the type of the object, where it is told.
    pub(crate) mode: Option<u32>,
    /// Of access and change, in seconds since 1970.
    pub(crate) times: Option<(u32, u32)>,
}

/// A status that is no success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    EndOfFile,
    NoSuchFile,
    PermissionDenied,
    /// Anything.
    Failure,
    BadMessage,
    NoConnection,
    Unsupported,
}

/// One name of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) name: Vec<u8>,
    pub(crate) attrs: Attrs,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Done,
    Refused(Status),
    Handle(Vec<u8>),
    Data(Vec<u8>),
    Names(Vec<Name>),
    Attrs(Attrs),
    Extended(Vec<u8>),
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub(crate) struct Malformed(&'static str);

impl From<Malformed> for io::Error {
    fn from(malformed: Malformed) -> Self {
        Self::new(io::ErrorKind::InvalidData, malformed)
    }
}

/// What is left to be decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (taken, left) = self
            .0
            .split_at_checked(bytes)
            .ok_or(Malformed("a message ends too early"))?;
        self.0 = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N).map(|bytes| bytes.try_into().expect("it has this length"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn attrs(&mut self) -> Result<Attrs, Malformed> {
        let flags = self.u32()?;
        let has = |flag| flags & flag != 0;
        let mut attrs = Attrs::default();
        if has(attr_flags::SIZE) {
            attrs.size = Some(self.u64()?);
        }
        if has(attr_flags::OWNER) {
            attrs.owner = Some((self.u32()?, self.u32()?));
        }
        if has(attr_flags::MODE) {
            attrs.mode = Some(self.u32()?);
        }
        if has(attr_flags::TIMES) {
            attrs.times = Some((self.u32()?, self.u32()?));
        }
        if has(attr_flags::EXTENDED) {
            for _ in 0..self.u32()? {
                self.string()?;
                self.string()?;
            }
        }
        Ok(attrs)
    }

    fn names(&mut self) -> Result<Vec<Name>, Malformed> {
        let count = self.u32()? as usize;
        if count > self.0.len() / NAME_BYTES_MIN {
            return Err(Malformed("more names than there is room for"));
        }
        let mut names = Vec::with_capacity(count);
        for _ in 0..count {
            let name = self.string()?.to_vec();
            let _for_people = self.string()?;
            let attrs = self.attrs()?;
            names.push(Name { name, attrs });
        }
        Ok(names)
    }
}

fn status(code: u32) -> Reply {
    Reply::Refused(match code {
        0 => return Reply::Done,
        1 => Status::EndOfFile,
        2 => Status::NoSuchFile,
        3 => Status::PermissionDenied,
        5 => Status::BadMessage,
        6 | 7 => Status::NoConnection,
        8 => Status::Unsupported,
        _ => Status::Failure,
    })
}

/// Decodes what is in a packet: the number of the request, and the answer.
///
/// # Errors
/// It is none.
pub(crate) fn decode(packet: &[u8]) -> Result<(u32, Reply), Malformed> {
    let mut fields = Fields(packet);
    let kind = fields.u8()?;
    let number = fields.u32()?;
    let reply = match kind {
        101 => status(fields.u32()?),
        102 => {
            let handle = fields.string()?;
            if handle.len() > HANDLE_BYTES_MAX {
                return Err(Malformed("a handle is too long"));
            }
            Reply::Handle(handle.to_vec())
        }
        103 => Reply::Data(fields.string()?.to_vec()),
        104 => Reply::Names(fields.names()?),
        105 => Reply::Attrs(fields.attrs()?),
        201 => Reply::Extended(fields.0.to_vec()),
        _ => return Err(Malformed("an answer of an unknown kind")),
    };
    Ok((number, reply))
}

/// Reads one packet, without its length.
///
/// # Errors
/// The stream's, at its end too; `InvalidData` for one of a length that none has.
pub(crate) fn read_packet(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if !(1..=PACKET_BYTES_MAX).contains(&length) {
        return Err(Malformed("a packet has a length that none has").into());
    }
    let mut packet = vec![0; length];
    from.read_exact(&mut packet)?;
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
        [&[kind, 0, 0, 0, 9][..], &fields.concat()].concat()
    }

    #[test]
    fn a_request_is_what_the_draft_says() {
        let request = Request::new(Ask::Open).string(b"/a\xff").u32(open_flags::READ);
        let attrs = Attrs {
            mode: Some(0o640),
            ..Attrs::default()
        };
        let packet = request.attrs(&attrs).numbered(0x0102_0304);
        let fields = [
            &[0, 0, 0, 24, 3, 1, 2, 3, 4, 0, 0, 0, 3][..],
            b"/a\xff",
            &[0, 0, 0, 1],
            &[0, 0, 0, 4, 0, 0, 1, 0o240],
        ];
        assert_eq!(packet, fields.concat());
    }

    #[test]
    fn names_are_bytes_and_attributes_what_the_flags_name() {
        let attrs = [
            &0x8000_0005_u32.to_be_bytes()[..],
            &7_u64.to_be_bytes(),
            &0o100_644_u32.to_be_bytes(),
        ]
        .concat();
        let extended = [0, 0, 0, 1, 0, 0, 0, 1, b'x', 0, 0, 0, 0];
        let name = [0, 0, 0, 1, 0, 0, 0, 2, 0xff, b'n', 0, 0, 0, 1, b'-'];
        let all = packet(104, &[&name, &attrs, &extended]);
        let (number, reply) = decode(&all).unwrap();
        let Reply::Names(names) = reply else {
            panic!("{reply:?}")
        };
        assert_eq!((number, &names[0].name[..]), (9, &b"\xffn"[..]));
        assert_eq!((names[0].attrs.size, names[0].attrs.mode), (Some(7), Some(0o100_644)));
        assert_eq!((names[0].attrs.owner, names[0].attrs.times), (None, None));
        // Whatever is cut off, it is no message.
        for end in 0..all.len() {
            assert!(decode(&all[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn what_says_that_it_is_longer_than_it_is_takes_no_memory() {
        let huge = u32::MAX.to_be_bytes();
        for kind in [102, 103, 104] {
            assert!(decode(&packet(kind, &[&huge])).is_err());
        }
        assert!(decode(&packet(105, &[&0x8000_0000_u32.to_be_bytes(), &huge])).is_err());
        assert!(decode(&packet(102, &[&257_u32.to_be_bytes(), &[0; 257]])).is_err());
        assert!(read_packet(&mut &huge[..]).is_err() && read_packet(&mut &[0; 8][..]).is_err());
    }
}
