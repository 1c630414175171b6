//! What Table 2 is made of: a source tree and the calls of PostMark, both made here or given.
//!
//! *Range Writes* says "the Linux source tree", and no version. Linux 2.6.20 is of the time of its traces; without a listing of it,
//! [`linux`] draws a tree of as many directories and files, with sizes as there. PostMark is our generator with the defaults of
//! version 1.51, whose random numbers are not those of the program.

use std::collections::HashMap;

use super::claim::Claim;
use super::linux;
use super::plan::{Plan, Size, StudyError};
use elbow_ext2::{PostMark, Trace};

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

    /// Claims about the tree and PostMark, each with what it was found with.
    pub(super) fn with_sources(&self, mut claims: Vec<Claim>) -> Vec<Claim> {
        let tree = self.listing.as_ref().map_or("a tree drawn at random", |(name, _)| name);
        let mail = self.postmark.as_ref().map_or("our PostMark", |(name, ..)| name);
        for claim in &mut claims {
            claim.ours.push_str(&format!(" (with {tree} and {mail})"));
        }
        claims
    }

    fn listing(&self) -> (String, String) {
        let drawn = || (linux::NAME.to_owned(), linux::listing(self.seed));
        self.listing.clone().unwrap_or_else(drawn)
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
            None => Ok(PostMark::default().trace("/mail")),
        }
    }

    /// Where those come from.
    pub(super) fn mail(&self) -> String {
        match &self.postmark {
            Some((name, ..)) => format!("PostMark is the calls in {name}."),
            None => "PostMark is our generator with the defaults of version 1.51 (--postmark: real calls).".into(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postmark_is_as_large_as_the_program() {
        let calls = Plan::new(1, Size::Quick).unwrap().postmark().unwrap().summary();
        assert_eq!(calls.creates, calls.deletes);
        // The program made 764 files, read 243 times and appended 257 times.
        for (ours, theirs) in [(calls.creates, 764_u64), (calls.reads, 243), (calls.appends, 257)] {
            assert!(ours.abs_diff(theirs) * 5 <= theirs, "{calls:?}");
        }
    }

    #[test]
    fn where_tree_and_mail_come_from_is_said() {
        let mut plan = Plan::new(1, Size::Quick).unwrap();
        assert!(plan.tree().contains("drawn at random"), "{}", plan.tree());
        assert!(plan.mail().contains("our generator"), "{}", plan.mail());
        plan.listing = Some(("linux.tsv".into(), "5\ta/b\n".into()));
        plan.postmark = Some(("calls".into(), String::new(), "/t".into()));
        assert_eq!(plan.tree(), "untar unpacks the 1 files of linux.tsv.");
        assert_eq!(plan.mail(), "PostMark is the calls in calls.");
    }

    #[test]
    fn a_part_of_it_is_said_to_be_one() {
        let plan = |size| Plan::new(1, size).unwrap();
        let part = plan(Size::Normal).untar_part().unwrap().summary();
        let megabytes = part.bytes_written as f64 / 1e6;
        assert!(
            (45.0..75.0).contains(&megabytes),
            "about a fourth of 240 MB: {megabytes}"
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
