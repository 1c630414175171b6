//! Reading files ahead that are called as one that was read.
//!
//! Programs look for the same few names in each directory of a tree: git for `.gitignore`, make for `Makefile`, a configuration for its parts. Who has
//! read two of one name is going to read the others, in the order of their paths. Pure bookkeeping, as in [`crate::directory_readahead`].

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};

use elbow_job::Ino;

/// Files of one name that are read ahead at once.
pub(crate) const NAMESAKES_MAX: usize = 64;
/// When so few of them are still to be read, more are.
const FEW: usize = 16;
/// Names that are remembered; all are forgotten when there are more.
const NAMES_MAX: usize = 1024;

/// Which names are read in several directories.
#[derive(Debug, Default)]
pub(crate) struct Namesakes {
    names: HashMap<OsString, Readers>,
}

#[derive(Debug, Default)]
struct Readers {
    /// Files of this name that were read.
    read: HashSet<Ino>,
    /// Files of this name that were read ahead, and by nobody else yet.
    ahead: HashSet<Ino>,
    /// There were no more when it was last looked for them.
    is_at_end: bool,
}

impl Namesakes {
    /// A file is read from its beginning; whether it is time to look for others of its name.
    pub(crate) fn note_read(&mut self, file: Ino, name: &OsStr) -> bool {
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(name) {
            self.names.clear();
        }
        let readers = self.names.entry(name.to_owned()).or_default();
        let was_expected = readers.ahead.remove(&file);
        if !readers.read.insert(file) || readers.read.len() < 2 {
            return false;
        }
        if !was_expected {
            // Its reader has left out those that were read ahead, or its directory was not listed by then.
            readers.ahead.clear();
            return true;
        }
        readers.ahead.len() < FEW && !readers.is_at_end
    }

    /// What was found; which of these are to be read ahead.
    pub(crate) fn note_found(&mut self, name: &OsStr, mut found: Vec<Ino>) -> Vec<Ino> {
        let readers = self.names.entry(name.to_owned()).or_default();
        readers.is_at_end = found.len() < NAMESAKES_MAX;
        found.retain(|file| !readers.read.contains(file) && readers.ahead.insert(*file));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> &'static OsStr {
        OsStr::new(".gitignore")
    }

    #[test]
    fn who_has_read_two_of_a_name_gets_the_others() {
        let mut namesakes = Namesakes::default();
        assert!(!namesakes.note_read(Ino(2), name()), "the first of its name");
        assert!(!namesakes.note_read(Ino(2), name()), "the same one again");
        assert!(!namesakes.note_read(Ino(9), OsStr::new("other")));
        assert!(namesakes.note_read(Ino(3), name()));
        let found: Vec<Ino> = (3..67).map(Ino).collect();
        assert_eq!(
            namesakes.note_found(name(), found.clone()),
            found[1..],
            "but not what was read"
        );
        for file in 4..51 {
            assert!(!namesakes.note_read(Ino(file), name()), "{file}: there are enough");
        }
        assert!(namesakes.note_read(Ino(51), name()), "few are left");
        assert_eq!(
            namesakes.note_found(name(), (52..70).map(Ino).collect()),
            [67, 68, 69].map(Ino)
        );
        for file in 52..60 {
            assert!(!namesakes.note_read(Ino(file), name()), "{file}: there were no more");
        }
        assert!(namesakes.note_read(Ino(1000), name()), "those between were left out");
        assert_eq!(namesakes.note_found(name(), vec![Ino(1001)]), [Ino(1001)]);
    }

    #[test]
    fn names_are_forgotten_before_there_are_too_many() {
        let mut namesakes = Namesakes::default();
        for number in 0..3 * NAMES_MAX as u64 {
            namesakes.note_read(Ino(number + 2), OsStr::new(&number.to_string()));
            assert!(namesakes.names.len() <= NAMES_MAX);
        }
    }
}
