//! Where the result goes: a stream, or a file that is written at several places at once.

use std::io::{self, Write};

use elbow_file::Handle;

/// Where the result goes.
pub struct Output<W> {
    pub(super) name: String,
    pub(super) open: Box<dyn FnOnce() -> io::Result<Opened<W>> + Send>,
}

/// An open output.
pub(super) enum Opened<W> {
    Stream(W),
    /// A file, and the same for writing at any place.
    File(W, Handle),
}

impl<W: Write + Send + 'static> Output<W> {
    /// A stream that is opened when the inputs have been read; errors mention the name.
    pub fn new(name: impl Into<String>, open: impl FnOnce() -> io::Result<W> + Send + 'static) -> Self {
        Self {
            name: name.into(),
            open: Box::new(move || open().map(Opened::Stream)),
        }
    }

    /// An empty regular file, opened when the inputs have been read. It is written through the handle, past the page cache
    /// where that is possible, and by several threads; what it comes with is given back.
    ///
    /// ```
    /// use elbow_extmem::text::{Input, OrderOptions, Output, SortOptions, TextOrder, TextSort};
    /// use elbow_file::{Handle, RealStorage};
    ///
    /// let file = tempfile::NamedTempFile::new()?;
    /// let output = file.reopen()?;
    /// let sort = TextSort::new(TextOrder::new(&OrderOptions::default())?, SortOptions::default());
    /// let output = Output::file("sorted", || Ok((output.try_clone()?, Handle::new(output.into()))));
    /// sort.sort(vec![Input::new("text", || Ok(&b"b\na\n"[..]))], output)?;
    /// assert_eq!(std::io::read_to_string(file)?, "a\nb\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn file(name: impl Into<String>, open: impl FnOnce() -> io::Result<(W, Handle)> + Send + 'static) -> Self {
        Self {
            name: name.into(),
            open: Box::new(move || open().map(|(file, handle)| Opened::File(file, handle))),
        }
    }

    /// What is one or the other, as is found when the inputs have been read: a file with a handle, or a stream without.
    pub fn either(
        name: impl Into<String>,
        open: impl FnOnce() -> io::Result<(W, Option<Handle>)> + Send + 'static,
    ) -> Self {
        let opened = |(output, handle)| match handle {
            Some(handle) => Opened::File(output, handle),
            None => Opened::Stream(output),
        };
        Self {
            name: name.into(),
            open: Box::new(move || open().map(opened)),
        }
    }
}
