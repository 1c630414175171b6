//! Where a lock service is: `unix:PATH` or `tcp:HOST:PORT`.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, io};

/// The environment variable that stands in for an address.
pub const ADDRESS_VARIABLE: &str = "ELBOW_LOCKS";
/// The environment variable that names a key file.
pub const KEY_VARIABLE: &str = "ELBOW_LOCKS_KEY";

/// Where a lock service is.
///
/// ```
/// use elbow_lock::Address;
///
/// let address: Address = "unix:/run/locks".parse()?;
/// assert_eq!(address, Address::Unix("/run/locks".into()));
/// assert_eq!("tcp:[::1]:7700".parse::<Address>()?.to_string(), "tcp:[::1]:7700");
/// assert_eq!(
///     "locks:7700".parse::<Address>().unwrap_err().to_string(),
///     "\"locks:7700\" is no address of a lock service: write unix:PATH or tcp:HOST:PORT"
/// );
/// # Ok::<(), elbow_lock::BadAddress>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket: this machine only, clients are known by their user.
    Unix(PathBuf),
    /// HOST:PORT.
    Tcp(String),
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no address of a lock service: write unix:PATH or tcp:HOST:PORT")]
pub struct BadAddress {
    /// The text.
    pub text: String,
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", place)) if has_host_and_port(place) => Ok(Self::Tcp(place.to_owned())),
            _ => Err(BadAddress { text: text.to_owned() }),
        }
    }
}

/// The longest path of a Unix socket, in bytes (unix(7): 108, with a NUL behind it).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Refuses a path that no Unix socket can have, in words that say so.
pub(crate) fn socket_path(path: &Path) -> io::Result<&Path> {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        let why = format!(
            "the path of a Unix socket has {SOCKET_PATH_BYTES_MAX} bytes at most, and this one has {bytes}: take a shorter one"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(path)
}

fn has_host_and_port(place: &str) -> bool {
    place
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Self::Tcp(place) => write!(formatter, "tcp:{place}"),
        }
    }
}
