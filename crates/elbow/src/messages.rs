//! One JSON object a line, with the version of what both sides speak; an unknown one is refused.

use std::io::{BufRead, Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// What both sides speak; this is not the version of what is printed.
const VERSION: u32 = 3;
/// No request or reply line is longer; a longer one is not from us.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// One line from a client.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    #[serde(flatten)]
    body: T,
}

/// One line out.
pub(crate) fn send<T: Serialize>(stream: &mut UnixStream, body: T) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(&Envelope { version: VERSION, body })?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// One line in; `None` at the end.
pub(crate) fn receive<T: for<'a> Deserialize<'a>>(from: &mut impl BufRead) -> anyhow::Result<Option<T>> {
    let mut line = Vec::new();
    if from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let value: serde_json::Value = serde_json::from_slice(&line).context("not a line of JSON")?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        other => bail!("the other side speaks version {other:?} of the protocol, this is version {VERSION}"),
    }
    let envelope: Envelope<T> = serde_json::from_value(value).context("not a message of this protocol")?;
    Ok(Some(envelope.body))
}
