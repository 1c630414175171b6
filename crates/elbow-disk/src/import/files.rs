//! The files that a parameter file names: with `source`, or as a seek curve. Always: they lie beside it, and their number is bounded.

use std::io;
use std::path::{Component, Path};

use super::language::{self, Item, Located};
use crate::drive::DriveError;

/// Files that one names, with those that these name.
const FILES_MAX: usize = 64;

/// What files may be read yet.
pub(super) struct Files<'r> {
    read: &'r mut dyn FnMut(&str) -> io::Result<String>,
    left: usize,
}

impl<'r> Files<'r> {
    pub(super) fn new(read: &'r mut dyn FnMut(&str) -> io::Result<String>) -> Files<'r> {
        Files { read, left: FILES_MAX }
    }

    /// The items of a text, with those of the files that it names.
    pub(super) fn items(&mut self, file: &str, text: &str) -> Result<Vec<Located<Item>>, DriveError> {
        let mut all = Vec::new();
        for item in language::parse(file, text)? {
            match &item.value {
                Item::Source(name) => {
                    let text = self.text(&item, name)?;
                    all.extend(self.items(name, &text)?);
                }
                _ => all.push(item),
            }
        }
        Ok(all)
    }

    /// The text of a file that is named there.
    pub(super) fn text<T>(&mut self, there: &Located<T>, name: &str) -> Result<String, DriveError> {
        // It lies beside the file that names it: nothing else is read for a file that somebody sent.
        let parts = Path::new(name).components();
        if !parts.clone().all(|part| matches!(part, Component::Normal(_))) {
            return Err(there.error(None, format!("`{name}` is not beside this file")));
        }
        self.left = match self.left.checked_sub(1) {
            Some(left) => left,
            None => return Err(there.error(None, format!("more than {FILES_MAX} files are named"))),
        };
        (self.read)(name).map_err(|reason| there.error(None, format!("cannot read `{name}`: {reason}")))
    }
}
