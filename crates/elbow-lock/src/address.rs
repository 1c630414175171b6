//! Where a lock service is: `unix:PATH` or `tcp:HOST:PORT`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

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
