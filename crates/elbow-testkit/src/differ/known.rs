//! Differences that are known: limits, which SEMANTICS.md states and this table repeats, and bugs that wait, in a file of the corpus.
//!
//! Both are counted wherever they are met. The call that meets one is taken out of the case, which is run again without it, so that nothing hides behind it.

use std::fs;
use std::io;
use std::path::Path;

use super::compare::Finding;
use super::ground::Storage;

/// A difference that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The name of its storage, or `*`.
    pub storage: String,
    /// Its signature, in which `*` is any text.
    pub signature: String,
    /// Why it is known: the limit, or the issue.
    pub why: String,
}

/// What SEMANTICS.md says under "Limits", by signature.
const LIMITS: [(&str, &str, &str); 0] = [];

impl Known {
    fn covers(&self, storage: Storage, finding: &Finding) -> bool {
        matches(&self.signature, &finding.signature) && (self.storage == "*" || self.storage == storage.name())
    }
}

/// All that is known.
#[derive(Clone, Debug, Default)]
pub struct KnownList(Vec<Known>);

impl KnownList {
    /// The limits alone.
    pub fn limits() -> Self {
        let known = |(storage, signature, why): &(&str, &str, &str)| Known {
            storage: (*storage).to_owned(),
            signature: (*signature).to_owned(),
            why: (*why).to_owned(),
        };
        Self(LIMITS.iter().map(known).collect())
    }

    /// The limits, and the bugs of a file: lines like `ext4 | answer rename EXDEV/ok | issue 12: ...`.
    ///
    /// # Errors
    /// What reading says, or the line that is none.
    pub fn with_file(path: &Path) -> io::Result<Self> {
        let mut list = Self::limits();
        for line in fs::read_to_string(path)?.lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parts: Vec<&str> = line.split('|').map(str::trim).collect();
            let [storage, signature, why] = parts[..] else {
                return Err(io::Error::other(format!(
                    "{}: \"{line}\" is no `storage | signature | why`",
                    path.display()
                )));
            };
            list.0.push(Known {
                storage: storage.to_owned(),
                signature: signature.to_owned(),
                why: why.to_owned(),
            });
        }
        Ok(list)
    }

    /// What is known about a finding.
    pub fn of(&self, storage: Storage, finding: &Finding) -> Option<&Known> {
        self.0.iter().find(|known| known.covers(storage, finding))
    }
}

/// Whether a text is one of a pattern.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(start) else {
        return false;
    };
    (0..=text.len()).any(|skipped| text.is_char_boundary(skipped) && matches(rest, &text[skipped..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text() {
        assert!(matches("answer * */EACCES (user)", "answer open ok/EACCES (user)"));
        assert!(!matches("answer * */EACCES (user)", "answer open ok/EACCES"));
        assert!(matches("a", "a") && matches("*", "") && !matches("a*b", "abc"));
    }
}
