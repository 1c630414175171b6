//! What `--json` says of a sort that failed.

use crate::json::SCHEMA;

/// The message, what to do about it, and the exit code.
pub(super) fn failure(error: &str, hint: Option<&str>, code: u8) -> serde_json::Value {
    serde_json::json!({
        "schema": SCHEMA, "outcome": "failed", "error": { "message": error }, "hint": hint, "exit_code": code,
    })
}
