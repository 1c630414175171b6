//! This process's session with the lock service.

use std::sync::OnceLock;

use elbow_lock::Client;
use parking_lot::Mutex;

use crate::error::MpiError;

/// This process's session with the lock service, made when it is first needed.
pub(crate) fn client() -> Result<Client, MpiError> {
    static CLIENT: OnceLock<Mutex<Option<Client>>> = OnceLock::new();
    let mut known = CLIENT.get_or_init(Mutex::default).lock();
    if let Some(client) = &*known {
        return Ok(client.clone());
    }
    let client = Client::from_environment()?;
    *known = Some(client.clone());
    Ok(client)
}
