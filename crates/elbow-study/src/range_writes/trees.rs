//! What Table 2 is made of: the tree of Linux 2.6.20 and the calls of PostMark, or others that are given.
//!
//! *Range Writes* says "the Linux source tree", and no version. Linux 2.6.20 is of the time of its traces; its directories and sizes are in
//! `data/linux-2.6.20.tree`, without names, which do not matter but for their length. An earlier tree drawn at random from the same
//! sizes took a third longer than the real one: its directories all had the same number of files.

use std::collections::HashMap;

use super::plan::{Plan, Size, StudyError};
use elbow_ext2::Trace;

/// Directories (numbers), and sizes of files that follow each other there; lines that begin with `#` are comments.
const LINUX: &str = include_str!("../../data/linux-2.6.20.tree");
/// The calls of PostMark, as [`Trace::parse`] reads them.
const POSTMARK: &str = include_str!("../../data/postmark-1.51.trace");
/// Files that a quick plan unpacks.
const QUICK_FILES: usize = 300;
/// Of so many directories one is unpacked where a tree is unpacked a hundred times, but for a full plan.
const PART: usize = 4;

impl Plan {
    /// The calls of tar.
    pub(super) fn untar(&self) -> Result<Trace, StudyError> {
        let (name, text) = self.listing();
        Ok(Trace::untar(&name, &self.shortened(&text))?)
    }

    /// The calls of tar for a part of the tree, as large as the plan has it.
    pub(super) fn untar_part(&self) -> Result<Trace, StudyError> {
        let (name, text) = self.listing();
        Ok(Trace::untar(&name, &self.part(&text))?)
    }

    /// What [`untar`](Self::untar) unpacks.
    pub(super) fn tree(&self) -> String {
        let (name, text) = self.listing();
        let (some, all) = (self.shortened(&text).lines().count(), text.lines().count());
        match some < all {
            true => format!("untar unpacks the first {some} of the {all} files of {name}."),
            false => format!("untar unpacks the {all} files of {name}."),
        }
    }

    /// What [`untar_part`](Self::untar_part) unpacks.
    pub(super) fn tree_part(&self) -> String {
        let (name, text) = self.listing();
        let (some, all) = (self.part(&text).lines().count(), text.lines().count());
        match self.size {
            Size::Normal => {
                format!("untar unpacks each fourth directory of {name}, {some} of {all} files (--full: all).")
            }
            _ => self.tree(),
        }
    }

    fn listing(&self) -> (String, String) {
        self.listing.clone().unwrap_or_else(|| ("linux-2.6.20".into(), linux()))
    }

    fn shortened(&self, listing: &str) -> String {
        let files = if self.is_quick() { QUICK_FILES } else { usize::MAX };
        listing.lines().take(files).map(|line| format!("{line}\n")).collect()
    }

    fn part(&self, listing: &str) -> String {
        match self.size {
            Size::Normal => fourth(listing),
            _ => self.shortened(listing),
        }
    }

    /// The calls of PostMark.
    pub(super) fn postmark(&self) -> Result<Trace, StudyError> {
        match &self.postmark {
            Some((name, calls, directory)) => Ok(Trace::parse_strace(name, calls, directory)?),
            None => Ok(Trace::parse("postmark-1.51", POSTMARK)?),
        }
    }

    /// Where those come from.
    pub(super) fn mail(&self) -> &'static str {
        match self.postmark {
            Some(_) => "PostMark is the calls given.",
            None => "PostMark is the calls of version 1.51 with its default settings.",
        }
    }
}

/// The files of each fourth directory.
fn fourth(listing: &str) -> String {
    let mut numbers = HashMap::new();
    let mut is_in = |line: &&str| {
        let next = numbers.len();
        let directory = line.rsplit_once('/').map_or("", |(before, _)| before);
        let directory = directory.split_once('\t').map_or(directory, |(_, path)| path);
        numbers.entry(directory.to_owned()).or_insert(next).is_multiple_of(PART)
    };
    let lines = listing.lines().filter(|line| is_in(line));
    lines.map(|line| format!("{line}\n")).collect()
}

/// A listing of Linux 2.6.20, with numbers for names.
fn linux() -> String {
    let mut listing = String::new();
    let lines = LINUX.lines().filter(|line| !line.starts_with('#'));
    let runs = lines.map(|line| line.split_once('\t').expect("a directory and sizes"));
    let files = runs.flat_map(|(directory, sizes)| sizes.split(' ').map(move |size| (directory, size)));
    for (number, (directory, size)) in files.enumerate() {
        let parts: String = directory.split('/').map(|part| format!("d{part}/")).collect();
        // As long as the names there are on average.
        listing.push_str(&format!("{size}\t{parts}{number:010}\n"));
    }
    listing
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree that was drawn at random had as many files and bytes, and took 316 s where the real one took 238.
    #[test]
    fn the_tree_is_the_one_of_linux() {
        let tree = Plan::new(1, Size::Full).unwrap().untar().unwrap().summary();
        assert_eq!(tree.creates, 21_278);
        assert_eq!(tree.bytes_written, 233_599_047);
    }

    #[test]
    fn postmark_is_the_program() {
        let calls = Plan::new(1, Size::Quick).unwrap().postmark().unwrap().summary();
        let counts = [calls.creates, calls.deletes, calls.reads, calls.appends];
        assert_eq!(counts, [764, 764, 243, 257]);
    }

    #[test]
    fn a_part_of_it_is_said_to_be_one() {
        let plan = |size| Plan::new(1, size).unwrap();
        let part = plan(Size::Normal).untar_part().unwrap().summary();
        let megabytes = part.bytes_written as f64 / 1e6;
        assert!(
            (45.0..75.0).contains(&megabytes),
            "about a fourth of 233.6 MB: {megabytes}"
        );
        assert!(
            plan(Size::Normal)
                .tree_part()
                .contains(&format!("{} of 21278 files", part.creates))
        );
        assert!(plan(Size::Full).tree_part().contains("the 21278 files"));
        assert!(plan(Size::Quick).tree().contains("the first 300 of the 21278 files"));
        assert_eq!(fourth("1\ta/b\n2\tc\n3\td/e\n4\ta/f\n"), "1\ta/b\n4\ta/f\n");
    }
}
