//! Paths and words in JSON, whatever bytes they have.
//!
//! JSON has text only, and names on a disk are bytes. Each name is given as text in which `U+FFFD` stands for what is not
//! UTF-8; where that loses something, a second field whose name ends in `_bytes` has all bytes, in hexadecimal.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The bytes in hexadecimal, if the text does not tell them.
fn bytes_of(name: &OsStr) -> Option<String> {
    let hex = || name.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    name.to_str().is_none().then(hex)
}

fn lossy(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

/// The name that was told; the text where its bytes cannot be read.
fn name_of(text: &str, bytes: Option<&str>) -> OsString {
    bytes.and_then(from_hex).map_or_else(|| text.into(), OsString::from_vec)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<_> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs
        .remainder()
        .is_empty()
        .then(|| pairs.map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}

/// A type for the name in one field, to be flattened into an object.
macro_rules! named {
    ($(#[$doc:meta])* $type:ident, $key:literal, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub(crate) struct $type {
            #[serde(rename = $key)]
            text: Option<String>,
            #[serde(rename = $bytes, default, skip_serializing_if = "Option::is_none")]
            bytes: Option<String>,
        }

        impl $type {
            pub(crate) fn of(name: impl AsRef<OsStr>) -> Self {
                let name = name.as_ref();
                Self { text: Some(lossy(name)), bytes: bytes_of(name) }
            }

            /// The name, if there is one.
            #[allow(dead_code, reason = "some are only told")]
            pub(crate) fn path(&self) -> Option<PathBuf> {
                let text = self.text.as_deref()?;
                Some(name_of(text, self.bytes.as_deref()).into())
            }
        }
    };
}

named!(
    /// What something was done to.
    PathName, "path", "path_bytes"
);
named!(
    /// The directory of a job.
    DirectoryName, "directory", "directory_bytes"
);
named!(
    /// The old name of something.
    FromName, "from", "from_bytes"
);
named!(
    /// What a mount shows.
    SourceName, "source", "source_bytes"
);
named!(
    /// Where a mount is.
    MountPointName, "mount_point", "mount_point_bytes"
);
named!(
    /// A staging directory that was kept.
    KeptName, "kept", "kept_bytes"
);
named!(
    /// Where what the storage did not take was saved.
    SavedName, "saved", "saved_bytes"
);

/// A command, word by word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandWords {
    command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command_bytes: Option<Vec<String>>,
}

impl CommandWords {
    pub(crate) fn of(words: &[OsString]) -> Self {
        let is_text = words.iter().all(|word| word.to_str().is_some());
        let hex = |word: &OsString| word.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            command: words.iter().map(|word| lossy(word)).collect(),
            command_bytes: (!is_text).then(|| words.iter().map(hex).collect()),
        }
    }

    /// For people, on one line.
    pub(crate) fn shown(&self) -> String {
        self.command
            .join(" ")
            .escape_default()
            .to_string()
            .replace("\\\"", "\"")
            .replace("\\'", "'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that is no text made the whole report unprintable, and lost the answer of a mount's process.
    #[test]
    fn names_of_any_bytes_survive_json() {
        for bytes in [
            &b"plain"[..],
            "h\u{f8}lm".as_bytes(),
            b"a\xffb\n\"",
            b"\xf0\x28\x8c\x28",
            b"",
        ] {
            let name = PathName::of(OsStr::from_bytes(bytes));
            let json = serde_json::to_string(&name).expect("plain data");
            let back: PathName = serde_json::from_str(&json).expect(&json);
            assert_eq!(back.path(), Some(OsString::from_vec(bytes.to_vec()).into()), "{json}");
            assert_eq!(
                json.contains("path_bytes"),
                std::str::from_utf8(bytes).is_err(),
                "{json}"
            );
        }
    }

    #[test]
    fn a_command_has_bytes_for_every_word_or_none() {
        let words = ["tar".into(), OsString::from_vec(vec![b'x', 0xff])];
        let json = serde_json::to_value(CommandWords::of(&words)).expect("plain data");
        assert_eq!(
            json,
            serde_json::json!({"command": ["tar", "x\u{fffd}"], "command_bytes": ["746172", "78ff"]})
        );
        let json = serde_json::to_value(CommandWords::of(&words[..1])).expect("plain data");
        assert_eq!(json, serde_json::json!({"command": ["tar"]}));
    }
}
