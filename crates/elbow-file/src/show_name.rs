//! Names for people.
//!
//! A name on a disk may have any bytes but a slash and a zero. In a sentence a line feed would begin a line that nobody has said, and a
//! terminal obeys what follows an escape: such bytes are told as [`ls -b`](https://man7.org/linux/man-pages/man1/ls.1.html) tells them.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What can be told to people by its name.
pub trait ShowName {
    /// The name on one line, with nothing in it that a terminal would obey: what cannot be shown stands as an octal number behind a
    /// backslash, and a backslash has another before it.
    ///
    /// ```
    /// use std::path::Path;
    /// use elbow_file::ShowName;
    ///
    /// assert_eq!(Path::new("a b\n\x1b[2J").shown().to_string(), r"a b\n\033[2J");
    /// ```
    fn shown(&self) -> ShownName<'_>;
}

impl ShowName for OsStr {
    fn shown(&self) -> ShownName<'_> {
        ShownName {
            name: self,
            escapes_blanks: false,
        }
    }
}

impl ShowName for Path {
    fn shown(&self) -> ShownName<'_> {
        self.as_os_str().shown()
    }
}

impl ShowName for str {
    fn shown(&self) -> ShownName<'_> {
        OsStr::new(self).shown()
    }
}

/// A name as people see it.
#[derive(Clone, Copy, Debug)]
pub struct ShownName<'a> {
    name: &'a OsStr,
    escapes_blanks: bool,
}

impl ShownName<'_> {
    /// With a backslash before each blank too, so that a program finds its end.
    ///
    /// ```
    /// use std::path::Path;
    /// use elbow_file::ShowName;
    ///
    /// assert_eq!(Path::new("a b").shown().as_word().to_string(), r"a\ b");
    /// ```
    #[must_use]
    pub fn as_word(self) -> Self {
        Self {
            escapes_blanks: true,
            ..self
        }
    }
}

impl fmt::Display for ShownName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let octal =
            |f: &mut fmt::Formatter<'_>, bytes: &[u8]| bytes.iter().try_for_each(|byte| write!(f, "\\{byte:03o}"));
        for piece in self.name.as_bytes().utf8_chunks() {
            for sign in piece.valid().chars() {
                match sign {
                    '\\' => f.write_str("\\\\")?,
                    ' ' if self.escapes_blanks => f.write_str("\\ ")?,
                    '\n' => f.write_str("\\n")?,
                    '\t' => f.write_str("\\t")?,
                    _ if sign.is_control() => octal(f, sign.encode_utf8(&mut [0; 4]).as_bytes())?,
                    _ => write!(f, "{sign}")?,
                }
            }
            octal(f, piece.invalid())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_obeyed_or_begins_a_line() {
        let odd = [b"a b\\\n\t\x1b[2J\xff\x7f".as_slice(), "\u{e9}\u{9b}".as_bytes()].concat();
        let name = OsStr::from_bytes(&odd);
        assert_eq!(
            name.shown().to_string(),
            "a b\\\\\\n\\t\\033[2J\\377\\177\u{e9}\\302\\233"
        );
        assert_eq!(
            Path::new(name).shown().as_word().to_string(),
            "a\\ b\\\\\\n\\t\\033[2J\\377\\177\u{e9}\\302\\233"
        );
    }
}
