//! What the environment says, read once when the library is loaded.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;

use elbow_lock::{ADDRESS_VARIABLE, Address, BadAddress, Credentials, Identity, LockError, Options, UnknownIdentity};

use crate::errno::warn;

/// Directories, separated by `:`, whose files' locks go to the service. Absolute, without symbolic links.
const PREFIXES: &str = "ELBOW_FCNTL_PREFIXES";
/// `end` (the default) or `warn`: what to do when locks were lost.
const ON_LOSS: &str = "ELBOW_FCNTL_ON_LOSS";
/// `path` (the default), `inode` or `auto`: what makes two files the same for the service.
const IDENTITY: &str = "ELBOW_FCNTL_IDENTITY";

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) address: Address,
    pub(crate) credentials: Option<Credentials>,
    prefixes: Vec<Vec<u8>>,
    /// The process goes on after locks were lost; its next lock call fails.
    pub(crate) only_warns: bool,
    pub(crate) identity: Identity,
}

static CONFIG: OnceLock<Option<Config>> = OnceLock::new();

/// What is to be redirected, if anything.
pub(crate) fn get() -> Option<&'static Config> {
    CONFIG.get_or_init(read).as_ref()
}

fn read() -> Option<Config> {
    let prefixes = std::env::var_os(PREFIXES)?;
    match parse(prefixes) {
        Ok(config) => Some(config),
        Err(why) => {
            // To go on would be to run without locks.
            warn(&format!("{why}; the program is not run"));
            #[allow(unsafe_code)]
            // SAFETY: ends the process.
            unsafe {
                libc::_exit(125)
            }
        }
    }
}

/// Why the environment cannot be followed.
#[derive(Debug, thiserror::Error)]
enum ConfigError {
    #[error("{PREFIXES} is set, but not {ADDRESS_VARIABLE}")]
    NoAddress,
    #[error("{ADDRESS_VARIABLE}: {0}")]
    Address(#[from] BadAddress),
    #[error(transparent)]
    Options(#[from] LockError),
    #[error("{variable} is {value:?}, neither {first} nor {second}")]
    NeitherOf {
        variable: &'static str,
        value: String,
        first: &'static str,
        second: &'static str,
    },
    #[error("{PREFIXES}: {} is no absolute path", .0.display())]
    NotAbsolute(OsString),
    #[error("{IDENTITY}: {0}")]
    Identity(#[from] UnknownIdentity),
}

fn parse(prefixes: OsString) -> Result<Config, ConfigError> {
    let address = std::env::var(ADDRESS_VARIABLE).map_err(|_| ConfigError::NoAddress)?;
    let address: Address = address.parse()?;
    let options = Options::for_address(&address)?;
    let one_of = |variable, first, second| match std::env::var(variable) {
        Err(_) => Ok(false),
        Ok(value) if value == first => Ok(false),
        Ok(value) if value == second => Ok(true),
        Ok(value) => Err(ConfigError::NeitherOf {
            variable,
            value,
            first,
            second,
        }),
    };
    let prefixes = prefixes.into_vec();
    let prefixes: Vec<Vec<u8>> = prefixes.split(|&byte| byte == b':').map(<[u8]>::to_vec).collect();
    if let Some(wrong) = prefixes.iter().find(|prefix| prefix.first() != Some(&b'/')) {
        let wrong = std::ffi::OsStr::from_bytes(wrong);
        return Err(ConfigError::NotAbsolute(wrong.to_owned()));
    }
    Ok(Config {
        address,
        credentials: options.credentials,
        prefixes,
        only_warns: one_of(ON_LOSS, "end", "warn")?,
        identity: identity()?,
    })
}

fn identity() -> Result<Identity, UnknownIdentity> {
    let named = std::env::var(IDENTITY).unwrap_or_default();
    match named.as_str() {
        "" => Ok(Identity::default()),
        named => named.parse(),
    }
}

impl Config {
    /// Whether the locks of a file at an absolute path go to the service.
    pub(crate) fn covers(&self, path: &[u8]) -> bool {
        self.prefixes
            .iter()
            .any(|prefix| match path.strip_prefix(prefix.as_slice()) {
                Some(rest) => rest.is_empty() || rest[0] == b'/' || prefix.ends_with(b"/"),
                None => false,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(prefixes: &[&str]) -> Config {
        Config {
            address: "unix:/run/locks".parse().unwrap(),
            credentials: None,
            prefixes: prefixes.iter().map(|prefix| prefix.as_bytes().to_vec()).collect(),
            only_warns: false,
            identity: Identity::Path,
        }
    }

    #[test]
    fn only_what_lies_below_a_prefix_is_covered() {
        let config = config(&["/data", "/mnt/a"]);
        let covers = |path: &str| config.covers(path.as_bytes());
        assert!(covers("/data/x") && covers("/data") && covers("/mnt/a/b/c"));
        assert!(!covers("/database") && !covers("/mnt/ab") && !covers("/"));
    }

    #[test]
    fn the_root_is_a_prefix_of_all() {
        assert!(config(&["/"]).covers(b"/etc/x"));
    }
}
