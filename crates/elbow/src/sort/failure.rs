//! What `--json` says of a sort that failed.

use crate::exit;
use crate::json::SCHEMA;

/// A word that an option does not know.
#[derive(Debug, thiserror::Error)]
#[error("invalid argument '{word}' for '{option}'; valid are {valid}")]
pub(super) struct UnknownWord {
    pub(super) word: String,
    pub(super) option: &'static str,
    pub(super) valid: &'static str,
}

/// The exit code that sort(1) has for it.
pub(super) fn code(error: &anyhow::Error) -> u8 {
    match error.is::<UnknownWord>() {
        true => exit::UNKNOWN_WORD,
        false => exit::SORT_TROUBLE,
    }
}

/// The message, what to do about it, and the exit code.
pub(super) fn failure(error: &str, hint: Option<&str>, code: u8) -> serde_json::Value {
    serde_json::json!({
        "schema": SCHEMA, "outcome": "failed", "error": { "message": error }, "hint": hint, "exit_code": code,
    })
}
