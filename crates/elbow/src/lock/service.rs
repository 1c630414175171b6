//! The lock service that was named: by an option or in the environment.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use elbow_lock::{ADDRESS_VARIABLE, Address, Client, Credentials, Options};

use super::args::ServiceArgs;

/// Comes to the service that was named.
pub(super) fn connect(service: &ServiceArgs, name: String) -> Result<Client> {
    connect_for(service, None, name)
}

/// Comes with a lease of so many ms.
pub(super) fn connect_for(service: &ServiceArgs, ttl: Option<u32>, name: String) -> Result<Client> {
    let options = options_of(service, ttl, name)?;
    Ok(Client::connect_with(address_of(service)?.clone(), options)?)
}

pub(super) fn options_of(service: &ServiceArgs, ttl: Option<u32>, name: String) -> Result<Options> {
    let mut options = Options::for_address(address_of(service)?)?;
    options.name = name;
    if let Some(path) = &service.key_file {
        options.credentials = Some(credentials(path)?);
    }
    if let Some(ttl) = ttl {
        options.ttl_ms = ttl;
    }
    Ok(options)
}

pub(super) fn address_of(service: &ServiceArgs) -> Result<&Address> {
    match &service.server {
        Some(address) => Ok(address),
        None => Err(anyhow!(
            "which lock service? name it with --server or in {ADDRESS_VARIABLE} (`elbow lockd serve` starts one)"
        )),
    }
}

pub(super) fn credentials(path: &Path) -> Result<Credentials> {
    Credentials::read(path).with_context(|| format!("key {}", path.display()))
}
