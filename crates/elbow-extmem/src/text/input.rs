//! What is sorted: streams with names, opened when their turn comes.

use std::io::{self, Read};
use std::sync::Arc;

use super::error::{Result, TextError};
use crate::sort::Meter;

type Opener = Box<dyn FnOnce() -> io::Result<Box<dyn Read + Send>> + Send>;

/// A stream of lines with a name.
///
/// ```
/// use elbow_extmem::text::Input;
///
/// let input = Input::new("greetings", || Ok(&b"hello\nworld"[..]));
/// assert_eq!(input.name(), "greetings");
/// ```
pub struct Input {
    name: String,
    open: Opener,
    is_output: bool,
    bytes: Option<u64>,
}

impl Input {
    /// An input that is opened when it is needed; errors mention the name.
    pub fn new<R: Read + Send + 'static>(
        name: impl Into<String>,
        open: impl FnOnce() -> io::Result<R> + Send + 'static,
    ) -> Self {
        let open: Opener = Box::new(move || Ok(Box::new(open()?)));
        Self {
            name: name.into(),
            open,
            is_output: false,
            bytes: None,
        }
    }

    /// Says how long it is, if that is known before it is read: for estimates.
    #[must_use]
    pub fn of_bytes(mut self, bytes: Option<u64>) -> Self {
        self.bytes = bytes;
        self
    }

    pub(super) fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// Says that this is the file that the result is written to: a merge then keeps a copy of it.
    #[must_use]
    pub fn which_is_the_output(mut self) -> Self {
        self.is_output = true;
        self
    }

    /// The name by which errors mention it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_output(&self) -> bool {
        self.is_output
    }

    pub(super) fn open(self) -> Result<Opened> {
        let Self { name, open, .. } = self;
        match open() {
            Ok(stream) => Ok(Opened { name, stream }),
            Err(reason) => Err(TextError::Input {
                tried: "open failed",
                name,
                reason,
            }),
        }
    }
}

/// An open input.
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) stream: Box<dyn Read + Send>,
}

/// Inputs one after the other, the last line of each with a terminator.
pub(super) struct Inputs {
    waiting: std::vec::IntoIter<Input>,
    open: Option<Opened>,
    terminator: u8,
    last: u8,
    meter: Arc<Meter>,
}

impl Inputs {
    pub(super) fn new(inputs: Vec<Input>, terminator: u8, meter: Arc<Meter>) -> Self {
        Self {
            waiting: inputs.into_iter(),
            open: None,
            terminator,
            last: terminator,
            meter,
        }
    }

    /// Reads what there is; 0 at the end of all.
    pub(super) fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            if self.open.is_none() {
                let Some(next) = self.waiting.next() else { return Ok(0) };
                self.open = Some(next.open()?);
            }
            let Some(Opened { name, stream }) = &mut self.open else {
                continue;
            };
            let read = match read_some(stream, buffer) {
                Ok(read) => read,
                Err(reason) => {
                    return Err(TextError::Input {
                        tried: "read failed",
                        name: name.clone(),
                        reason,
                    });
                }
            };
            if read > 0 {
                self.last = buffer[read - 1];
                self.meter.note_read(read as u64);
                return Ok(read);
            }
            self.open = None;
            // As sort(1): a last line without an end gets one, also between two files.
            if self.last != self.terminator {
                self.last = self.terminator;
                buffer[0] = self.terminator;
                return Ok(1);
            }
        }
    }
}

/// Reads what there is; 0 at the end.
pub(super) fn read_some(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            other => return other,
        }
    }
}
