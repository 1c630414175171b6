//! A finding: what was tried, and what came of it.

use serde::Serialize;

/// Whether something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should.
    Ok,
    /// With a limit.
    Limited,
    /// Not at all.
    Missing,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// What was tried, and what came of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    pub(super) check: &'static str,
    pub(super) state: State,
    /// What was seen.
    pub(super) found: String,
    /// What it means, or what can be done; empty where nothing is to be done.
    pub(super) hint: String,
}

impl Check {
    pub(super) fn new(check: &'static str, state: State, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            check,
            state,
            found: found.into(),
            hint: hint.into(),
        }
    }

    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, State::Ok, found, "")
    }

    /// What our own messages say: what was found, and after the first semicolon what to do.
    pub(super) fn refused(check: &'static str, message: &str) -> Self {
        let (found, hint) = message.split_once("; ").unwrap_or((message, ""));
        Self::new(check, State::Missing, found, hint)
    }

    /// For people: one line, and what to do on the next.
    pub(super) fn lines(&self) -> String {
        let line = format!("{:<8} {:<20} {}", self.state.word(), self.check, self.found);
        match self.hint.as_str() {
            "" => line,
            hint => format!("{line}\n{:30}{hint}", ""),
        }
    }
}
