//! Bugs that are planted to see that they are found: a worker of the job that does something else than it was told.

use std::collections::HashSet;

use rustix::io::Errno;

use super::answer::Answer;
use super::call::Call;
use super::word::{Name, choice};

choice! {
    /// A bug to plant.
    Bug { ForgetMode "forget-mode-of-renamed" = 0, WrongErrno "wrong-errno-of-rename" = 1,
        StaleName "name-too-many-in-list" = 2 }
}

/// What a worker does wrong.
#[derive(Debug, Default)]
pub struct Planted {
    bug: Option<Bug>,
    /// Last names that something was renamed to.
    renamed: HashSet<Vec<u8>>,
}

impl Planted {
    /// That bug, or none.
    pub fn new(bug: Option<Bug>) -> Self {
        Self {
            bug,
            renamed: HashSet::new(),
        }
    }

    /// Whether the call is answered without being done.
    pub fn is_forgotten(&self, call: &Call) -> bool {
        match (self.bug, call) {
            (Some(Bug::ForgetMode), Call::Chmod { name, .. }) => self.renamed.contains(&last(name)),
            _ => false,
        }
    }

    /// What is answered in the end.
    pub fn after(&mut self, call: &Call, answer: Answer) -> Answer {
        match (self.bug, call, &answer) {
            (Some(Bug::ForgetMode), Call::Rename { to, .. }, Ok(_)) => {
                self.renamed.insert(last(to));
                answer
            }
            (Some(Bug::WrongErrno), Call::Rename { .. }, Err(Errno::NOTEMPTY)) => Err(Errno::EXIST),
            (Some(Bug::StaleName), Call::List { .. }, Ok(names)) if names.starts_with("a=") => {
                Ok(format!("{names} gone=file"))
            }
            _ => answer,
        }
    }
}

fn last(name: &Name) -> Vec<u8> {
    name.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec()
}
