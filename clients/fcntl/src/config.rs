//! What the environment says, read once when the library is loaded.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;

use elbow_lock::{ADDRESS_VARIABLE, Address, Credentials, Identity, Options};

use crate::errno::say;

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
    match understand(prefixes) {
        Ok(config) => Some(config),
        Err(why) => {
            // To go on would be to run without locks.
            say(&format!("{why}; the program is not run"));
            #[allow(unsafe_code)]
            // SAFETY: ends the process.
            unsafe {
                libc::_exit(125)
            }
        }
    }
}

fn understand(prefixes: OsString) -> Result<Config, String> {
    let address =
        std::env::var(ADDRESS_VARIABLE).map_err(|_| format!("{PREFIXES} is set, but not {ADDRESS_VARIABLE}"))?;
    let address: Address = address
        .parse()
        .map_err(|error| format!("{ADDRESS_VARIABLE}: {error}"))?;
    let options = Options::for_address(&address).map_err(|error| error.to_string())?;
    let one_of = |variable: &str, first: &str, second: &str| match std::env::var(variable) {
        Err(_) => Ok(false),
        Ok(value) if value == first => Ok(false),
        Ok(value) if value == second => Ok(true),
        Ok(value) => Err(format!("{variable} is {value:?}, neither {first} nor {second}")),
    };
    let prefixes = prefixes.into_vec();
    let prefixes: Vec<Vec<u8>> = prefixes.split(|&byte| byte == b':').map(<[u8]>::to_vec).collect();
    if let Some(wrong) = prefixes.iter().find(|prefix| prefix.first() != Some(&b'/')) {
        let wrong = std::ffi::OsStr::from_bytes(wrong);
        return Err(format!("{PREFIXES}: {} is no absolute path", wrong.display()));
    }
    Ok(Config {
        address,
        credentials: options.credentials,
        prefixes,
        only_warns: one_of(ON_LOSS, "end", "warn")?,
        identity: identity()?,
    })
}

fn identity() -> Result<Identity, String> {
    let named = std::env::var(IDENTITY).unwrap_or_default();
    let parsed = if named.is_empty() {
        Ok(Identity::default())
    } else {
        named.parse()
    };
    parsed.map_err(|why: String| format!("{IDENTITY}: {why}"))
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
