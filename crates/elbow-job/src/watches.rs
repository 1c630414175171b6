//! Who opens something on the storage by its name, without an action that would hold the name: whether the name has led elsewhere meanwhile.
//!
//! An action waits for others on its names. A read does not: between its look at the model and its open(2) the file may have been moved, and
//! another one may have come to its name.

use std::collections::HashMap;

use crate::api::Ino;

/// Opens by name that are under way.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    begun: u64,
    open: HashMap<u64, Watch>,
}

#[derive(Debug)]
struct Watch {
    /// The object, and the directories that are looked for by name on the way to it.
    on_the_way: Vec<Ino>,
    has_moved: bool,
}

impl Watches {
    /// Somebody is going to open something; `on_the_way`: it, and the directories that are looked for by name. Gives a number for [`Self::end`].
    pub(crate) fn begin(&mut self, on_the_way: Vec<Ino>) -> u64 {
        self.begun += 1;
        let watch = Watch {
            on_the_way,
            has_moved: false,
        };
        self.open.insert(self.begun, watch);
        self.begun
    }

    /// An object has lost a name on the storage.
    pub(crate) fn note_moved(&mut self, ino: Ino) {
        let concerned = self.open.values_mut().filter(|watch| watch.on_the_way.contains(&ino));
        concerned.for_each(|watch| watch.has_moved = true);
    }

    /// It is open, or was refused: whether any of these has lost a name since.
    pub(crate) fn end(&mut self, number: u64) -> bool {
        self.open.remove(&number).is_none_or(|watch| watch.has_moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_on_the_way_counts_and_only_meanwhile() {
        let mut watches = Watches::default();
        watches.note_moved(Ino(5));
        let [first, second] = [vec![Ino(5), Ino(2)], vec![Ino(6)]].map(|way| watches.begin(way));
        watches.note_moved(Ino(2));
        watches.note_moved(Ino(7));
        assert!(watches.end(first) && !watches.end(second));
        let third = watches.begin(vec![Ino(2)]);
        assert!(!watches.end(third));
    }
}
