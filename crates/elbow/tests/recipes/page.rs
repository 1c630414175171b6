//! A page of the documentation as a test sees it: the files that it has its reader write, and the commands, in order.
//!
//! A fence whose line before is a name in backquotes and a colon is such a file. A fence `sh` or `console` is for a shell; a line of
//! `console` that begins with `$ ` is a command, and the others are what it prints.

/// A page that is played.
pub(crate) struct Page {
    files: Vec<(&'static str, &'static str)>,
    blocks: std::vec::IntoIter<&'static str>,
}

impl Page {
    /// A page by its text.
    pub(crate) fn new(text: &'static str) -> Self {
        let (mut files, mut blocks) = (Vec::new(), Vec::new());
        for (before, language, content) in fences(text) {
            let name = before.strip_prefix('`').and_then(|line| line.strip_suffix("`:"));
            match name {
                Some(name) => files.push((name, content)),
                None if ["sh", "console", "yaml"].contains(&language) => blocks.push(content),
                None => {}
            }
        }
        Self {
            files,
            blocks: blocks.into_iter(),
        }
    }

    /// The files that its reader writes.
    pub(crate) fn files(&self) -> &[(&'static str, &'static str)] {
        &self.files
    }

    /// The next block, which a test expects to hold these words.
    #[track_caller]
    pub(crate) fn next(&mut self, words: &str) -> &'static str {
        let block = self.blocks.next().expect("one more block");
        assert!(block.contains(words), "a block with `{words}` was expected:\n{block}");
        block
    }

    /// That all of its blocks were taken.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        assert_eq!(self.blocks.next(), None, "a block that no test runs");
    }
}

/// Each fenced block: the last line with something in it before, the language, the content.
fn fences(text: &'static str) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut found = Vec::new();
    let mut parts = text.split("```");
    let mut before = parts.next().unwrap_or_default();
    while let (Some(inside), Some(after)) = (parts.next(), parts.next()) {
        let (language, content) = inside.split_once('\n').expect("a fence is a line");
        let line = before.trim_end().lines().last().unwrap_or_default();
        found.push((line, language, content));
        before = after;
    }
    found
}

#[test]
fn a_page_has_files_and_blocks() {
    let mut page =
        Page::new("# A\n\n`a.sh`:\n\n```sh\necho file\n```\n\nRun it:\n\n```sh\n./a.sh\n```\n```text\nno\n```\n");
    assert_eq!(page.files(), [("a.sh", "echo file\n")]);
    assert_eq!(page.next("a.sh"), "./a.sh\n");
    page.finish();
}
