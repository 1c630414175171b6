//! One message on the wire, and the bytes that belong to it.
//!
//! ```text
//!   0        4        8                16
//!   | message| content|     number     | message (postcard) | content |
//! ```
//!
//! All little-endian. With the highest bit in its length the content is packed: a `u32`, how long it is, and an LZ4 block of that. Both lengths are checked before anything is allocated: whoever is at the other end cannot make this one hold
//! more than [`MESSAGE_BYTES_MAX`] and [`CONTENT_BYTES_MAX`] for one message.

use std::io::{self, IoSlice, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest message: a listing of a directory with some hundred thousand names.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// The most content beside one: what one action of a job writes at once.
pub(crate) const CONTENT_BYTES_MAX: usize = 64 << 20;
const HEADER_BYTES: usize = 16;
/// In the length of a content: it is packed.
const PACKED: u32 = 1 << 31;
/// A content of so many bytes is at most that much longer than its LZ4 block.
const PACKED_TIMES_MAX: usize = 255;

/// What travels beside a message, as it is sent.
#[derive(Debug)]
pub(crate) enum Content<'a> {
    Plain(&'a [IoSlice<'a>]),
    /// Its length, and an LZ4 block of it.
    Packed(Vec<u8>),
}

impl Content<'_> {
    pub(crate) const NONE: Self = Content::Plain(&[]);

    /// How long it is on the wire.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Content::Plain(pieces) => pieces.iter().map(|piece| piece.len()).sum(),
            Content::Packed(packed) => packed.len(),
        }
    }
}

/// A message as it came.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) number: u64,
    message: Vec<u8>,
    pub(crate) content: Vec<u8>,
}

impl Frame {
    /// How long it is.
    pub(crate) fn bytes(&self) -> usize {
        self.message.len() + self.content.len()
    }

    /// The message.
    ///
    /// # Errors
    /// `InvalidData` when it is none.
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> io::Result<T> {
        let (message, rest) = postcard::take_from_bytes(&self.message).map_err(invalid)?;
        if rest.is_empty() {
            Ok(message)
        } else {
            Err(invalid("something follows the message"))
        }
    }
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Reads one message; `None` where the other end has ended between two.
///
/// # Errors
/// Those of the connection; `UnexpectedEof` when it ends within a message, `InvalidData` for one that is too long.
pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut header = [0; HEADER_BYTES];
    match read_some(from, &mut header)? {
        0 => return Ok(None),
        HEADER_BYTES => {}
        _ => return Err(io::ErrorKind::UnexpectedEof.into()),
    }
    let length = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let is_packed = length(4) & PACKED != 0;
    let (message, content) = (length(0) as usize, (length(4) & !PACKED) as usize);
    if message > MESSAGE_BYTES_MAX || content > CONTENT_BYTES_MAX {
        return Err(invalid(format!(
            "a message of {message} and {content} bytes is too long"
        )));
    }
    let message = read_bytes(from, message)?;
    let content = read_bytes(from, content)?;
    Ok(Some(Frame {
        number: u64::from_le_bytes(header[8..].try_into().expect("eight bytes")),
        message,
        content: if is_packed { unpacked(&content)? } else { content },
    }))
}

/// What a packed content is. Its length is somebody else's word: no more memory is taken for it than such a block may need.
fn unpacked(packed: &[u8]) -> io::Result<Vec<u8>> {
    let (bytes, block) = lz4_flex::block::uncompressed_size(packed).map_err(invalid)?;
    if bytes > CONTENT_BYTES_MAX || bytes / PACKED_TIMES_MAX > block.len() {
        return Err(invalid(format!("a content of {bytes} bytes is too long")));
    }
    let content = lz4_flex::block::decompress(block, bytes).map_err(invalid)?;
    if content.len() == bytes {
        Ok(content)
    } else {
        Err(invalid("a packed content is shorter than it says"))
    }
}

/// Fills a buffer, as far as anything comes.
///
/// # Errors
/// Those of the connection.
pub(crate) fn read_some(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Memory is taken as the bytes come: a length alone costs nothing.
fn read_bytes(from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// A message that is ready to be written.
#[derive(Debug)]
pub(crate) struct Encoded(Vec<u8>);

/// Encodes a message that goes with such a content; the number comes when it is sent.
///
/// # Errors
/// `InvalidInput` for what is too long to be sent.
pub(crate) fn encode(message: &impl Serialize, content: &Content<'_>) -> io::Result<Encoded> {
    let encoded = postcard::to_extend(message, vec![0; HEADER_BYTES]).map_err(invalid)?;
    let message_bytes = encoded.len() - HEADER_BYTES;
    if message_bytes > MESSAGE_BYTES_MAX || content.bytes() > CONTENT_BYTES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut encoded = encoded;
    encoded[..4].copy_from_slice(&(message_bytes as u32).to_le_bytes());
    let packed = if matches!(content, Content::Packed(_)) {
        PACKED
    } else {
        0
    };
    encoded[4..8].copy_from_slice(&(content.bytes() as u32 | packed).to_le_bytes());
    Ok(Encoded(encoded))
}

impl Encoded {
    /// How long it is on the wire, without its content.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Writes it under this number, with its content.
    ///
    /// # Errors
    /// Those of the connection.
    pub(crate) fn write(mut self, to: &mut impl Write, number: u64, content: &Content<'_>) -> io::Result<()> {
        self.0[8..HEADER_BYTES].copy_from_slice(&number.to_le_bytes());
        let mut pieces = vec![IoSlice::new(&self.0)];
        match content {
            Content::Plain(plain) => pieces.extend(plain.iter().copied()),
            Content::Packed(packed) => pieces.push(IoSlice::new(packed)),
        }
        write_all(to, &mut pieces)?;
        to.flush()
    }
}

fn write_all(to: &mut impl Write, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut pieces, 0); // drops empty pieces in front
    while !pieces.is_empty() {
        match to.write_vectored(pieces) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut pieces, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;
    use crate::message::Request;

    fn request() -> Request {
        Request {
            on: vec![1, 900],
            makes: vec![7],
            released: Vec::new(),
            call: Call::Write { offset: 1 << 40 },
        }
    }

    fn written(content: &[&[u8]]) -> Vec<u8> {
        let pieces: Vec<IoSlice<'_>> = content.iter().map(|piece| IoSlice::new(piece)).collect();
        on_the_wire(&Content::Plain(&pieces))
    }

    fn on_the_wire(content: &Content<'_>) -> Vec<u8> {
        let mut wire = Vec::new();
        encode(&request(), content)
            .unwrap()
            .write(&mut wire, 5, content)
            .unwrap();
        wire
    }

    #[test]
    fn what_is_written_is_read() {
        let wire = written(&[b"", b"abc", b"", b"defg"]);
        let mut from = &wire[..];
        let frame = read(&mut from).unwrap().expect("one message");
        assert_eq!((frame.number, &frame.content[..]), (5, &b"abcdefg"[..]));
        assert_eq!(frame.decode::<Request>().unwrap(), request());
        assert!(read(&mut from).unwrap().is_none(), "and no more");
    }

    #[test]
    fn what_is_packed_is_read_as_it_was() {
        let whole = vec![7; 100_000];
        let wire = on_the_wire(&Content::Packed(lz4_flex::block::compress_prepend_size(&whole)));
        assert!(wire.len() < 1_000, "{} bytes", wire.len());
        assert_eq!(read(&mut &wire[..]).unwrap().unwrap().content, whole);
    }

    /// Neither a length that no block of that size can have, nor one that is not true.
    #[test]
    fn what_is_packed_is_not_believed_its_length() {
        let packed = lz4_flex::block::compress_prepend_size(&[7; 100]);
        for length in [0, 99, 101, 4_000, 65 << 20, u32::MAX] {
            let mut lying = packed.clone();
            lying[..4].copy_from_slice(&length.to_le_bytes());
            let error = read(&mut &on_the_wire(&Content::Packed(lying))[..]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{length}");
        }
        for cut in 0..packed.len() {
            let wire = on_the_wire(&Content::Packed(packed[..cut].to_vec()));
            assert_eq!(
                read(&mut &wire[..]).unwrap_err().kind(),
                io::ErrorKind::InvalidData,
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_message_that_is_cut_is_told_from_the_end() {
        let wire = written(&[b"content"]);
        for cut in 1..wire.len() {
            let error = read(&mut &wire[..cut]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut at {cut}");
        }
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_before_anything_is_read() {
        let mut wire = written(&[]);
        wire[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&mut &wire[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_message_with_something_behind_it_is_none() {
        let mut wire = written(&[]);
        let length = u32::from_le_bytes(wire[..4].try_into().unwrap()) + 1;
        wire[..4].copy_from_slice(&length.to_le_bytes());
        wire.push(0);
        let frame = read(&mut &wire[..]).unwrap().unwrap();
        assert!(frame.decode::<Request>().is_err());
    }
}
