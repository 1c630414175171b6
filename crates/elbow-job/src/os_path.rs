//! Paths in messages: names need not be text, and serde takes a path for text.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    path.as_os_str().serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    OsString::deserialize(from).map(PathBuf::from)
}

/// Several, each with something that belongs to it.
pub(crate) mod pairs {
    use super::{Deserialize, Deserializer, OsString, PathBuf, Serialize, Serializer};

    pub(crate) fn serialize<T: Serialize, S: Serializer>(all: &[(PathBuf, T)], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(|(path, of)| (path.as_os_str(), of)))
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(PathBuf, T)>, D::Error> {
        let all = Vec::<(OsString, T)>::deserialize(from)?;
        Ok(all.into_iter().map(|(path, of)| (path.into(), of)).collect())
    }
}

/// Several.
pub(crate) mod list {
    use super::{Deserialize, Deserializer, OsString, PathBuf, Serializer};

    pub(crate) fn serialize<S: Serializer>(all: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(|path| path.as_os_str()))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        let all = Vec::<OsString>::deserialize(from)?;
        Ok(all.into_iter().map(PathBuf::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Message {
        #[serde(with = "super")]
        one: PathBuf,
        #[serde(with = "super::list")]
        list: Vec<PathBuf>,
        #[serde(with = "super::pairs")]
        pairs: Vec<(PathBuf, u32)>,
    }

    /// A path with a name that is no text could not be sent, and ended the program.
    #[test]
    fn a_name_that_is_no_text_travels() {
        let odd = PathBuf::from(OsStr::from_bytes(b"a/\xff\xfe"));
        let message = Message {
            one: odd.clone(),
            list: vec![odd.clone(), PathBuf::new()],
            pairs: vec![(odd, 7)],
        };
        let bytes = postcard::to_stdvec(&message).unwrap();
        assert_eq!(postcard::from_bytes::<Message>(&bytes).unwrap(), message);
    }
}
