//! What a client says of itself, and of a range of bytes as fcntl(2) has it.

use std::path::Path;

use crate::address::{Address, KEY_VARIABLE};
use crate::credentials::Credentials;
use crate::error::LockError;
use crate::message::{FileName, Owner};

/// How to come to a lock service.
#[derive(Clone, Debug)]
pub struct Options {
    /// For people who look at the service: which program this is.
    pub name: String,
    /// How long the session may live while the service hears nothing from us, milliseconds; 0: as long as the
    /// connection, which suits a Unix socket, where the kernel closes it when the client dies.
    pub ttl_ms: u32,
    /// By what the service over TCP knows us, and we it, where it wants to.
    pub credentials: Option<Credentials>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: format!("process {}", std::process::id()),
            ttl_ms: 0,
            credentials: None,
        }
    }
}

/// How long a session over TCP lasts without a word, unless its options say otherwise, ms.
pub const TTL_MS_TCP: u32 = 10_000;

impl Options {
    /// What [`Client::connect`](super::Client::connect) uses.
    ///
    /// # Errors
    /// When `ELBOW_LOCKS_KEY` names neither a key file nor a directory of certificates that can be read.
    pub fn for_address(address: &Address) -> Result<Self, LockError> {
        let mut options = Self::default();
        if let Address::Tcp(_) = address {
            options.ttl_ms = TTL_MS_TCP;
            options.credentials = credentials_from_environment(address)?;
        }
        Ok(options)
    }
}

/// A range of a file for an owner of POSIX locks.
#[derive(Clone, Debug)]
pub struct Posix<'a> {
    /// Whose locks.
    pub owner: Owner,
    /// Of which file.
    pub file: &'a FileName,
    /// First byte.
    pub start: u64,
    /// Past the last byte; `u64::MAX`: to the end of any file.
    pub end: u64,
}

fn credentials_from_environment(address: &Address) -> Result<Option<Credentials>, LockError> {
    let Some(path) = std::env::var_os(KEY_VARIABLE) else {
        return Ok(None);
    };
    let path = Path::new(&path);
    let rejected = |error| LockError::Rejected {
        address: address.clone(),
        why: format!("our key of {}: {error}", path.display()),
    };
    Credentials::read(path).map(Some).map_err(rejected)
}
